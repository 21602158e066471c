"""Servers that call another tool than the one that was named, or none, and servers whose right calls only look odd."""

from __future__ import annotations

from typing import Any

from servecheck.judging import HANGS_NOT, STAYS_HEALTHY
from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.chat import Toolbox
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import tools_required as shared
from servecheck.reference.server import ReferenceServer
from servecheck.reference.toolfaults import Changing

__all__ = ["HARMLESS", "MUTANTS"]


def _is_named(body: Event) -> bool:
    return isinstance(body.get("tool_choice"), dict)


class NameIgnored(ReferenceServer):
    """Takes a named tool for ``auto``: ordinary text, finish reason ``stop``."""

    def chat_job(self, body: Event) -> Job:
        """Soften the choice."""
        return super().chat_job({**body, "tool_choice": "auto"} if _is_named(body) else body)


class FirstIsCalled(ReferenceServer):
    """Calls the first tool of the list, whichever was named."""

    def tools_of(self, body: Event) -> Toolbox:
        """Name the first."""
        if not _is_named(body):
            return super().tools_of(body)
        return super().tools_of(
            {**body, "tool_choice": {"type": "function", "function": {"name": body["tools"][0]["function"]["name"]}}}
        )


class EagerFirst(FirstIsCalled):
    """Calls the first tool of the list for every message, so that naming another one changes nothing."""

    def chat_job(self, body: Event) -> Job:
        """Call without being asked to."""
        eager = body.get("tools") and body.get("tool_choice") is None
        first = body["tools"][:1] if eager else []
        return super().chat_job({**body, "tools": first, "tool_choice": "required"} if eager else body)


class UnknownNameTaken(ReferenceServer):
    """Takes a name that is not offered for ``required``, and answers 200."""

    def tools_of(self, body: Event) -> Toolbox:
        """Forget the name where it is unknown."""
        if _is_named(body):
            name = body["tool_choice"]["function"]["name"]
            if name not in [tool["function"]["name"] for tool in body["tools"]]:
                return super().tools_of({**body, "tool_choice": "required"})
        return super().tools_of(body)


class UnknownNameFails(ReferenceServer):
    """Looks the named function up among the tools, and gives a 500 where it is not there."""

    def tools_of(self, body: Event) -> Toolbox:
        """Fail."""
        try:
            return super().tools_of(body)
        except ApiError as wrong:
            if not _is_named(body):
                raise
            raise ApiError("issubclass() arg 1 must be a class", status=500, kind="InternalServerError") from wrong


class NamedRefused(ReferenceServer):
    """Knows ``auto`` and ``required`` only, and refuses a choice that is an object."""

    def tools_of(self, body: Event) -> Toolbox:
        """Refuse."""
        if _is_named(body):
            raise ApiError("tool_choice must be a string", param="tool_choice")
        return super().tools_of(body)


class EmptyName(Changing):
    """Sends the call with an empty name, since the client knows it anyway."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Take the name away."""
        del stream
        for call in calls:
            if "name" in call["function"]:
                call["function"]["name"] = ""
        return calls


class OnlyTheNamedTool(ReferenceServer):
    """Shows the model the named tool and no other."""

    def chat_job(self, body: Event) -> Job:
        """Leave the others out."""
        if not _is_named(body):
            return super().chat_job(body)
        name = body["tool_choice"]["function"]["name"]
        tools: list[Any] = [tool for tool in body["tools"] if tool["function"]["name"] == name]
        return super().chat_job({**body, "tools": tools or body["tools"]})


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_CALLED, _OFFERED, _ID = "naming-a-tool-makes-a-call", "called-tool-is-the-named-one", "named-call-has-an-id-of-its-own"
_JSON, _LOOSE = "named-arguments-are-json", "named-arguments-match-the-schema"
_STRICT, _FINISH = "named-strict-arguments-match-the-schema", "finish-fits-a-named-call"
_UNKNOWN = "a-name-that-is-not-offered-is-refused"

