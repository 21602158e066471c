"""Characters of several bytes survive streaming.

What it does: a JSON Schema allows one answer only: a random word with emoji, flags, ideographs, combining marks and
Devanagari behind it. The answer is asked for whole and as a stream, and compared with the schema by code points. Where
the schema is not applied, the server is asked to copy the text, and the stream is compared with the whole reply.

Why it matters: one token often holds half a character. An engine that decodes token by token streams U+FFFD in its
place, or nothing; the smoke test in English never shows it.

How it could be fooled: by a server that repairs this one text. A cut at the token limit may fall inside a character, so
answers cut by length say nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.text import dig, parse, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://www.rfc-editor.org/rfc/rfc8259#section-8.1"
_WHOLE, _STREAM = Part(), Part(mode=Mode.STREAM)
_WHOLE_KEEPS, _STREAM_KEEPS = "whole-answer-keeps-characters", "stream-keeps-characters"
_LOST = "\ufffd"


class StreamingUtf8Params(Params):
    """What may be chosen in YAML."""

    text: str = Field(
        default="ab🙂日e\u0301नम🇫🇷",
        min_length=1,
        max_length=64,
        description="The characters to be streamed, behind a random word.",
    )
    max_tokens: int = Field(default=200, ge=64, le=4096, description="Room for the answer; 24 to 53 tokens were used.")


async def drive(session: Session, params: StreamingUtf8Params, _: Transcript | None) -> None:
    """By schema, whole and streamed; by copying, where the schema is not applied."""
    text = session.nonce() + params.text
    schema: Json = {
        "type": "object",
        "properties": {"text": {"type": "string", "enum": [text]}},
        "required": ["text"],
        "additionalProperties": False,
    }
    shape: Json = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}

    def asked(content: str, **more: Json) -> dict[str, Json]:
        messages: Json = [{"role": "user", "content": content}]
        return {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1, **more}

    shaped = asked("Give me the text.", response_format=shape)
    whole = await session.chat("whole", shaped)
    if _follows_schema(whole):
        await session.chat("stream", {**shaped, "stream": True})
        return
    copied = asked(f"Repeat exactly this text and nothing else: “{text}”")
    await session.chat("copy-whole", copied)
    await session.chat("copy-stream", {**copied, "stream": True})


def _wanted(exchange: Exchange) -> str:
    """Return the only text that an exchange's schema allows."""
    schema = dig(exchange.request, "response_format", "json_schema", "schema")
    return string(dig(schema, "properties", "text", "enum", 0))


def _follows_schema(exchange: Exchange) -> bool:
    """Tell whether a whole reply shows that the schema was applied: only the schema knows the random word."""
    answer = reply.chat(exchange)
    return isinstance(answer, reply.Answer) and _wanted(exchange)[:6] in answer.text and bool(answer.text)


def judge(transcript: Transcript, params: StreamingUtf8Params) -> Iterator[Finding]:
    """Judge by the schema's text; by the whole reply where no schema was applied."""
    whole, stream = transcript.get("whole"), transcript.get("stream")
    if whole is None:
        yield _STREAM.undetermined(_STREAM_KEEPS, "nothing was asked for")
    elif stream is not None:
        yield _against_schema(_WHOLE, _WHOLE_KEEPS, whole)
        yield _against_schema(_STREAM, _STREAM_KEEPS, stream)
    else:
        yield _against_copy(transcript, params.text)


def _against_schema(part: Part, check: str, exchange: Exchange) -> Finding:
    wanted, answer = _wanted(exchange), reply.chat(exchange)
    missing = part.unless_answered(check, answer)
    if missing is not None:
        return missing
    assert isinstance(answer, reply.Answer)
    if answer.finish == "length":
        return part.undetermined(check, f"cut by max_tokens: {quote(answer.text)}", exchange)
    try:
        said = string(dig(parse(answer.text), "text"))
    except ValueError as error:
        problem = _damage(answer.text)
        if problem:
            return part.violated(check, f"{problem} in {quote(answer.text)}", exchange)
        return part.undetermined(check, f"the schema was not applied: {quote(answer.text)}: {error}", exchange)
    if said == wanted:
        return part.held(check, f"{len(said)} code points, all equal: {quote(said)}", exchange)
    if wanted[:6] not in said and not _damage(said):
        return part.undetermined(check, f"the schema was not applied: {quote(answer.text)}", exchange)
    why = f"{_damage(said) or 'other characters'}: wanted {_points(wanted, said)}, got {_points(said, wanted)}"
    return part.violated(check, why, exchange)


def _against_copy(transcript: Transcript, text: str) -> Finding:
    """Judge a stream by the whole reply to the same request: what was lost in the stream only is the stream's."""
    whole, stream = transcript.get("copy-whole"), transcript.get("copy-stream")
    one = reply.chat(whole) if whole is not None else None
    other = reply.chat(stream) if stream is not None else None
    missing = _STREAM.unless_answered(_STREAM_KEEPS, other, one)
    if missing is not None:
        return missing
    assert isinstance(other, reply.Answer)
    if not isinstance(one, reply.Answer):
        return _STREAM.undetermined(_STREAM_KEEPS, "the whole reply to compare with did not come", other)
    said, streamed = one.text, other.text
    figures = f"whole {quote(said)}, streamed {quote(streamed)}"
    if _damage(streamed) and not _damage(said) and other.finish != "length":
        return _STREAM.violated(_STREAM_KEEPS, f"{_damage(streamed)} in the stream only: {figures}", one, other)
    kept = [character for character in text if ord(character) > 127 and character in said]
    if not kept:
        why = f"no schema is applied here, and the model copies none of the characters: {figures}"
        return _STREAM.undetermined(_STREAM_KEEPS, why, one, other)
    if said == streamed:
        return _STREAM.held(_STREAM_KEEPS, f"no schema is applied here; copied and equal: {figures}", one, other)
    if _plain(said) == _plain(streamed):
        return _STREAM.violated(_STREAM_KEEPS, f"characters are lost in the stream only: {figures}", one, other)
    return _STREAM.undetermined(_STREAM_KEEPS, f"greedy text does not repeat here: {figures}", one, other)


def _plain(text: str) -> str:
    return "".join(character for character in text if ord(character) < 128)


def _damage(text: str) -> str:
    """Return what no right text holds, an empty string where it holds nothing of the kind."""
    if _LOST in text:
        return f"{text.count(_LOST)} × U+FFFD"
    halves = sum("\ud800" <= character <= "\udfff" for character in text)
    return f"{halves} halves of a character" if halves else ""


def _points(text: str, other: str) -> str:
    """Return the code points from the first difference on."""
    at = next((place for place, pair in enumerate(zip(text, other, strict=False)) if pair[0] != pair[1]), None)
    rest = text[min(len(text), len(other)) if at is None else at :][:6]
    return " ".join(f"U+{ord(character):04X}" for character in rest) or "the end"


PROBE = Probe(
    id="streaming_utf8",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_STREAM_KEEPS,
            rule="The joined pieces of a stream hold the code points that were made, however many bytes they have.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_WHOLE_KEEPS,
            rule="A whole answer holds the same code points as were made.",
            level=Level.MUST,
            source=_SOURCE,
        ),
    ),
    params=StreamingUtf8Params,
    drive=drive,
    judge=judge,
    requests=2,
    prompt_tokens=50,
    output_tokens=100,
)
