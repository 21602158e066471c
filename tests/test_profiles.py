"""What an application needs: the built-in lists, and what a run says of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from servecheck import features, profiles, scenario
from servecheck.errors import ScenarioError, UnknownName, UsageError
from servecheck.model import Case, Cell, Comparison, Decision, Delta, Kind, Level, Outcome, SkipCode, Status, Trial
from servecheck.probes import discover
from servecheck.profiles import Limit, Profile
from servecheck.run import read_back
from tests.lab import Lab, Odd, answers, finding, make_probe, make_scenario

PROBES = discover()
CHECKS: dict[str, set[str]] = {}
for each in scenario.load_all([scenario.builtin_dir()], probes=PROBES, features=features.BY_ID):
    CHECKS.setdefault(each.feature, set()).update(check.id for check in PROBES[each.probe].checks)


def profile(*rows: str, limits: tuple[Limit, ...] = (), **musts: tuple[str, ...]) -> Profile:
    return Profile(
        id="mine",
        title="Mine",
        as_of=date(2026, 11, 30),
        about="x",
        rows=dict.fromkeys(rows, "why"),
        musts={name.replace("__", "."): checks for name, checks in musts.items()},
        limits=limits,
    )


def cell(feature: str, status: Status, endpoint: str = "tpu", skip: str | None = None) -> Cell:
    kind = features.get(feature).kind
    return Cell(feature=feature, endpoint=endpoint, status=status, reason="r", kind=kind, skip_code=skip)


def said(mine: Profile, *cells: Cell, comparisons: tuple[Comparison, ...] = (), reference: str | None = None):
    found = profiles.readiness(mine, cells, comparisons, features.FEATURES, reference=reference)
    return found.verdict.decision, found.verdict.sentence


@pytest.mark.parametrize("path", profiles.builtin(), ids=lambda path: path.stem)
def test_a_built_in_profile_names_rows_that_exist_and_checks_that_can_be_raised(path: Path) -> None:
    found = profiles.load(path, features=features.BY_ID, checks=CHECKS)
    levels = {check.id: check.level for probe in PROBES.values() for check in probe.checks}
    assert found.id == path.stem
    assert {features.get(row).kind for row in found.rows} == {Kind.JUDGED}
    assert [check for checks in found.musts.values() for check in checks if levels[check] is Level.MUST] == []


def test_there_is_one_for_each_kind_of_application_that_the_design_names():
    assert {each.id for each in profiles.builtins()} == {
        "agents", "batch-scoring", "chat-ui", "rag", "rl-rollout", "structured-extraction"
    }  # fmt: skip


BEHIND = Comparison(left="gpu", right="tpu", feature="tools.auto", delta=Delta.BEHIND, side="tpu", why="w")


@pytest.mark.parametrize(
    ("cells", "decision", "sentence"),
    [
        ([cell("tools.auto", Status.SUPPORTED)], Decision.READY, "Yes: ready for mine."),
        (
            [cell("tools.auto", Status.IGNORED)],
            Decision.NOT_READY,
            "No: not ready for mine because of tools.auto ignored.",
        ),
        (
            [cell("tools.auto", Status.DEGRADED)],
            Decision.READY_WITH_CAVEATS,
            "Yes, with caveats: ready for mine; tools.auto degraded.",
        ),
        (
            [cell("tools.auto", Status.SUPPORTED), cell("chat.stop", Status.DEGRADED)],
            Decision.READY,
            "Yes: ready for mine.",
        ),
        (
            [cell("tools.auto", Status.SKIPPED, skip=SkipCode.NOT_SELECTED), cell("chat.stop", Status.BROKEN)],
            Decision.CANNOT_TELL,
            "Cannot tell: 1 need of mine not known (tools.auto).",
        ),
        (
            [cell("tools.auto", Status.INCONCLUSIVE)],
            Decision.CANNOT_TELL,
            "Cannot tell: 1 need of mine not known (tools.auto).",
        ),
    ],
    ids=lambda value: value.value if isinstance(value, Decision) else "",
)
def test_only_the_rows_of_the_profile_decide(cells, decision, sentence):
    assert said(profile("tools.auto"), *cells) == (decision, sentence)


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        (("arguments-match-the-schema",), "broken (here arguments-match-the-schema is a must)"),
        (("arguments-match-the-schema", "another"), "broken"),
        ((), "broken"),
    ],
)
def test_a_row_that_only_a_raised_check_breaks_says_so(failed: tuple[str, ...], words: str):
    findings = tuple(replace(finding(Outcome.VIOLATED), check=check, level=Level.MUST) for check in failed)
    broken = replace(cell("tools.required", Status.BROKEN), findings=findings)
    mine = profile("tools.required", tools__required=("arguments-match-the-schema",))

    assert said(mine, broken) == (Decision.NOT_READY, f"No: not ready for mine because of tools.required {words}.")


@pytest.mark.parametrize(
    ("unknown", "named"),
    [
        (("gpu", "tpu"), "1 need of mine not known (tools.auto on gpu and tpu)"),
        (("gpu",), "1 need of mine not known (tools.auto on gpu)"),
        (("tpu",), "1 need of mine not known (tools.auto)"),
    ],
)
def test_a_need_that_is_not_known_is_counted_once_and_named_with_its_endpoints(unknown, named):
    cells = [
        cell("tools.auto", Status.INCONCLUSIVE if name in unknown else Status.SUPPORTED, name)
        for name in ("gpu", "tpu")
    ]
    unclear = Comparison(left="gpu", right="tpu", feature="tools.auto", delta=Delta.UNCLEAR, why="w")
    decision, sentence = said(profile("tools.auto"), *cells, comparisons=(unclear,), reference="gpu")
    assert (decision, sentence) == (Decision.CANNOT_TELL, f"Cannot tell: {named}.")


def test_what_both_endpoints_lack_is_a_need_that_is_not_met():
    same = Comparison(left="gpu", right="tpu", feature="tools.auto", delta=Delta.SAME, why="ignored on both")
    cells = [cell("tools.auto", Status.IGNORED, name) for name in ("gpu", "tpu")]
    decision, sentence = said(profile("tools.auto"), *cells, comparisons=(same,), reference="gpu")
    assert (decision, sentence) == (Decision.NOT_READY, "No: not ready for mine because of tools.auto ignored.")


@pytest.mark.parametrize(
    ("measured", "decision"),
    [({"k3": 0.02}, Decision.NOT_READY), ({"k3": 0.001}, Decision.READY), ({}, Decision.CANNOT_TELL)],
)
def test_a_limit_bounds_what_a_comparison_measured(measured, decision):
    limit = Limit(row="parity.logprobs", measured="k3", at_most=0.01, because="x")
    compared = Comparison(
        left="gpu", right="tpu", feature="parity.logprobs", delta=Delta.SAME, why="", measured=measured
    )
    row = Comparison(left="gpu", right="tpu", feature="tools.auto", delta=Delta.SAME, why="")
    cells = [cell("tools.auto", Status.SUPPORTED, name) for name in ("gpu", "tpu")]
    found = said(profile("tools.auto", limits=(limit,)), *cells, comparisons=(compared, row), reference="gpu")
    assert found[0] is decision


def test_a_raised_check_is_a_must_in_its_row_only():
    trial = Trial(
        case=Case(id="a", scenario="s", feature="chat.stop", endpoint="e", trial=1),
        status=Status.DEGRADED,
        reason="",
        findings=(replace(finding(Outcome.VIOLATED), level=Level.SHOULD),),
    )
    (mine,) = profiles.raised([trial], {"chat.stop": ("is-answered",)})
    (other,) = profiles.raised([trial], {"chat.basic": ("is-answered",)})
    assert mine.findings[0].level is Level.MUST
    assert other is trial


def test_a_run_is_judged_by_its_profile_and_keeps_it(tmp_path: Path) -> None:
    scenarios = [make_scenario("chat.basic"), make_scenario("chat.stop")]
    lab = Lab(tmp_path / "run", {"e": Odd(answers(500))}, scenarios, [make_probe()])
    report = lab.run(profile=profile("chat.stop"))
    assert report.profile is not None
    assert report.verdict.sentence == "No: not ready for mine because of chat.stop broken."
    assert read_back(tmp_path / "run", lab.probes).verdict == report.verdict
    other = read_back(tmp_path / "run", lab.probes, profile=profile("chat.basic"))
    assert other.verdict.sentence == "No: not ready for mine because of chat.basic broken."


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rows: {chat.stopp: {because: x}}", "unknown row 'chat.stopp'"),
        ("rows: {chat.stop: {because: x, must: [no-such]}}", "chat.stop has no check 'no-such'"),
        ("rows: {}", "rows"),
        ("rows: {chat.stop: {}}", "because"),
    ],
)
def test_what_is_wrong_with_a_profile_is_said_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"schema: servecheck/profile/v1\nid: mine\ntitle: t\nas_of: 2026-11-30\nabout: a\n{text}\n")
    with pytest.raises(ScenarioError, match=r"mine\.yaml:\d+:\d+: ") as caught:
        profiles.find(str(path), features=features.BY_ID, checks=CHECKS)
    assert complaint in str(caught.value)


def test_a_name_that_is_no_profile_is_said_with_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'chat-ui'"):
        profiles.find("chat-uii", features=features.BY_ID, checks=CHECKS)
    with pytest.raises(UsageError, match="there is no such file"):
        profiles.find("mine.yaml", features=features.BY_ID, checks=CHECKS)
