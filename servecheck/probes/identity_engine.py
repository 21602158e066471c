"""Which engine answers, and how that is known.

What it does: reads the fingerprint that was made at the start of the run from everything the server says of itself, and
asks for the list of models and one short answer, so that the evidence of the row shows the two most common signs.

Why it matters: every other row is to be read with it, and a verdict about the wrong engine is worth nothing.

How it could be fooled: by a gateway that rewrites names and headers; so all signs are named, with those that
contradict. Which of several software stacks drives a TPU does not show on the wire: the user must declare it.
"""

from __future__ import annotations

from collections.abc import Iterator

from servecheck import canary
from servecheck.model import Observed, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._values import observed, unknown

__all__ = ["PROBE"]


async def drive(session: Session, _: Params, __: Transcript | None) -> None:
    """The list of models, and a short answer of the endpoint's own kind."""
    await session.get("models", "/models")
    path, body = canary.request(session.endpoint.kind or "chat")
    await session.post("answer", path, body)


def judge(transcript: Transcript, _: Params) -> Iterator[Observed]:
    """Name the engine, its version and the gateway before it, with what says so."""
    seen = (transcript.get("models"), transcript.get("answer"))
    fields = transcript.fingerprint.fields
    engine, version, gateway = (fields.get(name) for name in ("engine", "engine_version", "gateway"))
    if engine is None or engine.value is None:
        yield unknown("none of the signs known to servecheck shows; declare the engine to have it in the report", *seen)
        return
    value = engine.value
    why = f"engine: {engine.source}"
    if version is not None and version.value is not None:
        value += f" {version.value}"
        why += f"; version: {version.source}"
    if gateway is not None and gateway.value is not None and gateway.value != engine.value:
        value += f" behind {gateway.value}"
        why += f"; gateway: {gateway.source}"
    yield observed(value, why, *seen, how=engine.how)


PROBE = Probe(
    id="identity_engine",
    doc=__doc__ or "",
    checks=(),
    params=Params,
    drive=drive,
    judge=judge,
    requests=2,
    prompt_tokens=20,
    output_tokens=9,
)
