"""A run in memory: probes made of two functions, servers made of a few lines, and virtual time; no test lives here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from servecheck import plan as plans
from servecheck.budget import Budget
from servecheck.model import Cell, Check, Endpoint, Exchange, Finding, Json, Level, Outcome, Route, Transcript, Trial
from servecheck.probe import Params, Probe, Session
from servecheck.read import reply
from servecheck.reference import virtual
from servecheck.reference.asgi import Cut, Reply, Request, json_reply
from servecheck.reference.server import ReferenceServer
from servecheck.report.data import RunReport
from servecheck.run import carry_out, read_back
from servecheck.runner import Progress
from servecheck.scenario import Scenario, Tune
from servecheck.wire.memory import AsgiApp, MemoryTransport
from servecheck.wire.transport import Transport

__all__ = [
    "ODD",
    "Lab",
    "Odd",
    "answers",
    "ask_once",
    "cell_of",
    "endpoint",
    "finding",
    "intervals",
    "make_probe",
    "make_scenario",
    "message",
    "says_answered",
]

ODD = "ODD"
"""A message with this text is the one that :class:`Odd` treats in its own way."""

Drive = Callable[[Session, Params, Transcript | None], Awaitable[None]]


def message(text: str) -> dict[str, Json]:
    """Return a chat body."""
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0}


async def ask_once(session: Session, _: Params, __: Transcript | None) -> None:
    """Send the odd request."""
    await session.chat("odd", message(ODD))


def says_answered(transcript: Transcript, _: Params) -> list[Finding]:
    """Judge every step by whether it was answered."""
    found = []
    for exchange in transcript.steps(""):
        said = reply.chat(exchange)
        outcome = {reply.Answer: Outcome.HELD, reply.Refusal: Outcome.REFUSED}.get(type(said), Outcome.VIOLATED)
        why = "answered" if isinstance(said, reply.Answer) else said.what
        found.append(Finding(check="is-answered", outcome=outcome, why=why, evidence=(exchange.id,)))
    return found


def make_probe(
    name: str = "p", drive: Drive = ask_once, judge: Callable[[Transcript, Any], Any] = says_answered, **fields: Any
) -> Probe[Params]:
    """Return a probe whose only check is ``is-answered``."""
    check = Check(id="is-answered", rule="It is answered.", level=Level.MUST, source="https://example.org/")
    return Probe(id=name, doc="A probe.", checks=(check,), params=Params, drive=drive, judge=judge, **fields)


def make_scenario(
    feature: str = "chat.basic",
    probe: str = "p",
    *,
    name: str = "",
    trials: int | None = None,
    needs: Sequence[str] = (),
    tune: Mapping[str, Tune] | None = None,
) -> Scenario:
    """Return a scenario for a feature."""
    return Scenario(
        id=name or feature.replace(".", "-").replace("_", "-"),
        title="A scenario",
        feature=feature,
        probe=probe,
        why="Because.",
        params=Params(),
        trials=trials,
        tags=(),
        tune=tune or {},
        needs=tuple(needs),
        path=Path("x.yaml"),
    )


def endpoint(name: str = "e", host: str = "127.0.0.1:1", **fields: Any) -> Endpoint:
    """Return an endpoint that gets no key."""
    return Endpoint(name=name, base_url=f"http://{host}/v1", api_key_env="", **fields)


class Odd(ReferenceServer):
    """A right server that treats one message in its own way; ``seen`` holds every request in order."""

    def __init__(self, treat: Callable[[Odd, Request], Awaitable[Reply | None]] | None = None, **config: Any) -> None:
        super().__init__(**config)
        self.treat = treat
        self.seen: list[Request] = []
        self.down = False
        self.odd = 0

    async def reply(self, request: Request) -> Reply:
        self.seen.append(request)
        if self.down:
            raise Cut
        if ODD.encode() in request.body:
            self.odd += 1
            if self.treat is not None and (treated := await self.treat(self, request)) is not None:
                return treated
        return await super().reply(request)

    @property
    def asked(self) -> list[str]:
        """The paths asked for, in order."""
        return [request.path for request in self.seen]


def answers(status: int, message: str = "no", **headers: str) -> Callable[[Odd, Request], Awaitable[Reply | None]]:
    """Return a treatment that answers with an error."""

    async def treat(_: Odd, __: Request) -> Reply:
        pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        return json_reply({"error": {"message": message, "code": status}}, status, pairs)

    return treat


class Lab:
    """Runs scenarios on servers in memory, into a folder, under virtual time."""

    def __init__(
        self,
        folder: Path,
        servers: Mapping[str, AsgiApp] | AsgiApp,
        scenarios: Sequence[Scenario] | None = None,
        probes: Sequence[Probe[Params]] | None = None,
        *,
        hosts: Mapping[str, str] | None = None,
        reference: str | None = None,
        fields: Mapping[str, Any] | None = None,
        skips: Sequence[plans.Skip] = (),
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.servers: Mapping[str, AsgiApp] = servers if isinstance(servers, Mapping) else {"e": servers}
        self.probes = {probe.id: probe for probe in probes or [make_probe()]}
        self.watched: list[Progress] = []
        self.elapsed = 0.0
        places = hosts or {}
        endpoints = [
            endpoint(name, places.get(name, f"127.0.0.1:{number}"), reference=name == reference, **(fields or {}))
            for number, name in enumerate(self.servers, start=1)
        ]
        self.plan = plans.Plan(
            endpoints=tuple(sorted(endpoints, key=lambda each: not each.reference)),
            scenarios=tuple(scenarios or [make_scenario()]),
            skips=tuple(skips),
            settings=plans.Settings(**{"deadline": 30.0, **settings}),
            estimate=plans.Estimate(requests=0, prompt_tokens=0, output_tokens=0),
        )

    def connect(self, each: Endpoint) -> Transport:
        """Return the way to an endpoint's server in memory."""
        return Transport(each, app=MemoryTransport(self.servers[each.name]))

    async def carry_out(self, *, budget: Budget | None = None, resume: bool = False, **asked: Any) -> None:
        """Carry the plan out on the running loop."""
        began = asyncio.get_running_loop().time()
        try:
            await carry_out(
                self.plan,
                self.probes,
                self.folder,
                self.connect,
                budget=budget,
                resume=resume,
                watch=self.watched.append,
                **asked,
            )
        finally:
            self.elapsed = asyncio.get_running_loop().time() - began

    def run(self, *, budget: Budget | None = None, resume: bool = False, **asked: Any) -> RunReport:
        """Carry the plan out and read it back; ``asked`` is the profile and what is expected."""
        virtual.run(self.carry_out(budget=budget, resume=resume, **asked), limit=86_400.0)
        return self.report()

    def report(self) -> RunReport:
        """Read the folder back."""
        return read_back(self.folder, self.probes)

    @property
    def trials(self) -> list[Trial]:
        """The trials as they were judged while the run went on."""
        return [progress.trial for progress in self.watched if progress.trial is not None]


def intervals(exchanges: Sequence[Exchange]) -> list[tuple[float, float]]:
    """Return when each exchange began and ended, in seconds of the run, less what rounding may have added."""
    return [(exchange.sent, exchange.sent + exchange.ended_at - 5e-6) for exchange in exchanges]


def cell_of(run: RunReport, feature: str = "chat.basic", name: str = "e") -> Cell:
    """Return a cell that must be there."""
    found = run.cell(feature, name)
    assert found is not None
    return found


def finding(outcome: Outcome, why: str = "w") -> Finding:
    """Return a finding of the only check."""
    return Finding(check="is-answered", outcome=outcome, why=why, route=Route.CHAT)
