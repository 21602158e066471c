"""Servers that enforce a part of a strict schema or none, and servers that only write arguments their own way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.chat import Toolbox
from servecheck.reference.constraint import Choose, Constraint
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import tools_required as shared
from servecheck.reference.rewriting import Rewritten
from servecheck.reference.server import ReferenceServer
from servecheck.reference.toolfaults import OtherText

__all__ = ["HARMLESS", "MUTANTS"]


def _strict(toolbox: Toolbox) -> bool:
    return any(tool["function"].get("strict") for tool in toolbox.tools)


def _walk(schema: Any, change: Callable[[dict[str, Any]], None]) -> None:  # noqa: ANN401
    if isinstance(schema, Mapping):
        for inner in schema.values():
            _walk(inner, change)
        if isinstance(schema, dict):
            change(schema)
    elif isinstance(schema, Sequence) and not isinstance(schema, str):
        for inner in schema:
            _walk(inner, change)


class _Forgetful(ReferenceServer):
    """Enforces a schema from which something is missing; the model is shown the whole one."""

    def forget(self, schema: dict[str, Any]) -> None:
        """Take something out of one level of a schema."""
        raise NotImplementedError

    def calls_constraint(self, toolbox: Toolbox, asked: str) -> Constraint:
        """Enforce what is left."""
        tools = json.loads(json.dumps(list(toolbox.tools)))
        for tool in tools:
            _walk(tool["function"].get("parameters") or {}, self.forget)
        return super().calls_constraint(replace(toolbox, tools=tuple(tools)), asked)


class AlwaysLoose(ReferenceServer):
    """Enforces the name of a call and never its arguments, strict or not."""

    def calls_constraint(self, toolbox: Toolbox, asked: str) -> Constraint:
        """Loosen every tool."""
        return Rewritten(super().calls_constraint(toolbox, asked), _other_arguments)


class LooseInStreams(ReferenceServer):
    """Enforces strict arguments where the answer is whole, and forgets about strict in streams."""

    streams = False

    def chat_job(self, body: Event) -> Job:
        """Remember the mode for the constraint."""
        self.streams = bool(body.get("stream"))
        return super().chat_job(body)

    def calls_constraint(self, toolbox: Toolbox, asked: str) -> Constraint:
        """Loosen streams."""
        made = super().calls_constraint(toolbox, asked)
        return Rewritten(made, _other_arguments) if self.streams else made


def _other_arguments(text: str) -> str:
    call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    return f'<tool_call>\n{{"name": {json.dumps(call["name"])}, "arguments": {{"city": "Oslo"}}}}\n</tool_call>'


class OuterLevelOnly(_Forgetful):
    """Enforces the outer level of a schema and takes any object below it."""

    def forget(self, schema: dict[str, Any]) -> None:
        """Leave nothing of inner objects but their type."""
        for inner in (schema.get("properties") or {}).values():
            if isinstance(inner, dict) and inner.get("type") == "object":
                inner.pop("properties", None)
                inner["required"] = ["key"]
                inner["additionalProperties"] = True


class ListsUncounted(_Forgetful):
    """Enforces the items of a list and not their number."""

    def forget(self, schema: dict[str, Any]) -> None:
        """Ask for three items, as the model would write."""
        if schema.get("type") == "array":
            schema["minItems"], schema["maxItems"] = 3, 3


class BoundsForgotten(_Forgetful):
    """Drops minimum and maximum from the grammar without a word."""

    def forget(self, schema: dict[str, Any]) -> None:
        """Forget the bounds."""
        schema.pop("minimum", None)
        schema.pop("maximum", None)


class BoundsRefused(ReferenceServer):
    """Refuses minimum and maximum in a strict schema, by name."""

    def tools_of(self, body: Event) -> Toolbox:
        """Refuse."""
        if '"minimum"' in json.dumps(body.get("tools") or []):
            raise ApiError("Invalid schema for function: 'minimum' is not permitted", param="tools")
        return super().tools_of(body)


class StrictRefused(ReferenceServer):
    """Knows no field ``strict`` and refuses it."""

    def tools_of(self, body: Event) -> Toolbox:
        """Refuse."""
        toolbox = super().tools_of(body)
        if _strict(toolbox):
            raise ApiError("Extra inputs are not permitted: tools.0.function.strict", status=422, param="tools")
        return toolbox


class MoreThanAllowed(OtherText):
    """Lets the model add a property although the schema forbids additional ones."""

    def rewrite(self, text: str) -> str:
        """Add one."""
        return text.replace('"arguments": {', '"arguments": {"note": "ok", ')


class ReorderedSpaces(OtherText):
    """Writes arguments with blanks wherever JSON allows them."""

    def rewrite(self, text: str) -> str:
        """Spread the braces."""
        head, name, arguments = text.partition('"arguments": ')
        return head + name + arguments.replace("{", "{ \n").replace("]", " ]")


class StringlyTyped(ReferenceServer):
    """Writes a number of a strict tool as a string, as its XML format has no types."""

    def calls_constraint(self, toolbox: Toolbox, asked: str) -> Constraint:
        """Quote every number."""
        return _Quoted(super().calls_constraint(toolbox, asked))


class _Quoted:
    def __init__(self, inner: Constraint) -> None:
        self._inner = inner

    def text(self, choose: Choose, hints: Sequence[str]) -> str:
        head, name, rest = self._inner.text(choose, hints).partition('"value": ')
        number = rest.partition("}")[0]
        return head + name + (rest.replace(number, f'"{number}"', 1) if number.isdigit() else rest)


_V, _N, _R, _H = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.HELD
_CALLED, _FIT, _BOUNDS = "strict-tool-is-called", "strict-arguments-fit-their-schema", "strict-bounds-are-kept"

MUTANTS = (
    Mutant(id="strict-ignored", server=shared.StrictIgnored, trips=((_FIT, _N),), source="vllm-project/vllm#12201"),
    Mutant(id="always-loose", server=AlwaysLoose, trips=((_FIT, _N), (_BOUNDS, _N))),
    Mutant(id="loose-in-streams", server=LooseInStreams, trips=((_FIT, _H), (_FIT, _V))),
    Mutant(id="outer-level-only", server=OuterLevelOnly, trips=((_FIT, _H), (_FIT, _V))),
    Mutant(id="lists-uncounted", server=ListsUncounted, trips=((_FIT, _H), (_FIT, _V))),
    Mutant(id="more-than-allowed", server=MoreThanAllowed, trips=((_FIT, _N),)),
    Mutant(id="stringly-typed", server=StringlyTyped, trips=((_BOUNDS, _V), (_FIT, _H))),
    Mutant(id="bounds-forgotten", server=BoundsForgotten, trips=((_BOUNDS, _V),)),
    Mutant(id="bounds-refused", server=BoundsRefused, trips=((_BOUNDS, _R), (_FIT, _H))),
    Mutant(id="strict-refused", server=StrictRefused, trips=((_CALLED, _R),)),
    Mutant(
        id="required-ignored", server=shared.RequiredIgnored, trips=((_CALLED, _N),), source="vllm-project/vllm#44216"
    ),
    Mutant(id="call-as-text", server=shared.CallAsText, trips=((_CALLED, _V),), source="vllm-project/vllm#29725"),
    Mutant(
        id="arguments-truncated",
        server=shared.ArgumentsTruncated,
        trips=((_FIT, _V),),
        source="vllm-project/vllm#15274",
    ),
    Mutant(id="arguments-twice", server=shared.ArgumentsTwice, trips=((_FIT, _V),), source="vllm-project/vllm#51697"),
)

HARMLESS = (
    Harmless(id="loose-arguments", server=shared.LooseArguments),
    Harmless(id="reordered-spaces", server=ReorderedSpaces),
    Harmless(id="finish-stop", server=shared.FinishStop, source="vllm-project/vllm#25054"),
    Harmless(id="two-calls", server=shared.TwoCalls),
    Harmless(id="whole-arguments", server=shared.WholeArguments),
    Harmless(id="text-after-call", server=shared.TextAfterCall),
    Harmless(id="ping-comments", server=shared.PingComments, source="theopenco/llmgateway#2334"),
    Harmless(id="slow-first-use", server=shared.SlowFirstUse),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
