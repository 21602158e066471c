"""View → ``summary.md`` for a job summary: one screen, in a budget, and where the rest is."""

from __future__ import annotations

from collections.abc import Iterator

from servecheck.report.markdown import IN_SUMMARY, render
from servecheck.report.shapes import ReportView

__all__ = ["SUMMARY_LIMIT", "summary_md"]

SUMMARY_LIMIT = 900_000
"""Bytes; GitHub refuses a step summary above 1024 KiB as a whole, and a job may have written one before ours."""


def summary_md(view: ReportView, limit: int = SUMMARY_LIMIT) -> str:
    """Return ``summary.md``: the sections that fit into ``limit`` bytes, the first always, and a line for the rest."""
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
    return "".join(shown)


def _sections(view: ReportView) -> Iterator[tuple[str, str]]:
    """Yield one screen: people read no more of a job's summary, and the whole stands in the run folder."""
    values = {"v": view, "linked": False, "detail": IN_SUMMARY}
    yield "the first screen", render("parts/first_screen.md.j2", values)
    yield "what is new", render("parts/summary.md.j2", values)
