"""Short ways to say findings, trials and cells in tests of the pure tables; no test lives here."""

from collections.abc import Sequence
from dataclasses import replace

from servecheck.features import get
from servecheck.model import (
    Case,
    Cell,
    Fault,
    FaultKind,
    Finding,
    How,
    Level,
    Mode,
    Observed,
    Outcome,
    Route,
    Status,
    Trial,
)

# One must-level outcome for each status that a single finding can make.
OUTCOME = {
    Status.BROKEN: Outcome.VIOLATED,
    Status.IGNORED: Outcome.NO_EFFECT,
    Status.UNSUPPORTED: Outcome.REFUSED,
    Status.INCONCLUSIVE: Outcome.UNDETERMINED,
    Status.SUPPORTED: Outcome.HELD,
}


def finding(
    outcome: Outcome = Outcome.HELD,
    level: Level = Level.MUST,
    *,
    check: str = "a-check",
    why: str = "",
    route: Route = Route.CHAT,
    mode: Mode = Mode.NON_STREAM,
) -> Finding:
    return Finding(check=check, outcome=outcome, level=level, why=why or f"{check} {outcome}", route=route, mode=mode)


def says(
    status: Status,
    *,
    check: str = "a-check",
    why: str = "",
    route: Route = Route.CHAT,
    mode: Mode = Mode.NON_STREAM,
) -> Finding:
    """Return a finding that makes its part ``status``."""
    why = why or f"why {status}"
    if status is Status.DEGRADED:
        return finding(Outcome.VIOLATED, Level.SHOULD, check=check, why=why, route=route, mode=mode)
    return finding(OUTCOME[status], check=check, why=why, route=route, mode=mode)


def trial(
    number: int = 1,
    *findings: Finding,
    scenario: str = "s",
    fault: str = "",
    skip: str = "",
    reason: str = "",
    observed: Sequence[Observed] = (),
    notes: Sequence[str] = (),
) -> Trial:
    status = Status.ERROR if fault else Status.SKIPPED if skip else Status.INCONCLUSIVE
    return Trial(
        case=Case(id=f"{scenario}/e/{number}", scenario=scenario, feature="f", endpoint="e", trial=number),
        status=status,
        reason=reason or fault,
        findings=tuple(findings),
        observed=tuple(observed),
        fault=Fault(kind=FaultKind.EXCEPTION, reason=fault) if fault else None,
        skip_code=skip or None,
        notes=tuple(notes),
    )


def trial_of(status: Status, number: int = 1, *, scenario: str = "s") -> Trial:
    """Return a trial whose only part is ``status``."""
    if status is Status.ERROR:
        return trial(number, scenario=scenario, fault="why error")
    if status is Status.SKIPPED:
        return trial(number, scenario=scenario, skip="budget", reason="why skipped")
    return trial(number, says(status), scenario=scenario)


def observed(value: str, why: str = "", how: How = How.OBSERVED) -> Observed:
    return Observed(value=value, why=why or f"saw {value}", how=how)


def row(feature: str, endpoint: str, status: Status) -> Cell:
    """Return a cell as the verdict reads it; the kind is the feature's."""
    return Cell(feature=feature, endpoint=endpoint, status=status, reason=f"why {status}", kind=get(feature).kind)


def valued(feature: str, endpoint: str, value: str) -> Cell:
    """Return the cell of a property whose value is known."""
    return replace(row(feature, endpoint, Status.SUPPORTED), value=value, how=How.OBSERVED)
