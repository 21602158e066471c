"""A tool call that ``max_tokens`` cuts is reported as cut.

What it does: forces a strict call with an argument of 48 letters and reads from its usage and logprobs how many tokens
it takes. Then the same request is sent, plain and streamed, with room that ends inside the arguments, and inside the
name. Each must end with ``length``; its text must not be the begun call; its arguments must not look whole; both modes
must show the same.

Why it matters: a client that is told ``tool_calls`` runs a half call, and one that shows the content shows markup.

How it could be fooled: by an answer that ends sooner than the first one did, which says nothing. Without logprobs the
place of the name is unknown, and only the arguments are cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Outcome, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._forcing import asked
from servecheck.probes._steps import reply_at
from servecheck.probes._tools import (
    ROOM_TO_THINK,
    SMALL_TALK,
    calls_of,
    code_tool,
    function_of,
    last_look,
    markup_of,
    no_call,
    was_cut,
)
from servecheck.read import reply
from servecheck.read.text import dig, number, parse, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/object"
_LENGTH, _CLEAN = "cut-call-ends-with-length", "cut-call-is-not-shown-as-text"
_HALF, _SAME = "cut-call-does-not-look-whole", "cut-call-is-the-same-in-both-modes"
_LETTERS = 48
_BEFORE_THE_END = 16  # tokens; what closes a call takes four to nine, so this is inside an argument of 48 letters
_OF_THE_NAME = 5  # letters; the room ends with the token that brings them
_PLACES = ("arguments", "name")
_MODES = {"": Mode.NON_STREAM, "-stream": Mode.STREAM}


class ToolsTruncatedParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default=SMALL_TALK, description="Small talk that calls for no tool.")
    max_tokens: int = Field(default=160, ge=96, le=4096, description="Room for the whole call.")


async def drive(session: Session, params: ToolsTruncatedParams, _: Transcript | None) -> None:
    """A whole call, then the same cut at two places in both modes."""
    base = asked(params.prompt, params.max_tokens)
    await session.chat("control", base)
    tool = code_tool(f"fn_{session.nonce(8)}", session.nonce(_LETTERS), strict=True)
    forced: dict[str, Json] = {**base, "tools": [tool], "tool_choice": "required"}
    first = reply.chat(await session.chat("whole", {**forced, "logprobs": True}))
    if not isinstance(first, reply.Answer):
        await session.chat("whole-again", forced)
    elif was_cut(first):
        await session.chat("whole-again", {**forced, "max_tokens": ROOM_TO_THINK, "logprobs": True})
    for place in _PLACES:
        limit = _limit(session.transcript, place)
        if limit is not None:
            cut: dict[str, Json] = {**forced, "max_tokens": limit}
            await session.chat(place, cut)
            await session.chat(f"{place}-stream", {**cut, "stream": True, "stream_options": {"include_usage": True}})


def _limit(transcript: Transcript, place: str) -> int | None:
    """Return how many tokens end the call at this place, ``None`` where that is not known."""
    whole = last_look(transcript, "whole")
    if not isinstance(whole, reply.Answer) or not calls_of(whole) or was_cut(whole) or whole.finish == "length":
        return None
    if place == "arguments":
        spent = whole.usage.completion if whole.usage is not None else None
        return spent - _BEFORE_THE_END if spent is not None and spent > _BEFORE_THE_END else None
    begun = string(dig(function_of(whole), "name"))[:_OF_THE_NAME]
    if not markup_of(whole) or not begun:
        return None
    said = ""
    for count, entry in enumerate(whole.first.logprobs, 1):
        said += string(dig(entry, "token"))
        if begun in said:
            return count
    return None


def judge(transcript: Transcript, _: ToolsTruncatedParams) -> Iterator[Finding]:
    """Judge each cut in both modes, then the modes against one another."""
    whole, control = last_look(transcript, "whole"), reply_at(transcript, "control")
    if _limit(transcript, "arguments") is None:
        yield _no_whole(whole, control)
        return
    assert isinstance(whole, reply.Answer)
    for place in _PLACES:
        if _limit(transcript, place) is None:
            continue
        cut: list[reply.Answer] = []
        for suffix, mode in _MODES.items():
            answer = reply_at(transcript, f"{place}{suffix}")
            ended = _length(Part(mode=mode), place, answer, whole)
            yield ended
            if isinstance(answer, reply.Answer) and answer.finish == "length":
                cut.append(answer)
                yield from _shown(Part(mode=mode), place, answer, markup_of(whole))
        if len(cut) == len(_MODES):
            yield _same(place, cut[0], cut[1], markup_of(whole))


def _no_whole(whole: reply.Reply | None, control: reply.Reply | None) -> Finding:
    part = Part()
    missing = part.unless_answered(_LENGTH, whole, control)
    if missing is not None:
        return missing
    assert isinstance(whole, reply.Answer)
    if not calls_of(whole):
        finding = no_call(_LENGTH, part, whole, control, string(dig(function_of(whole), "name")))
        if finding.outcome is not Outcome.NO_EFFECT:
            return finding
        return part.undetermined(_LENGTH, f"there is no call to cut: {finding.why}", whole)
    why = "there is no whole call to cut" if whole.finish == "length" else "usage does not say how long the call is"
    return part.undetermined(_LENGTH, f"{why}: {quote(calls_of(whole)[0].arguments)}", whole)


def _length(part: Part, place: str, answer: reply.Reply | None, whole: reply.Answer) -> Finding:
    if isinstance(answer, reply.Refusal):
        why = f"cut in the {place}: refused for what the model said, as with more room it is not: {answer.what}"
        return part.violated(_LENGTH, why, answer, whole)
    missing = part.unless_answered(_LENGTH, answer, whole)
    if missing is not None:
        return missing
    assert isinstance(answer, reply.Answer)
    limit = number(dig(answer.exchange.request, "max_tokens"))
    spent = answer.usage.completion if answer.usage is not None else None
    why = f"cut in the {place} after {limit} tokens: finish_reason {answer.finish!r}"
    if answer.finish == "length":
        return part.held(_LENGTH, why, answer)
    if spent is not None and limit is not None and spent < limit:
        why = f"the answer ended by itself after {spent} of {limit} tokens, where the first one went on"
        return part.undetermined(_LENGTH, why, answer, whole)
    return part.violated(_LENGTH, why, answer)


def _shown(part: Part, place: str, answer: reply.Answer, markup: str) -> Iterator[Finding]:
    text = answer.text.strip()
    if _is_markup(text, markup):
        yield part.violated(_CLEAN, f"cut in the {place}, the begun call is the text: {quote(text)}", answer)
    else:
        yield part.held(_CLEAN, f"cut in the {place}, {f'text: {quote(text)}' if text else 'no text'}", answer)
    for call in calls_of(answer):
        try:
            parse(call.arguments)
        except ValueError:
            continue
        why = f"cut in the {place}, and the arguments are whole JSON: {quote(call.arguments)}"
        yield part.violated(_HALF, why, answer)
        return
    yield part.held(_HALF, f"cut in the {place}: {_what(answer, markup)}", answer)


def _is_markup(text: str, markup: str) -> bool:
    """Tell whether a text begins as the whole call did; without logprobs, as calls of any format do."""
    packed, known = "".join(text.split()), "".join(markup.split())
    if not packed:
        return False
    return known.startswith(packed[:12]) if known else packed.startswith(("<", "{", "["))


def _what(answer: reply.Answer, markup: str) -> str:
    seen = ["a part of the call"] if calls_of(answer) else []
    seen += ["the call as text"] if _is_markup(answer.text.strip(), markup) else []
    return " and ".join(seen) or "nothing of the call"


def _same(place: str, plain: reply.Answer, stream: reply.Answer, markup: str) -> Finding:
    part = Part(mode=Mode.STREAM)
    shown = [_what(answer, markup) for answer in (plain, stream)]
    if shown[0] == shown[1]:
        return part.held(_SAME, f"cut in the {place}, both show {shown[0]}", plain, stream)
    return part.violated(_SAME, f"cut in the {place}: plain {shown[0]}, streamed {shown[1]}", plain, stream)


PROBE = Probe(
    id="tools_truncated",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_LENGTH,
            rule="An answer that max_tokens cuts inside a call ends with finish_reason “length”.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_CLEAN,
            rule="The content of an answer that was cut inside a call does not show the begun call.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/function-calling",
        ),
        Check(
            id=_HALF,
            rule="The arguments of a call that was cut inside them are not completed to JSON that looks whole.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/function-calling",
        ),
        Check(
            id=_SAME,
            rule="What is shown of a cut call is the same with streaming and without.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/function-calling#streaming",
        ),
    ),
    params=ToolsTruncatedParams,
    drive=drive,
    judge=judge,
    requests=6,
    prompt_tokens=1590,
    output_tokens=340,
)
