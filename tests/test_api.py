"""The library face: what the README shows runs, and importing the package costs nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import servecheck
from servecheck import RunReport, curl, read_run, run_suite
from servecheck.cli import exits
from servecheck.errors import NothingSelected, ServecheckError, StoreError, UnknownName
from servecheck.model import Outcome, Status
from servecheck.plan import Settings
from servecheck.reference import mutants
from servecheck.reference.mock import background
from servecheck.reference.server import ReferenceServer
from tests.sample_runs import RUNS, two_endpoints
from tests.test_docs import FENCE, readme


def faulty(fault: str) -> ReferenceServer:
    return next(each for faults, _ in mutants.discover().values() for each in faults if each.id == fault).make(
        "obedient"
    )


@pytest.mark.parametrize("broken", [False, True])
def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys, broken):
    block = next(block for language, block in FENCE.findall(readme()) if language == "python")
    monkeypatch.chdir(tmp_path)
    for variable in ("OPENAI_API_KEY", "SERVECHECK_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    candidate, code, begins = (
        (faulty("done-missing"), 1, "not_ready No: ")
        if broken
        else (ReferenceServer(), 0, "ready So far yes: tpu is not behind gpu on any of 2 core rows")
    )
    with background(ReferenceServer()) as gpu, background(candidate) as tpu:
        here = block.replace("http://gpu.example:8000", gpu).replace("http://tpu.example:8000", tpu)
        with pytest.raises(SystemExit) as ended:
            exec(compile(here, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert (ended.value.code, said.startswith(begins)) == (code, True), said
    assert (f"curl -sS -N -i -X POST {tpu}/v1/chat/completions" in said) is broken


def test_a_second_run_into_a_folder_says_what_a_program_can_do(tmp_path):
    (tmp_path / "run.jsonl").write_text("")
    with pytest.raises(StoreError, match=r"give another folder, or read that run with read_run\(") as raised:
        run_suite(["one=http://127.0.0.1:9/v1"], str(tmp_path), environ={})
    assert "--" not in str(raised.value)


def test_inside_an_event_loop_a_thread_runs_it(tmp_path):
    async def own(url: str) -> RunReport:
        return await asyncio.to_thread(run_suite, [f"one={url}/v1"], f"{tmp_path}/a", rows=["chat.basic"], environ={})

    with background(ReferenceServer()) as url:
        report = asyncio.run(own(url))
    assert read_run(f"{tmp_path}/a").verdict == report.verdict


def test_a_run_is_returned_and_read_back_with_the_first_check_speaking_for_green(tmp_path):
    with background(ReferenceServer()) as url:
        report = run_suite([f"one={url}/v1"], tmp_path, rows=["chat.basic"], environ={})
    assert isinstance(report, RunReport)
    cell = report.cell("chat.basic", "one")
    assert cell is not None
    assert (cell.status, cell.reason.partition(": ")[0][-10:]) == (Status.SUPPORTED, "characters")
    assert report.instrument is not None
    assert read_run(tmp_path) == report
    assert (tmp_path / "report.html").exists()


def test_a_run_of_other_probes_says_which_probes_judged_it(tmp_path):
    with background(ReferenceServer()) as url:
        report = run_suite([f"one={url}/v1"], tmp_path, rows=["identity.models"], environ={})
    assert report.notes == ()
    recording = tmp_path / "run.jsonl"
    text = (
        recording.read_text("utf-8").replace(report.probes_digest, "0123456789ab").replace('"seeded": ', '"seeded": 9')
    )
    recording.write_text(text, "utf-8")
    anew = read_run(tmp_path)
    assert anew.notes == (f"Recorded by the probes 0123456789ab and judged anew by {report.probes_digest}.",)
    assert (anew.probes_digest, anew.instrument) == (report.probes_digest, report.instrument)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"suite": "smok"}, "did you mean 'smoke'"),
        ({"allow": ["lod"]}, "did you mean 'load'"),
        ({"profile": "agent"}, "did you mean 'agents'"),
        ({"trials": 0}, "from 1 to 100"),
        ({"trials": 2, "settings": Settings()}, "give the one or the others"),
    ],
)
def test_what_is_wrong_with_a_keyword_is_said_before_anything_is_sent(tmp_path, given, says):
    with pytest.raises(ServecheckError, match=says):
        run_suite(["one=http://127.0.0.1:1/v1"], tmp_path / "run", environ={}, **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("level", [None, "blocker", "behind", "any"])
@pytest.mark.parametrize("name", RUNS)
def test_a_report_has_the_exit_code_of_the_command_line(name, level):
    assert exits.code_of(RUNS[name](), level) == RUNS[name]().exit_code(level)


def test_a_level_that_is_none_is_refused():
    with pytest.raises(UnknownName, match="did you mean 'blocker'"):
        two_endpoints().exit_code("bloker")


def test_the_evidence_of_a_cell_begins_with_what_did_not_hold_and_has_a_command():
    run = two_endpoints()
    cell = run.cell("streaming.frames", "tpu")
    assert cell is not None
    bad = next(one.evidence for one in cell.findings if one.outcome is not Outcome.HELD)
    found = run.evidence(cell)
    assert [bad[0], len(found)] == [found[0].id, len({one.id for one in found})]
    assert curl(found[0]).startswith(f"curl -sS -N -i -X {found[0].method}")


def test_nothing_is_sent_where_nothing_is_selected(tmp_path):
    with pytest.raises(NothingSelected, match=r"nothing to run: --feature logprobs\.prompt"):
        run_suite(["one=http://127.0.0.1:1/v1"], tmp_path / "run", rows=["logprobs.prompt"], environ={})
    assert not (tmp_path / "run").exists()


def test_a_folder_without_a_run_is_no_report(tmp_path):
    with pytest.raises(StoreError, match="is not a run folder"):
        read_run(tmp_path)


def test_the_package_names_what_it_exports():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        servecheck.nothing  # noqa: B018
    assert all(hasattr(servecheck, name) for name in servecheck.__all__)


def test_importing_the_package_imports_no_http_client():
    code = "import sys, servecheck; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parent.parent).returncode == 0
