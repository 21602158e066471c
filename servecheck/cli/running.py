"""The commands that probe endpoints: run, record and demo."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from servecheck.cli import exits, given, telling
from servecheck.cli.options import (
    Allow,
    AsJson,
    Bench,
    BudgetText,
    Context_,
    Deadline,
    Declared,
    DryRun,
    ExpectFile,
    FailOn,
    Feature,
    Header,
    HistoryFile,
    ModelFile,
    Out,
    Quiet,
    Redact,
    RunProfile,
    ScenarioPath,
    Seed,
    Suite,
    Title,
    Traffic,
    Trials,
    WaitReady,
    WorkloadFile,
)
from servecheck.errors import ServecheckError, UsageError

if TYPE_CHECKING:
    from servecheck.budget import Budget
    from servecheck.declared import Matrix
    from servecheck.expectations import Expectation
    from servecheck.join import Recorded
    from servecheck.plan import Plan
    from servecheck.profiles import Profile
    from servecheck.report.data import RunReport
    from servecheck.report.framing import Framing
    from servecheck.run import Connect


def run(
    context: typer.Context,
    endpoint: Annotated[list[str] | None, typer.Argument(help="NAME=URL or a URL; the first is the reference.")] = None,
    endpoints: Annotated[Path | None, typer.Option("--endpoints", help="An endpoints file (YAML).")] = None,
    model: Annotated[list[str] | None, typer.Option("--model", "-m", help="ID, or NAME=ID for one endpoint.")] = None,
    reference: Annotated[str | None, typer.Option("--reference", help="The endpoint to compare with, or none.")] = None,
    api_key_env: Annotated[
        list[str] | None,
        typer.Option(
            "--api-key-env",
            help="VARIABLE that holds the key of every endpoint, or NAME=VARIABLE for one; none sends no key.",
        ),
    ] = None,
    header: Header = None,
    allow_insecure_key: Annotated[
        bool, typer.Option("--allow-insecure-key", help="Send keys over plain http to another machine.")
    ] = False,
    suite: Suite = "standard",
    feature: Feature = None,
    scenario: ScenarioPath = None,
    profile: RunProfile = None,
    expect: ExpectFile = None,
    declared: Declared = None,
    history: HistoryFile = None,
    workload: WorkloadFile = None,
    trials: Trials = None,
    out: Out = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Go on with an interrupted run folder.")] = None,
    fail_on: FailOn = None,
    deadline: Deadline = 300.0,
    wait_ready: WaitReady = 0.0,
    allow: Allow = None,
    budget: BudgetText = "",
    seed: Seed = None,
    traffic: Traffic = None,
    title: Title = None,
    context_file: Context_ = None,
    bench: Bench = None,
    redact_bodies: Redact = False,
    recorded: Annotated[
        str | None,
        typer.Option("--recorded", help="A recorded run, or FOLDER:ENDPOINT, as the reference: see record."),
    ] = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Probe one or more endpoints and write a report; with two or more, compare them with the reference."""
    from servecheck import endpoints as endpoint_list
    from servecheck.budget import Budget
    from servecheck.join import recording
    from servecheck.run import connector, plan_of

    exits.level(fail_on)
    limits = Budget.parse(budget)
    needs = given.profile(profile)
    expected = given.expected(expect)
    framed = given.framing(title, context_file, bench, redact_bodies)
    left = None
    if recorded is not None and reference is not None:
        raise UsageError("--recorded names the reference, so there is no room for --reference")
    if resume is not None:
        _nothing_new_when_resuming(context)
        plan = plan_of(resume, given.probes())
    else:
        found = endpoint_list.resolve(
            endpoint or [],
            file=endpoints,
            models=model or [],
            reference=reference if recorded is None else "none",
            api_key_envs=api_key_env or [],
            headers=header or [],
            environ=os.environ,
            allow_insecure_key=allow_insecure_key,
        )
        left = recording(recorded, [one.name for one in found]) if recorded is not None else None
        # Words that an earlier run has sent are in the server's prefix cache, and a right server would look wrong.
        settings = given.settings(suite, trials, deadline, wait_ready, allow, seed or secrets.token_hex(8))
        plan = given.plan(
            found,
            settings,
            feature,
            scenario,
            workload,
            traffic,
            recorded=left is not None,
            needs=given.needs(needs, alone=not _was_given(context, "suite")),
        )
        telling.say_doubts(plan, limits)
        telling.say_formats(plan, quiet=quiet or as_json)
        telling.say_workload(plan, quiet=quiet or as_json or dry_run)
    given.of_this_run(framed, [each.name for each in plan.endpoints])
    matrices = given.matrices(declared, {each.name: each.model for each in plan.endpoints})
    telling.say_expected(expected, [each.name for each in plan.endpoints], quiet=quiet or as_json)
    if dry_run:
        telling.print_plan(plan)
        return
    telling.tell_cost(plan, quiet=quiet or as_json)
    folder = resume or out or Path("runs") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    report = _carry_out(
        plan,
        folder,
        connector(os.environ),
        limits,
        quiet or as_json,
        resume=resume is not None,
        profile=needs,
        expected=expected or (),
        history=history,
        matrices=matrices or (),
        framing=framed,
        recorded=left,
    )
    raise typer.Exit(telling.finish(report, folder, fail_on, as_json=as_json, quiet=quiet))


