"""``tool_choice: required`` makes the model call the tool.

What it does: offers one function whose name and only argument value are random words, to a prompt of small talk that
calls for no tool, plain and streamed, as most applications send it and with ``strict: true``. The control is the same
request without tools. A call of that name can only come from the server's constraint. An answer that was cut by
``max_tokens`` is asked for once more with other words, and with more room where a thought used it up.

Why it matters: an agent framework that forces a call and gets prose stops there; servers answer 200 with prose where
the model's template has no tools, or where no tool parser is set.

How it could be fooled: by a template that prints the tools into the prompt of a strong model, which may then call of
its own will; the small talk makes that unlikely. Neither vLLM nor SGLang enforces the arguments without ``strict``,
which is why wrong arguments are only a ``should`` there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice

import jsonschema
from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.text import dig, parse, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create#chat-create-tool_choice"
_ROOM_TO_THINK = 1024  # tokens; a thought that ends takes a few hundred, and every served context holds as many
_BRACES = 64  # a call opens with one of the first braces; a hostile reply may hold a million
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
            answer = reply.chat(await session.chat(step, forced))
            if not _was_cut(answer):
                break
            if _thought_too_long(answer):
                base = {**base, "max_tokens": max(params.max_tokens, _ROOM_TO_THINK)}


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
    """Tell whether a length stop came before the first call was whole: engines show such a call as text or in part."""
    return isinstance(answer, reply.Answer) and answer.finish == "length" and not _whole_calls(answer)


def _thought_too_long(answer: reply.Reply) -> bool:
    return isinstance(answer, reply.Answer) and not answer.text.strip() and bool(answer.first.reasoning)


def _whole_calls(answer: reply.Answer) -> list[reply.ToolCall]:
    """Return the calls that are not in doubt: behind a length stop, those whose arguments end and fit their schema.

    Some engines close the braces of a call that was cut, so it parses and is still not what the model would have sent.
    """
    calls = list(answer.first.tool_calls)
    if answer.finish != "length":
        return calls
    return [call for call in calls if not _fault(call.arguments, _parameters(answer))]


def _function(answer: reply.Answer) -> Json:
    return dig(answer.exchange.request, "tools", 0, "function")


def _parameters(answer: reply.Answer) -> Json:
    return dig(_function(answer), "parameters")


def _fault(arguments: str, schema: Json) -> str:
    """Return why arguments are not what the schema wants, an empty string where they are."""
    try:
        value = parse(arguments)
    except ValueError as error:
        return f"not JSON: {error}"
    errors = jsonschema.Draft202012Validator(schema if isinstance(schema, dict) else {}).iter_errors(value)
    first = next(iter(errors), None)
    return first.message if first is not None else ""


def judge(transcript: Transcript, _: ToolsRequiredParams) -> Iterator[Finding]:
    """Judge every arm's last attempt."""
    found = transcript.get("control")
    control = reply.chat(found) if found is not None else None
    for arm, (stream, strict) in _ARMS.items():
        looks = [reply.chat(seen) for name in (f"{arm}-again", arm) if (seen := transcript.get(name)) is not None]
        # More room may be refused where the context is short; that says nothing about the call.
        answer = next((look for look in looks if not isinstance(look, reply.Refusal)), looks[-1] if looks else None)
        yield from _judge(Part(mode=Mode.STREAM if stream else Mode.NON_STREAM), answer, control, strict=strict)


def _judge(part: Part, answer: reply.Reply | None, control: reply.Reply | None, *, strict: bool) -> Iterator[Finding]:
    called = "required-tool-is-called"
    missing = part.unless_answered(called, answer, control)
    if missing is not None:
        yield missing
        return
    assert isinstance(answer, reply.Answer)
    name = string(dig(_function(answer), "name"))
    calls = answer.first.tool_calls
    if not calls:
        yield _no_call(part, answer, control, name)
        return
    whole = _whole_calls(answer)
    if not whole:
        why = f"the call was cut by max_tokens twice: {quote(calls[0].arguments, 60)}"
        yield part.undetermined(called, why, answer)
        return
    yield part.held(called, f"{len(calls)} call(s) of {quote(calls[0].name or '', 60)}", answer, control or answer)
    other = next((call for call in whole if call.name != name), None)
    if other is not None:
        said = quote(other.name, 60) if other.name else "a function without a name"
        yield part.violated("called-tool-is-the-offered-one", f"called {said}, offered {quote(name)}", answer)
    else:
        yield part.held("called-tool-is-the-offered-one", f"called {quote(name)}", answer)
    yield _judge_ids(part, answer)
    yield from _judge_arguments(part, answer, whole, strict=strict)
    finish = answer.finish
    # Behind a length stop the first call is whole and another was begun; nothing is wrong with the reason.
    right = finish in ("tool_calls", "stop", "length")
    why = f"finish_reason is {finish!r}"
    yield (part.held if right else part.violated)("finish-fits-a-call", why, answer)


