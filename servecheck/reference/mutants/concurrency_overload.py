"""Servers that do something else than queue or refuse when too many come, and those that do it in their own way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Cut, Event, Reply, Request
from servecheck.reference.base import Answer
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.concurrency_batching import NoIgnoreEos
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class _Full(ReferenceServer):
    """Has room for twelve requests; subclasses say what becomes of the others."""

    room = 12

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self.inside = 0

    async def reply_chat(self, request: Request) -> Reply:
        """Turn away whoever comes too late."""
        if self.inside >= self.room:
            return await self.turn_away(request)
        self.inside += 1
        try:
            return self._leaving(await super().reply_chat(request))
        except BaseException:
            self.inside -= 1
            raise

    def _leaving(self, reply: Reply) -> Reply:
        """Count the request out when its reply has been sent."""
        body = reply.body
        if isinstance(body, bytes):
            self.inside -= 1
            return reply

        async def counted() -> AsyncIterator[bytes]:
            try:
                async for piece in body:
                    yield piece
            finally:
                self.inside -= 1

        return replace(reply, body=counted())

    async def turn_away(self, request: Request) -> Reply:
        """Say what becomes of a request that has no room."""
        raise NotImplementedError


# --------------------------------------------------------------------------- broken


class InternalError(_Full):
    """Answers 500 where it has no room, so that no client waits and tries again."""

    async def turn_away(self, request: Request) -> Reply:  # noqa: ARG002
        """Fail."""
        raise ApiError("queue is full", status=500, kind="InternalServerError")


class ConnectionReset(_Full):
    """Closes the connection of whoever comes too late, without a word."""

    async def turn_away(self, request: Request) -> Reply:  # noqa: ARG002
        """Cut it."""
        raise Cut


class HtmlPage(_Full):
    """Stands behind a gateway that says 503 in HTML."""

    async def turn_away(self, request: Request) -> Reply:  # noqa: ARG002
        """Send its page."""
        return Reply(status=503, headers=(("content-type", "text/html"),), body=b"<html>503 Unavailable</html>")


class BadGateway(_Full):
    """Stands behind a gateway that says 504 where the engine takes too long."""

    async def turn_away(self, request: Request) -> Reply:  # noqa: ARG002
        """Send its page."""
        await asyncio.sleep(2)
        return Reply(status=504, headers=(("content-type", "text/html"),), body=b"<html>504 Gateway Time-out</html>")


class NeverAnswers(_Full):
    """Takes every request in and forgets those that it has no room for."""

    async def turn_away(self, request: Request) -> Reply:  # noqa: ARG002
        """Wait."""
        await asyncio.Event().wait()
        raise AssertionError


class CutShort(ReferenceServer):
    """Ends answers early where many are served, and says that they are whole."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Stop after a few tokens."""
        async for delta in super().deltas(job):
            if self.metrics.running > 8 and delta.count > 5 and delta.finish is None:
                yield replace(delta, finish="length")
                return
            yield delta


class NoFinish(_Full):
    """Leaves out how an answer ended where it has no room left for more."""

    room = 4

    async def turn_away(self, request: Request) -> Reply:
        """Answer all the same."""
        return await ReferenceServer.reply_chat(self, request)

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Drop the reason."""
        made = super().completion(job, answers)
        if self.inside >= self.room:
            made["choices"][0]["finish_reason"] = None
        return made


class StaysSlow(ReferenceServer):
    """Takes ten times as long for everything, once more than twenty were served at a time."""

    was = False

    def decode_delay(self, job: Job, index: int, count: int) -> float:
        """Remember the crowd."""
        self.was = self.was or self.metrics.waiting > 4
        return super().decode_delay(job, index, count) * (40 if self.was else 1)


class DiesOfIt(_Full):
    """Answers nobody any more after a crowd."""

    dead = False

    async def reply_chat(self, request: Request) -> Reply:
        """Be gone."""
        if self.dead:
            raise ApiError("engine core is dead", status=500, kind="InternalServerError")
        return await super().reply_chat(request)

    async def turn_away(self, request: Request) -> Reply:  # noqa: ARG002
        """Die."""
        self.dead = True
        raise ApiError("engine core died", status=500, kind="InternalServerError")


# --------------------------------------------------------------------------- odd, but right


class QueuesAll(ReferenceServer):
    """Serves four at a time and lets all others wait."""


class TurnsAway(_Full):
    """Answers 429 with a word in JSON where it has no room."""

    async def turn_away(self, request: Request) -> Reply:  # noqa: ARG002
        """Refuse."""
        raise ApiError("too many requests", status=429, kind="rate_limit_exceeded", code="rate_limit_exceeded")


class RefusesInStream(_Full):
    """Refuses with 503, and inside the stream where one was asked for, behind a 200."""

    async def turn_away(self, request: Request) -> Reply:
        """Refuse in either way."""
        wrong = ApiError("The request queue is full.", status=503, kind="ServiceUnavailable", code="503")
        if not self.body_of(request).get("stream"):
            raise wrong

        async def frames() -> AsyncIterator[bytes]:
            yield self.frame({"error": {"message": "The request queue is full.", "code": 503}})
            yield b"data: [DONE]\n\n"

        return self.stream_reply(frames())


_V, _H = Outcome.VIOLATED, Outcome.HELD
_CLEAN, _WHOLE = "overload-is-queued-or-refused", "overload-cuts-nothing-short"
_SAYS, _RECOVERS = "refusal-says-too-many-in-json", "serves-as-before-after-overload"

MUTANTS = (
    Mutant(id="internal-error", server=InternalError, trips=((_CLEAN, _V),), source="berthubert/tkconv#147"),
    Mutant(id="connection-reset", server=ConnectionReset, trips=((_CLEAN, _V),)),
    Mutant(id="bad-gateway", server=BadGateway, trips=((_CLEAN, _V),), source="BerriAI/litellm#9551"),
    Mutant(id="never-answers", server=NeverAnswers, trips=((_CLEAN, _V),)),
    Mutant(id="html-page", server=HtmlPage, trips=((_SAYS, _V), (_CLEAN, _H)), source="BerriAI/litellm#9551"),
    Mutant(id="cut-short", server=CutShort, trips=((_WHOLE, _V),)),
    Mutant(id="no-finish", server=NoFinish, trips=((_WHOLE, _V),), source="nicolerenee/infra#2078"),
    Mutant(id="stays-slow", server=StaysSlow, trips=((_RECOVERS, _V),), source="vllm-project/vllm#50425"),
    Mutant(id="dies-of-it", server=DiesOfIt, trips=((_CLEAN, _V), (_RECOVERS, _V)), source="InternLM/lmdeploy#1788"),
)

HARMLESS = (
    Harmless(id="queues-all", server=QueuesAll, config={"slots": 4}),
    Harmless(id="turns-away", server=TurnsAway),
    Harmless(id="refuses-in-stream", server=RefusesInStream),
    Harmless(id="no-ignore-eos", server=NoIgnoreEos),
)
