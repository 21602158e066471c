"""Which shape error replies have.

What it does: sends a field of the wrong type, a model that is not there and a route that is not there, and reads the
shape of each refusal: nested (an “error” object with a message, as OpenAI has it), flat (the message at the top),
string (“error” is text), detail (as FastAPI writes it), text, page (HTML) or empty.

Why it matters: client libraries look for the message in one place; moving to an engine of another family turns clear
messages into “400 (no body)”.

How it could be fooled: by a gateway, which rewrites the shapes of the engine behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

from servecheck.model import Exchange, Json, Observed, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._values import observed, unknown
from servecheck.probes.bad_requests import refusal
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE", "shape"]

_STEPS = {"wrong-type": "wrong type", "unknown-model": "unknown model", "unknown-route": "unknown route"}


async def drive(session: Session, _: Params, __: Transcript | None) -> None:
    """One refusal by validation, one by meaning, one by routing."""
    await session.chat("wrong-type", {"messages": "Say yes.", "max_tokens": 4})
    body: dict[str, Json] = {"messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 4}
    await session.chat("unknown-model", {**body, "model": f"no-such-model-{session.nonce()}"})
    await session.get("unknown-route", f"/no-such-route-{session.nonce()}")


def shape(exchange: Exchange) -> str:
    """Return the family of a refusal; ``accepted`` where there is none, ``no reply`` where there is nothing at all."""
    how = refusal(exchange)
    if how is None:
        return "accepted" if exchange.status is not None else "no reply"
    body = how.body
    if isinstance(dig(body, "error"), dict):
        return "nested"
    if isinstance(dig(body, "error"), str):
        return "string"
    if dig(body, "detail") is not None:
        return "detail"
    if string(dig(body, "message")):
        return "flat"
    text = how.text.strip()
    if not text:
        return "empty"
    if text[:1] == b"<":
        return "page"
    return "text" if body is None else "other JSON"


def judge(transcript: Transcript, _: Params) -> Iterator[Observed]:
    """Name the shapes; one word where all refusals agree."""
    seen = {words: exchange for step, words in _STEPS.items() if (exchange := transcript.get(step)) is not None}
    shapes = {words: shape(exchange) for words, exchange in seen.items()}
    refused = {words: name for words, name in shapes.items() if name not in ("accepted", "no reply")}
    if not refused:
        yield unknown("nothing was refused, so no error could be seen", *seen.values())
        return
    names = set(refused.values())
    value = names.pop() if len(names) == 1 else ", ".join(f"{words}: {name}" for words, name in refused.items())
    why = "; ".join(f"{words}: {shapes[words]}, {quote(exchange.body, 70)}" for words, exchange in seen.items())
    yield observed(value, why, *seen.values())


PROBE = Probe(
    id="errors_family",
    doc=__doc__ or "",
    checks=(),
    params=Params,
    drive=drive,
    judge=judge,
    requests=3,
    prompt_tokens=0,
    output_tokens=0,
)
