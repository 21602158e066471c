"""Servers that cut JSON and call it whole, mend it, drop it, or do not cut it at all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant, json_schema
from servecheck.reference.mutants.constraints_in_a_batch import SchemaRefused
from servecheck.reference.rewriting import Rewriting
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken


class StopForLength(ReferenceServer):
    """Calls a cut at the limit ``stop``, so that half an object looks finished."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Rename the reason."""
        async for delta in super().deltas(job):
            yield replace(delta, finish="stop") if delta.finish == "length" else delta


class StopInStreams(ReferenceServer):
    """Gives the right reason in whole answers, and ``stop`` at the end of every stream."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Rename the reason."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                choice["finish_reason"] = "stop" if choice["finish_reason"] else None
            yield event


class NewerNameDropped(ReferenceServer):
    """Does not know ``max_completion_tokens`` and takes it with a 200: the answer runs to its end."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Read the older name only."""
        known = {key: value for key, value in body.items() if key != "max_completion_tokens"}
        return super().limit_of(known, room, default, low)


class GrammarOutlivesLimit(ReferenceServer):
    """Lets a constrained answer run until its grammar ends, whatever the limit."""

    def chat_job(self, body: Event) -> Job:
        """Give it room."""
        job = super().chat_job(body)
        return replace(job, limit=2048) if job.constraint is not None else job


class Mended(ReferenceServer):
    """Closes the quotation marks and braces of what was cut, so that it parses to a word that nobody sent."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Mend it."""
        for answer in answers:
            if job.constraint is not None and answer.finish == "length" and answer.content:
                answer.content += '"}'
        return super().completion(job, answers)


class Emptied(ReferenceServer):
    """Throws away what it cannot parse: the client gets nothing."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Throw it away."""
        for answer in answers:
            if job.constraint is not None and answer.finish == "length":
                answer.content = ""
        return super().completion(job, answers)


class CutFails(ReferenceServer):
    """Parses the answer before it sends it, and fails with a 500 where it was cut."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Fail on half an object."""
        if job.constraint is not None and answers[0].finish == "length" and answers[0].content:
            raise ApiError("Unterminated string", status=500, kind="InternalServerError")
        return super().completion(job, answers)


class SchemaIgnored(json_schema.SchemaIgnored):
    """Builds no grammar: there is no JSON that could be cut."""


# --------------------------------------------------------------------------- odd, but right


class SpreadOut(Rewriting):
    """Writes the JSON over several lines, so that a limit may fall into white space."""

    def change(self, text: str) -> str:
        """Indent it."""
        return json.dumps(json.loads(text), indent=2)


class SpacedAtRandom(Rewriting):
    """Spaces the JSON differently from request to request, as a near-tie between blanks does."""

    asked = 0

    def change(self, text: str) -> str:
        """Space it by turns."""
        self.asked += 1
        return json.dumps(json.loads(text), indent=self.asked % 2 or None)


_V, _N, _R, _H = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.HELD
_LENGTH, _BEGINNING, _LIMIT = "cut-json-says-length", "cut-json-is-a-beginning", "limit-holds-under-a-schema"
_REPORT = "ikawrakow/ik_llama.cpp#2321"

MUTANTS = (
    Mutant(id="stop-for-length", server=StopForLength, trips=((_LENGTH, _V),), source=_REPORT),
    Mutant(id="stop-in-streams", server=StopInStreams, trips=((_LENGTH, _V), (_LENGTH, _H))),
    Mutant(id="newer-name-dropped", server=NewerNameDropped, trips=((_LIMIT, _V), (_LIMIT, _H)), source=_REPORT),
    Mutant(id="grammar-outlives-limit", server=GrammarOutlivesLimit, trips=((_LIMIT, _V),), source=_REPORT),
    Mutant(id="mended", server=Mended, trips=((_BEGINNING, _V), (_LENGTH, _H))),
    Mutant(id="emptied", server=Emptied, trips=((_BEGINNING, _V),), models=("obedient", "babbling", "declining")),
    Mutant(id="cut-fails", server=CutFails, trips=((_LENGTH, _V),)),
    Mutant(id="schema-ignored", server=SchemaIgnored, trips=((_LENGTH, _N),), source="vllm-project/vllm#9900"),
    Mutant(id="schema-refused", server=SchemaRefused, trips=((_LENGTH, _R),)),
)

HARMLESS = (
    Harmless(id="spread-out", server=SpreadOut),
    Harmless(id="spaced-at-random", server=SpacedAtRandom),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
