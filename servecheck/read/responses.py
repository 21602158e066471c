"""A reply of ``/v1/responses``, whole or as events, in the words that all replies share; says nothing of order.

Shapes: https://platform.openai.com/docs/api-reference/responses/object and, for events, …/responses-streaming.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from servecheck.model import Ending, Exchange, Json
from servecheck.read import sse
from servecheck.read.reply import (
    Answer,
    Choice,
    Failure,
    Refusal,
    Reply,
    ToolCall,
    Usage,
    error_event,
    error_reply,
    is_stream,
    message_of,
    not_answered,
    parsed,
)
from servecheck.read.text import dig, number, quote, string
from servecheck.read.typed import TypedEvent, typed

__all__ = ["ENDS", "incomplete_because", "items_of", "part_texts", "response", "status_of", "usage_in"]

ENDS = ("response.completed", "response.incomplete", "response.failed")
"""The events that end a stream; each carries the whole response."""

_FINISH = {"max_output_tokens": "length", "max_tokens": "length", "content_filter": "content_filter"}
_NO_CALL = ToolCall(index=0, id=None, name=None, arguments="")


def response(exchange: Exchange) -> Reply:
    """Read a response, streamed or not, by what the server sent rather than by what was asked.

    The answer has one choice. Its text, reasoning and calls are those of the output items, in a stream those of the
    deltas; ``finish`` is said in the chat route's words; ``body`` is the response object, in a stream the last one.
    """
    problem = not_answered(exchange)
    if problem:
        return problem
    if is_stream(exchange):
        return _streamed(exchange)
    body = parsed(exchange, exchange.body)
    if isinstance(body, Failure):
        return body
    return _failed(exchange, body) or _whole(exchange, body)


def usage_in(body: Json) -> Usage | None:
    """Read the usage of a response object, ``None`` where there is none."""
    usage = dig(body, "usage")
    if not isinstance(usage, dict):
        return None
    return Usage(
        prompt=number(usage.get("input_tokens")),
        completion=number(usage.get("output_tokens")),
        total=number(usage.get("total_tokens")),
        cached=number(dig(usage, "input_tokens_details", "cached_tokens")),
        reasoning=number(dig(usage, "output_tokens_details", "reasoning_tokens")),
    )


def items_of(body: Json, kind: str | None = None) -> tuple[Json, ...]:
    """Return the output items of a response object, of one type or all."""
    output = dig(body, "output")
    items = output if isinstance(output, list) else []
    return tuple(item for item in items if kind is None or dig(item, "type") == kind)


def part_texts(item: Json, kind: str = "output_text") -> list[str]:
    """Return the texts of an item's content parts of one type."""
    content = dig(item, "content")
    parts = content if isinstance(content, list) else []
    return [string(dig(part, "text")) for part in parts if dig(part, "type") == kind]


def status_of(answer: Answer) -> str:
    """Return the status of a response, empty where it has none."""
    return string(dig(answer.body, "status"))


def incomplete_because(answer: Answer) -> str:
    """Return why a response is incomplete, empty where nothing is said."""
    return string(dig(answer.body, "incomplete_details", "reason"))


def _failed(exchange: Exchange, body: Json) -> Failure | Refusal | None:
    error = error_event(body)
    if error is not None and dig(body, "output") is None:
        return error_reply(exchange, error, "200 with an error body")
    if dig(body, "status") == "failed":
        return Failure(exchange=exchange, what=f"status failed: {quote(message_of(body))}")
    return None


def _whole(exchange: Exchange, body: Json) -> Reply:
    if not isinstance(dig(body, "output"), list):
        return Failure(exchange=exchange, what=f"no list of output items in {quote(exchange.body)}")
    text = "".join("".join(part_texts(item)) for item in items_of(body, "message"))
    calls = tuple(
        _call(place, item, string(dig(item, "arguments"))) for place, item in enumerate(items_of(body, "function_call"))
    )
    reasoning = "".join(_thoughts(items_of(body, "reasoning")))
    return _answer(exchange, body, text=text, reasoning=reasoning, calls=calls, role=_role(items_of(body, "message")))


def _thoughts(items: Iterable[Json]) -> Iterator[str]:
    for item in items:
        yield from part_texts(item, "reasoning_text")
        summary = dig(item, "summary")
        yield from (string(dig(part, "text")) for part in (summary if isinstance(summary, list) else []))


