"""Servers that lose, spoil or never make the call that was required, and servers whose right calls only look odd."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from servecheck.judging import HANGS_NOT, STAYS_HEALTHY
from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.base import Answer
from servecheck.reference.chat import Toolbox
from servecheck.reference.constraint import Choose, Constraint
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.parsing import CallDelta
from servecheck.reference.rewriting import Rewritten
from servecheck.reference.server import ReferenceServer
from servecheck.reference.toolfaults import Changing, OtherText, forced, refinished, twice

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken: no call


class RequiredIgnored(ReferenceServer):
    """Takes ``required`` for ``auto``: ordinary text, finish reason ``stop``."""

    def chat_job(self, body: Event) -> Job:
        """Soften the choice."""
        return super().chat_job({**body, "tool_choice": "auto"} if forced(body) else body)


class EmptyListOfCalls(RequiredIgnored):
    """Answers with prose and an empty list of calls, and says that it finished because of tool calls."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Add the empty list."""
        choice = super().chat_choice(job, answer)
        if "tools" in job.body:
            choice["message"]["tool_calls"], choice["finish_reason"] = [], "tool_calls"
        return choice

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Claim calls in the finishing chunk."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                if choice["finish_reason"] and "tools" in job.body:
                    choice["delta"]["tool_calls"], choice["finish_reason"] = [], "tool_calls"
            yield event


class IgnoredInStreams(ReferenceServer):
    """Forces the call where the answer is whole and forgets about it where it is streamed."""

    def chat_job(self, body: Event) -> Job:
        """Soften the choice of a stream."""
        return super().chat_job({**body, "tool_choice": "auto"} if forced(body) and body.get("stream") else body)


class CallAsText(ReferenceServer):
    """Was started without a tool parser: the grammar is applied and the call comes back as content."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**{**config, "tool_parser": False})


class BareCallAsText(OtherText):
    """Writes the call as a bare JSON list, which its own parser does not look for."""

    def rewrite(self, text: str) -> str:
        """Take the markup away."""
        return (
            "[" + text.replace("<tool_call>", "").replace("</tool_call>", ",").strip().removesuffix(",").strip() + "]"
        )


class CallInReasoning(ReferenceServer):
    """Takes the whole answer for a thought: content is empty, and the call stands in the reasoning."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**{**config, "tool_parser": False})

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """File content of a forced call under reasoning."""
        async for delta in super().deltas(job):
            moved = forced(job.body) and delta.content
            yield replace(delta, content="", reasoning=delta.reasoning + delta.content) if moved else delta


class NothingAtAll(ReferenceServer):
    """Parses the call and loses it: neither a call nor text comes back, and the finish reason is ``stop``."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Drop everything of a forced answer."""
        async for delta in super().deltas(job):
            if not forced(job.body):
                yield delta
            elif delta.finish:
                yield replace(delta, content="", reasoning="", calls=(), finish="stop")


class RequiredRefused(ReferenceServer):
    """Was started without a tool parser and refuses the choice with a 400 that says so."""

    def tools_of(self, body: Event) -> Toolbox:
        """Refuse."""
        if body.get("tools"):
            raise ApiError("tool choice requires a tool call parser to be set", kind="BadRequestError", code="400")
        return super().tools_of(body)


class BlamesTheBody(ReferenceServer):
    """Gives a 400 about invalid JSON for a valid body, since the model's own output was cut off."""

    def tools_of(self, body: Event) -> Toolbox:
        """Blame the client."""
        if body.get("tools"):
            raise ApiError("invalid JSON: EOF while parsing a string at line 1 column 62", code="invalid_json")
        return super().tools_of(body)


