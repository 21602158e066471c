"""The command line as its users see it: whole output and exit code, against servers on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from servecheck import features
from servecheck.errors import nearest
from servecheck.reference.asgi import Reply, Request, json_reply
from servecheck.reference.mock import background
from servecheck.reference.server import ReferenceServer
from servecheck.report.files import FORMATS
from tests.commands import QUICK, REPORTS, end, mocked, nowhere, servecheck, shown
from tests.golden import check_golden


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    nowhere(monkeypatch, tmp_path)


@contextlib.contextmanager
def listening(backlog: int = 8) -> Iterator[str]:
    """A port that accepts connections and never answers."""
    with socket.socket() as quiet:
        quiet.bind(("127.0.0.1", 0))
        quiet.listen(backlog)
        yield f"http://127.0.0.1:{quiet.getsockname()[1]}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with background(ReferenceServer(decode_seconds=0.001)) as found:
        yield found


@pytest.fixture(scope="module")
def recorded(url, tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("recorded") / "run"
    assert servecheck("run", url, "--out", folder, "-q", *QUICK).code == 0
    return folder


# --------------------------------------------------------------------------- usage


SCENARIO = """\
schema: servecheck/scenario/v1
id: mine
title: Mine
feature: chat.basic
probe: chat_basic
why: Because.
with:
  max_token: 5
"""


SHORT_LADDER = """\
schema: servecheck/scenario/v1
id: short-ladder
title: A short ladder
feature: compile.recompilation
probe: compile_recompilation
why: Because.
with:
  longest: 128
  batches: []
  features: []
