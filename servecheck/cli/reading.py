"""The commands that read recorded runs and send nothing: judge, expect, compare, history and report."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from servecheck.cli import exits, given, telling
from servecheck.cli.options import (
    AsJson,
    Bench,
    Context_,
    Declared,
    ExpectFile,
    FailOn,
    Feature,
    Out,
    ProfileName,
    Quiet,
    Redact,
    RunFolder,
    Title,
)
from servecheck.errors import UnknownName, UsageError


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
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Judge a recorded run again, offline, and write its reports anew."""
    from servecheck.readback import read_back
    from servecheck.report.files import write_all
    from servecheck.wire.curl import render

    exits.level(fail_on)
    matrices = given.matrices(declared, given.served(folder)) if declared else None
    framed = given.framing(title, context_file, bench, redact_bodies)
    known = given.expected(expect)
    found = read_back(folder, given.probes(), profile=given.profile(profile), expected=known, matrices=matrices)
    report = given.framed(found, framed)
    telling.say_expected(known, [subject.name for subject in report.subjects], quiet=quiet or as_json)
    write_all(report, folder, render)
    raise typer.Exit(telling.finish(report, folder, fail_on, as_json=as_json, quiet=quiet))


def expect(
    folder: RunFolder,
    profile: ProfileName = None,
    fail_on: FailOn = None,
    days: Annotated[int, typer.Option("--days", min=1, help="How long each deviation is accepted.")] = 90,
    out: Annotated[Path | None, typer.Option("--out", help="The file to write; must not exist.")] = None,
) -> None:
    """Write the expectations with which a run passes, to be edited with reasons; sends nothing."""
    from servecheck import verdict
    from servecheck.expectations import ENTRY, written
    from servecheck.readback import read_back

    report = read_back(folder, given.probes(), profile=given.profile(profile), expected=())
    level = exits.level(fail_on) or verdict.default_fail_on(
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
    # Rows that were not run are in no file: an expectation is of something seen.
    typer.echo(f"{out}: {text.count(ENTRY)} expected; say why each is accepted")


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
    from servecheck.readback import read_back
    from servecheck.report.files import write_all
    from servecheck.store import must_be_free
    from servecheck.wire.curl import render

    exits.level(fail_on)
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
        profile=given.profile(profile),
        expected=given.expected(expect) or (),
    )
    found = read_back(folder, given.probes())
    write_all(found, folder, render)
    raise typer.Exit(telling.finish(found, folder, fail_on, as_json=as_json))


def history_(
    file: Annotated[Path, typer.Argument(help="The file that run --history keeps.")],
    add: Annotated[list[Path] | None, typer.Option("--add", help="A recorded run to put into it first.")] = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", min=1, help="Keep so many of the latest runs, and the last that decided anything."),
    ] = None,
    endpoint: Annotated[str | None, typer.Option("--endpoint", help="Only this endpoint.")] = None,
    feature: Feature = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Compare the latest run with this one: an id, an engine's version, a day."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What changed, wavers or drifts over the runs of a history; sends nothing."""
    from servecheck.history import History
    from servecheck.history_text import as_text, told_as_json
    from servecheck.readback import read_back

    if not add and not file.exists():
        raise UsageError(f"there is no history {file}; servecheck run … --history {file} begins one")
    with History(file) as kept:
        for folder in add or ():
            kept.add(read_back(folder, given.probes()), keep=keep)
        if keep is not None:
            kept.prune(keep)
        if endpoint is not None and endpoint not in kept.endpoints():
            raise UnknownName("endpoint", endpoint, kept.endpoints())
        told = kept.told(endpoint, feature or ())
        latest = kept.latest(since, endpoint, feature or ())
        runs = kept.runs()
    typer.echo(
        json.dumps(told_as_json(runs, latest, told), indent=2, ensure_ascii=False)
        if as_json
        else as_text(runs, latest, told, since),
    )


def report(
    folder: RunFolder,
    form: Annotated[str, typer.Option("--format", help="md, html, json, junit, summary, csv or github.")] = "md",
    title: Title = None,
    context_file: Context_ = None,
    bench: Bench = None,
    redact_bodies: Redact = False,
) -> None:
    """Print the report of a recorded run."""
    from servecheck.readback import read_back
    from servecheck.report.files import FORMATS, rendered
    from servecheck.wire.curl import render

    if form not in FORMATS:
        raise UnknownName("format", form, FORMATS)
    framed = given.framing(title, context_file, bench, redact_bodies)
    typer.echo(rendered(given.framed(read_back(folder, given.probes()), framed), form, render), nl=False)
