"""What kinds of applications need: frozen, dated lists of rows, and whether a run shows an endpoint to be ready."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from servecheck import verdict, yamlfile
from servecheck.errors import Problem, ScenarioError, UnknownName, UsageError, suggested
from servecheck.features import is_own
from servecheck.model import (
    Cell,
    Comparison,
    Decision,
    Delta,
    Feature,
    Level,
    Outcome,
    SkipCode,
    Status,
    Trial,
    Verdict,
)
from servecheck.schema.profile_v1 import ProfileV1

__all__ = [
    "Limit",
    "Profile",
    "Readiness",
    "as_header",
    "builtin",
    "builtins",
    "find",
    "from_header",
    "load",
    "problems_of",
    "raised",
    "readiness",
]

_NAMED = 4  # rows that a sentence names before it counts the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound on a figure that a comparison row measures."""

    row: str
    measured: str
    at_most: float
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What one kind of application needs; ``rows`` maps each row to the reason, ``musts`` to checks that are musts."""

    id: str
    title: str
    as_of: date
    about: str
    rows: Mapping[str, str]
    musts: Mapping[str, tuple[str, ...]]
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether a run shows its endpoints to be ready for a profile; ``chosen`` where the run was made for it."""

    profile: Profile
    verdict: Verdict
    chosen: bool = False


# --------------------------------------------------------------------------- files


def builtin() -> tuple[Path, ...]:
    """Return the files of the built-in profiles, by name."""
    return tuple(sorted(Path(__file__).parent.glob("*.yaml")))


def builtins() -> Iterator[Profile]:
    """Yield the built-in profiles, by name."""
    for path in builtin():
        yield _profile(yamlfile.validate(path, ProfileV1))


def find(name: str, *, features: Mapping[str, Feature], checks: Mapping[str, Collection[str]]) -> Profile:
    """Return a built-in profile by its name, or one from a file.

    ``checks`` maps each row to the ids of the checks that can be found there. Raises :class:`UnknownName` where it is
    neither, :class:`ScenarioError` with all problems of a file at once.
    """
    known = {path.stem: path for path in builtin()}
    path = known.get(name, Path(name))
    if name not in known and not path.is_file():
        if path.suffix in {".yaml", ".yml", ".json"} or "/" in name:
            raise UsageError(f"--profile {name}: there is no such file")
        raise UnknownName("profile", name, known)
    return load(path, features=features, checks=checks)


def load(path: Path, *, features: Mapping[str, Feature], checks: Mapping[str, Collection[str]]) -> Profile:
    """Read a profile file. Raises :class:`ScenarioError` with all problems of the file at once."""
    value, problems = _checked(yamlfile.read(path), features, checks)
    if problems or value is None:
        raise ScenarioError(problems)
    return _profile(value)


def problems_of(
    document: yamlfile.Document,
    features: Mapping[str, Feature],
    checks: Mapping[str, Collection[str]] | None = None,
) -> list[Problem]:
    """Return what is wrong with a profile file; without ``checks`` their names are left alone."""
    return _checked(document, features, checks)[1]


def _checked(
    document: yamlfile.Document, features: Mapping[str, Feature], checks: Mapping[str, Collection[str]] | None
) -> tuple[ProfileV1 | None, list[Problem]]:
    value, found = yamlfile.check(document, ProfileV1)
    found = [*document.problems, *found]
    if value is None:
        return None, yamlfile.listed(found)
    if value.id != Path(document.path).stem:
        found.append(document.problem(("id",), f"the id is not the file's name, {Path(document.path).stem!r}"))
    for row, need in value.rows.items():
        found += _unknown(document, ("rows", row), row, features, on_key=True)
        for place, check in enumerate(need.must):
            if checks is not None and row in features and check not in checks.get(row, ()):
                at = ("rows", row, "must", place)
                words = suggested(check, checks.get(row, ()), "checks")
                found.append(document.problem(at, f"{row} has no check {check!r}", suggestion=words))
    for place, limit in enumerate(value.limits):
        found += _unknown(document, ("limits", place, "row"), limit.row, features)
    return value, yamlfile.listed(found)


def _unknown(
    document: yamlfile.Document,
    at: tuple[str | int, ...],
    row: str,
    features: Collection[str],
    *,
    on_key: bool = False,
) -> Iterator[Problem]:
    if row not in features and not is_own(row):
        words = suggested(row, features, "features")
        yield document.problem(at, f"unknown row {row!r}", on_key=on_key, suggestion=words)


