"""Where two greedy texts part, and which tokens were near-tied there, from a reply with logprobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from servecheck.model import Json
from servecheck.read import reply
from servecheck.read.text import dig, string
from servecheck.stats import NEAR_TIE

__all__ = ["Fork", "first_difference", "fork_after"]

_FEW = 8


def first_difference(left: str, right: str) -> int:
    """Return the place of the first character that differs; the shorter length where one begins the other."""
    pairs = zip(left, right, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))


class Fork(NamedTuple):
    """A place in a text where a token was chosen.

    ``gap`` is the distance in nat of the two best tokens, ``None`` where it is not given; ``near`` are the bytes of
    those within a near-tie of the best, empty for a token that ends the text; ``start`` counts the bytes before it.
    """

    gap: float | None
    near: tuple[bytes, ...]
    start: int

    def explains(self, text: str) -> bool:
        """Tell whether a text goes on here with one of the near-tied tokens, or ends here.

        Some engines drop the space before the first word of a text.
        """
        rest = text.encode("utf-8", "replace")[self.start :]
        forms = {form for token in self.near for form in (token, token.removeprefix(b" ")) if form}
        return not rest or any(rest.startswith(form) or form.startswith(rest) for form in forms)


def fork_after(gaps: reply.Reply | None, thought: str, common: str) -> Fork | None:
    """Return the token chosen after ``thought`` (all of the reasoning) and ``common``; ``None`` where nothing tells.

    Tokens may include reasoning with its tags, and only their bytes add up to characters, so the place is found by
    the last bytes before it. A server that answers this request with another text has no say about the first one.
    """
    if not isinstance(gaps, reply.Answer):
        return None
    pieces = [_bytes(entry) for entry in gaps.first.logprobs]
    known = common.encode("utf-8", "replace")
    tail = known[-32:]
    if thought and len(tail) < _FEW:
        return None  # so few bytes may be anything, the tag that ends the reasoning too
    found = b"".join(pieces).find(tail, len(thought.encode("utf-8", "replace")) + len(known) - len(tail))
    if found < 0:
        return None
    at, length = found + len(tail), 0
    for piece, entry in zip(pieces, gaps.first.logprobs, strict=True):
        # A token without bytes ends a text; it stands where the text does.
        if length + len(piece) > at or (not piece and length == at):
            top = dig(entry, "top_logprobs")
            ranked = sorted(_ranked(top if isinstance(top, list) else []), reverse=True)
            gap = ranked[0][0] - ranked[1][0] if len(ranked) > 1 else None
            near = tuple(token for value, token in ranked if ranked[0][0] - value <= NEAR_TIE)
            return Fork(gap, near, max(0, len(known) - (at - length)))
        length += len(piece)
    return None


def _ranked(top: list[Json]) -> Iterator[tuple[float, bytes]]:
    for item in top:
        value = dig(item, "logprob")
        if isinstance(value, int | float):
            yield float(value), _bytes(item)


def _bytes(entry: Json) -> bytes:
    """Return a token's bytes: as given, else those of its text."""
    given = dig(entry, "bytes")
    if isinstance(given, list) and all(isinstance(value, int) and 0 <= value < 256 for value in given):
        return bytes(value for value in given if isinstance(value, int))
    return string(dig(entry, "token")).encode("utf-8", "replace")
