"""Scenario files: what loads, what does not and in which words, and that lint tells all of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from pydantic import Field, JsonValue

from servecheck import scenario
from servecheck.errors import ScenarioError, UsageError
from servecheck.lint import lint
from servecheck.model import Check, Feature, Level, Transcript
from servecheck.probe import Judgement, Params, Probe, Session
from servecheck.scenario import Scenario, Tune


class NonceParams(Params):
    prompt: str = Field(description="What is asked.")
    answer_schema: dict[str, JsonValue] = Field(default={}, description="The schema to apply.")
    prompts: tuple[str, ...] = Field(default=(), description="More questions.")
    max_tokens: int = Field(default=64, ge=1, description="How long an answer may be.")


async def nothing_sent(session: Session, params: Params, reference: Transcript | None) -> None: ...


def nothing_judged(transcript: Transcript, params: Params) -> Judgement:
    return ()


def made_up(probe_id: str, params: type[Params], checks: Iterable[str]) -> Probe[Params]:
    return Probe(
        id=probe_id,
        doc=probe_id,
        checks=tuple(Check(id=name, rule=name, level=Level.SHOULD, source="https://e.example") for name in checks),
        params=params,
        drive=nothing_sent,
        judge=nothing_judged,
    )


PROBES = {
    "json_schema": made_up("json_schema", NonceParams, ["schema-applied", "usage-present"]),
    "plain": made_up("plain", Params, ["answers"]),
}
FEATURES = {
    name: Feature(id=name, title=name, question=name, core=True)
    for name in ("structured.json_schema", "structured.json_object", "chat.basic")
}

GOOD = """\
schema: servecheck/scenario/v1
id: json-schema-nonce
title: response_format json_schema shapes the answer
feature: structured.json_schema
probe: json_schema
why: Accepting a schema without applying it fails in production, not in the smoke test.
trials: 3
tags: [smoke]
with:
  prompt: Write a short poem about the sea. Do not use JSON.
  answer_schema: {type: object, properties: {code: {enum: ["$nonce"]}}}
tune:
  usage-present: {level: must, because: "We bill on reported usage."}
