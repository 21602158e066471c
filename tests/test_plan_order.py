"""The order of a plan: what a first use costs, then what is safe, then what loads a server."""

from __future__ import annotations

import itertools

from servecheck import features, plan, scenario
from servecheck.model import Endpoint, Risk
from servecheck.plan import Settings
from servecheck.probes import discover

PROBES = discover()
SCENARIOS = scenario.load_all([scenario.builtin_dir()], probes=PROBES, features=features.BY_ID)
ENDPOINTS = [Endpoint(name="it", base_url="http://127.0.0.1:1/v1")]


def made(suite: str, *allow: Risk) -> plan.Plan:
    return plan.make(ENDPOINTS, SCENARIOS, PROBES, settings=Settings(suite=suite, allow=frozenset(allow)))


def test_first_uses_come_before_everything_and_risky_rows_behind_all_safe_ones():
    order = [PROBES[each.probe] for each in made("full", Risk.LOAD, Risk.DANGEROUS).scenarios]
    risks = [probe.risk for probe in order if not probe.first_use]
    assert [probe.id for probe in itertools.takewhile(lambda probe: probe.first_use, order)] == [
        "compile_recompilation"
    ]
    assert risks == sorted(risks, key=[Risk.SAFE, Risk.LOAD, Risk.DANGEROUS].index)


def test_the_ladder_is_part_of_the_suite_migration_and_an_opt_in_elsewhere():
    assert "compile.recompilation" in [each.feature for each in made("migration").scenarios]
    (skip,) = (skip for skip in made("standard").skips if skip.feature == "compile.recompilation")
    assert (skip.code, skip.reason) == ("opt-in", "needs --allow load")