def _judge_ids(part: Part, answer: reply.Answer) -> Finding:
    check = "call-has-an-id-of-its-own"
    calls = answer.first.tool_calls
    changing = next((call for call in calls if len(call.ids) > 1), None)
    if changing is not None:
        why = f"one call has {len(changing.ids)} ids in its deltas, which clients count as many calls: "
        return part.violated(check, why + ", ".join(changing.ids[:3]), answer)
    ids = [call.id for call in calls]
    if None in ids or len(set(ids)) != len(ids):
        return part.violated(check, f"ids are {ids}", answer)
    return part.held(check, f"id {quote(ids[0] or '', 40)}", answer)


def _no_call(part: Part, answer: reply.Answer, control: reply.Reply | None, name: str) -> Finding:
    check = "required-tool-is-called"
    thought = answer.first.reasoning
    for text, where in ((answer.text, "text, which no client looks for"), (thought, "reasoning")):
        if name and name in text and (answer.finish != "length" or _holds_whole_call(text, name)):
            return part.violated(check, f"the call came back as {where}: {quote(text)}", answer)
    seen = quote(answer.text)
    # A call opens with a brace, a bracket or a tag, in every format that a parser knows.
    opened = answer.text.lstrip().startswith(("{", "[", "<")) or (name and name in answer.text)
    if answer.finish == "length" and opened:
        return part.undetermined(check, f"the call was cut by max_tokens twice, and is shown as text: {seen}", answer)
    if answer.finish == "length" and not answer.text.strip():
        why = "max_tokens went into the reasoning" if thought else "max_tokens was spent and nothing shown"
        return part.undetermined(check, why, answer)
    if not isinstance(control, reply.Answer):
        return part.undetermined(check, f"200 without a call, and no control to compare with: {seen}", answer)
    if not (answer.text + thought).strip():
        if not (control.text + control.first.reasoning).strip():
            return part.undetermined(check, "empty with tools and without them, so nothing can be seen", answer)
        why = f"200 with neither a call nor text, finish_reason {answer.finish!r}; without tools there is text"
        return part.violated(check, why, answer, control)
    return part.no_effect(check, f"200 without a call, text as without tools: {seen}", answer, control)


def _holds_whole_call(text: str, name: str) -> bool:
    """Tell whether a text holds a whole JSON object that names the function, with or without markup around it."""
    decoder = json.JSONDecoder()
    for found in islice(re.finditer(r"\{", text), _BRACES):
        try:
            value, _ = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            continue
        if name in value.values():
            return True
    return False


def _judge_arguments(
    part: Part, answer: reply.Answer, calls: Sequence[reply.ToolCall], *, strict: bool
) -> Iterator[Finding]:
    """Judge the arguments of all calls; the worst speaks for them."""
    for call in calls:
        try:
            parse(call.arguments)
        except ValueError as error:
            yield part.violated("arguments-are-json", f"not JSON ({error}): {quote(call.arguments)}", answer)
            return
    first = quote(calls[0].arguments, 60)
    yield part.held("arguments-are-json", first, answer)
    check = "strict-arguments-match-the-schema" if strict else "arguments-match-the-schema"
    for call in calls:
        fault = _fault(call.arguments, _parameters(answer))
        if fault:
            hint = "" if strict else "; vLLM and SGLang enforce arguments only with strict: true"
            yield part.violated(check, f"{fault}: {quote(call.arguments, 60)}{hint}", answer)
            return
    yield part.held(check, f"valid: {first}", answer)


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
            rule="Every call has one id, which stays the same in all its deltas, and no two calls have the same one.",
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
            rule="finish_reason of a forced call that was not cut is “tool_calls” or “stop”.",
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
