"""Servers whose streamed calls do not add up, and servers whose right pieces only look odd."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from servecheck.judging import HANGS_NOT
from servecheck.model import Outcome
from servecheck.read.text import dig
from servecheck.reference.answers import call_text
from servecheck.reference.asgi import Event
from servecheck.reference.chat import Toolbox
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import tools_required as shared
from servecheck.reference.parsing import CallDelta
from servecheck.reference.server import ReferenceServer
from servecheck.reference.toolfaults import Changing, OtherText, forced

__all__ = ["HARMLESS", "MUTANTS"]

_LONG = 40  # letters; the longer of the arguments that are asked for has more


class ObjectTwice(ReferenceServer):
    """Sends the whole arguments again with the finishing chunk, where the pieces before it held them already."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Repeat what was sent."""
        sent = ""
        async for delta in super().deltas(job):
            sent += "".join(call.arguments for call in delta.calls)
            if job.stream and delta.finish and sent:
                delta = replace(delta, calls=(*delta.calls, CallDelta(index=0, arguments=sent)))  # noqa: PLW2901
            yield delta


class LongArgumentsCut(ReferenceServer):
    """Loses one piece in the middle of arguments that are longer than its buffer."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Drop the piece that crosses the border."""
        size, dropped = 0, False
        async for delta in super().deltas(job):
            size += sum(len(call.arguments) for call in delta.calls)
            drop = job.stream and size > _LONG and not dropped and not delta.finish
            dropped = dropped or drop
            yield replace(delta, calls=()) if drop else delta


class FirstLetterTwice(ReferenceServer):
    """Repeats the last letter of each piece at the beginning of the next one."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Repeat a letter within the value."""
        last = ""
        async for delta in super().deltas(job):
            calls: list[CallDelta] = []
            for call in delta.calls:
                again = last if job.stream and last.isalpha() and call.arguments[:1].isalpha() else ""
                calls.append(replace(call, arguments=again + call.arguments))
                last = call.arguments[-1:] or last
            yield replace(delta, calls=tuple(calls))


class ParserOffInStreams(ReferenceServer):
    """Parses calls where the answer is whole, and streams them as text."""

    def chat_job(self, body: Event) -> Job:
        """Switch the parser off."""
        job = super().chat_job(body)
        return replace(job, tools=False) if job.stream and forced(body) else job


class CallAlsoAsText(ReferenceServer):
    """Streams a call twice: as deltas, and as content before the finish."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Add the text."""
        name, arguments = "", ""
        async for delta in super().deltas(job):
            for call in delta.calls:
                name, arguments = call.name or name, arguments + call.arguments
            if job.stream and delta.finish and name:
                delta = replace(delta, content=delta.content + call_text(name, arguments))  # noqa: PLW2901
            yield delta


class NoIndex(Changing):
    """Leaves the index out, as there is only one call."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Take the index away."""
        for call in calls if stream else ():
            call.pop("index", None)
        return calls


class CountsFromOne(Changing):
    """Numbers calls from one."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Raise the index."""
        for call in calls if stream else ():
            call["index"] += 1
        return calls


class IdComesLate(Changing):
    """Gives the name at once and the id with the arguments, when clients have begun the call without one."""

    waiting = ""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Hold the id back."""
        for call in calls if stream else ():
            if "id" in call:
                self.waiting = call.pop("id")
            elif self.waiting:
                call["id"], self.waiting = self.waiting, ""
        return calls


class NoType(Changing):
    """Never says of what type a streamed call is."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Take the type away."""
        for call in calls if stream else ():
            call.pop("type", None)
        return calls


class StreamFinishStop(ReferenceServer):
    """Ends a required call with ``tool_calls`` where it is whole and with ``stop`` where it is streamed."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Change the reason."""
        async for delta in super().deltas(job):
            yield replace(delta, finish="stop") if job.stream and delta.finish == "tool_calls" else delta


class OneDelta(ReferenceServer):
    """Streams a call in a single delta with id, name and all arguments."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Gather the call until the end."""
        name, arguments = "", ""
        async for delta in super().deltas(job):
            for call in delta.calls:
                name, arguments = call.name or name, arguments + call.arguments
            whole = (CallDelta(index=0, name=name, arguments=arguments),) if delta.finish and name else ()
            yield replace(delta, calls=whole)


class TextBehindStreams(OtherText):
    """Goes on talking behind the call, and shows it in streams only."""

    def rewrite(self, text: str) -> str:
        """Put a sentence behind."""
        return f"{text}\nI am glad to help!"

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Hide the sentence in whole answers."""
        async for delta in super().deltas(job):
            yield delta if job.stream or not forced(job.body) else replace(delta, content="")


class EmptyTextForNoArguments(ReferenceServer):
    """Streams no piece of arguments that are an empty object, since it takes an empty object for none."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Hold the braces back."""
        nothing = not (dig(job.body, "tools", 0, "function", "parameters", "properties") or {})
        async for delta in super().deltas(job):
            calls = tuple(replace(call, arguments="") for call in delta.calls)
            yield replace(delta, calls=calls) if job.stream and nothing and job.tools else delta


class MarkInTheName(ReferenceServer):
    """Reads the sign behind the name into it where no arguments follow."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Put it there."""
        nothing = not (dig(job.body, "tools", 0, "function", "parameters", "properties") or {})
        async for delta in super().deltas(job):
            calls = tuple(replace(call, name=call.name and f"{call.name}</arg_value>") for call in delta.calls)
            yield replace(delta, calls=calls) if nothing and job.tools else delta


