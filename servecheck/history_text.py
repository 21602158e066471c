"""A history as text for people and as JSON for programs; nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from servecheck.history import Flake, Flip, Latest, Told, Trend
from servecheck.model import Json
from servecheck.report.data import Since

__all__ = ["as_text", "told_as_json"]

_Runs = Sequence[tuple[str, str, str, bool]]
_Told = tuple[Sequence[Flip], Sequence[Flake], Sequence[Trend]]


def as_text(runs: _Runs, latest: Sequence[Latest], told: _Told, since: str | None) -> str:
    """Return what a history says, section by section; each says that there is nothing where there is nothing."""
    flips, flakes, trends = told
    if not runs:
        return "no runs"
    lines = [f"{len(runs)} run{'s' if len(runs) != 1 else ''}, {runs[0][1][:10]} to {runs[-1][1][:10]}"]
    for each in latest:
        lines += ["", *_latest(each, since)]
    lines += ["", "Flips: what became something else and stayed so in a later run"]
    lines += [_flip(each) for each in flips if each.stayed] or ["  none"]
    above = {(each.endpoint, each.feature) for one in latest for each in one.changed}
    open_ = [each for each in flips if not each.stayed and (since or (each.endpoint, each.feature) not in above)]
    if open_:
        lines += ["", "Became something else, and no later run says the same yet", *map(_flip, open_)]
    lines += ["", "Waverers: what is otherwise now and then"]
    lines += [
        f"  {each.feature} on {each.endpoint}: usually {each.usual}, otherwise in {each.odd} of {each.runs} runs "
        f"({each.share.low:.0%} to {each.share.high:.0%})"
        for each in flakes
    ] or ["  none"]
    lines += ["", "Trends: measured figures that rise or fall"]
    lines += [
        f"  {each.feature} on {each.endpoint}, {each.figure}: {each.first:.4g} → {each.last:.4g} over {each.runs} runs "
        f"({each.sigmas:.0f} σ)"
        for each in trends
    ] or ["  none"]
    return "\n".join(lines)


def _latest(each: Latest, since: str | None) -> Iterator[str]:
    beside = f" beside {since}" if since is not None else ""
    yield f"New on {each.endpoint}, in its latest run {each.run} of {each.started[:10]}{beside}"
    for change in each.changed:
        once = "" if change.told == Told.CONFIRMED else f" ({change.told})"
        was = f"in run {change.run} of {change.started:%Y-%m-%d}"
        yield f"  {change.feature}: {change.before} → {change.after}{once}; it was {change.before} {was}"
    if each.beside is None:
        yield "  nothing to compare with: it is the first run"
    elif not each.decided:
        yield "  nothing was decided, so nothing is known to have changed"
    elif not each.compared:
        yield "  nothing to compare with: no earlier run decided any of its rows"
    elif not each.changed:
        yield "  nothing"
    if each.decided and each.undecided:
        yield f"  {each.undecided} of {each.decided + each.undecided} rows could not be told in it"


def _flip(each: Flip) -> str:
    before, after = each.versions
    engine = f"; engine {before} → {after}" if before and after and before != after else ""
    once = "" if each.told is Told.CONFIRMED else f" ({each.told})"
    said = f"{each.feature} on {each.endpoint}: {each.before} → {each.after}{once}{engine}"
    return f"  {each.started[:10]}  {said}  (run {each.run})"


def told_as_json(runs: _Runs, latest: Sequence[Latest], told: _Told) -> dict[str, Json]:
    """Return the same as one JSON object."""
    flips, flakes, trends = told
    return {
        "runs": [
            {"id": run, "started": started, "decision": decision, "complete": complete}
            for run, started, decision, complete in runs
        ],
        "latest": [
            {
                "endpoint": each.endpoint,
                "run": each.run,
                "started": each.started,
                "beside": None if each.beside is None else each.beside[0],
                "decided": each.decided,
                "undecided": each.undecided,
                "compared": each.compared,
            }
            for each in latest
        ],
        "changed": [_changed(change) for each in latest for change in each.changed],
        "flips": _flips(each for each in flips if each.stayed),
        "new": _flips(each for each in flips if not each.stayed),
        "waverers": [
            {
                "endpoint": each.endpoint,
                "row": each.feature,
                "usual": each.usual,
                "odd": each.odd,
                "runs": each.runs,
                "share": [each.share.low, each.share.high],
            }
            for each in flakes
        ],
        "trends": [
            {
                "endpoint": each.endpoint,
                "row": each.feature,
                "figure": each.figure,
                "first": each.first,
                "last": each.last,
                "runs": each.runs,
                "sigmas": each.sigmas,
            }
            for each in trends
        ],
    }


def _changed(each: Since) -> dict[str, Json]:
    return {
        "endpoint": each.endpoint,
        "row": each.feature,
        "before": each.before,
        "after": each.after,
        "run": each.run,
        "started": each.started.isoformat(),
        "told": each.told,
    }


def _flips(found: Iterable[Flip]) -> list[Json]:
    return [
        {
            "endpoint": each.endpoint,
            "row": each.feature,
            "run": each.run,
            "started": each.started,
            "before": each.before,
            "after": each.after,
            "told": each.told.value,
            "engine_versions": list(each.versions),
            "reason": each.reason,
        }
        for each in found
    ]