def _profile(value: ProfileV1) -> Profile:
    return Profile(
        id=value.id,
        title=value.title,
        as_of=value.as_of,
        about=value.about,
        rows={row: need.because for row, need in value.rows.items()},
        musts={row: need.must for row, need in value.rows.items() if need.must},
        limits=tuple(
            Limit(row=each.row, measured=each.measured, at_most=each.at_most, because=each.because)
            for each in value.limits
        ),
    )


def as_header(profile: Profile | None) -> dict[str, Any] | None:
    """Return a profile as the header of a run keeps it, so that it stays what it was when its file is changed."""
    if profile is None:
        return None
    return {
        "id": profile.id,
        "title": profile.title,
        "as_of": profile.as_of.isoformat(),
        "about": profile.about,
        "rows": dict(profile.rows),
        "musts": {row: list(checks) for row, checks in profile.musts.items()},
        "limits": [
            {"row": each.row, "measured": each.measured, "at_most": each.at_most, "because": each.because}
            for each in profile.limits
        ],
    }


def from_header(value: object) -> Profile | None:
    """Return the profile that a run was made for, ``None`` where it was made for none."""
    if not isinstance(value, dict):
        return None
    return Profile(
        id=str(value["id"]),
        title=str(value["title"]),
        as_of=date.fromisoformat(str(value["as_of"])),
        about=str(value["about"]),
        rows={str(row): str(because) for row, because in value["rows"].items()},
        musts={str(row): tuple(map(str, checks)) for row, checks in value["musts"].items()},
        limits=tuple(
            Limit(
                row=str(each["row"]),
                measured=str(each["measured"]),
                at_most=float(each["at_most"]),
                because=str(each["because"]),
            )
            for each in value["limits"]
        ),
    )


# --------------------------------------------------------------------------- a run against a profile


def raised(trials: Iterable[Trial], musts: Mapping[str, Collection[str]]) -> list[Trial]:
    """Return trials with the findings of some checks of some rows raised to a must."""
    return [
        replace(trial, findings=tuple(_must(each, musts[trial.case.feature]) for each in trial.findings))
        if trial.case.feature in musts
        else trial
        for trial in trials
    ]


def _must(finding: Any, checks: Collection[str]) -> Any:  # noqa: ANN401 - a Finding, given back as it came
    return replace(finding, level=Level.MUST) if finding.check in checks else finding


def readiness(
    profile: Profile,
    cells: Sequence[Cell],
    comparisons: Sequence[Comparison],
    features: Sequence[Feature],
    *,
    reference: str | None,
    chosen: bool = False,
) -> Readiness:
    """Return whether a run shows its endpoints, or those that are not the reference, to be ready for a profile.

    As :func:`servecheck.verdict.decide` says it of the profile's rows alone, and three things more. A row that both
    endpoints lack is no news for a move, and still a need that is not met: it is a blocker here. A limit that is
    exceeded is a blocker. A row or a limit that nobody looked at is unknown, so a short run is not a yes.
    """
    mine = frozenset(profile.rows)
    cells = [cell for cell in cells if cell.feature in mine]
    base = verdict.decide(
        cells, [each for each in comparisons if each.feature in mine], features, reference=reference, profile_core=mine
    )
    names = [*dict.fromkeys(cell.endpoint for cell in cells)]
    candidates = [name for name in names if name != reference] or names
    by_row = {(cell.feature, cell.endpoint): cell for cell in cells}
    unmet, unseen, exceeded = [], [], []
    for name in candidates:
        for row in profile.rows:
            cell = by_row.get((row, name))
            if cell is None or (cell.status is Status.SKIPPED and cell.skip_code != SkipCode.NOT_APPLICABLE):
                unseen.append(f"{row}@{name}")
            elif cell.status in _UNMET:
                unmet.append(f"{row}@{name}")
        for limit in profile.limits:
            figure = _figure(limit, comparisons, name)
            if figure is None:
                unseen.append(f"{limit.row}@{name}")
            elif figure > limit.at_most:
                unmet.append(f"{limit.row}@{name}")
                exceeded.append((name, limit))
    blockers = tuple(dict.fromkeys((*base.blockers, *unmet)))
    unknown = tuple(dict.fromkeys((*base.unknown, *unseen)))
    decision = _decision(base, blockers, unknown)
    drifted = {f"{each.feature}@{each.right}" for each in comparisons if each.delta is Delta.DRIFT}
    words = {f"{cell.feature}@{cell.endpoint}": cell.word for cell in cells} | dict.fromkeys(drifted, "drifted")
    words |= {f"{cell.feature}@{cell.endpoint}": word for cell in cells if (word := _because_raised(cell, profile))}
    over = {f"{limit.row}@{name}": f"over {limit.at_most:g} ({limit.measured})" for name, limit in exceeded}
    said = _Said(words=words | over, alone=candidates[0] if len(candidates) == 1 else None)
    sentence = _sentence(decision, profile.id, said, blockers, unknown, base.caveats)
    return Readiness(
        profile=profile,
        verdict=Verdict(
            decision=decision,
            sentence=sentence,
            blockers=blockers,
            caveats=tuple(row for row in base.caveats if row not in blockers),
            unknown=unknown,
        ),
        chosen=chosen,
    )


