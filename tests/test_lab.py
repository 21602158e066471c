"""The lab without its engines: scripts start and stop what they should, pages say what a run found."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab import pages, records
from lab.facts import Agreement, Expect, Fact, agreement, load
from lab.records import CellRecord, Record, record, record_text
from servecheck import features, plan, scenario
from servecheck.errors import ScenarioError
from servecheck.model import Endpoint, Kind, Status
from servecheck.probes import discover
from servecheck.reference import virtual
from servecheck.reference.mutants.streaming_frames import CutMidEvent
from servecheck.run import carry_out, read_back
from servecheck.wire.memory import MemoryTransport
from servecheck.wire.transport import Transport

ROOT = Path(__file__).resolve().parent.parent
LAB = ROOT / "lab"
ENGINES = ("vllm-cpu", "sglang-cpu", "dasllama", "transformers-serve", "litellm")
SCRIPTS = (*ENGINES, "run")

linux = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("curl") is None or shutil.which("bash") is None,
    reason="the lab is for Linux with bash and curl",
)

# --------------------------------------------------------------------------- scripts


@linux
@pytest.mark.parametrize("name", [*SCRIPTS, "common.bash"])
def test_every_script_is_bash(name):
    checked = subprocess.run(["bash", "-n", LAB / name], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_can_be_run(name):
    assert os.access(LAB / name, os.X_OK)


@linux
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("words", [[], ["restart"]])
def test_a_script_without_a_known_verb_says_its_three_verbs(name, words):
    said = subprocess.run([LAB / name, *words], capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert re.findall(rf"lab/{name} (\w+) +\[", said.stderr) == ["setup", "start", "stop"]


@linux
def test_run_names_the_engines_it_knows():
    said = subprocess.run([LAB / "run", "nonesuch"], capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert "vllm, sglang, dasllama, transformers, litellm, or llamacpp" in said.stderr


def test_every_engine_has_a_target():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (engines,) = re.findall(r"^LABS := (.*)$", makefile, re.MULTILINE)
    assert engines.split() == [
        "vllm",
        "sglang",
        "dasllama",
        "transformers",
        "litellm",
        "llamacpp",
    ]


@pytest.fixture
def toy(tmp_path) -> Iterator[Path]:
    """A script like an engine's, whose server is Python's own; flags are the server's program."""
    shutil.copy(LAB / "common.bash", tmp_path)
    script = tmp_path / "toy"
    script.write_text(
        textwrap.dedent(f"""\
        #!/usr/bin/env bash
        . "$(dirname "$0")/common.bash"
        parse "$@"
        case $verb in
        setup) if is_current "a b"; then echo again; exit 0; fi; mkdir -p "$dir"; now_current "a b" ;;
        start) mkdir -p "$dir"; choose_port; cd "$dir"; launch '' {sys.executable} "${{flags[@]}}" "$port"
               await 10 '' responds "http://127.0.0.1:$port/"; ready ;;
        stop) stop_all ;;
        esac
        """),
        encoding="utf-8",
    )
    script.chmod(0o755)
    yield script
    subprocess.run([script, "stop"], env=environment(tmp_path), check=False)


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "LAB_DIR": str(folder / "work")}


def say(script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [script, *words], env=environment(script.parent), capture_output=True, text=True, check=False, timeout=60
    )


SERVER = ("-m", "http.server", "--bind", "127.0.0.1")


def gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@linux
def test_the_second_setup_returns_at_once(toy):
    assert say(toy, "setup").stdout == ""
    assert say(toy, "setup").stdout == "again\n"


@linux
def test_start_prints_the_base_url_and_stop_ends_that_process(toy):
    started = say(toy, "start", *SERVER)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1\n", started.stdout), started.stderr
    (note,) = (toy.parent / "work" / "toy").glob("pid-*")
    pid = int(note.read_text().split()[0])
    assert not gone(pid)
    assert say(toy, "stop").returncode == 0
    assert gone(pid)
    assert not note.exists()


