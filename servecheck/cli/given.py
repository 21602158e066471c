"""What the flags of a command name, looked up: probes, scenarios, plans, profiles and what else lies in files."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from servecheck.errors import UnknownName

if TYPE_CHECKING:  # imported where they are used, so that --help does not wait for an HTTP client
    from servecheck.declared import Matrix
    from servecheck.expectations import Expectation
    from servecheck.model import Endpoint
    from servecheck.plan import Needs, Plan, Settings
    from servecheck.probe import Params, Probe
    from servecheck.profiles import Profile
    from servecheck.report.data import RunReport
    from servecheck.report.framing import Framing
    from servecheck.scenario import Scenario
    from servecheck.workload import Workload


def probes() -> Mapping[str, Probe[Params]]:
    """Return all probes, by id."""
    from servecheck.probes import discover

    return discover()


def scenarios(paths: list[Path] | None) -> Sequence[Scenario]:
    """Return the scenarios of files and folders, the built-in ones where none are given."""
    from servecheck import features, scenario

    if not paths:
        return _builtin_scenarios()
    return scenario.load_all(paths, probes=probes(), features=features.BY_ID)


@functools.cache
def _builtin_scenarios() -> tuple[Scenario, ...]:
    from servecheck import features, scenario

    return tuple(scenario.load_all([scenario.builtin_dir()], probes=probes(), features=features.BY_ID))


def _chosen(paths: list[Path] | None) -> bool:
    from servecheck.scenario import BUILTIN

    return bool(paths) and BUILTIN not in (paths or ())


@functools.cache
def workload(path: Path) -> Workload:
    """Return a workload, read once."""
    from servecheck.workload import load

    return load(path)


def settings(
    suite: str, trials: int | None, deadline: float, wait_ready: float, allow: list[str] | None, seed: str
) -> Settings:
    """Return the settings of a run; ``UnknownName`` where --allow names no risk."""
    from servecheck.model import Risk
    from servecheck.plan import Settings

    risks = {"load": Risk.LOAD, "dangerous": Risk.DANGEROUS}
    for name in allow or []:
        if name not in risks:
            raise UnknownName("risk", name, risks)
    return Settings(
        suite=suite,
        trials=trials,
        deadline=deadline,
        wait_ready=wait_ready,
        allow=frozenset(risks[name] for name in allow or []),
        seed=seed,
    )


def plan(
    found: Sequence[Endpoint],
    settings: Settings,
    feature: list[str] | None,
    paths: list[Path] | None,
    workload_file: Path | None,
    traffic: Path | None = None,
    *,
    recorded: bool = False,
    needs: Needs | None = None,
) -> Plan:
    """Return what would run on these endpoints, with what it costs; ``needs`` is what a profile brings."""
    from servecheck import features, plan, scenario
    from servecheck import traffic as samples

    chosen, own = scenarios(paths), workload(workload_file) if workload_file is not None else None
    if own is not None and paths:
        chosen = scenario.with_patterns(chosen, probes=probes(), features=features.BY_ID)
    if traffic is not None:
        chosen = plan.with_traffic(chosen, samples.load(traffic).prompts)
    return plan.make(
        found,
        chosen,
        probes(),
        settings=settings,
        globs=feature or [],
        given=_chosen(paths),
        workload=own,
        recorded=recorded,
        own=scenario.named_by_file(chosen, paths or ()),
        needs=needs,
    )


def served(folder: Path) -> dict[str, str | None]:
    """Return the model that each endpoint of a run folder serves."""
    from servecheck.store import RunReader

    return {endpoint.name: endpoint.model for endpoint, _ in RunReader(folder).endpoints()}


def matrices(given: Sequence[str] | None, models: Mapping[str, str | None]) -> Sequence[Matrix] | None:
    """Return the support matrices that are given, read or fetched; ``models`` is what each endpoint serves."""
    if not given:
        return None
    import asyncio

    from servecheck import declared, features
    from servecheck.wire.github import fetch_file

    return [
        declared.read(
            name, place, features=features.BY_ID, model=models[name], fetch=lambda url: asyncio.run(fetch_file(url))
        )
        for name, place in declared.requested(given, [*models])
    ]


def profile(name: str | None) -> Profile | None:
    """Return the profile of a name or a file; its rows and checks must exist."""
    if name is None:
        return None
    from servecheck import features, profiles

    known = probes()
    checks: dict[str, set[str]] = {}
    for scenario in _builtin_scenarios():
        checks.setdefault(scenario.feature, set()).update(check.id for check in known[scenario.probe].checks)
    return profiles.find(name, features=features.BY_ID, checks=checks)


def needs(found: Profile | None, *, alone: bool) -> Needs | None:
    """Return what a profile brings into a plan; ``alone`` where no suite is named beside it."""
    from servecheck.plan import Needs

    if found is None:
        return None
    rows = dict.fromkeys((*found.rows, *(limit.row for limit in found.limits)))
    return Needs(profile=found.id, rows=tuple(rows), alone=alone)


def framing(title: str | None, context: Path | None, bench: list[str] | None, redact: bool) -> Framing:
    """Return what a caller adds to a report or leaves out of it."""
    from servecheck.report.framing import framing

    return framing(title=title, context=context, benchmarks=bench or [], redact=redact)


def of_this_run(framed: Framing, names: Sequence[str]) -> None:
    """Refuse benchmarks of endpoints that are not in this run."""
    for each in framed.benchmarks:
        if each.endpoint not in names:
            raise UnknownName("endpoint", each.endpoint, names)


def framed(found: RunReport, framed: Framing) -> RunReport:
    """Return a run with what this command adds to its report."""
    of_this_run(framed, [subject.name for subject in found.subjects])
    return dataclasses.replace(found, framing=framed.over(found.framing))


def expected(path: Path | None) -> Sequence[Expectation] | None:
    """Return the known deviations of a file, None where no file is given."""
    if path is None:
        return None
    from servecheck import expectations, features

    return expectations.load(path, features.BY_ID)
