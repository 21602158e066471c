"""One answer may call several tools, and ``parallel_tool_calls: false`` keeps it to one call.

What it does: forces calls with two tools and asks for both. Where only one comes, ``parallel_tool_calls: true`` is
added, then earlier turns that show two calls in one answer, in the server's own format, which is read from the logprobs
of the first call. With the way that gives several calls, the row on parallel calls repeats it streamed and without the
flag; the row on the flag repeats it with ``false``, plain and streamed.

Why it matters: an agent that reads one call of two does half the work; one that switched parallel calls off because its
tools must run in order gets two at once.

How it could be fooled: by a model that never makes two calls; then neither row can be decided, unless the logprobs show
two calls and one came back. Engines that make several calls, bill them and drop all but the first keep the rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Outcome, Transcript
from servecheck.probe import Cost, Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import answer_at, reply_at, sent
from servecheck.probes._tools import (
    ROOM_TO_THINK,
    calls_of,
    code_tool,
    function_of,
    judge_ids,
    malformed,
    markup_of,
    no_call,
    thought_too_long,
    tokens_of,
)
from servecheck.read import reply
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create#chat-create-parallel_tool_calls"
_GUIDE = "https://platform.openai.com/docs/guides/function-calling#parallel-function-calling"
_SEVERAL, _WHOLE = "one-answer-holds-several-calls", "parallel-calls-are-whole"
_IDS, _DEFAULT = "parallel-calls-have-ids-of-their-own", "parallel-calls-are-the-default"
_ONE = "parallel-off-gives-one-call-at-most"
_WAYS = ("plain", "flag", "shown-joined", "shown-on-lines")
_MODES = {"": Mode.NON_STREAM, "-stream": Mode.STREAM}
_AS_MANY = 0.9  # of the tokens of the plain answer; a stream that has fewer calls and as many tokens lost some


class ToolsParallelParams(Params):
    """What may be chosen in YAML."""

    row: Literal["parallel", "parallel_off"] = Field(
        default="parallel", description="Judge several calls in one answer, or the flag that switches them off."
    )
    prompt: str = Field(default="Please record both codes.", description="A prompt that calls for two calls.")
    max_tokens: int = Field(default=240, ge=64, le=4096, description="Room for two calls.")


async def drive(session: Session, params: ToolsParallelParams, _: Transcript | None) -> None:
    """Find a way to several calls, then go it again with what the row is about."""
    asked: list[Json] = [{"role": "user", "content": params.prompt}]
    base: dict[str, Json] = {"messages": asked, "max_tokens": params.max_tokens, "temperature": 0}
    await session.chat("control", base)
    tools: list[Json] = [code_tool(f"fn_{session.nonce(8)}", session.nonce(6), strict=True) for _ in range(2)]
    forced: dict[str, Json] = {**base, "tools": tools, "tool_choice": "required", "logprobs": True}
    first = reply.chat(await session.chat("plain", forced))
    if not isinstance(first, reply.Answer):
        del forced["logprobs"]
        first = reply.chat(await session.chat("plain", forced))
    elif thought_too_long(first) and not calls_of(first):
        forced["max_tokens"] = max(params.max_tokens, ROOM_TO_THINK)
        first = reply.chat(await session.chat("plain", forced))
    if not isinstance(first, reply.Answer):
        return
    on: dict[str, Json] = {**forced, "parallel_tool_calls": True}
    if not _way(session.transcript):
        await session.chat("flag", on)
    markup = markup_of(first)
    for way, shown in (("shown-joined", _two(markup, "")), ("shown-on-lines", _two(markup, "\n"))):
        if markup and not _way(session.transcript):
            earlier: list[Json] = [*asked, {"role": "assistant", "content": shown}] * 2
            await session.chat(way, {**on, "messages": [*earlier, *asked]})
    way = _way(session.transcript)
    found = session.transcript.get(way) if way else None
    body = found.request if found is not None else None
    if not isinstance(body, dict):
        return
    streamed: dict[str, Json] = {"stream": True, "stream_options": {"include_usage": True}}
    bare = {name: value for name, value in body.items() if name not in ("logprobs", "parallel_tool_calls")}
    if params.row == "parallel":
        flag = {name: value for name, value in body.items() if name == "parallel_tool_calls"}
        await session.chat("several-stream", {**bare, **flag, **streamed})
        if way != "plain":
            await session.chat("default", bare)
    else:
        await session.chat("off", {**bare, "parallel_tool_calls": False})
        await session.chat("off-stream", {**bare, "parallel_tool_calls": False, **streamed})


def _two(markup: str, between: str) -> str:
    """Return a call twice, as one answer would hold it; a JSON list holds both."""
    if markup.startswith("[") and markup.endswith("]"):
        return f"[{markup[1:-1]}, {markup[1:-1]}]"
    return markup + between + markup


def _way(transcript: Transcript) -> str:
    """Return the step that gave several calls, an empty string where none did."""
    return next((way for way in _WAYS if len(calls_of(reply_at(transcript, way))) > 1), "")


def judge(transcript: Transcript, params: ToolsParallelParams) -> Iterator[Finding]:
    """Judge what the row is about."""
    if params.row == "parallel":
        yield from _parallel(transcript)
    else:
        yield from _off(transcript)


# --------------------------------------------------------------------------- several calls


def _parallel(transcript: Transcript) -> Iterator[Finding]:
    way = _way(transcript)
    if not way:
        yield _never(transcript, _SEVERAL)
        return
    for suffix, mode in _MODES.items():
        part = Part(mode=mode)
        plain = answer_at(transcript, way)
        found = reply_at(transcript, "several-stream") if suffix else plain
        missing = part.unless_answered(_SEVERAL, found, plain)
        if missing is not None:
            yield missing
            continue
        assert isinstance(found, reply.Answer)
        calls = calls_of(found)
        yield _several(part, found, plain)
        # Behind a length stop the last call may be cut; that is another row's business.
        fault = malformed(calls[:-1] if found.finish == "length" else calls)
        if fault:
            yield part.violated(_WHOLE, f"of {len(calls)} calls there is one with a fault: {fault}", found)
        else:
            yield part.held(_WHOLE, f"{len(calls)} calls, each with name and arguments", found)
        yield judge_ids(_IDS, part, found)
    yield from _is_default(transcript, way)


def _several(part: Part, found: reply.Answer, plain: reply.Answer | None) -> Finding:
    count = len(calls_of(found))
    if count > 1:
        return part.held(_SEVERAL, f"{count} calls in one answer", found)
    expected = len(calls_of(plain))
    spent, before = _spent(found), _spent(plain)
    why = f"{count} call(s) streamed, {expected} plain"
    if spent is not None and before is not None and spent >= _AS_MANY * before:
        return part.violated(_SEVERAL, f"{why}, with {spent} and {before} tokens: a call was lost", found, *sent(plain))
    return part.undetermined(_SEVERAL, f"{why}; the model may have said less this time", found, *sent(plain))


def _is_default(transcript: Transcript, way: str) -> Iterator[Finding]:
    part = Part()
    found = reply_at(transcript, "plain" if way == "plain" else "default")
    if not isinstance(found, reply.Answer):
        missing = part.unless_answered(_DEFAULT, found, reply_at(transcript, way))
        if missing is not None:
            yield missing
        return
    with_flag = answer_at(transcript, way)
    count = len(calls_of(found))
    if count > 1:
        yield part.held(_DEFAULT, f"{count} calls without parallel_tool_calls", found)
    else:
        why = f"{count} call(s) without parallel_tool_calls, {len(calls_of(with_flag))} with true"
        yield part.violated(_DEFAULT, why, found, *sent(with_flag))


def _never(transcript: Transcript, check: str) -> Finding:
    """Judge a server that never gave two calls: it may have lost one, or its model made none."""
    part = Part()
    control, plain = reply_at(transcript, "control"), reply_at(transcript, "plain")
    missing = part.unless_answered(check, plain, control)
    if missing is not None:
        return missing
    assert isinstance(plain, reply.Answer)
    if not calls_of(plain):
        finding = no_call(check, part, plain, control, _named_in(plain))
        if check == _SEVERAL or finding.outcome is not Outcome.NO_EFFECT:
            return finding
        return part.undetermined(check, f"there is no call that could be one of two: {finding.why}", plain)
    tries = [answer for way in _WAYS if (answer := answer_at(transcript, way)) is not None]
    if check == _SEVERAL:
        for answer in tries:
            opening = _opening(answer)
            wrote = "".join(tokens_of(answer).split())
            if opening and wrote.count(opening) > 1:
                why = f"the model wrote {wrote.count(opening)} calls and one came back: {quote(tokens_of(answer), 160)}"
                return part.violated(check, why, answer)
    why = f"one call each time, in {len(tries)} ways that ask for two"
    return part.undetermined(check, why, *tries)


def _named_in(answer: reply.Answer) -> str:
    """Return the name of the offered tool that an answer without a call speaks of, the first one where of none."""
    names = [string(dig(function_of(answer, place), "name")) for place in range(2)]
    said = answer.text + answer.first.reasoning
    return next((name for name in names if name and name in said), names[0])


def _opening(answer: reply.Answer) -> str:
    """Return what opens a call in what the model wrote, up to the name, without white space."""
    calls = calls_of(answer)
    name = calls[0].name if calls else None
    before, found, _ = "".join(tokens_of(answer).split()).partition(name or "\0")
    return before + found if found and before.startswith(("<", "{", "[")) else ""


def _spent(answer: reply.Answer | None) -> int | None:
    return answer.usage.completion if answer is not None and answer.usage is not None else None


# --------------------------------------------------------------------------- one call at most


def _off(transcript: Transcript) -> Iterator[Finding]:
    way = _way(transcript)
    if not way:
        yield _never(transcript, _ONE)
        return
    plain = answer_at(transcript, way)
    several = len(calls_of(plain))
    for suffix, mode in _MODES.items():
        part = Part(mode=mode)
        found = reply_at(transcript, f"off{suffix}")
        missing = part.unless_answered(_ONE, found, plain)
        if missing is not None:
            yield missing
            continue
        assert isinstance(found, reply.Answer)
        count = len(calls_of(found))
        spent, before = _spent(found), _spent(plain)
        tokens = f" ({spent} tokens, {before} before)" if spent is not None and before is not None else ""
        flag = "true" if dig(plain.exchange.request if plain else None, "parallel_tool_calls") else "not given"
        why = f"{count} call(s) with parallel_tool_calls: false, {several} where it is {flag}{tokens}"
        if count > 1:
            yield part.no_effect(_ONE, why, found, *sent(plain))
        elif not count and found.finish == "length":
            yield part.undetermined(_ONE, f"{why}; the answer was cut: {quote(found.text)}", found, *sent(plain))
        elif not count:
            yield part.violated(_ONE, f"{why}, and one is required: {quote(found.text)}", found, *sent(plain))
        else:
            yield part.held(_ONE, why, found, *sent(plain))


def cost(params: ToolsParallelParams) -> Cost:
    """Return what a trial costs with these parameters; tokens as measured on the reference server."""
    if params.row == "parallel":
        return Cost(requests=3, prompt_tokens=1020, output_tokens=270)
    return Cost(requests=4, prompt_tokens=1510, output_tokens=270)


PROBE = Probe(
    id="tools_parallel",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_SEVERAL,
            rule="An answer holds all the calls that the model made in it, in both modes.",
            level=Level.MUST,
            source=_GUIDE,
        ),
        Check(
            id=_WHOLE,
            rule="Each of several calls has its own name and its own arguments.",
            level=Level.MUST,
            source=_GUIDE,
        ),
        Check(
            id=_IDS,
            rule="Each of several calls has an id of its own.",
            level=Level.MUST,
            source=_GUIDE,
        ),
        Check(
            id=_DEFAULT,
            rule="Several calls in one answer are allowed where parallel_tool_calls is not given.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_ONE,
            rule="With parallel_tool_calls: false an answer holds one call at most.",
            level=Level.MUST,
            source=_SOURCE,
        ),
    ),
    params=ToolsParallelParams,
    drive=drive,
    judge=judge,
    cost=cost,
)
