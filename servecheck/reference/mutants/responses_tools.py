"""Tools that get lost between the flat shape of this route and the nested one of the chat route."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.chat import Toolbox
from servecheck.reference.constraint import Constraint
from servecheck.reference.eventfaults import NoResponses
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import responses_basic as basic
from servecheck.reference.responses import Asked
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class ToolsRefused(ReferenceServer):
    """Refuses tools on this route, and says so."""

    def response_tools(self, body: Event) -> Event:
        """Refuse."""
        if body.get("tools"):
            raise ApiError("tools are not supported on this route", status=501, param="tools")
        return {}


class ToolsDropped(ReferenceServer):
    """Accepts tools on this route and drops them."""

    def response_tools(self, body: Event) -> Event:
        """Drop them."""
        super().response_tools(body)
        return {}


class ChoiceDropped(ReferenceServer):
    """Shows the tools to the model and drops ``tool_choice``."""

    def response_tools(self, body: Event) -> Event:
        """Drop it."""
        made = super().response_tools(body)
        return {**made, "tool_choice": "auto"} if made else {}


class NamedChoiceDropped(ReferenceServer):
    """Knows the chat route's shape of a choice that names a function, and not this one's."""

    def response_tools(self, body: Event) -> Event:
        """Drop it."""
        made = super().response_tools(body)
        return {**made, "tool_choice": "auto"} if isinstance(body.get("tool_choice"), dict) else made


class MarkupInStreams(ReferenceServer):
    """Parses calls only where nothing is streamed; a stream shows their markup as text."""

    def response_job(self, body: Event) -> Asked:
        """Leave the parser out."""
        asked = super().response_job(body)
        return replace(asked, job=replace(asked.job, tools=False)) if asked.job.stream else asked


class _Items(ReferenceServer):
    """Changes the calls in every response and event; subclasses say how."""

    def call(self, item: Event) -> None:
        """Change one call in place."""
        raise NotImplementedError

    async def response_events(self, asked: Asked) -> AsyncIterator[Event]:
        """Change them."""
        async for event in super().response_events(asked):
            changed = copy.deepcopy(event)
            items: list[Any] = [changed.get("item"), *changed.get("response", {}).get("output", [])]
            for item in items:
                if item and item["type"] == "function_call":
                    self.call(item)
            yield changed


class OtherName(_Items):
    """Writes the functions' names in capitals."""

    def call(self, item: Event) -> None:
        """Change the name."""
        item["name"] = item["name"].upper()


class NoCallId(_Items):
    """Gives a call an item id and no call id, so that its result cannot be sent back."""

    def call(self, item: Event) -> None:
        """Leave it out."""
        item["call_id"] = None


class LastSignLost(ReferenceServer):
    """Loses the closing brace of every call's arguments."""

    async def response_events(self, asked: Asked) -> AsyncIterator[Event]:
        """Lose it."""
        async for event in super().response_events(asked):
            changed = copy.deepcopy(event)
            if changed["type"] == "response.function_call_arguments.delta":
                changed["delta"] = changed["delta"].replace("}", "")
            for item in changed.get("response", {}).get("output", []):
                if item["type"] == "function_call":
                    item["arguments"] = item["arguments"].rstrip("}")
            yield changed


class SchemaForgotten(ReferenceServer):
    """Forces the call and not what its schema wants: the argument is a word of the model's own."""

    def calls_constraint(self, toolbox: Toolbox, asked: str) -> Constraint:
        """Take any string."""
        tools = tuple(copy.deepcopy(tool) for tool in toolbox.tools)
        for tool in tools:
            tool["function"]["parameters"]["properties"]["code"] = {"type": "string"}
        return super().calls_constraint(replace(toolbox, tools=tools), asked)


class ShownAsTextToo(ReferenceServer):
    """Gives a call as an item, and its markup as a message before it."""

    async def response_events(self, asked: Asked) -> AsyncIterator[Event]:
        """Put the message into the last response, and its text into the stream."""
        async for event in super().response_events(asked):
            changed = copy.deepcopy(event)
            output = changed.get("response", {}).get("output", [])
            calls = [item for item in output if item["type"] == "function_call"]
            if calls:
                text = f'<tool_call>{{"name": "{calls[0]["name"]}"}}</tool_call>'
                part = {"type": "output_text", "text": text, "annotations": []}
                message = {"id": "msg_0", "type": "message", "role": "assistant", "status": "completed"}
                output.append({**message, "content": [part]})
            yield changed


