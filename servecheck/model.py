"""The vocabulary as frozen values: what is sent, what comes back, what is said of it. No I/O, no rules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

__all__ = [
    "DECIDED",
    "Case",
    "Cell",
    "Check",
    "Chunk",
    "Comparison",
    "Decision",
    "Delta",
    "Ending",
    "Endpoint",
    "Evidence",
    "Exchange",
    "Fault",
    "FaultKind",
    "Feature",
    "Finding",
    "Fingerprint",
    "GroupTally",
    "How",
    "Json",
    "Kind",
    "Known",
    "Level",
    "Measured",
    "Mode",
    "NotApplicable",
    "Observed",
    "Outcome",
    "Risk",
    "Route",
    "SkipCode",
    "Status",
    "Transcript",
    "Trial",
    "Verdict",
    "sending_order",
]

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
"""Any JSON value."""

Measured: TypeAlias = Mapping[str, "float | int | str | bool | None"]
"""Figures behind a finding, by name; a unit is part of the name (``ttft_cold_s``)."""

_NOTHING: Mapping[str, float | int | str | bool | None] = MappingProxyType({})


class Level(StrEnum):
    """How much a check weighs: ``must`` breaks clients, ``should`` disappoints them."""

    MUST = "must"
    SHOULD = "should"


class Outcome(StrEnum):
    """What one check saw in one trial."""

    HELD = "held"
    VIOLATED = "violated"
    NO_EFFECT = "no_effect"
    REFUSED = "refused"
    UNDETERMINED = "undetermined"


class Status(StrEnum):
    """What a cell says; the nine are full."""

    SUPPORTED = "supported"
    DEGRADED = "degraded"
    UNSUPPORTED = "unsupported"
    IGNORED = "ignored"
    BROKEN = "broken"
    FLAKY = "flaky"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    SKIPPED = "skipped"

    @property
    def mark(self) -> str:
        """The sign that stands for this status in a matrix."""
        return _MARKS[self]


_MARKS = {
    Status.SUPPORTED: "✅",
    Status.DEGRADED: "🟡",
    Status.UNSUPPORTED: "🚫",
    Status.IGNORED: "🔕",
    Status.BROKEN: "❌",
    Status.FLAKY: "🎲",
    Status.INCONCLUSIVE: "❔",
    Status.ERROR: "🛠",
    Status.SKIPPED: "⏭",
}

DECIDED = frozenset(
    {Status.SUPPORTED, Status.DEGRADED, Status.UNSUPPORTED, Status.IGNORED, Status.BROKEN, Status.FLAKY}
)
"""The statuses that answer the question, one way or the other."""


class SkipCode(StrEnum):
    """Why a row was not run, by decision. ``needs:<feature>`` is written out by the planner."""

    NOT_SELECTED = "not-selected"
    NOT_APPLICABLE = "not-applicable"
    BUDGET = "budget"
    OPT_IN = "opt-in"
    NO_PROBE = "no-probe"


class Kind(StrEnum):
    """What a row carries: a status, a value, or a delta per pair of endpoints."""

    JUDGED = "judged"
    PROPERTY = "property"
    COMPARISON = "comparison"


class Risk(StrEnum):
    """What a probe can do to a server and its other users."""

    SAFE = "safe"
    LOAD = "load"
    DANGEROUS = "dangerous"


class Route(StrEnum):
    """The part of the API a finding is about; ``none`` where the row is not about a generation route."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    GENERATE = "generate"
    NONE = "none"


class Mode(StrEnum):
    """Whether the reply was streamed; ``none`` where that is not a question."""

    STREAM = "stream"
    NON_STREAM = "non_stream"
    NONE = "none"


