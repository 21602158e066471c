"""Checks files by the format they say they have, without running anything; a file is data here, never a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from servecheck import declared, endpoints, expectations, formats, known_issues, profiles, scenario, workload
from servecheck.errors import Problem, ScenarioError
from servecheck.model import Feature
from servecheck.probe import Probe
from servecheck.yamlfile import Document, read

__all__ = ["lint"]


def lint(paths: Iterable[Path], *, probes: Mapping[str, Probe[Any]], features: Mapping[str, Feature]) -> list[Problem]:
    """Return the problems of the files that we read, and of folders of them, file by file; empty if all is well.

    Scenarios, endpoints, workloads, expectations, profiles, support matrices, known issues and tables of formats are
    told apart by the format that they say they have; in folders, files of any other servecheck format are passed over.
    Raises :class:`UsageError` for a path that does not exist and a folder without YAML files.
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
        if other := _of_others(document):
            if path in given:
                problems.append(
                    document.problem((), f"this is {other} and no file of servecheck's, so it is not checked")
                )
            continue
        kind = scenario.other_format(document)
        if kind == "endpoints":
            problems += endpoints.problems_of(document, path.parent)
        elif kind == "expectations":
            problems += expectations.problems_of(document, features)
        elif kind == "profile":
            problems += profiles.problems_of(document, features)
        elif kind == "known-issues":
            problems += known_issues.problems_of(document, features)
        elif kind == "declared":
            problems += declared.problems_of(document, features)
        elif kind == "formats":
            problems += formats.problems_of(document)
        elif kind == "workload":
            problems += workload.problems_of(document, path.parent)
        elif not kind or path in given:
            scenarios.append(path)
    return scenario.problems_of(scenarios, probes=probes, features=features) + problems


def _of_others(document: Document) -> str:
    """Return whose file this is, where it has the keys of one that is kept beside ours; else an empty string."""
    keys = document.data.keys() if isinstance(document.data, dict) else set()
    if "schema" in keys:
        return ""
    if {"on", "jobs"} <= keys:
        return "a GitHub workflow"
    return "a Kubernetes manifest" if {"apiVersion", "kind"} <= keys else ""