class RefusedInsideStream(ReferenceServer):
    """Refuses a streamed request with 200 and an error event of code 400, where the plain one gets a 400."""

    def calls_constraint(self, toolbox: Toolbox, asked: str) -> Constraint:
        """Keep the refusal for later."""
        del toolbox, asked
        return _Refusing()

    async def answers(self, job: Job) -> list[Answer]:
        """Refuse in time."""
        if isinstance(job.constraint, _Refusing):
            raise ApiError("tools are not supported by this model", code="400")
        return await super().answers(job)

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Refuse when it is too late."""
        if isinstance(job.constraint, _Refusing):
            yield {
                "error": {"message": "tools are not supported by this model", "type": "BadRequestError", "code": 400}
            }
            return
        async for event in super().chunks(job):
            yield event


class _Refusing:
    def text(self, choose: Choose, hints: Sequence[str]) -> str:
        raise NotImplementedError


class FailsOnItsModel(ReferenceServer):
    """Cannot parse what its own model wrote and gives a 500, or an error event of that code in a stream."""

    def calls_constraint(self, toolbox: Toolbox, asked: str) -> Constraint:
        """Mark the job."""
        del toolbox, asked
        return _Refusing()

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Fail after the prompt."""
        if isinstance(job.constraint, _Refusing):
            raise ApiError("the model's output does not match the expected format", status=500, kind="server_error")
        async for delta in super().deltas(job):
            yield delta


class StreamNeverEnds(ReferenceServer):
    """Streams the call and then keeps the connection open without another byte."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Hang before the finishing chunk of a call."""
        called = False
        async for event in events:
            for choice in event["choices"]:
                called = called or "tool_calls" in choice["delta"]
                if called and choice["finish_reason"]:
                    await asyncio.Event().wait()
            yield self.frame(event)
        yield b"data: [DONE]\n\n"


class CallKills(ReferenceServer):
    """Loses its engine to the first forced call: 500 then, and for everybody afterwards."""

    dead = False

    async def reply_chat(self, request: Request) -> Reply:
        """Die of it."""
        self.dead = self.dead or forced(self.body_of(request))
        if self.dead:
            raise ApiError("EngineCore encountered an issue", status=500, kind="InternalServerError")
        return await super().reply_chat(request)


# --------------------------------------------------------------------------- broken: a wrong call


class StrayCall(Changing):
    """Adds a call with a null name and arguments like ``{}{}`` to the right one."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Add the stray call."""
        if not any(call["function"].get("name") for call in calls):
            return calls
        stray = {"id": "call_stray", "type": "function", "function": {"name": None, "arguments": "{}{}"}}
        return [*calls, {"index": 9, **stray} if stream else stray]


class NameInEveryDelta(Changing):
    """Repeats the function's name in every delta of a stream; a client that joins strings gets it many times over."""

    name = ""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Repeat the name."""
        for call in calls if stream else ():
            self.name = call["function"].setdefault("name", self.name)
        return calls


class NameWithPrefix(Changing):
    """Leaves the name space of the model's format in front of the name."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Put it in front."""
        del stream
        for call in calls:
            if call["function"].get("name"):
                call["function"]["name"] = f"functions.{call['function']['name']}"
        return calls


class IdMissing(Changing):
    """Gives no id to a call, or an empty one, so that the tool's result cannot be linked."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Take the id away."""
        for call in calls:
            if "id" in call:
                call["id"] = "" if stream else None
        return calls


class IdInEveryDelta(Changing):
    """Gives every delta of one call a fresh id, so that clients count many calls."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Make ids up."""
        return [{**call, "id": self.new_id("call_"), "type": "function"} for call in calls] if stream else calls


class OneIdForAll(OtherText):
    """Makes two calls and gives both the id of the first."""

    def rewrite(self, text: str) -> str:
        """Call twice."""
        return twice(text)

    def call_id(self, job: Job, index: int, number: int) -> str:
        """Leave the number out."""
        del number
        return super().call_id(job, index, 0)


class IdsBeginAgain(ReferenceServer):
    """Numbers the calls of each reply from nought: the id of an earlier call comes back in the next turn."""

    def call_id(self, job: Job, index: int, number: int) -> str:
        """Leave the request out."""
        del job
        return f"call_{index}{number}"


