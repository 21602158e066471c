"""A streamed Anthropic message is made of typed events that come in order and add up.

What it does: asks for a plain message, streams the same request, streams it with half of the tokens that it took, and
streams a forced tool. Reads the events as they came: ``message_start`` first, blocks that open, grow by deltas of their
own kind and close one after the other, one ``message_delta`` with the stop reason and the usage, ``message_stop`` last.

Why it matters: Anthropic's clients build blocks by index and kind. A delta for a block that was not opened throws in
their SDK, and a missing stop reason leaves an agent waiting.

How it could be fooled: by a server whose pieces and whole lack the same words; the plain message shows that only where
the text goes on as before, since greedy answers may part at a near tie. ``ping`` events are legal anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._routes import half_of, prompt_tokens, was_cut
from servecheck.probes._steps import reply_at
from servecheck.probes._tools import SMALL_TALK, block_tool
from servecheck.probes._typed_streams import Rule, judge_lost, judge_streams, lines_agree, streamed_at, whole
from servecheck.read import messages, reply
from servecheck.read.text import dig, number, parse, quote, string
from servecheck.read.typed import TypedStream

__all__ = ["PROBE"]

_SOURCE = "https://docs.anthropic.com/en/docs/build-with-claude/streaming"
_STOPS = "https://docs.anthropic.com/en/api/handling-stop-reasons"
_SSE = "https://html.spec.whatwg.org/multipage/server-sent-events.html"
_PART = Part(route=Route.MESSAGES, mode=Mode.STREAM)
_STREAMED, _CUT, _LOST = "message-is-streamed", "cut-stream-says-max-tokens", "streamed-message-lacks-no-piece"
_BEGUN = "what-begins-has-its-fields"
_DELTAS = {
    "text": ("text_delta", "citations_delta"),
    "tool_use": ("input_json_delta",),
    "thinking": ("thinking_delta", "signature_delta"),
}


class MessagesStreamParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Write two sentences about the sea.", description="The user's message.")
    max_tokens: int = Field(default=192, ge=16, le=4096, description="Room for the whole answer, and for a tool call.")


async def drive(session: Session, params: MessagesStreamParams, _: Transcript | None) -> None:
    """The plain message, then three streams."""
    said: Json = [{"role": "user", "content": params.prompt}]
    plain: dict[str, Json] = {"messages": said, "temperature": 0, "top_p": 1, "max_tokens": params.max_tokens}
    streamed: dict[str, Json] = {**plain, "stream": True}
    await session.post("whole", "/messages", plain)
    await session.post("plain", "/messages", streamed)
    limit = half_of(reply_at(session.transcript, "whole"))
    await session.post("cut", "/messages", {**streamed, "max_tokens": limit})
    tool = block_tool(f"fn_{session.nonce(8)}", session.nonce())
    small: Json = [{"role": "user", "content": SMALL_TALK}]
    forced: dict[str, Json] = {"messages": small, "tools": [tool], "tool_choice": {"type": "any"}}
    await session.post("tool", "/messages", {**streamed, **forced})


def judge(transcript: Transcript, _: MessagesStreamParams) -> Iterator[Finding]:
    """Judge the plain stream first; a tool that is refused or fails belongs to another row."""
    yield from judge_streams(_PART, _STREAMED, _RULES, transcript, "message")
    if streamed_at(transcript, "plain") is not None:
        yield _judge_cut(reply_at(transcript, "cut"), reply_at(transcript, "whole"))
        yield judge_lost(_PART, _LOST, transcript, "message", _unlike)


# --------------------------------------------------------------------------- the rules of one stream


def _begins(read: TypedStream) -> str:
    spoken = [event for event in read.events if event.type != "ping"]
    first = spoken[0].type if spoken else "nothing"
    if first != "message_start":
        return f"the first event is {first or 'nameless'!r}"
    count = len(read.of("message_start"))
    if count != 1:
        return f"message_start comes {count} times"
    message = dig(spoken[0].body, "message")
    for name, wanted in (("type", "message"), ("role", "assistant")):
        if dig(message, name) != wanted:
            return f"message_start gives the {name} {dig(message, name)!r}"
    return "" if string(dig(message, "id")) else f"message_start gives the id {dig(message, 'id')!r}"


def _ends(read: TypedStream) -> str:
    last = [event.type for event in read.events if event.type != "ping"]
    if "message_stop" not in last:
        return f"no message_stop; the last event is {last[-1]!r}" if last else "no event"
    after = last[last.index("message_stop") + 1 :]
    return f"{after[0]!r} comes after message_stop" if after else ""


def _order(read: TypedStream) -> str:
    """Return where blocks do not open, grow and close one after the other, with indexes that count up."""
    kinds: list[str] = []
    open_at: int | None = None
    ended = False
    for place, event in enumerate(read.events, 1):
        index = number(dig(event.body, "index"))
        if event.type == "message_delta":
            ended = True
        if not event.type.startswith("content_block_"):
            continue
        if ended:
            return f"event {place}: {event.type!r} after message_delta"
        if event.type == "content_block_start":
            if open_at is not None:
                return f"event {place}: block {index} starts while block {open_at} is open"
            if index != len(kinds):
                return f"event {place}: block {index} starts where {len(kinds)} is next"
            kinds.append(string(dig(event.body, "content_block", "type")))
            open_at = index
        elif index is None or index != open_at:
            state = "none is open" if open_at is None else f"block {open_at} is open"
            return f"event {place}: {event.type!r} of block {index} while {state}"
        elif event.type == "content_block_stop":
            open_at = None
        else:
            kind, delta = kinds[index], string(dig(event.body, "delta", "type"))
            if kind in _DELTAS and delta not in _DELTAS[kind]:
                return f"event {place}: a {delta or 'nameless'} for a block of the type {kind!r}"
    return f"block {open_at} never stops" if open_at is not None else ""


def _stop_given(read: TypedStream) -> str:
    reasons = [string(dig(event.body, "delta", "stop_reason")) for event in read.of("message_delta")]
    given = [reason for reason in reasons if reason]
    if len(given) != 1:
        return f"{len(given)} stop reasons in {len(reasons)} message_delta events"
    called = any(string(dig(event.body, "content_block", "type")) == "tool_use" for event in read.events)
    if called and given[0] == "end_turn":
        return "stop_reason is 'end_turn' behind a tool_use"
    return "" if called or given[0] != "tool_use" else "stop_reason is 'tool_use' and no block is one"


def _usage(read: TypedStream) -> str:
    begun = [dig(event.body, "message", "usage", "input_tokens") for event in read.of("message_start")]
    ends = [dig(event.body, "usage") for event in read.of("message_delta")]
    last = ends[-1] if ends else None
    made = number(dig(last, "output_tokens"))
    if made is None or made <= 0:
        return f"the last message_delta gives output_tokens {dig(last, 'output_tokens')!r}"
    # vLLM and others repeat the prompt at the end; where both give it, it is one number.
    told = [each for each in (*begun, dig(last, "input_tokens")) if each is not None]
    counts = [number(each) for each in told]
    if not counts or None in counts:
        return f"no input_tokens that count: {told}"
    return ""


_EMPTY = {"text": ("text", str), "tool_use": ("input", dict), "thinking": ("thinking", str)}
"""What a block of a kind begins with, empty: Anthropic's SDK adds the deltas to it."""


