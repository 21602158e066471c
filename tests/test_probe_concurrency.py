"""The rows about many requests at once: who passes whom, whose answer it is, what a batch changes, and overload."""

from __future__ import annotations

import json
from typing import Any

import pytest

from servecheck.model import Ending, Exchange, Observed, Outcome, Status
from servecheck.probes import (
    cancel_storm,
    concurrency_batching,
    concurrency_invariance,
    concurrency_isolation,
    concurrency_overload,
)
from servecheck.reference.mutants.cancel_storm import GatewayKeepsItsConnection
from servecheck.reference.mutants.concurrency_overload import TurnsAway
from servecheck.reference.mutants.sampling_greedy import BatchFlipsClearChoices, BatchFlipsTies, SamplesAnyway
from servecheck.reference.server import ReferenceServer
from tests import timed
from tests.trying import trials_of

V, R, U, H = Outcome.VIOLATED, Outcome.REFUSED, Outcome.UNDETERMINED, Outcome.HELD


def made(step: str, tokens: int, sent: float, took: float, **more: Any) -> Exchange:
    usage = {"prompt_tokens": 20, "completion_tokens": tokens, "total_tokens": 20 + tokens}
    return timed.whole(step, "words", finish="length", usage=usage, sent=sent, ended_at=took, **more)


# --------------------------------------------------------------------------- batching


PASSES, GAINS = "short-request-passes-a-long-one", "eight-give-more-than-one"


def batching(
    shorts: list[tuple[float, float]],
    crowd: list[tuple[float, float]] | None = None,
    solos: tuple[float, float] = (1.0, 1.0),
    **known: str,
) -> dict[str, Outcome]:
    """``shorts`` and ``crowd`` are (sent, took); the long one runs from 10 to 14 s, a short one alone takes 0.2 s."""
    exchanges = [made("first", 48, 0, 1.0), made("alone", 8, 2, 0.2), made("solo-1", 48, 3, solos[0])]
    exchanges.append(made("long", 160, 10, 4.0))
    exchanges += [made(f"short-{place}", 8, sent, took) for place, (sent, took) in enumerate(shorts, start=1)]
    together = crowd or [(20.0, 2.0)] * 8
    exchanges += [made(f"crowd-{place}", 48, sent, took) for place, (sent, took) in enumerate(together, start=1)]
    exchanges.append(made("solo-2", 48, 40, solos[1]))
    found = concurrency_batching.PROBE.judge(
        timed.transcript(*exchanges, known=known), concurrency_batching.ConcurrencyBatchingParams()
    )
    return timed.outcomes(found)


@pytest.mark.parametrize(
    ("shorts", "expected"),
    [
        pytest.param([(10.6, 0.3), (10.9, 0.3)], H, id="both pass"),
        pytest.param([(10.6, 3.6)], V, id="it waits for the end"),
        pytest.param([(10.6, 0.3), (10.9, 3.6)], U, id="one passes and one does not"),
        pytest.param([(13.8, 0.4)], U, id="it came too late to tell"),
        pytest.param([(14.1, 0.2)], U, id="the long one was over: ours were not sent together"),
        pytest.param([(10.6, 1.7)], H, id="in half the time that was left"),
        pytest.param([(10.6, 2.9)], U, id="before the end, but not by much"),
        pytest.param([(10.6, 3.3)], V, id="a last event that was read late"),
    ],
)
def test_a_short_request_is_judged_where_it_had_time_to_pass(shorts, expected):
    assert batching(shorts)[PASSES] is expected


def test_one_slot_that_is_declared_is_no_broken_promise():
    assert batching([(10.6, 3.6)], slots="1")[PASSES] is R
    assert batching([(10.6, 3.6)], slots="4")[PASSES] is V


def test_few_slots_that_are_declared_promise_no_gain():
    crowd = [(20.0, 8.0)] * 8
    said = {slots: batching([(10.6, 0.3)], crowd, slots=slots)[GAINS] for slots in ("1", "2", "4")}
    assert said == {"1": R, "2": U, "4": V}


@pytest.mark.parametrize(
    ("crowd", "solos", "expected"),
    [
        pytest.param([(20.0, 2.0)] * 8, (1.0, 1.0), H, id="four times as much"),
        pytest.param([(20.0, 8.0)] * 8, (1.0, 1.0), V, id="no more than one"),
        pytest.param([(20.0, 6.0)] * 8, (1.0, 1.0), U, id="a third more is too close"),
        pytest.param([(20.0, 8.0)] * 8, (1.0, 2.0), U, id="the machine was busy between"),
        pytest.param([(20.0 + place, 0.9) for place in range(8)], (1.0, 1.0), U, id="ours were not sent together"),
    ],
)
def test_the_gain_of_eight_is_held_against_requests_alone_before_and_after(crowd, solos, expected):
    assert batching([(10.6, 0.3)], crowd, solos)[GAINS] is expected