class NoParametersRefused(ReferenceServer):
    """Refuses a function whose parameters have no properties."""

    def tools_of(self, body: Event) -> Toolbox:
        """Refuse."""
        for tool in body.get("tools") or ():
            if dig(tool, "function", "parameters", "properties") == {}:
                raise ApiError("parameters: properties must not be empty", param="tools")
        return super().tools_of(body)


_V, _N = Outcome.VIOLATED, Outcome.NO_EFFECT
_COMES, _EQUAL = "streamed-call-comes-as-deltas", "streamed-call-equals-the-plain-one"
_ONCE, _INDEX = "streamed-call-is-introduced-once", "every-call-delta-has-its-index"
_FINISH, _CLEAN = "streamed-call-finishes-as-the-plain-one", "streamed-call-is-not-shown-as-text-too"

_EMPTY = "call-without-arguments-has-an-empty-object"

MUTANTS = (
    Mutant(
        id="ignored-in-streams", server=shared.IgnoredInStreams, trips=((_COMES, _N),), source="vllm-project/vllm#50477"
    ),
    Mutant(id="parser-off-in-streams", server=ParserOffInStreams, trips=((_COMES, _V),)),
    Mutant(id="call-as-text", server=shared.CallAsText, trips=((_COMES, _V),), source="vllm-project/vllm#29725"),
    Mutant(
        id="refused-inside-stream",
        server=shared.RefusedInsideStream,
        trips=((_COMES, Outcome.REFUSED),),
        source="ggml-org/llama.cpp#14566",
    ),
    Mutant(id="stream-never-ends", server=shared.StreamNeverEnds, trips=((HANGS_NOT.id, _V),)),
    Mutant(id="object-twice", server=ObjectTwice, trips=((_EQUAL, _V),), source="vllm-project/vllm#51697"),
    Mutant(id="arguments-twice", server=shared.ArgumentsTwice, trips=((_EQUAL, _V),), source="vllm-project/vllm#51697"),
    Mutant(
        id="arguments-truncated",
        server=shared.ArgumentsTruncated,
        trips=((_EQUAL, _V),),
        source="vllm-project/vllm#15274",
    ),
    Mutant(id="long-arguments-cut", server=LongArgumentsCut, trips=((_EQUAL, Outcome.HELD), (_EQUAL, _V))),
    Mutant(id="first-letter-twice", server=FirstLetterTwice, trips=((_EQUAL, _V),)),
    Mutant(id="call-also-as-text", server=CallAlsoAsText, trips=((_CLEAN, _V),)),
    Mutant(id="name-in-every-delta", server=shared.NameInEveryDelta, trips=((_ONCE, _V), (_EQUAL, _V))),
    Mutant(
        id="id-in-every-delta",
        server=shared.IdInEveryDelta,
        trips=((_ONCE, _V),),
        source="cubist38/mlx-openai-server#216",
    ),
    Mutant(id="id-missing", server=shared.IdMissing, trips=((_ONCE, _V),), source="ggml-org/llama.cpp#11992"),
    Mutant(id="id-comes-late", server=IdComesLate, trips=((_ONCE, _V),)),
    Mutant(id="no-type", server=NoType, trips=((_ONCE, _V),)),
    Mutant(id="stray-call", server=shared.StrayCall, trips=((_ONCE, _V), (_INDEX, _V)), source="BerriAI/litellm#9127"),
    Mutant(id="no-index", server=NoIndex, trips=((_INDEX, _V),), source="EricLBuehler/mistral.rs#1507"),
    Mutant(id="counts-from-one", server=CountsFromOne, trips=((_INDEX, _V),)),
    Mutant(id="stream-finish-stop", server=StreamFinishStop, trips=((_FINISH, _V),), source="vllm-project/vllm#25054"),
    Mutant(id="finish-lost", server=shared.FinishLost, trips=((_FINISH, _V),), source="vllm-project/vllm#27572"),
    Mutant(
        id="empty-text-for-no-arguments",
        server=EmptyTextForNoArguments,
        trips=((_EMPTY, _V),),
        source="vllm-project/vllm#28806",
    ),
    Mutant(
        id="mark-in-the-name",
        server=MarkInTheName,
        trips=((_EMPTY, _V),),
        source="fw-ai-external/python-sdk#119",
    ),
    Mutant(id="no-parameters-refused", server=NoParametersRefused, trips=((_EMPTY, Outcome.REFUSED),)),
)

HARMLESS = (
    Harmless(id="another-finish-in-both-modes", server=shared.LegacyFinish),
    Harmless(id="whole-arguments", server=shared.WholeArguments),
    Harmless(id="one-delta", server=OneDelta),
    Harmless(id="by-the-letter", server=shared.ByTheLetter),
    Harmless(id="name-before-arguments", server=shared.NameBeforeArguments),
    Harmless(id="id-repeated", server=shared.IdRepeated),
    Harmless(id="other-ids", server=shared.OtherIds),
    Harmless(id="extra-fields", server=shared.ExtraFields),
    Harmless(id="text-before-call", server=shared.TextBeforeCall),
    Harmless(id="text-behind-streams", server=TextBehindStreams),
    Harmless(id="spaced-arguments", server=shared.SpacedArguments),
    Harmless(id="ping-comments", server=shared.PingComments, source="theopenco/llmgateway#2334"),
    Harmless(id="slow-first-use", server=shared.SlowFirstUse),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
