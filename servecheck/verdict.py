"""The answer of a run, of its rows: the verdict with its sentence, what makes a run fail, and the exit code.

What makes the rows is in :mod:`servecheck.rollup`, and can be had from here too: callers need both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from servecheck.model import DECIDED, Cell, Comparison, Decision, Delta, Feature, Kind, SkipCode, Status, Verdict
from servecheck.rollup import (
    MEASURED,
    OUTCOMES,
    SHORTFALLS,
    WORST_FIRST,
    Part,
    cell,
    group_tallies,
    no_probe,
    part_status,
    roll_up,
    skipped,
    trial_status,
    worst,
)

__all__ = [
    "MEASURED",
    "OUTCOMES",
    "SO_FAR",
    "WORST_FIRST",
    "FailOn",
    "Part",
    "cell",
    "decide",
    "default_fail_on",
    "exit_code",
    "failures",
    "group_tallies",
    "no_probe",
    "part_status",
    "roll_up",
    "skipped",
    "trial_status",
    "worst",
]

_BLOCKING = SHORTFALLS - {Status.DEGRADED}
_UNDECIDED = frozenset({Status.ERROR, Status.INCONCLUSIVE})
_WORKS = frozenset({Status.SUPPORTED, Status.DEGRADED})
SO_FAR = "So far yes"
"""How an answer begins that would be a yes, had half of the rows that decide it been decided: no green mark stands
before it."""
_NOT_ASKED = frozenset({SkipCode.NOT_SELECTED, SkipCode.BUDGET, SkipCode.OPT_IN})
_SELECTED = "selected row"
_NAMED = 4
"""How many rows a sentence names before it counts the rest."""


@dataclass(slots=True)
class _Side:
    """What speaks for and against one endpoint: rows as (feature, word), unknown ones as (feature, endpoint, word)."""

    endpoint: str
    behind: list[tuple[str, str]] = field(default_factory=list)
    drifted: list[tuple[str, str]] = field(default_factory=list)
    caveats: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[tuple[str, str, str]] = field(default_factory=list)
    decided: int = 0
    not_run: int = 0
    working: int = 0
    broken_on_both: int = 0
    lacking: list[str] = field(default_factory=list)
    failing: list[str] = field(default_factory=list)
    hopeless: bool = False

    @property
    def blockers(self) -> list[tuple[str, str]]:
        return self.behind + self.drifted

    @property
    def undecided(self) -> int:
        return len({feature for feature, _, _ in self.unknown})

    @property
    def total(self) -> int:
        return self.decided + (0 if self.hopeless else self.undecided)

    @property
    def wanted(self) -> int:
        return self.total + self.not_run

    @property
    def nothing_works(self) -> bool:
        """Nothing is behind only because nothing that was asked works at all: the experiment had no control."""
        return bool(self.decided) and not self.working and not self.blockers and not self.unknown


def decide(
    cells: Sequence[Cell],
    comparisons: Sequence[Comparison],
    features: Sequence[Feature],
    *,
    reference: str | None,
    profile_core: frozenset[str] | None = None,
) -> Verdict:
    """Return the answer of a run, with the rows behind it in display order.

    With a reference and at least one other endpoint the question is the move, judged from the comparisons whose left
    is the reference. *Blockers* are core rows where the candidate is behind or drifted; a shortfall that both share is
    no news. *Caveats* are extended rows that are behind or drifted, and core rows that ran on the reference only.
    Without a reference, *blockers* are core rows broken, flaky, ignored or unsupported, and *caveats* degraded core
    rows and extended rows with any shortfall.

    *Unknown* are core rows in ``error`` or ``inconclusive`` on either side, and core comparisons whose interval
    straddles the margin. Rows skipped by decision are counted in the sentence and are otherwise no matter; but where
    not one core row was decided, or not one that was works on the candidate, the answer is ``cannot_tell`` (in the
    second case its rows are *unknown*), and where fewer than half were, a yes is said as :data:`SO_FAR`.
    ``profile_core`` replaces the core rows by those of a profile, comparison rows among them. Known issues are never
    read: a hypothesis decides nothing.

    Where the selection left every core row out, the rows that were selected decide, as those of a profile would:
    whoever asks about numerical parity alone wants to know whether it drifted. A core row that was not asked of the
    reference and falls short on the candidate is *unknown*: nobody knows whether it is behind.

    The sentence is built from counts, row ids, statuses and endpoint names only.
    """
    core = frozenset(feature.id for feature in features if feature.core) if profile_core is None else profile_core
    chosen = profile_core is None and _is_left_out(core, cells)
    if chosen:
        core = _ran(cells)
    by_row = {(cell.feature, cell.endpoint): cell for cell in cells}
    endpoints = [*dict.fromkeys(cell.endpoint for cell in cells)]
    candidates = [endpoint for endpoint in endpoints if endpoint != reference]
    if reference is not None and candidates:
        deltas = {(each.feature, each.right): each for each in comparisons if each.left == reference}
        sides = [_moved(by_row, deltas, features, core, reference, endpoint) for endpoint in candidates]
    else:
        reference = None
        sides = [_alone(by_row, features, core, endpoint) for endpoint in endpoints]
    decision = _decision(sides)
    if decision is not Decision.NOT_READY:
        for side in sides:
            if side.nothing_works:
                side.hopeless = True
                side.unknown = [(feature, side.endpoint, "not working on either") for feature in side.failing]
                decision = Decision.CANNOT_TELL
    return Verdict(
        decision=decision,
        sentence=_sentence(decision, sides, reference, _noun(profile=profile_core is not None, chosen=chosen)),
        blockers=_entries((side.endpoint, side.blockers) for side in sides),
        caveats=_entries((side.endpoint, side.caveats) for side in sides),
        unknown=tuple(f"{feature}@{endpoint}" for feature, endpoint, _ in _unknown(sides)),
    )


def _is_left_out(core: Collection[str], cells: Iterable[Cell]) -> bool:
    """Tell whether no core row was selected, on any endpoint."""
    codes = [cell.skip_code for cell in cells if cell.feature in core]
    return bool(codes) and all(code == SkipCode.NOT_SELECTED for code in codes)


def _was_not_asked(cell: Cell | None) -> bool:
    """Tell whether a row was left out by a decision of the caller's, and not because it does not apply there."""
    return cell is None or cell.skip_code in _NOT_ASKED