"""


def test_every_mistake_is_one_message_with_the_nearest_name_and_its_exit_code(tmp_path):
    """One golden for all: nothing is sent by any of them, so the host is one that nobody serves."""
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("")
    (tmp_path / "traffic.csv").write_text("prompt_token,output_tokens\n12,7\n")
    (tmp_path / "ends.yaml").write_text("schema: servecheck/endpoints/v1\nendpoints: {gpu: {base_uri: 'http://gpu'}}\n")
    (tmp_path / "work.yaml").write_text(
        "schema: servecheck/workload/v1\njson_schemas: {a: {fille: a.json}}\ntool: []\n"
    )
    (tmp_path / "work.jsonl").write_text('{"question": "How are you?"}\n')
    host = "http://127.0.0.1:9999"
    sessions = [
        servecheck_lines
        for words in (
            ["run"],
            ["run", "gpu"],
            ["run", "http://user:pass@gpu"],
            ["run", host, "--feature", "chat.basics"],
            ["run", host, "--feature", "nope"],
            ["run", host, "--feature", "nope*"],
            ["run", host, "--suite", "smokey"],
            ["run", host, "--fail-on", "blockers"],
            ["run", host, "--allow", "dangerus"],
            ["run", host, "--budget", "reqests=4"],
            ["run", host, "--budget", "reqests=4", "--dry-run"],
            ["run", host, "--scenario", "mine.yaml"],
            ["run", host, "--scenario", "none.yaml"],
            ["run", host, "--workload", "work.yaml"],
            ["run", host, "--workload", "none.yaml"],
            ["run", host, "--workload", "work.jsonl"],
            ["run", host, "--endpoints", "ends.yaml"],
            ["run", host, "--header", "X-Auth-Token: abc"],
            ["run", host, "--header", "Ocp-Apim-Subscription-Key: abc"],
            ["run", host, "--api-key-env", "gpu=KEY"],
            ["run", host, "--api-key-env", "sk-abcdef"],
            ["run", f"a={host}", f"b={host}", "--reference", "aa"],
            ["run", host, "--out", "full"],
            ["run", host, "--out", "file"],
            ["run", host, "--out", "file/below"],
            ["run", host, "--resume", "full"],
            ["run", "--resume", "nowhere"],
            ["run", "--resume", "full"],
            ["run", "--resume", "full", "--suite", "smoke", "-m", "m"],
            ["run", "--resume", "full", "--workload", "work.yaml"],
            ["judge", "nowhere"],
            ["expect", "nowhere"],
            ["history", "nowhere"],
            ["run", host, "--profile", "chat-uii"],
            ["run", host, "--profile", "mine.profile.yaml"],
            ["run", host, "--expect", "mine.yaml"],
            ["compare", "nowhere", "nowhere"],
            ["compare", "nowhere", "nowhere", "--unlike", "modle"],
            ["report", "full"],
            ["report", "full", "--format", "markdwn"],
            ["recompiles", "--server-log", "nowhere.log"],
            ["run", host, "--traffic", "nowhere.csv"],
            ["run", host, "--traffic", "traffic.csv"],
            ["list", "features", "--format", "jsn"],
            ["explain", "answer-has-txt"],
            ["explain", "zzz"],
            ["schema", "scenarios"],
            ["lint", "mine.yaml"],
            ["lint", "none.yaml"],
            ["lint", "work.yaml"],
            ["mock", "--mutant", "done-missin"],
            ["mock", "--language", "obedien"],
            ["demo", "--out", "full"],
            ["demo", "--out", "file"],
            ["demo", "--feature", "nope*", "--dry-run"],
        )
        for servecheck_lines in [shown(words, servecheck(*words))]
    ]
    check_golden("cli/mistakes.txt", "\n".join(sessions))
    assert not (tmp_path / "runs").exists()
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--nope"],
        ["nope"],
        ["run", "h", "--trials", "0"],
        ["list", "nope"],
        ["report"],
        ["judge", "a", "b"],
    ],
)
def test_an_unknown_flag_or_command_is_exit_2(words):
    said = servecheck(*words)
    assert (said.code, said.out) == (2, "")
    assert "Usage: servecheck" in said.err


def test_a_port_in_use_is_one_message(url):
    said = servecheck("mock", "--port", url.rsplit(":", 1)[1])
    assert said.code == 2
    assert re.fullmatch(r"servecheck: cannot listen on port \d+: .*; --port 0 takes any free one\n", said.err)


def test_a_ca_file_that_is_none_leaves_no_folder_behind(tmp_path):
    (tmp_path / "ca.pem").write_text("no PEM")
    (tmp_path / "e.yaml").write_text(
        "schema: servecheck/endpoints/v1\nendpoints: {gpu: {base_url: 'https://127.0.0.1:9', ca_file: ca.pem}}\n"
    )
    said = servecheck("run", "--endpoints", "e.yaml", "--out", "run")
    assert said.code == 2
    assert said.err.startswith("servecheck: endpoint 'gpu': cannot read ca_file")
    assert not (tmp_path / "run").exists()


# --------------------------------------------------------------------------- runs


def test_a_run_is_shown_as_reviewed(url):
    words = ["run", url, "--out", "run", *QUICK]
    check_golden("cli/run.txt", shown(words, servecheck(*words)))
    assert {path.name for path in Path("run").iterdir()} == REPORTS


def test_two_endpoints_are_compared(url):
    words = ["run", f"gpu={url}", f"tpu={url}", "--out", "run", *QUICK]
    check_golden("cli/run-two.txt", shown(words, servecheck(*words)))


def test_a_dry_run_sends_nothing(url):
    with socket.socket() as watched:
        watched.bind(("127.0.0.1", 0))
        watched.listen()
        watched.settimeout(0.2)
        port = watched.getsockname()[1]
        words = ["run", f"http://127.0.0.1:{port}", "--dry-run", *QUICK]
        check_golden("cli/dry-run.txt", shown(words, servecheck(*words)))
        with pytest.raises(TimeoutError):
            watched.accept()
    assert list(Path.cwd().iterdir()) == []


WORKLOAD = """\
schema: servecheck/workload/v1
json_schemas:
  mood: {inline: {type: object, properties: {mood: {enum: [good, bad]}}, required: [mood]}}
  labels: {inline: {type: array, items: {type: string}, uniqueItems: true}}
