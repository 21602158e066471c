"""Logprobs of an answer: its tokens, how far apart the best two were, and how much of a greedy text is sure."""

from __future__ import annotations

from dataclasses import dataclass

from servecheck.model import Json
from servecheck.read.reply import Answer
from servecheck.read.text import dig, number, string
from servecheck.stats import NEAR_TIE

__all__ = ["MASKED", "Token", "sure_text", "tokens"]

MASKED = -9999.0
"""What vLLM writes for minus infinity; a masked token, not a probability."""


_TAIL = 24  # characters before a place that are enough to find it again


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One generated token as the server reports it. ``top`` are (text, logprob in nat), best first; ``id`` is rare."""

    text: str
    logprob: float | None
    top: tuple[tuple[str, float], ...] = ()
    id: int | None = None

    @property
    def gap(self) -> float | None:
        """The distance in nat of the two best tokens, ``None`` where fewer than two are reported."""
        return self.top[0][1] - self.top[1][1] if len(self.top) > 1 else None


def tokens(answer: Answer) -> tuple[Token, ...]:
    """Return the tokens of the first choice, of a chat or a completion; empty where there are no logprobs."""
    found: list[Token] = []
    for entry in answer.first.logprobs:
        if not isinstance(entry, dict):
            continue
        content = entry.get("content")  # llama.cpp answers completions in the shape of a chat
        if isinstance(content, list):
            found += [_token(each) for each in content if isinstance(each, dict)]
        elif isinstance(entry.get("tokens"), list):
            found += _arrays(entry)
        elif "token" in entry:
            found.append(_token(entry))
    return tuple(found)


def sure_text(greedy: Answer) -> str:
    """Return how far any right server must follow a greedy answer: its text up to the first near-tie.

    All of the text where no token is a near-tie, and where the server reports no logprobs. Tokens that clients do not
    see (tags around reasoning, the end token) are found by the text before them.
    """
    said = greedy.first.reasoning + greedy.text
    before: list[str] = []
    for token in tokens(greedy):
        if token.gap is not None and token.gap <= NEAR_TIE:
            tail = "".join(before)[-_TAIL:]
            found = said.find(tail)
            return said[: found + len(tail)] if found >= 0 else ""
        before.append(token.text)
    return said


def _token(entry: Json) -> Token:
    listed = dig(entry, "top_logprobs")
    top = [
        (string(dig(item, "token")), float(value))
        for item in (listed if isinstance(listed, list) else [])
        if isinstance(value := dig(item, "logprob"), int | float) and value > MASKED
    ]
    logprob = dig(entry, "logprob")
    return Token(
        text=string(dig(entry, "token")),
        logprob=float(logprob) if isinstance(logprob, int | float) and not isinstance(logprob, bool) else None,
        top=tuple(sorted(top, key=_value, reverse=True)),
        id=number(dig(entry, "id")),
    )


def _arrays(logprobs: Json) -> list[Token]:
    """Read the older arrays of the completions route: tokens, token_logprobs, top_logprobs by text."""
    made: list[Token] = []
    names = dig(logprobs, "tokens")
    for place, name in enumerate(names if isinstance(names, list) else []):
        listed = dig(logprobs, "top_logprobs", place)
        top = [
            (text, float(value))
            for text, value in (listed.items() if isinstance(listed, dict) else ())
            if isinstance(value, int | float) and value > MASKED
        ]
        own = dig(logprobs, "token_logprobs", place)
        logprob = float(own) if isinstance(own, int | float) and not isinstance(own, bool) else None
        made.append(Token(text=string(name), logprob=logprob, top=tuple(sorted(top, key=_value, reverse=True))))
    return made


def _value(item: tuple[str, float]) -> float:
    return item[1]
