"""Speculative decoding: where drafts are counted, where there are none, and which differences are lost words."""

from __future__ import annotations

from typing import Any

import pytest

from servecheck.model import Exchange, Json, NotApplicable, Outcome
from servecheck.probes.speculative_active import PROBE
from tests.replies import chat, chat_stream, judged, refusal, reply, said, transcript, why

H, V, N, R, U = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.UNDETERMINED
TEXT = "one two three four five six"


def vllm(step: str, proposed: int, accepted: int) -> Exchange:
    drafts = f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {proposed}\n'
    return reply(
        step,
        f'{drafts}vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}\n'.encode(),
        path="/metrics",
        kind="text/plain",
    )


def judge(*exchanges: Exchange, whole: str = TEXT, streamed: str = TEXT, made: int = 64) -> list[Any]:
    right = [
        vllm("before", 100, 50),
        *(chat(f"whole-{place}", whole, finish="length", completion=made, prompt=20) for place in (1, 2)),
        *(chat_stream(f"stream-{place}", streamed, finish="length") for place in (1, 2)),
        vllm("after-1", 140, 75),
    ]
    given = {exchange.step: exchange for exchange in (*right, *exchanges)}
    return judged(PROBE, transcript(*given.values()))


def test_counters_that_move_and_texts_that_agree_hold_every_rule():
    found = judge()

    assert {one.outcome for one in found} == {H}
    assert {one.check for one in found} == {check.id for check in PROBE.checks}


@pytest.mark.parametrize(
    ("proposed", "accepted", "check", "outcome"),
    [
        (100, 50, "drafts-are-proposed", N),
        (140, 50, "some-drafts-are-accepted", V),
        (140, 91, "some-drafts-are-accepted", V),
        (140, 90, "some-drafts-are-accepted", H),
        (20, 10, "drafts-are-proposed", N),
    ],
    ids=["none drafted", "none accepted", "more than all", "all", "reset"],
)
def test_drafts_are_counted_between_two_reads(proposed, accepted, check, outcome):
    assert said(judge(vllm("after-1", proposed, accepted)), check) == [outcome]


@pytest.mark.parametrize(("made", "outcome"), [(64, H), (67, V), (61, V)])
def test_a_block_keeps_to_the_limit(made, outcome):
    assert set(said(judge(made=made), "speculation-keeps-the-token-limit")) == {outcome}


def test_a_stream_that_twice_says_less_has_lost_words():
    assert said(judge(streamed="one two four five six"), "speculation-streams-every-word") == [V]


def test_text_that_does_not_repeat_shows_no_loss():
    again = chat("whole-2", "one two three, and so on", finish="length", completion=64)

    assert said(judge(again, streamed="something else"), "speculation-streams-every-word") == [U]


# --------------------------------------------------------------------------- nothing to judge


def test_metrics_without_draft_counters_say_that_nothing_is_drafted():
    plain = reply("before", b"vllm:num_requests_running 0\n", path="/metrics", kind="text/plain")

    assert [type(one) for one in judge(plain)] == [NotApplicable]


@pytest.mark.parametrize(("algorithm", "applies"), [(None, False), ("EAGLE", True)])
def test_sglang_says_in_its_settings_whether_it_speculates(algorithm, applies):
    settings = reply("settings", {"speculative_algorithm": algorithm}, path="/server_info")
    gauges = b"sglang:spec_accept_length 0\nsglang:spec_verify_calls_total 3\n"
    moved = b"sglang:spec_accept_length 2.5\nsglang:spec_verify_calls_total 40\n"
    before = reply("before", gauges, path="/metrics", kind="text/plain")
    after = reply("after-1", moved, path="/metrics", kind="text/plain")
    found = judge(settings, before, after)

    assert (not any(isinstance(one, NotApplicable) for one in found)) is applies
    if applies:
        assert said(found, "drafts-are-proposed") == [H]


@pytest.mark.parametrize(
    ("timings", "check", "outcome"),
    [
        ({"predicted_n": 64, "draft_n": 30, "draft_n_accepted": 20}, "some-drafts-are-accepted", H),
        ({"predicted_n": 64, "draft_n": 30, "draft_n_accepted": 0}, "some-drafts-are-accepted", V),
        ({"predicted_n": 64, "draft_n": 0, "draft_n_accepted": 0}, "drafts-are-proposed", N),
    ],
)
def test_llama_cpp_counts_drafts_in_its_replies(timings, check, outcome):
    usage: Json = {"prompt_tokens": 20, "completion_tokens": 64}
    choice: Json = {"index": 0, "message": {"content": TEXT}, "finish_reason": "length"}
    answers = [reply(f"whole-{place}", {"choices": [choice], "usage": usage, "timings": timings}) for place in (1, 2)]

    assert said(judge(refusal("before", "Start it with --metrics", 501, "/metrics"), *answers), check) == [outcome]


def test_hidden_metrics_leave_it_unknown():
    found = judge(refusal("before", "not found", 404, "/metrics"))

    assert [one.outcome for one in found] == [U]
    assert "metrics do not come" in why(found, "drafts-are-proposed")


@pytest.mark.parametrize("body", [b"", b"{{{", b"\xff\xfe"])
def test_the_judge_says_something_of_any_bytes(body):
    assert judge(reply("before", body, path="/metrics"), reply("after-1", body, path="/metrics"))
