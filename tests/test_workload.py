"""A workload file gives items, problems with their places, and one scenario an item; nothing runs without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servecheck import features, plan, scenario
from servecheck.endpoints import resolve
from servecheck.errors import ScenarioError
from servecheck.lint import lint
from servecheck.probes import discover
from servecheck.workload import Workload, load

PROBES = discover()
SCENARIOS = scenario.load_all([scenario.builtin_dir()], probes=PROBES, features=features.BY_ID)
ENDPOINTS = resolve(["one=http://127.0.0.1:1/v1"], environ={})
EXAMPLE = Path(__file__).parent.parent / "examples" / "workload" / "workload.yaml"
SCHEMA = {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}}, "required": ["mood"]}
TOOL = {"type": "function", "function": {"name": "book", "parameters": {"type": "object", "properties": {}}}}
HEAD = "schema: servecheck/workload/v1\n"


def put(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def loaded(folder: Path, text: str) -> Workload:
    return load(put(folder, "workload.yaml", HEAD + text))


def names(found: Workload) -> list[str]:
    return [item.name for item in found.items]


# --------------------------------------------------------------------------- what is read


def test_schemas_tools_and_prompts_come_from_files_and_inline(tmp_path):
    put(tmp_path, "mood.json", SCHEMA)
    put(tmp_path, "tools.json", [TOOL, {"name": "flat", "parameters": {}}])
    put(tmp_path, "ask.txt", "How are you?\n")
    found = loaded(
        tmp_path,
        """
json_schemas:
  mood: {file: mood.json, prompt: I am fine.}
  other: {inline: {type: object}, strict: null}
tools:
  - file: tools.json
  - inline: {type: function, function: {name: third, strict: true}}
prompts:
  ask: {file: ask.txt}
  say: {text: Hello}
  chat: {messages: [{role: user, content: Hi}]}
