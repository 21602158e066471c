"""Streams of messages whose blocks do not open, close or add up, or that end without a reason."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

from servecheck.model import Outcome
from servecheck.reference import eventfaults
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.eventfaults import LosesAPiece, MarkedAtTheEnd, MessageEvents, MoreAfterDone, NoMessages
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.messages import Letter
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import messages_basic as basic
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken


class StreamIgnored(ReferenceServer):
    """Accepts ``stream`` and sends one whole message."""

    async def reply_messages(self, request: Request) -> Reply:
        """Send it whole."""
        letter = self.letter(self.body_of(request))
        return json_reply(self.message_object(letter, await self.answers(letter.job)))


class ErrorOnTheWay(ReferenceServer):
    """Sends an error event in the middle of every stream."""

    async def message_events(self, letter: Letter) -> AsyncIterator[Event]:
        """Fail after some events."""
        count = 0
        async for event in super().message_events(letter):
            count += 1
            if count > 4:
                yield {"type": "error", "error": {"type": "api_error", "message": "the engine is gone"}}
                return
            yield event


class NoStart(MessageEvents):
    """Begins with the first block, without ``message_start``."""

    DROPPED: ClassVar[tuple[str, ...]] = ("message_start",)


class StartWithoutId(MessageEvents):
    """Starts a message without an id."""

    def change(self, event: Event) -> Iterator[Event]:
        """Take it away."""
        yield {**event, "message": {**event["message"], "id": None}} if event["type"] == "message_start" else event


class NoStop(MessageEvents):
    """Closes the connection without ``message_stop``."""

    DROPPED: ClassVar[tuple[str, ...]] = ("message_stop",)


class DeltaBehindTheStop(MessageEvents):
    """Says why it stopped behind ``message_stop``, where no client looks."""

    def change(self, event: Event) -> Iterator[Event]:
        """Send it again, in the other order."""
        if event["type"] == "message_stop":
            yield event
            yield {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 1}}
        else:
            yield event


class PiecesOfNoBlock(MessageEvents):
    """Sends pieces without having started their block."""

    DROPPED: ClassVar[tuple[str, ...]] = ("content_block_start",)


class BlocksNeverStop(MessageEvents):
    """Starts blocks and never stops them."""

    DROPPED: ClassVar[tuple[str, ...]] = ("content_block_stop",)


class PiecesAtAnotherIndex(MessageEvents):
    """Sends every piece at the index after that of its block."""

    def change(self, event: Event) -> Iterator[Event]:
        """Move it."""
        yield {**event, "index": event["index"] + 1} if event["type"] == "content_block_delta" else event


class IndexesFromOne(MessageEvents):
    """Counts blocks from one."""

    def change(self, event: Event) -> Iterator[Event]:
        """Count from one."""
        yield {**event, "index": event["index"] + 1} if "index" in event else event


class TextInAToolsBlock(MessageEvents):
    """Sends the input of a tool as pieces of text."""

    def change(self, event: Event) -> Iterator[Event]:
        """Change their kind."""
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            event = {**event, "delta": {"type": "text_delta", "text": event["delta"]["partial_json"]}}
        yield event


class NoReasonInStreams(MessageEvents):
    """Ends a stream without a stop reason."""

    def change(self, event: Event) -> Iterator[Event]:
        """Take it away."""
        if event["type"] == "message_delta":
            event = {**event, "delta": {"stop_reason": None, "stop_sequence": None}}
        yield event


class NoUsageInStreams(MessageEvents):
    """Counts nothing in streams."""

    def change(self, event: Event) -> Iterator[Event]:
        """Leave it out."""
        yield {key: value for key, value in event.items() if key != "usage"}


class NoInputInStreams(MessageEvents):
    """Counts the output of a stream and never its input."""

    def change(self, event: Event) -> Iterator[Event]:
        """Leave the input out."""
        if event["type"] == "message_start":
            event = {**event, "message": {**event["message"], "usage": {"output_tokens": 0}}}
        if event["type"] == "message_delta":
            event = {**event, "usage": {"output_tokens": event["usage"]["output_tokens"]}}
        yield event


class InputWithoutItsEnd(MessageEvents):
    """Loses the closing brace of every tool's input."""

    def change(self, event: Event) -> Iterator[Event]:
        """Lose it."""
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            piece = event["delta"]["partial_json"].replace("}", "")
            event = {**event, "delta": {"type": "input_json_delta", "partial_json": piece}}
        yield event