def record(
    endpoint: Annotated[list[str] | None, typer.Argument(help="NAME=URL or a URL; one.")] = None,
    transformers: Annotated[
        Path | None, typer.Option("--transformers", help="A model folder, loaded in this process (extra transformers).")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="The torch device for --transformers.")] = "cpu",
    dtype: Annotated[
        str, typer.Option("--dtype", help="For --transformers: bfloat16, float16 or float32.")
    ] = "bfloat16",
    model: Annotated[str | None, typer.Option("--model", "-m", help="The model's name.")] = None,
    api_key_env: Annotated[str | None, typer.Option("--api-key-env", help="VARIABLE that holds the key.")] = None,
    header: Header = None,
    allow: Allow = None,
    suite: Annotated[
        str, typer.Option("--suite", help="Of an endpoint, record this suite as well as what comparisons need.")
    ] = "standard",
    deadline: Deadline = 300.0,
    wait_ready: WaitReady = 0.0,
    out: Out = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Record the reference side of comparisons once, for run --recorded and for compare."""
    from servecheck import endpoints as endpoint_list
    from servecheck import recordings
    from servecheck.budget import Budget
    from servecheck.run import connector
    from servecheck.store import must_be_free

    folder = out or Path("runs") / f"record-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    must_be_free(folder)
    if transformers is not None and endpoint:
        raise UsageError("record takes an endpoint or --transformers, not both")
    if transformers is not None:
        one, connect = recordings.in_process(transformers, device=device, dtype=dtype, name=model)
        allow = ["dangerous"]  # what ends an engine that others use: here nobody else does
    else:
        named, keys = [model] if model else [], [api_key_env] if api_key_env else []
        found = endpoint_list.resolve(
            endpoint or [], models=named, api_key_envs=keys, headers=header or [], environ=os.environ
        )
        one, connect = recordings.alone(found), connector(os.environ)
    trials = 1 if transformers is not None else None
    settings = given.settings(suite, trials, deadline, wait_ready, allow, secrets.token_hex(8))
    plan = recordings.plan(one, given.scenarios(None), given.probes(), settings, whole=transformers is None)
    telling.say(telling.cost(plan), quiet=quiet or as_json)
    report = _carry_out(plan, folder, connect, Budget(), quiet or as_json)
    raise typer.Exit(telling.finish(report, folder, None, as_json=as_json, quiet=quiet))


def demo(
    out: Out = None,
    model_file: ModelFile = None,
    suite: Suite = "demo",
    feature: Feature = None,
    workload: WorkloadFile = None,
    trials: Trials = None,
    deadline: Deadline = 120.0,
    fail_on: FailOn = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Start two real llama.cpp endpoints on this machine, compare them, and stop them again."""
    from servecheck.budget import Budget
    from servecheck.embedded.pair import demo_pair, running
    from servecheck.embedded.weights import fetch
    from servecheck.model import Endpoint
    from servecheck.run import connector
    from servecheck.store import must_be_free

    exits.level(fail_on)
    settings = given.settings(suite, trials, deadline, 0.0, None, "demo")
    folder = out or Path("runs") / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    about = {
        "reference": {"kv_cache_dtype": "f16", "device": "cpu", "quantization": "Q4_1"},
        "candidate": {"kv_cache_dtype": "q4_0", "device": "cpu", "quantization": "Q4_1"},
    }
    if dry_run:
        url = "http://127.0.0.1:0/v1"
        planned = [Endpoint(name=name, base_url=url, reference=name == "reference") for name in about]
        telling.print_plan(given.plan(planned, settings, feature, None, workload))
        return
    must_be_free(folder)
    if workload is not None:  # what is wrong with it is said before an engine is started
        given.workload(workload)
    configs = demo_pair(fetch(model_file=model_file, tell=lambda text: telling.say(text, quiet=quiet or as_json)))
    with running(configs) as engines:
        found = [
            Endpoint(
                name=engine.config.name,
                base_url=engine.base_url,
                reference=engine.config.name == "reference",
                api_key_env="",
                declared=about.get(engine.config.name, {}),
            )
            for engine in engines
        ]
        plan = given.plan(found, settings, feature, None, workload)
        telling.say_workload(plan, quiet=quiet or as_json)
        telling.tell_cost(plan, quiet=quiet or as_json)
        report = _carry_out(plan, folder, connector(os.environ), Budget(), quiet or as_json)
    raise typer.Exit(telling.finish(report, folder, fail_on, as_json=as_json, quiet=quiet))


