"""Scenario files to :class:`Scenario` values, with every problem of every file at once; it sends and judges nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from servecheck.errors import Problem, ScenarioError, UsageError, nearest
from servecheck.features import OWN, is_own
from servecheck.model import Check, Feature, Json, Kind, Level
from servecheck.plainwords import got, suggest
from servecheck.probe import Params, Probe
from servecheck.schema.scenario_v1 import FILE_SUFFIXES, ScenarioV1, file_parameters
from servecheck.yamlfile import Document, Place, check, listed, read, read_text

__all__ = [
    "BUILTIN",
    "RESERVED",
    "Scenario",
    "Tune",
    "builtin_dir",
    "collect",
    "examples_dir",
    "load",
    "load_all",
    "named_by_file",
    "other_format",
    "problems_of",
    "resolve_files",
    "with_patterns",
]

_WITH = ("with",)
_EXAMPLES = "examples"

BUILTIN = Path("builtin")
"""What stands for the built-in suite among paths, unless there is a file or folder of that name."""

RESERVED = ("server-stays-healthy", "reply-comes-within-the-deadline")
"""The checks that every probe has; they are defined in :mod:`servecheck.judging`, which stands below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tune:
    """Another level for one check, with the reason that the scenario gives."""

    level: Level
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """This probe, these parameters, counting for that feature; ``trials`` is ``None`` where the run decides."""

    id: str
    title: str
    feature: str
    probe: str
    why: str
    params: Params
    trials: int | None
    tags: tuple[str, ...]
    tune: Mapping[str, Tune]
    needs: tuple[str, ...]
    path: Path

    def level_of(self, check: Check) -> Level:
        """Return the level that counts here: the check's own, or the one this scenario tunes it to."""
        tuned = self.tune.get(check.id)
        return tuned.level if tuned else check.level


def builtin_dir() -> Path:
    """Return the folder of the built-in suite: inside the installed package, or ``scenarios/`` of a checkout.

    Raises :class:`UsageError` where the installation has neither.
    """
    package = Path(__file__).parent
    for folder in (package / "_scenarios", package.parent / "scenarios"):
        if folder.is_dir():
            return folder
    raise UsageError("this installation has no built-in scenarios; install servecheck again, or give --scenario PATH")


def examples_dir() -> Path:
    """Return the folder of the worked examples, which no suite runs; raises as :func:`builtin_dir` does."""
    return builtin_dir() / _EXAMPLES


