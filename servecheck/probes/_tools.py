"""Tools with nonces in them, and what can be said of a reply that should hold a call; for the probes of ``tools.*``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from servecheck.model import Finding, Json, Transcript
from servecheck.probe import Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.instance import fault
from servecheck.read.markup import call_mark
from servecheck.read.text import dig, parse, quote, string

__all__ = [
    "ROOM_TO_THINK",
    "SMALL_TALK",
    "Forced",
    "block_tool",
    "calls_of",
    "code_tool",
    "fault_of",
    "flat_tool",
    "function_of",
    "holds_whole_call",
    "imitated",
    "judge_beside",
    "judge_forced",
    "judge_ids",
    "last_look",
    "malformed",
    "markup_of",
    "named",
    "no_call",
    "shows_call",
    "thought_too_long",
    "tokens_of",
    "was_cut",
    "whole_calls",
    "written",
]

SMALL_TALK = "Good morning! How are you today?"
ROOM_TO_THINK = 1024  # tokens; a thought that ends takes a few hundred, and every served context holds as many
_BRACES = 64  # a call opens with one of the first braces; a hostile reply may hold a million
_OPENINGS = ("<", "{", "[")  # every format that a parser knows opens a call with one of them
_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*(\S.*)', re.DOTALL)
_HINT = "; vLLM and SGLang enforce arguments only with strict: true"
_THOUGHT_ENDS = "</think>"
_END_TOKENS = re.compile(r"(?:<\|[^|<>]*\|>|</s>|<eos>|<end_of_turn>|\s)+\Z")


# --------------------------------------------------------------------------- what is sent


def code_tool(name: str, code: str, *, strict: bool) -> Json:
    """Return a function tool that takes one string, for which there is exactly one lawful value."""
    function: dict[str, Json] = {
        "name": name,
        "description": "Records a code.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "enum": [code]}},
            "required": ["code"],
            "additionalProperties": False,
        },
    }
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def flat_tool(name: str, code: str) -> Json:
    """Return the same strict tool in the shape of the responses route."""
    function = dig(code_tool(name, code, strict=True), "function")
    return {"type": "function", **(function if isinstance(function, dict) else {})}


def block_tool(name: str, code: str) -> Json:
    """Return the same tool in the shape of the messages route."""
    function = dig(code_tool(name, code, strict=False), "function")
    return {
        "name": name,
        "description": dig(function, "description"),
        "input_schema": dig(function, "parameters"),
    }


def named(name: str) -> Json:
    """Return the ``tool_choice`` that names a function."""
    return {"type": "function", "function": {"name": name}}


def written(session: Session, text: str) -> dict[str, Json]:
    """Return the fields that make the model write exactly ``text``, as far as the engine has such fields."""
    if session.fingerprint.value("engine") == "sglang":
        return {"regex": re.sub(r"([\\.^$*+?{}\[\]()|])", r"\\\1", text)}
    return {"structured_outputs": {"choice": [text]}}


def imitated(asked: Sequence[Json], markup: str) -> list[Json]:
    """Return two earlier turns in which the same was asked, and answered with this text."""
    return [*asked, {"role": "assistant", "content": markup}] * 2


# --------------------------------------------------------------------------- what came back


def calls_of(found: reply.Reply | None) -> tuple[reply.ToolCall, ...]:
    """Return the calls of a reply, none where it is no answer."""
    return found.first.tool_calls if isinstance(found, reply.Answer) else ()


def markup_of(found: reply.Reply | None) -> str:
    """Return the call of an answer as the model wrote it, read from the logprobs of its tokens; empty where unknown.

    A thought before it and end tokens behind it are left out. An answer that says something else first tells nothing.
    """
    if not isinstance(found, reply.Answer) or found.finish == "length":
        return ""
    text = tokens_of(found)
    offered = dig(found.exchange.request, "tools")
    names = [string(dig(tool, "function", "name")) for tool in offered] if isinstance(offered, list) else []
    alone = text.startswith(_OPENINGS) and len(found.first.tool_calls) == 1
    return text if alone and any(name and name in text for name in names) else ""


def tokens_of(answer: reply.Answer) -> str:
    """Return what the model wrote behind its thought, end tokens left out; empty where there are no logprobs."""
    tokens = "".join(string(dig(entry, "token")) for entry in answer.first.logprobs)
    return _END_TOKENS.sub("", tokens.rpartition(_THOUGHT_ENDS)[2]).strip()


def function_of(answer: reply.Answer, place: int = 0) -> Json:
    """Return the function of a tool that the request offered, in the chat route's shape; others are flat."""
    tool = dig(answer.exchange.request, "tools", place)
    if not isinstance(tool, dict) or "function" in tool:
        return dig(tool, "function")
    return {**tool, "parameters": tool["input_schema"]} if "input_schema" in tool else tool


