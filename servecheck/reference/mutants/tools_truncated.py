"""Servers that pass a half call off as something else, and servers that only show less or more of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer, Tally
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import tools_auto as auto
from servecheck.reference.mutants import tools_required as shared
from servecheck.reference.parsing import CallDelta
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class ClaimsToolCalls(ReferenceServer):
    """Ends with ``tool_calls`` as soon as a call was begun, cut or not."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Change the reason."""
        begun = False
        async for delta in super().deltas(job):
            begun = begun or bool(delta.calls)
            yield replace(delta, finish="tool_calls") if begun and delta.finish == "length" else delta


class ClaimsToolCallsInStreams(ReferenceServer):
    """Ends a cut call with ``length`` where the answer is whole and with ``tool_calls`` where it is streamed."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Change the reason."""
        async for delta in super().deltas(job):
            yield replace(delta, finish="tool_calls") if job.stream and delta.finish == "length" else delta


class ClaimsStop(ReferenceServer):
    """Ends a cut stream with ``stop``, since a stream that ends has stopped."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Change the reason."""
        async for delta in super().deltas(job):
            yield replace(delta, finish="stop") if job.stream and delta.finish == "length" else delta


class _Leaking(ReferenceServer):
    """Gives the whole text of an answer that was cut as content; subclasses say in which mode."""

    def leaks(self, job: Job) -> bool:
        """Tell whether this answer leaks."""
        raise NotImplementedError

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Run without a parser where the answer will be cut."""
        if not self.leaks(job):
            async for delta in super().deltas(job):
                yield delta
            return
        kept = [delta async for delta in super().deltas(job)]
        if kept[-1].finish != "length":
            for delta in kept:
                yield delta
            return
        for prompt in job.prompts:
            prompt.filled.clear()
        async for delta in super().deltas(replace(job, tools=False)):
            yield delta


class LeaksInWholeAnswers(_Leaking):
    """Parses a whole answer after its end, and gives the raw text where the end is missing."""

    def leaks(self, job: Job) -> bool:
        """Leak without streaming."""
        return not job.stream


class LeaksInStreams(_Leaking):
    """Streams the begun call as text where it was cut."""

    def leaks(self, job: Job) -> bool:
        """Leak in streams."""
        return job.stream


class Completes(ReferenceServer):
    """Closes the braces of arguments that were cut, so that they parse."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Close them."""
        arguments = ""
        async for delta in super().deltas(job):
            arguments += "".join(call.arguments for call in delta.calls)
            if delta.finish == "length" and arguments:
                closing = CallDelta(index=0, arguments='"' * (arguments.count('"') % 2) + "}")
                delta = replace(delta, calls=(*delta.calls, closing))  # noqa: PLW2901
            yield delta


class HidesInWholeAnswers(ReferenceServer):
    """Drops a call that was cut from a whole answer, and streams the pieces it has."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Drop it."""
        choice = super().chat_choice(job, answer)
        if choice["finish_reason"] == "length":
            choice["message"].pop("tool_calls", None)
        return choice


class CutFails(ReferenceServer):
    """Cannot parse a call without its end and gives a 500."""

    status, message = 500, "the model's output does not match the expected format"

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Fail at the end."""
        async for delta in super().deltas(job):
            if delta.finish == "length" and job.tools:
                raise ApiError(self.message, status=self.status, kind="server_error", code=str(self.status))
            yield delta


class CutIsTheClientsFault(CutFails):
    """Cannot parse a call without its end and gives a 400 about invalid JSON."""

    status, message = 400, "invalid JSON: EOF while parsing a string at line 1 column 62"


class HidesEverywhere(HidesInWholeAnswers):
    """Shows nothing of a call that was cut, in either mode."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Wait for the end of a call before anything is shown."""
        kept = [delta async for delta in super().deltas(job)]
        whole = kept[-1].finish != "length"
        for delta in kept:
            yield delta if whole else replace(delta, calls=())


class NoUsageInStreams(ReferenceServer):
    """Counts no tokens in a stream."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Leave the usage out."""
        async for event in super().chunks(job):
            event.pop("usage", None)
            yield event


class CountsBlocks(ReferenceServer):
    """Counts the tokens of a thought apart from those of the answer, as some details of usage do."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Add a field."""
        return {**super().usage(job, tally), "reasoning_tokens": tally.reasoning}


_V, _R, _H = Outcome.VIOLATED, Outcome.REFUSED, Outcome.HELD
_LENGTH, _CLEAN = "cut-call-ends-with-length", "cut-call-is-not-shown-as-text"
_HALF, _SAME = "cut-call-does-not-look-whole", "cut-call-is-the-same-in-both-modes"

MUTANTS = (
    Mutant(id="claims-tool-calls", server=ClaimsToolCalls, trips=((_LENGTH, _V),), source="vllm-project/vllm#58228"),
    Mutant(
        id="claims-tool-calls-in-streams",
        server=ClaimsToolCallsInStreams,
        trips=((_LENGTH, _H), (_LENGTH, _V)),
        source="vllm-project/vllm#53269",
    ),
    Mutant(id="claims-stop", server=ClaimsStop, trips=((_LENGTH, _H), (_LENGTH, _V))),
    Mutant(id="cut-fails", server=CutFails, trips=((_LENGTH, _V),)),
    Mutant(
        id="cut-is-the-clients-fault",
        server=CutIsTheClientsFault,
        trips=((_LENGTH, _V),),
        source="vllm-project/vllm#27921",
    ),
    Mutant(id="required-refused", server=shared.RequiredRefused, trips=((_LENGTH, _R),)),
    Mutant(id="call-as-text", server=shared.CallAsText, trips=((_LENGTH, _V),), source="vllm-project/vllm#29725"),
    Mutant(id="leaks-in-whole-answers", server=LeaksInWholeAnswers, trips=((_CLEAN, _V), (_SAME, _V))),
    Mutant(id="leaks-in-streams", server=LeaksInStreams, trips=((_CLEAN, _V), (_SAME, _V))),
    Mutant(id="completes", server=Completes, trips=((_HALF, _V),)),
    Mutant(id="hides-in-whole-answers", server=HidesInWholeAnswers, trips=((_SAME, _V),)),
)

HARMLESS = (
    Harmless(id="hides-everywhere", server=HidesEverywhere),
    Harmless(id="no-usage-in-streams", server=NoUsageInStreams),
    Harmless(id="no-logprobs", server=auto.NoLogprobs),
    Harmless(id="counts-blocks", server=CountsBlocks),
    Harmless(id="whole-arguments", server=shared.WholeArguments),
    Harmless(id="by-the-letter", server=shared.ByTheLetter),
    Harmless(id="extra-fields", server=shared.ExtraFields),
    Harmless(id="ping-comments", server=shared.PingComments, source="theopenco/llmgateway#2334"),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
