"""Runs one probe's built-in scenarios against a reference server in memory."""

from __future__ import annotations

import functools

from servecheck import features, scenario
from servecheck.model import Trial
from servecheck.probes import discover
from servecheck.reference.killmatrix import trials_on
from servecheck.reference.server import ReferenceServer
from servecheck.scenario import Scenario

__all__ = ["builtin", "trials_of"]


def trials_of(probe: str, server: ReferenceServer, *, trials: int = 1) -> tuple[Trial, ...]:
    """Return the judged trials."""
    return trials_on(server, discover(), [each for each in builtin() if each.probe == probe], trials=trials)


@functools.cache
def builtin() -> tuple[Scenario, ...]:
    """Return the built-in scenarios and the examples, loaded once."""
    return tuple(
        scenario.load_all([scenario.builtin_dir(), scenario.examples_dir()], probes=discover(), features=features.BY_ID)
    )
