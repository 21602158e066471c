"""The sample report is made from recordings by one command, and says nothing of the machine that made it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from lab import sample
from servecheck import features, plan, scenario
from servecheck.model import Endpoint
from servecheck.probes import discover
from servecheck.reference import virtual
from servecheck.reference.mutants.streaming_frames import CutMidEvent
from servecheck.reference.server import ReferenceServer
from servecheck.run import carry_out
from servecheck.wire.memory import MemoryTransport
from servecheck.wire.transport import Transport

DAY = datetime(2026, 1, 2, tzinfo=UTC)


def _transport(server: ReferenceServer, endpoint: Endpoint) -> Transport:
    return Transport(endpoint, app=MemoryTransport(server))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the folders of two recorded runs, of a right server and of one that is not."""
    folder, probes = tmp_path_factory.mktemp("recordings"), discover()
    chosen = [
        each
        for each in scenario.load_all([scenario.builtin_dir()], probes=probes, features=features.BY_ID)
        if each.feature in ("identity.models", "streaming.frames", "streaming.incremental")
    ]
    for name, server in (("one", ReferenceServer()), ("two", CutMidEvent())):
        endpoint = Endpoint(name=name, base_url="http://127.0.0.1:1/v1", api_key_env="")
        made = plan.make([endpoint], chosen, probes, settings=plan.Settings(deadline=30.0), globs=[])
        virtual.run(
            carry_out(made, probes, folder / name, partial(_transport, server), now=lambda: DAY), limit=86_400.0
        )
    return folder / "one", folder / "two"


def test_the_sample_is_written_anew_with_its_pictures_and_no_others(runs, tmp_path, capsys):
    (tmp_path / "figure-old.svg").write_text("old")
    (tmp_path / "README.md").write_text("by hand")
    assert sample.main([*map(str, runs), "--title", "Can it?"], tmp_path) == 0
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert report.startswith("# Can it?\n")
    assert "`streaming.frames`" in report
    shown = set(re.findall(r"\]\((figure-[a-z-]+\.svg)\)", report))
    assert shown == {path.name for path in tmp_path.glob("figure-*.svg")}
    assert (tmp_path / "README.md").read_text() == "by hand"
    assert "report.md" in capsys.readouterr().out


def test_the_command_to_make_it_again_names_no_path_of_this_machine(runs, tmp_path):
    left, right = map(str, runs)
    sample.write(left, right, tmp_path)
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "servecheck compare runs/one runs/two --out one-two\n" in report
    assert str(runs[0].parent) not in report


def test_what_is_no_recording_is_refused_with_the_reason(tmp_path, capsys):
    assert sample.main([str(tmp_path / "no"), str(tmp_path / "none")], tmp_path / "sample") == 2
    assert str(tmp_path / "no") in capsys.readouterr().err
    assert not (tmp_path / "sample").exists()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("at /srv/lab/sglang/venv/lib/server.py:12", "at …/server.py:12"),
        ("'/home/me/models/m-1.0'", "'…/m-1.0'"),
        ("/home/you/x and http://h/srv/x and a/srv/x", "/home/you/x and http://h/srv/x and a/srv/x"),
        ("/srvless/x", "/srvless/x"),
        ("/srv/a, /srv/b.", "…/a, …/b."),
    ],
)
def test_paths_of_the_machine_are_shortened_and_others_stay(given, shown):
    assert sample.without_paths(given, ["/srv/lab/runs/one", "/home/me/runs", ""]) == shown