class NoEventLines(eventfaults.NoEventLines):
    """Sends events without a line that names them, which Anthropic's client passes over."""


class StreamCountsMore(ReferenceServer):
    """Renders the prompt of a streamed message with a line more."""

    def message_chat_body(self, body: Event) -> Event:
        """Add it."""
        made = super().message_chat_body(body)
        if body.get("stream"):
            made["messages"] = [{"role": "system", "content": "You are helpful."}, *made["messages"]]
        return made


class FailsInStreams(ReferenceServer):
    """Fails inside on every streamed message."""

    def letter(self, body: Event) -> Letter:
        """Fail."""
        if body.get("stream"):
            raise ApiError("'AsyncGenerator' object is not iterable", status=500, kind="api_error")
        return super().letter(body)


class NoInputPieces(MessageEvents):
    """Starts a tool's block with an empty input and sends no pieces of it, as a converter that waits for text does."""

    def change(self, event: Event) -> Iterator[Event]:
        """Drop them."""
        if event["type"] != "content_block_delta" or event["delta"].get("type") != "input_json_delta":
            yield event


# --------------------------------------------------------------------------- odd, but right


class PingsEverywhere(MessageEvents):
    """Sends a ping before every event, the first too."""

    def change(self, event: Event) -> Iterator[Event]:
        """Send it."""
        yield {"type": "ping"}
        yield event


class OutputAloneAtTheEnd(MessageEvents):
    """Counts the input at the start and only the output at the end, as Anthropic does."""

    def change(self, event: Event) -> Iterator[Event]:
        """Leave the input out."""
        if event["type"] == "message_delta":
            event = {**event, "usage": {"output_tokens": event["usage"]["output_tokens"]}}
        yield event


