"""At a terminal, help is told from a file too, and is what the command line says there."""

from __future__ import annotations

import fcntl
import os
import pty
import resource
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from servecheck import cli, entry

REAL = "import sys\nfrom servecheck import cli\nsys.argv = ['servecheck', '--help']\ncli.main()"
TOLD = "import sys\nfrom servecheck import entry\nsys.argv = ['servecheck', '--help']\nentry.main()"
IS_TOLD = "print('typer' in sys.modules)"


def at_a_terminal(code: str, *, columns: int = entry.WIDTH, **more: str) -> str:
    """Return what a text of Python prints at a terminal of so many columns, with ``\\n`` for the ends of its lines."""
    env = {name: value for name, value in os.environ.items() if name not in entry.ASK_THE_REAL_ONE}
    env |= {"PYTHONPATH": str(Path(cli.__file__).parents[2]), "PYTHONUTF8": "1", "TERM": "xterm-256color", **more}
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    ran = subprocess.Popen([sys.executable, "-c", code], env=env, stdin=end, stdout=end, stderr=end)
    os.close(end)
    said = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how a terminal ends on Linux
            break
        if not piece:
            break
        said += piece
    os.close(terminal)
    assert ran.wait() == 0
    return said.decode("utf-8").replace("\r\n", "\n")


def test_the_coloured_help_is_the_help_of_the_command_line():
    real = at_a_terminal(REAL)
    if os.environ.get("UPDATE_GOLDENS"):
        Path(entry.COLOURED).write_text(real, encoding="utf-8", newline="\n")

    assert at_a_terminal(f"{TOLD}\n{IS_TOLD}") == f"{real}False\n"


def test_a_wide_terminal_gets_it_as_well():
    assert at_a_terminal(TOLD, columns=200) == Path(entry.COLOURED).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("columns", "more"), [(60, {}), (80, {"TERM": "dumb"}), (80, {"NO_COLOR": "1"}), (80, {"COLUMNS": "70"})]
)
def test_a_terminal_that_is_narrow_or_wants_no_colours_gets_its_own(columns: int, more: dict[str, str]):
    assert at_a_terminal(TOLD, columns=columns, **more) == at_a_terminal(REAL, columns=columns, **more)


def test_coloured_help_costs_less_than_three_times_python():
    assert _least(TOLD) < 3 * _least("pass")


def _least(code: str) -> float:
    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        at_a_terminal(code)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once() for _ in range(5))
