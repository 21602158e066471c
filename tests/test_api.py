"""The library face: what the README shows runs, and importing the package costs nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import servecheck
from servecheck import RunReport, exchange_curl, read_run, run_suite
from servecheck.errors import NothingSelected, ServecheckError, StoreError
from servecheck.model import Status
from servecheck.reference.mock import background
from servecheck.reference.mutants.chat_basic import MUTANTS
from servecheck.reference.server import ReferenceServer
from tests.test_docs import FENCE, readme


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    block = next(block for language, block in FENCE.findall(readme()) if language == "python")
    monkeypatch.chdir(tmp_path)
    for variable in ("OPENAI_API_KEY", "SERVECHECK_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with background(ReferenceServer()) as gpu, background(ReferenceServer()) as tpu:
        here = block.replace("http://gpu.example:8000", gpu).replace("http://tpu.example:8000", tpu)
        here = here.replace('"chat.basic", "streaming.frames"', '"chat.basic"')
        exec(compile(here, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("0 ready So far yes: tpu is not behind gpu on any of 1 core row")


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


def test_the_words_of_the_command_line_mean_the_same_in_the_library(tmp_path):
    with background(MUTANTS[0].make("obedient")) as url:
        report = run_suite(
            [f"one={url}/v1"],
            tmp_path / "run",
            suite="smoke",
            rows=["chat.basic"],
            trials=2,
            budget="requests=100",
            fail_on="any",
            environ={},
        )
    assert (report.suite, report.exit_code) == ("smoke", 1)
    cell = report.cell("chat.basic", "one")
    assert cell is not None
    assert len(cell.trials) == 2
    exchanges = list(report.evidence(cell))
    assert exchanges
    assert all(exchange_curl(each).startswith("curl -sS") and each.url in exchange_curl(each) for each in exchanges)
    assert read_run(tmp_path / "run").exit_code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"suite": "smok"}, "smoke"),
        ({"profile": "agent"}, "agents"),
        ({"allow": ["lode"]}, "load"),
        ({"fail_on": "blockers"}, "blocker"),
        ({"budget": "request=4"}, "requests"),
        ({"expect": "no-such-file.yaml"}, "no-such-file"),
    ],
)
def test_a_wrong_word_is_refused_as_on_the_command_line_before_anything_is_sent(tmp_path, words, said):
    with pytest.raises(ServecheckError, match=said):
        run_suite(["one=http://127.0.0.1:1/v1"], tmp_path / "run", environ={}, **words)
    assert not (tmp_path / "run").exists()


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