class ResultsRefused(ReferenceServer):
    """Refuses the output of a function as input."""

    def items_of(self, body: Event) -> list[Event]:
        """Refuse it."""
        given = body.get("input")
        if isinstance(given, list) and any(item.get("type") == "function_call_output" for item in given):
            raise ApiError("input: items of type 'function_call_output' are not supported", status=400, param="input")
        return super().items_of(body)


class ResultsDropped(ReferenceServer):
    """Reads the call and drops its output."""

    def items_of(self, body: Event) -> list[Event]:
        """Drop it."""
        read = super().items_of(body)
        return [{**item, "content": ""} if item["role"] == "tool" else item for item in read]


class ForeignToolFails(ReferenceServer):
    """Fails inside on a tool that it does not have, which counts against a healthy worker at a gateway."""

    def response_tools(self, body: Event) -> Event:
        """Fail."""
        try:
            return super().response_tools(body)
        except ApiError as wrong:
            raise ApiError(wrong.message, status=500, kind="InternalServerError") from wrong


class CallsNeedAction(ReferenceServer):
    """Gives a response with a call the status of another API."""

    def ended(self, asked: Asked, finish: str) -> tuple[str, Event | None]:
        """Say so."""
        status, why = super().ended(asked, finish)
        return ("requires_action", None) if finish == "tool_calls" else (status, why)


# --------------------------------------------------------------------------- odd, but right


class ForeignToolLeftAlone(ReferenceServer):
    """Accepts tools of kinds that it does not have and leaves them alone."""

    def response_tools(self, body: Event) -> Event:
        """Leave them."""
        known = [tool for tool in body.get("tools") or [] if tool.get("type") == "function"]
        return super().response_tools({**body, "tools": known})


class MoreFields(_Items):
    """Adds fields of its own to every call."""

    def call(self, item: Event) -> None:
        """Add them."""
        item |= {"namespace": None, "caller": None}


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_CALLED, _OFFERED, _ID = "required-call-is-an-item", "called-function-is-the-offered-one", "call-item-has-a-call-id"
_JSON, _STRICT = "call-item-arguments-are-json", "call-item-arguments-fit-the-schema"
_DONE, _NAMED = "response-with-a-call-is-completed", "named-function-is-called"
_MARKUP, _RESULT, _FOREIGN = "no-markup-beside-a-call", "function-result-is-counted", "foreign-tool-does-no-harm"

MUTANTS = (
    Mutant(id="no-responses", server=NoResponses, trips=((_CALLED, _R),)),
    Mutant(id="tools-refused", server=ToolsRefused, trips=((_CALLED, _R),)),
    Mutant(id="tools-dropped", server=ToolsDropped, trips=((_CALLED, _N), (_NAMED, _N))),
    Mutant(id="choice-dropped", server=ChoiceDropped, trips=((_CALLED, _N),)),
    Mutant(id="named-choice-dropped", server=NamedChoiceDropped, trips=((_NAMED, _N), (_CALLED, Outcome.HELD))),
    Mutant(id="markup-in-streams", server=MarkupInStreams, trips=((_CALLED, _V),), source="vllm-project/vllm#29725"),
    Mutant(id="other-name", server=OtherName, trips=((_OFFERED, _V),)),
    Mutant(id="no-call-id", server=NoCallId, trips=((_ID, _V),), source="vllm-project/vllm#18412"),
    Mutant(id="last-sign-lost", server=LastSignLost, trips=((_JSON, _V),)),
    Mutant(id="schema-forgotten", server=SchemaForgotten, trips=((_STRICT, _V),)),
    Mutant(id="shown-as-text-too", server=ShownAsTextToo, trips=((_MARKUP, _V),), source="vllm-project/vllm#36435"),
    Mutant(id="results-refused", server=ResultsRefused, trips=((_RESULT, _R),)),
    Mutant(id="results-dropped", server=ResultsDropped, trips=((_RESULT, _N),)),
    Mutant(
        id="foreign-tool-fails", server=ForeignToolFails, trips=((_FOREIGN, _V),), source="sgl-project/sglang#22980"
    ),
    Mutant(id="calls-need-action", server=CallsNeedAction, trips=((_DONE, _V),)),
)

HARMLESS = (
    Harmless(id="foreign-tool-left-alone", server=ForeignToolLeftAlone),
    Harmless(id="more-fields", server=MoreFields),
    Harmless(id="nothing-that-is-null", server=basic.NothingThatIsNull),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
