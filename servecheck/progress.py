"""What a terminal shows while a run goes on and when it is over. Nothing here decides.

On a terminal a small matrix stays below the lines, a line of it for each group; elsewhere there are plain lines only.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from servecheck.model import DECIDED, Delta, Kind, Status
from servecheck.report.data import RunReport
from servecheck.report.text import visible
from servecheck.report.unknown import MORE_ROWS, SHORT_SUITES
from servecheck.runner import Progress
from servecheck.shut import all_shut
from servecheck.tally import sentences
from servecheck.workload import OWN

__all__ = ["Matrix", "summary", "watching"]


@contextlib.contextmanager
def watching(*, quiet: bool, console: Console | None = None) -> Iterator[Callable[[Progress], None]]:
    """Give a watcher that tells standard error of each judged trial, and on a terminal keeps a matrix below."""
    out = console or Console(stderr=True, highlight=False, soft_wrap=True)
    if quiet:
        yield lambda _: None
    elif out.is_terminal and out.file.isatty() and not out.is_dumb_terminal:  # FORCE_COLOR makes no terminal of a pipe
        matrix = Matrix()
        # Drawn when something happened and not by a thread, which would write between the lines of others.
        with Live(console=out, auto_refresh=False, transient=True, vertical_overflow="crop") as live:

            def draw(progress: Progress) -> None:
                matrix.add(progress)
                if progress.trial is None or (not progress.told and progress.trial.status is not Status.SUPPORTED):
                    live.console.print(_line(progress))
                live.update(matrix.table(), refresh=True)

            yield draw
    else:
        yield lambda progress: None if progress.told else out.print(_line(progress))


def _line(progress: Progress) -> Text:
    if progress.trial is None:
        return Text(f"{progress.endpoint}: {_one_line(progress.text)}")
    trial = progress.trial
    reason = "" if trial.status is Status.SUPPORTED else f"  {_short(_one_line(trial.reason))}"
    again = f" (look {trial.case.trial})" if trial.case.trial > 1 else ""
    # The items of a workload share a row, so each says which it is.
    which = f" {trial.case.scenario}" if trial.case.scenario.startswith(OWN) else ""
    far = f"{progress.place:{len(str(progress.places))}}/{progress.places}"
    return Text(f"{trial.status.mark} {far} {progress.endpoint:12} {trial.case.feature}{which}{again}{reason}")


_DELTA_MARKS = {Delta.SAME: "✅", Delta.BEHIND: "❌", Delta.DRIFT: "❌", Delta.UNCLEAR: "❔"}
"""A comparison row says at the candidate how it compares; at the reference it says only that it was measured."""


class Matrix:
    """The rows seen so far, a mark for each, by group and endpoint. A row has the mark of its latest trial: the cell
    is decided when the run is over.
    """

    def __init__(self) -> None:
        self._marks: dict[str, dict[str, dict[str, str]]] = {}
        self._endpoints: dict[str, str] = {}

    def add(self, progress: Progress) -> None:
        """Take in what happened."""
        self._endpoints.setdefault(progress.endpoint, "…")
        if progress.trial is None:
            return
        self._endpoints[progress.endpoint] = f"{progress.place} of {progress.places}"
        row = progress.trial.case.feature
        group = self._marks.setdefault(row.partition(".")[0], {})
        group.setdefault(progress.endpoint, {})[row] = progress.trial.status.mark

    def table(self) -> Table:
        """Return the matrix as it is now."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("")
        for name, far in self._endpoints.items():
            table.add_column(f"{name} ({far})", overflow="ellipsis", no_wrap=True)
        for group, seen in self._marks.items():
            table.add_row(group, *("".join(seen.get(name, {}).values()) for name in self._endpoints))
        return table


def summary(run: RunReport, folder: Path, *, matrix: bool = True) -> str:
    """Return the end of a run as text: the matrix of what was run, the answer, and where the report is."""
    names = [subject.name for subject in run.subjects]
    closed = all_shut(names, run.shut)
    bare = closed or not matrix
    rows = [
        feature
        for feature in run.features
        if any((cell := run.cell(feature.id, name)) and cell.status is not Status.SKIPPED for name in names)
    ]
    width = max((len(feature.id) for feature in rows), default=10)
    lines = [""] if matrix else []
    if not run.complete:
        lines.append("this run is not complete: " + (run.interrupted or "it has no footer, so it died"))
    if not bare:
        lines.append(" " * width + "  " + "  ".join(f"{name:22}" for name in names).rstrip())
    for feature in rows if not bare else ():
        shown = []
        for name in names:
            cell = run.cell(feature.id, name)
            if cell is None:
                shown.append("–")
            elif feature.kind is Kind.COMPARISON and cell.status in DECIDED:
                shown.append(_compared(run, feature.id, name))
            elif cell.kind is Kind.PROPERTY and cell.value is not None:
                shown.append(_short(_one_line(cell.value), 22))
            else:
                shown.append(f"{cell.status.mark} {cell.status.value} {cell.tally}".rstrip())
        lines.append(f"{feature.id:{width}}  " + "  ".join(f"{text:22}" for text in shown).rstrip())
    if run.workload is not None and matrix:
        lines += ["", *(f"{name:{width}}  {said}" for name, said in sentences(run.workload, names))]
    left_out = len(run.features) - len(rows)
    lines += [*([] if bare else [""]), run.verdict.sentence]
    if run.expected:
        told = Counter(each.standing.value for each in run.expected)
        lines.append(f"expected deviations: {', '.join(f'{number} {word}' for word, number in told.items())}")
    more = f" {MORE_ROWS}." if run.suite in SHORT_SUITES and not closed else ""
    lines.append(f"{left_out} rows were not run; see “Not known” in the report.{more}")
    lines.append(f"report: {folder / 'report.md'}, {folder / 'report.html'}")
    return "\n".join(lines)


def _compared(run: RunReport, feature: str, endpoint: str) -> str:
    found = next((each for each in run.compared(feature) if each.right == endpoint), None)
    return "measured" if found is None else f"{_DELTA_MARKS[found.delta]} {found.delta.value}"


def _one_line(text: str) -> str:
    """Write out what a server could steer a terminal or a workflow with: its words are shown, never obeyed."""
    return visible(text).replace("\n", "\\n").replace("\t", " ")


def _short(text: str, limit: int = 140) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
