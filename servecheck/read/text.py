"""Small readers of untrusted values: a path into JSON, a quotation short enough for a sentence, signs of garbage."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter

from servecheck.model import Json

__all__ = ["dig", "garbage", "number", "parse", "quote", "seconds", "string"]

_MIN_GARBAGE = 8  # shorter texts are too short to call anything
_MANY_DIGITS = 24  # numbers have runs of zeros; no answer is one digit so many times over
_MANY_SCRIPTS = 3
_MANY_MARKS = 3
_MARKED = re.compile(r"[\u0120\u2581](?=\w)")
"""What stands for a space in the vocabularies of byte-level and SentencePiece tokenizers, before a word."""
_EXACT = 2.0**53  # up to here every whole number is a double
_MAX_DIGITS = 300  # what a double can hold: beyond it no division and no sum of a probe is safe
_ONE_SCRIPT = dict.fromkeys(
    ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "KATAKANA-HIRAGANA", "FULLWIDTH", "HALFWIDTH", "IDEOGRAPHIC"),
    "East Asian",
) | dict.fromkeys(("MICRO", "MASCULINE", "FEMININE", "MODIFIER", "SUPERSCRIPT", "SUBSCRIPT", "GREEK", "OHM"), "")
"""Writing systems that one text mixes by right, and letters that stand for a quantity."""


def parse(data: bytes | str) -> Json:
    """Return the JSON value in ``data``; everything that is not strict JSON raises ``ValueError``.

    ``NaN`` and ``Infinity`` are not JSON although Python reads them; UTF-16 is not either, and nesting too deep to
    read and whole numbers of more than 300 digits are refused too. A byte order mark is let through, as clients do
    (RFC 8259, section 8.1).
    """
    if isinstance(data, bytes):
        data = data.decode("utf-8-sig")
    try:
        value: Json = json.loads(data, parse_constant=_reject_constant, parse_int=_bounded)
    except RecursionError:
        raise ValueError("nested too deeply to read") from None
    return value


def _bounded(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _reject_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def dig(value: Json, *path: str | int) -> Json:
    """Return what lies at ``path``, or ``None`` where any step is missing or of another type."""
    for step in path:
        if isinstance(step, str):
            if not isinstance(value, dict):
                return None
            value = value.get(step)
        else:
            if not isinstance(value, list) or not -len(value) <= step < len(value):
                return None
            value = value[step]
    return value


def string(value: Json) -> str:
    """Return ``value`` where it is text, else an empty string."""
    return value if isinstance(value, str) else ""


def number(value: Json) -> int | None:
    """Return ``value`` where it is a whole number and not a truth value, else ``None``.

    JSON has one kind of number: ``12.0`` is whole too, as proxies write it that know no other kind.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def quote(text: str | bytes, limit: int = 80) -> str:
    """Return ``text`` in quotation marks on one line, cut to ``limit`` characters, control characters made visible."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    flat = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return f"“{flat}”" if len(flat) <= limit else f"“{flat[: limit - 1]}…”"


def seconds(value: float) -> str:
    """Return a time as a reader would say it: ``300 s``, ``0.3 s``."""
    return f"{value:.0f} s" if value >= 10 else f"{round(value, 1):g} s"


def garbage(text: str) -> str:
    """Return what makes ``text`` look like a broken decoder's output, or an empty string.

    Catches runs of one character (``!!!!!!``; of a digit long ones only), replacement characters, text without
    letters, letters of three scripts mixed, which is what a broken cache or a wrong scale makes of any model, and
    words with their tokenizer's sign for a space where most spaces ought to be. It says nothing about sense: a small
    model's nonsense in words passes. Not for answers that were asked to mix scripts, nor for long ones.
    """
    packed = "".join(text.split())
    if len(packed) < _MIN_GARBAGE:
        return ""
    if packed.count("\ufffd") * 4 > len(packed):
        return f"{packed.count(chr(0xFFFD))} of {len(packed)} characters are U+FFFD"
    character, count = Counter(packed).most_common(1)[0]
    if count * 10 >= len(packed) * 9 and not (character.isdigit() and count < _MANY_DIGITS):
        return f"{count} of {len(packed)} characters are {character!r}"
    if not any(character.isalnum() for character in packed):
        return f"none of {len(packed)} characters is a letter or a digit"
    marks = len(_MARKED.findall(text))
    if marks >= _MANY_MARKS and marks > text.count(" "):
        return f"{marks} words have their tokenizer's sign for a space before them, and {text.count(' ')} a space"
    scripts = {script for character in packed if (script := _script(character))}
    if len(scripts) >= _MANY_SCRIPTS:
        return f"letters of {len(scripts)} scripts in one short answer: {', '.join(sorted(scripts))}"
    return ""


def _script(character: str) -> str:
    """Return the writing system of a letter, an empty string for anything else."""
    if not character.isalpha() or ord(character) < 128:
        return "Latin" if character.isalpha() else ""
    name = unicodedata.name(character, "").split(" ")[0]
    return _ONE_SCRIPT.get(name, name.capitalize())
