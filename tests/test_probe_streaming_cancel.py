"""What the cancellation probe says of counts that no mutant of the reference server shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from servecheck.model import Chunk, Ending, Exchange, Finding, Mode, Outcome, Status
from servecheck.probes.streaming_cancel import PROBE, StreamingCancelParams
from servecheck.reference.asgi import Reply, Request, json_reply
from servecheck.reference.mutants.streaming_cancel import LeaksIntoNext, OneSlot
from servecheck.reference.server import ReferenceServer
from tests.timed import delta, exchange, sent_json, stream, transcript, whole
from tests.trying import trials_of

_OWN = "next-reply-is-its-own"
_STOPS, _NEXT = "work-stops-when-the-client-leaves", "next-request-is-served-at-once"
_HELD, _VIOLATED, _UNDETERMINED = Outcome.HELD, Outcome.VIOLATED, Outcome.UNDETERMINED


def _before(rate: float = 32.0) -> Exchange:
    usage = {"prompt_tokens": 9, "completion_tokens": 32, "total_tokens": 41}
    return whole("before-1", "words", usage=usage, ended_at=32 / rate)


def _count(step: str, running: int | None, at: float) -> Exchange:
    text = f'vllm:num_requests_running{{engine="0"}} {running}\n' if running is not None else "other 1\n"
    url = "http://127.0.0.1:1/metrics"
    return exchange(step, method="GET", url=url, body=text.encode(), sent=at, ended_at=0.01)


def _left(max_tokens: int = 660, ending: Ending = Ending.ABORTED) -> Exchange:
    request = json.dumps({"max_tokens": max_tokens}).encode()
    times = [10.1 - 10 + place / 32 for place in range(32)]
    return stream(
        "stream-left", [delta("w")] * 32, times=times, done=False, sent=10.0, ending=ending, request_body=request
    )


def _says(
    base: int | None, seen: Sequence[int], after: Sequence[tuple[float, int]], left: Exchange, next_s: float = 1.0
) -> dict[str, Outcome]:
    hung_up = left.sent + left.ended_at
    found = PROBE.judge(
        transcript(
            _before(),
            _count("stream-base", base, 9.0),
            *(_count(f"stream-seen-{place}", count, 10.1 + place / 10) for place, count in enumerate(seen)),
            left,
            *(_count(f"stream-after-{place}", count, hung_up + at) for place, (at, count) in enumerate(after)),
            whole("stream-next", "words", ended_at=next_s),
        ),
        StreamingCancelParams(),
    )
    said = {each.check: each.outcome for each in found if isinstance(each, Finding) and each.mode is Mode.STREAM}
    assert said.pop(_OWN, _HELD) is _HELD
    return said


@pytest.mark.parametrize(
    ("expected", "base", "seen", "after"),
    [
        pytest.param(_HELD, 0, [0, 1], [(0.05, 1), (0.1, 0)], id="falls at once"),
        pytest.param(_HELD, 3, [3, 4], [(0.05, 4), (4.0, 3)], id="falls to what others run"),
        pytest.param(_VIOLATED, 0, [0, 1], [(1.0, 1), (5.0, 1)], id="goes on"),
        pytest.param(_UNDETERMINED, 2, [2, 3], [(1.0, 3), (5.0, 4)], id="others run too"),
        pytest.param(_UNDETERMINED, 0, [0, 0], [(1.0, 0)], id="never seen running"),
        pytest.param(_UNDETERMINED, None, [], [], id="no count"),
    ],
)
def test_the_count_of_running_requests_decides(
    expected: Outcome, base: int | None, seen: list[int], after: list[tuple[float, int]]
) -> None:
    assert _says(base, seen, after, _left()) == {_STOPS: expected, _NEXT: _HELD}


def test_a_fall_that_may_be_the_answers_own_end_says_nothing() -> None:
    assert _says(0, [1], [(3.0, 0)], _left(max_tokens=160)) == {_STOPS: _UNDETERMINED, _NEXT: _HELD}
    assert _says(0, [1], [(0.1, 0)], _left(max_tokens=160)) == {_STOPS: _HELD, _NEXT: _HELD}


def test_a_request_with_little_left_that_never_falls_says_nothing() -> None:
    assert _says(0, [1], [(5.0, 1)], _left(max_tokens=64))[_STOPS] == _UNDETERMINED


def test_an_answer_that_ended_by_itself_says_nothing() -> None:
    assert _says(0, [1], [(0.1, 0)], _left(ending=Ending.COMPLETE)) == {_STOPS: _UNDETERMINED}


@pytest.mark.parametrize(("expected", "seconds"), [(_HELD, 1.0), (_HELD, 3.9), (_VIOLATED, 18.0)])
def test_the_next_request_is_compared_with_the_usual_time(expected: Outcome, seconds: float) -> None:
    assert _says(0, [1], [(0.1, 0)], _left(), seconds)[_NEXT] == expected


def _only(*exchanges: Exchange) -> dict[str, set[Outcome]]:
    said: dict[str, set[Outcome]] = {}
    for finding in PROBE.judge(transcript(*exchanges), StreamingCancelParams()):
        assert isinstance(finding, Finding)
        said.setdefault(finding.check, set()).add(finding.outcome)
    return said


def test_without_an_answer_to_begin_with_nothing_is_left() -> None:
    refused = sent_json("before-1", {"error": {"message": "no"}}, status=400)
    assert _only(refused) == {_STOPS: {Outcome.REFUSED}}
    assert _only() == {_STOPS: {_UNDETERMINED}}


def test_a_long_request_that_is_refused_says_nothing() -> None:
    refused = sent_json("stream-left", {"error": {"message": "max_tokens is too large"}}, status=400)
    assert _only(_before(), refused)[_STOPS] == {_UNDETERMINED}


def test_without_a_readable_count_the_row_says_where_it_looked() -> None:
    class NoMetrics(OneSlot):
        def metrics_text(self) -> str:
            return "other 1\n"

    trial, *_ = trials_of("streaming_cancel", NoMetrics(slots=1))
    assert {finding.outcome for finding in trial.findings if finding.check == _STOPS} == {_UNDETERMINED}
    assert {finding.outcome for finding in trial.findings if finding.check == _NEXT} == {_HELD}
    assert "/metrics (HTTP 200), http://127.0.0.1:1/v1/loads (HTTP 404)" in trial.reason


@pytest.mark.parametrize(
    ("route", "show"),
    [
        ("/v1/loads", lambda running: {"num_running_reqs": running}),
        ("/slots", lambda running: [{"is_processing": place < running} for place in range(4)]),
    ],
)
def test_other_engines_counts_are_found(route: str, show: Callable[[int], object]) -> None:
    class Elsewhere(ReferenceServer):
        ROUTES: ClassVar = {("GET", route): "reply_count"}

        def metrics_text(self) -> str:
            return "other 1\n"

        async def reply_count(self, _: Request) -> Reply:
            return json_reply(show(self.metrics.running))

    trials = trials_of("streaming_cancel", Elsewhere(decode_seconds=0.1))
    assert [trial.status for trial in trials] == [Status.SUPPORTED]


def _named(exchange_made: Exchange, name: str) -> Exchange:
    """Return an exchange whose JSON, whole or in events, has this id."""
    chunks = tuple(
        Chunk(chunk.at, chunk.data.replace(b'{"', f'{{"id": "{name}", "'.encode(), 1)) for chunk in exchange_made.chunks
    )
    return replace(exchange_made, chunks=chunks)


_REFUSED = sent_json("own-next-1", {"error": {"message": "too busy"}}, status=400)
_CUT = exchange("own-next-1", status=None, ending=Ending.UNREACHABLE, detail='illegal status line: data: {"id": "old"')


@pytest.mark.parametrize(
    ("following", "before", "expected", "reason"),
    [
        (_named(whole("own-next-1", "Yes."), "new"), ("a", "b"), _HELD, "1 times a hang-up was followed"),
        (
            _named(stream("own-next-1", [delta("old")]), "old"),
            ("a", "b"),
            _VIOLATED,
            "a stream came with the id “old” of the stream that was left",
        ),
        (_named(stream("own-next-1", [delta("x")]), "x"), ("a", "b"), _VIOLATED, "and a stream came"),
        (_named(whole("own-next-1", "Yes."), "old"), ("a", "b"), _VIOLATED, "the reply came with the id “old”"),
        (_named(whole("own-next-1", "Yes."), "old"), ("old", "old"), _HELD, "1 times"),
        (_CUT, ("a", "b"), _VIOLATED, "with the id “old” of the stream that was left"),
        (
            sent_json("own-next-1", {"error": "boom"}, status=500),
            ("a", "b"),
            _VIOLATED,
            "right after a hang-up: HTTP 500",
        ),
        (_REFUSED, ("a", "b"), _UNDETERMINED, "was refused"),
    ],
)
def test_the_reply_right_after_a_hang_up_must_be_the_request_s_own(
    following: Exchange, before: tuple[str, str], expected: Outcome, reason: str
) -> None:
    usual = [_named(whole(f"before-{place}", "words"), name) for place, name in enumerate(before, start=1)]
    left = _named(stream("own-left-1", [delta("w")], done=False, ending=Ending.ABORTED), "old")
    found = PROBE.judge(transcript(*usual, left, following), StreamingCancelParams())
    (said,) = [each for each in found if isinstance(each, Finding) and each.check == _OWN]

    assert said.outcome is expected
    assert reason in said.why


def test_a_server_that_writes_a_left_stream_into_the_next_reply_is_broken() -> None:
    trial, *_ = trials_of("streaming_cancel", LeaksIntoNext(decode_seconds=0.1))
    (said,) = [finding for finding in trial.findings if finding.check == _OWN]

    assert said.outcome is _VIOLATED
    assert trial.status is Status.BROKEN
