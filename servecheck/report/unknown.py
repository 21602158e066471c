"""What a run does not know: rows that are undecided, were not run or were not reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from servecheck.model import Cell, Delta, Kind, Status
from servecheck.report.data import NOT_REACHED, row_key
from servecheck.report.lookup import Lookup, skip_words, split_row
from servecheck.report.shapes import NotKnown
from servecheck.report.text import count

__all__ = ["MORE_ROWS", "SHORT_SUITES", "not_known"]

SHORT_SUITES = frozenset({"smoke", "demo"})
MORE_ROWS = "--suite standard runs every core row"


def not_known(look: Lookup) -> Iterator[NotKnown]:
    """List what is undecided or was not run, or nothing at all: the reader is told either way."""
    listed: set[str] = set()
    for status, words in (
        (Status.INCONCLUSIVE, "the experiment ran and could not tell"),
        (Status.ERROR, "trouble on our side or in between"),
    ):
        cells = [c for c in _judged_cells(look, core=True) if c.status is status and c.reason != NOT_REACHED]
        listed |= {row_key(c.feature, c.endpoint) for c in cells}
        if cells:
            yield _some(
                f"{status.mark} {_counted(look, len(cells), 'core ')}: {words}",
                [f"{_row(look, c.feature, c.endpoint)}: {c.reason}" for c in cells],
            )
    late = [c for c in _judged_cells(look, core=True) if c.reason == NOT_REACHED]
    listed |= {row_key(c.feature, c.endpoint) for c in late}
    if late:
        rows = [_row(look, c.feature, c.endpoint) for c in late]
        yield _some(f"{Status.ERROR.mark} {_counted(look, len(late), 'core ')}: {NOT_REACHED}", rows)
    yield from _not_run(look, listed)
    soft = [c for c in _judged_cells(look, core=False) if c.status in {Status.INCONCLUSIVE, Status.ERROR}]
    listed |= {row_key(c.feature, c.endpoint) for c in soft}
    if soft:
        yield _some(
            f"{_counted(look, len(soft), 'extended ')} undecided", [_row(look, c.feature, c.endpoint) for c in soft]
        )
    unclear = [
        c for c in look.run.comparisons if c.delta is Delta.UNCLEAR and look.features[c.feature].kind is Kind.COMPARISON
    ]
    listed |= {row_key(c.feature, c.right) for c in unclear}
    if unclear:
        yield _some(
            f"❔ {count(len(unclear), 'comparison')}: the figures do not tell",
            [f"{_row(look, c.feature, c.right)}: {c.why}" for c in unclear],
        )
    rest = [row for row in look.run.verdict.unknown if row not in listed]
    if rest:
        yield _some(
            f"❔ {count(len(rest), 'row')}: could not be compared",
            [_row(look, *split_row(row)) for row in rest],
        )
    missing = [
        _row(look, f.id, name)
        for f in look.run.features
        if f.kind is not Kind.COMPARISON
        for name in look.names
        if (f.id, name) not in look.cells
    ]
    if missing:
        yield _some(f"{_counted(look, len(missing))} without a result: the run ended before them", missing)


def _not_run(look: Lookup, listed: set[str]) -> Iterator[NotKnown]:
    left_out = [c for c in look.run.cells if c.status is Status.SKIPPED and c.feature in look.features]
    skipped = [c for c in left_out if not look.lacking(c)]
    if not skipped:
        return
    codes = Counter(c.skip_code or "no code" for c in skipped)
    core = [c for c in skipped if look.features[c.feature].core]
    listed |= {row_key(c.feature, c.endpoint) for c in skipped}
    why = ", ".join(f"{skip_words(code)}: {number}" for code, number in sorted(codes.items(), key=_by_number))
    within = f", {len(core)} of them core" if core else ""
    yield _some(
        f"⏭ {_counted(look, len(skipped))} not run, by decision{within} ({why}){_more_rows(look, bool(core))}",
        [_row(look, c.feature, c.endpoint) for c in core],
    )


def _more_rows(look: Lookup, core: bool) -> str:
    return f"; {MORE_ROWS}" if core and look.run.suite in SHORT_SUITES else ""


def _judged_cells(look: Lookup, *, core: bool) -> Iterator[Cell]:
    for feature in look.run.features:
        if feature.kind is Kind.JUDGED and feature.core is core:
            for name in look.names:
                cell = look.cells.get((feature.id, name))
                if cell is not None:
                    yield cell


def _counted(look: Lookup, number: int, kind: str = "") -> str:
    return count(number, f"{kind}{'result' if len(look.names) > 1 else 'row'}")


def _row(look: Lookup, feature: str, endpoint: str) -> str:
    return f"{feature} on {endpoint}" if len(look.names) > 1 else feature


def _some(headline: str, items: Sequence[str], limit: int = 5) -> NotKnown:
    return NotKnown(headline=headline, items=tuple(items[:limit]), more=max(0, len(items) - limit))


def _by_number(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]
