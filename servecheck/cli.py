"""The command line: flags to the public functions, their results to text and exit codes. No logic of its own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import os
import secrets
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from servecheck import __version__
from servecheck.errors import EngineError, NothingSelected, ServecheckError, StoreError, UnknownName, UsageError

if TYPE_CHECKING:  # imported where they are used, so that --help does not wait for an HTTP client
    from types import TracebackType

    from servecheck.budget import Budget
    from servecheck.declared import Matrix
    from servecheck.expectations import Expectation
    from servecheck.join import Recorded
    from servecheck.plan import Plan, Settings
    from servecheck.probe import Params, Probe
    from servecheck.profiles import Profile
    from servecheck.report.data import RunReport
    from servecheck.report.framing import Framing
    from servecheck.run import Connect
    from servecheck.scenario import Scenario
    from servecheck.workload import Workload

__all__ = ["app", "main"]

EXIT_USAGE, EXIT_NOTHING, EXIT_COULD_NOT_TELL, EXIT_INTERRUPTED = 2, 3, 4, 130

app = typer.Typer(
    name="servecheck",
    help="Can I serve this model from that endpoint instead of this one, and rely on each feature my applications use?",
    epilog="Exit codes: 0 fine · 1 something that --fail-on names · 2 usage · 3 nothing ran · 4 could not tell · "
    "130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; every error raised on purpose is one message and its documented exit code."""
    sys.excepthook = _crashed
    try:
        app(prog_name="servecheck")
    except NothingSelected as error:
        _fail(str(error), EXIT_NOTHING)
    except (EngineError, UsageError, StoreError) as error:
        _fail(str(error), EXIT_USAGE)
    except ServecheckError as error:
        _fail(str(error), EXIT_COULD_NOT_TELL)
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader of our output (`| head`) has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> None:
    typer.echo(f"servecheck: {message}", err=True)
    raise SystemExit(code)


