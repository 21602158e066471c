"""Whether a field that nobody knows is accepted or refused.

What it does: sends a short request as it is (the control) and again with one more field, whose name is a random word.

Why it matters: where unknown fields are accepted, a misspelt or removed parameter fails silently, with 200; where they
are refused, clients that send another engine's extensions stop working. Neither is wrong, but a move between the two is
noticed.

How it could be fooled: by a server that knows some foreign fields and ignores them by name.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import How, Json, Observed, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.read import reply

__all__ = ["PROBE"]


class ErrorsUnknownFieldParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Say hello.", description="The user's message.")
    max_tokens: int = Field(default=16, ge=1, le=1024, description="Room for the answer.")


async def drive(session: Session, params: ErrorsUnknownFieldParams, _: Transcript | None) -> None:
    """With and without the field."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    body: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0}
    await session.chat("control", body)
    await session.chat("unknown", {**body, f"x_{session.nonce()}": 1})


def judge(transcript: Transcript, _: ErrorsUnknownFieldParams) -> Iterator[Observed]:
    """Say what came back."""
    control, unknown = transcript.get("control"), transcript.get("unknown")
    if control is None or unknown is None:
        yield Observed(value="unknown", why="nothing was sent", how=How.UNKNOWN)
        return
    plain, answer = reply.chat(control), reply.chat(unknown)
    seen = (control.id, unknown.id)
    if not isinstance(plain, reply.Answer):
        why = f"the request without the field is not answered either: {plain.what}"
        yield Observed(value="unknown", why=why, how=How.UNKNOWN, evidence=seen)
    elif isinstance(answer, reply.Answer):
        yield Observed(value="accepted", why="200, as without the field", evidence=seen)
    elif isinstance(answer, reply.Refusal):
        yield Observed(value="refused", why=answer.what, evidence=seen, measured={"status": answer.code})
    else:
        yield Observed(value="fails", why=answer.what, evidence=seen)


PROBE = Probe(
    id="errors_unknown_field",
    doc=__doc__ or "",
    checks=(),
    params=ErrorsUnknownFieldParams,
    drive=drive,
    judge=judge,
    requests=2,
    prompt_tokens=50,
    output_tokens=10,
)
