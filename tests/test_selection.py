"""What chooses the scenarios of a plan: a suite, a profile, rows and files; what was meant and is left out is said."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from servecheck import features, plan, scenario, selection
from servecheck.budget import Budget
from servecheck.endpoints import resolve, same_twice
from servecheck.errors import NothingSelected
from servecheck.model import Endpoint, Risk
from servecheck.plan import Needs, Plan, Settings
from servecheck.probes import discover
from tests.commands import nowhere, servecheck

PROBES = discover()
BUILTIN = scenario.load_all([scenario.builtin_dir()], probes=PROBES, features=features.BY_ID)
OWN = scenario.load_all([scenario.examples_dir()], probes=PROBES, features=features.BY_ID)[:1]
ONE = [Endpoint(name="it", base_url="http://127.0.0.1:1/v1")]
AGENTS = Needs(profile="agents", rows=("chat.basic", "tools.none", "tools.truncated"))
BESIDE = Needs(profile="agents", rows=AGENTS.rows, alone=False)
LADDER = "compile.recompilation"


def made(
    suite: str = "standard",
    *globs: str,
    needs: Needs | None = None,
    own: Sequence[scenario.Scenario] = (),
    built_in: bool = True,
    allow: frozenset[Risk] = frozenset(),
) -> Plan:
    given = [*(BUILTIN if built_in else ()), *own]
    return plan.make(
        ONE,
        given,
        PROBES,
        settings=Settings(suite=suite, allow=allow),
        globs=globs,
        given=not built_in,
        own=[each.id for each in own],
        needs=needs,
    )


def rows(of: Plan) -> set[str]:
    return {each.feature for each in of.scenarios}


def ids(of: Plan) -> set[str]:
    return {each.id for each in of.scenarios}


def said(of: Plan, budget: Budget | None = None) -> list[str]:
    return [*selection.left_out(of, PROBES, budget or Budget())]


# --------------------------------------------------------------------------- what runs


@pytest.mark.parametrize("suite", ["smoke", "standard", "migration", "full"])
def test_the_rows_of_a_profile_run_whatever_the_suite_and_come_to_those_of_the_suite(suite):
    alone, beside = made(suite), made(suite, needs=BESIDE)
    assert set(BESIDE.rows) <= rows(beside)
    assert ids(beside) == ids(alone) | {each.id for each in BUILTIN if each.feature in BESIDE.rows}


def test_a_profile_alone_brings_its_rows_and_what_says_what_the_endpoint_is():
    groups = {row.partition(".")[0] for row in rows(made(needs=AGENTS)) - set(AGENTS.rows)}
    assert groups == {"identity", "quantization"}
    assert set(AGENTS.rows) <= rows(made(needs=AGENTS))


@pytest.mark.parametrize("needs", [None, AGENTS, BESIDE], ids=["no profile", "a profile", "a profile beside"])
@pytest.mark.parametrize("suite", ["smoke", "standard", "full"])
def test_what_a_user_names_by_file_runs_whatever_the_suite_and_the_profile(suite, needs):
    assert ids(made(suite, needs=needs, own=OWN)) == ids(made(suite, needs=needs)) | {OWN[0].id}


def test_only_a_row_that_somebody_names_leaves_it_out_and_that_is_said():
    left = made("standard", "chat.basic", own=OWN)
    assert rows(left) == {"chat.basic"}
    assert said(left) == [f"1 scenario of your own not run: {OWN[0].id} (not named by --feature)"]


def test_a_file_that_is_part_of_the_built_in_suite_is_named_too_and_the_suite_itself_is_not():
    (path,) = [each.path for each in BUILTIN if each.id == "shape-ladder"]
    assert scenario.named_by_file(BUILTIN, [path]) == {"shape-ladder"}
    assert scenario.named_by_file(BUILTIN, [scenario.BUILTIN, scenario.builtin_dir()]) == frozenset()
    assert scenario.named_by_file([*BUILTIN, *OWN], [scenario.BUILTIN, OWN[0].path]) == {OWN[0].id}


def test_a_risk_is_not_taken_because_a_file_is_named():
    ladder = [each for each in BUILTIN if each.feature == LADDER]
    left = plan.make(ONE, BUILTIN, PROBES, settings=Settings(), own=[each.id for each in ladder])
    assert LADDER not in rows(left)
    assert said(left) == ["1 scenario of your own not run: shape-ladder (needs --allow load)"]


# --------------------------------------------------------------------------- what is said


@pytest.mark.parametrize(
    ("expected", "planned"),
    [
        (["suite smoke: 8 scenarios"], lambda: made("smoke")),
        (
            ["suite smoke and profile agents: 10 scenarios", "the profile agents (3 rows) brings 2 scenarios that are"],
            lambda: made("smoke", needs=BESIDE),
        ),
        (
            ["suite full and profile agents: ", "the profile agents (3 rows) brings none that is not in the suite"],
            lambda: made("full", needs=BESIDE),
        ),
        (["profile agents: ", "3 of the profile's 3 rows"], lambda: made(needs=AGENTS)),
        (["suite smoke: 9 scenarios", f"of your own: 1 scenario ({OWN[0].id})"], lambda: made("smoke", own=OWN)),
        (
            ["--feature tools.none: 1 scenario", "rows that --feature names run whole: 1 scenario (none-after-auto"],
            lambda: made("smoke", "tools.none"),
        ),
        (["--feature chat.basic: 1 scenario"], lambda: made("standard", "chat.basic")),
    ],
)
def test_a_dry_run_says_what_is_selected_by_what(expected, planned):
    lines = [*selection.chosen(planned())]
    assert [line[: len(start)] for line, start in zip(lines, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("expected", "planned"),
    [
        ([], lambda: made(needs=AGENTS)),
        (
            ["2 of 3 rows of the profile agents are not run: tools.none, tools.truncated (not named by --feature)"],
            lambda: made("standard", "chat.basic", needs=AGENTS),
        ),
        (
            ["1 of 2 rows of the profile mine are not run: compile.recompilation (needs --allow load)"],
            lambda: made(needs=Needs(profile="mine", rows=("chat.basic", LADDER))),
        ),
        (
            ["1 of 1 rows of the profile mine are not run: own.nobody (nothing counts for it)"],
            lambda: made("smoke", needs=Needs(profile="mine", rows=("own.nobody",), alone=False)),
        ),
        (
            ["1 of 1 rows of the profile mine are not run: chat.basic (no scenario that was given counts for it)"],
            lambda: made(needs=Needs(profile="mine", rows=("chat.basic",)), own=OWN, built_in=False),
        ),
    ],
)
def test_rows_of_a_profile_that_are_left_out_are_named_with_the_reason(expected, planned):
    assert said(planned()) == expected


def test_a_budget_that_is_less_than_the_cost_names_what_it_is_likely_to_leave_out():
    whole = made(needs=AGENTS)
    assert said(whole, Budget(requests=whole.estimate.requests)) == []
    assert said(whole, Budget(tokens=10**9)) == []
    (last,) = plan.beyond(whole, PROBES, Budget(requests=whole.estimate.requests - 1))
    assert last == whole.scenarios[-1]
    assert plan.beyond(whole, PROBES, Budget(requests=1)) == [*whole.scenarios]
    (first, second) = said(whole, Budget(requests=1))
    assert first.startswith(f"the budget is likely to end before {len(whole.scenarios)} scenarios: ")
    assert second == "rows of the profile agents among them: chat.basic, tools.none, tools.truncated"
    assert plan.beyond(whole, PROBES, Budget(output_tokens=1)) != []


@pytest.mark.parametrize(
    ("expected", "arguments"),
    [
        (f"--feature compile.* selects nothing that may run ({LADDER}: needs --allow load)", ("standard", "compile.*")),
        ("--feature nope* selects no scenario;", ("standard", "nope*")),
    ],
)
def test_where_nothing_runs_the_reason_is_what_would_help(expected, arguments):
    with pytest.raises(NothingSelected) as caught:
        made(*arguments)
    assert expected in str(caught.value)


def test_where_a_suite_leaves_all_out_it_is_named():
    dear = [each for each in BUILTIN if plan.FULL_ONLY in each.tags][:1]
    with pytest.raises(NothingSelected, match="not part of the suite smoke"):
        plan.make(ONE, dear, PROBES, settings=Settings(suite="smoke"), given=True)


def test_the_ladder_runs_where_its_risk_is_allowed():
    assert rows(made("standard", "compile.*", allow=frozenset({Risk.LOAD}))) == {LADDER}


# --------------------------------------------------------------------------- on the command line


@pytest.fixture
def here(monkeypatch, tmp_path):
    nowhere(monkeypatch, tmp_path)
    return tmp_path


URL = "http://127.0.0.1:1/v1"


def test_the_command_line_joins_suite_profile_and_files(here: Path):
    (here / "mine").mkdir()
    shutil.copy(OWN[0].path, here / "mine")
    told = servecheck(
        *("run", URL, "--suite", "smoke", "--profile", "agents", "--scenario", "builtin", "--scenario", "mine"),
        "--dry-run",
    )
    assert told.code == 0
    assert {"tools.none", "tools.truncated", OWN[0].feature} <= {line.split()[0] for line in told.out.splitlines()}
    assert "suite smoke and profile agents: " in told.out
    less = servecheck("run", URL, "--profile", "agents", "--feature", "chat.basic", "--dry-run", "-q")
    assert "warning: 19 of 20 rows of the profile agents are not run: " in less.err
    spent = servecheck("run", URL, "--profile", "agents", "--budget", "requests=60", "--dry-run")
    assert "warning: rows of the profile agents among them: " in spent.err


def test_an_endpoint_under_two_names_is_told_in_a_dry_run_too(here: Path):
    told = servecheck("run", f"a={URL}", f"b={URL}", "--suite", "smoke", "--dry-run")
    assert (told.code, "warning: a and b are the same endpoint" in told.err) == (0, True)


def test_the_cost_of_a_scenario_and_of_a_run_of_it_differ_by_what_both_name(here: Path):
    told = servecheck("run", URL, "--feature", "compile.*", "--allow", "load", "--dry-run").out
    whole, beside = map(int, re.findall(r"about (\d+) requests \((\d+) of them", told)[0])
    listed = servecheck("list", "scenarios", "shape-ladder").out
    assert whole - beside == int(re.findall(r" (\d+)/", listed)[0])
    assert f"about {beside} times more" in listed


# --------------------------------------------------------------------------- the same endpoint twice


@pytest.mark.parametrize(
    ("same", "arguments", "more"),
    [
        (True, ["a=http://h:1", "b=http://h:1/v1/"], {}),
        (True, ["a=http://localhost:1", "b=http://127.0.0.1:1"], {}),
        (True, ["a=http://h:1", "b=http://h:1"], {"models": ["m"]}),
        (True, ["a=http://h:1", "b=http://h:1"], {"models": ["a=m"]}),
        (False, ["a=http://h:1", "b=http://h:1"], {"models": ["a=m", "b=n"]}),
        (False, ["a=http://h:1", "b=http://h:2"], {}),
        (False, ["a=http://h:1/x", "b=http://h:1/y"], {}),
        (False, ["a=http://h:1", "b=http://h:1"], {"headers": ["b=X-Backend: tpu"]}),
        (False, ["a=http://localhost.example:1", "b=http://127.0.0.1.example:1"], {}),
    ],
)
def test_the_same_url_and_model_under_two_names_is_one_endpoint(same, arguments, more):
    found = same_twice(resolve(arguments, environ={}, **more))
    assert [line.partition(",")[0] for line in found] == (["a and b are the same endpoint"] if same else [])