def _crashed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Exit as one that could not tell: what Python exits with by itself would be read as a finding."""
    traceback.print_exception(kind, error, trace)
    typer.echo("servecheck: this is a fault of servecheck, not of a server; please report the lines above", err=True)
    raise SystemExit(EXIT_COULD_NOT_TELL)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"servecheck {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


# --------------------------------------------------------------------------- run and demo

Out = Annotated[Path | None, typer.Option("--out", help="The run folder to write; must be empty or not exist.")]
Suite = Annotated[str, typer.Option("--suite", help="smoke, standard, full, migration or demo.")]
Feature = Annotated[list[str] | None, typer.Option("--feature", help="Only rows that match this id, group or glob.")]
ScenarioPath = Annotated[
    list[Path] | None,
    typer.Option(
        "--scenario", help="A scenario file or folder of your own, instead of the built-in ones; `builtin` names those."
    ),
]
Trials = Annotated[int | None, typer.Option("--trials", min=1, max=100, help="Run every case so many times.")]
ProfileName = Annotated[
    str | None,
    typer.Option("--profile", help="Judge by what an application needs: a name (servecheck list profiles) or a file."),
]
ExpectFile = Annotated[
    Path | None, typer.Option("--expect", help="Known deviations (servecheck expect writes them); exit code only.")
]
Declared = Annotated[
    list[str] | None,
    typer.Option("--declared", help="NAME=FILE-or-URL: a support matrix, tpu-inference's CSV or your YAML, beside it."),
]
HistoryFile = Annotated[
    Path | None, typer.Option("--history", help="A file that keeps the runs; the report says what changed.")
]
FailOn = Annotated[str | None, typer.Option("--fail-on", help="blocker, behind or any: what makes the exit code 1.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the verdict and where the report is.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print results.json instead of text.")]
Deadline = Annotated[float, typer.Option("--deadline", min=1, help="Seconds that one request may take.")]
Allow = Annotated[list[str] | None, typer.Option("--allow", help="load or dangerous: probes that can harm others.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would run and what it costs; send nothing.")]
Seed = Annotated[
    str | None,
    typer.Option("--seed", help="Seed of the random words in prompts; a new one for each run where none is given."),
]
Header = Annotated[
    list[str] | None, typer.Option("--header", "-H", help="'Name: value', or NAME='Name: value' for one endpoint.")
]
WaitReady = Annotated[float, typer.Option("--wait-ready", min=0, help="Seconds to wait for a server to be ready.")]
ModelFile = Annotated[Path | None, typer.Option("--model-file", help="A GGUF file, for machines without a network.")]
WorkloadFile = Annotated[
    Path | None,
    typer.Option("--workload", help="Your own schemas, tools and prompts: a workload file, or a request log (.jsonl)."),
]
Traffic = Annotated[
    Path | None,
    typer.Option("--traffic", help="Lengths of prompts and answers, JSONL or CSV: which share would meet a stall."),
]
Title = Annotated[str | None, typer.Option("--title", help="A title of your own for the report.")]
Context_ = Annotated[
    Path | None,
    typer.Option("--context", help="A text file that the report shows first: what is to be decided, and why."),
]
Bench = Annotated[
    list[str] | None,
    typer.Option(
        "--bench",
        help="NAME=FILE: what GuideLLM, AIPerf, vllm bench serve or sglang.bench_serving measured of that endpoint.",
    ),
]
Redact = Annotated[
    bool, typer.Option("--redact-bodies", help="Reports without what was sent and what came back; run.jsonl keeps it.")
]
BudgetText = Annotated[str, typer.Option("--budget", help="Per endpoint, as requests=400,tokens=240000.")]


@app.command()
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
    profile: ProfileName = None,
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

    _fail_on(fail_on)
    limits = Budget.parse(budget)
    needs = _profile(profile)
    expected = _expected(expect)
    framed = _framing(title, context_file, bench, redact_bodies)
    left = None
    if recorded is not None and reference is not None:
        raise UsageError("--recorded names the reference, so there is no room for --reference")
    if resume is not None:
        _nothing_new_when_resuming(context)
        plan = plan_of(resume, _probes())
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
        settings = _settings(suite, trials, deadline, wait_ready, allow, seed or secrets.token_hex(8))
        if needs is not None and not feature and not _given(context, "suite"):
            feature = [*needs.rows, *(limit.row for limit in needs.limits), "identity.*", "quantization.identity"]
        plan = _plan(found, settings, feature, scenario, workload, traffic, recorded=left is not None)
        _say_formats(plan, quiet=quiet or as_json)
        _say_workload(plan, quiet=quiet or as_json or dry_run)
    _of_this_run(framed, [each.name for each in plan.endpoints])
    matrices = _matrices(declared, {each.name: each.model for each in plan.endpoints})
    if dry_run:
        _print_plan(plan)
        return
    _tell_cost(plan, quiet=quiet or as_json)
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
    raise typer.Exit(_finish(report, folder, fail_on, as_json=as_json))


@app.command()
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
    settings = _settings("standard", 1, deadline, wait_ready, allow, secrets.token_hex(8))
    plan = _plan([one], settings, [*recordings.ROWS], None, None)
    _say(_cost(plan), quiet=quiet or as_json)
    report = _carry_out(plan, folder, connect, Budget(), quiet or as_json)
    raise typer.Exit(_finish(report, folder, None, as_json=as_json))


_WHILE_RESUMING = frozenset({"resume", "history", "budget", "fail_on", "dry_run", "quiet", "as_json"})


def _nothing_new_when_resuming(context: typer.Context) -> None:
    """Refuse options that would be a plan of their own: the folder holds the plan, and they would say nothing."""
    given = [
        max(parameter.opts, key=len) if parameter.param_type_name == "option" else "endpoint"
        for parameter in context.command.params
        if parameter.name not in _WHILE_RESUMING and _given(context, parameter.name)
    ]
    if given:
        raise UsageError(f"--resume goes on as that run was begun and takes no {', '.join(given)}; leave it away")


def _given(context: typer.Context, name: str) -> bool:
    """Tell whether an option stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@app.command()
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

    _fail_on(fail_on)
    settings = _settings(suite, trials, deadline, 0.0, None, "demo")
    folder = out or Path("runs") / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    about = {
        "reference": {"kv_cache_dtype": "f16", "device": "cpu", "quantization": "Q4_1"},
        "candidate": {"kv_cache_dtype": "q4_0", "device": "cpu", "quantization": "Q4_1"},
    }
    if dry_run:
        url = "http://127.0.0.1:0/v1"
        planned = [Endpoint(name=name, base_url=url, reference=name == "reference") for name in about]
        _print_plan(_plan(planned, settings, feature, None, workload))
        return
    must_be_free(folder)
    if workload is not None:  # what is wrong with it is said before an engine is started
        _workload(workload)
    configs = demo_pair(fetch(model_file=model_file, tell=lambda text: _say(text, quiet=quiet or as_json)))
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
        plan = _plan(found, settings, feature, None, workload)
        _say_workload(plan, quiet=quiet or as_json)
        _tell_cost(plan, quiet=quiet or as_json)
        report = _carry_out(plan, folder, connector(os.environ), Budget(), quiet or as_json)
    raise typer.Exit(_finish(report, folder, fail_on, as_json=as_json))