needs: [chat.basic]
"""
SMALL = """\
schema: servecheck/scenario/v1
id: small
title: t
feature: chat.basic
probe: plain
why: w
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def written(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load(text: str, name: str = "json-schema-nonce.yaml") -> Scenario:
    return scenario.load(written(name, text), probes=PROBES, features=FEATURES)


def message(text: str, name: str = "json-schema-nonce.yaml") -> str:
    with pytest.raises(ScenarioError) as caught:
        load(text, name)
    return str(caught.value)


def test_the_example_of_the_documentation_loads_whole():
    assert Scenario(
        id="json-schema-nonce",
        title="response_format json_schema shapes the answer",
        feature="structured.json_schema",
        probe="json_schema",
        why="Accepting a schema without applying it fails in production, not in the smoke test.",
        params=NonceParams(
            prompt="Write a short poem about the sea. Do not use JSON.",
            answer_schema={"type": "object", "properties": {"code": {"enum": ["$nonce"]}}},
        ),
        trials=3,
        tags=("smoke",),
        tune={"usage-present": Tune(level=Level.MUST, because="We bill on reported usage.")},
        needs=("chat.basic",),
        path=Path("json-schema-nonce.yaml"),
    ) == load(GOOD)


def test_what_may_be_left_out_may_be_left_out():
    small = load(SMALL, "small.yaml")

    assert (None, (), {}, (), Params()) == (small.trials, small.tags, small.tune, small.needs, small.params)


def test_a_tuned_check_has_the_tuned_level_and_no_other():
    loaded = load(GOOD)
    applied, usage = PROBES["json_schema"].checks

    assert (loaded.level_of(applied), loaded.level_of(usage)) == (Level.SHOULD, Level.MUST)


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


BAD = [
    (
        "misspelt parameter",
        changed("  answer_schema:", "  max_token: 5\n  answer_schema:"),
        "11:3: unknown key 'max_token'\n    max_token: 5\n    ^\n  did you mean 'max_tokens'?",
    ),
    (
        "misspelt parameter in a file",
        changed("  answer_schema:", "  answer_shema_file: x.json\n  max_tokens: 1 #"),
        (
            "11:3: unknown key 'answer_shema_file'\n    answer_shema_file: x.json\n    ^\n"
            "  did you mean 'answer_schema_file'?"
        ),
    ),
    (
        "wrong type of parameter",
        changed("  answer_schema:", "  max_tokens: five\n  answer_schema:"),
        "11:15: expected a whole number, got the text 'five'\n    max_tokens: five\n                ^",
    ),
    (
        "missing parameter",
        changed("  prompt: Write a short poem about the sea. Do not use JSON.\n", ""),
        "9:1: missing key 'prompt' in 'with'\n  with:\n  ^",
    ),
    ("missing key", changed("why: Accepting", "#"), "1:1: missing key 'why'\n  schema: servecheck/scenario/v1\n  ^"),
    (
        "unknown key",
        changed("tags:", "tag:"),
        "8:1: unknown key 'tag'\n  tag: [smoke]\n  ^\n  did you mean 'tags'?",
    ),
    (
        "another version",
        changed("scenario/v1", "scenario/v2"),
        (
            "1:9: expected 'servecheck/scenario/v1', got the text 'servecheck/scenario/v2'\n"
            "  schema: servecheck/scenario/v2\n          ^\n  did you mean 'servecheck/scenario/v1'?"
        ),
    ),
    (
        "id that is not the name of the file",
        changed("id: json-schema-nonce", "id: json-schema"),
        "2:5: the id 'json-schema' differs from the file's name 'json-schema-nonce'\n  id: json-schema\n      ^",
    ),
    (
        "unknown feature",
        changed("feature: structured.json_schema", "feature: structured.json_shema"),
        (
            "4:10: unknown feature 'structured.json_shema'\n  feature: structured.json_shema\n           ^\n"
            "  did you mean 'structured.json_schema'?"
        ),
    ),
    (
        "unknown needed feature",
        changed("needs: [chat.basic]", "needs: [chat.basic, chat.basics]"),
        (
            "14:21: unknown feature 'chat.basics'\n  needs: [chat.basic, chat.basics]\n                      ^\n"
            "  did you mean 'chat.basic'?"
        ),
    ),
    (
        "needing itself",
        changed("needs: [chat.basic]", "needs: [structured.json_schema]"),
        "14:9: a scenario cannot need the feature it counts for\n  needs: [structured.json_schema]\n          ^",
    ),
    (
        "unknown check",
        changed("usage-present", "usage-presnt"),
        (
            "13:3: unknown check of the probe 'json_schema': 'usage-presnt'\n"
            '    usage-presnt: {level: must, because: "We bill on reported usage."}\n    ^\n'
            "  did you mean 'usage-present'?"
        ),
    ),
    (
        "tuning without a reason",
        changed(', because: "We bill on reported usage."', ""),
        "13:3: missing key 'because' in 'usage-present'\n    usage-present: {level: must}\n    ^",
    ),
    (
        "tuning to no level",
        changed("level: must", "level: may"),
        (
            "13:26: expected 'must' or 'should', got the text 'may'\n"
            '    usage-present: {level: may, because: "We bill on reported usage."}\n                           ^'
        ),
    ),
    ("no trials", changed("trials: 3", "trials: 0"), "7:9: expected at least 1, got 0\n  trials: 0\n          ^"),
    (
        "too many trials",
        changed("trials: 3", "trials: 21"),
        "7:9: expected at most 20, got 21\n  trials: 21\n          ^",
    ),
    (
        "a tag twice",
        changed("[smoke]", "[smoke, fast, smoke]"),
        "8:7: 'smoke' is listed twice\n  tags: [smoke, fast, smoke]\n        ^",
    ),
    (
        "a tag that is no word",
        changed("[smoke]", "[Smoke Test]"),
        (
            "8:8: expected a text like ^[a-z0-9]+(-[a-z0-9]+)*$, got the text 'Smoke Test'\n"
            "  tags: [Smoke Test]\n         ^"
        ),
    ),
    (
        "an empty title",
        changed("title: response_format json_schema shapes the answer", "title: ''"),
        "3:8: expected at least 1 character, got the text ''\n  title: ''\n         ^",
    ),
    (
        "parameters that are no mapping",
        changed("with:\n", "with: [1]\nx:\n").replace("x:\n  prompt", "tags2: &x\n  prompt"),
        (
            "9:7: expected a mapping, got a list\n  with: [1]\n        ^\n"
            "json-schema-nonce.yaml:10:1: unknown key 'tags2'\n  tags2: &x\n  ^"
        ),
    ),
]


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_problem_is_told_whole(text, expected):
    assert f"json-schema-nonce.yaml:{expected}" == message(text)


def test_the_parameters_are_missed_where_with_is():
    assert message(SMALL.replace("plain", "json_schema"), "small.yaml") == (
        "small.yaml:1:1: missing key 'prompt' in 'with'\n  schema: servecheck/scenario/v1\n  ^"
    )


def test_where_the_probe_is_unknown_the_rest_is_still_checked():
    text = changed("probe: json_schema", "probe: jsonschema").replace("trials: 3", "trials: many")

    assert (
        message(text.replace("[chat.basic]", "[chat]"))
        == """\
json-schema-nonce.yaml:5:8: unknown probe 'jsonschema'
  probe: jsonschema
         ^
  did you mean 'json_schema'?
json-schema-nonce.yaml:7:9: expected a whole number, got the text 'many'
  trials: many
          ^
json-schema-nonce.yaml:14:9: unknown feature 'chat'
  needs: [chat]
          ^
  known: structured.json_schema, structured.json_object, chat.basic"""
    )


# --------------------------------------------------------------------------- parameters in files


BY_FILE = changed(
    '  answer_schema: {type: object, properties: {code: {enum: ["$nonce"]}}}', "  answer_schema_file: FILE"
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_schemas/a.yaml", "type: object\nenum: [no]\n"),
        ("_schemas/a.yml", "{type: object, enum: ['no']}"),
        ("_schemas/a.json", '{\n\t"type": "object",\n\t"enum": ["no"]\n}\n'),
    ],
)
def test_a_parameter_may_be_the_data_of_a_file(name, text):
    written(f"group/{name}", text)

    loaded = load(BY_FILE.replace("FILE", name), "group/json-schema-nonce.yaml")

    assert isinstance(loaded.params, NonceParams)
    assert loaded.params.answer_schema == {"type": "object", "enum": ["no"]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no: a\n", "no: a"),
        ("two\n\n", "two\n"),
        ("none", "none"),
        ("dos\r\n", "dos"),
        ("", ""),
        ("\ttab é\n", "\ttab é"),
    ],
)
def test_a_parameter_may_be_the_text_of_a_file_less_its_last_line_break(text, value):
    Path("_p.md").write_bytes(text.encode())

    loaded = load(changed("  prompt: Write a short poem about the sea. Do not use JSON.", "  prompt_file: _p.md"))

    assert isinstance(loaded.params, NonceParams)
    assert value == loaded.params.prompt


