"""What chose the scenarios of a plan, and what was meant and is left out, in sentences; it chooses nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from servecheck.budget import Budget
from servecheck.plan import SUITES, Plan, beyond
from servecheck.probe import Params, Probe
from servecheck.scenario import Scenario

__all__ = ["chosen", "left_out"]

_NAMED = 6


def chosen(plan: Plan) -> Iterator[str]:
    """Yield what chose the scenarios: how many there are first, then whatever does not follow from the first."""
    asked, suite = plan.asked, SUITES[plan.settings.suite]
    mine = {scenario.id for scenario in asked.own}
    others = [scenario for scenario in plan.scenarios if scenario.id not in mine]
    extra = [scenario for scenario in others if not suite.has(scenario)]
    who = f"suite {suite.name}"
    if asked.globs:
        who = " ".join(f"--feature {glob}" for glob in asked.globs)
    elif asked.needs is not None:
        who = f"profile {asked.needs.profile}" if asked.needs.alone else f"{who} and profile {asked.needs.profile}"
    yield f"{who}: {_count(len(plan.scenarios), 'scenario')} on {len(plan.endpoints)} endpoint(s)"
    if asked.globs:
        if extra:
            yield f"rows that --feature names run whole: {_some(extra)} would not run in the suite {suite.name}"
    elif asked.needs is not None:
        yield from _of_the_profile(plan, extra)
    run = [scenario for scenario in plan.scenarios if scenario.id in mine]
    if run:
        yield f"of your own: {_some(run)}"


def _of_the_profile(plan: Plan, extra: Sequence[Scenario]) -> Iterator[str]:
    needs = plan.asked.needs
    assert needs is not None
    ran = {scenario.feature for scenario in plan.scenarios}
    rows = [row for row in needs.rows if row in ran]
    if needs.alone:
        yield f"{len(rows)} of the profile's {len(needs.rows)} rows, and what says what the endpoint is"
        return
    added = {scenario.feature for scenario in extra}
    if added:
        brings = f"brings {_count(len(extra), 'scenario')} that are not in the suite, for {_listed(sorted(added))}"
    else:
        brings = "brings none that is not in the suite"
    yield f"the profile {needs.profile} ({_count(len(rows), 'row')}) {brings}"


def left_out(plan: Plan, probes: Mapping[str, Probe[Params]], budget: Budget) -> Iterator[str]:
    """Yield what a profile needs and what a user named by file and is not run, with the reason; and a small budget."""
    asked = plan.asked
    ran = {scenario.feature for scenario in plan.scenarios}
    why = {skip.feature: skip.reason for skip in plan.skips}
    if asked.needs is not None:
        missing = [row for row in asked.needs.rows if row not in ran]
        if missing:
            rest = _with_reasons((row, why.get(row, "nothing counts for it")) for row in missing)
            total = len(asked.needs.rows)
            yield f"{len(missing)} of {total} rows of the profile {asked.needs.profile} are not run: {rest}"
    run = {scenario.id for scenario in plan.scenarios}
    own = [scenario for scenario in asked.own if scenario.id not in run]
    if own:
        rest = _with_reasons((scenario.id, _why_not(scenario, why, probes)) for scenario in own)
        yield f"{_count(len(own), 'scenario')} of your own not run: {rest}"
    late = beyond(plan, probes, budget)
    if late:
        rows = list(dict.fromkeys(scenario.feature for scenario in late))
        yield f"the budget is likely to end before {_count(len(late), 'scenario')}: {_listed(rows)}"
        needed = [row for row in rows if asked.needs is not None and row in asked.needs.rows]
        if needed and asked.needs is not None:
            yield f"rows of the profile {asked.needs.profile} among them: {_listed(needed)}"


def _why_not(scenario: Scenario, why: Mapping[str, str], probes: Mapping[str, Probe[Params]]) -> str:
    return why.get(scenario.feature) or f"needs --allow {probes[scenario.probe].risk}"


def _with_reasons(pairs: Iterable[tuple[str, str]]) -> str:
    by_reason: dict[str, list[str]] = {}
    for name, reason in pairs:
        by_reason.setdefault(reason, []).append(name)
    return "; ".join(f"{_listed(names)} ({reason})" for reason, names in by_reason.items())


def _some(scenarios: Sequence[Scenario]) -> str:
    return f"{_count(len(scenarios), 'scenario')} ({_listed([each.id for each in scenarios])})"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