def _settings(
    suite: str, trials: int | None, deadline: float, wait_ready: float, allow: list[str] | None, seed: str
) -> Settings:
    from servecheck.model import Risk
    from servecheck.plan import Settings

    risks = {"load": Risk.LOAD, "dangerous": Risk.DANGEROUS}
    for name in allow or []:
        if name not in risks:
            raise UnknownName("risk", name, risks)
    return Settings(
        suite=suite,
        trials=trials,
        deadline=deadline,
        wait_ready=wait_ready,
        allow=frozenset(risks[name] for name in allow or []),
        seed=seed,
    )


def _fail_on(name: str | None) -> Any:  # noqa: ANN401 - verdict.FailOn, imported late
    from servecheck.verdict import FailOn as Level

    if name is not None and name not in {level.value for level in Level}:
        raise UnknownName("--fail-on", name, [level.value for level in Level])
    return Level(name) if name else None


def _probes() -> Mapping[str, Probe[Params]]:
    from servecheck.probes import discover

    return discover()


def _scenarios(paths: list[Path] | None) -> Sequence[Scenario]:
    from servecheck import features, scenario

    if not paths:
        return _builtin_scenarios()
    return scenario.load_all(paths, probes=_probes(), features=features.BY_ID)


@functools.cache
def _builtin_scenarios() -> tuple[Scenario, ...]:
    from servecheck import features, scenario

    return tuple(scenario.load_all([scenario.builtin_dir()], probes=_probes(), features=features.BY_ID))


def _chosen(paths: list[Path] | None) -> bool:
    from servecheck.scenario import BUILTIN

    return bool(paths) and BUILTIN not in (paths or ())


@functools.cache
def _workload(path: Path) -> Workload:
    from servecheck.workload import load

    return load(path)


def _plan(
    found: Any,  # noqa: ANN401
    settings: Settings,
    feature: list[str] | None,
    paths: list[Path] | None,
    workload: Path | None,
    traffic: Path | None = None,
    *,
    recorded: bool = False,
) -> Plan:
    from servecheck import features, plan, scenario
    from servecheck import traffic as samples

    chosen, own = _scenarios(paths), _workload(workload) if workload is not None else None
    if own is not None and paths:
        chosen = scenario.with_patterns(chosen, probes=_probes(), features=features.BY_ID)
    if traffic is not None:
        chosen = plan.with_traffic(chosen, samples.load(traffic).prompts)
    return plan.make(
        found,
        chosen,
        _probes(),
        settings=settings,
        globs=feature or [],
        given=_chosen(paths),
        workload=own,
        recorded=recorded,
    )


def _say_formats(plan: Plan, *, quiet: bool) -> None:
    """Say what is known of the formats of weights before anything is sent: a server that cannot load them is none."""
    from servecheck import formats

    for endpoint in plan.endpoints:
        for line in formats.before(endpoint):
            _say(f"warning: {line}", quiet=quiet)


def _served(folder: Path) -> dict[str, str | None]:
    from servecheck.store import RunReader

    return {endpoint.name: endpoint.model for endpoint, _ in RunReader(folder).endpoints()}


def _matrices(given: Sequence[str] | None, models: Mapping[str, str | None]) -> Sequence[Matrix] | None:
    """Return the support matrices that are given, read or fetched; ``models`` is what each endpoint serves."""
    if not given:
        return None
    from servecheck import declared, features
    from servecheck.wire.github import fetch_file

    return [
        declared.read(
            name, place, features=features.BY_ID, model=models[name], fetch=lambda url: asyncio.run(fetch_file(url))
        )
        for name, place in declared.requested(given, [*models])
    ]


def _say_workload(plan: Plan, *, quiet: bool) -> None:
    if plan.workload is not None:
        for line in plan.workload.lines():
            _say(line, quiet=quiet)


