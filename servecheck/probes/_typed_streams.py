"""Rules about streams of typed events, judged over several kinds of request; and the loss of a piece of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from servecheck.model import Ending, Finding, Json, Transcript
from servecheck.probes._findings import Part
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.text import dig, number, parse, quote
from servecheck.read.typed import TypedStream, typed

__all__ = [
    "_WHAT",
    "Rule",
    "counted",
    "judge_lost",
    "judge_streams",
    "lines_agree",
    "lost_piece",
    "streamed_at",
    "whole",
]

_WHAT = {"plain": "a plain stream", "cut": "a stream that the limit cuts", "tool": "the stream of a tool call"}
"""The requests that are streamed, by step, in the words of a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    """One stream with the words that a reason uses for its request."""

    what: str
    read: TypedStream


Rule: TypeAlias = Callable[[TypedStream], str]
"""Returns what breaks the rule, an empty string where it holds."""


def judge_streams(
    part: Part, check: str, rules: Mapping[str, Rule], transcript: Transcript, called: str
) -> Iterator[Finding]:
    """Judge that the plain request is streamed, and where it is, each rule over all streams.

    ``called`` says what a whole answer of the route is. Another request that is refused or fails is no matter of a row
    about streams.
    """
    plain = reply_at(transcript, "plain")
    missing = part.unless_answered(check, plain)
    if missing is not None:
        yield missing
    if not isinstance(plain, reply.Answer):
        return
    if _unstreamed(plain):
        yield part.no_effect(check, f"stream was asked for, one whole {called} came", plain)
        return
    answers = {name: found for name in _WHAT if (found := streamed_at(transcript, name)) is not None}
    yield part.held(check, f"{len(answers)} kinds of request were streamed", *answers.values())
    streams = [_Stream(what=_WHAT[name], read=typed(found.exchange)) for name, found in answers.items()]
    yield from _judge_rules(part, rules, streams)


def streamed_at(transcript: Transcript, step: str) -> reply.Answer | None:
    """Return the answer of a step that was streamed, ``None`` where it was not, or is no answer."""
    found = reply_at(transcript, step)
    return found if isinstance(found, reply.Answer) and not _unstreamed(found) else None


def _judge_rules(part: Part, rules: Mapping[str, Rule], streams: Sequence[_Stream]) -> Iterator[Finding]:
    """Judge each rule over all streams, and say in which of them it breaks: the first is the evidence."""
    for check, rule in rules.items():
        broken = [(stream, problem) for stream in streams if (problem := rule(stream.read))]
        if not broken:
            every = [stream.read.exchange for stream in streams]
            yield part.held(check, f"in {len(streams)} kinds of request", *every)
            continue
        first, problem = broken[0]
        only = f"only {' and '.join(stream.what for stream, _ in broken)}: " if len(broken) < len(streams) else ""
        yield part.violated(check, f"{only}{problem}", first.read.exchange)


def _unstreamed(answer: reply.Answer) -> bool:
    """Tell whether one whole JSON document came where a stream was asked for."""
    if answer.stream is not None:
        return False
    try:
        parse(answer.exchange.body)
    except ValueError:
        return False
    return True


def whole(read: TypedStream) -> str:
    """Return how a stream is cut off, or goes on behind its end marker."""
    if read.exchange.ending is not Ending.COMPLETE:
        return f"the connection ended early: {read.exchange.detail}"
    if read.tail.strip():
        return f"the last event has no end: {quote(read.tail, 60)}"
    return f"{read.after_done} events come after [DONE]" if read.after_done else ""


def lines_agree(read: TypedStream) -> str:
    """Return where an event's line and its type differ, or one of them is missing."""
    for place, event in enumerate(read.events):
        if not event.type:
            return f"event {place + 1} has no type: {quote(str(event.body), 60)}"
        if event.line != event.type:
            line = f"the event line {event.line!r}" if event.line else "no event line"
            return f"event {place + 1} has the type {event.type!r} and {line}"
    return ""


def lost_piece(plain: str, streamed: str) -> str:
    """Return the piece of ``plain`` without which it is ``streamed``; empty where that is not the difference.

    Greedy answers may part at a near tie and go on differently; a text that goes on as before has lost something.
    """
    if len(streamed) >= len(plain):
        return ""
    begin = next((at for at, (a, b) in enumerate(zip(plain, streamed, strict=False)) if a != b), len(streamed))
    rest = len(streamed) - begin
    return plain[begin : len(plain) - rest] if not rest or plain.endswith(streamed[begin:]) else ""


def judge_lost(
    part: Part,
    check: str,
    transcript: Transcript,
    called: str,
    unlike: Callable[[reply.Answer, reply.Answer], str],
) -> Finding:
    """Judge the text of the plain stream by the one that comes whole: nothing may be missing.

    ``unlike`` returns what else the whole answer and the streamed one must have in common and do not.
    """
    plain, complete = streamed_at(transcript, "plain"), reply_at(transcript, "whole")
    assert plain is not None
    if not isinstance(complete, reply.Answer):
        return part.undetermined(check, f"no plain {called} to compare with", plain)
    if complete.text.strip() and not plain.text.strip():
        return part.violated(check, f"no text in the stream, {quote(complete.text, 60)} without", plain, complete)
    if piece := lost_piece(complete.text, plain.text):
        return part.violated(check, f"the stream lacks {quote(piece, 60)}", plain, complete)
    if why := unlike(complete, plain):
        return part.violated(check, why, plain, complete)
    same = "the same text" if complete.text == plain.text else "another text, which goes on differently"
    return part.held(check, f"{same}: {quote(plain.text, 60)}", plain, complete)


def counted(body: Json, *names: str) -> str:
    """Return why the counts of a ``usage`` are no counts, an empty string where all are whole and positive."""
    usage = dig(body, "usage")
    if not isinstance(usage, dict):
        return "no usage"
    for name in names:
        count = number(usage.get(name))
        if count is None or count < 0:
            return f"{name} is {usage.get(name)!r}"
    return ""
