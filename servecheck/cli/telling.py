"""What a command that probes says besides its report: of a plan before anything is sent, and of a run at its end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from servecheck.cli import exits, given

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servecheck.budget import Budget
    from servecheck.expectations import Expectation
    from servecheck.plan import Plan
    from servecheck.report.data import RunReport


def say(text: str, *, quiet: bool) -> None:
    """Say something on standard error, where nobody asked for quiet."""
    if not quiet:
        typer.echo(text, err=True)


def say_formats(plan: Plan, *, quiet: bool) -> None:
    """Say what is known of the formats of weights before anything is sent: a server that cannot load them is none."""
    from servecheck import formats

    for endpoint in plan.endpoints:
        for line in formats.before(endpoint):
            say(f"warning: {line}", quiet=quiet)


def say_doubts(plan: Plan, limits: Budget) -> None:
    """Say what was meant and is left out, and an endpoint that is compared with itself; whoever asked for quiet too."""
    from servecheck import selection
    from servecheck.endpoints import same_twice

    for line in (*same_twice(plan.endpoints), *selection.left_out(plan, given.probes(), limits)):
        say(f"warning: {line}", quiet=False)


def say_workload(plan: Plan, *, quiet: bool) -> None:
    """Say what a workload asks for, and what of it cannot be asked."""
    if plan.workload is not None:
        for line in plan.workload.lines():
            say(line, quiet=quiet)


def say_expected(expected: Sequence[Expectation] | None, names: Sequence[str], *, quiet: bool) -> None:
    """Say how much is expected, and what is wrong with that; the warnings whether or not somebody asked for quiet."""
    from servecheck.expectations import notes

    if expected is not None:
        for line in notes(expected, names):
            say(line, quiet=quiet and not line.startswith("warning: "))


def print_plan(plan: Plan) -> None:
    """Print what a run would do; for --dry-run."""
    from servecheck import selection

    for line in selection.chosen(plan):
        typer.echo(line)
    for scenario in plan.scenarios:
        typer.echo(f"  {scenario.feature:34} {scenario.id}")
    for line in plan.workload.lines() if plan.workload is not None else ():
        typer.echo(line)
    typer.echo(cost(plan))
    typer.echo("nothing was sent")


def tell_cost(plan: Plan, *, quiet: bool) -> None:
    """Say what a run will cost before anything is sent, where it is more than a look."""
    from servecheck.model import Risk

    probes = given.probes()
    if any(probes[scenario.probe].risk is not Risk.SAFE for scenario in plan.scenarios):
        say(cost(plan), quiet=quiet)


def cost(plan: Plan) -> str:
    """Return what a plan costs, as a sentence."""
    estimate = plan.estimate
    return (
        f"per endpoint about {estimate.requests} requests ({estimate.beside} of them to know the server and that it is "
        f"well), {estimate.prompt_tokens} prompt and {estimate.output_tokens} generated tokens; up to three times that "
        "where a check does not hold and is looked at again"
    )


def finish(report: RunReport, folder: Path, fail_on: str | None, *, as_json: bool, quiet: bool = False) -> int:
    """Print a report's answer and return its exit code."""
    from servecheck.progress import summary
    from servecheck.report.results import results_text

    code = exits.code_of(report, fail_on)
    try:
        typer.echo(results_text(report) if as_json else summary(report, folder, matrix=not quiet), nl=not as_json)
    except BrokenPipeError:
        let_go()
    return code


def let_go() -> None:
    """Let the rest of the output go nowhere: its reader (``| head``) has had enough, and that is no trouble."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
