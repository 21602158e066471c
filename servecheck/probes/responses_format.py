"""``text.format`` shapes a response, and the response says which format it has.

What it does: asks for prose without a format (the control), then with a JSON Schema whose only property must equal a
random word, plainly and streamed; with ``json_object``; and with a format that does not exist. The response must say
the format that it was asked for. An answer that was cut is asked for once more.

Why it matters: this route has its own name for ``response_format``. A server that knows only the chat route's drops it,
answers 200 with prose, and says ``text``.

How it could be fooled: by a model that reads the schema in its prompt and copies the word of its own will.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._schemas import (
    NONCE_SCHEMA,
    PULL_AWAY,
    judge_schema,
    latest,
    looks_like_json,
    more_room,
    text_format,
    thought,
    thought_too_long,
    with_nonce,
)
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.text import dig, parse, quote

__all__ = ["PROBE"]

_GUIDE = "https://platform.openai.com/docs/guides/structured-outputs?api-mode=responses"
_CREATE = "https://platform.openai.com/docs/api-reference/responses/create"
_SCHEMA, _OBJECT = "text-format-shapes-the-response", "json-object-format-gives-an-object"
_SAID, _UNKNOWN = "response-says-its-text-format", "unknown-text-format-does-no-harm"
_PART = Part(route=Route.RESPONSES)
_STREAM = Part(route=Route.RESPONSES, mode=Mode.STREAM)


class ResponsesFormatParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default=PULL_AWAY, description="A prompt that pulls away from JSON.")
    max_tokens: int = Field(default=96, ge=16, le=4096, description="Room for the answer; 17 to 26 tokens were used.")
    object_tokens: int = Field(default=192, ge=16, le=4096, description="Room for a free JSON object.")


async def drive(session: Session, params: ResponsesFormatParams, _: Transcript | None) -> None:
    """Control, a schema plain and streamed, an object, and a format that does not exist."""
    asked: dict[str, Json] = {"input": params.prompt, "temperature": 0, "top_p": 1}
    await session.post("control", "/responses", {**asked, "max_output_tokens": params.max_tokens})
    for arm, more in (("schema", {}), ("schema-stream", {"stream": True})):
        room: int | None = params.max_tokens
        for step in (arm, f"{arm}-again"):
            if room is not None:
                wanted = text_format(with_nonce(NONCE_SCHEMA, session.nonce()))
                body: dict[str, Json] = {**asked, **more, "text": {"format": wanted}, "max_output_tokens": room}
                await session.post(step, "/responses", body)
                answer = reply_at(session.transcript, step)
                room = more_room(answer, params.max_tokens) if answer is not None else None
    free: Json = {"format": {"type": "json_object"}}
    await session.post("object", "/responses", {**asked, "text": free, "max_output_tokens": params.object_tokens})
    unknown: Json = {"format": {"type": f"fmt_{session.nonce(6)}"}}
    await session.post("unknown", "/responses", {**asked, "text": unknown, "max_output_tokens": 16})


def judge(transcript: Transcript, _: ResponsesFormatParams) -> Iterator[Finding]:
    """Judge the schema in both modes, then what the response says of it."""
    control = reply_at(transcript, "control")
    if isinstance(control, reply.Refusal):
        yield _PART.refused(_SCHEMA, f"the route refuses a plain request too: {control.what}", control)
        return
    for arm, part in (("schema", _PART), ("schema-stream", _STREAM)):
        shaped = latest(reply_at(transcript, f"{arm}-again"), reply_at(transcript, arm))
        yield judge_schema(part, _SCHEMA, shaped, control, NONCE_SCHEMA)
        if isinstance(shaped, reply.Answer):
            yield _said(part, shaped)
    yield _object(reply_at(transcript, "object"), control)
    yield _unknown(reply_at(transcript, "unknown"), control)


def _said(part: Part, shaped: reply.Answer) -> Finding:
    kind = dig(shaped.body, "text", "format", "type")
    why = f"text.format.type is {kind!r} in the response"
    return (part.held if kind == "json_schema" else part.violated)(_SAID, why, shaped)


def _object(found: reply.Reply | None, control: reply.Reply | None) -> Finding:
    missing = _PART.unless_answered(_OBJECT, found, control, what="the format json_object")
    if missing is not None:
        return missing
    assert isinstance(found, reply.Answer)
    try:
        value = parse(found.text)
    except ValueError as error:
        if thought_too_long(found):
            return _PART.undetermined(_OBJECT, f"the limit went into the reasoning: {quote(thought(found))}", found)
        if found.finish == "length" and looks_like_json(found.text):
            return _PART.undetermined(_OBJECT, f"cut by the limit while it was JSON: {quote(found.text)}", found)
        if looks_like_json(found.text):
            return _PART.violated(_OBJECT, f"not JSON ({error}): {quote(found.text)}", found)
        return _PART.no_effect(_OBJECT, f"200, and no JSON: {quote(found.text)}", found)
    right = isinstance(value, dict)
    return (_PART.held if right else _PART.violated)(_OBJECT, f"the text is {quote(found.text)}", found)


def _unknown(found: reply.Reply | None, control: reply.Reply | None) -> Finding:
    if isinstance(found, reply.Refusal):
        return _PART.held(_UNKNOWN, f"refused: {found.what}", found)
    missing = _PART.unless_answered(_UNKNOWN, found, control, what="a format that does not exist")
    if missing is not None:
        return missing
    assert isinstance(found, reply.Answer)
    return _PART.held(_UNKNOWN, f"answered as if there were no format: {quote(found.text)}", found)


PROBE = Probe(
    id="responses_format",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_SCHEMA,
            rule="A response is an instance of the schema in its request's text.format, plain and streamed.",
            level=Level.MUST,
            source=_GUIDE,
        ),
        Check(
            id=_OBJECT,
            rule="With the format json_object the text is a JSON object.",
            level=Level.SHOULD,
            source=_CREATE,
        ),
        Check(
            id=_SAID,
            rule="text.format of a response is the one that was asked for.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/api-reference/responses/object",
        ),
        Check(
            id=_UNKNOWN,
            rule="A format that does not exist is refused or left alone, without a failure.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/error-codes",
        ),
    ),
    params=ResponsesFormatParams,
    drive=drive,
    judge=judge,
    requests=5,
    prompt_tokens=180,
    output_tokens=70,
)
