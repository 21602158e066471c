"""Whose fault it is: ours, the endpoint's, or the feature's (the design's section "Attribution", case by case)."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from servecheck import canary
from servecheck.errors import UsageError
from servecheck.judging import Canaries, is_anomaly, judge, settle_hangs
from servecheck.model import (
    Case,
    Chunk,
    Ending,
    Exchange,
    FaultKind,
    Finding,
    Outcome,
    Route,
    Status,
    Transcript,
    Trial,
)
from servecheck.reference.asgi import Cut, Reply, Request, json_reply
from servecheck.store import RunReader
from tests.lab import ODD, Lab, Odd, answers, cell_of, make_probe, make_scenario, message

CASE = Case(id="s@e#1", scenario="chat-basic", feature="chat.basic", endpoint="e", trial=1)


def seen(
    status: int | None = 200,
    body: bytes = b'{"choices":[{"index":0,"message":{"content":"Paris is the capital."}}]}',
    ending: Ending = Ending.COMPLETE,
    *,
    step: str = "a",
    ident: str = "x0001",
    attempt: int = 1,
) -> Exchange:
    return Exchange(
        id=ident,
        step=step,
        method="POST",
        url="http://h/v1/chat/completions",
        status=status,
        chunks=(Chunk(0.0, body),) if body else (),
        ending=ending,
        ended_at=30.0,
        attempt=attempt,
        detail="why",
    )


WELL = seen(step="canary", ident="x0100")
GARBAGE = seen(body=b'{"choices":[{"message":{"content":"!!!!!!!!!!!!!!!!"}}]}', step="canary", ident="x0101")
BUSY = seen(503, b"", step="canary", ident="x0102")
GONE = seen(None, b"", Ending.UNREACHABLE, step="canary", ident="x0103")
DENIED = seen(401, b"", step="canary", ident="x0104")
BOOM = seen(500, b"boom")
CUT = seen(None, b"", Ending.TRUNCATED)
UNREACHED = seen(None, b"", Ending.UNREACHABLE)
HUNG = seen(None, b"", Ending.DEADLINE)


def judged(*exchanges: Exchange, before: Exchange | None = WELL, after: tuple[Exchange, ...] = ()) -> Trial:
    canaries = Canaries(before=before, after=after)
    return judge(CASE, make_scenario(), make_probe(), Transcript(exchanges=exchanges), canaries)


@pytest.mark.parametrize(
    ("trial", "kind", "words"),
    [
        (judged(seen(), before=GONE), FaultKind.UNREACHABLE, "not well before this case: no reply: why"),
        (judged(seen(), before=GARBAGE), FaultKind.UNREACHABLE, "not well before this case: garbage"),
        (judged(seen(), before=DENIED), FaultKind.DENIED, "denied: it wants a key, and none was given (HTTP 401)"),
        (judged(seen(), before=BUSY), FaultKind.OVERLOADED, "not well before this case: HTTP 503"),
        (judged(BOOM, before=GONE, after=(GONE, GONE)), FaultKind.UNREACHABLE, "not well before this case"),
        (judged(seen(429, b"", attempt=4)), FaultKind.OVERLOADED, "overloaded: HTTP 429 at step 'a', 4 times"),
        (judged(seen(503, b"", attempt=4), after=(BUSY, BUSY)), FaultKind.OVERLOADED, "overloaded: HTTP 503"),
        (judged(seen(401, b""), after=(DENIED,)), FaultKind.DENIED, "and a plain request is denied too"),
        (judged(seen(403, b""), after=(DENIED,)), FaultKind.DENIED, "and a plain request is denied too"),
        (judged(UNREACHED, after=(GONE, GONE)), FaultKind.UNREACHABLE, "unreachable at step 'a': why"),
        (judged(UNREACHED, after=(WELL,)), FaultKind.UNREACHABLE, "unreachable at step 'a': why"),
        (
            judged(seen(), seen(None, b"", Ending.UNREACHABLE, step="b", ident="x0002"), after=(GONE, GONE)),
            FaultKind.UNREACHABLE,
            "unreachable at step 'b'",
        ),
    ],
)
def test_trouble_that_is_not_the_features_is_an_error(trial, kind, words):
    assert (trial.status, trial.findings) == (Status.ERROR, ())
    assert trial.fault is not None
    assert trial.fault.kind is kind
    assert words in trial.fault.reason
    assert trial.fault.evidence


@pytest.mark.parametrize(
    "trial",
    [
        judged(BOOM, after=(GONE, GONE)),
        judged(BOOM, after=(GARBAGE, GARBAGE)),
        judged(CUT, after=(GONE, GONE)),
        judged(HUNG, after=(HUNG, GONE)),
        judged(CUT, seen(None, b"", Ending.UNREACHABLE, step="b", ident="x0002"), after=(GONE, GONE)),
        # A gateway says 503 once the server behind it is dead: that is no overload.
        judged(BOOM, seen(503, b"", step="b", ident="x0002"), after=(BUSY, BUSY)),
    ],
    ids=["5xx", "garbage after", "cut", "hang", "cut, then gone", "500, then a gateway's 503"],
)
def test_a_server_that_is_unwell_twice_after_a_request_it_took_in_is_broken(trial):
    assert trial.status is Status.BROKEN
    assert [finding.check for finding in trial.findings] == ["server-stays-healthy"]
    assert trial.reason.startswith("server unhealthy after this request (")
    assert len(trial.findings[0].evidence) == 3


@pytest.mark.parametrize(
    ("trial", "status", "check"),
    [
        (judged(BOOM, after=(GONE, WELL)), Status.BROKEN, "is-answered"),
        (judged(BOOM, after=(WELL,)), Status.BROKEN, "is-answered"),
        (judged(BOOM), Status.BROKEN, "is-answered"),
        (judged(CUT, after=(WELL,)), Status.BROKEN, "is-answered"),
        (judged(HUNG, after=(WELL,)), Status.BROKEN, "reply-comes-within-the-deadline"),
        (judged(seen(401, b""), after=(WELL,)), Status.UNSUPPORTED, "is-answered"),
        (judged(seen(501, b"")), Status.UNSUPPORTED, "is-answered"),
        (judged(seen(400, b"")), Status.UNSUPPORTED, "is-answered"),
        (judged(seen(503, b"", attempt=1), seen(attempt=2, ident="x0002")), Status.SUPPORTED, "is-answered"),
        (judged(seen(), before=None), Status.SUPPORTED, "is-answered"),
    ],
    ids=["well again", "well", "not asked", "cut", "hang", "401", "501", "400", "waited out", "no canary yet"],
)
def test_otherwise_the_probe_decides(trial, status, check):
    assert (trial.status, trial.fault) == (status, None)
    assert {finding.check for finding in trial.findings} == {check}


@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        (seen(), False),
        (seen(400), False),
        (seen(429), False),
        (seen(501), False),
        (seen(500), True),
        (seen(503), True),
        (seen(ending=Ending.TRUNCATED), True),
        (seen(ending=Ending.DEADLINE), True),
        (UNREACHED, True),
        (seen(ending=Ending.ABORTED), False),
    ],
)
def test_what_is_a_reason_to_ask_how_the_server_is(exchange, expected):
    assert is_anomaly(exchange) is expected


# --------------------------------------------------------------------------- hangs over several trials


def hang(number: int) -> Trial:
    trial = judged(HUNG, after=(WELL,))
    return Trial(case=CASE, status=trial.status, reason=f"hang {number}", findings=trial.findings)


def fine(status: Status = Status.SUPPORTED) -> Trial:
    outcome = Outcome.HELD if status is Status.SUPPORTED else Outcome.VIOLATED
    return Trial(
        case=CASE, status=status, reason="r", findings=(Finding(check="is-answered", outcome=outcome, why="w"),)
    )


ERROR = Trial(case=CASE, status=Status.ERROR, reason="r", fault=judged(seen(), before=GONE).fault)


@pytest.mark.parametrize(
    ("trials", "statuses", "note"),
    [
        ([fine()], [Status.SUPPORTED], False),
        ([hang(1)], [Status.INCONCLUSIVE], False),
        ([hang(1), hang(2)], [Status.BROKEN, Status.BROKEN], False),
        ([hang(1), fine()], [Status.INCONCLUSIVE, Status.SUPPORTED], True),
        ([hang(1), hang(2), fine()], [Status.INCONCLUSIVE, Status.INCONCLUSIVE, Status.SUPPORTED], True),
        ([hang(1), fine(Status.BROKEN)], [Status.INCONCLUSIVE, Status.BROKEN], True),
        ([hang(1), ERROR], [Status.INCONCLUSIVE, Status.ERROR], False),
    ],
)
def test_a_hang_is_broken_only_if_a_second_try_hangs_too(trials, statuses, note):
    settled = settle_hangs(trials)
    assert [trial.status for trial in settled] == statuses
    assert (
        any(trial.notes == ("slow first use: no reply within 30 s once, then answered",) for trial in settled) is note
    )


# --------------------------------------------------------------------------- the same, carried out


def test_an_overloaded_server_is_waited_out_as_told_and_every_attempt_is_recorded(tmp_path):
    async def busy_twice(server: Odd, _: Request) -> Reply | None:
        if server.odd <= 2:
            return json_reply({"error": {"message": "busy"}}, (429, 503)[server.odd - 1], (("retry-after", "20"),))
        return None

    lab = Lab(tmp_path / "run", Odd(busy_twice))
    run = lab.run()
    cell = cell_of(run)
    assert cell.status is Status.SUPPORTED
    tries = [
        e
        for line in RunReader(lab.folder).lines("exchange")
        if (e := RunReader(lab.folder).exchange(line)).step == "odd"
    ]
    assert [(e.attempt, e.status) for e in tries] == [(1, 429), (2, 503), (3, 200)]
    assert [round(later.sent - earlier.sent) for earlier, later in itertools.pairwise(tries)] == [20, 20]


@pytest.mark.parametrize("told", [None, "²", "Thu, 01 Jan 1970 00:00:00 GMT", "99999999999", "soon"])
def test_an_overload_that_does_not_end_is_an_error_within_bounded_time(tmp_path, told):
    headers = {} if told is None else {"retry_after": told.encode().decode("latin-1")}
    lab = Lab(tmp_path / "run", Odd(answers(503, **headers)))
    lab.run()
    trial = lab.trials[0]
    assert trial.fault is not None
    assert trial.fault.kind is FaultKind.OVERLOADED
    assert "4 times" in trial.fault.reason
    assert lab.elapsed < 200
    assert len(lab.trials) == 1


def test_an_overload_said_inside_a_stream_is_one_too(tmp_path):
    async def treat(server: Odd, _: Request) -> Reply:
        event = b'data: {"error": {"message": "queue full", "code": 503}}\n\n'
        return Reply(headers=(("content-type", "text/event-stream"),), body=event)

    async def drive(session, _, __) -> None:
        await session.chat("odd", {**message(ODD), "stream": True})

    lab = Lab(tmp_path / "run", Odd(treat), probes=[make_probe(drive=drive)])
    lab.run()
    assert lab.trials[0].fault is not None
    assert lab.trials[0].fault.kind is FaultKind.OVERLOADED
    assert len([e for e in RunReader(lab.folder).lines("exchange") if e["step"] == "odd"]) == 4


def test_a_request_that_kills_the_server_is_broken_and_the_rest_is_error(tmp_path):
    async def kill(server: Odd, _: Request) -> Reply:
        server.down = True
        raise Cut

    lab = Lab(
        tmp_path / "run",
        Odd(kill),
        [
            make_scenario("chat.basic"),
            make_scenario("chat.stop"),
            make_scenario("chat.n"),
            make_scenario("chat.max_tokens"),
        ],
    )
    run = lab.run()
    statuses = [cell_of(run, feature).status for feature in ("chat.basic", "chat.stop", "chat.n", "chat.max_tokens")]
    assert statuses == [Status.BROKEN, Status.ERROR, Status.ERROR, Status.ERROR]
    assert cell_of(run, "chat.basic").findings[0].check == "server-stays-healthy"


def test_a_server_that_comes_back_is_tested_on(tmp_path):
    async def kill_once(server: Odd, _: Request) -> Reply | None:
        if server.odd > 1:
            return None
        server.down = True
        asyncio.get_running_loop().call_later(3.0, lambda: setattr(server, "down", False))
        raise Cut

    lab = Lab(tmp_path / "run", Odd(kill_once), [make_scenario("chat.basic"), make_scenario("chat.stop")])
    run = lab.run()
    assert cell_of(run, "chat.stop").status is Status.SUPPORTED


def test_a_hang_that_a_second_look_does_not_repeat_is_a_slow_first_use(tmp_path):
    async def slow_once(server: Odd, _: Request) -> Reply | None:
        if server.odd == 1:
            await asyncio.sleep(1000)
        return None

    cell = cell_of(Lab(tmp_path / "run", Odd(slow_once)).run())
    assert (cell.status, cell.notes) == (
        Status.SUPPORTED,
        ("slow first use: no reply within 30 s once, then answered",),
    )


def test_a_hang_that_repeats_is_broken_and_not_waited_for_a_third_time(tmp_path):
    async def never(_: Odd, __: Request) -> Reply:
        await asyncio.sleep(100_000)
        return Reply()

    server = Odd(never)
    cell = cell_of(Lab(tmp_path / "run", server).run())
    assert (cell.status, server.odd) == (Status.BROKEN, 2)
    assert cell.reason.startswith("hang: nothing within 30 s at step 'odd'")


def test_401_for_the_feature_alone_is_a_refusal(tmp_path):
    cell = cell_of(Lab(tmp_path / "run", Odd(answers(401, "not for you"))).run())
    assert (cell.status, cell.reason) == (Status.UNSUPPORTED, "HTTP 401: “not for you”")


def test_401_for_everything_is_an_error(tmp_path):
    cell = cell_of(Lab(tmp_path / "run", Odd(api_key="right")).run())
    assert (cell.status, cell.faults[0].kind) == (Status.ERROR, FaultKind.DENIED)


def _raise(error: Exception):
    async def drive(session, _, __) -> None:
        await session.chat("odd", message(ODD))
        raise error

    return drive


@pytest.mark.parametrize(
    "error",
    [
        ValueError("ours"),
        KeyError("ours"),
        RecursionError("ours"),
        UsageError("ours"),
        UnicodeEncodeError("utf-8", "", 0, 1, "ours"),
    ],
)
def test_an_exception_of_ours_while_talking_is_an_error_with_its_trace_and_the_run_goes_on(tmp_path, error):
    probes = [make_probe(drive=_raise(error)), make_probe("q")]
    lab = Lab(tmp_path / "run", Odd(), [make_scenario("chat.basic"), make_scenario("chat.stop", "q")], probes)
    run = lab.run()
    cell = cell_of(run)
    assert cell.status is Status.ERROR
    assert cell.faults[0].kind is FaultKind.EXCEPTION
    assert "servecheck's own fault" in cell.reason
    assert "_raise" not in cell.reason
    assert "test_attribution.py" in cell.faults[0].trace
    assert cell_of(run, "chat.stop").status is Status.SUPPORTED


@pytest.mark.parametrize("late", [False, True], ids=["at once", "after a finding"])
def test_an_exception_of_ours_while_judging_is_an_error_with_its_trace(tmp_path, late):
    def judge_badly(transcript: Transcript, _):
        if late:
            yield Finding(check="is-answered", outcome=Outcome.HELD, why="w", route=Route.CHAT)
        raise ZeroDivisionError("ours")

    lab = Lab(tmp_path / "run", Odd(), probes=[make_probe(judge=judge_badly)])
    cell = cell_of(lab.run())
    assert (cell.status, cell.findings) == (Status.ERROR, ())
    assert "ZeroDivisionError: ours" in cell.faults[0].trace


def test_a_finding_of_an_unknown_check_is_our_fault(tmp_path):
    judge_wrongly = lambda *_: [Finding(check="nobody-owns-me", outcome=Outcome.HELD, why="w")]  # noqa: E731
    cell = cell_of(Lab(tmp_path / "run", Odd(), probes=[make_probe(judge=judge_wrongly)]).run())
    assert cell.status is Status.ERROR
    assert "owns no check 'nobody-owns-me'" in cell.reason


# --------------------------------------------------------------------------- the canary itself


@pytest.mark.parametrize(
    ("path", "body", "sign"),
    [
        ("/chat/completions", b'{"choices":[{"message":{"content":"Paris"}}]}', ""),
        ("/chat/completions", b'{"choices":[{"message":{"content":null,"reasoning":"Hm, Paris"}}]}', ""),
        ("/chat/completions", b'{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}', "an empty answer"),
        ("/chat/completions", b'{"choices":[{"message":{"content":"!!!!!!!!!!!!"}}]}', "garbage: 12 of 12"),
        ("/chat/completions", b"{}", "no list of choices"),
        ("/completions", b'{"choices":[{"text":" Paris"}]}', ""),
        ("/completions", b'{"choices":[{"text":"  "}]}', "an empty answer"),
        ("/embeddings", b'{"data":[{"embedding":[0.1,0.2]}]}', ""),
        ("/embeddings", b'{"data":[{"embedding":[]}]}', "no embedding"),
        ("/embeddings", b"[]", "no embedding"),
        ("/rerank", b'{"results":[{"index":0,"relevance_score":1}]}', ""),
        ("/rerank", b'[{"index":0,"score":1}]', ""),
        ("/rerank", b'{"results":[]}', "an empty list"),
        ("/models", b'{"data":[{"id":"whisper"}]}', ""),
        ("/models", b'{"data":[]}', "an empty list"),
    ],
)
def test_a_canary_is_judged_by_its_own_kind(path, body, sign):
    exchange = Exchange(
        id="x", step="canary", method="POST", url="http://h/v1" + path, status=200, chunks=(Chunk(0, body),)
    )
    assert canary.ailment(exchange).startswith(sign)
    assert bool(canary.ailment(exchange)) is bool(sign)


@pytest.mark.parametrize("status", [401, 403])
def test_a_probe_that_judges_a_sick_server_judges_none_that_denies_us(status):
    probe = make_probe(despite_sickness=True)
    denied = seen(status, b"", step="canary", ident="x0104")
    canaries = Canaries(before=denied)
    trial = judge(CASE, make_scenario(), probe, Transcript(exchanges=(seen(status, b""),)), canaries)
    assert (trial.status, trial.fault and trial.fault.kind) == (Status.ERROR, FaultKind.DENIED)
