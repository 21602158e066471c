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
from servecheck.probes._plain import TYPED_COUNTS, sum_of
from servecheck.probes._response_events import MAY, MUST, final_of
from servecheck.probes._routes import half_of, was_cut
from servecheck.probes._steps import reply_at
from servecheck.probes._tools import SMALL_TALK, flat_tool
from servecheck.probes._typed_streams import counted, judge_lost, judge_streams, lines_agree, streamed_at, whole
from servecheck.read import reply, responses
from servecheck.read.text import dig, string
from servecheck.read.typed import TypedStream, typed

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/responses-streaming"
_OBJECT = "https://platform.openai.com/docs/api-reference/responses/object"
_SSE = "https://html.spec.whatwg.org/multipage/server-sent-events.html"
_PART = Part(route=Route.RESPONSES, mode=Mode.STREAM)
_STREAMED, _CUT, _LOST = "response-is-streamed", "cut-stream-is-incomplete", "streamed-response-lacks-no-piece"
_WHOLE, _LINES, _USAGE = "response-stream-is-not-cut", "event-lines-name-the-type", "streamed-response-has-usage"


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
    rules = {_WHOLE: whole, **MUST, _USAGE: _usage, **MAY, _LINES: lines_agree}
    yield from judge_streams(_PART, _STREAMED, rules, transcript, "response")
    if streamed_at(transcript, "plain") is not None:
        yield _judge_cut(reply_at(transcript, "cut"), reply_at(transcript, "whole"))
        yield judge_lost(_PART, _LOST, transcript, "response", _unlike)


def _usage(read: TypedStream) -> str:
    last = final_of(read)
    if last is None:
        return "no last event, so no usage"
    fault = counted(last, *TYPED_COUNTS)
    usage = responses.usage_in(last)
    if fault or usage is None:
        return f"the last response has {fault or 'no usage'}"
    return sum_of(usage, TYPED_COUNTS)[0]


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


def _unlike(complete: reply.Answer, plain: reply.Answer) -> str:
    left, right = (
        [string(dig(item, "type")) for item in responses.items_of(body)]
        for body in (complete.body, final_of(typed(plain.exchange)))
    )
    if left == right or complete.text != plain.text:
        return ""
    return f"items are {', '.join(right)} in the stream and {', '.join(left)} without"


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
