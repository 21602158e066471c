"""Servers that list routes to strangers: such as manage them, and such as only sound like it."""

from __future__ import annotations

from typing import ClassVar

from servecheck.model import Outcome
from servecheck.reference.asgi import Reply, Request, json_reply
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class Documented(ReferenceServer):
    """Lists its routes to strangers, none of which manages it; names alone are no danger."""

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {("GET", "/openapi.json"): "reply_openapi"}
    LISTED: ClassVar[tuple[str, ...]] = (
        "/v1/chat/completions",
        "/v1/responses/{response_id}/cancel",
        "/is_sleeping",
        "/v1/realtime",
        "/sleepers",
        "/load",
        "/v1/loads",
    )

    async def reply_openapi(self, _: Request) -> Reply:
        """Return the list."""
        return json_reply(
            {"openapi": "3.1.0", "info": {"title": "FastAPI"}, "paths": {path: {} for path in self.LISTED}}
        )

    def check_key(self, request: Request) -> None:
        """Leave the list open."""
        if request.path != "/openapi.json":
            super().check_key(request)


class DeveloperMode(Documented):
    """Runs in its developer mode, with routes that put it to sleep and empty its cache."""

    LISTED = ("/v1/chat/completions", "/sleep", "/wake_up", "/reset_prefix_cache", "/collective_rpc")


class OpenManagement(Documented):
    """Lists the routes that load other weights, as one engine does where no admin key is set."""

    LISTED = ("/generate", "/flush_cache", "/update_weights_from_disk", "/release_memory_occupation")


class ControlPage(Documented):
    """Has routes that shut it down and start it again."""

    LISTED = ("/v1/chat/completions", "/shutdown", "/restart")


_TRIPS = (("no-admin-route-is-listed-without-a-key", Outcome.VIOLATED),)

MUTANTS = (
    Mutant(id="developer-mode", server=DeveloperMode, trips=_TRIPS),
    Mutant(id="open-management", server=OpenManagement, trips=_TRIPS),
    Mutant(id="control-page", server=ControlPage, trips=_TRIPS),
)

HARMLESS = (Harmless(id="documented", server=Documented),)
