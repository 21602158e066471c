"""The official openai SDK reads a tool call, whole and added up from a stream.

What it does: names a tool with a random name, plain and streamed, as the SDK sends it; the control is the same request
without tools, as bytes of ours. The recorded replies are handed to the SDK, and its calls are held against what was
sent: an id, the type, the name, and arguments that are JSON.

Why it matters: applications answer a call by its id and parse its arguments as they come; the SDK looks at neither. In
a stream its helper joins pieces by their index, so an index or an id that is wrong makes two calls one, or one none.

How it could be fooled: by a server that makes no call at all, which is the business of `tools.named`: then there is
nothing to read, and this row says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._sdk import SOURCE, ask, judge_faults, unread
from servecheck.probes._steps import reply_at
from servecheck.probes._tools import SMALL_TALK, calls_of, code_tool, named, was_cut
from servecheck.read import reply, sdk
from servecheck.read.text import dig, parse, quote, string

__all__ = ["PROBE"]

_READS, _ADDS, _TYPES = "sdk-reads-a-tool-call", "sdk-adds-a-tool-call-up", "calls-have-the-sdks-types"
_ARMS = {"call": False, "call-stream": True}


class SdkToolsParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default=SMALL_TALK, description="Small talk that calls for no tool.")
    max_tokens: int = Field(default=256, ge=32, le=4096, description="Room for a call.")


async def drive(session: Session, params: SdkToolsParams, _: Transcript | None) -> None:
    """The control without tools, then a named strict call, whole and streamed; one that was cut is asked for again."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    base: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0}
    await ask(session, "plain", base, plain=True)
    for arm, stream in _ARMS.items():
        for step in (arm, f"{arm}-again"):
            name = f"fn_{session.nonce(8)}"
            tool = code_tool(name, session.nonce(), strict=True)
            asked: dict[str, Json] = {**base, "tools": [tool], "tool_choice": named(name)}
            answer = reply.chat(await ask(session, step, {**asked, "stream": True} if stream else asked))
            if not was_cut(answer, 0):
                break


def judge(transcript: Transcript, _: SdkToolsParams) -> Iterator[Finding]:
    """Judge the whole call, the one that is added up, and the types of the whole one."""
    control = reply_at(transcript, "plain")
    for check, arm in ((_READS, "call"), (_ADDS, "call-stream"), (_TYPES, "call")):
        part = Part(mode=Mode.STREAM if _ARMS[arm] else Mode.NON_STREAM)
        answer = reply_at(transcript, f"{arm}-again") or reply_at(transcript, arm)
        missing = part.unless_answered(check, answer, control, what="a named tool")
        yield missing or _answered(part, check, answer, stream=_ARMS[arm])


def _answered(part: Part, check: str, answer: reply.Reply | None, *, stream: bool) -> Finding:
    assert isinstance(answer, reply.Answer)
    if was_cut(answer, 0):
        return part.undetermined(check, f"the call was cut by max_tokens: {quote(answer.exchange.body, 60)}", answer)
    calls = calls_of(answer)
    if not calls:
        seen = f"200 without a call, so there is nothing to read: {quote(answer.text, 60)}"
        return part.undetermined(check, seen, answer)
    made = sdk.streamed(answer.exchange) if stream else sdk.made(answer.exchange)
    if isinstance(made, sdk.Raised):
        if check == _TYPES:
            return part.undetermined(check, f"there is nothing whose types could be looked at: {made.what}", answer)
        return unread(part, check, made, answer)
    if check == _TYPES:
        return judge_faults(part, check, made, answer, what="call")
    if isinstance(made.reply, sdk.Raised):
        return unread(part, check, made.reply, answer)
    wrong = _wrong(made.message, calls)
    if wrong:
        return part.violated(check, wrong, answer)
    return part.held(check, f"the SDK's caller gets {calls[0].name}({quote(calls[0].arguments, 60)})", answer)


def _wrong(message: Json, calls: tuple[reply.ToolCall, ...]) -> str:
    given = dig(message, "tool_calls")
    if not isinstance(given, list) or len(given) != len(calls):
        count = len(given) if isinstance(given, list) else 0
        return f"the SDK's caller gets {count} calls where the reply holds {len(calls)}"
    for place, (call, sent) in enumerate(zip(given, calls, strict=True)):
        where = f"call {place + 1}"
        if not string(dig(call, "id")):
            return f"{where} has the id {dig(call, 'id')!r}, so its result cannot be sent back"
        if dig(call, "id") != sent.id:
            return f"{where} comes out with the id {dig(call, 'id')!r} where the reply begins with {sent.id!r}"
        if dig(call, "type") != "function":
            return f"{where} has the type {dig(call, 'type')!r} and not 'function'"
        if not string(dig(call, "function", "name")):
            return f"{where} has the name {dig(call, 'function', 'name')!r}"
        if string(dig(call, "function", "name")) != sent.name:
            return f"{where} comes out as {dig(call, 'function', 'name')!r} where the reply holds {sent.name!r}"
        arguments = dig(call, "function", "arguments")
        if not isinstance(arguments, str):
            return f"{where} has arguments that are {type(arguments).__name__} and not text"
        try:
            parse(arguments)  # whether they fit the tool is what tools.* ask
        except ValueError as error:
            return f"{where} has arguments that are not JSON ({error}): {quote(arguments)}"
    return ""


PROBE = Probe(
    id="sdk_tools",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_READS,
            rule="The SDK returns a tool call with an id, the type function, its name and arguments that are JSON.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/function-calling",
        ),
        Check(
            id=_ADDS,
            rule="The SDK's own helper adds a streamed tool call up to one with an id, a name and arguments.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/function-calling#streaming",
        ),
        Check(
            id=_TYPES,
            rule="Every field of a completion with a tool call has the type that the SDK declares for it.",
            level=Level.SHOULD,
            source=f"{SOURCE}#using-types",
        ),
    ),
    params=SdkToolsParams,
    drive=drive,
    judge=judge,
    requests=3,
    prompt_tokens=580,
    output_tokens=170,
)
