"""How far two servers' next-token distributions lie apart, with intervals, and what that says; pure, reads no reply.

A *position* is a place in a text with the likeliest tokens that one server names there. Positions of one text are not
independent of each other, so every interval counts texts, not positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from servecheck.stats import NEAR_TIE, percentile, wilson

__all__ = [
    "BUCKETS",
    "MIN_MASS",
    "ROUNDING",
    "STEPS",
    "Difference",
    "Estimate",
    "Length",
    "Margin",
    "Pair",
    "Position",
    "Reading",
    "Word",
    "bucket",
    "by_length",
    "counts",
    "difference",
    "mean_of",
    "paired_difference",
    "read",
    "share_of",
    "student",
    "worse_with_length",
]

BUCKETS = (0, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
"""Where context-length buckets begin, in tokens: the usual borders of padding and of prefill chunks."""
MIN_MASS = 0.5
"""The least probability that the tokens named by both sides must have on each; below it, what is hidden decides."""
STEPS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Where the steps of a histogram of |Δ| begin, in nats; the last has no end. One border is :data:`CLOSE`."""
CLOSE = 0.1
"""The difference of log probabilities, in nats, that public tests of engines call close."""
ROUNDING = 1e-3
"""What float32 makes of a gap of two bf16 steps, in nats: 0.25000006 was seen, and is a near-tie."""
_FLOOR = 1e-6  # float32 rounding of a sum near 1; a smaller rest is not known
_CLIP = 5.0  # nats; one outlier made an unclipped average of K3 thirteen in a measured pair
_CONFIDENCE = 0.95
_Z = 1.959963984540054


class Estimate(NamedTuple):
    """A figure with a 95 % interval that counts texts; ``n`` positions in ``texts`` texts. No interval: 0 to infinity
    for a mean, 0 to 1 for a share.
    """

    value: float
    low: float
    high: float
    n: int
    texts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A token with the log probability that a server gives it, the likeliest tokens, and the tokens before it."""

    token: str
    logprob: float | None
    top: Mapping[str, float]
    context: int

    @property
    def best(self) -> str | None:
        """The likeliest token."""
        return max(self.top, key=self.top.__getitem__) if self.top else None

    @property
    def gap(self) -> float | None:
        """How far apart the two likeliest tokens are, in nats; ``None`` where fewer than two are named."""
        if len(self.top) < 2:
            return None
        first, second = sorted(self.top.values(), reverse=True)[:2]
        return first - second

    def value(self, token: str) -> float | None:
        """Return the log probability of a token, ``None`` where it is not named."""
        if token == self.token and self.logprob is not None:
            return self.logprob
        return self.top.get(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One position on both sides: the same tokens come before it. ``left`` is the reference.

    ``mass`` is the probability that the tokens named by both have, on the side where it is less. ``kl`` holds
    KL(left‖right) and KL(right‖left) in nats, over those tokens and one bucket for all others; ``None`` where ``mass``
    is below :data:`MIN_MASS`. Merging tokens into a bucket can only lessen a divergence, so the true ones are at least
    this large. Source: https://en.wikipedia.org/wiki/Data_processing_inequality
    """

    text: str
    left: Position
    right: Position
    mass: float = field(init=False)
    kl: tuple[float, float] | None = field(init=False)

    def __post_init__(self) -> None:
        names = sorted(self.left.top.keys() & self.right.top.keys())
        left = [math.exp(min(0.0, self.left.top[name])) for name in names]
        right = [math.exp(min(0.0, self.right.top[name])) for name in names]
        mass = min(1.0, math.fsum(left), math.fsum(right))
        object.__setattr__(self, "mass", mass)
        object.__setattr__(self, "kl", _divergence(left, right) if mass >= MIN_MASS else None)

    @property
    def delta(self) -> float | None:
        """How much less likely the reference's token is on the right, in nats; ``None`` where one names no value."""
        mine, theirs = self.left.logprob, self.right.value(self.left.token)
        return None if mine is None or theirs is None else mine - theirs

    @property
    def clear(self) -> bool:
        """Whether the reference's choice is no near-tie."""
        return self.left.gap is not None and self.left.gap > NEAR_TIE + ROUNDING

    @property
    def agrees(self) -> bool:
        """Whether both have the same likeliest token."""
        return self.left.best == self.right.best

    @property
    def mutual(self) -> bool:
        """Whether each side's likeliest token is among the other's five likeliest."""
        return self.left.best in _first(self.right, 5) and self.right.best in _first(self.left, 5)


