"""Imported benchmark results as a reader sees them: side by side where they can be, else with the reason."""

from __future__ import annotations

from collections.abc import Iterator

from servecheck.bench import FIGURES, Benchmark, unlike
from servecheck.report.data import RunReport
from servecheck.report.shapes import BenchmarkRow, BenchmarksView

__all__ = ["benchmarks", "side_by_side"]


def benchmarks(run: RunReport) -> Iterator[BenchmarksView]:
    """Yield one table for each benchmark, the reference's beside the candidate's where nothing forbids it."""
    return (_table(*sides, why=why) for sides, why in side_by_side(run))


def side_by_side(run: RunReport) -> Iterator[tuple[tuple[Benchmark, ...], str]]:
    """Yield two benchmarks that can be compared, the reference's first, or one and why nothing stands beside it."""
    order = {subject.name: place for place, subject in enumerate(run.subjects)}
    given = [each for each in run.framing.benchmarks if each.endpoint in order]
    first = run.reference or (run.subjects[0].name if run.subjects else "")
    left = [each for each in given if each.endpoint == first]
    right = sorted((each for each in given if each.endpoint != first), key=lambda each: order[each.endpoint])
    paired: set[int] = set()
    for other in right:
        reasons = [(unlike(mine, other), place) for place, mine in enumerate(left)]
        why, place = min(reasons, key=lambda found: bool(found[0]), default=("", -1))
        if place >= 0 and not why:
            paired.add(place)
            yield (left[place], other), ""
        else:
            yield (other,), f"not compared with {first}: {why}" if why else f"there is none of {first}"
    for place, mine in enumerate(left):
        if place not in paired:
            others = ", ".join(dict.fromkeys(each.endpoint for each in right))
            yield (mine,), f"nothing comparable of {others}" if others else ""


def _table(*sides: Benchmark, why: str = "") -> BenchmarksView:
    first = sides[0]
    rows = [
        _row("Requests completed", [f"{each.completed:,}" for each in sides]),
        _row("Requests failed", ["unknown" if each.failed is None else f"{each.failed:,}" for each in sides]),
        _row("Prompt tokens, mean", [_number(each.prompt_tokens) for each in sides]),
        _row("Output tokens, mean", [_number(each.output_tokens) for each in sides]),
    ]
    for name, (words, unit) in FIGURES.items():
        values = [each.figures.get(name) for each in sides]
        if any(value is not None for value in values):
            mine, other = values[0], values[-1]
            ratio = f"{other / mine:.2f} ×" if len(sides) > 1 and mine and other is not None else ""
            rows.append(_row(f"{words} ({unit})", [_number(value) for value in values], ratio))
    for words, field in (("Model, as named there", "model"), ("Version of the tool", "version"), ("Day", "day")):
        said = [str(getattr(each, field)) or "unknown" for each in sides]
        if set(said) != {"unknown"}:
            rows.append(_row(words, said))
    return BenchmarksView(
        tool=first.tool, load=first.load, endpoints=tuple(each.endpoint for each in sides), rows=tuple(rows), unlike=why
    )


def _row(label: str, values: list[str], ratio: str = "") -> BenchmarkRow:
    return BenchmarkRow(label=label, values=tuple(values), ratio=ratio)


def _number(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
