"""JSON Schema as the one language of a user's own checks: what is wrong with a schema, and with a value under it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import jsonschema
import referencing
from jsonschema.exceptions import best_match
from referencing.exceptions import Unresolvable

from servecheck.model import Json
from servecheck.plainwords import Complaint, Key, suggest
from servecheck.read.instance import is_readable, validator
from servecheck.read.slips import impossible
from servecheck.read.text import quote

__all__ = ["Fault", "fault_of", "objections"]

_ONE = frozenset(
    {"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedItems"}
    | {"unevaluatedProperties"}
)
_MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"$defs", "dependentSchemas", "patternProperties", "properties"})
_PLAIN = frozenset(
    {"$comment", "$ref", "const", "default", "dependentRequired", "deprecated", "description", "enum", "examples"}
    | {"exclusiveMaximum", "exclusiveMinimum", "format", "maxContains", "maxItems", "maxLength", "maxProperties"}
    | {"maximum", "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "pattern"}
    | {"readOnly", "required", "title", "type", "uniqueItems", "writeOnly"}
)
_KEYWORDS = sorted(_ONE | _MANY | _NAMED | _PLAIN)
_SAYS_NOTHING = frozenset({"$comment", "$defs", "default", "deprecated", "description", "examples", "title"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a value is no instance: where in it, by which keyword, and in words."""

    at: tuple[str | int, ...]
    keyword: str
    message: str


def fault_of(value: Json, schema: Json) -> Fault | None:
    """Return the fault that says most about why ``value`` is not an instance of ``schema``, ``None`` where it is one.

    Nothing is fetched: a reference that leaves the schema is a fault of the schema, and reported as one. A pattern that
    takes longer than :data:`servecheck.read.instance.PATTERN_SECONDS` raises ``TimeoutError``.
    """
    checked = schema if isinstance(schema, dict) else {}
    held = validator(checked, jsonschema.Draft202012Validator, registry=referencing.Registry())
    try:
        error = best_match(held.iter_errors(value))
    except Unresolvable as missing:
        return Fault(at=(), keyword="$ref", message=f"the schema refers to nothing: {quote(str(missing))}")
    except RecursionError:
        return Fault(at=(), keyword="", message="nested too deeply to be checked")
    if error is None:
        return None
    return Fault(at=tuple(error.absolute_path), keyword=str(error.validator), message=_words(error))


def _words(error: jsonschema.ValidationError | jsonschema.SchemaError) -> str:
    """Return the message with a value that is long cut out of its middle: libraries quote it whole."""
    count = len(error.instance) if isinstance(error.instance, list | dict | str) else 0
    if error.validator == "contains":
        return f"none of {count} items is what is looked for"
    if error.validator == "required" and isinstance(error.instance, dict):
        wanted = error.validator_value if isinstance(error.validator_value, list) else []
        missing = ", ".join(repr(name) for name in wanted if name not in error.instance)
        return f"{missing} is missing"
    shown = repr(error.instance)
    message = error.message
    if len(shown) > _SHOWN and shown in message:
        message = message.replace(shown, shown[: _SHOWN - 1] + "…")
    return message if len(message) <= 3 * _SHOWN else message[: 3 * _SHOWN - 1] + "…"


_SHOWN = 60


# --------------------------------------------------------------------------- the schema itself

_Part: TypeAlias = "tuple[Key, Json]"


def objections(schema: Json, at: Key) -> Iterator[Complaint]:
    """Yield what is wrong with a schema that a person wrote; ``at`` is where it stands."""
    if not isinstance(schema, dict):
        return
    if schema.keys() <= _SAYS_NOTHING:
        yield Complaint(at=at, message="this schema accepts everything, so the check could never fail")
        return
    unknown = list(_unknown_keywords(schema, at))
    yield from unknown
    try:
        # No formats: whether a pattern can be read is for our own reader to say, that of the library is Python's.
        draft: Any = jsonschema.Draft202012Validator
        draft.check_schema(schema, format_checker=None)
    except jsonschema.SchemaError as wrong:
        if not unknown:
            yield Complaint(at=at + tuple(wrong.absolute_path), message=f"no JSON Schema: {_words(wrong)}")
        return
    yield from _unreadable(schema, at)
    for each in impossible(schema):
        yield replace(each, at=(*at, *each.at))
    for place, part in _schemas(schema, at):
        reference = part.get("$ref") if isinstance(part, dict) else None
        if isinstance(reference, str) and not _resolves(schema, reference):
            hint = "definitions stand under $defs of the same schema, as #/$defs/name"
            yield Complaint(at=(*place, "$ref"), message=f"{reference!r} refers to nothing here", suggestion=hint)


def _unknown_keywords(schema: Json, at: Key) -> Iterator[Complaint]:
    for place, part in _schemas(schema, at):
        for name in part if isinstance(part, dict) else ():
            if name not in _KEYWORDS:
                hint = suggest(name, _KEYWORDS)
                yield Complaint(
                    at=(*place, name),
                    message=f"unknown JSON Schema keyword {name!r}, which would check nothing",
                    on_key=True,
                    suggestion=hint,
                )


def _unreadable(schema: Json, at: Key) -> Iterator[Complaint]:
    for place, part in _schemas(schema, at):
        named = part.get("patternProperties") if isinstance(part, dict) else None
        patterns = [((*place, "patternProperties", each), each) for each in named] if isinstance(named, dict) else []
        if isinstance(part, dict) and isinstance(own := part.get("pattern"), str):
            patterns.append(((*place, "pattern"), own))
        for where, pattern in patterns:
            if not is_readable(pattern):
                yield Complaint(
                    at=where, message=f"{pattern!r} is no pattern that can be read, so it would check nothing"
                )


def _schemas(schema: Json, at: Key) -> Iterator[_Part]:
    """Yield a schema and all that it holds, each with its place; what it only describes (``const``) is no schema."""
    yield at, schema
    if not isinstance(schema, dict):
        return
    for name, value in schema.items():
        yield from _inner(name, value, (*at, name))


def _inner(name: str, value: Json, at: Key) -> Iterable[_Part]:
    if name in _ONE:
        yield from _schemas(value, at)
    elif name in _MANY and isinstance(value, list):
        for place, item in enumerate(value):
            yield from _schemas(item, (*at, place))
    elif name in _NAMED and isinstance(value, dict):
        for key, item in value.items():
            yield from _schemas(item, (*at, key))


def _resolves(schema: Json, reference: str) -> bool:
    if reference == "#":
        return True
    if not reference.startswith("#/"):
        return False
    here = schema
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, list) and name.isdecimal() and int(name) < len(here):
            here = here[int(name)]
        elif isinstance(here, dict) and name in here:
            here = here[name]
        else:
            return False
    return True
