"""Rules about streams of typed events, judged over several kinds of request; and the loss of a piece of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from servecheck.model import Ending, Finding, Json
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.text import dig, number, parse, quote
from servecheck.read.typed import TypedStream, typed

__all__ = ["Rule", "Stream", "counted", "judge_rules", "lines_agree", "lost_piece", "stream_of", "unstreamed", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One stream with the words that a reason uses for its request."""

    what: str
    read: TypedStream


Rule: TypeAlias = Callable[[TypedStream], str]
"""Returns what breaks the rule, an empty string where it holds."""


def stream_of(what: str, answer: reply.Answer) -> Stream:
    """Return the stream of an answer."""
    return Stream(what=what, read=typed(answer.exchange))


def judge_rules(part: Part, rules: Mapping[str, Rule], streams: Sequence[Stream]) -> Iterator[Finding]:
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


def unstreamed(answer: reply.Answer) -> bool:
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