def _ran(cells: Iterable[Cell]) -> frozenset[str]:
    return frozenset(
        cell.feature for cell in cells if cell.status is not Status.SKIPPED and cell.kind is not Kind.PROPERTY
    )


def _noun(*, profile: bool, chosen: bool) -> str:
    return "profile row" if profile else _SELECTED if chosen else "core row"


def _alone(
    by_row: Mapping[tuple[str, str], Cell], features: Sequence[Feature], core: Collection[str], endpoint: str
) -> _Side:
    side = _Side(endpoint)
    for feature in features:
        if feature.kind is not Kind.JUDGED:
            continue
        found = by_row.get((feature.id, endpoint))
        status = found.status if found else Status.SKIPPED
        row, is_core = (feature.id, status.value), feature.id in core
        if status in SHORTFALLS:
            (side.behind if is_core and status in _BLOCKING else side.caveats).append(row)
        if is_core:
            side.decided += status in DECIDED
            side.working += status in _WORKS
            side.not_run += status is Status.SKIPPED
            if status in _UNDECIDED:
                side.unknown.append((feature.id, endpoint, status.value))
    return side


def _moved(
    by_row: Mapping[tuple[str, str], Cell],
    deltas: Mapping[tuple[str, str], Comparison],
    features: Sequence[Feature],
    core: Collection[str],
    reference: str,
    endpoint: str,
) -> _Side:
    side = _Side(endpoint)
    for feature in features:
        if feature.kind is Kind.PROPERTY:
            continue
        pair = {name: by_row.get((feature.id, name)) for name in (reference, endpoint)}
        status = {name: found.status if found else Status.SKIPPED for name, found in pair.items()}
        compared = deltas.get((feature.id, endpoint))
        is_core = feature.id in core
        delta = compared.delta if compared else None
        if delta is Delta.DRIFT:
            (side.drifted if is_core else side.caveats).append((feature.id, "drifted"))
        elif compared and delta is Delta.BEHIND and compared.side == endpoint:
            found = pair[endpoint]
            word = found.word if found is not None and feature.kind is Kind.JUDGED else "behind"
            (side.behind if is_core else side.caveats).append((feature.id, word))
        if not is_core:
            continue
        if feature.kind is Kind.JUDGED and {*status.values()} <= _BLOCKING:
            if status[reference] is status[endpoint] is Status.BROKEN:
                side.broken_on_both += 1
            elif (feature.id, status[endpoint].value) not in side.behind:
                side.lacking.append(feature.id)
        undecided = [name for name in (reference, endpoint) if status[name] in _UNDECIDED]
        if delta not in (Delta.UNCLEAR, None):
            side.decided += 1
            side.working += feature.kind is not Kind.JUDGED or status[endpoint] in _WORKS
            side.failing += [feature.id] if status[endpoint] in _BLOCKING else []
        elif undecided:
            side.unknown += [(feature.id, name, status[name].value) for name in undecided]
        elif status[endpoint] in _BLOCKING and _was_not_asked(pair[reference]):
            side.unknown.append((feature.id, endpoint, f"{status[endpoint].value} and not asked of {reference}"))
        elif Status.SKIPPED in status.values():
            side.not_run += 1
            if status[reference] in DECIDED and feature.kind is Kind.JUDGED:
                side.caveats.append((feature.id, status[endpoint].value))
        else:
            side.unknown.append((feature.id, endpoint, "unclear"))
    return side


