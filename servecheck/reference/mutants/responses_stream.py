"""Streams of events that are out of order, at the wrong index, without an end, or that do not add up."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.eventfaults import (
    ENDS,
    LosesAPiece,
    MarkedAtTheEnd,
    MoreAfterDone,
    NoEventLines,
    NoResponses,
    ResponseEvents,
)
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import responses_basic as basic
from servecheck.reference.responses import Asked
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_DELTA = "response.output_text.delta"


# --------------------------------------------------------------------------- broken


class StreamIgnored(ReferenceServer):
    """Accepts ``stream`` and sends one whole response."""

    async def reply_responses(self, request: Request) -> Reply:
        """Send it whole."""
        asked = self.response_job(self.body_of(request))
        last: Event = {}
        async for event in self.response_events(asked):
            last = event
        return json_reply(last["response"])


class ErrorOnTheWay(ReferenceServer):
    """Sends an error event in the middle of every stream."""

    async def response_events(self, asked: Asked) -> AsyncIterator[Event]:
        """Fail after some events."""
        count = 0
        async for event in super().response_events(asked):
            count += 1
            if asked.job.stream and count > 5:
                raise ApiError("EngineCore encountered an issue", status=500, code="server_error")
            yield event


class CompletedOnly(ResponseEvents):
    """Sends the completed event first and alone, since what it converts cannot stream."""

    def change(self, event: Event) -> Iterator[Event]:
        """Keep the last one."""
        if event["type"] in ENDS:
            yield event


class CreatedLate(ResponseEvents):
    """Begins with ``in_progress`` and says ``created`` behind it."""

    def change(self, event: Event) -> Iterator[Event]:
        """Swap them."""
        names = {"response.created": "response.in_progress", "response.in_progress": "response.created"}
        yield {**event, "type": names.get(event["type"], event["type"])}


class NoLastEvent(ResponseEvents):
    """Closes the connection without an event that ends the stream."""

    DROPPED: ClassVar[tuple[str, ...]] = ENDS


class EndsTwice(ResponseEvents):
    """Ends a stream twice."""

    def change(self, event: Event) -> Iterator[Event]:
        """Say it again."""
        yield event
        if event["type"] in ENDS:
            yield event


class GoesOnAfterwards(ResponseEvents):
    """Sends the response's progress behind its end."""

    def change(self, event: Event) -> Iterator[Event]:
        """Go on."""
        yield event
        if event["type"] in ENDS:
            yield {"type": "response.in_progress", "response": event["response"]}


