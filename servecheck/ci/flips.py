"""What changed since the last job, and what a second look says of it; and what becomes of the issue about it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from servecheck.compare import BEST_FIRST
from servecheck.history import Told
from servecheck.model import Cell, Json, Status
from servecheck.report.data import RunReport
from servecheck.report.text import cell_code, shorten

__all__ = ["LABEL", "Change", "Close", "Open", "Update", "changes", "issue_plan", "recorded", "told"]

LABEL = "servecheck"
"""The label of the issues that are ours; only those of bots and members of the repository are read."""

_PLACE = {status.value: place for place, status in enumerate(BEST_FIRST)}
# The last line only: above it stands what servers said, and one of them may say this too.
_RECORD = re.compile(r"^<!-- servecheck:rows (\{[^\n]*\}) -->\s*\Z", re.MULTILINE)
_SHOWN = 60  # rows that an issue lists
_TOLD = 20  # changes that stand above a report
_TITLE = 250  # characters; GitHub takes 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A row that is not what it was in the run before; ``sure`` where two looks say so."""

    endpoint: str
    feature: str
    before: str
    after: str
    sure: bool

    @property
    def worse(self) -> bool:
        """Whether the row fell; values of properties neither fall nor rise."""
        return self.before in _PLACE and self.after in _PLACE and _PLACE[self.after] > _PLACE[self.before]

    @property
    def better(self) -> bool:
        """Whether the row rose."""
        return self.before in _PLACE and self.after in _PLACE and _PLACE[self.after] < _PLACE[self.before]

    @property
    def said(self) -> str:
        """The change as a sentence."""
        sure = "" if self.sure else " (seen once, and not again on a second look)"
        return f"{self.feature} on {self.endpoint}: {self.before} → {self.after}{sure}"


def changes(run: RunReport, again: RunReport | None) -> tuple[Change, ...]:
    """Return what changed since the run before; ``again`` is a second look at what was seen only once."""
    found = []
    for each in run.since:
        sure = each.told == Told.CONFIRMED
        if not sure and again is not None:
            cell = again.cell(each.feature, each.endpoint)
            sure = cell is not None and each.after == (cell.value if cell.value is not None else cell.status.value)
        found.append(
            Change(endpoint=each.endpoint, feature=each.feature, before=each.before, after=each.after, sure=sure)
        )
    return tuple(found)


# --------------------------------------------------------------------------- the issue of an endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Open an issue."""

    title: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Rewrite an issue and say in a comment what is new."""

    number: int
    title: str
    body: str
    comment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Close an issue with a comment."""

    number: int
    comment: str


def recorded(body: str, job: str) -> tuple[str, dict[str, str]] | None:
    """Return the endpoint and the rows, with what they were before, that an issue of this job is about."""
    found = _RECORD.search(body)
    if found is None:
        return None
    try:
        record = json.loads(found[1])
    except ValueError:
        return None
    rows = record.get("rows") if isinstance(record, dict) else None
    # Another job may call its endpoint by the same name, and would close what it has never looked at.
    if not isinstance(rows, dict) or not isinstance(record.get("endpoint"), str) or record.get("job") != job:
        return None
    return record["endpoint"], {str(row): str(before) for row, before in rows.items() if before in _PLACE}


def issue_plan(
    cells: Sequence[Cell],
    found: Iterable[Change],
    known: Mapping[str, tuple[int, Mapping[str, str]]],
    *,
    job: str,
    link: str,
) -> list[Open | Update | Close]:
    """Return what is to be done about the issues: one for each endpoint that has rows that fell and have not risen.

    ``known`` are the open issues by endpoint, each with its number and rows. A row that could not be told this time
    stays as it is. ``job`` is whose issues these are, ``link`` leads to the run.
    """
    changed = list(found)
    plan: list[Open | Update | Close] = []
    for endpoint in dict.fromkeys(cell.endpoint for cell in cells):
        mine = [change for change in changed if change.endpoint == endpoint]
        now = {cell.feature: cell for cell in cells if cell.endpoint == endpoint}
        number, before = known.get(endpoint, (None, {}))
        fell = {change.feature: change.before for change in mine if change.sure and change.worse}
        unsure = {change.feature for change in mine if not change.sure}
        rows = {**fell, **before}
        risen = [row for row, was in rows.items() if row not in unsure and _as_good(now.get(row), was)]
        left = {row: was for row, was in rows.items() if row not in risen}
        new = [row for row in left if row not in before]
        if number is None:
            if left:
                plan.append(Open(title=_title(endpoint, left), body=_body(endpoint, left, now, job, link)))
        elif not left:
            plan.append(Close(number=number, comment=f"{_names(risen)}: as good as before. {link}"))
        elif new or risen:
            said = [f"got worse: {_names(new)}"] if new else []
            said += [f"as good as before: {_names(risen)}"] if risen else []
            plan.append(
                Update(
                    number=number,
                    title=_title(endpoint, left),
                    body=_body(endpoint, left, now, job, link),
                    comment=f"{'; '.join(said)}. {link}",
                )
            )
    return plan


