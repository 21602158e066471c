"""Streams whose events say their own type, as those of the responses and messages routes do; nothing is repaired."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from servecheck.model import Exchange, Json
from servecheck.read import sse
from servecheck.read.text import dig, parse, quote, string

__all__ = ["TypedEvent", "TypedStream", "typed"]


class TypedEvent(NamedTuple):
    """One JSON event: when it came, the name on its ``event:`` line, its ``type``, and what it holds."""

    at: float
    line: str
    type: str
    body: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedStream:
    """All JSON events of one reply but ``[DONE]``, which is legal at the end of such streams and legally missing.

    ``not_json`` says in words what was no JSON; ``after_done`` counts events behind the marker; ``tail`` is an event
    that never ended.
    """

    exchange: Exchange
    events: tuple[TypedEvent, ...]
    not_json: str = ""
    after_done: int = 0
    tail: bytes = b""

    def of(self, kind: str) -> tuple[TypedEvent, ...]:
        """Return the events of one type."""
        return tuple(event for event in self.events if event.type == kind)


def typed(exchange: Exchange) -> TypedStream:
    """Read a stream's events."""
    stream = sse.events(exchange.chunks)
    events: list[TypedEvent] = []
    not_json, done, after = "", False, 0
    for place, event in enumerate(stream.events):
        if event.data.strip() == sse.DONE:
            done = True
            continue
        if not event.data:
            continue
        after += done
        try:
            body = parse(event.data)
        except ValueError as error:
            not_json = not_json or f"event {place + 1} is not JSON ({error}): {quote(event.data, 60)}"
            continue
        events.append(TypedEvent(event.at, event.name, string(dig(body, "type")), body))
    return TypedStream(exchange=exchange, events=tuple(events), not_json=not_json, after_done=after, tail=stream.tail)
