"""Help, listings and explanations are told whole and soon; what they cost is measured beside an empty command."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from servecheck import cli, entry, features
from servecheck.probes import discover
from tests.commands import nowhere, servecheck
from tests.golden import check_golden


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    nowhere(monkeypatch, tmp_path)


COMMANDS = [
    "",
    "run",
    "demo",
    "judge",
    "compare",
    "report",
    "list",
    "list features",
    "explain",
    "schema",
    "lint",
    "selftest",
]
COMMANDS += ["mock", "recompiles", "expect", "history"]


def test_help_is_as_reviewed():
    script = (
        "import sys\nfrom servecheck import cli\n"
        f"for words in {COMMANDS!r}:\n"
        "    print('$ servecheck', *words.split(), '--help', flush=True)\n"
        "    sys.argv = ['servecheck', *words.split(), '--help']\n"
        "    try: cli.main()\n"
        "    except SystemExit as ended: print(f'[exit {ended.code or 0}]', flush=True)\n"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    pinned = {"COLUMNS": "110", "TERM": "dumb", "NO_COLOR": "1", "LANG": "C.UTF-8", "PYTHONUTF8": "1"}
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, env={**env, **pinned}, capture_output=True, text=True, check=True)
    check_golden("cli/help.txt", re.sub(r"[ \t]+$", "", ran.stdout, flags=re.MULTILINE))


@pytest.mark.parametrize("kind", ["features", "probes", "scenarios", "suites", "checks"])
def test_listings_name_everything_in_text_and_in_json(kind):
    text, as_json = servecheck("list", kind), servecheck("list", kind, "--json")
    assert (text.code, as_json.code, text.err, as_json.err) == (0, 0, "", "")
    assert servecheck("list", kind, "--format", "json") == as_json
    rows = json.loads(as_json.out)
    listed, _, _ = text.out.partition("\n\n")  # what the costs are the costs of stands behind an empty line
    assert [line.split()[0] for line in listed.splitlines()] == [row["id"] for row in rows]
    assert len(rows) == len({row["id"] for row in rows})


def test_every_feature_is_listed_in_display_order_with_what_tests_it():
    rows = json.loads(servecheck("list", "features", "--json").out)
    assert [row["id"] for row in rows] == [feature.id for feature in features.FEATURES]
    chat = next(row for row in rows if row["id"] == "chat.basic")
    assert chat["probes"] == ["chat_basic"]
    assert {"id", "title", "group", "core", "question", "probes"} <= chat.keys()
    assert servecheck("list", "features").out.count("no-probe") == sum(not row["probes"] for row in rows)


def test_everything_that_is_listed_can_be_explained():
    probes = discover()
    checks = [check.id for probe in probes.values() for check in probe.checks]
    for name in (*checks, *probes, *features.BY_ID, "server-stays-healthy", "reply-comes-within-the-deadline"):
        said = servecheck("explain", name)
        assert (said.code, said.err) == (0, ""), name
        assert len(said.out) > 60, name


def test_a_row_is_explained_with_the_probes_and_checks_that_serve_it():
    said = servecheck("explain", "chat.context_limit").out
    assert "probe context_limit, risk safe, in the scenario over-the-limit: " in said
    assert "probe context_near, risk load, in the scenario near-the-limit: " in said
    assert "  too-long-prompt-is-refused (must)\n    A prompt longer than the context limit gets a 4xx" in said


@pytest.mark.parametrize("name", ["scenario", "results", "endpoints"])
def test_schemas_are_printed_as_json(name):
    said = servecheck("schema", name)
    assert said.code == 0
    assert json.loads(said.out)["$schema"].startswith("http://json-schema.org/draft-07/")


@pytest.mark.parametrize("columns", ["80", "100"])
def test_no_help_of_an_option_is_cut_off(columns: str):
    told = "import sys\nfrom servecheck import cli\nsys.argv = ['servecheck', 'run', '--help']\ncli.main()"
    env = {**unadorned(), "COLUMNS": columns, "NO_COLOR": "1"}
    ran = subprocess.run([sys.executable, "-c", told], env=env, capture_output=True, encoding="utf-8", check=True)
    assert "--budget" in ran.stdout
    assert [line for line in ran.stdout.splitlines() if "…" in line] == []


def test_the_version_is_printed():
    said = servecheck("--version")
    assert said.code == 0
    assert re.fullmatch(r"servecheck \d+\.\d+\.\d+\n", said.out)


def unadorned() -> dict[str, str]:
    """Return an environment that asks for no width and no colours."""
    env = {name: value for name, value in os.environ.items() if name not in entry.ASK_THE_REAL_ONE}
    return env | {"PYTHONPATH": str(Path(cli.__file__).parents[2]), "PYTHONUTF8": "1"}


def plain(code: str) -> str:
    """Return what a text of Python prints into a pipe."""
    return subprocess.run(
        [sys.executable, "-c", code], env=unadorned(), capture_output=True, encoding="utf-8", check=True
    ).stdout


def test_the_help_that_is_told_from_a_file_is_the_help_of_the_command_line():
    real = plain("import sys\nfrom servecheck import cli\nsys.argv = ['servecheck', '--help']\ncli.main()")
    if os.environ.get("UPDATE_GOLDENS"):
        Path(entry.HELP).write_text(real, encoding="utf-8", newline="\n")

    asked = "import sys\nfrom servecheck import entry\nsys.argv = ['servecheck', '{}']\nentry.main()"

    assert [plain(asked.format(word)) for word in ("--help", "-h")] == [real, real]


@pytest.mark.parametrize(("name", "value"), [("COLUMNS", "60"), ("FORCE_COLOR", "1")])
def test_help_with_a_width_or_with_colours_is_not_told_from_the_file(name: str, value: str):
    told = "import os, sys\nfrom servecheck import entry\nsys.argv = ['servecheck', '--help']\n"
    told += f"os.environ['{name}'] = '{value}'\nentry.main()"

    assert plain(told) != Path(entry.HELP).read_text(encoding="utf-8")


def test_plain_help_costs_less_than_three_times_python():
    code = "import sys\nfrom servecheck import entry\nsys.argv = ['servecheck', '--help']\nentry.main()"

    assert least_cpu(code) < 3 * least_cpu("pass")


def test_help_waits_for_no_http_client():
    script = (
        "import sys\nfrom servecheck import cli\nsys.argv = ['servecheck', 'run', '--help']\n"
        "try: cli.main()\nexcept SystemExit: pass\n"
        "print(sorted({'httpx', 'httpx2', 'openai', 'jinja2', 'jsonschema', 'uvicorn'} & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    ran = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def least_cpu(code: str) -> float:
    """Return the CPU seconds that Python needs for a text, the least of five times."""
    env = unadorned()

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def once() -> float:
        before = spent()
        subprocess.run([sys.executable, "-c", code], env=env, stdout=subprocess.DEVNULL, check=True)
        return spent() - before

    return min(once() for _ in range(5))


def test_help_costs_little_more_than_the_help_of_an_empty_command():
    # Any help costs typer and rich thirteen times what Python costs alone; what is ours is measured at a third of that.
    empty = "import sys, typer\nsys.argv = ['empty', '--help']\ntyper.run(lambda: None)"
    ours = "import sys\nfrom servecheck import cli\nsys.argv = ['servecheck', '--help']\ncli.main()"
    assert least_cpu(ours) < 2 * least_cpu(empty)
