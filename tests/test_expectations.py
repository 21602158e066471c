"""Known deviations: what becomes of each in a run, the file that a run writes, and files that are wrong."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from servecheck import expectations, features, verdict, yamlfile
from servecheck.errors import ScenarioError
from servecheck.expectations import TODO, Expectation, Met, Standing
from servecheck.model import Cell, Comparison, Delta, Kind, SkipCode, Status
from servecheck.schema.expectations_v1 import Deviation
from tests.lab import Lab, Odd, answers

DAY = date(2026, 11, 30)
ROW = "chat.stop"


def cell(status: Status, *, feature: str = ROW, endpoint: str = "tpu", kind: Kind = Kind.JUDGED) -> Cell:
    skip = SkipCode.NOT_SELECTED if status is Status.SKIPPED else None
    return Cell(feature=feature, endpoint=endpoint, status=status, reason="because", kind=kind, skip_code=skip)


def expected(*deviations: str, row: str = ROW, endpoint: str | None = "tpu", **fields: object) -> Expectation:
    known: dict[str, object] = {"intermittent": False, "reason": "it is known", "until": None, "issue": None}
    return Expectation(row=row, endpoint=endpoint, deviations=tuple(map(Deviation, deviations)), **(known | fields))  # type: ignore[arg-type]


def applied(each: Expectation, *cells: Cell, comparisons: tuple[Comparison, ...] = ()) -> tuple[Met, ...]:
    return expectations.apply([each], cells, comparisons, features.FEATURES, day=DAY)


@pytest.mark.parametrize(
    ("seen", "entry", "standing"),
    [
        (Status.IGNORED, expected("ignored"), Standing.MATCHED),
        (Status.FLAKY, expected("ignored", "flaky"), Standing.MATCHED),
        (Status.ERROR, expected("error"), Standing.MATCHED),
        (Status.BROKEN, expected("ignored"), Standing.UNEXPECTED),
        (Status.SUPPORTED, expected("ignored"), Standing.STALE),
        (Status.SUPPORTED, expected("ignored", intermittent=True), Standing.INTERMITTENT),
        (Status.IGNORED, expected("ignored", intermittent=True), Standing.MATCHED),
        (Status.IGNORED, expected("ignored", until=date(2026, 11, 30)), Standing.MATCHED),
        (Status.IGNORED, expected("ignored", until=date(2026, 11, 29)), Standing.EXPIRED),
        (Status.SUPPORTED, expected("ignored", until=date(2026, 11, 29)), Standing.EXPIRED),
        (Status.SKIPPED, expected("ignored"), Standing.NOT_RUN),
        (Status.IGNORED, expected("ignored", endpoint="gpu"), Standing.NOT_RUN),
        (Status.IGNORED, expected("ignored", row="chat.basic"), Standing.NOT_RUN),
    ],
)
def test_what_becomes_of_an_expectation(seen, entry, standing):
    (met,) = applied(entry, cell(seen))
    assert met.standing is standing
    excused = standing in {Standing.MATCHED, Standing.INTERMITTENT}
    assert met.excuses == ("chat.stop@tpu" if excused else None)
    assert met.fails is (standing in {Standing.STALE, Standing.EXPIRED})


def test_one_for_any_endpoint_is_stale_only_where_all_are_fine():
    both = [cell(Status.IGNORED, endpoint="a"), cell(Status.SUPPORTED, endpoint="b")]
    assert [(met.endpoint, met.standing) for met in applied(expected("ignored", endpoint=None), *both)] == [
        ("a", Standing.MATCHED)
    ]
    fine = [cell(Status.SUPPORTED, endpoint="a"), cell(Status.SUPPORTED, endpoint="b")]
    assert {met.standing for met in applied(expected("ignored", endpoint=None), *fine)} == {Standing.STALE}


@pytest.mark.parametrize(
    ("delta", "wanted", "standing"),
    [
        (Delta.DRIFT, "drift", Standing.MATCHED),
        (Delta.DRIFT, "ignored", Standing.UNEXPECTED),
        (Delta.UNCLEAR, "unclear", Standing.MATCHED),
        (Delta.SAME, "drift", Standing.STALE),
    ],
)
def test_a_comparison_row_is_expected_to_drift(delta, wanted, standing):
    row = "parity.logprobs"
    compared = Comparison(left="gpu", right="tpu", feature=row, delta=delta, why="0.3 nats")
    measured = cell(Status.SUPPORTED, feature=row, kind=Kind.COMPARISON)
    (met,) = applied(expected(wanted, row=row), measured, comparisons=(compared,))
    assert met.standing is standing


def test_the_file_that_a_run_writes_makes_it_pass_and_asks_for_reasons(tmp_path: Path) -> None:
    report = Lab(tmp_path / "run", {"e": Odd(answers(500, 'no "such" thing\n- row: x'))}).run()
    level = verdict.FailOn.ANY
    rows = verdict.failures(report.verdict, report.cells, report.comparisons, report.features, fail_on=level)
    assert rows == ("chat.basic@e",)
    text = expectations.written(rows, report.cells, report.comparisons, run=report.id, day=DAY, days=90)
    (tmp_path / "known.yaml").write_text(text, "utf-8")
    loaded = expectations.load(tmp_path / "known.yaml", features.BY_ID)
    assert [(each.row, each.endpoint, each.until) for each in loaded] == [("chat.basic", "e", date(2027, 2, 28))]
    assert loaded[0].reason.startswith(TODO)
    met = expectations.apply(loaded, report.cells, report.comparisons, report.features, day=DAY)
    assert [each.standing for each in met] == [Standing.MATCHED]
    assert (
        verdict.exit_code(
            report.verdict,
            report.cells,
            report.comparisons,
            report.features,
            has_reference=False,
            excused=frozenset(each.excuses or "" for each in met),
        )
        == 0
    )


def test_expectations_are_kept_in_the_run_folder_and_the_day_is_the_run_s(tmp_path: Path) -> None:
    from servecheck.run import read_back

    lab = Lab(tmp_path / "run", {"e": Odd(answers(500))})
    entries = [expected("broken", row="chat.basic", endpoint="e", until=date(2026, 1, 1), issue="x/y#1")]
    lab.run(expected=entries)
    again = read_back(tmp_path / "run", lab.probes)
    assert [each.expectation for each in again.expected] == entries
    assert [each.standing for each in again.expected] == [Standing.EXPIRED]
    assert read_back(tmp_path / "run", lab.probes, expected=()).expected == ()


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("- row: chat.stopp\n    expect: ignored\n    reason: r", "unknown row 'chat.stopp'"),
        ("- row: chat.stop\n    expect: supported\n    reason: r", "expect"),
        ("- row: chat.stop\n    expect: ignored\n    reason: ''", "reason"),
        ("- row: chat.stop\n    expect: ignored", "reason"),
        ("- row: chat.stop\n    expect: ignored\n    reason: r\n    until: soon", "until"),
        (
            "- {row: chat.stop, expect: ignored, reason: r}\n  - {row: chat.stop, expect: broken, reason: r}",
            "chat.stop on any endpoint is there already",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path: Path, body: str, complaint: str) -> None:
    path = tmp_path / "known.yaml"
    path.write_text(f"schema: servecheck/expectations/v1\nexpectations:\n  {body}\n", "utf-8")
    with pytest.raises(ScenarioError) as caught:
        expectations.load(path, features.BY_ID)
    assert re.search(r"known\.yaml:\d+:\d+: ", str(caught.value))
    assert complaint in str(caught.value)
    assert expectations.problems_of(yamlfile.read(path), features.BY_ID)


def test_what_is_wrong_with_expectations_is_said_before_a_run(tmp_path):
    path = tmp_path / "known.yaml"
    path.write_text(
        "schema: servecheck/expectations/v1\n"
        "expectations:\n"
        "  - {row: chat.n, endpoint: candidte, expect: ignored, reason: nobody uses it}\n"
        f"  - {{row: chat.stop, endpoint: candidate, expect: broken, reason: '{TODO} (no stop)'}}\n"
    )
    said = [*expectations.notes(expectations.load(path, features.BY_ID), ["reference", "candidate"])]
    assert said == [
        "2 deviations are expected; that changes the exit code only",
        "warning: nobody has said yet why it is accepted: chat.stop",
        "warning: a deviation is expected of 'candidte', which is no endpoint of this run; did you mean 'candidate'?",
    ]


def test_an_unknown_row_is_told_beside_what_is_wrong_with_the_shape(tmp_path):
    path = tmp_path / "known.yaml"
    path.write_text("schema: servecheck/expectations/v1\nexpectations:\n  - {row: chat.nn, expect: brken, reason: x}\n")
    said = [each.message for each in expectations.problems_of(yamlfile.read(path), features.BY_ID)]
    assert said[0] == "unknown row 'chat.nn'"
    assert len(said) == 2
