"""A run with a workload: recorded whole, judged again from its folder alone, and shown item by item in each report."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from servecheck import features, plan, scenario
from servecheck.budget import Budget
from servecheck.model import Delta, Status
from servecheck.probes import discover
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants.tools_required import RequiredIgnored
from servecheck.reference.server import ReferenceServer
from servecheck.report.files import rendered
from servecheck.report.results import to_results
from servecheck.run import plan_of, read_back
from servecheck.schema.results_v1 import json_schema
from servecheck.wire.curl import render
from servecheck.workload import load
from tests.lab import Lab, endpoint

PROBES = discover()
SCENARIOS = scenario.load_all([scenario.builtin_dir()], probes=PROBES, features=features.BY_ID)
EXAMPLE = Path(__file__).parent.parent / "examples" / "workload"
ROWS = ("structured.json_schema", "tools.required")


class NoConditions(RequiredIgnored):
    """Refuses `if`, dies of one schema, calls no tools, and drops nothing else that it knows."""

    def schema_constraint(self, schema, param):
        text = json.dumps(schema)
        if '"oak"' in text:
            raise ApiError("assertion failed", status=500, kind="InternalServerError")
        return super().schema_constraint(schema, param)


class NoTickets(ReferenceServer):
    """Refuses one schema more than a right server does, and names no keyword that it holds twice."""

    def schema_constraint(self, schema, param):
        if '"urgency"' in json.dumps(schema):
            raise ApiError("unsupported keyword 'enum'", param=param)
        return super().schema_constraint(schema, param)


def lab(
    folder: Path, tmp_path: Path, *, names: tuple[str, ...] = ("one",), first: str = "one", **settings: object
) -> Lab:
    """Return a run of the example, whose files are gone before the run is judged."""
    copied = tmp_path / "example"
    shutil.copytree(EXAMPLE, copied, dirs_exist_ok=True)
    servers = {"one": NoConditions(), "two": ReferenceServer(), "three": NoTickets()}
    made = Lab(folder, {name: servers[name] for name in names}, probes=list(PROBES.values()))
    chosen = [endpoint(name, reference=len(names) > 1 and name == first) for name in names]
    made.plan = plan.make(
        chosen,
        SCENARIOS,
        PROBES,
        settings=plan.Settings(deadline=30.0, trials=1, **settings),  # type: ignore[arg-type]
        globs=ROWS,
        workload=load(copied / "workload.yaml"),
    )
    shutil.rmtree(copied)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("workload")
    lab(place / "run", place, names=("one", "two")).run()
    return place / "run"


def test_the_count_is_a_note_of_the_row_and_the_worst_item_decides_it(folder):
    report = read_back(folder, PROBES)
    cell = report.cell("structured.json_schema", "one")
    assert cell is not None
    assert cell.status is Status.BROKEN
    assert "floor_plan: HTTP 500" in cell.reason
    assert cell.notes == ("your workload, 7 schemas: 4 enforced, 2 refused (uniqueItems, if), 1 failed (floor_plan)",)
    other = report.cell("structured.json_schema", "two")
    assert other is not None
    assert other.status is Status.UNSUPPORTED
    tools = report.cell("tools.required", "two")
    assert tools is not None
    assert tools.notes == ("your workload, 2 tools: 2 called as defined",)


def test_results_hold_counts_and_items_and_are_valid(folder):
    results = to_results(read_back(folder, PROBES))
    Draft7Validator(json_schema()).validate(results)
    workload = results["workload"]
    assert [(one["kind"], one["endpoint"], one["counts"]) for one in workload["counts"]] == [
        ("schema", "one", {"enforced": 4, "failed": 1, "refused": 2}),
        ("schema", "two", {"enforced": 5, "refused": 2}),
        ("tool", "one", {"no_effect": 2}),
        ("tool", "two", {"enforced": 2}),
    ]
    labels = next(item for item in workload["items"] if item["name"] == "labels")
    assert (labels["feature"], labels["uses"]) == ("structured.json_schema", None)
    assert labels["place"].endswith("schemas/labels.json")
    seen = labels["seen"][0]
    assert (seen["state"], seen["keyword"], seen["trials"]) == ("refused", "uniqueItems", "1/1")
    assert seen["evidence"]
    assert "HTTP 400" in seen["why"]


def test_a_run_without_a_workload_says_nothing_of_one(tmp_path):
    made = Lab(tmp_path / "run", ReferenceServer())
    results = to_results(made.run())
    assert "workload" not in results
    assert "workload" not in json.loads((tmp_path / "run" / "run.jsonl").read_text("utf-8").splitlines()[0])


@pytest.mark.parametrize("form", ["md", "html", "summary"])
def test_a_report_shows_the_count_and_each_item_that_falls_short_with_its_evidence(folder, form):
    report = read_back(folder, PROBES)
    shown = rendered(report, form, render)
    assert "7 schemas: 4 enforced, 2 refused (uniqueItems, if), 1 failed (floor_plan)" in shown
    assert "1 of 5 lines could not be read" in shown
    heading = "Your workload</h2>" if form == "html" else "Your workload"
    section = shown.partition(heading)[2].partition("Evidence")[0]
    for name in ("labels", "discount", "floor_plan", "book_room"):
        assert name in section
    assert "invoice_number" not in section
    if form != "summary":
        assert "curl" in section


def test_nothing_but_the_folder_is_needed_to_judge_again(folder):
    assert to_results(read_back(folder, PROBES)) == to_results(read_back(folder, PROBES))
    resumed = plan_of(folder, PROBES)
    assert resumed.workload is not None
    assert [item.name for item in resumed.workload.items][:2] == ["invoice_number", "ticket"]
    assert resumed.workload.notes
    header = json.loads((folder / "run.jsonl").read_text("utf-8").splitlines()[0])
    schemas = [one["with"] for one in header["scenarios"] if one["probe"] == "workload_schema"]
    assert schemas[2]["answer_schema"]["properties"]["labels"]["uniqueItems"] is True


def test_an_item_that_is_worse_on_the_candidate_blocks_although_the_rows_are_equally_bad(tmp_path):
    """The reference refuses two schemas as well; that it does not excuse the third."""
    report = lab(tmp_path / "run", tmp_path, names=("two", "three"), first="two").run()
    rows = [report.cell("structured.json_schema", name) for name in ("two", "three")]
    assert [row and row.status for row in rows] == [Status.UNSUPPORTED, Status.UNSUPPORTED]
    (compared,) = report.compared("structured.json_schema")
    assert (compared.delta, compared.side, compared.measured) == (Delta.BEHIND, "three", {"items_behind": 1})
    assert compared.why == "your workload: schema ticket is enforced on two and refused on three, enum"
    assert report.verdict.blockers == ("structured.json_schema@three",)
    assert report.broken_on_both == ()
    assert (
        "schema ticket is enforced on `two`".replace("`", "")
        in rendered(report, "md", render).partition("Not known")[0]
    )


def test_a_budget_leaves_items_out_and_says_so(tmp_path):
    report = lab(tmp_path / "run", tmp_path).run(budget=Budget(requests=12))
    assert report.workload is not None
    states = [seen.state for seen in report.workload.seen if seen.item.kind == "schema"]
    assert states[-1] == "not_run"
    assert states.count("not_run") >= 4


def test_an_interrupted_run_goes_on_with_its_workload(tmp_path):
    made = lab(tmp_path / "run", tmp_path)
    made.run(budget=Budget(requests=12))
    made.plan = replace(plan_of(made.folder, PROBES), endpoints=made.plan.endpoints)
    report = made.run(resume=True)
    assert report.workload is not None
    assert not [seen.item.name for seen in report.workload.seen if seen.state == "not_run"]
