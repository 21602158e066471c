"""The environment of a step to arguments of ``servecheck run``: a list of words that no shell ever reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servecheck.ci.job import own_name
from servecheck.errors import UnknownName, UsageError

__all__ = ["HISTORY", "History", "Inputs"]

HISTORY = "history.sqlite"
"""The name of the file of runs, in an artifact and on a branch."""

_OUT, _HISTORY_NAME = "servecheck-run", "servecheck-history"
_WAYS = ("none", "artifact", "branch")
_YES, _NO = frozenset({"true", "yes", "1"}), frozenset({"false", "no", "0", ""})
# One word each, as the option of that name takes it.
_SINGLE = ("suite", "profile", "expect", "workload", "traffic", "trials", "budget", "deadline", "wait-ready", "fail-on")
# One line each, and the option again for every line.
_LINES = ("model", "api-key-env", "feature", "scenario", "allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Where runs are kept from one job to the next: ``way`` is none, artifact or branch, ``name`` is its name."""

    way: str
    name: str
    keep: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a workflow asked for. ``arguments`` are those of ``servecheck run`` but for ``--out`` and ``--history``.

    ``artifact`` is the name under which the run folder is uploaded, or empty.
    """

    arguments: tuple[str, ...]
    out: Path
    artifact: str
    selftest: bool
    history: History
    work: Path

    @property
    def use(self) -> str:
        """What tells this use of the action from another one in the same job; empty where there need not be another."""
        return "" if self.out.name == _OUT else self.out.name

    @property
    def history_file(self) -> Path:
        """The file of runs, on this machine."""
        return self.work / HISTORY

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Inputs:
        """Read ``INPUT_…`` and ``RUNNER_TEMP``; raises :class:`UsageError` for what no run could be made of."""

        def given(name: str) -> str:
            return environ.get("INPUT_" + name.upper().replace("-", "_"), "").strip()

        words = [f"--{name}={value}" for name in _SINGLE if (value := given(name))]
        for name in _LINES:
            words += [f"--{name}={line}" for line in _lines(given(name))]
        if given("endpoints"):
            words.append(f"--endpoints={given('endpoints')}")
        # What is behind "--" is an endpoint, whatever it looks like.
        words += ["--", *_lines(given("endpoint"))]
        way = given("history") or "none"
        if way not in _WAYS:
            raise UnknownName("history", way, _WAYS)
        keep = given("keep") or "400"
        if not keep.isascii() or not keep.isdigit() or not int(keep):
            raise UsageError(f"keep: expected a number of runs, got {keep!r}")

        def named(name: str, default: str) -> str:
            return own_name(default, environ) if given(name) == default else given(name)

        return cls(
            arguments=tuple(words),
            out=Path(given("out") or _OUT),
            artifact=named("artifact", _OUT),
            selftest=_flag("selftest", given("selftest")),
            history=History(
                way=way, name=named("history-name", _HISTORY_NAME) or own_name(_HISTORY_NAME, environ), keep=int(keep)
            ),
            work=Path(environ.get("RUNNER_TEMP") or ".") / "servecheck-work",
        )


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _flag(name: str, value: str) -> bool:
    if value.lower() in _YES | _NO:
        return value.lower() in _YES
    raise UsageError(f"{name}: expected true or false, got {value!r}")
