"""A run as workflow commands for GitHub's log: annotations for what blocks and what is a caveat, and the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from servecheck.model import Delta
from servecheck.report.data import RunReport
from servecheck.report.text import NEWLINE, count, shorten, visible

__all__ = ["MOST", "github_text"]

MOST = 10
"""Annotations of a level; GitHub shows ten errors, ten warnings and ten notices of a step and drops the rest."""

_LONGEST = 800


def github_text(run: RunReport) -> str:
    """Return lines for a workflow step: ``::error``, ``::warning``, ``::notice``; what is expected is no error."""
    excused = {each.excuses for each in run.expected if each.excuses}
    blockers = [row for row in run.verdict.blockers if row not in excused]
    expected = [row for row in run.verdict.blockers if row in excused]
    notices = [("servecheck", run.verdict.sentence)]
    if not run.complete:
        notices.insert(0, ("servecheck", f"this run did not finish: {run.interrupted or 'no footer'}"))
    notices += [(f"servecheck, expected: {row}", _why(run, row)) for row in expected]
    return "".join(
        (
            *_lines("error", [(f"servecheck: {row}", _why(run, row)) for row in blockers]),
            *_lines("warning", [(f"servecheck: {row}", _why(run, row)) for row in run.verdict.caveats]),
            *_lines("notice", notices),
        )
    )


def _why(run: RunReport, row: str) -> str:
    feature, _, endpoint = row.partition("@")
    cell = run.cell(feature, endpoint)
    compared = next((each for each in run.compared(feature) if each.right == endpoint), None)
    if compared is not None and (cell is None or not cell.findings or compared.delta is Delta.DRIFT):
        said = f"{compared.delta}: {compared.why}"
    elif cell is None:
        said = "no result"
    else:
        said = f"{cell.status} {cell.tally}".strip() + (f": {cell.reason}" if cell.reason else "")
    remedy = run.remedies.get(row)
    return f"{said.rstrip('.')}. Remedy: {remedy}" if remedy else said


def _lines(level: str, found: Sequence[tuple[str, str]]) -> Iterator[str]:
    shown = found if len(found) <= MOST else found[: MOST - 1]
    for title, message in shown:
        yield f"::{level} title={_property(title)}::{_data(message)}\n"
    if len(shown) < len(found):
        yield f"::{level} title=servecheck::{count(len(found) - len(shown), 'row')} more, in the report\n"


def _one_line(text: str) -> str:
    parts = [part.strip() for part in visible(text).split("\n")]
    return shorten(f" {NEWLINE} ".join(part for part in parts if part), _LONGEST)


def _data(text: str) -> str:
    return _one_line(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
