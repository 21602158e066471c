"""What a lab run found, small enough to keep in the repository: one record per engine, made from its run folder.

A record is closed and versioned like any outside shape. It holds no request and no reply; those are in the run folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from servecheck.model import How, Kind, SkipCode, Status
from servecheck.report.data import Cost, RunReport, Subject

__all__ = ["CellRecord", "CostRecord", "KnownRecord", "Record", "SubjectRecord", "record", "record_text"]

_NOT_RUN = frozenset({SkipCode.NO_PROBE, SkipCode.NOT_SELECTED, SkipCode.OPT_IN, SkipCode.BUDGET})
_ROOT = Path(__file__).resolve().parent.parent


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class KnownRecord(_Closed):
    """A value with how it is known."""

    value: str
    how: How


class CostRecord(_Closed):
    """What the run took; tokens are null where the server did not report usage."""

    requests: int
    seconds: float
    prompt_tokens: int | None
    output_tokens: int | None


class CellRecord(_Closed):
    """One row that was run. ``status`` is null for a property whose ``value`` is known."""

    status: Status | None
    reason: str
    value: str | None = None
    tally: str = ""


class SubjectRecord(_Closed):
    """One endpoint of the run. ``name`` is how the pages and the facts call it."""

    name: str
    fingerprint: dict[str, KnownRecord]
    cost: CostRecord | None
    cells: dict[str, CellRecord] = Field(description="By row; rows that were not run are absent.")


class Record(_Closed):
    """One lab run."""

    schema_: Literal["servecheck/lab-record/v1"] = Field(default="servecheck/lab-record/v1", alias="schema")
    engine: str
    started: datetime
    took: float | None = Field(default=None, description="Seconds from its beginning to its end; null where unknown.")
    complete: bool
    suite: str
    tool_version: str
    probes_digest: str
    subjects: list[SubjectRecord]


def record(engine: str, run: RunReport) -> Record:
    """Return what a run of an engine found; paths of the machine it ran on are left out."""
    return Record(
        schema="servecheck/lab-record/v1",
        engine=engine,
        started=run.started,
        took=round((run.finished - run.started).total_seconds(), 1) if run.finished else None,
        complete=run.complete,
        suite=run.suite,
        tool_version=run.tool_version,
        probes_digest=run.probes_digest,
        subjects=[_subject(engine, run, subject) for subject in run.subjects],
    )


def record_text(found: Record) -> str:
    """Return a record as the text of its file."""
    return found.model_dump_json(by_alias=True, indent=1) + "\n"


def _subject(engine: str, run: RunReport, subject: Subject) -> SubjectRecord:
    alone = len(run.subjects) == 1
    cost = next((cost for cost in run.costs if cost.endpoint == subject.name), None)
    return SubjectRecord(
        name=engine if alone else f"{engine}/{subject.name}",
        fingerprint={
            name: KnownRecord(value=_here(known.value), how=known.how)
            for name, known in subject.fingerprint.fields.items()
            if known.value is not None
        },
        cost=_cost(cost) if cost is not None else None,
        cells=dict(_cells(run, subject)),
    )


def _cost(cost: Cost) -> CostRecord:
    return CostRecord(
        requests=cost.requests,
        seconds=round(cost.seconds, 1),
        prompt_tokens=cost.prompt_tokens,
        output_tokens=cost.output_tokens,
    )


def _cells(run: RunReport, subject: Subject) -> Iterator[tuple[str, CellRecord]]:
    for feature in run.features:
        cell = run.cell(feature.id, subject.name)
        if cell is None or cell.skip_code in _NOT_RUN or (cell.skip_code or "").startswith("needs:"):
            continue
        known = feature.kind is not Kind.JUDGED and cell.value is not None
        yield (
            feature.id,
            CellRecord(
                status=None if known else cell.status,
                reason=_here(cell.reason),
                value=None if cell.value is None else _here(cell.value),
                tally=cell.tally if feature.kind is Kind.JUDGED else "",
            ),
        )


def _here(text: str) -> str:
    """Leave out where on this machine things are: engines put it into model names and error messages."""
    for place in (os.environ.get("LAB_DIR"), str(_ROOT), str(Path.home())):
        if place and len(place) > 1:
            text = re.sub(re.escape(place) + r"(?=/|\b)", "…", text)
    return text
