"""Function tools work on the responses route: a forced call is an item, its result reaches the prompt.

What it does: asks in small talk that calls for no tool, with a strict function whose name and only lawful argument are
random words, and ``tool_choice: required``: plainly, streamed, and with the function named. Sends a conversation with a
call and its result, once with a longer result. Offers a tool of a kind that only some servers have. A call that was cut
is asked for once more.

Why it matters: tools are flat here and nested on the chat route, so a server that converts one into the other loses
names, choices or results; the raw markup of a call then comes as text, in streams above all.

How it could be fooled: on a model that is strong enough to call the tool because it is there; the argument's one lawful
value is in the prompt then. Usage that counts an unread result is not seen through.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._routes import ROOM_TO_THINK, judge_growth
from servecheck.probes._steps import filler, reply_at
from servecheck.probes._tools import (
    SMALL_TALK,
    Forced,
    flat_tool,
    judge_forced,
    last_look,
    shows_call,
    thought_too_long,
    was_cut,
)
from servecheck.read import reply, responses
from servecheck.read.text import quote

__all__ = ["PROBE"]

_CREATE = "https://platform.openai.com/docs/api-reference/responses/create"
_GUIDE = "https://platform.openai.com/docs/guides/function-calling?api-mode=responses"
_ARMS = {"plain": False, "stream": True, "named": False}
_NAMED, _MARKUP = "named-function-is-called", "no-markup-beside-a-call"
_CHECKS = Forced(
    called="required-call-is-an-item",
    offered="called-function-is-the-offered-one",
    own_id="call-item-has-a-call-id",
    json="call-item-arguments-are-json",
    loose="loose-arguments-fit",  # not sent here: every function is strict
    strict="call-item-arguments-fit-the-schema",
    finish="response-with-a-call-is-completed",
    clean=_MARKUP,
)
_RESULT, _FOREIGN = "function-result-is-counted", "foreign-tool-does-no-harm"
_PART = Part(route=Route.RESPONSES)
_WORDS = 24


class ResponsesToolsParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default=SMALL_TALK, description="Small talk that calls for no tool.")
    max_tokens: int = Field(default=160, ge=32, le=4096, description="Room for a call; 29 to 85 tokens were used.")
    short_tokens: int = Field(default=16, ge=1, le=4096, description="Room where only the prompt is counted.")
    foreign: str = Field(default="web_search_preview", description="The kind of tool that few servers have.")


async def drive(session: Session, params: ResponsesToolsParams, _: Transcript | None) -> None:
    """Control, a forced call in three arms, a result short and long, and a foreign tool."""
    greedy: dict[str, Json] = {"temperature": 0, "top_p": 1}
    base: dict[str, Json] = {"input": params.prompt, **greedy, "max_output_tokens": params.max_tokens}
    await session.post("control", "/responses", base)
    for arm, stream in _ARMS.items():
        for step in (arm, f"{arm}-again"):
            name = f"fn_{session.nonce(8)}"
            tool = flat_tool(name, session.nonce())
            choice: Json = {"type": "function", "name": name} if arm == "named" else "required"
            forced: dict[str, Json] = {**base, "tools": [tool], "tool_choice": choice}
            await session.post(step, "/responses", {**forced, "stream": True} if stream else forced)
            found = reply_at(session.transcript, step)
            if found is None or not was_cut(found):
                break
            if thought_too_long(found):
                base = {**base, "max_output_tokens": max(params.max_tokens, ROOM_TO_THINK)}
    name, code, call_id = f"fn_{session.nonce(8)}", session.nonce(), f"call_{session.nonce(9)}"
    few: dict[str, Json] = {**greedy, "max_output_tokens": params.short_tokens, "tools": [flat_tool(name, code)]}
    for step, more in (("result", 0), ("longer", _WORDS)):
        output = f"The code is {code}. {filler(more)}".strip()
        trip: Json = [
            {"role": "user", "content": "What is the code of today?"},
            {"type": "function_call", "call_id": call_id, "name": name, "arguments": f'{{"code": "{code}"}}'},
            {"type": "function_call_output", "call_id": call_id, "output": output},
        ]
        await session.post(step, "/responses", {**few, "input": trip})
    foreign: Json = [{"type": params.foreign}]
    short: dict[str, Json] = {"input": params.prompt, **greedy, "max_output_tokens": params.short_tokens}
    await session.post("foreign", "/responses", {**short, "tools": foreign})


def judge(transcript: Transcript, params: ResponsesToolsParams) -> Iterator[Finding]:
    """Judge every arm's last attempt, then the result and the foreign tool."""
    control = reply_at(transcript, "control")
    if isinstance(control, reply.Refusal):
        yield _PART.refused(_CHECKS.called, f"the route refuses a plain request too: {control.what}", control)
        return
    for arm, stream in _ARMS.items():
        part = Part(route=Route.RESPONSES, mode=Mode.STREAM if stream else Mode.NON_STREAM)
        found = last_look(transcript, arm)
        for finding in judge_forced(_CHECKS, part, found, control, strict=True):
            if finding.check == _CHECKS.finish:
                yield _completed(part, found)
            elif arm != "named":
                yield finding
            elif finding.check in (_CHECKS.called, _CHECKS.offered):
                yield _renamed(finding)
        if isinstance(found, reply.Answer) and found.first.tool_calls:
            yield _markup(part, found)
    yield judge_growth(
        _PART, _RESULT, reply_at(transcript, "result"), reply_at(transcript, "longer"), _WORDS, "a function's result"
    )
    yield _foreign(reply_at(transcript, "foreign"), params.foreign)


