"""Carries out a plan: the only step that talks. Everything it sees goes to the store before anything is judged."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from servecheck import canary, identify, shut
from servecheck.budget import MAX_RECEIVED, Budget, Spent
from servecheck.endpoints import NO_KEY
from servecheck.errors import BudgetSpent, ServecheckError, StoreError, UsageError
from servecheck.features import get as feature_of
from servecheck.judging import Canaries, is_anomaly, judge, judges_alone, settle_hangs
from servecheck.model import (
    Case,
    Ending,
    Endpoint,
    Exchange,
    Fault,
    FaultKind,
    Fingerprint,
    Json,
    Risk,
    SkipCode,
    Status,
    Transcript,
    Trial,
)
from servecheck.plan import Plan
from servecheck.probe import Params, Probe
from servecheck.read.reply import is_overloaded
from servecheck.read.text import quote
from servecheck.scenario import Scenario
from servecheck.store import CaseEnd, Keeper, to_json
from servecheck.wire.redact import without_secrets
from servecheck.wire.session import WireSession
from servecheck.wire.transport import Transport

__all__ = ["Connect", "Earlier", "Progress", "Runner", "judged"]

Connect = Callable[[Endpoint], Transport]
"""Makes the way to an endpoint; tests and the self-test give one that stays in memory."""

_CANARY_EVERY = 25
_SECOND_LOOK = 3
_PRIMED_GROUPS = ("structured", "tools", "streaming", "own")
_MUTE_DEADLINE = 15.0
_RECOVERY_SECONDS = 90.0
"""How long a server that went down may take to come up again (a supervisor restarts it) before it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What just happened, for whoever watches: a line of text, or a judged trial and how far this endpoint is.

    ``told`` where its reason has been said of the whole endpoint: a line for every row would say nothing more.
    ``place`` is the scenario's in the plan, from 1 to ``places``.
    """

    endpoint: str
    text: str = ""
    trial: Trial | None = None
    told: bool = False
    place: int = 0
    places: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What is in the run folder already: trials that are not repeated, the reference's transcripts by scenario, the
    number of the last exchange, and how many interrupted parts there were. A recorded reference is nothing else.
    """

    trials: tuple[Trial, ...] = ()
    references: Mapping[str, Transcript] = field(default_factory=dict)
    last_id: int = 0
    parts: int = 0


@dataclass(slots=True, kw_only=True)
class _Lane:
    """One endpoint while the run goes on."""

    endpoint: Endpoint
    transport: Transport
    fingerprint: Fingerprint = field(default_factory=lambda: Fingerprint(fields={}))
    kind: str = "chat"
    spent: Spent = field(default_factory=Spent)
    last_canary: Exchange | None = None
    since_canary: int = 0
    given_up: bool = False
    shut: str | None = None
    primed: bool = False
    trials: list[Trial] = field(default_factory=list)
    transcripts: dict[str, Transcript] = field(default_factory=dict)
    passed: dict[str, asyncio.Event] = field(default_factory=dict)

    @property
    def sick(self) -> bool:
        return self.last_canary is not None and bool(canary.ailment(self.last_canary))


