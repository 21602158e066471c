"""JSON that the token limit cut says so: `length`, and never `stop` behind half an object.

What it does: asks for an answer under a schema whose only value is a long random word (what a plain request says is
the control), counts its tokens, and asks for the same again with a limit that falls inside the word: plain, streamed,
and under the newer name of the limit. Counting first keeps the limit out of the thoughts of a reasoning model.

Why it matters: a client that reads `stop` hands the text to its parser; half an object that calls itself whole is an
exception in production, or worse, a repaired value that nobody sent.

How it could be fooled: by a server whose second answer is spaced differently from the first; the word is long enough
to be cut all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._schemas import (
    NONCE_SCHEMA,
    PULL_AWAY,
    faults,
    judge_schema,
    latest,
    may_become,
    more_room,
    response_format,
    schema_of,
    thought,
    with_nonce,
)
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.partial import json_fault
from servecheck.read.text import quote

__all__ = ["PROBE"]

_LENGTH, _BEGINNING, _LIMIT = "cut-json-says-length", "cut-json-is-a-beginning", "limit-holds-under-a-schema"
_LETTERS = 40  # about as many tokens as a third of it at least, so that half of the answer ends inside the word
_END = 6  # tokens from the end: the closing marks and some of the word
_ARMS: dict[str, tuple[str, bool]] = {
    "plain": ("max_tokens", False),
    "stream": ("max_tokens", True),
    "newer": ("max_completion_tokens", False),
}


class JsonTruncatedParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default=PULL_AWAY, description="A prompt that pulls away from JSON.")
    max_tokens: int = Field(default=160, ge=64, le=4096, description="Room for the whole answer.")


async def drive(session: Session, params: JsonTruncatedParams, _: Transcript | None) -> None:
    """Control, the whole answer, then the same with a limit inside it."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    base: dict[str, Json] = {"messages": messages, "temperature": 0, "top_p": 1}
    await session.chat("control", {**base, "max_tokens": 32})
    wanted: Json = response_format(with_nonce(NONCE_SCHEMA, session.nonce(_LETTERS)))
    shaped: dict[str, Json] = {**base, "response_format": wanted}
    room: int | None = params.max_tokens
    for step in ("whole", "whole-again"):
        if room is not None:
            found = reply.chat(await session.chat(step, {**shaped, "max_tokens": room}))
            room = more_room(found, params.max_tokens)
    limit = _limit(_whole(session.transcript))
    for arm, (name, streamed) in _ARMS.items() if limit else ():
        await session.chat(arm, {**shaped, name: limit, **({"stream": True} if streamed else {})})


def _whole(transcript: Transcript) -> reply.Reply | None:
    return latest(reply_at(transcript, "whole-again"), reply_at(transcript, "whole"))


def _limit(whole: reply.Reply | None) -> int | None:
    """Return a limit in tokens that cuts a whole answer inside its word; ``None`` where none can be found."""
    if not isinstance(whole, reply.Answer) or faults(whole.text, schema_of(whole)):
        return None
    count = whole.usage.completion if whole.usage is not None else None
    if count is None or count <= 2 * _END:
        return None
    return count - _END if thought(whole) else count // 2


def judge(transcript: Transcript, _: JsonTruncatedParams) -> Iterator[Finding]:
    """Judge what each limit left of the answer."""
    control, whole = reply_at(transcript, "control"), _whole(transcript)
    applied = judge_schema(Part(), _LENGTH, whole, control, NONCE_SCHEMA)
    limit = _limit(whole)
    if limit is None or not isinstance(whole, reply.Answer):
        if isinstance(whole, reply.Answer) and not faults(whole.text, schema_of(whole)):
            yield Part().undetermined(_LENGTH, "no usage to count the answer's tokens by", whole)
        else:
            yield applied
        return
    for arm, (name, streamed) in _ARMS.items():
        part = Part(mode=Mode.STREAM if streamed else Mode.NON_STREAM)
        yield from _judge(part, reply_at(transcript, arm), whole, f"{name} {limit}")


def _judge(part: Part, cut: reply.Reply | None, whole: reply.Answer, limit: str) -> Iterator[Finding]:
    missing = part.unless_answered(_LENGTH, cut, whole)
    if missing is not None:
        yield missing
        return
    assert isinstance(cut, reply.Answer)
    text, schema = cut.text, schema_of(whole)
    shown = f"{quote(text)} under {limit}"
    if not faults(text, schema):
        why = f"the whole answer in spite of the limit, finish_reason {cut.finish!r}: {shown}"
        yield part.violated(_LIMIT, why, whole, cut)
        return
    yield part.held(_LIMIT, f"cut: {shown}", whole, cut)
    if not text.strip():
        if cut.finish == "length" and thought(cut):
            yield part.undetermined(_LENGTH, f"cut before the JSON began, under {limit}", cut)
        elif cut.finish == "length":
            yield part.violated(_BEGINNING, f"an answer that was cut is shown as nothing, under {limit}", whole, cut)
        else:
            yield part.violated(_LENGTH, f"nothing at all, finish_reason {cut.finish!r}, under {limit}", whole, cut)
        return
    if cut.finish == "length":
        yield part.held(_LENGTH, f"finish_reason 'length' behind {shown}", whole, cut)
    else:
        yield part.violated(_LENGTH, f"finish_reason {cut.finish!r} behind {shown}", whole, cut)
    fault = json_fault(text)
    if not fault and may_become(text, schema) and not _parses(text):
        yield part.held(_BEGINNING, f"the beginning of the schema's answer: {shown}", whole, cut)
    else:
        fault = fault or ("closed as if it were whole" if _parses(text) else "not the schema's")
        yield part.violated(_BEGINNING, f"{fault}: {shown}", whole, cut)


def _parses(text: str) -> bool:
    return not faults(text, {})


PROBE = Probe(
    id="json_truncated",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_LENGTH,
            rule="An answer under a schema that the token limit cut has finish_reason “length”.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/structured-outputs#json-mode",
        ),
        Check(
            id=_LIMIT,
            rule="The token limit ends an answer under a schema too.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/create#chat-create-max_completion_tokens",
        ),
        Check(
            id=_BEGINNING,
            rule="What is left of an answer that was cut is the beginning of an instance of its schema, not repaired.",
            level=Level.SHOULD,
            source="https://github.com/ikawrakow/ik_llama.cpp/issues/2321",
        ),
    ),
    params=JsonTruncatedParams,
    drive=drive,
    judge=judge,
    requests=5,
    prompt_tokens=220,
    output_tokens=130,
)
