"""Servers whose key guards too little, and servers that refuse a stranger in their own words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from servecheck.model import Outcome
from servecheck.reference.asgi import Reply, Request, json_reply
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class AnyKeyWillDo(ReferenceServer):
    """Looks whether there is a key and not which."""

    def check_key(self, request: Request) -> None:
        """Take any."""
        if "authorization" not in request.headers:
            super().check_key(request)


class NoKeyWillDo(ReferenceServer):
    """Compares a key where one is sent, and lets in whoever sends none."""

    def check_key(self, request: Request) -> None:
        """Compare what is there."""
        if "authorization" in request.headers:
            super().check_key(request)


class OpenModelList(ReferenceServer):
    """Lists its models to strangers."""

    def check_key(self, request: Request) -> None:
        """Guard all but the list."""
        if request.path != "/v1/models":
            super().check_key(request)


class NoKeyIsItsOwnFault(ReferenceServer):
    """Fails with 500 where a key is missing, as one gateway did."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Change the status."""
        made = super().error(wrong, request)
        return replace(made, status=500) if wrong.status == 401 else made


class OpenSideDoors(ReferenceServer):
    """Guards only paths below ``/v1``, as documented of one engine; the same chat is open under ``/invocations``."""

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {("POST", "/invocations"): "reply_chat"}

    def check_key(self, request: Request) -> None:
        """Guard what begins with /v1."""
        if request.path.startswith("/v1"):
            super().check_key(request)


class OpenTokenizer(ReferenceServer):
    """Leaves its tokenizer open."""

    def check_key(self, request: Request) -> None:
        """Guard all but the tokenizer."""
        if request.path != "/tokenize":
            super().check_key(request)


class ShowsItsKeys(ReferenceServer):
    """Shows all its settings to strangers, the keys among them."""

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {("GET", "/server_info"): "reply_settings"}

    async def reply_settings(self, _: Request) -> Reply:
        """Show everything."""
        states: list[dict[str, Any]] = [{"admin_api_key": "an-admin-key"}]
        return json_reply({"version": "1", "api_key": self.api_key, "internal_states": states})

    def check_key(self, request: Request) -> None:
        """Guard all but the settings."""
        if request.path != "/server_info":
            super().check_key(request)


class StringUnauthorized(ReferenceServer):
    """Says “Unauthorized” where the error object should be, as two engines do."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Write a string."""
        return json_reply({"error": "Unauthorized"}, 401) if wrong.status == 401 else super().error(wrong, request)


class Forbids(ReferenceServer):
    """Answers a stranger with 403, as gateways with accounts do."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Change the status."""
        made = super().error(wrong, request)
        return replace(made, status=403) if wrong.status == 401 else made


class PageForEveryPath(ReferenceServer):
    """Serves a web page for every path it does not know, with 200; no door opens by that."""

    async def reply(self, request: Request) -> Reply:
        """Serve the page."""
        if request.path.startswith("/v1") or (request.method, request.path) in self.routes():
            return await super().reply(request)
        return Reply(headers=(("content-type", "text/html"),), body=b"<!doctype html><title>Models</title>")


_V = Outcome.VIOLATED

MUTANTS = (
    Mutant(id="any-key-will-do", server=AnyKeyWillDo, wants_key=True, trips=(("wrong-key-is-refused", _V),)),
    Mutant(id="no-key-will-do", server=NoKeyWillDo, wants_key=True, trips=(("missing-key-is-refused", _V),)),
    Mutant(id="open-model-list", server=OpenModelList, wants_key=True, trips=(("model-list-needs-the-key", _V),)),
    Mutant(
        id="no-key-is-its-own-fault",
        server=NoKeyIsItsOwnFault,
        wants_key=True,
        trips=(("refusal-of-a-key-is-401", _V),),
    ),
    Mutant(id="open-side-doors", server=OpenSideDoors, wants_key=True, trips=(("side-doors-need-the-key", _V),)),
    Mutant(id="open-tokenizer", server=OpenTokenizer, wants_key=True, trips=(("side-doors-need-the-key", _V),)),
    Mutant(
        id="shows-its-keys",
        server=ShowsItsKeys,
        wants_key=True,
        trips=(("settings-show-no-keys", _V), ("side-doors-need-the-key", _V)),
    ),
)

HARMLESS = (
    Harmless(id="string-unauthorized", server=StringUnauthorized, wants_key=True),
    Harmless(id="forbids", server=Forbids, wants_key=True),
    Harmless(id="page-for-every-path", server=PageForEveryPath, wants_key=True),
)
