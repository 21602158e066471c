"""A right server stays green: every safe row of the standard suite, with other words and unsteady timing each time."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from servecheck import features, plan, scenario
from servecheck.model import Kind, Outcome, SkipCode
from servecheck.probes import discover
from servecheck.reference.engine import Job
from servecheck.reference.killmatrix import trials_on
from servecheck.reference.models import MODELS
from servecheck.reference.server import ReferenceServer

PROBES = discover()
SCENARIOS = [
    each
    for each in scenario.load_all([scenario.builtin_dir()], probes=PROBES, features=features.BY_ID)
    if plan.FULL_ONLY not in each.tags
    and not PROBES[each.probe].per_item
    and features.get(each.feature).kind is not Kind.COMPARISON
]
REPETITIONS = int(os.environ.get("REPETITIONS", "2"))  # 20 take minutes
NAMES = sorted(MODELS)


class Unsteady(ReferenceServer):
    """Takes up to twice as long for every token, and sometimes a tenth of a second more."""

    def __init__(self, *, dice: random.Random, **config: Any) -> None:
        super().__init__(**config)
        self.dice = dice

    def decode_delay(self, job: Job, index: int, count: int) -> float:
        """Add some."""
        late = 0.1 if self.dice.random() < 0.01 else 0.0
        return super().decode_delay(job, index, count) * (1 + self.dice.random()) + late


@pytest.mark.parametrize("number", range(REPETITIONS))
def test_a_right_server_is_never_flagged(number: int) -> None:
    server = Unsteady(dice=random.Random(number), language=NAMES[number % len(NAMES)], api_key="key")
    trials = trials_on(server, PROBES, SCENARIOS, seed=f"repetition-{number}")

    flagged = [
        f"{trial.case.scenario}: {finding.check} {finding.outcome}: {finding.why}"
        for trial in trials
        for finding in trial.findings
        if finding.outcome not in (Outcome.HELD, Outcome.UNDETERMINED)
    ]
    assert flagged == []
    faults = [
        trial.reason for trial in trials if trial.fault is not None and trial.skip_code != SkipCode.NOT_APPLICABLE
    ]
    assert faults == []
    assert len(trials) >= len(SCENARIOS)
