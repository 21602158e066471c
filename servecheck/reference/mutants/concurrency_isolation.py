"""Servers that mix up what they do at the same time; alone, every request is answered rightly."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer
from servecheck.reference.constraint import Choices, Constraint
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.models import spread
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.concurrency_batching import FailsInACrowd, FourSlots, NoIgnoreEos, SlowInCompany
from servecheck.reference.mutants.streaming_cancel import OneIdForAll
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import encode

__all__ = ["HARMLESS", "MUTANTS"]


class _Crowd(ReferenceServer):
    """Knows the jobs that are under way."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self.jobs: list[Job] = []

    def chat_job(self, body: Event) -> Job:
        """Remember the job."""
        job = super().chat_job(body)
        self.jobs.append(job)
        return job

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Forget it when it has ended."""
        try:
            async for delta in super().deltas(job):
                yield delta
        finally:
            self.jobs = [other for other in self.jobs if other is not job]

    def neighbour(self, job: Job) -> Job | None:
        """Return another job under way."""
        return next((other for other in self.jobs if other is not job), None)


# --------------------------------------------------------------------------- broken


class AnswersSwapped(_Crowd):
    """Hands a whole reply to a client who asked for something else at the same time."""

    held: Event | None = None

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Give out the reply before, where there is company."""
        mine = super().completion(job, answers)
        if self.neighbour(job) is None:
            self.held = None
            return mine
        theirs, self.held = self.held, mine
        return theirs or mine


class PromptsSwapped(_Crowd):
    """Generates from the prompt of a neighbour, so that each answer deals with another's question."""

    def context_of(self, job: Job, index: int) -> tuple[int, ...]:
        """Take the neighbour's."""
        other = self.neighbour(job)
        return super().context_of(other, 0) if other is not None else super().context_of(job, index)

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Repeat the prompt's word, as a model does that was asked to."""
        return super().chat_choice(job, self._named(job, answer))

    def _named(self, job: Job, answer: Answer) -> Answer:
        other = self.neighbour(job)
        word = str((other or job).body["messages"][0]["content"]).partition(" ")[0]
        return replace(answer, content=f"{word}: {answer.content}") if job.constraint is None else answer


class ChunkStrays(_Crowd):
    """Writes a chunk of one stream into another."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Add what a neighbour's schema wants."""
        strayed = False
        async for delta in super().deltas(job):
            other = next((one for one in self.jobs if one is not job and one.constraint is not None), None)
            if other is None or strayed or not delta.content or job.constraint is not None:
                yield delta
            else:
                strayed = True
                yield replace(delta, content=delta.content + json.dumps(other.body["response_format"]))


class _Sticky(_Crowd):
    """Decides at the first token of an answer whether the whole of it goes wrong."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self.wrong: dict[str, bool] = {}

    def goes_wrong(self, job: Job) -> bool:
        """Tell whether this answer does."""
        raise NotImplementedError

    def begins(self, job: Job) -> int:
        """Return at which token it does."""
        raise NotImplementedError

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Be sure of one token."""
        if job.id not in self.wrong:
            self.wrong[job.id] = self.goes_wrong(job)
        if self.wrong[job.id] and len(generated) >= self.begins(job):
            return spread(encode("!")[0], 0.999, bytes(16))
        return super().candidates(job, index, prompt, generated)


class NeighbourPoisoned(_Sticky):
    """Gives a free request beside one with a schema a mask that blocks everything but one token."""

    def goes_wrong(self, job: Job) -> bool:
        """Look for a neighbour's schema."""
        return any(other.constraint is not None for other in self.jobs if other is not job)

    def begins(self, job: Job) -> int:  # noqa: ARG002
        """Break down at once."""
        return 0


class GarbageLater(_Sticky):
    """Falls into one character in the second half of answers where more than four users are served."""

    def goes_wrong(self, job: Job) -> bool:  # noqa: ARG002
        """Count the users."""
        return len(self.jobs) > 4

    def begins(self, job: Job) -> int:
        """Break down late."""
        return job.limit // 3


class LimitOfANeighbour(_Crowd):
    """Applies the length limit of another request of the batch."""

    def chat_job(self, body: Event) -> Job:
        """Take it from the one before."""
        other = self.jobs[-1] if self.jobs else None
        job = super().chat_job(body)
        if other is None or other.constraint is not None or job.constraint is not None:
            return job
        self.jobs[-1] = replace(job, limit=other.limit)
        return self.jobs[-1]


class UsageOfANeighbour(_Crowd):
    """Reports the prompt tokens of another request that is under way."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Take them from the shortest."""
        made = super().completion(job, answers)
        if self.jobs:
            made["usage"]["prompt_tokens"] = min(len(other.prompts[0].ids) for other in self.jobs)
        return made


