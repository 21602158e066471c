"""Servers that differ in what they do with unknown fields; a property has no right side."""

from __future__ import annotations

from servecheck.reference.asgi import Event
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS", "FailsOnUnknown", "Strict"]

_KNOWN = {"model", "messages", "max_tokens", "temperature"}


class Strict(ReferenceServer):
    """Refuses fields that it does not know, by name."""

    def chat_job(self, body: Event) -> Job:
        """Look at every key."""
        unknown = sorted(set(body) - _KNOWN)
        if unknown:
            raise ApiError(f"unknown field {unknown[0]!r}", status=422, param=unknown[0])
        return super().chat_job(body)


class FailsOnUnknown(ReferenceServer):
    """Fails inside on fields that it does not know."""

    def chat_job(self, body: Event) -> Job:
        """Look at every key."""
        if set(body) - _KNOWN:
            raise ApiError("internal error", status=500, kind="InternalServerError")
        return super().chat_job(body)


MUTANTS = ()

HARMLESS = (
    Harmless(id="strict", server=Strict, source="vllm-project/vllm#53975"),
    Harmless(id="fails-on-unknown", server=FailsOnUnknown),
)
