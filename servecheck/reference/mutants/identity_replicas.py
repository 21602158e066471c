"""Endpoints with more than one kind of server behind them, and lone servers with an odd fingerprint."""

from __future__ import annotations

import itertools
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class TwoVersions(ReferenceServer):
    """Sends every fifth request to a pool with a newer version."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401
        super().__init__(**given)
        self._turns = itertools.count()

    def other(self) -> str | None:
        """Return the fingerprint of the other pool."""
        return "vllm-0.33.0-3689bfa3"

    def completion(self, job: Any, answers: Any) -> Event:  # noqa: ANN401
        """Answer from one of the pools."""
        made = super().completion(job, answers)
        if next(self._turns) % 5 == 4:
            made["system_fingerprint"] = self.other()
        return made


class OneSilentPool(TwoVersions):
    """Sends every fifth request to a pool of another engine, which reports no fingerprint."""

    def other(self) -> str | None:
        """Return nothing."""
        return None


class LongFingerprint(ReferenceServer):
    """Has a fingerprint with everything in it, the same each time."""

    fingerprint = "vllm-0.32.1rc1.dev7+gabcdef0-tp8-pp2-dp4-ep-nohash"


_TRIPS = (("one-fingerprint-for-all-replies", Outcome.VIOLATED),)

MUTANTS = (
    Mutant(id="two-versions", server=TwoVersions, trips=_TRIPS),
    Mutant(id="one-silent-pool", server=OneSilentPool, trips=_TRIPS),
)

HARMLESS = (Harmless(id="long-fingerprint", server=LongFingerprint),)