# --------------------------------------------------------------------------- isolation


OWN, SANE, ANSWERED, IDS = (
    "answer-is-its-own",
    "answer-stays-text-under-load",
    "answered-under-load",
    "ids-differ-under-load",
)
STORY = "A word of the sea was told by the keeper."


def free(
    step: str,
    nonce: str,
    *,
    words: int = 20,
    tokens: int = 24,
    text: str = STORY,
    made_tokens: int | None = None,
    prompt: int | None = None,
    reply_id: str | None = None,
    sent: float = 0.0,
) -> Exchange:
    asked = {
        "messages": [{"role": "user", "content": " ".join([nonce, *["word"] * (words - 1)])}],
        "max_tokens": tokens,
        "ignore_eos": True,
    }
    usage = {"prompt_tokens": words + 8 if prompt is None else prompt, "completion_tokens": made_tokens or tokens}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}
    body = {"id": reply_id or f"id-{step}", "choices": [choice], "usage": usage}
    return timed.sent_json(step, body, request_body=json.dumps(asked).encode(), sent=sent)


def isolation(*under_load: Exchange) -> dict[str, Outcome]:
    alone = [free("alone-free", "aaaa"), free("alone-shaped", "bbbb", sent=2.0)]
    params = concurrency_isolation.ConcurrencyIsolationParams()
    judged = concurrency_isolation.PROBE.judge(timed.transcript(*alone, *under_load), params)
    return {check: outcome for check, outcome in timed.outcomes(judged).items() if outcome is not H}


def crowd(**changed: Any) -> list[Exchange]:
    """Return three answers; ``changed`` is of the last."""
    return [
        free("free-0-0", "cccc", words=20, tokens=24, sent=5.0),
        free("free-0-1", "dddd", words=44, tokens=27, sent=5.0),
        free("free-0-2", "eeee", **{"words": 68, "tokens": 30, "sent": 5.0, **changed}),
    ]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param({}, {}, id="all their own"),
        pytest.param({"text": f"{STORY} dddd"}, {OWN: V}, id="a word of another"),
        pytest.param({"text": f"eeee {STORY}"}, {}, id="its own word"),
        pytest.param({"made_tokens": 24}, {OWN: V}, id="the length of another"),
        pytest.param({"prompt": 28}, {OWN: V}, id="the prompt of another"),
        pytest.param({"reply_id": "id-free-0-1"}, {IDS: V}, id="the id of another"),
        pytest.param({"sent": 50.0}, {}, id="one came later"),
    ],
)
def test_an_answer_under_load_is_known_by_words_lengths_and_id(changed, expected):
    assert isolation(*crowd(**changed)) == expected


@pytest.mark.parametrize("text", ["!" * 40, "A word of the sea. " + "#" * 40, ""])
@pytest.mark.parametrize(("alone", "expected"), [(STORY, {SANE: V}), ("#" * 40, {})])
def test_garbage_under_load_counts_where_the_same_request_alone_is_text(text, alone, expected):
    again = free("alone-free-0-2", "eeee", words=68, tokens=30, text=alone, sent=20.0)
    assert isolation(*crowd(text=text), again) == expected


def test_requests_that_were_never_together_claim_nothing():
    apart = [free(f"free-0-{place}", "cccc", sent=5.0 + 2 * place, words=20 + 24 * place) for place in range(3)]
    assert isolation(*apart) == {ANSWERED: U}


def test_a_failure_under_load_is_the_servers_where_alone_all_was_answered():
    failed = timed.exchange("free-0-2", status=500, body=b'{"error": {"message": "out of blocks"}}', sent=5.0)
    assert isolation(*crowd()[:2], failed) == {ANSWERED: V}


# --------------------------------------------------------------------------- batch invariance


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (ReferenceServer, "invariant"),
        (BatchFlipsTies, "near-ties only"),
        (BatchFlipsClearChoices, "changes clear choices"),
        (SamplesAnyway, "not repeatable alone"),
    ],
)
def test_the_value_says_how_far_company_goes(server, expected):
    (trial,) = trials_of("concurrency_invariance", server())
    (observed,) = trial.observed
    assert observed.value == expected


def test_requests_that_were_not_answered_leave_the_property_unknown():
    params = concurrency_invariance.ConcurrencyInvarianceParams()
    (observed,) = concurrency_invariance.PROBE.judge(timed.transcript(), params)
    assert isinstance(observed, Observed)
    assert observed.value == "unknown"


# --------------------------------------------------------------------------- overload


CLEAN, WHOLE, SAYS, RECOVERS = (
    "overload-is-queued-or-refused",
    "overload-cuts-nothing-short",
    "refusal-says-too-many-in-json",
    "serves-as-before-after-overload",
)
ASKED = json.dumps({"max_tokens": 24}).encode()


