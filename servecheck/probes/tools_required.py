"""``tool_choice: required`` makes the model call the tool.

What it does: offers one function whose name and only argument value are random words, to a prompt of small talk that
calls for no tool, plain and streamed, as most applications send it and with ``strict: true``. The control is the same
request without tools. A call of that name can only come from the server's constraint. An answer that was cut by
``max_tokens`` is asked for again with other words.

Why it matters: an agent framework that forces a call and gets prose stops there; servers answer 200 with prose where
the model's template has no tools, or where no tool parser is set.

How it could be fooled: by a template that prints the tools into the prompt of a strong model, which may then call of
its own will; the small talk makes that unlikely. Neither vLLM nor SGLang enforces the arguments without ``strict``,
which is why wrong arguments are only a ``should`` there.
"""

from __future__ import annotations

from collections.abc import Iterator

import jsonschema
from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.text import dig, parse, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create#chat-create-tool_choice"
_ARMS = {"plain": (False, False), "stream": (True, False), "strict": (False, True), "strict-stream": (True, True)}


class ToolsRequiredParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Good morning! How are you today?", description="Small talk that calls for no tool.")
    max_tokens: int = Field(default=160, ge=32, le=4096, description="Room for a call; 29 to 85 tokens were used.")


async def drive(session: Session, params: ToolsRequiredParams, _: Transcript | None) -> None:
    """Control, then a forced call in four arms; a call that was cut is asked for once more."""
    base: dict[str, Json] = {
        "messages": [{"role": "user", "content": params.prompt}],
        "max_tokens": params.max_tokens,
        "temperature": 0,
    }
    await session.chat("control", base)
    for arm, (stream, strict) in _ARMS.items():
        for step in (arm, f"{arm}-again"):
            forced = {**base, "tools": [_tool(session, strict=strict)], "tool_choice": "required"}
            if stream:
                forced["stream"] = True
            if not _was_cut(reply.chat(await session.chat(step, forced))):
                break


def _tool(session: Session, *, strict: bool) -> Json:
    function: dict[str, Json] = {
        "name": f"fn_{session.nonce(8)}",
        "description": "Records a code.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "enum": [session.nonce()]}},
            "required": ["code"],
            "additionalProperties": False,
        },
    }
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _was_cut(answer: reply.Reply) -> bool:
    return isinstance(answer, reply.Answer) and answer.finish == "length" and not _whole_call(answer)


def _whole_call(answer: reply.Answer) -> bool:
    return any(isinstance(_arguments(call), dict) for call in answer.first.tool_calls)


def _arguments(call: reply.ToolCall) -> Json:
    try:
        return parse(call.arguments)
    except ValueError:
        return None


def judge(transcript: Transcript, _: ToolsRequiredParams) -> Iterator[Finding]:
    """Judge every arm's last attempt."""
    found = transcript.get("control")
    control = reply.chat(found) if found is not None else None
    for arm, (stream, strict) in _ARMS.items():
        exchange = transcript.get(f"{arm}-again") or transcript.get(arm)
        if exchange is not None:
            part = Part(mode=Mode.STREAM if stream else Mode.NON_STREAM)
            yield from _judge(part, reply.chat(exchange), control, strict=strict)


