"""What stands behind the answer: the evidence of each row, the caller's own items, and what a matrix declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from servecheck.declared import Beside
from servecheck.model import DECIDED, Kind, Status
from servecheck.report.data import row_key
from servecheck.report.evidence import ExchangeViews, checks_seen, figures, heading_word
from servecheck.report.lookup import Lookup
from servecheck.report.shapes import (
    ContradictionView,
    DeclaredRow,
    DeclaredView,
    EvidenceView,
    FaultView,
    KnownView,
    WorkloadItemView,
    WorkloadView,
)
from servecheck.tally import ItemSeen, sentences
from servecheck.tally import words as state_words

__all__ = ["contradictions", "declared", "evidence", "workload"]


def evidence(look: Lookup) -> Iterator[EvidenceView]:
    """Yield the evidence of every row that has any, in the order of the headings."""
    for (feature_id, endpoint), (anchor, suffix) in look.slugs.items():
        feature = look.features.get(feature_id)
        cell = look.cells.get((feature_id, endpoint))
        compared = [c for c in look.run.compared(feature_id) if c.right == endpoint and look.of_its_own(c)]
        mark, word, reason = look.said(feature_id, endpoint)
        if cell is not None and cell.kind is Kind.PROPERTY:
            mark, word = "", f"{cell.value if cell.value is not None else 'unknown'} ({cell.how})"
        seen = tuple(checks_seen(look.run, cell)) if cell else ()
        ids = dict.fromkeys(i for check in seen for i in check.evidence)
        ids.update(dict.fromkeys(i for c in compared for i in c.evidence))
        faults = look.run.faults.get(row_key(feature_id, endpoint), ())
        ids.update(dict.fromkeys(i for fault in faults for i in fault.evidence))
        yield EvidenceView(
            slug=anchor,
            endpoint=endpoint,
            heading=(heading_word(feature_id), heading_word(endpoint)),
            suffix=suffix,
            green=look.green(feature_id, endpoint),
            mark=mark,
            word=word,
            tally="",
            core=feature.core if feature else False,
            question=feature.question if feature else "",
            reason=reason,
            parts=cell.parts if cell else "",
            notes=cell.notes if cell else (),
            known_issues=tuple(_known(look, feature_id, cell.known_issues if cell else ())),
            seen=seen,
            measured=tuple(dict.fromkeys(pair for c in compared for pair in figures(c.measured))),
            faults=tuple(
                dict.fromkeys(FaultView(kind=fault.kind, reason=fault.reason, trace=fault.trace) for fault in faults)
            ),
            exchanges=ExchangeViews((i for i in ids if i in look.run.exchanges), look.run.exchanges, look.curl),
            missing=tuple(i for i in ids if i not in look.run.exchanges),
        )


def _known(look: Lookup, feature: str, references: Sequence[str]) -> Iterator[KnownView]:
    for reference in references:
        said = [
            f"{one.title} ({one.standing})" + (f" {one.note}" if one.note else "")
            for one in look.run.known_issues
            if one.reference == reference and feature in one.rows
        ]
        yield KnownView(reference=reference, words=" ".join(said))


def workload(look: Lookup) -> WorkloadView | None:
    """Return what became of the caller's own items, None where there were none."""
    found = look.run.workload
    if found is None:
        return None
    return WorkloadView(
        source=found.source,
        sentences=tuple(sentences(found, look.names)),
        notes=found.notes,
        short=tuple(_item(look, one) for one in found.seen if one.state != "enforced"),
    )


def _item(look: Lookup, seen: ItemSeen) -> WorkloadItemView:
    item = seen.item
    ids = [name for name in seen.evidence if name in look.run.exchanges]
    return WorkloadItemView(
        kind=item.kind,
        name=item.name,
        endpoint=seen.endpoint,
        place=item.place,
        uses=f"{item.uses:,}" if item.uses is not None else "",
        mark=seen.status.mark,
        word=f"{state_words(item.kind, seen.state)} {seen.trials}".strip(),
        why=seen.why,
        feature=seen.feature,
        ref=look.ref(seen.feature, seen.endpoint),
        exchanges=ExchangeViews(ids, look.run.exchanges, look.curl),
    )


def contradictions(look: Lookup) -> Iterator[ContradictionView]:
    """Fold the rows that one line of a matrix is wrong about in the same way; what has most rows comes first."""
    grouped: dict[tuple[str, str, str, str, str], list[Beside]] = {}
    for one in look.run.beside:
        if one.contradicts and one.seen is not None:
            key = (one.endpoint, one.declared.says.mark, one.seen.mark, one.declared.label, one.declared.words)
            grouped.setdefault(key, []).append(one)
    for (endpoint, mark, seen, label, words), rows in sorted(grouped.items(), key=lambda item: -len(item[1])):
        yield ContradictionView(
            endpoint=endpoint,
            declared=mark,
            seen=seen,
            rows=tuple((one.declared.row, look.ref(one.declared.row, endpoint)) for one in rows),
            words=words if label == rows[0].declared.row else f"{label}: {words}",
            covers=rows[0].declared.covers,
        )


def declared(look: Lookup) -> Iterator[DeclaredView]:
    """Yield what each support matrix says of the rows that were seen."""
    for matrix in look.run.matrices:
        mine = [one for one in look.run.beside if (one.endpoint, one.source) == (matrix.endpoint, matrix.source)]
        yield DeclaredView(
            endpoint=matrix.endpoint,
            source=matrix.source,
            as_of=matrix.as_of,
            digest=matrix.digest[:12],
            rows=tuple(_declared_row(look, one, one.seen) for one in mine if one.seen in DECIDED),
            undecided=tuple(dict.fromkeys(one.declared.row for one in mine if one.seen not in DECIDED)),
            others=matrix.others,
        )


def _declared_row(look: Lookup, one: Beside, seen: Status | None) -> DeclaredRow:
    said = one.declared
    return DeclaredRow(
        row=said.row,
        declared=said.says.mark,
        words=said.words if said.label == said.row else f"{said.label}: {said.words}",
        seen=f"{seen.mark} {seen}" if seen is not None else "",
        contradicts=one.contradicts,
        ref=look.ref(said.row, one.endpoint),
    )
