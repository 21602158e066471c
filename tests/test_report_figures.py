"""What was measured as figures: the numbers as a table whatever is installed, and as pictures where matplotlib is."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft7Validator

from servecheck.report import plots
from servecheck.report.figures import Figure, Point, Series, drawn, sampled
from servecheck.report.files import rendered, write_all
from servecheck.report.redacted import redacted
from servecheck.report.results import to_results
from servecheck.schema.results_v1 import json_schema
from tests.made_measurements import measured, streamed
from tests.sample_runs import RUNS, fake_curl

SVG = "{http://www.w3.org/2000/svg}"

needs_plots = pytest.mark.skipif(not plots.available(), reason="no matplotlib here: pip install 'servecheck[plots]'")


def figure(name: str) -> Figure:
    return next(each for each in drawn(measured()) if each.id == name)


def test_everything_that_was_measured_is_drawn():
    assert [
        *("latency-ttft", "latency-between-tokens", "latency-tokens-per-s"),
        *("first-token", "stream-timeline", "histogram-parity-forced", "parity-noise"),
    ] == [each.id for each in drawn(measured())]


@pytest.mark.parametrize("name", RUNS)
def test_nothing_is_drawn_where_nothing_was_measured(name):
    assert drawn(RUNS[name]()) == ()


@pytest.mark.parametrize(
    ("name", "table"),
    [
        (
            "latency-ttft",
            (
                ("Requests at once", "gpu (ms)", "tpu (ms)"),
                ("1", "20 (20 to 60)", "40 (20 to 60)"),
                ("4", "80 (80 to 240)", "160 (80 to 240)"),
            ),
        ),
        (
            "latency-tokens-per-s",
            (
                ("Requests at once", "gpu (tokens/s, all together)", "tpu (tokens/s, all together)"),
                ("1", "40", "20"),
                ("4", "160", "80"),
            ),
        ),
        (
            "first-token",
            (
                (
                    "Prompt tokens",
                    *("gpu, first of its length (ms)", "gpu, later (ms)"),
                    *("tpu, first of its length (ms)", "tpu, later (ms)"),
                ),
                ("64", "1,000", "100", "2,000", "200"),
                ("512", "1,000", "100", "2,000", "200"),
            ),
        ),
        (
            "parity-noise",
            (
                ("Compared", "between the endpoints (nat)", "of an endpoint with itself (nat)"),
                ("gpu and tpu, parity.forced", "0.002 (0.001 to 0.003)", "0.0004"),
            ),
        ),
        (
            "histogram-parity-forced",
            (
                (
                    "How far apart (nat)",
                    "gpu and tpu (% of positions)",
                    "noise floor: each with itself (% of positions)",
                ),
                *(("below 0.001", "40", "90"), ("0.001 to 0.003", "10", "6"), ("0.003 to 0.01", "20", "4")),
                *(("0.01 to 0.03", "10", "0"), ("0.03 to 0.1", "12", "0"), ("0.1 to 0.3", "6", "0")),
                *(("0.3 to 1", "1", "0"), ("1 to 3", "1", "0"), ("3 or more", "0", "0")),
            ),
        ),
    ],
)
def test_the_numbers_are_a_table(name, table):
    assert table == figure(name).table


def test_a_histogram_says_where_most_lies_and_how_far_it_reaches():
    told = figure("histogram-parity-forced").alt
    assert "gpu and tpu: most, 40 % of positions, below 0.001 nat, and up to the step 1 to 3 nat" in told
    assert "each with itself: most, 90 % of positions, below 0.001 nat, and up to the step 0.003 to 0.01 nat" in told


def test_each_comparison_has_a_histogram_of_its_own_and_no_noise_is_said():
    run = measured()
    alone = {name: value for name, value in run.comparisons[-1].measured.items() if not name.startswith("own_")}
    more = replace(run.comparisons[-1], left="gpu", right="other", measured=alone)
    both = [each for each in drawn(replace(run, comparisons=(*run.comparisons, more))) if "histogram" in each.id]
    assert [each.id for each in both] == ["histogram-parity-forced", "histogram-parity-forced-2"]
    assert [len(each.series) for each in both] == [2, 1]
    assert both[1].note.endswith("Own noise was not measured.")


def test_a_redacted_report_has_the_same_figures():
    assert drawn(redacted(measured())) == drawn(redacted(redacted(measured()))) == drawn(measured())


def test_the_results_hold_what_is_drawn_in_numbers():
    results = to_results(measured())
    Draft7Validator(json_schema()).validate(results)
    figures = {each["id"]: each for each in results["figures"]}
    assert list(figures) == [each.id for each in drawn(measured())]
    assert figures["latency-ttft"]["series"][1]["points"][1] == {"at": "4", "x": 1, "y": 160, "low": 80, "high": 240}
    between, own = figures["histogram-parity-forced"]["series"]
    assert [between["compared_with"], own["compared_with"]] == [False, True]
    assert [point["y"] for point in between["points"]] == [40, 10, 20, 10, 12, 6, 1, 1, 0]
    cells = {(cell["feature"], cell["endpoint"]): cell for cell in results["cells"]}
    assert cells["performance.latency", "tpu"]["measured"]["ttft_at_4_ms"] == 160.0
    assert "measured" not in cells["streaming.incremental", "tpu"]


def test_a_stream_is_told_from_its_first_event_to_its_last():
    lines = figure("stream-timeline").table
    assert (lines[0], lines[1], lines[-1]) == (("events", "gpu (s)", "tpu (s)"), ("1", "0.1", "0.2"), ("21", "2", "4"))
    assert "gpu: the first of 21 events after 0.1 s, the last after 2 s" in figure("stream-timeline").alt


def test_a_long_stream_is_thinned_and_keeps_its_ends():
    run = measured()
    long = streamed("gpu-s", "stream", *(place / 1000 for place in range(1, 3001)))
    found = next(
        each for each in drawn(replace(run, exchanges={**run.exchanges, "gpu-s": long})) if "timeline" in each.id
    )
    points = found.series[0].points
    assert len(points) <= 402
    assert (points[0].y, points[-1].y) == (1, 3001)


def test_only_single_prompts_of_a_length_are_sampled():
    steps = (
        "cold-length-64",
        "warm-length-64-2",
        "cold-batch-4/1",
        "cold-feature-json",
        "control-1",
        "beside-length-64",
    )
    sent = [streamed(step, step, 0.1) for step in steps]
    assert list(sampled("compile.recompilation", sent)) == ["cold-length-64", "warm-length-64-2"]
    assert list(sampled("chat.basic", sent)) == []


@pytest.mark.parametrize("form", ["md", "summary", "html"])
def test_every_report_has_the_numbers(form):
    told = rendered(measured(), form, fake_curl)
    for each in drawn(measured()):
        assert each.title in told
        assert each.table[-1][-1].split(" ")[0] in told


def test_without_matplotlib_the_numbers_are_open_and_there_is_no_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)
    (tmp_path / "figure-old.svg").write_text("old")
    write_all(measured(), tmp_path, fake_curl)
    assert list(tmp_path.glob("*.svg")) == []
    assert "![" not in (tmp_path / "report.md").read_text()
    page = (tmp_path / "report.html").read_text()
    assert "<svg" not in page
    assert page.count("<details open>") == len(drawn(measured()))


@needs_plots
def test_pictures_stand_beside_the_markdown_with_words_for_those_who_do_not_see_them(tmp_path):
    write_all(measured(), tmp_path, fake_curl)
    report = (tmp_path / "report.md").read_text()
    shown = re.findall(r"^!\[(.+)\]\((figure-[a-z-]+\.svg)\)$", report, re.MULTILINE)
    assert {file for _, file in shown} == {each.name for each in tmp_path.glob("*.svg")}
    assert len(shown) == len(drawn(measured()))
    assert all(len(alt) > 40 for alt, _ in shown)


@needs_plots
@pytest.mark.parametrize("each", drawn(measured()), ids=lambda each: each.id)
def test_a_picture_is_whole_named_legible_on_any_ground_and_the_same_again(each):
    text = plots.standalone(each)
    assert text == plots.standalone(each)
    root = ET.fromstring(text)
    assert [root.findtext(f"{SVG}title"), root.findtext(f"{SVG}desc")] == [each.title, each.alt]
    words = {element.text for element in root.iter(f"{SVG}text")}
    assert {each.x_label, each.y_label, *(one.name for one in each.series)} <= words
    assert "prefers-color-scheme:dark" in text
    assert "#010203" not in text
    assert not re.search(r'(?:href|src)="(?!#)|@import|<script|<!DOCTYPE|<metadata', text)


@needs_plots
def test_ids_of_pictures_on_one_page_are_different():
    ids = [name for each in drawn(measured()) for name in re.findall(r'\bid="([^"]+)"', plots.inline(each))]
    assert len(ids) == len(set(ids))


@needs_plots
def test_a_hostile_name_stays_text_in_a_picture():
    name = '_<script>alert(1)</script> $x^2$ "&'
    hostile = Figure(
        id="x",
        title=name,
        alt=name,
        x_label=name,
        y_label=name,
        series=(Series(name=name, points=(Point(x=1, y=1), Point(x=2, y=3))),),
        table=(),
    )
    root = ET.fromstring(plots.inline(hostile))
    assert [each for each in root.iter() if each.tag.endswith("script")] == []
    assert name in {element.text for element in root.iter(f"{SVG}text")}
