"""Writes the reference pages under ``docs/`` and the instrument check from the code; works in a checkout only.

``make docs`` runs it. It tries every mutant under every reference model first, which takes minutes.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from servecheck import features, scenario, suites
from servecheck.asked import probes_digest
from servecheck.judging import BUILT_IN_CHECKS
from servecheck.model import Check, Feature, Json
from servecheck.probe import Probe
from servecheck.probes import discover
from servecheck.reference import mutants
from servecheck.reference.killmatrix import KillMatrix, kill_matrix
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.scenario import Scenario
from servecheck.verdict import FailOn

__all__ = ["EXITS", "ROOT", "counts", "instrument_page", "main", "pages", "with_counts"]

ROOT = Path(__file__).parent.parent
"""The checkout."""

Probes = Mapping[str, Probe[Any]]
Variants = Mapping[str, tuple[tuple[Mutant, ...], tuple[Harmless, ...]]]

EXITS: tuple[tuple[int, str, str], ...] = (
    (0, "Nothing that `--fail-on` names. Skipped rows do not matter.", "go on"),
    (
        1,
        "Something that `--fail-on` names and nobody expects, or an expectation that is stale or expired.",
        "read *Decide* in `report.md`",
    ),
    (2, "The command, a scenario or an endpoints file is wrong; nothing was sent.", "read the message"),
    (3, "Nothing ran: the selection matched nothing.", "see `servecheck list scenarios`"),
    (
        4,
        (
            "Could not tell: no 1, but core rows in `error` or `inconclusive`, or not asked of the reference, stand "
            "between us and 0, or nothing was decided."
        ),
        "read *Not known* in `report.md`, mend what it names, run again",
    ),
    (130, "Interrupted; the partial run folder is valid.", "`servecheck run --resume DIR`"),
)
"""Exit codes: the number, what it means, and what to do then."""

_FAIL_ON: Mapping[FailOn, str] = {
    FailOn.BLOCKER: "core rows where a candidate is behind or has drifted; without a reference, core rows that are "
    "broken, flaky, ignored or unsupported. The default with a reference.",
    FailOn.BEHIND: "those, and every row, extended or comparison, where a candidate is behind or has drifted.",
    FailOn.ANY: "those, and every judged row on every endpoint that is decided and not supported. The default without "
    "a reference.",
}
_KINDS = """\
*Core* rows decide the verdict, *extended* ones are caveats. A row of kind *judged* has a status, a *property* has a
value and no status, a *comparison* has a delta between two endpoints. Rows of risk *load* and *dangerous* run only
where `--allow` names them."""
_INSTRUMENT = """\
A *seeded fault* is a server that is right but for one thing; it counts as caught only where the check it is meant for
said what it should, under every reference model (obedient, babbling, declining, reasoning) under which the fault can
be seen at all. A *harmless variation* is a server that is right and looks odd; the reference server itself is one for
every probe. It counts as flagged where any check did not hold. What is counted is a probe with a fault, once,
whatever the number of models it was tried under. `servecheck list mutants` has faults and harmless variations on its
lines, and not the reference server. `servecheck selftest --all` repeats this."""
_COSTS = ("requests", "prompt_tokens", "output_tokens")
_MADE = "<!-- Written by `make docs` from the code; do not edit. -->\n\n"
_COUNTS = re.compile(r"(?<=<!-- counts -->\n).*?(?=<!-- /counts -->)", re.DOTALL)
_ISSUE = re.compile(r"\b([A-Za-z0-9][\w-]*/[A-Za-z0-9][\w.-]*)#(\d+)")


def pages(probes: Probes, scenarios: Sequence[Scenario], variants: Variants) -> dict[str, str]:
    """Return every page but the one about the instrument, by its path below ``docs/``. Quick, and sends nothing."""
    made = {
        "features.md": _features(scenarios),
        "checks.md": _checks(probes),
        "scenarios.md": _scenarios(scenarios, probes),
        "exit-codes.md": _exit_codes(),
    }
    for probe in probes.values():
        mine = [each for each in scenarios if each.probe == probe.id]
        made[f"probes/{probe.id}.md"] = _probe(probe, mine, *variants.get(probe.id, ((), ())))
    return {name: _MADE + text for name, text in made.items()}


def with_counts(readme: str, scenarios: Sequence[Scenario]) -> str:
    """Return the README with today's counts between its two markers."""
    probed = {each.feature for each in scenarios}
    core = [feature for feature in features.FEATURES if feature.core]
    bare = [group for group in features.GROUPS if not any(row.id in probed for row in features.matching(group))]
    tally = f"{sum(row.id in probed for row in core)} of the {len(core)} core rows"
    said = [
        f"**{len(probed)} of {len(features.FEATURES)} rows** have a probe, among them **{tally}**; see",
        "[every row](docs/features.md). The others show `skipped (no-probe)` in every report.",
    ]
    said += ["Groups without any probe yet:", *textwrap.wrap(f"{', '.join(bare)}.", 118)] if bare else []
    return _COUNTS.sub(lambda _: _text(said), readme)


