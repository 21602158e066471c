"""The tables from findings to the status of a trial, a part, a row and a group; pure, and never reads a reply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from servecheck.model import (
    DECIDED,
    Cell,
    Fault,
    Feature,
    Finding,
    GroupTally,
    How,
    Kind,
    Level,
    Mode,
    Observed,
    Outcome,
    Route,
    SkipCode,
    Status,
    Trial,
)

__all__ = [
    "MEASURED",
    "OUTCOMES",
    "SHORTFALLS",
    "WORST_FIRST",
    "Part",
    "cell",
    "group_tallies",
    "no_probe",
    "part_status",
    "roll_up",
    "skipped",
    "trial_status",
    "worst",
]

OUTCOMES: Mapping[tuple[Outcome, Level], Status | None] = MappingProxyType(
    {
        (Outcome.VIOLATED, Level.MUST): Status.BROKEN,
        (Outcome.VIOLATED, Level.SHOULD): Status.DEGRADED,
        (Outcome.NO_EFFECT, Level.MUST): Status.IGNORED,
        (Outcome.NO_EFFECT, Level.SHOULD): Status.DEGRADED,
        (Outcome.REFUSED, Level.MUST): Status.UNSUPPORTED,
        (Outcome.REFUSED, Level.SHOULD): Status.DEGRADED,
        (Outcome.UNDETERMINED, Level.MUST): Status.INCONCLUSIVE,
        (Outcome.UNDETERMINED, Level.SHOULD): None,
        (Outcome.HELD, Level.MUST): Status.SUPPORTED,
        (Outcome.HELD, Level.SHOULD): Status.SUPPORTED,
    }
)
"""What one finding makes of its trial; ``None`` has no effect."""

WORST_FIRST: tuple[Status, ...] = (
    Status.BROKEN,
    Status.FLAKY,
    Status.IGNORED,
    Status.UNSUPPORTED,
    Status.DEGRADED,
    Status.ERROR,
    Status.INCONCLUSIVE,
    Status.SKIPPED,
    Status.SUPPORTED,
)
"""The one order of badness: within a trial, among the core parts of a row and among the core rows of a group.

A shortfall that was seen outranks what could not be seen, since more evidence would not take it back; and one unseen
core part keeps a row from being green.
"""

MEASURED = "measured; what it means is for the comparison to say"
"""What one side of a comparison says where nothing kept it from being measured."""

SHORTFALLS = DECIDED - {Status.SUPPORTED}
"""What was seen to be less than supported."""

_BADNESS = {status: place for place, status in enumerate(WORST_FIRST)}
_ROUTES = {route: place for place, route in enumerate(Route)}
_MODES = {mode: place for place, mode in enumerate(Mode)}
_LEVELS = {level: place for place, level in enumerate(Level)}
_CERTAINTY = (How.UNKNOWN, How.DECLARED, How.OBSERVED)


def worst(statuses: Iterable[Status]) -> Status:
    """Return the worst status by :data:`WORST_FIRST`; of none, which is a caller's bug, ``ValueError``."""
    return min(statuses, key=_BADNESS.__getitem__)


# --------------------------------------------------------------------------- findings → trial


def trial_status(
    findings: Iterable[Finding],
    *,
    observed: Sequence[Observed] = (),
    fault: Fault | None = None,
    skip_code: str | None = None,
) -> tuple[Status, str]:
    """Return what one trial says, and the sentence of the finding that decided it.

    A fault is ``error`` and a skip is ``skipped``, whatever the findings are. Else the worst finding decides, by
    :data:`OUTCOMES` and :data:`WORST_FIRST`; between equals a ``must`` before a ``should``, then by route, mode and
    check, so that the order in which a judge speaks does not matter. Only where everything held does the first of the
    findings as given speak, a ``must`` before a ``should``: they come in the order of the probe's checks, and a probe
    names first what it is about. Findings without effect decide nothing: a trial that has no others is
    ``inconclusive``, for green needs evidence. A trial that only observed a value is ``supported`` in the sense of
    *known*.
    """
    if fault is not None:
        return Status.ERROR, fault.reason
    if skip_code is not None:
        return Status.SKIPPED, f"skipped ({skip_code})"
    given = list(findings)
    ordered = sorted(given, key=_finding_order)
    weighed = [(status, finding.why) for finding in ordered if (status := _weight(finding)) is not None]
    if weighed:
        status, why = min(weighed, key=lambda pair: _BADNESS[pair[0]])
        return status, _most_telling(given) if status is Status.SUPPORTED else why
    if ordered:
        return Status.INCONCLUSIVE, ordered[0].why
    if observed:
        return Status.SUPPORTED, "; ".join(dict.fromkeys(seen.why for seen in observed))
    return Status.INCONCLUSIVE, "nothing was judged"


