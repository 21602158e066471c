"""``results.json`` and JUnit: frozen shapes that other programs read."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft7Validator
from pydantic import ValidationError

from servecheck.model import Kind, Status
from servecheck.report.junit import junit_xml
from servecheck.report.results import results_text, to_results, write
from servecheck.schema.results_v1 import SCHEMA_PATH, ResultsV1, json_schema, schema_text
from tests.golden import GOLDENS, check_golden
from tests.sample_runs import RUNS, died, hostile, judged, one_endpoint, two_endpoints

GOLDEN = "results.v1.json"


def test_the_published_schema_is_the_one_the_models_give():
    assert SCHEMA_PATH.read_text(encoding="utf-8") == schema_text(), "write schema_text() to SCHEMA_PATH"


def test_the_published_schema_is_a_draft_7_schema():
    Draft7Validator.check_schema(json_schema())


def test_a_fixed_run_gives_the_reviewed_results():
    check_golden("two-endpoints/results.json", results_text(two_endpoints()))


def test_everything_v1_ever_said_is_still_said():
    if not (GOLDENS / GOLDEN).exists():
        check_golden(GOLDEN, results_text(two_endpoints()), never_edited=True)
    promised = json.loads((GOLDENS / GOLDEN).read_text(encoding="utf-8"))
    assert_said(promised, to_results(two_endpoints()), "$")


def assert_said(promised: object, actual: object, where: str) -> None:
    """Fail where a promised field is gone or says something else; more fields are fine."""
    if isinstance(promised, dict):
        assert isinstance(actual, dict), where
        for key, value in promised.items():
            assert key in actual, f"{where}.{key} is gone"
            assert_said(value, actual[key], f"{where}.{key}")
    elif isinstance(promised, list):
        assert isinstance(actual, list), where
        assert len(promised) == len(actual), where
        for number, (one, other) in enumerate(zip(promised, actual, strict=True)):
            assert_said(one, other, f"{where}[{number}]")
    else:
        assert promised == actual, where


@pytest.mark.parametrize("name", RUNS)
def test_every_run_is_valid_by_the_published_schema_and_reads_back(name):
    text = results_text(RUNS[name]())
    Draft7Validator(json_schema()).validate(json.loads(text))
    ResultsV1.model_validate_json(text)


def test_the_golden_is_valid_by_the_published_schema():
    Draft7Validator(json_schema()).validate(json.loads((GOLDENS / GOLDEN).read_text(encoding="utf-8")))


def test_the_schema_refuses_what_is_not_a_result():
    results = to_results(two_endpoints())
    del results["verdict"]["decision"]
    assert not Draft7Validator(json_schema()).is_valid(results)


def test_we_refuse_a_field_nobody_agreed_on_and_readers_do_not():
    results = {**to_results(two_endpoints()), "new": 1}
    with pytest.raises(ValidationError, match="new"):
        ResultsV1.model_validate_json(json.dumps(results))
    assert Draft7Validator(json_schema()).is_valid(results)


def test_a_property_has_a_value_and_no_status_and_an_unknown_one_says_why():
    cells = {(cell["feature"], cell["endpoint"]): cell for cell in to_results(two_endpoints())["cells"]}
    known, unknown = cells["sampling.greedy", "tpu"], cells["quantization.identity", "tpu"]
    assert (known["status"], known["value"], known["how"], known["trials"]) == (None, "near-tie noise", "observed", [])
    assert (unknown["status"], unknown["value"], unknown["how"]) == ("inconclusive", None, "unknown")
    assert cells["chat.basic", "tpu"]["how"] is None


def test_a_fact_says_how_it_is_known_and_its_source_where_there_is_one():
    fields = to_results(two_endpoints())["endpoints"][0]["fingerprint"]
    assert fields["engine"] == {"value": "vllm", "how": "observed", "source": "/version"}
    assert fields["quantization"] == {"value": None, "how": "unknown"}


def test_a_run_that_died_is_not_complete_and_has_no_end():
    results = to_results(died())
    assert (results["complete"], results["run"]["finished"]) == (False, None)


def test_cells_are_sorted_whatever_order_they_came_in():
    run = two_endpoints()
    assert results_text(replace(run, cells=run.cells[::-1], comparisons=run.comparisons[::-1])) == results_text(run)


def test_figures_are_rounded_and_what_is_no_number_is_null():
    run = hostile()
    cell = run.cells[0]
    measured = {
        "inf": float("-inf"),
        "nan": float("nan"),
        "long": 1.23456789,
        "small": 1.23456789e-7,
        "n": 3,
        "ok": True,
    }
    found = replace(cell.findings[0], measured=measured)
    results = to_results(replace(run, cells=(replace(cell, findings=(found,)),)))
    assert results["cells"][0]["findings"][0]["measured"] == {
        "inf": None,
        "long": 1.234568,
        "n": 3,
        "nan": None,
        "ok": True,
        "small": 1.23457e-07,
    }


def test_a_url_is_published_without_user_and_query():
    assert to_results(hostile())["endpoints"][0]["base_url"] == "http://host.example/v1?key=…"


def test_the_file_is_utf8_whatever_a_server_said(tmp_path):
    write(hostile(), tmp_path / "results.json")
    assert "\\\\ud800" in (tmp_path / "results.json").read_bytes().decode("utf-8")


def test_a_naive_start_is_refused():
    with pytest.raises(ValueError, match="aware"):
        replace(two_endpoints(), started=datetime(2026, 11, 30))  # noqa: DTZ001


# --------------------------------------------------------------------------- junit


@pytest.mark.parametrize(
    ("status", "element"),
    [
        (Status.SUPPORTED, None),
        (Status.DEGRADED, "system-out"),
        (Status.UNSUPPORTED, "failure"),
        (Status.IGNORED, "failure"),
        (Status.BROKEN, "failure"),
        (Status.FLAKY, "failure"),
        (Status.ERROR, "error"),
        (Status.INCONCLUSIVE, "skipped"),
        (Status.SKIPPED, "skipped"),
    ],
)
def test_a_status_becomes_what_ci_understands(status, element):
    run = one_endpoint()
    cells = (judged("chat.basic", "gpu", status, "because"), *(c for c in run.cells if c.feature != "chat.basic"))
    suite = ET.fromstring(junit_xml(replace(run, cells=cells)))[0]
    case = next(case for case in suite if case.get("name") == "chat.basic")
    assert [inner.tag for inner in case] == ([element] if element else [])
    assert [int(suite.get(name, "")) for name in ("failures", "errors", "skipped")] == [
        int(element == "failure"),
        int(element == "error"),
        int(element == "skipped"),
    ]


def test_there_is_one_suite_per_endpoint_and_one_case_per_judged_row():
    run = two_endpoints()
    root = ET.fromstring(junit_xml(run))
    rows = [feature.id for feature in run.features if feature.kind is Kind.JUDGED]
    assert [suite.get("name") for suite in root] == ["gpu", "tpu"]
    assert all([case.get("name") for case in suite] == rows for suite in root)
    assert [suite.get("tests") for suite in root] == [str(len(rows))] * 2


def test_a_run_that_died_is_an_error_and_its_missing_rows_are_skipped():
    suite = ET.fromstring(junit_xml(died()))[0]
    assert [inner.tag for inner in suite[0]] == ["error"]
    missing = next(case for case in suite if case.get("name") == "tools.auto")
    assert missing[0].get("message") == "no result: the run ended before this row"
