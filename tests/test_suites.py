"""Suites keep their limits, every core row is in the default one, and they cost what they say."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from servecheck import features, suites
from servecheck import plan as plans
from servecheck.model import Endpoint, Exchange, Json, Risk, SkipCode
from servecheck.plan import FULL_ONLY, SUITES, Estimate, of_suite
from servecheck.probes import discover
from servecheck.reference import virtual
from servecheck.reference.server import ReferenceServer
from servecheck.runner import Runner
from servecheck.scenario import Scenario
from servecheck.store import CaseEnd
from servecheck.wire.memory import MemoryTransport
from servecheck.wire.transport import Transport
from tests.commands import servecheck
from tests.trying import builtin

PROBES = discover()
BUILTIN = [each for each in builtin() if "examples" not in each.path.parts]
KEY_ENV, KEY = "REFERENCE_API_KEY", "reference-key-of-the-test"
LIMITS = {"smoke": (40, 40_000, 200_000), "standard": (400, 40_000, 200_000)}
OF_CONTEXT = "near-the-limit"  # as dear as the context is long, and the reference server's is short
OTHER_ROUTES = ("embeddings", "rerank", "images", "audio", "score")


class ChatServer(ReferenceServer):
    """What people call an endpoint: it chats and completes, and neither embeds nor paints."""

    @classmethod
    def routes(cls) -> dict[tuple[str, str], str]:
        every = super().routes().items()
        return {key: name for key, name in every if not any(word in key[1] for word in OTHER_ROUTES)}


@dataclass(slots=True)
class Counted:
    """A keeper that counts what each scenario sends, and what the server counts meanwhile."""

    server: ReferenceServer
    sent: dict[str, list[int]] = field(default_factory=dict)
    last: tuple[int, int] = (0, 0)

    def write(self, kind: str, **fields: Json) -> None:
        pass

    def exchange(self, exchange: Exchange, *, endpoint: str, case: str | None) -> None:
        now = (self.server.metrics.prompt_tokens, self.server.metrics.generation_tokens)
        mine = self.sent.setdefault((case or "").partition("@")[0], [0, 0, 0])
        for place, grown in enumerate((1, now[0] - self.last[0], now[1] - self.last[1])):
            mine[place] += grown
        self.last = now

    def case(self, end: CaseEnd) -> None:
        pass


def ran(scenarios: tuple[Scenario, ...], kind: str) -> tuple[dict[str, list[int]], set[str]]:
    """Return what was sent by scenario (the run's own under an empty name), and the scenarios that were left out."""
    make = ReferenceServer if kind == "embedding" else ChatServer
    server = make(api_key=KEY, adapters=("adapter",), speculative=2)
    endpoint = Endpoint(name="it", base_url="http://127.0.0.1:1/v1", model=server.model, kind=kind)
    plan = plans.Plan(
        endpoints=(endpoint,),
        scenarios=scenarios,
        skips=(),
        settings=plans.Settings(trials=1, allow=frozenset(Risk)),
        estimate=Estimate(requests=0, prompt_tokens=0, output_tokens=0),
    )
    counted = Counted(server)

    def connect(each: Endpoint) -> Transport:
        return Transport(each, app=MemoryTransport(server), secrets={KEY_ENV: KEY}, key_env=KEY_ENV)

    runner = Runner(plan, PROBES, connect, counted)
    virtual.run(runner.run(), limit=864_000.0)
    left_out = {trial.case.scenario for trial in runner.trials if trial.skip_code == SkipCode.NOT_APPLICABLE}
    return counted.sent, left_out


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_costs_what_it_says(name: str) -> None:
    told, sent = told_and_sent(name, "chat")
    assert told.requests == pytest.approx(sent.requests, rel=0.15)
    assert told.prompt_tokens == pytest.approx(sent.prompt_tokens, rel=0.15)
    assert told.output_tokens == pytest.approx(sent.output_tokens, rel=0.15)


def test_an_endpoint_that_embeds_is_told_its_own_cost() -> None:
    told, sent = told_and_sent("standard", "embedding")
    assert told.requests == pytest.approx(sent.requests, rel=0.15)
    assert told.requests < 100


def told_and_sent(name: str, kind: str) -> tuple[Estimate, Estimate]:
    every, _ = of_suite(SUITES[name], BUILTIN, PROBES)
    sent, left_out = ran(every, kind)
    # A row that makes no sense with this model (reasoning, with one that does not) is not what the estimate is about.
    mine = tuple(each for each in every if each.id not in {*left_out, OF_CONTEXT})
    _, told = of_suite(SUITES[name], mine, PROBES, kind=kind)
    counted = [each for step, each in sent.items() if step in {"", *(one.id for one in mine)}]
    requests, prompt, output = (sum(column) for column in zip(*counted, strict=True))
    return told, Estimate(requests=requests, prompt_tokens=prompt, output_tokens=output)


@pytest.mark.parametrize("name", LIMITS)
def test_a_suite_keeps_its_limits(name: str) -> None:
    mine, cost = of_suite(SUITES[name], BUILTIN, PROBES)
    requests, generated, prompt = LIMITS[name]
    assert cost.requests <= requests
    assert cost.output_tokens <= generated
    assert cost.prompt_tokens <= prompt
    assert {PROBES[each.probe].risk for each in mine} == {Risk.SAFE}


def test_every_core_row_that_is_safe_is_in_the_default_suite() -> None:
    safe = {each.feature for each in BUILTIN if PROBES[each.probe].risk is Risk.SAFE}
    mine, _ = of_suite(SUITES["standard"], BUILTIN, PROBES)
    assert {row.id for row in features.FEATURES if row.core and row.id in safe} <= {each.feature for each in mine}


def test_an_extended_row_that_costs_next_to_nothing_is_in_the_default_suite() -> None:
    stood_for = {"sdk.responses"}  # by responses.basic
    mine, _ = of_suite(SUITES["standard"], BUILTIN, PROBES)
    cheap = {
        each.feature
        for each in of_suite(SUITES["full"], BUILTIN, PROBES)[0]
        if PROBES[each.probe].of(each.params).requests <= 3
    }
    assert cheap - {each.feature for each in mine} == stood_for


def test_the_suites_are_one_within_the_other() -> None:
    ids = {name: {each.id for each in of_suite(suite, BUILTIN, PROBES)[0]} for name, suite in SUITES.items()}
    assert ids["smoke"] < ids["standard"] < ids["migration"]
    assert ids["standard"] < ids["full"]
    load = {each.id for each in BUILTIN if PROBES[each.probe].risk is Risk.LOAD}
    assert ids["migration"] - ids["standard"] == {each for each in load if FULL_ONLY not in tags_of(each)}


def tags_of(scenario: str) -> tuple[str, ...]:
    return next(each.tags for each in BUILTIN if each.id == scenario)


def test_a_thorough_scenario_of_a_core_row_stands_beside_a_short_one() -> None:
    thorough = {each.feature for each in BUILTIN if FULL_ONLY in each.tags and features.get(each.feature).core}
    assert thorough <= {each.feature for each in BUILTIN if FULL_ONLY not in each.tags}


def test_what_full_alone_runs_is_run_where_its_row_is_named() -> None:
    named = [each for each in BUILTIN if FULL_ONLY in each.tags and each.feature == "sampling.top_k"]
    endpoint = Endpoint(name="it", base_url="http://127.0.0.1:1/v1")
    plan = plans.make([endpoint], BUILTIN, PROBES, settings=plans.Settings(), globs=["sampling.top_k"])
    assert [each.id for each in plan.scenarios] == [each.id for each in named]


def test_a_row_of_full_says_in_which_suite_it_is() -> None:
    endpoint = Endpoint(name="it", base_url="http://127.0.0.1:1/v1")
    plan = plans.make([endpoint], BUILTIN, PROBES, settings=plans.Settings())
    skip = next(each for each in plan.skips if each.feature == "sampling.top_k")
    assert (skip.code, skip.reason) == (SkipCode.NOT_SELECTED, "not part of the suite standard (it is in full)")


def test_scenarios_are_listed_with_their_suites_and_costs() -> None:
    listed = {row["id"]: row for row in json.loads(servecheck("list", "scenarios", "--json").out)}
    assert listed["plain-answer"]["suites"] == ["smoke", "demo", "standard", "full", "migration"]
    assert listed["top-k-one"]["suites"] == ["full"]
    assert listed["schema-keywords"]["suites"] == []
    assert listed["top-p-one"]["requests"] < listed["top-p-one-everywhere"]["requests"]
    text = servecheck("list", "scenarios").out
    assert "By suite:" in text
    assert "A second and a third look" in text


def test_suites_are_listed_with_their_costs() -> None:
    rows = {row["id"]: row for row in json.loads(servecheck("list", "suites", "--json").out)}
    assert list(rows) == list(SUITES)
    _, cost = of_suite(SUITES["standard"], BUILTIN, PROBES)
    assert rows["standard"]["requests"] == cost.requests
    assert suites.cost_in_words(cost) == suites.cost_in_words(rows["standard"])
