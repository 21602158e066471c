"""A history as text for people and as JSON for programs; nothing is decided here."""

from __future__ import annotations

from collections.abc import Sequence

from servecheck.history import Flake, Flip, Trend
from servecheck.model import Json

__all__ = ["as_text", "told_as_json"]

_Runs = Sequence[tuple[str, str, str, bool]]
_Changed = Sequence[tuple[str, str, str, str, str]]
_Told = tuple[Sequence[Flip], Sequence[Flake], Sequence[Trend]]


def as_text(runs: _Runs, changed: _Changed, told: _Told, since: str | None) -> str:
    """Return what a history says, section by section; each says that there is nothing where there is nothing."""
    flips, flakes, trends = told
    if not runs:
        return "no runs"
    span = f"{len(runs)} run{'s' if len(runs) != 1 else ''}, {runs[0][1][:10]} to {runs[-1][1][:10]}"
    head = "Changed since the run before" if since is None else f"Changed since {since}"
    lines = [span, "", head]
    lines += [f"  {row} on {name}: {was} → {now}  (compared with {run})" for name, row, was, now, run in changed]
    first = since is None and len(runs) == 1
    lines += [] if changed else ["  nothing to compare with: it is the first run" if first else "  nothing"]
    lines += ["", "Flips: what changed and was so again, in a later run or at another look"]
    lines += [f"  {each.started[:10]}  {_flip(each)}" for each in flips] or ["  none"]
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


def _flip(each: Flip) -> str:
    before, after = each.versions
    engine = f"; engine {before} → {after}" if before != after else ""
    told = "" if each.told == "confirmed" else f"; {each.told}"
    return f"{each.feature} on {each.endpoint}: {each.before} → {each.after}{engine}{told}  (run {each.run})"


def told_as_json(runs: _Runs, changed: _Changed, told: _Told) -> dict[str, Json]:
    """Return the same as one JSON object."""
    flips, flakes, trends = told
    return {
        "runs": [
            {"id": run, "started": started, "decision": decision, "complete": complete}
            for run, started, decision, complete in runs
        ],
        "changed": [
            {"endpoint": name, "row": row, "before": was, "after": now, "run": run}
            for name, row, was, now, run in changed
        ],
        "flips": [
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
            for each in flips
        ],
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
