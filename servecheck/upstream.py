"""Puts a search for open upstream issues together: from a run, a model or flags to terms and trackers, and through
GitHub's API or an export to a list. Decides nothing about an endpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from servecheck import formats, stacks
from servecheck.errors import UnknownName, UsageError
from servecheck.issues import (
    MOST_SEARCHES,
    Hit,
    Looked,
    Term,
    architecture_terms,
    config_of,
    from_export,
    look,
    ranked,
    row_terms,
    told,
    told_as_json,
    valid_repository,
)
from servecheck.model import Fingerprint, How, Json, Kind, Known, Status
from servecheck.report.data import RunReport
from servecheck.wire.github import API_URL, Github, NotSearchable, cache_dir

__all__ = ["Found", "Wanted", "failing_rows", "find", "terms_of", "trackers_of", "warnings_of"]

_FAILS = frozenset({Status.BROKEN, Status.FLAKY, Status.IGNORED, Status.UNSUPPORTED, Status.DEGRADED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to look for; flags go before what a run shows."""

    report: RunReport | None = None
    repositories: tuple[str, ...] = ()
    model: str | None = None
    config: Path | None = None
    engine: str | None = None
    stack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of it, ready to be said."""

    hits: tuple[Hit, ...]
    looked: Looked
    terms: tuple[Term, ...]
    where: tuple[str, ...]
    warnings: tuple[str, ...]

    def told(self) -> str:
        """Return the text for a terminal."""
        return told(self.hits, self.looked, terms=self.terms, where=self.where, warnings=self.warnings)

    def as_json(self) -> dict[str, Json]:
        """Return the same as JSON."""
        return told_as_json(self.hits, self.looked, terms=self.terms, where=self.where, warnings=self.warnings)


def find(wanted: Wanted, *, from_file: Path | None, environ: Mapping[str, str]) -> Found:
    """Look for issues in an export, or through GitHub's API (``GITHUB_TOKEN``, ``GITHUB_API_URL``).

    Raises :class:`UsageError` where there is nothing to look for or an input is wrong.
    """
    config = config_of(wanted.config) if wanted.config is not None else None
    known = _known(wanted)
    terms, without = terms_of(wanted, config, known)
    if not terms:
        raise UsageError("nothing to look for: name a run folder, --model ID or --config config.json")
    notes = [f"no words are known for {', '.join(without)}"] if without else []
    if from_file is not None:
        try:
            text = from_file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--from-file {from_file}: {error}") from error
        issues, looked = from_export(text, str(from_file)), Looked()
        only = {valid_repository(name).lower() for name in wanted.repositories}
        issues = [one for one in issues if not only or one.repository.lower() in only]
        where: tuple[str, ...] = (str(from_file),)
        hits = ranked(issues, terms)
    else:
        where = trackers_of(wanted, known)
        looked = asyncio.run(_ask(terms, where, environ))
        hits = ranked(looked.issues.values(), terms, looked.found_by)
    looked.notes += notes
    return Found(hits=hits, looked=looked, terms=terms, where=where, warnings=warnings_of(config, known))


async def _ask(terms: Sequence[Term], where: Sequence[str], environ: Mapping[str, str]) -> Looked:
    async with Github(
        base_url=environ.get("GITHUB_API_URL") or API_URL,
        token=environ.get("GITHUB_TOKEN") or None,
        cache=cache_dir(environ),
    ) as github:

        async def search(query: str) -> tuple[Sequence[Mapping[str, object]], datetime | None, bool]:
            page = await github.search(query)
            return page.items, page.kept, page.cut

        return await look(terms, where, search, NotSearchable)


def _known(wanted: Wanted) -> tuple[Fingerprint, ...]:
    """Return what is known of the software: the run's endpoints, or what the flags say."""
    if wanted.engine is not None and wanted.engine not in stacks.ENGINES:
        raise UnknownName("engine", wanted.engine, stacks.ENGINES)
    stack = stacks.named(wanted.stack, wanted.engine) if wanted.stack is not None else None
    if wanted.stack is not None and stack is None:
        raise UnknownName("stack", wanted.stack, [each.id for each in stacks.STACKS])
    if stack is not None or wanted.engine is not None or wanted.report is None:
        engine = wanted.engine or (stack.engines[0] if stack is not None else None)
        said = {"engine": engine, "tpu_stack": stack.id if stack is not None else None, "model": wanted.model}
        fields = {name: Known(value=value, how=How.DECLARED) for name, value in said.items() if value is not None}
        return (Fingerprint(fields=MappingProxyType(fields)),)
    return tuple(subject.fingerprint for subject in wanted.report.subjects)


def trackers_of(wanted: Wanted, known: Sequence[Fingerprint]) -> tuple[str, ...]:
    """Return the repositories that are named, else those of the engines and of their TPU stacks."""
    named = tuple(dict.fromkeys(map(valid_repository, wanted.repositories)))
    return named or stacks.repositories(known)


def terms_of(
    wanted: Wanted, config: Mapping[str, Any] | None, known: Sequence[Fingerprint]
) -> tuple[tuple[Term, ...], tuple[str, ...]]:
    """Return what to look for, the likeliest to be searched first, and the rows that no words are known for."""
    report = wanted.report
    architectures = [architecture_terms(model=wanted.model, config=config)]
    if report is not None and config is None and wanted.model is None:
        for subject in report.subjects:
            seen = subject.fingerprint.value("architecture")
            named = {"architectures": [seen]} if seen is not None else None
            architectures.append(architecture_terms(model=subject.endpoint.model, config=named))
    found = {term.text.lower(): term for terms in architectures for term in terms}
    precisions = [formats.in_config(config) if config is not None else None, *map(formats.said_of, known)]
    for precision in filter(None, precisions):
        format_ = formats.of(precision.name)
        if format_ is not None and format_ not in {"unquantized", "floats", "integers"}:
            found.setdefault(format_, Term(text=format_, kind="format"))
    rows, without = row_terms(failing_rows(report)) if report is not None else ((), ())
    # Half of the searches are for rows at least, where there are so many.
    first = [*found.values()][: max(MOST_SEARCHES // 2, MOST_SEARCHES - len(rows))]
    return tuple(dict.fromkeys((*first, *rows, *found.values()))), without


def failing_rows(report: RunReport) -> tuple[str, ...]:
    """Return the rows that a run found wanting, those that block first."""
    blocking = [row.partition("@")[0] for row in report.verdict.blockers]
    others = [cell.feature for cell in report.cells if cell.kind is Kind.JUDGED and cell.status in _FAILS]
    return tuple(dict.fromkeys((*blocking, *others)))


def warnings_of(config: Mapping[str, Any] | None, known: Sequence[Fingerprint]) -> tuple[str, ...]:
    """Return what the table of formats says of a model on the stacks that are named, or that it says nothing."""
    inside = formats.in_config(config) if config is not None else None
    found = []
    for each in known:
        stack, precision = stacks.stack_of(each), inside or formats.said_of(each)
        if stack is not None and precision is not None:
            found.append(formats.known_of(precision, stack))
        elif stack is not None and (config is not None or each.value("model")):
            found.append(f"the model does not say what its weights are in, so nothing is known of them on {stack.id}")
    return tuple(dict.fromkeys(found))