# --------------------------------------------------------------------------- pages


def _features(scenarios: Sequence[Scenario]) -> str:
    used: dict[str, list[str]] = {}
    for each in scenarios:
        used.setdefault(each.feature, []).append(each.probe)
    core = sum(feature.core for feature in features.FEATURES)
    lines = [
        "# Features",
        "",
        _said(
            f"{len(features.FEATURES)} rows in display order, {core} of them core.",
            f"{len(used)} have a probe; the others show `skipped (no-probe)` in a report, so that silence is never",
            "taken for a pass.",
        ),
        "",
        _KINDS,
    ]
    for group, rows in groupby(features.FEATURES, key=lambda feature: feature.group):
        lines += [
            "",
            f"## {group}",
            "",
            *_table(["Row", "Question", "Weight", "Kind", "Risk", "Probe"], _rows(rows, used)),
        ]
    return _text(lines)


def _rows(rows: Iterable[Feature], used: Mapping[str, Sequence[str]]) -> Iterable[list[str]]:
    for row in rows:
        probes = ", ".join(f"[`{probe}`](probes/{probe}.md)" for probe in dict.fromkeys(used.get(row.id, ())))
        yield [
            f"`{row.id}`",
            row.question,
            "core" if row.core else "extended",
            row.kind.value,
            row.risk.value,
            probes or "none yet",
        ]


def _probe(
    probe: Probe[Any], scenarios: Sequence[Scenario], faults: Sequence[Mutant], harmless: Sequence[Harmless]
) -> str:
    summary, _, rest = probe.doc.strip().partition("\n")
    lines = [f"# `{probe.id}`", "", _authored(summary), "", *_paragraphs(rest)]
    habits = [f"risk {probe.risk}", _about(probe, scenarios)]
    habits += ["three trials always"] if probe.stochastic else []
    habits += ["nothing else of ours in flight"] if probe.exclusive else []
    habits += ["runs on the reference first"] if probe.needs_reference else []
    lines += ["", f"Habits: {', '.join(habits)}."]
    checks = ([f"[`{c.id}`](../checks.md#{c.id})", c.level.value, c.rule, _source(c.source)] for c in probe.checks)
    lines += ["", "## Checks", "", *_table(["Check", "Level", "Rule", "Source"], checks)]
    if probe.by_params is not None:
        lines[-1] = "Those that a scenario defines: [write your own check](../write-your-own-check.md)."
    lines += ["", "## Parameters", "", *_parameters(probe)]
    used = ([f"`{each.id}`", f"`{each.feature}`", each.title, each.why] for each in scenarios)
    lines += ["", "## Scenarios", "", *_table(["Scenario", "Row", "Title", "Why"], used)]
    if not scenarios and probe.by_params is not None:
        lines[-1] = "Yours. The seeded faults are those of the [examples](../../scenarios/examples)."
    seeded = ([f"`{m.id}`", m.sentence, _trips(m), _source(m.source) if m.source else "ours"] for m in faults)
    lines += ["", "## Seeded faults", "", "Broken servers on which the check named must say what is named.", ""]
    lines += _table(["Fault", "What is wrong", "Seen by", "Modelled on"], seeded)
    odd = ([f"`{each.id}`", each.sentence, _source(each.source) if each.source else "ours"] for each in harmless)
    lines += [
        "",
        "## Harmless variations",
        "",
        "Servers that are right although they look odd; no check may object.",
        "",
    ]
    lines += _table(["Variation", "What is odd", "Modelled on"], odd)
    return _text(lines)


def _about(probe: Probe[Any], scenarios: Sequence[Scenario]) -> str:
    """Return how many requests a trial of the probe's scenarios takes."""
    counts = sorted({probe.of(each.params).requests for each in scenarios}) or [probe.requests]
    most = f" to {counts[-1]}" if len(counts) > 1 else ""
    return f"about {counts[0]}{most} requests per trial"


