"""Two sets of cells side by side: what moving from left to right changes, and what else differs; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from servecheck.model import (
    DECIDED,
    Cell,
    Comparison,
    Delta,
    Evidence,
    Feature,
    Finding,
    Fingerprint,
    Kind,
    Level,
    Measured,
    Outcome,
    Status,
)

__all__ = ["BEST_FIRST", "Contrast", "broken_on_both", "compare", "confounders", "contrasted"]

BEST_FIRST: tuple[Status, ...] = (
    Status.SUPPORTED,
    Status.DEGRADED,
    Status.FLAKY,
    Status.UNSUPPORTED,
    Status.IGNORED,
    Status.BROKEN,
)
"""How good a decided status is for whoever moves: a refusal can be planned for, an ignored field goes unnoticed."""

_PLACE = {status: place for place, status in enumerate(BEST_FIRST)}
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """What the measurements of both sides say of one row; ``side`` is needed only where the delta is ``behind``."""

    delta: Delta
    why: str
    side: str | None = None
    measured: Measured = field(default_factory=dict)
    evidence: Evidence = ()


def contrasted(findings: Iterable[Finding]) -> Contrast:
    """Return what the findings of a probe's ``contrast`` make of a row, whatever their order.

    A violated check is ``drift``: the check's rule is that the difference stays inside noise and margin. An
    undetermined one is ``unclear``, unless it is only a ``should``, and so is a check that held in one trial and not in
    another, for then the interval straddles the margin. Refusals and missing effects are ``unclear`` too: one side
    could not be measured. Otherwise, if anything held, ``same``.
    """
    by_check: dict[str, list[Finding]] = {}
    for finding in findings:
        if (finding.outcome, finding.level) != (Outcome.UNDETERMINED, Level.SHOULD):
            by_check.setdefault(finding.check, []).append(finding)
    if not by_check:
        return Contrast(delta=Delta.UNCLEAR, why="nothing was measured on both sides")
    order = (Delta.DRIFT, Delta.UNCLEAR, Delta.SAME)
    found = [(_check_delta(said), *_first(said)) for _, said in sorted(by_check.items())]
    delta, first, rest = min(found, key=lambda each: order.index(each[0]))
    return Contrast(
        delta=delta,
        why=first.why,
        measured=first.measured,
        evidence=tuple(dict.fromkeys(exchange for finding in (first, *rest) for exchange in finding.evidence)),
    )


def _check_delta(findings: Sequence[Finding]) -> Delta:
    outcomes = {finding.outcome for finding in findings} - {Outcome.UNDETERMINED}
    if outcomes == {Outcome.VIOLATED}:
        return Delta.DRIFT
    return Delta.SAME if outcomes == {Outcome.HELD} else Delta.UNCLEAR


def _first(findings: Sequence[Finding]) -> tuple[Finding, list[Finding]]:
    """Return the finding that speaks for a check, what went wrong before what held, and the others."""
    order = (Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.HELD, Outcome.UNDETERMINED)
    ranked = sorted(findings, key=lambda each: (order.index(each.outcome), each.trial, each.scenario, each.why))
    return ranked[0], ranked[1:]


def compare(
    cells: Sequence[Cell],
    features: Sequence[Feature],
    *,
    left: str,
    right: str,
    fingerprints: Mapping[str, Fingerprint],
    contrasts: Mapping[str, Contrast] | None = None,
) -> tuple[Comparison, ...]:
    """Return one comparison per row that at least one side ran, in the order of ``features``; left is the reference.

    Judged rows compare statuses. Where these are equal and not broken, a contrast of the same row, if there is one,
    says whether the measurements drifted. Comparison rows are what their contrast says, and ``unclear`` without one.
    Property rows have no delta: where they differ they are confounders, and those are the same for every row.
    """
    by_row = {(cell.feature, cell.endpoint): cell for cell in cells}
    differences = confounders(
        fingerprints.get(left, Fingerprint(fields={})),
        fingerprints.get(right, Fingerprint(fields={})),
        _ordered(cells, features),
        left=left,
        right=right,
    )
    compared = []
    for feature in features:
        sides = (by_row.get((feature.id, left)), by_row.get((feature.id, right)))
        if feature.kind is Kind.PROPERTY or all(side is None or side.status is Status.SKIPPED for side in sides):
            continue
        contrast = (contrasts or {}).get(feature.id)
        found = _row(feature, left, right, *sides, contrast)
        compared.append(
            Comparison(
                left=left,
                right=right,
                feature=feature.id,
                delta=found.delta,
                why=found.why,
                side=found.side,
                measured=found.measured,
                confounders=differences,
                evidence=found.evidence,
            )
        )
    return tuple(compared)


def _row(
    feature: Feature, left: str, right: str, mine: Cell | None, theirs: Cell | None, contrast: Contrast | None
) -> Contrast:
    for name, side in ((left, mine), (right, theirs)):
        if side is None or side.status not in DECIDED:
            said = f"{side.status.value} on {name}: {side.reason}" if side else f"not part of the run on {name}"
            other = theirs if name == left else mine
            beside = f" ({other.status.value} on {right if name == left else left})" if other else ""
            return Contrast(delta=Delta.UNCLEAR, why=said + beside)
    assert mine is not None
    assert theirs is not None
    if feature.kind is Kind.COMPARISON:
        if contrast is None:
            return Contrast(delta=Delta.UNCLEAR, why="both sides ran, but nothing was measured between them")
        side_name = (contrast.side or right) if contrast.delta is Delta.BEHIND else None
        return _with_side(contrast, side_name)
    if mine.status is not theirs.status:
        worse, name = (theirs, right) if _PLACE[theirs.status] > _PLACE[mine.status] else (mine, left)
        better, other = (mine, left) if worse is theirs else (theirs, right)
        return Contrast(
            delta=Delta.BEHIND,
            why=f"{worse.status.value} on {name}, {better.status.value} on {other}: {worse.reason}",
            side=name,
            measured=contrast.measured if contrast else {},
            evidence=_evidence(worse),
        )
    both = f"{mine.status.value} on both {left} and {right}"
    if mine.status is Status.BROKEN:
        return Contrast(delta=Delta.SAME, why=f"{both}: {theirs.reason}", evidence=_evidence(theirs))
    if contrast is None:
        return Contrast(delta=Delta.SAME, why=both)
    return Contrast(
        delta=contrast.delta,
        why=f"{both}: {contrast.why}",
        side=(contrast.side or right) if contrast.delta is Delta.BEHIND else None,
        measured=contrast.measured,
        evidence=contrast.evidence,
    )


def _with_side(contrast: Contrast, side: str | None) -> Contrast:
    return Contrast(
        delta=contrast.delta, why=contrast.why, side=side, measured=contrast.measured, evidence=contrast.evidence
    )


def _evidence(cell: Cell) -> Evidence:
    """Return the exchanges behind everything that did not hold, each once."""
    shown = (finding.evidence for finding in cell.findings if finding.outcome is not Outcome.HELD)
    return tuple(dict.fromkeys(exchange for evidence in shown for exchange in evidence))


def _ordered(cells: Sequence[Cell], features: Sequence[Feature]) -> list[Cell]:
    place = {feature.id: index for index, feature in enumerate(features)}
    return sorted((cell for cell in cells if cell.feature in place), key=lambda cell: place[cell.feature])


def confounders(
    fingerprint_left: Fingerprint, fingerprint_right: Fingerprint, cells: Iterable[Cell], *, left: str, right: str
) -> tuple[str, ...]:
    """Return what differs between two endpoints besides the row compared, as ``engine: vllm | sglang``.

    Fields of the fingerprints come first, then property rows, each in the order given. What is known of one side only
    is listed with ``unknown`` in its place, which is not a difference but may hide one; what is unknown on both
    sides is left to the table of fingerprints.
    """
    names = dict.fromkeys((*fingerprint_left.fields, *fingerprint_right.fields))
    facts = [(name, fingerprint_left.value(name), fingerprint_right.value(name)) for name in names]
    values: dict[str, dict[str, str | None]] = {}
    for cell in cells:
        if cell.kind is Kind.PROPERTY:
            values.setdefault(cell.feature, {})[cell.endpoint] = cell.value
    facts += [(feature, sides.get(left), sides.get(right)) for feature, sides in values.items()]
    return tuple(_differing(facts))


def _differing(facts: Iterable[tuple[str, str | None, str | None]]) -> Iterator[str]:
    for name, mine, theirs in facts:
        if mine != theirs:
            shown = [_UNKNOWN if value is None else value for value in (mine, theirs)]
            yield f"{name}: {shown[0]} | {shown[1]}"


def broken_on_both(cells: Iterable[Cell], left: str, right: str) -> tuple[str, ...]:
    """Return the judged rows that are broken on both endpoints, in the order of the cells: true, and not news."""
    broken: dict[str, set[str]] = {}
    for cell in cells:
        if cell.kind is Kind.JUDGED and cell.status is Status.BROKEN:
            broken.setdefault(cell.feature, set()).add(cell.endpoint)
    return tuple(feature for feature, endpoints in broken.items() if {left, right} <= endpoints)
