"""Responses that the openai SDK does not read, or reads as something else, and right ones that only look odd."""

from __future__ import annotations

from collections.abc import Iterator

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.eventfaults import ENDS, NoResponses, ResponseEvents, ResponseObjects
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.responses_stream import StreamIgnored

__all__ = ["HARMLESS", "MUTANTS"]

_RETURNS, _TYPES = "sdk-returns-the-response", "response-has-the-sdks-types"
_READS, _ADDS = "sdk-reads-all-events-of-a-response", "sdk-helper-ends-with-the-response"
_VIOLATED, _REFUSED, _NO_EFFECT = Outcome.VIOLATED, Outcome.REFUSED, Outcome.NO_EFFECT

# --------------------------------------------------------------------------- broken


class ItemsWithoutType(ResponseObjects):
    """Leaves away what kind of item a message is."""

    def rewrite(self, response: Event) -> None:
        """Take it out."""
        for item in response["output"]:
            if item["type"] == "message":
                item["type"] = None


class TextParts(ResponseObjects):
    """Calls a part of an answer ``text``, as the chat route does in requests."""

    def rewrite(self, response: Event) -> None:
        """Rename them."""
        for item in response["output"]:
            for part in item.get("content", ()):
                if part["type"] == "output_text":
                    part["type"] = "text"


class UsageAsText(ResponseObjects):
    """Counts tokens in words of digits."""

    def rewrite(self, response: Event) -> None:
        """Turn them into text."""
        usage = response.get("usage")
        if usage:
            response["usage"] = {**usage, "input_tokens": str(usage["input_tokens"])}


class NoIndexes(ResponseEvents):
    """Leaves ``output_index`` and ``content_index`` away, which other clients never miss."""

    def change(self, event: Event) -> Iterator[Event]:
        """Take them out."""
        yield {name: value for name, value in event.items() if name not in ("output_index", "content_index")}


class NotCreated(ResponseEvents):
    """Begins with the first item, without saying that a response was created."""

    def change(self, event: Event) -> Iterator[Event]:
        """Leave it out."""
        if event["type"] != "response.created":
            yield event


class DeltasUnderAnotherName(ResponseEvents):
    """Calls the pieces of a text what another route calls them, so the SDK hands out none of them."""

    def change(self, event: Event) -> Iterator[Event]:
        """Rename them."""
        if event["type"] == "response.output_text.delta":
            yield {**event, "delta": {"text": event["delta"]}}
        else:
            yield event


class EndsEmpty(ResponseEvents):
    """Ends with a response that holds nothing of what was streamed."""

    def change(self, event: Event) -> Iterator[Event]:
        """Empty the last one, and the items that are done."""
        if event["type"] in ENDS:
            yield {**event, "response": {**event["response"], "output": []}}
        else:
            yield event


MUTANTS = (
    Mutant(id="no-responses-route", server=NoResponses, trips=((_RETURNS, _REFUSED),)),
    Mutant(id="text-parts", server=TextParts, trips=((_RETURNS, _VIOLATED),)),
    Mutant(id="usage-as-text", server=UsageAsText, trips=((_TYPES, _VIOLATED),)),
    Mutant(id="no-indexes", server=NoIndexes, trips=((_ADDS, _VIOLATED),)),
    Mutant(id="not-created", server=NotCreated, trips=((_ADDS, _VIOLATED),), source="BerriAI/litellm#9545"),
    Mutant(id="deltas-under-another-name", server=DeltasUnderAnotherName, trips=((_READS, _VIOLATED),)),
    Mutant(id="ends-empty", server=EndsEmpty, trips=((_ADDS, _VIOLATED),), source="vllm-project/vllm#24184"),
    Mutant(
        id="responses-do-not-stream",
        server=StreamIgnored,
        trips=((_READS, _NO_EFFECT),),
        source="ray-project/ray#58366",
    ),
)

# --------------------------------------------------------------------------- harmless


class MoreFields(ResponseObjects):
    """Adds fields that the SDK does not know."""

    def rewrite(self, response: Event) -> None:
        """Add some."""
        response["x_engine"] = {"version": 3}
        for item in response["output"]:
            item["x_note"] = "more"


class MoreEvents(ResponseEvents):
    """Sends an event of a kind that the SDK does not know."""

    def change(self, event: Event) -> Iterator[Event]:
        """Send it before the end."""
        if event["type"] in ENDS:
            yield {"type": "response.engine.note", "text": "nearly there"}
        yield event


HARMLESS = (
    Harmless(id="more-fields-in-responses", server=MoreFields),
    Harmless(id="more-events", server=MoreEvents),
)