def _role(items: Iterable[Json]) -> str | None:
    return next((role for item in items if (role := string(dig(item, "role")))), None)


def _call(place: int, item: Json, arguments: str, pieces: int = 1) -> ToolCall:
    identifier = string(dig(item, "call_id")) or None
    return ToolCall(
        index=place,
        id=identifier,
        name=string(dig(item, "name")) or None,
        arguments=arguments,
        pieces=pieces,
        ids=(identifier,) if identifier else (),
        kind="function",
    )


def _answer(
    exchange: Exchange,
    body: Json,
    *,
    text: str,
    reasoning: str,
    calls: tuple[ToolCall, ...],
    role: str | None,
    pieces: int = 1,
    stream: sse.Events | None = None,
) -> Answer:
    choice = Choice(
        index=0,
        role=role,
        text=text,
        reasoning=reasoning,
        tool_calls=calls,
        finish=_finish(body, bool(calls)),
        pieces=pieces,
    )
    return Answer(exchange=exchange, choices=(choice,), usage=usage_in(body), body=body, stream=stream)


def _finish(body: Json, called: bool) -> str | None:
    status = string(dig(body, "status"))
    if status == "completed":
        return "tool_calls" if called else "stop"
    if status == "incomplete":
        return _FINISH.get(string(dig(body, "incomplete_details", "reason")), "length")
    return status or None


@dataclass(slots=True)
class _Gathered:
    """What the events of a stream add up to; calls are kept by the place of their item."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    called: dict[str, Json] = field(default_factory=dict)
    pieces: dict[str, list[str]] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)
    role: str | None = None

    def take(self, event: TypedEvent) -> None:
        """Take in the next event."""
        delta = string(dig(event.body, "delta"))
        if event.type == "response.output_text.delta":
            self.text.append(delta)
        elif event.type in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
            self.reasoning.append(delta)
        elif event.type in ("response.output_item.added", "response.output_item.done"):
            self._item(event)
        elif event.type == "response.function_call_arguments.delta":
            self.pieces.setdefault(_place(event.body), []).append(delta)
        elif event.type == "response.function_call_arguments.done":
            self.whole[_place(event.body)] = string(dig(event.body, "arguments"))

    def _item(self, event: TypedEvent) -> None:
        item = dig(event.body, "item")
        if dig(item, "type") == "function_call":
            self.called.setdefault(_place(event.body), item)
            if arguments := string(dig(item, "arguments")):
                self.whole[_place(event.body)] = arguments
        self.role = self.role or string(dig(item, "role")) or None

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls; arguments that came in no delta are those of the item."""
        made = []
        for count, (place, item) in enumerate(self.called.items()):
            pieces = self.pieces.get(place, [])
            arguments = "".join(pieces) if pieces else self.whole.get(place, "")
            made.append(_call(count, item, arguments, len(pieces)))
        return tuple(made)


def _place(body: Json) -> str:
    """Return what tells the item of an event from others: its index, or its id where a server gives no index."""
    index = number(dig(body, "output_index"))
    return str(index) if index is not None else string(dig(body, "item_id")) or string(dig(body, "item", "id"))


def _streamed(exchange: Exchange) -> Reply:
    read = typed(exchange)
    if read.not_json:
        return Failure(exchange=exchange, what=read.not_json)
    gathered, last = _Gathered(), None
    for event in read.events:
        if event.type == "error" or (not event.type and error_event(event.body) is not None):
            error = error_event(event.body)
            return error_reply(exchange, event.body if error is None else error, "error event in a stream")
        if event.type.startswith("response.") and isinstance(dig(event.body, "response"), dict):
            last = dig(event.body, "response")
        if event.type == "response.failed":
            return Failure(exchange=exchange, what=f"response.failed in a stream: {quote(message_of(last))}")
        gathered.take(event)
    if last is None and not gathered.text and not gathered.called and exchange.ending is not Ending.ABORTED:
        return Failure(exchange=exchange, what=f"stream of {len(read.events)} events without a response")
    return _answer(
        exchange,
        last,
        text="".join(gathered.text),
        reasoning="".join(gathered.reasoning),
        calls=gathered.calls(),
        role=gathered.role,
        pieces=len(gathered.text),
        stream=sse.events(exchange.chunks),
    )
