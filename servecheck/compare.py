"""Two sets of cells side by side: what moving from left to right changes, and what else differs; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from servecheck.model import (
    DECIDED,
    Cell,
    Comparison,
    Delta,
    Evidence,
    Feature,
    Finding,
    Fingerprint,
    How,
    Kind,
    Level,
    Measured,
    Outcome,
    Status,
)
from servecheck.read.gateway import RETRIED

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """What the measurements of both sides say of one row: ``same``, ``drift`` or ``unclear``.

    Raises:
        ValueError: ``behind``, which is said of statuses and never of measurements.
    """

    delta: Delta
    why: str
    measured: Measured = field(default_factory=dict)
    evidence: Evidence = ()

    def __post_init__(self) -> None:
        if self.delta is Delta.BEHIND:
            raise ValueError("a measurement drifts; only a status is behind")


_UNMEASURED = Contrast(delta=Delta.UNCLEAR, why="both sides ran, but nothing was measured between them")


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

    Judged rows compare statuses. What an endpoint was seen to have nothing of, and is left out there alone, counts as
    refused beside an endpoint that was judged. Where statuses are equal and not broken, a feature that works on each
    side by another field of the request (``dialect`` among what a finding measured) has drifted, for what works on the
    left does nothing on the right; else a contrast of the same row, if there is one, says whether the measurements
    drifted.
    Comparison rows are what their contrast says; where none is given, what the findings of the right side say, since
    those were made against the reference of the run; else ``unclear``.
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
        mine, theirs = by_row.get((feature.id, left)), by_row.get((feature.id, right))
        if feature.kind is Kind.PROPERTY or not (_ran(mine) or _ran(theirs)):
            continue
        row = Comparison(
            left=left, right=right, feature=feature.id, delta=Delta.UNCLEAR, why="", confounders=differences
        )
        contrast = (contrasts or {}).get(feature.id)
        if feature.kind is Kind.COMPARISON and _straddles(mine, theirs):
            assert theirs is not None
            compared.append(_measured(row, contrasted(theirs.findings)))
        elif mine is None or theirs is None or not (_decided(mine) and _decided(theirs)):
            compared.append(replace(row, why=_why_undecided((left, mine), (right, theirs))))
        elif feature.kind is Kind.COMPARISON:
            contrast = contrast or (contrasted(theirs.findings) if theirs.findings else _UNMEASURED)
            compared.append(_measured(row, contrast))
        else:
            compared.append(_judged(row, mine, theirs, contrast))
    return tuple(compared)


def _straddles(mine: Cell | None, theirs: Cell | None) -> bool:
    """Tell whether both sides of a comparison row were measured, and what the figures say is that they do not tell."""
    if mine is None or theirs is None or mine.status not in DECIDED or theirs.status is not Status.INCONCLUSIVE:
        return False
    return any(finding.measured for finding in theirs.findings)


def _decided(cell: Cell) -> bool:
    return cell.status in DECIDED or (cell.kind is Kind.JUDGED and bool(cell.lacks))


def _worth(cell: Cell) -> int:
    return _PLACE[Status.UNSUPPORTED if cell.lacks else cell.status]


def _ran(cell: Cell | None) -> bool:
    return cell is not None and cell.status is not Status.SKIPPED


def _why_undecided(*sides: tuple[str, Cell | None]) -> str:
    told = []
    for name, cell in sides:
        if cell is None:
            told.append(f"not part of the run on {name}")
        elif cell.kind is Kind.COMPARISON and cell.status in DECIDED:
            told.append(f"measured on {name}")
        else:
            told.append(f"{cell.status.value} on {name}" + ("" if cell.status in DECIDED else f" ({cell.reason})"))
    return ", ".join(told)


def _judged(row: Comparison, mine: Cell, theirs: Cell, contrast: Contrast | None) -> Comparison:
    if _worth(mine) != _worth(theirs):
        worse = max(mine, theirs, key=_worth)
        return replace(
            row,
            delta=Delta.BEHIND,
            side=worse.endpoint,
            why=f"{mine.word} on {row.left}, {theirs.word} on {row.right}: {worse.reason}",
            measured=contrast.measured if contrast else row.measured,
            evidence=worse.lacks or _evidence(worse),
        )
    if mine.word != theirs.word:
        return replace(row, delta=Delta.SAME, why=f"{mine.word} on {row.left}, {theirs.word} on {row.right}")
    both = f"{mine.status.value} on {row.left} and {row.right}"
    if mine.status is Status.BROKEN:
        return replace(row, delta=Delta.SAME, why=f"{both}: {theirs.reason}", evidence=_evidence(theirs))
    ways = _ways(mine), _ways(theirs)
    if all(ways) and not ways[0] & ways[1]:
        how = "; ".join(
            f"{' or '.join(sorted(way))} on {side}" for way, side in zip(ways, (row.left, row.right), strict=True)
        )
        why = f"{both}, but requests must be rewritten: {how}"
        return replace(row, delta=Delta.DRIFT, why=why, evidence=_held(theirs))
    if contrast is None:
        return replace(row, delta=Delta.SAME, why=both)
    found = _measured(row, contrast)
    return replace(found, why=f"{both}; {found.why}")


def _ways(cell: Cell) -> frozenset[str]:
    """Return the fields by which a feature that has several names in the field was seen to work."""
    held = (finding.measured.get("dialect") for finding in cell.findings if finding.outcome is Outcome.HELD)
    return frozenset(way for way in held if isinstance(way, str))


def _held(cell: Cell) -> Evidence:
    shown = (each.evidence for each in cell.findings if each.outcome is Outcome.HELD and "dialect" in each.measured)
    return tuple(dict.fromkeys(exchange for evidence in shown for exchange in evidence))


def _measured(row: Comparison, contrast: Contrast) -> Comparison:
    return replace(row, delta=contrast.delta, why=contrast.why, measured=contrast.measured, evidence=contrast.evidence)


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

    Fields of the fingerprints come first, then property rows, each in the order given, where both sides are known. What
    is known of one side only is no difference but may hide one: one last line names all of it. What is unknown on both
    sides is left to the table of fingerprints.
    """
    names = dict.fromkeys((*fingerprint_left.fields, *fingerprint_right.fields))
    facts = [(name, fingerprint_left.value(name), fingerprint_right.value(name)) for name in names]
    values: dict[str, dict[str, str | None]] = {}
    every = tuple(cells)
    for cell in every:
        # Times differ always, so they would hide among themselves what does matter.
        if cell.kind is Kind.PROPERTY and not cell.feature.startswith("performance."):
            known = cell.how is not How.UNKNOWN
            values.setdefault(cell.feature, {})[cell.endpoint] = cell.value if known else None
    facts += [(feature, sides.get(left), sides.get(right)) for feature, sides in values.items()]
    retried = {name: sum(_retried(cell) for cell in every if cell.endpoint == name) for name in (left, right)}
    if any(retried.values()):
        facts.append(("rows in which a gateway tried again", str(retried[left]), str(retried[right])))
    return tuple(_differing(facts, left, right))


def _retried(cell: Cell) -> bool:
    return any(note.startswith(RETRIED) for note in cell.notes)


def _differing(facts: Iterable[tuple[str, str | None, str | None]], left: str, right: str) -> Iterator[str]:
    alone: dict[str, list[str]] = {left: [], right: []}
    for name, mine, theirs in facts:
        if mine is not None and theirs is not None:
            if mine != theirs:
                yield f"{name}: {mine} | {theirs}"
        elif mine is not None or theirs is not None:
            alone[right if mine is None else left].append(name)
    told = [f"{', '.join(names)} (on {side})" for side, names in alone.items() if names]
    if told:
        yield f"known on one side only: {'; '.join(told)}"


def broken_on_both(cells: Iterable[Cell], left: str, right: str) -> tuple[str, ...]:
    """Return the judged rows that are broken on both endpoints, in the order of the cells: true, and not news."""
    broken: dict[str, set[str]] = {}
    for cell in cells:
        if cell.kind is Kind.JUDGED and cell.status is Status.BROKEN:
            broken.setdefault(cell.feature, set()).add(cell.endpoint)
    return tuple(feature for feature, endpoints in broken.items() if {left, right} <= endpoints)
