"""What was not asked is never a yes: rows of the candidate alone, selections without a core row, spent budgets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servecheck import verdict
from servecheck.compare import compare
from servecheck.features import FEATURES
from servecheck.model import Cell, Comparison, Decision, Delta, SkipCode, Status, Verdict
from tests.cells import row

SUPPORTED, DEGRADED, BROKEN = Status.SUPPORTED, Status.DEGRADED, Status.BROKEN
UNSELECTED, BUDGET, NOT_FOR_IT = SkipCode.NOT_SELECTED, SkipCode.BUDGET, SkipCode.NOT_APPLICABLE
CORE = [feature.id for feature in FEATURES if feature.core]
UNTOLD = "Cannot tell: no selected row is known to be behind"
PARITY = ("parity.greedy", "parity.logprobs")


def left_out(feature: str, endpoint: str, code: str) -> Cell:
    return replace(row(feature, endpoint, Status.SKIPPED), skip_code=code)


def measured(delta: Delta, feature: str) -> Comparison:
    return Comparison(left="gpu", right="tpu", feature=feature, delta=delta, why="measured", side=None)


def moved(cells: list[Cell], comparisons: list[Comparison] | None = None) -> Verdict:
    found = compare(cells, FEATURES, left="gpu", right="tpu", fingerprints={}) if comparisons is None else comparisons
    return verdict.decide(cells, found, FEATURES, reference="gpu")


def code_of(found: Verdict, cells: list[Cell], comparisons: tuple[Comparison, ...] = ()) -> int:
    return verdict.exit_code(found, cells, comparisons, FEATURES, has_reference=True)


def parity(*deltas: Delta) -> tuple[list[Cell], list[Comparison]]:
    cells = [left_out(feature, endpoint, UNSELECTED) for endpoint in ("gpu", "tpu") for feature in CORE]
    cells += [row(feature, endpoint, SUPPORTED) for endpoint in ("gpu", "tpu") for feature in PARITY]
    return cells, [measured(delta, feature) for delta, feature in zip(deltas, PARITY, strict=True)]


# --------------------------------------------------------------------------- asked of one side only


@pytest.mark.parametrize("code", [UNSELECTED, BUDGET, SkipCode.OPT_IN])
@pytest.mark.parametrize("status", [BROKEN, Status.UNSUPPORTED, Status.IGNORED, Status.FLAKY])
def test_what_falls_short_and_was_not_asked_of_the_reference_is_unknown(code, status):
    cells = [row("chat.basic", "gpu", SUPPORTED), row("chat.basic", "tpu", SUPPORTED)]
    cells += [left_out("chat.stop", "gpu", code), row("chat.stop", "tpu", status)]
    found = moved(cells)
    assert (found.decision, found.unknown) == (Decision.CANNOT_TELL, ("chat.stop@tpu",))
    assert f"1 is undecided (chat.stop@tpu {status.value} and not asked of gpu)" in found.sentence
    assert code_of(found, cells) == 4


@pytest.mark.parametrize(
    ("code", "status"), [(UNSELECTED, SUPPORTED), (UNSELECTED, DEGRADED), (NOT_FOR_IT, BROKEN), ("needs:a.b", BROKEN)]
)
def test_what_works_or_is_not_for_the_reference_is_not(code, status):
    cells = [row("chat.basic", "gpu", SUPPORTED), row("chat.basic", "tpu", SUPPORTED)]
    cells += [left_out("chat.stop", "gpu", code), row("chat.stop", "tpu", status)]
    found = moved(cells)
    assert (found.decision, found.unknown, code_of(found, cells)) == (Decision.READY, (), 0)


# --------------------------------------------------------------------------- no core row selected


@pytest.mark.parametrize(
    ("deltas", "decision", "code", "sentence"),
    [
        ((Delta.SAME, Delta.SAME), Decision.READY, 0,
         "So far yes: tpu is not behind gpu on any of 2 selected rows; no core row was selected."),
        ((Delta.SAME, Delta.DRIFT), Decision.NOT_READY, 1,
         "No: tpu drifted from gpu on 1 of 2 selected rows (parity.logprobs); no core row was selected."),
        ((Delta.UNCLEAR, Delta.SAME), Decision.CANNOT_TELL, 4,
         f"{UNTOLD}, but 1 is undecided (parity.greedy@tpu unclear); no core row was selected."),
    ],
)  # fmt: skip
def test_where_no_core_row_is_selected_the_selected_ones_decide(deltas, decision, code, sentence):
    cells, comparisons = parity(*deltas)
    found = moved(cells, comparisons)
    assert (found.decision, code_of(found, cells, tuple(comparisons)), found.sentence) == (decision, code, sentence)


def test_drift_beside_core_rows_stays_a_caveat():
    cells, comparisons = parity(Delta.SAME, Delta.DRIFT)
    core = {(CORE[0], endpoint) for endpoint in ("gpu", "tpu")}
    cells = [cell for cell in cells if (cell.feature, cell.endpoint) not in core]
    cells += [row(feature, endpoint, SUPPORTED) for feature, endpoint in core]
    found = moved(cells, [*comparisons, measured(Delta.SAME, CORE[0])])
    assert (found.decision, found.caveats) == (Decision.READY_WITH_CAVEATS, ("parity.logprobs@tpu",))


def test_a_selection_of_properties_decides_nothing_and_fails_nothing():
    cells = [left_out(feature, "gpu", UNSELECTED) for feature in CORE]
    cells.append(row("performance.latency", "gpu", SUPPORTED))
    found = verdict.decide(cells, (), FEATURES, reference=None)
    assert (found.decision, code_of(found, cells)) == (Decision.CANNOT_TELL, 0)


# --------------------------------------------------------------------------- a budget


@pytest.mark.parametrize(("decided", "code"), [(False, 4), (True, 0)])
def test_a_budget_that_ends_before_anything_is_decided_is_no_pass(decided, code):
    cells = [row("chat.basic", "gpu", SUPPORTED) if decided else left_out("chat.basic", "gpu", BUDGET)]
    cells.append(left_out("chat.stop", "gpu", BUDGET))
    found = verdict.decide(cells, (), FEATURES, reference=None)
    assert code_of(found, cells) == code
