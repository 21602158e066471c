"""The commands about the instrument itself: selftest and mock."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from servecheck.cli import given
from servecheck.cli.options import AsJson
from servecheck.errors import UnknownName, UsageError


def selftest(
    everything: Annotated[bool, typer.Option("--all", help="Every mutant under every reference model.")] = False,
    as_json: AsJson = False,
) -> None:
    """Prove on built-in broken servers that the checks catch faults and leave harmless oddities alone."""
    from servecheck.reference.killmatrix import kill_matrix
    from servecheck.scenario import examples_dir

    # The probe for a user's own checks is in no suite; the examples show what it is worth.
    scenarios = [*given.scenarios(None), *given.scenarios([examples_dir()])]
    matrix = kill_matrix(given.probes(), scenarios, everything=everything)
    if as_json:
        typer.echo(json.dumps(matrix.as_json(), indent=2))
    else:
        for line in matrix.misses():
            typer.echo(line)
        typer.echo(matrix.sentence)
    raise typer.Exit(0 if matrix.clean else 1)


_OWN = "own.*"  # the row of a probe that only a user's own scenarios use

MutantName = Annotated[str | None, typer.Option("--mutant", help="Serve this fault; `--mutant list` lists them.")]
Language = Annotated[str, typer.Option("--language", help="obedient, babbling, declining or reasoning.")]


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
    seen_by: dict[str, str] = {}
    for probe, (found, harmless) in mutants.discover().items():
        known |= {each.id: each for each in found} | {each.id: each for each in harmless}
        seen_by |= dict.fromkeys((each.id for each in (*found, *harmless)), probe)
    if mutant == "list":
        rows = {scenario.probe: scenario.feature for scenario in reversed([*given.scenarios(None)])}
        for name, each in sorted(known.items()):
            typer.echo(f"{name:44} {rows.get(seen_by[name], _OWN):32} {each.sentence}")
        return
    if mutant is not None and mutant not in known:
        raise UnknownName("mutant", mutant, known)
    server = known[mutant].make(language) if mutant is not None else ReferenceServer(language=language)

    def ready(url: str) -> None:
        what = f"{mutant}: {known[mutant].sentence}" if mutant is not None else "right in every row"
        typer.echo(f"serving a reference server, {what}; Ctrl-C ends it", err=True)
        typer.echo(f"{url}/v1")

    try:
        serve(server, "127.0.0.1", port, ready=ready)
    except OSError as error:
        raise UsageError(
            f"cannot listen on port {port}: {error.strerror or error}; --port 0 takes any free one"
        ) from error
