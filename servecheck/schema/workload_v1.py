"""The outside shape of a workload file, version 1: closed and strict; what the named files hold is judged elsewhere."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

__all__ = ["OwnPromptV1", "OwnSchemaV1", "OwnToolV1", "WorkloadV1"]

Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[^\s].*$")]
FileName = Annotated[str, Field(min_length=1, description="A file, relative to this one.")]
Message = dict[str, JsonValue]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def _exactly_one(self, *names: str) -> None:
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            *most, last = names
            raise ValueError(
                f"expected exactly one of {', '.join(most)} and {last}, got {' and '.join(given) or 'none'}"
            )


class OwnSchemaV1(_Closed):
    """A JSON Schema that your application sends."""

    file: FileName | None = Field(
        default=None, description="A JSON or YAML file that holds the schema, or the whole response_format."
    )
    inline: dict[str, JsonValue] | None = Field(default=None, description="The schema itself.")
    strict: bool | None = Field(default=True, description="The strict that is sent with it; null sends none.")
    prompt: str | None = Field(default=None, min_length=1, description="What your application asks with it.")

    @model_validator(mode="after")
    def _one(self) -> OwnSchemaV1:
        self._exactly_one("file", "inline")
        return self


class OwnToolV1(_Closed):
    """A tool definition that your application sends, or a file with several."""

    file: FileName | None = Field(default=None, description="A JSON or YAML file that holds a tool or a list of tools.")
    inline: dict[str, JsonValue] | None = Field(default=None, description="The tool itself.")

    @model_validator(mode="after")
    def _one(self) -> OwnToolV1:
        self._exactly_one("file", "inline")
        return self


class OwnPromptV1(_Closed):
    """A prompt of your application."""

    text: str | None = Field(default=None, min_length=1, description="The text of one user message.")
    file: FileName | None = Field(default=None, description="A text file that holds it.")
    messages: list[Message] | None = Field(default=None, min_length=1, description="The messages of a chat.")

    @model_validator(mode="after")
    def _one(self) -> OwnPromptV1:
        self._exactly_one("text", "file", "messages")
        return self


class WorkloadV1(_Closed):
    """What your application sends: schemas, tools and prompts, by name, from files, or from a log of requests."""

    schema_: Literal["servecheck/workload/v1"] = Field(alias="schema", description="The version of this file format.")
    json_schemas: dict[Name, OwnSchemaV1] = Field(default={}, description="JSON Schemas by the name for the report.")
    tools: list[OwnToolV1] = Field(default=[], description="Tool definitions; the report calls them by their names.")
    prompts: dict[Name, OwnPromptV1] = Field(default={}, description="Prompts by the name for the report.")
    request_logs: list[FileName] = Field(
        default=[],
        description="JSONL files, one request body or one line of a batch file a line, relative to this one.",
    )
    at_most: int = Field(
        default=50, ge=1, le=500, description="How many schemas and how many tools are run; the most used ones."
    )
