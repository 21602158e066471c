"""The commands about the files that people write: schema, lint and init."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from servecheck.cli import exits, given
from servecheck.errors import UnknownName, UsageError


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


def lint(paths: Paths) -> None:
    """Check files without sending anything; all problems of all files at once."""
    from servecheck import features
    from servecheck.lint import lint as find_problems

    problems = find_problems(paths, probes=given.probes(), features=features.BY_ID)
    for problem in problems:
        typer.echo(str(problem))
    wrong = [problem for problem in problems if not problem.warning]
    warnings = f", {len(problems) - len(wrong)} warning(s)" if len(wrong) < len(problems) else ""
    typer.echo((f"{len(wrong)} problem(s)" if wrong else "no problems") + warnings, err=True)
    raise typer.Exit(exits.EXIT_USAGE if wrong else 0)


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write; this folder, unless given.")] = Path(),
    github: Annotated[bool, typer.Option("--github", help="Also a workflow that runs every night.")] = False,
    action: Annotated[
        str | None, typer.Option("--action", help="OWNER/REPOSITORY@COMMIT of the action that the workflow uses.")
    ] = None,
) -> None:
    """Write a starter endpoints file, scenario and expectations, and a workflow: those that are not there yet."""
    from servecheck import init as starting

    if action is not None and not github:
        raise UsageError("--action is for the workflow, which only --github writes")
    chosen = action if action is not None else starting.ACTION
    texts = starting.starter(github=github, action=chosen)
    try:
        new = starting.write(folder, texts)
    except UsageError as error:
        if action is not None and (folder / starting.WORKFLOW).exists():
            raise UsageError(f"{error}; {starting.other_action(folder)}") from error
        raise
    for name in texts:
        typer.echo(f"{'wrote' if name in new else 'kept '} {folder / name}")
    if action is not None and starting.WORKFLOW not in new:
        typer.echo(starting.other_action(folder))
    typer.echo(f"next:\n{starting.next_steps(folder, github=github, action=chosen)}")
