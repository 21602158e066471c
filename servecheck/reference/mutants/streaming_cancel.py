"""Servers that work on when nobody listens, or leak what an abort should free, and servers that only look so."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.base import Answer
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class Detached(ReferenceServer):
    """Generates in a task of its own, which outlives the client by ``linger`` seconds, for ever by default."""

    linger: float | None = None

    def detaches(self, job: Job) -> bool:  # noqa: ARG002
        """Tell whether this request is detached."""
        return True

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Read from the task what it makes."""
        if not self.detaches(job):
            async for delta in super().deltas(job):
                yield delta
            return
        queue: asyncio.Queue[Delta | None] = asyncio.Queue()
        source = super().deltas(job)

        async def work() -> None:
            async for delta in source:
                queue.put_nowait(delta)
            queue.put_nowait(None)

        task = asyncio.create_task(work())
        try:
            while (made := await queue.get()) is not None:
                yield made
        finally:
            if self.linger is not None:
                asyncio.get_running_loop().call_later(self.linger, task.cancel)


class KeepsRunning(Detached):
    """Finishes every answer, whether the client is still there or not."""


class KeepsStreamRunning(Detached):
    """Finishes streams that nobody reads; whole replies end with their clients."""

    def detaches(self, job: Job) -> bool:
        """Detach streams."""
        return job.stream


class KeepsWholeRunning(Detached):
    """Finishes whole replies that nobody waits for; streams end with their clients."""

    def detaches(self, job: Job) -> bool:
        """Detach whole replies."""
        return not job.stream


class KeepsRunningUnseen(Detached):
    """Finishes every answer on its only slot and shows no metrics: only the next request tells."""

    async def reply_metrics(self, _: Request) -> Reply:
        """Have no such route."""
        raise ApiError("no route /metrics", status=404, kind="not_found_error", code="not_found")


