"""The statistics of parity against values worked out by hand, and what they say of pairs whose truth is known."""

from __future__ import annotations

import math
import random

import pytest

from servecheck.parity import (
    STEPS,
    Difference,
    Estimate,
    Margin,
    Pair,
    Position,
    Word,
    bucket,
    by_length,
    counts,
    difference,
    mean_of,
    paired_difference,
    read,
    share_of,
    student,
    worse_with_length,
)

MARGIN = Margin(kl=0.007, close=0.7, clear=0.98, mutual=0.98, origin="test")


def at(token: str, context: int = 10, **top: float) -> Position:
    """Return a position from probabilities."""
    logs = {name: math.log(share) for name, share in top.items()}
    return Position(token=token, logprob=logs.get(token), top=logs, context=context)


def pair(left: Position, right: Position, text: str = "t") -> Pair:
    return Pair(text=text, left=left, right=right)


# --------------------------------------------------------------------------- one position


def test_kl_is_summed_over_shared_tokens_and_one_bucket_for_the_rest() -> None:
    found = pair(at("a", a=0.5, b=0.3), at("a", a=0.4, b=0.4))

    forward = 0.5 * math.log(0.5 / 0.4) + 0.3 * math.log(0.3 / 0.4)  # both rests are 0.2 and add nothing
    backward = 0.4 * math.log(0.4 / 0.5) + 0.4 * math.log(0.4 / 0.3)
    assert found.kl == pytest.approx((forward, backward), abs=1e-12)
    assert (forward, backward) == pytest.approx((0.025267, 0.025815), abs=1e-6)


def test_a_token_that_one_side_does_not_name_goes_to_the_rest() -> None:
    found = pair(at("a", a=0.6, b=0.3), at("a", a=0.5, c=0.4))

    assert found.mass == pytest.approx(0.5)
    assert found.kl == pytest.approx((0.6 * math.log(1.2) + 0.4 * math.log(0.8), 0.5 * math.log(1 / 1.2 / 0.8)))


def test_kl_is_refused_where_the_shared_mass_is_too_small() -> None:
    found = pair(at("a", a=0.45, b=0.3), at("a", a=0.45, c=0.4))

    assert found.kl is None
    assert difference([found]).refused == 1
    assert difference([found]).kl is None


@pytest.mark.parametrize(
    ("right", "agrees", "mutual"),
    [
        (at("a", a=0.5, b=0.3, c=0.1), True, True),
        (at("b", b=0.5, a=0.3, c=0.1), False, True),
        (at("v", v=0.5, w=0.2, x=0.1, y=0.08, z=0.06, a=0.01), False, False),
    ],
)
def test_best_tokens_are_compared(right: Position, agrees: bool, mutual: bool) -> None:
    found = pair(at("a", a=0.5, b=0.3, v=0.1), right)

    assert (found.agrees, found.mutual) == (agrees, mutual)


@pytest.mark.parametrize(
    ("second", "clear"), [(0.5 / math.exp(0.2), False), (0.5 / math.exp(0.2500001), False), (0.5 / math.exp(0.3), True)]
)
def test_a_near_tie_is_no_clear_choice(second: float, clear: bool) -> None:
    assert pair(at("a", a=0.5, b=second), at("a", a=0.5)).clear is clear


# --------------------------------------------------------------------------- intervals


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (10, 2.2281), (11, 2.2010), (23, 2.0687), (100, 1.9840)],
)
def test_student_is_as_in_the_tables(freedom: int, expected: float) -> None:
    assert round(student(freedom), 4) == expected


def test_student_needs_something_to_estimate_with() -> None:
    with pytest.raises(ValueError, match="0 degrees"):
        student(0)


def test_the_interval_of_a_mean_counts_texts_and_not_positions() -> None:
    # Sums 2 and 6 over 2 and 2 positions: mean 2, each text off by 2, so sqrt(2/1 * (4 + 4)) / 4 = 1 times t of 1.
    assert mean_of([[1.0, 1.0], [3.0, 3.0]]) == pytest.approx((2.0, 0.0, 2 + 12.7062, 4, 2), abs=1e-3)
    assert mean_of([[1.0, 3.0], [1.0, 3.0]]) == pytest.approx((2.0, 2.0, 2.0, 4, 2))


def test_one_text_gives_no_interval_and_no_text_gives_nothing() -> None:
    assert mean_of([[1.0, 2.0]]) == Estimate(1.5, 0.0, math.inf, 2, 1)
    assert share_of([[True, False]]) == Estimate(0.5, 0.0, 1.0, 2, 1)
    assert mean_of([[], []]) is None
    assert share_of([]) is None


def test_a_share_without_exceptions_has_wilsons_interval_of_all_positions() -> None:
    found = share_of([[True] * 20, [True] * 20])

    assert found is not None
    assert found.high == 1.0
    assert found.low == pytest.approx(40 / (40 + 1.959964**2), abs=1e-6)


def test_a_share_that_differs_from_text_to_text_is_worth_fewer_positions() -> None:
    # One text all true, one all false, ten positions each: a variance of 0.25 between texts where independent positions
    # have 0.0125, so twenty positions are worth one, and Wilson of 0.5 of 1 is (0.0546, 0.9454).
    assert share_of([[True] * 10, [False] * 10]) == pytest.approx((0.5, 0.0546, 0.9454, 20, 2), abs=1e-4)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    draws = random.Random(7)
    held = 0
    for _ in range(400):
        texts = []
        for _ in range(21):
            scale = draws.lognormvariate(0, 0.3) / math.exp(0.045)  # the mean over texts is 1
            texts.append([scale * draws.expovariate(1) for _ in range(24)])
        found = mean_of(texts)
        assert found is not None
        held += found.low <= 1 <= found.high
    assert 0.90 <= held / 400 <= 0.98


