"""Says what is wrong with a line of ``run.jsonl`` that cannot be read back; what it does not know it lets through."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Base64Bytes, BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, ValidationError

from servecheck.model import Ending, FaultKind, How, Json, Level, Risk
from servecheck.schema.declared_v1 import Claim
from servecheck.schema.expectations_v1 import Deviation

__all__ = ["complaint"]

_Blob = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # a name that leads out of the folder is none


def _day(text: str) -> str:
    date.fromisoformat(text)
    return text


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("has no time zone")
    return text


_Day = Annotated[str, AfterValidator(_day)]
_Moment = Annotated[str, AfterValidator(_moment)]


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


class _Limit(_Row):
    row: str
    measured: str
    at_most: FiniteFloat
    because: str


class _Profile(_Row):
    id: str
    title: str
    as_of: _Day
    about: str
    rows: dict[str, str]
    musts: dict[str, list[str]]
    limits: list[_Limit]


class _Expectation(_Row):
    deviations: list[Deviation] = []
    until: _Day | None = None


class _Declaration(_Row):
    row: str
    says: Claim
    label: str
    words: str
    covers: str


class _Matrix(_Row):
    endpoint: str
    source: str
    sha256: str
    rows: list[_Declaration]
    others: list[str] = []


class _Header(_Row):
    id: str
    started: _Moment
    profile: _Profile | None = None
    expectations: list[_Expectation] | None = None
    declared: list[_Matrix] | None = None
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
    finished: _Moment
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