tools: [{inline: {type: function, function: {name: book, parameters: {type: object, properties: {}}}}}]
request_logs: [log.jsonl]
"""


def test_a_workload_is_planned_run_and_counted(url, tmp_path):
    (tmp_path / "work.yaml").write_text(WORKLOAD)
    (tmp_path / "log.jsonl").write_text('{"prompt": "Hi"}\n{\n')
    words = [
        "run",
        url,
        "--workload",
        "work.yaml",
        "--feature",
        "tools.required",
        "--feature",
        "structured.json_schema",
    ]
    sessions = [[*words, "--dry-run"], [*words, "--trials", "1", "--out", "run"]]
    check_golden("cli/workload.txt", "\n".join(shown(session, servecheck(*session)) for session in sessions))


def test_quiet_says_the_result_only_and_json_is_the_results_file(url):
    quiet = servecheck("run", url, "--out", "a", "-q", *QUICK)
    assert (quiet.code, quiet.err) == (0, "")
    as_json = servecheck("run", url, "--out", "b", "--json", *QUICK)
    assert (as_json.code, as_json.err) == (0, "")
    assert as_json.out == Path("b/results.json").read_text()
    assert json.loads(as_json.out)["schema"] == "servecheck/results/v1"


def test_a_second_run_on_a_warm_server_says_the_same(url):
    """Words that an earlier run has sent are in the prefix cache, so each run has words of its own."""
    said = [servecheck("run", url, "--out", str(n), "-q", "--feature", "prefix_cache.reuse").code for n in (1, 2)]
    assert said == [0, 0]
    seeds = {json.loads(Path(f"{n}/run.jsonl").read_text().splitlines()[0])["settings"]["seed"] for n in (1, 2)}
    assert len(seeds) == 2
    servecheck("run", url, "--out", "3", "-q", "--seed", "mine", *QUICK)
    assert json.loads(Path("3/run.jsonl").read_text().splitlines()[0])["settings"]["seed"] == "mine"


class Refusing(ReferenceServer):
    """Lists no models, so that one row is unsupported."""

    async def reply_models(self, _: Request) -> Reply:
        return json_reply({"error": {"message": "no list here"}}, 404)


@pytest.mark.parametrize(
    ("fail_on", "two", "expected"),
    [
        (None, False, 1),
        ("any", False, 1),
        ("blocker", False, 1),
        ("any", True, 1),
        (None, True, 1),
        ("behind", True, 1),
    ],
)
def test_fail_on_says_what_makes_the_exit_code(url, fail_on, two, expected):
    with background(Refusing(decode_seconds=0.001)) as bad:
        words = ["run", *([f"gpu={url}"] if two else []), f"tpu={bad}", "--out", "run", "-q", "--model", "reference"]
        said = servecheck(*words, *QUICK, *(["--fail-on", fail_on] if fail_on else []))
    assert said.code == expected
    assert {path.name for path in Path("run").iterdir()} >= REPORTS


def test_a_budget_is_kept(url):
    def spent(folder: str, requests: int, code: int) -> tuple[int, dict[str, str | None]]:
        said = servecheck("run", url, "--out", folder, "-q", "--budget", f"requests={requests}", *QUICK)
        results = json.loads(Path(folder, "results.json").read_text())
        assert said.code == code
        return results["run"]["requests"], {cell["feature"]: cell["skip_code"] for cell in results["cells"]}

    getting_to_know, codes = spent("a", 1, 4)  # not one row was decided
    assert (codes["identity.models"], codes["chat.basic"]) == ("budget", "budget")
    assert spent("b", getting_to_know + 2, 0)[0] == getting_to_know + 2


def test_a_dead_host_is_an_error_with_a_report(tmp_path):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        words = ["run", f"http://127.0.0.1:{bound.getsockname()[1]}", "--out", "run", *QUICK]
        said = servecheck(*words)
    check_golden("cli/dead-host.txt", shown(words, said))
    assert {path.name for path in Path("run").iterdir()} == REPORTS


def test_a_host_that_accepts_and_never_answers_is_an_error_with_a_report(monkeypatch):
    monkeypatch.setattr("servecheck.identify._GET_DEADLINE", 0.3)
    with listening() as quiet:
        words = ["run", quiet, "--out", "run", *QUICK]
        said = servecheck(*words)
    check_golden("cli/silent-host.txt", shown(words, said))
    assert {path.name for path in Path("run").iterdir()} == REPORTS


def test_several_models_must_be_chosen_from_and_the_report_is_there():
    class Two(ReferenceServer):
        def models_list(self):
            return {"object": "list", "data": [{"id": "a"}, {"id": "b"}]}

    with background(Two()) as two:
        said = servecheck("run", f"gpu={two}", "--out", "run", "-q", *QUICK)
    assert said.code == 2
    assert said.err == "servecheck: endpoint 'gpu' serves 2 models (a, b); choose one with --model gpu=ID\n"
    assert {path.name for path in Path("run").iterdir()} == REPORTS


# --------------------------------------------------------------------------- reading runs


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in ("csv", "github")])  # these are no files
def test_a_report_is_printed_as_the_file_that_the_run_wrote(recorded, form):
    said = servecheck("report", recorded, "--format", form)
    names = {"json": "results.json", "junit": "junit.xml", "summary": "summary.md"}
    assert (said.code, said.err) == (0, "")
    assert said.out == (recorded / names.get(form, f"report.{form}")).read_text()


def test_formats_are_what_they_say(recorded):
    json.loads(servecheck("report", recorded, "--format", "json").out)
    ET.fromstring(servecheck("report", recorded, "--format", "junit").out)
    assert servecheck("report", recorded, "--format", "html").out.lower().startswith("<!doctype html>")
    assert servecheck("report", recorded).out.startswith("#")


def test_judging_again_gives_the_same_files_and_exit_code(recorded):
    before = {path.name: path.read_bytes() for path in recorded.iterdir()}
    said = servecheck("judge", recorded)
    assert said.code == 0
    assert {path.name: path.read_bytes() for path in recorded.iterdir()} == before
    assert servecheck("judge", recorded, "--json").out == (recorded / "results.json").read_text()


def test_a_recording_compared_with_itself_is_the_same_and_its_folder_can_be_judged(recorded):
    said = servecheck("compare", recorded, recorded, "--out", "both")
    assert said.code == 0
    assert {path.name for path in Path("both").iterdir()} == REPORTS
    results = json.loads(Path("both/results.json").read_text())
    assert {each["delta"] for each in results["comparisons"]} == {"same"}
    assert [each["reference"] for each in results["endpoints"]] == [True, False]
    before = Path("both/results.json").read_text()
    assert servecheck("judge", "both").code == 0
    assert Path("both/results.json").read_text() == before
    assert servecheck("compare", recorded, recorded, "--out", "both").code == 2


def test_what_a_run_saw_can_be_expected_and_then_passes_until_it_is_fine(url):
    broken, wrong = mocked("--mutant", "cut-says-stop")
    rows = ["--feature", "chat.max_tokens", "-q", "--trials", "1"]
    try:
        assert servecheck("run", wrong, "--out", "first", *rows).code == 1
        assert servecheck("expect", "first", "--out", "known.yaml").code == 0
        assert servecheck("expect", "first", "--out", "known.yaml").code == 2
        assert servecheck("lint", "known.yaml").code == 0
        assert servecheck("judge", "first", "--expect", "known.yaml").code == 0
        anywhere = re.sub(r"    endpoint: .*\n", "", Path("known.yaml").read_text())
        Path("known.yaml").write_text(anywhere)
        assert servecheck("run", wrong, "--out", "second", "--expect", "known.yaml", *rows).code == 0
        assert "matched" in Path("second/report.md").read_text()
    finally:
        broken.terminate()
        end(broken)
    assert servecheck("run", url, "--out", "third", "--expect", "known.yaml", *rows).code == 1
    assert "the row is fine now; take the entry out" in Path("third/report.md").read_text()


def test_a_history_is_begun_by_a_run_and_told_from_then_on(url, recorded):
    for name in ("one", "two"):
        assert servecheck("run", url, "--history", "kept.sqlite", "-q", "--out", name, *QUICK).code == 0
    assert "Compared with" in Path("two/report.md").read_text()
    assert "Nothing changed." in Path("two/report.md").read_text()
    said = servecheck("history", "kept.sqlite")
    assert said.code == 0
    assert said.out.startswith("2 runs, ")
    told = json.loads(servecheck("history", "kept.sqlite", "--add", recorded, "--keep", "2", "--json").out)
    assert len(told["runs"]) == 2
    assert servecheck("history", "kept.sqlite", "--endpoint", "nope").code == 2


def test_a_profile_chooses_the_rows_and_the_question(url):
    planned = servecheck("run", url, "--profile", "rag", "--dry-run")
    assert planned.code == 0
    assert "chat.context_limit" in planned.out
    assert "tools.auto" not in planned.out
    said = servecheck("run", url, "--profile", "rag", "--feature", "chat.basic", "-q", "--out", "run")
    assert "for rag?" in Path("run/report.md").read_text()
    assert said.code == 4


# --------------------------------------------------------------------------- the mock


LOGS = {
    "tpu.log": """\
