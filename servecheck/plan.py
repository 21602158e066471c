"""What a run is going to do: which scenarios on which endpoints, in which order, at what cost, and what is left out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from servecheck import features
from servecheck.budget import Budget
from servecheck.errors import NothingSelected, UnknownName
from servecheck.identify import fits
from servecheck.model import Endpoint, Feature, Kind, Risk, SkipCode
from servecheck.probe import Cost, Params, Probe
from servecheck.scenario import Scenario
from servecheck.workload import Planned, Workload, fill_in

__all__ = [
    "FULL_ONLY",
    "GETTING_TO_KNOW",
    "SUITES",
    "Asked",
    "Estimate",
    "Needs",
    "Plan",
    "Settings",
    "Skip",
    "Suite",
    "beyond",
    "make",
    "of_suite",
    "with_traffic",
]


FULL_ONLY = "full"
"""The tag of scenarios that are too dear for what they tell: they run in the suite full, and where they are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A named choice of scenarios: by a tag that they must have or must not have, and by the risks it takes."""

    name: str
    about: str
    tag: str | None = None
    without: str | None = None
    risks: frozenset[Risk] = frozenset({Risk.SAFE})

    def has(self, scenario: Scenario) -> bool:
        """Tell whether a scenario is of this suite by its tags; what its probe risks is another question."""
        return (self.tag is None or self.tag in scenario.tags) and self.without not in scenario.tags


SUITES = {
    suite.name: suite
    for suite in (
        Suite(name="smoke", about="a first look, at most 40 requests: the scenarios tagged smoke", tag="smoke"),
        Suite(name="demo", about="what `servecheck demo` shows in minutes: the scenarios tagged demo", tag="demo"),
        Suite(
            name="standard",
            about="every core row, and extended rows that are cheap or break often; at most 400 requests, 40k "
            "generated and 200k prompt tokens, nothing of risk load; the default",
            without=FULL_ONLY,
        ),
        Suite(name="full", about="every safe scenario, and those of the risks that --allow names"),
        Suite(
            name="migration",
            about="standard and what is of risk load, for a staging endpoint that nobody else uses",
            without=FULL_ONLY,
            risks=frozenset({Risk.SAFE, Risk.LOAD}),
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a run is carried out. ``trials`` overrides every scenario's; ``deadline`` bounds one exchange, in seconds."""

    suite: str = "standard"
    trials: int | None = None
    deadline: float = 300.0
    concurrency: int = 8
    seed: str = "servecheck"
    wait_ready: float = 0.0
    allow: frozenset[Risk] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a profile brings into a plan: its rows run whatever the suite, and nothing besides where it is ``alone``."""

    profile: str
    rows: tuple[str, ...]
    alone: bool = True


_BESIDE_A_PROFILE = ("identity.*", "quantization.identity")
"""What is asked besides where a profile alone chooses: the report says what the endpoint is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A row left out by decision, on every endpoint."""

    feature: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Cost for one endpoint with one trial of each scenario; an adaptive second and third look come on top.

    ``beside`` are those of the requests that belong to no scenario: to get to know the server, and canaries.
    """

    requests: int
    prompt_tokens: int
    output_tokens: int
    beside: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What chose the scenarios of a plan besides its suite: rows, a profile, and files of the user's."""

    globs: tuple[str, ...] = ()
    needs: Needs | None = None
    own: tuple[Scenario, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Scenarios in running order, the endpoints they run on, the rows left out, and what is run of a workload."""

    endpoints: tuple[Endpoint, ...]
    scenarios: tuple[Scenario, ...]
    skips: tuple[Skip, ...]
    settings: Settings
    estimate: Estimate
    workload: Planned | None = None
    asked: Asked = Asked()

    @property
    def reference(self) -> str | None:
        """The name of the reference endpoint, ``None`` where there is none."""
        return next((endpoint.name for endpoint in self.endpoints if endpoint.reference), None)


def with_traffic(scenarios: Sequence[Scenario], prompts: Sequence[tuple[int, int]]) -> tuple[Scenario, ...]:
    """Return the scenarios with a sample of traffic, (tokens of a prompt, requests), for those that make use of one."""
    pairs = [[tokens, count] for tokens, count in prompts]
    return tuple(
        replace(scenario, params=scenario.params.model_copy(update={"traffic": pairs}))
        if "traffic" in type(scenario.params).model_fields
        else scenario
        for scenario in scenarios
    )


GETTING_TO_KNOW = 10  # eight to get to know the server, a canary, one JSON object; five more where no engine shows
_ALONE = "compares two endpoints, and there is one"
_CANARY_EVERY = 25  # cases
_OTHER_KINDS = frozenset({"embeddings", "rerank", "images", "audio"})
_RISK_ORDER = {Risk.SAFE: 0, Risk.LOAD: 1, Risk.DANGEROUS: 2}


def make(
    endpoints: Sequence[Endpoint],
    scenarios: Sequence[Scenario],
    probes: Mapping[str, Probe[Params]],
    *,
    settings: Settings,
    globs: Collection[str] = (),
    given: bool = False,
    workload: Workload | None = None,
    recorded: bool = False,
    own: Collection[str] = (),
    needs: Needs | None = None,
) -> Plan:
    """Choose and order; what probes run on the caller's own material is left out without a ``workload``.

    ``given`` says that the scenarios are a user's choice and not the built-in suite; ``recorded`` that there is a
    recorded reference to compare with. ``own`` are the ids of scenarios that a user named by file: a suite and a
    profile choose among the others. ``globs`` choose rows, and whoever names a row has all of its scenarios; ``needs``
    adds the rows of a profile to the suite. What probes risk is asked of all of them alike.

    A literal name that does not exist raises ``UnknownName``; a selection that is empty raises ``NothingSelected``.
    """
    suite = SUITES.get(settings.suite)
    if suite is None:
        raise UnknownName("suite", settings.suite, SUITES)
    scenarios, planned = fill_in(scenarios, probes, workload)
    rows = features.with_own((scenario.feature, scenario.title) for scenario in scenarios)
    wanted = {feature.id for glob in globs for feature in features.matching(glob, rows)} if globs else None
    whole = wanted if wanted is not None else _needed(needs, rows)
    of_the_suite = suite if wanted is None and not (needs is not None and needs.alone) else None
    chosen: list[Scenario] = []
    skips: dict[str, Skip] = {}
    for feature in rows:
        mine = [scenario for scenario in scenarios if scenario.feature == feature.id]
        # Named by hand a comparison is recorded all the same: what one endpoint shows can be compared with a later run.
        alone = feature.kind is Kind.COMPARISON and len(endpoints) + recorded < 2
        named = [
            scenario
            for scenario in mine
            if feature.id in whole
            or (wanted is None and scenario.id in own)
            or (not alone and of_the_suite is not None and of_the_suite.has(scenario))
        ]
        if wanted is not None and feature.id not in wanted:
            skip = Skip(feature=feature.id, code=SkipCode.NOT_SELECTED, reason="not named by --feature")
        elif mine and not named and alone:
            skip = Skip(feature=feature.id, code=SkipCode.NOT_APPLICABLE, reason=_ALONE)
        else:
            skip = _not_named(feature.id, of_the_suite, needs, mine, given=given)
        picked, left = _allowed(feature, named, probes, suite.risks | settings.allow, skip)
        chosen += picked
        if left is not None:
            skips[feature.id] = left
    if not chosen:
        raise NothingSelected(_nothing(globs, suite, needs, scenarios, skips.values(), wanted))
    # The riskiest come last: what they leave behind then disturbs nobody. Only what a first use costs must be asked
    # before anything else has used it.
    chosen.sort(key=lambda scenario: _order(probes[scenario.probe]))
    return Plan(
        endpoints=tuple(sorted(endpoints, key=lambda endpoint: not endpoint.reference)),
        scenarios=tuple(chosen),
        skips=tuple(skips.values()),
        settings=settings,
        estimate=max(
            (_estimate(chosen, probes, settings, endpoint.kind or "chat") for endpoint in endpoints),
            key=lambda each: each.requests,
        ),
        workload=_chosen(planned, chosen),
        asked=Asked(globs=tuple(globs), needs=needs, own=tuple(each for each in scenarios if each.id in own)),
    )


def _chosen(planned: Planned | None, chosen: Sequence[Scenario]) -> Planned | None:
    ids = {scenario.id for scenario in chosen}
    return planned and replace(planned, items=tuple(item for item in planned.items if item.scenario in ids))


def _order(probe: Probe[Params]) -> tuple[bool, int]:
    return not probe.first_use, _RISK_ORDER[probe.risk]


def _needed(needs: Needs | None, rows: Iterable[Feature]) -> frozenset[str]:
    """Return the rows that a profile runs; what it needs and nobody has is for its answer to say."""
    if needs is None:
        return frozenset()
    beside = {each.id for glob in _BESIDE_A_PROFILE for each in rows if fnmatchcase(each.id, glob)}
    return frozenset(needs.rows) | (beside if needs.alone else frozenset())


def _allowed(
    feature: Feature,
    named: Sequence[Scenario],
    probes: Mapping[str, Probe[Params]],
    risks: Collection[Risk],
    otherwise: Skip,
) -> tuple[list[Scenario], Skip | None]:
    """Return those of a row's named scenarios that are allowed, or why none runs: ``otherwise`` if none is named."""
    if not named:
        return [], otherwise
    allowed = [scenario for scenario in named if probes[scenario.probe].risk in risks]
    if not allowed:
        risk = min((probes[scenario.probe].risk for scenario in named), key=_RISK_ORDER.__getitem__)
        return [], Skip(feature=feature.id, code=SkipCode.OPT_IN, reason=f"needs --allow {risk}")
    return allowed, None


def _not_named(
    feature: str, suite: Suite | None, needs: Needs | None, mine: Sequence[Scenario], *, given: bool
) -> Skip:
    if not mine and given:
        return Skip(feature=feature, code=SkipCode.NOT_SELECTED, reason="no scenario that was given counts for it")
    if not mine:
        return Skip(feature=feature, code=SkipCode.NO_PROBE, reason="servecheck has no probe for this row yet")
    if suite is None:
        reason = f"not part of the profile {needs.profile}" if needs is not None else "not named"
    else:
        reason = f"not part of the suite {suite.name}{' (it is in full)' if suite.without is not None else ''}"
    return Skip(feature=feature, code=SkipCode.NOT_SELECTED, reason=reason)


def _nothing(
    globs: Collection[str],
    suite: Suite,
    needs: Needs | None,
    scenarios: Sequence[Scenario],
    skips: Iterable[Skip],
    wanted: Collection[str] | None,
) -> str:
    """Say that nothing is left to run, and for each reason which rows it leaves out of those that are meant."""
    named = " ".join(f"--feature {glob}" for glob in globs)
    who = named or (f"the profile {needs.profile}" if needs is not None and needs.alone else f"the suite {suite.name}")
    there = {scenario.feature for scenario in scenarios}
    out: dict[str, list[str]] = {}
    for skip in skips:
        meant = skip.feature in there if wanted is None else skip.feature in wanted
        if meant:
            out.setdefault(skip.reason, []).append(skip.feature)
    reasons = "; ".join(f"{_few(rows)}: {reason}" for reason, rows in out.items())
    if reasons:
        return f"nothing to run: {who} selects nothing that may run ({reasons}); see `servecheck list scenarios`"
    return f"nothing to run: {who} selects no scenario; see `servecheck list scenarios`"


def _few(rows: Sequence[str], limit: int = 4) -> str:
    return ", ".join(rows[:limit]) + (f" and {len(rows) - limit} more" if len(rows) > limit else "")


def beyond(plan: Plan, probes: Mapping[str, Probe[Params]], budget: Budget) -> list[Scenario]:
    """Return the scenarios that a budget is likely not to reach, by what one look at each costs in running order."""
    kinds = {endpoint.kind or "chat" for endpoint in plan.endpoints}
    kind = max(kinds, key=lambda each: _estimate(plan.scenarios, probes, plan.settings, each).requests)
    for count in range(len(plan.scenarios) + 1):
        spent = _estimate(plan.scenarios[:count], probes, plan.settings, kind)
        if _is_over(spent, budget):
            return list(plan.scenarios[max(0, count - 1) :])
    return []


def _is_over(cost: Estimate, budget: Budget) -> bool:
    limits = (
        (budget.requests, cost.requests),
        (budget.tokens, cost.prompt_tokens + cost.output_tokens),
        (budget.prompt_tokens, cost.prompt_tokens),
        (budget.output_tokens, cost.output_tokens),
    )
    return any(limit is not None and used > limit for limit, used in limits)


def _estimate(
    chosen: Sequence[Scenario], probes: Mapping[str, Probe[Params]], settings: Settings, kind: str = "chat"
) -> Estimate:
    """Return what one endpoint of a kind is asked for: nothing in rows that are not for it."""
    total = Cost(requests=GETTING_TO_KNOW)
    cases = 0
    for scenario in chosen:
        used = _cost(scenario, probes[scenario.probe], kind)
        count = settings.trials or scenario.trials or 1
        cases += count if used.requests else 0
        total = Cost(
            requests=total.requests + used.requests * count,
            prompt_tokens=total.prompt_tokens + used.prompt_tokens * count,
            output_tokens=total.output_tokens + used.output_tokens * count,
        )
    return Estimate(
        requests=total.requests + cases // _CANARY_EVERY,
        prompt_tokens=total.prompt_tokens,
        output_tokens=total.output_tokens,
        beside=GETTING_TO_KNOW + cases // _CANARY_EVERY,
    )


def _cost(scenario: Scenario, probe: Probe[Params], kind: str) -> Cost:
    if not fits(scenario.feature, kind)[0]:
        return Cost(requests=0)
    used = probe.of(scenario.params)
    if kind == "chat" and scenario.feature.partition(".")[0] in _OTHER_KINDS:
        return Cost(requests=min(used.requests, 1))  # a server that chats says no to the first one
    return Cost(requests=used.requests, prompt_tokens=used.prompt_tokens, output_tokens=used.output_tokens)


def of_suite(
    suite: Suite, scenarios: Sequence[Scenario], probes: Mapping[str, Probe[Params]], *, kind: str = "chat"
) -> tuple[tuple[Scenario, ...], Estimate]:
    """Return the scenarios that a suite runs without ``--allow`` and a workload, and what one look at each costs."""
    mine = tuple(
        each
        for each in scenarios
        if suite.has(each) and probes[each.probe].risk in suite.risks and not probes[each.probe].per_item
    )
    return mine, _estimate(mine, probes, Settings(), kind)
