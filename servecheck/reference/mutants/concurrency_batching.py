"""Servers that take requests one after another, or gain nothing from a batch, and those that are only slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class OneSlot(ReferenceServer):
    """Serves one request at a time, and says nothing of it."""


class SaysOneSlot(ReferenceServer):
    """Serves one request at a time, and says so."""

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {("GET", "/props"): "reply_props"}

    async def reply_props(self, _: Request) -> Reply:
        """``GET /props``."""
        return json_reply({"total_slots": 1, "default_generation_settings": {"n_ctx": self.max_model_len}})


class LockedGateway(ReferenceServer):
    """Stands behind a gateway that sends a request on when the one before it has ended."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self.lock = asyncio.Lock()

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Wait for the lock."""
        async with self.lock:
            async for delta in super().deltas(job):
                yield delta


class ClosedBatch(ReferenceServer):
    """Takes whoever comes at the same time into one batch, and lets nobody else in before all of it has ended."""

    window = 0.05

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self.inside, self.began = 0, 0.0
        self.finished_one = asyncio.Event()

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Wait for the end of the batch."""
        loop = asyncio.get_running_loop()
        while self.inside and loop.time() - self.began > self.window:
            await self.finished_one.wait()
        if not self.inside:
            self.began = loop.time()
            self.finished_one.clear()
        self.inside += 1
        try:
            async for delta in super().deltas(job):
                yield delta
        finally:
            self.inside -= 1
            if not self.inside:
                self.finished_one.set()


class SharesItsTime(ReferenceServer):
    """Works on all requests in turn, so that each is slower by as many as there are."""

    def decode_delay(self, job: Job, index: int, count: int) -> float:
        """Wait for the others."""
        return super().decode_delay(job, index, count) * max(1, self.metrics.running)


class FailsInACrowd(ReferenceServer):
    """Fails with a 500 where more than four requests are under way."""

    under_way = 0

    async def reply_chat(self, request: Request) -> Reply:
        """Count them."""
        if self.under_way > 3:
            raise ApiError("no free sequence group", status=500, kind="InternalServerError")
        self.under_way += 1
        try:
            return await super().reply_chat(request)
        finally:
            self.under_way -= 1


# --------------------------------------------------------------------------- odd, but right


class SlowInCompany(ReferenceServer):
    """Takes three times as long with company, as a small device does."""

    def decode_delay(self, job: Job, index: int, count: int) -> float:
        """Slow down."""
        return super().decode_delay(job, index, count) * (3 if self.metrics.running > 1 else 1)


class FourSlots(ReferenceServer):
    """Serves four at a time; the others wait."""


class NoIgnoreEos(ReferenceServer):
    """Refuses ignore_eos, as a strict server does."""

    def sampling_of(self, body: Event) -> Sampling:
        """Refuse it."""
        if "ignore_eos" in body:
            raise ApiError("unknown field ignore_eos", param="ignore_eos")
        return super().sampling_of(body)


class BufferedStream(ReferenceServer):
    """Stands behind a gateway that passes a stream on in one piece; its requests run side by side."""

    def stream_reply(self, frames: AsyncIterator[bytes]) -> Reply:
        """Collect it."""

        async def whole() -> AsyncIterator[bytes]:
            yield b"".join([frame async for frame in frames])

        return super().stream_reply(whole())


_V, _R, _H = Outcome.VIOLATED, Outcome.REFUSED, Outcome.HELD
_PASSES, _GAINS = "short-request-passes-a-long-one", "eight-give-more-than-one"

MUTANTS = (
    Mutant(
        id="one-slot",
        server=OneSlot,
        trips=((_PASSES, _V), (_GAINS, _V)),
        source="mozilla-ai/llamafile#183",
        config={"slots": 1},
    ),
    Mutant(id="says-one-slot", server=SaysOneSlot, trips=((_PASSES, _R),), config={"slots": 1}),
    Mutant(
        id="locked-gateway",
        server=LockedGateway,
        trips=((_PASSES, _V), (_GAINS, _V)),
        source="theroyallab/tabbyAPI#210",
    ),
    Mutant(id="closed-batch", server=ClosedBatch, trips=((_PASSES, _V), (_GAINS, _H))),
    Mutant(id="shares-its-time", server=SharesItsTime, trips=((_GAINS, _V), (_PASSES, _H)), source="antirez/ds4#230"),
    Mutant(id="fails-in-a-crowd", server=FailsInACrowd, trips=((_GAINS, _V),)),
)

HARMLESS = (
    Harmless(id="slow-in-company", server=SlowInCompany),
    Harmless(id="four-slots", server=FourSlots, config={"slots": 4}),
    Harmless(id="no-ignore-eos", server=NoIgnoreEos, models=("obedient", "babbling")),
    Harmless(id="buffered-stream", server=BufferedStream),
)
