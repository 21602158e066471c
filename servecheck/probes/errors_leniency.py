"""Which odd values are accepted.

What it does: sends one plain request (the control) and then the same with one odd value each, that some engines take
and others refuse: numbers as text, a temperature of 99, a negative top_k, a penalty of 9, a role nobody knows, a
message without content, a null for the model, six stop strings.

Why it matters: an application that leans on one engine's leniency gets 400 from the next one.

How it could be fooled: by a gateway that repairs or drops such values. What an accepted value did is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

from servecheck.model import Json, Observed, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._values import observed, unknown
from servecheck.read import reply

__all__ = ["PROBE"]

_HI = "Say yes."
_ODD: dict[str, dict[str, Json]] = {
    "numbers as text": {"max_tokens": "3"},
    "temperature 99": {"temperature": 99},
    "top_k -5": {"top_k": -5},
    "presence_penalty 9": {"presence_penalty": 9},
    "unknown role": {"messages": [{"role": "robot", "content": _HI}]},
    "message without content": {"messages": [{"role": "user"}]},
    "model null": {"model": None},
    "six stop strings": {"stop": ["qa", "qb", "qc", "qd", "qe", "qf"]},
}


async def drive(session: Session, _: Params, __: Transcript | None) -> None:
    """The control, then one odd value at a time."""
    plain: dict[str, Json] = {"messages": [{"role": "user", "content": _HI}], "max_tokens": 4, "temperature": 0}
    await session.chat("control", plain)
    for name, odd in _ODD.items():
        await session.chat(f"odd/{name}", {**plain, **odd})


def judge(transcript: Transcript, _: Params) -> Iterator[Observed]:
    """List what was accepted, and what the server failed at."""
    found = transcript.get("control")
    control = reply.chat(found) if found is not None else None
    if not isinstance(control, reply.Answer):
        yield unknown(f"a plain request is not answered: {control.what if control else 'not sent'}", found)
        return
    seen = transcript.steps("odd/")
    read = {exchange.step.removeprefix("odd/"): reply.chat(exchange) for exchange in seen}
    accepted = [name for name, each in read.items() if isinstance(each, reply.Answer)]
    failed = [name for name, each in read.items() if isinstance(each, reply.Failure)]
    refused = [name for name, each in read.items() if isinstance(each, reply.Refusal)]
    value = f"accepts {', '.join(accepted)}" if accepted else "accepts none of the odd values"
    if failed:
        value += f"; fails at {', '.join(failed)}"
    why = f"{len(accepted)} of {len(read)} odd values accepted; refused: {', '.join(refused) or 'none'}"
    yield observed(value, why, *seen)


PROBE = Probe(
    id="errors_leniency",
    doc=__doc__ or "",
    checks=(),
    params=Params,
    drive=drive,
    judge=judge,
    requests=9,
    prompt_tokens=60,
    output_tokens=6,
)
