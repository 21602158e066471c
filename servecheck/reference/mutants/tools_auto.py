"""Servers that lose or spoil the call that a model makes by itself, and servers whose right calls only look odd."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from servecheck.judging import HANGS_NOT
from servecheck.model import Outcome
from servecheck.reference.answers import CALL_OPEN_TEXT
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer
from servecheck.reference.chat import Toolbox
from servecheck.reference.constraint import Constraint
from servecheck.reference.engine import Delta, Job, Step
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import tools_required as shared
from servecheck.reference.server import ReferenceServer
from servecheck.reference.toolfaults import Changing, forced

__all__ = ["HARMLESS", "MUTANTS"]

_CALLING = ("obedient", "reasoning")
"""The models that call a tool when they are asked to."""


def _free(body: Event) -> bool:
    return bool(body.get("tools")) and body.get("tool_choice") in (None, "auto")


class FreeCallAsText(ReferenceServer):
    """Parses the calls that it forces and leaves the ones that the model makes by itself in the content."""

    def chat_job(self, body: Event) -> Job:
        """Switch the parser off."""
        job = super().chat_job(body)
        return replace(job, tools=False) if _free(body) else job


class FailsOnFreeText(ReferenceServer):
    """Cannot parse what the model says beside its tools, call or not, and gives a 500 or an error event."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Fail after the prompt."""
        if _free(job.body):
            raise ApiError("the model's output does not match the expected format", status=500, kind="server_error")
        async for delta in super().deltas(job):
            yield delta


class AgentsRefused(ReferenceServer):
    """Knows no ``stream_options``, which agents' libraries send with every stream, and refuses them beside tools."""

    def chat_job(self, body: Event) -> Job:
        """Refuse."""
        if body.get("tools") and body.get("stream_options"):
            raise ApiError("stream_options: extra inputs are not permitted", param="stream_options")
        return super().chat_job(body)


class AutoSpelledOutFails(ReferenceServer):
    """Calls by itself where nothing is said of it, and fails inside where the choice ``auto`` is spelled out."""

    def chat_job(self, body: Event) -> Job:
        """Fail."""
        if body.get("tool_choice") == "auto":
            raise ApiError("'str' object has no attribute 'function'", status=500, kind="InternalServerError")
        return super().chat_job(body)


