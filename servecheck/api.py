"""servecheck as a library: run a suite into a folder, read a folder back. The command line does the same with flags."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from servecheck import endpoints as endpoint_list
from servecheck import features, plan, scenario
from servecheck import run as runs
from servecheck.cli import given
from servecheck.errors import StoreError, UsageError
from servecheck.model import Exchange
from servecheck.probes import discover
from servecheck.report.data import RunReport
from servecheck.report.files import write_all
from servecheck.wire.curl import render
from servecheck.workload import load

__all__ = ["curl", "read_run", "run_suite"]


def run_suite(
    endpoints: Sequence[str],
    folder: Path | str,
    *,
    models: Sequence[str] = (),
    api_key_envs: Sequence[str] = (),
    reference: str | None = None,
    rows: Sequence[str] = (),
    scenarios: Sequence[Path | str] = (),
    suite: str | None = None,
    trials: int | None = None,
    allow: Sequence[str] = (),
    profile: Path | str | None = None,
    settings: plan.Settings | None = None,
    workload: Path | str | None = None,
    environ: Mapping[str, str] | None = None,
) -> RunReport:
    """Probe endpoints, write a run folder with its reports, and return what the reports are made of.

    ``endpoints`` are ``NAME=URL``, ``models`` an ID or ``NAME=ID``, ``api_key_envs`` names of variables of ``environ``
    (this process's by default), all as on the command line; the first of several endpoints is the reference unless
    ``reference`` names another. ``rows`` are ids, groups or globs, ``scenarios`` files or folders instead of the
    built-in ones (which ``Path("builtin")`` names), ``workload`` a file of your own schemas and tools, or a log of
    requests. ``suite`` (``standard`` unless given), ``trials`` (1 to 100), ``allow`` (``load``, ``dangerous``) and
    ``profile`` (a name or a file; without rows and a suite, its rows are asked) mean what the flags of these names do;
    ``settings`` takes the place of the first three and knows deadlines too.

    Blocks until the run is over; inside an event loop, await ``asyncio.to_thread(run_suite, …)``. Raises
    ``UsageError``, ``UnknownName`` and ``NothingSelected`` before anything was sent, and ``StoreError`` where
    ``folder`` is not empty. What a server does wrong is never raised: it is in the report.
    """
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise StoreError(f"{folder} is there already: give another folder, or read that run with read_run({folder!r})")
    if settings is not None and (suite is not None or trials is not None or allow):
        raise UsageError("settings say the suite, the trials and what is allowed already: give the one or the others")
    if trials is not None and not 1 <= trials <= 100:
        raise UsageError(f"trials={trials}: from 1 to 100")
    # A seed of its own for each run: words that an earlier run has sent are in the server's prefix cache.
    chosen_by = settings or given.settings(
        suite or "standard", trials, plan.Settings().deadline, 0.0, list(allow), secrets.token_hex(8)
    )
    needs = given.profile(None if profile is None else str(profile))
    if needs is not None and not rows and suite is None and settings is None:
        rows = given.rows_of(needs)
    env = os.environ if environ is None else environ
    probes = discover()
    found = endpoint_list.resolve(endpoints, models=models, api_key_envs=api_key_envs, reference=reference, environ=env)
    paths = [Path(each) for each in scenarios]
    chosen = scenario.load_all(paths or [scenario.builtin_dir()], probes=probes, features=features.BY_ID)
    own = load(Path(workload)) if workload is not None else None
    if own is not None and scenarios:
        chosen = scenario.with_patterns(chosen, probes=probes, features=features.BY_ID)
    planned = plan.make(
        found,
        chosen,
        probes,
        settings=chosen_by,
        globs=rows,
        given=bool(paths) and scenario.BUILTIN not in paths,
        workload=own,
    )
    connect, instrument = runs.connector(env), runs.instrument_check(probes)
    asyncio.run(runs.carry_out(planned, probes, folder, connect, instrument=instrument, profile=needs))
    report = read_run(folder)
    write_all(report, folder, render)
    return report


def read_run(folder: Path | str) -> RunReport:
    """Read a run folder and judge it by today's probes; sends nothing. Raises ``StoreError`` where it holds no run."""
    return runs.read_back(Path(folder), discover())


def curl(exchange: Exchange) -> str:
    """Return the command for a POSIX shell that sends a request again; keys stay names of environment variables."""
    return render(exchange)
