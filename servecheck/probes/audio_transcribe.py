"""A transcription request is answered in the shape that was asked for, and what is no sound is refused.

What it does: sends two clips made by code, of two and of five seconds, as the form that clients send; the first also
for plain text and for the long form; then a file that is no sound.

Why it matters: transcription comes as JSON, as text or with times, and clients read one of them. A broken upload should
be the caller's error and not the server's.

How it could be fooled: the clips hold no speech, so that what is heard is the model's affair and is not judged. Only
the reported length tells whether the sound arrived.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, NotApplicable, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._fixtures import form, tone
from servecheck.probes._vectors import no_route
from servecheck.read import reply
from servecheck.read.text import dig, parse, quote

__all__ = ["PROBE"]

_PART = Part(route=Route.NONE, mode=Mode.NONE)
_JSON, _TEXT = "transcription-is-json-with-a-text", "text-format-gives-plain-text"
_VERBOSE, _LENGTH, _BROKEN = "long-form-has-segments", "reported-length-is-the-clip-s", "broken-audio-is-refused"
_SOURCE = "https://platform.openai.com/docs/api-reference/audio/createTranscription"
_SECONDS = {"short": 2.0, "longer": 5.0}
_ROUNDING = 1.0  # seconds; lengths are billed in whole ones


class AudioTranscribeParams(Params):
    """What may be chosen in YAML."""

    language: str = Field(default="en", description="The language to expect, as ISO 639-1.")


async def drive(session: Session, params: AudioTranscribeParams, _: Transcript | None) -> None:
    """Two clips, two more formats, no clip."""
    boundary = f"servecheck{session.nonce(16)}"
    common = {"model": session.endpoint.model or "", "language": params.language, "temperature": "0"}

    async def ask(step: str, file: bytes, **fields: str) -> Exchange:
        kind, body = form({**common, **fields}, file, boundary=boundary)
        return await session.post_raw(step, "/audio/transcriptions", body, content_type=kind)

    await ask("short", tone(_SECONDS["short"]), response_format="json")
    if reply.not_answered(session.transcript.steps("short")[-1]) is not None:
        return
    await ask("longer", tone(_SECONDS["longer"], 330.0), response_format="json")
    await ask("text", tone(_SECONDS["short"]), response_format="text")
    await ask("verbose", tone(_SECONDS["short"]), response_format="verbose_json")
    await ask("broken", b"RIFF this is no sound at all", response_format="json")


def _body(transcript: Transcript, step: str) -> Json | reply.Refusal | reply.Failure | None:
    exchange = transcript.get(step)
    return reply.json_body(exchange) if exchange is not None else None


def judge(transcript: Transcript, _: AudioTranscribeParams) -> Iterator[Finding | NotApplicable]:
    """Judge each format by its shape, the lengths by what was sent."""
    first = transcript.get("short")
    if first is None:
        yield _PART.undetermined(_JSON, "nothing was sent")
        return
    missing = reply.not_answered(first)
    absent = no_route(missing, "/audio/transcriptions", "transcribes nothing")
    if absent is not None:
        yield absent
        return
    for step in _SECONDS:
        yield from _json(transcript, step)
    if missing is not None:
        return
    yield from _text(transcript)
    yield from _verbose(transcript)
    yield _lengths(transcript)
    yield from _broken(transcript)


def _json(transcript: Transcript, step: str) -> Iterator[Finding]:
    exchange, body = transcript.get(step), _body(transcript, step)
    if exchange is None:
        return
    if isinstance(body, reply.Refusal):
        yield _PART.refused(_JSON, f"refused: {body.what}", exchange)
    elif isinstance(body, reply.Failure):
        yield _PART.violated(_JSON, body.what, exchange)
    elif not isinstance(dig(body, "text"), str):
        yield _PART.violated(_JSON, f"no text in {quote(exchange.body)}", exchange)
    else:
        yield _PART.held(_JSON, f"a text: {quote(str(dig(body, 'text')), 50)}", exchange)


def _text(transcript: Transcript) -> Iterator[Finding]:
    exchange = transcript.get("text")
    if exchange is None:
        return
    missing = reply.not_answered(exchange)
    if isinstance(missing, reply.Refusal):
        yield _PART.refused(_TEXT, f"response_format text is refused: {missing.what}", exchange)
        return
    if missing is not None:
        yield _PART.violated(_TEXT, f"response_format text: {missing.what}", exchange)
        return
    try:
        read = parse(exchange.body)
    except ValueError:
        read = None
    shown = quote(exchange.body, 50)
    if isinstance(read, dict):
        yield _PART.no_effect(_TEXT, f"response_format text is answered with JSON: {shown}", exchange)
    else:
        yield _PART.held(_TEXT, f"plain text: {shown}", exchange)


def _verbose(transcript: Transcript) -> Iterator[Finding]:
    exchange, body = transcript.get("verbose"), _body(transcript, "verbose")
    if exchange is None:
        return
    if isinstance(body, reply.Refusal):
        yield _PART.refused(_VERBOSE, f"response_format verbose_json is refused: {body.what}", exchange)
    elif isinstance(body, reply.Failure):
        yield _PART.violated(_VERBOSE, f"response_format verbose_json: {body.what}", exchange)
    else:
        segments = dig(body, "segments")
        wrong = _segments_fault(segments if isinstance(segments, list) else None)
        if segments is None and dig(body, "duration") is None and isinstance(dig(body, "text"), str):
            why = f"response_format verbose_json is answered with the short form: {quote(exchange.body, 60)}"
            yield _PART.no_effect(_VERBOSE, why, exchange)
        elif wrong:
            yield _PART.violated(_VERBOSE, f"{wrong}: {quote(exchange.body)}", exchange)
        else:
            yield _PART.held(_VERBOSE, f"{len(segments) if isinstance(segments, list) else 0} segments", exchange)


def _segments_fault(segments: list[Json] | None) -> str:
    if segments is None:
        return "there is no list of segments"
    last = 0.0
    for segment in segments:
        start, end = _seconds(dig(segment, "start")), _seconds(dig(segment, "end"))
        if start is None or end is None or not isinstance(dig(segment, "text"), str):
            return "a segment has no start, end and text"
        if not last - _ROUNDING <= start <= end:
            return f"a segment goes from {start:g} to {end:g} s after one that ends at {last:g} s"
        last = end
    return ""


def _seconds(value: Json) -> float | None:
    if isinstance(value, str):  # the older API gave the duration as text
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -1e9 < value < 1e9 else None


def _lengths(transcript: Transcript) -> Finding:
    told = []
    seen = []
    for step, wanted in (*_SECONDS.items(), ("verbose", _SECONDS["short"])):
        exchange, body = transcript.get(step), _body(transcript, step)
        if exchange is None or isinstance(body, reply.Refusal | reply.Failure):
            continue
        for path in (("usage", "seconds"), ("duration",)):
            value = _seconds(dig(body, *path))
            if value is not None:
                told.append((wanted, value))
                seen.append(exchange)
    wrong = [(wanted, value) for wanted, value in told if abs(value - wanted) > _ROUNDING]
    if wrong:
        why = f"a clip of {wrong[0][0]:g} s is reported as {wrong[0][1]:g} s"
        return _PART.violated(_LENGTH, why, *seen)
    if not told:
        return _PART.undetermined(_LENGTH, "no reply tells how long its clip is")
    said = ", ".join(f"{value:g} s for {wanted:g} s" for wanted, value in told)
    return _PART.held(_LENGTH, said, *seen)


def _broken(transcript: Transcript) -> Iterator[Finding]:
    exchange = transcript.get("broken")
    if exchange is None:
        return
    found = reply.not_answered(exchange)
    if isinstance(found, reply.Refusal):
        yield _PART.held(_BROKEN, found.what, exchange)
    else:
        why = found.what if found is not None else f"answered: {quote(exchange.body, 60)}"
        yield _PART.violated(_BROKEN, f"a file that is no sound: {why}", exchange)


PROBE = Probe(
    id="audio_transcribe",
    doc=__doc__ or "",
    checks=(
        Check(id=_JSON, rule="A transcription is a JSON object with a text.", level=Level.MUST, source=_SOURCE),
        Check(
            id=_TEXT,
            rule="With response_format text the reply is the text alone.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_VERBOSE,
            rule="With response_format verbose_json there are segments with their times, in order.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_LENGTH,
            rule="Where the length of the clip is reported it is right to a second.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_BROKEN,
            rule="A file that is no sound is refused with a 4xx.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/error-codes",
        ),
    ),
    params=AudioTranscribeParams,
    drive=drive,
    judge=judge,
    requests=5,
)