class ArgumentsTwice(Changing):
    """Joins the arguments wrongly in a stream: the object is there with an extra brace in front."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Put a brace into the first delta."""
        for call in calls if stream else ():
            if call["function"].get("name"):
                call["function"]["arguments"] = "{" + call["function"]["arguments"]
        return calls


class ArgumentsTruncated(ReferenceServer):
    """Loses the last part of the arguments in a stream, closing brace included."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Drop every piece with a closing brace."""
        async for delta in super().deltas(job):
            cut = tuple(replace(call, arguments=call.arguments.partition("}")[0]) for call in delta.calls)
            yield replace(delta, calls=cut) if job.stream else delta


class SecondWithoutArguments(OtherText):
    """Makes two calls, and the second arrives with its name only."""

    def rewrite(self, text: str) -> str:
        """Call twice."""
        return twice(text)

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Drop the second call's arguments."""
        async for delta in super().deltas(job):
            yield replace(delta, calls=tuple(replace(c, arguments="") if c.index else c for c in delta.calls))


class PythonArguments(Changing):
    """Writes arguments as Python shows a dictionary, with single quotes."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Change the quotation marks."""
        del stream
        for call in calls:
            call["function"]["arguments"] = call["function"]["arguments"].replace('"', "'")
        return calls


class ArgumentsAsObject(Changing):
    """Gives a whole reply's arguments as a JSON object where a string is due, so clients fail when they parse it."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Parse the arguments."""
        for call in calls if not stream else ():
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        return calls


class LooseArguments(ReferenceServer):
    """Enforces the name of a forced call and not its arguments, unless the tool is strict: a JSON string comes back."""

    def calls_constraint(self, toolbox: Toolbox, asked: str) -> Constraint:
        """Loosen what is not strict."""
        loose = not any(tool["function"].get("strict") for tool in toolbox.tools)
        constraint = super().calls_constraint(toolbox, asked)
        return Rewritten(constraint, _stringly) if loose else constraint


def _stringly(text: str) -> str:
    call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    # The splitter wants a structure to know the end of the arguments; a list is as wrong as a bare string.
    return f'<tool_call>\n{{"name": {json.dumps(call["name"])}, "arguments": ["celsius"]}}\n</tool_call>'


class StrictIgnored(ReferenceServer):
    """Drops the keywords that its grammar compiler does not know from a tool's parameters, strict or not."""

    def tools_of(self, body: Event) -> Toolbox:
        """Take ``enum`` out of what is enforced; the model is still shown the whole tool."""
        toolbox = super().tools_of(body)
        tools = json.loads(json.dumps(list(toolbox.tools)))
        for tool in tools:
            for value in (tool["function"].get("parameters") or {}).get("properties", {}).values():
                value.pop("enum", None)
        return replace(toolbox, tools=tuple(tools))


class LegacyFinish(ReferenceServer):
    """Ends a call with ``function_call``, the reason of an older interface."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Change the reason."""
        return refinished(super().chat_choice(job, answer), "function_call")

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Change the reason in the finishing chunk."""
        async for event in super().chunks(job):
            yield {**event, "choices": [refinished(choice, "function_call") for choice in event["choices"]]}


class FinishLost(ReferenceServer):
    """Never says why a stream with a call ended: no chunk has a finish reason."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Take the reason away."""
        async for event in super().chunks(job):
            yield {**event, "choices": [refinished(choice, None) for choice in event["choices"]]}


# --------------------------------------------------------------------------- odd, but right


class MarkBesideACall(ReferenceServer):
    """Reads a call and leaves half of the mark that ended it in the content, as an engine did under load."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Leave the mark in a whole reply."""
        choice = super().chat_choice(job, answer)
        if answer.calls:
            choice["message"]["content"] = f"{answer.content}<|tool_call"
        return choice

    def chat_delta(self, job: Job, delta: Delta) -> Event:
        """Leave the mark in a stream."""
        made = super().chat_delta(job, delta)
        if any(call.name for call in delta.calls):
            made["content"] = f"{delta.content}<|tool_call"
        return made


