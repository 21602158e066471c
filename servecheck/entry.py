"""Where the command begins: the plain help is told from a file, since typer and rich cost ten times what Python does.

Whatever depends on more than the one word ``--help``, such as colours, a width or a language, is the command line's.
"""

from __future__ import annotations

import os
import sys

__all__ = ["ASK_THE_REAL_ONE", "HELP", "main"]

HELP = os.path.join(os.path.dirname(__file__), "help.txt")  # noqa: PTH118, PTH120 - pathlib would double the time
"""What ``servecheck --help`` says into a pipe of 80 columns; a test holds it against the command line itself."""

ASK_THE_REAL_ONE = ("COLUMNS", "TERMINAL_WIDTH", "FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "GITHUB_ACTIONS")
"""Variables that change how help looks."""


def main() -> None:
    """Run the command; see :func:`servecheck.cli.main`."""
    if sys.argv[1:] in (["--help"], ["-h"]) and _is_plain():
        with open(HELP, encoding="utf-8", newline="") as file:  # noqa: PTH123
            text = file.read()
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.stderr.write(f"servecheck: cannot write to standard output: {error.strerror}\n")
            raise SystemExit(4) from None
        return
    from servecheck.cli import main as real  # noqa: PLC0415 - what all this is for

    real()


def _is_plain() -> bool:
    if any(name in os.environ for name in ASK_THE_REAL_ONE):
        return False
    return not sys.stdout.isatty() and (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
