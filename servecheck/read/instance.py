"""Why a JSON value is not an instance of a schema (draft 2020-12), for judges: no schema makes it raise."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
from jsonschema import validators
from referencing.exceptions import Unresolvable

from servecheck.model import Json

__all__ = ["fault"]

# JSON Schema's patterns are ECMAScript's. Python has no property escapes, and its ``$`` lets a line break follow.
_LETTER = re.compile(r"\\p\{(?:L|Letter|Alphabetic|Alpha)\}")
_DIGIT = re.compile(r"\\p\{(?:N|Nd|Number|Digit|digit|Decimal_Number)\}")
_OTHER = re.compile(r"\\[pP]\{\w+(?:=\w+)?\}")
_END = re.compile(r"(?<!\\)\$(?=[)|]|$)")


def fault(value: Json, schema: Json) -> str:
    """Return why ``value`` does not fit ``schema``, an empty string where it does.

    A schema that cannot be followed (a reference that leads nowhere, a pattern that Python cannot read) speaks against
    no value. What is no schema at all allows everything.
    """
    if schema is False:
        return "nothing fits the schema “false”"
    if not isinstance(schema, dict):
        return ""
    try:
        first = next(iter(_Validator(schema).iter_errors(value)), None)
    except (Unresolvable, RecursionError, re.error, TypeError, AttributeError, ValueError):
        return ""
    return str(first.message) if first is not None else ""


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """Return an ECMAScript pattern as Python's; ``None`` where it cannot be read."""
    text = _LETTER.sub(r"[^\\W\\d_]", _DIGIT.sub(r"\\d", _END.sub(r"\\Z", pattern)))
    if _OTHER.search(text):
        return None
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return None


def _pattern(_: Any, pattern: Any, instance: Any, __: Any) -> Iterator[jsonschema.ValidationError]:  # noqa: ANN401
    if not isinstance(instance, str) or not isinstance(pattern, str):
        return
    found = _compiled(pattern)
    if found is not None and not found.search(instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any,  # noqa: ANN401
    patterns: Any,  # noqa: ANN401
    instance: Any,  # noqa: ANN401
    _: Any,  # noqa: ANN401
) -> Iterator[jsonschema.ValidationError]:
    if not isinstance(instance, dict) or not isinstance(patterns, dict):
        return
    for pattern, inner in patterns.items():
        found = _compiled(pattern)
        for name, value in instance.items():
            if found is not None and found.search(name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


_extend: Any = validators.extend  # has no types
_Validator: Any = _extend(
    jsonschema.Draft202012Validator, {"pattern": _pattern, "patternProperties": _pattern_properties}
)
