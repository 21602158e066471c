"""From a recorded case to a judged trial: attribution first, then the probe's judge. Pure, so it repeats offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from servecheck import canary
from servecheck.model import (
    Case,
    Check,
    Ending,
    Exchange,
    Fault,
    FaultKind,
    Finding,
    Level,
    NotApplicable,
    Observed,
    Outcome,
    Route,
    SkipCode,
    Status,
    Transcript,
    Trial,
)
from servecheck.probe import Params, Probe
from servecheck.read import gateway, reply
from servecheck.read.text import seconds
from servecheck.rollup import MEASURED, trial_status
from servecheck.scenario import Scenario

__all__ = [
    "BUILT_IN_CHECKS",
    "HANGS_NOT",
    "STAYS_HEALTHY",
    "Canaries",
    "is_anomaly",
    "judge",
    "judges_alone",
    "settle_hangs",
]

STAYS_HEALTHY = Check(
    id="server-stays-healthy",
    rule="The server answers a plain request after this one.",
    level=Level.MUST,
    source="https://docs.vllm.ai/en/latest/serving/openai_compatible_server/",
)
HANGS_NOT = Check(
    id="reply-comes-within-the-deadline",
    rule="A reply comes within the deadline, at the second try at the latest.",
    level=Level.MUST,
    source="https://platform.openai.com/docs/guides/error-codes",
)
BUILT_IN_CHECKS = (STAYS_HEALTHY, HANGS_NOT)
"""Checks that every probe has without owning them."""

_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Canaries:
    """The canaries around a case: the last one before it, and those asked because of an anomaly in it."""

    before: Exchange | None = None
    after: tuple[Exchange, ...] = ()


def is_anomaly(exchange: Exchange) -> bool:
    """Tell whether a reply is a reason to ask how the server is: 5xx, cut, deadline, unreachable."""
    if exchange.status is not None and exchange.status >= _SERVER_ERROR:
        return exchange.status != reply.NOT_IMPLEMENTED
    return exchange.ending in (Ending.TRUNCATED, Ending.DEADLINE, Ending.UNREACHABLE)


def judge(
    case: Case,
    scenario: Scenario,
    probe: Probe[Params],
    transcript: Transcript,
    canaries: Canaries,
    reference: Transcript | None = None,
) -> Trial:
    """Judge one recorded case. Trouble that is not the feature's becomes the trial's fault, never a finding."""
    # Where it was not even tried, nothing of it can be judged; nor where a wrong key stands before every answer.
    shut = canaries.before is not None and bool(canary.denial(canaries.before))
    alone = judges_alone(probe, canaries.before) and any(transcript) and not shut
    fault = None if alone else _fault_before(canaries)
    sick = _unhealthy_after(transcript, canaries) if fault is None and not alone else None
    if sick is None:
        fault = fault or _fault_within(transcript, canaries, crowd=probe.overloads)
    if fault is not None:
        return Trial(case=case, status=Status.ERROR, reason=fault.reason, fault=fault)
    if sick is not None:
        raw: list[Finding | Observed | NotApplicable] = [sick]
    else:
        raw = list(probe.judge(transcript, scenario.params))
        if probe.contrast is not None and reference is not None:
            raw += probe.contrast(reference, transcript, scenario.params)
    trial = _trial(case, scenario, probe, raw, transcript)
    return replace(trial, notes=(*trial.notes, *gateway.notes(transcript)))


def judges_alone(probe: Probe[Params], before: Exchange | None) -> bool:
    """Tell whether a probe is asked although the plain request before it went wrong in the way that it went."""
    return probe.despite_sickness or (
        probe.reads_plain and before is not None and bool(canary.ailment(before)) and canary.answered(before)
    )


def settle_hangs(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Settle trials of one scenario on one endpoint in which a reply did not come within the deadline.

    A hang is broken only if a second try hangs too. Where another try answered, the hang was a slow first use: it is
    set aside and the others carry the note. A single hang without a second look stays inconclusive.
    """
    hung = [trial for trial in trials if _hung(trial)]
    if not hung:
        return tuple(trials)
    answered = [trial for trial in trials if not _hung(trial) and trial.fault is None and trial.skip_code is None]
    if not answered and len(hung) > 1:
        return tuple(trials)
    waited = max(float(finding.measured.get("waited_s") or 0) for trial in hung for finding in trial.findings)
    note = f"slow first use: no reply within {seconds(waited)} once, then answered"
    settled = []
    for trial in trials:
        if _hung(trial):
            reason = note if answered else f"no reply within {seconds(waited)}, and no second look was taken"
            settled.append(replace(trial, status=Status.INCONCLUSIVE, reason=reason, findings=()))
        elif trial in answered:
            settled.append(replace(trial, notes=(*trial.notes, note)))
        else:
            settled.append(trial)
    return tuple(settled)


def _hung(trial: Trial) -> bool:
    return any(finding.check == HANGS_NOT.id for finding in trial.findings)


def _fault_before(canaries: Canaries) -> Fault | None:
    if canaries.before is None:
        return None
    sign = canary.ailment(canaries.before)
    if not sign:
        return None
    denied = canary.denial(canaries.before)
    reason = f"denied: {denied}" if denied else f"the endpoint was not well before this case: {sign}"
    return Fault(kind=_kind(canaries.before), reason=reason, evidence=(canaries.before.id,))


def _kind(exchange: Exchange) -> FaultKind:
    if exchange.status in (401, 403):
        return FaultKind.DENIED
    if reply.is_overloaded(exchange):
        return FaultKind.OVERLOADED
    return FaultKind.UNREACHABLE