def _decision(sides: Sequence[_Side]) -> Decision:
    if any(side.blockers for side in sides):
        return Decision.NOT_READY
    if not sides or any(side.unknown or not side.decided for side in sides):
        return Decision.CANNOT_TELL
    return Decision.READY_WITH_CAVEATS if any(side.caveats for side in sides) else Decision.READY


def _unknown(sides: Iterable[_Side]) -> list[tuple[str, str, str]]:
    """Return the undecided rows of all sides; what is unknown about the reference is unknown once."""
    return [*dict.fromkeys(row for side in sides for row in side.unknown)]


def _entries(sides: Iterable[tuple[str, list[tuple[str, str]]]]) -> tuple[str, ...]:
    return tuple(f"{feature}@{endpoint}" for endpoint, rows in sides for feature, _ in rows)


def _sentence(decision: Decision, sides: Sequence[_Side], reference: str | None, noun: str) -> str:
    match decision:
        case Decision.NOT_READY:
            clauses = "; ".join(_shortfall(side, reference, noun) for side in sides if side.blockers)
            return f"No: {clauses}{_rest(sides, noun, undecided=True)}."
        case Decision.CANNOT_TELL:
            hopeless = [side for side in sides if side.hopeless]
            if hopeless and not any(side.unknown for side in sides if not side.hopeless):
                clauses = "; ".join(
                    f"not one of {_count(side.decided, noun)} works on {reference} or {side.endpoint}, "
                    "so nothing could be behind"
                    for side in hopeless
                )
                return f"Cannot tell: {clauses}{_rest(sides, noun, undecided=False)}."
            return f"Cannot tell: {_obstacle(sides, reference, noun)}{_rest(sides, noun, undecided=False)}."
        case Decision.READY:
            word = SO_FAR if _little(sides) or noun == _SELECTED else "Yes"
            return f"{word}: {_clearance(sides, reference, noun)}{_rest(sides, noun, undecided=False)}."
        case Decision.READY_WITH_CAVEATS:
            several = len(sides) > 1
            rows = [
                (f"{row}@{side.endpoint}" if several else row, word) for side in sides for row, word in side.caveats
            ]
            caveats = f"{_count(len(rows), 'caveat')} ({_named(rows)})"
            clear, rest = _clearance(sides, reference, noun), _rest(sides, noun, undecided=False)
            word = SO_FAR if _little(sides) or noun == _SELECTED else "Yes"
            return f"{word}, with caveats: {clear}; {caveats}{rest}."


def _little(sides: Iterable[_Side]) -> bool:
    """Tell whether fewer than half of the rows that decide were decided on one of the sides."""
    return any(2 * side.decided < side.wanted for side in sides)


def _shortfall(side: _Side, reference: str | None, noun: str) -> str:
    of = f"of {_count(side.total, noun)}"
    if reference is None:
        return f"{side.endpoint} falls short on {len(side.behind)} {of} ({_named(side.behind)})"
    drifted = ", ".join(row for row, _ in side.drifted[:_NAMED]) + _more(len(side.drifted))
    if not side.behind:
        return f"{side.endpoint} drifted from {reference} on {len(side.drifted)} {of} ({drifted})"
    behind = f"{side.endpoint} is behind {reference} on {len(side.behind)} {of} ({_named(side.behind)})"
    return behind + (f" and drifted on {len(side.drifted)} ({drifted})" if side.drifted else "")


def _obstacle(sides: Sequence[_Side], reference: str | None, noun: str) -> str:
    unknown = _unknown(sides)
    if not unknown:
        idle = " or ".join(side.endpoint for side in sides if not side.decided) or "any endpoint"
        against = f" against {reference}" if reference else ""
        return f"no {noun} was decided on {idle}{against}"
    rows = len({feature for feature, _, _ in unknown})
    named = _named([(f"{feature}@{endpoint}", word) for feature, endpoint, word in unknown])
    known = "be behind" if reference else "fall short"
    return f"no {noun} is known to {known}, but {rows} {'is' if rows == 1 else 'are'} undecided ({named})"


