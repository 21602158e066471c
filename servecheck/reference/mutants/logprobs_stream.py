"""Streams that lose their logprobs, or lose something else over them, and streams that only cut them otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.engine import Job, Step
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import SPECIAL

__all__ = ["HARMLESS", "MUTANTS"]


class _Changing(ReferenceServer):
    """Changes the logprobs of streams only; subclasses say how."""

    _so_far: list[Step]

    def change(self, steps: Sequence[Step], before: Sequence[Step]) -> Sequence[Step]:
        """Return what is reported in place of ``steps``; ``before`` are those that earlier events reported."""
        raise NotImplementedError

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Begin anew with each stream."""
        self._so_far = []
        async for event in super().chunks(job):
            yield event

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:
        """Hand the tokens of one event on."""
        if not job.stream or job.logprobs is None:
            return super().chat_logprobs(job, steps)
        changed = self.change(steps, self._so_far)
        self._so_far = [*self._so_far, *steps]
        return super().chat_logprobs(job, changed)


# --------------------------------------------------------------------------- broken


class NoneInStreams(ReferenceServer):
    """Gives logprobs in whole replies and leaves them out of streams."""

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:
        """Leave them out."""
        return None if job.stream else super().chat_logprobs(job, steps)


class RefusedInStreams(ReferenceServer):
    """Refuses ``logprobs`` together with ``stream``."""

    def chat_job(self, body: Event) -> Job:
        """Refuse."""
        if body.get("logprobs") and body.get("stream"):
            raise ApiError("logprobs are not available with stream", param="logprobs")
        return super().chat_job(body)


class ErrorEventInStreams(ReferenceServer):
    """Fails over the logprobs once the stream has begun."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Fail after the first event."""
        async for event in super().chunks(job):
            yield event
            if job.logprobs is not None:
                raise ApiError("index out of range", status=500, kind="InternalServerError", code="500")


class FinishDropped(ReferenceServer):
    """Drops the finish reason where both ``stream`` and ``logprobs`` are on."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Drop it."""
        async for event in super().chunks(job):
            for choice in event["choices"] if job.logprobs is not None else ():
                choice["finish_reason"] = None
            yield event


class OnlyTheFirstOfSeveral(_Changing):
    """Loses every third entry, as where several tokens are decoded in one step and only some are reported."""

    def change(self, steps: Sequence[Step], before: Sequence[Step]) -> Sequence[Step]:
        """Lose them."""
        return [step for place, step in enumerate(steps, start=len(before)) if place % 3 != 1]


class ValuesOfTheFirst(_Changing):
    """Gives every token of a stream the value of the first."""

    def change(self, steps: Sequence[Step], before: Sequence[Step]) -> Sequence[Step]:
        """Keep the first value."""
        first = [*before, *steps][0]
        return [replace(step, logprob=first.logprob - 1) for step in steps]


class AlternativesOfTheFirst(_Changing):
    """Gives every token of a stream the alternatives of the first; the values of the tokens stay right."""

    def change(self, steps: Sequence[Step], before: Sequence[Step]) -> Sequence[Step]:
        """Keep the first alternatives."""
        first = [*before, *steps][0]
        return [replace(step, top=first.top) for step in steps]


class RepeatedInEveryEvent(_Changing):
    """Sends all entries so far again with each event."""

    def change(self, steps: Sequence[Step], before: Sequence[Step]) -> Sequence[Step]:
        """Send what came before too."""
        return [*before, *steps]


class PositiveInStreams(_Changing):
    """Forgets the minus sign in streams."""

    def change(self, steps: Sequence[Step], before: Sequence[Step]) -> Sequence[Step]:  # noqa: ARG002
        """Turn the sign."""
        return [replace(step, logprob=-step.logprob + 0.1) for step in steps]


class LostBesideTools(ReferenceServer):
    """Leaves logprobs out of a stream that goes through its tool parser."""

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:
        """Leave them out."""
        return None if job.stream and job.tools else super().chat_logprobs(job, steps)


