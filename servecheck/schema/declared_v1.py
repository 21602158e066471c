"""The outside shape of a support matrix of your own, version 1: closed and strict; whether rows exist is judged
elsewhere."""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Claim", "ClaimV1", "DeclaredV1"]


class Claim(StrEnum):
    """What a support matrix can say of a feature."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    EXPERIMENTAL = "experimental"
    PLANNED = "planned"
    UNVERIFIED = "unverified"

    @property
    def mark(self) -> str:
        """The sign that support matrices use for it."""
        return {
            Claim.SUPPORTED: "✅",
            Claim.UNSUPPORTED: "❌",
            Claim.EXPERIMENTAL: "🧪",
            Claim.PLANNED: "📝",
            Claim.UNVERIFIED: "❓",
        }[self]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ClaimV1(_Closed):
    """What is declared of one row."""

    says: Claim = Field(description="What is declared.")
    words: str | None = Field(default=None, min_length=1, description="As it stands there, such as Prefix Caching ✅.")


class DeclaredV1(_Closed):
    """What someone declares an endpoint to support."""

    schema_: Literal["servecheck/declared/v1"] = Field(alias="schema", description="The format of this file.")
    source: str = Field(min_length=1, description="Who declares it, or the address where it stands.")
    as_of: date | None = Field(default=None, description="The day from which it is.")
    rows: dict[Annotated[str, Field(min_length=1)], Claim | ClaimV1] = Field(
        min_length=1, description="What is declared of each row, by id."
    )
