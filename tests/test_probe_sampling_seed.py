"""What the judge of ``sampling_seed`` makes of draws that no mutant gives."""

from __future__ import annotations

import pytest

from servecheck.model import Ending, Exchange, Outcome
from servecheck.probes.sampling_seed import PROBE, SamplingSeedParams
from tests.replies import answer, outcomes, refusal, transcript
from tests.replies import reply as exchange
from tests.replies import why as whys

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED

SAME, OTHER = "same-seed-same-text", "other-seed-other-text"
STEPS = ("free-1", "free-2", "seed-a1", "seed-b", "seed-a2")
PARAMS = SamplingSeedParams()


def draws(texts: str, prefix: str = "") -> list[Exchange]:
    """Return the draws of one round, a letter for each text: free, free, seed a, seed b, seed a."""
    return [exchange(prefix + step, answer(text)) for step, text in zip(STEPS, texts, strict=True)]


def judged(*exchanges: Exchange) -> dict[str, Outcome]:
    findings = list(PROBE.judge(transcript(*exchanges), PARAMS))
    return {check: outcome for check in (SAME, OTHER) for outcome in outcomes(findings, check)}


@pytest.mark.parametrize(
    ("expected", "texts"),
    [
        pytest.param({SAME: HELD, OTHER: HELD}, "uvaba", id="honoured"),
        pytest.param({SAME: HELD, OTHER: HELD}, "uuaba", id="honoured, with a fixed seed where none is given"),
        pytest.param({SAME: HELD, OTHER: HELD}, "avaba", id="honoured, and met by a free draw"),
        pytest.param({SAME: NO_EFFECT}, "uvabc", id="ignored"),
        pytest.param({SAME: NO_EFFECT}, "uvabb", id="ignored, two draws alike by chance"),
        pytest.param({SAME: HELD, OTHER: VIOLATED}, "uvaaa", id="one and the same for every seed"),
        pytest.param({SAME: HELD, OTHER: VIOLATED}, "uaaaa", id="one for every seed, and met by a free draw"),
        pytest.param({SAME: UNDETERMINED}, "aaaaa", id="invisible, since nothing varies"),
        pytest.param({SAME: UNDETERMINED}, "uuaaa", id="invisible, since the control does not vary"),
    ],
)
def test_draws_show_a_seed(expected: dict[str, Outcome], texts: str) -> None:
    assert judged(*draws(texts)) == expected


def test_the_hotter_round_counts_where_there_is_one() -> None:
    assert judged(*draws("aaaaa"), *draws("uvaba", "hot-")) == {SAME: HELD, OTHER: HELD}


def test_thoughts_are_part_of_the_text() -> None:
    replies = [
        exchange(step, answer(None, reasoning=text, finish="length")) for step, text in zip(STEPS, "uvaba", strict=True)
    ]

    assert judged(*replies) == {SAME: HELD, OTHER: HELD}


def test_a_refused_seed_is_a_refusal_beside_free_draws_that_were_answered() -> None:
    free = draws("uvxxx")[:2]

    assert judged(*free, *(refusal(step) for step in STEPS[2:])) == {SAME: REFUSED}
    assert judged(*(refusal(step) for step in STEPS)) == {SAME: UNDETERMINED}


def test_a_seed_that_is_refused_once_is_a_refusal() -> None:
    assert judged(*draws("uvaba")[:4], refusal("seed-a2")) == {SAME: REFUSED}


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(refusal("seed-b", status=500), id="500"),
        pytest.param(exchange("seed-b", answer("b"), ending=Ending.TRUNCATED), id="a cut"),
        pytest.param(exchange("seed-b", b"null"), id="no object"),
        pytest.param(exchange("seed-b", b""), id="no byte"),
    ],
)
def test_a_reply_that_is_none_is_a_fault(reply: Exchange) -> None:
    first, second, third, _, last = draws("uvaba")

    assert judged(first, second, third, reply, last) == {SAME: VIOLATED}


def test_free_draws_that_failed_do_not_speak_against_a_seed() -> None:
    failed = [refusal(step, status=500) for step in STEPS[:2]]

    assert judged(*failed, *draws("uvaba")[2:]) == {SAME: HELD, OTHER: HELD}


def test_a_seed_that_changes_nothing_is_not_judged_without_free_draws() -> None:
    failed = [refusal(step, status=500) for step in STEPS[:2]]

    assert judged(*failed, *draws("uvaaa")[2:]) == {SAME: UNDETERMINED}


def test_empty_answers_tell_nothing() -> None:
    assert judged(*(exchange(step, answer("")) for step in STEPS)) == {SAME: UNDETERMINED}


def test_what_was_not_sent_is_undetermined() -> None:
    assert judged() == {SAME: UNDETERMINED}
    assert "not sent" in whys(PROBE.judge(transcript(), PARAMS), SAME)
    assert judged(*draws("uvaba")[:3]) == {SAME: UNDETERMINED}
