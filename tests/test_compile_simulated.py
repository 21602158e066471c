"""Bucketed compilers in memory, with jitter, queues and replicas: every compilation is found and none invented."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from typing import Any

import pytest

from servecheck import features, scenario
from servecheck.model import Finding, Outcome, Trial
from servecheck.probes import discover
from servecheck.probes.compile_recompilation import CompileRecompilationParams
from servecheck.reference.killmatrix import trials_on
from servecheck.reference.mutants.compile_recompilation import Compiling
from servecheck.scenario import Scenario

_QUICK, _STAYS = "first-use-is-as-quick", "used-shape-stays-quick"
_SMALL: dict[str, Any] = {"longest": 400, "batches": [], "features": ["logprobs"]}


@functools.cache
def _ladder() -> Scenario:
    found = scenario.load_all([scenario.builtin_dir()], probes=discover(), features=features.BY_ID)
    return next(each for each in found if each.id == "shape-ladder")


def climbed(server: Compiling, **params: Any) -> Trial:
    """Return the judged ladder on a server."""
    chosen = replace(_ladder(), params=CompileRecompilationParams(**(_SMALL | params)))
    (trial,) = trials_on(server, discover(), [chosen])
    return trial


def finding(trial: Trial, check: str) -> Finding:
    return next(found for found in trial.findings if found.check == check)


def counted(trial: Trial) -> int:
    """Return how many compilations the probe has counted."""
    figures = finding(trial, _QUICK).measured
    return sum(int(figures[name] or 0) for name in ("stalled_shapes", "stalled_a_tenth_longer", "stalls_on_later_use"))


def made(seed: int) -> Compiling:
    """Return one of many servers: a bucket rule, jitter, and in turn replicas, a cache on disk, others' bursts."""
    draw = random.Random(seed)
    rule = ("doubling", "stepped", "exact")[seed % 3]
    kind = ("alone", "queue", "two replicas", "persistent cache", "queue")[seed % 5]
    bursts = [(draw.uniform(0, 90), draw.uniform(0.5, 2.0)) for _ in range(draw.randint(3, 15))]
    return Compiling(
        rule=rule,
        compile_seconds=draw.uniform(9, 20),
        replicas=2 if kind == "two replicas" else 1,
        cached=kind == "persistent cache",
        bursts=bursts if kind == "queue" else (),
        # Warm-up has left out a few shapes only, or all of them.
        planted=frozenset(draw.sample([64, 128, 256, 512, 1024, 384, 768], draw.randint(0, 4)))
        if seed % 2 and rule != "exact"
        else None,
        jitter=draw.uniform(0, 1.0),
        jitter_seed=seed,
    )


@pytest.mark.parametrize("seed", range(50))
def test_every_compilation_is_found_and_none_is_invented(seed):
    server = made(seed)
    trial = climbed(server)
    assert trial.fault is None
    # The canary comes before the ladder, and its shape is ready then.
    canary = sum(shape in (16, 22, 32) for _, shape, _ in server.compiled)
    assert counted(trial) == len(server.compiled) - canary, finding(trial, _QUICK).why


def test_a_second_trial_on_the_same_server_says_that_cold_shapes_are_not_observable():
    server = Compiling()
    assert finding(climbed(server), _QUICK).outcome is Outcome.VIOLATED
    again = finding(climbed(server), _QUICK)
    assert again.outcome is Outcome.UNDETERMINED
    assert again.why.startswith("cold shapes not observable: the server had computed ")
