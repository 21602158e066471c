"""Several answers: what is said of odd numbers, lucky repeats and the bounds of usage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from servecheck.model import Exchange, Finding, Json, Mode, Outcome
from servecheck.probes.several_choices import PROBE
from tests.replies import chat, judged, refusal, reply, said, streamed, transcript, usage, why

COUNT, LARGE, DIFFER = "n-gives-that-many-choices", "n-is-taken-as-large-as-asked", "choices-differ"
INDEX, ENDS, USAGE = "choices-are-numbered-from-zero", "each-choice-ends-once", "usage-counts-all-choices"
ONE = chat("one", "a boat")


def many(
    *texts: str,
    step: str = "many",
    finish: str = "length",
    completion: int = 72,
    indices: Iterable[Any] | None = None,
) -> Exchange:
    places = indices or range(len(texts))
    choices: list[Json] = [
        {"index": place, "message": {"content": text}, "finish_reason": finish}
        for place, text in zip(places, texts, strict=True)
    ]
    return reply(step, {"choices": choices, **usage(9, completion)})


def whole(*exchanges: Exchange) -> list[Finding]:
    return [each for each in judged(PROBE, transcript(ONE, *exchanges)) if each.mode is Mode.NON_STREAM]


def test_three_different_answers_hold_everything():
    assert {each.outcome for each in whole(many("a", "b", "c"))} == {Outcome.HELD}


def test_the_same_three_once_and_not_again_is_luck():
    assert said(whole(many("a", "a", "a"), many("a", "b", "a", step="many-again")), DIFFER) == [Outcome.HELD]


def test_the_same_three_twice_is_no_luck():
    again = many("b", "b", "b", step="many-again")

    assert said(whole(many("a", "a", "a"), again), DIFFER) == [Outcome.VIOLATED]


@pytest.mark.parametrize(
    ("completion", "outcome"),
    [(72, Outcome.HELD), (71, Outcome.VIOLATED), (24, Outcome.VIOLATED), (73, Outcome.VIOLATED)],
)
def test_three_answers_cut_at_24_tokens_are_72_tokens(completion, outcome):
    assert said(whole(many("a", "b", "c", completion=completion)), USAGE) == [outcome]


def test_answers_that_end_by_themselves_bound_usage_loosely():
    assert said(whole(many("a", "b", "c", finish="stop", completion=11)), USAGE) == [Outcome.HELD]
    assert said(whole(many("a", "b", "c", finish="stop", completion=2)), USAGE) == [Outcome.VIOLATED]


@pytest.mark.parametrize("indices", [[0, 0, 0], [1, 2, 3], [0, 1, None], [0, 1, True]])
def test_indices_that_are_not_0_to_2_are_wrong(indices):
    assert said(whole(many("a", "b", "c", indices=indices)), INDEX) == [Outcome.VIOLATED]


def test_where_only_two_are_given_at_once_the_two_are_judged_and_the_third_is_missed():
    found = whole(refusal("many", "n must be 1 or 2"), many("a", "b", step="two", completion=48))

    assert said(found, LARGE) == [Outcome.REFUSED]
    assert said(found, COUNT) == [Outcome.HELD]
    assert "n 2 is not" in why(found, LARGE)


def test_where_two_are_refused_too_several_answers_are_refused():
    assert said(whole(refusal("many"), refusal("two")), COUNT) == [Outcome.REFUSED]


def test_a_stream_that_ends_one_choice_twice_and_another_never_is_wrong():
    def event(index: int, text: str = "", finish: str | None = None) -> Json:
        return {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}]}

    texts = [event(place, text) for place, text in enumerate("abc")]
    ends = [event(0, finish="stop"), event(1, finish="stop"), event(1, finish="stop")]
    found = judged(PROBE, transcript(ONE, many("a", "b", "c"), streamed("many-stream", *texts, *ends)))

    assert said(found, ENDS) == [Outcome.HELD, Outcome.VIOLATED]
    assert "choice 1 2 times, choice 2 0 times" in why(found, ENDS)
