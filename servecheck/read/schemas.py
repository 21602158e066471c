"""JSON Schemas that people bring: can we judge by one, what an answer breaks, and JSON that breaks as much as it can.

Nothing is fetched: a schema that refers outside itself is refused here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import jsonschema
from jsonschema.validators import validator_for
from referencing.exceptions import Unresolvable

from servecheck.model import Json
from servecheck.read.instance import is_readable, validator
from servecheck.read.text import parse

__all__ = [
    "Fault",
    "Path",
    "breach",
    "breaking",
    "broken_keyword",
    "broken_keywords",
    "fault_in_schema",
    "keywords",
    "named_keywords",
    "parts",
    "suspects",
    "unreadable_patterns",
    "untried",
    "without_keyword",
]

Path: TypeAlias = tuple["str | int", ...]

_ONE = frozenset(
    {
        "items", "additionalItems", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
        "unevaluatedItems", "unevaluatedProperties", "contentSchema",
    }
)  # fmt: skip
_MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_SUSPECTS = (
    "uniqueItems", "contains", "minContains", "maxContains", "patternProperties", "propertyNames", "multipleOf", "not",
    "if", "dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "minProperties",
    "maxProperties", "format", "pattern", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "oneOf", "allOf", "prefixItems", "const", "default", "$schema", "$id",
)  # fmt: skip
"""What servers refuse, the most often refused first; ``if`` takes ``then`` and ``else`` with it."""
_RULES = frozenset({*_SUSPECTS, "enum"}) - {"default", "$schema", "$id", "oneOf", "allOf", "prefixItems"}
"""What a valid answer may keep to by chance."""
_SPEAKING = re.compile(r"[a-z]+[A-Z]|\$")  # a keyword that is no English word, so naming it needs no quotation marks
_ROOM, _LEVELS, _COPIES = 1200, 6, 8
_SHOWN = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What makes a schema one that we cannot judge by, and where in it."""

    at: Path
    message: str


def fault_in_schema(schema: Json) -> Fault | None:
    """Return why nobody can be judged by this schema; ``None`` where one can."""
    if not isinstance(schema, dict):
        return Fault(at=(), message="a JSON Schema is an object")
    if not isinstance(schema.get("$schema", ""), str):
        return Fault(at=("$schema",), message="$schema is the URL of a draft")
    try:
        _kind(schema).check_schema(schema, format_checker=None)  # patterns that only Python does not read are fine
    except jsonschema.SchemaError as error:
        return Fault(at=tuple(error.absolute_path), message=f"not a JSON Schema: {_cut(error.message)}")
    except (RecursionError, re.error) as error:
        return Fault(at=(), message=f"not a JSON Schema that can be read: {error}")
    anchors = {str(part[key]) for _, part in parts(schema) for key in ("$anchor", "$dynamicAnchor") if key in part}
    for path, part in parts(schema):
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            target = part.get(key)
            if isinstance(target, str) and (why := _unresolved(schema, target, anchors)):
                return Fault(at=(*path, key), message=f"{key} {target!r} {why}")
    return None


def _unresolved(schema: Json, target: str, anchors: set[str]) -> str:
    if not target.startswith("#"):
        return "refers outside this schema, and nothing is fetched; put what it means into $defs"
    name = target[1:]
    if name and not name.startswith("/"):
        return "" if name in anchors else "names an anchor that is not here"
    return "" if _pointed(schema, target) is not _NOWHERE else "leads nowhere"


_NOWHERE: Any = object()


def _pointed(schema: Json, target: str) -> Any:  # noqa: ANN401 - JSON, or the mark of nowhere
    here: Any = schema
    for raw in target[1:].split("/")[1:]:
        step = raw.replace("~1", "/").replace("~0", "~").replace("%24", "$").replace("%25", "%")
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, list) and step.isascii() and step.isdigit() and int(step) < len(here):
            here = here[int(step)]
        else:
            return _NOWHERE
    return here


def _kind(schema: dict[str, Json]) -> Any:  # noqa: ANN401 - a class of validators
    return validator_for(schema, default=jsonschema.Draft202012Validator)


