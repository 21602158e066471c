"""A streamed completion says the same as a plain one, and ends as clients expect.

What it does: asks greedily for the whole text twice (the first warms the prefix cache), then streams it with usage
asked for. Joins the pieces and compares text, finish reason and usage; looks for one ``[DONE]`` at the end, one
finish, and on every event the object's name, one id and model, and each choice's index. Where the texts differ, both
are asked for once more: a difference counts only where whole replies agree among themselves, and streams among
themselves.

Why it matters: this route has a stream format of its own, which gateways that were made for chat often get wrong.

How it could be fooled: by other users' traffic that changes the batch between the requests; a near-tie then flips, and
the second look says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import answer_at, reply_at, sent
from servecheck.read import reply, sse
from servecheck.read.text import dig, number, parse, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/completions/create"
_PART = Part(route=Route.COMPLETIONS, mode=Mode.STREAM)
_STREAMS, _TEXT, _FINISH = "completion-comes-as-stream", "pieces-join-to-the-completion", "pieces-end-once"
_DONE, _NAMED, _USAGE = "completion-stream-ends-with-done", "every-piece-is-a-text-completion", "usage-equals-the-whole"


class CompletionsStreamParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="The harbour was busy that morning, because", description="The text to go on with.")
    max_tokens: int = Field(default=32, ge=4, le=4096, description="Room for the answer.")


async def drive(session: Session, params: CompletionsStreamParams, _: Transcript | None) -> None:
    """Whole twice, streamed once; both again where they differ."""
    body: dict[str, Json] = {"prompt": params.prompt, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
    streamed: dict[str, Json] = {**body, "stream": True, "stream_options": {"include_usage": True}}
    await session.post("cold", "/completions", body)
    await session.post("whole", "/completions", body)
    await session.post("stream", "/completions", streamed)
    if _text(session.transcript, "stream") != _text(session.transcript, "whole"):
        await session.post("stream-again", "/completions", streamed)
        await session.post("whole-again", "/completions", body)


def _text(transcript: Transcript, step: str) -> str | None:
    """Return a step's text; a cut by max_tokens may fall inside a character, whose sign is left out."""
    answer = answer_at(transcript, step)
    if answer is None:
        return None
    return answer.text.rstrip("\ufffd") if answer.finish == "length" else answer.text


def judge(transcript: Transcript, _: CompletionsStreamParams) -> Iterator[Finding]:
    """Judge the stream by the whole reply."""
    whole, stream = reply_at(transcript, "whole"), reply_at(transcript, "stream")
    missing = _PART.unless_answered(_STREAMS, stream, whole)
    if missing is not None:
        yield missing
        return
    assert isinstance(stream, reply.Answer)
    if stream.stream is None:
        yield _PART.no_effect(_STREAMS, "one JSON body came, as without stream", stream, *sent(whole))
        return
    yield _PART.held(_STREAMS, f"an event stream of {len(stream.stream.events)} events", stream)
    yield from _framing(stream, stream.stream)
    if not isinstance(whole, reply.Answer):
        yield _PART.undetermined(_TEXT, "the whole reply to compare with did not come", stream, *sent(whole))
        return
    yield _same_text(transcript, whole, stream)
    if _text(transcript, "whole") == _text(transcript, "stream"):
        yield from _same_usage(whole, stream)


def _framing(stream: reply.Answer, events: sse.Events) -> Iterator[Finding]:
    marks = [place for place, event in enumerate(events.events) if event.data.strip() == sse.DONE]
    right = marks == [len(events.events) - 1]
    where = ", ".join(str(place + 1) for place in marks) or "nowhere"
    why = f"[DONE] is event {where} of {len(events.events)}" if marks else "there is no [DONE]"
    yield (_PART.held if right else _PART.violated)(_DONE, why, stream)
    bodies = [parse(event.data) for event in events.events if event.data and event.data.strip() != sse.DONE]
    yield _named(stream, bodies)
    ends = [repr(end) for body in bodies if (end := dig(body, "choices", 0, "finish_reason")) is not None]
    right = len(ends) == 1 and ends[0] in ("'stop'", "'length'")
    why = f"events with a finish_reason: {len(ends)}" + (f" ({', '.join(ends[:4])})" if ends else "")
    yield (_PART.held if right else _PART.violated)(_FINISH, why, stream)


def _named(stream: reply.Answer, bodies: list[Json]) -> Finding:
    odd = sorted({string(dig(body, "object")) for body in bodies} - {"text_completion"})
    if odd:
        return _PART.violated(_NAMED, f"object is {', '.join(repr(name) for name in odd)}", stream)
    for name in ("id", "model"):
        said = list(dict.fromkeys(string(dig(body, name)) for body in bodies))
        if len(said) > 1:
            return _PART.violated(_NAMED, f"{name} is {quote(said[0], 40)}, and then {quote(said[1], 40)}", stream)
    choices = [choice for body in bodies if isinstance(found := dig(body, "choices"), list) for choice in found]
    bare = sum(number(dig(choice, "index")) is None for choice in choices)
    if bare:
        return _PART.violated(_NAMED, f"{bare} of {len(choices)} choices have no index", stream)
    return _PART.held(_NAMED, f"all {len(bodies)} are", stream)


def _same_text(transcript: Transcript, whole: reply.Answer, stream: reply.Answer) -> Finding:
    one, other = _text(transcript, "whole") or "", _text(transcript, "stream") or ""
    if one == other:
        return _PART.held(_TEXT, f"{len(one)} characters, all equal: {quote(one, 50)}", whole, stream)
    at = next((place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), None)
    at = min(len(one), len(other)) if at is None else at
    shown = f"they part at character {at}: whole {quote(one[at : at + 30])}, streamed {quote(other[at : at + 30])}"
    again = [reply_at(transcript, step) for step in ("whole-again", "stream-again")]
    if one != _text(transcript, "whole-again") or other != _text(transcript, "stream-again"):
        why = f"greedy text does not repeat here, so a difference says nothing; {shown}"
        return _PART.undetermined(_TEXT, why, whole, stream, *sent(*again))
    return _PART.violated(_TEXT, f"whole replies agree, and streams, but not with each other; {shown}", whole, stream)


def _same_usage(whole: reply.Answer, stream: reply.Answer) -> Iterator[Finding]:
    one, other = whole.usage, stream.usage
    if one is None:
        return
    if other is None:
        yield _PART.no_effect(_USAGE, "no event has usage although it was asked for", stream, whole)
        return
    mine, theirs = (one.prompt, one.completion), (other.prompt, other.completion)
    why = f"prompt and completion tokens {theirs[0]} and {theirs[1]} streamed, {mine[0]} and {mine[1]} whole"
    yield (_PART.held if mine == theirs else _PART.violated)(_USAGE, why, stream, whole)


PROBE = Probe(
    id="completions_stream",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_STREAMS,
            rule="With stream a completion comes as server-sent events.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_TEXT,
            rule="The joined pieces are the text of the whole completion.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_FINISH,
            rule="One event of a streamed completion has a finish_reason.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/completions/object",
        ),
        Check(
            id=_DONE,
            rule="A streamed completion ends with one [DONE].",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_NAMED,
            rule="Every event of a streamed completion is a “text_completion” of one id and model, with indices.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/api-reference/completions/object",
        ),
        Check(
            id=_USAGE,
            rule="The usage of a stream is that of the whole completion.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
    ),
    params=CompletionsStreamParams,
    drive=drive,
    judge=judge,
    requests=3,
    prompt_tokens=20,
    output_tokens=100,
)
