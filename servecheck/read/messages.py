"""A reply of ``/v1/messages``, whole or as events, in the words that all replies share; says nothing of order.

Shapes: https://docs.anthropic.com/en/api/messages and …/messages-streaming.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from servecheck.model import Ending, Exchange, Json
from servecheck.read import sse
from servecheck.read.reply import (
    Answer,
    Choice,
    Failure,
    Reply,
    ToolCall,
    Usage,
    error_event,
    error_reply,
    is_stream,
    not_answered,
    parsed,
)
from servecheck.read.text import dig, number, quote, string
from servecheck.read.typed import TypedEvent, typed

__all__ = ["FINISH", "blocks_of", "message", "stop_reason", "stop_sequence", "usage_in"]

FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
"""Stop reasons in the chat route's words; others stay as they are."""


def message(exchange: Exchange) -> Reply:
    """Read a message, streamed or not, by what the server sent rather than by what was asked.

    The answer has one choice: its text, reasoning (thinking) and calls (``tool_use``, input written as JSON). ``usage``
    counts what came from the cache or went there as prompt, since ``input_tokens`` leaves it out. ``body`` is the
    message; in a stream it is the one that it began with, with the last stop reason and usage.
    """
    problem = not_answered(exchange)
    if problem:
        return problem
    if is_stream(exchange):
        return _streamed(exchange)
    body = parsed(exchange, exchange.body)
    if isinstance(body, Failure):
        return body
    error = error_event(body)
    if error is not None and dig(body, "content") is None:
        return error_reply(exchange, error, "200 with an error body")
    if not isinstance(dig(body, "content"), list):
        return Failure(exchange=exchange, what=f"no list of content blocks in {quote(exchange.body)}")
    return _answer(exchange, body, list(blocks_of(body)))


def usage_in(body: Json) -> Usage | None:
    """Read the usage of a message, ``None`` where there is none; there is no total."""
    usage = dig(body, "usage")
    if not isinstance(usage, dict):
        return None
    prompt, cached = number(usage.get("input_tokens")), number(usage.get("cache_read_input_tokens"))
    if prompt is not None:
        prompt += (cached or 0) + (number(usage.get("cache_creation_input_tokens")) or 0)
    return Usage(prompt=prompt, completion=number(usage.get("output_tokens")), total=None, cached=cached)


def blocks_of(body: Json, kind: str | None = None) -> tuple[Json, ...]:
    """Return the content blocks of a message, of one type or all."""
    content = dig(body, "content")
    blocks = content if isinstance(content, list) else []
    return tuple(block for block in blocks if kind is None or dig(block, "type") == kind)


def stop_reason(answer: Answer) -> str:
    """Return why a message ended, empty where nothing is said."""
    return string(dig(answer.body, "stop_reason"))


def stop_sequence(answer: Answer) -> str:
    """Return the stop sequence that ended a message, empty where none did."""
    return string(dig(answer.body, "stop_sequence"))


@dataclass(slots=True)
class _Block:
    """One content block as it grows; ``pieces`` are its deltas."""

    kind: str
    start: Json
    pieces: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return what it began with and what was added."""
        begun = string(dig(self.start, "thinking" if self.kind == "thinking" else "text"))
        return begun + "".join(self.pieces)

    def arguments(self) -> str:
        """Return the input of a call; one without deltas has it in its start."""
        given = dig(self.start, "input")
        return "".join(self.pieces) if any(self.pieces) else _dumped({} if given is None else given)


def _answer(exchange: Exchange, body: Json, blocks: list[Json]) -> Answer:
    made = [_Block(string(dig(block, "type")), block) for block in blocks]
    return _joined(exchange, body, made)


def _joined(exchange: Exchange, body: Json, blocks: list[_Block], stream: sse.Events | None = None) -> Answer:
    reason = string(dig(body, "stop_reason"))
    texts = [block for block in blocks if block.kind == "text"]
    choice = Choice(
        index=0,
        role=string(dig(body, "role")) or None,
        text="".join(block.text() for block in texts),
        reasoning="".join(block.text() for block in blocks if block.kind == "thinking"),
        tool_calls=tuple(_calls(blocks)),
        finish=FINISH.get(reason, reason) or None,
        pieces=sum(len(block.pieces) for block in texts) if stream is not None else 1,
    )
    return Answer(exchange=exchange, choices=(choice,), usage=usage_in(body), body=body, stream=stream)


def _calls(blocks: list[_Block]) -> Iterator[ToolCall]:
    for place, block in enumerate(block for block in blocks if block.kind == "tool_use"):
        identifier = string(dig(block.start, "id")) or None
        yield ToolCall(
            index=place,
            id=identifier,
            name=string(dig(block.start, "name")) or None,
            arguments=block.arguments(),
            pieces=len(block.pieces),
            ids=(identifier,) if identifier else (),
            kind="function",
        )


def _dumped(value: Json) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:  # what could just be read may still be nested too deeply to be written
        return ""


def _streamed(exchange: Exchange) -> Reply:
    read = typed(exchange)
    if read.not_json:
        return Failure(exchange=exchange, what=read.not_json)
    body: dict[str, Json] | None = None
    blocks: dict[int, _Block] = {}
    for event in read.events:
        error = error_event(event.body)
        if event.type == "error" or error is not None:
            return error_reply(exchange, event.body if error is None else error, "error event in a stream")
        begun = dig(event.body, "message")
        if event.type == "message_start" and isinstance(begun, dict):
            body = dict(begun)
        elif event.type == "message_delta":
            body = _ended({} if body is None else body, event.body)
        else:
            _take(blocks, event)
    if body is None and not blocks and exchange.ending is not Ending.ABORTED:
        return Failure(exchange=exchange, what=f"stream of {len(read.events)} events without a message")
    return _joined(exchange, body, [blocks[index] for index in sorted(blocks)], sse.events(exchange.chunks))


def _ended(body: dict[str, Json], event: Json) -> dict[str, Json]:
    """Return the message with what a ``message_delta`` says; its usage counts all so far, and may leave input out."""
    delta, more = dig(event, "delta"), dig(event, "usage")
    begun = body.get("usage")
    usage = {**(begun if isinstance(begun, dict) else {}), **(more if isinstance(more, dict) else {})}
    return {**body, **(delta if isinstance(delta, dict) else {}), "usage": usage or None}


def _take(blocks: dict[int, _Block], event: TypedEvent) -> None:
    index = number(dig(event.body, "index")) or 0
    if event.type == "content_block_start":
        start = dig(event.body, "content_block")
        blocks.setdefault(index, _Block(string(dig(start, "type")), start))
    elif event.type == "content_block_delta":
        delta = dig(event.body, "delta")
        piece = next((text for key in ("text", "partial_json", "thinking") if (text := string(dig(delta, key)))), "")
        kind = _KINDS.get(string(dig(delta, "type")), "")
        if kind or index in blocks:
            blocks.setdefault(index, _Block(kind, None)).pieces.append(piece)


_KINDS = {"text_delta": "text", "input_json_delta": "tool_use", "thinking_delta": "thinking"}