def collect(paths: Iterable[Path]) -> list[Path]:
    """Return the YAML files that paths stand for, in order and once: files as they are, folders recursively.

    :data:`BUILTIN` stands for the built-in suite.

    In a folder, what begins with ``_`` or ``.`` is left out: that is where files for ``X_file`` live. The built-in
    suite is without its examples. Raises :class:`UsageError` for a path that does not exist and for a folder without
    YAML files.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        if path == BUILTIN and not path.exists():
            path = builtin_dir()  # noqa: PLW2901
        if path.is_dir():
            files = [
                file
                for file in sorted((*path.rglob("*.yaml"), *path.rglob("*.yml")))
                if not any(part.startswith(("_", ".")) for part in file.relative_to(path).parts)
                and not (_is_builtin(path) and file.relative_to(path).parts[0] == _EXAMPLES)
            ]
            if not files:
                raise UsageError(f"no YAML file in {path}")
        elif path.exists():
            files = [path]
        else:
            raise UsageError(f"no such file or folder: {path}")
        for file in files:
            found.setdefault(file.resolve(), file)
    return list(found.values())


def _is_builtin(path: Path) -> bool:
    try:
        return path.resolve() == builtin_dir().resolve()
    except UsageError:
        return False


def load(path: Path, *, probes: Mapping[str, Probe[Any]], features: Mapping[str, Feature]) -> Scenario:
    """Load one scenario; raises :class:`ScenarioError` with all problems of the file (and of files it names)."""
    scenario, problems = _examine(_opened(path), probes, features)
    if scenario is None or problems:
        raise ScenarioError(listed(problems))
    return scenario


def load_all(
    paths: Iterable[Path], *, probes: Mapping[str, Probe[Any]], features: Mapping[str, Feature]
) -> list[Scenario]:
    """Load the scenarios of files and folders; raises :class:`ScenarioError` with all problems of all of them.

    In folders, files of another servecheck format (endpoints, expectations) are passed over. Raises
    :class:`UsageError` as :func:`collect` does.
    """
    scenarios, problems = _load_all(list(paths), probes, features)
    if problems:
        raise ScenarioError(problems)
    return scenarios


def named_by_file(scenarios: Iterable[Scenario], paths: Iterable[Path]) -> frozenset[str]:
    """Return the ids of scenarios that a user named by a path of their own, and not as part of the built-in suite."""
    mine = [path for path in paths if not (path == BUILTIN and not path.exists()) and not _is_builtin(path)]
    files = {file.resolve() for file in collect(mine)}
    return frozenset(scenario.id for scenario in scenarios if scenario.path.resolve() in files)


def with_patterns(
    scenarios: Iterable[Scenario], *, probes: Mapping[str, Probe[Any]], features: Mapping[str, Feature]
) -> list[Scenario]:
    """Return scenarios with the built-in patterns that a workload fills in, where they have none of such a probe."""
    given = list(scenarios)
    known = {one.probe for one in given}
    built_in = load_all([builtin_dir()], probes=probes, features=features)
    return [*given, *(one for one in built_in if probes[one.probe].per_item and one.probe not in known)]


def problems_of(
    paths: Iterable[Path], *, probes: Mapping[str, Probe[Any]], features: Mapping[str, Feature]
) -> list[Problem]:
    """Return what :func:`load_all` would raise for; an empty list where all is well."""
    return _load_all(list(paths), probes, features)[1]


def other_format(document: Document) -> str:
    """Return the servecheck format that a file says it has, as ``endpoints``, where that is not a scenario's.

    A name that is almost ``scenario`` is a scenario with a typing error, so it is not another format.
    """
    said = document.data.get("schema") if isinstance(document.data, dict) else None
    match = re.fullmatch(r"servecheck/([a-z-]+)/v[0-9]+", said) if isinstance(said, str) else None
    return "" if match is None or nearest(match[1], ["scenario"]) else match[1]


def _own_checks(scenario: Scenario, probes: Mapping[str, Probe[Any]]) -> list[str]:
    """Return the ids of the checks that a scenario itself defines."""
    probe = probes[scenario.probe]
    known = {check.id for check in probe.checks}
    return [check.id for check in probe.of(scenario.params).checks if check.id not in known]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    path: Path
    document: Document | None
    problems: tuple[Problem, ...] = ()


def _opened(path: Path) -> _Opened:
    try:
        return _Opened(path=path, document=read(path))
    except ScenarioError as error:
        return _Opened(path=path, document=None, problems=error.problems)


def _load_all(
    paths: list[Path], probes: Mapping[str, Probe[Any]], features: Mapping[str, Feature]
) -> tuple[list[Scenario], list[Problem]]:
    named = {path.resolve() for path in paths if not path.is_dir()}
    scenarios: list[Scenario] = []
    problems: list[Problem] = []
    owners: dict[str, Path] = {}
    checks: dict[str, Path] = {}
    for file in collect(paths):
        opened = _opened(file)
        if opened.document and file.resolve() not in named and other_format(opened.document):
            continue
        scenario, found = _examine(opened, probes, features)
        said = opened.document.data.get("id") if opened.document and isinstance(opened.document.data, dict) else None
        if opened.document and isinstance(said, str):
            owner = owners.setdefault(said, file)
            if owner is not file:
                found.append(opened.document.problem(("id",), f"the id {said!r} is taken by {owner}"))
        if scenario and opened.document:
            for check_id in _own_checks(scenario, probes):
                owner = checks.setdefault(check_id, file)
                if owner is not file:
                    found.append(opened.document.problem(_WITH, f"the check {check_id!r} is taken by {owner}"))
        problems += listed(found)
        if scenario:
            scenarios.append(scenario)
    return scenarios, problems


def _examine(
    opened: _Opened, probes: Mapping[str, Probe[Any]], features: Mapping[str, Feature]
) -> tuple[Scenario | None, list[Problem]]:
    document = opened.document
    if document is None:
        return None, list(opened.problems)
    data: dict[str, Json] = document.data if isinstance(document.data, dict) else {}
    said = data.get("probe")
    probe = probes.get(said) if isinstance(said, str) else None
    parameters = file_parameters(probe.params) if probe else ()
    document = resolve_files(document, parameters, folder=opened.path.parent)
    shape, problems = check(document, ScenarioV1)
    params: Params | None = None
    if probe and isinstance(data.get("with", {}), dict) and isinstance(document.data, dict):
        params, wrong = check(document, probe.params, at=_WITH, also=[f"{name}_file" for name in parameters])
        problems += wrong
        if params is not None:
            problems += _objections(document, probe, params, probes)
    problems += [*document.problems, *_unknown_names(document, data, probe, probes, features)]
    problems += _mismatched_id(document, data, opened.path)
    if problems or shape is None or params is None:
        return None, problems
    return _built(shape, params, opened.path), []


def _built(shape: ScenarioV1, params: Params, path: Path) -> Scenario:
    return Scenario(
        id=shape.id,
        title=shape.title,
        feature=shape.feature,
        probe=shape.probe,
        why=shape.why,
        params=params,
        trials=shape.trials,
        tags=tuple(shape.tags),
        tune={name: Tune(level=entry.level, because=entry.because) for name, entry in shape.tune.items()},
        needs=tuple(shape.needs),
        path=path,
    )


def _unknown_names(
    document: Document,
    data: Mapping[str, Json],
    probe: Probe[Any] | None,
    probes: Mapping[str, Probe[Any]],
    features: Mapping[str, Feature],
) -> list[Problem]:
    def unknown(kind: str, name: str, at: tuple[str | int, ...], known: Iterable[str], *, on_key: bool) -> Problem:
        return document.problem(at, f"unknown {kind} {name!r}", on_key=on_key, suggestion=suggest(name, known))

    found: list[Problem] = []
    feature, said, needs, tune = (data.get(key) for key in ("feature", "probe", "needs", "tune"))
    if isinstance(feature, str) and feature and feature not in features and not is_own(feature):
        found.append(_unknown_row(document, feature, features))
    if isinstance(feature, str) and feature in features and probe and probe.by_params is not None:
        kind = features[feature].kind
        if kind is not Kind.JUDGED:
            what = f"checks of your own give a status, and {feature!r} is a {kind.value} row"
            hint = f"name a row of your own, such as {OWN}.{data.get('id', 'mine')}"
            found.append(document.problem(("feature",), what, suggestion=hint))
    if isinstance(said, str) and said and probe is None:
        found.append(unknown("probe", said, ("probe",), probes, on_key=False))
    for index, need in enumerate(needs if isinstance(needs, list) else []):
        if not isinstance(need, str) or not need:
            continue
        if need not in features and not is_own(need):
            found.append(unknown("feature", need, ("needs", index), features, on_key=False))
        elif need == feature:
            found.append(document.problem(("needs", index), "a scenario cannot need the feature it counts for"))
    if probe:
        checks = [check.id for check in probe.checks]
        found += [
            unknown(f"check of the probe {probe.id!r}:", name, ("tune", name), checks, on_key=True)
            for name in (tune if isinstance(tune, dict) else {})
            if name not in checks
        ]
    return found


def _unknown_row(document: Document, feature: str, features: Mapping[str, Feature]) -> Problem:
    group, _, rest = feature.partition(".")
    if group == OWN:
        what = f"{feature!r} is no name for a row of your own"
        hint = f"write {OWN}. and lower-case words, as {OWN}.request-id"
        return document.problem(("feature",), what, suggestion=hint)
    near = suggest(feature, features)
    own = f"for a row of your own write {OWN}.{rest or group}"
    return document.problem(("feature",), f"unknown feature {feature!r}", suggestion=near or own)


def _objections(
    document: Document, probe: Probe[Any], params: Params, probes: Mapping[str, Probe[Any]]
) -> Iterable[Problem]:
    """Yield what the probe has against parameters of the right types, and check ids that others own."""
    for wrong in probe.object_to(params):
        yield document.problem(_WITH + wrong.at, wrong.message, on_key=wrong.on_key, suggestion=wrong.suggestion)
    if probe.by_params is not None:
        taken = {check.id: owner.id for owner in probes.values() for check in owner.checks}
        taken |= dict.fromkeys(RESERVED, "servecheck")
        for at, place in document.places.items():
            if at[:1] == _WITH and len(at) > 2 and at[-2] == "checks" and place.key and at[-1] in taken:
                owner = taken[str(at[-1])]
                yield document.problem(at, f"the check {at[-1]!r} belongs to {owner}", on_key=True)


def _mismatched_id(document: Document, data: Mapping[str, Json], path: Path) -> list[Problem]:
    said = data.get("id")
    if not isinstance(said, str) or said == path.stem:
        return []
    return [document.problem(("id",), f"the id {said!r} differs from the file's name {path.stem!r}")]


# --------------------------------------------------------------------------- parameters in files of their own


def resolve_files(document: Document, parameters: Iterable[str], *, folder: Path) -> Document:
    """Return a scenario's document with each ``X_file`` below ``with`` replaced by ``X`` and what the file holds.

    ``parameters`` are the names ``X`` that allow it (:func:`~servecheck.schema.scenario_v1.file_parameters`). Paths
    are relative to ``folder``. YAML and JSON give data; ``.txt`` and ``.md`` give text, less one final line break.
    What goes wrong is in the problems of the returned document.
    """
    given = document.data.get("with") if isinstance(document.data, dict) else None
    if not isinstance(given, dict):
        return document
    for name in parameters:
        key = f"{name}_file"
        if key not in given:
            continue
        at = (*_WITH, key)
        included = _included(document, at, given[key], folder)
        problems = document.problems
        document = document.without(at)
        if name in given:
            twice = document.problem(at, f"{key!r} and {name!r} are both given", on_key=True)
            document = replace(document, problems=(*problems, twice))
        else:
            document = document.graft((*_WITH, name), included)
    return document


def _included(document: Document, at: tuple[str, ...], said: Json, folder: Path) -> Document:
    place = document.places[at]

    def failed(*problems: Problem) -> Document:
        return Document(
            path=document.path, data=None, places={(): place}, lines={}, problems=problems, spoiled=frozenset({()})
        )

    if not isinstance(said, str) or not said:
        return failed(document.problem(at, f"expected the name of a file, got {got(said)}"))
    path = folder / said
    if Path(said).is_absolute():
        return failed(document.problem(at, "expected a path relative to this file"))
    if path.suffix.lower() not in FILE_SUFFIXES:
        return failed(document.problem(at, f"expected a file that ends in {', '.join(FILE_SUFFIXES)}"))
    if not path.is_file():
        return failed(document.problem(at, f"no such file: {path}"))
    try:
        if path.suffix.lower() in {".txt", ".md"}:
            return _text(path)
        return read(path)
    except ScenarioError as error:
        return failed(*error.problems)


def _text(path: Path) -> Document:
    text = read_text(path)
    shown = str(path)
    return Document(
        path=shown,
        data=text.removesuffix("\n").removesuffix("\r"),
        places={(): Place(file=shown, value=(1, 1))},
        lines={shown: tuple(text.splitlines())},
    )
