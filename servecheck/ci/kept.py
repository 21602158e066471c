"""The file of runs from one job to the next: fetched from an artifact or a branch, and pushed to the branch.

An artifact is uploaded by a step of the action itself; there is no other way to make one.
"""

from __future__ import annotations

import base64
import io
import os
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from servecheck.ci.inputs import HISTORY
from servecheck.errors import ServecheckError
from servecheck.model import Json
from servecheck.wire.github_rest import GitHub, GitHubError

__all__ = ["from_artifact", "from_branch", "to_branch"]

_MAX_BYTES = 256 * 1024 * 1024
_GIT_SECONDS = 300
_TRIED = 5  # artifacts that are looked into before a history is begun anew
_GONE = frozenset({404, 410})
# All that the standard library says of an archive that is cut, damaged, locked or packed in a way it does not know.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, KeyError, EOFError, NotImplementedError, RuntimeError)


def from_artifact(github: GitHub, repository: str, name: str, branch: str) -> tuple[bytes | None, list[str]]:
    """Return the file from the newest artifact of that name that a job on this branch left, and what is wrong with
    newer ones; ``None`` without one.

    Artifacts of forks are passed over: whoever opens a pull request could otherwise write our history. So are those
    that are gone or hold something else: they would stand in the way of every job to come.
    """
    found = [
        artifact
        for artifact in github.items(f"/repos/{repository}/actions/artifacts", "artifacts", name=name)
        if artifact.get("expired") is False and _ours(artifact.get("workflow_run"), branch)
    ]
    wrong: list[str] = []
    for artifact in sorted(found, key=lambda each: str(each.get("created_at")), reverse=True)[:_TRIED]:
        try:
            return _unpacked(github.download(str(artifact.get("archive_download_url")), _MAX_BYTES)), wrong
        except GitHubError as error:
            if error.status not in _GONE:
                raise
            wrong.append(f"artifact {artifact.get('id')}: {error}")
        except _UNREADABLE as error:
            wrong.append(f"artifact {artifact.get('id')} holds no {HISTORY} that can be read: {error}")
    return None, wrong


def _unpacked(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if archive.getinfo(HISTORY).file_size > _MAX_BYTES:
            raise zipfile.BadZipFile(f"longer than {_MAX_BYTES} bytes")
        return archive.read(HISTORY)


def _ours(run: Json, branch: str) -> bool:
    return (
        isinstance(run, dict)
        and run.get("head_branch") == branch
        and run.get("repository_id") is not None
        and run.get("repository_id") == run.get("head_repository_id")
    )


def from_branch(environ: Mapping[str, str], name: str) -> tuple[bytes | None, str]:
    """Return the file that the branch holds and its commit; nothing, and no commit, where there is no such branch."""
    with _repository(environ) as git:
        found = git("ls-remote", "origin", f"refs/heads/{name}")
        if not found:
            return None, ""
        commit = found.split()[0].decode()
        git("fetch", "--quiet", "--depth=1", "origin", commit)
        return git("cat-file", "blob", f"{commit}:{HISTORY}"), commit


def to_branch(environ: Mapping[str, str], name: str, file: Path, was: str) -> None:
    """Make the branch one commit with the file in it, if it still is what it ``was``; another job's is not overwritten.

    A single commit without a parent: the file is rewritten each night, and a clone should not have to carry them all.
    """
    with _repository(environ) as git:
        blob = git("hash-object", "-w", "--", str(file.resolve())).strip().decode()
        tree = git("mktree", given=f"100644 blob {blob}\t{HISTORY}\n".encode()).strip().decode()
        commit = git("commit-tree", tree, "-m", "Runs of servecheck").strip().decode()
        git("push", "--quiet", f"--force-with-lease=refs/heads/{name}:{was}", "origin", f"{commit}:refs/heads/{name}")


class _repository:  # noqa: N801 - a context manager, used as a function
    """A repository of its own, so that the settings and the work tree of the job's checkout are left alone."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        server = environ.get("GITHUB_SERVER_URL") or "https://github.com"
        self._url = f"{server}/{environ.get('GITHUB_REPOSITORY', '')}"
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        who = "github-actions[bot]"
        for role in ("AUTHOR", "COMMITTER"):
            self._environ |= {f"GIT_{role}_NAME": who, f"GIT_{role}_EMAIL": f"{who}@users.noreply.github.com"}
        self._environ |= {"GIT_TERMINAL_PROMPT": "0"}
        if token := environ.get("INPUT_TOKEN"):
            # By the environment: what stands on a command line is seen by every process of the machine.
            basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
            self._environ |= {
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": f"http.{server}/.extraheader",
                "GIT_CONFIG_VALUE_0": f"AUTHORIZATION: basic {basic}",
            }

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        self("init", "--quiet")
        self("remote", "add", "origin", self._url)
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def __call__(self, *words: str, given: bytes = b"") -> bytes:
        """Run git, and return what it printed; raises ``ServecheckError`` with what it said where it fails."""
        try:
            done = subprocess.run(  # noqa: S603 - words, no shell
                ["git", *words],  # noqa: S607
                cwd=self._folder.name,
                env=self._environ,
                input=given,
                capture_output=True,
                timeout=_GIT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServecheckError(f"git {words[0]}: {error}") from error
        if done.returncode:
            raise ServecheckError(f"git {words[0]}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout
