"""A schema's slips are told where a person wrote it: nearly a keyword, and a key that is wanted and forbidden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from servecheck import features
from servecheck.lint import lint
from servecheck.plainwords import slip
from servecheck.probes import discover
from servecheck.read.slips import impossible, misspelt, slips
from servecheck.workload import load
from tests.commands import servecheck

CLOSED: dict[str, Any] = {"type": "object", "properties": {"currency": {}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("meant", "written"),
    [
        ("uniqueItems", "uniqeItems"),
        ("enum", "enumm"),
        ("title", "titel"),
        ("maxLength", "maxlength"),
        ("additionalProperties", "additional_properties"),
        ("required", "requires"),
        ("$ref", "ref"),
        ("", "x-order"),
        ("", "example"),
        ("", "nullable"),
        ("", "markdownDescription"),
        ("", "propertyOrdering"),
        ("", "enumNames"),
        ("", "note"),
        ("", "uniqueItems"),
    ],
)
def test_what_is_nearly_a_keyword_is_one_and_an_annotation_is_not(meant: str, written: str):
    assert [each.suggestion for each in misspelt({written: 1})] == ([f"did you mean {meant!r}?"] if meant else [])


def test_names_of_properties_and_values_are_no_keywords():
    named: dict[str, Any] = {
        "properties": {"titel": {"const": {"enumm": 1}}},
        "$defs": {"patern": {"enum": ["uniqeItems"]}},
    }
    assert list(misspelt(named)) == []


def test_a_keyword_that_is_there_already_is_not_what_was_meant():
    assert list(misspelt({"title": "T", "titles": ["a"]})) == []


@pytest.mark.parametrize(
    ("at", "said", "schema"),
    [
        (("required", 0), "nothing can fit: 'curency' is required", {**CLOSED, "required": ["curency"]}),
        (("items", "required", 0), "nothing can fit: 'x'", {"items": {**CLOSED, "required": ["x"]}}),
        (("required", 0), "no object can fit: 'x'", {**CLOSED, "type": ["object", "null"], "required": ["x"]}),
        (("required", 0), "its schema is false", {"properties": {"x": False}, "required": ["x"]}),
        (
            ("required", 1),
            "'b' is required",
            {"patternProperties": {"^a": {}}, "additionalProperties": False, "required": ["a1", "b"]},
        ),
    ],
)
def test_a_key_that_is_wanted_and_forbidden_is_told_with_its_place(at, said, schema):
    (found,) = impossible(schema)
    assert found.at == at
    assert said in found.message


@pytest.mark.parametrize(
    "schema",
    [
        {**CLOSED, "required": ["currency"]},
        {**CLOSED, "additionalProperties": True, "required": ["x"]},
        {**CLOSED, "additionalProperties": {"type": "string"}, "required": ["x"]},
        {**CLOSED, "patternProperties": {"^x$": {}}, "required": ["x"]},
        {**CLOSED, "patternProperties": {"(": {}}, "required": ["x"]},
        {"type": "array", "additionalProperties": False, "required": ["x"]},
        {"not": {**CLOSED, "required": ["x"]}},
        {**CLOSED, "required": True},
    ],
)
def test_what_may_be_possible_is_let_through(schema):
    assert list(impossible(schema)) == []


def test_the_name_that_was_meant_is_suggested():
    assert [each.suggestion for each in impossible({**CLOSED, "required": ["curency"]})] == ["did you mean 'currency'?"]


def test_a_slip_is_nearer_than_a_likeness():
    assert slip("devise", ["device", "dtype"]) == "device"
    assert (slip("power", ["parser"]), slip("nott", ["not"]), slip("device", ["device", "devices"])) == ("", "", "")


# --------------------------------------------------------------------------- in files


def problems(folder: Path, name: str, text: str) -> list[str]:
    path = folder / name
    path.write_text(text, "utf-8")
    found = lint([path], probes=discover(), features=features.BY_ID)
    return [f"{each.line}: {each.message.partition(',')[0]}; {each.suggestion}" for each in found if not each.warning]


BOTH = [
    "unknown JSON Schema keyword 'enumm'; did you mean 'enum'?",
    "nothing can fit: 'curency' is required; did you mean 'currency'?",
]
LINE = (
    "{type: object, properties: {number: {type: string, enumm: [$nonce]}, currency: {type: string}}, "
    "required: [number, curency], additionalProperties: false}"
)


def test_a_scenarios_schema_is_told_all_of_its_slips_also_those_on_one_line(tmp_path):
    head = "schema: servecheck/scenario/v1\nid: s\ntitle: T\nfeature: structured.json_schema\nprobe: json_schema\n"
    text = f"{head}why: W.\nwith:\n  answer_schema: {LINE}\n"
    assert problems(tmp_path, "s.yaml", text) == [f"8: {each}" for each in BOTH]


def test_a_workloads_schemas_and_tools_are_told_theirs(tmp_path):
    tool = "{type: function, function: {name: f, parameters: {type: object, titel: T}}}"
    text = f"schema: servecheck/workload/v1\njson_schemas: {{a: {{inline: {LINE}}}}}\ntools: [{{inline: {tool}}}]\n"
    title = "3: unknown JSON Schema keyword 'titel'; did you mean 'title'?"
    assert problems(tmp_path, "w.yaml", text) == [*(f"2: {each}" for each in BOTH), title]


def test_a_schema_that_no_validator_takes_has_its_slips_told_too(tmp_path):
    text = "schema: servecheck/workload/v1\njson_schemas: {a: {inline: {type: strin, uniqeItems: true}}}\n"
    said = problems(tmp_path, "w.yaml", text)
    assert ["not a JSON Schema" in said[0], "uniqeItems" in said[1]] == [True, True]


def test_a_check_of_ones_own_that_nothing_can_pass_is_a_problem(tmp_path):
    path = Path(__file__).parents[1] / "scenarios" / "examples" / "request-id-comes-back.yaml"
    text = path.read_text("utf-8")
    wanted = "required: [x-request-id]"
    assert wanted in text
    assert problems(tmp_path, path.name, text) == []
    broken = text.replace(wanted, "required: [x-reqest-id]\n              additionalProperties: false", 1)
    assert [each.partition(": ")[2] for each in problems(tmp_path, path.name, broken)] == [
        "no object can fit: 'x-reqest-id' is required; did you mean 'x-request-id'?"
    ]


def test_in_a_log_it_is_a_warning_and_the_schema_is_asked_as_it_is(tmp_path):
    schema = {"type": "array", "uniqeItems": True}
    shaped = {"type": "json_schema", "json_schema": {"name": "labels", "schema": schema}}
    line = {"messages": [{"role": "user", "content": "Hi"}], "response_format": shaped}
    (tmp_path / "log.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    path = tmp_path / "w.yaml"
    path.write_text("schema: servecheck/workload/v1\nrequest_logs: [log.jsonl]\n", "utf-8")
    said = servecheck("lint", str(path))
    assert said.code == 0
    assert "log.jsonl:1:1: warning: schema labels: unknown JSON Schema keyword 'uniqeItems'" in said.out
    assert "no problems, 1 warning(s)" in said.err
    assert [item.body for item in load(path).items] == [schema]
    assert any("'uniqeItems'" in note for note in load(path).notes)


PUBLISHED = sorted((Path(__file__).parents[1] / "servecheck" / "schema").glob("*.json"))


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_a_large_schema_that_is_right_has_no_slip(path):
    assert list(slips(json.loads(path.read_text("utf-8")))) == []
