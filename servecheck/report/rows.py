"""Every row beside every endpoint: the matrix, the properties and the fingerprints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from servecheck.model import DECIDED, Cell, Delta, Feature, How, Kind, Status
from servecheck.report.data import Subject
from servecheck.report.lookup import Lookup, delta_word, skip_words
from servecheck.report.shapes import Fact, FactRow, MatrixGroup, MatrixRow, PropertyRow, Shown

__all__ = ["confounder", "fingerprints", "matrix", "properties", "statuses"]


def matrix(look: Lookup) -> Iterator[MatrixGroup]:
    """Yield the rows that are judged or compared, by group."""
    for group in look.groups():
        rows = tuple(
            _matrix_row(look, feature)
            for feature in look.run.features
            if feature.group == group and feature.kind is not Kind.PROPERTY
        )
        if rows:
            yield MatrixGroup(group=group, rows=rows)


def _matrix_row(look: Lookup, feature: Feature) -> MatrixRow:
    reasons: list[tuple[str, str]] = []
    shown = []
    for name in look.names:
        cell = look.cells.get((feature.id, name))
        shown.append(_shown(look, feature, name, cell))
        said = cell and (cell.status not in {Status.SUPPORTED, Status.SKIPPED} or look.lacking(cell))
        if cell and said and cell.kind is Kind.JUDGED:
            reasons.append((name if len(look.names) > 1 else "", cell.reason))
        if cell and cell.kind is Kind.JUDGED:
            reasons.extend((name if len(look.names) > 1 else "", note) for note in cell.notes)
    reasons.extend(
        ("", compared.why)
        for compared in look.run.compared(feature.id)
        if feature.kind is Kind.COMPARISON or compared.delta is Delta.DRIFT
    )
    deltas = tuple(_delta(look, feature.id, left, right) for left, right in look.pairs)
    return MatrixRow(
        feature=feature.id,
        title=feature.title,
        core=feature.core,
        cells=tuple(shown),
        deltas=deltas,
        reasons=tuple(reasons),
        differs=any("behind" in delta or delta == Delta.DRIFT for delta in deltas),
    )


def statuses(groups: Iterable[MatrixGroup]) -> Iterator[tuple[str, str, int]]:
    """Count the rows in which a status stands, in the legend's order."""
    counted = Counter(word for group in groups for row in group.rows for word in {shown.word for shown in row.cells})
    for status in Status:
        if counted[status.value]:
            yield status.mark, status.value, counted[status.value]


def _shown(look: Lookup, feature: Feature, name: str, cell: Cell | None) -> Shown:
    if feature.kind is Kind.COMPARISON and (cell is None or cell.status in DECIDED):
        ref = look.ref(feature.id, name) if (feature.id, name) in look.slugs else None
        return Shown(endpoint=name, mark="", tally="", word="", ref=ref)
    if cell is None:
        return Shown(endpoint=name, mark="", tally="", word="no result")
    tally = (cell.skip_code or "") if cell.status is Status.SKIPPED else cell.tally
    tally = cell.word if look.lacking(cell) else tally
    return Shown(endpoint=name, mark=cell.status.mark, tally=tally, word=cell.status, ref=look.ref(feature.id, name))


def _delta(look: Lookup, feature: str, left: str, right: str) -> str:
    compared = look.compared.get((feature, left, right))
    return delta_word(compared) if compared else ""


def properties(look: Lookup) -> Iterator[PropertyRow]:
    """Yield the rows that have a value."""
    for feature in look.run.features:
        if feature.kind is not Kind.PROPERTY:
            continue
        facts = tuple(_property(look.cells.get((feature.id, name))) for name in look.names)
        values = {fact.value for fact in facts if fact.how is not How.UNKNOWN}
        yield PropertyRow(feature=feature.id, title=feature.title, facts=facts, differs=len(values) > 1)


def _property(cell: Cell | None) -> Fact:
    if cell is None:
        return Fact(value="", how=How.UNKNOWN, source="no result")
    if cell.value is not None:
        return Fact(value=cell.value, how=cell.how)
    why = skip_words(cell.skip_code) if cell.skip_code else cell.reason
    return Fact(value="", how=How.UNKNOWN, source=why)


def confounder(look: Lookup, name: str) -> str:
    """Say a confounder with its values where it is a field of the fingerprint or a property row."""
    values = []
    for subject in look.run.subjects:
        cell = look.cells.get((name, subject.name))
        known = subject.fingerprint.fields.get(name)
        if known is None and cell is None:
            return name
        value = known.value if known else cell.value if cell else None
        values.append(f"{value if value is not None else 'unknown'} on {subject.name}")
    return f"{name}: {', '.join(values)}"


def fingerprints(look: Lookup) -> Iterator[FactRow]:
    """Yield what is known of the endpoints, field by field."""
    names = dict.fromkeys(name for subject in look.run.subjects for name in subject.fingerprint.fields)
    for name in names:
        facts = tuple(_fingerprint(subject, name) for subject in look.run.subjects)
        yield FactRow(label=name, facts=facts, differs=len({fact.value for fact in facts}) > 1)


def _fingerprint(subject: Subject, name: str) -> Fact:
    known = subject.fingerprint.fields.get(name)
    if known is None or known.value is None:
        return Fact(value="", how=How.UNKNOWN, source=known.source if known else "")
    return Fact(value=known.value, how=known.how, source=known.source)
