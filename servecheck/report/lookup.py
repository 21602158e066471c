"""A run with its look-ups, made once: its cells and comparisons by place, what each says, and its anchor."""

from __future__ import annotations

from collections.abc import Iterator

from servecheck.model import Cell, Comparison, Delta, Kind, Status
from servecheck.report.data import RunReport
from servecheck.report.evidence import Curl, heading_word, slug
from servecheck.report.shapes import Ref
from servecheck.tally import ITEMS_BEHIND

__all__ = ["Lookup", "delta_word", "skip_words", "split_row"]

SKIP_WORDS = {
    "not-selected": "not selected",
    "not-applicable": "not applicable to this server",
    "budget": "the budget was spent",
    "opt-in": "runs only where --allow permits it",
    "no-probe": "no probe yet",
}


class Lookup:
    """The run with its look-ups, made once."""

    def __init__(self, run: RunReport, curl: Curl) -> None:
        self.run, self.curl = run, curl
        self.names = tuple(subject.name for subject in run.subjects)
        self.features = {feature.id: feature for feature in run.features}
        self.cells = {(cell.feature, cell.endpoint): cell for cell in run.cells}
        self.pairs = tuple(dict.fromkeys((c.left, c.right) for c in run.comparisons))
        self.compared = {(c.feature, c.left, c.right): c for c in run.comparisons}
        self.slugs: dict[tuple[str, str], tuple[str, str]] = {}
        self._name_evidence()

    def groups(self) -> tuple[str, ...]:
        """Return the groups, in display order."""
        return tuple(dict.fromkeys(feature.group for feature in self.run.features))

    def said(self, feature: str, endpoint: str) -> tuple[str, str, str]:
        """Return a row's mark, word and reason on an endpoint; the comparison speaks where it knows more."""
        cell = self.cells.get((feature, endpoint))
        compared = next((c for c in self.run.comparisons if c.feature == feature and c.right == endpoint), None)
        if compared and (cell is None or cell.kind is not Kind.JUDGED or compared.delta is Delta.DRIFT):
            return "", delta_word(compared), compared.why
        if cell is None:
            return "", "no result", ""
        if compared and ITEMS_BEHIND in compared.measured:
            return cell.status.mark, f"{cell.status} {cell.tally}".strip(), compared.why
        return cell.status.mark, f"{cell.word} {cell.tally}".strip(), cell.reason

    def lacking(self, cell: Cell) -> bool:
        """Tell whether a row that is left out is one that an endpoint beside this one has."""
        return bool(cell.lacks) and any(each.side == cell.endpoint for each in self.run.compared(cell.feature))

    def _name_evidence(self) -> None:
        """Give every cell with evidence, and every comparison that is not the same, a heading with a unique anchor."""
        taken: set[str] = set()
        for feature, endpoint in self._with_evidence():
            base = f"{heading_word(feature)} on {heading_word(endpoint)}"
            suffix, anchor, number = "", slug(base), 1
            while anchor in taken:
                number += 1
                suffix = f"({number})"
                anchor = slug(f"{base} {suffix}")
            taken.add(anchor)
            self.slugs[feature, endpoint] = (anchor, suffix)

    def _with_evidence(self) -> Iterator[tuple[str, str]]:
        order = dict.fromkeys(split_row(row) for row in self.run.verdict.blockers)
        for feature in self.run.features:
            for name in self.names:
                order.setdefault((feature.id, name))
        for feature_id, name in order:
            cell = self.cells.get((feature_id, name))
            drifted = any(c.right == name and self.of_its_own(c) for c in self.run.compared(feature_id))
            if drifted or (cell is not None and cell.kind is not Kind.COMPARISON and _has_evidence(cell)):
                yield feature_id, name

    def of_its_own(self, compared: Comparison) -> bool:
        """Return whether a comparison shows more than two cells do."""
        feature = self.features.get(compared.feature)
        row = feature is not None and feature.kind is Kind.COMPARISON
        return compared.delta is Delta.DRIFT or (row and bool(compared.measured or compared.evidence or compared.why))

    def ref(self, feature: str, endpoint: str) -> Ref | None:
        """Return where a reader finds a row's evidence, None where there is none."""
        named = self.slugs.get((feature, endpoint))
        return Ref(named[0], "evidence.md" if self.green(feature, endpoint) else "") if named else None

    def green(self, feature: str, endpoint: str) -> bool:
        """Return whether nothing about a row on an endpoint asks for attention."""
        compared = [c for c in self.run.compared(feature) if c.right == endpoint and self.of_its_own(c)]
        cell = self.cells.get((feature, endpoint))
        fine = cell is None or cell.kind is not Kind.JUDGED or cell.status is Status.SUPPORTED
        return fine and all(c.delta is Delta.SAME for c in compared)


def _has_evidence(cell: Cell) -> bool:
    return bool(cell.findings) or (cell.status is Status.ERROR and bool(cell.reason))


def split_row(row: str) -> tuple[str, str]:
    """Return the feature and the endpoint of a row as the verdict names it."""
    feature, _, endpoint = row.partition("@")
    return feature, endpoint


def skip_words(code: str) -> str:
    """Return a skip code as words."""
    if code.startswith("needs:"):
        return f"needs {code.removeprefix('needs:')} first"
    return SKIP_WORDS.get(code, code)


def delta_word(compared: Comparison) -> str:
    """Return the delta as a column about the right endpoint says it; the left one is named where it is behind."""
    if compared.delta is Delta.BEHIND and compared.side not in {None, compared.right}:
        return f"{compared.side} behind"
    return compared.delta.value
