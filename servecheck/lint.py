"""Checks files by the format they say they have, without running anything; a file is data here, never a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from servecheck import endpoints, scenario, workload
from servecheck.errors import Problem, ScenarioError
from servecheck.model import Feature
from servecheck.probe import Probe
from servecheck.yamlfile import read

__all__ = ["lint"]


def lint(paths: Iterable[Path], *, probes: Mapping[str, Probe[Any]], features: Mapping[str, Feature]) -> list[Problem]:
    """Return the problems of scenario, endpoints and workload files and of folders of them; empty if all is well.

    In folders, files of a servecheck format that is none of these are passed over. Raises :class:`UsageError` for a
    path that does not exist and a folder without YAML files.
    """
    scenarios: list[Path] = []
    problems: list[Problem] = []
    given = list(paths)
    for path in scenario.collect(given):
        try:
            document = read(path)
        except ScenarioError:
            scenarios.append(path)
            continue
        kind = scenario.other_format(document)
        if kind == "endpoints":
            problems += endpoints.problems_of(document, path.parent)
        elif kind == "workload":
            problems += workload.problems_of(document, path.parent)
        elif not kind or path in given:
            scenarios.append(path)
    return scenario.problems_of(scenarios, probes=probes, features=features) + problems
