"""What a run is going to do: which scenarios on which endpoints, in which order, at what cost, and what is left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from servecheck import features
from servecheck.errors import NothingSelected, UnknownName
from servecheck.identify import fits
from servecheck.model import Endpoint, Feature, Kind, Risk, SkipCode
from servecheck.probe import Cost, Params, Probe
from servecheck.scenario import Scenario
from servecheck.workload import Planned, Workload, fill_in

__all__ = ["FULL_ONLY", "SUITES", "Estimate", "Plan", "Settings", "Skip", "Suite", "make", "of_suite", "with_traffic"]


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
class Skip:
    """A row left out by decision, on every endpoint."""

    feature: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Cost for one endpoint with one trial of each scenario; an adaptive second and third look come on top."""

    requests: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Scenarios in running order, the endpoints they run on, the rows left out, and what is run of a workload."""

    endpoints: tuple[Endpoint, ...]
    scenarios: tuple[Scenario, ...]
    skips: tuple[Skip, ...]
    settings: Settings
    estimate: Estimate
    workload: Planned | None = None

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


_OWN_REQUESTS = 10  # eight to get to know the server, a canary, one JSON object; five more where no engine shows
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
) -> Plan:
    """Choose and order; what probes run on the caller's own material is left out without a ``workload``.

    ``given`` says that the scenarios are a user's choice and not the built-in suite; ``recorded`` that there is a
    recorded reference to compare with.

    A literal name that does not exist raises ``UnknownName``; a selection that is empty raises ``NothingSelected``.
    """
    suite = SUITES.get(settings.suite)
    if suite is None:
        raise UnknownName("suite", settings.suite, SUITES)
    scenarios, planned = fill_in(scenarios, probes, workload)
    rows = features.with_own((scenario.feature, scenario.title) for scenario in scenarios)
    wanted = {feature.id for glob in globs for feature in features.matching(glob, rows)} if globs else None
    chosen: list[Scenario] = []
    skips: dict[str, Skip] = {}
    for feature in rows:
        mine = [scenario for scenario in scenarios if scenario.feature == feature.id]
        if mine and wanted is None and feature.kind is Kind.COMPARISON and len(endpoints) + recorded < 2:
            # Named by hand it is recorded all the same: what one endpoint shows can be compared with a later run.
            skips[feature.id] = Skip(
                feature=feature.id, code=SkipCode.NOT_APPLICABLE, reason="compares two endpoints, and there is one"
            )
            continue
        picked, skip = _choose(feature, mine, probes, suite, settings, wanted, given=given)
        chosen += picked
        if skip is not None:
            skips[feature.id] = skip
    if not chosen:
        raise NothingSelected(_nothing(globs, suite))
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
    )


def _chosen(planned: Planned | None, chosen: Sequence[Scenario]) -> Planned | None:
    ids = {scenario.id for scenario in chosen}
    return planned and replace(planned, items=tuple(item for item in planned.items if item.scenario in ids))


def _order(probe: Probe[Params]) -> tuple[bool, int]:
    return not probe.first_use, _RISK_ORDER[probe.risk]


def _choose(
    feature: Feature,
    mine: list[Scenario],
    probes: Mapping[str, Probe[Params]],
    suite: Suite,
    settings: Settings,
    wanted: Collection[str] | None,
    *,
    given: bool,
) -> tuple[list[Scenario], Skip | None]:
    if wanted is not None and feature.id not in wanted:
        return [], Skip(feature=feature.id, code=SkipCode.NOT_SELECTED, reason="not named by --feature")
    if not mine and given:
        return [], Skip(
            feature=feature.id, code=SkipCode.NOT_SELECTED, reason="no scenario that was given counts for it"
        )
    if not mine:
        return [], Skip(feature=feature.id, code=SkipCode.NO_PROBE, reason="servecheck has no probe for this row yet")
    tagged = [scenario for scenario in mine if suite.has(scenario) or wanted is not None]
    if not tagged:
        where = " (it is in full)" if suite.without is not None else ""
        reason = f"not part of the suite {suite.name}{where}"
        return [], Skip(feature=feature.id, code=SkipCode.NOT_SELECTED, reason=reason)
    risks = suite.risks | settings.allow
    allowed = [scenario for scenario in tagged if probes[scenario.probe].risk in risks]
    if not allowed:
        risk = min((probes[scenario.probe].risk for scenario in tagged), key=_RISK_ORDER.__getitem__)
        return [], Skip(feature=feature.id, code=SkipCode.OPT_IN, reason=f"needs --allow {risk}")
    return allowed, None


def _nothing(globs: Collection[str], suite: Suite) -> str:
    named = " ".join(f"--feature {glob}" for glob in globs)
    return f"nothing to run: {named or 'the suite ' + suite.name} selects no scenario; see `servecheck list scenarios`"


def _estimate(
    chosen: Sequence[Scenario], probes: Mapping[str, Probe[Params]], settings: Settings, kind: str = "chat"
) -> Estimate:
    """Return what one endpoint of a kind is asked for: nothing in rows that are not for it."""
    total = Cost(requests=_OWN_REQUESTS)
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
