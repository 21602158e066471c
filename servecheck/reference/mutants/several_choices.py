"""Replies with too few choices, copies of one, mixed-up indices, lost ends and half counted usage."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.base import Answer, Tally
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken


class OneChoiceOnly(ReferenceServer):
    """Takes ``n`` and gives one choice."""

    def chat_job(self, body: Event) -> Job:
        """Ask for one."""
        return replace(super().chat_job(body), n=1)


class OneTooFew(ReferenceServer):
    """Gives a choice less than was asked for."""

    def chat_job(self, body: Event) -> Job:
        """Ask for fewer."""
        job = super().chat_job(body)
        return replace(job, n=max(1, job.n - 1))


class OneChoiceInStreams(ReferenceServer):
    """Gives all choices in a whole reply and one in a stream."""

    def chat_job(self, body: Event) -> Job:
        """Ask for one where a stream was asked for."""
        job = super().chat_job(body)
        return replace(job, n=1) if job.stream else job


class NRefused(ReferenceServer):
    """Gives one answer at a time and refuses more."""

    def chat_job(self, body: Event) -> Job:
        """Refuse two."""
        if (body.get("n") or 1) > 1:
            raise ApiError("n must be 1", param="n")
        return super().chat_job(body)


class MoreThanSlotsRefused(ReferenceServer):
    """Gives at most two answers at once and refuses more."""

    def chat_job(self, body: Event) -> Job:
        """Refuse three."""
        if (body.get("n") or 1) > 2:
            raise ApiError("n must be between 1 and 2", param="n")
        return super().chat_job(body)


class Copies(ReferenceServer):
    """Draws once and gives the same text in all choices."""

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> object:
        """Leave the likeliest token only."""
        return super().candidates(job, index, prompt, generated)[:1]


class AllIndexZero(ReferenceServer):
    """Numbers every choice 0, in whole replies and on every chunk."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Change the index."""
        return {**super().chat_choice(job, answer), "index": 0}

    def chunk(self, job: Job, index: int, delta: Event, tally: Tally, finish: str | None = None) -> Event:
        """Change the index."""
        return super().chunk(job, 0 * index, delta, tally, finish)


class IndexMissing(ReferenceServer):
    """Leaves the index out of the choices."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Drop the index."""
        made = super().chat_choice(job, answer)
        del made["index"]
        return made


class FromOne(ReferenceServer):
    """Numbers the choices of a whole reply from one, and the chunks of a stream too."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Move the index."""
        return {**super().chat_choice(job, answer), "index": answer.index + 1}

    def chunk(self, job: Job, index: int, delta: Event, tally: Tally, finish: str | None = None) -> Event:
        """Move the index."""
        return super().chunk(job, index + 1, delta, tally, finish)


class LastFinishLost(ReferenceServer):
    """Ends a stream when the first choice has ended, so the others lose their last words and their finish."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Drop the finishing delta of every choice but the first."""
        async for delta in super().deltas(job):
            if not (job.stream and delta.finish and delta.index):
                yield delta


class FinishNullInWhole(ReferenceServer):
    """Tells the finish reason of the first choice only."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Drop the reason."""
        made = super().chat_choice(job, answer)
        return {**made, "finish_reason": None} if answer.index else made


class EmptyOthers(ReferenceServer):
    """Fills the choices after the first with nothing."""

    async def answers(self, job: Job) -> list[Answer]:
        """Take their text away."""
        made = await super().answers(job)
        for answer in made[1:]:
            answer.content = answer.reasoning = ""
        return made


class UsageOfFirst(ReferenceServer):
    """Counts the tokens of the first choice only."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Count one choice."""
        first = Tally({0: tally.counts.get(0, 0)}, {0: tally.thoughts.get(0, 0)})
        return super().usage(job, first)


class UsageOfLastStep(ReferenceServer):
    """Reports the tokens of the last step, one for each choice, instead of the total."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Count one token a choice."""
        return super().usage(job, Tally(dict.fromkeys(tally.counts, 1), {}) if job.stream else tally)


