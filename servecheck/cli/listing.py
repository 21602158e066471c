"""The commands that say what there is: list and explain."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from servecheck.cli import given
from servecheck.errors import UnknownName

lists = typer.Typer(no_args_is_help=True, help="List features, probes, scenarios, checks, mutants …")
OWN_ROWS = "own.*"
"""The rows of a probe that only a user's own scenarios use."""

Form = Annotated[str, typer.Option("--format", help="text or json.")]
Words = Annotated[
    list[str] | None, typer.Argument(help="Only what has all these words in its line.", show_default=False)
]
Json_ = Annotated[bool, typer.Option("--json", help="Short for --format json.")]


def _listed(
    rows: list[dict[str, Any]], line: Callable[[dict[str, Any]], str], words: list[str] | None, form: str, as_json: bool
) -> None:
    if form not in ("text", "json"):
        raise UnknownName("format", form, ("text", "json"))
    rows = [row for row in rows if all(word.casefold() in line(row).casefold() for word in words or ())]
    if words and not rows:
        typer.echo(f"nothing here has {' and '.join(repr(word) for word in words)} in its line", err=True)
    if as_json or form == "json":
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        for row in rows:
            typer.echo(line(row))


@lists.command("features")
def list_features(words: Words = None, form: Form = "text", as_json: Json_ = False) -> None:
    """Every row of the matrix, probed or not."""
    from servecheck import features

    scenarios = given.scenarios(None)
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

    _listed(rows, line, words, form, as_json)


@lists.command("probes")
def list_probes(words: Words = None, form: Form = "text", as_json: Json_ = False) -> None:
    """Every probe, with its checks and what a trial of its dearest scenario costs."""
    from servecheck import suites

    rows = [
        {
            "id": probe.id,
            "title": probe.doc.strip().splitlines()[0],
            "risk": probe.risk.value,
            "checks": [check.id for check in probe.checks],
            **suites.dearest(probe, given.scenarios(None)),
        }
        for probe in given.probes().values()
    ]
    _listed(rows, lambda row: f"{row['id']:30} {row['title']}", words, form, as_json)


@lists.command("scenarios")
def list_scenarios(words: Words = None, form: Form = "text", as_json: Json_ = False) -> None:
    """The built-in scenarios, with their suites and what one look costs."""
    from servecheck import suites

    def line(row: dict[str, Any]) -> str:
        cost = f"{row['requests']}/{row['prompt_tokens']}/{row['output_tokens']}"
        return f"{row['id']:44} {row['feature']:30} {cost:>15}  {' '.join(row['suites']) or row['risk']}"

    _listed(suites.scenario_rows(given.scenarios(None), given.probes()), line, words, form, as_json)
    if not as_json and form == "text":
        from servecheck.plan import GETTING_TO_KNOW

        typer.echo(
            "\nCosts are requests/prompt tokens/generated tokens of the scenario itself. A run asks about "
            f"{GETTING_TO_KNOW} times more to get to know each server."
        )
        if not words:
            typer.echo("By suite:\n")
            list_suites()


@lists.command("suites")
def list_suites(words: Words = None, form: Form = "text", as_json: Json_ = False) -> None:
    """What --suite takes, and what each costs."""
    from servecheck import suites

    def line(row: dict[str, Any]) -> str:
        size = f"{row['features']} rows, {row['scenarios']} scenarios"
        return f"{row['id']:10} {size:26} {suites.cost_in_words(row)}: {row['about']}"

    _listed(suites.suite_rows(given.scenarios(None), given.probes()), line, words, form, as_json)
    if not as_json and form == "text":
        typer.echo(f"\n{suites.COST_IS}")


@lists.command("profiles")
def list_profiles(words: Words = None, form: Form = "text", as_json: Json_ = False) -> None:
    """What kinds of applications need, for --profile."""
    from servecheck import profiles

    rows = [
        {"id": each.id, "title": each.title, "as_of": each.as_of.isoformat(), "rows": [*each.rows]}
        for each in profiles.builtins()
    ]
    _listed(
        rows,
        lambda row: f"{row['id']:24} {row['as_of']}  {row['title']} ({len(row['rows'])} rows)",
        words,
        form,
        as_json,
    )


@lists.command("checks")
def list_checks(words: Words = None, form: Form = "text", as_json: Json_ = False) -> None:
    """Every check: one rule that can be seen to hold or not."""
    rows = [
        {"id": check.id, "rule": check.rule, "level": check.level.value, "source": check.source, "probe": owner}
        for owner, check in checks()
    ]
    _listed(rows, lambda row: f"{row['id']:38} {row['level']:7} {row['rule']}", words, form, as_json)


@lists.command("mutants")
def list_mutants(words: Words = None, form: Form = "text", as_json: Json_ = False) -> None:
    """The broken servers, and the odd ones that are right, that `servecheck mock --mutant` serves."""
    from servecheck.reference import mutants

    rows_of = {scenario.probe: scenario.feature for scenario in reversed([*given.scenarios(None)])}
    rows = [
        {
            "id": f"{probe}/{each.id}",
            "feature": rows_of.get(probe, OWN_ROWS),
            "kind": kind,
            "sentence": each.sentence,
        }
        for probe, (faults, harmless) in mutants.discover().items()
        for kind, group in (("fault", faults), ("harmless", harmless))
        for each in group
    ]
    rows.sort(key=lambda row: row["id"])
    _listed(rows, lambda row: f"{row['id']:56} {row['feature']:32} {row['sentence']}", words, form, as_json)


def checks() -> list[tuple[str, Any]]:
    """Return every check, with the id of the probe that it belongs to."""
    from servecheck.judging import BUILT_IN_CHECKS

    owned = [(probe.id, check) for probe in given.probes().values() for check in probe.checks]
    return [*owned, *(("every probe", check) for check in BUILT_IN_CHECKS)]


def explain(check: Annotated[str, typer.Argument(help="The id of a check, a feature or a probe.")]) -> None:
    """Say what a check demands, why, and how it could be fooled."""
    from servecheck import features

    probes = given.probes()
    for owner, found in checks():
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
    raise UnknownName("check", check, [*(found.id for _, found in checks()), *probes, *features.BY_ID])


def _explain_row(feature: str) -> None:
    from servecheck import features

    row, probes = features.BY_ID[feature], given.probes()
    weight = "core" if row.core else "extended"
    typer.echo(f"{row.id}: {row.title}\n\n{row.question}\n\n{weight}, {row.kind.value}, risk {row.risk.value}")
    mine = [scenario for scenario in given.scenarios(None) if scenario.feature == feature]
    if not mine:
        typer.echo("\nno probe yet")
    for scenario in mine:
        probe = probes[scenario.probe]
        typer.echo(f"\nprobe {probe.id}, risk {probe.risk.value}, in the scenario {scenario.id}: {scenario.title}")
        for check in probe.checks:
            typer.echo(f"  {check.id} ({scenario.level_of(check).value})\n    {check.rule}")
