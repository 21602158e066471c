"""Which job this is among all that share a repository: two of them must not write each other's comment, issue or files.

A job of a matrix has the name of its siblings and its own values; a job that uses the action twice, two run folders.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping

from servecheck.model import Json

__all__ = ["MATRIX", "job_name", "own_name"]

MATRIX = "JOB_MATRIX"
"""The variable with the values of the matrix as JSON, ``null`` where the job is in none."""

_LONGEST = 60
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.]+")


def job_name(environ: Mapping[str, str], *more: str) -> str:
    """Return workflow, job, values of the matrix and ``more``, fit for a comment of HTML."""
    parts = (environ.get("GITHUB_WORKFLOW", ""), environ.get("GITHUB_JOB", ""), _matrix(environ), *more)
    return "/".join(_plain(part) for part in parts if part)


def own_name(default: str, environ: Mapping[str, str]) -> str:
    """Return the name that is this job's own where ``default`` would be that of every job of the matrix."""
    values = _matrix(environ)
    return f"{default}-{_plain(values)}" if values else default


def _matrix(environ: Mapping[str, str]) -> str:
    try:
        found: Json = json.loads(environ.get(MATRIX) or "null")
    except ValueError:
        return environ[MATRIX]  # whatever it is, it tells this job from others
    return " ".join(_leaves(found))


def _leaves(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        for _, each in sorted(value.items()):
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif value is not None:
        yield str(value)


def _plain(text: str) -> str:
    """Return the text as letters, digits, dots and single dashes; unlike texts stay unlike."""
    plain = _NOT_PLAIN.sub("-", text).strip("-")[:_LONGEST]
    if plain == text:
        return plain
    return f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
