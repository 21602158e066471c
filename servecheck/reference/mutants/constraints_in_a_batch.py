"""Servers that mix up the masks of a batch; alone, every request is answered rightly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.constraint import Choices, Constraint
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant, json_schema
from servecheck.reference.rewriting import Rewriting, Rewritten
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class _Batching(ReferenceServer):
    """Knows which requests are under way; subclasses let them disturb each other."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self.running: list[Event] = []

    async def reply_chat(self, request: Request) -> Reply:
        """Keep the request among those under way until it is answered."""
        body = self.body_of(request)
        self.running.append(body)
        try:
            return await super().reply_chat(request)
        finally:
            self.running.remove(body)

    def others(self, body: Event) -> list[Event]:
        """Return the other requests under way that have a constraint, the latest last."""
        return [other for other in self.running if other is not body and other != body and "response_format" in other]


# --------------------------------------------------------------------------- broken


class TwinUnmasked(_Batching):
    """Keeps one mask for equal requests, so that a twin of a request under way has none."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Forget the constraint of a twin."""
        return None if self.running.count(body) > 1 else super().constraint_of(body)


class BraceDoubledInABatch(_Batching):
    """Loses count of drafted tokens with company, so that the opening brace comes twice."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Double it where another is under way."""
        constraint = super().constraint_of(body)
        if constraint is None or not self.others(body):
            return constraint
        return Rewritten(constraint, lambda text: text[0] + text)


class NeighbourPoisoned(_Batching):
    """Gives a plain request beside a constrained one a mask that blocks everything but one token."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Block everything."""
        if "response_format" not in body and self.others(body):
            return Choices(("!" * 40,))
        return super().constraint_of(body)


class MaskOneRowOff(_Batching):
    """Takes the mask of the request before it in the batch."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Take another's constraint."""
        others = self.others(body)
        return super().constraint_of(others[-1] if others and "response_format" in body else body)


class MaskSpills(_Batching):
    """Applies a neighbour's mask to plain requests too."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Take a neighbour's constraint where there is none."""
        others = self.others(body)
        return super().constraint_of(others[-1] if others else body)


class AnswersSwapped(_Batching):
    """Hands the text of a constrained request to the plain one that came next."""

    last = ""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Add what the neighbour's schema wanted."""
        wanted = json.dumps(job.body.get("response_format", {}).get("json_schema", {}).get("schema", {}))
        if job.constraint is not None:
            self.last = wanted
        company = bool(self.others(job.body))
        async for delta in super().deltas(job):
            if job.constraint is None and company and delta.finish is not None:
                yield replace(delta, content=f"{delta.content} {self.last}")
            else:
                yield delta


class MixedBatchFails(_Batching):
    """Fails with a 500 where a constrained request meets another."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Fail."""
        if "response_format" in body and self.others(body):
            raise ApiError("grammar bitmask has the wrong shape", status=500, kind="InternalServerError")
        return super().constraint_of(body)


class PlainEmptied(_Batching):
    """Ends a plain request beside a constrained one before it has begun."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Allow the end token only."""
        if "response_format" not in body and self.others(body):
            return Choices(("",))
        return super().constraint_of(body)


class SchemaIgnored(json_schema.SchemaIgnored):
    """Builds no grammar, alone or in a batch."""


class SchemaRefused(ReferenceServer):
    """Has no structured output and says so."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Refuse."""
        if "response_format" in body:
            raise ApiError("response_format is not supported", param="response_format")
        return None


# --------------------------------------------------------------------------- odd, but right


class SlowInCompany(_Batching):
    """Takes three times as long with company, as a small device does."""

    def decode_delay(self, job: Job, index: int, count: int) -> float:
        """Slow down."""
        return super().decode_delay(job, index, count) * (3 if len(self.running) > 1 else 1)


class CompilesOneByOne(ReferenceServer):
    """Compiles grammars one after another, so that constrained requests join the batch late."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self.compiler = asyncio.Lock()

    async def reply_chat(self, request: Request) -> Reply:
        """Wait for the compiler."""
        if "response_format" in self.body_of(request):
            async with self.compiler:
                await asyncio.sleep(0.05)
        return await super().reply_chat(request)


class SpreadOut(Rewriting):
    """Writes the JSON over several lines."""

    def change(self, text: str) -> str:
        """Indent it."""
        return json.dumps(json.loads(text), indent=2)


_V, _N, _R, _H = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.HELD
_HOLDS, _STAYS, _SANE = "constraint-holds-in-a-batch", "constraint-stays-with-its-request", "free-neighbour-stays-sane"

MUTANTS = (
    Mutant(
        id="twin-unmasked", server=TwinUnmasked, trips=((_HOLDS, _V), (_SANE, _H)), source="vllm-project/vllm#19493"
    ),
    Mutant(
        id="brace-doubled-in-a-batch",
        server=BraceDoubledInABatch,
        trips=((_HOLDS, _V), (_STAYS, _H)),
        source="vllm-project/vllm#44993",
    ),
    Mutant(
        id="neighbour-poisoned",
        server=NeighbourPoisoned,
        trips=((_HOLDS, _H), (_SANE, _V)),
        source="vllm-project/vllm-gaudi#1199",
    ),
    Mutant(id="mask-one-row-off", server=MaskOneRowOff, trips=((_HOLDS, _V), (_STAYS, _V))),
    Mutant(id="mask-spills", server=MaskSpills, trips=((_STAYS, _V), (_SANE, _V)), source="ml-explore/mlx-lm#965"),
    Mutant(id="answers-swapped", server=AnswersSwapped, trips=((_STAYS, _V),), source="BerriAI/litellm#25447"),
    Mutant(id="mixed-batch-fails", server=MixedBatchFails, trips=((_HOLDS, _V),)),
    Mutant(id="plain-emptied", server=PlainEmptied, trips=((_SANE, _V),)),
    Mutant(id="schema-ignored", server=SchemaIgnored, trips=((_HOLDS, _N),), source="vllm-project/vllm#9900"),
    Mutant(id="schema-refused", server=SchemaRefused, trips=((_HOLDS, _R),)),
)

HARMLESS = (
    Harmless(id="slow-in-company", server=SlowInCompany),
    Harmless(id="compiles-one-by-one", server=CompilesOneByOne),
    Harmless(id="spread-out", server=SpreadOut),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
