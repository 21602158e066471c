"""A plain request in Anthropic's format comes back complete, and what it sends reaches the model.

What it does: sends one message greedily and reads the reply as Anthropic's clients would: content blocks, stop reason,
usage. The same request is sent with half of the tokens that it took, with a stop sequence cut out of its own answer,
and as text blocks. A longer system prompt must make the prompt longer. A forced tool must come as a ``tool_use`` block
whose input is an object. Four requests are wrong on purpose, and the token counter is asked.

Why it matters: coding agents speak this protocol to self-hosted engines. They read the stop reason to know whether to
call a tool, go on, or stop; ``end_turn`` on a message that was cut ends their work in the middle.

How it could be fooled: by usage that counts what was sent instead of what was read. Prompts count with what came from
the cache, since ``input_tokens`` leaves that out.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._plain import judge_sane, sane_check
from servecheck.probes._routes import (
    ROOM_TO_THINK,
    half_of,
    judge_bad,
    judge_growth,
    judge_same_count,
    prompt_tokens,
    was_cut,
)
from servecheck.probes._schemas import latest, thought_too_long
from servecheck.probes._steps import filler, reply_at
from servecheck.probes._tools import SMALL_TALK, block_tool, fault_of, function_of, no_call
from servecheck.probes._typed_streams import counted
from servecheck.read import messages, reply
from servecheck.read.text import dig, number, quote, string

__all__ = ["PROBE"]

_API = "https://docs.anthropic.com/en/api/messages"
_ERRORS = "https://docs.anthropic.com/en/api/errors"
_STOPS = "https://docs.anthropic.com/en/api/handling-stop-reasons"
_PART = Part(route=Route.MESSAGES)
_TEXT, _SANE, _END = "message-has-text", "message-is-not-garbage", "whole-message-ends-its-turn"
_OBJECT, _USAGE = "message-object-is-well-formed", "message-usage-counts"
_CUT, _STOP = "cut-message-says-max-tokens", "stop-sequence-ends-the-message"
_SYSTEM, _BLOCKS = "system-prompt-is-counted", "text-blocks-are-as-the-string"
_TOOL, _BAD, _SHAPE = "forced-tool-is-a-tool-use", "wrong-message-request-does-no-harm", "errors-are-in-the-own-shape"
_COUNT = "message-count-is-the-usage"
_WORDS = 24
_WRONG = (
    ("wrong-messages", "messages is a word"),
    ("wrong-limit", "max_tokens is a word"),
    ("wrong-body", "the body is no JSON"),
    ("endless", "max_tokens is a thousand million"),
)
_SHORTEST_STOP = 4


class MessagesBasicParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Write two sentences about the sea.", description="The user's message.")
    max_tokens: int = Field(default=192, ge=16, le=4096, description="Room for the whole answer, and for a tool call.")
    short_tokens: int = Field(default=16, ge=1, le=4096, description="Room where only the prompt is counted.")


async def drive(session: Session, params: MessagesBasicParams, _: Transcript | None) -> None:
    """The whole answer, a cut and a stopped one, other forms of the same, a tool, and what is wrong."""
    greedy: dict[str, Json] = {"temperature": 0, "top_p": 1}
    said: Json = [{"role": "user", "content": params.prompt}]
    plain: dict[str, Json] = {"messages": said, **greedy, "max_tokens": params.max_tokens}
    few: dict[str, Json] = {**plain, "max_tokens": params.short_tokens}

    async def ask(step: str, body: dict[str, Json], path: str = "/messages") -> None:
        await session.post(step, path, body)

    await ask("plain", plain)
    if thought_too_long(reply_at(session.transcript, "plain")):
        await ask("plain-again", {**plain, "max_tokens": max(ROOM_TO_THINK, params.max_tokens)})
    whole = _whole(session.transcript)
    await ask("cut", {**plain, "max_tokens": half_of(whole)})
    if stop := _stop_in(whole):
        room = number(dig(whole.exchange.request, "max_tokens")) if whole is not None else None
        await ask("stopped", {**plain, "max_tokens": room or params.max_tokens, "stop_sequences": [stop]})
    word = session.nonce()
    await ask("short", {**few, "system": f"{word}. Be kind."})
    await ask("long", {**few, "system": f"{word}. Be kind. {filler(_WORDS)}"})
    blocks: Json = [{"role": "user", "content": [{"type": "text", "text": params.prompt}]}]
    await ask("blocks", {**few, "messages": blocks})
    tool = block_tool(f"fn_{session.nonce(8)}", session.nonce())
    small: Json = [{"role": "user", "content": SMALL_TALK}]
    forced: dict[str, Json] = {**plain, "messages": small, "tools": [tool], "tool_choice": {"type": "any"}}
    await ask("tool", forced)
    if _tool_cut(session.transcript):
        await ask("tool-again", {**forced, "max_tokens": max(ROOM_TO_THINK, params.max_tokens)})
    await ask("count", {"messages": said}, "/messages/count_tokens")
    await ask("wrong-messages", {**few, "messages": "hello"})
    await ask("wrong-limit", {**few, "max_tokens": "many"})
    await session.post_raw("wrong-body", "/messages", b'{"messages": [')
    # The stop sequences keep the answer short where a server takes such a limit.
    await ask("endless", {**few, "max_tokens": 10**9, "stop_sequences": [".", " the", "e"]})


def _whole(transcript: Transcript) -> reply.Reply | None:
    return latest(reply_at(transcript, "plain-again"), reply_at(transcript, "plain"))


def _stop_in(whole: reply.Reply | None) -> str:
    """Return a stop sequence out of a message's own text: a word from its middle that stands there once."""
    if not isinstance(whole, reply.Answer):
        return ""
    text = whole.text
    words = [word.strip(".,;:!?\"'") for word in text.split()]
    middle = words[len(words) // 3 :]
    return next((word for word in middle if len(word) >= _SHORTEST_STOP and text.count(word) == 1), "")


def _tool_cut(transcript: Transcript) -> bool:
    found = reply_at(transcript, "tool")
    return isinstance(found, reply.Answer) and found.finish == "length" and not found.first.tool_calls


def judge(transcript: Transcript, _: MessagesBasicParams) -> Iterator[Finding]:
    """Judge the whole answer first; the rest only where there is one."""
    answer = _whole(transcript)
    missing = _PART.unless_answered(_TEXT, answer)
    if missing is not None:
        yield missing
    if not isinstance(answer, reply.Answer):
        return
    yield from _judge(answer)
    yield _judge_cut(reply_at(transcript, "cut"), answer)
    yield _judge_stop(reply_at(transcript, "stopped"), answer)
    short, long = reply_at(transcript, "short"), reply_at(transcript, "long")
    yield judge_growth(_PART, _SYSTEM, short, long, _WORDS, "the system prompt")
    yield judge_same_count(_PART, _BLOCKS, answer, reply_at(transcript, "blocks"), "a text block")
    yield _judge_tool(latest(reply_at(transcript, "tool-again"), reply_at(transcript, "tool")), answer)
    yield _judge_count(transcript, answer)
    yield from judge_bad(_PART, _BAD, _SHAPE, transcript, _WRONG, _unshaped)


def _judge(answer: reply.Answer) -> Iterator[Finding]:
    body = answer.body
    if answer.text.strip():
        yield _PART.held(_TEXT, f"{len(answer.text)} characters: {quote(answer.text, 60)}", answer)
        yield judge_sane(_PART, _SANE, answer)
    elif thought_too_long(answer):
        yield _PART.undetermined(_TEXT, "max_tokens went into the thinking", answer)
    else:
        kinds = ", ".join(string(dig(block, "type")) or "nameless" for block in messages.blocks_of(body)) or "nothing"
        yield _PART.violated(_TEXT, f"no text block with text; content holds {kinds}", answer)
    reason = messages.stop_reason(answer)
    limit = number(dig(answer.exchange.request, "max_tokens")) or 0
    made = answer.usage.completion if answer.usage is not None else None
    full = reason == "max_tokens" and (made is None or made >= limit)
    right = reason == "end_turn" or full
    yield (_PART.held if right else _PART.violated)(_END, f"stop_reason is {reason or None!r}", answer)
    fault = _fault(answer)
    yield (_PART.violated if fault else _PART.held)(_OBJECT, fault or "id, type, role, model and blocks", answer)
    fault = counted(body, "input_tokens", "output_tokens")
    usage = answer.usage
    if not fault and (usage is None or not usage.prompt or not usage.completion or usage.completion > limit):
        fault = f"{usage.prompt if usage else None} tokens in, {made} out, with a limit of {limit}"
    said = f"{usage.prompt if usage else None} tokens in, {made} out"
    yield (_PART.violated if fault else _PART.held)(_USAGE, fault or said, answer)


def _fault(answer: reply.Answer) -> str:
    body = answer.body
    if answer.stream is not None:
        return "a stream came, and none was asked for"
    for name, wanted in (("type", "message"), ("role", "assistant")):
        if dig(body, name) != wanted:
            return f"{name} is {dig(body, name)!r}"
    for name in ("id", "model"):
        if not string(dig(body, name)):
            return f"{name} is {dig(body, name)!r}"
    for block in messages.blocks_of(body):
        kind = dig(block, "type")
        if kind == "text" and not isinstance(dig(block, "text"), str):
            return f"a text block has the text {dig(block, 'text')!r}"
        if not string(kind):
            return f"a block has the type {kind!r}"
    return ""


def _judge_cut(cut: reply.Reply | None, whole: reply.Answer) -> Finding:
    limit = half_of(whole)
    unclear = was_cut(_PART, _CUT, cut, whole, limit)
    if unclear is not None:
        return unclear
    assert isinstance(cut, reply.Answer)
    reason = messages.stop_reason(cut)
    why = f"stop_reason is {reason or None!r} after all {limit} tokens of max_tokens: {quote(cut.text, 60)}"
    return (_PART.held if reason == "max_tokens" else _PART.violated)(_CUT, why, cut, whole)


def _judge_stop(stopped: reply.Reply | None, whole: reply.Answer) -> Finding:
    stop = _stop_in(whole)
    if not stop:
        return _PART.undetermined(_STOP, f"no word of the answer stands there once: {quote(whole.text, 60)}", whole)
    missing = _PART.unless_answered(_STOP, stopped, whole, what="stop_sequences")
    if missing is not None:
        return missing
    assert isinstance(stopped, reply.Answer)
    reason, told = messages.stop_reason(stopped), messages.stop_sequence(stopped)
    ended = f"stop_reason {reason or None!r}, stop_sequence {told or None!r}"
    if stop in stopped.text:
        if stopped.text == whole.text:
            why = f"the text with the stop sequence {stop!r} is the whole one, {ended}"
            return _PART.no_effect(_STOP, why, stopped, whole)
        return _PART.violated(_STOP, f"the text holds its stop sequence {stop!r}: {quote(stopped.text)}", stopped)
    if whole.text.startswith(stopped.text):
        right = reason == "stop_sequence" and told == stop
        why = f"stopped before {stop!r}, {ended}"
        return (_PART.held if right else _PART.violated)(_STOP, why, stopped, whole)
    if reason == "stop_sequence" and told == stop:
        return _PART.held(_STOP, f"another text, stopped before {stop!r}", stopped, whole)
    return _PART.undetermined(_STOP, f"another text came, so the stop sequence may not stand in it; {ended}", stopped)


def _judge_tool(found: reply.Reply | None, whole: reply.Answer) -> Finding:
    missing = _PART.unless_answered(_TOOL, found, whole, what="a tool that must be used")
    if missing is not None:
        return missing
    assert isinstance(found, reply.Answer)
    function = function_of(found)
    calls = found.first.tool_calls
    if not calls:
        return no_call(_TOOL, _PART, found, whole, string(dig(function, "name")))
    call, reason = calls[0], messages.stop_reason(found)
    inputs = [dig(block, "input") for block in messages.blocks_of(found.body, "tool_use")]
    if reason == "max_tokens":
        return _PART.undetermined(_TOOL, "the call was cut by max_tokens", found)
    if call.name != dig(function, "name"):
        return _PART.violated(_TOOL, f"called {call.name!r}, and offered was {dig(function, 'name')!r}", found)
    if not call.id or not all(isinstance(each, dict) for each in inputs):
        return _PART.violated(_TOOL, f"a tool_use with the id {call.id!r} and the input {quote(call.arguments)}", found)
    if fault := fault_of(call.arguments, dig(function, "parameters")):
        return _PART.violated(_TOOL, f"the input does not fit its schema, {fault}: {quote(call.arguments)}", found)
    why = f"a tool_use of {quote(call.name or '')}, stop_reason {reason or None!r}"
    return (_PART.held if reason == "tool_use" else _PART.violated)(_TOOL, why, found)


def _judge_count(transcript: Transcript, answer: reply.Answer) -> Finding:
    exchange = transcript.get("count")
    if exchange is None:
        return _PART.undetermined(_COUNT, "the counter was not asked", answer)
    body = reply.json_body(exchange)
    if isinstance(body, reply.Refusal):
        return _PART.held(_COUNT, f"there is no counter: {body.what}", exchange)
    if isinstance(body, reply.Failure):
        return _PART.violated(_COUNT, f"the counter: {body.what}", exchange)
    told, used = number(dig(body, "input_tokens")), prompt_tokens(answer)
    if used is None:
        return _PART.undetermined(_COUNT, f"the counter says {told}, and usage nothing", exchange)
    why = f"the counter says {told}, the usage of the same prompt {used}"
    return (_PART.held if told == used else _PART.violated)(_COUNT, why, exchange, answer)


def _unshaped(body: Json) -> str:
    if dig(body, "type") != "error":
        return f"type is {dig(body, 'type')!r} where 'error' should be"
    lacking = [name for name in ("type", "message") if not string(dig(body, "error", name))]
    return f"there is no error.{lacking[0]}" if lacking else ""


PROBE = Probe(
    id="messages_basic",
    doc=__doc__ or "",
    checks=(
        Check(id=_TEXT, rule="The content holds a text block with text.", level=Level.MUST, source=_API),
        sane_check(_SANE),
        Check(
            id=_END,
            rule="stop_reason of a message that was not cut is “end_turn”.",
            level=Level.MUST,
            source=_STOPS,
        ),
        Check(
            id=_OBJECT,
            rule="type is “message”, role “assistant”; id and model are given, every block has a type.",
            level=Level.MUST,
            source=_API,
        ),
        Check(
            id=_USAGE,
            rule="usage counts input and output, and stays within max_tokens.",
            level=Level.MUST,
            source=_API,
        ),
        Check(
            id=_CUT,
            rule="stop_reason of a message that max_tokens cut is “max_tokens”.",
            level=Level.MUST,
            source=_STOPS,
        ),
        Check(
            id=_STOP,
            rule="A stop sequence ends the message before it, stop_reason says so, and stop_sequence says which.",
            level=Level.MUST,
            source=_STOPS,
        ),
        Check(id=_SYSTEM, rule="The prompt grows with the system prompt.", level=Level.MUST, source=_API),
        Check(
            id=_BLOCKS,
            rule="A text block is as long as the same text as a string.",
            level=Level.MUST,
            source=_API,
        ),
        Check(
            id=_BAD,
            rule="A request that is wrong is refused or answered, without a failure.",
            level=Level.MUST,
            source=_ERRORS,
        ),
        Check(
            id=_TOOL,
            rule="With tool_choice any the message is a tool_use block whose input fits, and stop_reason says so.",
            level=Level.SHOULD,
            source="https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use",
        ),
        Check(
            id=_SHAPE,
            rule="Every refusal has the shape of Anthropic's errors.",
            level=Level.SHOULD,
            source=_ERRORS,
        ),
        Check(
            id=_COUNT,
            rule="count_tokens, where there is one, counts what the usage counts.",
            level=Level.SHOULD,
            source="https://docs.anthropic.com/en/api/messages-count-tokens",
        ),
    ),
    params=MessagesBasicParams,
    drive=drive,
    judge=judge,
    requests=12,
    prompt_tokens=510,
    output_tokens=210,
)