def burst(*last: Exchange, after: float = 1.0) -> dict[str, Outcome]:
    exchanges = [made("before-1", 24, 0, 1.0, request_body=ASKED), made("before-2", 24, 1, 1.0)]
    exchanges += [made(f"burst-1-{place}", 24, 5, 2.0, request_body=ASKED) for place in range(3)]
    exchanges += [*last, made("after-1", 24, 50, after)]
    params = concurrency_overload.ConcurrencyOverloadParams()
    judged = concurrency_overload.PROBE.judge(timed.transcript(*exchanges), params)
    return {check: outcome for check, outcome in timed.outcomes(judged).items() if outcome is not H}


def turned(status: int, body: bytes, kind: str = "application/json") -> Exchange:
    return timed.exchange("burst-1-9", status=status, body=body, response_headers=(("content-type", kind),), sent=5.0)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        pytest.param(turned(429, b'{"error": {"message": "too many"}}'), {}, id="429 in JSON"),
        pytest.param(turned(503, b'{"message": "queue is full"}'), {}, id="503 in flat JSON"),
        pytest.param(turned(503, b"<html>", "text/html"), {SAYS: V}, id="503 in HTML"),
        pytest.param(turned(429, b""), {SAYS: V}, id="429 without a word"),
        pytest.param(turned(500, b'{"error": {"message": "queue is full"}}'), {CLEAN: V}, id="500"),
        pytest.param(turned(400, b'{"error": {"message": "too many"}}'), {CLEAN: V}, id="400 blames the client"),
        pytest.param(
            timed.exchange("burst-1-9", status=None, ending=Ending.UNREACHABLE, detail="refused", sent=5.0),
            {CLEAN: V},
            id="no connection",
        ),
        pytest.param(
            timed.exchange("burst-1-9", status=None, ending=Ending.DEADLINE, sent=5.0), {CLEAN: V}, id="no reply"
        ),
        pytest.param(made("burst-1-9", 7, 5, 2.0, request_body=ASKED), {WHOLE: V}, id="seven of twenty-four tokens"),
    ],
)
def test_a_crowd_is_answered_or_refused_and_nothing_else(last, expected):
    assert burst(last) == expected


def test_a_server_that_stays_slow_has_not_recovered():
    assert burst(after=3.9) == {}
    assert burst(after=4.1) == {RECOVERS: V}


def test_being_turned_away_is_what_is_asked_about_and_no_fault():
    trials = trials_of("concurrency_overload", TurnsAway())
    assert [trial.status for trial in trials] == [Status.SUPPORTED]


# --------------------------------------------------------------------------- a storm of hang-ups


LEAVES, NEXT = "storm-leaves-nothing-running", "next-request-after-a-storm-is-served-at-once"


def count(step: str, running: int, at: float) -> Exchange:
    text = f'vllm:num_requests_running{{engine="0"}} {running}\n'
    url = "http://127.0.0.1:1/metrics"
    return timed.exchange(step, method="GET", url=url, body=text.encode(), sent=at, ended_at=0.01)


def storm(seen: int, after: list[tuple[float, int]], base: int = 1, took: float = 1.0) -> dict[str, Outcome]:
    left = [
        timed.exchange(f"late-left-{place}", status=None, ending=Ending.ABORTED, sent=10.0, ended_at=2.0)
        for place in range(7)
    ]
    reads = [count(f"late-after-{place}", running, 12.0 + at) for place, (at, running) in enumerate(after)]
    exchanges = [made("before-1", 32, 0, 1.0), made("before-2", 32, 1, 1.0), count("late-base", base, 9.0)]
    exchanges += [count("late-seen-1", seen, 11.0), *left, *reads, made("late-next", 32, 30, took)]
    return timed.outcomes(cancel_storm.PROBE.judge(timed.transcript(*exchanges), cancel_storm.CancelStormParams()))


@pytest.mark.parametrize(
    ("seen", "after", "expected"),
    [
        pytest.param(8, [(0.1, 8), (1.0, 1)], H, id="back after a second"),
        pytest.param(8, [(0.1, 8), (10.0, 1)], H, id="back after ten"),
        pytest.param(8, [(0.1, 8), (10.0, 2)], V, id="one is left"),
        pytest.param(1, [(0.1, 1)], U, id="never seen running"),
    ],
)
def test_a_storm_is_judged_by_the_count_before_it(seen, after, expected):
    assert storm(seen, after)[LEAVES] is expected


def test_the_next_request_is_held_against_those_before():
    assert storm(8, [(0.1, 1)], took=3.9)[NEXT] is H
    assert storm(8, [(0.1, 1)], took=4.1)[NEXT] is V


def test_a_gateway_that_keeps_its_connection_shows_in_the_count_of_the_engine():
    (trial,) = trials_of("cancel_storm", GatewayKeepsItsConnection(decode_seconds=0.1))
    wrong = [one for one in trial.findings if one.outcome is V]
    assert wrong[0].check == LEAVES
    assert wrong[0].why.startswith("7 clients left before a first token: ")
