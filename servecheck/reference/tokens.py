"""A small lossless tokenizer and chat template; tokens are byte strings, so a character may span several."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from servecheck.reference.words import NAMES, WORDS

__all__ = [
    "CALL_CLOSE",
    "CALL_OPEN",
    "END_OF_TEXT",
    "IM_END",
    "IM_START",
    "SPECIAL",
    "SPECIAL_FROM",
    "THINK_CLOSE",
    "THINK_OPEN",
    "VOCABULARY",
    "WORD_TOKENS",
    "decode",
    "encode",
    "piece",
    "render_chat",
    "shown",
    "styled",
]

_TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def _ordinary() -> list[bytes]:
    spelled = [form for word in WORDS for form in (word, word[0].upper() + word[1:])]
    forms = dict.fromkeys(form.encode() for word in (*spelled, *NAMES) for form in (word, " " + word))
    singles = [bytes([value]) for value in range(256)]
    return [*singles, *(form for form in forms if len(form) > 1), *(tag.encode() for tag in _TAGS)]


_BYTES = _ordinary()
_IDS = {token: number for number, token in enumerate(_BYTES)}
_LONGEST = max(map(len, _BYTES))

SPECIAL_FROM = len(_BYTES)
"""The first id of a special token; special tokens are never made from text."""
SPECIAL = {SPECIAL_FROM + number: name for number, name in enumerate(_SPECIAL)}
END_OF_TEXT, IM_START, IM_END = SPECIAL
VOCABULARY = SPECIAL_FROM + len(SPECIAL)
"""How many token ids there are."""
THINK_OPEN, THINK_CLOSE, CALL_OPEN, CALL_CLOSE = (_IDS[tag.encode()] for tag in _TAGS)


def _style(token: bytes) -> tuple[bool, bool]:
    return token.startswith(b" "), token.strip()[:1].isupper()


WORD_TOKENS: Mapping[tuple[bool, bool], tuple[int, ...]] = {
    (spaced, upper): tuple(
        number
        for number in range(256, SPECIAL_FROM - len(_TAGS) - 2 * len(NAMES))
        if _style(_BYTES[number]) == (spaced, upper) and len(_BYTES[number]) > 2
    )
    for spaced in (True, False)
    for upper in (True, False)
}
"""Whole words by style: (with a leading space, with a capital)."""


def styled(token: int) -> tuple[int, ...]:
    """Return the words that look like this token: words with a leading space where it is not a word itself."""
    if 256 <= token < SPECIAL_FROM - len(_TAGS):
        return WORD_TOKENS[_style(_BYTES[token])]
    return WORD_TOKENS[True, False]


def piece(token: int) -> bytes:
    """Return the bytes that a token adds to a text; special tokens add none."""
    return _BYTES[token] if token < SPECIAL_FROM else b""


def shown(token: int) -> str:
    """Return a token as logprobs show it: special tokens by name, part of a character as U+FFFD."""
    return SPECIAL[token] if token in SPECIAL else _BYTES[token].decode("utf-8", "replace")


@lru_cache(maxsize=4096)
def encode(text: str) -> tuple[int, ...]:
    """Return the token ids of a text, longest token first; ``decode`` gives the text back exactly."""
    data = text.encode("utf-8", "surrogatepass")
    ids: list[int] = []
    at = 0
    while at < len(data):
        for size in range(min(_LONGEST, len(data) - at), 0, -1):
            number = _IDS.get(data[at : at + size])
            if number is not None:
                ids.append(number)
                at += size
                break
    return tuple(ids)


def decode(ids: Iterable[int], *, special: bool = False) -> str:
    """Return the text of token ids; ``special`` shows special tokens by name instead of leaving them out."""
    parts = (SPECIAL[token].encode() if special and token in SPECIAL else piece(token) for token in ids)
    return b"".join(parts).decode("utf-8", "replace")


def render_chat(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    answer: bool = True,
    thinking: bool = True,
) -> tuple[int, ...]:
    """Return the prompt of a conversation: ``<|im_start|>role\\ntext<|im_end|>\\n`` for each message.

    Tools are listed first, so that a growing conversation keeps its prefix. ``answer`` opens the assistant's turn;
    without ``thinking`` that turn begins with an empty thought. Message contents are strings or ``None``.
    """
    ids: list[int] = []
    if tools:
        listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        ids += [IM_START, *encode("system\n"), *encode(f"<tools>\n{listed}\n</tools>"), IM_END, *encode("\n")]
    for message in messages:
        ids += [IM_START, *encode(f"{message['role']}\n")]
        ids += encode(message.get("content") or "")
        for call in message.get("tool_calls") or ():
            function = call["function"]
            said = f'{{"name": {json.dumps(function["name"])}, "arguments": {function["arguments"]}}}'
            ids += [CALL_OPEN, *encode("\n" + said + "\n"), CALL_CLOSE]
        ids += [IM_END, *encode("\n")]
    if answer:
        ids += [IM_START, *encode("assistant\n")]
        if not thinking:
            ids += [THINK_OPEN, *encode("\n\n"), THINK_CLOSE, *encode("\n\n")]
    return tuple(ids)
