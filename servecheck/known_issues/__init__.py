"""What others have met before us: dated lists of upstream faults, and which of them a cell looks like.

A match is a hypothesis for whoever looks for the cause. It decides nothing: no status and no verdict reads it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from servecheck import yamlfile
from servecheck.errors import Problem, ScenarioError, suggested
from servecheck.model import Cell, Feature, Fingerprint, Kind, Outcome, Status
from servecheck.schema.known_issues_v1 import Confidence, KnownIssuesV1, KnownIssueV1
from servecheck.stacks import on_tpu, stack_of

__all__ = ["KnownIssue", "applied", "builtin", "builtins", "load", "matching", "problems_of"]

_MOST = 5  # a reader who is given more reads none
_NOT_LOOKED_AT = frozenset({Status.SUPPORTED, Status.SKIPPED, Status.ERROR})
_CONFIDENCE = (Confidence.REPRODUCED, Confidence.READ_IN_SOURCE, Confidence.REPORTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownIssue:
    """One upstream fault; ``engine`` is the engine or gateway that has it, ``reference`` an address."""

    engine: str
    title: str
    reference: str
    rows: tuple[str, ...]
    checks: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    said: re.Pattern[str] | None
    versions: str | None
    fixed_in: str | None
    stacks: tuple[str, ...]
    hardware: tuple[str, ...]
    architecture: re.Pattern[str] | None
    confidence: Confidence
    as_of: date
    note: str | None

    @property
    def standing(self) -> str:
        """How it is known, which versions have it, and from which day that is, in words."""
        versions = f"versions {self.versions}" if self.versions else "versions not known"
        fixed = f", fixed in {self.fixed_in}" if self.fixed_in else ""
        return f"{self.confidence}, {versions}{fixed}, as of {self.as_of.isoformat()}"


# --------------------------------------------------------------------------- files


def builtin() -> tuple[Path, ...]:
    """Return the files that come with servecheck, by name."""
    return tuple(sorted(Path(__file__).parent.glob("*.yaml")))


@functools.cache
def builtins() -> tuple[KnownIssue, ...]:
    """Return all that is known, file by file."""
    return tuple(one for path in builtin() for one in _issues(yamlfile.validate(path, KnownIssuesV1)))


def load(
    path: Path, *, features: Mapping[str, Feature], checks: Mapping[str, Collection[str]]
) -> tuple[KnownIssue, ...]:
    """Read a file of known issues; ``checks`` maps each row to the ids of the checks that can be found there.

    Raises :class:`ScenarioError` with all problems of the file at once.
    """
    value, problems = _checked(yamlfile.read(path), features, checks)
    if problems or value is None:
        raise ScenarioError(problems)
    return tuple(_issues(value))


def problems_of(
    document: yamlfile.Document,
    features: Mapping[str, Feature],
    checks: Mapping[str, Collection[str]] | None = None,
) -> list[Problem]:
    """Return what is wrong with a file of known issues; without ``checks`` their names are left alone."""
    return _checked(document, features, checks)[1]


def _checked(
    document: yamlfile.Document, features: Mapping[str, Feature], checks: Mapping[str, Collection[str]] | None
) -> tuple[KnownIssuesV1 | None, list[Problem]]:
    value, found = yamlfile.check(document, KnownIssuesV1)
    found = [*document.problems, *found]
    seen: set[tuple[str, str]] = set()
    for place, issue in enumerate(value.issues if value else ()):
        for row_place, row in enumerate(issue.rows):
            at = ("issues", place, "rows", row_place)
            if row not in features:
                words = suggested(row, features, "features")
                found.append(document.problem(at, f"unknown row {row!r}", suggestion=words))
            elif features[row].kind is Kind.PROPERTY and issue.said is None:
                found.append(document.problem(at, f"{row} is a property: say what it says with “said”"))
            if (issue.reference, row) in seen:
                found.append(document.problem(at, f"{issue.reference} is there already for {row}"))
            seen.add((issue.reference, row))
        known = {check for row in issue.rows for check in (checks or {}).get(row, ())}
        for check_place, check in enumerate(issue.checks):
            if checks is not None and check not in known:
                words = suggested(check, known, "checks")
                at = ("issues", place, "checks", check_place)
                found.append(document.problem(at, f"none of its rows has a check {check!r}", suggestion=words))
    return value, yamlfile.listed(found)


def _issues(value: KnownIssuesV1) -> Iterator[KnownIssue]:
    for one in value.issues:
        yield _issue(value.engine, one)


def _issue(engine: str, one: KnownIssueV1) -> KnownIssue:
    return KnownIssue(
        engine=engine,
        title=one.title,
        reference=one.reference,
        rows=one.rows,
        checks=one.checks,
        outcomes=one.outcomes,
        said=_pattern(one.said),
        versions=one.versions,
        fixed_in=one.fixed_in,
        stacks=one.stacks,
        hardware=one.hardware,
        architecture=_pattern(one.architecture),
        confidence=one.confidence,
        as_of=one.as_of,
        note=one.note,
    )


def _pattern(text: str | None) -> re.Pattern[str] | None:
    return re.compile(text, re.IGNORECASE) if text is not None else None


# --------------------------------------------------------------------------- what a cell looks like


def applied(
    cells: Iterable[Cell], fingerprints: Mapping[str, Fingerprint], issues: Sequence[KnownIssue] | None = None
) -> tuple[Cell, ...]:
    """Return cells with the references of the known issues that they look like, the likeliest first."""
    known = builtins() if issues is None else issues
    return tuple(
        replace(cell, known_issues=found)
        if (found := tuple(one.reference for one in matching(cell, fingerprints[cell.endpoint], known)))
        else cell
        for cell in cells
    )


def matching(cell: Cell, known: Fingerprint, issues: Iterable[KnownIssue]) -> tuple[KnownIssue, ...]:
    """Return the known issues that a cell looks like, the likeliest first, at most five.

    What is not known of the server (its engine, stack or device) rules an issue out, unless the server's own words are
    those of the issue. A version that is not known rules nothing out.
    """
    found = [one for one in issues if cell.feature in one.rows and _shows(cell, one) and _could_be(known, one)]
    return tuple(sorted(found, key=_likeliest_first)[:_MOST])


def _shows(cell: Cell, issue: KnownIssue) -> bool:
    if cell.kind is Kind.PROPERTY:
        texts = [cell.value or "", *(seen.why for seen in cell.observed)]
        return issue.said is not None and any(issue.said.search(text) for text in texts)
    if cell.status in _NOT_LOOKED_AT:
        return False
    return any(
        finding.outcome in issue.outcomes
        and (not issue.checks or finding.check in issue.checks)
        and (issue.said is None or issue.said.search(finding.why) is not None)
        for finding in cell.findings
    )


def _could_be(known: Fingerprint, issue: KnownIssue) -> bool:
    engines = {name for name in (known.value("engine"), known.value("gateway")) if name}
    own_words = issue.said is not None
    if issue.engine not in engines and not (own_words and known.value("engine") is None):
        return False
    return (
        _fits(issue.stacks, _stack(known), own_words)
        and _fits(issue.hardware, _hardware(known), own_words)
        and _is_of(issue.architecture, known)
        and _has_version(issue, known.value("engine_version") if issue.engine == known.value("engine") else None)
    )


def _fits(wanted: Collection[str], seen: frozenset[str] | None, own_words: bool) -> bool:
    if not wanted:
        return True
    return own_words if seen is None else not seen.isdisjoint(wanted)


def _stack(known: Fingerprint) -> frozenset[str] | None:
    stack = stack_of(known)
    if stack is not None:
        return frozenset({stack.id})
    return frozenset() if on_tpu(known) is False else None


def _hardware(known: Fingerprint) -> frozenset[str] | None:
    """Return the words of a device; a TPU of any generation is one."""
    device = known.value("device") or known.value("accelerator")
    tpu = on_tpu(known)
    if device is None and tpu is None:
        return None
    return frozenset(re.findall(r"[a-z0-9]+", f"{device or ''}{' tpu' if tpu else ''}".lower()))


def _is_of(pattern: re.Pattern[str] | None, known: Fingerprint) -> bool:
    name = known.value("architecture") or known.value("model")
    return pattern is None or (name is not None and pattern.search(name) is not None)


def _has_version(issue: KnownIssue, running: str | None) -> bool:
    """Tell whether a version can have an issue: ranges that are words, and versions that are not known, may."""
    version = _version(running)
    if version is None:
        return True
    fixed = _version(issue.fixed_in)
    if fixed is not None and version >= fixed:
        return False
    try:
        return SpecifierSet(issue.versions or "").contains(version, prereleases=True)
    except InvalidSpecifier:
        return True


def _version(text: str | None) -> Version | None:
    try:
        return Version(text) if text is not None else None
    except InvalidVersion:
        return None


def _likeliest_first(issue: KnownIssue) -> tuple[bool, bool, int, int]:
    """Sort by what is most like the cell, then by how it is known; of equals the newer one, which has more digits."""
    number = re.search(r"/(\d+)$", issue.reference)
    return issue.said is None, not issue.checks, _CONFIDENCE.index(issue.confidence), -int(number[1]) if number else 0
