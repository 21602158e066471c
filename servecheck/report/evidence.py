"""One piece of evidence: what its checks saw, the exchange they read, and the anchor where a reader finds it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import overload

from servecheck.model import Cell, Check, Exchange, Finding, Measured, Mode, Outcome, Route
from servecheck.report.data import RunReport
from servecheck.report.shapes import CheckSeen, ExchangeView
from servecheck.report.text import count, public_url, seconds, visible

__all__ = ["Curl", "ExchangeViews", "checks_seen", "exchange_view", "figures", "heading_word", "slug"]

Curl = Callable[[Exchange], str]
"""Renders an exchange as a command that sends its request again."""

OUTCOME_MARKS = {
    Outcome.HELD: "✅",
    Outcome.VIOLATED: "❌",
    Outcome.NO_EFFECT: "🔕",
    Outcome.REFUSED: "🚫",
    Outcome.UNDETERMINED: "❔",
}

OUTCOME_WORDS = {
    Outcome.HELD: "held",
    Outcome.VIOLATED: "violated",
    Outcome.NO_EFFECT: "no effect",
    Outcome.REFUSED: "refused",
    Outcome.UNDETERMINED: "undetermined",
}


def checks_seen(run: RunReport, cell: Cell) -> Iterator[CheckSeen]:
    """Fold findings that say the same in several trials; what did not hold comes first.

    The first of such trials is the evidence that is shown; of the others the reader gets the ids.
    """
    folded: dict[tuple[object, ...], list[Finding]] = {}
    for finding in cell.findings:
        key = (finding.check, finding.outcome, finding.why, finding.route, finding.mode, finding.scenario)
        folded.setdefault(key, []).append(finding)
    for same in sorted(folded.values(), key=lambda same: same[0].outcome is Outcome.HELD):
        same.sort(key=lambda finding: finding.trial)
        first = same[0]
        by_trial: dict[int, dict[str, None]] = {}
        for finding in same:
            by_trial.setdefault(finding.trial, {}).update(dict.fromkeys(finding.evidence))
        shown = tuple(by_trial.pop(first.trial))
        check = run.checks.get(first.check) or Check(id=first.check, rule="", level=first.level, source="")
        rest = {name: value for name, value in first.measured.items() if name not in {"expected", "actual"}}
        yield CheckSeen(
            check=first.check,
            level=first.level,
            mark=OUTCOME_MARKS[first.outcome],
            word=OUTCOME_WORDS[first.outcome],
            rule=check.rule,
            source=check.source,
            why=first.why,
            where=_where(first, [finding.trial for finding in same]),
            measured=figures(rest),
            expected=_given(first, "expected"),
            actual=_given(first, "actual"),
            evidence=shown,
            again=tuple((trial, tuple(ids)) for trial, ids in by_trial.items() if ids),
        )


class ExchangeViews(Sequence[ExchangeView]):
    """The exchanges of one piece of evidence, each said when it is asked for, so that a report holds no bodies."""

    def __init__(self, ids: Iterable[str], exchanges: Mapping[str, Exchange], curl: Curl) -> None:
        self._ids, self._exchanges, self._curl = tuple(ids), exchanges, curl

    @overload
    def __getitem__(self, place: int) -> ExchangeView: ...
    @overload
    def __getitem__(self, place: slice) -> ExchangeViews: ...
    def __getitem__(self, place: int | slice) -> ExchangeView | ExchangeViews:
        if isinstance(place, slice):
            return ExchangeViews(self._ids[place], self._exchanges, self._curl)
        return exchange_view(self._exchanges[self._ids[place]], self._curl)

    def __len__(self) -> int:
        return len(self._ids)


def exchange_view(exchange: Exchange, curl: Curl) -> ExchangeView:
    """Say an exchange: facts, times in seconds since it was sent, bodies as bytes, and the command."""
    first = exchange.chunks[0].at if exchange.chunks else None
    times = [
        ("headers", exchange.headers_at),
        ("first bytes", first),
        ("last bytes", exchange.chunks[-1].at if len(exchange.chunks) > 1 else None),
        ("end", exchange.ended_at),
    ]
    said = [f"{word} {seconds(at)}" for word, at in times if at is not None]
    chunks = f" ({count(len(exchange.chunks), 'piece')})" if exchange.chunks else ""
    return ExchangeView(
        id=exchange.id,
        step=exchange.step,
        request_line=f"{exchange.method} {public_url(exchange.url)}",
        status=str(exchange.status) if exchange.status is not None else "no reply",
        ending=exchange.ending,
        detail=exchange.detail,
        timeline=f"sent → {' → '.join(said)}{chunks}",
        content_type=exchange.header("content-type") or "",
        request_body=exchange.request_body,
        reply_body=exchange.body,
        curl=curl(exchange),
    )


_IN_A_TABLE = re.compile(r"(?:own_)?delta_from_")
"""Counts of a histogram, which has a picture and a table of its own under *Measurements*."""


def figures(measured: Measured) -> tuple[tuple[str, str], ...]:
    """Return figures as pairs of name and text, sorted by name."""
    return tuple((name, _figure(value)) for name, value in sorted(measured.items()) if not _IN_A_TABLE.match(name))


def heading_word(name: str) -> str:
    """Return a name of which every forge makes the same anchor: single hyphens, ASCII letters, digits, dots."""
    kept = re.sub(r"[^0-9A-Za-z_]*[^0-9A-Za-z_.][^0-9A-Za-z_]*", "-", visible(name)).strip("-.")
    return kept or "unnamed"


def slug(heading: str) -> str:
    """Return the anchor that GitHub and GitLab give a heading of plain ASCII with single spaces and hyphens."""
    return re.sub(r"[^0-9a-z_ -]", "", heading.lower()).replace(" ", "-")


def _where(finding: Finding, trials: Iterable[int]) -> str:
    parts = [
        part.value.replace("_", "-") for part in (finding.route, finding.mode) if part not in {Route.NONE, Mode.NONE}
    ]
    numbers = sorted(set(trials))
    word = "trial" if len(numbers) == 1 else "trials"
    scenario = [f"scenario {finding.scenario}"] if finding.scenario else []
    return ", ".join([*scenario, *parts, f"{word} {', '.join(map(str, numbers))}"])


def _figure(value: object) -> str:
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _given(finding: Finding, name: str) -> str | None:
    return _figure(finding.measured[name]) if name in finding.measured else None
