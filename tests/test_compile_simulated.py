"""Bucketed compilers in memory, with jitter, queues and replicas: every compilation is found and none invented."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from servecheck import features, scenario
from servecheck.model import Finding, Outcome, Status, Trial
from servecheck.probes import discover
from servecheck.probes.compile_recompilation import CompileRecompilationParams
from servecheck.reference.engine import Job
from servecheck.reference.killmatrix import trials_on
from servecheck.reference.mutants.compile_recompilation import CompilesLogprobs, Compiling
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
    canary = any(shape in (16, 22, 32) for _, shape, _ in server.compiled)
    assert counted(trial) == len(server.compiled) - canary, finding(trial, _QUICK).why


def test_a_second_trial_on_the_same_server_says_that_cold_shapes_are_not_observable():
    server = Compiling()
    assert finding(climbed(server), _QUICK).outcome is Outcome.VIOLATED
    trial = climbed(server)
    assert trial.status is Status.INCONCLUSIVE
    again = finding(trial, _QUICK)
    assert again.outcome is Outcome.UNDETERMINED
    assert again.why.startswith("cold shapes not observable: the server had computed ")


class NoCounters(Compiling):
    """Shows no metrics, as behind a gateway."""

    def metrics_text(self) -> str:
        return ""


def test_without_counters_a_server_without_stalls_is_not_called_new():
    quiet = finding(climbed(NoCounters(planted=frozenset())), _QUICK)
    assert quiet.outcome is Outcome.UNDETERMINED
    assert "no counters tell whether the server is new" in quiet.why


def test_without_counters_stalls_are_found_all_the_same_and_that_is_said():
    seen = finding(climbed(NoCounters(planted=frozenset({128, 1024}))), _QUICK)
    assert seen.outcome is Outcome.VIOLATED
    assert seen.measured["stalled_shapes"] == 1, "1024 is beyond this ladder"
    assert seen.why.endswith("no counters were there to exclude other users")


def test_only_shapes_longer_than_all_prompts_so_far_are_certainly_new():
    """A hundred and some tokens computed before leave the ladder's longest ones new, and no feature."""
    server = Compiling(planted=frozenset())
    server.metrics.prompt_tokens = 300
    seen = finding(climbed(server, longest=3000), _QUICK)
    assert seen.outcome is Outcome.HELD
    assert "2 of them were certainly new" in seen.why


def test_a_bound_of_the_servers_own_histogram_shows_that_long_prompts_are_new():
    class Histogram(Compiling):
        def metrics_text(self) -> str:
            counts = {"50.0": 1000, "100.0": 1400, "200.0": 1400, "+Inf": 1400}
            name = "vllm:request_prompt_tokens"
            lines = [f"# TYPE {name} histogram", *(f'{name}_bucket{{le="{le}"}} {n}' for le, n in counts.items())]
            return super().metrics_text() + "\n".join([*lines, f"{name}_count 1400", f"{name}_sum 9.0"]) + "\n"

    server = Histogram(planted=frozenset())
    server.metrics.prompt_tokens = 100_000
    seen = finding(climbed(server, longest=800), _QUICK)
    assert seen.outcome is Outcome.HELD
    assert "2 of them were certainly new" in seen.why, "384 and 768 tokens; 192 is not twice a hundred"


def test_the_share_of_traffic_is_that_of_the_lengths_that_stalled():
    server = Compiling(planted=frozenset({128}))  # prompts of 65 to 128 tokens
    traffic = [[20, 40], [64, 10], [65, 5], [128, 20], [129, 15], [5000, 10]]
    figures = finding(climbed(server, traffic=traffic), _QUICK).measured
    assert (figures["traffic_requests"], figures["traffic_of_stalled_lengths"]) == (100, 25)
    assert (figures["traffic_share"], figures["traffic_share_low"], figures["traffic_share_high"]) == (
        0.25,
        0.1755,
        0.343,
    )
    assert figures["traffic_longer_than_tried"] == 10


def test_the_ladder_ends_before_a_prompt_that_takes_longer_than_patience():
    slow = Compiling(planted=frozenset(), prefill_seconds=0.02)
    seen = finding(climbed(slow, longest=3000, patience_s=9), _QUICK)
    assert "cold_length_192_s" in seen.measured
    assert "cold_length_384_s" in seen.measured or "cold_length_768_s" not in seen.measured
    assert "cold_length_1536_s" not in seen.measured


def test_the_first_logprobs_are_found_among_features():
    trial = climbed(CompilesLogprobs(compile_seconds=20.0))
    assert "first use of logprobs 2" in finding(trial, _QUICK).why
    assert finding(trial, _STAYS).outcome is Outcome.HELD


def test_no_two_prompts_of_the_ladder_share_their_beginning():
    class Listens(Compiling):
        beginnings: ClassVar[list[tuple[int, ...]]] = []

        def prefill_delay(self, job: Job, uncached: int) -> float:
            self.beginnings.append(job.prompts[0].ids[:16])
            return super().prefill_delay(job, uncached)

    climbed(Listens(planted=frozenset()))
    mine = Listens.beginnings[1:]  # the canary
    assert len(mine) > 20
    assert len(set(mine)) >= len(mine) - 1