@linux
def test_a_port_that_is_taken_is_refused(toy):
    port = say(toy, "start", *SERVER).stdout.strip().removesuffix("/v1").rpartition(":")[2]
    again = say(toy, "start", "--port", port, *SERVER)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"lab/toy: port {port} is taken\n"


@linux
def test_a_server_that_ends_by_itself_is_reported_with_its_last_words(toy):
    started = say(toy, "start", "-c", "raise SystemExit('no such model')")
    assert started.returncode == 1
    assert started.stderr.startswith("no such model\nlab/toy: it ended by itself; the log is ")
    assert not list((toy.parent / "work" / "toy").glob("pid-*"))


@linux
def test_stop_leaves_a_process_that_only_inherited_the_number(toy):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        work = toy.parent / "work" / "toy"
        work.mkdir(parents=True)
        (work / "pid-4242").write_text(f"{other.pid} 1\n", encoding="utf-8")
        assert say(toy, "stop").returncode == 0
        assert other.poll() is None
        assert not (work / "pid-4242").exists()
    finally:
        other.kill()
        other.wait()


@linux
def test_stop_also_ends_workers_that_outlive_their_server(toy):
    serve = """
import http.server, subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open("worker", "w").write(str(worker.pid))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
    assert say(toy, "start", "-c", serve).returncode == 0
    pid = int((toy.parent / "work" / "toy" / "worker").read_text())
    say(toy, "stop")
    deadline = time.monotonic() + 10
    while not gone(pid):
        assert time.monotonic() < deadline, "the worker is still there"
        time.sleep(0.01)


@linux
def test_an_interrupted_run_stops_its_engine(toy, tmp_path):
    # lab/run beside the toy engine, with a servecheck that never comes to an end.
    shutil.copy(LAB / "run", tmp_path / "run")
    fake = tmp_path / "python"
    fake.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\necho probing >&2\nexec sleep 60\n', encoding="utf-8"
    )
    fake.chmod(0o755)
    script = toy.read_text(encoding="utf-8").replace('"${flags[@]}" "$port"', f'{" ".join(SERVER)} "$port"')
    (tmp_path / "dasllama").write_text(script, encoding="utf-8")
    (tmp_path / "dasllama").chmod(0o755)
    running = subprocess.Popen(
        [tmp_path / "run", "dasllama"],
        env={**environment(tmp_path), "SERVECHECK_PYTHON": str(fake)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stderr is not None
    try:
        assert running.stderr.readline() == "probing\n"
        (note,) = (tmp_path / "work" / "dasllama").glob("pid-*")
        pid = int(note.read_text().split()[0])
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(30) == 130
        assert gone(pid)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        running.stderr.close()


# --------------------------------------------------------------------------- from a run to pages


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Record:
    """The record of a run against a server that lists its models and cuts every stream."""
    folder = tmp_path_factory.mktemp("runs") / "toy"
    probes = discover()
    chosen = [
        each
        for each in scenario.load_all([scenario.builtin_dir()], probes=probes, features=features.BY_ID)
        if each.feature in ("identity.models", "streaming.frames")
    ]
    endpoint = Endpoint(name="toy", base_url="http://127.0.0.1:1/v1", api_key_env="")
    made = plan.make([endpoint], chosen, probes, settings=plan.Settings(deadline=30.0), globs=[])
    server = CutMidEvent()
    day = datetime(2026, 1, 2, tzinfo=UTC)
    virtual.run(
        carry_out(made, probes, folder, lambda each: Transport(each, app=MemoryTransport(server)), now=lambda: day),
        limit=86_400.0,
    )
    return record("toy", read_back(folder, probes))


def test_a_record_holds_the_rows_that_were_run_and_no_others(found):
    (subject,) = found.subjects
    assert {row: cell.status for row, cell in subject.cells.items()} == {
        "identity.models": Status.SUPPORTED,
        "streaming.frames": Status.BROKEN,
    }
    assert subject.cost is not None
    assert subject.cost.requests > 2


def test_a_record_comes_back_from_its_file_as_it_was(found):
    assert Record.model_validate_json(record_text(found)) == found


def test_the_page_of_an_engine_gives_evidence_for_what_is_not_supported_and_only_for_that(found):
    page = pages.engine_page(found)
    assert "Run on 2026-01-02 with servecheck" in page
    assert "| `identity.models` | ✅ supported 1/1 |  |" in page
    (frames,) = re.findall(r"^\| `streaming\.frames` \| ❌ broken 3/3 \| (.*) \|$", page, re.MULTILINE)
    reason = found.subjects[0].cells["streaming.frames"].reason
    assert frames[:20].replace("\\", "") == reason[:20]
    assert f"{len(features.FEATURES) - 2} rows of {len(features.FEATURES)} were not run." in page


def test_the_matrix_has_a_column_per_endpoint_and_a_row_per_row_that_was_run(found):
    other = found.model_copy(
        update={
            "engine": "pair",
            "subjects": [found.subjects[0].model_copy(update={"name": f"pair/{side}", "cells": {}}) for side in "ab"],
        }
    )
    page = pages.matrix_page([found, other], [])
    assert "| Row | [toy](toy.md) | [pair/a](pair.md) | [pair/b](pair.md) |" in page
    assert "| `streaming.frames` | ❌ 3/3 | – | – |" in page
    assert "| `chat.basic`" not in page


def test_a_run_with_a_setting_is_no_column_but_a_list_of_its_cells_and_counts_as_a_decision(found):
    (subject,) = found.subjects
    cells = {"streaming.frames": subject.cells["streaming.frames"]}
    thinking = found.model_copy(
        update={"engine": "toy-thinking", "subjects": [subject.model_copy(update={"cells": cells})]}
    )
    alone = found.model_copy(update={"subjects": [subject.model_copy(update={"cells": {}})]})

    page = pages.matrix_page([alone, thinking], [])

    assert "| Row | [toy](toy.md) |" in page
    assert "| `streaming.frames` | [toy-thinking](toy-thinking.md) | ❌ broken 3/3 |" in page
    alone = [feature for feature in features.FEATURES if feature.kind is not Kind.COMPARISON]
    assert f"1 of {len(alone)} rows are decided on at least one of these engines" in page
    (left,) = re.findall(r"undecided on all of them: (.*)\.$", page, re.MULTILINE)
    assert "`identity.models`" in left
    assert "`streaming.frames`" not in left


def test_a_run_that_measures_a_suite_gives_its_cost_and_no_page_of_its_own(found):
    (subject,) = found.subjects
    named = subject.model_copy(update={"name": "toy-smoke"})
    measured = found.model_copy(update={"engine": "toy-smoke", "suite": "smoke", "subjects": [named]})

    made = pages.pages([found, measured], [])

    assert set(made) == {"toy.md", "README.md", "facts.md"}
    assert named.cost is not None
    assert f"| smoke | `toy` | {named.cost.requests} |" in made["README.md"]


def test_paths_of_this_machine_stay_out_of_a_record(found):
    leaky = found.subjects[0].cells["identity.models"]
    assert str(Path.home()) not in record_text(found)
    run_text = str(ROOT / "x")
    assert records._here(f"model {run_text} in {ROOT}, {ROOT}er") == f"model …/x in …, {ROOT}er"
    assert leaky.reason == records._here(leaky.reason)


def test_the_committed_pages_are_those_of_the_committed_records():
    made = pages.pages(pages._records(pages.PAGES), load(pages.PAGES / "facts.yaml"))
    stale = [name for name, text in made.items() if (pages.PAGES / name).read_text(encoding="utf-8") != text]
    assert stale == [], "make engine-pages"


def test_a_folder_that_is_no_run_is_named(tmp_path, capsys):
    (tmp_path / "facts.yaml").write_text("facts: []\n", encoding="utf-8")
    assert pages.main([str(tmp_path)], tmp_path) == 2
    assert "holds no run.jsonl" in capsys.readouterr().err


# --------------------------------------------------------------------------- statements


def fact(row: str = "chat.basic", **expect: object) -> Fact:
    return Fact(fact="It works.", engine="toy", row=row, expect=Expect.model_validate(expect, strict=False))


def cell(status: Status | None, reason: str = "", value: str | None = None) -> Mapping[str, CellRecord]:
    return {
        "chat.basic": CellRecord(status=status, reason=reason),
        "errors.family": CellRecord(status=None, reason="", value=value),
    }


S = Status


@pytest.mark.parametrize(
    ("expected", "statement", "cells"),
    [
        (Agreement.NOT_RUN, fact(status="supported"), None),
        (Agreement.NOT_RUN, fact(status="supported"), {}),
        (Agreement.AGREES, fact(status="supported"), cell(S.SUPPORTED)),
        (Agreement.DISAGREES, fact(status="supported"), cell(S.DEGRADED)),
        (Agreement.AGREES, fact(status=["supported", "degraded"]), cell(S.DEGRADED)),
        (Agreement.COULD_NOT_TELL, fact(status="supported"), cell(S.INCONCLUSIVE)),
        (Agreement.COULD_NOT_TELL, fact(status="supported"), cell(S.ERROR)),
        (Agreement.AGREES, fact(status="inconclusive"), cell(S.INCONCLUSIVE)),
        (Agreement.AGREES, fact(status="broken", says="done"), cell(S.BROKEN, "no [DONE]")),
        (Agreement.DISAGREES, fact(status="broken", says="done"), cell(S.BROKEN, "no finish")),
        (Agreement.AGREES, fact("errors.family", value="^flat"), cell(None, value="Flat object")),
        (Agreement.DISAGREES, fact("errors.family", value="^flat"), cell(None, value="nested, not flat")),
    ],
)
def test_agreement(expected, statement, cells):
    assert agreement(statement, cells) == expected


def test_the_facts_page_shows_a_disagreement_with_both_sides(found):
    statements = [
        Fact(fact="Streams are whole.", engine="toy", row="streaming.frames", expect=Expect(status=S.SUPPORTED)),
        Fact(fact="Models are listed.", engine="toy", row="identity.models", expect=Expect(status=S.SUPPORTED)),
        Fact(fact="It counts.", engine="toy", row="tokenize.round_trip", expect=Expect(status=S.SUPPORTED)),
    ]
    page = pages.facts_page([found], statements)
    assert "- `toy` `streaming.frames`: Streams are whole. Expected supported, found ❌ broken 3/3: " in page
    assert "| Models are listed. | `identity.models` | supported | ✅ supported 1/1 | ✅ agrees |" in page
    assert "| It counts. | `tokenize.round_trip` | supported | – | ⏭ row not run yet |" in page


GOOD = "facts:\n  - fact: It works.\n    engine: toy\n    row: chat.basic\n    expect: {status: supported}\n"


@pytest.mark.parametrize(
    ("said", "old", "new"),
    [
        ("did you mean 'chat.basic'?", "chat.basic", "chat.basics"),
        ("'notes'", "    engine: toy", "    engine: toy\n    notes: none"),
        ("expects nothing", "{status: supported}", "{}"),
        ("it has a status, not a value", "{status: supported}", "{value: x}"),
        ("it has a value, not a status", "chat.basic", "errors.family"),
        ("is not a regular expression", "{status: supported}", "{says: '('}"),
        ("'supportive'", "{status: supported}", "{status: supportive}"),
    ],
)
def test_a_facts_file_with_a_mistake_is_refused_at_its_place(tmp_path, said, old, new):
    path = tmp_path / "facts.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert len(load(path)) == 1
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(ScenarioError) as refused:
        load(path)
    assert said in str(refused.value)
    assert re.match(r".*facts\.yaml:\d+:\d+: ", str(refused.value))


def test_the_committed_facts_are_about_engines_of_this_lab():
    known = {"vllm", "sglang", "dasllama", "transformers", "litellm", "llamacpp/reference", "llamacpp/candidate"}
    assert {each.engine for each in load(pages.PAGES / "facts.yaml")} == known


def test_no_statement_is_made_twice():
    told = [(each.engine, each.row, each.fact) for each in load(pages.PAGES / "facts.yaml")]
    assert len(set(told)) == len(told)
