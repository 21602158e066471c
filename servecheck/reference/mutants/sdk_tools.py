"""Servers whose tool calls the openai SDK reads wrongly, and right ones that only look odd."""

from __future__ import annotations

import json

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.chat import Toolbox
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.toolfaults import Changing

__all__ = ["HARMLESS", "MUTANTS"]

_READS, _ADDS, _TYPES = "sdk-reads-a-tool-call", "sdk-adds-a-tool-call-up", "calls-have-the-sdks-types"
_VIOLATED, _REFUSED = Outcome.VIOLATED, Outcome.REFUSED

# --------------------------------------------------------------------------- broken


class IdMissing(Changing):
    """Gives its calls no id, so no result can be sent back."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:  # noqa: ARG002
        """Take it out."""
        return [{name: value for name, value in call.items() if name != "id"} for call in calls]


class IdChanges(Changing):
    """Gives every piece of a streamed call an id of its own."""

    def __init__(self, **config: object) -> None:
        super().__init__(**config)
        self._pieces = 0

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Count on."""
        if not stream:
            return calls
        self._pieces += 1
        return [{**call, "id": f"call_{self._pieces}"} for call in calls]


class NameNull(Changing):
    """Adds a stray call with no name behind the right one."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Add it."""
        stray: Event = {"id": "call_x", "type": "function", "function": {"name": None, "arguments": "{}"}}
        return calls if stream else [*calls, stray]


class ArgumentsAsObject(Changing):
    """Gives the arguments of a call as an object where the API says a text of JSON."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Parse them."""
        if stream:
            return calls
        return [
            {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
            for call in calls
        ]


class ArgumentsTwice(Changing):
    """Sends the pieces of a streamed call's arguments twice."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Double every piece."""
        if not stream:
            return calls
        return [
            {**call, "function": {**call["function"], "arguments": call["function"]["arguments"] * 2}} for call in calls
        ]


class TypeMissing(Changing):
    """Does not say that a call is one of a function."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:  # noqa: ARG002
        """Take it out."""
        return [{name: value for name, value in call.items() if name != "type"} for call in calls]


class ToolsRefused(ReferenceServer):
    """Refuses every request that has tools."""

    def tools_of(self, body: Event) -> Toolbox:
        """Refuse."""
        if body.get("tools"):
            raise ApiError("tools are not supported by this server", param="tools")
        return super().tools_of(body)


MUTANTS = (
    Mutant(
        id="id-missing",
        server=IdMissing,
        trips=((_READS, _VIOLATED), (_ADDS, _VIOLATED), (_TYPES, _VIOLATED)),
        source="ggml-org/llama.cpp#11992",
    ),
    Mutant(id="id-changes", server=IdChanges, trips=((_ADDS, _VIOLATED),), source="cubist38/mlx-openai-server#216"),
    Mutant(
        id="name-null",
        server=NameNull,
        trips=((_READS, _VIOLATED), (_TYPES, _VIOLATED)),
        source="BerriAI/litellm#9127",
    ),
    Mutant(id="arguments-as-object", server=ArgumentsAsObject, trips=((_READS, _VIOLATED), (_TYPES, _VIOLATED))),
    Mutant(id="arguments-twice", server=ArgumentsTwice, trips=((_ADDS, _VIOLATED),), source="vllm-project/vllm#51697"),
    Mutant(id="type-missing", server=TypeMissing, trips=((_READS, _VIOLATED), (_TYPES, _VIOLATED))),
    Mutant(id="tools-refused", server=ToolsRefused, trips=((_READS, _REFUSED), (_ADDS, _REFUSED))),
)

# --------------------------------------------------------------------------- harmless


class IndexInWholeCalls(Changing):
    """Numbers the calls of a whole reply too, which nobody needs and nobody minds."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Add the number."""
        return calls if stream else [{"index": place, **call} for place, call in enumerate(calls)]


class BareHexIds(Changing):
    """Gives its calls ids of another form."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:  # noqa: ARG002
        """Cut the beginning off."""
        return [{**call, "id": call["id"].removeprefix("call_")} if "id" in call else call for call in calls]


HARMLESS = (
    Harmless(id="index-in-whole-calls", server=IndexInWholeCalls),
    Harmless(id="bare-hex-ids", server=BareHexIds),
)