def _parameters(probe: Probe[Any]) -> list[str]:
    """Return the parameters of ``with:`` as a table, from the same schema that editors read."""
    properties: Mapping[str, Mapping[str, Any]] = probe.params.model_json_schema().get("properties", {})
    rows = (
        [
            f"`{name}`",
            f"`{json.dumps(each['default'])}`" if "default" in each else "required",
            each.get("description", ""),
        ]
        for name, each in properties.items()
    )
    return _table(["Name", "Default", "Meaning"], rows)


def _trips(mutant: Mutant) -> str:
    return ", ".join(f"`{check}` {outcome.value}" for check, outcome in mutant.trips)


def _owned(probes: Probes) -> list[tuple[Check, str]]:
    """Return every check with the probe that owns it; the built-in ones have none."""
    owned = [(check, probe.id) for probe in probes.values() for check in probe.checks]
    return [*owned, *((check, "") for check in BUILT_IN_CHECKS)]


def _checks(probes: Probes) -> str:
    owned = _owned(probes)
    lines = [
        "# Checks",
        "",
        _said(
            f"{len(owned)} rules that can be seen to hold or not. A `must` that does not hold makes a row broken,",
            "ignored or unsupported; a `should` makes it degraded. `servecheck explain ID` prints the same.",
        ),
    ]
    for check, owner in sorted(owned, key=lambda pair: pair[0].id):
        where = f"probe [`{owner}`](probes/{owner}.md)" if owner else "of every probe"
        lines += ["", f"## {check.id}", "", _authored(check.rule), ""]
        lines += [f"Level `{check.level.value}`, {where}, source: {_source(check.source)}"]
    return _text(lines)


def _cost_of(row: Mapping[str, Json]) -> str:
    return "/".join(str(row[name]) for name in _COSTS)


def _suites_of(row: Mapping[str, Json]) -> str:
    named = row["suites"]
    return ", ".join(map(str, named)) if isinstance(named, list) and named else f"`--allow {row['risk']}`"


def _scenarios(scenarios: Sequence[Scenario], probes: Probes) -> str:
    order = {feature.id: place for place, feature in enumerate(features.FEATURES)}
    ordered = sorted(scenarios, key=lambda each: (order[each.feature], each.id))
    lines = [
        "# Scenarios",
        "",
        _said(
            f"{len(ordered)} files in `scenarios/`. `servecheck list scenarios` prints the same. A core row is in the",
            "suite `standard`; an extended row where it is cheap or breaks often. What is tagged `full` is too dear",
            "for what it tells: it runs in the suite `full`, and where `--feature` or a profile names its row.",
        ),
        "",
        "## Suites",
        "",
        *_table(
            ["Suite", "Rows", "Scenarios", "Requests", "Prompt tokens", "Generated tokens", "What"],
            (
                [
                    f"`{row['id']}`",
                    *(f"{row[name]:,}" for name in ("features", "scenarios", *_COSTS)),
                    str(row["about"]),
                ]
                for row in suites.suite_rows(ordered, probes)
            ),
        ),
        "",
        suites.COST_IS,
        "A scenario's cost is given as requests/prompt tokens/generated tokens.",
    ]
    rows_of = {str(row["id"]): row for row in suites.scenario_rows(ordered, probes)}
    for group, mine in groupby(ordered, key=lambda each: each.feature.partition(".")[0]):
        rows = (
            [
                f"`{each.id}`",
                f"`{each.feature}`",
                f"[`{each.probe}`](probes/{each.probe}.md)",
                each.title,
                _cost_of(rows_of[each.id]),
                _suites_of(rows_of[each.id]),
            ]
            for each in mine
        )
        lines += ["", f"## {group}", "", *_table(["Scenario", "Row", "Probe", "Title", "Cost", "Suites"], rows)]
    return _text(lines)


def _exit_codes() -> str:
    rows = ([str(code), meaning, then] for code, meaning, then in EXITS)
    levels = ([f"`{level.value}`", about] for level, about in _FAIL_ON.items())
    return _text(
        [
            "# Exit codes",
            "",
            *_table(["Exit", "Meaning", "Then"], rows),
            "",
            "## --fail-on",
            "",
            "What makes the exit code 1; each includes the one before.",
            "",
            *_table(["`--fail-on`", "Names"], levels),
            "",
            _said(
                "`selftest` exits 1 where a seeded fault was missed or a harmless variation flagged,",
                "`lint` exits 2 where it finds a problem.",
            ),
        ]
    )


# --------------------------------------------------------------------------- the instrument


def counts(matrix: KillMatrix, digest: str) -> dict[str, str | int]:
    """Return what a report says of the instrument, with the digest of the probes it is true of."""
    return {
        "probes_digest": digest,
        "seeded": matrix.seeded,
        "caught": matrix.caught,
        "variations": matrix.variations,
        "false_alarms": matrix.false_alarms,
    }