def fault_of(arguments: str, schema: Json) -> str:
    """Return why arguments are not what the schema wants, an empty string where they are."""
    try:
        value = parse(arguments)
    except ValueError as error:
        return f"not JSON: {error}"
    return fault(value, schema)


def malformed(calls: Sequence[reply.ToolCall]) -> str:
    """Return what makes calls useless to any client, an empty string where nothing does."""
    for call in calls:
        if not call.name:
            return "a call without a name"
        try:
            value = parse(call.arguments)
        except ValueError as error:
            return f"arguments are not JSON ({error}): {quote(call.arguments)}"
        if not isinstance(value, dict):
            return f"arguments are JSON and no object: {quote(call.arguments)}"
    return ""


def last_look(transcript: Transcript, step: str) -> reply.Reply | None:
    """Return the reply to a step that is asked once more where its call was cut.

    More room may be refused where the context is short; that says nothing about the call, so the first look counts.
    """
    looks = [seen for name in (f"{step}-again", step) if (seen := reply_at(transcript, name)) is not None]
    return next((look for look in looks if not isinstance(look, reply.Refusal)), looks[-1] if looks else None)


def was_cut(answer: reply.Reply, place: int = 0) -> bool:
    """Tell whether a length stop came before the first call was whole: engines show such a call as text or in part."""
    return isinstance(answer, reply.Answer) and answer.finish == "length" and not whole_calls(answer, place)


def thought_too_long(answer: reply.Reply) -> bool:
    """Tell whether there is a thought and nothing behind it."""
    return isinstance(answer, reply.Answer) and not answer.text.strip() and bool(answer.first.reasoning)


def whole_calls(answer: reply.Answer, place: int = 0) -> list[reply.ToolCall]:
    """Return the calls that are not in doubt: behind a length stop, those whose arguments end and fit their schema.

    Some engines close the braces of a call that was cut, so it parses and is still not what the model would have sent.
    """
    calls = list(answer.first.tool_calls)
    if answer.finish != "length":
        return calls
    schema = dig(function_of(answer, place), "parameters")
    return [call for call in calls if not fault_of(call.arguments, schema)]


def holds_whole_call(text: str, name: str) -> bool:
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


def shows_call(text: str, name: str) -> bool:
    """Tell whether a text shows the markup of a call, whole or begun: an opening tag or bracket, then the name."""
    found = text.find(name) if name else -1
    return found >= 0 and any(sign in text[:found] for sign in ("{", "<", "["))


# --------------------------------------------------------------------------- a call that was forced


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """The ids of the checks that a probe of forced calls owns."""

    called: str
    offered: str
    own_id: str
    json: str
    loose: str
    strict: str
    finish: str
    clean: str


def judge_forced(
    checks: Forced,
    part: Part,
    answer: reply.Reply | None,
    control: reply.Reply | None,
    *,
    strict: bool,
    place: int = 0,
    unforced: reply.Reply | None = None,
) -> Iterator[Finding]:
    """Judge the reply to a request that forces a call of the tool at ``place``.

    ``control`` is the same request without tools, ``unforced`` one with tools that forces nothing: a call of another
    tool is no effect where that one made it too.
    """
    missing = part.unless_answered(checks.called, answer, control)
    if missing is not None:
        yield missing
        return
    assert isinstance(answer, reply.Answer)
    function = function_of(answer, place)
    name = string(dig(function, "name"))
    calls = answer.first.tool_calls
    whole = whole_calls(answer, place)
    if not whole:
        if calls:
            why = f"the call was cut by max_tokens twice: {quote(calls[0].arguments, 60)}"
            yield part.undetermined(checks.called, why, answer)
        else:
            yield no_call(checks.called, part, answer, control, name)
        begun = _begun(answer, name)
        if begun and not begun.startswith("{"):
            why = f"arguments are no object, and cut by max_tokens: {quote(begun, 40)}"
            yield part.violated(checks.strict if strict else checks.loose, why + ("" if strict else _HINT), answer)
        return
    other = next((call for call in whole if call.name != name), None)
    same = [call.name for call in calls_of(unforced)]
    made = f"{len(calls)} call(s) of {quote(calls[0].name or '', 60)}"
    yield part.held(checks.called, made, answer, control or answer)
    if other is not None and other.name and other.name in same:
        why = f"called {quote(other.name, 60)} where {quote(name)} was asked for, as it does without the choice"
        yield part.no_effect(checks.offered, why, answer, unforced or answer)
        return
    if other is not None:
        said = quote(other.name, 60) if other.name else "a function without a name"
        yield part.violated(checks.offered, f"called {said}, asked for {quote(name)}", answer)
    else:
        yield part.held(checks.offered, f"called {quote(name)}", answer)
    yield judge_ids(checks.own_id, part, answer)
    yield from _judge_arguments(checks, part, answer, whole, dig(function, "parameters"), strict=strict)
    yield judge_beside(checks.clean, part, answer)
    finish = answer.finish
    # Behind a length stop the first call is whole and another was begun; nothing is wrong with the reason.
    right = finish in ("tool_calls", "stop", "length")
    yield (part.held if right else part.violated)(checks.finish, f"finish_reason is {finish!r}", answer)


