"""Patterns mean what they mean in ECMAScript and end in a second; what cannot be followed speaks against nothing."""

from __future__ import annotations

import jsonschema
import pytest

from servecheck.model import Json
from servecheck.probes._assertions import fault_of
from servecheck.read import instance
from servecheck.read.instance import fault
from servecheck.read.schemas import breach, broken_keywords

ENDLESS: dict[str, Json] = {"pattern": "^(a|a)*$"}
LONG = "a" * 60 + "!"


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(instance, "PATTERN_SECONDS", 0.02)


@pytest.mark.parametrize(
    ("fits", "value", "schema"),
    [
        (True, "Ab", {"pattern": r"^\p{L}+$"}),
        (False, "a1", {"pattern": r"^\p{L}+$"}),
        (False, "a1", {"pattern": r"^\p{Letter}+$"}),
        (True, "7", {"pattern": r"^\p{digit}$"}),
        (False, "abc\n", {"pattern": "^abc$"}),
        (True, "a$", {"pattern": r"^a\$"}),
        (True, "α", {"pattern": r"\p{Script=Greek}"}),
        (False, "a", {"pattern": r"\p{Script=Greek}"}),
        (True, "anything", {"pattern": "("}),
        (True, {"a": 1}, {"patternProperties": {"(": {"type": "string"}}}),
        (True, {"a": 1}, {"patternProperties": {"(": {}}, "additionalProperties": False}),
        (True, {"ab": 1}, {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}),
        (False, {"ab": ""}, {"patternProperties": {"^a": {"type": "integer"}}}),
        (False, {"b": 1}, {"patternProperties": {"^a": {}}, "additionalProperties": False}),
        (False, {"b": 1}, {"patternProperties": {"^a": {}}, "additionalProperties": {"type": "string"}}),
        (True, {"a": 1}, {"$ref": "#/$defs/missing"}),
        (True, 1, {"type": 3}),
        (True, 1, None),
        (True, 1, True),
        (False, 1, False),
    ],
)
def test_a_value_fits_or_not(fits, value, schema):
    assert (fault(value, schema) == "") is fits


@pytest.mark.parametrize("draft", ["Draft3", "Draft4", "Draft6", "Draft7", "Draft201909", "Draft202012"])
def test_every_draft_reads_patterns_alike(draft):
    schema: Json = {"properties": {"b": {}}, "patternProperties": {r"^\p{Lu}": {}}, "additionalProperties": False}
    held = instance.validator(schema, getattr(jsonschema, f"{draft}Validator"))
    assert [error.message for error in held.iter_errors({"A": 1, "b": 1, "c": 1})] == [
        "Additional properties are not allowed ('c' was unexpected)"
    ]


def test_a_pattern_without_an_end_is_not_held_against_a_value(impatient):
    assert fault(LONG, ENDLESS) == ""
    assert fault({LONG: 1}, {"patternProperties": {"^(a|a)*$": {}}, "additionalProperties": False}) == ""
    assert breach(f'"{LONG}"', ENDLESS) == ""
    assert broken_keywords(LONG, {**ENDLESS, "maxLength": 3}) in ([], ["maxLength"])


def test_a_check_of_ones_own_is_told_of_it(impatient):
    with pytest.raises(TimeoutError):
        fault_of(LONG, ENDLESS)
    assert fault_of("b", ENDLESS) is not None
