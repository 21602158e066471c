"""A run as CSV: one line a cell, for a spreadsheet; what a spreadsheet would compute is made text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from servecheck.model import Kind
from servecheck.report.data import RunReport, row_key
from servecheck.report.text import visible

__all__ = ["COLUMNS", "csv_text"]

COLUMNS = (
    *("feature", "group", "core", "kind", "endpoint", "reference", "status", "tally", "skip_code", "value", "how"),
    *("delta", "behind", "blocks", "reason", "known_issues", "evidence"),
)
"""The header line; columns are added at the end and never taken away."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")


def csv_text(run: RunReport) -> str:
    """Return a run as CSV (RFC 4180, UTF-8, rows in display order); what was never reached is ``no result``."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    writer.writerows([_text(value) for value in line] for line in _lines(run))
    return out.getvalue()


def _lines(run: RunReport) -> Iterator[tuple[str, ...]]:
    blocks = frozenset(run.verdict.blockers)
    cells = {(cell.feature, cell.endpoint): cell for cell in run.cells}
    compared = {(each.feature, each.right): each for each in run.comparisons}
    for feature in run.features:
        for subject in run.subjects:
            cell, other = cells.get((feature.id, subject.name)), compared.get((feature.id, subject.name))
            evidence = dict.fromkeys(name for finding in (cell.findings if cell else ()) for name in finding.evidence)
            judged = cell is not None and (feature.kind is Kind.JUDGED or cell.skip_code is not None)
            yield (
                feature.id,
                feature.group,
                _yes(feature.core),
                feature.kind,
                subject.name,
                _yes(subject.name == run.reference),
                (cell.status if judged else "") if cell else "no result",
                cell.tally if cell and judged else "",
                (cell.skip_code or "") if cell else "",
                (cell.value or "") if cell else "",
                cell.how if cell and feature.kind is Kind.PROPERTY else "",
                other.delta if other else "",
                (other.side or "") if other else "",
                _yes(row_key(feature.id, subject.name) in blocks),
                (cell.reason if cell else "") or (other.why if other else ""),
                " ".join(cell.known_issues) if cell else "",
                " ".join(evidence),
            )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _text(value: str) -> str:
    """Return a value in one line; an apostrophe before what a spreadsheet would take for a formula."""
    shown = " ⏎ ".join(visible(value).split("\n")).replace("\t", " ")
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
