"""The outside shape of a scenario file, version 1: closed and strict; names are looked up elsewhere."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from servecheck.model import Level
from servecheck.plainwords import alternatives
from servecheck.probe import Params

__all__ = ["FILE_SUFFIXES", "KEBAB", "ScenarioV1", "TuneV1", "file_parameters"]

KEBAB = "^[a-z0-9]+(-[a-z0-9]+)*$"

FILE_SUFFIXES = (".yaml", ".yml", ".json", ".txt", ".md")
"""What ``X_file`` may name: data (YAML 1.2, JSON), or the text of a file."""

Sentence = Annotated[str, Field(min_length=1)]


def _unique(values: list[str]) -> list[str]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value!r} is listed twice")
    return values


Names = Annotated[list[Sentence], AfterValidator(_unique), Field(json_schema_extra={"uniqueItems": True})]
Tags = Annotated[
    list[Annotated[str, Field(pattern=KEBAB)]], AfterValidator(_unique), Field(json_schema_extra={"uniqueItems": True})
]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TuneV1(_Closed):
    """Another level for one check of the probe, with the reason."""

    level: Level = Field(description="The level that counts for this scenario: must or should.")
    because: Sentence = Field(description="Why the level differs from the check's own.")


class ScenarioV1(_Closed):
    """A scenario: this probe, these parameters, counting for that feature."""

    schema_: Literal["servecheck/scenario/v1"] = Field(alias="schema", description="The version of this file format.")
    id: Annotated[str, Field(pattern=KEBAB)] = Field(description="The scenario's name; the file is named like it.")
    title: Sentence = Field(description="What is expected, in one line.")
    feature: Sentence = Field(description="The row of the matrix that this scenario counts for.")
    probe: Sentence = Field(description="The probe that sends the requests and judges the replies.")
    why: Sentence = Field(description="Why a user of an endpoint cares.")
    trials: Annotated[int, Field(ge=1, le=20)] | None = Field(
        default=None, description="How often the case is run (1 to 20); left out: as the run decides."
    )
    tags: Tags = Field(default=[], description="Words to select by, such as smoke.")
    with_: dict[str, JsonValue] = Field(default={}, alias="with", description="The probe's parameters.")
    tune: dict[str, TuneV1] = Field(default={}, description="Checks of the probe that weigh more or less here.")
    needs: Names = Field(default=[], description="Features that must be usable before this scenario makes sense.")


def file_parameters(params: type[Params]) -> tuple[str, ...]:
    """Return the parameters ``X`` that may be given as ``X_file``: those that can hold a text, a list or a mapping.

    A parameter that declares a name ending in ``_file`` itself keeps it, with a meaning of its own.
    """
    schema = params.model_json_schema()
    fields: dict[str, Any] = schema.get("properties", {})
    return tuple(
        name
        for name, node in fields.items()
        if f"{name}_file" not in fields and any(_holds_much(found) for found in alternatives(node, schema))
    )


def _holds_much(node: dict[str, Any]) -> bool:
    if "enum" in node or "const" in node:
        return False
    if "type" in node:
        return node["type"] in {"string", "array", "object"}
    # Without a type, and referring to nothing: any value.
    return node.keys() <= {"title", "description", "default"}