class UsageSquared(ReferenceServer):
    """Adds up the running totals of every chunk."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Add up."""
        if not job.stream:
            return super().usage(job, tally)
        return super().usage(job, Tally({index: n * (n + 1) // 2 for index, n in tally.counts.items()}, {}))


class GrammarForTheFirstChoice(ReferenceServer):
    """Keeps one grammar for a request with several choices, and the first choice has used it up."""

    def script(self, job: Job, index: int, prompt: Sequence[int], *, after_thought: bool) -> list[int]:
        """Leave the others free."""
        free = job if index == 0 else replace(job, constraint=None)
        return super().script(free, index, prompt, after_thought=after_thought)


class SeveralUnderASchemaFail(ReferenceServer):
    """Fails inside where several choices meet a schema."""

    def chat_job(self, body: Event) -> Job:
        """Fail."""
        job = super().chat_job(body)
        if job.constraint is not None and job.n > 1:
            raise ApiError("list index out of range", status=500, kind="InternalServerError")
        return job


# --------------------------------------------------------------------------- odd, but right


class OneAfterTheOther(ReferenceServer):
    """Streams the choices one after the other; the index tells them apart, so no order is promised."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Hold all but the first back."""
        held: dict[int, list[Delta]] = {index: [] for index in range(job.choices)}
        async for delta in super().deltas(job):
            held[delta.index].append(delta)
        for index in sorted(held):
            for delta in held[index]:
                yield delta


class AnyOrder(ReferenceServer):
    """Lists the choices backwards; clients go by the index."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Turn the list around."""
        return super().completion(job, answers[::-1])


class SeveralChoicesInOneChunk(ReferenceServer):
    """Puts what two choices have to say into one chunk; ``choices`` is a list in streams too."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Join neighbours that are about different choices."""
        held: Event | None = None
        async for event in super().chunks(job):
            if held and event["choices"] and event["choices"][0]["index"] not in {c["index"] for c in held["choices"]}:
                held = {**held, "choices": [*held["choices"], *event["choices"]]}
                continue
            if held:
                yield held
            held = event
        if held:
            yield held


class NoUsage(ReferenceServer):
    """Sends no usage with a stream although asked; another row judges that."""

    async def reply_chat(self, request: Request) -> Reply:
        """Forget the wish."""
        body = {name: value for name, value in self.body_of(request).items() if name != "stream_options"}
        plain = Request(method="POST", path=request.path, headers=request.headers, body=json.dumps(body).encode())
        return await super().reply_chat(plain)


class OwnSeeds(ReferenceServer):
    """Gives each choice a fixed seed of its own; they differ, and repeat."""

    def sampling_of(self, body: Event) -> Sampling:
        """Fix the seed."""
        return replace(super().sampling_of(body), seed=7)


_V, _N = Outcome.VIOLATED, Outcome.NO_EFFECT
_COUNT, _LARGE = "n-gives-that-many-choices", "n-is-taken-as-large-as-asked"
_LONG = ("obedient", "babbling", "reasoning")

_SHAPED = "a-schema-shapes-every-choice"

MUTANTS = (
    Mutant(
        id="one-choice-only",
        server=OneChoiceOnly,
        trips=((_COUNT, _N),),
        source="abetlen/llama-cpp-python#1906",
    ),
    Mutant(id="one-too-few", server=OneTooFew, trips=((_COUNT, _V),)),
    Mutant(id="one-choice-in-streams", server=OneChoiceInStreams, trips=((_COUNT, _N),)),
    Mutant(id="more-than-slots-refused", server=MoreThanSlotsRefused, trips=((_LARGE, Outcome.REFUSED),)),
    Mutant(id="n-refused", server=NRefused, trips=((_COUNT, Outcome.REFUSED),)),
    Mutant(id="copies", server=Copies, trips=(("choices-differ", _V),), source="vllm-project/vllm#11953"),
    Mutant(
        id="all-index-zero",
        server=AllIndexZero,
        trips=(("choices-are-numbered-from-zero", _V),),
        source="BerriAI/litellm#3276",
    ),
    Mutant(id="index-missing", server=IndexMissing, trips=(("choices-are-numbered-from-zero", _V),)),
    Mutant(id="from-one", server=FromOne, trips=(("choices-are-numbered-from-zero", _V),)),
    Mutant(id="last-finish-lost", server=LastFinishLost, trips=(("each-choice-ends-once", _V),)),
    Mutant(
        id="finish-null-in-whole",
        server=FinishNullInWhole,
        trips=(("each-choice-ends-once", _V),),
        source="mudler/LocalAI#788",
    ),
    Mutant(id="empty-others", server=EmptyOthers, trips=(("each-choice-has-text", _V),)),
    Mutant(id="usage-of-first", server=UsageOfFirst, trips=(("usage-counts-all-choices", _V),), models=_LONG),
    Mutant(
        id="usage-of-last-step",
        server=UsageOfLastStep,
        trips=(("usage-counts-all-choices", _V),),
        source="vllm-project/vllm#8625",
        models=_LONG,
    ),
    Mutant(
        id="usage-squared",
        server=UsageSquared,
        trips=(("usage-counts-all-choices", _V),),
        source="vllm-project/vllm-omni#2313",
        models=_LONG,
    ),
    Mutant(
        id="grammar-for-the-first-choice",
        server=GrammarForTheFirstChoice,
        trips=((_SHAPED, Outcome.VIOLATED),),
        source="vllm-project/vllm#11312",
        models=("obedient", "babbling", "declining"),  # a thought takes all the room
    ),
    Mutant(id="several-under-a-schema-fail", server=SeveralUnderASchemaFail, trips=((_SHAPED, Outcome.VIOLATED),)),
)

HARMLESS = (
    Harmless(id="one-after-the-other", server=OneAfterTheOther),
    Harmless(id="any-order", server=AnyOrder),
    Harmless(id="several-choices-in-one-chunk", server=SeveralChoicesInOneChunk),
    Harmless(id="no-usage-in-streams", server=NoUsage),
    Harmless(id="own-seeds", server=OwnSeeds),
)