def _begun(read: TypedStream) -> str:
    """Return what a message or a block begins without, where clients add to it."""
    for event in read.of("message_start")[:1]:
        message = dig(event.body, "message")
        if not isinstance(content := dig(message, "content"), list):
            return f"message_start has the content {content!r} instead of an empty list"
        if not isinstance(told := dig(message, "usage"), dict):
            return f"message_start has the usage {told!r} instead of an object"
    for event in read.of("content_block_start"):
        name, kind = _EMPTY.get(string(dig(event.body, "content_block", "type")), ("", str))
        if name and not isinstance(begun := dig(event.body, "content_block", name), kind):
            return f"block {number(dig(event.body, 'index'))} begins with {name} {begun!r}"
    return ""


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _inputs(read: TypedStream) -> str:
    """Return which tool's input does not join to JSON; what the limit cut is no JSON, and that is right.

    No pieces at all are an empty input, which is wrong for a tool that has to have one.
    """
    reasons = {string(dig(event.body, "delta", "stop_reason")) for event in read.of("message_delta")}
    tools = {
        number(dig(event.body, "index")): dig(event.body, "content_block", "input")
        for event in read.of("content_block_start")
        if dig(event.body, "content_block", "type") == "tool_use"
    }
    needed = dig(read.exchange.request, "tools", 0, "input_schema", "required")
    for index, given in tools.items():
        joined = "".join(
            string(dig(event.body, "delta", "partial_json"))
            for event in read.of("content_block_delta")
            if number(dig(event.body, "index")) == index
        )
        if not joined and not given and needed and "max_tokens" not in reasons:
            return (
                f"the input of block {index} has no pieces, and the tool needs {', '.join(map(str, _listed(needed)))}"
            )
        try:
            parse(joined or "{}")
        except ValueError as error:
            if "max_tokens" not in reasons:
                return f"the input of block {index} joins to {quote(joined)}: {error}"
    return ""


