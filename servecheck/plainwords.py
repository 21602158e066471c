"""Says what pydantic found in words for someone who writes YAML; it knows no files and no places."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from servecheck.errors import nearest
from servecheck.model import Json

__all__ = ["Complaint", "Key", "alternatives", "complaints", "got", "known_keys", "slip", "suggest"]

Key: TypeAlias = tuple["str | int", ...]
"""Where a value is inside a document: mapping keys and list positions from the root."""

_TYPES: Mapping[str, str] = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "none_required": "nothing",
    "finite_number": "a finite number",
}
_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
    "multiple_of": ("multiple_of", "a multiple of {}"),
    "string_pattern_mismatch": ("pattern", "a text like {}"),
}
_LENGTHS: Mapping[str, tuple[str, str, str]] = {
    "string_too_short": ("min_length", "at least", "character"),
    "string_too_long": ("max_length", "at most", "character"),
    "too_short": ("min_length", "at least", "item"),
    "too_long": ("max_length", "at most", "item"),
}
_YAML_1_1_BOOLS = {"yes", "no", "on", "off", "y", "n"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """One thing that is wrong with the data at ``at``, or with its key."""

    at: Key
    message: str
    on_key: bool = False
    suggestion: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Raw:
    at: Key
    tagged: bool
    detail: ErrorDetails


def complaints(
    data: Json, model: type[BaseModel], error: ValidationError, *, also: Iterable[str] = (), inside: Key = ()
) -> list[Complaint]:
    """Return what is wrong with ``data``, one complaint for all alternatives of a union.

    ``also`` are top-level keys, beside the model's own, that a suggestion may name; ``inside`` is where the data
    itself is in a document, for words only.
    """
    raw = [_raw(data, detail) for detail in error.errors(include_url=False)]
    # Where one alternative of a union fitted well enough to fail deeper inside, the others were not meant.
    deepest = [item for item in raw if not (item.tagged and any(_inside(other.at, item.at) for other in raw))]
    found: list[Complaint] = []
    expected: dict[Key, list[ErrorDetails]] = {}
    for item in deepest:
        if _expectation(item.detail):
            expected.setdefault(item.at, []).append(item.detail)
        else:
            found.append(_other(data, model, item, also, inside))
    return found + [_mismatch(at, details) for at, details in expected.items()]


def got(value: object) -> str:
    """Return a value as a reader would say it: ``the text 'five'``, ``a list``."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {_cut(value)!r}"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Sequence):
        return "a list"
    return _cut(str(value))


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?``, or the names there are where none is near and they are few."""
    names = list(dict.fromkeys(known))
    near = nearest(name, names)
    if near:
        return f"did you mean {near!r}?"
    return f"known: {', '.join(names)}" if 0 < len(names) <= 8 else ""


def slip(name: str, known: Iterable[str], *, shortest: int = 4) -> str:
    """Return the known name that another is a slip for; empty where it is known, or may be a name of its own.

    Stricter than :func:`~servecheck.errors.nearest`, for where unknown names are allowed: one letter is missing, too
    many, another or in its neighbour's place, or two where the name has eight letters or more; and how it is cut into
    words does not matter (``maxlength``, ``max_length``). Names under ``shortest`` letters are like too many words.
    """
    names = list(dict.fromkeys(known))
    if name in names:
        return ""
    plain = _joined(name)
    near = ((_apart(plain, _joined(each)), each) for each in names if len(each) >= shortest)
    distance, found = min(near, key=lambda pair: pair[0], default=(9, ""))
    return found if distance <= (2 if len(found) >= 8 else 1) else ""


def _joined(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()


def _apart(one: str, other: str) -> int:
    """Return how many letters must be put in, taken out, replaced or swapped with a neighbour; beyond two, any more."""
    if abs(len(one) - len(other)) > 2:
        return 9
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def known_keys(model: type[BaseModel], at: Key) -> list[str]:
    """Return the keys that a model takes in the mapping at ``at``, in the order of its fields."""
    schema = model.model_json_schema()
    nodes = list(alternatives(schema, schema))
    for step in at:
        nodes = [found for node in nodes for child in _children(node, step) for found in alternatives(child, schema)]
    return list(dict.fromkeys(name for node in nodes for name in node.get("properties", {})))


def alternatives(node: object, root: dict[str, Any], seen: frozenset[str] = frozenset()) -> Iterator[dict[str, Any]]:
    """Yield a JSON Schema (2020-12, as pydantic writes it) and all that it refers to or chooses between."""
    if not isinstance(node, dict):
        return
    yield node
    reference = node.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        yield from alternatives(root["$defs"][reference.rpartition("/")[2]], root, seen | {reference})
    for word in ("anyOf", "oneOf", "allOf"):
        for choice in node.get(word, ()):
            yield from alternatives(choice, root, seen)


def _children(node: dict[str, Any], step: str | int) -> Iterator[Any]:
    if isinstance(step, int):
        yield from node.get("prefixItems", [])[step : step + 1]
        yield node.get("items")
    elif step in node.get("properties", {}):
        yield node["properties"][step]
    else:
        yield node.get("additionalProperties")
        yield from node.get("patternProperties", {}).values()


def _raw(data: Json, detail: ErrorDetails) -> _Raw:
    """Keep of pydantic's location the steps that exist in the data; the others name alternatives of a union."""
    at: list[str | int] = []
    here: Any = data
    tagged = False
    loc = detail["loc"]
    for index, step in enumerate(loc):
        if step == "[key]":
            continue
        last = index == len(loc) - 1
        if isinstance(here, dict) and (step in here or (last and detail["type"] == "missing")):
            at.append(step)
            here = here.get(str(step))
        elif isinstance(here, list) and isinstance(step, int):
            at.append(step)
            here = here[step] if step < len(here) else None
        else:
            tagged = True
    return _Raw(at=tuple(at), tagged=tagged, detail=detail)