class TypeMissing(Changing):
    """Leaves out the type of every call."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Drop it."""
        del stream
        for call in calls:
            call.pop("type", None)
        return calls


class FinishStop(ReferenceServer):
    """Ends a forced call with ``stop``, as the original service does for a named function."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Change the reason."""
        return refinished(super().chat_choice(job, answer), "stop")


class WholeArguments(ReferenceServer):
    """Streams a call in two chunks: one with the id and the name, one with all arguments."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Gather the arguments of all calls until the end."""
        gathered: dict[int, str] = {}
        async for delta in super().deltas(job):
            for call in delta.calls:
                gathered[call.index] = gathered.get(call.index, "") + call.arguments
            named = tuple(replace(call, arguments="") for call in delta.calls if call.name is not None)
            if delta.finish:
                rest = (CallDelta(index=index, arguments=text) for index, text in gathered.items())
                named = (*named, *rest)
            yield replace(delta, calls=named)


class ByTheLetter(ReferenceServer):
    """Streams the arguments letter by letter."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Cut the arguments up."""
        async for delta in super().deltas(job):
            for call in delta.calls:
                yield replace(
                    delta, calls=(replace(call, arguments=""),), finish=None, content="", reasoning="", steps=()
                )
                for letter in call.arguments:
                    piece = CallDelta(index=call.index, arguments=letter)
                    yield Delta(index=delta.index, calls=(piece,), count=delta.count)
            yield replace(delta, calls=())


class NameBeforeArguments(Changing):
    """Sends the first delta of a call without any arguments, and null for what later deltas do not repeat."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Leave the empty arguments out, and write nulls."""
        for call in calls if stream else ():
            if call["function"].get("name"):
                if not call["function"]["arguments"]:
                    del call["function"]["arguments"]
            else:
                call["id"], call["type"], call["function"]["name"] = None, None, None
        return calls

    def chat_delta(self, job: Job, delta: Delta) -> Event:
        """Say in every delta that there is no content."""
        return {"content": None, **super().chat_delta(job, delta)}


class OtherIds(ReferenceServer):
    """Gives calls ids of nine letters and digits, as one family of models wants them."""

    def call_id(self, job: Job, index: int, number: int) -> str:
        """Return a short id."""
        return super().call_id(job, index, number)[-9:]


class IdsOfTheName(Changing):
    """Makes ids of the function's name and a number, as one family of models wants them."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Name the call after its function."""
        del stream
        for number, call in enumerate(calls):
            if call["function"].get("name"):
                call["id"] = f"functions.{call['function']['name']}:{call.get('index', number)}"
        return calls


class LongIds(ReferenceServer):
    """Gives calls ids that begin like those of completions."""

    def call_id(self, job: Job, index: int, number: int) -> str:
        """Return a long id."""
        return f"chatcmpl-tool-{super().call_id(job, index, number)}"


class IdRepeated(Changing):
    """Repeats the id of a call in all its deltas, always the same one."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._ids: dict[int, str] = {}

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Repeat the id."""
        for call in calls if stream else ():
            self._ids[call["index"]] = call.setdefault("id", self._ids.get(call["index"], ""))
        return calls


