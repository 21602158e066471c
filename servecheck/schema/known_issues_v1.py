"""The outside shape of a file of known issues, version 1: closed and strict; whether rows and checks exist is judged
elsewhere."""

from __future__ import annotations

import re
from datetime import date
from enum import StrEnum
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, ConfigDict, Field, field_validator

from servecheck.model import Outcome

__all__ = ["Confidence", "KnownIssueV1", "KnownIssuesV1"]

Words = Annotated[str, Field(min_length=1)]


class Confidence(StrEnum):
    """How it is known: someone said so, the code was read, or it was seen to happen."""

    REPORTED = "reported"
    READ_IN_SOURCE = "read in source"
    REPRODUCED = "reproduced"


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class KnownIssueV1(_Closed):
    """One fault that others have met, and how it would show here."""

    title: Words = Field(description="What goes wrong, in a sentence of our own.")
    reference: str = Field(pattern="^https://[^\\s]+$", description="Where upstream speaks of it.")
    rows: tuple[Words, ...] = Field(min_length=1, description="The rows that it shows in, by id.")
    checks: tuple[Words, ...] = Field(
        default=(), description="The checks that it trips; left out: any check of these rows."
    )
    outcomes: tuple[Outcome, ...] = Field(
        default=(Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED),
        description="What such a check must have seen.",
    )
    said: str | None = Field(
        default=None, min_length=1, description="A pattern, to be found in what the check or the property says."
    )
    versions: str | None = Field(
        default=None,
        min_length=1,
        description="The engine's versions that have it, as PEP 440 (>=0.12,<0.13), or in words, which rule nothing "
        "out; left out: not known.",
    )
    fixed_in: str | None = Field(
        default=None, min_length=1, description="The first version without it; left out: none that is known."
    )
    stacks: tuple[Words, ...] = Field(default=(), description="The accelerator stacks that have it, such as torchtpu.")
    hardware: tuple[Words, ...] = Field(default=(), description="The devices that have it, such as tpu.")
    architecture: str | None = Field(
        default=None,
        min_length=1,
        description="A pattern of the model's architecture, whatever the case; where that is not known, of its name.",
    )
    confidence: Confidence = Field(description="How it is known.")
    as_of: date = Field(description="The day on which it was looked up.")
    note: str | None = Field(default=None, min_length=1, description="What else a reader should know.")

    @field_validator("said", "architecture")
    @classmethod
    def _is_a_pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return value

    @field_validator("versions")
    @classmethod
    def _is_a_range_or_words(cls, value: str | None) -> str | None:
        if value is not None and value.lstrip()[0] in "<>=!~":
            try:
                SpecifierSet(value)
            except InvalidSpecifier as error:
                raise ValueError(f"not a range of versions: {error}") from error
        return value


class KnownIssuesV1(_Closed):
    """What is known of one engine, or of one gateway."""

    schema_: Literal["servecheck/known-issues/v1"] = Field(alias="schema", description="The format of this file.")
    engine: Words = Field(description="The engine or gateway, as the report names it.")
    issues: tuple[KnownIssueV1, ...] = Field(min_length=1, description="One entry for each fault.")
