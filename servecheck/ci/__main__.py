"""One step of the action: ``python -m servecheck.ci STEP``; inputs and the way to GitHub are in the environment.

What a step cannot do for want of a permission (a comment, an issue, the history) is a warning, not a failed job: the
verdict on the endpoints does not depend on it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from servecheck.ci import flips, kept
from servecheck.ci.inputs import Inputs
from servecheck.ci.job import job_name
from servecheck.ci.workflow import MOST, commands_off, note, outputs, say, summary
from servecheck.errors import ServecheckError, StoreError, UnknownName, UsageError
from servecheck.history import History, LaterHistory
from servecheck.model import Json
from servecheck.probes import discover
from servecheck.readback import read_back
from servecheck.report.data import RunReport
from servecheck.report.summary import SUMMARY_LIMIT, summary_parts
from servecheck.report.text import is_plain_url
from servecheck.report.view import view
from servecheck.wire.curl import render
from servecheck.wire.github_rest import API, GitHub, GitHubError

__all__ = ["STEPS", "main"]

Environ = Mapping[str, str]

_PUSHES = 4  # as many jobs as may end at the same moment
_LOOKS = 3  # trials of a second look
_COMMENT = 60_000  # bytes; GitHub takes 65,536 characters
_RAN = frozenset({0, 1, 4, 130})  # exit codes of a run that left a folder
_FORK = "The job needs the permission that action.yml names; for the pull request of a fork GitHub grants none."
_TOLD = "This is a fault of the job, not of an endpoint"


def main(words: Sequence[str], environ: Environ) -> int:
    """Run a step; return its exit code."""
    try:
        if len(words) != 1 or words[0] not in STEPS:
            raise UnknownName("step", " ".join(words), STEPS)
        return STEPS[words[0]](environ)
    except ServecheckError as error:
        note("error", "servecheck", str(error))
        return 2


# --------------------------------------------------------------------------- steps


def selftest(environ: Environ) -> int:
    """Try the instrument before it is believed."""
    if not Inputs.of(environ).selftest:
        say("not tried: selftest is false")
        return 0
    code = _servecheck("selftest")
    if code:
        note("error", "servecheck selftest", "the instrument misses faults here; nothing that it says can be believed")
    return code


def fetch(environ: Environ) -> int:
    """Fetch the history of earlier jobs; without one, or without the right to it, this job begins one."""
    inputs = Inputs.of(environ)
    data, commit = None, ""
    wrong: list[str] = []
    inputs.work.mkdir(parents=True, exist_ok=True)
    for left in (_memory(inputs), inputs.history_file):  # by another use of the action in the same job
        left.unlink(missing_ok=True)
    try:
        if inputs.history.way == "artifact":
            with _github(environ) as github:
                data, wrong = kept.from_artifact(github, _repository(environ), inputs.history.name, _branch(environ))
        elif inputs.history.way == "branch":
            data, commit = kept.from_branch(environ, inputs.history.name)
    except ServecheckError as error:
        note("warning", "servecheck history", f"not fetched, so nothing is known of earlier runs: {error}")
        # A history that may be there must not be replaced by one that knows a single run.
        _remember(inputs, fetched=False)
        return 0
    for each in wrong:
        note("warning", "servecheck history", f"passed over: {each}")
    _remember(inputs, fetched=True, commit=commit)
    if data is None:
        say("no earlier runs" if inputs.history.way != "none" else "no history is kept")
        return 0
    inputs.history_file.write_bytes(data)
    try:
        with History(inputs.history_file) as history:
            history.check()
            say(f"{len(history.runs())} earlier runs")
    except LaterHistory as error:
        note("warning", "servecheck history", f"not read, and left as it is: {error}")
        inputs.history_file.unlink()
        _remember(inputs, fetched=False)
    except StoreError as error:
        note("warning", "servecheck history", f"what was kept cannot be read, so this job begins anew: {error}")
        inputs.history_file.unlink()
    return 0


def run(environ: Environ) -> int:
    """Probe the endpoints, and look again at what changed and was seen once; the last step says how it ended."""
    inputs = Inputs.of(environ)
    outputs(environ, {"folder": str(inputs.out), "report": str(inputs.out / "report.md"), "artifact": inputs.artifact})
    inputs.work.mkdir(parents=True, exist_ok=True)
    kept_runs = [] if inputs.history.way == "none" else [f"--history={inputs.history_file}"]
    code = _servecheck("run", f"--out={inputs.out}", *kept_runs, *inputs.arguments)
    if code not in _RAN or not (inputs.out / "run.jsonl").exists():
        note("error", "servecheck", f"nothing was told about any endpoint (exit {code}); the log above says why")
        return code or 2
    report = read_back(inputs.out, discover())
    found = flips.changes(report, _second_look(inputs, report))
    _remember(
        inputs,
        exit=code,
        changes=[
            {"endpoint": c.endpoint, "feature": c.feature, "before": c.before, "after": c.after, "sure": c.sure}
            for c in found
        ],
    )
    outputs(
        environ,
        {
            "decision": report.verdict.decision.value,
            "sentence": report.verdict.sentence,
            "changed": "true" if any(change.sure for change in found) else "false",
            "exit-code": str(code),
        },
    )
    return 0


def _second_look(inputs: Inputs, report: RunReport) -> RunReport | None:
    rows = sorted({each.feature for each in report.since if each.told != "confirmed"})
    if not rows:
        return None
    folder = inputs.out.with_name(inputs.out.name + "-second-look")
    words = inputs.arguments
    place = words.index("--")
    dropped = ("--feature=", "--trials=", "--expect=", "--fail-on=", "--profile=")
    options = [word for word in words[:place] if not word.startswith(dropped)]
    looked = [f"--feature={row}" for row in rows]
    say(f"a second look at {', '.join(rows)}")
    code = _servecheck("run", f"--out={folder}", *options, *looked, f"--trials={_LOOKS}", *words[place:])
    return read_back(folder, discover()) if code in _RAN and (folder / "run.jsonl").exists() else None


def tell(environ: Environ) -> int:
    """Write the summary of the job, and the annotations for what blocks and what changed."""
    inputs = Inputs.of(environ)
    report = read_back(inputs.out, discover())
    found = _changes(inputs)
    changed = flips.told(found, report.cells)
    if not any(summary(environ, _with(changed, report, limit)) for limit in (SUMMARY_LIMIT, _COMMENT)):
        note("warning", "servecheck", "the summary of this step is full; see report.md in the uploaded run folder")
    blockers = report.verdict.blockers
    for row in blockers[: MOST - 1]:
        feature, _, endpoint = row.partition("@")
        cell = report.cell(feature, endpoint)
        note("error", f"{feature} on {endpoint}", f"{cell.status.value}: {cell.reason}" if cell is not None else row)
    if len(blockers) >= MOST:
        note("error", "servecheck", f"{len(blockers) - MOST + 1} more blockers; see report.md")
    for change in found[: MOST - 1]:
        note("warning" if change.worse else "notice", f"{change.feature} on {change.endpoint} changed", change.said)
    if len(found) >= MOST:
        note("warning", "servecheck", f"{len(found) - MOST + 1} more rows changed; see report.md")
    return 0


def comment(environ: Environ) -> int:
    """Say the answer in one comment of the pull request, the same one after each push."""
    number = _pull_request(environ)
    if number is None:
        say("not a pull request: no comment")
        return 0
    inputs = Inputs.of(environ)
    marker = f"<!-- servecheck:comment {job_name(environ, inputs.use)} -->"
    report = read_back(inputs.out, discover())
    changed = flips.told(_changes(inputs), report.cells)
    # Above the fold what a reviewer decides by; GitHub takes no comment of more than 65,536 characters.
    first, rest = summary_parts(view(report, render), _COMMENT - len(changed.encode()))
    folded = f"<details><summary>The whole report</summary>\n\n{rest}\n</details>\n\n" if rest else ""
    early = f"{changed}{_link(environ)}\n"
    body = f"{marker}\n{_told_early(first, early)}\n{folded}"
    if len(body) > _COMMENT + 5_000:
        body = f"{marker}\n{changed}The report is too long for a comment. {_link(environ)}\n"
    where = f"/repos/{_repository(environ)}/issues"
    with _github(environ) as github:
        for each in github.items(f"{where}/{number}/comments"):
            if str(each.get("body", "")).startswith(marker) and _trusted(each):
                github.patch(f"{where}/comments/{each['id']}", {"body": body})
                return 0
        github.post(f"{where}/{number}/comments", {"body": body})
    return 0


def issue(environ: Environ) -> int:
    """Open, rewrite or close the issue of each endpoint by what fell and what rose, once two looks agree."""
    inputs = Inputs.of(environ)
    if inputs.history.way == "none":
        raise UsageError("issue: without a history nothing is known to have changed; set history to artifact or branch")
    if environ.get("GITHUB_BASE_REF"):
        say("a pull request opens and closes no issue")
        return 0
    if not _recall(inputs).get("fetched"):
        note("warning", "servecheck issue", "left as it is: without the history one look might be luck")
        return 0
    job = job_name(environ, inputs.use, environ.get("GITHUB_REF_NAME", ""))
    report = read_back(inputs.out, discover())
    where = f"/repos/{_repository(environ)}/issues"
    with _github(environ) as github:
        known: dict[str, tuple[int, Mapping[str, str]]] = {}
        for each in github.items(where, state="open", labels=flips.LABEL):
            record = flips.recorded(str(each.get("body") or ""), job)
            if record is not None and _trusted(each) and "pull_request" not in each:
                known.setdefault(record[0], (_number(each["number"]), record[1]))
        for todo in flips.issue_plan(report.cells, _changes(inputs), known, job=job, link=_link(environ)):
            if isinstance(todo, flips.Open):
                github.post(where, {"title": todo.title, "body": todo.body, "labels": [flips.LABEL]})
                say(f"opened: {todo.title}")
                continue
            github.post(f"{where}/{todo.number}/comments", {"body": todo.comment})
            if isinstance(todo, flips.Update):
                github.patch(f"{where}/{todo.number}", {"title": todo.title, "body": todo.body})
            else:
                github.patch(f"{where}/{todo.number}", {"state": "closed", "state_reason": "completed"})
            say(f"{'rewrote' if isinstance(todo, flips.Update) else 'closed'} issue {todo.number}")
    return 0


def keep(environ: Environ) -> int:
    """Keep only so many runs, and push them to their branch or name the file for the step that uploads it."""
    inputs = Inputs.of(environ)
    if inputs.history.way == "none" or not inputs.history_file.exists():
        return 0
    if environ.get("GITHUB_BASE_REF"):
        say("a pull request reads the history and adds nothing to it")
        return 0
    if not _recall(inputs).get("fetched"):
        note("warning", "servecheck history", "not kept: it could not be fetched, and would replace what is there")
        return 0
    with History(inputs.history_file) as history:
        history.prune(inputs.history.keep)
    if inputs.history.way == "artifact":
        outputs(environ, {"file": str(inputs.history_file), "name": inputs.history.name})
        return 0
    return _push(inputs, environ)


def _push(inputs: Inputs, environ: Environ) -> int:
    file, name, was = inputs.history_file, inputs.history.name, str(_recall(inputs).get("commit", ""))
    for left in reversed(range(_PUSHES)):
        try:
            kept.to_branch(environ, name, file, was)
        except ServecheckError:
            data, now = kept.from_branch(environ, name)
            if now == was or data is None or not left:
                raise
            was = now
        else:
            break
        say(f"another job wrote {name} meanwhile; this run is added to what it wrote")
        file.write_bytes(data)
        with History(file) as history:
            history.add(read_back(inputs.out, discover()), keep=inputs.history.keep)
    return 0


def end(environ: Environ) -> int:
    """Exit as the run did."""
    code = _recall(Inputs.of(environ)).get("exit")
    if not isinstance(code, int):
        raise UsageError("there was no run; an earlier step says why")
    return code


def _mild(step: Callable[[Environ], int]) -> Callable[[Environ], int]:
    """Return the step with its troubles as warnings."""

    def tried(environ: Environ) -> int:
        try:
            return step(environ)
        except UsageError:
            raise
        except ServecheckError as error:
            hint = f" {_FORK}" if isinstance(error, GitHubError) and error.status in {401, 403, 404} else ""
            note("warning", f"servecheck {step.__name__}", f"not done: {error}. {_TOLD}.{hint}")
            return 0

    return tried


STEPS: Mapping[str, Callable[[Environ], int]] = {
    "selftest": selftest,
    "fetch": fetch,
    "run": run,
    "tell": tell,
    "comment": _mild(comment),
    "issue": _mild(issue),
    "keep": _mild(keep),
    "end": end,
}
"""What each step of ``action.yml`` runs, by its name there."""


# --------------------------------------------------------------------------- helpers


def _servecheck(*words: str) -> int:
    """Run servecheck itself; -P, so that nothing in the checked out folder can stand in for a module."""
    with commands_off():
        return subprocess.run([sys.executable, "-P", "-m", "servecheck", *words], check=False).returncode  # noqa: S603


def _memory(inputs: Inputs) -> Path:
    return inputs.work / "state.json"


def _recall(inputs: Inputs) -> dict[str, Json]:
    try:
        found = json.loads(_memory(inputs).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StoreError(f"{_memory(inputs)}: {error}") from error
    return found if isinstance(found, dict) else {}


def _remember(inputs: Inputs, **values: Json) -> None:
    """Keep values for the steps that follow in this job."""
    _memory(inputs).write_text(json.dumps({**_recall(inputs), **values}), encoding="utf-8")


def _changes(inputs: Inputs) -> list[flips.Change]:
    def read() -> Iterator[flips.Change]:
        found = _recall(inputs).get("changes")
        for each in found if isinstance(found, list) else ():
            if isinstance(each, dict):
                yield flips.Change(
                    endpoint=str(each.get("endpoint")),
                    feature=str(each.get("feature")),
                    before=str(each.get("before")),
                    after=str(each.get("after")),
                    sure=each.get("sure") is True,
                )

    return list(read())


def _github(environ: Environ) -> GitHub:
    return GitHub(environ.get("INPUT_TOKEN", ""), api=environ.get("GITHUB_API_URL") or API)


def _repository(environ: Environ) -> str:
    found = environ.get("GITHUB_REPOSITORY", "")
    if found.count("/") != 1:
        raise UsageError("GITHUB_REPOSITORY is not set; this runs as a step of a GitHub workflow")
    return found


def _branch(environ: Environ) -> str:
    """Return the branch whose history counts: of a pull request that which it would be merged into."""
    return environ.get("GITHUB_BASE_REF") or environ.get("GITHUB_REF_NAME", "")


def _link(environ: Environ) -> str:
    server = environ.get("GITHUB_SERVER_URL") or "https://github.com"
    found = f"[The run]({server}/{_repository(environ)}/actions/runs/{environ.get('GITHUB_RUN_ID', '')})"
    report = environ.get("JOB_REPORT", "")
    return f"{found}, [its reports and recordings]({report})" if is_plain_url(report) else found


def _with(changed: str, report: RunReport, limit: int) -> str:
    first, rest = summary_parts(view(report, render), limit - len(changed.encode()))
    return f"{_told_early(first, changed)}{rest}"


def _told_early(first: str, more: str) -> str:
    """Put what changed below the answer and above the tables, where the reader of one screen sees it."""
    if not more:
        return first
    answer, table, below = first.partition("\n| |")
    return f"{answer}\n{more}{table}{below}"


def _pull_request(environ: Environ) -> int | None:
    path = environ.get("GITHUB_EVENT_PATH")
    if not path or not Path(path).exists():
        return None
    try:
        event = json.loads(Path(path).read_text("utf-8"))
    except ValueError as error:
        raise StoreError(f"{path}: {error}") from error
    request = event.get("pull_request") if isinstance(event, dict) else None
    return _number(request.get("number")) if isinstance(request, dict) else None


def _number(value: Json) -> int:
    if not isinstance(value, int):
        raise StoreError(f"a number was expected, got {value!r}")
    return value


def _trusted(each: Mapping[str, Json]) -> bool:
    """Tell whether a bot or a member wrote it: anybody else could plant our marker in a public repository."""
    user = each.get("user")
    bot = isinstance(user, dict) and user.get("type") == "Bot"
    return bot or each.get("author_association") in {"OWNER", "MEMBER", "COLLABORATOR"}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], os.environ))