class ExtraFields(Changing):
    """Numbers the calls of a whole reply and adds fields that the specification does not know."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Add fields."""
        del stream
        return [{"index": number, "provider": "somebody", **call} for number, call in enumerate(calls)]

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Give an empty text beside the calls, and an empty list where there are none."""
        choice = super().chat_choice(job, answer)
        choice["message"].setdefault("tool_calls", [])
        choice["message"]["content"] = choice["message"]["content"] or ""
        return choice


class TextBeforeCall(OtherText):
    """Says a sentence before it calls."""

    def rewrite(self, text: str) -> str:
        """Put a sentence in front."""
        return f"Let me write that down.\n{text}"


class TextAfterCall(OtherText):
    """Goes on talking behind the call, as a grammar that has ended lets it."""

    def rewrite(self, text: str) -> str:
        """Put a sentence behind."""
        return f"{text}\nI am glad to help!"


class TwoCalls(OtherText):
    """Makes the same call twice, each with an id of its own; required means at least one."""

    def rewrite(self, text: str) -> str:
        """Call twice."""
        return twice(text)


class SpacedArguments(OtherText):
    """Writes the arguments over several lines."""

    def rewrite(self, text: str) -> str:
        """Spread the arguments."""
        return text.replace('": {', '":\n  {\n    ').replace("}}", "\n  }\n}")


class OtherReasoningField(ReferenceServer):
    """Calls the field of the thought ``reasoning``."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Rename it in a whole reply."""
        choice = super().chat_choice(job, answer)
        choice["message"]["reasoning"] = choice["message"].pop("reasoning_content", None)
        return choice

    def chat_delta(self, job: Job, delta: Delta) -> Event:
        """Rename it in a stream."""
        made = super().chat_delta(job, delta)
        if "reasoning_content" in made:
            made["reasoning"] = made.pop("reasoning_content")
        return made


class PingComments(ReferenceServer):
    """Sends ``: ping`` comments between events, and pieces of bytes that are no events."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Put comments between and cut elsewhere."""
        yield b": ping\n\n"
        async for frame in super().frames(events):
            yield frame[:9]
            yield frame[9:] + b": ping\n\n"


class SlowFirstUse(ReferenceServer):
    """Compiles a grammar for twenty seconds before it calls."""

    async def reply_chat(self, request: Request) -> Reply:
        """Wait before a forced call."""
        if forced(self.body_of(request)):
            await asyncio.sleep(20)
        return await super().reply_chat(request)


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_CALLED, _OFFERED, _ID = "required-tool-is-called", "called-tool-is-the-offered-one", "call-has-an-id-of-its-own"
_JSON, _LOOSE, _STRICT = "arguments-are-json", "arguments-match-the-schema", "strict-arguments-match-the-schema"
_FINISH = "finish-fits-a-call"

