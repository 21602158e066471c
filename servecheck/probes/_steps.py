"""Reads one step of a transcript, and makes filler text of a known number of words; for probes that count tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from servecheck.model import Exchange, Json, Transcript
from servecheck.read import messages, reply, responses

__all__ = ["answer_at", "filler", "made_of", "reply_at", "sent"]

_Made = TypeVar("_Made")

_WORDS = (
    *("river", "stone", "cloud", "garden", "window", "table", "letter", "silver", "morning", "paper", "market"),
    *("bridge", "winter", "forest", "candle", "music", "harbour", "button", "island", "mirror", "pencil", "summer"),
)


def filler(words: int, start: int = 0) -> str:
    """Return so many common words, one space apart, beginning at another word where ``start`` says so."""
    return " ".join(_WORDS[(start + place) % len(_WORDS)] for place in range(words))


def reply_at(transcript: Transcript, step: str) -> reply.Reply | None:
    """Return the reply of a step, read as its route is; ``None`` where the step was never sent."""
    exchange = transcript.get(step)
    if exchange is None:
        return None
    if exchange.url.endswith("/responses"):
        return responses.response(exchange)
    if exchange.url.endswith("/messages"):
        return messages.message(exchange)
    return reply.completion(exchange) if _is_completion(exchange) else reply.chat(exchange)


def answer_at(transcript: Transcript, step: str) -> reply.Answer | None:
    """Return the answer of a step, ``None`` where there is none."""
    found = reply_at(transcript, step)
    return found if isinstance(found, reply.Answer) else None


def made_of(
    transcript: Transcript, step: str, make: Callable[[Exchange, Json], _Made]
) -> _Made | reply.Refusal | reply.Failure | None:
    """Return what ``make`` makes of the JSON that a step's reply is; ``None`` where the step was never sent."""
    exchange = transcript.get(step)
    if exchange is None:
        return None
    body = reply.json_body(exchange)
    return body if isinstance(body, reply.Refusal | reply.Failure) else make(exchange, body)


def sent(*replies: reply.Reply | None) -> tuple[reply.Reply, ...]:
    """Return the replies that there are, as evidence."""
    return tuple(found for found in replies if found is not None)


def _is_completion(exchange: Exchange) -> bool:
    return exchange.url.endswith("/completions") and not exchange.url.endswith("/chat/completions")
