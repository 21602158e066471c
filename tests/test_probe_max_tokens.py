"""Output limits: what is said where usage is missing, counts otherwise, or the answer ended by itself."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Json, Outcome
from servecheck.probes.max_tokens import PROBE
from tests.replies import chat, chat_stream, judged, refusal, reply, said, transcript, why

OLD, FINISH = "max-tokens-binds-exactly", "cut-answer-says-length"
LIMITED: Json = {"max_tokens": 7}


def arm(completion: int | None, finish: str = "length") -> Exchange:
    return chat("old", "one two", finish=finish, prompt=9, completion=completion, request=LIMITED)


CONTROL = chat("control", "one two three four", finish="length", prompt=9, completion=48)


@pytest.mark.parametrize(
    ("completion", "finish", "outcome"),
    [
        (7, "length", Outcome.HELD),
        (8, "length", Outcome.VIOLATED),
        (6, "length", Outcome.VIOLATED),
        (6, "stop", Outcome.UNDETERMINED),
        (48, "length", Outcome.NO_EFFECT),
        (60, "stop", Outcome.NO_EFFECT),
        (None, "length", Outcome.UNDETERMINED),
    ],
)
def test_the_count_by_usage_decides(completion, finish, outcome):
    assert said(judged(PROBE, transcript(CONTROL, arm(completion, finish))), OLD)[0] is outcome


def test_the_exact_count_with_another_finish_is_a_fault_of_the_finish_alone():
    found = judged(PROBE, transcript(CONTROL, arm(7, "stop")))

    assert said(found, OLD)[0] is Outcome.HELD
    assert said(found, FINISH) == [Outcome.VIOLATED]


def test_an_answer_that_ends_at_the_limit_by_itself_may_say_stop():
    short = chat("control", "one two", finish="stop", prompt=9, completion=7)

    assert said(judged(PROBE, transcript(short, arm(7, "stop"))), FINISH) == []


def test_thinking_that_is_counted_apart_is_added():
    usage: Json = {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    choice: Json = {"index": 0, "message": {"content": "one"}, "finish_reason": "length"}
    found = judged(PROBE, transcript(CONTROL, reply("old", {"choices": [choice], "usage": usage}, request=LIMITED)))

    assert said(found, OLD)[0] is Outcome.HELD


@pytest.mark.parametrize(
    ("pieces", "outcome"),
    [
        (["one", " two"], Outcome.HELD),
        (["one two three four five six seven"], Outcome.NO_EFFECT),
        (["something else"], Outcome.UNDETERMINED),
    ],
)
def test_a_stream_without_usage_is_judged_by_the_whole_reply_with_the_same_limit(pieces, outcome):
    stream = chat_stream("old-stream", *pieces, finish="length", request=LIMITED)

    assert said(judged(PROBE, transcript(CONTROL, arm(7), stream)), OLD)[1] is outcome


def test_a_refused_control_makes_a_refusal_say_nothing():
    found = judged(PROBE, transcript(refusal("control", "no"), refusal("old", "no")))

    assert said(found, OLD)[0] is Outcome.UNDETERMINED
    assert "so was the control" in why(found, OLD)