def test_a_paired_difference_takes_account_of_how_alike_the_sides_are() -> None:
    alike = paired_difference(18, 0, 0, 18)
    unlike = paired_difference(9, 9, 9, 9)

    assert alike[:3] == pytest.approx((0, 0, 0), abs=1e-9)
    assert unlike.high - unlike.low > 0.4
    assert paired_difference(0, 0, 0, 36).high == pytest.approx(0.0964, abs=1e-3)
    assert paired_difference(10, 2, 14, 10)[0] == pytest.approx(12 / 36)


def test_no_items_have_no_difference() -> None:
    with pytest.raises(ValueError, match="no items"):
        paired_difference(0, 0, 0, 0)


# --------------------------------------------------------------------------- a whole comparison


def many(sigma: float, seed: int, *, texts: int = 12, each: int = 30, from_context: int = 0) -> list[Pair]:
    """Return pairs whose right side has normal noise on every logit, beyond so many tokens of context."""
    draws = random.Random(seed)
    made = []
    for text in range(texts):
        for place in range(each):
            context = 20 + place * 40
            top = draws.uniform(0.3, 0.9)
            shares = [top, *((1 - top) * 0.6 * 0.4**rank for rank in range(8))]
            logits = [math.log(share) for share in shares]
            rest = 1 - sum(shares)
            noise = sigma if context >= from_context else 0.0
            moved = [value + draws.gauss(0, noise) for value in logits]
            whole = math.log(sum(map(math.exp, moved)) + rest)
            names = [f"w{rank}" for rank in range(9)]
            left = Position(token="w0", logprob=logits[0], top=dict(zip(names, logits, strict=True)), context=context)
            right_top = {name: value - whole for name, value in zip(names, moved, strict=True)}
            right = Position(token="w0", logprob=right_top["w0"], top=right_top, context=context)
            made.append(Pair(text=f"t{text}", left=left, right=right))
    return made


@pytest.mark.parametrize(
    ("sigma", "word"),
    [(0.0, Word.INSIDE), (0.05, Word.INSIDE), (0.1, Word.INSIDE), (0.3, Word.BEYOND), (1.0, Word.BEYOND)],
)
def test_known_noise_is_called_what_it_is(sigma: float, word: Word) -> None:
    found = read(difference(many(sigma, 1)), [difference(many(0.02, 2))], MARGIN)

    assert found.word is word


def test_a_difference_no_larger_than_own_noise_is_no_drift() -> None:
    found = read(difference(many(0.3, 1)), [difference(many(0.3, 2))], MARGIN)

    assert found.word is Word.STRADDLES


def test_what_is_equal_shows_no_difference() -> None:
    found = difference(many(0.0, 3))

    assert found.kl is not None
    assert found.kl[:3] == pytest.approx((0, 0, 0), abs=1e-9)
    assert found.k3 == pytest.approx(0, abs=1e-9)
    assert found.clear is not None
    assert found.clear.value == 1.0
    assert (found.first, found.parted) == (None, 0)


def test_one_wild_position_does_not_decide_k3() -> None:
    wild = pair(at("a", a=0.5, b=0.3), at("a", a=1e-9, b=0.8))

    assert difference([wild]).k3 == pytest.approx(math.exp(-5) - 1 + 5)


def test_shares_can_show_what_the_mean_hides() -> None:
    flipped = [pair(at("a", a=0.45, b=0.33), at("b", a=0.33, b=0.45), text=f"t{number % 12}") for number in range(300)]
    found = read(difference(flipped), [], Margin(kl=1.0, close=0.0, clear=0.98, mutual=0.98, origin="test"))

    assert found.beyond == ("clear",)


@pytest.mark.parametrize(("context", "start"), [(-1, 0), (0, 0), (127, 0), (128, 128), (511, 128), (70_000, 65_536)])
def test_positions_fall_in_buckets_by_context(context: int, start: int) -> None:
    assert bucket(context) == start


def test_buckets_are_told_apart() -> None:
    assert [each.name for each in by_length(many(0.0, 1))] == ["0–127", "128–511", "512–1023", "1024–2047"]


def test_what_is_wrong_only_behind_a_border_is_found_there() -> None:
    found = worse_with_length(many(0.5, 4, from_context=512), many(0.02, 5), MARGIN)

    assert found is not None
    assert found[0].start == 512


@pytest.mark.parametrize("sigma", [0.0, 0.05, 0.5])
def test_what_is_alike_at_all_lengths_is_not_worse_with_length(sigma: float) -> None:
    assert worse_with_length(many(sigma, 6), many(0.02, 7), MARGIN) is None


@pytest.mark.parametrize(
    ("step", "size"), [(0.0, 0.0), (0.0, 0.0009), (0.001, 0.0011), (0.1, 0.11), (1.0, 2.9), (3.0, 9.0)]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_position_is_counted_at_how_far_its_sides_lie_apart(step: float, size: float, sign: int) -> None:
    left, right = (
        Position(token="a", logprob=value, top={"a": value}, context=9) for value in (-9.0, -9.0 + sign * size)
    )
    unknown = Position(token="b", logprob=None, top={"b": -1.0}, context=9)

    found = dict(zip(STEPS, counts([pair(left, right), pair(unknown, right)]), strict=True))
    assert found == {edge: int(edge == step) for edge in STEPS}


def test_nothing_measured_says_nothing() -> None:
    assert difference([]) == Difference()
    assert read(Difference(), [], MARGIN).word is Word.STRADDLES
