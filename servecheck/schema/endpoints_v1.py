"""The outside shape of an endpoints file, version 1: closed and strict; URLs and secrets are judged elsewhere."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

__all__ = ["DECLARED", "ENV_NAME", "NAME", "EndpointV1", "EndpointsV1", "NamedEndpointV1"]

NAME = "^[a-z0-9][a-z0-9._-]{0,39}$"
DECLARED = "^[a-z][a-z0-9_]*$"
ENV_NAME = "^[A-Za-z_][A-Za-z0-9_]*$"

# Only for the published schema: pydantic would repeat a text that does not match, and these may hold a secret.
_URL = {"pattern": r"^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@\s]+(/[^?#\s]*)?$"}
_ENV = {"pattern": ENV_NAME}

ServerUrl = Annotated[str, Field(json_schema_extra=dict(_URL))]
EnvName = Annotated[str, Field(json_schema_extra=dict(_ENV))]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class EndpointV1(_Closed):
    """A server under test."""

    base_url: ServerUrl = Field(
        description="The API root, such as https://gpu.example/v1; /v1 is added where there is no path."
    )
    model: str | None = Field(
        default=None, min_length=1, description="The model's id; left out: the only one that is served."
    )
    reference: bool = Field(default=False, description="Whether the other endpoints are compared with this one.")
    api_key_env: EnvName | None = Field(
        default=None,
        description="The environment variable that holds the key; none: send no key, not even OPENAI_API_KEY.",
    )
    allow_insecure_key: bool = Field(
        default=False, description="Send secrets over plain http to a host that is not this machine."
    )
    headers: dict[str, str] = Field(default={}, description="Extra request headers; no secrets.")
    headers_env: dict[str, EnvName] = Field(
        default={}, description="Extra request headers whose values are in environment variables."
    )
    ca_file: str | None = Field(
        default=None, min_length=1, description="A PEM file of certificate authorities, relative to this file."
    )
    proxy: ServerUrl | None = Field(
        default=None, description="An HTTP proxy for this endpoint, such as http://proxy:3128."
    )
    metrics_url: ServerUrl | None = Field(
        default=None, description="Where the metrics are, if not at /metrics of the server."
    )
    kind: Literal["chat", "completion", "embedding", "rerank", "transcription", "image"] | None = Field(
        default=None, description="What the server is for, where it cannot be asked."
    )
    declared: dict[Annotated[str, Field(pattern=DECLARED)], str] = Field(
        default={},
        description="What you know and the server does not say: engine, engine_version, device, tpu_stack, "
        "quantization, precision and the like. It is reported as declared.",
    )


class NamedEndpointV1(EndpointV1):
    """A server under test, with its name."""

    name: Annotated[str, Field(pattern=NAME)] = Field(description="What the report calls it.")


def _form(value: object) -> str | None:
    return "list" if isinstance(value, list) else "mapping" if isinstance(value, dict) else None


class EndpointsV1(_Closed):
    """Endpoints by name, or as a list of endpoints that say their names."""

    schema_: Literal["servecheck/endpoints/v1"] = Field(alias="schema", description="The version of this file format.")
    endpoints: Annotated[
        Annotated[list[NamedEndpointV1], Tag("list"), Field(min_length=1)]
        | Annotated[dict[Annotated[str, Field(pattern=NAME)], EndpointV1], Tag("mapping"), Field(min_length=1)],
        Discriminator(
            _form,
            custom_error_type="endpoints_form",
            custom_error_message="expected a list or a mapping of endpoints",
        ),
    ] = Field(description="The servers under test, in the order of the report.")
