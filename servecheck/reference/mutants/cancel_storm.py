"""Servers and gateways that work on when many clients have left, or keep what those held, and some that look so."""

from __future__ import annotations

import asyncio

from servecheck.model import Outcome
from servecheck.reference.engine import Job
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.streaming_cancel import (
    AbortCounterStays,
    CountLeaks,
    Detached,
    KeepsRunning,
    KeepsRunningUnseen,
    KeepsWholeRunning,
    OthersAreHere,
    SlowToNotice,
    Watching,
)

__all__ = ["HARMLESS", "MUTANTS"]


class GatewayKeepsItsConnection(Detached):
    """Is a router that waits for whole replies of the engine behind it, whoever has left; streams do end there."""

    def detaches(self, job: Job) -> bool:
        """Keep whole replies."""
        return not job.stream


class ThirdIsForgotten(Detached):
    """Ends two of three requests that clients have left at the same time, and works on at the third."""

    number = 0

    def detaches(self, job: Job) -> bool:  # noqa: ARG002
        """Count."""
        self.number += 1
        return self.number % 3 == 0


class StallsAfterAborts(Watching):
    """Lets new requests wait until a timeout has freed what aborted ones held, as where two nodes share a request."""

    until = 0.0

    async def begins(self) -> None:
        """Wait for the timeout."""
        await asyncio.sleep(max(0.0, self.until - asyncio.get_running_loop().time()))

    def closes(self, *, finished: bool) -> None:
        """Begin the timeout."""
        if not finished:
            self.until = asyncio.get_running_loop().time() + 20.0


_V = Outcome.VIOLATED
_SLOW = {"decode_seconds": 0.1}  # fewer tokens in the twenty seconds that a request must go on
_LEAVES, _NEXT = "storm-leaves-nothing-running", "next-request-after-a-storm-is-served-at-once"

MUTANTS = (
    Mutant(
        id="gateway-keeps-its-connection",
        server=GatewayKeepsItsConnection,
        trips=((_LEAVES, _V),),
        source="vllm-project/production-stack#867",
        config=_SLOW,
    ),
    Mutant(
        id="keeps-running", server=KeepsRunning, trips=((_LEAVES, _V),), source="vllm-project/vllm#54947", config=_SLOW
    ),
    Mutant(
        id="keeps-whole-running",
        server=KeepsWholeRunning,
        trips=((_LEAVES, _V),),
        source="vllm-project/production-stack#1040",
        config=_SLOW,
    ),
    Mutant(id="third-is-forgotten", server=ThirdIsForgotten, trips=((_LEAVES, _V),), config=_SLOW),
    Mutant(id="count-leaks", server=CountLeaks, trips=((_LEAVES, _V),), source="vllm-project/vllm#50425", config=_SLOW),
    Mutant(
        id="keeps-running-unseen",
        server=KeepsRunningUnseen,
        trips=((_NEXT, _V),),
        source="vllm-project/vllm#54947",
        config={**_SLOW, "slots": 7},
    ),
    Mutant(
        id="stalls-after-aborts",
        server=StallsAfterAborts,
        trips=((_NEXT, _V),),
        source="vllm-project/vllm#50425",
        config=_SLOW,
    ),
)

HARMLESS = (
    Harmless(id="slow-to-notice", server=SlowToNotice, config=_SLOW),
    Harmless(id="abort-counter-stays", server=AbortCounterStays, source="vllm-project/vllm#31503", config=_SLOW),
    Harmless(id="others-are-here", server=OthersAreHere, source="vllm-project/vllm#54947", config=_SLOW),
)