MUTANTS = (
    Mutant(
        id="mark-beside-a-call",
        server=MarkBesideACall,
        trips=(("no-markup-is-left-beside-a-required-call", _V),),
        source="FlashML-org/FreeToken#203",
    ),
    Mutant(id="type-missing", server=TypeMissing, trips=(("call-has-an-id-of-its-own", _V),)),
    Mutant(id="required-ignored", server=RequiredIgnored, trips=((_CALLED, _N),), source="vllm-project/vllm#44216"),
    Mutant(id="empty-list-of-calls", server=EmptyListOfCalls, trips=((_CALLED, _N),), source="vllm-project/vllm#53363"),
    Mutant(
        id="ignored-in-streams",
        server=IgnoredInStreams,
        trips=((_CALLED, Outcome.HELD), (_CALLED, _N)),
        source="vllm-project/vllm#50477",
    ),
    Mutant(id="call-as-text", server=CallAsText, trips=((_CALLED, _V),), source="vllm-project/vllm#29725"),
    Mutant(id="bare-call-as-text", server=BareCallAsText, trips=((_CALLED, _V),)),
    Mutant(id="call-in-reasoning", server=CallInReasoning, trips=((_CALLED, _V),), source="vllm-project/vllm#48748"),
    Mutant(id="nothing-at-all", server=NothingAtAll, trips=((_CALLED, _V),)),
    Mutant(id="required-refused", server=RequiredRefused, trips=((_CALLED, _R),)),
    Mutant(id="blames-the-body", server=BlamesTheBody, trips=((_CALLED, _R),), source="vllm-project/vllm#27921"),
    Mutant(
        id="refused-inside-stream",
        server=RefusedInsideStream,
        trips=((_CALLED, _R),),
        source="ggml-org/llama.cpp#14566",
    ),
    Mutant(id="fails-on-its-model", server=FailsOnItsModel, trips=((_CALLED, _V),)),
    Mutant(id="stream-never-ends", server=StreamNeverEnds, trips=((HANGS_NOT.id, _V),)),
    Mutant(
        id="call-kills", server=CallKills, trips=((STAYS_HEALTHY.id, _V),), source="vllm-project/tpu-inference#1850"
    ),
    Mutant(id="stray-call", server=StrayCall, trips=((_OFFERED, _V),), source="BerriAI/litellm#9127"),
    Mutant(id="name-in-every-delta", server=NameInEveryDelta, trips=((_OFFERED, _V),)),
    Mutant(id="name-with-prefix", server=NameWithPrefix, trips=((_OFFERED, _V),)),
    Mutant(id="id-missing", server=IdMissing, trips=((_ID, _V),), source="ggml-org/llama.cpp#11992"),
    Mutant(id="id-in-every-delta", server=IdInEveryDelta, trips=((_ID, _V),), source="cubist38/mlx-openai-server#216"),
    Mutant(id="one-id-for-all", server=OneIdForAll, trips=((_ID, _V),)),
    Mutant(
        id="ids-begin-again",
        server=IdsBeginAgain,
        trips=(("ids-of-calls-do-not-come-back", _V),),
        source="NousResearch/hermes-agent#70724",
    ),
    Mutant(id="arguments-twice", server=ArgumentsTwice, trips=((_JSON, _V),), source="vllm-project/vllm#51697"),
    Mutant(id="arguments-truncated", server=ArgumentsTruncated, trips=((_JSON, _V),), source="vllm-project/vllm#15274"),
    Mutant(
        id="second-without-arguments",
        server=SecondWithoutArguments,
        trips=((_JSON, _V),),
        source="vllm-project/vllm#47901",
    ),
    Mutant(id="python-arguments", server=PythonArguments, trips=((_JSON, _V),)),
    Mutant(id="arguments-as-object", server=ArgumentsAsObject, trips=((_JSON, _V),)),
    Mutant(id="loose-arguments", server=LooseArguments, trips=((_LOOSE, _V), (_STRICT, Outcome.HELD))),
    Mutant(
        id="strict-ignored",
        server=StrictIgnored,
        trips=((_LOOSE, _V), (_STRICT, _V)),
        source="vllm-project/vllm#12201",
    ),
    Mutant(id="legacy-finish", server=LegacyFinish, trips=((_FINISH, _V),)),
    Mutant(id="finish-lost", server=FinishLost, trips=((_FINISH, _V),), source="vllm-project/vllm#27572"),
)

HARMLESS = (
    Harmless(id="finish-stop", server=FinishStop, source="vllm-project/vllm#25054"),
    Harmless(id="whole-arguments", server=WholeArguments),
    Harmless(id="by-the-letter", server=ByTheLetter),
    Harmless(id="name-before-arguments", server=NameBeforeArguments),
    Harmless(id="other-ids", server=OtherIds),
    Harmless(id="ids-of-the-name", server=IdsOfTheName, source="vllm-project/vllm#32768"),
    Harmless(id="long-ids", server=LongIds),
    Harmless(id="id-repeated", server=IdRepeated),
    Harmless(id="extra-fields", server=ExtraFields),
    Harmless(id="text-before-call", server=TextBeforeCall),
    Harmless(id="text-after-call", server=TextAfterCall),
    Harmless(id="two-calls", server=TwoCalls),
    Harmless(id="spaced-arguments", server=SpacedArguments),
    Harmless(id="other-reasoning-field", server=OtherReasoningField, source="vllm-project/vllm#50624"),
    Harmless(id="ping-comments", server=PingComments, source="theopenco/llmgateway#2334"),
    Harmless(id="slow-first-use", server=SlowFirstUse),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
