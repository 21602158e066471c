"""What looks like a reported fault and is none, and the fault beside it; one line for each kind."""

from __future__ import annotations

import json

import pytest

from servecheck.model import Exchange, Outcome
from servecheck.probe import Judgement
from servecheck.probes import (
    chat_basic,
    json_object,
    logprobs_stream,
    reasoning_split,
    several_choices,
    streaming_equals_non_stream,
    streaming_frames,
    tools_stream,
)
from servecheck.probes._schemas import NONCE_SCHEMA, response_format, with_nonce
from servecheck.read.markup import call_mark
from servecheck.read.text import garbage
from tests.made import ROLE, event, exchange, failure, only, refusal, spoken, stream, transcript, whole

V, R = Outcome.VIOLATED, Outcome.REFUSED
SHAPE = response_format(with_nonce(NONCE_SCHEMA, "tbxq"))
RIGHT = '{"code": "tbxq"}'
ENTRIES = {"content": [{"token": "Red", "logprob": -0.5, "bytes": [82], "top_logprobs": []}]}


def asked(step: str, body: object, **request: object) -> Exchange:
    return exchange(step, body, request={"model": "tiny", "messages": [], **request})


def fault(found: Judgement, check: str) -> Outcome | None:
    """Return how a check did not hold, ``None`` where it held or nothing is said of it."""
    outcomes = {one.outcome for one in only(found) if one.check == check} - {Outcome.HELD}
    return next(iter(outcomes), None)


@pytest.mark.parametrize(
    ("garbled", "text"),
    [
        (False, "1000000000000"),
        (False, "It costs 1,000,000,000 euros."),
        (True, "4" * 48),
        (True, "!" * 12),
    ],
)
def test_long_runs_of_a_digit_are_garbage_and_big_numbers_are_none(garbled, text):
    assert bool(garbage(text)) is garbled


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("", "Call the function"),
        ("", "if a <functional then b"),
        ("<function", "<function"),
        ("<tool_call", "I will look.\n<tool_call"),
    ],
)
def test_the_beginning_of_a_mark_counts_at_the_end_of_a_text(mark, text):
    assert call_mark(text) == mark


@pytest.mark.parametrize(
    ("expected", "bare", "nulls"),
    [
        (None, whole(), whole()),
        (None, refusal("bare"), refusal("nulls")),
        (R, whole(), refusal("nulls", "temperature must be a number")),
        (V, whole(), failure("nulls")),
    ],
)
def test_nulls_count_where_the_same_request_without_them_is_answered(expected, bare, nulls):
    exchanges = [
        one if isinstance(one, Exchange) else asked(step, one, max_tokens=48)
        for step, one in (("greedy", whole()), ("bare", bare), ("nulls", nulls))
    ]

    found = chat_basic.PROBE.judge(transcript(*exchanges), chat_basic.ChatBasicParams())
    assert fault(found, "null-is-as-good-as-absent") == expected


