"""The simulated TPU endpoint gets the row that it deserves for each sampling parameter, under every reference model."""

from __future__ import annotations

import functools

import pytest

from servecheck import features, scenario
from servecheck.model import Cell, Kind, Outcome, Status
from servecheck.probes import discover
from servecheck.reference.killmatrix import trials_on
from servecheck.reference.models import MODELS
from servecheck.reference.tpulike import TpuLike
from servecheck.verdict import cell

EXPECTED = {
    "sampling.temperature": Status.SUPPORTED,
    "sampling.top_p": Status.SUPPORTED,
    "sampling.top_k": Status.SUPPORTED,
    "sampling.min_p": Status.IGNORED,
    "sampling.seed": Status.UNSUPPORTED,
    "sampling.logit_bias": Status.IGNORED,
    "sampling.frequency_penalty": Status.IGNORED,
    "sampling.presence_penalty": Status.IGNORED,
    "sampling.repetition_penalty": Status.IGNORED,
    "sampling.bad_words": Status.IGNORED,
    "sampling.allowed_token_ids": Status.IGNORED,
    "sampling.stop_token_ids": Status.SUPPORTED,
    "sampling.min_tokens": Status.BROKEN,
    "sampling.ignore_eos": Status.SUPPORTED,
}
PROBES = discover()
SCENARIOS = scenario.load_all([scenario.builtin_dir()], probes=PROBES, features=features.BY_ID)


@functools.cache
def row(feature: str, model: str) -> Cell:
    mine = [each for each in SCENARIOS if each.feature == feature]
    return cell(features.get(feature), "tpu", trials_on(TpuLike(language=model), PROBES, mine))


def test_every_judged_sampling_row_has_an_expectation() -> None:
    judged = {each.id for each in features.FEATURES if each.group == "sampling" and each.kind is Kind.JUDGED}

    assert judged == set(EXPECTED)


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize(("feature", "expected"), EXPECTED.items())
def test_row(feature: str, expected: Status, model: str) -> None:
    found = row(feature, model)

    assert (found.status, found.faults) == (expected, ()), found.reason


def test_the_seed_is_refused_in_the_servers_own_words() -> None:
    assert "JAX does not support per-request seed" in row("sampling.seed", "obedient").reason


def test_min_tokens_is_broken_by_the_end_token_and_not_by_the_length() -> None:
    found = {(finding.check, finding.outcome) for finding in row("sampling.min_tokens", "obedient").findings}

    assert ("min-tokens-are-reached", Outcome.HELD) in found
    assert ("no-end-token-inside-min-tokens", Outcome.VIOLATED) in found
    assert "<|im_end|>" in row("sampling.min_tokens", "obedient").reason
