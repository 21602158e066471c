"""What the caller adds to a report or leaves out; the table for spreadsheets; annotations for a workflow."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from servecheck.errors import UsageError
from servecheck.expectations import Expectation, Met, Standing
from servecheck.model import Fault, FaultKind, Outcome, Status
from servecheck.report.data import RunReport
from servecheck.report.files import FORMATS, rendered, write_all
from servecheck.report.framing import CONTEXT_LIMIT, Framing, Listed, blocks, framing, from_header
from servecheck.report.github import MOST, github_text
from servecheck.report.redacted import redacted
from servecheck.report.table import COLUMNS, csv_text
from tests.golden import check_golden
from tests.sample_runs import RUNS, chat_exchange, fake_curl, finding, hostile, judged, one_endpoint, two_endpoints


@pytest.mark.parametrize("form", ["md", "html", "summary"])
def test_a_title_takes_the_place_of_the_question(form):
    told = rendered(replace(two_endpoints(), framing=Framing(title="Move to <TPUs>")), form, fake_curl)
    assert "Can tpu replace gpu?" not in told
    assert "Move to" in told
    assert "<TPUs>" not in told.replace("`<TPUs>`", "").replace("\\<TPUs", "")


def test_a_context_is_paragraphs_and_lists_and_nothing_else(tmp_path):
    (tmp_path / "why.txt").write_text("We pay\nfor GPUs.\n\n- one <b>\n- two\n\n# not a heading\n")
    given = framing(context=tmp_path / "why.txt")
    assert blocks(given.context) == (
        "We pay for GPUs.",
        Listed(items=("one <b>", "two")),
        "# not a heading",
    )
    told = rendered(replace(two_endpoints(), framing=given), "md", fake_curl)
    assert "\n\nWe pay for GPUs.\n\n- one `<b>`\n- two\n\n\\# not a heading\n" in told
    assert "<b>" not in rendered(replace(two_endpoints(), framing=given), "html", fake_curl)


@pytest.mark.parametrize(
    ("written", "says"),
    [(None, "cannot read"), (b"\xff", "not UTF-8"), (b"x" * (CONTEXT_LIMIT + 1), "at most 20,000")],
)
def test_a_context_that_cannot_be_shown_is_refused(tmp_path, written, says):
    if written is not None:
        (tmp_path / "why.txt").write_bytes(written)
    with pytest.raises(UsageError, match=says):
        framing(context=tmp_path / "why.txt")


@pytest.mark.parametrize("given", ["x", "=file", "gpu=", "gpu"])
def test_a_benchmark_needs_an_endpoint_and_a_file(given):
    with pytest.raises(UsageError, match="expected NAME=FILE"):
        framing(benchmarks=[given])


def test_a_run_folder_keeps_the_framing():
    given = Framing(title="t", context="c", redact=True)
    assert from_header(given.as_header()) == given
    assert (Framing().as_header(), from_header(None)) == ({}, Framing())


def test_what_is_said_later_wins():
    assert Framing(title="new").over(Framing(title="old", context="c")) == Framing(title="new", context="c")


# --------------------------------------------------------------------------- redaction


def secretive() -> RunReport:
    """Return a run whose every place for what a server or a model said holds one word."""
    broken = finding(
        "schema-applied",
        Outcome.VIOLATED,
        "not JSON: “hush hush”",
        "x",
        measured={"expected": "hush", "actual": "hush", "first": "“hush”"},
    )
    cells = (judged("chat.basic", "gpu", Status.BROKEN, "said “hush” and “hu", findings=(broken,)),)
    return replace(
        one_endpoint(),
        cells=cells,
        exchanges={"x": chat_exchange("x", "s", "http://h/v1", {"prompt": "hush"}, b"hush")},
        faults={"chat.basic@gpu": (Fault(kind=FaultKind.OVERLOADED, reason="“hush”", trace="hush"),)},
    )


@pytest.mark.parametrize("form", FORMATS)
def test_a_redacted_report_quotes_nobody(form):
    run = secretive()
    assert "hush" in rendered(run, form, fake_curl) or form == "github"
    told = rendered(replace(run, framing=Framing(redact=True)), form, fake_curl)
    assert "hush" not in told
    assert "“hu" not in told


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("“hush”, not “hush”: no", "“…”, not “…”: no"),
        ("text: “a ” hush”", "text: “…”"),
        ("text: “a “b” hush”", "text: “…”"),
        ("text: “cut hush…", "text: “…”"),
    ],
)
def test_what_stands_behind_a_quotation_mark_inside_a_quotation_is_left_out_too(said, left):
    run = two_endpoints()
    run = replace(run, cells=(replace(run.cells[0], reason=said),), framing=Framing(redact=True))
    assert redacted(run).cells[0].reason == left


def test_a_redacted_report_decides_the_same_and_says_what_is_missing():
    run = two_endpoints()
    told = rendered(replace(run, framing=Framing(redact=True)), "md", fake_curl)
    assert run.verdict.sentence.removeprefix("No: ") in told
    assert "bytes left out)" in told
    assert "Bodies and quotations are left out of this report" in told


def test_every_file_of_a_redacted_run_is_redacted(tmp_path):
    write_all(replace(secretive(), framing=Framing(redact=True)), tmp_path, fake_curl)
    assert [file.name for file in tmp_path.iterdir() if "hush" in file.read_text()] == []


# --------------------------------------------------------------------------- csv


@pytest.mark.parametrize("name", RUNS)
def test_a_fixed_run_gives_the_reviewed_table(name):
    check_golden(f"{name}/table.csv", csv_text(RUNS[name]()).replace("\r\n", "\n"))


def test_every_row_of_every_endpoint_is_one_line():
    run = two_endpoints()
    lines = list(csv.DictReader(io.StringIO(csv_text(run))))
    assert [(f.id, s.name) for f in run.features for s in run.subjects] == [
        (line["feature"], line["endpoint"]) for line in lines
    ]
    assert {line["feature"] for line in lines if line["blocks"] == "yes"} == {
        row.partition("@")[0] for row in run.verdict.blockers
    }


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t=", "|", "%"])
def test_nothing_becomes_a_formula(begin):
    cell = judged("chat.basic", "gpu", Status.BROKEN, f"{begin}HYPERLINK(1)")
    lines = csv.reader(io.StringIO(csv_text(replace(one_endpoint(), cells=(cell,)))))
    reasons = [line[COLUMNS.index("reason")] for line in lines]
    assert [reason for reason in reasons if "HYPERLINK" in reason and reason[0] not in "' "] == []


def test_hostile_text_stays_inside_its_field():
    run = hostile()
    lines = list(csv.reader(io.StringIO(csv_text(run), newline="")))
    assert {len(line) for line in lines} == {len(COLUMNS)}
    assert len(lines) == 1 + len(run.features) * len(run.subjects)


# --------------------------------------------------------------------------- annotations


@pytest.mark.parametrize("name", RUNS)
def test_a_fixed_run_gives_the_reviewed_annotations(name):
    check_golden(f"{name}/annotations.txt", github_text(RUNS[name]()))


def test_nothing_hostile_becomes_a_command_of_its_own():
    lines = github_text(hostile()).splitlines()
    assert [
        line for line in lines if not line.startswith(("::error title=", "::warning title=", "::notice title="))
    ] == []
    assert [line for line in lines if "##[" in line or "\u202e" in line] == []
    assert [line for line in lines if ":" in line.split("::")[1]] == []


def test_what_github_would_drop_is_counted():
    rows = tuple(f"group.row{number}@gpu" for number in range(25))
    run = two_endpoints()
    lines = github_text(replace(run, verdict=replace(run.verdict, blockers=rows))).splitlines()
    errors = [line for line in lines if line.startswith("::error ")]
    assert (len(errors), errors[-1]) == (MOST, "::error title=servecheck::16 rows more, in the report")


def test_an_expected_deviation_is_a_notice():
    run = two_endpoints()
    row = run.verdict.blockers[0]
    feature, _, endpoint = row.partition("@")
    known = Expectation(
        row=feature, endpoint=endpoint, deviations=(), intermittent=False, reason="known", until=None, issue=None
    )
    met = Met(expectation=known, endpoint=endpoint, standing=Standing.MATCHED, why="so")
    lines = github_text(replace(run, expected=(met,))).splitlines()
    assert [line.split(" ")[0] for line in lines if row in line] == ["::notice"]


def test_a_context_without_an_end_is_not_read_to_its_end():
    with pytest.raises(UsageError, match="/dev/zero is too long"):
        framing(context=Path("/dev/zero"))


def test_a_list_right_below_its_paragraph_and_a_numbered_one_survive():
    text = "Due:\nnext week.\n* gpu is\n  in production\n* tpu is a trial\n\n3. first\n4) second\n\nEnd."
    assert blocks(text) == (
        "Due: next week.",
        Listed(items=("gpu is in production", "tpu is a trial")),
        Listed(items=("first", "second"), start=3),
        "End.",
    )


@pytest.mark.parametrize("form", ["md", "html", "summary"])
def test_the_context_stands_before_the_endpoints(form):
    told = rendered(replace(two_endpoints(), framing=Framing(context="Why we ask.")), form, fake_curl)
    assert told.index("Why we ask.") < told.index("Engine")