def _because_raised(cell: Cell, profile: Profile) -> str:
    """Say which raised checks alone make a row broken: the matrix, without the profile, says something milder of it."""
    raised_checks = profile.musts.get(cell.feature, ())
    failed = {
        each.check
        for each in cell.findings
        if each.outcome not in (Outcome.HELD, Outcome.UNDETERMINED) and each.level is Level.MUST
    }
    if cell.status is not Status.BROKEN or not failed or not failed <= set(raised_checks):
        return ""
    names = " and ".join(sorted(failed))
    return f"broken (here {names} {'is a must' if len(failed) == 1 else 'are musts'})"


_UNMET = frozenset({Status.BROKEN, Status.FLAKY, Status.IGNORED, Status.UNSUPPORTED})


def _figure(limit: Limit, comparisons: Iterable[Comparison], endpoint: str) -> float | None:
    for each in comparisons:
        value = each.measured.get(limit.measured)
        if (each.feature, each.right) == (limit.row, endpoint) and isinstance(value, int | float):
            return float(value)
    return None


def _decision(base: Verdict, blockers: Collection[str], unknown: Collection[str]) -> Decision:
    if blockers:
        return Decision.NOT_READY
    if unknown or base.decision is Decision.CANNOT_TELL:
        return Decision.CANNOT_TELL
    return Decision.READY_WITH_CAVEATS if base.caveats else Decision.READY


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """How rows are named in a sentence: with what they are, and with the endpoint unless ``alone`` is in question."""

    words: Mapping[str, str]
    alone: str | None

    def of(self, rows: Sequence[str]) -> str:
        """Return the first few of the rows, and how many more there are."""
        names = [row.rpartition("@")[0] if self.alone is not None else row for row in rows[:_NAMED]]
        names = [f"{name} {self.words.get(row, '')}".strip() for name, row in zip(names, rows, strict=False)]
        more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
        return ", ".join(names) + more


def _by_row(rows: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row, _, endpoint in (each.rpartition("@") for each in rows):
        found.setdefault(row, []).append(endpoint)
    return found


def _listed(rows: Sequence[str], alone: str | None) -> str:
    """Name the first few rows, each once with its endpoints; without, where all are of the one that is in question."""
    found = _by_row(rows)
    plain = all(endpoints == [alone] for endpoints in found.values())
    names = [row if plain else f"{row} on {' and '.join(endpoints)}" for row, endpoints in found.items()]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _sentence(
    decision: Decision,
    profile: str,
    said: _Said,
    blockers: Sequence[str],
    unknown: Sequence[str],
    caveats: Sequence[str],
) -> str:
    match decision:
        case Decision.NOT_READY:
            return f"No: not ready for {profile} because of {said.of(blockers)}."
        case Decision.CANNOT_TELL:
            if not unknown:
                return f"Cannot tell: no row that {profile} needs was decided."
            number = len(_by_row(unknown))
            needs = "need" if number == 1 else "needs"
            return f"Cannot tell: {number} {needs} of {profile} not known ({_listed(unknown, said.alone)})."
        case Decision.READY_WITH_CAVEATS:
            return f"Yes, with caveats: ready for {profile}; {said.of(caveats)}."
        case Decision.READY:
            return f"Yes: ready for {profile}."
