"""The outside shape of an expectations file, version 1: closed and strict; whether a row exists is judged elsewhere."""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Deviation", "ExpectationV1", "ExpectationsV1"]


class Deviation(StrEnum):
    """How a row can deviate: a status that is not ``supported``, or measurements that drifted."""

    DEGRADED = "degraded"
    UNSUPPORTED = "unsupported"
    IGNORED = "ignored"
    BROKEN = "broken"
    FLAKY = "flaky"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    DRIFT = "drift"
    UNCLEAR = "unclear"


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ExpectationV1(_Closed):
    """One deviation that is known and accepted."""

    row: str = Field(min_length=1, description="The id of the row, as servecheck list features shows it.")
    endpoint: str | None = Field(default=None, min_length=1, description="The endpoint's name; left out: any.")
    expect: Deviation | Annotated[tuple[Deviation, ...], Field(min_length=1)] = Field(
        description="How the row deviates, or any of several ways."
    )
    intermittent: bool = Field(default=False, description="Whether the row may also be fine; then it is never stale.")
    reason: str = Field(min_length=1, description="Why this is accepted, for whoever reads the file next.")
    until: date | None = Field(default=None, description="The last day on which it is accepted, as 2027-01-31.")
    issue: str | None = Field(default=None, min_length=1, description="Where it is tracked.")

    @property
    def deviations(self) -> tuple[Deviation, ...]:
        """The ways that fit, one or several."""
        return (self.expect,) if isinstance(self.expect, Deviation) else self.expect


class ExpectationsV1(_Closed):
    """Deviations that are known and accepted."""

    schema_: Literal["servecheck/expectations/v1"] = Field(alias="schema", description="The format of this file.")
    expectations: tuple[ExpectationV1, ...] = Field(description="One entry for each row that deviates.")
