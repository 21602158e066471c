"""Every error that servecheck raises on purpose: our own troubles, never a finding about a server.

    ServecheckError
    ├── UsageError            the caller asked for something that cannot be done (exit 2, nothing was sent)
    │   ├── ScenarioError     a scenario, endpoints or expectations file has problems, each with its place
    │   └── UnknownName       a feature, probe, scenario or check that does not exist, with the nearest that does
    ├── NothingSelected       the selection matched nothing (exit 3)
    ├── BudgetSpent           a case may send nothing more; the runner turns it into ``skipped (budget)``
    ├── StoreError            a run folder cannot be written or read back
    ├── EngineError           the embedded engine or its weights cannot be had
    └── UpstreamError         an issue tracker, or the host of a support matrix, could not be asked (exit 4)
        └── RateLimited       it wants to be left alone until a moment that it names

What a server does wrong is never an exception of this tree: it is an :class:`~servecheck.model.Exchange`
with its ending, and later a finding.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

__all__ = [
    "BudgetSpent",
    "EngineError",
    "NothingSelected",
    "Problem",
    "RateLimited",
    "ScenarioError",
    "ServecheckError",
    "StoreError",
    "UnknownName",
    "UpstreamError",
    "UsageError",
    "nearest",
    "suggested",
]


class ServecheckError(Exception):
    """Base of all errors raised on purpose."""


class UsageError(ServecheckError):
    """The caller asked for something that cannot be done; nothing was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem at one place of a file: ``line`` and ``column`` count from 1. A ``warning`` stops nobody."""

    path: str
    line: int
    column: int
    message: str
    source: str = ""
    suggestion: str = ""
    warning: bool = False

    def __str__(self) -> str:
        mark = "warning: " if self.warning else ""
        head = f"{self.path}:{self.line}:{self.column}: {mark}{self.message}"
        shown = f"\n  {self.source}\n  {' ' * (self.column - 1)}^" if self.source else ""
        hint = f"\n  {self.suggestion}" if self.suggestion else ""
        return head + shown + hint


class ScenarioError(UsageError):
    """A YAML file has problems; all of them are listed at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


_FEW = 10  # names that fit into one line


class UnknownName(UsageError):
    """A name that does not exist, with the nearest one that does, or with all where none is near and they are few."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = [*known]
        self.kind, self.name, self.suggestion = kind, name, nearest(name, names)
        hint = f"; did you mean {self.suggestion!r}?" if self.suggestion else ""
        if not hint and 0 < len(names) <= _FEW:
            hint = f"; there {'is' if len(names) == 1 else 'are'} {', '.join(names)}"
        super().__init__(f"unknown {kind} {name!r}{hint}")


class NothingSelected(ServecheckError):
    """The selection (a glob, a tag, a suite) matched nothing."""


class BudgetSpent(ServecheckError):
    """A budget that the caller set is used up; nothing more may be sent."""


class StoreError(ServecheckError):
    """A run folder cannot be written, or what is there is not a run."""


class EngineError(ServecheckError):
    """The embedded engine or its weights cannot be had, with what to do about it."""


class UpstreamError(ServecheckError):
    """An issue tracker, or the host of a support matrix, could not be asked; says nothing of any endpoint."""


class RateLimited(UpstreamError):
    """A service wants to be left alone; ``again`` is when it may be asked, aware, ``None`` where it does not say."""

    def __init__(self, message: str, again: datetime | None = None) -> None:
        self.again = again
        super().__init__(message)


def suggested(name: str, known: Iterable[str], listing: str) -> str:
    """Return the question whether the nearest known name was meant, or else where ``servecheck list`` has them all."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"servecheck list {listing} shows all of them"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name most like ``name``, or an empty string where none is close."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else ""