class GapsInTheNumbers(ReferenceServer):
    """Drops events after it has numbered them, as an editing gateway does."""

    async def numbered(self, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        """Number every event with a number in between."""
        async for event in super().numbered(events):
            yield {**event, "sequence_number": event["sequence_number"] * 2}


class NoNumbers(ReferenceServer):
    """Gives no sequence numbers."""

    async def numbered(self, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        """Give none."""
        async for event in events:
            yield event


class NoIndexes(ResponseEvents):
    """Names items by their ids alone, without indexes."""

    def change(self, event: Event) -> Iterator[Event]:
        """Leave them out."""
        yield {key: value for key, value in event.items() if key not in ("output_index", "content_index")}


class PartForEveryPiece(ReferenceServer):
    """Counts the content index up with every piece of one part."""

    async def response_events(self, asked: Asked) -> AsyncIterator[Event]:
        """Count."""
        count = 0
        async for event in super().response_events(asked):
            if event["type"] == _DELTA:
                yield {**event, "content_index": count}
                count += 1
            else:
                yield event


class PiecesOfNoItem(ResponseEvents):
    """Sends pieces without having added their item or part."""

    def change(self, event: Event) -> Iterator[Event]:
        """Drop what adds them."""
        if not event["type"].endswith(".added"):
            yield event


class ItemsNeverDone(ResponseEvents):
    """Ends the response and none of its items."""

    DROPPED: ClassVar[tuple[str, ...]] = ("response.output_item.done",)


class IndexesFromOne(ResponseEvents):
    """Counts output items from one, so that they stand elsewhere in the response than their index says."""

    def change(self, event: Event) -> Iterator[Event]:
        """Count from one."""
        yield {**event, "output_index": event["output_index"] + 1} if "output_index" in event else event


class OneIndexForAll(ResponseEvents):
    """Gives every item the index 0, so that the answer overwrites the thought."""

    def change(self, event: Event) -> Iterator[Event]:
        """Give it."""
        yield {**event, "output_index": 0} if "output_index" in event else event


class NewIdForEveryPiece(ReferenceServer):
    """Gives every piece an id of its own, so that no client finds its item."""

    async def response_events(self, asked: Asked) -> AsyncIterator[Event]:
        """Give it."""
        async for event in super().response_events(asked):
            yield {**event, "item_id": self.new_id("msg_")} if event["type"].endswith(".delta") else event


class OtherIdsAtTheEnd(ResponseEvents):
    """Makes the last response anew, with other ids for its items."""

    def change(self, event: Event) -> Iterator[Event]:
        """Make it."""
        if event["type"] in ENDS:
            event = copy.deepcopy(event)
            for item in event["response"]["output"]:
                item["id"] += "0"
        yield event


class ReversedAtTheEnd(ResponseEvents):
    """Lists the items of the last response in another order than their indexes say."""

    def change(self, event: Event) -> Iterator[Event]:
        """Reverse them."""
        if event["type"] in ENDS:
            event = copy.deepcopy(event)
            event["response"]["output"].reverse()
        yield event


class NewResponseAtTheEnd(ResponseEvents):
    """Ends with a response of another id than it began with."""

    def change(self, event: Event) -> Iterator[Event]:
        """Change the id."""
        if event["type"] in ENDS:
            event = {**event, "response": {**event["response"], "id": "resp_0"}}
        yield event


class LostInAStream(ReferenceServer):
    """Loses one piece of a text that its last response has whole."""

    async def response_events(self, asked: Asked) -> AsyncIterator[Event]:
        """Lose the second."""
        count = 0
        async for event in super().response_events(asked):
            count += event["type"] == _DELTA
            if not (event["type"] == _DELTA and count == 2):
                yield event


class EmptyWhenDone(ResponseEvents):
    """Ends texts with an event whose text is empty."""

    def change(self, event: Event) -> Iterator[Event]:
        """Empty it."""
        yield {**event, "text": ""} if event["type"] == "response.output_text.done" else event


class EmptyAtTheEnd(ResponseEvents):
    """Ends with a response without output."""

    def change(self, event: Event) -> Iterator[Event]:
        """Empty it."""
        yield {**event, "response": {**event["response"], "output": []}} if event["type"] in ENDS else event


class NoUsageInStreams(ResponseEvents):
    """Reports usage only where nothing is streamed."""

    def change(self, event: Event) -> Iterator[Event]:
        """Leave it out."""
        yield {**event, "response": {**event["response"], "usage": None}} if event["type"] in ENDS else event


class AlwaysNamedCompleted(ResponseEvents):
    """Ends with an event named completed, also where its response says ``incomplete``."""

    def change(self, event: Event) -> Iterator[Event]:
        """Name it so."""
        yield {**event, "type": "response.completed"} if event["type"] in ENDS else event


class NoPartDone(ResponseEvents):
    """Adds the parts of an item and ends the item without having ended them."""

    DROPPED: ClassVar[tuple[str, ...]] = ("response.content_part.done",)


class NoTextDone(ResponseEvents):
    """Goes from the last piece of a text to the end of its part, without the event that has the whole text."""

    DROPPED: ClassVar[tuple[str, ...]] = ("response.output_text.done",)


# --------------------------------------------------------------------------- odd, but right


class CommentsAndOtherLineEnds(ReferenceServer):
    """Sends comments between events, and ends lines as other systems do."""

    def typed_frame(self, event: Event) -> bytes:
        """Write them."""
        return b": ping\r\n\r\n" + super().typed_frame(event).replace(b"\n", b"\r\n")


class EventsOfItsOwn(ResponseEvents):
    """Sends events of types that nobody has heard of, numbered like all others."""

    def change(self, event: Event) -> Iterator[Event]:
        """Put one behind each."""
        yield event
        if event["type"] not in ENDS:
            yield {"type": "response.own.progress", "percent": 5}


class OnePieceForAll(ReferenceServer):
    """Sends every text in one piece."""

    async def response_events(self, asked: Asked) -> AsyncIterator[Event]:
        """Hold pieces back until the text is done."""
        held: Event | None = None
        async for event in super().response_events(asked):
            if event["type"].endswith(".delta"):
                held = event if held is None else {**held, "delta": held["delta"] + event["delta"]}
                continue
            if held is not None:
                yield held
            held = None
            yield event


class SpacedJson(ReferenceServer):
    """Writes its JSON with spaces and its keys in another order."""

    def frame(self, event: Event) -> bytes:
        """Write it so."""
        return b"data: " + json.dumps(dict(reversed(event.items()))).encode() + b"\n\n"


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_STREAMED, _CUT, _LOST = "response-is-streamed", "cut-stream-is-incomplete", "streamed-response-lacks-no-piece"
_WHOLE, _LINES, _USAGE = "response-stream-is-not-cut", "event-lines-name-the-type", "streamed-response-has-usage"
_BEGINS, _ENDS = "response-stream-begins-with-created", "response-stream-ends-once"
_NUMBERS, _NUMBERED = "sequence-numbers-count-up", "events-have-sequence-numbers"
_INDEXES, _ORDER, _IDS = "item-events-have-indexes", "items-open-grow-and-close", "item-ids-stay-the-same"
_ONE, _TEXTS, _NAMES = "one-response-id-per-stream", "pieces-join-to-the-whole", "last-event-names-the-status"

MUTANTS = (
    Mutant(id="no-responses", server=NoResponses, trips=((_STREAMED, _R),)),
    Mutant(id="responses-fail", server=basic.ResponsesFail, trips=((_STREAMED, _V),)),
    Mutant(id="stream-ignored", server=StreamIgnored, trips=((_STREAMED, _N),), source="ray-project/ray#58366"),
    Mutant(id="error-on-the-way", server=ErrorOnTheWay, trips=((_STREAMED, _V),), source="vllm-project/vllm#43031"),
    Mutant(id="completed-only", server=CompletedOnly, trips=((_BEGINS, _V),), source="BerriAI/litellm#9545"),
    Mutant(id="created-late", server=CreatedLate, trips=((_BEGINS, _V),), source="BerriAI/litellm#9545"),
    Mutant(id="no-last-event", server=NoLastEvent, trips=((_ENDS, _V),), source="NVIDIA-NeMo/Switchyard#796"),
    Mutant(id="ends-twice", server=EndsTwice, trips=((_ENDS, _V),)),
    Mutant(id="goes-on-afterwards", server=GoesOnAfterwards, trips=((_ENDS, _V),)),
    Mutant(id="gaps-in-the-numbers", server=GapsInTheNumbers, trips=((_NUMBERS, _V),), source="ENTERPILOT/GoModel#953"),
    Mutant(id="no-numbers", server=NoNumbers, trips=((_NUMBERED, _V),), source="BerriAI/litellm#28899"),
    Mutant(id="no-indexes", server=NoIndexes, trips=((_INDEXES, _V),)),
    Mutant(
        id="part-for-every-piece", server=PartForEveryPiece, trips=((_ORDER, _V),), source="vllm-project/vllm#29947"
    ),
    Mutant(id="pieces-of-no-item", server=PiecesOfNoItem, trips=((_ORDER, _V),), source="onyx-dot-app/onyx#13624"),
    Mutant(id="items-never-done", server=ItemsNeverDone, trips=((_ORDER, _V),), source="onyx-dot-app/onyx#13624"),
    Mutant(
        id="indexes-from-one",
        server=IndexesFromOne,
        trips=((_ORDER, _V),),
        source="teabranch/open-responses-server#63",
    ),
    Mutant(
        id="one-index-for-all",
        server=OneIndexForAll,
        trips=((_ORDER, _V),),
        source="theopenco/llmgateway#2908",
        models=("reasoning",),
    ),
    Mutant(id="new-id-for-every-piece", server=NewIdForEveryPiece, trips=((_IDS, _V),)),
    Mutant(id="other-ids-at-the-end", server=OtherIdsAtTheEnd, trips=((_IDS, _V),)),
    Mutant(
        id="reversed-at-the-end",
        server=ReversedAtTheEnd,
        trips=((_IDS, _V),),
        source="invergent-ai/surogate#175",
        models=("reasoning",),
    ),
    Mutant(id="new-response-at-the-end", server=NewResponseAtTheEnd, trips=((_ONE, _V),)),
    Mutant(id="lost-in-a-stream", server=LostInAStream, trips=((_TEXTS, _V),)),
    Mutant(id="empty-when-done", server=EmptyWhenDone, trips=((_TEXTS, _V),)),
    Mutant(id="empty-at-the-end", server=EmptyAtTheEnd, trips=((_TEXTS, _V), (_IDS, _V))),
    Mutant(id="loses-a-piece", server=LosesAPiece, trips=((_LOST, _V),)),
    Mutant(
        id="no-usage-in-streams",
        server=NoUsageInStreams,
        trips=((_USAGE, _V),),
        source="kubernetes-sigs/gateway-api-inference-extension#2482",
    ),
    Mutant(id="cut-says-completed", server=basic.CutSaysCompleted, trips=((_CUT, _V),), source="jundot/omlx#2817"),
    Mutant(id="limit-ignored", server=basic.LimitIgnored, trips=((_CUT, _N),)),
    Mutant(id="always-named-completed", server=AlwaysNamedCompleted, trips=((_NAMES, _V), (_CUT, Outcome.HELD))),
    Mutant(id="no-event-lines", server=NoEventLines, trips=((_LINES, _V),)),
    Mutant(id="more-after-done", server=MoreAfterDone, trips=((_WHOLE, _V),)),
    Mutant(
        id="no-part-done", server=NoPartDone, trips=(("parts-that-open-close", _V),), source="vllm-project/vllm#37071"
    ),
    Mutant(id="no-text-done", server=NoTextDone, trips=(("items-open-grow-and-close", _V),), source="ogx-ai/ogx#5309"),
)

HARMLESS = (
    Harmless(id="marked-at-the-end", server=MarkedAtTheEnd, source="triton-inference-server/triton_distributed#68"),
    Harmless(id="comments-and-other-line-ends", server=CommentsAndOtherLineEnds, source="theopenco/llmgateway#2334"),
    Harmless(id="events-of-its-own", server=EventsOfItsOwn),
    Harmless(id="one-piece-for-all", server=OnePieceForAll),
    Harmless(id="spaced-json", server=SpacedJson),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