def _renamed(finding: Finding) -> Finding:
    return Finding(
        check=_NAMED,
        outcome=finding.outcome,
        why=f"with the function named: {finding.why}",
        evidence=finding.evidence,
        route=finding.route,
        mode=finding.mode,
    )


def _completed(part: Part, found: reply.Reply | None) -> Finding:
    """Judge the status beside a whole call; behind a length stop another call was begun, and nothing is wrong."""
    assert isinstance(found, reply.Answer)
    status = responses.status_of(found)
    right = status == "completed" or found.finish == "length"
    return (part.held if right else part.violated)(_CHECKS.finish, f"status is {status or None!r}", found)


def _markup(part: Part, found: reply.Answer) -> Finding:
    names = [call.name or "" for call in found.first.tool_calls]
    if any(shows_call(found.text, name) for name in names):
        return part.violated(_MARKUP, f"the call is shown as text too: {quote(found.text)}", found)
    return part.held(_MARKUP, "the call is an item, and not in the text", found)


def _foreign(found: reply.Reply | None, kind: str) -> Finding:
    what = f"a tool of the type {kind!r}"
    if isinstance(found, reply.Refusal):
        return _PART.held(_FOREIGN, f"{what} is refused: {found.what}", found)
    if isinstance(found, reply.Answer):
        return _PART.held(_FOREIGN, f"{what} is accepted", found)
    missing = _PART.unless_answered(_FOREIGN, found, what=what)
    assert missing is not None
    return missing


PROBE = Probe(
    id="responses_tools",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_CHECKS.called,
            rule="With tool_choice: required the output holds a function_call item, plain and streamed.",
            level=Level.MUST,
            source=_CREATE,
        ),
        Check(
            id=_CHECKS.offered,
            rule="Every function_call names a function that the request offers.",
            level=Level.MUST,
            source=_CREATE,
        ),
        Check(
            id=_CHECKS.own_id,
            rule="Every function_call has a call_id, and no two have the same one.",
            level=Level.MUST,
            source=_GUIDE,
        ),
        Check(
            id=_CHECKS.json,
            rule="A function_call's arguments are a JSON text; in a stream their pieces join to one.",
            level=Level.MUST,
            source=_GUIDE,
        ),
        Check(
            id=_CHECKS.strict,
            rule="With strict: true the arguments fit the function's parameters.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/function-calling?api-mode=responses#strict-mode",
        ),
        Check(
            id=_NAMED,
            rule="A tool_choice that names a function gives a call of it.",
            level=Level.MUST,
            source=_CREATE,
        ),
        Check(
            id=_MARKUP,
            rule="A call is not shown as text beside its item.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/29725",
        ),
        Check(
            id=_RESULT,
            rule="A function_call and its output are accepted as input, and input_tokens grows with the output.",
            level=Level.MUST,
            source=_GUIDE,
        ),
        Check(
            id=_FOREIGN,
            rule="A tool of a kind that the server does not have is refused or left alone, without a failure.",
            level=Level.MUST,
            source="https://github.com/sgl-project/sglang/issues/22980",
        ),
        Check(
            id=_CHECKS.finish,
            rule="A response with a whole call is completed.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/api-reference/responses/object",
        ),
    ),
    params=ResponsesToolsParams,
    drive=drive,
    judge=judge,
    requests=7,
    prompt_tokens=1610,
    output_tokens=260,
)
