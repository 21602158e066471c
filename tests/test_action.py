"""The action does what it says: each step runs as on a runner, inputs stay words, and nights follow one another."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from servecheck import cli
from servecheck.ci import __main__ as ci
from servecheck.ci import kept
from servecheck.ci.inputs import Inputs
from servecheck.ci.job import job_name
from servecheck.ci.workflow import annotation, commands_off, outputs, summary
from servecheck.errors import ServecheckError, UnknownName, UsageError
from servecheck.history import History
from servecheck.reference import mutants
from servecheck.reference.mock import background
from servecheck.reference.server import ReferenceServer
from servecheck.wire.github_rest import GitHub, GitHubError
from servecheck.yamlfile import read
from tests.fake_github import REPOSITORY, ROOT, TOKEN, FakeGitHub, Job, action, serving

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
STARTER = ROOT / "servecheck" / "starter" / "servecheck.yml"
STEPS = action()["runs"]["steps"]


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in tuple(os.environ):
        if name.startswith(("OPENAI_", "SERVECHECK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for the commands that steps begin: this tree, not an installed one


@pytest.fixture
def github():
    with serving() as found:
        yield found


def broken() -> ReferenceServer:
    """The reference server with one fault in its streams."""
    return next(each for faults, _ in mutants.discover().values() for each in faults if each.id == "done-missing").make(
        "obedient"
    )


# --------------------------------------------------------------------------- the file


def test_no_input_is_put_into_a_script():
    assert [step["name"] for step in STEPS if "${{" in step.get("run", "")] == []


def test_every_input_reaches_a_step():
    used = set(re.findall(r"inputs\.([a-z-]+)", json.dumps(STEPS)))
    assert set(action()["inputs"]) == used


def test_a_step_gets_an_input_under_its_own_name():
    given = {name: value for step in STEPS for name, value in step.get("env", {}).items() if name[:4] != "JOB_"}
    assert given == {name: f"${{{{ inputs.{name[6:].lower().replace('_', '-')} }}}}" for name in given}


def test_only_the_steps_that_talk_to_github_get_the_token():
    assert [step["name"] for step in STEPS if "INPUT_TOKEN" in step.get("env", {})] == [
        "Fetch the history",
        "Comment",
        "Issue",
        "Keep the history",
    ]


def test_every_step_of_the_module_is_in_the_action():
    assert list(ci.STEPS) == re.findall(r"servecheck\.ci (\w+)", json.dumps(STEPS))


@pytest.mark.parametrize("path", [ROOT / "action.yml", STARTER, *WORKFLOWS], ids=lambda path: path.name)
def test_actions_of_others_are_pinned_to_a_commit_and_named_with_their_version(path):
    found = re.findall(r"uses: (.*)", path.read_text())
    theirs = [uses for uses in found if uses not in ("./", "$ACTION")]
    assert theirs
    assert [each for each in theirs if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


@pytest.mark.parametrize("path", [STARTER, *WORKFLOWS], ids=lambda path: path.name)
def test_a_workflow_has_least_permissions_concurrency_and_a_time_limit(path):
    data = read(path).data
    assert isinstance(data, dict)
    assert data["permissions"] in ({}, {"contents": "read"})
    assert isinstance(data["concurrency"], dict)
    assert isinstance(data["jobs"], dict)
    for job in data["jobs"].values():
        assert isinstance(job, dict)
        assert isinstance(job["timeout-minutes"], int)
        allowed = job.get("permissions", {})
        assert isinstance(allowed, dict)
        assert {name for name, right in allowed.items() if right == "write"} <= {"issues"}


def actionlint(*paths: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    beside = Path(sys.executable).with_name("actionlint")
    tool = str(beside) if beside.exists() else shutil.which("actionlint")
    if tool is None:
        pytest.skip("actionlint is not installed; the extra [actions] brings it")
    return subprocess.run([tool, "-no-color", *map(str, paths)], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path):
    """A repository with our action and all workflows, the one for users under its own name."""
    shutil.copy(ROOT / "action.yml", tmp_path)
    shutil.copytree(ROOT / ".github", tmp_path / ".github")
    text = STARTER.read_text().replace("$ACTION", "./")
    (tmp_path / ".github/workflows/starter.yml").write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def test_actionlint_finds_nothing(checkout):
    done = actionlint(cwd=checkout)
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


def test_actionlint_knows_the_inputs_of_the_action(checkout):
    path = checkout / ".github/workflows/starter.yml"
    path.write_text(path.read_text().replace("expect:", "expects:"))
    assert '"expects" is not defined in action "servecheck"' in actionlint(cwd=checkout).stdout


# --------------------------------------------------------------------------- a job


def test_a_job_runs_every_step_and_fails_with_the_verdict(tmp_path, github):
    job = Job(tmp_path, github)
    with background(broken()) as url:
        job.run(
            endpoint=f"mock={url}/v1",
            feature="streaming.frames\nchat.basic",
            selftest="false",
            history="artifact",
            comment="true",
            issue="true",
        )
    scripts = [step["name"] for step in STEPS if "run" in step]
    assert scripts == [each.name for each in job.ran if not each.uses]
    assert {each.name: each.code for each in job.ran if each.code} == {"The verdict": 1}
    assert f"install --quiet --disable-pip-version-check {ROOT}" in (tmp_path / "pip.log").read_text()
    assert job.outputs["run"] == {
        "folder": "servecheck-run",
        "report": "servecheck-run/report.md",
        "artifact": "servecheck-run",
        "decision": "not_ready",
        "sentence": "No: mock falls short on 1 of 2 core rows (streaming.frames broken); 42 of 44 core rows not run.",
        "changed": "false",
        "exit-code": "1",
    }
    assert (job.workspace / "servecheck-run" / "report.md").exists()
    assert "::error title=streaming.frames on mock::broken" in job.step("Summary and annotations").log
    assert (job.temp / "summary.md").read_text() == (job.workspace / "servecheck-run" / "summary.md").read_text()
    uploads = [each.given["name"] for each in job.ran if each.uses.startswith("actions/upload-artifact@")]
    assert uploads == ["servecheck-run", "servecheck-history"]
    assert "not a pull request" in job.step("Comment").log
    assert github.issues == {}
    assert TOKEN not in "".join(each.log for each in job.ran)


def test_a_run_that_cannot_be_made_fails_in_its_own_step(tmp_path, github):
    job = Job(tmp_path, github)
    job.run(endpoint="not a url", selftest="false")
    assert job.step("Run").code == 2
    assert "::error title=servecheck::nothing was told about any endpoint (exit 2)" in job.step("Run").log
    assert "Summary and annotations" not in [each.name for each in job.ran]


# --------------------------------------------------------------------------- night after night


@pytest.fixture
def in_process(monkeypatch):
    """Begin servecheck in this process, where all is imported; that it can be begun is seen above."""

    def servecheck(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["servecheck", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code

    monkeypatch.setattr(ci, "_servecheck", servecheck)


class Nights:
    """Jobs that share a GitHub, each with a fresh machine."""

    def __init__(self, folder: Path, github: FakeGitHub) -> None:
        self.folder, self.github, self.number = folder, github, 0

    def night(self, server: ReferenceServer, **more: str) -> tuple[dict[str, str], dict[str, str]]:
        """Run the steps of one night in this process; return the outputs of the run and the environment."""
        self.number += 1
        job = Job(self.folder / str(self.number), self.github)
        environ = job.environ() | {
            "INPUT_HISTORY": "artifact",
            "INPUT_FEATURE": "streaming.frames",
            "INPUT_OUT": str(job.workspace / "run"),
            "INPUT_TOKEN": TOKEN,
            "GITHUB_OUTPUT": str(job.temp / "output"),
            **more,
        }
        with background(server) as url:
            environ["INPUT_ENDPOINT"] = f"mock={url}/v1"
            for step in ("fetch", "run", "tell", "issue", "keep"):
                assert ci.main([step], environ) == 0, step
        lines = (line.partition("=") for line in (job.temp / "output").read_text().splitlines())
        found = {key: value for key, _, value in lines}
        if "file" in found:
            self.github.upload(found["name"], Path(found["file"]))
        return found, environ


def test_a_row_that_falls_opens_an_issue_and_one_that_rises_closes_it(tmp_path, github, in_process, capsys):
    nights = Nights(tmp_path, github)
    first, _ = nights.night(ReferenceServer())
    assert (first["decision"], first["changed"], github.issues) == ("ready", "false", {})

    second, environ = nights.night(broken())
    assert (second["decision"], second["changed"]) == ("not_ready", "true")
    assert [each["title"] for each in github.issues.values()] == ["servecheck: streaming.frames got worse on mock"]
    assert "| `streaming.frames` | ✅ supported | ❌ broken |" in github.issues[1]["body"]
    assert "::warning title=streaming.frames on mock changed::" in capsys.readouterr().out
    assert ci.main(["end"], environ) == 1

    third, environ = nights.night(ReferenceServer())
    # One good look at a row that was broken might be luck: it is looked at again before anything is closed.
    assert (Path(environ["INPUT_OUT"]).with_name("run-second-look") / "results.json").exists()
    assert (third["changed"], github.issues[1]["state"]) == ("true", "closed")
    assert [each["body"].partition(" [The run]")[0] for each in github.comments.values()] == [
        "`streaming.frames`: as good as before."
    ]
    with History(Path(third["file"])) as history:
        assert [decision for _, _, decision, _ in history.runs()] == ["ready", "not_ready", "ready"]


def test_a_pull_request_gets_one_comment_and_leaves_history_and_issues_alone(tmp_path, github, in_process):
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 5}}))
    nights = Nights(tmp_path, github)
    found, environ = nights.night(
        broken(), GITHUB_BASE_REF="main", GITHUB_REF_NAME="5/merge", GITHUB_EVENT_PATH=str(event)
    )
    assert "file" not in found
    github.comments[1] = {"id": 1, "issue": 5, "user": {"type": "User"}, "author_association": "NONE", "body": ""}
    assert ci.main(["comment"], environ) == 0
    stranger, ours = github.comments[1], github.comments[2]
    assert ours["body"].startswith("<!-- servecheck:comment Readiness/readiness/")
    assert "streaming.frames" in ours["body"]
    stranger["body"] = ours["body"].replace("streaming.frames", "nothing at all")
    ours["body"] = ours["body"].splitlines()[0] + "\nof an earlier push"
    assert ci.main(["comment"], environ) == 0
    assert "streaming.frames" in github.comments[2]["body"]
    assert "nothing at all" in github.comments[1]["body"]
    assert {1, 2} == set(github.comments)


def test_a_second_use_in_a_job_begins_without_what_the_first_left(tmp_path, github, capsys):
    github.upload("one", sqlite(tmp_path / "history.sqlite"))
    environ = Job(tmp_path, github).environ() | {"INPUT_HISTORY": "artifact"}
    assert ci.main(["fetch"], environ | {"INPUT_HISTORY_NAME": "one"}) == 0
    assert ci.main(["fetch"], environ | {"INPUT_HISTORY_NAME": "other"}) == 0
    assert capsys.readouterr().out.splitlines() == ["0 earlier runs", "no earlier runs"]
    assert not Inputs.of(environ).history_file.exists()


def test_a_history_that_cannot_be_read_is_begun_anew(tmp_path, github, capsys):
    file = tmp_path / "history.sqlite"
    file.write_bytes(b"not a database, " * 100)
    github.upload("servecheck-history", file)
    environ = Job(tmp_path, github).environ() | {"INPUT_HISTORY": "artifact"}
    assert ci.main(["fetch"], environ) == 0
    assert "what was kept cannot be read" in capsys.readouterr().out
    assert not Inputs.of(environ).history_file.exists()


def test_a_history_with_a_damaged_page_is_noticed_before_a_run_is_made(tmp_path, github, capsys):
    file = sqlite(tmp_path / "history.sqlite")
    data = bytearray(file.read_bytes())
    data[4096:] = bytes(byte ^ 0x5A for byte in data[4096:])
    file.write_bytes(data)
    github.upload("servecheck-history", file)
    environ = Job(tmp_path, github).environ() | {"INPUT_HISTORY": "artifact"}
    assert ci.main(["fetch"], environ) == 0
    assert "so this job begins anew" in capsys.readouterr().out


def test_a_history_of_a_later_version_is_left_as_it_is(tmp_path, github, capsys):
    file = tmp_path / "history.sqlite"
    with sqlite3.connect(file) as base:
        base.execute("PRAGMA user_version = 9")
    base.close()
    github.upload("servecheck-history", file)
    environ = Job(tmp_path, github).environ() | {"INPUT_HISTORY": "artifact", "GITHUB_OUTPUT": str(tmp_path / "out")}
    assert ci.main(["fetch"], environ) == 0
    sqlite(Inputs.of(environ).history_file)  # what the run makes
    assert ci.main(["keep"], environ) == 0
    said = capsys.readouterr().out
    assert "not read, and left as it is" in said
    assert "not kept" in said
    assert not (tmp_path / "out").exists()


def test_a_night_without_the_server_does_not_hide_what_fell_over_it(tmp_path, github, in_process):
    nights = Nights(tmp_path, github)
    nights.night(ReferenceServer())
    nights.night(ReferenceServer(), INPUT_FEATURE="chat.basic")  # streaming.frames is not asked
    found, _ = nights.night(broken())
    assert found["changed"] == "true"
    assert [each["title"] for each in github.issues.values()] == ["servecheck: streaming.frames got worse on mock"]


def test_jobs_of_a_matrix_have_files_comments_and_issues_of_their_own(tmp_path, github):
    jobs = [Job(tmp_path / each, github, matrix={"device": each, "n": 1}).environ() for each in ("gpu", "tpu")]
    found = [
        Inputs.of({**job, "JOB_MATRIX": json.dumps({"device": each}), "INPUT_ARTIFACT": "servecheck-run"})
        for job, each in zip(jobs, ("gpu", "tpu"), strict=True)
    ]
    assert [each.artifact for each in found] == ["servecheck-run-gpu", "servecheck-run-tpu"]
    assert [each.history.name for each in found] == ["servecheck-history-gpu", "servecheck-history-tpu"]
    assert Inputs.of({"INPUT_ARTIFACT": "mine", "JOB_MATRIX": '{"device": "gpu"}'}).artifact == "mine"
    assert Inputs.of({"INPUT_ARTIFACT": "", "JOB_MATRIX": '{"device": "gpu"}'}).artifact == ""
    assert Inputs.of({"INPUT_ARTIFACT": "servecheck-run", "JOB_MATRIX": "null"}).artifact == "servecheck-run"


def test_the_name_of_a_job_tells_it_from_others_and_ends_no_comment():
    names = [
        job_name({"GITHUB_WORKFLOW": workflow, "GITHUB_JOB": "check", "JOB_MATRIX": matrix})
        for workflow in ("Nightly", "Night-->ly", "Night ly", "Night--ly")
        for matrix in ("null", '{"a": "x y"}', '{"a": "x/y"}', '{"a": ["x", "-->"]}')
    ]
    assert names[0] == "Nightly/check"
    assert len(set(names)) == len(names)
    assert [name for name in names if "--" in name or ">" in name] == []


def test_a_matrix_reaches_the_steps_and_two_of_its_jobs_comment_apart(tmp_path, github):
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 5}}))
    with background(ReferenceServer()) as url:
        for device in ("gpu", "tpu"):
            job = Job(tmp_path / device, github, matrix={"device": device}, GITHUB_EVENT_PATH=str(event))
            job.run(endpoint=f"mock={url}/v1", feature="chat.basic", selftest="false", comment="true")
            assert job.outputs["run"]["artifact"] == f"servecheck-run-{device}"
    assert [each["body"].splitlines()[0] for each in github.comments.values()] == [
        "<!-- servecheck:comment Readiness/readiness/gpu -->",
        "<!-- servecheck:comment Readiness/readiness/tpu -->",
    ]


def test_what_github_forbids_is_a_warning_and_not_a_finding(tmp_path, github, in_process, capsys):
    github.refuse = 403
    found, _ = Nights(tmp_path, github).night(ReferenceServer())
    said = capsys.readouterr().out
    assert "::warning title=servecheck history::not fetched, so nothing is known of earlier runs" in said
    assert "::warning title=servecheck issue::left as it is: without the history" in said
    assert "Resource not accessible by integration" in said
    assert found["decision"] == "ready"
    # One that could not be read is there, perhaps with a year in it.
    assert "file" not in found


def test_an_issue_without_a_history_is_refused(tmp_path, github, capsys):
    environ = Job(tmp_path, github).environ() | {"INPUT_HISTORY": "none"}
    assert ci.main(["issue"], environ) == 2
    assert "::error title=servecheck::issue: without a history" in capsys.readouterr().out


def test_an_instrument_that_misses_faults_ends_the_job(tmp_path, github, monkeypatch, capsys):
    environ = Job(tmp_path, github).environ() | {"INPUT_SELFTEST": "true"}
    asked: list[tuple[str, ...]] = []

    def fails(*words: str) -> int:
        asked.append(words)
        return 1

    monkeypatch.setattr(ci, "_servecheck", fails)
    assert ci.main(["selftest"], environ) == 1
    assert asked == [("selftest",)]
    assert "::error title=servecheck selftest::" in capsys.readouterr().out


def test_an_unknown_step_is_refused_with_the_nearest(capsys):
    assert ci.main(["tel"], {}) == 2
    assert "did you mean 'tell'?" in capsys.readouterr().out


# --------------------------------------------------------------------------- inputs


def test_inputs_are_words_whatever_is_in_them():
    environ = {
        "INPUT_ENDPOINT": "gpu=http://a/v1; rm -rf /\n  tpu=$(id)  \n\n--out=/etc",
        "INPUT_FEATURE": "chat.*\n`id`",
        "INPUT_SUITE": "smoke --allow dangerous",
        "INPUT_WAIT_READY": "60",
        "INPUT_ENDPOINTS": "endpoints.yaml",
    }
    assert Inputs.of(environ).arguments == (
        "--suite=smoke --allow dangerous",
        "--wait-ready=60",
        "--feature=chat.*",
        "--feature=`id`",
        "--endpoints=endpoints.yaml",
        "--",
        "gpu=http://a/v1; rm -rf /",
        "tpu=$(id)",
        "--out=/etc",
    )


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("INPUT_HISTORY", "artefact", UnknownName),
        ("INPUT_KEEP", "0", UsageError),
        ("INPUT_KEEP", "many", UsageError),
        ("INPUT_SELFTEST", "maybe", UsageError),
    ],
)
def test_an_input_of_another_kind_is_refused(name, value, error):
    with pytest.raises(error):
        Inputs.of({name: value})


# --------------------------------------------------------------------------- what a runner reads


def test_a_text_cannot_become_a_second_command():
    said = annotation("error", "a:,b%", "50% off\n::set-output name=x::y")
    assert said == "::error title=a%3A%2Cb%25::50%25 off%0A::set-output name=x::y"


def test_an_output_cannot_begin_another_one(tmp_path):
    path = tmp_path / "out"
    outputs({"GITHUB_OUTPUT": str(path)}, {"decision": "ready\nchanged=true", "report": "a"})
    assert path.read_text().splitlines() == ["decision=ready changed=true", "report=a"]


def test_a_summary_that_does_not_fit_is_not_written(tmp_path):
    path = tmp_path / "summary"
    path.write_text("x" * (1024 * 1024 - 10))
    assert not summary({"GITHUB_STEP_SUMMARY": str(path)}, "more than ten bytes")
    assert path.stat().st_size == 1024 * 1024 - 10
    assert summary({"GITHUB_STEP_SUMMARY": str(path)}, "ten bytes.")


def test_commands_are_off_while_something_else_prints(capsys):
    with commands_off():
        print("::error::from a server")  # noqa: T201 - a server that is shown
    first, middle, last = capsys.readouterr().out.splitlines()
    assert middle == "::error::from a server"
    assert first.removeprefix("::stop-commands::") == last.strip(":")
    assert len(last.strip(":")) == 32


# --------------------------------------------------------------------------- the history


def sqlite(path: Path) -> Path:
    with History(path):
        return path


def test_the_newest_artifact_of_this_branch_is_taken_and_none_of_a_fork(tmp_path, github):
    file = tmp_path / "history.sqlite"
    for text, more in (
        (b"old", {}),
        (b"new", {}),
        (b"other branch", {"branch": "topic"}),
        (b"a fork's main", {"fork": True}),
    ):
        file.write_bytes(text)
        github.upload("kept", file, **more)
    with GitHub(TOKEN, api=github.url) as api:
        assert kept.from_artifact(api, REPOSITORY, "kept", "main") == (b"new", [])
        assert kept.from_artifact(api, REPOSITORY, "unheard-of", "main") == (None, [])


def test_the_token_goes_to_github_and_not_to_where_the_file_is(tmp_path, github):
    file = tmp_path / "history.sqlite"
    file.write_bytes(b"runs")
    github.upload("kept", file)
    with GitHub(TOKEN, api=github.url) as api:
        kept.from_artifact(api, REPOSITORY, "kept", "main")
        sent = {path: headers.get("authorization") for _, path, headers in github.asked}
        assert [f"Bearer {TOKEN}", f"Bearer {TOKEN}", None] == list(sent.values())
        with pytest.raises(GitHubError, match="the token goes nowhere else"):
            api.download("http://elsewhere.example/x", 10)


def test_the_token_does_not_travel_unencrypted():
    with pytest.raises(UsageError, match="unencrypted"):
        GitHub(TOKEN, api="http://github.example/api/v3")


def damaged(data: bytes, how: str) -> bytes:
    """Return an archive that is not what it was."""
    if how == "cut":
        return data[: len(data) // 2]
    at = data.index(b"history.sqlite") + 200
    return data[:at] + bytes(byte ^ 0xFF for byte in data[at : at + 100]) + data[at + 100 :]


@pytest.mark.parametrize("how", ["cut", "flipped", "other file", "gone"])
def test_an_artifact_that_cannot_be_read_gives_way_to_the_one_before(tmp_path, github, how):
    file = tmp_path / "history.sqlite"
    file.write_bytes(os.urandom(5_000))
    github.upload("kept", file)
    other = tmp_path / "other.txt"
    other.write_text("x")
    github.upload("kept", other if how == "other file" else file)
    if how == "gone":
        del github.blobs["/blob/2"]
    elif how != "other file":
        github.blobs["/blob/2"] = damaged(github.blobs["/blob/2"], how)
    with GitHub(TOKEN, api=github.url) as api:
        data, (wrong,) = kept.from_artifact(api, REPOSITORY, "kept", "main")
    assert data == file.read_bytes()
    assert wrong.startswith("artifact 2")


def test_an_artifact_that_expired_is_not_asked_for(tmp_path, github):
    github.upload("kept", sqlite(tmp_path / "history.sqlite"))
    github.artifacts[0]["expired"] = True
    with GitHub(TOKEN, api=github.url) as api:
        assert kept.from_artifact(api, REPOSITORY, "kept", "main") == (None, [])


def test_a_history_that_nothing_of_is_left_is_begun_anew_and_kept(tmp_path, github, in_process, capsys):
    other = tmp_path / "other.txt"
    other.write_text("x")
    github.upload("servecheck-history", other)
    found, _ = Nights(tmp_path, github).night(ReferenceServer())
    assert "passed over: artifact 1 holds no history.sqlite" in capsys.readouterr().out
    assert "file" in found


def test_a_file_that_is_too_long_is_not_read_to_its_end(tmp_path, github):
    github.blobs["/blob/1"] = b"x" * 1000
    with GitHub(TOKEN, api=github.url) as api, pytest.raises(GitHubError, match="longer than 10 bytes"):
        api.download(f"{github.url}/blob/1", 10)


def test_a_list_goes_on_over_its_pages(github):
    github.comments = {n: {"id": n, "issue": 1, "body": ""} for n in range(1, 251)}
    with GitHub(TOKEN, api=github.url) as api:
        assert list(range(1, 251)) == [each["id"] for each in api.items(f"/repos/{REPOSITORY}/issues/1/comments")]


def test_a_server_that_is_not_there_is_our_trouble():
    with GitHub(TOKEN, api="http://127.0.0.1:9") as api, pytest.raises(GitHubError, match="GET /x") as caught:
        api.get("/x")
    assert caught.value.status is None


@pytest.fixture
def hosted(tmp_path):
    """A place that git can push to, as the environment of a job names it."""
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "server" / REPOSITORY)], check=True)
    return {"GITHUB_SERVER_URL": f"file://{tmp_path / 'server'}", "GITHUB_REPOSITORY": REPOSITORY}


def test_a_branch_keeps_the_file_in_one_commit(tmp_path, hosted):
    assert kept.from_branch(hosted, "runs") == (None, "")
    file = tmp_path / "history.sqlite"
    file.write_bytes(b"one")
    kept.to_branch(hosted, "runs", file, "")
    data, commit = kept.from_branch(hosted, "runs")
    assert data == b"one"
    file.write_bytes(b"two")
    kept.to_branch(hosted, "runs", file, commit)
    data, second = kept.from_branch(hosted, "runs")
    assert data == b"two"
    server = tmp_path / "server" / REPOSITORY
    counted = subprocess.run(["git", "rev-list", "--count", second], cwd=server, capture_output=True, check=True)
    assert counted.stdout == b"1\n"


def test_a_run_is_added_to_what_another_job_wrote_to_the_branch_meanwhile(tmp_path, github, hosted, in_process, capsys):
    nights = [Nights(tmp_path / each, github) for each in ("one", "other")]
    _, environ = nights[0].night(ReferenceServer(), INPUT_HISTORY="branch", **hosted)
    # As if both had begun before either ended.
    Inputs.of(environ).work.joinpath("state.json").write_text('{"fetched": true, "commit": ""}')
    nights[1].night(ReferenceServer(), INPUT_HISTORY="branch", INPUT_FEATURE="chat.basic", **hosted)
    capsys.readouterr()
    assert ci.main(["keep"], environ) == 0
    assert "another job wrote servecheck-history meanwhile" in capsys.readouterr().out
    data, _ = kept.from_branch(hosted, "servecheck-history")
    assert data is not None
    (tmp_path / "both.sqlite").write_bytes(data)
    with History(tmp_path / "both.sqlite") as history:
        assert len(history.runs()) == 2


def test_a_branch_that_another_job_wrote_meanwhile_is_left_as_it_is(tmp_path, hosted):
    file = tmp_path / "history.sqlite"
    file.write_bytes(b"theirs")
    kept.to_branch(hosted, "runs", file, "")
    file.write_bytes(b"ours")
    with pytest.raises(ServecheckError, match="git push"):
        kept.to_branch(hosted, "runs", file, "")
    assert kept.from_branch(hosted, "runs")[0] == b"theirs"