def _most_telling(findings: Iterable[Finding]) -> str:
    held = [finding for finding in findings if finding.outcome is Outcome.HELD]
    return min(held, key=lambda finding: _LEVELS[finding.level]).why


def _weight(finding: Finding) -> Status | None:
    return OUTCOMES[finding.outcome, finding.level]


def _finding_order(finding: Finding) -> tuple[object, ...]:
    return (
        finding.scenario,
        finding.trial,
        _LEVELS[finding.level],
        _ROUTES[finding.route],
        _MODES[finding.mode],
        finding.check,
        finding.outcome,
        finding.why,
        finding.evidence,
    )


# --------------------------------------------------------------------------- trials → part → row


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One scenario on one route in one mode, over all its trials."""

    scenario: str
    route: Route
    mode: Mode
    status: Status
    reason: str

    @property
    def label(self) -> str:
        """The route and mode as words."""
        words = [] if self.route is Route.NONE else [self.route.value]
        return ", ".join(words + (["streamed"] if self.mode is Mode.STREAM else []))


def part_status(trials: Sequence[tuple[Status, str]]) -> tuple[Status, str]:
    """Return what the trials of one part say together, with a reason; the order of the trials names only the reason.

    Invalid trials (error, inconclusive, skipped) are set aside while a valid one exists. Equal valid trials give their
    status, differing ones ``flaky``. Without a valid one the worst of ``error`` and ``inconclusive`` is left;
    ``skipped`` only where all were.
    """
    valid = [trial for trial in trials if trial[0] in DECIDED]
    if not valid:
        return min(trials, key=lambda trial: _BADNESS[trial[0]])
    if len({status for status, _ in valid}) == 1:
        return valid[0]
    counts = Counter(status for status, _ in valid)
    shown = sorted(counts, key=_BADNESS.__getitem__, reverse=True)
    tally = ", ".join(f"{counts[status]} {status.value}" for status in shown)
    why = next(reason for status, reason in valid if status is shown[-1])
    return Status.FLAKY, f"{len(valid)} trials disagree: {tally} ({why})"


def _is_core(routes: Collection[Route]) -> frozenset[Route]:
    """Return which of a row's routes are core to it.

    The chat route makes a row, with what belongs to no route. A row that shows nothing on the chat route, such as
    ``completions.basic``, is judged by all it shows.
    """
    return frozenset({Route.CHAT, Route.NONE}) if Route.CHAT in routes else frozenset(Route)


def _combine(core: Sequence[Status], extended: Sequence[Status]) -> Status:
    """Return the worst core status, where a shortfall that was seen in an extended part takes the green away.

    It does no more than that: ``degraded`` promises that every core part held, so a core part that nobody could see
    stays undecided whatever the extended ones did.
    """
    short = any(status in SHORTFALLS for status in extended)
    if not core:
        return Status.DEGRADED if short else worst(extended)
    status = worst(core)
    return Status.DEGRADED if short and status is Status.SUPPORTED else status


def roll_up(parts: Sequence[Part]) -> tuple[Status, str]:
    """Return what the parts of a row say together, and the reason of the part that decided it.

    Worst first among core parts; a decided shortfall in an extended part makes a supported row ``degraded`` and is
    named in the reason of any other; an undecided extended part only lowers the tally of parts.
    """
    routes = _is_core({part.route for part in parts})
    ordered = sorted(parts, key=lambda part: (part.scenario, _ROUTES[part.route], _MODES[part.mode]))
    core = [part for part in ordered if part.route in routes]
    extended = [part for part in ordered if part.route not in routes]
    status = _combine([part.status for part in core], [part.status for part in extended])
    short = sorted((part for part in extended if part.status in SHORTFALLS), key=lambda part: _BADNESS[part.status])
    if short and all(part.status is Status.SUPPORTED for part in core):
        return status, f"{short[0].label}: {short[0].status.value}: {short[0].reason}"
    reason = next(part.reason for part in core if part.status is status)
    if short:
        reason += f"; also {short[0].label}: {short[0].status.value}"
    return status, reason


def cell(feature: Feature, endpoint: str, trials: Sequence[Trial]) -> Cell:
    """Return the cell that all trials of a row on an endpoint make; the order they are given in does not matter.

    A *part* is scenario × route × mode. A trial counts for every part that its scenario showed in any trial: by its
    findings on that part, or else by the worst of its core findings (a server that dies in one trial of three, before
    the parts are reached, is flaky), or else by its fault, its skip or its having nothing to say. A scenario that
    never showed any part is one core part without a route. ``trials`` of the cell holds one status per trial number,
    made of that trial's parts as the row is made of its parts.

    A **property** row has a value and how it is known, and never a judged status: with a value its status is
    ``supported`` (read: known), without one ``error``, ``inconclusive`` or ``skipped``. Values that differ between the
    trials of a scenario are all shown with their counts. A **comparison** row says with ``supported`` that its side
    was measured, whatever the findings; those are for the comparison to read. Whatever counts must ignore both.

    Raises:
        ValueError: there are no trials; say :func:`skipped` with the reason instead.
    """
    if not trials:
        raise ValueError(f"{feature.id} on {endpoint} has no trials to judge")
    ordered = sorted(trials, key=lambda trial: (trial.case.scenario, trial.case.trial, trial.case.id))
    judged = [trial for trial in ordered if trial.fault is None and trial.skip_code is None]
    shared = Cell(
        feature=feature.id,
        endpoint=endpoint,
        status=Status.INCONCLUSIVE,
        reason="",
        kind=feature.kind,
        findings=tuple(
            sorted((finding for trial in judged for finding in trial.findings), key=_finding_order),
        ),
        observed=tuple(seen for trial in judged for seen in trial.observed),
        faults=tuple(trial.fault for trial in ordered if trial.fault is not None),
        notes=tuple(dict.fromkeys(note for trial in ordered for note in trial.notes)),
    )
    return _property_cell(shared, ordered) if feature.kind is Kind.PROPERTY else _judged_cell(shared, ordered)


_Where = tuple[str, Route, Mode]


def _judged_cell(shared: Cell, trials: Sequence[Trial]) -> Cell:
    seen = _by_part(trials, shared.kind)
    parts = []
    for (scenario, route, mode), results in seen.items():
        status, reason = part_status([(status, reason) for _, status, reason in results])
        parts.append(Part(scenario=scenario, route=route, mode=mode, status=status, reason=reason))
    status, reason = roll_up(parts)
    if shared.kind is Kind.COMPARISON and status in DECIDED:
        return replace(shared, status=Status.SUPPORTED, reason=reason)
    held = sum(part.status is Status.SUPPORTED for part in parts)
    return replace(
        shared,
        status=status,
        reason=reason,
        skip_code=_skip_code(status, trials),
        lacks=tuple(each for trial in trials for each in trial.lacks) if status is Status.SKIPPED else (),
        trials=_per_trial(seen),
        parts=f"{held} of {len(parts)} parts" if len(parts) > 1 else "",
    )


def _by_part(trials: Sequence[Trial], kind: Kind) -> dict[_Where, list[tuple[int, Status, str]]]:
    """Return, for each part, its trials as (number, status, reason)."""
    spoken = [_spoken(trial) for trial in trials]
    shown: dict[str, dict[_Where, None]] = {}
    for trial, findings in zip(trials, spoken, strict=True):
        shown.setdefault(trial.case.scenario, {}).update(dict.fromkeys(findings))
    core = _is_core({route for parts in shown.values() for _, route, _ in parts})
    seen: dict[_Where, list[tuple[int, Status, str]]] = {}
    for trial, findings in zip(trials, spoken, strict=True):
        scenario = trial.case.scenario
        whole = _whole(trial, [each for where, said in findings.items() if where[1] in core for each in said], kind)
        for where in shown[scenario] or {(scenario, Route.NONE, Mode.NONE): None}:
            told = trial_status(findings[where]) if where in findings else whole
            seen.setdefault(where, []).append((trial.case.trial, *told))
    return seen


def _whole(trial: Trial, core: Sequence[Finding], kind: Kind) -> tuple[Status, str]:
    """Return what a trial says for the parts it did not show: the worst it says at all, or why it says nothing."""
    return trial_status(core) if core else _silent(trial, kind)


def _spoken(trial: Trial) -> dict[_Where, list[Finding]]:
    """Return the findings that have an effect, by part; those of a trial that was not carried through have none."""
    findings: dict[_Where, list[Finding]] = {}
    if trial.fault is None and trial.skip_code is None:
        for finding in trial.findings:
            if _weight(finding) is not None:
                findings.setdefault((trial.case.scenario, finding.route, finding.mode), []).append(finding)
    return findings


def _silent(trial: Trial, kind: Kind) -> tuple[Status, str]:
    """Return what a trial says that has no core finding with an effect."""
    if trial.fault is None and trial.skip_code is None and any(_weight(each) is not None for each in trial.findings):
        return Status.INCONCLUSIVE, "this part was not reached"
    if kind is Kind.COMPARISON and trial.fault is None and trial.skip_code is None and not trial.findings:
        return Status.SUPPORTED, MEASURED
    status, reason = trial_status(trial.findings, fault=trial.fault, skip_code=trial.skip_code)
    # Whoever ran the trial knows more than the bare code, or than "nothing was judged".
    return status, trial.reason if trial.reason and trial.status is status else reason


def _per_trial(seen: Mapping[_Where, Sequence[tuple[int, Status, str]]]) -> tuple[Status, ...]:
    routes = _is_core({route for _, route, _ in seen})
    core: dict[int, list[Status]] = {}
    extended: dict[int, list[Status]] = {}
    for (_, route, _), results in seen.items():
        for number, status, _reason in results:
            (core if route in routes else extended).setdefault(number, []).append(status)
    numbers = sorted(core.keys() | extended.keys())
    return tuple(_combine(core.get(number, ()), extended.get(number, ())) for number in numbers)


def _skip_code(status: Status, trials: Sequence[Trial]) -> str | None:
    if status is not Status.SKIPPED:
        return None
    return next((trial.skip_code for trial in trials if trial.skip_code is not None), None)


def _property_cell(shared: Cell, trials: Sequence[Trial]) -> Cell:
    by_scenario: dict[str, list[str]] = {}
    without = []
    for trial in trials:
        if trial.fault is None and trial.skip_code is None and trial.observed:
            value = "; ".join(dict.fromkeys(seen.value for seen in trial.observed))
            by_scenario.setdefault(trial.case.scenario, []).append(value)
        else:
            status, reason = trial_status(trial.findings, fault=trial.fault, skip_code=trial.skip_code)
            # A rule that was broken on the way to a value is no value, and a property has no rules to break.
            status = Status.INCONCLUSIVE if status in DECIDED else status
            without.append((status, trial.reason if trial.reason and trial.status is status else reason))
    if not by_scenario:
        status, reason = part_status(without)
        return replace(shared, status=status, reason=reason, skip_code=_skip_code(status, trials))
    return replace(
        shared,
        status=Status.SUPPORTED,
        reason="; ".join(dict.fromkeys(seen.why for seen in shared.observed)),
        value="; ".join(dict.fromkeys(_agreed(values) for values in by_scenario.values())),
        how=min((seen.how for seen in shared.observed), key=_CERTAINTY.index),
    )


def _agreed(values: Sequence[str]) -> str:
    counts = Counter(values)
    if len(counts) == 1:
        return values[0]
    shown = sorted(counts, key=lambda value: (-counts[value], value))
    return "differs between trials: " + " | ".join(f"{value} ({counts[value]}/{len(values)})" for value in shown)


def skipped(feature: Feature, endpoint: str, code: str, reason: str) -> Cell:
    """Return the cell of a row that was not run, by decision; ``code`` is a :class:`SkipCode` or ``needs:…``."""
    return Cell(
        feature=feature.id,
        endpoint=endpoint,
        status=Status.SKIPPED,
        reason=reason,
        kind=feature.kind,
        skip_code=str(code),
    )


def no_probe(feature: Feature, endpoint: str) -> Cell:
    """Return the cell of a row that no probe exercises yet; it is shown, so that nobody takes silence for a pass."""
    return skipped(feature, endpoint, SkipCode.NO_PROBE, "no probe exercises this row yet")


# --------------------------------------------------------------------------- rows → groups


def group_tallies(cells: Sequence[Cell], features: Sequence[Feature]) -> tuple[GroupTally, ...]:
    """Return the worst status and the tally of each group on each endpoint, groups in the order of ``features``.

    Core judged rows are counted, all of them: a skipped row is in the total and not among the supported. A group that
    has no core row, such as ``embeddings``, shows its extended judged rows instead; they never block. A group without
    judged rows (``parity``, ``performance``) has no tally.
    """
    tallies = []
    by_row = {(cell.feature, cell.endpoint): cell for cell in cells if cell.kind is Kind.JUDGED}
    endpoints = dict.fromkeys(cell.endpoint for cell in cells)
    for group in dict.fromkeys(feature.group for feature in features):
        judged = [feature for feature in features if feature.group == group and feature.kind is Kind.JUDGED]
        rows = [feature for feature in judged if feature.core] or judged
        for endpoint in endpoints:
            statuses = [by_row[row.id, endpoint].status for row in rows if (row.id, endpoint) in by_row]
            if statuses:
                held = sum(status is Status.SUPPORTED for status in statuses)
                tallies.append(
                    GroupTally(
                        group=group, endpoint=endpoint, status=worst(statuses), supported=held, total=len(statuses)
                    )
                )
    return tuple(tallies)
