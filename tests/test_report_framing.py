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
from servecheck.report.table import COLUMNS, csv_text
from tests.golden import check_golden
from tests.sample_runs import RUNS, chat_exchange, fake_curl, finding, hostile, judged, one_endpoint, two_endpoints


@pytest.mark.parametrize("form", ["md", "html", "summary"])
def test_a_title_takes_the_place_of_the_question(form):
    told = rendered(replace(two_endpoints(), framing=Framing(title="Move to <TPUs>")), form, fake_curl)
    assert "Can tpu replace gpu?" not in told
    assert "Move to" in told
    assert "<TPUs>" not in told.replace("`<TPUs>`", "").replace("\\<TPUs", "")


def test_a_context_stands_before_the_tables_as_paragraphs_and_lists_and_nothing_else(tmp_path):
    (tmp_path / "why.txt").write_text("We pay\nfor GPUs:\n- one <b>\n- two\n\n# not a heading\n\n1. look\n2. decide\n")
    given = framing(context=tmp_path / "why.txt")
    run = replace(two_endpoints(), framing=given)
    told = rendered(run, "md", fake_curl).partition("\n| | `gpu`")[0]
    assert told.endswith(
        "\n\n**Context**\n\nWe pay for GPUs:\n\n- one `<b>`\n- two\n\n\\# not a heading\n\n1. look\n2. decide\n"
    )
    page = rendered(run, "html", fake_curl).partition("<table>")[0]
    assert "<p>We pay for GPUs:</p>\n<ul><li>one &lt;b&gt;</li><li>two</li></ul>\n<p># not a heading</p>" in page
    assert '<ol start="1"><li>look</li><li>decide</li></ol>' in page


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ("one\ntwo\n\nthree", ("one two", "three")),
        ("* a\n* b", (Listed(items=("a", "b")),)),
        ("why:\n* a\n  goes on\n* b\n\nand", ("why:", Listed(items=("a goes on", "b")), "and")),
        ("- a\n\n- b", (Listed(items=("a", "b")),)),
        ("- a\n\n  more of a\nyet more", (Listed(items=("a more of a yet more",)),)),
        ("- a\n1. b", (Listed(items=("a",)), Listed(items=("b",), first=1))),
        ("3) c\n4) d", (Listed(items=("c", "d"), first=3),)),
        ("decided in\n2026. It rains", ("decided in 2026. It rains",)),
        ("decided in\n26. of May", ("decided in 26. of May",)),
        ("due:\r\n1. now\r\n2. then", ("due:", Listed(items=("now", "then"), first=1))),
        ("**bold**, -1 and *", ("**bold**, -1 and *",)),
        ("", ()),
    ],
)
def test_simple_lists_of_a_context_survive(context, expected):
    assert expected == blocks(context)


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
    assert "hush" in rendered(run, form, fake_curl) or form in ("github", "summary")
    told = rendered(replace(run, framing=Framing(redact=True)), form, fake_curl)
    assert "hush" not in told
    assert "“hu" not in told


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
