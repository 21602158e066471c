"""Known upstream issues: the lists that come along, and which of them a cell looks like."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from servecheck import features, known_issues, scenario, verdict
from servecheck.errors import ScenarioError
from servecheck.judging import BUILT_IN_CHECKS
from servecheck.lint import lint
from servecheck.model import Cell, Finding, Fingerprint, How, Kind, Known, Observed, Outcome, Status
from servecheck.probes import discover
from servecheck.stacks import ENGINES, STACKS
from servecheck.yamlfile import read
from tests.replay import ENTRIES

PROBES = discover()
CHECKS: dict[str, set[str]] = {}
for each in scenario.load_all([scenario.builtin_dir()], probes=PROBES, features=features.BY_ID):
    CHECKS.setdefault(each.feature, {check.id for check in BUILT_IN_CHECKS}).update(
        check.id for check in PROBES[each.probe].checks
    )
TPU = {"engine": "vllm", "engine_version": "0.32.0", "tpu_stack": "tpu-inference", "model": "Qwen/Qwen3-4B"}
SAMPLER = "https://github.com/vllm-project/tpu-inference/blob/main/tpu_inference/layers/jax/sample/sampling_metadata.py"


def known(**fields: str) -> Fingerprint:
    return Fingerprint(fields={name: Known(value=value, how=How.OBSERVED) for name, value in fields.items()})


def cell(
    row: str, check: str = "some-check", outcome: Outcome = Outcome.VIOLATED, why: str = "", status=Status.BROKEN
) -> Cell:
    found = Finding(check=check, outcome=outcome, why=why)
    return Cell(feature=row, endpoint="tpu", status=status, reason="r", findings=(found,))


def prop(row: str, value: str) -> Cell:
    seen = Observed(value=value, why="seen")
    return Cell(
        feature=row,
        endpoint="tpu",
        status=Status.SUPPORTED,
        reason="",
        kind=Kind.PROPERTY,
        value=value,
        observed=(seen,),
    )


def titles(one: Cell, **fields: str) -> list[str]:
    return [found.reference for found in known_issues.matching(one, known(**fields), known_issues.builtins())]


@pytest.mark.parametrize("path", known_issues.builtin(), ids=lambda path: path.stem)
def test_a_built_in_file_is_right_and_names_rows_checks_engines_and_stacks_that_exist(path):
    found = known_issues.load(path, features=features.BY_ID, checks=CHECKS)
    assert [one.engine for one in found if one.engine not in ENGINES] == []
    assert {name for one in found for name in one.stacks} <= {stack.id for stack in STACKS}


def test_the_engines_of_the_corpus_are_seeded_from_it():
    cited = {one.reference for one in known_issues.builtins()}
    trackers = {repository for names in ENGINES.values() for repository in names} | {"vllm-project/tpu-inference"}
    mine = {entry.source for entry in ENTRIES.values() if entry.source.partition("#")[0] in trackers}
    missing = {source for source in mine if f"https://github.com/{source.replace('#', '/issues/')}" not in cited}
    # No fault (a field that was renamed), and a property that has no value yet.
    assert missing == {"vllm-project/vllm#50624", "vllm-project/vllm#23138"}


@pytest.mark.parametrize(
    ("one", "fields", "expected"),
    [
        (cell("sampling.logit_bias", outcome=Outcome.NO_EFFECT), TPU, [SAMPLER]),
        (cell("sampling.logit_bias", outcome=Outcome.VIOLATED), TPU, []),
        (cell("sampling.logit_bias", outcome=Outcome.NO_EFFECT), TPU | {"tpu_stack": "sgl-jax"}, []),
        (cell("sampling.logit_bias", outcome=Outcome.NO_EFFECT), {"engine": "vllm"}, []),
        (cell("sampling.logit_bias", outcome=Outcome.NO_EFFECT), {"engine": "vllm", "device": "cuda"}, []),
        (cell("sampling.logit_bias", outcome=Outcome.NO_EFFECT), {"engine": "sglang"}, []),
        (
            cell("sampling.logit_bias", outcome=Outcome.NO_EFFECT),
            {"engine": "vllm", "tpu_stack": "TorchTPU"},
            ["https://github.com/kowalski-4831/vllm-torchtpu"],
        ),
    ],
)
def test_what_is_not_known_of_the_server_rules_an_issue_out(one, fields, expected):
    assert titles(one, **fields) == expected


SEED = cell("sampling.seed", outcome=Outcome.REFUSED, why="400: JAX does not support per-request seed.")


@pytest.mark.parametrize(
    ("fields", "matches"),
    [({}, True), ({"engine": "vllm"}, True), ({"engine": "sglang"}, False), ({"device": "cuda"}, False)],
)
def test_the_servers_own_words_stand_for_what_is_not_known_of_it_and_not_against_what_is(fields, matches):
    found = titles(SEED, **fields)
    assert matches is any("tpu_platform.py" in reference for reference in found)


@pytest.mark.parametrize(
    ("version", "versions", "fixed_in", "matches"),
    [
        ("0.32.0", ">=0.12", None, True),
        ("0.11.3", ">=0.12", None, False),
        ("0.32.1.dev3+gabc", ">=0.32", None, True),
        ("b1234-abc", ">=0.12", None, True),
        (None, ">=0.12", None, True),
        ("0.32.0", "some nightly builds", None, True),
        ("0.32.0", None, "0.32.0", False),
        ("0.31.9", None, "0.32.0", True),
        ("0.31.9", None, "not released yet", True),
    ],
)
def test_a_version_rules_out_only_where_both_sides_are_known(version, versions, fixed_in, matches):
    issue = replace(known_issues.builtins()[0], versions=versions, fixed_in=fixed_in, engine="vllm", checks=())
    issue = replace(issue, rows=("chat.stop",), stacks=(), hardware=(), architecture=None, said=None)
    fields = {"engine": "vllm"} | ({"engine_version": version} if version else {})
    assert matches is bool(known_issues.matching(cell("chat.stop"), known(**fields), [issue]))


@pytest.mark.parametrize(
    ("fields", "matches"),
    [
        ({"model": "openai/gpt-oss-20b"}, True),
        ({"model": "Qwen/Qwen3-4B"}, False),
        ({"model": "mine", "architecture": "GptOssForCausalLM"}, True),
        ({"model": "gpt-oss-distilled", "architecture": "Qwen3ForCausalLM"}, False),
    ],
)
def test_the_architecture_speaks_before_the_models_name(fields, matches):
    found = titles(cell("chat.basic"), **TPU | fields)
    assert matches is any(reference.endswith("tpu-inference/issues/861") for reference in found)


def test_a_property_is_known_by_what_it_says():
    assert "https://github.com/vllm-project/vllm/issues/53975" in titles(
        prop("structured.legacy_guided", "ignored"), **TPU
    )
    assert titles(prop("structured.legacy_guided", "refused"), **TPU) == []


@pytest.mark.parametrize("status", [Status.SUPPORTED, Status.SKIPPED, Status.ERROR])
def test_a_cell_that_is_fine_or_ours_is_not_looked_at(status):
    assert titles(cell("sampling.min_p", outcome=Outcome.NO_EFFECT, status=status), **TPU) == []


def test_a_cell_names_five_issues_at_most_and_those_about_its_check_first():
    one = cell("structured.json_schema", check="reply-comes-within-the-deadline")
    assert titles(one, **TPU)[0] == "https://github.com/vllm-project/vllm/issues/44269"
    issues = [replace(known_issues.builtins()[0], reference=f"https://x.example/{n}", rows=("a.b",)) for n in range(9)]
    issues = [replace(issue, checks=(), stacks=(), engine="vllm") for issue in issues]
    assert len(known_issues.matching(cell("a.b"), known(engine="vllm"), issues)) == 5


def test_a_known_issue_decides_nothing():
    cells = (cell("structured.json_schema", check="schema-shapes-the-answer"),)
    marked = known_issues.applied(cells, {"tpu": known(**TPU)})
    assert marked[0].known_issues
    before, after = (verdict.decide(each, (), features.FEATURES, reference=None) for each in (cells, marked))
    assert before == after


FILE = """schema: servecheck/known-issues/v1
engine: vllm
issues:
  - title: It breaks.
    reference: https://example.org/1
    rows: [chat.stp]
    checks: [stop-strings-stop]
    versions: "{versions}"
    confidence: {confidence}
    as_of: 2026-11-30
