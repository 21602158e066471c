"""What a run is going to do: which scenarios on which endpoints, in which order, at what cost, and what is left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from servecheck import features
from servecheck.errors import NothingSelected, UnknownName
from servecheck.model import Endpoint, Feature, Kind, Risk, SkipCode
from servecheck.probe import Params, Probe
from servecheck.scenario import Scenario
from servecheck.workload import Planned, Workload, fill_in

__all__ = ["SUITES", "Estimate", "Plan", "Settings", "Skip", "Suite", "make", "with_traffic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A named choice of scenarios: by tag where it has one, and by the risks it takes."""

    name: str
    about: str
    tag: str | None = None
    risks: frozenset[Risk] = frozenset({Risk.SAFE})


SUITES = {
    suite.name: suite
    for suite in (
        Suite(name="smoke", about="a few minutes' look: the scenarios tagged smoke", tag="smoke"),
        Suite(name="demo", about="what `servecheck demo` shows in minutes: the scenarios tagged demo", tag="demo"),
        Suite(name="standard", about="every safe scenario; the default"),
        Suite(name="full", about="every scenario of every risk that --allow names"),
        Suite(
            name="migration",
            about="standard and load, for a staging endpoint that nobody else uses",
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


_OWN_REQUESTS = 12  # health, models, version and the like, and the first canary
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
) -> Plan:
    """Choose and order; what probes run on the caller's own material is left out without a ``workload``.

    ``given`` says that the scenarios are a user's choice and not the built-in suite.

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
        if mine and wanted is None and feature.kind is Kind.COMPARISON and len(endpoints) < 2:
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
        estimate=_estimate(chosen, probes, settings),
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
    tagged = [scenario for scenario in mine if suite.tag is None or suite.tag in scenario.tags or wanted is not None]
    if not tagged:
        return [], Skip(feature=feature.id, code=SkipCode.NOT_SELECTED, reason=f"not part of the suite {suite.name}")
    risks = suite.risks | settings.allow
    allowed = [scenario for scenario in tagged if probes[scenario.probe].risk in risks]
    if not allowed:
        risk = min((probes[scenario.probe].risk for scenario in tagged), key=_RISK_ORDER.__getitem__)
        return [], Skip(feature=feature.id, code=SkipCode.OPT_IN, reason=f"needs --allow {risk}")
    return allowed, None


def _nothing(globs: Collection[str], suite: Suite) -> str:
    named = " ".join(f"--feature {glob}" for glob in globs)
    return f"nothing to run: {named or 'the suite ' + suite.name} selects no scenario; see `servecheck list scenarios`"


def _estimate(chosen: Sequence[Scenario], probes: Mapping[str, Probe[Params]], settings: Settings) -> Estimate:
    trials = [settings.trials or scenario.trials or 1 for scenario in chosen]
    used = [probes[scenario.probe].of(scenario.params) for scenario in chosen]
    return Estimate(
        requests=_OWN_REQUESTS + sum(cost.requests * count for cost, count in zip(used, trials, strict=True)),
        prompt_tokens=sum(cost.prompt_tokens * count for cost, count in zip(used, trials, strict=True)),
        output_tokens=sum(cost.output_tokens * count for cost, count in zip(used, trials, strict=True)),
    )