def _profile(name: str | None) -> Profile | None:
    """Return the profile of a name or a file; its rows and checks must exist."""
    if name is None:
        return None
    from servecheck import features, profiles

    probes = _probes()
    checks: dict[str, set[str]] = {}
    for scenario in _builtin_scenarios():
        checks.setdefault(scenario.feature, set()).update(check.id for check in probes[scenario.probe].checks)
    return profiles.find(name, features=features.BY_ID, checks=checks)


def _framing(title: str | None, context: Path | None, bench: list[str] | None, redact: bool) -> Framing:
    from servecheck.report.framing import framing

    return framing(title=title, context=context, benchmarks=bench or [], redact=redact)


def _of_this_run(framed: Framing, names: Sequence[str]) -> None:
    for each in framed.benchmarks:
        if each.endpoint not in names:
            raise UnknownName("endpoint", each.endpoint, names)


def _framed(found: RunReport, framed: Framing) -> RunReport:
    """Return a run with what this command adds to its report."""
    _of_this_run(framed, [subject.name for subject in found.subjects])
    return dataclasses.replace(found, framing=framed.over(found.framing))


def _expected(path: Path | None) -> Sequence[Expectation] | None:
    if path is None:
        return None
    from servecheck import expectations, features

    return expectations.load(path, features.BY_ID)


def _print_plan(plan: Plan) -> None:
    typer.echo(f"suite {plan.settings.suite}: {len(plan.scenarios)} scenarios on {len(plan.endpoints)} endpoint(s)")
    for scenario in plan.scenarios:
        typer.echo(f"  {scenario.feature:34} {scenario.id}")
    for line in plan.workload.lines() if plan.workload is not None else ():
        typer.echo(line)
    typer.echo(_cost(plan))
    typer.echo("nothing was sent")


def _tell_cost(plan: Plan, *, quiet: bool) -> None:
    """Say what a run will cost before anything is sent, where it is more than a look."""
    from servecheck.model import Risk

    probes = _probes()
    if any(probes[scenario.probe].risk is not Risk.SAFE for scenario in plan.scenarios):
        _say(_cost(plan), quiet=quiet)


def _cost(plan: Plan) -> str:
    cost = plan.estimate
    return (
        f"per endpoint about {cost.requests} requests, {cost.prompt_tokens} prompt and {cost.output_tokens} generated "
        "tokens; up to three times that where a check does not hold and is looked at again"
    )


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
    from servecheck import run as runs
    from servecheck.history import History, previous_of
    from servecheck.progress import watching
    from servecheck.report.files import write_all
    from servecheck.store import must_be_free
    from servecheck.wire.curl import render

    probes = _probes()
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
        raise typer.Exit(EXIT_INTERRUPTED)
    return report