class AutoRefused(ReferenceServer):
    """Was started without automatic tool choice and refuses tools where none is forced."""

    def tools_of(self, body: Event) -> Toolbox:
        """Refuse."""
        if _free(body):
            raise ApiError('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
        return super().tools_of(body)


class ToolsDropped(ReferenceServer):
    """Has a template that knows no tools and no grammar for calls: tools are taken with 200 and forgotten."""

    def tools_of(self, body: Event) -> Toolbox:
        """Forget them."""
        super().tools_of(body)
        return Toolbox()


class WrittenTwice(Changing):
    """Writes arguments as JSON twice over, so that they read as a string that holds an object."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Quote the arguments of whole replies."""
        for call in calls:
            if not stream:
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        return calls


class WordsBesideACall(ReferenceServer):
    """Says in words what it is about to do, and then calls."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Speak beside the call."""
        choice = super().chat_choice(job, answer)
        if answer.calls:
            choice["message"]["content"] = "I will record it for you: if a < b, then [now] {so}."
        return choice


class NullName(Changing):
    """Gives a null name to every call."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Take the name away."""
        del stream
        for call in calls:
            if "name" in call["function"]:
                call["function"]["name"] = None
        return calls


class FreeFinishStop(ReferenceServer):
    """Ends a call that the model made by itself with ``stop``, so an agent takes the turn for its last."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Change the reason."""
        async for delta in super().deltas(job):
            stops = delta.finish == "tool_calls" and not forced(job.body)
            yield replace(delta, finish="stop") if stops else delta


class FewTools(ReferenceServer):
    """Gives a 400 about invalid JSON for a valid body with more than sixteen tools."""

    def tools_of(self, body: Event) -> Toolbox:
        """Blame the client."""
        if len(body.get("tools") or ()) > 16:
            raise ApiError("the body is not valid JSON: EOF at line 1 column 62", code="invalid_json")
        return super().tools_of(body)


class NoForcedText(ReferenceServer):
    """Ignores the fields that would make the model write a given text."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Ignore them."""
        return super().constraint_of({**body, "structured_outputs": None})


class NoLogprobs(ReferenceServer):
    """Has no logprobs, so the format of its calls cannot be read."""

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:
        """Return none."""
        del job, steps
        return None


class TextBeforeFreeCall(ReferenceServer):
    """Says a word before each call that it streams, beside the deltas of the call."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Say it with the first delta of a call."""
        async for delta in super().deltas(job):
            begins = any(call.name is not None for call in delta.calls)
            yield replace(delta, content="Well." + delta.content) if begins else delta


class MarkupInProse(ReferenceServer):
    """Has a model that speaks of the markup of calls without calling, which is content like any other."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Mention the tag."""
        said = False
        async for delta in super().deltas(job):
            mentions = delta.content and _free(job.body) and not said
            said = said or bool(mentions)
            yield replace(delta, content=f"{CALL_OPEN_TEXT} is how I call. {delta.content}") if mentions else delta


class NoParser(ReferenceServer):
    """Was started without a tool parser: every call comes back as content, forced or not."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**{**config, "tool_parser": False})


class HalfAMarkBesideACall(ReferenceServer):
    """Leaves the beginning of the mark that opens a call in the content, where it waited for its end."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Leave it."""
        choice = super().chat_choice(job, answer)
        if answer.calls:
            choice["message"]["content"] = "<function"
        return choice


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_CALLED, _FORM = "call-comes-back-as-a-call", "call-made-freely-is-well-formed"
_CLEAN = "no-markup-is-left-beside-a-call"
_FINISH, _MANY = "call-made-freely-finishes-with-tool-calls", "many-tools-are-accepted"

MUTANTS = (
    Mutant(
        id="mark-beside-a-call",
        server=shared.MarkBesideACall,
        trips=((_CLEAN, _V),),
        source="FlashML-org/FreeToken#203",
        models=_CALLING,
    ),
    Mutant(
        id="arguments-written-twice",
        server=WrittenTwice,
        trips=((_FORM, _V),),
        source="vllm-project/vllm#54964",
        models=_CALLING,
    ),
    Mutant(id="no-parser", server=NoParser, trips=((_CALLED, _V),), source="vllm-project/vllm#29725"),
    Mutant(
        id="free-call-as-text",
        server=FreeCallAsText,
        trips=((_CALLED, _V),),
        models=_CALLING,
        source="vllm-project/vllm#25560",
    ),
    Mutant(
        id="call-in-reasoning", server=shared.CallInReasoning, trips=((_CALLED, _V),), source="vllm-project/vllm#48748"
    ),
    Mutant(id="fails-on-free-text", server=FailsOnFreeText, trips=((_CALLED, _V),), source="ggml-org/llama.cpp#27025"),
    Mutant(id="agents-refused", server=AgentsRefused, trips=((_CALLED, _R),), source="langchain-ai/langchainjs#6533"),
    Mutant(id="auto-spelled-out-fails", server=AutoSpelledOutFails, trips=((_CALLED, _V),)),
    Mutant(id="auto-refused", server=AutoRefused, trips=((_CALLED, _R),)),
    Mutant(id="tools-dropped", server=ToolsDropped, trips=((_CALLED, _N),), source="vllm-project/vllm#44216"),
    Mutant(id="stream-never-ends", server=shared.StreamNeverEnds, trips=((HANGS_NOT.id, _V),)),
    Mutant(id="null-name", server=NullName, trips=((_FORM, _V),), source="BerriAI/litellm#9127"),
    Mutant(id="id-missing", server=shared.IdMissing, trips=((_FORM, _V),), source="ggml-org/llama.cpp#11992"),
    Mutant(
        id="id-in-every-delta",
        server=shared.IdInEveryDelta,
        trips=((_FORM, _V),),
        source="cubist38/mlx-openai-server#216",
    ),
    Mutant(id="arguments-twice", server=shared.ArgumentsTwice, trips=((_FORM, _V),), source="vllm-project/vllm#51697"),
    Mutant(
        id="arguments-truncated",
        server=shared.ArgumentsTruncated,
        trips=((_FORM, _V),),
        source="vllm-project/vllm#15274",
    ),
    Mutant(id="python-arguments", server=shared.PythonArguments, trips=((_FORM, _V),)),
    Mutant(id="free-finish-stop", server=FreeFinishStop, trips=((_FINISH, _V),), source="vllm-project/vllm#25054"),
    Mutant(id="finish-lost", server=shared.FinishLost, trips=((_FINISH, _V),), source="vllm-project/vllm#27572"),
    Mutant(id="few-tools", server=FewTools, trips=((_MANY, _R),), source="vllm-project/vllm#27921"),
    Mutant(
        id="half-a-mark-beside-a-call",
        server=HalfAMarkBesideACall,
        trips=(("no-markup-is-left-beside-a-call", Outcome.VIOLATED),),
        source="raullenchai/Rapid-MLX#448",
        models=_CALLING,
    ),
)

HARMLESS = (
    Harmless(id="words-beside-a-call", server=WordsBesideACall),
    Harmless(id="no-forced-text", server=NoForcedText, models=_CALLING),
    Harmless(id="no-logprobs", server=NoLogprobs, models=_CALLING),
    Harmless(id="text-before-free-call", server=TextBeforeFreeCall),
    Harmless(id="markup-in-prose", server=MarkupInProse),
    Harmless(id="whole-arguments", server=shared.WholeArguments),
    Harmless(id="by-the-letter", server=shared.ByTheLetter),
    Harmless(id="name-before-arguments", server=shared.NameBeforeArguments),
    Harmless(id="other-ids", server=shared.OtherIds),
    Harmless(id="id-repeated", server=shared.IdRepeated),
    Harmless(id="extra-fields", server=shared.ExtraFields),
    Harmless(id="ping-comments", server=shared.PingComments, source="theopenco/llmgateway#2334"),
    Harmless(id="slow-first-use", server=shared.SlowFirstUse),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
