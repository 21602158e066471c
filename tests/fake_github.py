"""A GitHub on 127.0.0.1, as much as the action needs, and a runner that executes ``action.yml`` step by step."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from servecheck.yamlfile import read

ROOT = Path(__file__).parent.parent
TOKEN = "token-of-the-job"
REPOSITORY = "owner/repo"
BOT = {"type": "Bot", "login": "github-actions[bot]"}


@dataclass
class FakeGitHub:
    """What the API holds, and what it was asked: method, path and headers of each request."""

    url: str = ""
    issues: dict[int, dict[str, Any]] = field(default_factory=dict)
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    refuse: int | None = None

    def upload(self, name: str, file: Path, *, branch: str = "main", fork: bool = False) -> None:
        """Keep an artifact, as the action that uploads does."""
        number = len(self.artifacts) + 1
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.write(file, file.name)
        self.blobs[f"/blob/{number}"] = packed.getvalue()
        self.artifacts.append(
            {
                "id": number,
                "name": name,
                "expired": False,
                "created_at": f"2026-11-{number:02}T00:00:00Z",
                "archive_download_url": f"{self.url}/repos/{REPOSITORY}/actions/artifacts/{number}/zip",
                "workflow_run": {
                    "head_branch": branch,
                    "repository_id": 1,
                    "head_repository_id": 2 if fork else 1,
                },
            }
        )

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        """Return status and body; a text body is a place to go on to."""
        words = path.removeprefix(f"/repos/{REPOSITORY}").strip("/").split("/")
        match (method, *words):
            case ("GET", "actions", "artifacts"):
                found = [each for each in self.artifacts if each["name"] == query["name"][0]]
                return 200, {"total_count": len(found), "artifacts": self._page(found, query)}
            case ("GET", "actions", "artifacts", number, "zip"):
                return 302, f"{self.url.replace('127.0.0.1', 'localhost')}/blob/{number}"
            case ("GET", "issues"):
                found = [
                    each
                    for each in reversed(self.issues.values())
                    if each["state"] == query["state"][0] and query["labels"][0] in each["labels"]
                ]
                return 200, self._page(found, query)
            case ("POST", "issues"):
                new = len(self.issues) + 1
                self.issues[new] = {"number": new, "state": "open", "user": BOT, **body}
                return 201, self.issues[new]
            case ("PATCH", "issues", "comments", number):
                self.comments[int(number)] |= body
                return 200, self.comments[int(number)]
            case ("PATCH", "issues", number):
                self.issues[int(number)] |= body
                return 200, self.issues[int(number)]
            case ("GET", "issues", number, "comments"):
                found = [each for each in self.comments.values() if each["issue"] == int(number)]
                return 200, self._page(found, query)
            case ("POST", "issues", number, "comments"):
                made = {"id": len(self.comments) + 1, "issue": int(number), "user": BOT, **body}
                self.comments[made["id"]] = made
                return 201, made
        return 404, {"message": "Not Found"}

    @staticmethod
    def _page(found: list[dict[str, Any]], query: dict[str, list[str]]) -> list[dict[str, Any]]:
        size, page = int(query["per_page"][0]), int(query["page"][0])
        return found[size * (page - 1) : size * page]


@contextlib.contextmanager
def serving() -> Iterator[FakeGitHub]:
    """Serve a GitHub from a thread while the block runs."""
    github = FakeGitHub()

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            parts = urlsplit(self.path)
            github.asked.append((self.command, parts.path, {k.lower(): v for k, v in self.headers.items()}))
            given = self.rfile.read(int(self.headers.get("content-length") or 0))
            if parts.path in github.blobs:
                return self._reply(200, github.blobs[parts.path])
            if github.refuse is not None:
                return self._reply(github.refuse, b'{"message": "Resource not accessible by integration"}')
            status, said = github.answer(
                self.command, parts.path, parse_qs(parts.query), json.loads(given) if given else None
            )
            if status == 302:
                return self._reply(302, b"", ("location", said))
            return self._reply(status, json.dumps(said).encode())

        def _reply(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
            self.send_response(status)
            for name, value in (*headers, ("content-length", str(len(body)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = _handle  # noqa: N815 - the names that http.server looks for

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    github.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield github
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --------------------------------------------------------------------------- a runner


def action() -> dict[str, Any]:
    """Return ``action.yml`` as data."""
    data = read(ROOT / "action.yml").data
    assert isinstance(data, dict)
    return data


_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass
class Ran:
    """One step after it ran: a script with its exit code and output, or another action with what it was given."""

    name: str
    code: int = 0
    log: str = ""
    uses: str = ""
    given: dict[str, str] = field(default_factory=dict)


class Job:
    """Runs the steps of ``action.yml`` with bash as a runner would, and other actions by doing what they do here."""

    def __init__(self, folder: Path, github: FakeGitHub, *, matrix: object = None, **more: str) -> None:
        self.folder, self.github, self.matrix, self.more = folder, github, matrix, more
        self.temp = folder / "temp"
        self.workspace = folder / "workspace"
        for each in (self.temp, self.workspace, folder / "bin"):
            each.mkdir(parents=True, exist_ok=True)
        # Installing is what a test leaves out: `python -m venv` makes a folder whose python is this one.
        fake = folder / "bin" / "python"
        inner = (
            f'#!/bin/bash\nif [ "$1 $2 $3 $4" = "-P -m pip install" ]; then echo "$@" >> {folder}/pip.log; exit 0; fi\n'
            f'exec {sys.executable} "$@"\n'
        )
        fake.write_text(
            f'#!/bin/bash\ntest "$1 $2 $3" = "-P -m venv" || exit 97\nmkdir -p "$4/bin"\n'
            f'cat > "$4/bin/python" <<\'END\'\n{inner}END\nchmod +x "$4/bin/python"\n'
        )
        fake.chmod(0o755)
        self.outputs: dict[str, dict[str, str]] = {}
        self.ran: list[Ran] = []
        self.failed = False

    def run(self, **inputs: str) -> None:
        """Run all steps; ``-`` in the name of an input is written as ``_``."""
        known = action()["inputs"]
        given = {name: str(about.get("default", "")) for name, about in known.items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        assert set(given) == set(known), "an input that the action does not have"
        given = {name: self._filled(value, {}) for name, value in given.items()}
        for number, step in enumerate(action()["runs"]["steps"]):
            if not self._wanted(step.get("if"), given):
                continue
            name = step.get("name", step.get("uses", ""))
            if "uses" in step:
                with_ = {key: self._filled(str(value), given) for key, value in step.get("with", {}).items()}
                self.outputs[step.get("id", str(number))] = self._use(step["uses"], with_)
                self.ran.append(Ran(name=name, uses=step["uses"], given=with_))
            else:
                self._script(number, step, name, given)

    def _script(self, number: int, step: dict[str, Any], name: str, given: dict[str, str]) -> None:
        script, out = self.temp / f"step-{number}.sh", self.temp / f"output-{number}"
        script.write_text(step["run"])
        out.touch()
        environ = self.environ() | {"GITHUB_OUTPUT": str(out)}
        environ |= {key: self._filled(str(value), given) for key, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.workspace,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        lines = (line.partition("=") for line in out.read_text().splitlines())
        self.outputs[step.get("id", str(number))] = {key: value for key, _, value in lines}
        self.ran.append(Ran(name=name, code=done.returncode, log=done.stdout + done.stderr))
        self.failed = self.failed or done.returncode != 0

    def environ(self) -> dict[str, str]:
        """Return the environment that a runner gives to every step, and nothing of ours but the way to Python."""
        return {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_API_URL": self.github.url,
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_REF_NAME": "main",
            "GITHUB_RUN_ID": "77",
            "GITHUB_WORKFLOW": "Readiness",
            "GITHUB_JOB": "readiness",
            "GITHUB_STEP_SUMMARY": str(self.temp / "summary.md"),
            "RUNNER_TEMP": str(self.temp),
        } | self.more

    def _use(self, uses: str, given: dict[str, str]) -> dict[str, str]:
        if not uses.startswith("actions/upload-artifact@"):
            return {}
        files = [Path(self.workspace, line.strip()) for line in given["path"].splitlines() if line.strip()]
        for file in files:
            if file.is_file():
                self.github.upload(given["name"], file)
        number = len(self.github.artifacts)
        return {"artifact-url": f"https://github.example/{REPOSITORY}/actions/runs/77/artifacts/{number}"}

    def _wanted(self, condition: str | None, given: dict[str, str]) -> bool:
        if condition is None:
            return not self.failed
        found = _EXPRESSION.fullmatch(condition)
        assert found is not None
        return all(self._holds(term, given) for term in found[1].split(" && "))

    def _holds(self, term: str, given: dict[str, str]) -> bool:
        if term in ("always()", "!cancelled()"):
            return True
        left, sign, right = term.partition(" != ") if " != " in term else term.partition(" == ")
        same = self._value(left, given) == right.strip("'")
        return same == (sign == " == ")

    def _filled(self, text: str, given: dict[str, str]) -> str:
        return _EXPRESSION.sub(lambda found: self._value(found[1], given), text)

    def _value(self, expression: str, given: dict[str, str]) -> str:
        match expression.split("."):
            case ["toJSON(matrix)"]:
                return json.dumps(self.matrix)
            case ["github", "token"]:
                return TOKEN
            case ["inputs", name]:
                return given[name]
            case ["steps", step, "outputs", name]:
                return self.outputs.get(step, {}).get(name, "")
        raise AssertionError(f"an expression that this runner does not know: {expression}")

    def step(self, name: str) -> Ran:
        """Return what became of a step that ran."""
        return next(each for each in self.ran if each.name == name)
