"""Writes the files that a folder needs to be checked night after night and lacks; never over one that is there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from servecheck.errors import UsageError

__all__ = ["ACTION", "WORKFLOW", "next_steps", "other_action", "starter", "write"]

ACTION = "OWNER/servecheck@COMMIT"
"""What the workflow uses unless told otherwise: whoever copies the action knows where it is, and at which commit."""

WORKFLOW = ".github/workflows/servecheck.yml"

_LEFT_BY_RUNS = ("runs/", "*.sqlite")
_NAMES = ("endpoints.yaml", "scenarios/own-example.yaml", "expectations.yaml")


def starter(*, github: bool, action: str = ACTION) -> dict[str, str]:
    """Return the texts of the files by their relative path; ``github`` adds a workflow that uses ``action``.

    Raises :class:`UsageError` for an action that is not ``OWNER/REPOSITORY@COMMIT``.
    """
    home = files("servecheck.starter")
    found = {name: home.joinpath(name).read_text("utf-8") for name in _NAMES}
    if github:
        owner, slash, rest = action.partition("/")
        if not (owner and slash and all(rest.partition("@"))) or any(c.isspace() or c in "#\"'" for c in action):
            raise UsageError(f"--action: expected OWNER/REPOSITORY@COMMIT, got {action!r}")
        commit = action.rpartition("@")[2]
        if action != ACTION and not re.fullmatch(r"[0-9a-f]{40}", commit):
            raise UsageError(
                f"--action: {commit!r} is no commit, and a branch or tag would be other code tomorrow, with your keys; "
                f"give the 40 hex digits of one: git ls-remote https://github.com/{action.partition('@')[0]} {commit}"
            )
        found[WORKFLOW] = home.joinpath("servecheck.yml").read_text("utf-8").replace("$ACTION", action)
    return found


def write(folder: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Write the files below ``folder`` that are not there, and return their names; what is there is left as it is.

    Raises :class:`UsageError` where all of them are there, and where one cannot be written.
    """
    missing = [name for name in texts if not _is_there(folder / name)]
    if not missing:
        raise UsageError(f"already there, and nothing was written: {', '.join(str(folder / name) for name in texts)}")
    try:
        for name in missing:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(texts[name])
    except OSError as error:
        raise UsageError(f"cannot write into {folder}: {error}") from error
    return tuple(missing)


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def other_action(folder: Path) -> str:
    """Return how to use another action where a workflow is there already."""
    return f"to use another action, edit its uses: line in {folder / WORKFLOW}"


def next_steps(folder: Path, *, github: bool, action: str = ACTION) -> str:
    """Return what to do with the files that were written, in the order in which it is to be done."""
    shown = [str(folder / name) for name in _NAMES]
    scenarios = folder / Path(_NAMES[1]).parent
    steps = [
        f"put your servers into {shown[0]}, and set the variables that it names",
        f"servecheck lint {' '.join(shown)}",
        f"servecheck run --endpoints {shown[0]} --suite smoke --dry-run",
        f"servecheck run --endpoints {shown[0]} --expect {shown[2]} --scenario builtin --scenario {scenarios}",
    ]
    if github:
        pin = (
            [f"write into {folder / WORKFLOW} where the action is, and its commit (or: --action)"]
            if action == ACTION
            else []
        )
        steps += [*pin, "give the repository the secrets that the endpoints file names, such as CANDIDATE_KEY"]
    steps.append(f"keep what runs leave out of git, in .gitignore: {' '.join(_LEFT_BY_RUNS)}")
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