class Ending(StrEnum):
    """How an exchange ended, seen from our side."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"
    DEADLINE = "deadline"
    UNREACHABLE = "unreachable"
    ABORTED = "aborted"


class How(StrEnum):
    """How a fact about an endpoint is known."""

    OBSERVED = "observed"
    DECLARED = "declared"
    UNKNOWN = "unknown"


# --------------------------------------------------------------------------- what is tested


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A row of the matrix. ``question`` is what the row answers, as a user would ask it."""

    id: str
    title: str
    question: str
    core: bool
    kind: Kind = Kind.JUDGED
    risk: Risk = Risk.SAFE

    @property
    def group(self) -> str:
        """The part of the id before its first dot."""
        return self.id.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One rule that can be seen to hold or not; ``source`` is the URL of the sentence it rests on."""

    id: str
    rule: str
    level: Level
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A value with how it is known and what says so; ``value`` is ``None`` exactly when ``how`` is unknown."""

    value: str | None
    how: How
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What is known about the server behind an endpoint, field by field, in display order."""

    fields: Mapping[str, Known]

    def value(self, name: str) -> str | None:
        """Return the value of a field, ``None`` where it is unknown."""
        known = self.fields.get(name)
        return known.value if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server under test. Secrets are named by environment variable and never held here."""

    name: str
    base_url: str
    model: str | None = None
    reference: bool = False
    api_key_env: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    header_envs: tuple[tuple[str, str], ...] = ()
    ca_file: str | None = None
    proxy: str | None = None
    metrics_url: str | None = None
    insecure_key: bool = False
    kind: str | None = None
    declared: Mapping[str, str] = field(default_factory=dict)


# --------------------------------------------------------------------------- what was sent and seen


