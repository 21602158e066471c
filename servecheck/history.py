"""What a matrix was on earlier days: runs kept in one SQLite file, and what changed, wavers or drifts between them.

A run is added in one transaction, so whatever kills it leaves the file as it was, and several may write at once.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import combinations, groupby
from pathlib import Path
from statistics import median
from typing import Self

from servecheck.errors import StoreError, UsageError
from servecheck.model import DECIDED, Cell, Json, Kind, Outcome, Status
from servecheck.report.data import RunReport, Since
from servecheck.stats import Interval, wilson

__all__ = ["Flake", "Flip", "History", "LaterHistory", "Told", "Trend", "changes", "previous_of"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (
    id TEXT PRIMARY KEY, started TEXT NOT NULL, suite TEXT NOT NULL, version TEXT NOT NULL, probes TEXT NOT NULL,
    complete INTEGER NOT NULL, decision TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS endpoint (
    run TEXT NOT NULL REFERENCES run(id) ON DELETE CASCADE, name TEXT NOT NULL, model TEXT, engine TEXT,
    engine_version TEXT, fingerprint TEXT NOT NULL, PRIMARY KEY (run, name)
) STRICT;
CREATE TABLE IF NOT EXISTS cell (
    run TEXT NOT NULL REFERENCES run(id) ON DELETE CASCADE, endpoint TEXT NOT NULL, feature TEXT NOT NULL,
    status TEXT NOT NULL, value TEXT, agreeing INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (run, endpoint, feature)
) STRICT;
CREATE TABLE IF NOT EXISTS figure (
    run TEXT NOT NULL REFERENCES run(id) ON DELETE CASCADE, endpoint TEXT NOT NULL, feature TEXT NOT NULL,
    name TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (run, endpoint, feature, name)
) STRICT;
CREATE INDEX IF NOT EXISTS run_started ON run (started);
PRAGMA user_version = 1;
"""
_WAIT = 30.0  # seconds that a writer waits for another one
_CONFIRMED = 2  # looks, in one run or in two, that make a change more than a moment's

# A trend is told from five standard errors on, because a matrix holds hundreds of figures and every one is tested;
# and only where the change is as large as a reader would call one.
_SURE, _LARGE, _BINS, _FEWEST = 5.0, 0.1, 40, 12


class LaterHistory(StoreError):
    """The file was written by a later version: it is whole, and this version must not write it."""


class Told(StrEnum):
    """Whether a change was seen more than once."""

    CONFIRMED = "confirmed"
    ONCE = "seen once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A row that became something else and stayed so, or did so in the last run."""

    endpoint: str
    feature: str
    run: str
    started: str
    before: str
    after: str
    told: Told
    reason: str
    versions: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flake:
    """A row that was something else now and then: in how many of how many runs, with the interval of the share."""

    endpoint: str
    feature: str
    usual: str
    odd: int
    runs: int
    share: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A measured figure that rises or falls over the runs, and not only from one to the next."""

    endpoint: str
    feature: str
    figure: str
    first: float
    last: float
    runs: int
    sigmas: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One cell of one run."""

    run: str
    started: str
    version: str
    status: str
    value: str | None
    agreeing: int
    reason: str

    @property
    def said(self) -> str:
        """What the row was: its status, or its value where it has one."""
        return self.status if self.value is None else self.value

    @property
    def decided(self) -> bool:
        return self.value is not None or self.status in _DECIDED


_DECIDED = frozenset(status.value for status in DECIDED)
_UNDECIDED = frozenset({Status.ERROR.value, Status.INCONCLUSIVE.value})