def _clearance(sides: Sequence[_Side], reference: str | None, noun: str) -> str:
    if reference is not None:
        return "; ".join(
            f"{side.endpoint} is not behind {reference} on any of {_count(side.total, noun)}" for side in sides
        )
    return "; ".join(f"{side.endpoint} falls short on none of {_count(side.total, noun)}" for side in sides)


def _rest(sides: Sequence[_Side], noun: str, *, undecided: bool) -> str:
    several = len(sides) > 1
    told = ["no core row was selected"] if noun == _SELECTED else []
    for side in sides:
        on = f" on {side.endpoint}" if several else ""
        if undecided and side.unknown:
            told.append(f"{side.undecided} undecided{on}")
        if side.broken_on_both:
            told.append(f"{side.broken_on_both} broken on {f'{side.endpoint} too' if several else 'both'}")
        if side.lacking:
            told.append(f"{len(side.lacking)} lacking on {f'{side.endpoint} too' if several else 'both'}")
        if side.not_run:
            few = f"{side.not_run} of " if _little([side]) else ""
            told.append(f"{few}{_count(side.wanted if few else side.not_run, noun)} not run{on}")
    return "".join(f"; {each}" for each in told)


def _named(rows: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{row} {word}" for row, word in rows[:_NAMED]) + _more(len(rows))


def _more(count: int) -> str:
    return f" and {count - _NAMED} more" if count > _NAMED else ""


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# --------------------------------------------------------------------------- verdict → exit


class FailOn(StrEnum):
    """What makes a run fail; each includes the one before."""

    BLOCKER = "blocker"
    BEHIND = "behind"
    ANY = "any"


def default_fail_on(*, has_reference: bool, has_profile: bool = False) -> FailOn:
    """Return what a run fails on where nobody said: blockers where something says what matters, else any shortfall."""
    return FailOn.BLOCKER if has_reference or has_profile else FailOn.ANY


def failures(
    verdict: Verdict,
    cells: Iterable[Cell],
    comparisons: Iterable[Comparison],
    features: Iterable[Feature],
    *,
    fail_on: FailOn,
) -> tuple[str, ...]:
    """Return the rows that ``fail_on`` names, as ``feature@endpoint``, before expectations, without repeats.

    ``blocker``: the blockers of the verdict. ``behind``: those, and every row, extended or comparison, where the right
    side is behind or has drifted. ``any``: those, and every judged row on every endpoint, the reference included, that
    is decided and not supported; degraded counts. Rows that are not among ``features`` are left alone.
    """
    kinds = {feature.id: feature.kind for feature in features}
    rows = dict.fromkeys(verdict.blockers)
    if fail_on is not FailOn.BLOCKER:
        rows |= dict.fromkeys(f"{each.feature}@{each.right}" for each in comparisons if _is_worse(each, kinds))
    if fail_on is FailOn.ANY:
        rows |= dict.fromkeys(_short(cells, kinds))
    return tuple(rows)


def _is_worse(comparison: Comparison, kinds: Mapping[str, Kind]) -> bool:
    behind = comparison.delta is Delta.BEHIND and comparison.side == comparison.right
    return comparison.feature in kinds and (behind or comparison.delta is Delta.DRIFT)


def _short(cells: Iterable[Cell], kinds: Mapping[str, Kind]) -> Iterator[str]:
    for found in cells:
        if kinds.get(found.feature) is Kind.JUDGED and found.status in SHORTFALLS:
            yield f"{found.feature}@{found.endpoint}"


def exit_code(
    verdict: Verdict,
    cells: Iterable[Cell],
    comparisons: Iterable[Comparison],
    features: Iterable[Feature],
    *,
    has_reference: bool,
    fail_on: FailOn | None = None,
    has_profile: bool = False,
    excused: Collection[str] = frozenset(),
    stale: bool = False,
) -> int:
    """Return 1, 4 or 0 by the exit table; the other codes belong to the command line.

    ``excused`` are the rows (``feature@endpoint``) that an expectation covers; ``stale`` says that an expectation is
    stale or has expired. 4 is for the verdict's ``unknown``, and for a budget that ended before any row was decided;
    skipped rows do not matter otherwise.
    """
    cells = tuple(cells)
    named = fail_on or default_fail_on(has_reference=has_reference, has_profile=has_profile)
    found = failures(verdict, cells, comparisons, features, fail_on=named)
    if stale or any(row not in excused for row in found):
        return 1
    if verdict.decision is Decision.CANNOT_TELL and not verdict.unknown:
        return 4 if any(cell.skip_code == SkipCode.BUDGET for cell in cells) else 0
    return 4 if any(row not in excused for row in verdict.unknown) else 0
