"""The outside shape of a table of weight formats per stack, version 1: closed and strict."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from servecheck.schema.known_issues_v1 import Confidence

__all__ = ["FormatV1", "FormatsV1", "StackFormatsV1"]

Name = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_.-]{0,39}$")]
Words = Annotated[str, Field(min_length=1)]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class FormatV1(_Closed):
    """A format of weights, and how checkpoints and servers name it."""

    names: tuple[Name, ...] = Field(default=(), description="Other names, in small letters.")
    title: Words = Field(description="What people call it.")
    in_a_name: bool = Field(
        default=True,
        description="Whether one of these in a model's name means this format; int4 may be any of several.",
    )


class StackFormatsV1(_Closed):
    """The formats that one stack was found to load."""

    title: Words = Field(description="The stack, as people call it.")
    version: Words = Field(description="The version or commit that was looked at.")
    as_of: date = Field(description="The day from which that is.")
    source: str = Field(pattern="^https://[^\\s]+$", description="Where the list stands.")
    confidence: Confidence = Field(description="How it is known.")
    loads: tuple[Name, ...] | None = Field(description="The formats that it loads; null where no list could be read.")
    notes: dict[Name, Words] = Field(default={}, description="What to know of a format on this stack.")
    note: str | None = Field(default=None, min_length=1, description="What to know of the list.")


class FormatsV1(_Closed):
    """Which formats of weights each accelerator stack loads."""

    schema_: Literal["servecheck/formats/v1"] = Field(alias="schema", description="The format of this file.")
    formats: dict[Name, FormatV1] = Field(min_length=1, description="The formats, by id.")
    stacks: dict[Name, StackFormatsV1] = Field(min_length=1, description="The stacks, by id.")
