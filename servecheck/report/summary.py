"""View → ``summary.md`` for a job summary: the answer and what is not green, in a budget; all else is in the report."""

from __future__ import annotations

from collections.abc import Iterator

from servecheck.report.markdown import IN_SUMMARY, render
from servecheck.report.shapes import ReportView

__all__ = ["SUMMARY_LIMIT", "summary_md", "summary_parts"]

SUMMARY_LIMIT = 900_000
"""Bytes; GitHub refuses a step summary above 1024 KiB as a whole, and a job may have written one before ours."""


def summary_md(view: ReportView, limit: int = SUMMARY_LIMIT) -> str:
    """Return ``summary.md``: the sections that fit into ``limit`` bytes, the first always, and a line for the rest."""
    return "".join(summary_parts(view, limit))


def summary_parts(view: ReportView, limit: int = SUMMARY_LIMIT) -> tuple[str, str]:
    """Return the first screen, and what else fits into ``limit`` bytes."""
    shown: list[str] = []
    left_out: list[str] = []
    used = 0
    for name, text in _sections(view):
        size = len(text.encode("utf-8"))
        if shown and used + size > limit - 2_000:
            if name not in left_out:
                left_out.append(name)
            continue
        shown.append(text)
        used += size
    if left_out:
        shown.append(
            f"**Left out to stay inside the budget of a job summary: {', '.join(left_out)}; see report.md.**\n"
        )
    return shown[0], "".join(shown[1:])


def _sections(view: ReportView) -> Iterator[tuple[str, str]]:
    values = {"v": view, "linked": False, "detail": IN_SUMMARY}
    for name, template in (
        ("the first screen", "first_screen"),
        ("all that blocks", "more_blockers"),
        ("your workload", "workload"),
        ("declared against observed", "declared"),
        ("caveats, properties, confounders and notes", "apart"),
        ("measurements", "figures"),
        ("benchmarks", "benchmarks"),
        ("the rows that are not green", "not_green"),
        ("how to reproduce", "reproduce"),
    ):
        yield name, render(f"parts/{template}.md.j2", values)
