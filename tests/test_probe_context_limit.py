"""Over the limit: which number in a refusal is the limit, and what an answer to too long a prompt means."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servecheck.model import Ending, Exchange, Finding, Json, Outcome, Risk
from servecheck.probes._context import limit_in
from servecheck.probes.context_limit import PROBE
from tests.replies import chat, chat_stream, judged, refusal, reply, said, streamed, transcript, why

REFUSED, STATUS = "too-long-prompt-is-refused", "too-long-stream-is-refused-by-status"
NAMED, QUICK, OUTPUT = "refusal-names-the-limit", "refusal-comes-at-once", "too-much-output-is-no-server-error"
SHAPE, AFTER = "errors-have-one-shape", "server-answers-after-a-refusal"
SHORT = chat("short", "ok", prompt=60)


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("the context length of this model is 2048 tokens, and the prompt has at least 2049", 2048),
        ("max_tokens=100000000 must not be above max_model_len=2048 (value=100000000)", 2048),
        ("request (10031 tokens) exceeds the available context size (4096 tokens)", 4096),
        ("The input (9031 tokens) is longer than the context length of the model (8192 tokens).", 8192),
        ("prompt has 8100 tokens; limit 4096", 4096),
        ("the limit is 131072 tokens", 131072),
        ("bad request", None),
        ("error 400 at line 1024 of body", None),
        ("code 12 of version 0.32.1000 exceeds the limit", None),
    ],
)
def test_the_limit_is_the_smallest_number_near_a_word_about_limits(message, limit):
    assert limit_in(message, (100_000_000,)) == limit


def over(*exchanges: Exchange) -> list[Finding]:
    return judged(PROBE, transcript(SHORT, *exchanges, max_model_len="2048"))


def test_a_prompt_answered_with_fewer_tokens_than_the_limit_was_cut_in_silence():
    found = over(chat("over", "fine", prompt=2040))

    assert said(found, REFUSED)[0] is Outcome.VIOLATED
    assert "dropped in silence" in why(found, REFUSED)


def test_a_prompt_answered_with_more_tokens_than_the_limit_shows_that_the_limit_is_another():
    assert said(over(chat("over", "fine", prompt=2100)), REFUSED)[0] is Outcome.UNDETERMINED


def test_an_answer_without_usage_to_too_long_a_prompt_is_wrong():
    assert said(over(chat("over", "fine")), REFUSED)[0] is Outcome.VIOLATED


def test_a_refusal_in_an_event_of_a_stream_is_a_refusal_with_the_wrong_status():
    event: Json = {"error": {"message": "longer than the context of 2048 tokens", "code": 400}}
    found = over(refusal("over", "the context is 2048 tokens"), streamed("over-stream", event))

    assert said(found, REFUSED) == [Outcome.HELD, Outcome.HELD]
    assert said(found, STATUS) == [Outcome.VIOLATED]
    assert said(found, NAMED) == [Outcome.HELD, Outcome.HELD]


@pytest.mark.parametrize(("seconds", "outcome"), [(0.3, Outcome.HELD), (10.0, Outcome.HELD), (10.1, Outcome.VIOLATED)])
def test_a_refusal_should_come_at_once(seconds, outcome):
    late = reply("over", {"error": {"message": "limit 2048"}}, status=400, took=seconds)

    assert said(over(late), QUICK) == [outcome]


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (refusal("output", "above the limit of 2048"), Outcome.HELD),
        (reply("output", b"", kind="text/event-stream", ending=Ending.ABORTED), Outcome.HELD),
        (reply("output", {"error": {"message": "no"}}, status=500), Outcome.VIOLATED),
    ],
)
def test_too_much_output_may_be_refused_or_begun_but_is_no_server_error(found, outcome):
    assert said(over(refusal("over"), found), OUTPUT) == [outcome]


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"error": {"message": "messages must be a list"}}, Outcome.HELD),
        ({"object": "error", "message": "messages must be a list"}, Outcome.VIOLATED),
        ({"detail": [{"msg": "messages must be a list"}]}, Outcome.VIOLATED),
        (b"Bad Request", Outcome.VIOLATED),
    ],
)
def test_two_refusals_of_one_route_have_one_shape(body, outcome):
    assert said(over(refusal("over"), reply("wrong-type", body, status=400)), SHAPE) == [outcome]


def test_a_wrong_type_that_is_taken_says_nothing_of_shapes():
    assert said(over(refusal("over"), chat("wrong-type", "yes")), SHAPE) == []


def test_a_server_that_refuses_everything_afterwards_is_broken():
    assert said(over(refusal("over"), refusal("after", "no free blocks")), AFTER) == [Outcome.VIOLATED]


def test_without_a_limit_nothing_long_is_sent_and_the_reason_says_what_looks_for_it():
    asked = chat_stream("ask", "yes")
    found = judged(PROBE, transcript(SHORT, asked))

    assert said(found, REFUSED) == [Outcome.UNDETERMINED]
    assert "neither the server nor a refusal gives its limit" in why(found, REFUSED)
    assert "--allow load" in why(found, REFUSED)
    assert Risk.SAFE is PROBE.risk
    assert PROBE.prompt_tokens < 1_000


@pytest.mark.parametrize(
    ("asked", "outcome"),
    [
        (refusal("ask", "too much"), Outcome.HELD),
        (chat_stream("ask", "yes"), Outcome.HELD),
        (reply("ask", {"error": {"message": "overflow"}}, status=500), Outcome.VIOLATED),
    ],
)
def test_far_too_much_output_is_judged_where_the_limit_is_unknown_too(asked, outcome):
    assert said(judged(PROBE, transcript(SHORT, asked)), OUTPUT) == [outcome]


def test_an_unknown_limit_sends_no_prompt_longer_than_the_measured_ones():
    sent: list[int] = []

    class Session:
        fingerprint = transcript().fingerprint
        transcript = transcript(SHORT)

        def nonce(self):
            return "bcdfg"

        async def chat(self, step, body):
            sent.append(len(str(body["messages"])))

        async def abort_after(self, step, path, body, **_):
            sent.append(len(str(body["messages"])))

    drive: Any = PROBE.drive
    asyncio.run(drive(Session(), PROBE.params(), None))

    assert max(sent) < 2_500