class Runner:
    """Runs one plan once. Endpoints on one host take turns, scenario by scenario; other hosts run at the same time."""

    def __init__(
        self,
        plan: Plan,
        probes: Mapping[str, Probe[Params]],
        connect: Connect,
        writer: Keeper,
        *,
        budget: Budget | None = None,
        watch: Callable[[Progress], None] = lambda _: None,
        earlier: Earlier | None = None,
        once: str | None = None,
    ) -> None:
        """``earlier`` is what an interrupted part of the same run has done already, or a recorded reference.

        ``once`` is what this run's words that nobody has sent before are drawn from, beside the seed: new for each
        run, except where a test wants it to repeat.
        """
        self._plan = plan
        self._probes = probes
        self._connect = connect
        self._writer = writer
        self._budget = replace(budget or Budget(), received=MAX_RECEIVED)  # no server shall fill the disk
        self._watch = watch
        self._earlier = earlier or Earlier()
        self._once = secrets.token_hex(8) if once is None else once
        self._ids = itertools.count(self._earlier.last_id + 1)
        self._began = 0.0
        self.lanes: list[_Lane] = []

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All judged trials so far."""
        return (*self._earlier.trials, *(trial for lane in self.lanes for trial in lane.trials))

    @property
    def spent(self) -> dict[str, Spent]:
        """What each endpoint was asked for."""
        return {lane.endpoint.name: lane.spent for lane in self.lanes}

    async def run(self) -> None:
        """Run to the end; cancellation leaves a valid run folder behind."""
        self._began = asyncio.get_running_loop().time()
        async with AsyncExitStack() as stack:
            for endpoint in self._plan.endpoints:
                transport = await stack.enter_async_context(self._connect(endpoint))
                # Which variable holds the key is settled now, also where it is the one for every endpoint.
                known = replace(endpoint, api_key_env=transport.key_env or NO_KEY)
                lane = _Lane(endpoint=known, transport=transport)
                if endpoint.reference:
                    lane.transcripts.update(self._earlier.references)
                    lane.passed = {scenario.id: asyncio.Event() for scenario in self._plan.scenarios}
                self.lanes.append(lane)
            hosts: dict[str, list[_Lane]] = {}
            for lane in self.lanes:
                hosts.setdefault(_host(lane.endpoint), []).append(lane)
            try:
                async with asyncio.TaskGroup() as group:
                    for lanes in hosts.values():
                        group.create_task(self._host(lanes))
            except* ServecheckError as group_of_one:
                raise group_of_one.exceptions[0] from None

    async def _host(self, lanes: list[_Lane]) -> None:
        for lane in lanes:
            await self._prepare(lane)
        for place, scenario in enumerate(self._plan.scenarios, 1):
            for lane in lanes:
                await self._reference_first(lane, scenario)
                await self._scenario(lane, scenario, place)
                if lane.passed:
                    lane.passed[scenario.id].set()

    async def _reference_first(self, lane: _Lane, scenario: Scenario) -> None:
        """Wait for the reference where this scenario is judged against it; it may be on another host, and slower."""
        probe, left = self._probes[scenario.probe], self._reference
        if left is not None and left is not lane and (probe.contrast is not None or probe.needs_reference):
            await left.passed[scenario.id].wait()

    # ------------------------------------------------------------------ getting to know an endpoint

    async def _prepare(self, lane: _Lane) -> None:
        session = self._session(lane, case=None, seed="identify")
        asked = await self._until_ready(lane, session)
        identity = identify.identify(lane.endpoint, asked)
        lane.kind = identity.kind or "chat"
        lane.endpoint = replace(self._with_model(lane.endpoint, identity), kind=lane.kind)
        silent = all(exchange.status is None for exchange in asked.values())
        if silent:
            lane.last_canary = asked["models"]
            lane.given_up = True
        else:
            await self._canary(lane)
            identity = identify.identify(lane.endpoint, asked, lane.last_canary)
        # Who answers nothing, lets nobody in or is not there: nothing can be said of it, however sick a probe takes it.
        lane.shut = shut.why(lane.endpoint, asked, None if silent else lane.last_canary, identity.models)
        lane.fingerprint = identity.fingerprint
        self._writer.write(
            "endpoint",
            name=lane.endpoint.name,
            endpoint=to_json(without_secrets(lane.endpoint)),
            fingerprint=to_json(lane.fingerprint),
            models=list(identity.models),
            asked={step: exchange.id for step, exchange in asked.items()},
            canary=lane.last_canary.id if lane.last_canary else None,
        )
        sign = canary.ailment(lane.last_canary) if lane.last_canary is not None else ""
        engine = lane.fingerprint.value("engine") or "unknown engine"
        version = lane.fingerprint.value("engine_version") or ""
        about = f"{engine} {version}".strip() + f", model {lane.endpoint.model}"
        said = lane.shut or (f"not well: {sign}" if sign else about)
        self._watch(Progress(endpoint=lane.endpoint.name, text=said))

    async def _until_ready(self, lane: _Lane, session: WireSession) -> dict[str, Exchange]:
        """Ask what the server is, again while the caller allows it and nothing answers (a TPU server compiles long)."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._plan.settings.wait_ready
        pause = 1.0
        while True:
            asked = await identify.ask(session)
            ready = asked["models"].status is not None and asked["models"].status < 500
            if ready or loop.time() + pause > until:
                return asked
            self._watch(Progress(endpoint=lane.endpoint.name, text=f"not ready yet: {_state(asked['models'])}"))
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 15.0)

    @staticmethod
    def _with_model(endpoint: Endpoint, identity: identify.Identity) -> Endpoint:
        if endpoint.model is not None or not identity.models:
            return endpoint
        if len(identity.models) > 1:
            listed = ", ".join(quote(name, 60)[1:-1] for name in identity.models[:8]) + (
                ", …" if len(identity.models) > 8 else ""
            )
            raise UsageError(
                f"endpoint {endpoint.name!r} serves {len(identity.models)} models ({listed}); "
                f"choose one with --model {endpoint.name}=ID"
            )
        return replace(endpoint, model=identity.models[0])

    async def _canary(self, lane: _Lane) -> Exchange:
        path, body = canary.request(lane.kind)
        session = self._session(lane, case=None, seed="canary")
        exchange = await (session.post("canary", path, body) if body else session.get("canary", path))
        lane.last_canary, lane.since_canary = exchange, 0
        return exchange

    async def _await_recovery(self, lane: _Lane) -> None:
        """Ask a sick server again for a while; after that its cases are errors, and nothing more is sent."""
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + _RECOVERY_SECONDS, 4.0
        while lane.sick and not lane.given_up:
            assert lane.last_canary is not None
            if not _may_recover(lane.last_canary) or loop.time() + pause > until:
                lane.given_up = True
                return
            sign = canary.ailment(lane.last_canary)
            self._watch(Progress(endpoint=lane.endpoint.name, text=f"not well: {sign}; asking again in {pause:g} s"))
            await asyncio.sleep(pause)
            await self._canary(lane)
            pause *= 2

    # ------------------------------------------------------------------ cases

    async def _scenario(self, lane: _Lane, scenario: Scenario, place: int) -> None:
        probe = self._probes[scenario.probe]
        skip = self._skip(lane, scenario)
        wanted = self._plan.settings.trials or scenario.trials or (_SECOND_LOOK if probe.stochastic else 1)
        have = [trial for trial in self._earlier.trials if _is(trial, scenario, lane)]
        if have:
            wanted = 0 if have[-1].skip_code is not None else self._looks(wanted, have, probe)
        while len(have) < wanted:
            taken = {trial.case.trial for trial in have}
            number = next(free for free in itertools.count(1) if free not in taken)
            case = Case(
                id=f"{scenario.id}@{lane.endpoint.name}#{number}",
                scenario=scenario.id,
                feature=scenario.feature,
                endpoint=lane.endpoint.name,
                trial=number,
            )
            trial = self._skipped(case, *skip) if skip else await self._case(lane, case, scenario, probe)
            lane.trials.append(trial)
            have.append(trial)
            told, places = lane.shut is not None, len(self._plan.scenarios)
            self._watch(Progress(endpoint=lane.endpoint.name, trial=trial, told=told, place=place, places=places))
            if trial.skip_code is not None:
                return
            wanted = self._looks(wanted, have, probe)

    def _looks(self, wanted: int, have: list[Trial], probe: Probe[Params]) -> int:
        """Return how many trials there shall be: three where something did not hold and nobody said otherwise."""
        if have[-1].fault is not None and have[-1].fault.kind is not FaultKind.EXCEPTION:
            return len(have)  # the endpoint itself is in trouble; more of the same says nothing about the feature
        hangs = sum(any(f.check == "reply-comes-within-the-deadline" for f in trial.findings) for trial in have)
        if hangs >= 2:
            return len(have)
        if (probe.first_use or probe.steady) and not hangs:
            return wanted
        if self._plan.settings.trials is None and any(trial.status is not Status.SUPPORTED for trial in have):
            return max(wanted, _SECOND_LOOK)
        return wanted

    def _skip(self, lane: _Lane, scenario: Scenario) -> tuple[str, str] | None:
        _, why = identify.fits(scenario.feature, lane.kind)
        why = why or self._probes[scenario.probe].applies(lane.endpoint, lane.fingerprint)
        if why:
            return SkipCode.NOT_APPLICABLE, why
        for needed in scenario.needs:
            mine = [
                trial
                for trial in self.trials
                if trial.case.feature == needed and trial.case.endpoint == lane.endpoint.name
            ]
            if mine and all(trial.status not in (Status.SUPPORTED, Status.DEGRADED) for trial in settle_hangs(mine)):
                return f"needs:{needed}", f"{feature_of(needed).title} is {mine[-1].status} here"
        return None

    def _skipped(self, case: Case, code: str, reason: str) -> Trial:
        self._writer.case(CaseEnd(case=case, skip_code=code, reason=reason))
        return Trial(case=case, status=Status.SKIPPED, reason=reason, skip_code=code)

    async def _case(self, lane: _Lane, case: Case, scenario: Scenario, probe: Probe[Params]) -> Trial:
        await self._await_recovery(lane)
        # What is dangerous comes last, when a full run has long been primed. Alone, on a server that has served nothing
        # structured yet, it shall see what an application's first request does there: that is what it was allowed for.
        if not lane.sick and probe.risk is not Risk.DANGEROUS:
            await self._prime(lane, case)
        before = lane.last_canary
        closed = lane.shut is not None or (before is not None and bool(canary.denial(before)))
        if lane.sick and (closed or not judges_alone(probe, before)):
            end = CaseEnd(case=case, before=before.id if before else None)
            return self._finish(lane, end, scenario, probe, Transcript())
        seed = f"{case.scenario}/{case.endpoint}/{case.trial}"
        if self._earlier.parts:  # a case that was cut short has shown its random words to the server already
            seed += f"/part {self._earlier.parts + 1}"
        # A server that gave a plain request no reply is not waited for long.
        mute = lane.sick and lane.last_canary is not None and lane.last_canary.status is None
        session = self._session(lane, case=case.id, seed=seed, deadline=_MUTE_DEADLINE if mute else None)
        skip_code, reason = None, ""
        with _our_faults() as faults:
            try:
                await probe.drive(session, scenario.params, self._reference_transcript(lane, scenario))
            except BudgetSpent as error:
                skip_code, reason = SkipCode.BUDGET, str(error)
        after: list[Exchange] = []
        lane.since_canary += 1
        if skip_code is None and not lane.sick:
            after = await self._canaries_after(lane, session.transcript)
        end = CaseEnd(
            case=case,
            before=before.id if before else None,
            after=tuple(exchange.id for exchange in after),
            fault=faults[0] if faults else None,
            skip_code=skip_code,
            reason=reason,
        )
        return self._finish(lane, end, scenario, probe, session.transcript, before, after)

    async def _prime(self, lane: _Lane, case: Case) -> None:
        """Ask for a plain JSON object once, before the first structured request: on vLLM that one chooses the grammar
        backend for everybody. What comes back is of no interest, unless the server is not well after it.
        """
        if lane.primed or feature_of(case.feature).group not in _PRIMED_GROUPS:
            return
        lane.primed = True
        body: dict[str, Json] = {
            "messages": [{"role": "user", "content": "Name one colour, as a JSON object with the key colour."}],
            "max_tokens": 32,
            "temperature": 0,
            "response_format": {"type": "json_object"},
        }
        exchange = await self._session(lane, case=None, seed="prime").chat("prime", body)
        if is_anomaly(exchange):
            await self._canary(lane)

    def _finish(
        self,
        lane: _Lane,
        end: CaseEnd,
        scenario: Scenario,
        probe: Probe[Params],
        transcript: Transcript,
        before: Exchange | None = None,
        after: Sequence[Exchange] = (),
    ) -> Trial:
        canaries = Canaries(before=before or lane.last_canary, after=tuple(after))
        reference = self._reference_transcript(lane, scenario)
        trial = judged(end, scenario, probe, transcript, canaries, reference)
        if trial.fault is not None and trial.fault.kind is FaultKind.EXCEPTION:
            end = replace(end, fault=trial.fault)
        self._writer.case(end)
        for finding in trial.findings:
            self._writer.write("finding", case=end.case.id, finding=to_json(finding))
        if lane.endpoint.reference and (probe.contrast is not None or probe.needs_reference):
            lane.transcripts[scenario.id] = transcript
        return trial

    async def _canaries_after(self, lane: _Lane, transcript: Transcript) -> list[Exchange]:
        """Ask how the server is: after an anomaly (twice where the first is sick), after a denial, and now and then."""
        odd = any(is_anomaly(exchange) for exchange in transcript)
        denied = any(exchange.status in (401, 403) for exchange in transcript)
        if not odd and not denied:
            if lane.since_canary >= _CANARY_EVERY:
                await self._canary(lane)
            return []
        asked = [await self._canary(lane)]
        if odd and canary.ailment(asked[0]):
            if asked[0].ending is not Ending.DEADLINE:
                await asyncio.sleep(2.0)  # a server that restarts its worker is back at once
            asked.append(await self._canary(lane))
        return asked

    def _reference_transcript(self, lane: _Lane, scenario: Scenario) -> Transcript | None:
        if lane.endpoint.reference:
            return None
        left = self._reference
        return (left.transcripts if left else self._earlier.references).get(scenario.id)

    @property
    def _reference(self) -> _Lane | None:
        return next((lane for lane in self.lanes if lane.endpoint.reference), None)

    def _session(self, lane: _Lane, *, case: str | None, seed: str, deadline: float | None = None) -> WireSession:
        settings = self._plan.settings

        def record(exchange: Exchange) -> None:
            self._writer.exchange(exchange, endpoint=lane.endpoint.name, case=case)

        return WireSession(
            lane.endpoint,
            lane.transport,
            fingerprint=lane.fingerprint,
            record=record,
            next_id=lambda: f"x{next(self._ids):04d}",
            began=self._began,
            seed=f"{settings.seed}/{seed}",
            deadline=settings.deadline if deadline is None else min(deadline, settings.deadline),
            concurrency=settings.concurrency,
            budget=self._budget if case is not None else Budget(),
            spent=lane.spent,
            once=self._once,
        )


