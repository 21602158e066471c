"""What in a JSON Schema is most likely a slip: a keyword that is none, and a key that is wanted and forbidden.

Such a schema is valid, so no validator objects: an unknown keyword is an annotation, and nothing has to have instances.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from servecheck.errors import nearest
from servecheck.model import Json
from servecheck.plainwords import Complaint, Key, slip
from servecheck.read.instance import may_match
from servecheck.read.schemas import fault_in_schema, parts

__all__ = ["KEYWORDS", "impossible", "misspelt", "slips", "wrong_with"]

KEYWORDS = frozenset(
    {
        "$anchor", "$comment", "$defs", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef",
        "$ref", "$schema", "$vocabulary", "additionalItems", "additionalProperties", "allOf", "anyOf", "const",
        "contains", "contentEncoding", "contentMediaType", "contentSchema", "default", "definitions", "dependencies",
        "dependentRequired", "dependentSchemas", "deprecated", "description", "else", "enum", "examples",
        "exclusiveMaximum", "exclusiveMinimum", "format", "if", "items", "maxContains", "maxItems", "maxLength",
        "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf",
        "not", "oneOf", "pattern", "patternProperties", "prefixItems", "properties", "propertyNames", "readOnly",
        "required", "then", "title", "type", "unevaluatedItems", "unevaluatedProperties", "uniqueItems", "writeOnly",
    }
)  # fmt: skip
"""The keywords of JSON Schema, of the drafts from 4 to 2020-12."""

_MEANT = frozenset({"comment", "cost", "example", "id", "nullable"})
"""What resembles a keyword and is written on purpose: OpenAPI's, draft 4's, and what people note."""

_HYPOTHETICAL = frozenset({"not", "if"})
"""What stands below these need not be possible."""


def wrong_with(schema: Json, at: Key = ()) -> Iterator[Complaint]:
    """Yield why nobody can be judged by a schema, and what in it is likely not meant; ``at`` is where it stands."""
    fault = fault_in_schema(schema)
    if fault is not None:
        yield Complaint(at=(*at, *fault.at), message=fault.message)
    yield from slips(schema, at)


def slips(schema: Json, at: Key = ()) -> Iterator[Complaint]:
    """Yield what is most likely not meant in a schema, wherever in it; ``at`` is where it stands."""
    for each in (*misspelt(schema), *impossible(schema)):
        yield replace(each, at=(*at, *each.at))


def misspelt(schema: Json) -> Iterator[Complaint]:
    """Yield the keys that are nearly a keyword; what resembles none is an annotation, and nobody's business."""
    for at, part in parts(schema):
        for name in part:
            if name in KEYWORDS or name in _MEANT:
                continue
            meant = slip(name, sorted(KEYWORDS - part.keys()))
            if meant:
                yield Complaint(
                    at=(*at, name),
                    message=f"unknown JSON Schema keyword {name!r}, which nobody would enforce",
                    on_key=True,
                    suggestion=f"did you mean {meant!r}?",
                )


def impossible(schema: Json) -> Iterator[Complaint]:
    """Yield the names that an object must have and cannot have."""
    for at, part in parts(schema):
        if _HYPOTHETICAL & set(at):
            continue
        wanted, kind = part.get("required"), part.get("type", "object")
        if not isinstance(wanted, list) or not (kind == "object" or (isinstance(kind, list) and "object" in kind)):
            continue
        known = part.get("properties")
        properties = known if isinstance(known, dict) else {}
        for place, name in enumerate(wanted):
            if isinstance(name, str) and (why := _forbidden(name, part, properties)):
                near = nearest(name, properties.keys() - set(map(str, wanted))) or nearest(name, properties)
                yield Complaint(
                    at=(*at, "required", place),
                    message=f"{'nothing' if part.get('type') == 'object' else 'no object'} can fit: "
                    f"{name!r} is required, and {why}",
                    suggestion=f"did you mean {near!r}?" if near and near != name else "",
                )


def _forbidden(name: str, part: Mapping[str, Any], properties: Mapping[str, Any]) -> str:
    if name in properties:
        return "its schema is false" if properties[name] is False else ""
    if part.get("additionalProperties") is not False:
        return ""
    patterns = part.get("patternProperties")
    if isinstance(patterns, dict) and any(may_match(pattern, name) for pattern in patterns):
        return ""
    return "additionalProperties: false leaves no room for it"
