"""What became of each schema and tool of a workload, on each endpoint: one word an item, and the counts; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from servecheck.compare import BEST_FIRST
from servecheck.model import DECIDED, Comparison, Delta, Finding, Level, Outcome, Status, Trial
from servecheck.rollup import OUTCOMES, WORST_FIRST
from servecheck.workload import SCHEMA, Planned, PlannedItem

__all__ = [
    "ITEMS_BEHIND",
    "STATES",
    "ItemSeen",
    "WorkloadTally",
    "sentence",
    "sentences",
    "tally",
    "with_items",
    "words",
]

STATES = (
    "enforced", "not_enforced", "no_effect", "refused", "failed", "flaky", "not_told", "error", "not_run",
)  # fmt: skip
"""The words for an item, in the order in which they are counted up; all but the first need a look."""

ITEMS_BEHIND = "items_behind"
"""The figure of a comparison that says how many items of the workload are worse on the right."""

_UNKNOWN = frozenset({"not_told", "error", "not_run"})
_WORDS = {
    "enforced": "enforced",
    "not_enforced": "not enforced",
    "no_effect": "without effect",
    "refused": "refused",
    "failed": "failed",
    "flaky": "flaky",
    "not_told": "undetermined",
    "error": "not judged for trouble of ours or in between",
    "not_run": "not run",
}
_TOOL_WORDS = {
    **_WORDS,
    "enforced": "called as defined",
    "not_enforced": "called, but not as defined",
    "no_effect": "not called",
}
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemSeen:
    """An item on an endpoint: a state, in words why, the keyword where it is about one, and the deciding exchanges.

    ``status`` is what its trials say in the row that it counts for: a ``should`` that did not hold is only degraded.
    ``trials`` counts those that say so among the valid ones, as ``2/3``; it is empty where there was none.
    """

    item: PlannedItem
    endpoint: str
    feature: str
    state: str
    status: Status
    why: str
    keyword: str = ""
    trials: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadTally:
    """All items of a workload on all endpoints, in the workload's order; ``notes`` say what of it was not run."""

    source: str
    notes: tuple[str, ...] = ()
    seen: tuple[ItemSeen, ...] = ()

    def of(self, kind: str, endpoint: str) -> tuple[ItemSeen, ...]:
        """Return the items of a kind on an endpoint."""
        return tuple(one for one in self.seen if one.item.kind == kind and one.endpoint == endpoint)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of items there are."""
        return tuple(dict.fromkeys(one.item.kind for one in self.seen))


def tally(
    planned: Planned, trials: Sequence[Trial], endpoints: Sequence[str], features: dict[str, str]
) -> WorkloadTally:
    """Return what became of every item; ``features`` name the row that each scenario counts for."""
    by_case: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        by_case.setdefault((trial.case.scenario, trial.case.endpoint), []).append(trial)
    return WorkloadTally(
        source=planned.source,
        notes=planned.notes,
        seen=tuple(
            _seen(item, name, features.get(item.scenario, ""), by_case.get((item.scenario, name), []))
            for item in planned.items
            for name in endpoints
        ),
    )


def words(kind: str, state: str) -> str:
    """Return a state as a reader would say it of a schema or of a tool."""
    return (_WORDS if kind == SCHEMA else _TOOL_WORDS)[state]


def sentence(seen: Sequence[ItemSeen]) -> str:
    """Return the count of one kind on one endpoint: ``14 schemas: 13 enforced, 1 refused (uniqueItems)``."""
    kind = seen[0].item.kind
    parts = []
    for state in STATES:
        mine = [one for one in seen if one.state == state]
        if mine:
            named = "" if state == "enforced" else f" ({_named(one.keyword or one.item.name for one in mine)})"
            parts.append(f"{len(mine)} {words(kind, state)}{named}")
    return f"{len(seen)} {kind}{'' if len(seen) == 1 else 's'}: {', '.join(parts)}"


def sentences(workload: WorkloadTally, endpoints: Sequence[str]) -> list[tuple[str, str]]:
    """Return the sentence of each kind on each endpoint, with the endpoint's name."""
    return [
        (name, sentence(mine)) for kind in workload.kinds for name in endpoints if (mine := workload.of(kind, name))
    ]


def _named(names: Iterable[str]) -> str:
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more


