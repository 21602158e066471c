"""Where two greedy texts part, and how close the two best tokens were there, from a reply with logprobs."""

from __future__ import annotations

from servecheck.read import reply
from servecheck.read.text import dig, string

__all__ = ["first_difference", "gap_after"]

_TAIL = 24  # characters that find a place in a text; reasoning with its tags may stand before it


def first_difference(left: str, right: str) -> int:
    """Return the place of the first character that differs; the shorter length where one begins the other."""
    pairs = zip(left, right, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))


def gap_after(gaps: reply.Reply | None, common: str) -> float | None:
    """Return the distance in nat of the two best tokens after ``common``, ``None`` where no logprobs tell.

    Tokens may include reasoning with its tags, so the place is found by the last characters before it. A server that
    answers this request with another text has no say about the first one.
    """
    if not isinstance(gaps, reply.Answer):
        return None
    tokens = [string(dig(entry, "token")) for entry in gaps.first.logprobs]
    tail = common[-_TAIL:]
    found = "".join(tokens).find(tail)
    if found < 0:
        return None
    at, length = found + len(tail), 0
    for token, entry in zip(tokens, gaps.first.logprobs, strict=True):
        length += len(token)
        if length > at:
            top = dig(entry, "top_logprobs")
            values = [dig(item, "logprob") for item in top] if isinstance(top, list) else []
            numbers = sorted((value for value in values if isinstance(value, int | float)), reverse=True)
            return float(numbers[0] - numbers[1]) if len(numbers) > 1 else None
    return None
