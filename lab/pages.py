"""Writes `docs/engines/`: a page per engine, the table of all of them, and the hand-found statements beside the runs.

    python -m lab.pages [RUN…]

A RUN is a run folder; its name is the engine's name. Each becomes a record in `docs/engines/records/`, and all pages
are made again from all records there, so one engine can be run anew without the others. Nothing here judges: cells are
read back as `servecheck report` would read them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lab.facts import Agreement, Fact, agreement, load
from lab.records import CellRecord, CostRecord, KnownRecord, Record, record, record_text
from servecheck.errors import ServecheckError
from servecheck.features import FEATURES
from servecheck.identify import FIELDS
from servecheck.model import Kind, Status
from servecheck.probes import discover
from servecheck.report.text import cell as escaped
from servecheck.report.text import cell_code, count, seconds
from servecheck.run import read_back

__all__ = ["PAGES", "engine_page", "facts_page", "main", "matrix_page", "pages"]

PAGES = Path(__file__).resolve().parent.parent / "docs" / "engines"
_MADE = "<!-- Made by `python -m lab.pages`; change that, or run the engine again. -->"
_TITLES = {
    "dasllama": "dasLLAMA",
    "litellm": "LiteLLM before llama.cpp",
    "llamacpp": "llama.cpp, the embedded engine",
    "sglang": "SGLang on CPU",
    "transformers": "transformers serve",
    "vllm": "vLLM on CPU",
}
_SETTINGS = {
    "adapters": "with LoRA adapters of random numbers",
    "embedding": "as an embedding server",
    "key": "behind an API key",
    "pooling": "as a pooling server",
    "seeing": "with a random eye",
    "speculative": "with speculative decoding",
    "thinking": "with a template that makes the model think",
    "torture": "fresh, with structured output that can break it",
}
_SUITES = ("smoke", "standard", "migration", "full")
_UNDECIDED = frozenset({Status.INCONCLUSIVE, Status.ERROR, Status.SKIPPED})
_MARKS = {
    Agreement.AGREES: "✅ agrees",
    Agreement.DISAGREES: "❌ disagrees",
    Agreement.COULD_NOT_TELL: "❔ could not tell",
    Agreement.NOT_RUN: "⏭ row not run yet",
}
_WORDS = {
    Agreement.AGREES: "the runs agree with",
    Agreement.DISAGREES: "disagree with",
    Agreement.COULD_NOT_TELL: "could not tell about",
    Agreement.NOT_RUN: "and did not look at",
}


def main(arguments: Sequence[str], folder: Path = PAGES) -> int:
    """Write the records of the runs named, and all pages; return an exit code."""
    try:
        facts = load(folder / "facts.yaml")
        for name in arguments:
            run = Path(name)
            _write(folder / "records" / f"{run.name}.json", record_text(record(run.name, read_back(run, discover()))))
        for path, text in pages(_records(folder), facts).items():
            _write(folder / path, text)
    except ServecheckError as error:
        sys.stderr.write(f"lab.pages: {error}\n")
        return 2
    return 0


def pages(records: Sequence[Record], facts: Sequence[Fact]) -> dict[str, str]:
    """Return every page by its path below `docs/engines/`."""
    made = {f"{found.engine}.md": engine_page(found) for found in records if _setting(found) not in _SUITES}
    return made | {"README.md": matrix_page(records, facts), "facts.md": facts_page(records, facts)}


def _records(folder: Path) -> list[Record]:
    return [
        Record.model_validate_json(path.read_text(encoding="utf-8"))
        for path in sorted((folder / "records").glob("*.json"))
    ]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


# --------------------------------------------------------------------------- one engine


def engine_page(found: Record) -> str:
    """Return the page of one run: what was tested, what it cost, and every row that was run."""
    names = [subject.name for subject in found.subjects]
    lines = [_MADE, f"# {_title(found)}", ""]
    if not found.complete:
        lines += ["**This run did not finish; rows are missing.**", ""]
    lines += [
        (
            f"Run on {found.started:%Y-%m-%d} with servecheck {found.tool_version} (probes `{found.probes_digest}`), "
            f"suite {found.suite}. One run of one configuration: see [how](../../lab/README.md)."
        ),
        "",
        *_table(["", *(cell_code(name) for name in names)], _about(found)),
        "",
        "## Rows",
        "",
        *_table(["Row", *(cell_code(name) for name in names), "Evidence"], _rows(found)),
        "",
    ]
    properties = list(_properties(found))
    if properties:
        lines += ["## Properties", "", *_table(["Property", *(cell_code(name) for name in names)], properties), ""]
    left = len([feature for feature in FEATURES if not any(feature.id in subject.cells for subject in found.subjects)])
    lines += [f"{count(left, 'row')} of {len(FEATURES)} were not run.", ""]
    return "\n".join(lines)


def _title(found: Record) -> str:
    engine, setting = found.engine.partition("-")[0], _setting(found)
    title = _TITLES.get(engine, engine) + (f", {_SETTINGS.get(setting, setting)}" if setting else "")
    known = next((subject.fingerprint.get("engine_version") for subject in found.subjects), None)
    return f"{title}, {escaped(known.value, 40)}" if known else title


def _setting(found: Record) -> str:
    return found.engine.partition("-")[2]


def _about(found: Record) -> Iterator[list[str]]:
    known = [name for name in FIELDS if any(name in subject.fingerprint for subject in found.subjects)]
    for name in known:
        yield [name, *(_known(subject.fingerprint.get(name)) for subject in found.subjects)]
    yield ["cost", *(_cost(subject.cost) for subject in found.subjects)]


def _known(known: KnownRecord | None) -> str:
    return f"{escaped(known.value, 80)} ({known.how})" if known else "unknown"


def _cost(cost: CostRecord | None) -> str:
    if cost is None:
        return "unknown"
    parts = [count(cost.requests, "request"), seconds(cost.seconds)]
    if cost.prompt_tokens is not None and cost.output_tokens is not None:
        parts.append(f"{cost.prompt_tokens:,} prompt and {cost.output_tokens:,} generated tokens")
    return ", ".join(parts)


def _rows(found: Record) -> Iterator[list[str]]:
    for feature in FEATURES:
        cells = [subject.cells.get(feature.id) for subject in found.subjects]
        if feature.kind is not Kind.JUDGED or not any(cells):
            continue
        short = [
            (subject.name, cell.reason)
            for subject, cell in zip(found.subjects, cells, strict=True)
            if cell is not None and cell.status is not Status.SUPPORTED
        ]
        whose = len(found.subjects) > 1
        evidence = "; ".join((f"{cell_code(name)}: " if whose else "") + escaped(why, 240) for name, why in short)
        yield [_row(feature.id, core=feature.core), *(_status(cell) for cell in cells), evidence]


def _properties(found: Record) -> Iterator[list[str]]:
    for feature in FEATURES:
        cells = [subject.cells.get(feature.id) for subject in found.subjects]
        if feature.kind is Kind.PROPERTY and any(cells):
            yield [f"`{feature.id}`", *(_value(cell, 160) for cell in cells)]


def _row(identifier: str, *, core: bool) -> str:
    return f"`{identifier}`" if core else f"`{identifier}` *(ext)*"


def _status(cell: CellRecord | None) -> str:
    if cell is None or cell.status is None:
        return "–"
    return f"{cell.status.mark} {cell.status}" + (f" {cell.tally}" if cell.tally else "")


def _value(cell: CellRecord | None, limit: int) -> str:
    if cell is None:
        return "–"
    return escaped(cell.value, limit) if cell.value is not None else _status(cell)


# --------------------------------------------------------------------------- all engines


def matrix_page(records: Sequence[Record], facts: Sequence[Fact]) -> str:
    """Return the page that shows every row that was run, on every engine."""
    subjects = [(found, subject) for found in records if not _setting(found) for subject in found.subjects]
    judged = [
        [_row(feature.id, core=feature.core), *(_mark(subject.cells.get(feature.id)) for _, subject in subjects)]
        for feature in FEATURES
        if feature.kind is Kind.JUDGED and any(feature.id in subject.cells for _, subject in subjects)
    ]
    properties = [
        [f"`{feature.id}`", *(_value(subject.cells.get(feature.id), 60) for _, subject in subjects)]
        for feature in FEATURES
        if feature.kind is Kind.PROPERTY and any(feature.id in subject.cells for _, subject in subjects)
    ]
    head = ["Row", *(f"[{subject.name}]({found.engine}.md)" for found, subject in subjects)]
    lines = [
        _MADE,
        "# Real engines",
        "",
        (
            "What servecheck found on engines that anybody can run on two CPU cores, each with the same model of 135 "
            "million parameters. It says how *these configurations* behave, not how the engines could be configured."
        ),
        "",
        " · ".join(f"{status.mark} {status}" for status in Status if status is not Status.SKIPPED)
        + " · – not run. *(ext)* marks extended rows.",
        "",
        *_table(head, judged),
        "",
    ]
    if properties:
        lines += ["## Properties", "", *_table(head, properties), ""]
    elsewhere = list(_elsewhere(records))
    if elsewhere:
        lines += ["## Other settings", "", "Rows that need an engine started in another way.", ""]
        lines += [*_table(["Row", "Engine", "Cell", "Evidence"], elsewhere), ""]
    lines += ["## Decided", "", _decided(records), ""]
    measured = list(_measured(records))
    if measured:
        lines += [
            "## What the suites cost",
            "",
            "Measured, one run each, second and third looks included; two endpoints of one run share its time.",
            "",
        ]
        lines += [*_table(["Suite", "Engine", "Requests", "Prompt tokens", "Generated tokens", "Time"], measured), ""]
    lines += [
        "## Beside what was found by hand",
        "",
        f"[{count(len(facts), 'statement')}](facts.md) about these engines were found by hand. Of these, "
        + ", ".join(f"{_WORDS[verdict]} {number}" for verdict, number in _tally(records, facts))
        + ".",
        "",
        "To make a page again: [lab](../../lab/README.md).",
        "",
    ]
    return "\n".join(lines)


def _elsewhere(records: Sequence[Record]) -> Iterator[list[str]]:
    """Give the cells of the runs with a setting; what such a run skips says only that the setting is for other rows."""
    for feature in FEATURES:
        for found in records:
            if _setting(found) not in _SETTINGS:
                continue
            cell = found.subjects[0].cells.get(feature.id)
            if cell is not None and cell.status is not Status.SKIPPED:
                link = f"[{found.engine}]({found.engine}.md)"
                shown = _status(cell) if cell.status is not None else _value(cell, 80)
                reason = "" if cell.status in (None, Status.SUPPORTED) else escaped(cell.reason, 160)
                yield [_row(feature.id, core=feature.core), link, shown, reason]


def _measured(records: Sequence[Record]) -> Iterator[list[str]]:
    """Give what whole suites took: of the usual runs, and of those that were made to measure another suite."""
    for suite in _SUITES:
        for found in records:
            if found.suite != suite or not found.complete or _setting(found) not in ("", suite):
                continue
            for subject in found.subjects:
                if subject.cost is not None:
                    took = "unknown" if found.took is None else seconds(found.took)
                    yield [suite, cell_code(subject.name.removesuffix(f"-{suite}")), *_figures(subject.cost), took]


def _figures(cost: CostRecord) -> list[str]:
    tokens = ("unknown" if each is None else f"{each:,}" for each in (cost.prompt_tokens, cost.output_tokens))
    return [f"{cost.requests:,}", *tokens]


def _decided(records: Sequence[Record]) -> str:
    """Say on how many rows a run here came to a verdict, and name the rest; a property counts when it has a value.

    Rows that compare two endpoints are not of one engine: they are in docs/parity.md.
    """
    decided = {
        row
        for found in records
        for subject in found.subjects
        for row, cell in subject.cells.items()
        if (cell.value is not None if cell.status is None else cell.status not in _UNDECIDED)
    }
    alone = [feature.id for feature in FEATURES if feature.kind is not Kind.COMPARISON]
    left = [row for row in alone if row not in decided]
    said = f"{len(alone) - len(left)} of {len(alone)} rows are decided on at least one of these engines"
    return said + (f"; undecided on all of them: {', '.join(f'`{row}`' for row in left)}." if left else ".")


def _mark(cell: CellRecord | None) -> str:
    if cell is None or cell.status is None:
        return "–"
    return f"{cell.status.mark} {cell.tally}".rstrip()


def _cells(records: Sequence[Record]) -> dict[str, Mapping[str, CellRecord]]:
    return {subject.name: subject.cells for found in records for subject in found.subjects}


def _tally(records: Sequence[Record], facts: Sequence[Fact]) -> Iterator[tuple[Agreement, int]]:
    cells = _cells(records)
    counted = Counter(agreement(fact, cells.get(fact.engine)) for fact in facts)
    return ((verdict, counted[verdict]) for verdict in Agreement)


def facts_page(records: Sequence[Record], facts: Sequence[Fact]) -> str:
    """Return the table statement → row → what a run says; disagreements come first, in full."""
    cells = _cells(records)
    compared = [(fact, agreement(fact, cells.get(fact.engine))) for fact in facts]
    lines = [
        _MADE,
        "# Found by hand, and found by servecheck",
        "",
        (
            "The statements are in [facts.yaml](facts.yaml): found by hand on the same versions. What some predict of "
            "a row was written after engines had been run. Where a run disagrees, one of the two is wrong."
        ),
        "",
    ]
    disagreeing = [fact for fact, verdict in compared if verdict is Agreement.DISAGREES]
    if disagreeing:
        lines += ["## Disagreements", ""]
        for fact in disagreeing:
            cell = cells[fact.engine][fact.row]
            shown = _status(cell) if cell.status else _value(cell, 160)
            lines.append(
                f"- {cell_code(fact.engine)} `{fact.row}`: {escaped(fact.fact, 400)} "
                f"Expected {_expected(fact)}, found {shown}: {escaped(cell.reason, 300)}"
            )
        lines.append("")
    for engine in dict.fromkeys(fact.engine for fact in facts):
        rows = [
            [
                escaped(_with_note(fact), 400),
                f"`{fact.row}`",
                _expected(fact),
                _shown(cells, fact),
                _MARKS[verdict],
            ]
            for fact, verdict in compared
            if fact.engine == engine
        ]
        lines += [f"## {escaped(engine)}", "", *_table(["Statement", "Row", "Expected", "Found", ""], rows), ""]
    return "\n".join(lines)


def _expected(fact: Fact) -> str:
    expect = fact.expect
    parts = [" or ".join(expect.statuses)] if expect.statuses else []
    parts += [f"value {cell_code(expect.value)}"] if expect.value is not None else []
    parts += [f"says {cell_code(expect.says)}"] if expect.says is not None else []
    return ", ".join(parts)


def _with_note(fact: Fact) -> str:
    return f"{fact.fact} ({fact.note})" if fact.note else fact.fact


def _shown(cells: Mapping[str, Mapping[str, CellRecord]], fact: Fact) -> str:
    cell = cells.get(fact.engine, {}).get(fact.row)
    return _status(cell) if cell is None or cell.status is not None else _value(cell, 80)


def _table(head: Sequence[str], rows: Iterator[list[str]] | Sequence[list[str]]) -> list[str]:
    return [_line(head), _line(["---"] * len(head)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