_RULES: dict[str, Rule] = {
    "message-stream-is-not-cut": whole,
    "message-stream-begins-with-start": _begins,
    "message-stream-ends-with-stop": _ends,
    "blocks-open-grow-and-close": _order,
    "one-stop-reason-per-message": _stop_given,
    "streamed-message-has-usage": _usage,
    _BEGUN: _begun,
    "tool-input-joins-to-json": _inputs,
    "message-event-lines-name-the-type": lines_agree,
}
_WORDED = {
    "message-stream-is-not-cut": "The connection ends by itself, after a whole event.",
    "message-stream-begins-with-start": "The first event but ping is the one message_start, with the message's id.",
    "message-stream-ends-with-stop": "message_stop ends a stream, and nothing but ping follows it.",
    "blocks-open-grow-and-close": "Blocks start at counted indexes, grow by deltas of their kind, and stop in turn.",
    "one-stop-reason-per-message": "One message_delta gives the stop_reason, and it fits the blocks.",
    "streamed-message-has-usage": "message_start counts the input or message_delta does; message_delta the output.",
    _BEGUN: "What a message or a block begins with is there, if empty: content and usage, text, input, thinking.",
    "tool-input-joins-to-json": "The pieces of a tool's input join to a JSON text; a needed input has some.",
    "message-event-lines-name-the-type": "Every event has a type, and an event line that names it.",
}


def _judge_cut(cut: reply.Reply | None, complete: reply.Reply | None) -> Finding:
    limit = half_of(complete)
    unclear = was_cut(_PART, _CUT, cut, complete, limit)
    if unclear is not None:
        return unclear
    assert isinstance(cut, reply.Answer)
    reason = messages.stop_reason(cut)
    why = f"stop_reason is {reason or None!r} after all {limit} tokens of max_tokens"
    return (_PART.held if reason == "max_tokens" else _PART.violated)(_CUT, why, cut)


def _unlike(complete: reply.Answer, plain: reply.Answer) -> str:
    counts = prompt_tokens(plain), prompt_tokens(complete)
    if None in counts or counts[0] == counts[1]:
        return ""
    return f"the prompt has {counts[0]} tokens in the stream and {counts[1]} without"


PROBE = Probe(
    id="messages_stream",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_STREAMED, rule="With stream: true a stream without an error comes.", level=Level.MUST, source=_SOURCE
        ),
        *(
            Check(
                id=check,
                rule=_WORDED[check],
                level=Level.SHOULD if rule is _begun else Level.MUST,
                source=_SSE if rule is whole else _SOURCE,
            )
            for check, rule in _RULES.items()
        ),
        Check(
            id=_CUT,
            rule="stop_reason of a stream that max_tokens cut is “max_tokens”.",
            level=Level.MUST,
            source=_STOPS,
        ),
        Check(
            id=_LOST,
            rule="The streamed text is not the plain one with a piece missing, of a prompt that is as long.",
            level=Level.MUST,
            source=_SOURCE,
        ),
    ),
    params=MessagesStreamParams,
    drive=drive,
    judge=judge,
    requests=4,
    prompt_tokens=350,
    output_tokens=200,
)
