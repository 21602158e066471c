"""The official openai SDK's parse() gives an instance of the class that it was asked for.

What it does: asks through `chat.completions.parse` for a class whose text must be one of two random words, with a
prompt that asks for prose, and hands the recorded reply to the SDK. The control is the same request without the class.
An answer that was cut by ``max_tokens`` is asked for once more with more room.

Why it matters: `parse` is how applications get typed answers. It sends the schema in the SDK's own form, and raises
where the text is not an instance, in the middle of the application.

How it could be fooled: as a JSON Schema could, by a model that copies the words out of its prompt; `structured.*`
looks at the server, this row at what the SDK's caller has in hand.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Outcome, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._schemas import PULL_AWAY, judge_schema, latest, more_room
from servecheck.probes._sdk import ask, unread
from servecheck.probes._steps import reply_at
from servecheck.read import reply, sdk
from servecheck.read.text import quote

__all__ = ["PROBE"]

_CHECK = "sdk-parse-gives-an-instance"
_PART = Part()


class SdkParseParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default=PULL_AWAY, description="A prompt that pulls away from JSON.")
    max_tokens: int = Field(default=128, ge=16, le=4096, description="Room for the answer.")


async def drive(session: Session, params: SdkParseParams, _: Transcript | None) -> None:
    """The control, then parse; an answer that was cut is asked for once more."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    asked: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0}
    await ask(session, "plain", asked, plain=True)
    answer = reply.chat(await ask(session, "parse", asked, words=(session.nonce(), session.nonce())))
    room = more_room(answer, params.max_tokens)
    if room is not None:
        again: dict[str, Json] = {**asked, "max_tokens": room}
        await ask(session, "parse-again", again, words=(session.nonce(), session.nonce()))


def judge(transcript: Transcript, _: SdkParseParams) -> Iterator[Finding]:
    """Judge what parse gives; where it gives nothing, the schema's own judgement says whose fault that is."""
    shaped = latest(reply_at(transcript, "parse-again"), reply_at(transcript, "parse"))
    seen = judge_schema(_PART, _CHECK, shaped, reply_at(transcript, "plain"), {}, what="the class that parse asks for")
    if not isinstance(shaped, reply.Answer) or seen.outcome is not Outcome.HELD:
        yield seen
        return
    made = sdk.parsed(shaped.exchange)
    if isinstance(made, sdk.Raised):
        yield unread(_PART, _CHECK, made, shaped)
    elif not isinstance(made.parsed, dict):
        yield _PART.violated(_CHECK, f"parse gives None for {quote(shaped.text)}", shaped)
    else:
        yield _PART.held(_CHECK, f"parse gives an instance of the class: {quote(shaped.text)}", shaped)


PROBE = Probe(
    id="sdk_parse",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_CHECK,
            rule="The SDK's parse() gives an instance of the class that it was asked for.",
            level=Level.MUST,
            source="https://github.com/openai/openai-python/blob/main/helpers.md",
        ),
    ),
    params=SdkParseParams,
    drive=drive,
    judge=judge,
    requests=2,
    prompt_tokens=90,
    output_tokens=40,
)
