"""What the two usage probes say of bills that no mutant of the reference server writes."""

from __future__ import annotations

from typing import Any

import pytest

from servecheck.model import Exchange, Outcome
from servecheck.probes import streaming_continuous_usage, streaming_usage
from tests.timed import delta, exchange, outcomes, sent_json, stream, transcript, whole

_COMES, _EQUAL = "usage-comes-when-asked-for", "stream-usage-equals-whole-usage"
_OWN, _ONCE, _UNASKED = "usage-has-a-last-chunk-of-its-own", "usage-comes-once", "no-usage-unasked"
_HELD, _VIOLATED, _UNDETERMINED = Outcome.HELD, Outcome.VIOLATED, Outcome.UNDETERMINED


def _bill(prompt: Any, completion: Any, total: Any = None) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total or prompt + completion}


def _streamed(text: str, bill: Any, finish: str = "stop") -> Exchange:
    return stream("stream", [delta(text), delta(finish=finish), {"choices": [], "usage": bill}])


def _says(*exchanges: Exchange, max_tokens: int = 24) -> dict[str, Outcome]:
    params = streaming_usage.StreamingUsageParams(max_tokens=max_tokens)
    return outcomes(streaming_usage.PROBE.judge(transcript(*exchanges), params))


@pytest.mark.parametrize(
    ("expected", "streamed", "plain"),
    [
        (_HELD, _streamed("a b", _bill(9, 3)), whole("whole", "a b", usage=_bill(9, 3))),
        (_VIOLATED, _streamed("a b", _bill(9, 4)), whole("whole", "a b", usage=_bill(9, 3))),
        (_VIOLATED, _streamed("a b", _bill(8, 3)), whole("whole", "a b", usage=_bill(9, 3))),
        (_HELD, _streamed("a b c", _bill(9, 4)), whole("whole", "a b", usage=_bill(9, 3))),
        (_VIOLATED, _streamed("a b c", _bill(9, 25)), whole("whole", "a b", usage=_bill(9, 3))),
        (_VIOLATED, _streamed("a b", _bill(9, 23), "length"), whole("whole", "c", finish="length", usage=_bill(9, 24))),
        (_HELD, _streamed("a b", _bill(9, 24), "length"), whole("whole", "c", finish="length", usage=_bill(9, 24))),
        (_VIOLATED, _streamed("a b", _bill(9, 3, 99)), whole("whole", "a b", usage=_bill(9, 3))),
        (_UNDETERMINED, _streamed("a b", _bill(9, 3)), whole("whole", "a b")),
        (_UNDETERMINED, _streamed("a b", _bill(9, 3)), exchange("whole", status=500, body=b"oh")),
    ],
)
def test_a_bill_is_compared_with_the_whole_reply_and_with_what_was_allowed(
    expected: Outcome, streamed: Exchange, plain: Exchange
) -> None:
    assert _says(plain, streamed)[_EQUAL] == expected


def test_a_refusal_counts_only_where_the_same_stream_without_usage_was_answered() -> None:
    refused = sent_json("stream", {"error": {"message": "stream_options is unknown"}}, status=400)
    plain, answered = whole("whole", "a", usage=_bill(9, 1)), stream("no stream_options", [delta("a", finish="stop")])
    assert _says(plain, refused, answered)[_COMES] == Outcome.REFUSED
    sick = exchange("no stream_options", status=400, body=b"no streams at all")
    assert _says(plain, refused, sick)[_COMES] == _UNDETERMINED


def test_usage_before_the_last_words_is_at_the_wrong_place_only() -> None:
    early = stream("stream", [{"choices": [], "usage": _bill(9, 2)}, delta("a"), delta(" b", finish="stop")])
    said = _says(whole("whole", "a b", usage=_bill(9, 2)), early)
    assert said == {_COMES: _HELD, _OWN: _VIOLATED, _ONCE: _HELD, _EQUAL: _HELD}


def test_usage_that_a_server_always_sends_is_a_difference_and_no_wrong_bill() -> None:
    always = stream("no stream_options", [delta("a b", finish="stop"), {"choices": [], "usage": _bill(9, 2)}])
    said = _says(whole("whole", "a b", usage=_bill(9, 2)), _streamed("a b", _bill(9, 2)), always)
    assert said == {_COMES: _HELD, _OWN: _HELD, _ONCE: _HELD, _EQUAL: _HELD, _UNASKED: _VIOLATED}
    assert streaming_usage.PROBE.check(_UNASKED).level == "should"


def test_garbage_is_judged_and_raises_nothing() -> None:
    odd = stream("stream", [delta("a"), {"choices": "none", "usage": {"prompt_tokens": "many"}}, [1], "x", None])
    assert _says(whole("whole", "a", usage=_bill(9, 1)), odd)[_EQUAL] == _VIOLATED
    assert _says() == {_COMES: _UNDETERMINED}


def _running(counts: list[int | None], total: int | None) -> dict[str, Outcome]:
    events = [delta("w", usage={"prompt_tokens": 9, "completion_tokens": count}) for count in counts]
    last = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": total}}
    both = (stream("control", [delta("w w")]), stream("continuous", [*events, delta(finish="stop"), last]))
    params = streaming_continuous_usage.StreamingContinuousUsageParams()
    return outcomes(streaming_continuous_usage.PROBE.judge(transcript(*both), params))


@pytest.mark.parametrize(
    ("rises", "ends", "counts", "total"),
    [
        pytest.param(_HELD, _HELD, [1, 2, 3], 3, id="one token each"),
        pytest.param(_HELD, _HELD, [1, 2, 3], 4, id="an end token after the text"),
        pytest.param(_HELD, _HELD, [2, 2, 5], 5, id="several tokens in an event"),
        pytest.param(_HELD, _VIOLATED, [1, 1, 1], 1, id="stands still"),
        pytest.param(_HELD, _VIOLATED, [1, 2, 3], 2, id="total below"),
        pytest.param(_HELD, _VIOLATED, [1, 2, 3], 9, id="total far above"),
        pytest.param(_VIOLATED, _HELD, [1, 3, 2], 3, id="falls"),
        pytest.param(_HELD, _UNDETERMINED, [1, 2, 3], None, id="no total"),
    ],
)
def test_running_totals_rise_to_the_total(rises: Outcome, ends: Outcome, counts: list[int | None], total: int) -> None:
    said = _running(counts, total)
    assert (said["running-usage-never-falls"], said["running-usage-ends-at-total"]) == (rises, ends)


def test_two_events_are_too_few_to_follow() -> None:
    assert _running([1, 2], 2) == {"usage-comes-on-every-text-event": _UNDETERMINED}


def test_running_usage_without_counts_is_no_usage() -> None:
    assert _running([1, None, 3], 3)["running-usage-never-falls"] == _VIOLATED
