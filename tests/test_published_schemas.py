"""The published draft-07 schemas: fresh, valid, and of one mind with the loaders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from pydantic import Field

from servecheck import endpoints, scenario, schema
from servecheck.errors import ScenarioError
from servecheck.model import Level
from servecheck.probe import Params
from servecheck.schema import publish
from servecheck.yamlfile import read
from tests.test_scenario import FEATURES, GOOD, PROBES, SMALL, changed, made_up


class Limits(Params):
    low: int = Field(default=0, ge=0)
    high: float | None = None


class ManyParams(Params):
    """What all kinds of parameters look like."""

    pair: tuple[int, str] = Field(default=(1, "a"), description="Two things.")
    level: Level = Field(default=Level.MUST, description="One of two words.")
    limits: Limits = Field(default=Limits(), description="From and to.")
    title: str | list[str] = "t"


ALL = {**PROBES, "many": made_up("many", ManyParams, ["many-held"])}
SCENARIO = publish.scenario_json_schema(ALL)
ENDPOINTS = publish.endpoints_json_schema()


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["scenario.v1.json", "endpoints.v1.json"])
def test_the_committed_schema_is_fresh(name):
    committed = (Path(schema.__file__).parent / name).read_text(encoding="utf-8")

    assert publish.published()[name] == committed, "run: python -m servecheck.schema.publish"


def test_writing_writes_what_is_published(tmp_path):
    publish.write(tmp_path)

    assert publish.published() == {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}


@pytest.mark.parametrize("made", [SCENARIO, ENDPOINTS, publish.scenario_json_schema({})], ids=["s", "e", "empty"])
def test_a_schema_is_valid_draft_07_and_says_nothing_of_later_drafts(made):
    Draft7Validator.check_schema(made)

    assert made["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert set() == _words(made) & {
        "$defs",
        "prefixItems",
        "unevaluatedProperties",
        "dependentSchemas",
        "discriminator",
    }
    for node in _nodes(made):
        if "$ref" in node:
            assert {"$ref"} == set(node), "draft-07 ignores what stands beside $ref"
            assert node["$ref"].removeprefix("#/definitions/") in made["definitions"]


def _nodes(value: Any):
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _nodes(item)
    elif isinstance(value, list):
        for item in value:
            yield from _nodes(item)


def _words(value: Any) -> set[str]:
    return {key for node in _nodes(value) for key in node}


def test_descriptions_of_fields_and_checks_reach_the_editor():
    definitions = SCENARIO["definitions"]

    assert definitions["with.json_schema"]["properties"]["prompt"]["description"] == "What is asked."
    assert (
        definitions["with.json_schema"]["properties"]["prompt_file"]["description"]
        == "A file that holds 'prompt', relative to this one."
    )
    (branch,) = [item for item in SCENARIO["allOf"] if item["if"]["properties"]["probe"]["const"] == "many"]
    assert (
        branch["then"]["properties"]["tune"]["properties"]["many-held"]["description"]
        == "many-held (should unless tuned)"
    )


def test_with_the_rows_given_the_schema_knows_them():
    validator = Draft7Validator(publish.scenario_json_schema(ALL, FEATURES))
    good = {**_data(SMALL), "needs": ["structured.json_object"]}

    assert validator.is_valid(good)
    assert not validator.is_valid({**good, "feature": "chat.basics"})
    assert not validator.is_valid({**good, "needs": ["chat.basics"]})


def _data(text: str) -> Any:
    path = Path("data.yaml")
    path.write_text(text, encoding="utf-8")
    return read(path).data


def _many(with_: str) -> str:
    return SMALL.replace("probe: plain", "probe: many") + f"with: {with_}\n"


BOTH_SAY_YES = [
    GOOD,
    SMALL,
    SMALL + "with: {}\ntune: {}\nneeds: []\ntags: []\ntrials: null\n",
    changed("trials: 3", "trials: 20"),
    changed("  prompt: Write", "  prompt_file: _p.txt #"),
    changed("  answer_schema:", "  prompts: [a, b]\n  answer_schema:"),
    _many("{pair: [2, b], level: should, limits: {low: 1, high: 2}, title: [a]}"),
    _many("{limits_file: _l.json, title_file: _t.md}"),
    _many("{limits: {high: null}}"),
]
BOTH_SAY_NO = [
    "[]",
    changed("trials: 3", "trials: 0"),
    changed("trials: 3", "trials: 21"),
    changed("trials: 3", "trials: '3'"),
    changed("scenario/v1", "scenario/v2"),
    changed("[smoke]", "[smoke, smoke]"),
    changed("[smoke]", "[Smoke]"),
    changed("[smoke]", "smoke"),
    changed("[chat.basic]", "[chat.basic, chat.basic]"),
    changed("title: response_format", "title: ''\nx: response_format"),
    changed("title: response_format", "title: true\n#"),
    changed("why: Accepting", "#"),
    changed("tags:", "tag:"),
    changed("probe: json_schema", "probe: jsonschema"),
    changed("usage-present", "answers"),
    changed("level: must", "level: may"),
    changed(', because: "We bill on reported usage."', ""),
    changed("  prompt: Write", "  #"),
    changed("  prompt: Write", "  prompt_file: _p.txt\n  prompt: Write"),
    changed("  prompt: Write", "  prompt_file: _p.toml #"),
    changed("  prompt: Write", "  prompt_file: /_p.txt #"),
    changed("  prompt: Write", "  prompt_file: [] #"),
    changed("  answer_schema:", "  max_tokens_file: _p.txt\n  answer_schema:"),
    changed("  answer_schema:", "  max_token: 1\n  answer_schema:"),
    changed("  answer_schema:", "  max_tokens: 0\n  answer_schema:"),
    changed("  answer_schema:", "  max_tokens: many\n  answer_schema:"),
    SMALL.replace("probe: plain", "probe: json_schema"),
    SMALL + "with: {prompt: x}\n",
    SMALL + "with: []\n",
    SMALL.replace("id: small", "id: Small"),
    _many("{pair: [2]}"),
    _many("{pair: [2, b, c]}"),
    _many("{pair: [b, 2]}"),
    _many("{level: may}"),
    _many("{level_file: _p.txt}"),
    _many("{limits: {low: -1}}"),
    _many("{limits: {mid: 1}}"),
    _many("{title: 5}"),
]


def _loads(text: str) -> bool:
    Path("_p.txt").write_text("p")
    Path("_t.md").write_text("t")
    Path("_l.json").write_text('{"low": 1}')
    said = "Small" if "id: Small" in text else "small" if "id: small" in text else "json-schema-nonce"
    path = Path(f"{said}.yaml")
    path.write_text(text, encoding="utf-8")
    try:
        scenario.load(path, probes=ALL, features=FEATURES)
    except ScenarioError:
        return False
    return True


@pytest.mark.parametrize("text", BOTH_SAY_YES)
def test_what_the_loader_takes_the_schema_takes(text):
    assert (_loads(text), [error.message for error in Draft7Validator(SCENARIO).iter_errors(_data(text))]) == (True, [])


@pytest.mark.parametrize("text", BOTH_SAY_NO)
def test_what_the_loader_refuses_the_schema_refuses(text):
    assert (_loads(text), Draft7Validator(SCENARIO).is_valid(_data(text))) == (False, False)


HEAD = "schema: servecheck/endpoints/v1\nendpoints:"
ENDPOINTS_YES = [
    f"{HEAD} [{{name: gpu, base_url: 'http://h:1'}}]",
    f"{HEAD} {{gpu: {{base_url: 'HTTPS://h/@x/v1', model: m, reference: true, kind: embedding}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', api_key_env: none, headers: {{A: b}}, headers_env: {{C: D}}}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', proxy: 'http://p:1', metrics_url: 'http://h:2/m', declared: {{a: b}}}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', allow_insecure_key: true, model: null, declared: {{}}}}}}",
]
ENDPOINTS_NO = [
    "[]",
    "endpoints: [{name: gpu, base_url: 'http://h'}]",
    f"{HEAD} []",
    f"{HEAD} {{}}",
    f"{HEAD} gpu",
    f"{HEAD} [{{base_url: 'http://h'}}]",
    f"{HEAD} [{{name: gpu}}]",
    f"{HEAD} [{{name: GPU, base_url: 'http://h'}}]",
    f"{HEAD} {{GPU: {{base_url: 'http://h'}}}}",
    f"{HEAD} {{{'g' * 41}: {{base_url: 'http://h'}}}}",
    f"{HEAD} {{gpu: {{name: gpu, base_url: 'http://h'}}}}",
    f"{HEAD} {{gpu: {{base_url: 'ftp://h'}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://me:pw@h'}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h?x'}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h/#x'}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http:///v1'}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', metrics_url: h}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', proxy: 'http://me@p'}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', api_key_env: sk-123}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', api_key: X}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', headers: {{A: 1}}}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', headers_env: {{A: 'b c'}}}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', kind: video}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', reference: on}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', declared: {{A: b}}}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', declared: {{a: 1}}}}}}",
    f"{HEAD} {{gpu: {{base_url: 'http://h', model: ''}}}}",
]


def _endpoints_load(text: str) -> bool:
    path = Path("endpoints.yaml")
    path.write_text(text, encoding="utf-8")
    try:
        endpoints.load_file(path)
    except ScenarioError:
        return False
    return True


@pytest.mark.parametrize("text", ENDPOINTS_YES)
def test_endpoints_that_the_loader_takes_the_schema_takes(text):
    errors = [error.message for error in Draft7Validator(ENDPOINTS).iter_errors(_data(text))]

    assert (_endpoints_load(text), errors) == (True, [])


@pytest.mark.parametrize("text", ENDPOINTS_NO)
def test_endpoints_that_the_loader_refuses_the_schema_refuses(text):
    assert (_endpoints_load(text), Draft7Validator(ENDPOINTS).is_valid(_data(text))) == (False, False)
