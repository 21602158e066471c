"""What happens to the old `guided_json`, `guided_choice` and `guided_regex` fields: honoured, refused or ignored.

What it does: sends a prompt that asks for prose, alone (the control) and with each of the fields that vLLM had before
`structured_outputs`; each allows only a text with a random word. Says for each field what came of it.

Why it matters: these fields were removed, and a server that does not know a field drops it with a 200. An application
that still sends them gets unconstrained text and no warning, and where the two sides of a migration differ nothing
else shows it.

How it could be fooled: by a gateway that translates the old fields for an engine that has forgotten them; for the
application that is as good as honoured.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Exchange, Json, Observed, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._dialects import word_in, word_of
from servecheck.probes._schemas import NONCE_SCHEMA, PULL_AWAY, ROOM_TO_THINK, latest, thought_too_long, with_nonce
from servecheck.probes._steps import reply_at
from servecheck.probes._values import observed, unknown
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_FIELDS = ("guided_json", "guided_choice", "guided_regex")


class LegacyGuidedParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default=PULL_AWAY, description="A prompt whose answer is prose.")
    max_tokens: int = Field(default=48, ge=16, le=4096, description="Room for the answer; 9 to 26 tokens were used.")


def _value(field: str, word: str) -> Json:
    if field == "guided_json":
        return with_nonce(NONCE_SCHEMA, word)
    return [f"{word}-north", f"{word}-south"] if field == "guided_choice" else f"{word}-[0-9]{{3}}"


async def drive(session: Session, params: LegacyGuidedParams, _: Transcript | None) -> None:
    """Control, then each field; an answer whose thought took all the room is asked for once more."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    base: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
    await session.chat("control", base)
    for field in _FIELDS:
        for step in (field, f"{field}-again"):
            body = {**base, field: _value(field, word_of(session.nonce(10)))}
            if not thought_too_long(reply.chat(await session.chat(step, body))):
                break
            base["max_tokens"] = max(params.max_tokens, ROOM_TO_THINK)


def judge(transcript: Transcript, _: LegacyGuidedParams) -> Iterator[Observed]:
    """Say what came of each field; one word where it is the same for all."""
    control = reply_at(transcript, "control")
    looks = {field: latest(reply_at(transcript, f"{field}-again"), reply_at(transcript, field)) for field in _FIELDS}
    seen: list[Exchange] = [look.exchange for look in (control, *looks.values()) if look is not None]
    if not isinstance(control, reply.Answer):
        yield unknown(f"the control is not answered: {control.what if control is not None else 'not sent'}", *seen)
        return
    words = {field: _said(look) for field, look in looks.items()}
    known = {field: word for field, (word, _) in words.items() if word}
    why = "; ".join(f"{field}: {shown}" for field, (_, shown) in words.items())
    if not known:
        yield unknown(why, *seen)
        return
    values = set(known.values())
    same = len(values) == 1 and len(known) == len(_FIELDS)
    yield observed(values.pop() if same else ", ".join(f"{field} {word}" for field, word in known.items()), why, *seen)


def _said(look: reply.Reply | None) -> tuple[str, str]:
    """Return in a word what came of a field, empty where that cannot be told, and what was seen."""
    if look is None:
        return "", "not sent"
    if isinstance(look, reply.Refusal):
        return "refused", look.what
    if isinstance(look, reply.Failure):
        return "failed", look.what
    if thought_too_long(look):
        return "", "max_tokens went into the reasoning"
    word = word_in(look.exchange)
    honoured = bool(word) and word[:6] in look.text  # an answer that was cut begins with the word all the same
    return ("honoured" if honoured else "ignored"), quote(look.text, 60)


PROBE = Probe(
    id="legacy_guided",
    doc=__doc__ or "",
    checks=(),
    params=LegacyGuidedParams,
    drive=drive,
    judge=judge,
    requests=4,
    prompt_tokens=180,
    output_tokens=30,
)
