"""The outside shape of a profile, version 1: closed and strict; whether rows and checks exist is judged elsewhere."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["LimitV1", "NeedV1", "ProfileV1"]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NeedV1(_Closed):
    """Why a row is needed, and which of its checks are musts for this use."""

    because: str = Field(min_length=1, description="What the application does with it.")
    must: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="Checks of the row that are a should elsewhere and a must here."
    )


class LimitV1(_Closed):
    """A bound on a figure that a comparison measures."""

    row: str = Field(min_length=1, description="The comparison row, such as parity.logprobs.")
    measured: str = Field(min_length=1, description="The name of the figure among what the row measures.")
    at_most: float = Field(description="The largest value that is accepted, in the figure's own unit.")
    because: str = Field(min_length=1, description="Where the bound comes from.")


class ProfileV1(_Closed):
    """What one kind of application needs of an endpoint."""

    schema_: Literal["servecheck/profile/v1"] = Field(alias="schema", description="The format of this file.")
    id: str = Field(pattern="^[a-z0-9][a-z0-9-]{0,39}$", description="Its name; equal to the file's.")
    title: str = Field(min_length=1, description="The kind of application, in a few words.")
    as_of: date = Field(description="The day on which the list was frozen.")
    about: str = Field(min_length=1, description="What such an application relies on.")
    rows: dict[str, NeedV1] = Field(min_length=1, description="The rows that decide, by id.")
    limits: tuple[LimitV1, ...] = Field(default=(), description="Bounds on what comparisons measure.")