class Chunk(NamedTuple):
    """Bytes as they arrived, with the seconds since the request was sent."""

    at: float
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and everything that came back, secrets already removed.

    ``sent`` counts seconds since the run began; ``headers_at``, ``ended_at`` and the chunks count from ``sent``.
    ``attempt`` is above 1 where an overloaded server made us wait and send again; ``detail`` says in words why an
    exchange did not complete.
    """

    id: str
    step: str
    method: str
    url: str
    request_headers: tuple[tuple[str, str], ...] = ()
    request_body: bytes = b""
    sent: float = 0.0
    status: int | None = None
    response_headers: tuple[tuple[str, str], ...] = ()
    headers_at: float | None = None
    chunks: tuple[Chunk, ...] = ()
    ended_at: float = 0.0
    ending: Ending = Ending.COMPLETE
    detail: str = ""
    attempt: int = 1

    @property
    def body(self) -> bytes:
        """All bytes of the reply."""
        return b"".join(chunk.data for chunk in self.chunks)

    @property
    def request(self) -> Json:
        """The request body as JSON; ``None`` where there is none or it is not JSON."""
        try:
            parsed: Json = json.loads(self.request_body)
        except (ValueError, RecursionError):
            return None
        return parsed

    def header(self, name: str) -> str | None:
        """Return a response header by name, whatever its case."""
        wanted = name.lower()
        return next((value for key, value in self.response_headers if key.lower() == wanted), None)


def sending_order(exchange: Exchange) -> tuple[int, str]:
    """Return a key that sorts exchanges as they were sent: ids are counted up at sending, and grow in length."""
    return len(exchange.id), exchange.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """The exchanges of one case, in the order they were sent, and what was known of the endpoint by then."""

    exchanges: tuple[Exchange, ...] = ()
    model: str | None = None
    fingerprint: Fingerprint = Fingerprint(fields=MappingProxyType({}))

    def __iter__(self) -> Iterator[Exchange]:
        return iter(self.exchanges)

    def get(self, step: str) -> Exchange | None:
        """Return the last attempt of a step, ``None`` where the step was never sent."""
        return next((exchange for exchange in reversed(self.exchanges) if exchange.step == step), None)

    def steps(self, prefix: str) -> tuple[Exchange, ...]:
        """Return the last attempt of every step whose name begins with ``prefix``, in sending order."""
        last = {exchange.step: exchange for exchange in self.exchanges if exchange.step.startswith(prefix)}
        return tuple(last.values())


Evidence: TypeAlias = tuple[str, ...]
"""Ids of the exchanges that show something."""


# --------------------------------------------------------------------------- what is said of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check saw in one trial.

    A judge fills the fields up to ``measured``; ``level`` (the check's, or as tuned by the scenario), ``scenario`` and
    ``trial`` are filled in by :mod:`servecheck.judging`.
    """

    check: str
    outcome: Outcome
    why: str
    evidence: Evidence = ()
    route: Route = Route.CHAT
    mode: Mode = Mode.NON_STREAM
    measured: Measured = field(default_factory=lambda: _NOTHING)
    level: Level = Level.MUST
    scenario: str = ""
    trial: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A value for a property row: no rule, so no status."""

    value: str
    why: str
    how: How = How.OBSERVED
    evidence: Evidence = ()
    measured: Measured = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplicable:
    """What a judge yields alone where the replies show that the row makes no sense here, such as a model that does not
    reason; ``why`` is the evidence in words. The trial is then ``skipped (not-applicable)``.

    ``lacks`` are the exchanges that show that the endpoint has nothing of the kind, such as a 404 for the whole route:
    beside an endpoint that has it, that is a refusal and no decision of ours.
    """

    why: str
    lacks: Evidence = ()


class FaultKind(StrEnum):
    """Why a trial could not be judged although it was meant to run."""

    UNREACHABLE = "unreachable"
    DENIED = "denied"
    OVERLOADED = "overloaded"
    EXCEPTION = "exception"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Trouble on our side or in between: the cell says ``error``, whatever the findings are."""

    kind: FaultKind
    reason: str
    trace: str = ""
    evidence: Evidence = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Scenario × endpoint × trial."""

    id: str
    scenario: str
    feature: str
    endpoint: str
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One case, judged: its findings and the one status they make."""

    case: Case
    status: Status
    reason: str
    findings: tuple[Finding, ...] = ()
    observed: tuple[Observed, ...] = ()
    fault: Fault | None = None
    skip_code: str | None = None
    notes: tuple[str, ...] = ()
    lacks: Evidence = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Feature × endpoint: a status, a reason, its evidence. ``value`` and ``how`` belong to property rows.

    A property row carries no judged status: with a value its ``status`` is ``supported``, which says only that the
    value is known, and everything that counts must leave rows alone whose ``kind`` is not ``judged``. ``lacks`` are the
    exchanges that show that the endpoint has nothing of a row that is left out, see :class:`NotApplicable`.
    """

    feature: str
    endpoint: str
    status: Status
    reason: str
    kind: Kind = Kind.JUDGED
    skip_code: str | None = None
    trials: tuple[Status, ...] = ()
    value: str | None = None
    how: How = How.UNKNOWN
    findings: tuple[Finding, ...] = ()
    observed: tuple[Observed, ...] = ()
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    known_issues: tuple[str, ...] = ()
    parts: str = ""
    lacks: Evidence = ()

    @property
    def word(self) -> str:
        """The status, as it is said beside another endpoint's."""
        return "not offered" if self.lacks else self.status.value

    @property
    def tally(self) -> str:
        """How many valid trials agree with the status, as ``2/3``; empty where there was none."""
        valid = [status for status in self.trials if status in DECIDED]
        if not valid:
            return ""
        if self.status is Status.FLAKY:
            return f"{sum(status is Status.SUPPORTED for status in valid)}/{len(valid)}"
        return f"{sum(status is self.status for status in valid)}/{len(valid)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTally:
    """The core rows of one group on one endpoint: the worst status, and how many are supported."""

    group: str
    endpoint: str
    status: Status
    supported: int
    total: int


class Delta(StrEnum):
    """What a pair of cells says about moving from left (the reference) to right."""

    SAME = "same"
    BEHIND = "behind"
    DRIFT = "drift"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One row compared between two endpoints; ``side`` names the endpoint that is behind."""

    left: str
    right: str
    feature: str
    delta: Delta
    why: str
    side: str | None = None
    measured: Measured = field(default_factory=lambda: _NOTHING)
    confounders: tuple[str, ...] = ()
    evidence: Evidence = ()


class Decision(StrEnum):
    """The answer of a run."""

    READY = "ready"
    READY_WITH_CAVEATS = "ready_with_caveats"
    NOT_READY = "not_ready"
    CANNOT_TELL = "cannot_tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer of a run with the rows behind it; rows are ``feature@endpoint``."""

    decision: Decision
    sentence: str
    blockers: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
