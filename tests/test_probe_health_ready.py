"""The one row that is judged on a server that is not well: what its route says against what it can do."""

from __future__ import annotations

import pytest

from servecheck.model import Ending, Exchange, Outcome, Status, Trial
from servecheck.probes.health_ready import PROBE, HealthReadyParams
from servecheck.reference.mutants.health_ready import HealthyAndFailing, HealthyAndHung, HonestlyIll
from servecheck.reference.server import ReferenceServer
from tests.timed import exchange, outcomes, transcript, whole
from tests.trying import trials_of

_CHECK = "health-agrees-with-answers"
_HELD, _VIOLATED, _UNDETERMINED = Outcome.HELD, Outcome.VIOLATED, Outcome.UNDETERMINED


def _health(status: int | None, number: int = 1) -> Exchange:
    return exchange(f"health-{number}", method="GET", status=status, url="http://127.0.0.1:1/health")


def _models(status: int, number: int = 1) -> Exchange:
    return exchange(f"models-{number}", method="GET", status=status, url="http://127.0.0.1:1/v1/models")


def _answer(status: int | None = 200, number: int = 1) -> Exchange:
    step = f"answer-{number}"
    if status is None:
        return exchange(step, status=None, ending=Ending.DEADLINE, ended_at=60.0)
    return whole(step, "The capital is Paris.") if status == 200 else exchange(step, status=status, body=b"no")


@pytest.mark.parametrize(
    ("expected", "exchanges"),
    [
        pytest.param(_HELD, [_health(200), _answer()], id="both well"),
        pytest.param(_HELD, [_health(503), _answer(500)], id="both ill"),
        pytest.param(_UNDETERMINED, [_health(None), _answer(None)], id="neither answers"),
        pytest.param(_HELD, [_health(404), _models(200), _answer()], id="a gateway that is well"),
        pytest.param(_HELD, [_health(404), _models(502), _answer(502)], id="a gateway without its engine"),
        pytest.param(_VIOLATED, [_health(200), _answer(None), _health(200, 2), _answer(None, 2)], id="frozen"),
        pytest.param(_VIOLATED, [_health(503), _answer(), _health(503, 2), _answer(200, 2)], id="cries wolf"),
        pytest.param(_UNDETERMINED, [_health(200), _answer(500), _health(200, 2), _answer(200, 2)], id="a hiccup"),
        pytest.param(_UNDETERMINED, [_health(200), _answer(404)], id="the request is refused"),
        pytest.param(Outcome.REFUSED, [_health(404), _models(404), _answer()], id="nothing to ask"),
        pytest.param(_UNDETERMINED, [], id="nothing asked"),
    ],
)
def test_the_route_and_the_answer_are_compared(expected: Outcome, exchanges: list[Exchange]) -> None:
    assert outcomes(PROBE.judge(transcript(*exchanges), HealthReadyParams())) == {_CHECK: expected}


def _statuses(probe: str, server: ReferenceServer) -> set[Status]:
    trials: tuple[Trial, ...] = trials_of(probe, server)
    return {trial.status for trial in trials}


@pytest.mark.parametrize(
    ("health", "others", "server"),
    [
        (Status.BROKEN, Status.ERROR, HealthyAndFailing),
        (Status.BROKEN, Status.ERROR, HealthyAndHung),
        (Status.SUPPORTED, Status.ERROR, HonestlyIll),
        (Status.SUPPORTED, Status.SUPPORTED, ReferenceServer),
    ],
)
def test_on_a_sick_endpoint_this_row_alone_is_judged(
    health: Status, others: Status, server: type[ReferenceServer]
) -> None:
    assert _statuses("health_ready", server()) == {health}
    assert _statuses("streaming_utf8", server()) == {others}
