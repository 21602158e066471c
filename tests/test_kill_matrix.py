"""The instrument is tested on itself: each seeded fault is caught by the check it names, and nothing harmless is."""

from __future__ import annotations

import re
import time

import pytest

from servecheck import features, scenario
from servecheck.judging import BUILT_IN_CHECKS
from servecheck.model import Finding, Outcome, SkipCode, Status, Trial
from servecheck.probes import discover
from servecheck.reference import mutants
from servecheck.reference.killmatrix import KillMatrix, beside, kill_matrix, served, trials_on
from servecheck.reference.models import MODELS, Obedient, Reasoning
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

PROBES = discover()
SCENARIOS = scenario.load_all([scenario.builtin_dir(), scenario.examples_dir()], probes=PROBES, features=features.BY_ID)
KNOWN = mutants.discover()
_REFERENCE = Harmless(id="reference-server", server=ReferenceServer)
_FAST_SECONDS = 30.0  # 8 on an idle core; 16 were seen beside three busy neighbours
_MAY_BE_MISSING = ("reasoning", "embeddings", "rerank", "audio", "images", "lora", "speculative")
_NEEDS_A_MODEL_THAT_SOLVES_TASKS = "quantization_recovery"

FAULTS = [
    pytest.param(probe, mutant, model, id=f"{probe}-{mutant.id}-{model}")
    for probe, (found, _) in KNOWN.items()
    for mutant in found
    for model in mutant.models
]
ODDITIES = [
    pytest.param(probe, each, model, id=f"{probe}-{each.id}-{model}")
    for probe in PROBES
    for each in (_REFERENCE, *KNOWN.get(probe, ((), ()))[1])
    for model in each.models
]


def tried(probe: str, variant: Mutant | Harmless, model: str) -> tuple[Trial, ...]:
    mine = [each for each in SCENARIOS if each.probe == probe]
    return trials_on(served(variant, model), PROBES, mine, left=beside(variant, model))


def checks_of(probe: str) -> set[str]:
    """Return the ids of a probe's checks, those that its scenarios define among them."""
    mine = [each for each in SCENARIOS if each.probe == probe]
    return {check.id for each in mine for check in PROBES[probe].of(each.params).checks}


def findings(trials: tuple[Trial, ...]) -> list[Finding]:
    return [finding for trial in trials for finding in trial.findings]


@pytest.mark.parametrize(("probe", "mutant", "model"), FAULTS)
def test_fault_is_caught(probe: str, mutant: Mutant, model: str) -> None:
    """One trial is enough, and the check's id and the outcome are the ones that the mutant names."""
    trials = tried(probe, mutant, model)
    said = {(finding.check, finding.outcome) for finding in findings(trials)}

    assert set(mutant.trips) <= said
    assert any(trial.status is not Status.SUPPORTED for trial in trials)


@pytest.mark.parametrize(("probe", "harmless", "model"), ODDITIES)
def test_oddity_is_left_alone(probe: str, harmless: Harmless, model: str) -> None:
    trials = tried(probe, harmless, model)

    assert [f"{each.check}: {each.why}" for each in findings(trials) if each.outcome is not Outcome.HELD] == []
    assert trials
    if all(trial.skip_code == SkipCode.NOT_APPLICABLE for trial in trials):
        # Reasoning makes sense with one reference model only, a loss of tasks with the only one that solves any, and
        # most servers lack what the other rows ask about.
        if probe == _NEEDS_A_MODEL_THAT_SOLVES_TASKS:
            assert model != Obedient.name
            return
        assert probe.startswith(_MAY_BE_MISSING)
        assert not (probe.startswith("reasoning") and model == Reasoning.name)
        return
    assert {(trial.status, trial.fault) for trial in trials} == {(Status.SUPPORTED, None)}


@pytest.mark.parametrize("probe", sorted(PROBES))
def test_every_check_has_been_seen_to_fail(probe: str) -> None:
    found, _ = KNOWN.get(probe, ((), ()))
    seen = {check for mutant in found for check, outcome in mutant.trips if outcome is not Outcome.HELD}

    assert checks_of(probe) - seen == set()


def test_half_of_the_faults_are_known_from_the_field() -> None:
    faults = [mutant for found, _ in KNOWN.values() for mutant in found]

    assert faults
    assert sum(bool(mutant.source) for mutant in faults) * 2 >= len(faults)


@pytest.mark.parametrize("probe", sorted(KNOWN))
def test_mutants_name_checks_that_exist_and_sources_that_can_be_looked_up(probe: str) -> None:
    found, harmless = KNOWN[probe]
    checks = checks_of(probe) | {check.id for check in BUILT_IN_CHECKS}
    named = {check for mutant in found for check, _ in mutant.trips}
    sources = [*(each.source for each in found if each.source), *(each.source for each in harmless if each.source)]

    assert named - checks == set()
    assert [source for source in sources if not re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", source)] == []
    assert all(mutant.trips and set(mutant.models) <= set(MODELS) for mutant in found)


def test_every_built_in_check_has_been_seen_to_fail() -> None:
    seen = {check for found, _ in KNOWN.values() for mutant in found for check, _ in mutant.trips}

    assert {check.id for check in BUILT_IN_CHECKS} - seen == set()


@pytest.fixture(scope="module")
def fast() -> tuple[KillMatrix, float]:
    """The set that ``selftest`` runs by default, and the seconds that it took.

    They are CPU seconds: the set runs in one thread and never sleeps, so on a core of its own the clock on the wall
    says the same, and on a busy machine this test does not fail for its neighbours.
    """
    began = time.process_time()
    matrix = kill_matrix(PROBES, SCENARIOS, everything=False)
    return matrix, time.process_time() - began


def test_the_fast_set_is_clean(fast: tuple[KillMatrix, float]) -> None:
    matrix, _ = fast

    assert list(matrix.misses()) == []
    assert matrix.seeded >= sum(bool(KNOWN.get(probe, ((), ()))[0]) for probe in PROBES)
    assert {each.probe for each in matrix.seen} == set(PROBES)


def test_the_fast_set_is_fast(fast: tuple[KillMatrix, float]) -> None:
    _, seconds = fast

    assert seconds < _FAST_SECONDS