INFO 11-30 17:40:00 [api_server.py:101] vLLM API server version 0.32.0
(EngineCore_DP0 pid=7) INFO 11-30 17:40:31 [compilation_manager.py:88] Compilation of backbone finished in 28.40 [secs].
(EngineCore_DP0 pid=7) INFO 11-30 17:41:02 [compilation_manager.py:88] Compilation of logits finished in 3.10 [secs].
INFO:     Application startup complete.
(EngineCore_DP0 pid=7) INFO 11-30 17:55:10 [compilation_manager.py:88] Compilation of backbone finished in 24.90 [secs].
(EngineCore_DP0 pid=7) INFO 11-30 17:58:42 [compilation_manager.py:88] Compilation of backbone finished in 31.00 [secs].
(EngineCore_DP0 pid=7) INFO 11-30 17:59:01 [compilation_manager.py:88] Compilation of sampler finished in 2.20 [secs].
""",
    "other.log": "2026/11/30 17:40:00 proxy: listening\n",
}


def test_the_compilations_in_a_log_are_shown_as_reviewed(tmp_path):
    for name, text in LOGS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    sessions = [
        shown(words, servecheck(*words))
        for words in (
            ["recompiles", "--server-log", "tpu.log"],
            ["recompiles", "--server-log", "tpu.log", "--json"],
            ["recompiles", "--server-log", "other.log"],
        )
    ]
    check_golden("cli/recompiles.txt", "\n".join(sessions))


def test_the_cost_is_said_before_a_run_that_loads_a_server_and_not_before_others(url):
    loaded = servecheck("run", url, "--feature", "chat.context_limit", "--allow", "load", "--out", "loaded")
    assert loaded.err.startswith("per endpoint about ")
    assert "per endpoint about" not in servecheck("run", url, *QUICK, "--out", "quick").err


def test_a_sample_of_traffic_is_recorded_with_the_run_and_judged_with_it(url, tmp_path):
    (tmp_path / "traffic.csv").write_text("prompt_tokens\n12\n90\n90\n", encoding="utf-8")
    (tmp_path / "short-ladder.yaml").write_text(SHORT_LADDER)
    words = [
        "run",
        url,
        "--scenario",
        "short-ladder.yaml",
        "--allow",
        "load",
        "--traffic",
        "traffic.csv",
        "--out",
        "a",
        "--json",
    ]
    (cell,) = (
        cell for cell in json.loads(servecheck(*words).out)["cells"] if cell["feature"] == "compile.recompilation"
    )
    again = json.loads(servecheck("judge", "a", "--json").out)
    assert cell in again["cells"]
    figures = next(found["measured"] for found in cell["findings"] if found["check"] == "first-use-is-as-quick")
    assert (figures["traffic_requests"], figures["traffic_share"]) == (3, 0.0)


def test_the_mock_prints_where_it_is_and_ends_on_a_signal():
    mock, url = mocked()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", url)
    mock.send_signal(signal.SIGINT)
    assert end(mock).code == 0


def test_a_mock_wants_the_key_of_a_variable_and_a_mutant_shows_by_it(monkeypatch):
    monkeypatch.setenv("MOCK_KEY", "sesame")
    mock, url = mocked("--mutant", "auth_required/no-key-will-do", "--api-key-env", "MOCK_KEY")
    try:
        broken = servecheck("run", url, "--feature", "auth.required", "--api-key-env", "MOCK_KEY", "--out", "open")
        wrong = servecheck("run", url, *QUICK, "--api-key-env", "none", "--out", "none")
    finally:
        mock.send_signal(signal.SIGINT)
        said = end(mock)
    assert "with the key in MOCK_KEY; Ctrl-C" in said.err
    assert "sesame" not in said.err + said.out + broken.out + broken.err
    assert "auth.required" in broken.out
    assert "broken" in broken.out
    assert broken.code == 1
    assert wrong.code != 4  # this one lets in whoever sends no key


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--mutant", "auth_required/forbids"), "it shows only where a key is wanted; --api-key-env VARIABLE"),
        (("--api-key-env", "UNSET_VARIABLE"), "the variable is not set, or holds nothing"),
        (("--api-key-env", "sk-this-is-the-key"), "--api-key-env: "),
    ],
)
def test_a_mock_that_cannot_want_its_key_says_so_and_does_not_start(words, told):
    said = servecheck("mock", *words)
    assert said.code == 2
    assert told in said.err
    assert "sk-this" not in said.err


def test_a_mutant_that_shows_with_one_model_only_is_served_with_it():
    mock, _ = mocked("--mutant", "parity_walk/logits-one-percent-off")
    mock.send_signal(signal.SIGINT)
    assert "It shows with --language babbling only: what it is compared with needs the same" in end(mock).err


@pytest.mark.parametrize(
    ("words", "listed"),
    [
        (("report", "x", "--format", "pdf"), "there are md, "),
        (("judge", "x", "--fail-on", "zzz"), "there are blocker, behind, any"),
        (("schema", "zzz"), "there are scenario, results, "),
    ],
)
def test_a_value_that_is_like_none_is_answered_with_those_that_there_are(words, listed):
    said = servecheck(*words)
    assert (said.code, listed in said.err) == (2, True)


@pytest.mark.parametrize("again", [("judge", "run", "-q"), ("run", "URL", "--out", "other", "-q")])
def test_quiet_is_the_answer_and_where_the_report_is(url, again):
    servecheck("run", url, "--out", "run", "-q", *QUICK)
    rows = QUICK if again[0] == "run" else []
    said = servecheck(*(url if word == "URL" else word for word in again), *rows)
    assert said.err == ""
    assert [line.partition(":")[0] for line in said.out.splitlines()][::2] == ["So far yes", "report"]
    assert len(said.out.splitlines()) == 3


def test_no_thread_is_left_behind(url):
    servecheck("run", url, "--out", "run", "-q", *QUICK)
    assert {thread.name for thread in threading.enumerate() if not thread.daemon} <= {"MainThread"}


def test_the_nearest_name_is_near():
    assert nearest("chat.basics", features.BY_ID) == "chat.basic"
    assert nearest("zzz", features.BY_ID) == ""


@pytest.mark.parametrize("words", ["list features", "run --help"])
def test_a_reader_that_has_had_enough_is_no_finding(words):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "servecheck", *words.split()]
    said = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize("option", ["--deadline", "--wait-ready"])
@pytest.mark.parametrize("seconds", ["inf", "nan", "1e300", "-1"])
def test_seconds_that_no_clock_can_wait_are_a_usage_error(option, seconds):
    said = servecheck("run", "http://127.0.0.1:9/v1", option, seconds, "--dry-run")
    assert said.code == 2
    assert option in said.err
