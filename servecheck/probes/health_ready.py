"""The health route agrees with what the server can do.

What it does: asks ``/health`` and then for a short answer, and compares. Where there is no ``/health`` (gateways often
have none), ``/v1/models`` takes its place. Where the two disagree, both are asked once more. It also runs on an
endpoint that is not well: that is when the answer matters.

Why it matters: load balancers and Kubernetes go by the health route. A frozen engine behind a friendly 200 keeps its
traffic; a healthy one behind a 503 is restarted over and over.

How it could be fooled: by a server that hangs for less than the time allowed, or only on requests unlike this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import Field

from servecheck import canary
from servecheck.model import Check, Ending, Exchange, Finding, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply

__all__ = ["PROBE"]

_PART = Part(route=Route.NONE, mode=Mode.NONE)
_AGREES = "health-agrees-with-answers"
_ROUNDS = (1, 2)
_NOT_OFFERED = (401, 403, 404, 405, 501)
_HEALTH_SECONDS = 30.0  # one engine makes a token in its health route: 1 s idle, 6 s under load
_PAUSE_SECONDS = 2.0


class HealthReadyParams(Params):
    """What may be chosen in YAML."""

    patience_s: float = Field(
        default=60.0, gt=0, le=3600, description="Seconds that the short answer may take, queueing included."
    )


class _Round(NamedTuple):
    """One look: what the route says (``None``: not offered), what the server can do (``None``: it refused).

    ``silent`` where the route gave no whole reply, which is not the same as saying no.
    """

    ready: bool | None
    silent: bool
    able: bool | None
    why: str
    seen: tuple[Exchange, ...]


async def drive(session: Session, params: HealthReadyParams, _: Transcript | None) -> None:
    """Health, its stand-in where there is none, and a short request; again where they disagree."""
    path, body = canary.request(session.endpoint.kind or "chat")
    for number in _ROUNDS:
        health = await session.get_server(f"health-{number}", "/health", deadline=_HEALTH_SECONDS)
        if _ready(health) is None:
            await session.get(f"models-{number}", "/models", deadline=_HEALTH_SECONDS)
        await session.post(f"answer-{number}", path, dict(body), deadline=params.patience_s)
        look = _look(session.transcript, number)
        if look is None or look.ready == look.able:
            return
        await session.wait(_PAUSE_SECONDS)


def _ready(exchange: Exchange) -> bool | None:
    """Return what a health route says; ``None`` where there is none for us."""
    if exchange.status in _NOT_OFFERED:
        return None
    return exchange.status is not None and 200 <= exchange.status < 300 and exchange.ending is Ending.COMPLETE


def _look(transcript: Transcript, number: int) -> _Round | None:
    health, models = transcript.get(f"health-{number}"), transcript.get(f"models-{number}")
    answer = transcript.get(f"answer-{number}")
    if health is None or answer is None:
        return None
    route, asked = ("/health", health) if _ready(health) is not None or models is None else ("/v1/models", models)
    silent = asked.status is None or asked.ending is not Ending.COMPLETE
    ailment = canary.ailment(answer)
    # A refusal may be about the request; it says nothing about what the server can do.
    refused = isinstance(reply.not_answered(answer), reply.Refusal)
    able = None if refused else not ailment
    says = f"nothing whole ({asked.detail or asked.ending})" if silent else f"HTTP {asked.status}"
    why = f"{route} says {says}, and a short request is {f'not answered: {ailment}' if ailment else 'answered'}"
    if asked is models:
        why += f" (no /health here: HTTP {health.status})"
    seen = (health, answer) if models is None else (health, models, answer)
    return _Round(ready=_ready(asked), silent=silent, able=able, why=why, seen=seen)


def judge(transcript: Transcript, _: HealthReadyParams) -> Iterator[Finding]:
    """Judge the last look; one disagreement alone is too little."""
    looks = [look for number in _ROUNDS if (look := _look(transcript, number)) is not None]
    if not looks:
        yield _PART.undetermined(_AGREES, "nothing was asked")
        return
    last = looks[-1]
    seen = [exchange for look in looks for exchange in look.seen]
    if last.ready is None:
        status = ", ".join(f"HTTP {exchange.status}" for exchange in last.seen[:-1])
        yield _PART.refused(_AGREES, f"not offered: neither /health nor /v1/models is there ({status})", *seen)
    elif last.able is None:
        yield _PART.undetermined(_AGREES, f"{last.why}: a refusal is no sign of the server's health", *seen)
    elif last.silent and not last.able:
        yield _PART.undetermined(_AGREES, f"{last.why}: nothing here says anything", *seen)
    elif last.ready is not last.able:
        yield _PART.violated(_AGREES, last.why + (", twice" if len(looks) > 1 else ""), *seen)
    elif len(looks) > 1:
        yield _PART.undetermined(_AGREES, f"once {looks[0].why}; then {last.why}", *seen)
    else:
        yield _PART.held(_AGREES, last.why, *seen)


PROBE = Probe(
    id="health_ready",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_AGREES,
            rule="The health route says 2xx exactly when a short request is answered.",
            level=Level.MUST,
            source="https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/",
        ),
    ),
    params=HealthReadyParams,
    drive=drive,
    judge=judge,
    despite_sickness=True,
    requests=2,
    prompt_tokens=20,
    output_tokens=9,
)
