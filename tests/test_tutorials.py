"""The tutorials' commands, run on the servers that they name, say what the tutorials print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from servecheck import read_run
from servecheck.reference import mutants
from servecheck.reference.mock import background
from servecheck.reference.server import ReferenceServer
from tests.commands import servecheck

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"


def fault(name: str) -> ReferenceServer:
    found = next(each for all_, _ in mutants.discover().values() for each in all_ if each.id == name)
    server = found.make("obedient")
    assert isinstance(server, ReferenceServer)
    return server


@pytest.mark.parametrize("name", ["first-run.md", "two-endpoints.md"])
def test_the_answer_that_a_tutorial_prints_is_the_one_that_comes(name, tmp_path, monkeypatch):
    text = (TUTORIALS / name).read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "SERVECHECK_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    (command,) = re.findall(r"^servecheck (run .*--suite smoke --out .*)$", text, re.MULTILINE)
    printed = next(line for line in text.splitlines() if re.match(r"(No|Yes|So far yes|Cannot tell)\b.*core row", line))
    with background(ReferenceServer()) as right, background(fault("done-missing")) as broken:
        here = command.replace("http://127.0.0.1:8701", right).replace("http://127.0.0.1:8702", broken)
        servecheck(*here.split(), "-q")
    said = read_run(Path(command.split()[-1])).verdict.sentence
    assert printed == said.replace(broken.rpartition(":")[2], "8702")


def test_the_checklist_asks_what_only_a_new_server_can_answer_once_and_first(tmp_path, monkeypatch):
    """A warm server cannot say what it would have compiled, so a second time is a question without an answer."""
    monkeypatch.chdir(tmp_path)
    text = (TUTORIALS / "tpu-migration.md").read_text("utf-8")
    commands = re.findall(r"^servecheck (run .*)$", text, re.MULTILINE)
    rows = []
    for command in commands:
        said = servecheck(*command.replace("'", "").split(), "--dry-run")
        assert said.code == 0
        rows.append(re.findall(r"^  ([a-z_]+\.[a-z_]+) ", said.out, re.MULTILINE))
    assert [place for place, found in enumerate(rows) if "compile.recompilation" in found] == [0]
    assert rows[0][0] == "compile.recompilation"
    assert len(commands) == 2
