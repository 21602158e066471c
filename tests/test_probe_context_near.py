"""Just below the limit: how long the prompt is made, and what is said where the limit is another than given."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servecheck.model import Ending, Finding, Outcome
from servecheck.probes import context_near
from servecheck.probes.context_near import PROBE
from tests.replies import chat, judged, refusal, reply, said, transcript, why

ANSWERED, WHOLE = "near-limit-prompt-is-answered", "near-limit-prompt-is-counted-whole"
FITS = "prompt-of-unknown-fit-is-refused-or-read-whole"
SANE, KNOWN = "near-limit-text-is-not-garbage", "near-limit-answer-is-the-known-one"
CONTROLS = (
    chat("short", "candle", prompt=220),
    chat("twice", "Candle.", prompt=420),
    chat("padded", "candle", prompt=266),
)


@pytest.mark.parametrize("limit", [512, 1000, 2048, 4096, 131_072])
def test_the_prompt_and_its_answer_end_just_below_the_limit(limit):
    params = PROBE.params()
    found = transcript(*CONTROLS, max_model_len=str(limit))
    size = context_near._size(found, params, limit)

    assert size is not None
    assert limit - params.room - 24 - 2 <= context_near._expected(found, size) <= limit - params.room - 24


def test_a_limit_below_the_shortest_prompt_gives_none():
    assert context_near._size(transcript(*CONTROLS), PROBE.params(), 256) is None


def near(text: str, prompt: int) -> list[Finding]:
    return judged(PROBE, transcript(*CONTROLS, chat("near", text, prompt=prompt), max_model_len="2048"))


def test_a_whole_and_right_answer_holds_everything():
    assert {each.outcome for each in near("candle", 1960)} == {Outcome.HELD}


@pytest.mark.parametrize(("tokens", "outcome"), [(1965, Outcome.HELD), (1975, Outcome.HELD), (1024, Outcome.VIOLATED)])
def test_the_count_must_be_what_the_parts_add_up_to(tokens, outcome):
    assert said(near("candle", tokens), WHOLE) == [outcome]


def test_another_word_than_the_short_prompts_give_is_wrong_and_a_run_of_one_character_is_garbage():
    assert said(near("river", 1960), KNOWN) == [Outcome.VIOLATED]
    assert said(near("!!!!!!!!!!!!!!!!", 1960), SANE) == [Outcome.VIOLATED]


def test_nothing_is_known_of_a_model_that_does_not_repeat_the_word_in_short_prompts():
    others = (chat("short", "Sorry.", prompt=220), *CONTROLS[1:])
    found = judged(PROBE, transcript(*others, chat("near", "No.", prompt=1960), max_model_len="2048"))

    assert said(found, KNOWN) == []
    assert said(found, ANSWERED) == [Outcome.HELD]


def test_a_refusal_that_names_a_lower_limit_is_followed():
    refused = refusal("near", "the context size is 1024 tokens")
    again = chat("near-again", "candle", prompt=936)
    found = judged(PROBE, transcript(*CONTROLS, refused, again, max_model_len="2048"))

    assert {each.outcome for each in found} == {Outcome.HELD}
    assert "limit 1024" in why(found, ANSWERED)


def test_a_refusal_that_names_no_lower_limit_is_a_refusal():
    found = judged(PROBE, transcript(*CONTROLS, refusal("near", "does not fit"), max_model_len="2048"))

    assert said(found, ANSWERED) == [Outcome.REFUSED]


def test_without_a_limit_nothing_can_be_told():
    assert said(judged(PROBE, transcript(*CONTROLS)), ANSWERED) == [Outcome.UNDETERMINED]


HELD, VIOLATED, UNDETERMINED = Outcome.HELD, Outcome.VIOLATED, Outcome.UNDETERMINED


@pytest.mark.parametrize(
    ("found", "fits", "answered", "reason"),
    [
        (refusal("search", "too large", 413), [HELD], [UNDETERMINED], "is refused without naming it"),
        (chat("search", "fine", prompt=2051), [VIOLATED], [], "as 2051 tokens: its text was dropped in silence"),
        (chat("search", "fine", prompt=190_000), [HELD], [HELD], "no limit was met"),
        (chat("search", "fine"), [UNDETERMINED], [], "answered after 0.2 s without a count of its tokens: “fine”"),
        (reply("search", b"\xff\xfe"), [VIOLATED], [], "is not JSON"),
        (
            reply("search", b"", status=None, ending=Ending.ABORTED, took=60.0),
            [UNDETERMINED],
            [],
            "got no reply in 60 s",
        ),
        (
            reply("search", b'{"id"', ending=Ending.ABORTED, took=60.0),
            [UNDETERMINED],
            [],
            "got HTTP 200 and 5 bytes in 60 s, and was not over",
        ),
        (reply("search", {"error": {"message": "boom"}}, status=500), [VIOLATED], [], "HTTP 500: “boom”"),
    ],
)
def test_an_unknown_limit_is_looked_for_with_one_long_prompt_and_what_came_is_said(found, fits, answered, reason):
    judgement = judged(PROBE, transcript(*CONTROLS, found))

    assert said(judgement, FITS) == fits
    assert said(judgement, ANSWERED) == answered
    assert reason in why(judgement, FITS) + why(judgement, ANSWERED)


def test_a_limit_that_the_long_prompt_s_refusal_names_is_used():
    refused = refusal("search", "longer than the context of 2048 tokens")
    judgement = judged(PROBE, transcript(*CONTROLS, refused, chat("near", "candle", prompt=1960)))

    assert {each.outcome for each in judgement} == {HELD}
    assert said(judgement, FITS) == [HELD]


def test_a_server_that_reports_no_usage_is_sent_no_long_prompt():
    steps = []

    class Session:
        fingerprint = transcript(max_model_len="2048").fingerprint
        transcript = transcript(chat("short", "candle"), max_model_len="2048")

        def nonce(self):
            return "bcdfg"

        async def chat(self, step, body):
            steps.append(step)

    drive: Any = PROBE.drive
    asyncio.run(drive(Session(), PROBE.params(), None))

    assert steps == ["short", "twice", "padded"]
