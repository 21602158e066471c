"""What two probes share about the context limit: where it is known from, and how many words make how many tokens."""

from __future__ import annotations

import re

from servecheck.model import Fingerprint, Json, Transcript
from servecheck.probe import Session
from servecheck.probes._steps import answer_at, reply_at
from servecheck.read import reply

__all__ = ["ASKED", "ask_for_limit", "known_limit", "limit_in", "limit_of", "tells_of_length", "tokens_at"]

ASKED = 100_000_000
"""More output tokens than any server has room for: the refusal names the limit, and costs nothing."""

_NUMBER = re.compile(r"(?<![\w.])\d{3,8}(?![\w.]*\d)")
_SMALLEST, _LARGEST = 256, 20_000_000
_WORDS = ("context", "max_model_len", "maximum", "limit", "length", "n_ctx", "exceed", "window", "longer", "too long")
_NEAR = 48  # characters between a number and a word that makes it a limit


def limit_of(fingerprint: Fingerprint) -> int | None:
    """Return the context limit that the server gives of itself, in tokens."""
    value = fingerprint.value("max_model_len") or ""
    return int(value) if value.isdigit() and _SMALLEST <= int(value) <= _LARGEST else None


async def ask_for_limit(session: Session) -> None:
    """Ask for far too much output, where the server does not give its limit, and hang up on a server that obeys."""
    if limit_of(session.fingerprint) is None:
        messages: Json = [{"role": "user", "content": "Say yes."}]
        body: Json = {"messages": messages, "max_tokens": ASKED, "temperature": 0, "stream": True}
        await session.abort_after("ask", "/chat/completions", body, events=3)


def known_limit(transcript: Transcript, *steps: str) -> int | None:
    """Return the limit: what the server gives of itself, else what the refusal of the question or of a step names."""
    given = limit_of(transcript.fingerprint)
    if given is not None:
        return given
    for step in ("ask", *steps):
        found = reply_at(transcript, step)
        named = limit_in(found.message, (ASKED,)) if isinstance(found, reply.Refusal) else None
        if named is not None:
            return named
    return None


def limit_in(message: str, not_these: tuple[int, ...] = ()) -> int | None:
    """Return the context limit that a refusal names, ``None`` where it names none.

    A refusal also tells how long the prompt was, which is more: of the numbers that stand near a word about limits,
    the smallest is the limit. Numbers that the request itself held do not count.
    """
    found = []
    for match in _NUMBER.finditer(message):
        value = int(match.group())
        around = message[max(0, match.start() - _NEAR) : match.end() + _NEAR].lower()
        if value not in not_these and _SMALLEST <= value <= _LARGEST and any(word in around for word in _WORDS):
            found.append(value)
    return min(found) if found else None


def tells_of_length(*texts: str) -> bool:
    """Tell whether a refusal says that a prompt is too long, in a number or in words."""
    said = " ".join(texts).lower().replace("_", " ")
    return any(word in said for word in (*_WORDS, "token", "too large", "too big"))


def tokens_at(transcript: Transcript, step: str) -> int | None:
    """Return the prompt tokens that the usage of a step reports."""
    answer = answer_at(transcript, step)
    return answer.usage.prompt if answer is not None and answer.usage is not None else None
