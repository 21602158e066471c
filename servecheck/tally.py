"""What became of each schema and tool of a workload, on each endpoint: one word an item, and the counts; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from servecheck.model import Finding, Level, Outcome, Trial
from servecheck.verdict import OUTCOMES, WORST_FIRST
from servecheck.workload import SCHEMA, Planned, PlannedItem

__all__ = ["STATES", "ItemSeen", "WorkloadTally", "sentence", "tally", "words"]

STATES = (
    "enforced", "not_enforced", "no_effect", "refused", "failed", "flaky", "not_told", "error", "not_run",
)  # fmt: skip
"""The words for an item, in the order in which they are counted up; all but the first need a look."""

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

    ``trials`` counts those that say so among the valid ones, as ``2/3``; it is empty where there was none.
    """

    item: PlannedItem
    endpoint: str
    feature: str
    state: str
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


def _named(names: Iterable[str]) -> str:
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more


def _seen(item: PlannedItem, endpoint: str, feature: str, trials: Sequence[Trial]) -> ItemSeen:
    told = [_told(trial) for trial in sorted(trials, key=lambda trial: trial.case.trial)]
    valid = [one for one in told if one.state not in _UNKNOWN] or [one for one in told if one.state == "not_told"]
    if not told:
        return ItemSeen(item=item, endpoint=endpoint, feature=feature, state="not_run", why="the run ended before it")
    deciding = valid or told
    counts = Counter(one.state for one in deciding)
    first = max(deciding, key=lambda one: STATES.index(one.state) if one.state != "enforced" else -1)
    state, why, trials_said = first.state, first.why, f"{counts[first.state]}/{len(deciding)}" if valid else ""
    if len(counts) > 1:
        said = ", ".join(f"{number} {words(item.kind, name)}" for name, number in counts.items())
        state, why = "flaky", f"{len(deciding)} trials disagree: {said} ({why})"
        trials_said = f"{counts['enforced']}/{len(deciding)}"
    return ItemSeen(
        item=item,
        endpoint=endpoint,
        feature=feature,
        state=state,
        why=why,
        keyword=first.keyword,
        trials=trials_said,
        evidence=first.evidence,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    state: str
    why: str
    keyword: str = ""
    evidence: tuple[str, ...] = ()


def _told(trial: Trial) -> _Told:
    if trial.fault is not None:
        return _Told(state="error", why=trial.fault.reason, evidence=trial.fault.evidence)
    if trial.skip_code is not None:
        return _Told(state="not_run", why=trial.reason)
    if not trial.findings:
        return _Told(state="not_told", why=trial.reason)
    worst = min(trial.findings, key=_badness)
    said = worst.measured.get("state")
    if isinstance(said, str) and said in STATES:
        state = said
    else:  # a check that every probe has: the server hung or died of it
        state = "failed" if worst.outcome is Outcome.VIOLATED else "not_told"
    return _Told(state=state, why=worst.why, keyword=str(worst.measured.get("keyword") or ""), evidence=worst.evidence)


def _badness(finding: Finding) -> tuple[int, bool]:
    status = OUTCOMES[finding.outcome, finding.level]
    return WORST_FIRST.index(status) if status is not None else len(WORST_FIRST), finding.level is not Level.MUST
