"""The two property probes name what they saw; a property is a value and never a shortfall."""

from __future__ import annotations

import pytest

from servecheck.model import How, Observed, Status
from servecheck.probes import errors_unknown_field, sampling_greedy
from servecheck.reference.models import MODELS
from servecheck.reference.mutants.errors_unknown_field import FailsOnUnknown, Strict
from servecheck.reference.mutants.health_ready import HealthyAndFailing
from servecheck.reference.mutants.sampling_greedy import (
    BatchFlipsClearChoices,
    BatchFlipsTies,
    NoLogprobs,
    SamplesAnyway,
)
from servecheck.reference.server import ReferenceServer
from tests.timed import sent_json, transcript, whole
from tests.trying import trials_of


def _observed(probe: str, server: ReferenceServer) -> Observed:
    (trial,) = trials_of(probe, server)
    assert trial.status == Status.SUPPORTED
    (observed,) = trial.observed
    return observed


@pytest.mark.parametrize("language", MODELS)
@pytest.mark.parametrize(
    ("value", "server"), [("accepted", ReferenceServer), ("refused", Strict), ("fails", FailsOnUnknown)]
)
def test_an_unknown_field_is_accepted_refused_or_fails(
    value: str, server: type[ReferenceServer], language: str
) -> None:
    assert _observed("errors_unknown_field", server(language=language)).value == value


def test_a_refusal_of_everything_is_no_refusal_of_the_field() -> None:
    error = {"error": {"message": "no such model"}}
    both = [sent_json(step, error, status=404) for step in ("control", "unknown")]
    params = errors_unknown_field.ErrorsUnknownFieldParams()
    for exchanges in (both, []):
        (observed,) = errors_unknown_field.PROBE.judge(transcript(*exchanges), params)
        assert isinstance(observed, Observed)
        assert (observed.value, observed.how) == ("unknown", How.UNKNOWN)


@pytest.mark.parametrize("language", MODELS)
@pytest.mark.parametrize(
    ("value", "together", "server"),
    [
        ("repeatable", 6, ReferenceServer),
        ("near-ties only", 0, BatchFlipsTies),
        ("not repeatable in a batch", 0, BatchFlipsClearChoices),
        ("not repeatable in a batch", 0, NoLogprobs),
    ],
)
def test_greedy_answers_are_counted_alone_and_at_once(
    value: str, together: int, server: type[ReferenceServer], language: str
) -> None:
    observed = _observed("sampling_greedy", server(language=language))
    assert (observed.value, observed.measured["together_equal"]) == (value, together)
    assert observed.measured["alone_equal"] == 5


def test_a_server_that_samples_at_temperature_zero_repeats_nothing() -> None:
    observed = _observed("sampling_greedy", SamplesAnyway(language="babbling"))
    assert observed.value == "not repeatable alone"
    assert "of 5 alone equal" in observed.why


def test_too_few_answers_are_no_value() -> None:
    few = [whole(f"alone-{number}", "the same") for number in range(1, 5)]
    (observed,) = sampling_greedy.PROBE.judge(transcript(*few), sampling_greedy.SamplingGreedyParams())
    assert isinstance(observed, Observed)
    assert (observed.value, observed.how) == ("unknown", How.UNKNOWN)


def test_on_a_sick_server_a_property_has_no_value() -> None:
    assert {trial.status for trial in trials_of("sampling_greedy", HealthyAndFailing())} == {Status.ERROR}