def parts(schema: Any, at: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:  # noqa: ANN401 - JSON
    """Yield every subschema that is an object, with its path; values of ``enum`` and the like are none."""
    if not isinstance(schema, dict):
        return
    yield at, schema
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            for name, inner in value.items():
                yield from parts(inner, (*at, key, name))
        elif key in _MANY and isinstance(value, list):
            for place, inner in enumerate(value):
                yield from parts(inner, (*at, key, place))
        elif key in _ONE:
            yield from parts(value, (*at, key))


# --------------------------------------------------------------------------- answers


def breach(text: str, schema: dict[str, Json]) -> str:
    """Return the first way in which a text is not an instance, with its place; an empty string where it is one."""
    return _breach(text, schema)[0]


def broken_keyword(text: str, schema: dict[str, Json]) -> str:
    """Return the keyword that :func:`breach` is about; empty where there is none, or the text is not JSON."""
    return _breach(text, schema)[1]


def _breach(text: str, schema: dict[str, Json]) -> tuple[str, str]:
    try:
        instance = parse(text)
    except ValueError as error:
        return f"not JSON: {error}", ""
    found = next(_errors(instance, schema), None)
    return (_said(found), str(found.validator)) if found is not None else ("", "")


def _errors(instance: Json, schema: dict[str, Json]) -> Iterator[Any]:
    try:
        yield from validator(schema, _kind(schema)).iter_errors(instance)
    except (Unresolvable, RecursionError, TimeoutError, re.error):
        return  # what leads to itself without end says nothing about an instance, nor does a pattern without an end


def _said(error: Any) -> str:  # noqa: ANN401 - a ValidationError
    where = "/".join(str(step) for step in error.absolute_path)
    return (f"at {_cut(where, 60)}: " if where else "") + _cut(error.message)


def unreadable_patterns(schema: dict[str, Json]) -> list[str]:
    """Return the patterns that cannot be read here: an answer is not held against them."""
    return [pattern for _, part in parts(schema) for pattern in _patterns(part) if not is_readable(pattern)]


def _patterns(part: dict[str, Any]) -> Iterator[str]:
    own, named = part.get("pattern"), part.get("patternProperties")
    if isinstance(own, str):
        yield own
    if isinstance(named, dict):
        yield from named


def _changed(schema: Any, change: Any) -> Any:  # noqa: ANN401 - JSON, and a function of one subschema
    """Return a schema with every subschema that is an object changed, the outer ones first."""
    if not isinstance(schema, dict):
        return schema
    made = dict(change(schema))
    for key, value in made.items():
        if key in _NAMED and isinstance(value, dict):
            made[key] = {name: _changed(inner, change) for name, inner in value.items()}
        elif key in _MANY and isinstance(value, list):
            made[key] = [_changed(inner, change) for inner in value]
        elif key in _ONE:
            made[key] = _changed(value, change)
    return made


# --------------------------------------------------------------------------- keywords


def keywords(schema: dict[str, Json]) -> frozenset[str]:
    """Return the keywords that a schema uses, wherever; names of properties are none."""
    return frozenset(key for _, part in parts(schema) for key in part)


def named_keywords(message: str, schema: dict[str, Json]) -> list[str]:
    """Return the schema's keywords that a server's message names; those that are English words only in quotes."""
    return [
        key
        for key in sorted(keywords(schema))
        if (_SPEAKING.search(key) and re.search(rf"(?<![\w$]){re.escape(key)}(?!\w)", message))
        or re.search(rf"['\"`“]{re.escape(key)}['\"`”]", message)
    ]


def untried(schema: dict[str, Json], broken: Collection[str]) -> list[str]:
    """Return the keywords of a schema that are rules and that none of ``broken`` puts to the test."""
    return sorted((keywords(schema) & _RULES) - set(broken))


def suspects(schema: dict[str, Json]) -> list[str]:
    """Return the keywords of a schema that a server may have refused it for, the likeliest first."""
    used = keywords(schema)
    return [key for key in _SUSPECTS if key in used]


def without_keyword(schema: dict[str, Json], keyword: str) -> dict[str, Json]:
    """Return a schema with one keyword taken out everywhere."""
    gone = {keyword, *(("then", "else") if keyword == "if" else ())}
    made: dict[str, Json] = _changed(
        schema, lambda part: {key: value for key, value in part.items() if key not in gone}
    )
    return made


# --------------------------------------------------------------------------- JSON that breaks a schema


def breaking(schema: dict[str, Json]) -> Json:
    """Return JSON of the schema's shape that breaks what it can of it; ``None`` where there is none that is short.

    It is for a prompt that asks for exactly this: who enforces the schema cannot give it.
    """
    try:
        made = _wrong(schema, schema, 0)
        text = json.dumps(made, ensure_ascii=False)
    except (RecursionError, ValueError):
        return None
    if not isinstance(made, dict | list) or len(text) > _ROOM or not broken_keywords(made, schema):
        return None
    return made


def broken_keywords(instance: Json, schema: dict[str, Json]) -> list[str]:
    """Return the keywords that an instance breaks, in the order of their names."""
    found: set[str] = set()
    for error in _errors(instance, schema):
        inner = [each.validator for each in error.context or ()]
        found.update(str(key) for key in (error.validator, *inner))
    return sorted(found)


def _wrong(schema: Any, root: Json, depth: int) -> Json:  # noqa: ANN401 - JSON
    schema = _meant(schema, root)
    if not isinstance(schema, dict) or depth > _LEVELS:
        return "anything"
    if "const" in schema or "enum" in schema:
        return "none of these"
    kind = schema.get("type")
    kind = next((one for one in kind if one != "null"), "null") if isinstance(kind, list) else kind
    if kind == "object" or (kind is None and "properties" in schema):
        return _wrong_object(schema, root, depth)
    if kind == "array" or (kind is None and ("items" in schema or "prefixItems" in schema)):
        return _wrong_array(schema, root, depth)
    if kind in ("integer", "number"):
        return _wrong_number(schema, whole=kind == "integer")
    if kind == "boolean":
        return "perhaps"
    if kind == "null":
        return "nothing"
    return _wrong_string(schema)


def _meant(schema: Any, root: Json) -> Any:  # noqa: ANN401 - JSON
    """Follow references and take the first of alternatives."""
    for _ in range(_LEVELS):
        if not isinstance(schema, dict):
            return schema
        target = schema.get("$ref")
        if isinstance(target, str) and target.startswith(("#/", "#")):
            found = _pointed(root, target)
            schema = {} if found is _NOWHERE else found
            continue
        choices: list[Any] = next(
            (value for key in ("anyOf", "oneOf", "allOf") if isinstance(value := schema.get(key), list)), []
        )
        if not choices or "type" in schema or "properties" in schema:
            return schema
        schema = next((one for one in choices if isinstance(one, dict) and one.get("type") != "null"), {})
    return schema


def _wrong_object(schema: dict[str, Any], root: Json, depth: int) -> Json:
    properties = schema.get("properties")
    named = properties if isinstance(properties, dict) else {}
    made = {name: _wrong(inner, root, depth + 1) for name, inner in list(named.items())[:12]}
    if schema.get("additionalProperties") is False:
        made["unasked"] = "a key that nobody asked for"
    return made


def _wrong_array(schema: dict[str, Any], root: Json, depth: int) -> Json:
    items = schema.get("items")
    first: Any = schema.get("prefixItems") or (items if isinstance(items, list) else None)
    least, most = (_count(schema.get(key)) for key in ("minItems", "maxItems"))
    if first:
        return [_wrong(first[0], root, depth + 1)]
    # One item again and again breaks uniqueItems; what stands in a list that is about its length is left right.
    item = _wrong(items, root, depth + 1) if isinstance(items, dict) else "again"
    if schema.get("uniqueItems") is True:
        return [_plain(items, root, depth + 1)] * min(max(2, least or 0), _COPIES)
    if most is not None and most + 1 <= _COPIES:
        return [item] * (most + 1)
    if least:
        return [item] * min(least - 1, _COPIES)
    return [item]


def _plain(schema: Any, root: Json, depth: int) -> Json:  # noqa: ANN401 - JSON
    """Return something that an item may be, so that only its repetition is wrong."""
    schema = _meant(schema, root)
    if isinstance(schema, dict):
        enum = schema.get("enum")
        if isinstance(enum, list) and enum:
            first: Json = enum[0]
            return first
        if "const" in schema:
            constant: Json = schema["const"]
            return constant
        if schema.get("type") in ("integer", "number"):
            return _count(schema.get("minimum")) or 1
        if schema.get("type") in ("object", "array"):
            return _wrong(schema, root, depth)
    return "again"


def _wrong_number(schema: dict[str, Any], *, whole: bool) -> Json:
    for key, step in (("minimum", -1), ("exclusiveMinimum", -1), ("maximum", 1), ("exclusiveMaximum", 1)):
        bound = schema.get(key)
        if isinstance(bound, int | float) and not isinstance(bound, bool):
            return bound + step
    multiple = schema.get("multipleOf")
    if isinstance(multiple, int) and multiple > 1:
        return multiple + 1
    return 7.5 if whole else "a number"


def _wrong_string(schema: dict[str, Any]) -> Json:
    most, least = _count(schema.get("maxLength")), _count(schema.get("minLength"))
    if "pattern" in schema or "format" in schema:
        return "not like that"
    if most is not None and most < 60:
        return "x" * (most + 1)
    if least:
        return ""
    return "a text"


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _cut(text: str, limit: int = _SHOWN) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"