class Watching(ReferenceServer):
    """Notices how each answer ends; subclasses say what becomes of it."""

    async def begins(self) -> None:
        """Do what comes before an answer."""

    def closes(self, *, finished: bool) -> None:
        """Do what comes behind one that was finished or aborted."""
        raise NotImplementedError

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Watch them."""
        await self.begins()
        finished = False
        try:
            async for delta in super().deltas(job):
                finished = finished or delta.finish is not None
                yield delta
        finally:
            self.closes(finished=finished)


class CountLeaks(Watching):
    """Stops working but leaves every aborted request in its count of running ones, so that routers avoid it."""

    def closes(self, *, finished: bool) -> None:
        """Count what was not finished once more."""
        self.metrics.running += not finished


class SlotLeaks(Watching):
    """Loses its only slot to the first aborted request, and serves nobody from then on."""

    _leaked = False

    async def begins(self) -> None:
        """Wait for a slot that is never given back."""
        if self._leaked:
            await asyncio.Event().wait()

    def closes(self, *, finished: bool) -> None:
        """Lose it."""
        self._leaked = not finished


class LeaksIntoNext(ReferenceServer):
    """Writes on when the client of a stream has left, and whoever comes next gets that instead of a reply."""

    _rest: asyncio.Queue[bytes | None] | None = None
    _work: asyncio.Task[None] | None = None

    async def reply_chat(self, request: Request) -> Reply:
        """Send what is left over, if there is any."""
        if self._rest is None:
            return await super().reply_chat(request)
        rest, self._rest = self._rest, None
        return super().stream_reply(self._written(rest))

    def stream_reply(self, frames: AsyncIterator[bytes]) -> Reply:
        """Write into a buffer of the connection, whoever reads it."""
        buffer: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def work() -> None:
            async for frame in frames:
                buffer.put_nowait(frame)
            buffer.put_nowait(None)

        self._work = asyncio.create_task(work())
        return super().stream_reply(self._written(buffer))

    async def _written(self, buffer: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
        whole = False
        try:
            while (frame := await buffer.get()) is not None:
                yield frame
            whole = True
        finally:
            if not whole:
                self._rest = buffer


class LeaksItsId(ReferenceServer):
    """Puts the id of the stream that was left on the next whole reply."""

    _left = ""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Remember the id until the stream has ended."""
        async for event in super().chunks(job):
            self._left = str(event["id"])
            yield event
        self._left = ""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Use an id that is left over."""
        made = super().completion(job, answers)
        left, self._left = self._left, ""
        return {**made, "id": left} if left else made


# --------------------------------------------------------------------------- odd, but right


class OneIdForAll(ReferenceServer):
    """Gives every reply the same id."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Name it."""
        async for event in super().chunks(job):
            yield {**event, "id": "chatcmpl-0"}

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Name it."""
        return {**super().completion(job, answers), "id": "chatcmpl-0"}


class SlowToNotice(Detached):
    """Looks for lost clients every few seconds only, as one engine does."""

    linger = 3.4

    def detaches(self, job: Job) -> bool:
        """Be slow with whole replies."""
        return not job.stream


class AbortCounterStays(ReferenceServer):
    """Never counts aborted requests as aborted; the count of running ones is right."""

    def metrics_text(self) -> str:
        """Hide the counter."""
        return re.sub(r'(finished_reason="abort"\}) .*', r"\1 0.0", super().metrics_text())


class OthersAreHere(ReferenceServer):
    """Serves three requests of others all the time."""

    def metrics_text(self) -> str:
        """Count the others."""
        self.metrics.running += 3
        text = super().metrics_text()
        self.metrics.running -= 3
        return text


class OneSlot(ReferenceServer):
    """Serves one request at a time, and the next one as soon as the client of the first is gone."""


_V = Outcome.VIOLATED
_SLOW = {"decode_seconds": 0.1}  # fewer tokens in the twenty seconds that a request must go on
_OWN = "next-reply-is-its-own"
_STOPS, _NEXT = "work-stops-when-the-client-leaves", "next-request-is-served-at-once"

MUTANTS = (
    Mutant(
        id="keeps-running", server=KeepsRunning, trips=((_STOPS, _V),), source="vllm-project/vllm#54947", config=_SLOW
    ),
    Mutant(
        id="keeps-stream-running",
        server=KeepsStreamRunning,
        trips=((_STOPS, _V),),
        source="vllm-project/vllm#54947",
        config=_SLOW,
    ),
    Mutant(id="keeps-whole-running", server=KeepsWholeRunning, trips=((_STOPS, _V),), config=_SLOW),
    Mutant(
        id="keeps-running-unseen",
        server=KeepsRunningUnseen,
        trips=((_NEXT, _V),),
        source="vllm-project/vllm#54947",
        config={**_SLOW, "slots": 1},
    ),
    Mutant(id="leaks-into-next", server=LeaksIntoNext, trips=((_OWN, _V),), config=_SLOW),
    Mutant(id="leaks-its-id", server=LeaksItsId, trips=((_OWN, _V),), config=_SLOW),
    Mutant(id="count-leaks", server=CountLeaks, trips=((_STOPS, _V),), source="vllm-project/vllm#50425", config=_SLOW),
    Mutant(
        id="slot-leaks",
        server=SlotLeaks,
        trips=(("server-stays-healthy", _V),),
        source="InternLM/lmdeploy#1788",
        config={**_SLOW, "slots": 1},
    ),
)

HARMLESS = (
    Harmless(id="slow-to-notice", server=SlowToNotice, config=_SLOW),
    Harmless(id="abort-counter-stays", server=AbortCounterStays, source="vllm-project/vllm#31503", config=_SLOW),
    Harmless(id="others-are-here", server=OthersAreHere, source="vllm-project/vllm#54947", config=_SLOW),
    Harmless(id="one-id-for-all", server=OneIdForAll, config=_SLOW),
    Harmless(id="one-slot", server=OneSlot, config={**_SLOW, "slots": 1}),
)