def _as_good(cell: Cell | None, before: str) -> bool:
    return cell is not None and cell.status in BEST_FIRST and _PLACE[cell.status.value] <= _PLACE[before]


def _names(rows: Sequence[str]) -> str:
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return ", ".join(f"`{row}`" for row in rows[:_SHOWN]) + more


def _title(endpoint: str, rows: Mapping[str, str]) -> str:
    first, more = next(iter(rows)), len(rows) - 1
    return shorten(f"servecheck: {first}{f' and {more} more' if more else ''} got worse on {endpoint}", _TITLE)


def _body(endpoint: str, rows: Mapping[str, str], now: Mapping[str, Cell], job: str, link: str) -> str:
    record: dict[str, Json] = {"endpoint": endpoint, "job": job, "rows": dict(rows)}
    lines = [
        f"What `{endpoint}` did before and does no longer; more than one look says so.",
        "",
        "| Row | Was | Is | What was seen |",
        "| --- | --- | --- | --- |",
    ]
    for row, was in list(rows.items())[:_SHOWN]:
        cell = now.get(row)
        status = cell.status if cell is not None else Status.SKIPPED
        why = cell_code(cell.reason, 300) if cell is not None and cell.reason else ""
        lines.append(f"| `{row}` | {Status(was).mark} {was} | {status.mark} {status.value} | {why} |")
    if len(rows) > _SHOWN:
        lines.append(f"| and {len(rows) - _SHOWN} more | | | |")
    advice = (
        f"**What to do.** See the report: {link}. It has the evidence, and the commands to send it again. "
        "Look first for what else changed: *Fingerprints* has the engine, its version and its flags. "
        "If the change is wanted, write the row into the file that `expect:` names, and close this issue."
    )
    keeper = (
        f"The job `{job}` keeps this issue. It rewrites it while rows fall and rise, and closes it when all are as "
        "good as before."
    )
    lines += ["", advice, "", keeper, ""]
    # What a comment of HTML must not hold cannot be in a row's id, an endpoint's name or a job's.
    return "\n".join([*lines, f"<!-- servecheck:rows {json.dumps(record, sort_keys=True)} -->", ""])


# --------------------------------------------------------------------------- what changed, for a reader


def told(found: Sequence[Change], cells: Sequence[Cell]) -> str:
    """Return what changed since the run before as Markdown, what fell first; empty where nothing did."""
    if not found:
        return ""
    seen = {(cell.endpoint, cell.feature): cell.reason for cell in cells}
    lines = ["| | Row | Was | Is | What was seen |", "| --- | --- | --- | --- | --- |"]
    for each in sorted(found, key=lambda change: (not change.worse, not change.sure))[:_TOLD]:
        arrow = "▼" if each.worse else "▲" if each.better else "≠"
        sure = "" if each.sure else " (once, and not again on a second look)"
        why = cell_code(reason, 200) if (reason := seen.get((each.endpoint, each.feature))) else ""
        was, now = (_marked(status) for status in (each.before, each.after))
        lines.append(f"| {arrow} | `{each.feature}` on `{each.endpoint}` | {was} | {now}{sure} | {why} |")
    if len(found) > _TOLD:
        lines.append(f"| | {len(found) - _TOLD} more in the report | | | |")
    return "\n".join(["**Changed since the run before**", "", *lines, "", ""])


def _marked(status: str) -> str:
    return f"{Status(status).mark} {status}" if status in _PLACE else cell_code(status)
