"""A streamed response is made of typed events that come in order and add up.

What it does: asks for a plain response, streams the same request, streams it with half of the tokens that it took, and
streams a forced tool call. Reads the events as they came: created first, one end and nothing after it, numbers that
count up, items and parts that open before they grow and close once, ids and indexes that stay the same, pieces that
join to the text of the last event, usage, and ``incomplete`` where the limit cut.

Why it matters: clients put a response together by type, index and id. One event too early, a second item at an index
that is taken, and the answer is lost or mixed up, with status 200.

How it could be fooled: by a server whose pieces and whole lack the same words; the plain answer shows that only where
the text goes on as before, since greedy answers may part at a near tie. ``[DONE]`` at the end is legal, and so is none.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._response_events import MAY, MUST, final_of
from servecheck.probes._routes import half_of, was_cut
from servecheck.probes._steps import reply_at
from servecheck.probes._tools import SMALL_TALK, flat_tool
from servecheck.probes._typed_streams import counted, judge_rules, lines_agree, lost_piece, stream_of, unstreamed, whole
from servecheck.read import reply, responses
from servecheck.read.text import dig, quote, string
from servecheck.read.typed import TypedStream, typed

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/responses-streaming"
_OBJECT = "https://platform.openai.com/docs/api-reference/responses/object"
_SSE = "https://html.spec.whatwg.org/multipage/server-sent-events.html"
_PART = Part(route=Route.RESPONSES, mode=Mode.STREAM)
_STREAMED, _CUT, _LOST = "response-is-streamed", "cut-stream-is-incomplete", "streamed-response-lacks-no-piece"
_WHOLE, _LINES, _USAGE = "response-stream-is-not-cut", "event-lines-name-the-type", "streamed-response-has-usage"
_WHAT = {"plain": "a plain stream", "cut": "a stream that the limit cuts", "tool": "the stream of a tool call"}


class ResponsesStreamParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Write two sentences about the sea.", description="The user's message.")
    max_tokens: int = Field(default=192, ge=16, le=4096, description="Room for the whole answer, and for a tool call.")


async def drive(session: Session, params: ResponsesStreamParams, _: Transcript | None) -> None:
    """The plain response, then three streams."""
    plain: dict[str, Json] = {
        "input": params.prompt,
        "temperature": 0,
        "top_p": 1,
        "max_output_tokens": params.max_tokens,
    }
    streamed: dict[str, Json] = {**plain, "stream": True}
    await session.post("whole", "/responses", plain)
    await session.post("plain", "/responses", streamed)
    limit = half_of(reply_at(session.transcript, "whole"))
    await session.post("cut", "/responses", {**streamed, "max_output_tokens": limit})
    tool = flat_tool(f"fn_{session.nonce(8)}", session.nonce())
    forced: dict[str, Json] = {"input": SMALL_TALK, "tools": [tool], "tool_choice": "required"}
    await session.post("tool", "/responses", {**streamed, **forced})


def judge(transcript: Transcript, _: ResponsesStreamParams) -> Iterator[Finding]:
    """Judge the plain stream first; a tool call that is refused or fails belongs to another row."""
    plain, complete = reply_at(transcript, "plain"), reply_at(transcript, "whole")
    missing = _PART.unless_answered(_STREAMED, plain)
    if missing is not None:
        yield missing
    if not isinstance(plain, reply.Answer):
        return
    if unstreamed(plain):
        yield _PART.no_effect(_STREAMED, "stream was asked for, one whole response came", plain)
        return
    found = {name: reply_at(transcript, name) for name in _WHAT}
    answers = {name: each for name, each in found.items() if isinstance(each, reply.Answer) and not unstreamed(each)}
    yield _PART.held(_STREAMED, f"{len(answers)} kinds of request were streamed", *answers.values())
    streams = [stream_of(_WHAT[name], each) for name, each in answers.items()]
    rules = {_WHOLE: whole, **MUST, _USAGE: _usage, **MAY, _LINES: lines_agree}
    yield from judge_rules(_PART, rules, streams)
    yield _judge_cut(found["cut"], complete)
    yield _judge_lost(plain, complete)


def _usage(read: TypedStream) -> str:
    last = final_of(read)
    if last is None:
        return "no last event, so no usage"
    fault = counted(last, "input_tokens", "output_tokens", "total_tokens")
    usage = responses.usage_in(last)
    if fault or usage is None or usage.prompt is None or usage.completion is None or usage.total is None:
        return f"the last response has {fault or 'no usage'}"
    said = f"input_tokens {usage.prompt}, output_tokens {usage.completion}, total_tokens {usage.total}"
    adds_up = usage.prompt > 0 and usage.completion > 0 and usage.total == usage.prompt + usage.completion
    return "" if adds_up else f"usage does not add up: {said}"


def _judge_cut(cut: reply.Reply | None, complete: reply.Reply | None) -> Finding:
    limit = half_of(complete)
    unclear = was_cut(_PART, _CUT, cut, complete, limit)
    if unclear is not None:
        return unclear
    assert isinstance(cut, reply.Answer)
    status, reason = responses.status_of(cut), responses.incomplete_because(cut)
    last = next((event.type for event in reversed(typed(cut.exchange).events)), "")
    why = f"status {status or None!r}, incomplete_details.reason {reason or None!r} after {limit} tokens, {last!r}"
    told = status == "incomplete" and reason == "max_output_tokens"
    return (_PART.held if told else _PART.violated)(_CUT, why, cut)


def _judge_lost(plain: reply.Answer, complete: reply.Reply | None) -> Finding:
    if not isinstance(complete, reply.Answer):
        return _PART.undetermined(_LOST, "no plain response to compare with", plain)
    kinds = [
        [string(dig(item, "type")) for item in responses.items_of(body)]
        for body in (complete.body, final_of(typed(plain.exchange)))
    ]
    if complete.text and not plain.text.strip():
        why = f"no text in the stream, {quote(complete.text, 60)} without"
        return _PART.violated(_LOST, why, plain, complete)
    if piece := lost_piece(complete.text, plain.text):
        return _PART.violated(_LOST, f"the stream lacks {quote(piece, 60)}", plain, complete)
    if kinds[0] != kinds[1] and complete.text == plain.text:
        why = f"items are {', '.join(kinds[1])} in the stream and {', '.join(kinds[0])} without"
        return _PART.violated(_LOST, why, plain, complete)
    same = "the same text" if complete.text == plain.text else "another text, which goes on differently"
    return _PART.held(_LOST, f"{same}: {quote(plain.text, 60)}", plain, complete)


_RULES = {
    "response-stream-begins-with-created": "The first event of a stream is response.created, and there is one.",
    "response-stream-ends-once": "One event ends a stream, completed, incomplete or failed, and nothing follows it.",
    "sequence-numbers-count-up": "sequence_number goes up by one from event to event.",
    "item-events-have-indexes": "Every event about an item has its output_index, about a part its content_index too.",
    "items-open-grow-and-close": "Items and parts are added before they grow, end once, and grow no more then.",
    "item-ids-stay-the-same": "All events about an item, and the last response, name it by the id it was added with.",
    "one-response-id-per-stream": "The response has one id in all events.",
    "pieces-join-to-the-whole": "The pieces join to the text that the ending events and the last response give.",
    "last-event-names-the-status": "The last event is named as the status of its response.",
    "events-have-sequence-numbers": "Every event has a sequence_number.",
    "parts-that-open-close": "A part of an item that was added is done before its item is.",
}

PROBE = Probe(
    id="responses_stream",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_STREAMED, rule="With stream: true a stream without an error comes.", level=Level.MUST, source=_SOURCE
        ),
        Check(
            id=_WHOLE,
            rule="The connection ends by itself, after a whole event, and nothing follows [DONE].",
            level=Level.MUST,
            source=_SSE,
        ),
        *(Check(id=check, rule=_RULES[check], level=Level.MUST, source=_SOURCE) for check in MUST),
        Check(
            id=_USAGE,
            rule="The last response carries usage that adds up.",
            level=Level.MUST,
            source=_OBJECT,
        ),
        Check(
            id=_CUT,
            rule="A stream that max_output_tokens cut ends with an incomplete response that says why.",
            level=Level.MUST,
            source=_OBJECT,
        ),
        Check(
            id=_LOST,
            rule="The streamed text is not the plain one with a piece missing, and has the same items.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        *(Check(id=check, rule=_RULES[check], level=Level.SHOULD, source=_SOURCE) for check in MAY),
        Check(
            id=_LINES,
            rule="Every event has a type, and an event line that names it.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
    ),
    params=ResponsesStreamParams,
    drive=drive,
    judge=judge,
    requests=4,
    prompt_tokens=360,
    output_tokens=200,
)