class RefusedBesideTools(ReferenceServer):
    """Refuses ``logprobs`` where tools and a stream are asked for too."""

    def chat_job(self, body: Event) -> Job:
        """Refuse."""
        if body.get("logprobs") and body.get("tools") and body.get("stream"):
            raise ApiError("logprobs is not supported with tools + stream", param="logprobs")
        return super().chat_job(body)


class ToolsRefused(ReferenceServer):
    """Takes no tools without a parser for them, which says nothing about logprobs."""

    def chat_job(self, body: Event) -> Job:
        """Refuse."""
        if body.get("tools"):
            raise ApiError("auto tool choice needs a tool parser", param="tools")
        return super().chat_job(body)


# --------------------------------------------------------------------------- odd, but right


class NoEndTokenInStreams(_Changing):
    """Gives no entry for the end token in streams, where no text goes with it."""

    def change(self, steps: Sequence[Step], before: Sequence[Step]) -> Sequence[Step]:  # noqa: ARG002
        """Leave it out."""
        return [step for step in steps if step.token not in SPECIAL]


class ALittleOff(_Changing):
    """Computes streams in another batch, so that the values differ by a tenth of a nat."""

    def change(self, steps: Sequence[Step], before: Sequence[Step]) -> Sequence[Step]:  # noqa: ARG002
        """Move them."""
        return [replace(step, logprob=step.logprob - 0.1) for step in steps]


class LogprobsInEventsOfTheirOwn(ReferenceServer):
    """Sends the entries in an event before the text they belong to."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Split each event that has both."""
        async for event in super().chunks(job):
            choice = event["choices"][0] if event["choices"] else {}
            if choice.get("logprobs"):
                yield {**event, "choices": [{**choice, "delta": {}, "finish_reason": None}]}
                choice["logprobs"] = None
            yield event


_V = Outcome.VIOLATED
_GIVEN, _SAME = "stream-carries-logprobs", "stream-logprobs-equal-whole-logprobs"

_TOOLS = "tools-leave-the-logprobs-in-streams"

MUTANTS = (
    Mutant(
        id="none-in-streams",
        server=NoneInStreams,
        trips=((_GIVEN, Outcome.NO_EFFECT),),
        source="ml-explore/mlx-lm#1630",
    ),
    Mutant(id="refused-in-streams", server=RefusedInStreams, trips=((_GIVEN, Outcome.REFUSED),)),
    Mutant(
        id="error-event",
        server=ErrorEventInStreams,
        trips=((_GIVEN, _V),),
        source="vllm-project/tpu-inference#3572",
    ),
    Mutant(
        id="finish-dropped",
        server=FinishDropped,
        trips=(("finish-reason-comes-with-logprobs", _V),),
        source="BerriAI/litellm#10686",
    ),
    Mutant(
        id="only-the-first-of-several",
        server=OnlyTheFirstOfSeveral,
        trips=((_SAME, _V), ("streamed-tokens-are-the-text", _V)),
        source="sgl-project/sglang#10660",
    ),
    Mutant(id="values-of-the-first", server=ValuesOfTheFirst, trips=((_SAME, _V),)),
    Mutant(
        id="alternatives-of-the-first",
        server=AlternativesOfTheFirst,
        trips=((_SAME, _V),),
        source="sgl-project/sglang#39260",
    ),
    Mutant(id="repeated-in-every-event", server=RepeatedInEveryEvent, trips=(("streamed-tokens-are-the-text", _V),)),
    Mutant(id="positive-in-streams", server=PositiveInStreams, trips=(("streamed-logprobs-are-probabilities", _V),)),
    Mutant(
        id="lost-beside-tools",
        server=LostBesideTools,
        trips=((_TOOLS, Outcome.VIOLATED),),
        source="sgl-project/sglang#28456",
    ),
    Mutant(
        id="refused-beside-tools",
        server=RefusedBesideTools,
        trips=((_TOOLS, Outcome.REFUSED),),
        source="ggml-org/llama.cpp#28478",
    ),
)

HARMLESS = (
    Harmless(id="no-end-token-in-streams", server=NoEndTokenInStreams),
    Harmless(id="a-little-off", server=ALittleOff),
    Harmless(id="logprobs-in-events-of-their-own", server=LogprobsInEventsOfTheirOwn),
    Harmless(id="tools-refused", server=ToolsRefused),
)