def judge_ids(check: str, part: Part, answer: reply.Answer) -> Finding:
    """Judge that every call is a function and has one id, and that no two have the same."""
    calls = answer.first.tool_calls
    # In a stream the type belongs to the first delta, which the row about streams judges.
    given = [call for call in calls if call.kind is not None or answer.stream is None]
    other = next((call for call in given if call.kind != "function"), None)
    if other is not None:
        return part.violated(check, f"the type of a call is {other.kind!r}, not 'function'", answer)
    changing = next((call for call in calls if len(call.ids) > 1), None)
    if changing is not None:
        why = f"one call has {len(changing.ids)} ids in its deltas, which clients count as many calls: "
        return part.violated(check, why + ", ".join(changing.ids[:3]), answer)
    ids = [call.id for call in calls]
    if None in ids or len(set(ids)) != len(ids):
        return part.violated(check, f"ids are {ids}", answer)
    return part.held(check, f"id {quote(ids[0] or '', 40)}" if ids else "no call, no id", answer)


def judge_beside(check: str, part: Part, answer: reply.Answer) -> Finding:
    """Judge what stands beside a call: words may, marks of the format that the parser read may not.

    A thought may hold them: models draft their calls there.
    """
    if mark := call_mark(answer.text):
        why = f"the content beside the call holds {quote(mark, 40)}: {quote(answer.text)}"
        return part.violated(check, why, answer)
    return part.held(check, f"beside the call stands {quote(answer.text, 60) if answer.text else 'nothing'}", answer)


def no_call(check: str, part: Part, answer: reply.Answer, control: reply.Reply | None, name: str) -> Finding:
    """Judge an answer without a call to a request that forces one of the function ``name``."""
    thought = answer.first.reasoning
    for text, where in ((answer.text, "text, which no client looks for"), (thought, "reasoning")):
        if name and name in text and (answer.finish != "length" or holds_whole_call(text, name)):
            return part.violated(check, f"the call came back as {where}: {quote(text)}", answer)
    seen = quote(answer.text)
    opened = answer.text.lstrip().startswith(_OPENINGS) or (name and name in answer.text)
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


def _begun(answer: reply.Answer, name: str) -> str:
    """Return how the arguments of a call begin that a length stop cut; engines show such a call in part or as text."""
    if answer.finish != "length":
        return ""
    if answer.first.tool_calls:
        return answer.first.tool_calls[0].arguments.lstrip()
    found = _ARGUMENTS.search(answer.text.partition(name)[2]) if name else None
    return found.group(1) if found else ""


def _judge_arguments(
    checks: Forced,
    part: Part,
    answer: reply.Answer,
    calls: Sequence[reply.ToolCall],
    schema: Json,
    *,
    strict: bool,
) -> Iterator[Finding]:
    """Judge the arguments of all calls; the worst speaks for them."""
    for call in calls:
        try:
            parse(call.arguments)
        except ValueError as error:
            yield part.violated(checks.json, f"not JSON ({error}): {quote(call.arguments)}", answer)
            return
    first = quote(calls[0].arguments, 60)
    yield part.held(checks.json, first, answer)
    check = checks.strict if strict else checks.loose
    for call in calls:
        wrong = fault_of(call.arguments, schema)
        if wrong:
            why = f"{wrong}: {quote(call.arguments, 60)}"
            yield part.violated(check, why + ("" if strict else _HINT), answer)
            return
    yield part.held(check, f"valid: {first}", answer)
