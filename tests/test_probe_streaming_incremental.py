"""What the timing probe says of arrival times that no mutant of the reference server shows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from servecheck.model import Exchange, Outcome
from servecheck.probes.streaming_incremental import PROBE, StreamingIncrementalParams
from tests.timed import delta, exchange, outcomes, sent_json, stream, transcript, whole

_SPREAD, _STEPS = "text-arrives-while-it-is-made", "text-arrives-in-small-steps"


def _stream(step: str, times: Sequence[float], tokens: int | None = None) -> Exchange:
    usage = {"prompt_tokens": 9, "completion_tokens": tokens} if tokens else None
    held = max(1, (tokens or len(times)) // len(times))  # an event of several tokens holds as many words
    events = [delta("word " * held) for _ in times]
    last: dict[str, object] = {"choices": [], "usage": usage}
    return stream(step, [*events, last], times=[*times, times[-1]])


def _says(*exchanges: Exchange) -> dict[str, Outcome]:
    return outcomes(PROBE.judge(transcript(*exchanges), StreamingIncrementalParams()))


def _even(first: float, last: float, count: int) -> list[float]:
    return [first + (last - first) * place / (count - 1) for place in range(count)]


@pytest.mark.parametrize(
    ("expected", "times", "tokens"),
    [
        pytest.param({_SPREAD: Outcome.HELD, _STEPS: Outcome.HELD}, _even(0.1, 2, 64), 64, id="flows"),
        pytest.param({_SPREAD: Outcome.HELD, _STEPS: Outcome.HELD}, _even(0.3, 2, 8), 64, id="eight tokens an event"),
        pytest.param({_SPREAD: Outcome.HELD, _STEPS: Outcome.HELD}, _even(0.1, 2, 64), None, id="without usage"),
        pytest.param({_SPREAD: Outcome.VIOLATED, _STEPS: Outcome.VIOLATED}, [2.0] * 64, 64, id="all at the end"),
        pytest.param({_SPREAD: Outcome.VIOLATED, _STEPS: Outcome.HELD}, [2.0], 64, id="one event"),
        pytest.param({_SPREAD: Outcome.HELD, _STEPS: Outcome.VIOLATED}, [0.5] * 32 + [2.0] * 32, 64, id="two bursts"),
        pytest.param({_SPREAD: Outcome.UNDETERMINED}, _even(0.01, 0.2, 64), 64, id="too fast"),
        pytest.param({_SPREAD: Outcome.UNDETERMINED}, _even(0.1, 2, 12), 12, id="too short"),
    ],
)
def test_one_stream_is_judged_by_when_its_text_came(
    expected: dict[str, Outcome], times: list[float], tokens: int | None
) -> None:
    assert expected == _says(_stream("stream", times, tokens))


def test_a_late_text_that_is_too_short_for_its_tokens_is_no_burst() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 64}
    thought = stream("stream", [delta("Red."), {"choices": [], "usage": usage}], times=[2.0, 2.0])
    assert _says(thought) == {_SPREAD: Outcome.UNDETERMINED}


def test_a_second_look_that_flows_is_enough() -> None:
    late, flows = _stream("stream", _even(20, 21, 64), 64), _stream("again", _even(0.1, 1.1, 64), 64)
    assert _says(late, _stream("short", [20.0] * 4), flows) == {_SPREAD: Outcome.HELD, _STEPS: Outcome.HELD}


def test_time_before_a_start_that_is_slow_for_four_tokens_too_does_not_count() -> None:
    streams = [_stream(step, _even(20, 21, 64), 64) for step in ("stream", "again")]
    assert _says(*streams, _stream("short", [19.5] * 4)) == {_SPREAD: Outcome.HELD, _STEPS: Outcome.HELD}


def test_a_burst_behind_a_slow_start_is_still_a_burst() -> None:
    streams = [_stream(step, [21.0] * 64, 64) for step in ("stream", "again")]
    assert _says(*streams, _stream("short", [19.5] * 4)) == {_SPREAD: Outcome.VIOLATED, _STEPS: Outcome.VIOLATED}


def test_a_fast_burst_behind_a_slow_start_cannot_be_told_from_a_fast_engine() -> None:
    streams = [_stream(step, [19.6] * 64, 64) for step in ("stream", "again")]
    assert _says(*streams, _stream("short", [19.5] * 4)) == {_SPREAD: Outcome.UNDETERMINED}


def test_a_late_start_without_a_look_at_a_short_stream_counts() -> None:
    assert _says(_stream("stream", _even(20, 21, 64), 64)) == {_SPREAD: Outcome.VIOLATED, _STEPS: Outcome.HELD}


@pytest.mark.parametrize(
    ("expected", "reply"),
    [
        (Outcome.REFUSED, sent_json("stream", {"error": {"message": "no streams here"}}, status=400)),
        (Outcome.VIOLATED, sent_json("stream", {"error": {"message": "oh"}}, status=500)),
        (Outcome.NO_EFFECT, whole("stream", "A whole answer.")),
        (Outcome.VIOLATED, exchange("stream", body=b"\xff\xfe not JSON")),
    ],
)
def test_what_is_no_stream_is_not_timed(expected: Outcome, reply: Exchange) -> None:
    assert {_SPREAD: expected} == _says(reply)


def test_nothing_sent_is_nothing_known() -> None:
    assert _says() == {_SPREAD: Outcome.UNDETERMINED}
