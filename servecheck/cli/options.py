"""The options of the commands that probe endpoints or read runs, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[Path | None, typer.Option("--out", help="The run folder to write; must be empty or not exist.")]
Suite = Annotated[str, typer.Option("--suite", help="smoke, standard, full, migration or demo.")]
Feature = Annotated[
    list[str] | None,
    typer.Option("--feature", help="Only rows that match this id, group or glob, and these whole, whatever the suite."),
]
ScenarioPath = Annotated[
    list[Path] | None,
    typer.Option(
        "--scenario",
        help="Your own scenarios, a file or folder: they always run; with --scenario builtin beside the built-in ones.",
    ),
]
Trials = Annotated[int | None, typer.Option("--trials", min=1, max=100, help="Run every case so many times.")]
ProfileName = Annotated[
    str | None,
    typer.Option("--profile", help="Judge by what an application needs: a name (servecheck list profiles) or a file."),
]
RunProfile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help="Run and judge by what an application needs: a name (servecheck list profiles) or a file; with --suite "
        "its rows come to those of the suite.",
    ),
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
Deadline = Annotated[float, typer.Option("--deadline", min=1, max=86_400, help="Seconds that one request may take.")]
Allow = Annotated[list[str] | None, typer.Option("--allow", help="load or dangerous: probes that can harm others.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would run and what it costs; send nothing.")]
Seed = Annotated[
    str | None,
    typer.Option("--seed", help="Seed of the random words in prompts; a new one for each run where none is given."),
]
Header = Annotated[
    list[str] | None, typer.Option("--header", "-H", help="'Name: value', or NAME='Name: value' for one endpoint.")
]
WaitReady = Annotated[
    float, typer.Option("--wait-ready", min=0, max=86_400, help="Seconds to wait for a server to be ready.")
]
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
BudgetText = Annotated[
    str, typer.Option("--budget", help="Per endpoint, such as requests=400 or tokens=240000, or both with a comma.")
]
RunFolder = Annotated[Path, typer.Argument(help="A run folder.")]
