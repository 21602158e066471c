"""What there is can be listed and searched, and a mutant has one name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from servecheck import features
from servecheck.reference import mutants
from tests.commands import servecheck


def test_mutants_are_listed_by_name_with_the_row_that_sees_them_and_what_is_wrong_with_them():
    said = servecheck("mock", "--mutant", "list")
    assert said.code == 0
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(line.split()[0] for line in lines)
    assert all(len(line.split(maxsplit=2)) == 3 for line in lines)
    assert {line.split()[1] for line in lines} <= {*features.BY_ID, "own.*"}
    assert said.out == servecheck("list", "mutants").out


def test_each_mutant_is_listed_once():
    listed = [row["id"] for row in json.loads(servecheck("list", "mutants", "--json").out)]
    assert sorted(listed) == sorted(
        f"{probe}/{each.id}" for probe, found in mutants.discover().items() for group in found for each in group
    )
    assert len(listed) == len({*listed})


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (("mutants", "DONE", "streaming.frames"), "streaming_frames/done-"),
        (("features", "json_schema"), "structured.json_schema"),
        (("checks", "ends-with-done", "must"), "completion-stream-ends-with-done"),
        (("scenarios", "json-schema-nonce"), "json-schema-nonce"),
    ],
)
def test_words_leave_only_the_lines_that_have_them_all(words, first):
    some, every = servecheck("list", *words), servecheck("list", words[0])
    lines = some.out.split("\n\n")[0].splitlines()
    assert lines[0].startswith(first)
    assert {*lines} < {*every.out.splitlines()}
    assert all(word.casefold() in line.casefold() for line in lines for word in words[1:])


def test_words_that_are_nowhere_are_said():
    said = servecheck("list", "checks", "zzz", "done")
    assert (said.code, said.out) == (0, "")
    assert said.err == "nothing here has 'zzz' and 'done' in its line\n"


def test_a_name_that_several_faults_have_is_not_guessed():
    said = servecheck("mock", "--mutant", "no-usage")
    assert said.code == 2
    assert "embeddings_basic/no-usage, responses_basic/no-usage" in said.err


@pytest.mark.parametrize("words", [["list", "features"], ["--help"], ["schema", "results"]])
def test_a_full_disk_behind_standard_output_is_said_and_is_no_finding(words):
    with Path("/dev/full").open("w") as full:
        said = subprocess.run(
            [sys.executable, "-m", "servecheck", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (said.returncode, said.stderr) == (
        4, "servecheck: cannot write to standard output: No space left on device\n"
    )  # fmt: skip
