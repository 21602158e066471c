"""A run without what was sent and what came back, for a report that leaves the house. The recording stays as it is.

Taken out are bodies, expected and actual values, our traces and whatever a reason quotes between “ and ”. Names stay:
of endpoints, models, rows, the caller's own schemas, and the fields and numbers that checks speak of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from servecheck.model import Cell, Chunk, Comparison, Exchange, Fault, Finding, Measured, Observed
from servecheck.report.data import RunReport
from servecheck.report.text import size
from servecheck.tally import ItemSeen

__all__ = ["redacted", "without_quotations"]

_QUOTED = re.compile(r"(?:“[^“]*”|“[^“]*)+|‘[^’]{2,}’")
"""To the last ” before a “ that opens another: what is quoted may hold quotation marks, and none of it may stay."""
_LEFT_OUT = "“…”"
_GIVEN = frozenset({"expected", "actual"})


def redacted(run: RunReport) -> RunReport:
    """Return the same run, all decisions as they were, without bodies and quotations."""
    workload = run.workload
    return replace(
        run,
        cells=tuple(_cell(cell) for cell in run.cells),
        comparisons=tuple(_comparison(each) for each in run.comparisons),
        exchanges=_Redacted(run.exchanges),
        timed=run.exchanges if run.timed is None else run.timed,
        faults={row: tuple(_fault(fault) for fault in faults) for row, faults in run.faults.items()},
        workload=replace(workload, seen=tuple(_item(each) for each in workload.seen)) if workload else None,
        expected=tuple(replace(each, why=without_quotations(each.why)) for each in run.expected),
        notes=(*run.notes, "Bodies and quotations are left out of this report; the recording has them."),
    )


class _Redacted(Mapping[str, Exchange]):
    """Exchanges whose bodies are replaced by their length when one is asked for."""

    def __init__(self, exchanges: Mapping[str, Exchange]) -> None:
        self._exchanges = exchanges

    def __getitem__(self, name: str) -> Exchange:
        exchange = self._exchanges[name]
        chunks = exchange.chunks
        if chunks:
            first = Chunk(at=chunks[0].at, data=_gap(len(exchange.body)))
            chunks = (first, *(Chunk(at=chunk.at, data=b"") for chunk in chunks[1:]))
        sent = _gap(len(exchange.request_body)) if exchange.request_body else b""
        return replace(exchange, request_body=sent, chunks=chunks, detail=without_quotations(exchange.detail))

    def __iter__(self) -> Iterator[str]:
        return iter(self._exchanges)

    def __len__(self) -> int:
        return len(self._exchanges)


def _gap(length: int) -> bytes:
    return f"({size(length)} left out)".encode()


def without_quotations(text: str) -> str:
    """Return a reason with nothing of what a server said in it."""
    return _QUOTED.sub(_LEFT_OUT, text)


def _measured(measured: Measured) -> Measured:
    return {
        name: "left out" if name in _GIVEN else without_quotations(value) if isinstance(value, str) else value
        for name, value in measured.items()
    }


def _cell(cell: Cell) -> Cell:
    return replace(
        cell,
        reason=without_quotations(cell.reason),
        value=without_quotations(cell.value) if cell.value is not None else None,
        findings=tuple(_finding(finding) for finding in cell.findings),
        observed=tuple(_observed(each) for each in cell.observed),
        faults=tuple(_fault(fault) for fault in cell.faults),
        notes=tuple(without_quotations(note) for note in cell.notes),
    )


def _finding(finding: Finding) -> Finding:
    return replace(finding, why=without_quotations(finding.why), measured=_measured(finding.measured))


def _observed(observed: Observed) -> Observed:
    return replace(
        observed,
        value=without_quotations(observed.value),
        why=without_quotations(observed.why),
        measured=_measured(observed.measured),
    )


def _fault(fault: Fault) -> Fault:
    return replace(fault, reason=without_quotations(fault.reason), trace="")


def _comparison(comparison: Comparison) -> Comparison:
    return replace(comparison, why=without_quotations(comparison.why), measured=_measured(comparison.measured))


def _item(item: ItemSeen) -> ItemSeen:
    return replace(item, why=without_quotations(item.why))
