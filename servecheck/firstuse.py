"""Tells what a first use costs: stalls of first requests apart from noise, queues and other replicas. Pure arithmetic.

A *shape* is whatever a server may have to compile for: a prompt length, a batch size, a sampling feature. The first
request of a shape is compared with later ones of the same shape, so what the shape costs anyway (prefill grows with
length) is in both and cancels out. It sees stalls, not their cause: a stall that comes once and only at a first use is
what a compilation looks like from outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Limits", "Reading", "Stall", "Use", "chance_of", "read"]

_FEWEST = 2  # later requests of a shape without which its first one is compared with nothing
_SPREADS = 3.0  # a stall is larger than so many times what later requests of its shape differ among themselves
_ALIKE = 2.0  # stalls of one kind on two replicas differ by no more than this factor; noise knows no such size
_ABOVE_NOISE = 2.0  # where ordinary requests stall too, a first use counts only if it is so many times worse
_NO_LUCK = 0.001  # … unless stalls keep to first uses so much that luck would do it once in a thousand


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One request of a shape. ``explained`` are the seconds of it that something else explains, ``because`` says what.

    ``id`` names the exchange; ``seconds`` run from sending to the end of the answer.
    """

    id: str
    shape: str
    seconds: float
    first: bool = False
    explained: float = 0.0
    because: str = ""

    @property
    def own(self) -> float:
        """The seconds that nothing else explains."""
        return max(0.0, self.seconds - self.explained)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What counts as a stall: so many seconds more than usual, and so many times the usual."""

    seconds: float = 1.0
    ratio: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A request that took ``excess`` seconds longer than its shape usually does; ``low`` and ``high`` bound that by the
    slowest and the quickest of the usual ones, whose median is ``usual``.
    """

    use: Use
    usual: float
    excess: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was found, each list in the order of the uses.

    ``stalls`` are first uses that stalled; ``again`` later requests of the same shapes that stalled as long, as where
    another replica meets the shape for the first time; ``unsettled`` first uses that stalled no worse than ordinary
    requests do here; ``noise`` those ordinary requests; ``explained`` slow ones that something else explains.
    ``unmeasured`` are shapes with nothing to compare with. ``chance`` is how often as many of the slow requests, or
    more, would fall on first uses if it were a matter of luck.
    """

    shapes: tuple[str, ...] = ()
    stalls: tuple[Stall, ...] = ()
    again: tuple[Stall, ...] = ()
    unsettled: tuple[Stall, ...] = ()
    noise: tuple[Stall, ...] = ()
    explained: tuple[Stall, ...] = ()
    unmeasured: tuple[str, ...] = ()
    chance: float = 1.0

    @property
    def lost(self) -> float:
        """The seconds lost in stalls of first uses, on all replicas that were met."""
        return sum(stall.excess for stall in (*self.stalls, *self.again))

    @property
    def lost_between(self) -> tuple[float, float]:
        """The least and the most that :attr:`lost` can be, by the spread of the usual times."""
        found = (*self.stalls, *self.again)
        return sum(stall.low for stall in found), sum(stall.high for stall in found)


def read(uses: Iterable[Use], limits: Limits | None = None) -> Reading:
    """Return what first uses cost.

    Stalls of ordinary requests are noise that any first use may have met as well: then only those count that are twice
    as bad as the worst of them, unless stalls keep to first uses too well for luck. Then those of later requests that
    are of the same size are what other replicas do when they meet the shape.
    """
    limits = limits or Limits()
    given = tuple(uses)
    by_shape: dict[str, list[Use]] = {}
    for use in given:
        by_shape.setdefault(use.shape, []).append(use)
    firsts: list[Stall] = []
    again: list[Stall] = []
    noise: list[Stall] = []
    explained: list[Stall] = []
    unmeasured: list[str] = []
    tried = ordinary = 0
    for shape, mine in by_shape.items():
        later = [use for use in mine if not use.first]
        plain = [use for use in later if not use.explained]
        usual = _usual([use.seconds for use in (plain if len(plain) >= _FEWEST else later)], limits)
        if usual is None:
            unmeasured.append(shape)
            continue
        explained += [
            _stall(use, use.seconds, usual)
            for use in mine
            if _slow(use.seconds, usual, limits) and not _slow(use.own, usual, limits)
        ]
        slow = [_stall(use, use.own, usual) for use in mine if _slow(use.own, usual, limits)]
        first = next((stall for stall in slow if stall.use.first), None)
        tried += sum(use.first for use in mine)
        ordinary += sum(not use.first for use in mine)
        if first is not None:
            firsts.append(first)
        for stall in slow:
            if stall is not first:
                (again if first is not None and _alike(stall, [first]) else noise).append(stall)
    chance = chance_of(len(firsts), tried, len(noise), ordinary)
    if chance <= _NO_LUCK:
        again += [stall for stall in noise if _alike(stall, firsts)]
        noise = [stall for stall in noise if not _alike(stall, firsts)]
    worst = max((stall.excess for stall in noise), default=0.0)
    stalls = [stall for stall in firsts if stall.excess >= _ABOVE_NOISE * worst]
    unsettled = [stall for stall in firsts if stall not in stalls]
    if not stalls:
        noise, again = [*noise, *again], []
    order = {use.id: place for place, use in enumerate(given)}
    return Reading(
        shapes=tuple(shape for shape, mine in by_shape.items() if any(use.first for use in mine)),
        stalls=tuple(stalls),
        again=tuple(sorted(again, key=lambda stall: order[stall.use.id])),
        unsettled=tuple(unsettled),
        noise=tuple(sorted(noise, key=lambda stall: order[stall.use.id])),
        explained=tuple(explained),
        unmeasured=tuple(unmeasured),
        chance=chance,
    )


def _alike(stall: Stall, firsts: Sequence[Stall]) -> bool:
    sizes = [first.excess for first in firsts]
    return min(sizes, default=math.inf) / _ALIKE <= stall.excess <= max(sizes, default=0.0) * _ALIKE


def chance_of(slow_firsts: int, firsts: int, slow_others: int, others: int) -> float:
    """Return how often luck alone puts so many, or more, of all slow requests among the first uses.

    The tail of the hypergeometric distribution (Fisher's exact test, one-sided), https://doi.org/10.2307/2340521

    Raises:
        ValueError: more slow ones than there are requests.
    """
    if not 0 <= slow_firsts <= firsts or not 0 <= slow_others <= others:
        raise ValueError(f"{slow_firsts} of {firsts} and {slow_others} of {others} are no counts of slow requests")
    slow, total = slow_firsts + slow_others, firsts + others
    ways = sum(math.comb(firsts, k) * math.comb(others, slow - k) for k in range(slow_firsts, min(slow, firsts) + 1))
    return ways / math.comb(total, slow)


@dataclass(frozen=True, slots=True)
class _Usual:
    middle: float
    quickest: float
    slowest: float


def _usual(seconds: Sequence[float], limits: Limits) -> _Usual | None:
    """Return what is usual among later requests of a shape; those of them that stalled themselves do not count."""
    if len(seconds) < _FEWEST:
        return None
    ordered = sorted(seconds)
    # At least half of the later requests are taken as usual: with more replicas than that nothing could be told.
    base = median(ordered[: max(_FEWEST, (len(ordered) + 1) // 2)])
    quick = [each for each in ordered if each - base < limits.seconds or each < limits.ratio * base]
    return _Usual(median(quick), quick[0], quick[-1])


def _slow(seconds: float, usual: _Usual, limits: Limits) -> bool:
    excess = seconds - usual.middle
    spread = usual.slowest - usual.quickest
    return excess >= max(limits.seconds, _SPREADS * spread) and seconds >= limits.ratio * usual.middle


def _stall(use: Use, seconds: float, usual: _Usual) -> Stall:
    return Stall(
        use=use,
        usual=usual.middle,
        excess=seconds - usual.middle,
        low=max(0.0, seconds - usual.slowest),
        high=seconds - usual.quickest,
    )
