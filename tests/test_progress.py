"""A terminal shows a matrix while a run goes on; anything else gets plain lines, without colours and cursor moves."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from servecheck.model import Case, Status, Trial
from servecheck.progress import Matrix, watching
from servecheck.runner import Progress

S, B = Status.SUPPORTED, Status.BROKEN


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def looked(
    feature: str, endpoint: str, status: Status, number: int = 1, reason: str = "why", place: int = 1
) -> Progress:
    case = Case(id="c", scenario="s", feature=feature, endpoint=endpoint, trial=number)
    trial = Trial(case=case, status=status, reason=reason)
    return Progress(endpoint=endpoint, trial=trial, place=place, places=12)


STEPS = [
    Progress(endpoint="gpu", text="vllm 0.11"),
    looked("chat.basic", "gpu", S),
    looked("chat.stop", "gpu", B, reason="cut [red]here[/red]", place=2),
    looked("chat.stop", "gpu", S, 2, place=2),
    looked("tools.auto", "tpu", S, place=10),
]


def told(file: io.StringIO, *, quiet: bool = False, **more: object) -> str:
    settings = {"file": file, "highlight": False, "width": 60, "soft_wrap": True, "_environ": {"TERM": "xterm"}}
    with watching(quiet=quiet, console=Console(**settings | more)) as watch:  # type: ignore[arg-type]
        for step in STEPS:
            watch(step)
    return file.getvalue()


LINES = [
    "gpu: vllm 0.11",
    "✅  1/12 gpu          chat.basic",
    "❌  2/12 gpu          chat.stop  cut [red]here[/red]",
    "✅  2/12 gpu          chat.stop (look 2)",
    "✅ 10/12 tpu          tools.auto",
]


def test_a_pipe_gets_a_line_for_each_look():
    assert told(io.StringIO()).splitlines() == LINES


@pytest.mark.parametrize("more", [{"force_terminal": True}, {"_environ": {"FORCE_COLOR": "1"}}])
def test_a_pipe_that_is_told_to_be_coloured_gets_no_cursor_moves(more):
    assert "\x1b" not in told(io.StringIO(), **more)


def test_a_terminal_that_knows_no_cursor_gets_lines():
    assert told(Terminal(), _environ={"TERM": "dumb"}).splitlines() == LINES


def test_a_terminal_gets_a_matrix_below_the_lines_that_matter():
    said = told(Terminal())
    assert "\x1b[?25l" in said
    assert said.rstrip().endswith("\x1b[2K")  # the matrix is taken away: the whole one follows
    assert "❌  2/12 gpu          chat.stop  cut [red]here[/red]" in said
    assert "✅  1/12 gpu          chat.basic" not in said


def test_no_color_means_none():
    said = told(Terminal(), _environ={"TERM": "xterm", "NO_COLOR": "1"})
    assert "\x1b[3" not in said.replace("\x1b[31", "X")
    assert "X" not in said


def test_quiet_says_nothing():
    assert told(Terminal(), quiet=True) == ""


def test_the_matrix_has_a_line_for_each_group_and_the_latest_mark_of_each_row():
    matrix = Matrix()
    for step in STEPS:
        matrix.add(step)
    file = io.StringIO()
    Console(file=file, width=60).print(matrix.table())
    assert [line.rstrip() for line in file.getvalue().splitlines()] == [
        "       gpu (2 of 12)  tpu (10 of 12)",
        "chat   ✅✅",
        "tools                 ✅",
    ]


def test_a_matrix_that_is_too_wide_is_cut_and_not_broken():
    matrix = Matrix()
    for number in range(60):
        matrix.add(looked(f"chat.row{number}", "gpu", S))
    file = io.StringIO()
    Console(file=file, width=40).print(matrix.table())
    assert len(file.getvalue().splitlines()) == 2


def test_the_cursor_is_back_when_a_run_fails():
    file = Terminal()
    console = Console(file=file, width=60, _environ={"TERM": "xterm"})

    def interrupted() -> None:
        with watching(quiet=False, console=console) as watch:
            watch(STEPS[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.getvalue().rstrip().rfind("\x1b[?25h") > file.getvalue().rfind("\x1b[?25l")


def test_what_a_server_says_steers_neither_a_terminal_nor_a_workflow(monkeypatch):
    evil = "m\x1b[31m\x1b]0;owned\x07\r\n::set-output name=x::y\u202e"
    monkeypatch.setitem(globals(), "STEPS", [Progress(endpoint="gpu", text=evil), looked("a.b", "gpu", B, reason=evil)])
    lines = told(io.StringIO()).splitlines()
    shown = "m\\x1b[31m\\x1b]0;owned\\x07\\n\\x3a:set-output name=x::y\\u202e"
    assert lines == [f"gpu: {shown}", f"❌  1/12 gpu          a.b  {shown}"]
