"""Schemas that people bring: which we can judge by, what an answer breaks, and JSON that breaks what it can."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from servecheck.read.schemas import (
    breach,
    breaking,
    broken_keyword,
    broken_keywords,
    fault_in_schema,
    keywords,
    named_keywords,
    suspects,
    unreadable_patterns,
    untried,
    without_keyword,
)


def of(code: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"code": code},
        "required": ["code"],
        "additionalProperties": False,
        **more,
    }


@pytest.mark.parametrize(
    ("at", "said", "schema"),
    [
        ((), "an object", []),
        ((), "an object", True),
        (("properties", "code", "type"), "'strin' is not valid", of({"type": "strin"})),
        (("properties", "code", "minLength"), "less than the minimum", of({"type": "string", "minLength": -1})),
        (("$schema",), "URL of a draft", {"$schema": 7}),
        (("properties", "code", "$ref"), "refers outside", of({"$ref": "https://example.org/other.json"})),
        (("properties", "code", "$ref"), "refers outside", of({"$ref": "other.json"})),
        (("properties", "code", "$ref"), "leads nowhere", of({"$ref": "#/$defs/gone"})),
        (("properties", "code", "$ref"), "names an anchor", of({"$ref": "#gone"})),
    ],
)
def test_what_nobody_can_be_judged_by_is_named_with_its_place(at, said, schema):
    fault = fault_in_schema(schema)
    assert fault is not None
    assert fault.at == at
    assert said in fault.message


@pytest.mark.parametrize(
    "schema",
    [
        {},
        of({"type": "string"}),
        of({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"type": "string"}}}),
        of({"$ref": "#word"}, **{"$defs": {"a": {"$anchor": "word", "type": "string"}}}),
        of({"$ref": "#"}),
        of({"type": "string", "pattern": r"\p{L}+"}),
        of({"type": "string", "unheard-of": 7}),
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"type": "string"}]},
        of({"enum": [{"$ref": "https://example.org/this-is-data"}]}),
    ],
)
def test_what_can_be_judged_by_is_let_through(schema):
    assert fault_in_schema(schema) is None


def test_a_schema_that_leads_to_itself_without_end_says_nothing():
    assert breach('{"a": 1}', {"$ref": "#"}) == ""


def test_a_pattern_that_cannot_be_read_is_not_held_against_an_answer():
    schema = of({"type": "string", "pattern": r"^\p{Nowhere}+$", "maxLength": 3})
    assert unreadable_patterns(schema) == [r"^\p{Nowhere}+$"]
    assert breach('{"code": "abc"}', schema) == ""
    assert "too long" in breach('{"code": "abcd"}', schema)


def test_a_breach_is_said_with_its_place_and_its_keyword():
    schema = of({"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True})
    assert breach('{"code": ["a", "c"]}', schema) == "at code/1: 'c' is not one of ['a', 'b']"
    assert broken_keyword('{"code": ["a", "a"]}', schema) == "uniqueItems"
    assert breach('{"code": ["a", "b"]}', schema) == ""
    assert breach("the sea", schema).startswith("not JSON: ")
    assert broken_keyword("the sea", schema) == ""


@pytest.mark.parametrize(
    ("keyword", "schema"),
    [
        ("enum", of({"type": "string", "enum": ["a", "b"]})),
        ("const", of({"const": "a"})),
        ("pattern", of({"type": "string", "pattern": "^[A-Z]{2}$"})),
        ("maxLength", of({"type": "string", "maxLength": 3})),
        ("minLength", of({"type": "string", "minLength": 3})),
        ("minimum", of({"type": "integer", "minimum": 3})),
        ("exclusiveMaximum", of({"type": "number", "exclusiveMaximum": 3})),
        ("multipleOf", of({"type": "integer", "multipleOf": 5})),
        ("type", of({"type": "integer"}, additionalProperties=True)),
        ("type", of({"type": "boolean"}, additionalProperties=True)),
        ("additionalProperties", of({"type": "string"})),
        ("uniqueItems", of({"type": "array", "items": {"type": "string"}, "uniqueItems": True})),
        ("uniqueItems", of({"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True})),
        ("maxItems", of({"type": "array", "items": {"type": "string"}, "maxItems": 3})),
        ("minItems", of({"type": "array", "items": {"type": "string"}, "minItems": 2})),
        ("enum", of({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"enum": ["x"]}}})),
        ("enum", of({"anyOf": [{"type": "null"}, {"type": "string", "enum": ["x"]}]})),
        ("pattern", {"type": "array", "items": {"type": "string", "pattern": "^a$"}}),
        ("enum", of({"type": "object", "properties": {"in": {"enum": ["x"]}}})),
    ],
)
def test_json_is_made_that_breaks_a_schema_where_it_says_so(keyword, schema):
    wrong = breaking(schema)
    kinds = {error.validator for error in jsonschema.Draft202012Validator(schema).iter_errors(wrong)}
    inner = {
        each.validator
        for error in jsonschema.Draft202012Validator(schema).iter_errors(wrong)
        for each in error.context or ()
    }
    assert keyword in kinds | inner
    assert keyword in broken_keywords(wrong, schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "string"},
    ],
)
def test_where_nothing_short_breaks_a_schema_nothing_is_made(schema):
    assert breaking(schema) is None


def test_what_breaks_a_large_schema_stays_short():
    large: dict[str, Any] = {f"property_{number}": {"type": "string", "enum": ["a" * 30]} for number in range(200)}
    wrong = breaking({"type": "object", "properties": large})
    assert wrong is not None
    assert len(json.dumps(wrong)) <= 1200


def test_keywords_are_not_confused_with_names_of_properties_and_values():
    schema: dict[str, Any] = of({"enum": [{"pattern": "x"}]}) | dict[str, Any](
        {"$defs": {"uniqueItems": {"type": "string"}}}
    )
    schema["properties"] = {"minItems": {"type": "string", "maxLength": 3}}
    assert keywords(schema) == {"type", "properties", "required", "additionalProperties", "$defs", "maxLength"}


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (["uniqueItems"], 'Grammar error: Unimplemented keys: ["uniqueItems"]'),
        (["uniqueItems"], "uniqueItems is not supported"),
        (["pattern"], "unsupported keyword 'pattern'"),
        ([], "the pattern of your request has a type that is not one of the items we know"),
        ([], "NotUniqueItemsOfOurs"),
        ([], "contains features not supported"),
    ],
)
def test_the_keyword_of_a_refusal_is_read_where_it_is_named(expected, message):
    schema = of({"type": "array", "items": {"type": "string", "pattern": "a"}, "uniqueItems": True})
    assert named_keywords(message, schema) == expected


def test_a_keyword_is_taken_out_everywhere_and_nothing_else_is():
    schema = of({"type": "array", "uniqueItems": True, "items": of({"type": "array", "uniqueItems": False})})
    assert without_keyword(schema, "uniqueItems") == of({"type": "array", "items": of({"type": "array"})})
    condition: dict[str, Any] = {"if": {"type": "string"}, "then": {"minLength": 1}, "else": False, "title": "kept"}
    assert without_keyword(condition, "if") == {"title": "kept"}


def test_suspects_are_the_keywords_there_are_the_likeliest_first():
    assert suspects(of({"type": "string", "pattern": "a", "uniqueItems": True})) == ["uniqueItems", "pattern"]


def test_what_nothing_puts_to_the_test_is_said():
    assert untried(of({"enum": ["a"], "minItems": 1, "type": "array"}), ["enum"]) == ["minItems"]
