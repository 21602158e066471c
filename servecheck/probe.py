"""What a probe is: data, a function that talks and a function that decides. A probe never sees the transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from servecheck.model import (
    Check,
    Endpoint,
    Exchange,
    Finding,
    Fingerprint,
    Json,
    NotApplicable,
    Observed,
    Risk,
    Transcript,
)
from servecheck.plainwords import Complaint

__all__ = ["ByParams", "Cost", "Judgement", "P", "Params", "Probe", "Session"]


class Params(BaseModel):
    """Base of every probe's parameters: closed, strict and frozen. A field's description is its documentation."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


P = TypeVar("P", bound=Params)
Judgement = Iterable[Finding | Observed | NotApplicable]


def _always(_: Endpoint, __: Fingerprint) -> str:
    return ""


def _nothing(_: Params) -> Iterable[Complaint]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ByParams:
    """What of a probe may depend on its parameters: the checks that a scenario writes itself, and a trial's cost."""

    checks: tuple[Check, ...]
    requests: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one trial costs on a healthy endpoint: requests of every kind, and tokens."""

    requests: int
    prompt_tokens: int = 0
    output_tokens: int = 0


class Session(Protocol):
    """All that a probe may do to the world. Each call is one named, recorded step; none raises for what a server does.

    Paths begin with ``/``. ``post`` and ``get`` take paths below the API root (``/chat/completions``);
    ``get_server`` and ``post_server`` take paths below the server's root (``/health``, ``/tokenize``).
    """

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint under test; its ``model`` is resolved."""

    @property
    def fingerprint(self) -> Fingerprint:
        """What is known about the server so far."""

    @property
    def transcript(self) -> Transcript:
        """What this case has sent and seen so far."""

    def nonce(self, letters: int = 10) -> str:
        """Return a random lower-case word; the same run seed, case and call order give the same word."""

    def unseen(self, letters: int = 10) -> str:
        """Return a random word as :meth:`nonce` does, but another one in each run, also of the same seed: for what must
        not be in a cache that has seen the run before.
        """

    def seconds(self) -> float:
        """Return the injected clock, in seconds."""

    async def wait(self, seconds: float) -> None:
        """Wait on the injected clock (for polling; never to synchronise with a server)."""

    async def chat(self, step: str, body: dict[str, Json], *, deadline: float | None = None) -> Exchange:
        """POST ``/chat/completions``; ``model`` is filled in where ``body`` has none."""

    async def post(self, step: str, path: str, body: Json, *, deadline: float | None = None) -> Exchange:
        """POST a JSON body; ``model`` is filled in where ``body`` is an object without one."""

    async def post_raw(
        self,
        step: str,
        path: str,
        body: bytes,
        *,
        content_type: str = "application/json",
        deadline: float | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Exchange:
        """POST bytes exactly as given, with headers of one's own."""

    async def get(self, step: str, path: str, *, deadline: float | None = None) -> Exchange:
        """GET below the API root."""

    async def get_server(self, step: str, path: str, *, deadline: float | None = None) -> Exchange:
        """GET below the server's root."""

    async def post_server(self, step: str, path: str, body: Json, *, deadline: float | None = None) -> Exchange:
        """POST a JSON body below the server's root."""

    async def metrics(self, step: str) -> Exchange:
        """GET the metrics (``metrics_url`` where the endpoint has one, else ``/metrics`` of the server)."""

    async def without_key(
        self, step: str, method: str, path: str, body: Json = None, *, wrong: str = "", server: bool = False
    ) -> Exchange:
        """Send without the endpoint's key, or with the ``wrong`` one; ``server`` means below the server's root."""

    async def request(
        self,
        step: str,
        method: Literal["GET", "POST"],
        path: str,
        body: Json = None,
        *,
        headers: Sequence[tuple[str, str]] = (),
        server: bool = False,
    ) -> Exchange:
        """Send with headers of one's own; ``server`` means below the server's root; ``None`` is no body."""

    async def abort_after(
        self, step: str, path: str, body: Json, *, events: int | None = None, seconds: float | None = None
    ) -> Exchange:
        """POST and hang up after so many stream events, or so many seconds; the exchange ends ``aborted``."""

    async def concurrently(self, steps: Sequence[Awaitable[Exchange]], *, at_once: int = 0) -> list[Exchange]:
        """Run steps at the same time, at most as many as the run's concurrency allows; replies in the order given.

        ``at_once`` allows so many where a probe is about that number.
        """

    async def burst(self, steps: Mapping[str, Json], path: str, *, deadline: float | None = None) -> list[Exchange]:
        """POST all bodies, by step, at once and one time each, beyond the run's concurrency and without waiting where
        the server is overloaded; for probes of the risk ``load`` only.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe(Generic[P]):
    """One behaviour, exercised and judged. ``doc`` is the module's docstring and becomes its documentation page.

    ``drive`` talks and decides nothing. ``judge`` decides from a transcript and cannot talk. ``contrast`` judges two
    transcripts (left is the reference). ``stochastic`` probes always get three trials. ``exclusive`` probes run with
    nothing else of ours in flight on the same host. ``despite_sickness`` probes run, and judge alone, where a plain
    request fails before or after them too: what elsewhere is a fault of the trial is what they ask about.
    ``reads_plain`` probes do so only where the plain request was answered, and wrongly: what an answer holds is theirs.
    ``overloads`` probes send more than the server may take: being turned away is what they ask about, no fault either.
    ``first_use`` probes ask what a first use costs: they run before all others, and are not looked at again, since
    what they used is no longer new. ``steady`` probes read what is the same at every look: one is enough, whatever it
    shows. ``applies`` returns why the row makes no sense on an endpoint, or nothing: the runner then says ``skipped
    (not-applicable)`` and sends nothing. Where only the replies can tell, the judge yields a
    :class:`~servecheck.model.NotApplicable` and
    nothing else. ``per_item`` probes run on what the caller brings, once for each item of a workload, and not at all
    without one: their built-in scenarios are patterns to fill in. ``requests``, ``prompt_tokens`` and ``output_tokens``
    are the estimates per trial that ``--dry-run`` adds up, on a healthy endpoint that has the feature; ``cost`` returns
    them where they follow from the parameters. ``by_params`` replaces them and the checks where they follow
    from the parameters; ``object_to`` returns what is wrong with parameters whose types are right, for whoever loads a
    scenario.
    """

    id: str
    doc: str
    checks: tuple[Check, ...]
    params: type[P]
    drive: Callable[[Session, P, Transcript | None], Awaitable[None]]
    judge: Callable[[Transcript, P], Judgement]
    contrast: Callable[[Transcript, Transcript, P], Judgement] | None = None
    needs_reference: bool = False
    risk: Risk = Risk.SAFE
    exclusive: bool = False
    stochastic: bool = False
    despite_sickness: bool = False
    reads_plain: bool = False
    overloads: bool = False
    per_item: bool = False
    first_use: bool = False
    steady: bool = False
    applies: Callable[[Endpoint, Fingerprint], str] = _always
    requests: int = 1
    prompt_tokens: int = 0
    output_tokens: int = 0
    cost: Callable[[P], Cost] | None = None
    by_params: Callable[[P], ByParams] | None = None
    object_to: Callable[[P], Iterable[Complaint]] = _nothing

    def of(self, params: P) -> ByParams:
        """Return the checks and the cost of a trial with these parameters."""
        if self.by_params is not None:
            return self.by_params(params)
        known = self.cost(params) if self.cost is not None else self
        return ByParams(
            checks=self.checks,
            requests=known.requests,
            prompt_tokens=known.prompt_tokens,
            output_tokens=known.output_tokens,
        )

    def check(self, check_id: str, params: P | None = None) -> Check:
        """Return the probe's check of that id; a judge that names another is a bug, so this raises ``KeyError``."""
        for check in self.checks if params is None else self.of(params).checks:
            if check.id == check_id:
                return check
        raise KeyError(f"probe {self.id!r} owns no check {check_id!r}")
