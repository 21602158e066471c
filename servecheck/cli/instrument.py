"""The commands about the instrument itself: selftest and mock."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from servecheck.cli import given, listing
from servecheck.cli.options import AsJson
from servecheck.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from servecheck.reference.mutants import Harmless, Mutant


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


MutantName = Annotated[
    str | None, typer.Option("--mutant", help="Serve this fault; `servecheck list mutants` lists them.")
]
Language = Annotated[
    str | None,
    typer.Option(
        "--language", help="obedient (unless a fault shows only with another), babbling, declining, reasoning."
    ),
]
WantedKey = Annotated[
    str | None,
    typer.Option(
        "--api-key-env", metavar="VARIABLE", help="Want the key that this variable holds; never the key itself."
    ),
]
_TOKEN_SECONDS = 0.005  # a server that nobody waits for as for an engine; what rows time is as clear as at 0.02


def mock(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any free port and prints it.")] = 0,
    mutant: MutantName = None,
    language: Language = None,
    api_key_env: WantedKey = None,
) -> None:
    """Serve the reference server, or one of its broken variants, on 127.0.0.1.

    It makes about 200 tokens a second.
    """
    from servecheck.reference.mock import serve
    from servecheck.reference.models import MODELS
    from servecheck.reference.server import ReferenceServer

    if language is not None and language not in MODELS:
        raise UnknownName("language", language, MODELS)
    if mutant == "list":
        listing.list_mutants()
        return
    variant = _named(mutant) if mutant is not None else None
    config: dict[str, Any] = {"decode_seconds": _TOKEN_SECONDS} | dict(variant.config if variant is not None else {})
    if api_key_env is not None:
        config["api_key"] = _wanted_key(api_key_env)
    elif variant is not None and variant.wants_key:
        raise UsageError(
            f"--mutant {mutant}: it shows only where a key is wanted; "
            "--api-key-env VARIABLE names the variable that holds one"
        )
    shown_with = variant.models if variant is not None else tuple(MODELS)
    if language is None:
        language = "obedient" if "obedient" in shown_with else shown_with[0]
    server = variant.make(language, **config) if variant is not None else ReferenceServer(language=language, **config)

    def ready(url: str) -> None:
        what = f"{mutant}: {variant.sentence}" if variant is not None else "right in every row"
        if "obedient" not in shown_with:
            only = " or ".join(shown_with)
            what += f" It shows with --language {only} only: what it is compared with needs the same"
        if api_key_env is not None:
            what += f"{'' if what.endswith('.') else ','} with the key in {api_key_env}"
        typer.echo(f"serving a reference server, {what}; Ctrl-C ends it", err=True)
        typer.echo(f"{url}/v1")

    try:
        serve(server, "127.0.0.1", port, ready=ready)
    except OSError as error:
        raise UsageError(
            f"cannot listen on port {port}: {error.strerror or error}; --port 0 takes any free one"
        ) from error


def _wanted_key(variable: str) -> str:
    from servecheck.addresses import VARIABLE_RULE
    from servecheck.schema.endpoints_v1 import ENV_NAME

    # What is no variable's name may be the key itself, so it is not repeated.
    if re.fullmatch(ENV_NAME, variable) is None:
        raise UsageError(f"--api-key-env: {VARIABLE_RULE}")
    key = os.environ.get(variable, "")
    if not key:
        raise UsageError("--api-key-env: the variable is not set, or holds nothing")
    return key


def _named(name: str) -> Mutant | Harmless:
    """Return the variant that ``PROBE/ID`` names, or an ID alone where one sentence says what all of that name are."""
    from servecheck.reference import mutants

    full: dict[str, Mutant | Harmless] = {}
    for probe, (faults, harmless) in mutants.discover().items():
        full |= {f"{probe}/{each.id}": each for each in faults} | {f"{probe}/{each.id}": each for each in harmless}
    if name in full:
        return full[name]
    alike = {key: each for key, each in full.items() if each.id == name}
    if not alike:
        raise UnknownName("mutant", name, [*full, *(each.id for each in full.values())])
    if len({each.sentence for each in alike.values()}) > 1:
        raise UsageError(f"there is more than one mutant {name!r}: {', '.join(alike)}; name one of them in full")
    return next(iter(alike.values()))
