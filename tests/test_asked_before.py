"""A server that was asked before gives the same cells: whatever it keeps of an earlier run, or of one beside ours."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from servecheck.model import Status, Trial
from servecheck.probes import discover
from servecheck.reference import virtual
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.killmatrix import runner_on
from servecheck.reference.models import MODELS
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import render_chat
from tests.trying import builtin, trials_of

PROBES = discover()
AGAIN = int(os.environ.get("ASKED_BEFORE", "0"))  # 2: every server under every model, comparisons too, two times more
EVERYTHING = AGAIN > 0
SUITE = [
    each
    for each in builtin()
    if not PROBES[each.probe].per_item
    and each.probe != "exchange"
    and (EVERYTHING or (PROBES[each.probe].contrast is None and not PROBES[each.probe].needs_reference))
]
Cells = dict[tuple[str, str], list[Status]]


class SystemFirst(ReferenceServer):
    """Writes the tools after the system message; the reference server writes them before everything else."""

    def rendered(self, messages: Sequence[Event], tools: Sequence[Event], *, thinking: bool) -> tuple[int, ...]:
        """Turn them around."""
        listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        said = [{"role": "system", "content": f"<tools>\n{listed}\n</tools>"}] if tools else []
        first = [message for message in messages if message["role"] == "system"]
        rest = [message for message in messages if message["role"] != "system"]
        return render_chat([*first, *said, *rest], thinking=thinking)


class LongHeader(ReferenceServer):
    """Begins every prompt with 300 words of its own, as templates do that bring a system message with them."""

    def rendered(self, messages: Sequence[Event], tools: Sequence[Event], *, thinking: bool) -> tuple[int, ...]:
        """Put them first."""
        header = {"role": "system", "content": " ".join(["be", "kind", "and", "brief"] * 75)}
        return (*render_chat([header], answer=False), *super().rendered(messages, tools, thinking=thinking))


class RemembersReplies(ReferenceServer):
    """Answers the same request with the same bytes as before, as gateways do that keep replies."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.kept: dict[tuple[str, bytes, str], tuple[Reply, list[bytes]]] = {}

    async def reply(self, request: Request) -> Reply:
        """Look among what is kept, and keep what was answered whole."""
        key = (request.path, request.body, request.headers.get("authorization", ""))
        if key in self.kept:
            made, pieces = self.kept[key]
            return made if isinstance(made.body, bytes) else replace(made, body=_again(pieces))
        made = await super().reply(request)
        if request.method != "POST" or made.status != 200:
            return made
        if isinstance(made.body, bytes):
            self.kept[key] = (made, [])
            return made
        return replace(made, body=self._keeping(key, made, made.body))

    async def _keeping(
        self, key: tuple[str, bytes, str], made: Reply, body: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        pieces: list[bytes] = []
        async for piece in body:
            pieces.append(piece)
            yield piece
        self.kept[key] = (made, pieces)


async def _again(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


_FOR_EVER = {"blocks": 10**9}
KINDS: dict[str, tuple[type[ReferenceServer], dict[str, Any]]] = {
    "forgets the oldest": (ReferenceServer, {}),
    "never forgets": (ReferenceServer, _FOR_EVER),
    "never forgets a token": (ReferenceServer, {**_FOR_EVER, "block": 1}),
    "in blocks of 512": (ReferenceServer, {**_FOR_EVER, "block": 512}),
    "counts, but does not tell": (ReferenceServer, {**_FOR_EVER, "block": 1, "reports_cached": False}),
    "system message first": (SystemFirst, {**_FOR_EVER, "block": 1}),
    "keeps replies": (RemembersReplies, {**_FOR_EVER, "block": 1}),
}
_STRICTEST = ("never forgets a token", "keeps replies")


def _cells(trials: Sequence[Trial]) -> Cells:
    made: Cells = defaultdict(list)
    for trial in trials:
        made[trial.case.scenario, trial.case.endpoint].append(trial.status)
    return dict(made)


Servers = tuple[ReferenceServer, ReferenceServer | None]


def _servers(kind: str, model: str) -> Servers:
    """Return a server, and one more of its kind where it is compared."""
    server, config = KINDS[kind]
    config = {"language": model, "api_key": "key", **config}
    return server(**config), server(**config) if EVERYTHING else None


def _run(servers: Servers, number: int, *, seed: str = "") -> tuple[Trial, ...]:
    server, left = servers
    seed, once = seed or f"run-{number}", f"once-{number}"
    runner = runner_on(server, PROBES, SUITE, trials=None, seed=seed, left=left, once=once)
    virtual.run(runner.run(), limit=864_000.0)
    return runner.trials


def _changed(first: Cells, later: Cells) -> dict[tuple[str, str], tuple[list[Status], list[Status]]]:
    return {cell: (first[cell], later[cell]) for cell in first if first[cell] != later[cell]}


_PAIRS = [
    (kind, model)
    for kind in KINDS
    for number, model in enumerate(sorted(MODELS))
    if EVERYTHING or (kind in _STRICTEST and number == _STRICTEST.index(kind))
]


@pytest.mark.parametrize(("kind", "model"), _PAIRS)
def test_a_run_says_what_the_run_before_it_said(kind: str, model: str) -> None:
    servers = _servers(kind, model)
    first = _cells(_run(servers, 0))

    assert len(first) == (1 + EVERYTHING) * len(SUITE)
    for number in range(1, 1 + max(AGAIN, 1)):
        assert _changed(first, _cells(_run(servers, number))) == {}


@functools.cache
def _first() -> tuple[Servers, Cells]:
    """Return a server that was asked once, by a run of the seed that a cron job gives every night."""
    servers = _servers("never forgets a token", "obedient")
    return servers, _cells(_run(servers, 0, seed="nightly"))


def test_a_run_of_the_same_seed_says_what_the_run_before_it_said() -> None:
    servers, first = _first()
    assert _changed(first, _cells(_run(servers, 1, seed="nightly"))) == {}


def test_a_run_beside_another_makes_nothing_red() -> None:
    (server, left), first = _first()
    runners = [
        runner_on(server, PROBES, SUITE, trials=None, seed=f"of-{who}", left=left, once=who) for who in ("us", "them")
    ]

    async def both() -> None:
        await asyncio.gather(*(runner.run() for runner in runners))

    virtual.run(both(), limit=864_000.0)
    for runner in runners:
        # What others do beside us may keep a row from telling, and a look at it more may tell.
        beside = _changed(first, _cells(runner.trials)).items()
        quiet = {Status.INCONCLUSIVE, Status.SUPPORTED}
        assert {cell: after for cell, (_, after) in beside if not quiet.issuperset(after)} == {}


_PREFIX = sorted(name for name in PROBES if name.startswith("prefix_cache_"))


@pytest.mark.parametrize("probe", _PREFIX)
@pytest.mark.parametrize("config", [{"block": 1}, {"block": 16}, {"reports_cached": False}])
def test_what_a_template_says_to_all_is_no_hit_of_ours(probe: str, config: dict[str, Any]) -> None:
    server = LongHeader(**_FOR_EVER, **config)
    assert {trial.status for trial in trials_of("max_tokens", server)} == {Status.SUPPORTED}
    wanted = {trial.status for trial in trials_of(probe, ReferenceServer(**_FOR_EVER, **config))}
    assert {trial.status for trial in trials_of(probe, server)} == wanted
