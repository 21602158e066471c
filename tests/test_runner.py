"""What is sent, in which order, how often and when to stop; every reply here comes from a server in memory."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import weakref
from typing import Any

import pytest

from servecheck import runner
from servecheck.budget import Budget
from servecheck.errors import UsageError
from servecheck.model import Cell, Exchange, Finding, Outcome, Risk, Status, Transcript
from servecheck.probe import Params, Session
from servecheck.reference.asgi import Cut, Reply, Request, json_reply
from servecheck.reference.server import ReferenceServer
from servecheck.runner import _host
from servecheck.store import RunReader
from tests.lab import (
    Lab,
    Odd,
    answers,
    ask_once,
    cell_of,
    endpoint,
    finding,
    intervals,
    make_probe,
    make_scenario,
    message,
)


def sent(lab: Lab, name: str | None = None) -> list[Exchange]:
    """Return every exchange of a run, or those with one endpoint."""
    reader = RunReader(lab.folder)
    return [reader.exchange(line) for line in reader.lines("exchange") if name in (None, line["endpoint"])]


def cell(lab: Lab, feature: str = "chat.basic", name: str = "e") -> Cell:
    return cell_of(lab.report(), feature, name)


OWN_REQUESTS = 9
"""What the runner asks a reference server of its own accord: what it is, and the first canary."""

# --------------------------------------------------------------------------- order


def test_health_is_asked_first_of_all_then_what_the_server_is_then_a_canary(tmp_path):
    server = Odd()
    lab = Lab(tmp_path / "run", server)
    lab.run()
    methods = [request.method for request in server.seen]
    assert server.asked[:2] == ["/health", "/v1/models"]
    assert methods == ["GET"] * (len(methods) - 2) + ["POST", "POST"]
    assert [exchange.step for exchange in sent(lab)][-2:] == ["canary", "odd"]
    assert [int(exchange.id[1:]) for exchange in sent(lab)] == list(range(1, len(methods) + 1))


def test_scenarios_run_in_the_order_of_the_plan_and_endpoints_of_one_host_take_turns(tmp_path):
    scenarios = [make_scenario("chat.stop"), make_scenario("chat.basic")]
    lab = Lab(tmp_path / "run", {"b": Odd(), "a": Odd()}, scenarios, trials=2, reference="a")
    lab.run()
    assert [trial.case.id for trial in lab.trials] == [
        f"{scenario}@{name}#{number}"
        for scenario, name, number in itertools.product(("chat-stop", "chat-basic"), ("a", "b"), (1, 2))
    ]


def overlaps(lab: Lab) -> bool:
    left, right = (intervals(sent(lab, name)) for name in ("a", "b"))
    return any(a < d and c < b for (a, b), (c, d) in itertools.product(left, right))


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ({"a": "127.0.0.1:1", "b": "127.0.0.1:2"}, False),
        ({"a": "127.0.0.1:1", "b": "localhost:2"}, False),
        ({"a": "[::1]:1", "b": "127.9.9.9:2"}, False),
        ({"a": "GPU:1", "b": "gpu:2"}, False),
        ({"a": "gpu:1", "b": "tpu:1"}, True),
    ],
)
def test_endpoints_on_one_host_never_overlap_in_time(tmp_path, hosts, expected):
    servers = {name: Odd(decode_seconds=0.1) for name in ("a", "b")}
    lab = Lab(
        tmp_path / "run", servers, [make_scenario("chat.basic"), make_scenario("chat.stop")], hosts=hosts, trials=2
    )
    lab.run()
    assert overlaps(lab) is expected


def test_words_that_nobody_has_sent_differ_between_runs_of_one_seed_and_the_others_do_not(tmp_path):
    async def say(session: Session, _: Params, __: Transcript | None) -> None:
        await session.chat("new", message(session.unseen()))
        await session.chat("same", message(session.nonce()))

    said: dict[str, list[bytes]] = {"new": [], "same": []}
    for run in ("one", "two"):
        lab = Lab(tmp_path / run, Odd(), probes=[make_probe(drive=say)])
        lab.run()
        for step, bodies in said.items():
            bodies += [exchange.request_body for exchange in sent(lab) if exchange.step == step]
    assert len(said["new"]) == len(set(said["new"])) == 2
    assert len(said["same"]) == 2
    assert len(set(said["same"])) == 1


def test_hosts_are_told_apart_by_name():
    urls = ["localhost:1", "127.0.0.5:1", "[::1]:9", "gpu", "gpu:1", "tpu"]
    assert [_host(endpoint(host=url)) for url in urls] == ["127.0.0.1"] * 3 + ["gpu", "gpu", "tpu"]


def test_at_most_as_many_requests_are_in_flight_as_the_run_allows(tmp_path):
    async def many(session: Session, _: Params, __: Transcript | None) -> None:
        await session.concurrently([session.chat(f"c{n}", message("x")) for n in range(9)])

    lab = Lab(tmp_path / "run", Odd(decode_seconds=0.1), probes=[make_probe(drive=many)], concurrency=3)
    lab.run()
    times = intervals(
        [exchange for exchange in sent(lab) if exchange.step.startswith("c") and exchange.step != "canary"]
    )
    assert len(times) == 9
    moments = [at for at, _ in times]
    assert max(sum(begin <= at < end for begin, end in times) for at in moments) == 3


def test_a_probe_about_a_number_of_requests_gets_so_many_in_flight_and_the_next_step_as_few_as_before(tmp_path):
    async def many(session: Session, _: Params, __: Transcript | None) -> None:
        await session.concurrently([session.chat(f"wide{n}", message("x")) for n in range(7)], at_once=5)
        await session.concurrently([session.chat(f"usual{n}", message("x")) for n in range(7)])

    lab = Lab(tmp_path / "run", Odd(decode_seconds=0.1), probes=[make_probe(drive=many)], concurrency=3)
    lab.run()
    for prefix, expected in (("wide", 5), ("usual", 3)):
        times = intervals([exchange for exchange in sent(lab) if exchange.step.startswith(prefix)])
        assert max(sum(begin <= at < end for begin, end in times) for at, _ in times) == expected


def test_a_burst_is_neither_bounded_nor_sent_again(tmp_path):
    async def crowd(session: Session, _: Params, __: Transcript | None) -> None:
        await session.burst({f"c{n}": message("x") for n in range(9)}, "/chat/completions")

    class Busy(Odd):
        async def reply_chat(self, request: Request) -> Reply:
            await asyncio.sleep(0.1)
            if b"canary" in request.body or b'"x"' not in request.body:
                return await super().reply_chat(request)
            return json_reply({"error": {"message": "too many"}}, 429)

    probe = make_probe(drive=crowd)
    lab = Lab(tmp_path / "run", Busy(), probes=[probe], concurrency=3)
    lab.run()
    mine = [exchange for exchange in sent(lab) if exchange.step.startswith("c") and exchange.step != "canary"]
    times = intervals(mine)
    assert [exchange.attempt for exchange in mine] == [1] * 9
    assert max(sum(begin <= at < end for begin, end in times) for at, _ in times) == 9


# --------------------------------------------------------------------------- trials


async def _odd_one(server: Odd, _: Request) -> Reply | None:
    """Refuse the second odd request only."""
    return json_reply({"error": {"message": "no"}}, 400) if server.odd == 2 else None


@pytest.mark.parametrize(
    ("server", "settings", "fields", "statuses"),
    [
        (Odd(), {}, {}, "s"),
        (Odd(), {}, {"stochastic": True}, "sss"),
        (Odd(answers(400)), {}, {}, "uuu"),
        (Odd(answers(400)), {}, {"first_use": True}, "u"),
        (Odd(answers(400)), {"trials": 2}, {"first_use": True}, "uu"),
        (Odd(answers(400)), {}, {"steady": True}, "u"),
        (Odd(answers(400)), {"trials": 2}, {"steady": True}, "uu"),
        (Odd(answers(500)), {}, {}, "bbb"),
        (Odd(answers(400)), {"trials": 1}, {}, "u"),
        (Odd(answers(400)), {"trials": 2}, {}, "uu"),
        (Odd(_odd_one), {}, {}, "s"),
        (Odd(_odd_one), {"trials": 4}, {}, "suss"),
        (Odd(_odd_one), {}, {"stochastic": True}, "sus"),
        (Odd(answers(429)), {"trials": 5}, {}, "e"),
    ],
)
def test_one_trial_and_three_where_one_did_not_hold_unless_told_how_many(tmp_path, server, settings, fields, statuses):
    lab = Lab(tmp_path / "run", server, probes=[make_probe(**fields)], **settings)
    lab.run()
    assert "".join(trial.status.value[0] for trial in lab.trials) == statuses


def test_a_scenario_may_ask_for_trials_and_the_caller_wins(tmp_path):
    for caller, expected in ((None, 2), (1, 1)):
        lab = Lab(tmp_path / str(caller), Odd(), [make_scenario(trials=2)], trials=caller)
        lab.run()
        assert len(lab.trials) == expected


def test_flaky_shows_its_tally(tmp_path):
    lab = Lab(tmp_path / "run", Odd(_odd_one), trials=3)
    lab.run()
    assert (cell(lab).status, cell(lab).tally) == (Status.FLAKY, "2/3")


# --------------------------------------------------------------------------- not run


def test_what_needs_a_row_that_does_not_hold_is_skipped(tmp_path):
    scenarios = [
        make_scenario("chat.basic"),
        make_scenario("chat.stop", "plain", needs=["chat.basic"]),
        make_scenario("chat.n", "plain", needs=["chat.stop", "chat.context_limit"]),
    ]

    async def plain(session: Session, _: Params, __: Transcript | None) -> None:
        await session.chat("plain", message("x"))

    lab = Lab(tmp_path / "run", Odd(answers(400)), scenarios, [make_probe(), make_probe("plain", plain)])
    lab.run()
    skipped = cell(lab, "chat.stop")
    assert (skipped.status, skipped.skip_code) == (Status.SKIPPED, "needs:chat.basic")
    assert skipped.reason == "Chat is unsupported here"
    assert cell(lab, "chat.n").skip_code == "needs:chat.stop"
    assert not [exchange for exchange in sent(lab) if exchange.step == "plain"]


def test_a_chat_is_never_sent_to_an_embedding_server(tmp_path):
    class Embeds(Odd):
        async def reply(self, request: Request) -> Reply:
            await super().reply(request)
            if request.path == "/server_info":
                return json_reply({"version": "0.5", "internal_states": [{}]})
            if request.path == "/model_info":
                return json_reply({"is_generation": False})
            if request.path == "/v1/embeddings":
                return json_reply({"data": [{"embedding": [0.5]}]})
            if request.path in ("/health", "/v1/models"):
                return json_reply({"data": [{"id": "m"}]})
            raise Cut  # as it would die of anything else

    features = ("chat.basic", "structured.json_schema", "tools.required", "completions.basic", "streaming.frames")
    server = Embeds()
    lab = Lab(tmp_path / "run", server, [make_scenario(feature) for feature in features])
    run = lab.run()
    assert {cell_of(run, feature, "e").skip_code for feature in features} == {"not-applicable"}
    assert [request.path for request in server.seen if request.method == "POST"] == ["/v1/embeddings"]
    assert run.subjects[0].endpoint.kind == "embedding"


@pytest.mark.parametrize(
    ("kind", "path", "group_runs"),
    [("chat", "/v1/chat/completions", True), ("completion", "/v1/completions", False)],
)
def test_a_declared_kind_is_believed(tmp_path, kind, path, group_runs):
    server = Odd()
    lab = Lab(tmp_path / "run", server, fields={"kind": kind})
    lab.run()
    assert next(request.path for request in server.seen if request.method == "POST") == path
    assert (cell(lab).status is Status.SUPPORTED) is group_runs


# --------------------------------------------------------------------------- budget


def test_a_budget_of_requests_is_kept_and_the_rest_is_skipped(tmp_path):
    scenarios = [make_scenario(feature) for feature in ("chat.basic", "chat.stop", "chat.n", "chat.max_tokens")]
    lab = Lab(tmp_path / "run", {"a": Odd(), "b": Odd()}, scenarios)
    lab.run(budget=Budget(requests=OWN_REQUESTS + 2))
    for name in ("a", "b"):
        assert len(sent(lab, name)) == OWN_REQUESTS + 2
        codes = [cell(lab, scenario.feature, name).skip_code for scenario in scenarios]
        assert codes == [None, None, "budget", "budget"]
    assert f"the budget of {OWN_REQUESTS + 2} requests is spent" in cell(lab, "chat.n", "a").reason


def test_a_budget_of_tokens_counts_what_the_server_reports(tmp_path):
    scenarios = [make_scenario(feature) for feature in ("chat.basic", "chat.stop")]
    first = Lab(tmp_path / "first", Odd(), scenarios[:1])
    first.run()
    (footer,) = RunReader(first.folder).lines("footer")
    spent: Any = footer["spent"]
    assert spent["e"]["output_tokens"] > 8
    lab = Lab(tmp_path / "run", Odd(), scenarios)
    lab.run(budget=Budget(output_tokens=spent["e"]["output_tokens"]))
    assert [cell(lab, scenario.feature).skip_code for scenario in scenarios] == [None, "budget"]


def test_requests_sent_at_once_stop_at_the_budget_and_none_goes_on_behind_its_case(tmp_path):
    async def many(session: Session, _: Params, __: Transcript | None) -> None:
        await session.concurrently([session.chat(f"c{n}", message("x")) for n in range(8)])

    lab = Lab(tmp_path / "run", Odd(decode_seconds=0.5), probes=[make_probe(drive=many)], concurrency=4)
    lab.run(budget=Budget(requests=10))
    assert cell(lab).skip_code == "budget"
    kinds = [line["type"] for line in RunReader(lab.folder).lines() if line["type"] in ("exchange", "case")]
    assert kinds == ["exchange"] * 10 + ["case"]


@pytest.mark.parametrize(
    "text", ["requests", "requests=", "requests=-1", "requests=1.5", "reqests=1", "tokens=²", "tokens=" + "9" * 5000]
)
def test_a_budget_that_cannot_be_read_is_the_callers_error(text):
    with pytest.raises(UsageError, match="--budget"):
        Budget.parse(text)


def test_a_budget_is_read():
    assert Budget.parse("requests=4, tokens=5") == Budget(requests=4, tokens=5)
    assert Budget.parse("") == Budget()


# --------------------------------------------------------------------------- memory


def test_memory_does_not_hold_the_exchanges_of_ended_cases(tmp_path):
    alive: list[weakref.ref[Session]] = []
    counts: list[int] = []

    async def drive(session: Session, params: Params, left: Transcript | None) -> None:
        await ask_once(session, params, left)
        gc.collect()
        counts.append(sum(isinstance(item, Exchange) for item in gc.get_objects()))
        alive.append(weakref.ref(session))

    scenarios = [make_scenario(trials=12)]
    before = sum(isinstance(item, Exchange) for item in gc.get_objects())
    Lab(tmp_path / "run", Odd(), scenarios, [make_probe(drive=drive)]).run()
    assert len(counts) == 12
    assert max(counts) - before <= 10  # what the server was asked first, the last canary, and this case's own
    assert counts[-1] <= counts[1]


# --------------------------------------------------------------------------- dead, and waiting


class Dead(ReferenceServer):
    """Closes every connection; ``until`` is the virtual second at which it is up."""

    def __init__(self, until: float = float("inf")) -> None:
        super().__init__()
        self.until, self.count = until, 0

    async def reply(self, request: Request) -> Reply:
        self.count += 1
        if asyncio.get_running_loop().time() < self.until:
            raise Cut
        return await super().reply(request)


@pytest.mark.parametrize("hosts", [None, {"live": "gpu:1", "dead": "tpu:1"}], ids=["one host", "two hosts"])
def test_a_dead_endpoint_beside_a_live_one_costs_it_nothing(tmp_path, hosts):
    dead = Dead()
    scenarios = [make_scenario("chat.basic"), make_scenario("chat.stop")]
    lab = Lab(tmp_path / "run", {"dead": dead, "live": Odd()}, scenarios, hosts=hosts, reference="dead")
    run = lab.run()
    assert [cell_of(run, scenario.feature, "live").status for scenario in scenarios] == [Status.SUPPORTED] * 2
    assert [cell_of(run, scenario.feature, "dead").status for scenario in scenarios] == [Status.ERROR] * 2
    assert dead.count == 2  # health and models, and then no more
    assert lab.elapsed < 10
    assert run.complete


def test_a_server_that_is_not_ready_is_waited_for_as_long_as_allowed(tmp_path):
    lab = Lab(tmp_path / "run", Dead(until=100), wait_ready=200.0)
    lab.run()
    assert cell(lab).status is Status.SUPPORTED
    assert 100 < lab.elapsed < 120
    assert any("not ready yet" in progress.text for progress in lab.watched)


def test_a_server_that_never_gets_ready_is_not_waited_for_longer(tmp_path):
    lab = Lab(tmp_path / "run", Dead(), wait_ready=60.0)
    lab.run()
    assert cell(lab).status is Status.ERROR
    assert lab.elapsed <= 61


def test_a_server_that_accepts_and_never_answers_is_given_up_soon(tmp_path):
    class Silent(ReferenceServer):
        async def reply(self, request: Request) -> Reply:
            await asyncio.sleep(100_000)
            return Reply()

    lab = Lab(tmp_path / "run", Silent(), deadline=300.0)
    lab.run()
    assert cell(lab).status is Status.ERROR
    assert lab.elapsed <= 31


def test_a_denied_key_is_not_waited_for(tmp_path):
    lab = Lab(tmp_path / "run", Odd(api_key="k"), [make_scenario("chat.basic"), make_scenario("chat.stop")])
    lab.run()
    assert lab.elapsed < 1
    assert [exchange.step for exchange in sent(lab)].count("canary") == 1


def test_a_canary_is_asked_every_25_cases_and_finds_a_server_that_went_down_quietly(tmp_path):
    features = ["chat.basic", "chat.stop", "chat.n", "chat.max_tokens"]
    server = Odd()
    lab = Lab(tmp_path / "run", server, [make_scenario(feature) for feature in features], trials=20)
    lab.run()
    canaries = [place for place, exchange in enumerate(sent(lab)) if exchange.step == "canary"]
    assert len(canaries) == 1 + 80 // 25
    assert canaries[1] - canaries[0] == 26


# --------------------------------------------------------------------------- models


def test_the_only_model_is_taken_and_sent(tmp_path):
    server = Odd(model="only-one")
    lab = Lab(tmp_path / "run", server)
    assert lab.run().subjects[0].endpoint.model == "only-one"
    assert {json.loads(request.body)["model"] for request in server.seen if request.method == "POST"} == {"only-one"}


class Two(Odd):
    """Lists two models."""

    def models_list(self):
        return {"object": "list", "data": [{"id": "a"}, {"id": "b"}]}


def test_one_of_several_models_must_be_chosen_and_the_folder_is_still_valid(tmp_path):
    lab = Lab(tmp_path / "run", Two())
    with pytest.raises(UsageError, match=r"serves 2 models \(a, b\); choose one with --model e=ID"):
        lab.run()
    report = lab.report()
    assert not report.complete
    assert report.interrupted is not None
    assert "serves 2 models" in report.interrupted


def test_a_chosen_model_needs_no_list(tmp_path):
    server = Two(model="b")
    lab = Lab(tmp_path / "run", server, fields={"model": "b"})
    lab.run()
    assert cell(lab).status is Status.SUPPORTED


def test_a_model_with_half_a_surrogate_pair_stops_nothing(tmp_path):
    class Half(Odd):
        async def reply(self, request: Request) -> Reply:
            if request.path == "/v1/models":
                return Reply(body=b'{"data": [{"id": "m\\ud800"}]}')
            return await super().reply(request)

        def check_model(self, body) -> None:
            assert body["model"] == "m\ud800"

    lab = Lab(tmp_path / "run", Half())
    lab.run()
    assert cell(lab).status is Status.SUPPORTED


# --------------------------------------------------------------------------- priming


def test_a_plain_json_object_goes_before_the_first_structured_case_once_per_endpoint(tmp_path):
    features = ["chat.basic", "tools.required", "structured.json_schema", "tools.auto"]
    lab = Lab(tmp_path / "run", {"a": Odd(), "b": Odd()}, [make_scenario(feature) for feature in features])
    lab.run()
    for name in ("a", "b"):
        steps = [exchange.step for exchange in sent(lab, name)][OWN_REQUESTS - 1 :]
        assert steps == ["canary", "odd", "prime", "odd", "odd", "odd"]
    prime = next(exchange for exchange in sent(lab) if exchange.step == "prime")
    assert prime.request["response_format"] == {"type": "json_object"}  # type: ignore[index,call-overload]
    line = next(line for line in RunReader(lab.folder).lines("exchange") if line["step"] == "prime")
    assert line["case"] is None


def test_a_dangerous_case_is_not_primed_for_but_comes_after_those_that_are(tmp_path):
    probes = [make_probe(), make_probe("d", risk=Risk.DANGEROUS)]
    alone = Lab(tmp_path / "alone", Odd(), [make_scenario("structured.keywords", "d")], probes)
    alone.run()
    assert "prime" not in [exchange.step for exchange in sent(alone)]

    last = [make_scenario("structured.json_schema"), make_scenario("structured.keywords", "d")]
    beside = Lab(tmp_path / "beside", Odd(), last, probes)
    beside.run()
    assert [exchange.step for exchange in sent(beside)][OWN_REQUESTS - 1 :] == ["canary", "prime", "odd", "odd"]


def test_nothing_is_primed_where_nothing_structured_runs(tmp_path):
    lab = Lab(tmp_path / "run", Odd(), [make_scenario("chat.basic")])
    lab.run()
    assert "prime" not in [exchange.step for exchange in sent(lab)]


@pytest.mark.parametrize("status", [400, 404, 500])
def test_what_comes_back_for_priming_is_of_no_interest(tmp_path, status):
    class Refuses(Odd):
        async def reply_chat(self, request: Request) -> Reply:
            if b"json_object" in request.body:
                return json_reply({"error": {"message": "no"}}, status)
            return await super().reply_chat(request)

    lab = Lab(tmp_path / "run", Refuses(), [make_scenario("tools.required")])
    lab.run()
    assert cell(lab, "tools.required").status is Status.SUPPORTED
    assert [exchange.step for exchange in sent(lab)].count("canary") == 1 + (status == 500)


def test_a_server_that_dies_of_priming_is_not_blamed_on_the_case(tmp_path):
    class Dies(Odd):
        async def reply_chat(self, request: Request) -> Reply:
            if b"json_object" in request.body:
                self.down = True
                raise Cut
            return await super().reply_chat(request)

    lab = Lab(tmp_path / "run", Dies(), [make_scenario("tools.required")])
    lab.run()
    assert cell(lab, "tools.required").status is Status.ERROR
    assert "not well before this case" in cell(lab, "tools.required").reason


# --------------------------------------------------------------------------- against the reference


async def _with_reference(session: Session, _: Params, left: Transcript | None) -> None:
    await session.chat("odd", message("none" if left is None else f"after {len(left.exchanges)}"))


def _contrast(left: Transcript, right: Transcript, _: Params) -> list[Finding]:
    return [finding(Outcome.HELD, f"compared {left.exchanges[0].id} with {right.exchanges[0].id}")]


@pytest.mark.parametrize("hosts", [None, {"left": "slow:1", "right": "fast:1"}], ids=["one host", "two hosts"])
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "resumed"])
def test_the_reference_goes_first_where_others_are_judged_against_it(tmp_path, hosts, cut):
    probe = make_probe(drive=_with_reference, judge=lambda *_: [], contrast=_contrast, needs_reference=True)

    def lab() -> Lab:
        servers = {"right": Odd(), "left": Odd(decode_seconds=0.5)}
        return Lab(tmp_path / "run", servers, probes=[probe], hosts=hosts, reference="left", trials=1)

    running = lab()
    running.run()
    if cut:
        path = tmp_path / "run" / "run.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        place = next(number for number, line in enumerate(lines) if '"case": {"id": "chat-basic@left#1"' in line)
        path.write_text("".join(lines[: place + 1]))
        running = lab()
        running.run(resume=True)
    bodies = {
        line["endpoint"]: line["request_body"]
        for line in RunReader(running.folder).lines("exchange")
        if line["step"] == "odd"
    }
    assert "none" in str(bodies["left"])
    assert "after 1" in str(bodies["right"])
    live = [trial.findings for trial in running.trials if trial.case.endpoint == "right"]
    assert live == [cell(running, name="right").findings]
    assert live[0][0].why.startswith("compared x")
    assert cell(running, name="left").findings == ()


class Named(Odd):
    """Lists models whose names drive a terminal."""

    def models_list(self):
        return {"object": "list", "data": [{"id": "a\x1b[2J"}, {"id": "b\n::error::c"}]}


def test_names_of_models_are_shown_and_not_obeyed(tmp_path):
    with pytest.raises(UsageError, match=r"serves 2 models \(a\\x1b\[2J, b\\n::error::c\); choose one"):
        Lab(tmp_path / "run", Named()).run()


def test_a_server_cannot_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "MAX_RECEIVED", 300_000)
    flood = Odd(answers(400, "x" * 200_000))
    scenarios = [make_scenario(row) for row in ("chat.basic", "chat.n", "chat.stop")]
    lab = Lab(tmp_path / "run", flood, scenarios, trials=1)
    lab.run()
    cells = [cell(lab, scenario.feature) for scenario in scenarios]
    assert [each.skip_code for each in cells] == [None, None, "budget"]
    assert "bytes of replies have come" in cells[2].reason