class SignedThoughts(MessageEvents):
    """Signs a thought before it closes its block, and sends events that nobody has heard of."""

    kind = ""

    def change(self, event: Event) -> Iterator[Event]:
        """Sign it."""
        if event["type"] == "content_block_start":
            self.kind = event["content_block"]["type"]
        if event["type"] == "content_block_stop" and self.kind == "thinking":
            yield {**event, "type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "c2ln"}}
        yield event
        yield {"type": "own_progress", "percent": 5} if event["type"] != "message_stop" else {"type": "ping"}


class StartWithoutUsage(MessageEvents):
    """Begins a message without a usage, which the SDK goes on to fill in."""

    def change(self, event: Event) -> Iterator[Event]:
        """Drop it."""
        if event["type"] == "message_start":
            event = {**event, "message": {**event["message"], "usage": None}}
        yield event


class BlockWithoutText(MessageEvents):
    """Begins a block of text without a text, to which the SDK goes on to add."""

    def change(self, event: Event) -> Iterator[Event]:
        """Drop it."""
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "text":
            event = {**event, "content_block": {"type": "text"}}
        yield event


class EndsTurnBehindTools(MessageEvents):
    """Ends the turn behind a tool's block, so that an agent does not run the tool."""

    def change(self, event: Event) -> Iterator[Event]:
        """Change the reason."""
        if event["type"] == "message_delta" and event["delta"].get("stop_reason") == "tool_use":
            event = {**event, "delta": {**event["delta"], "stop_reason": "end_turn"}}
        yield event


class ThoughtInText(MessageEvents):
    """Sends the text as thoughts inside a block of text, which clients refuse."""

    def change(self, event: Event) -> Iterator[Event]:
        """Rename the deltas."""
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
            event = {**event, "delta": {"type": "thinking_delta", "thinking": event["delta"]["text"]}}
        yield event


class StartsTwice(MessageEvents):
    """Begins every message twice."""

    def change(self, event: Event) -> Iterator[Event]:
        """Repeat the start."""
        yield event
        if event["type"] == "message_start":
            yield event


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_STREAMED, _CUT, _LOST = "message-is-streamed", "cut-stream-says-max-tokens", "streamed-message-lacks-no-piece"
_WHOLE, _BEGINS, _ENDS = (
    "message-stream-is-not-cut",
    "message-stream-begins-with-start",
    "message-stream-ends-with-stop",
)
_BEGUN = "what-begins-has-its-fields"
_ORDER, _REASON = "blocks-open-grow-and-close", "one-stop-reason-per-message"
_USAGE, _JSON, _LINES = "streamed-message-has-usage", "tool-input-joins-to-json", "message-event-lines-name-the-type"

MUTANTS = (
    Mutant(id="no-messages", server=NoMessages, trips=((_STREAMED, _R),)),
    Mutant(id="fails-in-streams", server=FailsInStreams, trips=((_STREAMED, _V),), source="sgl-project/sglang#25876"),
    Mutant(id="stream-ignored", server=StreamIgnored, trips=((_STREAMED, _N),), source="ray-project/ray#58366"),
    Mutant(id="error-on-the-way", server=ErrorOnTheWay, trips=((_STREAMED, _V),), source="vllm-project/vllm#43031"),
    Mutant(id="start-without-usage", server=StartWithoutUsage, trips=((_BEGUN, _V),), source="BerriAI/litellm#24176"),
    Mutant(id="block-without-text", server=BlockWithoutText, trips=((_BEGUN, _V),)),
    Mutant(
        id="ends-turn-behind-tools", server=EndsTurnBehindTools, trips=((_REASON, _V),), source="maximhq/bifrost#3638"
    ),
    Mutant(id="thought-in-text", server=ThoughtInText, trips=((_ORDER, _V),), source="BerriAI/litellm#33224"),
    Mutant(id="starts-twice", server=StartsTwice, trips=((_BEGINS, _V),), source="BerriAI/litellm#32357"),
    Mutant(id="no-start", server=NoStart, trips=((_BEGINS, _V),)),
    Mutant(id="start-without-id", server=StartWithoutId, trips=((_BEGINS, _V),)),
    Mutant(id="no-stop", server=NoStop, trips=((_ENDS, _V),), source="triton-inference-server/triton_distributed#68"),
    Mutant(id="delta-behind-the-stop", server=DeltaBehindTheStop, trips=((_ENDS, _V),)),
    Mutant(id="pieces-of-no-block", server=PiecesOfNoBlock, trips=((_ORDER, _V),)),
    Mutant(id="blocks-never-stop", server=BlocksNeverStop, trips=((_ORDER, _V),)),
    Mutant(
        id="pieces-at-another-index",
        server=PiecesAtAnotherIndex,
        trips=((_ORDER, _V),),
        source="sgl-project/sglang#25876",
    ),
    Mutant(id="indexes-from-one", server=IndexesFromOne, trips=((_ORDER, _V),)),
    Mutant(
        id="text-in-a-tools-block", server=TextInAToolsBlock, trips=((_ORDER, _V),), source="sgl-project/sglang#25876"
    ),
    Mutant(id="no-reason-in-streams", server=NoReasonInStreams, trips=((_REASON, _V), (_CUT, _V))),
    Mutant(id="tool-says-end-turn", server=basic.ToolSaysEndTurn, trips=((_REASON, _V),)),
    Mutant(id="no-usage-in-streams", server=NoUsageInStreams, trips=((_USAGE, _V),), source="sgl-project/sglang#25876"),
    Mutant(id="no-input-in-streams", server=NoInputInStreams, trips=((_USAGE, _V),), source="sgl-project/sglang#25876"),
    Mutant(id="input-without-its-end", server=InputWithoutItsEnd, trips=((_JSON, _V),)),
    Mutant(id="no-event-lines", server=NoEventLines, trips=((_LINES, _V),)),
    Mutant(id="more-after-done", server=MoreAfterDone, trips=((_WHOLE, _V),)),
    Mutant(id="cut-says-end-turn", server=basic.CutSaysEndTurn, trips=((_CUT, _V),)),
    Mutant(id="limit-ignored", server=basic.LimitIgnored, trips=((_CUT, _N),)),
    Mutant(id="loses-a-piece", server=LosesAPiece, trips=((_LOST, _V),)),
    Mutant(id="stream-counts-more", server=StreamCountsMore, trips=((_LOST, _V),)),
    Mutant(
        id="no-input-pieces",
        server=NoInputPieces,
        trips=(("tool-input-joins-to-json", _V),),
        source="BerriAI/litellm#29491",
    ),
)

HARMLESS = (
    Harmless(id="pings-everywhere", server=PingsEverywhere),
    Harmless(id="marked-at-the-end", server=MarkedAtTheEnd),
    Harmless(id="output-alone-at-the-end", server=OutputAloneAtTheEnd, source="sgl-project/sglang#25876"),
    Harmless(id="signed-thoughts", server=SignedThoughts),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
