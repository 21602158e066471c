"""JSON Schema as judges use it: patterns are read as ECMAScript's, and none takes longer than a second."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import regex
from jsonschema import validators
from referencing.exceptions import Unresolvable

from servecheck.model import Json

__all__ = ["PATTERN_SECONDS", "fault", "is_readable", "may_match", "validator"]

PATTERN_SECONDS = 1.0
"""How long one pattern may be held against one text; some (``(a|a)*$``) would take longer than a run."""

# The end of a text is its end in ECMAScript; in Python a line break may follow. The names are those that Python lacks.
_END = re.compile(r"(?<!\\)\$(?=[)|]|$)")
_NAMES = re.compile(r"\\p\{(digit|Alpha)\}")
_UNICODE = {"digit": r"\p{Nd}", "Alpha": r"\p{Alphabetic}"}


def fault(value: Json, schema: Json) -> str:
    """Return why ``value`` does not fit ``schema`` (draft 2020-12), an empty string where it does.

    A schema that cannot be followed (a reference that leads nowhere, a pattern that cannot be read or takes longer than
    :data:`PATTERN_SECONDS`) speaks against no value. What is no schema at all allows everything.
    """
    if schema is False:
        return "nothing fits the schema “false”"
    if not isinstance(schema, dict):
        return ""
    try:
        first = next(iter(validator(schema, jsonschema.Draft202012Validator).iter_errors(value)), None)
    except (Unresolvable, RecursionError, TimeoutError, re.error, TypeError, AttributeError, ValueError):
        return ""
    return str(first.message) if first is not None else ""


def validator(schema: Json, draft: Any, **more: Any) -> Any:  # noqa: ANN401 - the library's classes have no types
    """Return a validator of a draft's class from jsonschema, with patterns as they are read here.

    Its ``iter_errors`` raises ``TimeoutError`` where a pattern takes longer than :data:`PATTERN_SECONDS`; a pattern
    that cannot be read speaks against no value. Not so below ``unevaluatedProperties``, which keeps the library's own
    patterns: without a bound, and ``re.error`` where one cannot be read.
    """
    return _extended(draft)(schema, **more)


def is_readable(pattern: str) -> bool:
    """Tell whether a pattern can be read at all."""
    return _compiled(pattern) is not None


def may_match(pattern: str, text: str) -> bool:
    """Tell whether a pattern may be found in a text; one that cannot be read, or not in time, may be found anywhere."""
    try:
        return _is_in(pattern, text) is not False
    except TimeoutError:
        return True


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> regex.Pattern[str] | None:
    try:
        return regex.compile(_NAMES.sub(lambda found: _UNICODE[found[1]], _END.sub(r"\\Z", pattern)))
    except (regex.error, OverflowError, RecursionError, ValueError):
        return None


def _is_in(pattern: str, text: str) -> bool | None:
    found = _compiled(pattern)
    return None if found is None else found.search(text, timeout=PATTERN_SECONDS) is not None


def _pattern(_: Any, pattern: Any, instance: Any, __: Any) -> Iterator[jsonschema.ValidationError]:  # noqa: ANN401
    if isinstance(instance, str) and isinstance(pattern, str) and _is_in(pattern, instance) is False:
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
        for name, value in instance.items():
            if _is_in(pattern, name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional_properties(original: Any) -> Any:  # noqa: ANN401
    """Return the keyword as the draft has it, told which names a pattern means; one that is unreadable may mean any."""

    def keyword(validator: Any, others: Any, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:  # noqa: ANN401
        named, patterns = schema.get("properties") or {}, schema.get("patternProperties") or {}
        if isinstance(instance, dict) and isinstance(named, dict) and patterns:
            meant = {name: True for name in instance if any(_is_in(each, name) is not False for each in patterns)}
            schema = {"properties": {**named, **meant}}
        yield from original(validator, others, instance, schema)

    return keyword


_extend: Any = validators.extend  # has no types


@functools.cache
def _extended(draft: Any) -> Any:  # noqa: ANN401
    return _extend(
        draft,
        {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties(draft.VALIDATORS["additionalProperties"]),
        },
    )
