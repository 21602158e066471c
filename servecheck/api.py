"""servecheck as a library: run a suite into a folder, read a folder back. The command line does the same with flags."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from servecheck import endpoints as endpoint_list
from servecheck import features, plan, scenario
from servecheck import run as runs
from servecheck.errors import StoreError
from servecheck.probes import discover
from servecheck.report.data import RunReport
from servecheck.report.files import write_all
from servecheck.wire import curl
from servecheck.workload import load

__all__ = ["read_run", "run_suite"]


def run_suite(
    endpoints: Sequence[str],
    folder: Path | str,
    *,
    models: Sequence[str] = (),
    api_key_envs: Sequence[str] = (),
    reference: str | None = None,
    rows: Sequence[str] = (),
    scenarios: Sequence[Path | str] = (),
    settings: plan.Settings | None = None,
    workload: Path | str | None = None,
    environ: Mapping[str, str] | None = None,
) -> RunReport:
    """Probe endpoints, write a run folder with its reports, and return what the reports are made of.

    ``endpoints`` are ``NAME=URL``, ``models`` an ID or ``NAME=ID``, ``api_key_envs`` names of variables of ``environ``
    (this process's by default), all as on the command line; the first of several endpoints is the reference unless
    ``reference`` names another. ``rows`` are ids, groups or globs, ``scenarios`` files or folders instead of the
    built-in ones (which ``Path("builtin")`` names), ``settings`` the suite, trials, deadlines and risks, ``workload`` a
    file of your own schemas and tools, or a log of requests.

    Blocks until the run is over; inside an event loop, await ``asyncio.to_thread(run_suite, …)``. Raises
    ``UsageError`` and ``NothingSelected`` before anything was sent, and ``StoreError`` where ``folder`` is not empty.
    What a server does wrong is never raised: it is in the report.
    """
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise StoreError(f"{folder} is there already: give another folder, or read that run with read_run({folder!r})")
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
        settings=settings or plan.Settings(),
        globs=rows,
        given=bool(paths) and scenario.BUILTIN not in paths,
        workload=own,
        own=scenario.named_by_file(chosen, paths),
    )
    connect, instrument = runs.connector(env), runs.instrument_check(probes)
    asyncio.run(runs.carry_out(planned, probes, folder, connect, instrument=instrument))
    report = read_run(folder)
    write_all(report, folder, curl.render)
    return report


def read_run(folder: Path | str) -> RunReport:
    """Read a run folder and judge it by today's probes; sends nothing. Raises ``StoreError`` where it holds no run."""
    return runs.read_back(Path(folder), discover())
