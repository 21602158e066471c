"""Responses and messages are read as they came, whole or as events, in the words that all replies share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from servecheck.model import Ending, Exchange, Json
from servecheck.read import messages, responses
from servecheck.read.reply import Answer, Failure, Refusal, Reply, ToolCall
from servecheck.read.typed import typed
from tests.made import cut, exchange, sse

Event = dict[str, Json]


def part(text: str) -> Event:
    return {"type": "output_text", "text": text, "annotations": []}


def item(text: str) -> Event:
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part(text)]}


CALL: Event = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}
THOUGHT: Event = {"id": "rs_1", "type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}


def response(*output: Event, status: str = "completed", **more: Json) -> Event:
    usage: Json = {
        "input_tokens": 7,
        "output_tokens": 3,
        "total_tokens": 10,
        "input_tokens_details": {"cached_tokens": 2},
    }
    return {"id": "r", "object": "response", "status": status, "output": list(output), "usage": usage, **more}


def streamed(*events: Event | bytes, done: bytes = b"") -> Exchange:
    return exchange("s", sse(events, done=done), content_type="text/event-stream", request={"stream": True})


def answer(found: Reply) -> Answer:
    assert isinstance(found, Answer)
    return found


@pytest.mark.parametrize(
    ("expected", "body"),
    [
        pytest.param(("Hi", "", (), "stop"), response(item("Hi")), id="a message"),
        pytest.param(("Hi", "Hm.", (), "stop"), response(THOUGHT, item("Hi")), id="a thought before it"),
        pytest.param(("", "", ("f",), "tool_calls"), response(CALL), id="a call"),
        pytest.param(
            ("H", "", (), "length"),
            response(item("H"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            id="cut by the limit",
        ),
        pytest.param(("H", "", (), "length"), response(item("H"), status="incomplete"), id="incomplete, and no reason"),
        pytest.param(
            ("", "", (), "content_filter"),
            response(status="incomplete", incomplete_details={"reason": "content_filter"}),
            id="stopped by a filter",
        ),
        pytest.param(("", "", (), "in_progress"), response(status="in_progress"), id="a status of its own"),
    ],
)
def test_a_whole_response_is_read(expected: tuple[str, str, tuple[str, ...], str], body: Event) -> None:
    found = answer(responses.response(exchange("w", body, request={})))
    assert (
        found.text,
        found.first.reasoning,
        tuple(call.name or "" for call in found.first.tool_calls),
        found.finish,
    ) == expected


def test_the_usage_of_a_response_is_read_in_its_own_words() -> None:
    usage = answer(responses.response(exchange("w", response(item("Hi")), request={}))).usage
    assert usage is not None
    assert (usage.prompt, usage.completion, usage.total, usage.cached) == (7, 3, 10, 2)


@pytest.mark.parametrize(
    ("kind", "words", "seen"),
    [
        pytest.param(Refusal, "", exchange("r", {"error": {"message": "no"}}, status=404), id="no such route"),
        pytest.param(Failure, "HTTP 500", exchange("r", {"error": {"message": "no"}}, status=500), id="fails"),
        pytest.param(Failure, "cut", cut("r"), id="is cut"),
        pytest.param(Failure, "not JSON", exchange("r", b"<html>"), id="is no JSON"),
        pytest.param(Failure, "no list of output items", exchange("r", {"choices": []}), id="has another shape"),
        pytest.param(Failure, "error body", exchange("r", {"error": {"message": "oh"}}), id="is an error with 200"),
        pytest.param(
            Failure,
            "status failed: “oh”",
            exchange("r", response(status="failed", error={"message": "oh"})),
            id="has failed",
        ),
        pytest.param(Failure, "is not JSON", streamed(b"data: {\n\n"), id="streams no JSON"),
        pytest.param(Failure, "error event", streamed({"type": "error", "message": "oh"}), id="streams an error"),
        pytest.param(
            Refusal, "", streamed({"type": "error", "code": 400, "message": "oh"}), id="streams an error with a code"
        ),
        pytest.param(
            Failure,
            "response.failed",
            streamed({"type": "response.failed", "response": response(error={"message": "oh"})}),
            id="fails on the way",
        ),
        pytest.param(Failure, "0 events without a response", streamed(), id="streams nothing"),
    ],
)
def test_what_is_no_response(kind: type[Reply], words: str, seen: Exchange) -> None:
    found = responses.response(seen)
    assert isinstance(found, kind)
    assert words in (found.what if isinstance(found, Failure) else "")


def test_a_stream_says_what_its_pieces_join_to_and_ends_as_its_last_response() -> None:
    found = answer(
        responses.response(
            streamed(
                {"type": "response.created", "response": response(status="in_progress")},
                {"type": "response.reasoning_text.delta", "output_index": 0, "delta": "Hm."},
                {"type": "response.output_text.delta", "output_index": 1, "delta": "He"},
                {"type": "response.output_text.delta", "output_index": 1, "delta": "llo"},
                {"type": "response.output_item.added", "output_index": 2, "item": {**CALL, "arguments": ""}},
                {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"a"'},
                {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": ": 2}"},
                {"type": "response.completed", "response": response(item("another text"))},
            )
        )
    )
    call = ToolCall(index=0, id="c", name="f", arguments='{"a": 2}', pieces=2, ids=("c",), kind="function")
    assert ("Hello", "Hm.", (call,), "tool_calls") == (
        found.text,
        found.first.reasoning,
        found.first.tool_calls,
        found.finish,
    )
    assert response(item("another text")) == found.body


@pytest.mark.parametrize(
    "last",
    [
        {"type": "response.function_call_arguments.done", "item_id": "fc_1", "arguments": '{"a": 1}'},
        {"type": "response.output_item.done", "item": CALL},
    ],
)
def test_arguments_that_came_in_no_piece_are_those_of_the_item(last: Event) -> None:
    added: Event = {"type": "response.output_item.added", "item": {**CALL, "arguments": ""}}
    found = answer(responses.response(streamed(added, last)))
    assert [call.arguments for call in found.first.tool_calls] == ['{"a": 1}']


def test_a_stream_without_its_end_has_no_finish() -> None:
    found = answer(responses.response(streamed({"type": "response.output_text.delta", "delta": "H"})))
    assert (found.finish, found.usage) == (None, None)


def message(*content: Event, reason: str | None = "end_turn", **more: Json) -> Event:
    usage: Json = {"input_tokens": 3, "cache_read_input_tokens": 16, "output_tokens": 4}
    return {"id": "m", "type": "message", "content": list(content), "stop_reason": reason, "usage": usage, **more}


TEXT: Event = {"type": "text", "text": "Hi"}
USE: Event = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}


@pytest.mark.parametrize(
    ("expected", "body"),
    [
        pytest.param(("Hi", "", (), "stop"), message(TEXT), id="a text"),
        pytest.param(
            ("Hi", "Hm.", (), "stop"), message({"type": "thinking", "thinking": "Hm."}, TEXT), id="a thought before it"
        ),
        pytest.param(("", "", ('{"a": 1}',), "tool_calls"), message(USE, reason="tool_use"), id="a tool"),
        pytest.param(("Hi", "", (), "length"), message(TEXT, reason="max_tokens"), id="cut by the limit"),
        pytest.param(("Hi", "", (), "stop"), message(TEXT, reason="stop_sequence"), id="stopped"),
        pytest.param(("Hi", "", (), "refusal"), message(TEXT, reason="refusal"), id="a reason of its own"),
        pytest.param(("Hi", "", (), None), message(TEXT, reason=None), id="no reason"),
    ],
)
def test_a_whole_message_is_read(expected: tuple[str, str, tuple[str, ...], str | None], body: Event) -> None:
    found = answer(messages.message(exchange("w", body, request={})))
    calls = tuple(call.arguments for call in found.first.tool_calls)
    assert (found.text, found.first.reasoning, calls, found.finish) == expected


def test_what_came_from_the_cache_is_part_of_the_prompt() -> None:
    usage = answer(messages.message(exchange("w", message(TEXT), request={}))).usage
    assert usage is not None
    assert (usage.prompt, usage.cached, usage.completion, usage.total) == (19, 16, 4, None)


def events(*between: Event, reason: str = "end_turn", usage: Json = None) -> Sequence[Event]:
    ended: Event = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage or {"output_tokens": 9}}
    return [{"type": "message_start", "message": message(reason=None)}, *between, ended, {"type": "message_stop"}]


def grown(index: int, start: Event, *deltas: Event) -> list[Event]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *[dict[str, Json](type="content_block_delta", index=index, delta=delta) for delta in deltas],
        {"type": "content_block_stop", "index": index},
    ]


def test_a_streamed_message_says_what_its_pieces_join_to_and_why_it_ended() -> None:
    said = grown(
        0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "H"}, {"type": "text_delta", "text": "i"}
    )
    pieces: list[Event] = [{"type": "input_json_delta", "partial_json": piece} for piece in ('{"a', '": 2}')]
    used = grown(1, {**USE, "input": {}}, *pieces)
    found = answer(messages.message(streamed(*events(*said, {"type": "ping"}, *used, reason="tool_use"))))
    usage = found.usage
    assert (found.text, found.first.tool_calls[0].arguments, found.finish) == ("Hi", '{"a": 2}', "tool_calls")
    assert usage is not None
    assert (usage.prompt, usage.completion) == (19, 9), "the input is counted at the start, the output at the end"


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        pytest.param("no list of content blocks", exchange("r", {"choices": []}), id="another shape"),
        pytest.param(
            "error body", exchange("r", {"type": "error", "error": {"message": "oh"}}), id="an error with 200"
        ),
        pytest.param(
            "error event",
            streamed({"type": "error", "error": {"type": "api_error", "message": "oh"}}),
            id="an error event",
        ),
        pytest.param("1 events without a message", streamed({"type": "ping"}), id="nothing but a ping"),
        pytest.param("is not JSON", streamed(b"data: x\n\n"), id="no JSON"),
    ],
)
def test_what_is_no_message(words: str, seen: Exchange) -> None:
    found = messages.message(seen)
    assert isinstance(found, Failure)
    assert words in found.what


def test_events_are_read_with_their_lines_and_nothing_is_repaired() -> None:
    raw = b'event: a\ndata: {"type": "b"}\n\ndata: [DONE]\n\ndata: {"type": "c"}\n\ndata: {\n\ndata: {"type"'
    read = typed(exchange("s", raw, content_type="text/event-stream", ending=Ending.COMPLETE))
    assert [(event.line, event.type) for event in read.events] == [("a", "b"), ("", "c")]
    assert (read.after_done, read.tail) == (2, b'data: {"type"')
    assert "event 4" in read.not_json
