"""Servers that do one thing and do not chat: what they do is tried, and nothing else is sent to them."""

from __future__ import annotations

from typing import Any

import pytest

from servecheck.model import SkipCode, Status
from servecheck.reference.asgi import Reply, Request, json_reply
from servecheck.reference.server import ReferenceServer
from tests.trying import trials_of

ROUTES = {
    "/v1/embeddings": "embeddings_basic",
    "/v1/rerank": "rerank_basic",
    "/v1/audio/transcriptions": "audio_transcribe",
    "/v1/images/generations": "images_generate",
}


class Single(ReferenceServer):
    """Has one route beside the small ones, and lists it; notes every POST."""

    route_of = ""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.posted: set[str] = set()

    async def reply(self, request: Request) -> Reply:
        if request.method == "POST":
            self.posted.add(request.path)
        if request.path == "/openapi.json":
            return json_reply({"paths": {self.route_of: {}, "/v1/models": {}}})
        if request.method == "POST" and request.path not in (self.route_of, "/tokenize"):
            return json_reply({"detail": "Not Found"}, 404)
        return await super().reply(request)


@pytest.mark.parametrize("route", ROUTES)
def test_what_a_server_is_for_is_tried(route: str) -> None:
    server = type("Server", (Single,), {"route_of": route})()

    assert [trial.status for trial in trials_of(ROUTES[route], server)] == [Status.SUPPORTED]
    assert server.posted <= {route, "/tokenize"}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("probe", ["chat_basic", "vision_image", "speculative_active"])
def test_what_it_is_not_for_is_left_out(route: str, probe: str) -> None:
    server = type("Server", (Single,), {"route_of": route})()

    assert {trial.skip_code for trial in trials_of(probe, server)} == {SkipCode.NOT_APPLICABLE}
    assert server.posted <= {route}
