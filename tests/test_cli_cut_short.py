"""A run that is cut short, by a person, a signal or a dying server, leaves a whole report and can be gone on with."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from servecheck.reference.mock import background
from servecheck.reference.server import ReferenceServer
from tests.commands import REPORTS, end, mocked, nowhere, process, servecheck


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    nowhere(monkeypatch, tmp_path)


@pytest.fixture
def slow_url() -> Iterator[str]:
    with background(ReferenceServer(decode_seconds=0.01)) as found:
        yield found


def wait_for_line(running: subprocess.Popen[str], mark: str) -> None:
    assert running.stderr is not None
    for line in running.stderr:
        if mark in line:
            return
    raise AssertionError(f"no line with {mark!r}")


TRIALS = 5
SLOW = ["--feature", "chat.basic", "--trials", str(TRIALS)]


def test_a_server_that_is_killed_in_the_middle_leaves_a_whole_report(monkeypatch, tmp_path):
    monkeypatch.setattr("servecheck.runner._RECOVERY_SECONDS", 0.0)
    mock, url = mocked()
    count = 0

    @contextlib.contextmanager
    def kill_after_two(*, quiet: bool):
        def watch(progress) -> None:
            nonlocal count
            count += progress.trial is not None
            if count == 2:
                mock.kill()
                mock.wait()

        yield watch

    monkeypatch.setattr("servecheck.progress.watching", kill_after_two)
    try:
        said = servecheck("run", url, "--out", "run", "--feature", "streaming.frames", *SLOW)
    finally:
        mock.kill()
        mock.communicate()
    assert said.code == 4
    results = json.loads(Path("run/results.json").read_text())
    assert results["complete"]
    chat = next(cell for cell in results["cells"] if cell["feature"] == "chat.basic")
    assert chat["trials"][:2] == ["supported"] * 2
    assert chat["trials"][2:] == ["error"]
    frames = next(cell for cell in results["cells"] if cell["feature"] == "streaming.frames")
    assert frames["status"] == "error"
    assert {path.name for path in Path("run").iterdir()} == REPORTS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_run_is_exit_130_with_a_report_and_can_be_gone_on_with(slow_url, number):
    running = process("run", slow_url, "--out", "run", *SLOW)
    wait_for_line(running, "(look 2)")
    running.send_signal(number)
    said = end(running)
    assert said.code == 130
    assert said.err.splitlines()[-1] == ("servecheck: interrupted; what was seen is in run, go on with --resume run")
    assert {path.name for path in Path("run").iterdir()} == REPORTS
    assert not json.loads(Path("run/results.json").read_text())["complete"]
    assert "interrupted" in Path("run/report.md").read_text()
    resumed = servecheck("run", "--resume", "run", "-q")
    assert resumed.code == 0
    results = json.loads(Path("run/results.json").read_text())
    assert results["complete"]
    chat = next(cell for cell in results["cells"] if cell["feature"] == "chat.basic")
    assert chat["trials"] == ["supported"] * TRIALS


def test_a_fault_of_ours_is_not_taken_for_a_finding():
    crash = "import sys; from servecheck import cli\n@cli.app.command()\ndef crash(): raise ZeroDivisionError('ours')\n"
    crash += "sys.argv = ['servecheck', 'crash']; cli.main()"
    crashed = subprocess.run([sys.executable, "-c", crash], capture_output=True, text=True, check=False)
    assert crashed.returncode == 4
    assert "ZeroDivisionError: ours" in crashed.stderr
    assert "this is a fault of servecheck" in crashed.stderr.splitlines()[-1]


def test_a_run_that_was_killed_is_reported_as_dead_and_can_be_gone_on_with(slow_url):
    running = process("run", slow_url, "--out", "run", *SLOW)
    wait_for_line(running, "(look 2)")
    running.kill()
    running.communicate()
    judged = servecheck("judge", "run")
    assert "this run is not complete: it has no footer, so it died" in judged.out
    assert servecheck("run", "--resume", "run", "-q").code == 0
    assert json.loads(Path("run/results.json").read_text())["complete"]