"""


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "unknown row 'chat.stp'"),
        ({"versions": ">=0.1 or so"}, "not a range of versions"),
        ({"confidence": "rumour"}, "confidence"),
    ],
)
def test_lint_knows_the_format(tmp_path, values, said):
    path = tmp_path / "mine.yaml"
    path.write_text(FILE.format(**{"versions": ">=0.1", "confidence": "reported"} | values))
    problems = lint([path], probes=PROBES, features=features.BY_ID)
    assert any(said in str(problem) for problem in problems), problems


def test_a_check_that_its_rows_do_not_have_is_a_problem_with_a_hint(tmp_path):
    path = tmp_path / "mine.yaml"
    text = FILE.format(versions=">=0.1", confidence="reported").replace("chat.stp", "chat.stop")
    path.write_text(text.replace("stop-strings-stop", "stop-string-is-not-streamd"))
    with pytest.raises(ScenarioError, match="did you mean 'stop-string-is-not-streamed'"):
        known_issues.load(path, features=features.BY_ID, checks=CHECKS)
    assert known_issues.problems_of(read(path), features.BY_ID) == []


def test_every_entry_is_dated_and_says_how_it_is_known():
    found = known_issues.builtins()
    assert {one.as_of for one in found} == {date(2026, 11, 30)}
    assert all(str(one.confidence) in one.standing and "as of" in one.standing for one in found)
