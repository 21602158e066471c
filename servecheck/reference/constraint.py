"""Structured output that is right by construction: a schema, a pattern or choices write only texts that conform."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jsonschema

from servecheck.reference.grammars import BadGrammar, Grammar
from servecheck.reference.patterns import BadPattern, Pattern

__all__ = ["AnyObject", "BadConstraint", "Choices", "Choose", "Constraint", "Derived", "Matching", "Schema", "Tagged"]

Choose = Callable[[int], int]
"""Picks one of so many lawful continuations."""

_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_NOTES = frozenset(
    {
        "title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs", "definitions",
        "deprecated", "readOnly", "writeOnly", "strict", "discriminator", "nullable",
    }
)  # fmt: skip
_RULES = frozenset(
    {
        "type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "properties", "required",
        "additionalProperties", "minProperties", "maxProperties", "items", "prefixItems", "minItems",
        "maxItems", "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "multipleOf",
    }
)  # fmt: skip
_FORMATS = {
    "date": ("2024-02-29", "2025-11-30"),
    "time": ("10:15:00Z", "23:59:30Z"),
    "date-time": ("2024-02-29T10:15:00Z", "2025-11-30T23:59:30Z"),
    "duration": ("P3D", "PT2H"),
    "email": ("mira@example.org", "oto@example.com"),
    "hostname": ("example.org", "host.example.com"),
    "ipv4": ("192.0.2.7", "198.51.100.23"),
    "ipv6": ("2001:db8::7", "2001:db8::23"),
    "uri": ("https://example.org/a", "https://example.com/b"),
    "uuid": ("3f2b8c1e-7a54-4d09-9b1c-5e6f7a8b9c0d", "0a1b2c3d-4e5f-4a6b-8c7d-8e9fa0b1c2d3"),
}
_DEEP = 4
"""From this nesting on, only what the schema insists on is written."""
_TRIES = 12


class BadConstraint(ValueError):
    """A constraint that cannot be applied; the message names the keyword or the reason."""


class Constraint(Protocol):
    """Something that writes a conforming text."""

    def text(self, choose: Choose, hints: Sequence[str]) -> str:
        """Return one conforming text; ``hints`` are words that the model would like to use."""


@dataclass(frozen=True, slots=True)
class Choices:
    """One of the given texts."""

    options: tuple[str, ...]

    def text(self, choose: Choose, hints: Sequence[str]) -> str:  # noqa: ARG002
        """Return one of the options."""
        return self.options[choose(len(self.options))]


class Matching:
    """A text that a regular expression matches whole."""

    def __init__(self, pattern: str) -> None:
        try:
            self._pattern = Pattern(pattern)
        except BadPattern as wrong:
            raise BadConstraint(str(wrong)) from wrong

    def text(self, choose: Choose, hints: Sequence[str]) -> str:  # noqa: ARG002
        """Return a matching text."""
        try:
            return self._pattern.text(choose)
        except BadPattern as wrong:
            raise BadConstraint(str(wrong)) from wrong


class Derived:
    """A text that a grammar derives."""

    def __init__(self, grammar: str) -> None:
        try:
            self._grammar = Grammar(grammar)
        except BadGrammar as wrong:
            raise BadConstraint(f"invalid grammar: {wrong}") from wrong

    def text(self, choose: Choose, hints: Sequence[str]) -> str:  # noqa: ARG002
        """Return a text of the grammar."""
        try:
            return self._grammar.text(choose)
        except BadGrammar as wrong:
            raise BadConstraint(f"invalid grammar: {wrong}") from wrong


@dataclass(frozen=True, slots=True)
class Tagged:
    """What another constraint writes, between a begin and an end."""

    begin: str
    inner: Constraint
    end: str

    def text(self, choose: Choose, hints: Sequence[str]) -> str:
        """Return the marked text."""
        return self.begin + self.inner.text(choose, hints) + self.end


class AnyObject:
    """Any JSON object: a small flat one."""

    def text(self, choose: Choose, hints: Sequence[str]) -> str:
        """Return a JSON object."""
        names = ("answer", "note", "value", "kind")
        first = choose(len(names))
        made: dict[str, Any] = {names[first]: _words(choose, hints, 2)}
        if choose(2):
            made[names[(first + 1) % len(names)]] = choose(10)
        return json.dumps(made, ensure_ascii=False)


class Schema:
    """A JSON Schema that writes valid instances. Raises :class:`BadConstraint` where it cannot."""

    def __init__(self, schema: object) -> None:
        if not isinstance(schema, dict | bool):
            raise BadConstraint(f"a schema is an object, not {type(schema).__name__}")
        self.schema: Any = schema
        self._heights: dict[str, float] = {}
        self._check(schema)
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as wrong:
            raise BadConstraint(f"invalid schema: {wrong.message}") from wrong
        self._measure()
        for reference, height in self._heights.items():
            if height == math.inf:
                raise BadConstraint(f"impossible schema: $ref recursion through {reference!r} must end")
            if reference in self._beside(self._target(reference), set()):
                raise BadConstraint(f"unsupported $ref {reference!r}: it leads to itself without nesting")
        if self._height(schema) == math.inf:
            raise BadConstraint("impossible schema: false allows nothing, and $ref recursion must end")
        self._plain = self._write(schema, lambda _: 0, (), 0)
        if not self._holds(schema, self._plain):
            raise BadConstraint("unsupported schema: these keywords together are beyond this server")

    def text(self, choose: Choose, hints: Sequence[str]) -> str:
        """Return a valid instance as JSON text."""
        return json.dumps(self.value(choose, hints), ensure_ascii=False)

    def value(self, choose: Choose, hints: Sequence[str]) -> Any:  # noqa: ANN401
        """Return a valid instance."""
        for _ in range(_TRIES):
            try:
                value = self._write(self.schema, choose, hints, 0)
            except BadConstraint:  # a way of writing it that leads nowhere; the schema itself is known to be possible
                continue
            if self._holds(self.schema, value):
                return value
        return self._plain

    # ------------------------------------------------------------------ reading the schema

    def _check(self, schema: Any) -> None:  # noqa: ANN401
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise BadConstraint(f"invalid schema: {schema!r} is not a schema")
        for keyword in schema:
            if keyword not in _RULES and keyword not in _NOTES:
                raise BadConstraint(f"unsupported schema keyword {keyword!r}")
        for name in _listed(schema.get("type", [])):
            if name not in _TYPES:
                raise BadConstraint(f"invalid schema: type {name!r} does not exist")
        if "format" in schema and schema["format"] not in _FORMATS:
            raise BadConstraint(f"unsupported schema keyword 'format' with {schema['format']!r}")
        if "pattern" in schema:
            Matching(str(schema["pattern"]))
        if "$ref" in schema:
            self._target(schema["$ref"])
        for keyword in ("properties", "$defs", "definitions"):
            if not isinstance(schema.get(keyword, {}), dict):
                raise BadConstraint(f"invalid schema: {keyword!r} is not an object")
            for inner in schema.get(keyword, {}).values():
                self._check(inner)
        for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
            if keyword in schema and (not isinstance(schema[keyword], list) or not schema[keyword]):
                raise BadConstraint(f"invalid schema: {keyword!r} is not a list of schemas")
            for inner in schema.get(keyword, ()):
                self._check(inner)
        for keyword in ("items", "additionalProperties"):
            if keyword in schema:
                self._check(schema[keyword])

    def _target(self, reference: object) -> Any:  # noqa: ANN401
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise BadConstraint(f"unsupported $ref {reference!r}: only references inside the schema are followed")
        found: Any = self.schema
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise BadConstraint(f"unresolvable $ref {reference!r}")
            found = found[key]
        return found

    def _measure(self) -> None:
        references: set[str] = set()

        def collect(schema: Any) -> None:  # noqa: ANN401
            if isinstance(schema, dict):
                if isinstance(schema.get("$ref"), str):
                    references.add(schema["$ref"])
                for inner in schema.values():
                    collect(inner)
            elif isinstance(schema, list):
                for inner in schema:
                    collect(inner)

        collect(self.schema)
        self._heights = dict.fromkeys(references, math.inf)
        changed = True
        while changed:
            changed = False
            for reference in references:
                height = self._height(self._target(reference)) + 1
                if height < self._heights[reference]:
                    self._heights[reference], changed = height, True

    def _beside(self, schema: Any, found: set[str]) -> set[str]:  # noqa: ANN401
        """Return the references that speak of the same value as this schema."""
        if not isinstance(schema, dict):
            return found
        reference = schema.get("$ref")
        if reference is not None and reference not in found:
            found.add(reference)
            self._beside(self._target(reference), found)
        for keyword in ("anyOf", "oneOf", "allOf"):
            for inner in schema.get(keyword, ()):
                self._beside(inner, found)
        return found

    def _height(self, schema: Any) -> float:  # noqa: ANN401
        """Return the least nesting that a valid instance needs; infinite where there is none."""
        if schema is False:
            return math.inf
        if not isinstance(schema, dict) or "enum" in schema or "const" in schema:
            return 1
        heights = [1.0]
        if "$ref" in schema:
            heights.append(self._heights[schema["$ref"]])
        heights += [self._height(inner) for inner in schema.get("allOf", ())]
        heights += [
            min(self._height(inner) for inner in schema[keyword]) for keyword in ("anyOf", "oneOf") if keyword in schema
        ]
        kinds = _listed(schema.get("type", []))
        if not kinds or kinds == ["object"]:
            properties = schema.get("properties", {})
            needed = [name for name in schema.get("required", ()) if name in properties]
            heights += [1 + self._height(properties[name]) for name in needed]
        if kinds == ["array"] and schema.get("minItems", 0) > 0:
            heights += [1 + self._height(inner) for inner in schema.get("prefixItems", ())[: schema["minItems"]]]
            if schema["minItems"] > len(schema.get("prefixItems", ())):
                heights.append(1 + self._height(schema.get("items", True)))
        return max(heights)

    # ------------------------------------------------------------------ writing an instance

    def _write(self, schema: Any, choose: Choose, hints: Sequence[str], depth: int) -> Any:  # noqa: ANN401
        if schema is False:
            raise BadConstraint("impossible schema: false allows nothing")
        if schema is True or not (_RULES & schema.keys()):
            return _words(choose, hints, 1)
        for keyword in ("$ref", "allOf", "anyOf", "oneOf"):
            if keyword in schema:
                return self._branch(keyword, schema, choose, hints, depth)
        if "const" in schema:
            return self._lawful(schema, [schema["const"]], "const", choose)
        if "enum" in schema:
            return self._lawful(schema, schema["enum"], "enum", choose)
        kinds = _listed(schema.get("type", [])) or [_implied(schema)]
        kind = kinds[choose(len(kinds))]
        if kind == "object":
            return self._object(schema, choose, hints, depth)
        if kind == "array":
            return self._array(schema, choose, hints, depth)
        if kind == "string":
            return self._string(schema, choose, hints)
        if kind == "boolean":
            return bool(choose(2))
        if kind == "null":
            return None
        return _number(schema, kind, choose)

    def _branch(self, keyword: str, schema: Any, choose: Choose, hints: Sequence[str], depth: int) -> Any:  # noqa: ANN401
        rest = {name: value for name, value in schema.items() if name != keyword and name not in _NOTES}
        if keyword == "$ref":
            return self._write(_merged([self._target(schema["$ref"]), rest]), choose, hints, depth)
        if keyword == "allOf":
            return self._write(_merged([*schema["allOf"], rest]), choose, hints, depth)
        branches = sorted((inner for inner in schema[keyword] if self._height(inner) < math.inf), key=self._height)
        if depth < _DEEP:
            first = choose(len(branches))
            branches = [branches[first], *branches[:first], *branches[first + 1 :]]
        refused = ""
        for branch in branches:
            try:
                value = self._write(_merged([branch, rest]), choose, hints, depth)
            except BadConstraint as wrong:
                refused = str(wrong)
                continue
            if keyword == "anyOf" or sum(self._holds(other, value) for other in branches) == 1:
                return value
            refused = "impossible schema: no value fits exactly one branch of oneOf"
        raise BadConstraint(refused)

    def _holds(self, schema: Any, value: object) -> bool:  # noqa: ANN401
        shared = {name: self.schema[name] for name in ("$defs", "definitions") if name in self.schema}
        whole = {**shared, **schema} if isinstance(schema, dict) else schema
        return bool(jsonschema.Draft202012Validator(whole).is_valid(value))

    def _lawful(self, schema: Any, values: Sequence[Any], keyword: str, choose: Choose) -> Any:  # noqa: ANN401
        fitting = [value for value in values if self._holds(schema, value)]
        if not fitting:
            raise BadConstraint(f"impossible schema: no value of {keyword!r} fits the other keywords")
        return fitting[choose(len(fitting))]

    def _object(self, schema: Any, choose: Choose, hints: Sequence[str], depth: int) -> dict[str, Any]:  # noqa: ANN401
        properties: Mapping[str, Any] = schema.get("properties", {})
        required = list(schema.get("required", ()))
        extra = schema.get("additionalProperties", True)
        made: dict[str, Any] = {}
        for name, inner in properties.items():
            if name not in required and (depth >= _DEEP or self._height(inner) == math.inf or choose(4) == 0):
                continue
            made[name] = self._write(inner, choose, hints, depth + 1)
        for name in required:
            if name not in properties:
                if extra is False:
                    raise BadConstraint(
                        f"impossible schema: 'required' names {name!r}, which additionalProperties forbids"
                    )
                made[name] = self._write(extra, choose, hints, depth + 1)
        least, most = schema.get("minProperties", 0), schema.get("maxProperties", math.inf)
        for name in [name for name in made if name not in required]:
            if len(made) > most:
                del made[name]
        for name, inner in properties.items():
            if len(made) < least and name not in made and self._height(inner) < math.inf:
                made[name] = self._write(inner, choose, hints, depth + 1)
        number = 0
        while len(made) < least and extra is not False:
            number += 1
            made.setdefault(f"key{number}", self._write(extra, choose, hints, depth + 1))
        if not least <= len(made) <= most:
            raise BadConstraint("impossible schema: 'minProperties' and 'maxProperties' cannot be kept")
        return made

    def _array(self, schema: Any, choose: Choose, hints: Sequence[str], depth: int) -> list[Any]:  # noqa: ANN401
        first = schema.get("prefixItems", ())
        least = schema.get("minItems", 0)
        most = schema.get("maxItems", max(least, len(first), 1) + 2)
        if schema.get("items") is False:
            most = min(most, len(first))
        if least > most:
            raise BadConstraint("impossible schema: 'minItems' is above 'maxItems'")
        size = (
            least
            if depth >= _DEEP
            else max(least, min(most, 1)) + choose(min(most, 3 + least) - max(least, min(most, 1)) + 1)
        )
        inner = [*first, *[schema.get("items", True)] * size]
        return [self._write(inner[number], choose, hints, depth + 1) for number in range(size)]

    def _string(self, schema: Any, choose: Choose, hints: Sequence[str]) -> str:  # noqa: ANN401
        least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
        if least > most:
            raise BadConstraint("impossible schema: 'minLength' is above 'maxLength'")
        if "pattern" in schema:
            for _ in range(_TRIES):
                try:
                    value = Pattern(schema["pattern"]).text(choose)
                except BadPattern as wrong:
                    raise BadConstraint(f"unsupported schema keyword 'pattern': {wrong}") from wrong
                if least <= len(value) <= most:
                    return value
                value = self._stretched(schema["pattern"], value, least)
                if least <= len(value) <= most:
                    return value
            raise BadConstraint("unsupported schema keyword 'pattern' together with these lengths")
        if "format" in schema:
            options = [text for text in _FORMATS[schema["format"]] if least <= len(text) <= most]
            if not options:
                raise BadConstraint("impossible schema: 'format' cannot be kept within these lengths")
            return options[choose(len(options))]
        value = _words(choose, hints, 1 + choose(3))
        while len(value) < least:
            value += " " + _words(choose, hints, 1)
        if len(value) > most:
            value = value[: int(most)]
        return value

    @staticmethod
    def _stretched(pattern: str, value: str, least: int) -> str:
        """Repeat the last character while the pattern allows it."""
        compiled = jsonschema.Draft202012Validator({"pattern": pattern})
        longer = value + value[-1:] * max(0, least - len(value))
        return longer if compiled.is_valid(longer) else value


def _number(schema: Mapping[str, Any], kind: str, choose: Choose) -> float | int:
    step = schema.get("multipleOf", 1 if kind == "integer" else 0)
    if kind == "integer" and step != int(step):
        raise BadConstraint("unsupported schema keyword 'multipleOf': a fraction with type integer")
    low = max((schema[name] for name in ("minimum", "exclusiveMinimum") if name in schema), default=None)
    high = min((schema[name] for name in ("maximum", "exclusiveMaximum") if name in schema), default=None)
    if low is None:
        low = high - 100 if high is not None else 0
    if high is None:
        high = low + 100
    if not step:
        step = (high - low) / 8 or 1
        options = [round(low + step * number, 6) for number in range(9)]
    else:
        first = math.ceil(low / step)
        last = math.floor(high / step)
        stride = max(1, (last - first) // 8)
        options = [number * step for number in range(first, last + 1, stride)][:16]
        options += [last * step] if last >= first else []
    validator = jsonschema.Draft202012Validator({name: value for name, value in schema.items() if name in _RULES})
    lawful = [int(value) if kind == "integer" else value for value in dict.fromkeys(options)]
    lawful = [value for value in lawful if validator.is_valid(value)]
    if not lawful:
        raise BadConstraint("impossible schema: no number between 'minimum' and 'maximum' fits")
    return lawful[choose(len(lawful))]


def _words(choose: Choose, hints: Sequence[str], count: int) -> str:
    known = tuple(hints) or ("word",)
    return " ".join(known[choose(min(len(known), 6))] for _ in range(min(count, len(known))))


def _listed(value: Any) -> list[Any]:  # noqa: ANN401
    return value if isinstance(value, list) else [value]


def _implied(schema: Mapping[str, Any]) -> str:
    for kind, keywords in (
        ("object", ("properties", "required", "additionalProperties", "minProperties", "maxProperties")),
        ("array", ("items", "prefixItems", "minItems", "maxItems")),
        ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    ):
        if any(keyword in schema for keyword in keywords):
            return kind
    return "string"


def _merged(schemas: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return one schema that asks what all of them ask; refuses where that cannot be written as one."""
    made: dict[str, Any] = {}
    for schema in schemas:
        if schema is False:
            return False
        if schema is True:
            continue
        for keyword, value in schema.items():
            if keyword in _NOTES or keyword not in made:
                made[keyword] = value
            elif keyword == "properties":
                names = {**made[keyword], **value}
                made[keyword] = {
                    name: _merged([made[keyword].get(name, True), value.get(name, True)]) for name in names
                }
            elif keyword == "required":
                made[keyword] = [*made[keyword], *(name for name in value if name not in made[keyword])]
            elif keyword in {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}:
                made[keyword] = max(made[keyword], value)
            elif keyword in {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}:
                made[keyword] = min(made[keyword], value)
            elif keyword == "type":
                shared = [kind for kind in _listed(made[keyword]) if kind in _listed(value)]
                if not shared:
                    raise BadConstraint("impossible schema: 'type' is given twice with nothing in common")
                made[keyword] = shared
            elif keyword == "enum":
                made[keyword] = [entry for entry in made[keyword] if entry in value]
            elif made[keyword] != value:
                raise BadConstraint(f"unsupported schema keyword {keyword!r} on both sides of a combination")
    return made