class IdsRepeat(_Crowd):
    """Makes ids from the time, so that requests of one moment have the same."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Cut it."""
        made = super().completion(job, answers)
        return {**made, "id": f"chatcmpl-{int(job.created)}"} if self.jobs else made


class SchemaOfANeighbour(_Crowd):
    """Holds an answer to the schema of the request before it in the batch."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Take the neighbour's."""
        mine = super().constraint_of(body)
        theirs = next((job.constraint for job in reversed(self.jobs) if job.constraint is not None), None)
        return theirs if mine is not None and theirs is not None else mine


class EmptyInCompany(_Crowd):
    """Ends free answers at once where there is company."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Allow the end token only."""
        if self.jobs and "response_format" not in body:
            return Choices(("",))
        return super().constraint_of(body)


class OldMarker(_Crowd):
    """Restores the conversation of an earlier request into one that comes under load."""

    first = ""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Say the earlier prompt's first word."""
        word = str(job.body["messages"][0]["content"]).partition(" ")[0]
        if job.constraint is None and len(word) == 10 and not self.first and self.neighbour(job) is not None:
            self.first = word
        said = False
        async for delta in super().deltas(job):
            if delta.content and not said and self.first not in {"", word} and job.constraint is None:
                said = True
                yield replace(delta, content=f"{self.first} {delta.content}")
            else:
                yield delta


# --------------------------------------------------------------------------- odd, but right


class NoSchemas(ReferenceServer):
    """Has no structured output and says so; its free answers are apart."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Refuse."""
        if "response_format" in body:
            raise ApiError("response_format is not supported", param="response_format")
        return None


class NoSeeds(ReferenceServer):
    """Refuses seeds, as one accelerator's back end does."""

    def seed_of(self, body: Event) -> int | None:
        """Refuse them."""
        if "seed" in body:
            raise ApiError("per-request seed is not supported here", param="seed")
        return super().seed_of(body)


class LoopsAnyway(_Crowd):
    """Has a model that falls into one letter at some prompts, alone as in company."""

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Loop where a third of the prompts are."""
        if len(prompt) > 100 and job.constraint is None:
            return spread(encode("v")[0], 0.999, bytes(16))
        return super().candidates(job, index, prompt, generated)


class NoUsage(ReferenceServer):
    """Leaves usage out."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Drop it."""
        made = super().completion(job, answers)
        del made["usage"]
        return made


_V = Outcome.VIOLATED
_ANSWERED, _OWN = "answered-under-load", "answer-is-its-own"
_SANE, _IDS = "answer-stays-text-under-load", "ids-differ-under-load"

MUTANTS = (
    Mutant(id="answers-swapped", server=AnswersSwapped, trips=((_OWN, _V),), source="BerriAI/litellm#25447"),
    Mutant(id="prompts-swapped", server=PromptsSwapped, trips=((_OWN, _V),), source="ml-explore/mlx-lm#965"),
    Mutant(id="chunk-strays", server=ChunkStrays, trips=((_OWN, _V),), source="ml-explore/mlx-lm#965"),
    Mutant(
        id="neighbour-poisoned",
        server=NeighbourPoisoned,
        trips=((_SANE, _V),),
        source="vllm-project/vllm-gaudi#1199",
    ),
    Mutant(id="garbage-later", server=GarbageLater, trips=((_SANE, _V),), source="tenstorrent/tt-xla#5718"),
    Mutant(id="limit-of-a-neighbour", server=LimitOfANeighbour, trips=((_OWN, _V),)),
    Mutant(id="usage-of-a-neighbour", server=UsageOfANeighbour, trips=((_OWN, _V),)),
    Mutant(id="schema-of-a-neighbour", server=SchemaOfANeighbour, trips=((_OWN, _V),)),
    Mutant(id="old-marker", server=OldMarker, trips=((_OWN, _V),), source="ggml-org/llama.cpp#27148"),
    Mutant(id="ids-repeat", server=IdsRepeat, trips=((_IDS, _V),), source="BerriAI/litellm#25447"),
    Mutant(
        id="empty-in-company",
        server=EmptyInCompany,
        trips=((_SANE, _V),),
        models=("obedient", "babbling", "declining"),
    ),
    Mutant(id="fails-in-a-crowd", server=FailsInACrowd, trips=((_ANSWERED, _V),)),
)

HARMLESS = (
    Harmless(id="slow-in-company", server=SlowInCompany),
    Harmless(id="four-slots", server=FourSlots, config={"slots": 4}),
    Harmless(id="no-ignore-eos", server=NoIgnoreEos),
    Harmless(id="no-schemas", server=NoSchemas),
    Harmless(id="no-usage", server=NoUsage),
    Harmless(id="no-seeds", server=NoSeeds),
    Harmless(id="loops-anyway", server=LoopsAnyway),
    Harmless(id="one-id-for-all", server=OneIdForAll),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
