"""What a recording of a reference is made of: the rows that comparisons need, and the one endpoint that is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from servecheck import features
from servecheck.errors import UnknownName, UsageError
from servecheck.inprocess import eager
from servecheck.inprocess.connect import connector, endpoint
from servecheck.model import Endpoint
from servecheck.plan import SUITES, Plan, Settings, make
from servecheck.probe import Params, Probe
from servecheck.scenario import Scenario
from servecheck.wire.transport import Transport

__all__ = ["ROWS", "alone", "in_process", "plan"]

ROWS = ("parity.*", "quantization.recovery", "quantization.identity", "identity.engine", "identity.models")
"""The rows that a comparison reads from its reference, and those that say what it is."""


def plan(
    one: Endpoint,
    scenarios: Sequence[Scenario],
    probes: Mapping[str, Probe[Params]],
    settings: Settings,
    *,
    whole: bool,
) -> Plan:
    """Return what is recorded of an endpoint: :data:`ROWS`, and where it is ``whole`` the suite of the settings.

    A row that was not recorded can be compared with nothing later, so a server is recorded whole. Raises
    ``UnknownName`` where there is no such suite.
    """
    suite = SUITES.get(settings.suite)
    if suite is None:
        raise UnknownName("suite", settings.suite, SUITES)
    needed = {feature.id for glob in ROWS for feature in features.matching(glob)}
    chosen = [each for each in scenarios if each.feature in needed or (whole and suite.has(each))]
    return make([one], chosen, probes, settings=settings, globs=sorted({each.feature for each in chosen}))


def alone(endpoints: Sequence[Endpoint]) -> Endpoint:
    """Return the endpoint to record; raises ``UsageError`` where there is not exactly one."""
    if len(endpoints) != 1:
        names = ", ".join(each.name for each in endpoints)
        raise UsageError(f"record takes one endpoint, these are {len(endpoints)}: {names}")
    return endpoints[0]


def in_process(
    folder: Path, *, device: str = "cpu", dtype: str = "bfloat16", name: str | None = None
) -> tuple[Endpoint, Callable[[Endpoint], Transport]]:
    """Load a model of Transformers here, and return it as an endpoint with the way to it.

    Raises ``UsageError`` where it cannot be loaded, ``UnknownName`` for another dtype than :data:`eager.DTYPES`.
    """
    if dtype not in eager.DTYPES:
        raise UnknownName("dtype", dtype, eager.DTYPES)
    model = eager.load(folder, device=device, dtype=dtype, name=name)
    return endpoint(model), connector(model)
