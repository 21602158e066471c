"""What a GitHub runner reads: commands on standard output, and the files that its environment names.

Nothing that a server or a model said can become a command here: it is escaped, or printed while commands are off.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from servecheck.report.summary import SUMMARY_LIMIT
from servecheck.report.text import shorten, visible

__all__ = ["MOST", "annotation", "commands_off", "note", "outputs", "say", "summary"]

MOST = 10
"""Annotations of one kind that GitHub shows of one step."""

_STEP_LIMIT = 1024 * 1024  # bytes; a longer summary of a step is refused as a whole


def annotation(kind: str, title: str, text: str) -> str:
    """Return the command that shows a text as ``error``, ``warning`` or ``notice``."""
    return f"::{kind} title={_property(title)}::{_data(shorten(text, 2_000))}"


def say(text: str) -> None:
    """Print a line now: what a command begun next prints has to stand below it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(kind: str, title: str, text: str) -> None:
    """Print an annotation."""
    say(annotation(kind, title, text))


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


@contextlib.contextmanager
def commands_off() -> Iterator[None]:
    """While the block runs, nothing that is printed is a command, whoever says it."""
    word = secrets.token_hex(16)
    say(f"::stop-commands::{word}")
    try:
        yield
    finally:
        say(f"::{word}::")


def outputs(environ: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Append values to the step's outputs; a line end in one cannot begin another."""
    text = "".join(f"{name}={visible(value).replace(chr(10), ' ')}\n" for name, value in values.items())
    _append(environ.get("GITHUB_OUTPUT"), text)


def summary(environ: Mapping[str, str], text: str) -> bool:
    """Append Markdown to the step's summary; return whether it fitted in."""
    name = environ.get("GITHUB_STEP_SUMMARY")
    path = Path(name) if name else None
    used = path.stat().st_size if path is not None and path.exists() else 0
    size = len(text.encode("utf-8"))
    if size > SUMMARY_LIMIT or used + size > _STEP_LIMIT:
        return False
    _append(name, text)
    return True


def _append(name: str | None, text: str) -> None:
    if name:
        with Path(name).open("a", encoding="utf-8", newline="\n") as file:
            file.write(text)