def instrument_page(matrix: KillMatrix, probes: Probes, variants: Variants, digest: str) -> str:
    """Return the page that says how well the probes catch what was broken on purpose."""
    missed = {(each.probe, each.server) for each in matrix.seen if each.problem}
    lines = [
        "# The instrument check",
        "",
        f"{matrix.sentence}, for the probes `{digest}`.",
        "",
        _INSTRUMENT,
        "",
        "## By probe",
        "",
    ]
    rows = []
    for probe in probes:
        tried = {
            fault: {each.server for each in matrix.seen if each.probe == probe and each.fault is fault}
            for fault in (True, False)
        }
        wrong = {fault: sum((probe, server) in missed for server in servers) for fault, servers in tried.items()}
        caught = f"{len(tried[True]) - wrong[True]} of {len(tried[True])}" if tried[True] else "none seeded yet"
        rows.append([f"[`{probe}`](probes/{probe}.md)", caught, f"{wrong[False]} of {len(tried[False])}"])
    lines += _table(["Probe", "Faults caught", "Harmless variations flagged"], rows)
    if not matrix.clean:
        lines += ["", "## What went wrong", "", *(f"- {_authored(miss)}" for miss in matrix.misses())]
    lines += ["", "## By check", ""]
    lines += _table(["Check", "Seeded faults that trip it"], _by_check(probes, variants, missed))
    return _MADE + _text(lines)


def _by_check(probes: Probes, variants: Variants, missed: Iterable[tuple[str, str]]) -> Iterable[list[str]]:
    tripped: dict[str, list[str]] = {}
    for owner, (faults, _) in variants.items():
        for fault in faults:
            for check_id, outcome in fault.trips:
                note = ", missed" if (owner, fault.id) in missed else ""
                tripped.setdefault(check_id, []).append(f"`{fault.id}` ({outcome.value}{note})")
    for check, _ in _owned(probes):
        yield [f"[`{check.id}`](checks.md#{check.id})", ", ".join(tripped.get(check.id, ())) or "none yet"]


# --------------------------------------------------------------------------- Markdown


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [[_authored(cell).replace("|", "\\|") for cell in row] for row in rows]
    if not body:
        return ["None."]
    return ["| " + " | ".join(line) + " |" for line in ([*head], ["---"] * len(head), *body)]


def _authored(text: str) -> str:
    """Return text that we wrote as one line of Markdown: docstrings mark code by double backticks."""
    pieces = " ".join(text.replace("``", "`").split()).split("`")
    return "`".join(each.replace("<", "&lt;") if place % 2 == 0 else each for place, each in enumerate(pieces))


def _paragraphs(text: str) -> list[str]:
    lines = []
    for paragraph in text.strip().split("\n\n"):
        said = _authored(paragraph)
        label, colon, rest = said.partition(": ")
        known = label in ("What it does", "Why it matters", "How it could be fooled")
        lines += [f"**{label}.** {rest[:1].upper()}{rest[1:]}" if colon and known else said, ""]
    return lines[:-1]


def _source(text: str) -> str:
    if text.startswith(("https://", "http://")):
        return f"[{text.split('//', 1)[1].rstrip('/')}]({text})"
    return _ISSUE.sub(r"[\1#\2](https://github.com/\1/issues/\2)", text)


def _said(*pieces: str) -> str:
    return " ".join(pieces)


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


# --------------------------------------------------------------------------- writing


def main() -> None:
    """Write everything, and tell what was missed; a miss is published as it is, never left out."""
    probes, variants = discover(), mutants.discover()
    scenarios = scenario.load_all([scenario.builtin_dir()], probes=probes, features=features.BY_ID)
    folder = ROOT / "docs"
    made = pages(probes, scenarios, variants)
    examples = scenario.load_all([scenario.examples_dir()], probes=probes, features=features.BY_ID)
    matrix = kill_matrix(probes, [*scenarios, *examples], everything=True)
    made["instrument.md"] = instrument_page(matrix, probes, variants, probes_digest(probes))
    for old in set((folder / "probes").glob("*.md")) - {folder / name for name in made}:
        old.unlink()
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    readme = ROOT / "README.md"
    readme.write_text(with_counts(readme.read_text("utf-8"), scenarios), encoding="utf-8", newline="\n")
    known = json.dumps(counts(matrix, probes_digest(probes)), indent=2) + "\n"
    (ROOT / "servecheck" / "instrument.json").write_text(known, encoding="utf-8", newline="\n")
    for line in (*matrix.misses(), matrix.sentence):
        sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