def _judge(part: Part, answer: reply.Reply, control: reply.Reply | None, *, strict: bool) -> Iterator[Finding]:
    called = "required-tool-is-called"
    missing = part.unless_answered(called, answer, control)
    if missing is not None:
        yield missing
        return
    assert isinstance(answer, reply.Answer)
    function = dig(answer.exchange.request, "tools", 0, "function")
    name = string(dig(function, "name"))
    calls = answer.first.tool_calls
    if not calls:
        yield _no_call(part, answer, control, name)
        return
    if _was_cut(answer):
        why = f"the call was cut by max_tokens twice: {quote(calls[0].arguments, 60)}"
        yield part.undetermined(called, why, answer)
        return
    yield part.held(called, f"{len(calls)} call(s) of {calls[0].name}", answer, control or answer)
    other = next((call for call in calls if call.name != name), None)
    if other is not None:
        yield part.violated("called-tool-is-the-offered-one", f"called {other.name!r}, offered {name!r}", answer)
    else:
        yield part.held("called-tool-is-the-offered-one", f"called {name!r}", answer)
    ids = [call.id for call in calls]
    if None in ids or len(set(ids)) != len(ids):
        yield part.violated("call-has-an-id-of-its-own", f"ids are {ids}", answer)
    else:
        yield part.held("call-has-an-id-of-its-own", f"id {quote(ids[0] or '', 40)}", answer)
    yield from _judge_arguments(part, answer, calls[0], dig(function, "parameters"), strict=strict)
    finish = answer.finish
    right = finish in ("tool_calls", "stop")
    why = f"finish_reason is {finish!r}"
    yield (part.held if right else part.violated)("finish-fits-a-call", why, answer)


def _no_call(part: Part, answer: reply.Answer, control: reply.Reply | None, name: str) -> Finding:
    check = "required-tool-is-called"
    if name and name in answer.text:
        why = f"the call came back as text, which no client looks for: {quote(answer.text)}"
        return part.violated(check, why, answer)
    if name and name in answer.first.reasoning and answer.finish != "length":
        return part.violated(check, f"the call came back as reasoning: {quote(answer.first.reasoning)}", answer)
    if answer.finish == "length" and not answer.text and answer.first.reasoning:
        return part.undetermined(check, "max_tokens went into the reasoning", answer)
    seen = quote(answer.text)
    if isinstance(control, reply.Answer):
        return part.no_effect(check, f"200 without a call, text as without tools: {seen}", answer, control)
    return part.undetermined(check, f"200 without a call, and no control to compare with: {seen}", answer)


def _judge_arguments(
    part: Part, answer: reply.Answer, call: reply.ToolCall, schema: Json, *, strict: bool
) -> Iterator[Finding]:
    try:
        arguments = parse(call.arguments)
    except ValueError as error:
        yield part.violated("arguments-are-json", f"not JSON ({error}): {quote(call.arguments)}", answer)
        return
    yield part.held("arguments-are-json", quote(call.arguments, 60), answer)
    errors = jsonschema.Draft202012Validator(schema if isinstance(schema, dict) else {}).iter_errors(arguments)
    first = next(iter(errors), None)
    check = "strict-arguments-match-the-schema" if strict else "arguments-match-the-schema"
    if first is None:
        yield part.held(check, f"valid: {quote(call.arguments, 60)}", answer)
    else:
        hint = "" if strict else "; vLLM and SGLang enforce arguments only with strict: true"
        yield part.violated(check, f"{first.message}: {quote(call.arguments, 60)}{hint}", answer)


PROBE = Probe(
    id="tools_required",
    doc=__doc__ or "",
    checks=(
        Check(
            id="required-tool-is-called",
            rule="With tool_choice: required the reply is at least one tool call.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="called-tool-is-the-offered-one",
            rule="Every call names a function that the request offers.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="call-has-an-id-of-its-own",
            rule="Every call has an id, and no two calls have the same one.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object",
        ),
        Check(
            id="arguments-are-json",
            rule="A call's arguments are a JSON text.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object",
        ),
        Check(
            id="arguments-match-the-schema",
            rule="A call's arguments fit the function's parameters, also without strict.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/function-calling",
        ),
        Check(
            id="strict-arguments-match-the-schema",
            rule="With strict: true a call's arguments fit the function's parameters.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/function-calling#strict-mode",
        ),
        Check(
            id="finish-fits-a-call",
            rule="finish_reason of a forced call is “tool_calls” or “stop”.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
    ),
    params=ToolsRequiredParams,
    drive=drive,
    judge=judge,
    requests=5,
    prompt_tokens=700,
    output_tokens=500,
)
