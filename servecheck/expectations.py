"""Known deviations: written from a run, applied to a run; they change the exit code and never the verdict."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from pathlib import Path

from servecheck import yamlfile
from servecheck.errors import Problem, ScenarioError, nearest, suggested
from servecheck.features import is_own
from servecheck.model import Cell, Comparison, Delta, Feature, Kind, Status
from servecheck.schema.expectations_v1 import Deviation, ExpectationsV1, ExpectationV1

__all__ = ["TODO", "Expectation", "Met", "Standing", "apply", "load", "notes", "problems_of", "written"]

TODO = "TODO: say why this is accepted"
"""What stands in a written file where a person has to say something."""


class Standing(StrEnum):
    """What became of an expectation in a run."""

    MATCHED = "matched"
    INTERMITTENT = "intermittent"
    UNEXPECTED = "unexpected"
    STALE = "stale"
    EXPIRED = "expired"
    NOT_RUN = "not-run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One deviation that is known and accepted; ``endpoint`` is ``None`` for any."""

    row: str
    endpoint: str | None
    deviations: tuple[Deviation, ...]
    intermittent: bool
    reason: str
    until: date | None
    issue: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """What became of one expectation on one endpoint, in words."""

    expectation: Expectation
    endpoint: str
    standing: Standing
    why: str

    @property
    def excuses(self) -> str | None:
        """The row as ``feature@endpoint`` where it no longer counts against the exit code."""
        fine = self.standing in {Standing.MATCHED, Standing.INTERMITTENT}
        return f"{self.expectation.row}@{self.endpoint}" if fine else None

    @property
    def fails(self) -> bool:
        """Whether the file itself has to be looked at: an exit code of 1, whatever else was found."""
        return self.standing in {Standing.STALE, Standing.EXPIRED}


# --------------------------------------------------------------------------- files


def load(path: Path, features: Collection[str]) -> tuple[Expectation, ...]:
    """Read an expectations file. Raises :class:`ScenarioError` with all problems of the file at once."""
    document = yamlfile.read(path)
    value, problems = _checked(document, features)
    if problems or value is None:
        raise ScenarioError(problems)
    return tuple(_expectation(entry) for entry in value.expectations)


def problems_of(document: yamlfile.Document, features: Collection[str]) -> list[Problem]:
    """Return what is wrong with an expectations file."""
    return _checked(document, features)[1]


def _checked(document: yamlfile.Document, features: Collection[str]) -> tuple[ExpectationsV1 | None, list[Problem]]:
    value, found = yamlfile.check(document, ExpectationsV1)
    found = [*document.problems, *found]
    if value is None:  # its shape is wrong, and names can be looked at all the same
        entries = document.data.get("expectations") if isinstance(document.data, dict) else None
        for place, said in enumerate(entries if isinstance(entries, list) else ()):
            row = said.get("row") if isinstance(said, dict) else None
            if isinstance(row, str) and row not in features and not is_own(row):
                hint = suggested(row, features, "features")
                at = ("expectations", place, "row")
                found.append(document.problem(at, f"unknown row {row!r}", suggestion=hint))
    seen: dict[tuple[str, str | None], int] = {}
    for place, entry in enumerate(value.expectations if value else ()):
        at = ("expectations", place, "row")
        if entry.row not in features and not is_own(entry.row):
            hint = suggested(entry.row, features, "features")
            found.append(document.problem(at, f"unknown row {entry.row!r}", suggestion=hint))
        earlier = seen.setdefault((entry.row, entry.endpoint), place)
        if earlier != place:
            found.append(document.problem(at, f"{entry.row} on {entry.endpoint or 'any endpoint'} is there already"))
    return value, yamlfile.listed(found)


def _expectation(entry: ExpectationV1) -> Expectation:
    return Expectation(
        row=entry.row,
        endpoint=entry.endpoint,
        deviations=entry.deviations,
        intermittent=entry.intermittent,
        reason=entry.reason,
        until=entry.until,
        issue=entry.issue,
    )


ENTRY = "  - row: "
"""How an entry begins in the text that is written."""


def written(
    rows: Iterable[str],
    cells: Sequence[Cell],
    comparisons: Sequence[Comparison],
    *,
    run: str,
    day: date,
    days: int,
) -> str:
    """Return the text of a file that expects what a run saw of ``rows``, each named ``feature@endpoint``."""
    lines = [
        f"# Deviations that were there in the run {run} of {day}. Say why each is accepted, or take it out;",
        "# then: servecheck run … --expect THIS-FILE. A row that is fine again, or an entry past its day, is exit 1.",
        "schema: servecheck/expectations/v1",
        "expectations:",
    ]
    entries = [row.rpartition("@") for row in rows]
    for feature, _, endpoint in entries:
        seen, why = _seen(feature, endpoint, cells, comparisons)
        if seen is None:
            continue
        lines += [
            f"{ENTRY}{feature}",
            f"    endpoint: {endpoint}",
            f"    expect: {seen}",
            f"    reason: {json.dumps(f'{TODO} ({_short(why)})', ensure_ascii=False)}",
            f"    until: {day + timedelta(days=days)}",
        ]
    if lines[-1] == "expectations:":
        lines[-1] = "expectations: []"
    return "\n".join(lines) + "\n"


def _short(text: str, limit: int = 160) -> str:
    """Return one line of what may be a server's text, without what a terminal or YAML would act upon."""
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return words if len(words) <= limit else words[: limit - 1] + "…"


