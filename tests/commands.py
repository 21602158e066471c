"""The command line as tests run it: in this process or as one of its own, and what it says as a reader would see it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from servecheck import cli

__all__ = ["QUICK", "REPORTS", "Said", "end", "mocked", "nowhere", "process", "servecheck", "shown"]

REPORTS = {"run.jsonl", "results.json", "report.md", "report.html", "evidence.md", "summary.md", "junit.xml"}
"""The files of a run folder."""

QUICK = ["--feature", "chat.basic", "--feature", "identity.models", "--trials", "1"]
"""The words that choose a run of a few requests."""


class Said(NamedTuple):
    """The exit code of a command and what it printed."""

    code: int
    out: str
    err: str


def nowhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Work in a folder, without what this machine's environment says to the command line."""
    for name in tuple(os.environ):
        if name.startswith(("OPENAI_", "SERVECHECK_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(folder)


def servecheck(*words: str | Path) -> Said:
    """Run the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["servecheck", *map(str, words)]
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = before
    return Said(code if isinstance(code, int) else 0 if code is None else 1, out.getvalue(), err.getvalue())


def shown(words: Sequence[str | Path], said: Said) -> str:
    """Return a session as a reader would see it, volatile parts replaced."""
    text = f"$ servecheck {' '.join(map(str, words))}\n{said.err}{said.out}[exit {said.code}]\n"
    text = text.replace(str(Path.cwd()), "/tmp/here")
    text = re.sub(r"127\.0\.0\.1([:-])\d{4,5}", r"127.0.0.1\1PORT", text)
    text = re.sub(r"localhost:\d{4,5}", "localhost:PORT", text)
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)


def process(*words: str | Path, **env: str) -> subprocess.Popen[str]:
    """Start the command line as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "servecheck", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2]), "PYTHONUNBUFFERED": "1", **env},
    )


def mocked(*words: str) -> tuple[subprocess.Popen[str], str]:
    """Start a mock server as a process; the caller ends it."""
    mock = process("mock", *words)
    assert mock.stdout is not None
    return mock, mock.stdout.readline().strip()


def end(running: subprocess.Popen[str]) -> Said:
    """Wait for the end of a process, at most a minute."""
    out, err = running.communicate(timeout=60)
    return Said(running.returncode, out, err)