""",
    )
    assert names(found) == ["mood", "other", "book", "flat", "third"]
    mood, other, book = found.items[:3]
    assert (mood.body, mood.strict, mood.messages) == (SCHEMA, True, [{"role": "user", "content": "I am fine."}])
    assert (other.strict, other.uses, other.place) == (None, None, f"{tmp_path}/workload.yaml:5")
    assert (book.body, book.place) == (TOOL, f"{tmp_path}/tools.json:1")
    assert [(prompt.name, prompt.messages) for prompt in found.prompts] == [
        ("ask", [{"role": "user", "content": "How are you?\n"}]),
        ("say", [{"role": "user", "content": "Hello"}]),
        ("chat", [{"role": "user", "content": "Hi"}]),
    ]


@pytest.mark.parametrize(
    ("strict", "wrapped"),
    [
        (False, {"type": "json_schema", "json_schema": {"name": "x", "strict": False, "schema": SCHEMA}}),
        (None, {"type": "json_schema", "name": "x", "schema": SCHEMA}),
    ],
)
def test_a_whole_response_format_may_stand_for_its_schema(tmp_path, strict, wrapped):
    put(tmp_path, "format.json", wrapped)
    (item,) = loaded(tmp_path, "json_schemas: {mood: {file: format.json}}").items
    assert (item.name, item.body, item.strict) == ("mood", SCHEMA, strict)


def test_a_log_counts_uses_and_what_the_file_names_keeps_its_name_and_place(tmp_path):
    shaped = {"type": "json_schema", "json_schema": {"name": "m", "strict": True, "schema": SCHEMA}}
    lines = [
        {"messages": [{"role": "user", "content": "a"}], "response_format": shaped},
        {"messages": [{"role": "user", "content": "b"}], "response_format": shaped, "tools": [TOOL]},
        {"messages": [{"role": "user", "content": "b"}], "guided_json": {"type": "array"}},
    ]
    put(tmp_path, "log.jsonl", "\n".join([*map(json.dumps, lines), "{"]))
    found = loaded(tmp_path, "json_schemas: {mood: {inline: " + json.dumps(SCHEMA) + "}}\nrequest_logs: [log.jsonl]")
    assert [(item.name[:7], item.uses, item.named) for item in found.items] == [
        ("mood", 2, True),
        ("schema-", 1, False),
        ("book", 1, False),
    ]
    assert found.items[0].place.endswith("workload.yaml:2")
    assert found.items[0].messages == [{"role": "user", "content": "a"}]
    assert [(prompt.messages, prompt.uses) for prompt in found.prompts] == [
        ([{"role": "user", "content": "b"}], 2),
        ([{"role": "user", "content": "a"}], 1),
    ]
    (note,) = found.notes
    assert "1 of 4 lines could not be read (line 4: not JSON" in note


def test_a_log_is_a_workload_by_itself(tmp_path):
    line = {"messages": [{"role": "user", "content": "a"}], "tools": [TOOL]}
    found = load(put(tmp_path, "log.jsonl", json.dumps(line)))
    assert [(item.kind, item.name, item.place) for item in found.items] == [("tool", "book", f"{tmp_path}/log.jsonl:1")]


def test_the_most_used_are_run_and_how_many_are_not_is_said(tmp_path):
    lines = [
        json.dumps({"prompt": "a", "guided_json": {"title": f"s{number}", "type": "object"}})
        for number in range(6)
        for _ in range(number + 1)
    ]
    put(tmp_path, "log.jsonl", "\n".join(lines))
    found = loaded(tmp_path, "at_most: 2\nrequest_logs: [log.jsonl]")
    assert names(found) == ["s5", "s4"]
    (note,) = found.notes
    assert note.startswith("6 distinct schemas: the 2 most used are run; 4 are not, which are used 10 times in all (")


def test_unlike_things_of_one_name_get_names_of_their_own_whatever_the_name(tmp_path):
    long, schemas = "n" * 300, 40
    lines = [
        json.dumps({"prompt": "a", "guided_json": {"title": long, "type": "object", "maxProperties": number}})
        for number in range(schemas)
    ]
    odd = [
        json.dumps({"prompt": "a", "guided_json": {"title": title, "type": "object"}})
        for title in ("Größe/1", "日本", "本日")
    ]
    found = load(put(tmp_path, "log.jsonl", "\n".join(lines + odd)))
    planned = plan.make(ENDPOINTS, SCENARIOS, PROBES, settings=plan.Settings(), workload=found)
    assert planned.workload is not None
    assert len({item.scenario for item in planned.workload.items}) == schemas + len(odd)


# --------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("place", "said", "text"),
    [
        ("workload.yaml:2:1", "unknown key 'json_schema'\n", "json_schema: {}"),
        ("workload.yaml:2:22", "expected exactly one of file and inline, got none", "json_schemas: {mood: {}}"),
        ("workload.yaml:2:22", "got file and inline", "json_schemas: {mood: {file: a.json, inline: {}}}"),
        ("workload.yaml:2:29", "no such file", "json_schemas: {mood: {file: gone.json}}"),
        ("workload.yaml:2:29", "is a folder", "json_schemas: {mood: {file: .}}"),
        ("workload.yaml:2:38", "'strin' is not valid", "json_schemas: {mood: {inline: {type: strin}}}"),
        ("bad.json:3:32", "not a JSON Schema: 'strin'", "json_schemas: {mood: {file: bad.json}}"),
        ("broken.json:1:2", "not JSON", "json_schemas: {mood: {file: broken.json}}"),
        ("workload.yaml:2:18", "expected a tool", "tools: [{inline: {type: function}}]"),
        (
            "workload.yaml:2:58",
            "leads nowhere",
            "tools: [{inline: {function: {name: x, parameters: {$ref: '#/gone'}}}}]",
        ),
        ("workload.yaml:2:16", "no such file", "request_logs: [gone.jsonl]"),
        ("empty.jsonl:1:1", "no line is a request", "request_logs: [empty.jsonl]"),
        ("workload.yaml:2:10", "at least 1, got 0", "at_most: 0"),
        ("workload.yaml:1:1", "names no schema, no tool, no prompt and no log", "at_most: 3"),
        ("workload.yaml:2:31", "larger than 64 KiB", "json_schemas: {mood: {inline: {title: " + "x" * 70_000 + "}}}"),
    ],
)
def test_a_problem_is_shown_at_its_place(tmp_path, place, said, text):
    put(tmp_path, "bad.json", '{\n  "type": "object",\n  "properties": {"a": {"type": "strin"}}\n}')
    put(tmp_path, "broken.json", "{a: 1}")
    put(tmp_path, "empty.jsonl", "")
    with pytest.raises(ScenarioError) as raised:
        loaded(tmp_path, text)
    shown = f"{raised.value}\n"
    assert f"{tmp_path}/{place}: " in shown
    assert said in shown


def test_a_wrong_key_and_files_that_are_not_there_are_told_at_once(tmp_path):
    text = "json_schemas:\n  a: {file: no.json, promt: x}\nrequest_logs: [no.jsonl]\n"
    with pytest.raises(ScenarioError) as raised:
        loaded(tmp_path, text)
    assert [(each.line, each.message.partition(":")[0]) for each in raised.value.problems] == [
        (3, "no such file"),
        (3, "unknown key 'promt'"),
        (4, "no such file"),
    ]


def test_lint_knows_workload_files_also_in_folders(tmp_path):
    put(tmp_path, "workload.yaml", HEAD + "json_schemas: {mood: {file: gone.json}}")
    (problem,) = lint([tmp_path], probes=PROBES, features=features.BY_ID)
    assert problem.message.startswith("no such file")
    assert lint([EXAMPLE], probes=PROBES, features=features.BY_ID) == []


# --------------------------------------------------------------------------- what is run


def planned(workload: Workload | None, *globs: str) -> plan.Plan:
    return plan.make(ENDPOINTS, SCENARIOS, PROBES, settings=plan.Settings(), globs=globs, workload=workload)


def test_without_a_workload_nothing_of_it_is_planned():
    made = planned(None)
    assert made.workload is None
    assert not any(PROBES[one.probe].per_item for one in made.scenarios)


def test_each_item_becomes_a_scenario_of_an_existing_row_and_costs_what_the_plan_says():
    found = load(EXAMPLE)
    made = planned(found, "structured.json_schema", "tools.required")
    own = [one for one in made.scenarios if PROBES[one.probe].per_item]
    assert [(one.id, one.feature) for one in own][:2] == [
        ("workload-schema-invoice-number", "structured.json_schema"),
        ("workload-schema-ticket", "structured.json_schema"),
    ]
    assert {one.id: one.params.model_dump()["tool"]["function"].get("strict") for one in own[-2:]} == {
        "workload-tool-book-room": None,
        "workload-tool-close-ticket": True,
    }
    without = planned(None, "structured.json_schema", "tools.required")
    assert made.estimate.requests - without.estimate.requests == sum(PROBES[one.probe].requests for one in own)
    assert made.workload is not None
    assert [item.scenario for item in made.workload.items if item.kind == "schema"] == [one.id for one in own[:7]]


def test_rows_that_are_not_selected_take_their_items_with_them():
    made = planned(load(EXAMPLE), "tools.required")
    assert made.workload is not None
    assert {item.kind for item in made.workload.items} == {"tool"}


@pytest.mark.parametrize("suite", plan.SUITES)
def test_every_suite_runs_a_workload_that_is_given(suite):
    made = plan.make(ENDPOINTS, SCENARIOS, PROBES, settings=plan.Settings(suite=suite), workload=load(EXAMPLE))
    assert made.workload is not None
    assert len(made.workload.items) == 9


def test_scenarios_of_ones_own_get_the_patterns_that_they_lack():
    mine = [one for one in SCENARIOS if one.id == "plain-answer"]
    more = scenario.with_patterns(mine, probes=PROBES, features=features.BY_ID)
    assert {one.probe for one in more} == {"chat_basic", "workload_schema", "workload_tool"}
