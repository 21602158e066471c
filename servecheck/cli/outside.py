"""The commands that look outside of runs: issues asks GitHub, recompiles reads a server's log."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from servecheck.cli import exits, given


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
        from servecheck.readback import read_back

        report = read_back(folder, given.probes())
    wanted = Wanted(
        report=report, repositories=tuple(repo or ()), model=model, config=config, engine=engine, stack=stack
    )
    found = find(wanted, from_file=from_file, environ=os.environ)
    typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False) if as_json else found.told())
    raise typer.Exit(exits.EXIT_COULD_NOT_TELL if found.looked.not_asked else 0)


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
    raise typer.Exit(0 if log.known else exits.EXIT_COULD_NOT_TELL)
