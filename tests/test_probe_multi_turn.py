"""Conversations: how turns are counted, and when two equal answers prove that a word was not read."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from servecheck.model import Exchange, Outcome, Transcript
from servecheck.probes.multi_turn import PROBE
from tests.replies import chat, judged, refusal, said, transcript, why

COUNTED, READ, SYSTEM = "each-turn-is-counted", "earlier-turns-reach-the-model", "system-message-is-counted"


def counts(two: int | None, four: int | None, ten: int | None) -> Transcript:
    steps = (("alone", 20), ("pair-turns-one", two), ("turns-4", four), ("turns-10", ten))
    return transcript(*(chat(step, prompt=tokens) for step, tokens in steps))


@pytest.mark.parametrize(
    ("tokens", "outcome"),
    [
        ((100, 170, 380), Outcome.HELD),
        ((100, 170, 385), Outcome.HELD),
        ((100, 170, 310), Outcome.VIOLATED),
        ((100, 100, 100), Outcome.VIOLATED),
        ((100, 170, 170), Outcome.VIOLATED),
        ((100, 110, 140), Outcome.VIOLATED),
        ((100, 170, 900), Outcome.VIOLATED),
        ((None, None, None), Outcome.UNDETERMINED),
    ],
)
def test_turns_of_one_length_cost_the_same_each(tokens, outcome):
    assert said(judged(PROBE, counts(*tokens)), COUNTED) == [outcome]


def pair(one: Exchange, other: Exchange) -> Transcript:
    return transcript(chat("alone", "x", prompt=9), one, other)


def side(name: str, text: str, logprobs: Iterable[float] = ()) -> Exchange:
    return chat(f"pair-turns-{name}", text, prompt=9, logprobs=logprobs)


@pytest.mark.parametrize(
    ("one", "other", "outcome"),
    [
        (("yes", [-0.5, -0.25]), ("no", [-0.5, -0.25]), Outcome.HELD),
        (("yes", [-0.5, -0.25]), ("yes", [-0.5, -0.2500001]), Outcome.HELD),
        (("yes", [-0.5, -0.25]), ("yes", [-0.5, -0.25]), Outcome.VIOLATED),
        (("yes", [0.0, -1e-9]), ("yes", [0.0, -1e-9]), Outcome.UNDETERMINED),
        (("yes", []), ("yes", []), Outcome.UNDETERMINED),
    ],
)
def test_only_an_answer_equal_to_the_last_uncertain_digit_proves_that_the_word_was_not_read(one, other, outcome):
    found = judged(PROBE, pair(side("one", *one), side("other", *other)))

    assert said(found, READ) == [outcome]


def test_without_logprobs_the_plain_requests_are_compared():
    plain = [chat(f"pair-turns-{name}-plain", text, prompt=9) for name, text in (("one", "abc"), ("other", "abd"))]
    refused = [refusal("pair-turns-one", "no logprobs"), refusal("pair-turns-other", "no logprobs")]
    found = judged(PROBE, transcript(chat("alone", "x", prompt=9), *refused, *plain))

    assert said(found, READ) == [Outcome.HELD]


def test_a_system_role_that_is_refused_is_refused_and_the_turns_still_count():
    found = judged(PROBE, transcript(*counts(100, 170, 380), refusal("pair-system-one"), refusal("system-long")))

    assert said(found, COUNTED) == [Outcome.HELD]
    assert said(found, SYSTEM) == [Outcome.REFUSED]


def test_the_reason_shows_the_tokens():
    assert "first 35 tokens a turn, then 0" in why(judged(PROBE, counts(100, 170, 170)), COUNTED)
