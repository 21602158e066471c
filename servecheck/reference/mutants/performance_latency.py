"""Servers of other speeds, all of them right: a value has no rule to break."""

from __future__ import annotations

from servecheck.reference.asgi import Event
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless
from servecheck.reference.mutants.streaming_incremental import EightTokensAnEvent
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class Slow(ReferenceServer):
    """Takes a quarter of a second for each token."""


class OnePlace(ReferenceServer):
    """Serves one request at a time, so that sixteen at once wait for each other."""


class NoIgnoreEos(ReferenceServer):
    """Refuses ignore_eos by name, since OpenAI has no such field."""

    def sampling_of(self, body: Event) -> Sampling:
        """Refuse."""
        if "ignore_eos" in body:
            raise ApiError("ignore_eos is not known", param="ignore_eos", code="unknown_parameter")
        return super().sampling_of(body)


MUTANTS = ()

HARMLESS = (
    Harmless(id="slow", server=Slow, config={"decode_seconds": 0.25}),
    Harmless(id="one-place", server=OnePlace, config={"slots": 1}),
    Harmless(id="no-ignore-eos", server=NoIgnoreEos),
    Harmless(id="eight-tokens-an-event", server=EightTokensAnEvent, source="dstackai/dstack#4269"),
)
