"""Writes every file that a run folder holds besides ``run.jsonl``; all of them can be made again from it."""

from __future__ import annotations

from pathlib import Path

from servecheck.errors import StoreError, UnknownName
from servecheck.report import plots, results
from servecheck.report.data import RunReport
from servecheck.report.evidence import Curl
from servecheck.report.github import github_text
from servecheck.report.html import report_html
from servecheck.report.junit import junit_xml
from servecheck.report.markdown import evidence_md, report_md
from servecheck.report.redacted import redacted
from servecheck.report.summary import summary_md
from servecheck.report.table import csv_text
from servecheck.report.view import view

__all__ = ["FORMATS", "rendered", "write_all"]

FORMATS = ("md", "html", "json", "junit", "summary", "csv", "github")
"""What ``report --format`` takes."""


def rendered(run: RunReport, form: str, curl: Curl) -> str:
    """Return the report in one of :data:`FORMATS`; raises ``UnknownName`` for another."""
    if form in ("json", "junit", "csv", "github"):
        run = redacted(run) if run.framing.redact else run
        makers = {"json": results.results_text, "junit": junit_xml, "csv": csv_text, "github": github_text}
        return makers[form](run)
    shown = {"md": report_md, "html": report_html, "summary": summary_md}
    if form not in shown:
        raise UnknownName("format", form, FORMATS)
    return shown[form](view(run, curl))


def write_all(run: RunReport, folder: Path, curl: Curl) -> None:
    """Write all reports into ``folder``; raises ``StoreError`` where that fails."""
    shown = view(run, curl, files=True)
    told = redacted(run) if run.framing.redact else run
    files = {
        "results.json": results.results_text(told),
        "report.md": report_md(shown),
        "evidence.md": evidence_md(shown),
        "report.html": report_html(shown),
        "summary.md": summary_md(shown),
        "junit.xml": junit_xml(told),
        **{each.file: plots.standalone(each.figure) for each in shown.figures if each.file},
    }
    try:
        for old in folder.glob("figure-*.svg"):
            if old.name not in files:
                old.unlink()
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise StoreError(f"cannot write the reports into {folder}: {error}") from error
