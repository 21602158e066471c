"""The few measures the probes and tables need, exact where they can be; pure, and no model of a distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, median
from typing import NamedTuple

__all__ = [
    "NEAR_TIE",
    "Interval",
    "Prefix",
    "Separation",
    "comparable_prefix",
    "detection_power",
    "median_interval",
    "percentile",
    "ratio_of_medians",
    "separation",
    "wilson",
]

# Measured on three engines: bf16 logits move in steps of 0.125, 2–3 % of greedy positions are exact ties, and every
# divergence of a server from itself sat at a top-2 gap of at most 0.125. Twice that leaves room for one more step.
NEAR_TIE = 0.25
"""The gap between the two most likely tokens, in nats, up to which a greedy choice may go either way."""


class Interval(NamedTuple):
    """The two ends of an interval, both inside it, in the unit of what was measured."""

    low: float
    high: float


class Separation(NamedTuple):
    """Whether two samples do not overlap at all, and how often chance alone would do that to samples of these sizes."""

    separated: bool
    chance: float


class Prefix(NamedTuple):
    """How far two greedy walks can be compared, in tokens, and whether they agree that far.

    ``agreed`` is ``None`` where the walks part at a place whose gap is not known: noise or fault, nobody can tell.
    """

    compared: int
    agreed: bool | None


def wilson(successes: int, total: int, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval for a proportion, both ends within 0 and 1.

    It stays honest at 0 of n and n of n, where the textbook interval has no width.
    Source: Wilson (1927), https://doi.org/10.1080/01621459.1927.10502953

    Raises:
        ValueError: no trials, more successes than trials, or a confidence outside 0 to 1.
    """
    if not 0 <= successes <= total or total == 0:
        raise ValueError(f"{successes} of {total} is not a proportion")
    z = NormalDist().inv_cdf(0.5 + _confidence(confidence) / 2)
    share, weight = successes / total, z * z / total
    middle = (share + weight / 2) / (1 + weight)
    half = z * math.sqrt(share * (1 - share) / total + weight / (4 * total)) / (1 + weight)
    # At 0 of n and n of n the ends are exact, and rounding must not make them less.
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == total else middle + half
    return Interval(low, high)


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the narrowest symmetric pair of values that holds the median with at least this confidence.

    The median lies between the k-th smallest and the k-th largest of n values unless fewer than k of them fall on one
    side of it, which is a matter of coin tosses: no distribution is assumed and nothing is resampled. Too few values
    (five or fewer, at 95 %) give ``None``: no pair of them is that sure.
    Source: https://online.stat.psu.edu/stat415/lesson/19

    Raises:
        ValueError: a confidence outside 0 to 1.
    """
    ordered, n = sorted(values), len(values)
    allowed = (1 - _confidence(confidence)) / 2
    tail, rank = 0.0, 0
    for k in range(n // 2):
        tail += math.comb(n, k) / 2**n
        if tail > allowed:
            break
        rank = k + 1
    return Interval(ordered[rank - 1], ordered[n - rank]) if rank else None


def ratio_of_medians(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """Return how many times larger one sample's median is than another's; infinite where the other's is 0.

    Raises:
        ValueError: a sample is empty.
    """
    above, below = median(_sample(numerator)), median(_sample(denominator))
    return above / below if below else math.inf


def separation(lower: Sequence[float], upper: Sequence[float]) -> Separation:
    """Return whether every value of ``lower`` is smaller than every value of ``upper``.

    Were both drawn from one source, each of the C(n+m, n) ways to place n values among n+m would be equally likely,
    and one of them is this: 3 and 3 separate by chance once in 20, 5 and 5 once in 252. The chance depends on
    the sizes only. Source: the extreme case of Mann and Whitney (1947), https://doi.org/10.1214/aoms/1177730491

    Raises:
        ValueError: a sample is empty.
    """
    separated = max(_sample(lower)) < min(_sample(upper))
    return Separation(separated, 1 / math.comb(len(lower) + len(upper), len(lower)))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile (0 to 100), linear between the two closest values; 50 is the median.

    Definition 7 of Hyndman and Fan (1996), https://doi.org/10.1080/00031305.1996.10473566: what numpy does by
    default, and so what the usual serving benchmarks print.

    Raises:
        ValueError: no values, or ``percent`` outside 0 to 100.
    """
    if not 0 <= percent <= 100:
        raise ValueError(f"there is no {percent:g}th percentile; 0 to 100 are")
    ordered = sorted(_sample(values))
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def detection_power(trials: int, rate: float) -> float:
    """Return how likely it is that trials disagree with each other, where each one fails at this rate.

    Trials that all hold or all fail show no flake, hence ``1 - (1 - rate)**trials - rate**trials``: three trials
    notice a 20 % flake 48 % of the time, and one trial never does.

    Raises:
        ValueError: fewer than one trial, or a rate outside 0 to 1.
    """
    if trials < 1 or not 0 <= rate <= 1:
        raise ValueError(f"{trials} trials at a rate of {rate:g} is not an experiment")
    return max(0.0, 1 - (1 - rate) ** trials - rate**trials)


def comparable_prefix(
    left: Sequence[str] | Sequence[int],
    right: Sequence[str] | Sequence[int],
    gaps: Sequence[float | None],
    near_tie: float = NEAR_TIE,
) -> Prefix:
    """Compare two greedy walks up to the first near-tie at which they part.

    ``gaps`` holds, for each position of ``left``, the difference in log probability of its two most likely tokens, in
    nats; ``None``, or no entry, where it is not known. Walks that pass a near-tie together still share their context,
    so the comparison goes on; once they part at one, nothing behind it means anything. A walk that is a beginning
    of the other is compared for its own length: whether it should have gone on is a question of finish reasons.
    """
    for position, (mine, theirs) in enumerate(zip(left, right, strict=False)):
        if mine == theirs:
            continue
        gap = gaps[position] if position < len(gaps) else None
        if gap is None:
            return Prefix(position, None)
        if gap <= near_tie:
            return Prefix(position, True)
        return Prefix(position + 1, False)
    return Prefix(min(len(left), len(right)), True)


def _confidence(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not at {confidence:g}")
    return confidence


def _sample(values: Sequence[float]) -> Sequence[float]:
    if not values:
        raise ValueError("an empty sample measures nothing")
    return values