class History:
    """One SQLite file of runs. Raises ``StoreError`` where it cannot be opened, read or written."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it."""
        self.path = path
        with self._errors():
            self._base = sqlite3.connect(path, timeout=_WAIT, isolation_level=None)
            if self._base.execute("PRAGMA user_version").fetchone()[0] not in {0, 1}:
                raise LaterHistory(f"{path} was written by a later version of servecheck")
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA foreign_keys = ON")
            self._base.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error

    def check(self) -> None:
        """Read the whole file; a page that is damaged is otherwise found when a run is added, after it was made."""
        with self._errors():
            said = self._base.execute("PRAGMA quick_check(1)").fetchone()[0]
        if said != "ok":
            raise StoreError(f"{self.path}: {said}")

    # ----------------------------------------------------------------- writing

    def add(self, report: RunReport, *, keep: int | None = None) -> None:
        """Add a run, or replace it by what it is now; with ``keep``, only so many of the latest runs stay."""
        if keep is not None and keep < 1:
            raise UsageError("a history keeps at least one run")
        with self._errors(), self._transaction():
            self._base.execute("DELETE FROM run WHERE id = ?", (report.id,))
            self._base.execute(
                "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    report.id,
                    report.started.astimezone(UTC).isoformat(timespec="microseconds"),
                    report.suite,
                    report.tool_version,
                    report.probes_digest,
                    int(report.complete),
                    report.verdict.decision.value,
                ),
            )
            self._base.executemany("INSERT INTO endpoint VALUES (?, ?, ?, ?, ?, ?)", _endpoints(report))
            self._base.executemany("INSERT INTO cell VALUES (?, ?, ?, ?, ?, ?, ?)", _cells(report))
            self._base.executemany("INSERT OR REPLACE INTO figure VALUES (?, ?, ?, ?, ?)", _figures(report))
            if keep is not None:
                self._prune(keep)

    def prune(self, keep: int) -> None:
        """Keep only so many of the latest runs."""
        with self._errors(), self._transaction():
            self._prune(keep)

    def _prune(self, keep: int) -> None:
        self._base.execute(
            "DELETE FROM run WHERE id NOT IN (SELECT id FROM run ORDER BY started DESC, id DESC LIMIT ?)", (keep,)
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")

    # ----------------------------------------------------------------- reading

    def runs(self) -> list[tuple[str, str, str, bool]]:
        """Return id, start, decision and completeness of every run, the oldest first."""
        with self._errors():
            found = self._base.execute("SELECT id, started, decision, complete FROM run ORDER BY started, id")
            return [(run, started, decision, bool(complete)) for run, started, decision, complete in found]

    def last(
        self, endpoint: str, *, before: str | None = None, since: str | None = None, filled: bool = False
    ) -> dict[str, Json] | None:
        """Return the last complete run of an endpoint as the header of a new run keeps it, ``None`` without one.

        ``before`` leaves out a run and all later ones. ``since`` is the id of a run, a version of the engine, or the
        beginning of a day as 2026-11-30: the last run that is it, that served with it, or that began before it.

        With ``filled``, a row that this run did not decide, or did not ask, is as it was when it last was decided: a
        night without a server, or of fewer rows, must not hide what changed over it.
        """
        with self._errors():
            found = self._base.execute(
                "SELECT r.id, r.started, e.engine, e.engine_version FROM run r JOIN endpoint e ON e.run = r.id "
                "WHERE e.name = ?1 AND r.complete = 1 "
                "AND (?2 IS NULL OR r.started < COALESCE((SELECT started FROM run WHERE id = ?2), '9')) "
                "AND (?3 IS NULL OR r.id = ?3 OR e.engine_version = ?3 "
                "     OR (?3 GLOB '????-??-??' AND r.started < ?3)) "
                "ORDER BY r.started DESC, r.id DESC LIMIT 1",
                (endpoint, before, since),
            ).fetchone()
            if found is None:
                return None
            run, started, engine, version = found
            cells = self._base.execute(
                "SELECT feature, status, value FROM cell WHERE run = ? AND endpoint = ?", (run, endpoint)
            )
            said = {feature: value if value is not None else status for feature, status, value in cells}
            decided = self._decided(endpoint, started) if filled else {}
            earlier: dict[str, Json] = {
                feature: {"run": when[0], "started": when[1]}
                for feature, (_, *when) in decided.items()
                if when[0] != run
            }
            return {
                "run": run,
                "started": started,
                "engine": " ".join(filter(None, (engine, version))),
                "cells": {**said, **{feature: each[0] for feature, each in decided.items()}},
                "earlier": earlier,
            }

    def _decided(self, endpoint: str, until: str) -> dict[str, tuple[str, str, str]]:
        """Return what each row was when it last was decided, up to a moment, with the run and when it began."""
        found = self._base.execute(
            # Of the columns beside MAX(), SQLite takes the values of the row that has the maximum.
            "SELECT c.feature, c.status, c.value, r.id, MAX(r.started) FROM cell c JOIN run r ON r.id = c.run "
            "WHERE c.endpoint = ? AND r.complete = 1 AND r.started <= ? AND c.status NOT IN ('error', 'inconclusive') "
            "GROUP BY c.feature",
            (endpoint, until),
        )
        return {
            feature: (value if value is not None else status, run, started)
            for feature, status, value, run, started in found
        }

    def changed(
        self, since: str | None = None, endpoint: str | None = None, rows: Sequence[str] = ()
    ) -> list[tuple[str, str, str, str, str]]:
        """Return what the last run of each endpoint says otherwise than the one before it, or than ``since``.

        A row that the run before did not decide is compared with the last one that did. Each is endpoint, row, what it
        was, what it is, and the run that it is compared with. Raises ``UsageError`` where no run fits ``since``.
        """
        found = []
        fits = False
        for name in [endpoint] if endpoint is not None else self.endpoints():
            last = self.last(name)
            before = self.last(name, before=str(last["run"]) if last else None, since=since, filled=True)
            if last is None or before is None:
                continue
            fits = True
            was, now = (_known(each) for each in (before, last))
            found += [
                (name, feature, was[feature], now[feature], _run_of(before, feature)[0])
                for feature in now
                if feature in was and was[feature] != now[feature] and _wanted(feature, rows)
                if not {was[feature], now[feature]} & _UNDECIDED
            ]
        if since is not None and not fits:
            raise UsageError(f"no earlier run fits --since {since}: give a run's id, an engine's version or a day")
        return found

    def endpoints(self) -> list[str]:
        """Return the names of all endpoints, the latest seen first."""
        with self._errors():
            found = self._base.execute(
                "SELECT e.name FROM endpoint e JOIN run r ON r.id = e.run GROUP BY e.name ORDER BY MAX(r.started) DESC"
            )
            return [name for (name,) in found]

    def series(self, endpoint: str | None = None, rows: Sequence[str] = ()) -> Iterator[tuple[str, str, list[_Seen]]]:
        """Yield every row of every endpoint, or of one, with what it was in each run, the oldest first."""
        with self._errors():
            found = self._base.execute(
                "SELECT c.endpoint, c.feature, r.id, r.started, COALESCE(e.engine_version, ''), c.status, c.value, "
                "c.agreeing, c.reason FROM cell c JOIN run r ON r.id = c.run "
                "JOIN endpoint e ON e.run = c.run AND e.name = c.endpoint "
                "WHERE ?1 IS NULL OR c.endpoint = ?1 ORDER BY c.endpoint, c.feature, r.started, r.id",
                (endpoint,),
            )
            for (name, feature), group in groupby(found, key=lambda row: (row[0], row[1])):
                if _wanted(feature, rows):
                    yield (
                        name,
                        feature,
                        [
                            _Seen(run=r, started=s, version=v, status=st, value=val, agreeing=a, reason=why)
                            for _, _, r, s, v, st, val, a, why in group
                        ],
                    )

    def figures(
        self, endpoint: str | None = None, rows: Sequence[str] = ()
    ) -> Iterator[tuple[str, str, str, list[float]]]:
        """Yield every measured figure with its values over the runs, the oldest first."""
        with self._errors():
            found = self._base.execute(
                "SELECT f.endpoint, f.feature, f.name, f.value FROM figure f JOIN run r ON r.id = f.run "
                "WHERE ?1 IS NULL OR f.endpoint = ?1 ORDER BY f.endpoint, f.feature, f.name, r.started, r.id",
                (endpoint,),
            )
            for (name, feature, figure), group in groupby(found, key=lambda row: row[:3]):
                if _wanted(feature, rows):
                    yield name, feature, figure, [value for *_, value in group]

    def told(
        self, endpoint: str | None = None, rows: Sequence[str] = ()
    ) -> tuple[list[Flip], list[Flake], list[Trend]]:
        """Return what flipped, what wavers and what drifts over all runs."""
        flips: list[Flip] = []
        flakes: list[Flake] = []
        for name, feature, seen in self.series(endpoint, rows):
            found, odd, runs = _flips(name, feature, [each for each in seen if each.decided])
            flips += found
            if odd:
                usual = max((each.said for each in seen if each.decided), key=[each.said for each in seen].count)
                share = wilson(odd, runs)
                flakes.append(Flake(endpoint=name, feature=feature, usual=usual, odd=odd, runs=runs, share=share))
        trends = [
            trend
            for name, feature, figure, values in self.figures(endpoint, rows)
            if (trend := _trend(name, feature, figure, values)) is not None
        ]
        return sorted(flips, key=lambda each: each.started), flakes, trends


def _known(last: Mapping[str, Json]) -> dict[str, str]:
    cells = last.get("cells")
    return {feature: str(said) for feature, said in cells.items()} if isinstance(cells, dict) else {}


def _run_of(last: Mapping[str, Json], feature: str) -> tuple[str, str]:
    """Return the run that said what a row was, and when it began: the run before, or an earlier one that decided it."""
    earlier = last.get("earlier")
    found = earlier.get(feature) if isinstance(earlier, dict) else None
    which = found if isinstance(found, dict) else last
    return str(which.get("run")), str(which.get("started"))


def _wanted(feature: str, rows: Sequence[str]) -> bool:
    return not rows or any(fnmatchcase(feature, glob) or feature.partition(".")[0] == glob for glob in rows)


# --------------------------------------------------------------------------- what a run leaves


def _endpoints(report: RunReport) -> Iterator[tuple[str | None, ...]]:
    for subject in report.subjects:
        known = {name: field.value for name, field in subject.fingerprint.fields.items() if field.value is not None}
        yield (
            report.id,
            subject.name,
            subject.endpoint.model,
            known.get("engine"),
            known.get("engine_version"),
            json.dumps(known, sort_keys=True),
        )


def _cells(report: RunReport) -> Iterator[tuple[str, str, str, str, str | None, int, str]]:
    for cell in report.cells:
        if cell.status is Status.SKIPPED:
            continue
        value = cell.value if cell.kind is Kind.PROPERTY and cell.status is Status.SUPPORTED else None
        yield report.id, cell.endpoint, cell.feature, cell.status.value, value, _agreeing(cell), cell.reason[:500]


def _agreeing(cell: Cell) -> int:
    return sum(trial is cell.status for trial in cell.trials)


def _figures(report: RunReport) -> Iterator[tuple[str, str, str, str, float]]:
    for cell in report.cells:
        for finding in cell.findings:
            if finding.outcome is not Outcome.HELD:
                continue
            for name, value in finding.measured.items():
                if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                    where = " ".join(word for word in (finding.check, finding.route, finding.mode) if word != "none")
                    yield report.id, cell.endpoint, cell.feature, f"{where}: {name}", float(value)


# --------------------------------------------------------------------------- what the runs say together


def _flips(endpoint: str, feature: str, seen: Sequence[_Seen]) -> tuple[list[Flip], int, int]:
    """Return the changes that lasted or are of the last run, in how many runs the row wavered, and of how many."""
    flips: list[Flip] = []
    odd = 0
    current = next((each for each in seen if each.said != Status.FLAKY), None)
    for place, each in enumerate(seen):
        if current is None or each.said == Status.FLAKY:
            odd += 1
            continue
        if each.said == current.said:
            current = each
            continue
        after = next((later for later in seen[place + 1 :] if later.said != Status.FLAKY), None)
        if after is not None and after.said != each.said:
            odd += 1  # gone again in the next run: a waver and no change
            continue
        sure = after is not None or each.agreeing >= _CONFIRMED
        flips.append(
            Flip(
                endpoint=endpoint,
                feature=feature,
                run=each.run,
                started=each.started,
                before=current.said,
                after=each.said,
                told=Told.CONFIRMED if sure else Told.ONCE,
                reason=each.reason,
                versions=(current.version, each.version),
            )
        )
        current = each
    return flips, odd, len(seen)


def _trend(endpoint: str, feature: str, figure: str, values: Sequence[float]) -> Trend | None:
    """Return the trend of a figure by Mann and Kendall, with the slope of Theil and Sen; ``None`` without one."""
    if len(values) < _FEWEST or len(set(values)) < 3:
        return None
    bins = _binned(values)
    pairs = list(combinations(range(len(bins)), 2))
    score = sum((bins[b] > bins[a]) - (bins[b] < bins[a]) for a, b in pairs)
    n = len(bins)
    ties = sum(t * (t - 1) * (2 * t + 5) for t in (bins.count(value) for value in set(bins)))
    spread = math.sqrt((n * (n - 1) * (2 * n + 5) - ties) / 18)
    if not spread:
        return None
    sigmas = (abs(score) - 1) / spread
    slope = median((bins[b] - bins[a]) / (b - a) for a, b in pairs)
    middle = median(bins)
    first, last = middle - slope * (n - 1) / 2, middle + slope * (n - 1) / 2
    if sigmas < _SURE or abs(last - first) < _LARGE * abs(middle or last - first):
        return None
    return Trend(
        endpoint=endpoint, feature=feature, figure=figure, first=first, last=last, runs=len(values), sigmas=sigmas
    )


def _binned(values: Sequence[float]) -> list[float]:
    """Return medians of neighbouring runs, so that the work does not grow with the square of a long history."""
    size = math.ceil(len(values) / _BINS)
    return [median(values[place : place + size]) for place in range(0, len(values), size)]


# --------------------------------------------------------------------------- since the last run


def previous_of(history: History, endpoints: Sequence[str]) -> dict[str, Json]:
    """Return the last run of each endpoint, as the header of a new run keeps it."""
    found = {name: history.last(name, filled=True) for name in endpoints}
    return {name: last for name, last in found.items() if last is not None}


def changes(previous: Mapping[str, Json], cells: Sequence[Cell]) -> tuple[Since, ...]:
    """Return what is not as it was in the run before, for the endpoints that had one, in the order of the cells."""
    found: list[Since] = []
    for cell in cells:
        last = previous.get(cell.endpoint)
        if not isinstance(last, dict) or cell.status is Status.SKIPPED:
            continue
        known = last.get("cells")
        before = known.get(cell.feature) if isinstance(known, dict) else None
        value = cell.value if cell.kind is Kind.PROPERTY and cell.status is Status.SUPPORTED else None
        now = cell.status.value if value is None else value
        told = value is not None or cell.status in DECIDED
        if isinstance(before, str) and before != now and told and before not in _UNDECIDED:
            sure = _agreeing(cell) >= _CONFIRMED or value is not None
            run, started = _run_of(last, cell.feature)
            found.append(
                Since(
                    endpoint=cell.endpoint,
                    feature=cell.feature,
                    run=run,
                    started=datetime.fromisoformat(started),
                    before=before,
                    after=now,
                    told=(Told.CONFIRMED if sure else Told.ONCE).value,
                    engine=str(last.get("engine", "")),
                )
            )
    return tuple(found)