def with_items(found: Sequence[Comparison], workload: WorkloadTally, left: str, right: str) -> tuple[Comparison, ...]:
    """Return the comparisons of a pair, those rows behind on the right where one of the workload's items is.

    A row is as bad as its worst item, so two rows can be equally bad for unlike items; but an application that works on
    the left and not on the right is what the comparison is about.
    """
    worse: dict[str, list[tuple[ItemSeen, ItemSeen]]] = {}
    there = {one.item.scenario: one for one in workload.seen if one.endpoint == right}
    for mine in workload.seen:
        theirs = there.get(mine.item.scenario)
        if mine.endpoint == left and theirs is not None and _is_worse(mine, theirs):
            worse.setdefault(mine.feature, []).append((mine, theirs))
    return tuple(
        replace(
            row,
            delta=Delta.BEHIND,
            side=right,
            why=_why_worse(pairs, left, right),
            measured={**row.measured, ITEMS_BEHIND: len(pairs)},
            evidence=tuple(dict.fromkeys(name for pair in pairs for one in pair for name in one.evidence)),
        )
        if (pairs := worse.get(row.feature)) and (row.left, row.right) == (left, right)
        else row
        for row in found
    )


def _is_worse(left: ItemSeen, right: ItemSeen) -> bool:
    if left.status not in DECIDED or right.status not in DECIDED:
        return False
    return BEST_FIRST.index(right.status) > BEST_FIRST.index(left.status)


def _why_worse(pairs: Sequence[tuple[ItemSeen, ItemSeen]], left: str, right: str) -> str:
    said = []
    for mine, theirs in pairs[:_NAMED]:
        keyword = f", {theirs.keyword}" if theirs.keyword else ""
        before, after = words(mine.item.kind, mine.state), words(mine.item.kind, theirs.state)
        said.append(f"{mine.item.kind} {mine.item.name} is {before} on {left} and {after} on {right}{keyword}")
    more = f"; and {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
    return f"your workload: {'; '.join(said)}{more}"


def _seen(item: PlannedItem, endpoint: str, feature: str, trials: Sequence[Trial]) -> ItemSeen:
    told = [_told(trial) for trial in sorted(trials, key=lambda trial: trial.case.trial)]
    valid = [one for one in told if one.state not in _UNKNOWN] or [one for one in told if one.state == "not_told"]
    if not told:
        why = "the run ended before it"
        return ItemSeen(item=item, endpoint=endpoint, feature=feature, state="not_run", status=Status.SKIPPED, why=why)
    deciding = valid or told
    counts = Counter(one.state for one in deciding)
    first = max(deciding, key=lambda one: STATES.index(one.state) if one.state != "enforced" else -1)
    state, status, why = first.state, first.status, first.why
    trials_said = f"{counts[first.state]}/{len(deciding)}" if valid else ""
    if len(counts) > 1:
        said = ", ".join(f"{number} {words(item.kind, name)}" for name, number in counts.items())
        state, status = "flaky", Status.FLAKY
        why = f"{len(deciding)} trials disagree: {said} ({why})"
        trials_said = f"{counts['enforced']}/{len(deciding)}"
    return ItemSeen(
        item=item,
        endpoint=endpoint,
        feature=feature,
        state=state,
        status=status,
        why=why,
        keyword=first.keyword,
        trials=trials_said,
        evidence=first.evidence,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    state: str
    status: Status
    why: str
    keyword: str = ""
    evidence: tuple[str, ...] = ()


def _told(trial: Trial) -> _Told:
    if trial.fault is not None:
        return _Told(state="error", status=Status.ERROR, why=trial.fault.reason, evidence=trial.fault.evidence)
    if trial.skip_code is not None:
        return _Told(state="not_run", status=Status.SKIPPED, why=trial.reason)
    if not trial.findings:
        return _Told(state="not_told", status=Status.INCONCLUSIVE, why=trial.reason)
    worst = min(trial.findings, key=_badness)
    said = worst.measured.get("state")
    if isinstance(said, str) and said in STATES:
        state = said
    else:  # a check that every probe has: the server hung or died of it
        state = "failed" if worst.outcome is Outcome.VIOLATED else "not_told"
    return _Told(
        state=state,
        status=trial.status,
        why=worst.why,
        keyword=str(worst.measured.get("keyword") or ""),
        evidence=worst.evidence,
    )


def _badness(finding: Finding) -> tuple[int, bool]:
    status = OUTCOMES[finding.outcome, finding.level]
    return WORST_FIRST.index(status) if status is not None else len(WORST_FIRST), finding.level is not Level.MUST