def _fault_within(transcript: Transcript, canaries: Canaries, *, crowd: bool) -> Fault | None:
    """Return what on our side or in between spoiled a trial; being turned away is no fault of a ``crowd`` we sent."""
    last = {exchange.step: exchange for exchange in transcript}.values()
    # A health route that says 503 has answered; only work that was put off makes a trial say nothing.
    busy = [exchange for exchange in last if exchange.method == "POST" and reply.is_overloaded(exchange)]
    if busy and not crowd:
        tries = busy[0].attempt
        reason = f"overloaded: {_refused(busy[0])} at step {busy[0].step!r}, {tries} times"
        return Fault(kind=FaultKind.OVERLOADED, reason=reason, evidence=tuple(exchange.id for exchange in busy))
    denied = [exchange for exchange in last if exchange.status in (401, 403)]
    # Who was denied before the case is not asked again after it; only a probe that judges despite it comes here.
    plain = canaries.after[-1] if canaries.after else canaries.before
    if denied and plain is not None and plain.status in (401, 403):
        reason = f"denied: {_refused(denied[0])}, and a plain request is denied too"
        return Fault(kind=FaultKind.DENIED, reason=reason, evidence=tuple(exchange.id for exchange in denied))
    gone = [exchange for exchange in last if exchange.ending is Ending.UNREACHABLE]
    first = next((exchange for exchange in transcript if is_anomaly(exchange)), None)
    if gone and first is gone[0] and not crowd:
        # Nothing was wrong until the server could not be reached any more: nothing points to what we sent.
        reason = f"unreachable at step {gone[0].step!r}: {gone[0].detail}"
        return Fault(kind=FaultKind.UNREACHABLE, reason=reason, evidence=(gone[0].id,))
    return None


def _refused(exchange: Exchange) -> str:
    message = reply.error_message(exchange.body)
    reason = gateway.dropped(exchange)
    return f"HTTP {exchange.status} {message}".strip() + (f" ({reason})" if reason else "")


def _unhealthy_after(transcript: Transcript, canaries: Canaries) -> Finding | None:
    anomalies = [exchange for exchange in transcript if is_anomaly(exchange)]
    if not anomalies or not canaries.after:
        return None
    if anomalies[0].ending is Ending.UNREACHABLE or reply.is_overloaded(anomalies[0]):
        return None  # nothing of ours was taken in before the trouble began
    signs = [canary.ailment(exchange) for exchange in canaries.after]
    if not all(signs) or len(signs) < 2:
        return None
    what = reply.not_answered(anomalies[0])
    seen = what.what if what is not None else anomalies[0].detail
    return Finding(
        check=STAYS_HEALTHY.id,
        outcome=Outcome.VIOLATED,
        why=f"server unhealthy after this request ({seen}): a plain request failed twice: {signs[-1]}",
        evidence=(anomalies[0].id, *(exchange.id for exchange in canaries.after)),
        route=Route.NONE,
    )


def _hang(transcript: Transcript) -> Finding | None:
    late = next((exchange for exchange in transcript if exchange.ending is Ending.DEADLINE), None)
    if late is None:
        return None
    got = f"{len(late.body)} bytes" if late.status is not None else "nothing"
    return Finding(
        check=HANGS_NOT.id,
        outcome=Outcome.VIOLATED,
        why=f"hang: {got} within {seconds(late.ended_at)} at step {late.step!r}, while a plain request is answered",
        evidence=(late.id,),
        route=Route.NONE,
        measured={"waited_s": round(late.ended_at, 1)},
    )


def _trial(
    case: Case,
    scenario: Scenario,
    probe: Probe[Params],
    raw: Sequence[Finding | Observed | NotApplicable],
    transcript: Transcript,
) -> Trial:
    findings = [finding for finding in raw if isinstance(finding, Finding)]
    hang = None if probe.despite_sickness else _hang(transcript)
    if hang is not None and not any(finding.check == STAYS_HEALTHY.id for finding in findings):
        findings = [hang]
    places = {check.id: place for place, check in enumerate(probe.of(scenario.params).checks)}
    levelled = tuple(
        replace(finding, level=_level(finding, scenario, probe), scenario=scenario.id, trial=case.trial)
        for finding in sorted(findings, key=lambda finding: places.get(finding.check, -1))
    )
    observed = tuple(item for item in raw if isinstance(item, Observed))
    if observed and not levelled:
        return Trial(case=case, status=Status.SUPPORTED, reason=observed[0].why, observed=observed)
    senseless = next((item for item in raw if isinstance(item, NotApplicable)), None)
    if senseless is not None and not levelled:  # a finding says that there was something to judge
        skip = SkipCode.NOT_APPLICABLE
        return Trial(case=case, status=Status.SKIPPED, reason=senseless.why, skip_code=skip, lacks=senseless.lacks)
    if not levelled and probe.contrast is not None:
        # One side of a comparison: a judge that objects to nothing has its figures, and the contrast reads them.
        return Trial(case=case, status=Status.SUPPORTED, reason=MEASURED)
    status, reason = trial_status(levelled)
    return Trial(case=case, status=status, reason=reason, findings=levelled, observed=observed)


def _level(finding: Finding, scenario: Scenario, probe: Probe[Params]) -> Level:
    built_in = next((check for check in BUILT_IN_CHECKS if check.id == finding.check), None)
    return scenario.level_of(built_in or probe.check(finding.check, scenario.params))
