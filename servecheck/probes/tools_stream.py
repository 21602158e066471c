"""The deltas of a streamed tool call add up to the call that comes without streaming.

What it does: forces the same strict call at temperature 0 plain and streamed, once with an argument of 6 random letters
and once with one of 48, since faults depend on where the pieces are cut. The joined arguments must be the plain ones;
id, name and type are given once, by the first delta; every delta says by its index which call it belongs to. A call
that was cut by ``max_tokens`` is asked for once more with other letters. One streamed call is of a function that takes
nothing: its arguments are an empty object, and no empty text.

Why it matters: clients join the pieces as strings and call the function with what comes of it.

How it could be fooled: two greedy answers may part in white space, so arguments are compared as JSON values; text
behind a call is legal, and often shown in one mode only, so contents are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._forcing import asked, roomier
from servecheck.probes._steps import reply_at, sent
from servecheck.probes._tools import (
    SMALL_TALK,
    calls_of,
    code_tool,
    function_of,
    holds_whole_call,
    no_call,
    thought_too_long,
    was_cut,
    whole_calls,
)
from servecheck.read import reply
from servecheck.read.text import dig, number, parse, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/guides/function-calling#streaming"
_CHUNK = "https://platform.openai.com/docs/api-reference/chat/streaming"
_COMES, _EQUAL = "streamed-call-comes-as-deltas", "streamed-call-equals-the-plain-one"
_ONCE, _INDEX = "streamed-call-is-introduced-once", "every-call-delta-has-its-index"
_FINISH, _CLEAN = "streamed-call-finishes-as-the-plain-one", "streamed-call-is-not-shown-as-text-too"
_EMPTY = "call-without-arguments-has-an-empty-object"
_LETTERS = (6, 48)
_PART = Part(mode=Mode.STREAM)


class ToolsStreamParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default=SMALL_TALK, description="Small talk that calls for no tool.")
    max_tokens: int = Field(default=160, ge=64, le=4096, description="Room for a call with an argument of 48 letters.")


async def drive(session: Session, params: ToolsStreamParams, _: Transcript | None) -> None:
    """Control, then a pair for each length, once more where either was cut."""
    base = asked(params.prompt, params.max_tokens)
    await session.chat("control", base)
    for letters in _LETTERS:
        for again in ("", "-again"):
            tool = code_tool(f"fn_{session.nonce(8)}", session.nonce(letters), strict=True)
            forced: dict[str, Json] = {**base, "tools": [tool], "tool_choice": "required"}
            pair = [
                reply.chat(await session.chat(f"plain-{letters}{again}", forced)),
                reply.chat(await session.chat(f"stream-{letters}{again}", {**forced, "stream": True})),
            ]
            if not any(was_cut(each) for each in pair):
                break
            if any(thought_too_long(each) for each in pair):
                base = roomier(base)
    nothing: Json = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    function: Json = {
        "name": f"fn_{session.nonce(8)}",
        "description": "Says hello.",
        "parameters": nothing,
        "strict": True,
    }
    bare: dict[str, Json] = {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
    await session.chat("stream-empty", {**base, **bare, "stream": True})


def judge(transcript: Transcript, _: ToolsStreamParams) -> Iterator[Finding]:
    """Judge the last pair of each length."""
    control = reply_at(transcript, "control")
    for letters in _LETTERS:
        again = "-again" if transcript.get(f"stream-{letters}-again") is not None else ""
        plain, stream = (reply_at(transcript, f"{mode}-{letters}{again}") for mode in ("plain", "stream"))
        yield from _judge(plain, stream, control, letters)
    yield from _empty(reply_at(transcript, "stream-empty"), reply_at(transcript, f"stream-{_LETTERS[0]}"))


def _empty(stream: reply.Reply | None, other: reply.Reply | None) -> Iterator[Finding]:
    """Judge the call of a function that takes nothing, where a call that takes something comes."""
    if stream is None or not calls_of(other):
        return
    missing = _PART.unless_answered(_EMPTY, stream, other, what="a function without parameters")
    if missing is not None:
        yield missing
    calls = calls_of(stream)
    if not isinstance(stream, reply.Answer) or not calls or stream.finish == "length":
        return
    arguments, name = calls[0].arguments, string(dig(stream.exchange.request, "tools", 0, "function", "name"))
    if name and calls[0].name != name:
        said = f"a function without parameters, {quote(name)}, is called {quote(calls[0].name or '')}"
        yield _PART.violated(_EMPTY, said, stream)
        return
    try:
        value = parse(arguments)
    except ValueError:
        yield _PART.violated(_EMPTY, f"the arguments of a function without parameters are {quote(arguments)}", stream)
        return
    said = f"the arguments of a function without parameters are {quote(arguments)}"
    if isinstance(value, dict):
        yield _PART.held(_EMPTY, said, stream)
    elif not value:
        yield _PART.violated(_EMPTY, said, stream)
    # Anything else the model made up: whether its arguments are enforced is judged by another row.


def _judge(
    plain: reply.Reply | None, stream: reply.Reply | None, control: reply.Reply | None, letters: int
) -> Iterator[Finding]:
    missing = _PART.unless_answered(_COMES, stream, control)
    if missing is not None:
        yield missing
        return
    assert isinstance(stream, reply.Answer)
    name = string(dig(function_of(stream), "name"))
    if not calls_of(stream):
        yield no_call(_COMES, _PART, stream, control, name)
        return
    if was_cut(stream):
        why = f"the call was cut by max_tokens twice: {quote(calls_of(stream)[0].arguments, 60)}"
        yield _PART.undetermined(_COMES, why, stream)
        return
    pieces = calls_of(stream)[0].pieces
    yield _PART.held(_COMES, f"arguments of {letters} letters in {pieces} piece(s)", stream, pieces=pieces)
    yield _equal(plain, stream, letters)
    deltas = _deltas(stream)
    yield _introduced(stream, deltas)
    yield _numbered(stream, deltas)
    text = stream.text
    if name and name in text and holds_whole_call(text, name):
        yield _PART.violated(_CLEAN, f"the call comes as deltas and as text: {quote(text)}", stream)
    else:
        yield _PART.held(_CLEAN, f"text beside the call: {quote(text)}" if text else "no text beside the call", stream)
    if isinstance(plain, reply.Answer) and calls_of(plain) and not was_cut(plain):
        same = stream.finish == plain.finish
        why = f"finish_reason {stream.finish!r} streamed, {plain.finish!r} plain"
        yield (_PART.held if same else _PART.violated)(_FINISH, why, stream, plain)


def _equal(plain: reply.Reply | None, stream: reply.Answer, letters: int) -> Finding:
    joined = whole_calls(stream)
    values: list[Json] = []
    for call in joined:
        try:
            values.append(parse(call.arguments))
        except ValueError as error:
            why = f"joined arguments are not JSON ({error}): {quote(call.arguments)}"
            if isinstance(plain, reply.Answer) and calls_of(plain):
                why += f"; plain {quote(calls_of(plain)[0].arguments)}"
            return _PART.violated(_EQUAL, why, stream, *sent(plain))
    if not isinstance(plain, reply.Answer) or not calls_of(plain) or was_cut(plain):
        what = plain.what if isinstance(plain, reply.Refusal | reply.Failure) else "it holds no whole call"
        return _PART.undetermined(_EQUAL, f"nothing to compare with, the plain reply: {what}", stream, *sent(plain))
    whole = whole_calls(plain)
    for call, value, wanted in zip(joined, values, whole, strict=False):
        try:
            right = parse(wanted.arguments)
        except ValueError as error:
            why = f"the plain arguments are not JSON ({error}): {quote(wanted.arguments)}"
            return _PART.undetermined(_EQUAL, why, stream, plain)
        if (call.name, value) != (wanted.name, right):
            streamed = f"{quote(call.name or '', 60)} with {quote(call.arguments)}"
            why = f"{streamed} streamed, {quote(wanted.name or '', 60)} with {quote(wanted.arguments)} plain"
            return _PART.violated(_EQUAL, why, stream, plain)
    if len(joined) != len(whole):
        why = f"{len(joined)} call(s) streamed, {len(whole)} plain; two greedy answers may part behind the first call"
        return _PART.undetermined(_EQUAL, why, stream, plain)
    return _PART.held(_EQUAL, f"{letters} letters: {quote(joined[0].arguments)} in both modes", stream, plain)


def _deltas(stream: reply.Answer) -> list[Json]:
    """Return all deltas of calls of the first choice as they came; the stream could be read once already."""
    found: list[Json] = []
    for event in stream.stream.events if stream.stream else ():
        try:
            body = parse(event.data)
        except ValueError:
            continue
        choices = dig(body, "choices")
        for choice in choices if isinstance(choices, list) else ():
            calls = dig(choice, "delta", "tool_calls")
            if isinstance(calls, list) and not dig(choice, "index"):
                found += calls
    return found


def _introduced(stream: reply.Answer, deltas: list[Json]) -> Finding:
    for place, call in enumerate(calls_of(stream)):
        mine = [each for each in deltas if (number(dig(each, "index")) or 0) == call.index]
        first = mine[0] if mine else None
        for what, path in (("id", ("id",)), ("name", ("function", "name"))):
            if not string(dig(first, *path)):
                return _PART.violated(_ONCE, f"the first delta of call {place + 1} has no {what}", stream)
        if len(call.ids) > 1:
            why = f"{len(call.ids)} ids in the deltas of one call: {', '.join(call.ids[:3])}"
            return _PART.violated(_ONCE, why, stream)
        given = [name for each in mine if (name := string(dig(each, "function", "name")))]
        if len(given) > 1:
            why = f"{len(given)} deltas of one call give a name, which clients join to {quote(call.name or '', 60)}"
            return _PART.violated(_ONCE, why, stream)
        types = {string(kind) for each in mine if (kind := dig(each, "type")) is not None}
        if types != {"function"}:
            said = ", ".join(sorted(types)) or "missing"
            return _PART.violated(_ONCE, f"the type of call {place + 1} is {said} where it is “function”", stream)
    return _PART.held(_ONCE, f"id, name and type of {len(calls_of(stream))} call(s) come with the first delta", stream)


def _numbered(stream: reply.Answer, deltas: list[Json]) -> Finding:
    indices = [number(dig(each, "index")) for each in deltas]
    lost = sum(index is None for index in indices)
    if lost:
        return _PART.violated(_INDEX, f"{lost} of {len(indices)} deltas have no index", stream)
    seen = list(dict.fromkeys(indices))
    if seen != list(range(len(seen))):
        return _PART.violated(_INDEX, f"indices come in the order {seen}", stream)
    return _PART.held(_INDEX, f"{len(indices)} deltas of {len(seen)} call(s), numbered from 0", stream)


PROBE = Probe(
    id="tools_stream",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_COMES,
            rule="A forced call that is streamed comes as deltas of tool_calls.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_EQUAL,
            rule="The joined arguments are those of the same call without streaming, whatever their length.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_ONCE,
            rule="The first delta of a call has its id, name and type; later ones repeat no name and change no id.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_INDEX,
            rule="Every delta of a call has its index, counted from 0.",
            level=Level.MUST,
            source=_CHUNK,
        ),
        Check(
            id=_CLEAN,
            rule="A call that comes as deltas is not shown in the content as well.",
            level=Level.MUST,
            source=_CHUNK,
        ),
        Check(
            id=_EMPTY,
            rule="A function without parameters is called by name, and its arguments are the JSON text of an object.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/pull/37098",
        ),
        Check(
            id=_FINISH,
            rule="finish_reason of a call is the same in both modes.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/25054",
        ),
    ),
    params=ToolsStreamParams,
    drive=drive,
    judge=judge,
    requests=6,
    prompt_tokens=1190,
    output_tokens=360,
)
