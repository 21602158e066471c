"""The measures give the published figures, and refuse what they cannot measure."""

import math
import random
import statistics

import pytest

from servecheck import stats


@pytest.mark.parametrize(
    ("low", "high", "successes", "total"),
    [
        # Worked by hand from the formula with z = 1.959964.
        (0.0000, 0.5615, 0, 3),
        (0.4385, 1.0000, 3, 3),
        (0.2366, 0.7634, 5, 10),
        (0.8256, 0.9448, 90, 100),
    ],
)
def test_wilson_intervals(low, high, successes, total):
    assert (low, high) == pytest.approx(stats.wilson(successes, total), abs=5e-5)


def test_wilson_ends_are_exact_where_nothing_or_everything_held():
    assert stats.wilson(0, 7).low == 0.0
    assert stats.wilson(7, 7).high == 1.0


def test_more_confidence_is_a_wider_interval():
    narrow, wide = stats.wilson(5, 10, 0.8), stats.wilson(5, 10, 0.99)
    assert wide.low < narrow.low
    assert narrow.high < wide.high


@pytest.mark.parametrize(("successes", "total"), [(0, 0), (-1, 3), (4, 3)])
def test_wilson_refuses_what_is_no_proportion(successes, total):
    with pytest.raises(ValueError, match="not a proportion"):
        stats.wilson(successes, total)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_confidence_is_a_share(confidence):
    with pytest.raises(ValueError, match="between 0 and 1"):
        stats.wilson(1, 2, confidence)
    with pytest.raises(ValueError, match="between 0 and 1"):
        stats.median_interval([1.0] * 9, confidence)


@pytest.mark.parametrize(
    ("low", "high", "n"),
    # The ranks that textbooks tabulate for 95 %: the lowest that keep the confidence at or above it.
    [(1, 6, 6), (1, 7, 7), (1, 8, 8), (2, 8, 9), (2, 9, 10), (3, 10, 12), (4, 12, 15), (6, 15, 20)],
)
def test_the_median_lies_between_the_tabulated_ranks(low, high, n):
    values = [float(rank) for rank in range(1, n + 1)]
    random.Random(n).shuffle(values)
    assert stats.median_interval(values) == (low, high)


@pytest.mark.parametrize("n", range(6))
def test_five_values_or_fewer_cannot_hold_a_median_with_95_percent(n):
    assert stats.median_interval([1.0] * n) is None


def test_less_confidence_needs_fewer_values():
    assert stats.median_interval([3.0, 1.0, 2.0], 0.75) == (1.0, 3.0)


@pytest.mark.parametrize(
    ("ratio", "numerator", "denominator"),
    [(2.0, [4.0, 1.0, 900.0], [2.0]), (1.0, [1.0, 3.0], [2.0]), (math.inf, [1.0], [0.0])],
)
def test_ratio_of_medians_does_not_mind_outliers(ratio, numerator, denominator):
    assert stats.ratio_of_medians(numerator, denominator) == ratio


@pytest.mark.parametrize(
    ("separated", "chance", "lower", "upper"),
    [
        (True, 1 / 20, [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]),
        (True, 1 / 252, [1.0] * 5, [2.0] * 5),
        (True, 1 / 2, [1.0], [2.0]),
        (False, 1 / 20, [1.0, 2.0, 4.0], [3.0, 5.0, 6.0]),
        (False, 1 / 20, [4.0, 5.0, 6.0], [1.0, 2.0, 3.0]),
        (False, 1 / 3, [1.0], [1.0, 2.0]),
    ],
)
def test_samples_are_separate_only_if_they_do_not_touch(separated, chance, lower, upper):
    found = stats.separation(lower, upper)
    assert found.separated is separated
    assert found.chance == pytest.approx(chance)


def test_an_empty_sample_is_refused():
    for measure in (
        lambda: stats.separation([], [1.0]),
        lambda: stats.separation([1.0], []),
        lambda: stats.ratio_of_medians([], [1.0]),
        lambda: stats.ratio_of_medians([1.0], []),
        lambda: stats.percentile([], 50),
    ):
        with pytest.raises(ValueError, match="empty sample"):
            measure()


@pytest.mark.parametrize(
    ("expected", "percent"), [(10.0, 0), (17.5, 25), (25.0, 50), (38.5, 95), (39.7, 99), (40.0, 100)]
)
def test_percentiles_are_linear_between_the_closest_values(expected, percent):
    assert stats.percentile([40.0, 10.0, 30.0, 20.0], percent) == pytest.approx(expected)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_the_50th_percentile_is_the_median(n):
    values = [random.Random(n).random() for _ in range(n)]
    assert stats.percentile(values, 50) == pytest.approx(statistics.median(values))


@pytest.mark.parametrize("percent", [-0.1, 100.1])
def test_percentiles_end_at_0_and_100(percent):
    with pytest.raises(ValueError, match="percentile"):
        stats.percentile([1.0], percent)


@pytest.mark.parametrize(
    ("power", "trials", "rate"),
    [(0.48, 3, 0.2), (0.0, 1, 0.2), (0.32, 2, 0.2), (0.75, 3, 0.5), (0.0, 3, 0.0), (0.0, 3, 1.0), (0.8925, 10, 0.2)],
)
def test_three_trials_notice_a_20_percent_flake_48_percent_of_the_time(power, trials, rate):
    assert stats.detection_power(trials, rate) == pytest.approx(power, abs=2e-4)


@pytest.mark.parametrize(("trials", "rate"), [(0, 0.2), (3, -0.1), (3, 1.1)])
def test_no_trials_and_no_rate_are_no_experiment(trials, rate):
    with pytest.raises(ValueError, match="not an experiment"):
        stats.detection_power(trials, rate)


@pytest.mark.parametrize(
    ("compared", "agreed", "left", "right", "gaps"),
    [
        (3, True, "abc", "abc", [9.0, 9.0, 9.0]),
        (2, False, "abc", "axc", [9.0, 0.26, 9.0]),
        (1, True, "abc", "axy", [9.0, 0.25, 9.0]),
        (1, True, "abc", "axy", [9.0, 0.0, 9.0]),
        (0, True, "abc", "xbc", [0.1, 9.0, 9.0]),
        # A near-tie that both pass the same way does not end the comparison.
        (3, False, "abc", "abx", [0.0, 0.0, 9.0]),
        (1, None, "abc", "axc", [9.0, None, 9.0]),
        (1, None, "abc", "axc", [9.0]),
        (2, True, "ab", "abc", [9.0, 9.0]),
        (2, True, "abc", "ab", [9.0, 9.0, 9.0]),
        (0, True, "", "abc", []),
    ],
)
def test_walks_are_compared_up_to_the_near_tie_where_they_part(compared, agreed, left, right, gaps):
    assert stats.comparable_prefix([*left], [*right], gaps) == (compared, agreed)


def test_the_near_tie_limit_is_the_measured_one_and_can_be_set():
    assert stats.NEAR_TIE == 0.25
    assert stats.comparable_prefix([1, 2], [1, 3], [9.0, 0.2], near_tie=0.1) == (2, False)
