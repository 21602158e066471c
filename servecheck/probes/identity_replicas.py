"""All replies come from servers that look the same.

What it does: sends short requests over connections of their own and compares the ``system_fingerprint`` of the
replies. Stops after three where none reports one. Where a gateway names the server that answered, it is named too;
several that look the same are no fault.

Why it matters: behind one name there may be an old and a new version, or a GPU and a TPU pool; then every other row of
this report is about a mixture, and repeats differ for no reason that shows.

How it could be fooled: by a balancer that sends one client always to the same replica, by replicas that differ in what
the fingerprint does not cover (vLLM's covers version, parallelism and configuration), by a pool too small to be met
in so few requests: a tenth of the traffic is missed by 20 requests once in eight times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pydantic import Field

from servecheck import canary
from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.gateway import server_behind
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE"]

_CHECK = "one-fingerprint-for-all-replies"
_PART = Part(route=Route.NONE, mode=Mode.NONE)
_ENOUGH = 3


class IdentityReplicasParams(Params):
    """What may be chosen in YAML."""

    requests: int = Field(default=20, ge=4, le=200, description="How many requests are sent in all.")


async def drive(session: Session, params: IdentityReplicasParams, _: Transcript | None) -> None:
    """A few requests, and the others where these report a fingerprint."""
    path, body = canary.request(session.endpoint.kind or "chat")
    short: Json = body if path == "/embeddings" else {**body, "max_tokens": 1}
    for number in range(_ENOUGH):
        await session.post(f"reply-{number}", path, short)
    if not _reported(session.transcript):
        return
    rest = range(_ENOUGH, params.requests)
    await session.concurrently([session.post(f"reply-{number}", path, short) for number in rest])


def _body(exchange: Exchange) -> Json:
    body = reply.json_body(exchange)
    return None if isinstance(body, reply.Refusal | reply.Failure) else body


def _reported(transcript: Transcript) -> list[tuple[Exchange, str]]:
    """Return the replies that report a fingerprint, with it."""
    seen = [(exchange, string(dig(_body(exchange), "system_fingerprint"))) for exchange in transcript.steps("reply-")]
    return [(exchange, said) for exchange, said in seen if said]


def judge(transcript: Transcript, _: IdentityReplicasParams) -> Iterator[Finding]:
    """Judge the set of fingerprints."""
    replies = transcript.steps("reply-")
    answered = [exchange for exchange in replies if _body(exchange) is not None]
    reported = _reported(transcript)
    if not answered:
        yield _PART.undetermined(_CHECK, "no request was answered", *replies)
        return
    if not reported:
        why = f"not offered: none of {len(answered)} replies has a system_fingerprint, so replicas cannot be told apart"
        why += _behind(answered)
        yield _PART.refused(_CHECK, why, *answered)
        return
    counts = Counter(said for _, said in reported)
    figures = {"replies": len(answered), "fingerprints": len(counts), "without": len(answered) - len(reported)}
    first = {said: exchange for exchange, said in reversed(reported)}
    listed = ", ".join(f"{quote(said, 60)} {count} of {len(answered)}" for said, count in counts.most_common(4))
    behind = _behind(answered)
    if len(counts) > 1:
        yield _PART.violated(_CHECK, f"{len(counts)} fingerprints: {listed}{behind}", *first.values(), **figures)
    elif len(reported) < len(answered):
        bare = next(exchange for exchange in answered if exchange not in [exchange for exchange, _ in reported])
        why = f"{listed}, and none at all {len(answered) - len(reported)} of {len(answered)}{behind}"
        yield _PART.violated(_CHECK, why, *first.values(), bare, **figures)
    else:
        yield _PART.held(_CHECK, f"{listed} replies{behind}", *first.values(), **figures)


def _behind(answered: list[Exchange]) -> str:
    """Say how many servers answered, where a gateway names the one that did."""
    counts = Counter(named for exchange in answered if (named := server_behind(exchange))[0])
    if not counts:
        return ""
    listed = ", ".join(
        f"{quote(server, 40)} {count} of {len(answered)}" for (server, _), count in counts.most_common(4)
    )
    return f"; answered by {listed} ({next(iter(counts))[1]})"


PROBE = Probe(
    id="identity_replicas",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_CHECK,
            rule="All replies carry the same system_fingerprint.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object",
        ),
    ),
    params=IdentityReplicasParams,
    drive=drive,
    judge=judge,
    requests=20,
    prompt_tokens=440,
    output_tokens=20,
)