_WHILE_RESUMING = frozenset({"resume", "history", "budget", "fail_on", "dry_run", "quiet", "as_json"})


def _nothing_new_when_resuming(context: typer.Context) -> None:
    """Refuse options that would be a plan of their own: the folder holds the plan, and they would say nothing."""
    given = [
        max(parameter.opts, key=len) if parameter.param_type_name == "option" else "endpoint"
        for parameter in context.command.params
        if parameter.name not in _WHILE_RESUMING and _was_given(context, parameter.name)
    ]
    if given:
        raise UsageError(f"--resume goes on as that run was begun and takes no {', '.join(given)}; leave it away")


def _was_given(context: typer.Context, name: str) -> bool:
    """Tell whether an option stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _carry_out(
    plan: Plan,
    folder: Path,
    connect: Connect,
    budget: Budget,
    quiet: bool,
    *,
    resume: bool = False,
    profile: Profile | None = None,
    expected: Sequence[Expectation] = (),
    history: Path | None = None,
    framing: Framing | None = None,
    matrices: Sequence[Matrix] = (),
    recorded: Recorded | None = None,
) -> RunReport:
    import asyncio

    from servecheck import run as runs
    from servecheck.history import History, previous_of
    from servecheck.progress import watching
    from servecheck.report.files import write_all
    from servecheck.store import must_be_free
    from servecheck.wire.curl import render

    probes = given.probes()
    interrupted = done = False
    if not resume:
        must_be_free(folder)
    previous = None
    if history is not None:
        with History(history) as kept:
            previous = previous_of(kept, [endpoint.name for endpoint in plan.endpoints])
    try:
        with watching(quiet=quiet) as watch:
            _until_interrupted(
                runs.carry_out(
                    plan,
                    probes,
                    folder,
                    connect,
                    command=["servecheck", *sys.argv[1:]],
                    budget=budget,
                    watch=watch,
                    resume=resume,
                    instrument=runs.instrument_check(probes),
                    profile=profile,
                    expected=expected,
                    previous=previous,
                    framing=framing,
                    matrices=matrices,
                    recorded=recorded,
                )
            )
        done = True
    except (KeyboardInterrupt, asyncio.CancelledError):
        interrupted = done = True
    finally:
        if not done:
            # What was seen until then is not lost; the trouble itself matters more than one that comes of it.
            with contextlib.suppress(ServecheckError):
                write_all(runs.read_back(folder, probes), folder, render)
    report = runs.read_back(folder, probes)
    write_all(report, folder, render)
    if history is not None:
        with History(history) as kept:
            kept.add(report)
    if interrupted:
        typer.echo(f"servecheck: interrupted; what was seen is in {folder}, go on with --resume {folder}", err=True)
        raise typer.Exit(exits.EXIT_INTERRUPTED)
    return report


def _until_interrupted(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end; the first SIGINT or SIGTERM cancels the work, so that it can close its files."""
    import asyncio

    async def watched() -> None:
        task = asyncio.ensure_future(work)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await task

    asyncio.run(watched())
