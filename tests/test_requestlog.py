"""A log of requests gives its distinct schemas, tools and prompts; what cannot be read is said with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servecheck import requestlog
from servecheck.errors import ScenarioError
from servecheck.requestlog import read_log

SCHEMA = {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}}, "required": ["mood"]}
TOOL = {"type": "function", "function": {"name": "book", "parameters": {"type": "object", "properties": {}}}}
ASKED = [{"role": "user", "content": "How are you?"}]


def body(**more: object) -> dict[str, object]:
    return {"model": "m", "messages": ASKED, **more}


def shaped(schema: object = SCHEMA, name: str = "mood") -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}


def log(tmp_path: Path, *lines: object) -> requestlog.Log:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines))
    return read_log(path)


@pytest.mark.parametrize(
    ("name", "strict", "line"),
    [
        ("mood", True, body(response_format=shaped())),
        ("mood", True, {"custom_id": "1", "method": "POST", "url": "/v1/x", "body": body(response_format=shaped())}),
        ("mood", True, {"body": json.dumps(body(response_format=shaped()))}),
        ("mood", True, {"request": body(response_format=shaped())}),
        ("schema-", None, body(guided_json=SCHEMA)),
        ("schema-", None, body(guided_json=json.dumps(SCHEMA))),
        ("schema-", None, body(structured_outputs={"json": SCHEMA})),
        ("mood", None, {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "mood", "schema": SCHEMA}}}),
    ],
)
def test_a_schema_is_found_in_each_place_where_requests_have_it(tmp_path, name, strict, line):
    (seen,) = log(tmp_path, line).schemas.values()
    assert (seen.body, seen.strict, seen.line, seen.uses) == (SCHEMA, strict, 1, 1)
    assert seen.name.startswith(name)


@pytest.mark.parametrize(
    "line",
    [
        body(tools=[TOOL]),
        body(functions=[TOOL["function"]]),
        {"input": "Hi", "tools": [{"type": "function", **TOOL["function"]}]},  # type: ignore[dict-item]
        body(tools=[TOOL, {"type": "web_search"}, 7]),
    ],
)
def test_a_tool_is_found_in_each_shape_that_requests_have(tmp_path, line):
    (seen,) = log(tmp_path, line).tools.values()
    assert (seen.name, seen.body) == ("book", TOOL)


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        (ASKED, body()),
        ([{"role": "user", "content": "Once"}], {"prompt": "Once"}),
        (
            [{"role": "user", "content": "a\nb"}],
            {"input": [{"role": "user", "content": [{"text": "a"}, {"text": "b"}]}]},
        ),
        (None, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
        (None, {"messages": [{"role": "tool", "content": "42", "tool_call_id": "x"}]}),
        (None, {"prompt": [1, 2, 3]}),
    ],
)
def test_a_prompt_is_taken_where_it_is_text(tmp_path, expected, line):
    found = log(tmp_path, line).prompts.values()
    assert [seen.body for seen in found] == ([] if expected is None else [expected])


def test_equal_things_are_counted_whatever_the_order_of_their_keys(tmp_path):
    turned = dict(reversed(SCHEMA.items()))
    found = log(tmp_path, body(response_format=shaped()), body(response_format=shaped(turned)), body(tools=[TOOL]))
    assert [(seen.uses, seen.line) for seen in found.schemas.values()] == [(2, 1)]
    assert [seen.uses for seen in found.tools.values()] == [1]
    assert [seen.uses for seen in found.prompts.values()] == [3]
    assert next(iter(found.schemas.values())).messages == ASKED


def test_lines_that_cannot_be_read_are_named_and_the_others_count(tmp_path):
    found = log(tmp_path, body(), b"{", b"", [], {"a": 1}, b"\xff\xfe", body())
    assert [line for line, _ in found.unread] == [2, 4, 5, 6]
    (note,) = found.notes()
    assert note.endswith(
        "log.jsonl: 4 of 7 lines could not be read (line 2: not JSON: Expecting property name enclosed in double "
        "quotes; line 4: no request body: none of messages, prompt and input; line 5: no request body: none of "
        "messages, prompt and input; line 6: not JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid "
        "start byte)"
    )


def test_of_many_unreadable_lines_the_first_are_named(tmp_path):
    (note,) = log(tmp_path, body(), *[b"no"] * 100).notes()
    assert "100 of 101 lines" in note
    assert note.endswith("and 92 more)")


def test_what_cannot_be_judged_by_is_left_out_and_said_once(tmp_path):
    bad = shaped({"type": "strin"})
    found = log(tmp_path, body(response_format=bad), body(response_format=bad), body(tools=[{"function": {}}]))
    assert not found.schemas
    assert not found.tools
    first, second = found.notes()
    assert "log.jsonl:1 and 1 more: a schema is left out: not a JSON Schema: 'strin' is not valid" in first
    assert second.endswith("log.jsonl:3: a tool is left out: it has no name")


def test_a_line_without_end_is_not_held(tmp_path, monkeypatch):
    monkeypatch.setattr(requestlog, "MAX_LINE", 200)
    found = log(tmp_path, b"x" * 5000, body(), b"y" * 201)
    assert (found.lines, found.unread_count) == (3, 2)
    assert found.unread[0] == (1, "longer than 0 KiB")
    assert len(found.prompts) == 1


def test_a_file_without_end_is_read_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(requestlog, "MAX_FILE", 200)
    found = log(tmp_path, *[body()] * 50)
    assert found.lines < 10
    assert "only the first" in list(found.notes())[-1]


def test_no_more_is_kept_than_the_bounds_allow(tmp_path, monkeypatch):
    monkeypatch.setattr(requestlog, "MAX_DISTINCT", 3)
    found = log(tmp_path, *[{"prompt": f"number {number}"} for number in range(10)], {"prompt": "number 0"})
    assert [seen.uses for seen in found.prompts.values()] == [2, 1, 1]
    assert any("too many" in note for note in found.notes())
    monkeypatch.setattr(requestlog, "MAX_KEPT", 300)
    many = log(tmp_path, *[{"prompt": f"{number}" * 90} for number in range(9)], body(tools=[TOOL]))
    assert len(many.prompts) < 5
    assert len(many.tools) == 1, "prompts do not take the room of tools"
    monkeypatch.setattr(requestlog, "MAX_ITEM", 100)
    assert not log(tmp_path, {"prompt": "x" * 200}).prompts


@pytest.mark.parametrize(
    ("line", "said", "lines"),
    [
        (1, "no line is a request: the file is empty", []),
        (2, "no line is a request: no request body", [b"", {"a": 1}]),
        (1, "no line is a request: not JSON", [b"schema: servecheck/workload/v1"]),
    ],
)
def test_a_file_that_is_no_log_is_an_error_with_a_hint(tmp_path, line, said, lines):
    with pytest.raises(ScenarioError) as raised:
        log(tmp_path, *lines)
    (problem,) = raised.value.problems
    assert problem.line == line
    assert problem.message.startswith(said)
    assert "one request body a line" in problem.suggestion


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_log(tmp_path / "gone.jsonl")
