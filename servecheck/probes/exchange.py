"""A check of your own holds: requests that you write in YAML, and what their replies must be in JSON Schema.

What it does: sends the steps of a scenario one after the other and holds the reply to each against the status and the
JSON Schemas that its checks name: of the headers, of the body, of each event of a stream. A step may take values from
the replies to earlier ones, and one random word goes through all of them.

Why it matters: what your applications rely on is not always in anybody's documentation: a header of your gateway, a
field of your fork, an order of calls.

How it could be fooled: by a check that would hold for any reply, such as `properties` without `required`; try it on a
server that lacks the feature. Without a control step nobody can tell a refused feature from a refused request, so such
a refusal stays inconclusive. What the words of a reply mean is out of reach of a schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from pydantic import Field

from servecheck.errors import UsageError
from servecheck.model import Check, Exchange, Finding, Json, Mode, Route, Transcript
from servecheck.plainwords import Complaint
from servecheck.probe import ByParams, Params, Probe, Session
from servecheck.probes._assertions import Fault, fault_of
from servecheck.probes._findings import Part
from servecheck.probes._own_objections import generates, objections
from servecheck.probes._own_steps import (
    CODE_CLASSES,
    NONCE,
    Expect,
    Missing,
    OwnCheck,
    Step,
    filled,
    nonce_sent,
    said,
    texts,
)
from servecheck.read import reply
from servecheck.read.instance import PATTERN_SECONDS

__all__ = ["PROBE"]

# The user's rule is one rule, whatever route it looks at: none of its parts is worth less than another.
_PART = Part(route=Route.NONE, mode=Mode.NONE)
_SUCCESS = range(200, 300)


class ExchangeParams(Params):
    """What is sent and what is expected."""

    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=20)] = Field(
        description="The requests in order, each with its checks. `servecheck schema scenario` has all of it."
    )


def object_to(params: ExchangeParams) -> Iterable[Complaint]:
    """Return what is wrong with a scenario of this probe, and what it may not send."""
    return objections(params.steps)


def by_params(params: ExchangeParams) -> ByParams:
    """Return the checks that a scenario defines, and what it costs: requests that generate as far as they say."""
    checks = tuple(
        Check(id=name, rule=check.rule, level=check.level, source=check.source)
        for step in params.steps
        for name, check in step.checks.items()
    )
    talking = [step for step in params.steps if step.method == "POST" and generates(step.path)]
    return ByParams(
        checks=checks,
        requests=len(params.steps),
        prompt_tokens=sum(sum(len(text) for _, text in texts(step.body)) // 4 for step in talking),
        output_tokens=sum(_room(step.body or {}) for step in talking),
    )


def _room(body: Mapping[str, object]) -> int:
    limits = [body[name] for name in ("max_tokens", "max_completion_tokens", "max_output_tokens") if name in body]
    return next((limit for limit in limits if isinstance(limit, int) and limit > 0), 256)


async def drive(session: Session, params: ExchangeParams, _: Transcript | None) -> None:
    """Send the steps in order; one that needs what an earlier reply did not give is left out."""
    for wrong in object_to(params):  # the loader says it with the place; a run folder may have been edited since
        raise UsageError(wrong.message)
    nonce = session.nonce() if any(_has_nonce(step) for step in params.steps) else ""
    for step in params.steps:
        if session.endpoint.kind == "embedding" and generates(step.path):
            continue
        try:
            body = None if step.body is None else filled(step.body, nonce, session.transcript)
        except Missing:
            continue
        if body is None and step.method == "POST":
            body = {}
        headers = [(name, value.replace(NONCE, nonce)) for name, value in step.headers.items()]
        server = step.root == "server"
        await session.request(step.step, step.method, step.path, body, headers=headers, server=server)


def judge(transcript: Transcript, params: ExchangeParams) -> Iterator[Finding]:
    """Judge every check by the recorded replies."""
    nonce = _nonce(transcript, params)
    for step in params.steps:
        for name, check in step.checks.items():
            yield _judged(name, check, step, params, transcript, nonce)


def _judged(
    name: str, check: OwnCheck, step: Step, params: ExchangeParams, transcript: Transcript, nonce: str
) -> Finding:
    exchange = transcript.get(step.step)
    if exchange is None:
        return _PART.undetermined(name, _why_not_sent(step, transcript, nonce))
    try:
        expected = {key: filled(schema, nonce, transcript) for key, schema in _schemas(check.expect).items()}
    except Missing as missing:
        return _PART.undetermined(name, f"what is expected is not known: {missing}", exchange)
    try:
        wrong = _wrong(exchange, check.expect, expected)
    except TimeoutError:
        why = f"a pattern could not be held against the reply within {PATTERN_SECONDS:g} s: it tries too many ways"
        return _PART.undetermined(name, why, exchange)
    if wrong is None:
        return _PART.held(name, _held(exchange, check.expect), exchange)
    sick = next((what for one in params.steps if one.control and (what := _unanswered(one, transcript))), None)
    if sick is not None:
        return _PART.undetermined(name, f"{wrong.message}; but the control was not answered either: {sick}", exchange)
    controls = [found for one in params.steps if one.control and (found := transcript.get(one.step)) is not None]
    code, what = _code(exchange)
    if wrong.keyword == _STATUS and _is_refusal(code) and _wants_success(check.expect):
        if not controls:
            why = f"{what}; without a control step nobody knows whether it is the feature that is refused"
            return _PART.undetermined(name, why, exchange)
        return _PART.refused(name, f"refused: {what}", exchange)
    for control in controls:
        if _same_request(control, exchange) and wrong.keyword in _ABSENCE:
            other = _in_time(control, check.expect, expected)
            if other is not None and (other.at, other.keyword) == (wrong.at, wrong.keyword):
                return _PART.no_effect(name, f"{wrong.message}, as in the control", exchange, control)
    return _PART.violated(name, wrong.message, exchange)


_STATUS = "status"
# What is wrong with these is that something is not there: where the control lacks it too, the request had no effect.
_ABSENCE = frozenset({"required", "contains", "minItems", "minProperties"})


def _schemas(expect: Expect) -> dict[str, object]:
    given = {"headers": expect.headers, "body": expect.body, "each_event": expect.each_event}
    return {name: schema for name, schema in given.items() if schema is not None}


def _wrong(exchange: Exchange, expect: Expect, expected: Mapping[str, Json]) -> Fault | None:
    """Return the first thing that is not as expected: the status, then headers, body and events."""
    code, what = _code(exchange)
    if code is None or not _fits(code, expect):
        wanted = "" if expect.status is None or code is None else f"; expected {_shown(expect)}"
        return Fault(at=(_STATUS,), keyword=_STATUS, message=what + wanted)
    headers = expected.get("headers")
    if headers is not None:
        fault = fault_of(_headers(exchange), headers)
        if fault is not None:
            return _placed("headers", fault)
    if not expected.keys() & {"body", "each_event"}:
        return None
    try:
        body = said(exchange)
    except ValueError as error:
        return Fault(at=("body",), keyword="", message=str(error))
    if "body" in expected:
        fault = fault_of(body, expected["body"])
        if fault is not None:
            return _placed("body", fault)
    return _of_events(exchange, body, expected["each_event"]) if "each_event" in expected else None


def _in_time(exchange: Exchange, expect: Expect, expected: Mapping[str, Json]) -> Fault | None:
    try:
        return _wrong(exchange, expect, expected)
    except TimeoutError:
        return None


def _of_events(exchange: Exchange, events: Json, schema: Json) -> Fault | None:
    if not reply.is_stream(exchange) or not isinstance(events, list):
        kind = exchange.header("content-type") or "no content type"
        return Fault(at=("each_event",), keyword="", message=f"no event stream: {kind}")
    if not events:
        return Fault(at=("each_event",), keyword="", message="the stream has no event")
    for place, event in enumerate(events, 1):
        fault = fault_of(event, schema)
        if fault is not None:
            placed = _placed(f"event {place} of {len(events)}", fault)
            return Fault(at=("each_event", *fault.at), keyword=placed.keyword, message=placed.message)
    return None


def _placed(part: str, fault: Fault) -> Fault:
    pointer = "".join(f"/{step}" for step in fault.at)
    return Fault(at=(part, *fault.at), keyword=fault.keyword, message=f"{part}{pointer}: {fault.message}")


def _code(exchange: Exchange) -> tuple[int | None, str]:
    """Return what the reply amounts to as a status, with words for it; ``None`` where no whole reply came.

    A stream begins with 200 whatever comes of it: the code of an error event in it is what the client gets.
    """
    problem = reply.not_answered(exchange)
    if problem is not None:
        # Below 300 it is a reply that is cut, late or unreadable, whatever its first line says.
        return (exchange.status if (exchange.status or 0) >= 300 else None), problem.what
    error = reply.stream_error(exchange)
    if error is not None:
        return (error.code if isinstance(error, reply.Refusal) else 500), error.what
    return exchange.status, f"HTTP {exchange.status}"


def _fits(code: int, expect: Expect) -> bool:
    if expect.status is None:
        return code in _SUCCESS
    if isinstance(expect.status, str):
        return code in CODE_CLASSES[expect.status]
    return code in (expect.status if isinstance(expect.status, list) else [expect.status])


def _wants_success(expect: Expect) -> bool:
    return any(_fits(code, expect) for code in _SUCCESS)


def _shown(expect: Expect) -> str:
    if isinstance(expect.status, list):
        return " or ".join(map(str, expect.status))
    return str(expect.status)


def _is_refusal(code: int | None) -> bool:
    return code is not None and (400 <= code < 500 or code == reply.NOT_IMPLEMENTED)


def _headers(exchange: Exchange) -> dict[str, Json]:
    """Return the headers under lower-case names; one that came several times is joined as RFC 9110 says."""
    found: dict[str, Json] = {}
    for name, value in exchange.response_headers:
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def _held(exchange: Exchange, expect: Expect) -> str:
    parts = [name.replace("_", " ") for name in _schemas(expect)]
    return f"{_code(exchange)[1]}" + (f", {' and '.join(parts)} as expected" if parts else ", as expected")


def _unanswered(step: Step, transcript: Transcript) -> str:
    exchange = transcript.get(step.step)
    if exchange is None:
        return f"{step.step!r} was not sent"
    code, what = _code(exchange)
    return "" if code in _SUCCESS else f"{step.step!r}: {what}"


def _same_request(one: Exchange, other: Exchange) -> bool:
    return (one.method, one.url) == (other.method, other.url)


def _has_nonce(step: Step) -> bool:
    return any(NONCE in text for _, text in texts([step.headers, step.body]))


def _nonce(transcript: Transcript, params: ExchangeParams) -> str:
    """Return the random word of a trial, read from what was sent; empty where none was."""
    for step in params.steps:
        exchange = transcript.get(step.step)
        if exchange is not None and _has_nonce(step):
            headers = {name.lower(): value for name, value in exchange.request_headers}
            wanted = {name.lower(): value for name, value in step.headers.items()}
            found = nonce_sent([wanted, step.body], [headers, exchange.request])
            if found:
                return found
    return ""


def _why_not_sent(step: Step, transcript: Transcript, nonce: str) -> str:
    try:
        filled(step.body, nonce, transcript)
    except Missing as missing:
        return f"not sent: {missing}"
    return "not sent: the case ended before it, or the endpoint embeds and must not be asked to generate"


PROBE = Probe(
    id="exchange",
    doc=__doc__ or "",
    checks=(),
    params=ExchangeParams,
    drive=drive,
    judge=judge,
    by_params=by_params,
    object_to=object_to,
    requests=2,
)
