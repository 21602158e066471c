"""Says what is wrong with a line of ``run.jsonl`` that cannot be read back; what it does not know it lets through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AwareDatetime, Base64Bytes, BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, ValidationError

from servecheck.model import Ending, FaultKind, How, Json, Level, Risk

__all__ = ["complaint"]

_Blob = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # a name that leads out of the folder is none


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)  # a later version may say more


class _Bytes(_Row):
    base64: Base64Bytes


_Text = str | _Bytes | None
_Pairs = list[tuple[str, str]]


class _Named(_Row):
    name: str


class _Endpoint(_Named):
    base_url: str
    headers: _Pairs = []
    header_envs: _Pairs = []


class _Tune(_Row):
    level: Level
    because: str


class _Scenario(_Row):
    id: str
    title: str
    feature: str
    probe: str
    why: str
    tune: dict[str, _Tune] | None = None


class _Skip(_Row):
    feature: str
    code: str
    reason: str


class _Item(_Row):
    kind: str
    name: str
    place: str
    scenario: str


class _Workload(_Row):
    items: list[_Item] = []


class _Settings(_Row):
    deadline: FiniteFloat = 300.0
    concurrency: int = 8
    allow: list[Risk] = []


class _Header(_Row):
    id: str
    started: AwareDatetime
    settings: _Settings = _Settings()
    endpoints: list[_Endpoint]
    scenarios: list[_Scenario]
    skips: list[_Skip] = []
    workload: _Workload | None = None


class _Known(_Row):
    how: How = How.UNKNOWN


class _Fingerprint(_Row):
    fields: dict[str, _Known] = {}


class _Resolved(_Named):
    endpoint: _Endpoint
    fingerprint: _Fingerprint


class _Exchange(_Row):
    id: Annotated[str, Field(pattern=r"^x[0-9]{1,9}$")]
    endpoint: str
    case: str | None = None
    step: str
    method: str
    url: str
    request_headers: _Pairs = []
    request_body: _Text = None
    sent: FiniteFloat = 0.0
    status: int | None = None
    response_headers: _Pairs = []
    headers_at: FiniteFloat | None = None
    chunks: list[tuple[FiniteFloat, int | _Text]] = []
    blob: _Blob | None = None
    ended_at: FiniteFloat = 0.0
    ending: Ending
    attempt: int = 1


class _Case(_Row):
    id: str
    scenario: str
    feature: str
    endpoint: str
    trial: int


class _Fault(_Row):
    kind: FaultKind
    reason: Any  # half a surrogate pair in a text is no text to pydantic, and may stand in an exception's words


class _CaseEnd(_Row):
    case: _Case
    after: list[str] = []
    fault: _Fault | None = None


class _Footer(_Row):
    finished: AwareDatetime
    spent: dict[str, JsonValue] = {}


_SHAPES: Mapping[str, type[_Row]] = {
    "header": _Header,
    "endpoint": _Resolved,
    "exchange": _Exchange,
    "case": _CaseEnd,
    "footer": _Footer,
}


def complaint(line: Mapping[str, Json]) -> str:
    """Return what a line lacks to be read back, with the field, an empty string where nothing is wrong.

    Values are not quoted: they may be what a server said.
    """
    shape = _SHAPES.get(str(line.get("type")))
    if shape is None:
        return ""
    try:
        shape.model_validate(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        return f"{line['type']} line: {where}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return ""
