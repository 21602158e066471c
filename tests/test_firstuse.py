"""What counts as a stall of a first use, on made-up times."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from servecheck.firstuse import Limits, Reading, Use, chance_of, read


def uses(shape: str, cold: float, *later: float) -> list[Use]:
    first = Use(id=f"{shape}-0", shape=shape, seconds=cold, first=True)
    return [first, *(Use(id=f"{shape}-{n}", shape=shape, seconds=took) for n, took in enumerate(later, 1))]


def control(*times: float) -> list[Use]:
    return [Use(id=f"control-{number}", shape="control", seconds=took) for number, took in enumerate(times)]


def stalled(reading: Reading) -> list[str]:
    return [stall.use.shape for stall in reading.stalls]


@pytest.mark.parametrize(
    ("expected", "cold", "later"),
    [
        (True, 8.0, (0.1, 0.12, 0.11)),
        (True, 1.2, (0.1, 0.1, 0.1)),
        (False, 1.05, (0.1, 0.1, 0.1)),  # less than a second more
        (False, 8.0, (2.0, 2.1, 2.0)),  # less than five times as long
        (False, 0.1, (0.1, 0.1, 0.1)),
        (False, 2.0, (0.1, 0.1, 0.1, 0.9)),  # its later requests differ among themselves by too much for that
    ],
)
def test_a_first_use_stalls_by_a_second_and_five_times_and_beyond_the_spread(expected, cold, later):
    assert (stalled(read([*uses("a", cold, *later), *control(0.1, 0.1)])) == ["a"]) is expected


def test_limits_are_for_the_caller_to_choose():
    times = uses("a", 0.5, 0.1, 0.1)
    assert stalled(read(times, Limits(seconds=0.3, ratio=3))) == ["a"]
    assert stalled(read(times, Limits(seconds=0.3, ratio=6))) == []


def test_a_long_shape_that_always_takes_long_has_no_stall():
    """Length cancels out because the comparison is with the same length."""
    assert stalled(read([*uses("short", 0.1, 0.1, 0.1), *uses("long", 30.0, 29.0, 31.0, 30.0)])) == []


def test_the_seconds_lost_lie_between_the_slowest_and_the_quickest_usual_one():
    (stall,) = read([*uses("a", 10.0, 0.2, 0.4, 0.3), *control(0.1, 0.1)]).stalls
    assert (stall.usual, stall.excess, stall.low, stall.high) == pytest.approx((0.3, 9.7, 9.6, 9.8))


def test_the_other_replicas_first_use_is_a_stall_of_its_own():
    reading = read([*uses("a", 8.0, 9.5, 0.1, 0.1, 0.1), *control(0.1, 0.1)])
    assert [stall.use.id for stall in reading.stalls] == ["a-0"]
    assert [stall.use.id for stall in reading.again] == ["a-1"]
    assert reading.lost == pytest.approx(17.3)


def test_a_first_use_is_unsettled_where_ordinary_requests_stall_as_badly():
    reading = read([*uses("a", 3.0, 0.1, 0.1, 0.1), *control(0.1, 0.1, 2.9, 0.1)])
    assert stalled(reading) == []
    assert [stall.use.shape for stall in reading.unsettled] == ["a"]
    assert [stall.use.shape for stall in reading.noise] == ["control"]


def test_a_first_use_counts_where_it_is_twice_as_bad_as_the_noise():
    assert stalled(read([*uses("a", 20.0, 0.1, 0.1, 0.1), *control(0.1, 0.1, 2.9, 0.1)])) == ["a"]


def test_where_luck_cannot_do_it_ordinary_stalls_of_that_size_are_other_replicas():
    shapes = [use for name in "abcdef" for use in uses(name, 8.0, 0.1, 0.1, 0.1, 0.1)]
    reading = read([*shapes, *control(0.1, 0.1, 7.0, 0.1, 0.1, 0.1)])
    assert stalled(reading) == list("abcdef")
    assert [stall.use.id for stall in reading.again] == ["control-2"]
    assert reading.noise == ()
    assert reading.chance < 0.001


def test_what_something_else_explains_is_no_stall_but_what_remains_may_be():
    wait = Use(id="a-0", shape="a", seconds=9.0, first=True, explained=8.9, because="a queue")
    later = uses("a", 0, 0.1, 0.1)[1:]
    explained = read([wait, *later])
    assert (stalled(explained), [stall.use.because for stall in explained.explained]) == ([], ["a queue"])
    rest = Use(id="a-0", shape="a", seconds=9.0, first=True, explained=3.0, because="a queue")
    (stall,) = read([rest, *later]).stalls
    assert stall.excess == pytest.approx(5.9)


def test_a_slow_control_that_is_explained_is_no_noise():
    slow = Use(id="c", shape="control", seconds=3.0, explained=3.0, because="others")
    reading = read([*uses("a", 3.0, 0.1, 0.1, 0.1), *control(0.1, 0.1), slow])
    assert stalled(reading) == ["a"]
    assert reading.noise == ()


def test_a_shape_with_fewer_than_two_later_requests_is_compared_with_nothing():
    reading = read([*uses("a", 9.0, 0.1), *uses("b", 0.1, 0.1, 0.1)])
    assert (reading.unmeasured, stalled(reading)) == (("a",), [])


def test_nothing_gives_nothing():
    assert read([]) == Reading()


@pytest.mark.parametrize(
    ("expected", "counts"),
    [(1.0, (0, 6, 0, 30)), (6 / 36, (1, 6, 0, 30)), (1 / math.comb(36, 6), (6, 6, 0, 30)), (1.0, (0, 5, 3, 9))],
)
def test_the_chance_is_that_of_drawing_the_slow_ones_from_all(expected, counts):
    assert chance_of(*counts) == pytest.approx(expected)


@pytest.mark.parametrize("counts", [(2, 1, 0, 3), (0, 1, 4, 3), (-1, 1, 0, 3)])
def test_more_slow_requests_than_requests_are_refused(counts: Sequence[int]):
    with pytest.raises(ValueError, match="no counts of slow requests"):
        chance_of(*counts)
