"""What ``servecheck init`` writes is valid, is said, and never takes the place of a file that is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from servecheck import endpoints, expectations, features, lint, scenario
from servecheck.errors import UsageError
from servecheck.init import ACTION, WORKFLOW, next_steps, starter, write
from servecheck.probes import discover
from servecheck.reference.mock import background
from servecheck.reference.server import ReferenceServer
from servecheck.run import read_back
from servecheck.yamlfile import read
from tests.commands import servecheck, shown
from tests.golden import check_golden

PROBES = discover()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "SERVECHECK_BASE_URL", "SERVECHECK_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_it_writes_and_says_what_to_do_next():
    said = servecheck("init", "--github")
    check_golden("cli/init.txt", shown(["init", "--github"], said))
    assert written(Path()) == {"endpoints.yaml", "scenarios/own-example.yaml", "expectations.yaml", WORKFLOW}


def test_without_github_there_is_no_workflow():
    servecheck("init", "checks")
    assert written(Path()) == {f"checks/{name}" for name in starter(github=False)}
    assert WORKFLOW not in starter(github=False)


def test_what_it_writes_passes_lint():
    write(Path(), starter(github=False))
    paths = [Path(name) for name in starter(github=False)]
    assert lint.lint(paths, probes=PROBES, features=features.BY_ID) == []
    assert [each.name for each in endpoints.load_file(paths[0])] == ["reference", "candidate"]
    assert scenario.load(paths[1], probes=PROBES, features=features.BY_ID).feature == "own.example"
    assert expectations.load(paths[2], features.BY_ID) == ()


def test_the_entry_that_the_expectations_show_is_valid():
    text = starter(github=False)["expectations.yaml"]
    shown_entry = [line.removeprefix("#") for line in text.splitlines() if line.startswith("#  ")]
    Path("e.yaml").write_text("schema: servecheck/expectations/v1\nexpectations:\n" + "\n".join(shown_entry) + "\n")
    (entry,) = expectations.load(Path("e.yaml"), features.BY_ID)
    assert (entry.row, entry.endpoint) == ("chat.n", "candidate")


@pytest.mark.parametrize("name", starter(github=True))
def test_a_file_that_is_there_is_kept_and_named_and_what_is_missing_is_written_beside_it(name):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    said = servecheck("init", "--github")
    told = {line.split()[1]: line.split()[0] for line in said.out.splitlines() if line.startswith(("wrote", "kept"))}
    assert (said.code, told) == (0, {each: "kept" if each == name else "wrote" for each in starter(github=True)})
    assert (path.read_text(), written(Path())) == ("mine", set(starter(github=True)))


def test_a_workflow_comes_to_the_files_of_an_earlier_init():
    servecheck("init")
    said = servecheck("init", "--github")
    assert (said.code, Path(WORKFLOW).is_file()) == (0, True)
    assert f"wrote {WORKFLOW}" in said.out


@pytest.mark.parametrize("words", [[], ["--github"]])
def test_where_all_is_there_nothing_is_written_and_that_is_an_error(words):
    servecheck("init", *words)
    said = servecheck("init", *words)
    assert said.code == 2
    assert "already there, and nothing was written: endpoints.yaml, " in said.err


def test_a_link_that_leads_nowhere_is_there_too():
    Path("endpoints.yaml").symlink_to("nowhere")
    assert "kept  endpoints.yaml" in servecheck("init").out
    assert not Path("nowhere").exists()


def test_a_workflow_that_is_kept_says_where_its_action_is_named_though_other_files_are_written():
    servecheck("init", "--github")
    Path("expectations.yaml").unlink()
    said = servecheck("init", "--github", "--action", f"me/servecheck@{'0' * 40}")
    assert (said.code, f"edit its uses: line in {WORKFLOW}" in said.out) == (0, True)


def test_a_folder_that_cannot_be_made_is_an_error():
    Path("file").write_text("x")
    with pytest.raises(UsageError, match="cannot write into"):
        write(Path("file"), starter(github=False))


def test_the_workflow_uses_the_action_that_it_is_told():
    texts = starter(github=True, action="us/servecheck@0123456789abcdef0123456789abcdef01234567")
    assert "uses: us/servecheck@0123456789abcdef0123456789abcdef01234567\n" in texts[WORKFLOW]
    assert "$" not in texts[WORKFLOW].replace("${{", "")
    assert "where the action is" not in next_steps(Path(), github=True, action="us/servecheck@v1")
    assert "where the action is" in next_steps(Path(), github=True, action=ACTION)


@pytest.mark.parametrize("action", ["servecheck", "us/servecheck", "us/@v1", "us/x@v1 # y", "us/x@v1\n- run: id"])
def test_an_action_that_is_none_is_refused(action):
    assert servecheck("init", "--github", "--action", action).code == 2
    assert written(Path()) == set()


@pytest.mark.parametrize("branch", ["main", "v1", "0123abc"])
def test_an_action_at_a_branch_or_a_tag_is_refused_with_the_command_that_gives_the_commit(branch):
    said = servecheck("init", "--github", "--action", f"me/servecheck@{branch}")
    assert (said.code, written(Path())) == (2, set())
    assert f"git ls-remote https://github.com/me/servecheck {branch}" in said.err


def test_a_second_init_says_where_the_action_is_named():
    servecheck("init", "--github")
    said = servecheck("init", "--github", "--action", f"me/servecheck@{'0' * 40}")
    assert f"edit its uses: line in {WORKFLOW}" in said.err


def test_a_workflow_and_a_manifest_are_known_for_no_files_of_ours():
    write(Path(), starter(github=True))
    Path("cronjob.yaml").write_text("apiVersion: batch/v1\nkind: CronJob\n")
    said = servecheck("lint", WORKFLOW, "cronjob.yaml")
    assert (said.code, said.out.count("this is a")) == (2, 2)
    assert "this is a GitHub workflow and no file of servecheck's" in said.out
    Path("scenarios/cronjob.yaml").write_text("apiVersion: batch/v1\nkind: CronJob\n")
    assert servecheck("lint", "scenarios").code == 0


def test_an_action_without_a_workflow_is_refused():
    assert "only --github writes" in servecheck("init", "--action", "us/servecheck@v1").err


def test_the_workflow_names_files_that_are_written_and_inputs_that_exist():
    data = read_text_as_data(starter(github=True)[WORKFLOW])
    steps = data["jobs"]["readiness"]["steps"]
    given = steps[-1]["with"]
    assert {given["endpoints"], given["expect"]} <= set(starter(github=False))
    assert given["scenario"].split() == ["builtin", "scenarios"]


def read_text_as_data(text: str):
    path = Path("w.yaml")
    path.write_text(text)
    data = read(path).data
    assert isinstance(data, dict)
    return data


def test_the_example_check_holds_on_a_right_server():
    servecheck("init")
    with background(ReferenceServer()) as url:
        said = servecheck("run", f"mock={url}/v1", "--scenario", "scenarios", "--out", "run")
    assert said.code == 0
    cell = read_back(Path("run"), PROBES).cell("own.example", "mock")
    assert cell is not None
    assert cell.status == "supported"


def test_git_would_keep_what_is_written():
    """A name that a usual ignore file hides would be missing on the runner."""
    servecheck("init", "--github")
    subprocess.run(["git", "init", "--quiet"], check=True)
    subprocess.run(["git", "add", "."], check=True)
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.split()
    assert set(listed) == set(starter(github=True))