def _until_interrupted(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end; the first SIGINT or SIGTERM cancels the work, so that it can close its files."""

    async def watched() -> None:
        task = asyncio.ensure_future(work)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await task

    asyncio.run(watched())


def _finish(report: RunReport, folder: Path, fail_on: str | None, *, as_json: bool) -> int:
    from servecheck.progress import summary
    from servecheck.report.results import results_text

    typer.echo(results_text(report) if as_json else summary(report, folder), nl=not as_json)
    return _exit_code(report, fail_on)


def _exit_code(report: RunReport, fail_on: str | None) -> int:
    from servecheck import verdict

    return verdict.exit_code(
        report.verdict,
        report.cells,
        report.comparisons,
        report.features,
        has_reference=report.reference is not None,
        fail_on=_fail_on(fail_on),
        has_profile=report.profile is not None,
        excused=frozenset(filter(None, (each.excuses for each in report.expected))),
        stale=any(each.fails for each in report.expected),
    )


def _say(text: str, *, quiet: bool) -> None:
    if not quiet:
        typer.echo(text, err=True)


# --------------------------------------------------------------------------- reading runs

RunFolder = Annotated[Path, typer.Argument(help="A run folder.")]


@app.command()
def judge(
    folder: RunFolder,
    profile: ProfileName = None,
    expect: ExpectFile = None,
    declared: Declared = None,
    title: Title = None,
    context_file: Context_ = None,
    bench: Bench = None,
    redact_bodies: Redact = False,
    fail_on: FailOn = None,
    as_json: AsJson = False,
) -> None:
    """Judge a recorded run again, offline, and write its reports anew."""
    from servecheck.report.files import write_all
    from servecheck.run import read_back
    from servecheck.wire.curl import render

    _fail_on(fail_on)
    matrices = _matrices(declared, _served(folder)) if declared else None
    framed = _framing(title, context_file, bench, redact_bodies)
    found = read_back(folder, _probes(), profile=_profile(profile), expected=_expected(expect), matrices=matrices)
    report = _framed(found, framed)
    write_all(report, folder, render)
    raise typer.Exit(_finish(report, folder, fail_on, as_json=as_json))


@app.command()
def expect(
    folder: RunFolder,
    profile: ProfileName = None,
    fail_on: FailOn = None,
    days: Annotated[int, typer.Option("--days", min=1, help="How long each deviation is accepted.")] = 90,
    out: Annotated[Path | None, typer.Option("--out", help="The file to write; must not exist.")] = None,
) -> None:
    """Write the expectations with which a run passes, to be edited with reasons; sends nothing."""
    from servecheck import verdict
    from servecheck.expectations import written
    from servecheck.run import read_back

    report = read_back(folder, _probes(), profile=_profile(profile), expected=())
    level = _fail_on(fail_on) or verdict.default_fail_on(
        has_reference=report.reference is not None, has_profile=report.profile is not None
    )
    rows = verdict.failures(report.verdict, report.cells, report.comparisons, report.features, fail_on=level)
    unknown = [row for row in report.verdict.unknown if row not in rows]
    text = written(
        [*rows, *unknown], report.cells, report.comparisons, run=report.id, day=report.started.date(), days=days
    )
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{out} exists; name another file, or take it away first") from None
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error}") from error
    typer.echo(f"{out}: {len(rows) + len(unknown)} expected; say why each is accepted")


@app.command()
def compare(
    left: Annotated[str, typer.Argument(help="A run folder, or FOLDER:ENDPOINT; the reference.")],
    right: Annotated[str, typer.Argument(help="A run folder, or FOLDER:ENDPOINT; what you would move to.")],
    out: Out = None,
    unlike: Annotated[
        list[str] | None, typer.Option("--unlike", help="model or probes: compare although these differ.")
    ] = None,
    profile: ProfileName = None,
    expect: ExpectFile = None,
    fail_on: FailOn = None,
    as_json: AsJson = False,
) -> None:
    """Compare an endpoint of one recorded run with one of another, both judged anew; sends nothing."""
    from servecheck.join import Unlike, join
    from servecheck.report.files import write_all
    from servecheck.run import read_back
    from servecheck.store import must_be_free
    from servecheck.wire.curl import render

    _fail_on(fail_on)
    differences = [difference.value for difference in Unlike]
    for name in unlike or []:
        if name not in differences:
            raise UnknownName("difference", name, differences)
    folder = out or Path("runs") / f"compare-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    must_be_free(folder)
    join(
        left,
        right,
        folder,
        command=["servecheck", *sys.argv[1:]],
        unlike=map(Unlike, unlike or []),
        profile=_profile(profile),
        expected=_expected(expect) or (),
    )
    found = read_back(folder, _probes())
    write_all(found, folder, render)
    raise typer.Exit(_finish(found, folder, fail_on, as_json=as_json))


@app.command("history")
def history_(
    file: Annotated[Path, typer.Argument(help="The file that run --history keeps.")],
    add: Annotated[list[Path] | None, typer.Option("--add", help="A recorded run to put into it first.")] = None,
    keep: Annotated[int | None, typer.Option("--keep", min=1, help="Keep only so many of the latest runs.")] = None,
    endpoint: Annotated[str | None, typer.Option("--endpoint", help="Only this endpoint.")] = None,
    feature: Feature = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Compare the last run with this one: an id, an engine's version, a day."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What changed, wavers or drifts over the runs of a history; sends nothing."""
    from servecheck.history import History
    from servecheck.history_text import as_text, told_as_json
    from servecheck.run import read_back

    if not add and not file.exists():
        raise UsageError(f"there is no history {file}; servecheck run … --history {file} begins one")
    with History(file) as kept:
        for folder in add or ():
            kept.add(read_back(folder, _probes()), keep=keep)
        if keep is not None:
            kept.prune(keep)
        if endpoint is not None and endpoint not in kept.endpoints():
            raise UnknownName("endpoint", endpoint, kept.endpoints())
        told = kept.told(endpoint, feature or ())
        changed = kept.changed(since, endpoint, feature or ())
        runs = kept.runs()
    typer.echo(
        json.dumps(told_as_json(runs, changed, told), indent=2, ensure_ascii=False)
        if as_json
        else as_text(runs, changed, told, since),
    )


@app.command()
def report(
    folder: RunFolder,
    form: Annotated[str, typer.Option("--format", help="md, html, json, junit, summary, csv or github.")] = "md",
    title: Title = None,
    context_file: Context_ = None,
    bench: Bench = None,
    redact_bodies: Redact = False,
) -> None:
    """Print the report of a recorded run."""
    from servecheck.report.files import FORMATS, rendered
    from servecheck.run import read_back
    from servecheck.wire.curl import render

    if form not in FORMATS:
        raise UnknownName("format", form, FORMATS)
    framed = _framing(title, context_file, bench, redact_bodies)
    typer.echo(rendered(_framed(read_back(folder, _probes()), framed), form, render), nl=False)


@app.command()
def issues(
    folder: Annotated[Path | None, typer.Argument(help="A run folder: its engines, stacks, models and rows.")] = None,
    repo: Annotated[
        list[str] | None, typer.Option("--repo", help="OWNER/NAME, instead of those of the engine.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="The model's id; its name is a guess.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="The model's config.json, which says it.")] = None,
    engine: Annotated[str | None, typer.Option("--engine", help="vllm, sglang and the like.")] = None,
    stack: Annotated[str | None, typer.Option("--stack", help="tpu-inference, torchtpu or sgl-jax.")] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="An export by gh issue list --json; nothing is asked.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Find open upstream issues that touch a model's architecture or a row that fails. Asks GitHub; GITHUB_TOKEN."""
    from servecheck.upstream import Wanted, find

    report = None
    if folder is not None:
        from servecheck.run import read_back

        report = read_back(folder, _probes())
    wanted = Wanted(
        report=report, repositories=tuple(repo or ()), model=model, config=config, engine=engine, stack=stack
    )
    found = find(wanted, from_file=from_file, environ=os.environ)
    typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False) if as_json else found.told())
    raise typer.Exit(EXIT_COULD_NOT_TELL if found.looked.not_asked else 0)


@app.command()
def recompiles(
    server_log: Annotated[
        Path, typer.Option("--server-log", help="The server's own log, plain or gzip; - is the standard input.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Count what a server compiled, from its log: while it started and while it served. Nothing is sent."""
    from servecheck import serverlog

    log = serverlog.read(server_log)
    typer.echo(json.dumps(log.as_json(), indent=2, ensure_ascii=False) if as_json else log.told())
    raise typer.Exit(0 if log.known else EXIT_COULD_NOT_TELL)


# --------------------------------------------------------------------------- what there is

lists = typer.Typer(no_args_is_help=True, help="List features, probes, scenarios or checks.")
app.add_typer(lists, name="list")
Form = Annotated[str, typer.Option("--format", help="text or json.")]
Json_ = Annotated[bool, typer.Option("--json", help="Short for --format json.")]


def _listed(rows: list[dict[str, Any]], line: Callable[[dict[str, Any]], str], form: str, as_json: bool) -> None:

    if form not in ("text", "json"):
        raise UnknownName("format", form, ("text", "json"))
    if as_json or form == "json":
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        for row in rows:
            typer.echo(line(row))


@lists.command("features")
def list_features(form: Form = "text", as_json: Json_ = False) -> None:
    """Every row of the matrix, probed or not."""
    from servecheck import features

    scenarios = _scenarios(None)
    rows = [
        {
            "id": feature.id,
            "title": feature.title,
            "group": feature.group,
            "core": feature.core,
            "kind": feature.kind.value,
            "risk": feature.risk.value,
            "question": feature.question,
            "probes": sorted({scenario.probe for scenario in scenarios if scenario.feature == feature.id}),
        }
        for feature in features.FEATURES
    ]

    def line(row: dict[str, Any]) -> str:
        return f"{row['id']:34} {'core' if row['core'] else '':5}{', '.join(row['probes']) or 'no-probe'}"

    _listed(rows, line, form, as_json)


@lists.command("probes")
def list_probes(form: Form = "text", as_json: Json_ = False) -> None:
    """Every probe, with its checks and what a trial of its dearest scenario costs."""
    from servecheck import suites

    rows = [
        {
            "id": probe.id,
            "title": probe.doc.strip().splitlines()[0],
            "risk": probe.risk.value,
            "checks": [check.id for check in probe.checks],
            **suites.dearest(probe, _scenarios(None)),
        }
        for probe in _probes().values()
    ]
    _listed(rows, lambda row: f"{row['id']:30} {row['title']}", form, as_json)


@lists.command("scenarios")
def list_scenarios(form: Form = "text", as_json: Json_ = False) -> None:
    """The built-in scenarios, with their suites and what one look costs."""
    from servecheck import suites

    def line(row: dict[str, Any]) -> str:
        cost = f"{row['requests']}/{row['prompt_tokens']}/{row['output_tokens']}"
        return f"{row['id']:44} {row['feature']:30} {cost:>15}  {' '.join(row['suites']) or row['risk']}"

    _listed(suites.scenario_rows(_scenarios(None), _probes()), line, form, as_json)
    if not as_json and form == "text":
        typer.echo("\nCosts are requests/prompt tokens/generated tokens. By suite:\n")
        list_suites()


@lists.command("suites")
def list_suites(form: Form = "text", as_json: Json_ = False) -> None:
    """What --suite takes, and what each costs."""
    from servecheck import suites

    def line(row: dict[str, Any]) -> str:
        size = f"{row['features']} rows, {row['scenarios']} scenarios"
        return f"{row['id']:10} {size:26} {suites.cost_in_words(row)}: {row['about']}"

    _listed(suites.suite_rows(_scenarios(None), _probes()), line, form, as_json)
    if not as_json and form == "text":
        typer.echo(f"\n{suites.COST_IS}")


@lists.command("profiles")
def list_profiles(form: Form = "text", as_json: Json_ = False) -> None:
    """What kinds of applications need, for --profile."""
    from servecheck import profiles

    rows = [
        {"id": each.id, "title": each.title, "as_of": each.as_of.isoformat(), "rows": [*each.rows]}
        for each in profiles.builtins()
    ]
    _listed(rows, lambda row: f"{row['id']:24} {row['as_of']}  {row['title']} ({len(row['rows'])} rows)", form, as_json)


@lists.command("checks")
def list_checks(form: Form = "text", as_json: Json_ = False) -> None:
    """Every check: one rule that can be seen to hold or not."""
    rows = [
        {"id": check.id, "rule": check.rule, "level": check.level.value, "source": check.source, "probe": owner}
        for owner, check in _checks()
    ]
    _listed(rows, lambda row: f"{row['id']:38} {row['level']:7} {row['rule']}", form, as_json)


def _checks() -> list[tuple[str, Any]]:
    from servecheck.judging import BUILT_IN_CHECKS

    owned = [(probe.id, check) for probe in _probes().values() for check in probe.checks]
    return [*owned, *(("every probe", check) for check in BUILT_IN_CHECKS)]


@app.command()
def explain(check: Annotated[str, typer.Argument(help="The id of a check, a feature or a probe.")]) -> None:
    """Say what a check demands, why, and how it could be fooled."""
    from servecheck import features

    probes = _probes()
    for owner, found in _checks():
        if found.id == check:
            typer.echo(f"{found.id} ({found.level.value})\n\n{found.rule}\n\nsource: {found.source}")
            if owner in probes:
                typer.echo(f"probe {owner}:\n\n{probes[owner].doc.strip()}")
            return
    if check in probes:
        typer.echo(probes[check].doc.strip())
        return
    if check in features.BY_ID:
        _explain_row(check)
        return
    raise UnknownName("check", check, [*(found.id for _, found in _checks()), *probes, *features.BY_ID])


def _explain_row(feature: str) -> None:
    from servecheck import features

    row, probes = features.BY_ID[feature], _probes()
    weight = "core" if row.core else "extended"
    typer.echo(f"{row.id}: {row.title}\n\n{row.question}\n\n{weight}, {row.kind.value}, risk {row.risk.value}")
    mine = [scenario for scenario in _scenarios(None) if scenario.feature == feature]
    if not mine:
        typer.echo("\nno probe yet")
    for scenario in mine:
        probe = probes[scenario.probe]
        typer.echo(f"\nprobe {probe.id}, risk {probe.risk.value}, in the scenario {scenario.id}: {scenario.title}")
        for check in probe.checks:
            typer.echo(f"  {check.id} ({scenario.level_of(check).value})\n    {check.rule}")


@app.command()
def schema(
    name: Annotated[
        str, typer.Argument(help="scenario, results, endpoints, expectations, profile, workload or declared.")
    ],
) -> None:
    """Print a published JSON Schema."""
    from importlib.resources import files

    names = (
        *("scenario", "results", "endpoints", "expectations", "profile", "workload"),
        *("declared", "known-issues", "formats"),
    )
    if name not in names:
        raise UnknownName("schema", name, names)
    typer.echo(files("servecheck.schema").joinpath(f"{name}.v1.json").read_text("utf-8"), nl=False)


Paths = Annotated[list[Path], typer.Argument(help="Files of any servecheck format, or folders of them.")]


@app.command()
def lint(paths: Paths) -> None:
    """Check files without sending anything; all problems of all files at once."""
    from servecheck import features
    from servecheck.lint import lint as find_problems

    problems = find_problems(paths, probes=_probes(), features=features.BY_ID)
    for problem in problems:
        typer.echo(str(problem))
    typer.echo(f"{len(problems)} problem(s)" if problems else "no problems", err=True)
    raise typer.Exit(EXIT_USAGE if problems else 0)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where to write; this folder, unless given.")] = Path(),
    github: Annotated[bool, typer.Option("--github", help="Also a workflow that runs every night.")] = False,
    action: Annotated[
        str | None, typer.Option("--action", help="OWNER/REPOSITORY@COMMIT of the action that the workflow uses.")
    ] = None,
) -> None:
    """Write a starter endpoints file, scenario and expectations, and a workflow; never over a file that is there."""
    from servecheck import init as starting

    if action is not None and not github:
        raise UsageError("--action is for the workflow, which only --github writes")
    chosen = action if action is not None else starting.ACTION
    texts = starting.starter(github=github, action=chosen)
    starting.write(folder, texts)
    for name in texts:
        typer.echo(f"wrote {folder / name}")
    typer.echo(f"next:\n{starting.next_steps(folder, github=github, action=chosen)}")


# --------------------------------------------------------------------------- the instrument itself


@app.command()
def selftest(
    everything: Annotated[bool, typer.Option("--all", help="Every mutant under every reference model.")] = False,
    as_json: AsJson = False,
) -> None:
    """Prove on built-in broken servers that the checks catch faults and leave harmless oddities alone."""
    from servecheck.reference.killmatrix import kill_matrix
    from servecheck.scenario import examples_dir

    # The probe for a user's own checks is in no suite; the examples show what it is worth.
    scenarios = [*_scenarios(None), *_scenarios([examples_dir()])]
    matrix = kill_matrix(_probes(), scenarios, everything=everything)
    if as_json:
        typer.echo(json.dumps(matrix.as_json(), indent=2))
    else:
        for line in matrix.misses():
            typer.echo(line)
        typer.echo(matrix.sentence)
    raise typer.Exit(0 if matrix.clean else 1)


MutantName = Annotated[str | None, typer.Option("--mutant", help="Serve this fault; `--mutant list` lists them.")]
Language = Annotated[str, typer.Option("--language", help="obedient, babbling, declining or reasoning.")]


@app.command()
def mock(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any free port and prints it.")] = 0,
    mutant: MutantName = None,
    language: Language = "obedient",
) -> None:
    """Serve the reference server, or one of its broken variants, on 127.0.0.1."""
    from servecheck.reference import mutants
    from servecheck.reference.mock import serve
    from servecheck.reference.models import MODELS
    from servecheck.reference.server import ReferenceServer

    if language not in MODELS:
        raise UnknownName("language", language, MODELS)
    known: dict[str, mutants.Mutant | mutants.Harmless] = {}
    for found, harmless in mutants.discover().values():
        known |= {each.id: each for each in found} | {each.id: each for each in harmless}
    if mutant == "list":
        for name, each in known.items():
            typer.echo(f"{name:44} {each.sentence}")
        return
    if mutant is not None and mutant not in known:
        raise UnknownName("mutant", mutant, known)
    server = known[mutant].make(language) if mutant is not None else ReferenceServer(language=language)
    try:
        serve(server, "127.0.0.1", port, ready=typer.echo)
    except OSError as error:
        raise UsageError(
            f"cannot listen on port {port}: {error.strerror or error}; --port 0 takes any free one"
        ) from error
