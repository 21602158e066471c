"""The instrument's own test: every seeded fault must be caught by the check it names, no harmless oddity by any."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from servecheck import plan as plans
from servecheck.model import Endpoint, Exchange, Json, Outcome, SkipCode, Status, Trial
from servecheck.probe import Params, Probe
from servecheck.reference import mutants, virtual
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.runner import Runner
from servecheck.scenario import Scenario
from servecheck.store import CaseEnd
from servecheck.wire.memory import MemoryTransport
from servecheck.wire.transport import Transport

__all__ = ["KillMatrix", "Seen", "beside", "kill_matrix", "runner_on", "served", "trials_of_all", "trials_on"]

_ENDPOINT = Endpoint(name="reference", base_url="http://127.0.0.1:1/v1", api_key_env="")
_OTHER = Endpoint(name="candidate", base_url="http://127.0.0.1:2/v1", api_key_env="")
_DEADLINE = 30.0
_FAST_FAULTS, _FAST_VARIATIONS = 1, 0  # a probe, so that the whole set takes seconds
_KEY_ENV, _KEY = "REFERENCE_API_KEY", "reference-key-of-the-self-test"


class _Nothing:
    """A keeper that keeps nothing: the self-test needs the trials only."""

    def write(self, kind: str, **fields: Json) -> None:
        """Keep nothing."""

    def exchange(self, exchange: Exchange, *, endpoint: str, case: str | None) -> None:
        """Keep nothing."""

    def case(self, end: CaseEnd) -> None:
        """Keep nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the probe said of one server under one reference model."""

    probe: str
    server: str
    model: str
    fault: bool
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillMatrix:
    """All that was tried. A fault counts as caught where it was caught under every model it was tried with."""

    seen: tuple[Seen, ...] = field(default=(), repr=False)

    def _names(self, *, fault: bool, only_missed: bool = False) -> set[tuple[str, str]]:
        return {
            (each.probe, each.server) for each in self.seen if each.fault is fault and (each.problem or not only_missed)
        }

    @property
    def seeded(self) -> int:
        """How many faults were seeded."""
        return len(self._names(fault=True))

    @property
    def caught(self) -> int:
        """How many of them were caught."""
        return self.seeded - len(self._names(fault=True, only_missed=True))

    @property
    def variations(self) -> int:
        """How many harmless variations were tried, the reference server itself among them."""
        return len(self._names(fault=False))

    @property
    def false_alarms(self) -> int:
        """How many of them were flagged."""
        return len(self._names(fault=False, only_missed=True))

    @property
    def clean(self) -> bool:
        """Whether every fault was caught and nothing harmless flagged."""
        return not any(each.problem for each in self.seen)

    @property
    def sentence(self) -> str:
        """The result in one line."""
        return (
            f"{self.caught} of {self.seeded} seeded faults caught, "
            f"{self.false_alarms} of {self.variations} harmless variations flagged"
        )

    def misses(self) -> Iterator[str]:
        """Yield a line for everything that went wrong."""
        for each in self.seen:
            if each.problem:
                kind = "missed" if each.fault else "false alarm"
                yield f"{kind}: {each.probe} on {each.server} ({each.model}): {each.problem}"

    def as_json(self) -> dict[str, Json]:
        """Return the counts and the misses."""
        return {
            "seeded": self.seeded,
            "caught": self.caught,
            "variations": self.variations,
            "false_alarms": self.false_alarms,
            "misses": list(self.misses()),
        }


def kill_matrix(probes: Mapping[str, Probe[Params]], scenarios: Sequence[Scenario], *, everything: bool) -> KillMatrix:
    """Try every mutant and every harmless variation.

    ``everything`` tries each under every model. Else the fast set: a few mutants a probe that trip a check each,
    and one variation, each under one model. One trial is enough to catch a fault that is there all the time.
    """
    known = mutants.discover()
    seen: list[Seen] = []
    for name in sorted(probes):
        mine = [scenario for scenario in scenarios if scenario.probe == name]
        found, harmless = known.get(name, ((), ()))
        plain = Harmless(id="reference-server", server=ReferenceServer)
        tried: list[Mutant | Harmless] = [plain, *found, *harmless]
        if not everything:
            few = list(itertools.islice(_one_for_each_check(found), _FAST_FAULTS))
            tried = [plain, *few, *harmless[:_FAST_VARIATIONS]]
            if probes[name].contrast is not None:
                tried = [*few[:1]]  # a comparison asks two servers for whole texts, which is not a matter of seconds
        for each in tried:
            models = _models(each, everything=everything)
            seen += [_try(name, each, model, probes, mine) for model in models]
    return KillMatrix(seen=tuple(seen))


def _one_for_each_check(found: Sequence[Mutant]) -> Iterator[Mutant]:
    """Yield mutants that trip one check more each, a few a probe."""
    tripped: set[str] = set()
    for mutant in found:
        checks = {check for check, _ in mutant.trips}
        if not tripped.issuperset(checks):
            tripped |= checks
            yield mutant


def _models(each: Mutant | Harmless, *, everything: bool) -> Iterable[str]:
    models = each.models
    # A checksum spreads the fast set over the models, the same way in every process.
    return models if everything else (models[zlib.crc32(each.id.encode()) % len(models)],)


def _try(
    name: str,
    each: Mutant | Harmless,
    model: str,
    probes: Mapping[str, Probe[Params]],
    scenarios: Sequence[Scenario],
) -> Seen:
    trials = trials_on(served(each, model), probes, scenarios, left=beside(each, model))
    fault = isinstance(each, Mutant)
    problem = _missed(each, trials) if isinstance(each, Mutant) else _flagged(trials)
    return Seen(probe=name, server=each.id, model=model, fault=fault, problem=problem)


def served(each: Mutant | Harmless, model: str) -> ReferenceServer:
    """Return a fresh server of a variant, with a key, so that what guards it can be tried; some say they have none."""
    return each.make(model) if "api_key" in each.config else each.make(model, api_key=_KEY)


def beside(each: Mutant | Harmless, model: str) -> ReferenceServer | None:
    """Return a fresh server that a variant is compared with; ``None`` for the reference server as it is."""
    return each.beside(language=model, **each.config) if each.beside is not None else None


def trials_on(
    server: ReferenceServer,
    probes: Mapping[str, Probe[Params]],
    scenarios: Sequence[Scenario],
    *,
    trials: int = 1,
    seed: str = "selftest",
    left: ReferenceServer | None = None,
) -> tuple[Trial, ...]:
    """Run scenarios against a server in memory, under virtual time, and return its judged trials.

    Where a probe compares, ``left`` is what the server is compared with: a right server of the same model unless given.
    """
    every = trials_of_all(server, probes, scenarios, trials=trials, seed=seed, left=left)
    judged = _OTHER if any(trial.case.endpoint == _OTHER.name for trial in every) else _ENDPOINT
    return tuple(trial for trial in every if trial.case.endpoint == judged.name)


def trials_of_all(
    server: ReferenceServer,
    probes: Mapping[str, Probe[Params]],
    scenarios: Sequence[Scenario],
    *,
    trials: int | None = 1,
    seed: str = "selftest",
    left: ReferenceServer | None = None,
) -> tuple[Trial, ...]:
    """Do as :func:`trials_on`, and return the trials of both endpoints where there are two; the reference's first.

    Without ``trials``, there are as many as a run makes: three where something does not hold.
    """
    runner = runner_on(server, probes, scenarios, trials=trials, seed=seed, left=left)
    virtual.run(runner.run(), limit=86_400.0)
    return runner.trials


def runner_on(
    server: ReferenceServer,
    probes: Mapping[str, Probe[Params]],
    scenarios: Sequence[Scenario],
    *,
    trials: int | None = 1,
    seed: str = "selftest",
    left: ReferenceServer | None = None,
    once: str = "",
) -> Runner:
    """Return what :func:`trials_of_all` runs, for whoever has it run beside something else on one loop.

    Runs of one ``seed`` that are to be two runs differ in ``once``, as a user's do.
    """
    settings = plans.Settings(
        deadline=_DEADLINE, trials=trials, seed=seed, allow=frozenset(probes[each.probe].risk for each in scenarios)
    )
    pair = left is not None or any(probes[each.probe].contrast is not None for each in scenarios)
    servers = {_ENDPOINT.name: server}
    # Named, so that a list of models that is wrong or longer than one is a finding and not a question to the user.
    endpoints = [replace(_ENDPOINT, model=server.model)]
    if pair:
        left = left or ReferenceServer(language=server.language.name)
        servers = {_ENDPOINT.name: left, _OTHER.name: server}
        endpoints = [replace(_ENDPOINT, model=left.model, reference=True), replace(_OTHER, model=server.model)]
    plan = plans.Plan(
        endpoints=tuple(endpoints),
        scenarios=tuple(scenarios),
        skips=(),
        settings=settings,
        estimate=plans.Estimate(requests=0, prompt_tokens=0, output_tokens=0),
    )

    def connect(endpoint: Endpoint) -> Transport:
        asked = servers[endpoint.name]
        app = MemoryTransport(asked)
        if asked.api_key is None:
            return Transport(endpoint, app=app)
        return Transport(endpoint, app=app, secrets={_KEY_ENV: asked.api_key}, key_env=_KEY_ENV)

    return Runner(plan, probes, connect, _Nothing(), once=once)


def _missed(mutant: Mutant, trials: Sequence[Trial]) -> str:
    said = {(finding.check, finding.outcome) for trial in trials for finding in trial.findings}
    missing = [pair for pair in mutant.trips if pair not in said]
    if not missing:
        return ""
    wanted = ", ".join(f"{check} {outcome}" for check, outcome in missing)
    instead = sorted(f"{check} {outcome}" for check, outcome in said if outcome is not Outcome.HELD)
    faults = [trial.reason for trial in trials if trial.fault is not None]
    return f"wanted {wanted}; saw {', '.join([*instead, *faults]) or 'nothing wrong'}"


def _flagged(trials: Sequence[Trial]) -> str:
    wrong = [
        f"{finding.check} {finding.outcome}: {finding.why}"
        for trial in trials
        for finding in trial.findings
        if finding.outcome is not Outcome.HELD
    ]
    # A row that makes no sense with a model, such as reasoning with one that does not, is rightly left out.
    left_out = (trial for trial in trials if trial.skip_code != SkipCode.NOT_APPLICABLE)
    wrong += [trial.reason for trial in left_out if trial.fault is not None or trial.status is Status.SKIPPED]
    return "; ".join(wrong) if trials else "no trial"
