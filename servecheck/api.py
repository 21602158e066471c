"""servecheck as a library: run a suite into a folder, read a folder back. The command line does the same with flags.

What words such as ``suite`` or ``profile`` name is looked up where the command line looks it up.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from servecheck import endpoints as endpoint_list
from servecheck import run as runs
from servecheck.budget import Budget
from servecheck.cli import exits, given
from servecheck.errors import StoreError
from servecheck.model import Exchange
from servecheck.report.data import RunReport
from servecheck.report.files import write_all
from servecheck.wire import curl

__all__ = ["exchange_curl", "read_run", "run_suite"]


def run_suite(
    endpoints: Sequence[str],
    folder: Path | str,
    *,
    models: Sequence[str] = (),
    api_key_envs: Sequence[str] = (),
    reference: str | None = None,
    suite: str | None = None,
    rows: Sequence[str] = (),
    scenarios: Sequence[Path | str] = (),
    profile: str | None = None,
    expect: Path | str | None = None,
    workload: Path | str | None = None,
    trials: int | None = None,
    allow: Sequence[str] = (),
    budget: str = "",
    deadline: float = 300.0,
    wait_ready: float = 0.0,
    fail_on: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> RunReport:
    """Probe endpoints, write a run folder with its reports, and return what the reports are made of.

    ``endpoints`` are ``NAME=URL``, ``models`` an ID or ``NAME=ID``, ``api_key_envs`` names of variables of ``environ``
    (this process's by default); the first of several endpoints is the reference unless ``reference`` names another.
    ``rows`` are ids, groups or globs, as ``--feature`` takes them; ``scenarios`` files or folders instead of the
    built-in ones (which ``Path("builtin")`` names), ``workload`` a file of your own schemas and tools, or a log of
    requests. All else means what it means on the command line: ``suite`` (``standard``; with a ``profile``, its rows),
    ``expect`` a file of known deviations, ``allow`` of ``load`` and ``dangerous``, ``budget`` as ``requests=400``,
    ``deadline`` and ``wait_ready`` in seconds, and ``fail_on`` what the report's ``exit_code`` is 1 for.

    Blocks until the run is over; inside an event loop, await ``asyncio.to_thread(run_suite, …)``. Raises
    ``UsageError`` and ``NothingSelected`` before anything was sent, and ``StoreError`` where ``folder`` is not empty.
    What a server does wrong is never raised: it is in the report.
    """
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise StoreError(f"{folder} is there already: give another folder, or read that run with read_run({folder!r})")
    exits.level(fail_on)
    limits, needs = Budget.parse(budget), given.profile(profile)
    expected = given.expected(Path(expect)) if expect is not None else None
    env = os.environ if environ is None else environ
    found = endpoint_list.resolve(endpoints, models=models, api_key_envs=api_key_envs, reference=reference, environ=env)
    settings = given.settings(suite or "standard", trials, deadline, wait_ready, [*allow], secrets.token_hex(8))
    paths = [Path(each) for each in scenarios]
    planned = given.plan(
        found,
        settings,
        [*rows],
        paths,
        Path(workload) if workload is not None else None,
        needs=given.needs(needs, alone=suite is None),
    )
    probes = given.probes()
    connect, instrument = runs.connector(env), runs.instrument_check(probes)
    asyncio.run(
        runs.carry_out(
            planned,
            probes,
            folder,
            connect,
            budget=limits,
            instrument=instrument,
            profile=needs,
            expected=expected or (),
        )
    )
    report = read_run(folder, fail_on=fail_on)
    write_all(report, folder, curl.render)
    return report


def read_run(folder: Path | str, *, fail_on: str | None = None) -> RunReport:
    """Read a run folder and judge it by today's probes; sends nothing. ``fail_on`` is for the ``exit_code``.

    Raises ``StoreError`` where it holds no run.
    """
    exits.level(fail_on)
    report = runs.read_back(Path(folder), given.probes())
    return replace(report, exit_code=exits.code_of(report, fail_on))


def exchange_curl(exchange: Exchange) -> str:
    """Return the command for a POSIX shell that sends the request of an exchange again; keys stay names of variables.

    ``RunReport.evidence`` gives the exchanges of a cell.
    """
    return curl.render(exchange)
