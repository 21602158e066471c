"""Marks of chat and call formats that are written out in a text, where a parser ought to have taken them away.

It knows the marks of the families that engines have parsers for; a text that quotes one on purpose looks the same.
"""

from __future__ import annotations

import re

__all__ = ["call_mark", "end_mark", "special_token", "turn_head"]

_SPECIAL = re.compile(r"<[|｜][^<>|｜]{1,40}[|｜]>")
_TURN = re.compile(r"</?s>|<[be]os>|<(?:start|end)_of_turn>|<\|?turn\|?>|<pad>|\[/?INST\]|<\|?channel\|?>")
_CALL = re.compile(
    r"</?(?:tool_calls?|tool_response|function_calls?|toolcall|arg_key|arg_value)>"
    r"|<\|?/?tool_(?:call|response)\|?>|<\|?tool_call\b"
    r"|</?(?:function|parameter|invoke)(?:=[^<>\s]{1,80}|\s+name=\"[^\"<>]{1,80}\"[^<>]{0,40})?>"
    r"|</?(?:tool_calls?|function_calls?|function|parameter|invoke)\Z"  # the beginning of a mark that was cut off
    r"|\[/?(?:TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|ARGS|CALL_ID)\]|<\|\"\|>|</?[|｜]DSML[|｜]\w*",
    re.IGNORECASE,
)


def special_token(text: str) -> str:
    """Return the first special token of the shape ``<|…|>`` in a text, an empty string where there is none."""
    found = _SPECIAL.search(text)
    return found[0] if found else ""


def end_mark(text: str) -> str:
    """Return the first mark by which formats begin or end turns, an empty string where there is none."""
    found = _TURN.search(text)
    return found[0] if found else special_token(text)


def turn_head(text: str) -> str:
    """Return the head of an assistant's turn with which a text begins once its special tokens are taken away.

    A template that ends before the head makes the model write it; it is a line of its own, which an answer that begins
    with the word is not.
    """
    found = re.match(r"\s*(assistant|model)[ \t]*\n", text)
    return found[1] if found else ""


def call_mark(text: str) -> str:
    """Return the first mark by which formats write calls, an empty string where there is none."""
    found = _CALL.search(text)
    return found[0] if found else end_mark(text)