def judged(
    end: CaseEnd,
    scenario: Scenario,
    probe: Probe[Params],
    transcript: Transcript,
    canaries: Canaries,
    reference: Transcript | None = None,
) -> Trial:
    """Judge an ended case; a bug of ours in the judge becomes a fault of this trial, with its trace."""
    if end.skip_code is not None:
        return Trial(case=end.case, status=Status.SKIPPED, reason=end.reason, skip_code=end.skip_code)
    if end.fault is not None:
        return Trial(case=end.case, status=Status.ERROR, reason=end.fault.reason, fault=end.fault)
    with _our_faults() as faults:
        trial = judge(end.case, scenario, probe, transcript, canaries, reference)
    if faults:
        return Trial(case=end.case, status=Status.ERROR, reason=faults[0].reason, fault=faults[0])
    return trial


@contextmanager
def _our_faults() -> Iterator[list[Fault]]:
    """Collect an exception of our own code as a fault: it must not end the run, nor look like the server's doing."""
    faults: list[Fault] = []
    try:
        yield faults
    except StoreError:  # nothing can be recorded any more, so nothing more is to be sent
        raise
    except Exception as error:  # noqa: BLE001 - the one place; see the docstring
        trace = "".join(traceback.format_exception(error))
        reason = f"servecheck's own fault: {type(error).__name__}: {error}"
        faults.append(Fault(kind=FaultKind.EXCEPTION, reason=reason, trace=trace))


def _may_recover(exchange: Exchange) -> bool:
    """Tell whether waiting can help: garbage and a denied key stay what they are."""
    return exchange.status is None or exchange.status >= 500 or is_overloaded(exchange)


def _is(trial: Trial, scenario: Scenario, lane: _Lane) -> bool:
    return trial.case.scenario == scenario.id and trial.case.endpoint == lane.endpoint.name


def _host(endpoint: Endpoint) -> str:
    host = urlsplit(endpoint.base_url).hostname or ""
    return "127.0.0.1" if host in ("localhost", "::1") or host.startswith("127.") else host


def _state(exchange: Exchange) -> str:
    return f"HTTP {exchange.status}" if exchange.status is not None else exchange.detail