@pytest.mark.parametrize(
    ("expected", "usage"),
    [
        (None, {"completion_tokens_details": {"reasoning_tokens": 6}}),
        (None, {"prompt_tokens_details": {"cached_tokens": 20}, "completion_tokens_details": None}),
        (V, {"completion_tokens_details": {"reasoning_tokens": 7}}),
        (V, {"prompt_tokens_details": {"cached_tokens": 21}}),
    ],
)
def test_a_part_of_the_bill_may_be_all_of_it_and_no_more(expected, usage):
    body = whole(usage={"prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26, **usage})
    found = chat_basic.PROBE.judge(transcript(asked("bare", body, max_tokens=48)), chat_basic.ChatBasicParams())

    assert fault(found, "usage-adds-up") == expected


@pytest.mark.parametrize(
    ("expected", "text", "finish"),
    [
        (None, '{\n    "answer": {\n        "is": "yes"\n    }\n}', "stop"),
        (None, '{\n    "answer":', "length"),
        (None, '{"answer": "yes"}' + " " * 60, "stop"),
        (V, "{" + "\n  " * 40, "length"),
    ],
)
def test_white_space_is_a_fault_where_it_runs_into_the_limit(expected, text, finish):
    found = json_object.PROBE.judge(
        transcript(asked("simple", whole(text, finish))), json_object.PROBE.params.model_validate({})
    )

    assert fault(found, "white-space-comes-to-an-end-in-json-mode") == expected


def _logprobs(step: str, *, entries: bool = True) -> Exchange:
    first = event({"content": "Red"})
    first["choices"][0]["logprobs"] = ENTRIES if entries else None  # type: ignore[index]
    return stream(step, [ROLE, first, event(finish="stop")])


@pytest.mark.parametrize(
    ("expected", "tools"),
    [
        (None, _logprobs("tools")),
        (None, refusal("tools", "auto tool choice requires a parser")),
        (None, stream("tools", [ROLE, event({"tool_calls": [{"index": 0}]}), event(finish="tool_calls")])),
        (R, refusal("tools", "logprobs is not supported with tools + stream")),
        (V, _logprobs("tools", entries=False)),
    ],
)
def test_tools_count_against_logprobs_where_the_text_is_there(expected, tools):
    found = logprobs_stream.PROBE.judge(
        transcript(_logprobs("stream-1"), tools), logprobs_stream.LogprobsStreamParams(prompts=("Hello",))
    )

    assert fault(found, "tools-leave-the-logprobs-in-streams") == expected


@pytest.mark.parametrize(
    ("expected", "events"),
    [
        (None, spoken(*"abcdefghij")),
        (None, spoken("ab")),
        (None, [ROLE, event({"tool_calls": [{"index": 0, "id": "c"}]}), event(finish="tool_calls")]),
        (V, spoken("abcdefghij")),
    ],
)
def test_a_text_in_one_piece_beside_tools_is_a_fault_where_it_is_as_long(expected, events):
    streams = [stream(step, spoken(*"abcdefghij")) for step in ("plain", "usage")]
    found = streaming_frames.PROBE.judge(
        transcript(*streams, stream("tools", events)), streaming_frames.StreamingFramesParams()
    )

    assert fault(found, "tools-leave-the-text-in-pieces") == expected


@pytest.mark.parametrize(
    ("expected", "tokens", "thought"),
    [
        (None, None, "The sum of both."),
        (None, 4, "The sum of both."),
        (None, 0, "Yes"),
        (V, 0, "The sum of both."),
        (V, 9, "The sum of both."),
    ],
)
def test_thinking_is_counted_where_it_is_counted_at_all(expected, tokens, thought):
    usage: dict[str, object] = {"prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26}
    if tokens is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": tokens}
    found = reasoning_split.PROBE.judge(
        transcript(asked("plain", whole("17", usage=usage, reasoning_content=thought))),
        reasoning_split.ReasoningSplitParams(mode="whole"),
    )

    assert fault(found, "reasoning-tokens-count-the-thinking") == expected


def _call(arguments: str, finish: str = "tool_calls") -> list[object]:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "fn_a", "arguments": arguments}}
    return [ROLE, event({"tool_calls": [call]}), event(finish=finish)]


@pytest.mark.parametrize(
    ("expected", "empty"),
    [
        (None, stream("stream-empty", _call("{}"))),
        (None, stream("stream-empty", _call("{ }"))),
        (None, stream("stream-empty", _call("", "length"))),
        (None, stream("stream-empty", spoken("Hello."))),
        (V, stream("stream-empty", _call(""))),
        (V, stream("stream-empty", _call("[]"))),
        (R, refusal("stream-empty")),
    ],
)
def test_no_arguments_are_an_empty_object(expected, empty):
    found = tools_stream.PROBE.judge(
        transcript(stream("stream-6", _call('{"code": "a"}')), empty), tools_stream.ToolsStreamParams()
    )

    assert fault(found, "call-without-arguments-has-an-empty-object") == expected


@pytest.mark.parametrize(
    ("expected", "texts"),
    [
        (None, [(RIGHT, "stop"), (RIGHT, "stop")]),
        (None, [("The sea.", "stop"), ("The sky.", "stop")]),
        (None, [(RIGHT, "stop"), ('{"code": "tb', "length")]),
        (None, [(RIGHT, "stop")]),
        (V, [(RIGHT, "stop"), ("The sky.", "stop")]),
    ],
)
def test_a_schema_for_one_choice_is_one_for_all(expected, texts):
    choices = [
        {"index": place, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
        for place, (text, finish) in enumerate(texts)
    ]
    found = several_choices.PROBE.judge(
        transcript(asked("shaped", {**whole(), "choices": choices}, n=2, response_format=SHAPE)),
        several_choices.SeveralChoicesParams(),
    )

    assert fault(found, "a-schema-shapes-every-choice") == expected


@pytest.mark.parametrize(("expected", "model"), [(None, "tiny"), (None, ""), (V, "/models/weights")])
def test_a_stream_names_the_model_as_the_whole_does(expected, model):
    events = json.loads(json.dumps(spoken("Red, green and blue.")).replace('"tiny"', json.dumps(model)))
    found = streaming_equals_non_stream.PROBE.judge(
        transcript(asked("whole-1", whole()), stream("stream-1", events)),
        streaming_equals_non_stream.StreamingEqualsParams(prompts=("Hello",)),
    )

    assert fault(found, "stream-names-the-model-of-the-whole") == expected