FILE_LINE = "    answer_schema_file: FILE\n                        ^"
BAD_FILES = [
    ("none.yaml", "", "json-schema-nonce.yaml:11:23: no such file: none.yaml\n{}"),
    ("a.toml", "", "json-schema-nonce.yaml:11:23: expected a file that ends in .yaml, .yml, .json, .txt, .md\n{}"),
    ("/etc/a.yaml", "", "json-schema-nonce.yaml:11:23: expected a path relative to this file\n{}"),
    ("[a.yaml]", "", "json-schema-nonce.yaml:11:23: expected the name of a file, got a list\n{}"),
    ("_a.yaml", "[1]", "_a.yaml:1:1: expected a mapping, got a list\n  [1]\n  ^"),
    ("_a.txt", "words", "_a.txt:1:1: expected a mapping, got the text 'words'\n  words\n  ^"),
    ("_a.yaml", "a: 1\na: 2\n", "_a.yaml:2:1: duplicate key 'a'; the first is in line 1\n  a: 2\n  ^"),
    (
        "_a.yaml",
        "a: @\n",
        "_a.yaml:1:4: not valid YAML: a text cannot begin with '@'\n  a: @\n     ^\n  put it in quotes",
    ),
    (
        "_a.json",
        "{a: 1}",
        "_a.json:1:2: not JSON: expecting property name enclosed in double quotes\n  {a: 1}\n   ^",
    ),
]


@pytest.mark.parametrize(("name", "text", "expected"), BAD_FILES)
def test_what_is_wrong_with_a_file_of_a_parameter_is_told_once_and_where_it_is(name, text, expected):
    if text:
        written(name, text)

    shown = FILE_LINE.replace("FILE", name)
    assert expected.replace("{}", shown) == message(BY_FILE.replace("FILE", name))


def test_a_parameter_is_not_given_twice():
    written("_a.yaml", "{}")

    assert message(changed("  answer_schema:", "  answer_schema_file: _a.yaml\n  answer_schema:")) == (
        "json-schema-nonce.yaml:11:3: 'answer_schema_file' and 'answer_schema' are both given\n"
        "    answer_schema_file: _a.yaml\n    ^"
    )


def test_a_number_does_not_come_from_a_file():
    assert message(changed("  answer_schema:", "  max_tokens_file: _a.yaml\n  answer_schema:")) == (
        "json-schema-nonce.yaml:11:3: unknown key 'max_tokens_file'\n    max_tokens_file: _a.yaml\n    ^\n"
        "  did you mean 'max_tokens'?"
    )


# --------------------------------------------------------------------------- many files