def _inside(at: Key, outer: Key) -> bool:
    return len(at) > len(outer) and at[: len(outer)] == outer


def _expectation(detail: ErrorDetails) -> str:
    """Return what was expected, as ``a whole number``; empty where the error is not of that shape."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _TYPES:
        return _TYPES[kind]
    if kind in {"literal_error", "enum"}:
        return str(context["expected"])
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return words.format(context[name])
    if kind in _LENGTHS:
        name, words, unit = _LENGTHS[kind]
        count = context[name]
        return f"{words} {count} {unit}{'' if count == 1 else 's'}"
    return ""


def _mismatch(at: Key, details: list[ErrorDetails]) -> Complaint:
    first = details[0]
    value = first["input"]
    kinds = {detail["type"] for detail in details}
    wanted = list(dict.fromkeys(_expectation(detail) for detail in details))
    seen = got(value)
    if kinds & {"too_short", "too_long"}:
        seen = str(first.get("ctx", {}).get("actual_length", len(value)))
    hint = ""
    choices = [name for text in wanted for name in re.findall(r"'([^']*)'", text)]
    if kinds & {"literal_error", "enum"} and isinstance(value, str):
        near = nearest(value, choices)
        hint = f"did you mean {near!r}?" if near else ""
    elif "bool_type" in kinds and isinstance(value, str) and value.lower() in _YAML_1_1_BOOLS:
        hint = f"{value!r} is a text in YAML 1.2; write true or false"
    elif kinds == {"string_type"} and isinstance(value, bool | int | float):
        hint = "to give a text, put it in quotes"
    on_key = "[key]" in first["loc"]
    return Complaint(at=at, message=f"expected {' or '.join(wanted)}, got {seen}", on_key=on_key, suggestion=hint)


def _other(data: Json, model: type[BaseModel], item: _Raw, also: Iterable[str], inside: Key) -> Complaint:
    detail, at = item.detail, item.at
    if detail["type"] == "extra_forbidden":
        name = str(at[-1])
        here: Any = data
        for step in at[:-1]:
            here = here[step]
        # A key that is there already is not what was meant.
        free = [key for key in known_keys(model, at[:-1]) if key not in here]
        near = nearest(name, [*free, *(also if len(at) == 1 else ())])
        hint = f"did you mean {near!r}?" if near else suggest(name, free)
        return Complaint(at=at, message=f"unknown key {_cut(name)!r}", on_key=True, suggestion=hint)
    if detail["type"] == "missing":
        what = f"missing key {at[-1]!r}" if isinstance(at[-1], str) else f"missing item {at[-1] + 1}"
        return Complaint(at=at, message=what + _inner(inside + at[:-1]), on_key=True)
    if detail["type"] == "value_error":
        return Complaint(at=at, message=str(detail["ctx"]["error"]))
    message = detail["msg"]
    return Complaint(at=at, message=f"{message[:1].lower()}{message[1:]}, got {got(detail['input'])}")


def _inner(at: Key) -> str:
    """Return `` in 'x'`` for the mapping or list under the key ``x``; nothing for the root and for items of lists."""
    return f" in {at[-1]!r}" if at and isinstance(at[-1], str) else ""


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
