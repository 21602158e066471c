"""What a terminal shows while a run goes on and when it is over. Plain lines; nothing here decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from servecheck.model import Kind, Status
from servecheck.report.data import RunReport
from servecheck.runner import Progress
from servecheck.tally import sentences
from servecheck.workload import OWN

__all__ = ["printer", "summary"]


def printer(*, quiet: bool) -> Callable[[Progress], None]:
    """Return a watcher that prints a line per judged trial to standard error."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)

    def watch(progress: Progress) -> None:
        if quiet:
            return
        if progress.trial is None:
            console.print(Text(f"{progress.endpoint}: {progress.text}"))
            return
        trial = progress.trial
        reason = "" if trial.status is Status.SUPPORTED else f"  {_short(trial.reason)}"
        again = f" (look {trial.case.trial})" if trial.case.trial > 1 else ""
        # The items of a workload share a row, so each says which it is.
        which = f" {trial.case.scenario}" if trial.case.scenario.startswith(OWN) else ""
        console.print(Text(f"{trial.status.mark} {progress.endpoint:12} {trial.case.feature}{which}{again}{reason}"))

    return watch


def summary(run: RunReport, folder: Path) -> str:
    """Return the end of a run as text: the matrix of what was run, the answer, and where the report is."""
    names = [subject.name for subject in run.subjects]
    rows = [
        feature
        for feature in run.features
        if any((cell := run.cell(feature.id, name)) and cell.status is not Status.SKIPPED for name in names)
    ]
    width = max((len(feature.id) for feature in rows), default=10)
    lines = [""]
    if not run.complete:
        lines.append("this run is not complete: " + (run.interrupted or "it has no footer, so it died"))
    lines.append(" " * width + "  " + "  ".join(f"{name:22}" for name in names).rstrip())
    for feature in rows:
        shown = []
        for name in names:
            cell = run.cell(feature.id, name)
            if cell is None:
                shown.append("–")
            elif cell.kind is Kind.PROPERTY and cell.value is not None:
                shown.append(_short(cell.value, 22))
            else:
                shown.append(f"{cell.status.mark} {cell.status.value} {cell.tally}".rstrip())
        lines.append(f"{feature.id:{width}}  " + "  ".join(f"{text:22}" for text in shown).rstrip())
    if run.workload is not None:
        lines += ["", *(f"{name:{width}}  {said}" for name, said in sentences(run.workload, names))]
    left_out = len(run.features) - len(rows)
    lines += ["", run.verdict.sentence, f"{left_out} rows were not run; see “Not known” in the report."]
    lines.append(f"report: {folder / 'report.md'}, {folder / 'report.html'}")
    return "\n".join(lines)


def _short(text: str, limit: int = 140) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
