"""Each item of a workload gets one word on each endpoint, and they are counted in one sentence."""

from __future__ import annotations

import pytest

from servecheck.model import Case, Fault, FaultKind, Finding, Level, Outcome, Status, Trial
from servecheck.tally import sentence, tally
from servecheck.workload import Planned, PlannedItem


def item(name: str, kind: str = "schema") -> PlannedItem:
    return PlannedItem(kind=kind, name=name, place=f"{name}.json", uses=None, scenario=f"workload-{name}")


def trial(name: str, state: str, outcome: Outcome = Outcome.VIOLATED, number: int = 1, **measured: str) -> Trial:
    finding = Finding(
        check="workload-schema-is-enforced",
        outcome=outcome,
        why=f"{name} is {state}",
        evidence=(f"x{number}",),
        measured={"state": state, **measured},
    )
    return made(name, Status.BROKEN, number, findings=(finding,))


def made(name: str, status: Status, number: int = 1, **fields: object) -> Trial:
    case = Case(id=f"{name}{number}", scenario=f"workload-{name}", feature="f", endpoint="e", trial=number)
    return Trial(case=case, status=status, reason="because", **fields)  # type: ignore[arg-type]


def counted(items: list[PlannedItem], *trials: Trial) -> str:
    found = tally(Planned(source="w.yaml", items=tuple(items)), trials, ["e"], {})
    return sentence(found.of(items[0].kind, "e"))


def test_a_count_names_keywords_of_what_was_refused_and_items_of_the_rest():
    items = [item(name) for name in ("a", "b", "c", "d")]
    trials = [
        trial("a", "enforced", Outcome.HELD),
        trial("b", "refused", Outcome.REFUSED, keyword="uniqueItems"),
        trial("c", "no_effect", Outcome.NO_EFFECT),
        trial("d", "enforced", Outcome.HELD),
    ]
    assert counted(items, *trials) == "4 schemas: 2 enforced, 1 without effect (c), 1 refused (uniqueItems)"


def test_tools_are_called_and_one_item_is_singular():
    tools = [item("book", "tool")]
    assert counted(tools, trial("book", "enforced", Outcome.HELD)) == "1 tool: 1 called as defined"
    assert counted(tools, trial("book", "no_effect", Outcome.NO_EFFECT)) == "1 tool: 1 not called (book)"


def test_many_names_are_shortened():
    items = [item(name) for name in "abcde"]
    trials = [trial(name, "refused", Outcome.REFUSED) for name in "abcde"]
    assert counted(items, *trials) == "5 schemas: 5 refused (a, b, c and 2 more)"


@pytest.mark.parametrize(
    ("state", "status", "trials_said", "trials"),
    [
        ("not_enforced", Status.BROKEN, "2/2", [("not_enforced", 1), ("not_enforced", 2)]),
        ("flaky", Status.FLAKY, "1/2", [("enforced", 1), ("not_enforced", 2)]),
        ("not_enforced", Status.BROKEN, "1/1", [("not_told", 1), ("not_enforced", 2)]),
        ("not_told", Status.BROKEN, "2/2", [("not_told", 1), ("not_told", 2)]),
    ],
)
def test_trials_of_an_item_are_taken_together(state, status, trials_said, trials):
    outcomes = {"enforced": Outcome.HELD, "not_told": Outcome.UNDETERMINED}
    given = [trial("a", word, outcomes.get(word, Outcome.VIOLATED), number) for word, number in trials]
    (seen,) = tally(Planned(source="w", items=(item("a"),)), given, ["e"], {}).seen
    assert (seen.state, seen.status, seen.trials) == (state, status, trials_said)


def test_trouble_of_ours_budgets_and_a_run_that_ended_are_no_verdicts_on_an_item():
    fault = Fault(kind=FaultKind.OVERLOADED, reason="overloaded", evidence=("x9",))
    died = Finding(check="server-stays-healthy", outcome=Outcome.VIOLATED, why="down", level=Level.MUST)
    given = [
        made("a", Status.ERROR, fault=fault),
        made("b", Status.SKIPPED, skip_code="budget"),
        made("c", Status.BROKEN, findings=(died,)),
        made("d", Status.INCONCLUSIVE),
    ]
    found = tally(Planned(source="w", items=tuple(item(name) for name in "abcde")), given, ["e"], {}).seen
    assert [seen.state for seen in found] == ["error", "not_run", "failed", "not_told", "not_run"]
    assert [seen.trials for seen in found] == ["", "", "1/1", "1/1", ""]
    assert found[0].evidence == ("x9",)