def _first(position: Position, count: int) -> list[str]:
    return sorted(position.top, key=position.top.__getitem__, reverse=True)[:count]


def _divergence(left: Sequence[float], right: Sequence[float]) -> tuple[float, float]:
    p, q = _completed(left), _completed(right)
    forward = math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    backward = math.fsum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    return max(0.0, forward), max(0.0, backward)


def _completed(masses: Sequence[float]) -> list[float]:
    rest = max(1.0 - sum(masses), _FLOOR)
    whole = sum(masses) + rest
    return [max(mass, 1e-300) / whole for mass in (*masses, rest)]


# --------------------------------------------------------------------------- intervals


@lru_cache(maxsize=256)
def student(freedom: int, confidence: float = _CONFIDENCE) -> float:
    """Return the two-sided quantile of Student's t with a whole number of degrees of freedom.

    By the finite series 26.7.3 and 26.7.4 of Abramowitz and Stegun and by bisection; exact to 1e-9.

    Raises:
        ValueError: fewer than one degree of freedom.
    """
    if freedom < 1:
        raise ValueError(f"{freedom} degrees of freedom leave nothing to estimate with")
    low, high = 0.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        if _within(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _within(t: float, freedom: int) -> float:
    """Return how likely ``|T| ≤ t`` is."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    if freedom == 1:
        return 2 * angle / math.pi
    total, term = 0.0, cosine if freedom % 2 else 1.0
    for step in range(freedom // 2):
        total += term
        place = 2 * step + (2 if freedom % 2 else 1)
        term *= cosine * cosine * place / (place + 1)
    return 2 / math.pi * (angle + sine * total) if freedom % 2 else sine * total


def mean_of(texts: Iterable[Sequence[float]]) -> Estimate | None:
    """Return the mean over all positions, with an interval from how much whole texts differ; ``None`` of nothing.

    A ratio estimator: sums of values over numbers of positions, its variance linearised over texts, with Student's t.
    Source: Cochran, Sampling Techniques (1977), section 6.3. One text alone gives no interval.
    """
    kept = [values for values in texts if values]
    n, k = sum(map(len, kept)), len(kept)
    if not n:
        return None
    value = math.fsum(map(math.fsum, kept)) / n
    if k < 2:
        return Estimate(value, 0.0, math.inf, n, k)
    off = [math.fsum(values) - value * len(values) for values in kept]
    half = student(k - 1) * math.sqrt(k / (k - 1) * math.fsum(each * each for each in off)) / n
    return Estimate(value, max(0.0, value - half), value + half, n, k)


def share_of(texts: Iterable[Sequence[bool]]) -> Estimate | None:
    """Return the share of positions that hold; Wilson's interval on as many positions as the texts are worth.

    Positions of one text go together, so ``n`` is divided by the design effect: the variance between texts over that of
    independent positions, at least 1. It stays honest where all hold. Source: Kish, Survey Sampling (1965), section 5.4
    """
    kept = [values for values in texts if values]
    n, k = sum(map(len, kept)), len(kept)
    if not n:
        return None
    value = sum(map(sum, kept)) / n
    if k < 2:
        return Estimate(value, 0.0, 1.0, n, k)
    off = [sum(values) - value * len(values) for values in kept]
    between = k / (k - 1) * math.fsum(each * each for each in off) / n**2
    alone = value * (1 - value) / n
    worth = n / max(1.0, between / alone) if alone else float(n)
    weight = _Z * _Z / worth
    middle = (value + weight / 2) / (1 + weight)
    half = _Z * math.sqrt(value * (1 - value) / worth + weight / (4 * worth)) / (1 + weight)
    low = 0.0 if value == 0 else max(0.0, middle - half)
    high = 1.0 if value == 1 else min(1.0, middle + half)
    return Estimate(value, low, high, n, k)


# --------------------------------------------------------------------------- one comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What pairs of positions show; every figure is ``None`` where nothing gives it. Values are in nats.

    ``kl`` is the larger of the two directions, ``forward`` KL(left‖right), ``backward`` the other; ``refused`` counts
    positions whose shared tokens have too little mass. ``close`` is the share of |Δ| below 0.1, ``clear`` the top-1
    agreement outside the reference's near-ties, ``mutual`` the share whose best tokens are in each other's five best.
    ``k3`` is the mean of e^r − 1 − r for r = the right's log probability minus the left's, clipped at 5.
    ``first`` is the median place in a text at which a clear choice differs, ``parted`` the texts in which one does.
    """

    positions: int = 0
    texts: int = 0
    kl: Estimate | None = None
    forward: Estimate | None = None
    backward: Estimate | None = None
    refused: int = 0
    mass: float | None = None
    close: Estimate | None = None
    clear: Estimate | None = None
    top1: Estimate | None = None
    mutual: Estimate | None = None
    quantiles: tuple[float, float, float, float] | None = None
    k3: float | None = None
    first: int | None = None
    parted: int = 0


def difference(pairs: Iterable[Pair]) -> Difference:
    """Return what pairs show, in the order of their texts and places."""
    texts: dict[str, list[Pair]] = {}
    for pair in pairs:
        texts.setdefault(pair.text, []).append(pair)
    listed = list(texts.values())
    every = [pair for each in listed for pair in each]
    if not every:
        return Difference()
    diverged = [[pair.kl for pair in each if pair.kl is not None] for each in listed]
    forward = mean_of([[one for one, _ in each] for each in diverged])
    backward = mean_of([[other for _, other in each] for each in diverged])
    deltas = [[value for pair in each if (value := pair.delta) is not None] for each in listed]
    sizes = [abs(value) for each in deltas for value in each]
    places = [
        next((place for place, pair in enumerate(each) if pair.clear and not pair.agrees), None) for each in listed
    ]
    found_places = sorted(place for place in places if place is not None)
    named = [pair for pair in every if pair.left.top and pair.right.top]
    return Difference(
        positions=len(every),
        texts=len(listed),
        kl=max((each for each in (forward, backward) if each is not None), key=lambda each: each.value, default=None),
        forward=forward,
        backward=backward,
        refused=len(every) - sum(map(len, diverged)),
        mass=math.fsum(pair.mass for pair in named) / len(named) if named else None,
        close=share_of([[abs(value) < CLOSE for value in each] for each in deltas]),
        clear=share_of([[pair.agrees for pair in each if pair.clear] for each in listed]),
        top1=share_of([[pair.agrees for pair in each if pair.left.top] for each in listed]),
        mutual=share_of([[pair.mutual for pair in each if pair.left.top] for each in listed]),
        quantiles=(percentile(sizes, 50), percentile(sizes, 95), percentile(sizes, 99), max(sizes)) if sizes else None,
        k3=math.fsum(_k3(each) for listing in deltas for each in listing) / len(sizes) if sizes else None,
        first=found_places[(len(found_places) - 1) // 2] if found_places else None,
        parted=len(found_places),
    )


def _k3(delta: float) -> float:
    ratio = max(-_CLIP, min(_CLIP, -delta))
    return math.exp(ratio) - 1 - ratio


def counts(pairs: Iterable[Pair]) -> tuple[int, ...]:
    """Return how many positions have their |Δ| in each of :data:`STEPS`; those without one are in none."""
    found = [0] * len(STEPS)
    for pair in pairs:
        if (value := pair.delta) is not None and not math.isnan(value):
            found[max(place for place, edge in enumerate(STEPS) if edge <= abs(value))] += 1
    return tuple(found)


def bucket(context: int) -> int:
    """Return the beginning of the context-length bucket that a number of tokens falls in."""
    return max(edge for edge in BUCKETS if edge <= max(0, context))


class Length(NamedTuple):
    """A context-length bucket with what it shows."""

    start: int
    difference: Difference

    @property
    def name(self) -> str:
        """The bucket as words: ``128–511``."""
        end = next((edge for edge in BUCKETS if edge > self.start), None)
        return f"{self.start}–{end - 1}" if end is not None else f"{self.start} and more"


def by_length(pairs: Iterable[Pair]) -> tuple[Length, ...]:
    """Return what the pairs show by context length, shortest first."""
    found: dict[int, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(bucket(pair.left.context), []).append(pair)
    return tuple(Length(start, difference(found[start])) for start in sorted(found))


# --------------------------------------------------------------------------- against noise and margin


class Word(StrEnum):
    """Where the interval of a figure lies."""

    INSIDE = "inside"
    STRADDLES = "straddles"
    BEYOND = "beyond"


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """What still counts as the same: mean KL at most ``kl``; shares at least the others. ``origin`` says whence."""

    kl: float
    close: float
    clear: float
    mutual: float
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a difference says against noise and margin. ``word`` of all, and of each figure that there is.

    The mean KL alone can say ``inside``: it is the primary figure. Each figure can say ``beyond``: with its whole
    interval past the margin and past what either side shows against itself.
    """

    word: Word
    figures: Mapping[str, Word] = field(default_factory=dict)

    @property
    def beyond(self) -> tuple[str, ...]:
        """The figures that lie beyond."""
        return tuple(name for name, word in self.figures.items() if word is Word.BEYOND)


_SHARES = ("close", "clear", "mutual")


def read(found: Difference, noise: Sequence[Difference], margin: Margin) -> Reading:
    """Return where a difference lies; ``noise`` are both sides' differences from themselves."""
    figures: dict[str, Word] = {}
    if found.kl is not None:
        worst = max((each.kl.high for each in noise if each.kl is not None and each.kl.texts > 1), default=0.0)
        figures["kl"] = _above(found.kl, margin.kl, worst)
    for name in _SHARES:
        share: Estimate | None = getattr(found, name)
        if share is not None:
            lows = [own.low for each in noise if (own := getattr(each, name)) is not None and own.texts > 1]
            figures[name] = _below(share, getattr(margin, name), min(lows, default=1.0))
    if Word.BEYOND in figures.values():
        return Reading(word=Word.BEYOND, figures=figures)
    return Reading(word=figures.get("kl", Word.STRADDLES), figures=figures)


def _above(found: Estimate, margin: float, noise: float) -> Word:
    if found.high <= margin:
        return Word.INSIDE
    return Word.BEYOND if found.low > max(margin, noise) else Word.STRADDLES


def _below(found: Estimate, margin: float, noise: float) -> Word:
    if found.low >= margin:
        return Word.INSIDE
    return Word.BEYOND if found.high < min(margin, noise) else Word.STRADDLES


def worse_with_length(pairs: Sequence[Pair], noise: Sequence[Pair], margin: Margin) -> tuple[Length, Length] | None:
    """Return what lies behind the bucket's border from which on it is worse, and what lies before it.

    Worse is a mean KL whose whole interval lies beyond the margin, the noise at these lengths, and the interval of what
    lies before the border; of several borders the one with the widest gap between the two intervals is told. A
    difference that is the same at every length is none of this. ``None`` where nothing is.
    """
    found: list[tuple[float, Length, Length]] = []
    for edge in sorted({bucket(pair.left.context) for pair in pairs})[1:]:
        before = difference(pair for pair in pairs if pair.left.context < edge)
        behind = difference(pair for pair in pairs if pair.left.context >= edge)
        own = difference(pair for pair in noise if pair.left.context >= edge).kl
        if before.kl is None or behind.kl is None:
            continue
        worst = own.high if own is not None and own.texts > 1 else 0.0
        if behind.kl.low > max(margin.kl, worst, before.kl.high):
            found.append((behind.kl.low - before.kl.high, Length(edge, behind), Length(0, before)))
    return max(found, key=lambda each: each[0])[1:] if found else None


# --------------------------------------------------------------------------- whole answers


def paired_difference(both: int, left: int, right: int, neither: int) -> Estimate:
    """Return how much larger a share is on the right than on the left, of items seen on both sides, with an interval.

    ``both`` items have it on both sides, ``left`` and ``right`` on one only. Newcombe's method 10, which takes account
    of how alike the two sides are and stays honest at none and all.
    Source: Newcombe (1998), https://doi.org/10.1002/(SICI)1097-0258(19981130)17:22<2635::AID-SIM954>3.0.CO;2-C

    Raises:
        ValueError: no items.
    """
    n = both + left + right + neither
    if n == 0:
        raise ValueError("no items were seen on both sides")
    mine, theirs = (both + left) / n, (both + right) / n
    (low, high), (other_low, other_high) = wilson(both + left, n), wilson(both + right, n)
    spread = (both + left) * (right + neither) * (both + right) * (left + neither)
    alike = (both * neither - left * right) / math.sqrt(spread) if spread else 0.0
    value = theirs - mine
    down = (theirs - other_low) ** 2 - 2 * alike * (theirs - other_low) * (high - mine) + (high - mine) ** 2
    up = (other_high - theirs) ** 2 - 2 * alike * (other_high - theirs) * (mine - low) + (mine - low) ** 2
    return Estimate(value, value - math.sqrt(max(0.0, down)), value + math.sqrt(max(0.0, up)), n, n)