def small(name: str) -> Path:
    return written(name, SMALL.replace("id: small", f"id: {Path(name).stem}"))


def test_folders_are_read_recursively_and_files_once_and_in_order():
    for name in ("s/b/two.yaml", "s/a/three.yml", "s/one.yaml", "s/_data/x.yaml", "s/.hidden/y.yaml", "s/_z.yaml"):
        small(name)
    written("s/notes.md", "# no scenario")

    loaded = scenario.load_all([Path("s/one.yaml"), Path("s")], probes=PROBES, features=FEATURES)

    assert [item.id for item in loaded] == ["one", "three", "two"]


def test_all_problems_of_all_files_are_told_at_once():
    written("s/a.yaml", SMALL.replace("id: small", "id: a").replace("plain", "plan"))
    written("s/b.yaml", "a: *x\n")
    written("s/c.yaml", SMALL.replace("id: small", "id: c").replace("why: w", "trials: 0"))

    with pytest.raises(ScenarioError) as caught:
        scenario.load_all([Path("s")], probes=PROBES, features=FEATURES)

    assert (
        str(caught.value)
        == """\
s/a.yaml:5:8: unknown probe 'plan'
  probe: plan
         ^
  did you mean 'plain'?
s/b.yaml:1:4: not valid YAML: no anchor '&x' before this alias
  a: *x
     ^
s/c.yaml:1:1: missing key 'why'
  schema: servecheck/scenario/v1
  ^
s/c.yaml:6:9: expected at least 1, got 0
  trials: 0
          ^"""
    )


def test_an_id_belongs_to_one_file():
    small("s/a/same.yaml")
    small("s/b/same.yaml")

    with pytest.raises(ScenarioError) as caught:
        scenario.load_all([Path("s")], probes=PROBES, features=FEATURES)

    assert str(caught.value) == ("s/b/same.yaml:2:5: the id 'same' is taken by s/a/same.yaml\n  id: same\n      ^")


def test_a_folder_may_hold_files_of_other_formats_but_not_misspelt_scenarios():
    small("s/one.yaml")
    written("s/endpoints.yaml", "schema: servecheck/endpoints/v1\n")
    assert [item.id for item in scenario.load_all([Path("s")], probes=PROBES, features=FEATURES)] == ["one"]

    written("s/two.yaml", SMALL.replace("scenario/v1", "scenaro/v1").replace("id: small", "id: two"))
    with pytest.raises(ScenarioError, match="did you mean 'servecheck/scenario/v1'"):
        scenario.load_all([Path("s")], probes=PROBES, features=FEATURES)
    with pytest.raises(ScenarioError, match=r"s/endpoints\.yaml:1:9: expected 'servecheck/scenario/v1'"):
        scenario.load_all([Path("s/endpoints.yaml")], probes=PROBES, features=FEATURES)


@pytest.mark.parametrize(("path", "expected"), [("none", "no such file or folder: none"), (".", "no YAML file in .")])
def test_a_path_without_scenarios_is_a_usage_error(path, expected):
    with pytest.raises(UsageError) as caught:
        scenario.load_all([Path(path)], probes=PROBES, features=FEATURES)

    assert expected == str(caught.value)


def test_lint_tells_the_problems_of_scenarios_and_endpoints_and_nothing_of_good_files():
    small("s/one.yaml")
    written("s/e.yaml", "schema: servecheck/endpoints/v1\nendpoints: {gpu: {base_url: 'ftp://x'}}\n")
    written("s/x.yaml", "schema: servecheck/notes/v1\n")
    written("s/two.yaml", SMALL)

    problems = lint([Path("s")], probes=PROBES, features=FEATURES)

    assert [str(problem).splitlines()[0] for problem in problems] == [
        "s/two.yaml:2:5: the id 'small' differs from the file's name 'two'",
        "s/e.yaml:2:29: expected a URL that begins with http:// or https://",
    ]
    assert lint([Path("s/one.yaml")], probes=PROBES, features=FEATURES) == []


def test_the_built_in_folder_is_the_wheels_or_the_checkouts(tmp_path, monkeypatch):
    monkeypatch.setattr(scenario, "__file__", str(tmp_path / "servecheck" / "scenario.py"))
    with pytest.raises(UsageError, match="no built-in scenarios"):
        scenario.builtin_dir()
    (tmp_path / "scenarios").mkdir()
    assert tmp_path / "scenarios" == scenario.builtin_dir()
    (tmp_path / "servecheck" / "_scenarios").mkdir(parents=True)
    assert tmp_path / "servecheck" / "_scenarios" == scenario.builtin_dir()
