"""A tool of your own workload is called when a call is required, with arguments that fit.

What it does: offers your tool, as you define it and alone, to a prompt of small talk with `tool_choice: required`; the
control is the same request without tools. The call's arguments are validated against your parameters. With
`strict: true` a prompt asks besides for exactly the arguments that your parameters forbid. A call that was cut is asked
for once more. A refusal that names no keyword is looked into: the tool is sent without one suspect after another.

Why it matters: a tool definition that a server refuses, or whose arguments it does not enforce, fails in your agent and
in no test with somebody else's tools.

How it could be fooled: by a strong model that calls of its own will, which the small talk makes unlikely. Without
`strict` few servers promise anything about arguments, so there they are only a `should`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import Field, field_validator

from servecheck.model import Check, Finding, Json, Level, Outcome, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._own import about, blame, blamed, listed, state, why_refused
from servecheck.probes._schemas import latest
from servecheck.probes._steps import reply_at, sent
from servecheck.probes._tools import ROOM_TO_THINK, SMALL_TALK, no_call, thought_too_long
from servecheck.read import reply
from servecheck.read.schemas import breach, broken_keyword, fault_in_schema
from servecheck.read.slips import slips
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE", "WorkloadToolParams"]

_CALLED, _LOOSE, _STRICT = "workload-tool-is-called", "workload-arguments-fit", "workload-strict-arguments-fit"
_PART = Part()
_PULL = "Call {} with exactly these arguments, every value as it is here: {}"
_ARMS = {"forced": "asked for small talk", "against": "asked for arguments that break it"}
_ANYTHING: dict[str, Json] = {"type": "object"}


class WorkloadToolParams(Params):
    """What may be chosen in YAML."""

    item: str = Field(min_length=1, max_length=120, description="The tool's name in the workload.")
    tool: dict[str, object] = Field(description="The tool, as the application sends it.")
    prompt: str = Field(default=SMALL_TALK, description="Small talk that calls for no tool.")
    max_tokens: int = Field(default=384, ge=32, le=8192, description="Room for a call.")

    @field_validator("tool")
    @classmethod
    def _usable(cls, value: dict[str, object]) -> dict[str, object]:
        function = value.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            raise ValueError("a tool has a function with a name")
        if (fault := fault_in_schema(function.get("parameters", _ANYTHING))) is not None:
            raise ValueError(f"parameters: {fault.message}")
        return value


def _parameters(params: WorkloadToolParams) -> dict[str, Json]:
    found = dig(params.tool, "function", "parameters")  # type: ignore[arg-type]
    return found if isinstance(found, dict) else _ANYTHING


def _name(params: WorkloadToolParams) -> str:
    return string(dig(params.tool, "function", "name"))  # type: ignore[arg-type]


def _is_strict(params: WorkloadToolParams) -> bool:
    return dig(params.tool, "function", "strict") is True  # type: ignore[arg-type]


async def drive(session: Session, params: WorkloadToolParams, _: Transcript | None) -> None:
    """Control, a forced call, for a strict tool one against its parameters; a cut call is asked for once more."""
    schema = _parameters(params)
    room = params.max_tokens

    def asked(prompt: str, tool: dict[str, object] | None, **more: Json) -> dict[str, Json]:
        body: dict[str, Json] = {"messages": [{"role": "user", "content": prompt}], "max_tokens": room}
        body |= {"temperature": 0, "top_p": 1, **more}
        if tool is not None:
            body |= {"tools": [tool], "tool_choice": "required"}  # type: ignore[list-item]
        return body

    await session.chat("control", asked(params.prompt, None))
    prompts = {"forced": params.prompt}
    wrong, _broken = about(schema)
    if _is_strict(params) and wrong is not None:
        prompts["against"] = _PULL.format(_name(params), json.dumps(wrong, ensure_ascii=False))
    for arm, prompt in prompts.items():
        look = reply.chat(await session.chat(arm, asked(prompt, params.tool)))
        if arm == "forced" and not isinstance(look, reply.Answer):

            async def without(step: str, fewer: dict[str, Json]) -> reply.Reply:
                return reply.chat(await session.chat(step, asked(prompt, _with(params, fewer), max_tokens=16)))  # noqa: B023

            await blame(look, schema, without)
            return
        if _cut(look, schema):
            if thought_too_long(look):
                room = max(room, ROOM_TO_THINK)
            await session.chat(f"{arm}-again", asked(prompt, params.tool, temperature=1))


def _with(params: WorkloadToolParams, parameters: dict[str, Json]) -> dict[str, object]:
    function = params.tool["function"]
    assert isinstance(function, dict)
    return {**params.tool, "function": {**function, "parameters": parameters}}


def _whole(answer: reply.Answer, schema: dict[str, Json]) -> list[reply.ToolCall]:
    """Return the calls that are not in doubt: engines close the braces of a call that a length stop cut."""
    calls = list(answer.first.tool_calls)
    return calls if answer.finish != "length" else [call for call in calls if not breach(call.arguments, schema)]


def _cut(look: reply.Reply | None, schema: dict[str, Json]) -> bool:
    return isinstance(look, reply.Answer) and look.finish == "length" and not _whole(look, schema)


def judge(transcript: Transcript, params: WorkloadToolParams) -> Iterator[Finding]:
    """Judge that the tool is called, and with what."""
    control = reply_at(transcript, "control")
    looks = {arm: latest(reply_at(transcript, f"{arm}-again"), reply_at(transcript, arm)) for arm in _ARMS}
    forced = looks["forced"]
    item, schema = params.item, _parameters(params)
    if isinstance(forced, reply.Refusal) and isinstance(control, reply.Answer):
        keyword = blamed(forced, schema, transcript)
        made = _PART.refused(_CALLED, why_refused(item, forced, keyword), forced, control)
        yield state(made, item, "refused", keyword=keyword)
        return
    missing = _PART.unless_answered(_CALLED, forced, control, what=item)
    if missing is not None:
        yield state(missing, item, "failed" if isinstance(forced, reply.Failure) else "not_told")
        return
    assert isinstance(forced, reply.Answer)
    called = _called(params, forced, control)
    yield called
    if called.outcome is Outcome.HELD:
        yield from _arguments(params, looks, control)


def _called(params: WorkloadToolParams, forced: reply.Answer, control: reply.Reply | None) -> Finding:
    item, name = params.item, _name(params)
    calls = forced.first.tool_calls
    if not calls:
        made = no_call(_CALLED, _PART, forced, control, name)
        words = {Outcome.NO_EFFECT: "no_effect", Outcome.UNDETERMINED: "not_told"}
        return state(made, item, words.get(made.outcome, "not_enforced"))
    if not _whole(forced, _parameters(params)):
        why = f"{item}: the call was cut by max_tokens twice: {quote(calls[0].arguments, 60)}"
        return state(_PART.undetermined(_CALLED, why, forced), item, "not_told")
    other = next((call.name or "" for call in calls if call.name != name), None)
    if other is not None:
        why = f"{item}: {quote(other, 60)} is called, and {quote(name)} is the only one that is offered"
        return state(_PART.violated(_CALLED, why, forced, *sent(control)), item, "not_enforced")
    made = _PART.held(_CALLED, f"{item}: {len(calls)} call(s) of {quote(name, 60)}", forced, *sent(control))
    return state(made, item, "enforced")


def _arguments(
    params: WorkloadToolParams, looks: dict[str, reply.Reply | None], control: reply.Reply | None
) -> Iterator[Finding]:
    """Judge the arguments of all whole calls; the first that does not fit speaks for them."""
    item, schema = params.item, _parameters(params)
    check = _STRICT if _is_strict(params) else _LOOSE
    fitting: list[reply.Answer] = []
    for arm, look in looks.items():
        if isinstance(look, reply.Failure):
            yield state(_PART.violated(check, f"{item}: {look.what}", look, *sent(control)), item, "failed")
            return
        if not isinstance(look, reply.Answer):
            continue
        for call in _whole(look, schema):
            fault = breach(call.arguments, schema)
            if fault:
                why = f"{item}: {fault}; {_ARMS[arm]}, it calls with {quote(call.arguments, 100)}"
                why += "" if check == _STRICT else "; few servers enforce arguments without strict: true"
                keyword = broken_keyword(call.arguments, schema)
                yield state(_PART.violated(check, why, look), item, "not_enforced", keyword=keyword)
                return
            fitting.append(look)
    seen = quote(calls[0].arguments, 80) if fitting and (calls := fitting[0].first.tool_calls) else ""
    _, broken = about(schema)
    pulled = f", also where the prompt asks for what breaks {listed(broken)}" if len(fitting) > 1 and broken else ""
    yield state(_PART.held(check, f"{item}: arguments fit{pulled}: {seen}", *fitting), item, "enforced")


PROBE = Probe(
    id="workload_tool",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_CALLED,
            rule="A tool of the workload is taken, and called where a call is required.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/create#chat-create-tool_choice",
        ),
        Check(
            id=_STRICT,
            rule="Arguments of a strict tool of the workload fit its parameters.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/function-calling#strict-mode",
        ),
        Check(
            id=_LOOSE,
            rule="Arguments of a tool of the workload fit its parameters, also without strict.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/function-calling",
        ),
    ),
    params=WorkloadToolParams,
    drive=drive,
    object_to=lambda params: slips(_parameters(params), ("tool", "function", "parameters")),
    judge=judge,
    per_item=True,
    requests=3,
    prompt_tokens=500,
    output_tokens=350,
)
