"""What the rows about requests side by side share: bodies of a known length, and what was under way together."""

from __future__ import annotations

from collections.abc import Sequence

from servecheck.model import Exchange, Json
from servecheck.probe import Session
from servecheck.read import reply

__all__ = ["at_once", "completion_tokens", "open_ended", "tokens_per_second"]


def at_once(batch: Sequence[Exchange]) -> int:
    """Return how many exchanges were under way at the same time, at most."""
    edges = [(one.sent, 1) for one in batch] + [(one.sent + one.ended_at, -1) for one in batch]
    most = now = 0
    for _, step in sorted(edges):
        now += step
        most = max(most, now)
    return most


async def open_ended(session: Session, step: str, messages: Json, tokens: int) -> dict[str, Json] | None:
    """Send a request that runs to its limit, and return the fields that make it so; ``None`` where it is refused.

    Where ``ignore_eos`` is refused it is left away: an answer may then end before its limit.
    """
    fields: dict[str, Json] = {"temperature": 0, "ignore_eos": True}
    first = await session.chat(step, {**fields, "messages": messages, "max_tokens": tokens})
    if isinstance(reply.chat(first), reply.Refusal):
        del fields["ignore_eos"]
        first = await session.chat(step, {**fields, "messages": messages, "max_tokens": tokens})
    return fields if isinstance(reply.chat(first), reply.Answer) else None


def completion_tokens(exchange: Exchange | None) -> int:
    """Return the tokens that usage counts for an answer; in a stream without usage its events, 0 where it is none."""
    answer = reply.chat(exchange) if exchange is not None else None
    if not isinstance(answer, reply.Answer):
        return 0
    if answer.usage is not None and answer.usage.completion is not None:
        return answer.usage.completion
    return answer.first.pieces if answer.stream is not None else 0


def tokens_per_second(exchange: Exchange | None) -> float:
    """Return how fast an answer came, its prompt's time included, 0 where that is not known."""
    made = completion_tokens(exchange)
    return made / exchange.ended_at if exchange is not None and exchange.ended_at > 0 else 0.0