MUTANTS = (
    Mutant(
        id="mark-beside-a-call",
        server=shared.MarkBesideACall,
        trips=(("no-markup-is-left-beside-a-named-call", _V),),
        source="FlashML-org/FreeToken#203",
    ),
    Mutant(id="type-missing", server=shared.TypeMissing, trips=(("named-call-has-an-id-of-its-own", _V),)),
    Mutant(
        id="unknown-name-fails", server=UnknownNameFails, trips=((_UNKNOWN, _V),), source="sgl-project/sglang#28862"
    ),
    Mutant(id="name-ignored", server=NameIgnored, trips=((_CALLED, _N),), source="vllm-project/vllm#50477"),
    Mutant(id="first-is-called", server=FirstIsCalled, trips=((_OFFERED, _V),)),
    Mutant(id="eager-first", server=EagerFirst, trips=((_OFFERED, _N),), source="ggml-org/llama.cpp#28806"),
    Mutant(id="call-as-text", server=shared.CallAsText, trips=((_CALLED, _V),), source="vllm-project/vllm#29725"),
    Mutant(
        id="call-in-reasoning", server=shared.CallInReasoning, trips=((_CALLED, _V),), source="vllm-project/vllm#48748"
    ),
    Mutant(
        id="fails-on-its-model",
        server=shared.FailsOnItsModel,
        trips=((_CALLED, _V),),
        source="ggml-org/llama.cpp#27025",
    ),
    Mutant(id="named-refused", server=NamedRefused, trips=((_CALLED, _R),)),
    Mutant(
        id="call-kills",
        server=shared.CallKills,
        trips=((STAYS_HEALTHY.id, _V),),
        source="vllm-project/tpu-inference#1850",
    ),
    Mutant(id="stream-never-ends", server=shared.StreamNeverEnds, trips=((HANGS_NOT.id, _V),)),
    Mutant(id="empty-name", server=EmptyName, trips=((_OFFERED, _V),), source="BerriAI/litellm#9127"),
    Mutant(id="id-missing", server=shared.IdMissing, trips=((_ID, _V),), source="ggml-org/llama.cpp#11992"),
    Mutant(
        id="id-in-every-delta",
        server=shared.IdInEveryDelta,
        trips=((_ID, _V),),
        source="cubist38/mlx-openai-server#216",
    ),
    Mutant(id="arguments-twice", server=shared.ArgumentsTwice, trips=((_JSON, _V),), source="vllm-project/vllm#51697"),
    Mutant(
        id="arguments-truncated",
        server=shared.ArgumentsTruncated,
        trips=((_JSON, _V),),
        source="vllm-project/vllm#15274",
    ),
    Mutant(id="loose-arguments", server=shared.LooseArguments, trips=((_LOOSE, _V), (_STRICT, Outcome.HELD))),
    Mutant(
        id="strict-ignored",
        server=shared.StrictIgnored,
        trips=((_LOOSE, _V), (_STRICT, _V)),
        source="vllm-project/vllm#12201",
    ),
    Mutant(id="legacy-finish", server=shared.LegacyFinish, trips=((_FINISH, _V),), source="vllm-project/vllm#25054"),
    Mutant(id="unknown-name-taken", server=UnknownNameTaken, trips=((_UNKNOWN, _V),), source="vllm-project/vllm#14424"),
)

HARMLESS = (
    Harmless(id="finish-stop", server=shared.FinishStop, source="vllm-project/vllm#25054"),
    Harmless(id="only-the-named-tool", server=OnlyTheNamedTool),
    Harmless(id="whole-arguments", server=shared.WholeArguments),
    Harmless(id="by-the-letter", server=shared.ByTheLetter),
    Harmless(id="name-before-arguments", server=shared.NameBeforeArguments),
    Harmless(id="id-repeated", server=shared.IdRepeated),
    Harmless(id="extra-fields", server=shared.ExtraFields),
    Harmless(id="text-after-call", server=shared.TextAfterCall),
    Harmless(id="spaced-arguments", server=shared.SpacedArguments),
    Harmless(id="ping-comments", server=shared.PingComments, source="theopenco/llmgateway#2334"),
    Harmless(id="slow-first-use", server=shared.SlowFirstUse),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
