"""Where the command begins: its help is told from a file, since typer and rich cost ten times what Python does.

Whatever depends on more than the one word ``--help``, such as a width or a language, is the command line's.
"""

from __future__ import annotations

import os
import sys

__all__ = ["ASK_THE_REAL_ONE", "COLOURED", "HELP", "WIDTH", "main"]

HELP = os.path.join(os.path.dirname(__file__), "help.txt")  # noqa: PTH118, PTH120 - pathlib would double the time
"""What ``servecheck --help`` says into a pipe; a test holds it against the command line itself."""

COLOURED = os.path.join(os.path.dirname(__file__), "help-coloured.txt")  # noqa: PTH118, PTH120
"""The same at a terminal, with the sixteen colours that every terminal has."""

WIDTH = 80
"""How many columns both have; a narrower terminal is the command line's."""

ASK_THE_REAL_ONE = (
    "COLUMNS", "TERMINAL_WIDTH", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "GITHUB_ACTIONS"
)  # fmt: skip
"""Variables that change how help looks."""


def main() -> None:
    """Run the command; see :func:`servecheck.cli.main`."""
    told = _told() if sys.argv[1:] in (["--help"], ["-h"]) else None
    if told is None:
        from servecheck.cli import main as real  # noqa: PLC0415 - what all this is for

        real()
        return
    with open(told, encoding="utf-8", newline="") as file:  # noqa: PTH123
        text = file.read()
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"servecheck: cannot write to standard output: {error.strerror}\n")
            raise SystemExit(4) from None


def _told() -> str | None:
    """Return the file that says what the command line would say here, ``None`` where there is none."""
    if any(name in os.environ for name in ASK_THE_REAL_ONE):
        return None
    if (sys.stdout.encoding or "").lower().replace("-", "") != "utf8":
        return None
    if not sys.stdout.isatty():
        return HELP
    if os.name != "posix" or os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return None
    return COLOURED if os.get_terminal_size(sys.stdout.fileno()).columns >= WIDTH else None
