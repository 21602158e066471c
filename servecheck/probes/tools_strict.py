"""The arguments of a tool with ``strict: true`` fit its schema, whatever the schema.

What it does: forces calls of strict tools with four schemas (one random word, the word inside two objects, a list of
two words, a number between two bounds that nobody would guess) to a prompt of small talk, and the second of them
streamed too. The control is the first schema without ``strict``. A call that was cut by ``max_tokens`` is asked for
once more.

Why it matters: code behind a strict tool reads its arguments without looking twice.

How it could be fooled: engines that enforce every schema are right without ``strict`` too; that is no fault. Where the
arguments are as wrong as without it, strict was ignored. Bounds are a ``should``, since an engine may refuse them by
name and say so in its documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._forcing import CallParams, asked, force
from servecheck.probes._steps import reply_at, sent
from servecheck.probes._tools import (
    calls_of,
    fault_of,
    function_of,
    last_look,
    no_call,
    was_cut,
    whole_calls,
)
from servecheck.read import reply
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/guides/function-calling#strict-mode"
_CALLED, _FIT, _BOUNDS = "strict-tool-is-called", "strict-arguments-fit-their-schema", "strict-bounds-are-kept"
_SHAPES = ("word", "nested", "nested-stream", "list", "bounds")


class ToolsStrictParams(CallParams):
    """What may be chosen in YAML."""


async def drive(session: Session, params: ToolsStrictParams, _: Transcript | None) -> None:
    """Control without tools, control without strict, then one forced call for each schema."""
    base = asked(params.prompt, params.max_tokens)
    await session.chat("control", base)
    for shape in ("loose", *_SHAPES):
        base = await force(session, shape, base, partial(_tools, session, shape))


def _tools(session: Session, shape: str) -> dict[str, Json]:
    tool = _tool(session, "word" if shape == "loose" else shape, strict=shape != "loose")
    forced: dict[str, Json] = {"tools": [tool], "tool_choice": "required"}
    return {**forced, "stream": True} if shape.endswith("-stream") else forced


def _tool(session: Session, shape: str, *, strict: bool) -> Json:
    code = session.nonce(8)
    word: Json = {"type": "string", "enum": [code]}
    inner: Json = word
    if shape.startswith("nested"):
        inner = _object("box", _object("label", word))
    elif shape == "list":
        inner = {"type": "array", "items": word, "minItems": 2, "maxItems": 2}
    elif shape == "bounds":
        low = 1000 + sum(ord(letter) for letter in code)
        inner = {"type": "integer", "minimum": low, "maximum": low + 8}
    function: dict[str, Json] = {
        "name": f"fn_{session.nonce(8)}",
        "description": "Records a value.",
        "parameters": _object("value", inner),
    }
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _object(name: str, inner: Json) -> Json:
    return {"type": "object", "properties": {name: inner}, "required": [name], "additionalProperties": False}


def judge(transcript: Transcript, _: ToolsStrictParams) -> Iterator[Finding]:
    """Judge each schema."""
    control = reply_at(transcript, "control")
    ignored = all(_misfit(last_look(transcript, shape)) for shape in ("loose", "word"))
    for shape in _SHAPES:
        part = Part(mode=Mode.STREAM if shape.endswith("-stream") else Mode.NON_STREAM)
        yield from _judge(transcript, shape, part, control, ignored=ignored)


def _misfit(found: reply.Reply | None) -> str:
    """Return why the whole calls of a reply do not fit; empty where they do, and where there is none."""
    if not isinstance(found, reply.Answer):
        return ""
    schema = dig(function_of(found), "parameters")
    faults = (fault_of(call.arguments, schema) for call in whole_calls(found))
    return next((fault for fault in faults if fault), "")


def _judge(
    transcript: Transcript, shape: str, part: Part, control: reply.Reply | None, *, ignored: bool
) -> Iterator[Finding]:
    answer = last_look(transcript, shape)
    check = _BOUNDS if shape == "bounds" else _FIT
    loose, word = last_look(transcript, "loose"), last_look(transcript, "word")
    # Once the simplest strict tool was answered, a refusal is about the schema.
    of_schema = shape != "word" and isinstance(word, reply.Answer)
    missing = part.unless_answered(check if of_schema else _CALLED, answer, control)
    if missing is not None:
        yield missing
        return
    assert isinstance(answer, reply.Answer)
    if not calls_of(answer):
        yield no_call(_CALLED, part, answer, control, string(dig(function_of(answer), "name")))
        return
    if was_cut(answer):
        why = f"{shape}: the call was cut by max_tokens twice: {quote(calls_of(answer)[0].arguments, 60)}"
        yield part.undetermined(_CALLED, why, answer)
        return
    yield part.held(_CALLED, f"{shape}: a call of {quote(calls_of(answer)[0].name or '', 60)}", answer)
    fault = _misfit(answer)
    arguments = quote(calls_of(answer)[0].arguments)
    if not fault:
        yield part.held(check, f"{shape}: {arguments}", answer)
    elif ignored:
        yield part.no_effect(check, f"{shape}: {fault}: {arguments}; no better without strict", answer, *sent(loose))
    else:
        yield part.violated(check, f"{shape}: {fault}: {arguments}", answer)


PROBE = Probe(
    id="tools_strict",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_FIT,
            rule="With strict: true arguments fit enums, nested objects and lists, in both modes.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_CALLED,
            rule="A strict tool is called where a call is required.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_BOUNDS,
            rule="With strict: true a number keeps to minimum and maximum.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/structured-outputs#supported-schemas",
        ),
    ),
    params=ToolsStrictParams,
    drive=drive,
    judge=judge,
    requests=7,
    prompt_tokens=2140,
    output_tokens=460,
)