def notes(expectations: Sequence[Expectation], endpoints: Sequence[str]) -> Iterator[str]:
    """Yield what a person should hear of expectations before a run of ``endpoints`` is made or read with them."""
    count = len(expectations)
    yield f"{count} {'deviation is' if count == 1 else 'deviations are'} expected; that changes the exit code only"
    undone = [each.row for each in expectations if each.reason.startswith("TODO")]
    if undone:
        more = f" and {len(undone) - 4} more" if len(undone) > 4 else ""
        yield f"warning: nobody has said yet why it is accepted: {', '.join(undone[:4])}{more}"
    for name in dict.fromkeys(each.endpoint for each in expectations if each.endpoint is not None):
        if name not in endpoints:
            hint = nearest(name, endpoints)
            meant = f"; did you mean {hint!r}?" if hint else f" (they are {', '.join(endpoints)})"
            yield f"warning: a deviation is expected of {name!r}, which is no endpoint of this run{meant}"


# --------------------------------------------------------------------------- a run against its expectations


def apply(
    expectations: Iterable[Expectation],
    cells: Sequence[Cell],
    comparisons: Sequence[Comparison],
    features: Sequence[Feature],
    *,
    day: date,
) -> tuple[Met, ...]:
    """Return what became of every expectation on every endpoint that it speaks of, in the order of the file.

    ``day`` is the day of the run, so that judging it again later says the same. An entry past its day is expired
    whatever the row does. One for any endpoint is stale only where the row is fine on all of them.
    """
    kinds = {feature.id: feature.kind for feature in features}
    endpoints = [*dict.fromkeys(cell.endpoint for cell in cells)]
    met: list[Met] = []
    for each in expectations:
        if each.endpoint is not None and each.endpoint not in endpoints:
            why = f"the run has no endpoint {each.endpoint}"
            met.append(Met(expectation=each, endpoint=each.endpoint, standing=Standing.NOT_RUN, why=why))
            continue
        named = endpoints if each.endpoint is None else [each.endpoint]
        found = [_met(each, name, cells, comparisons, kinds, day) for name in named]
        if each.endpoint is None and any(one.standing is not Standing.STALE for one in found):
            found = [one for one in found if one.standing is not Standing.STALE]
        met += found
    return tuple(met)


def _met(
    each: Expectation,
    endpoint: str,
    cells: Sequence[Cell],
    comparisons: Sequence[Comparison],
    kinds: Mapping[str, Kind],
    day: date,
) -> Met:
    cell = next((cell for cell in cells if (cell.feature, cell.endpoint) == (each.row, endpoint)), None)
    seen, why = _seen(each.row, endpoint, cells, comparisons)
    standing = Standing.MATCHED
    if each.until is not None and day > each.until:
        standing, why = Standing.EXPIRED, f"accepted until {each.until}; {_now(seen)}"
    elif cell is None or (cell.status is Status.SKIPPED and seen is None) or kinds.get(each.row) is Kind.PROPERTY:
        standing, why = Standing.NOT_RUN, cell.reason if cell is not None else "the run ended before this row"
    elif seen is None:
        standing = Standing.INTERMITTENT if each.intermittent else Standing.STALE
        why = "fine this time" if each.intermittent else "the row is fine now; take the entry out"
    elif seen not in each.deviations:
        wanted = " or ".join(each.deviations)
        standing, why = Standing.UNEXPECTED, f"{seen}, where {wanted} was expected: {_short(why)}"
    return Met(expectation=each, endpoint=endpoint, standing=standing, why=_short(why, 400))


def _now(seen: Deviation | None) -> str:
    return "the row is fine now" if seen is None else f"it is {seen} still"


def _seen(
    feature: str, endpoint: str, cells: Sequence[Cell], comparisons: Sequence[Comparison]
) -> tuple[Deviation | None, str]:
    """Return how a row deviates, ``None`` where it does not or was not run, and the sentence about it."""
    compared = next((each for each in comparisons if (each.feature, each.right) == (feature, endpoint)), None)
    if compared is not None and compared.delta is Delta.DRIFT:
        return Deviation.DRIFT, compared.why
    cell = next((cell for cell in cells if (cell.feature, cell.endpoint) == (feature, endpoint)), None)
    if cell is not None and cell.lacks and compared is not None and compared.side == endpoint:
        return Deviation.UNSUPPORTED, compared.why
    if cell is None or cell.status is Status.SKIPPED:
        return None, ""
    if cell.status is not Status.SUPPORTED:
        return Deviation(cell.status.value), cell.reason
    if compared is not None and compared.delta is Delta.UNCLEAR and cell.kind is Kind.COMPARISON:
        return Deviation.UNCLEAR, compared.why
    return None, cell.reason


def from_header(value: object) -> Iterator[Expectation]:
    """Yield the expectations that a run was made with, as its header keeps them."""
    for item in value if isinstance(value, list) else []:
        if isinstance(item, dict):
            until = item.get("until")
            yield Expectation(
                row=str(item.get("row")),
                endpoint=item["endpoint"] if isinstance(item.get("endpoint"), str) else None,
                deviations=tuple(Deviation(str(one)) for one in item.get("deviations", ())),
                intermittent=item.get("intermittent") is True,
                reason=str(item.get("reason")),
                until=date.fromisoformat(until) if isinstance(until, str) else None,
                issue=item["issue"] if isinstance(item.get("issue"), str) else None,
            )


def as_header(expectations: Iterable[Expectation]) -> list[dict[str, str | bool | list[str] | None]]:
    """Return expectations as the header of a run keeps them."""
    return [
        {
            "row": each.row,
            "endpoint": each.endpoint,
            "deviations": [one.value for one in each.deviations],
            "intermittent": each.intermittent,
            "reason": each.reason,
            "until": None if each.until is None else each.until.isoformat(),
            "issue": each.issue,
        }
        for each in expectations
    ]
