"""The action from its first step to its last, night after night, on a real engine whose settings change in between."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servecheck.embedded import pair, weights
from servecheck.embedded.llamacpp import Config, start
from servecheck.history import History
from tests.fake_github import REPOSITORY, TOKEN, FakeGitHub, Job, action, serving

pytestmark = pytest.mark.engine

SCRIPTS = [step["name"] for step in action()["runs"]["steps"] if "run" in step]
ROWS = "chat.basic\ntools.required"


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in tuple(os.environ):
        if name.startswith(("OPENAI_", "SERVECHECK_")) and name != "SERVECHECK_CACHE":
            monkeypatch.delenv(name)


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with serving() as found:
        yield found


class Nights:
    """Jobs on fresh machines that share a GitHub; ``shots`` in the environment keeps what people would read."""

    def __init__(self, folder: Path, github: FakeGitHub) -> None:
        self.folder, self.github = folder, github

    def night(self, name: str, config: Config, more: dict[str, str] | None = None, **inputs: str) -> Job:
        job = Job(self.folder / name, self.github, **(more or {}))
        with start(config) as engine:
            # One trial, so that it takes a second look to be sure of anything.
            given = {"feature": ROWS, "trials": "1", "selftest": "false", "issue": "true", "comment": "true"}
            job.run(endpoint=f"candidate={engine.base_url}", **{**given, **inputs})
        for each in job.ran:
            assert TOKEN not in each.log
            assert "Traceback" not in each.log, each.log
        with contextlib.suppress(KeyError):
            kept = Path(os.environ["ACTION_SHOTS"])
            (kept / f"{name}-summary.md").write_text((job.temp / "summary.md").read_text())
            (kept / f"{name}.json").write_text(json.dumps({"i": self.github.issues, "c": self.github.comments}))
        return job


def told(job: Job) -> dict[str, str]:
    return {key: job.outputs["run"][key] for key in ("decision", "changed", "exit-code")}


def failed(job: Job) -> dict[str, int]:
    return {each.name: each.code for each in job.ran if each.code}


def titles(github: FakeGitHub) -> list[tuple[str, str]]:
    return [(each["state"], each["title"]) for each in github.issues.values()]


def events(tmp_path: Path) -> dict[str, str]:
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 5}}))
    return {"GITHUB_BASE_REF": "main", "GITHUB_REF_NAME": "5/merge", "GITHUB_EVENT_PATH": str(event)}


def test_nights_with_an_artifact_and_a_pull_request_between_them(tmp_path, github):
    model = weights.fetch()
    nights = Nights(tmp_path, github)
    whole = Config(name="whole", model=model, chat_template=pair.template("tools-fewshot"))
    toolless = Config(name="toolless", model=model)

    first = nights.night("1-first", whole, history="artifact", selftest="true")
    assert [each.name for each in first.ran if not each.uses] == SCRIPTS
    assert "seeded faults caught, 0 of" in first.step("Try the instrument").log
    assert "no earlier runs" in first.step("Fetch the history").log
    assert told(first) == {"decision": "ready", "changed": "false", "exit-code": "0"}
    assert (failed(first), github.issues, github.comments) == ({}, {}, {})
    summary = (first.temp / "summary.md").read_text()
    assert "**So far yes: candidate falls short on none of 2 core rows" in summary
    assert "Changed since the run before" not in summary
    assert [each["name"] for each in github.artifacts] == ["servecheck-history"]

    request = nights.night("2-pull-request", toolless, events(tmp_path), history="artifact")
    assert told(request) == {"decision": "not_ready", "changed": "true", "exit-code": "1"}
    assert failed(request) == {"The verdict": 1}
    ((number, comment),) = github.comments.items()
    assert (comment["issue"], github.issues) == (5, {})
    assert comment["body"].startswith("<!-- servecheck:comment Readiness/readiness -->\n")
    assert "| ▼ | `tools.required` on `candidate` | ✅ supported | 🔕 ignored |" in comment["body"]
    above = comment["body"].partition("\n## Decide")[0]
    assert above.index("❌ **No: candidate falls short") < above.index("| ▼ |") < above.index("| Engine |")
    assert f"/{REPOSITORY}/actions/runs/77/artifacts/1)" in above.partition("| Engine |")[0]
    assert [each["name"] for each in github.artifacts] == ["servecheck-history"]

    second = nights.night("3-second", toolless, history="artifact")
    assert told(second) == {"decision": "not_ready", "changed": "true", "exit-code": "1"}
    assert failed(second) == {"The verdict": 1}
    assert "a second look at tools.required" in second.step("Run").log
    looked = json.loads((second.workspace / "servecheck-run-second-look" / "results.json").read_text())
    (cell,) = [each for each in looked["cells"] if each["feature"] == "tools.required"]
    assert (cell["status"], cell["trials"]) == ("ignored", ["ignored"] * 3)
    assert "::error title=tools.required on candidate::ignored" in second.step("Summary and annotations").log
    assert (
        "::warning title=tools.required on candidate changed::tools.required on candidate: supported → ignored\n"
    ) in second.step("Summary and annotations").log
    assert titles(github) == [("open", "servecheck: tools.required got worse on candidate")]
    assert github.issues[1]["labels"] == ["servecheck"]
    assert "| `tools.required` | ✅ supported | 🔕 ignored |" in github.issues[1]["body"]
    assert len(github.comments) == 1

    third = nights.night("4-third", whole, history="artifact")
    assert told(third) == {"decision": "ready", "changed": "true", "exit-code": "0"}
    assert failed(third) == {}
    assert "a second look at tools.required" in third.step("Run").log
    assert titles(github) == [("closed", "servecheck: tools.required got worse on candidate")]
    said = [each["body"] for key, each in github.comments.items() if key != number]
    assert [each.partition(" [The run]")[0] for each in said] == ["`tools.required`: as good as before."]
    assert (
        "| ▲ | `tools.required` on `candidate` | 🔕 ignored | ✅ supported |" in (third.temp / "summary.md").read_text()
    )


def test_nights_with_a_branch_and_rows_that_fall_one_after_the_other(tmp_path, github):
    model = weights.fetch()
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "server" / REPOSITORY)], check=True)
    more = {"GITHUB_SERVER_URL": f"file://{tmp_path / 'server'}"}
    inputs: dict[str, Any] = {"history": "branch", "feature": "tools.required\nmetrics.exposed"}
    nights, tools = Nights(tmp_path, github), pair.template("tools-fewshot")
    jobs = [
        nights.night(
            f"branch-{number}", Config(name="e", model=model, chat_template=template, metrics=metrics), more, **inputs
        )
        for number, (template, metrics) in enumerate([(tools, True), (None, True), (None, False), (tools, True)])
    ]
    assert [told(job)["changed"] for job in jobs] == ["false", "true", "true", "true"]
    assert [failed(job) for job in jobs] == [{}, {"The verdict": 1}, {"The verdict": 1}, {}]
    logs = [job.step("Issue").log.strip() for job in jobs]
    assert logs == [
        "",
        "opened: servecheck: tools.required got worse on candidate",
        "rewrote issue 1",
        "closed issue 1",
    ]
    assert titles(github) == [("closed", "servecheck: metrics.exposed and 1 more got worse on candidate")]
    assert [each["body"].partition(" [The run]")[0] for each in github.comments.values()] == [
        "got worse: `metrics.exposed`.",
        "`metrics.exposed`, `tools.required`: as good as before.",
    ]
    assert github.artifacts == []
    file = tmp_path / "kept.sqlite"
    server = tmp_path / "server" / REPOSITORY
    shown = ["git", "show", "servecheck-history:history.sqlite"]
    file.write_bytes(subprocess.run(shown, cwd=server, capture_output=True, check=True).stdout)
    with History(file) as history:
        assert len(history.runs()) == 4
