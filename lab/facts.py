"""Statements about engines that were found by hand, beside what a run found: agree, disagree, or nothing to compare.

Each statement predicts one cell. Where a run disagrees, one of the two is wrong, and neither is taken to be right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from lab.records import CellRecord
from servecheck import features, yamlfile
from servecheck.errors import UnknownName
from servecheck.model import Kind, Status

__all__ = ["Agreement", "Expect", "Fact", "Facts", "agreement", "load"]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Expect(_Closed):
    """What the cell should say. All that is given must hold; patterns are searched for, whatever their case."""

    status: Status | tuple[Status, ...] = Field(default=(), description="This one, or any one of these.")
    value: str | None = Field(default=None, description="A pattern in the value of a property row.")
    says: str | None = Field(default=None, description="A pattern in the cell's sentence of evidence.")

    @field_validator("value", "says")
    @classmethod
    def _is_pattern(cls, given: str | None) -> str | None:
        if given is not None:
            try:
                re.compile(given)
            except re.error as error:
                raise ValueError(f"is not a regular expression: {error}") from error
        return given

    @model_validator(mode="after")
    def _expects_something(self) -> Expect:
        if not self.status and self.value is None and self.says is None:
            raise ValueError("expects nothing: give status, value or says")
        return self

    @property
    def statuses(self) -> tuple[Status, ...]:
        """The statuses that fit; none where the status does not matter."""
        return (self.status,) if isinstance(self.status, Status) else self.status


class Fact(_Closed):
    """One statement about one engine, and the row that should show it."""

    fact: str
    engine: str
    row: str
    expect: Expect
    note: str = ""

    @field_validator("row")
    @classmethod
    def _is_row(cls, given: str) -> str:
        try:
            features.get(given)
        except UnknownName as error:
            raise ValueError(str(error)) from error
        return given

    @model_validator(mode="after")
    def _fits_the_row(self) -> Fact:
        kind = features.get(self.row).kind
        if kind is Kind.JUDGED and self.expect.value is not None:
            raise ValueError(f"{self.row} is judged: it has a status, not a value")
        if kind is not Kind.JUDGED and self.expect.status:
            raise ValueError(f"{self.row} is a {kind}: it has a value, not a status")
        return self


class Facts(_Closed):
    """The whole file."""

    facts: tuple[Fact, ...]


class Agreement(StrEnum):
    """What a run says about a statement."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    COULD_NOT_TELL = "could not tell"
    NOT_RUN = "row not run yet"


def load(path: Path) -> tuple[Fact, ...]:
    """Read a facts file; raises ``ScenarioError`` with every problem and its place."""
    return yamlfile.validate(path, Facts).facts


def agreement(fact: Fact, cells: Mapping[str, CellRecord] | None) -> Agreement:
    """Compare a statement with the cells of its engine; ``None`` where there is no run of that engine."""
    cell = (cells or {}).get(fact.row)
    if cell is None:
        return Agreement.NOT_RUN
    if cell.status in (Status.INCONCLUSIVE, Status.ERROR, Status.SKIPPED):
        # A row that does not apply can be what was foreseen; one that could not be judged says nothing.
        expected = cell.status in fact.expect.statuses
        return Agreement.AGREES if expected else Agreement.COULD_NOT_TELL
    expect = fact.expect
    holds = (
        (not expect.statuses or cell.status in expect.statuses)
        and (expect.value is None or _found(expect.value, cell.value or ""))
        and (expect.says is None or _found(expect.says, cell.reason))
    )
    return Agreement.AGREES if holds else Agreement.DISAGREES


def _found(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None
