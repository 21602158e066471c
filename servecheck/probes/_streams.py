"""A stream's JSON events for judges: when each came, and whether it says something; what is no JSON is left out."""

from __future__ import annotations

from typing import NamedTuple

from servecheck.model import Exchange, Json
from servecheck.read import sse
from servecheck.read.text import dig, parse, string

__all__ = ["Body", "bodies", "says"]

_SPOKEN = ("content", "reasoning", "reasoning_content")


class Body(NamedTuple):
    """One JSON event: seconds since the request was sent, and what it holds."""

    at: float
    json: Json


def bodies(exchange: Exchange) -> tuple[Body, ...]:
    """Return the JSON events before the end marker, in order."""
    found = []
    for event in sse.events(exchange.chunks).events:
        if event.data.strip() == sse.DONE:
            break
        try:
            found.append(Body(event.at, parse(event.data)))
        except ValueError:
            continue
    return tuple(found)


def says(body: Json) -> bool:
    """Tell whether an event carries text or reasoning of any choice, on the chat or the completions route."""
    choices = dig(body, "choices")
    return isinstance(choices, list) and any(
        bool(string(dig(choice, "text"))) or any(string(dig(choice, "delta", key)) for key in _SPOKEN)
        for choice in choices
    )
