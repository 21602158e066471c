"""A reference server on which one reported fault is laid; what an entry's replies do not speak of stays right.

An entry of ``tests/corpus/handed.yaml`` holds a request and its reply, wrong and right. Playing these bytes to a probe
would show nothing, since a probe asks for its own words. So the *shape* of a side is taken from the entry (what is
there, in which order, framed and timed how) and poured full with what the reference server says to the request at
hand; what the two sides of the entry do not agree on is the fault, and is carried over. It knows replies, not what
they mean: a fault of meaning (a seed without effect) needs a mutant of the reference server.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from servecheck.reference.asgi import Cut, Event, Reply, Request
from servecheck.reference.server import ReferenceServer
from tests.pouring import Stream, parsed, pour, read_side

__all__ = ["ENTRIES", "Entry", "Replay", "entries"]

HANDED = Path(__file__).parent / "corpus" / "handed.yaml"
_FOR_EVER = 10_000.0  # seconds; no deadline of a probe is longer
_DONE = b"data: [DONE]\n\n"
_PLAIN = {"model", "messages", "prompt", "input", "max_tokens", "max_completion_tokens", "temperature", "ignore_eos"}
"""Fields that say nothing about which request an entry speaks of."""
_REFUSABLE = {"guided_choice", "guided_json", "guided_regex", "seed", "top_k", "min_p", "logit_bias"}
"""Fields that a server may refuse, although the reference server takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One reported fault."""

    id: str
    source: str
    kind: str
    fault: str
    symptom: str
    request: tuple[Event, ...]
    bad: tuple[Event, ...]
    good: tuple[Event, ...]
    do_not_flag: str
    expected: str

    @property
    def bad_is_good(self) -> bool:
        """Whether both sides are the same on the wire: then the fault is a reader's, and nothing may be flagged."""
        return [{**each, "fault_note": ""} for each in self.bad] == [{**each, "fault_note": ""} for each in self.good]

    def side(self, name: str) -> tuple[Event, ...]:
        """Return the replies of a side, ``bad`` or ``good``."""
        return self.bad if name == "bad" else self.good


@cache
def entries() -> tuple[Entry, ...]:
    """Return all entries, in the file's order."""
    loaded = yaml.load(HANDED.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # both are safe
    return tuple(
        Entry(
            id=each["id"],
            source=each["source"],
            kind=each["kind"],
            fault=each["fault"],
            symptom=each["symptom"],
            request=tuple(each["request"]),
            bad=tuple(each["bad"]),
            good=tuple(each["good"]),
            do_not_flag=each.get("do_not_flag", ""),
            expected=each["expected_on_bad"],
        )
        for each in loaded["entries"]
    )


ENTRIES = {entry.id: entry for entry in entries()}
"""All entries by their number."""


# --------------------------------------------------------------------------- which request an entry speaks of


def _feature(name: str, value: Any) -> Any:
    """Return what matters of a field's value."""
    if name in ("tools", "chat_template_kwargs"):
        return bool(value)
    if name == "tool_choice":
        return "named" if isinstance(value, dict) else value or "auto"
    if name == "response_format":
        return value.get("type") if isinstance(value, dict) else None
    if name == "stream_options":
        return None if value is None else bool(isinstance(value, dict) and value.get("include_usage"))
    if name in ("stream", "logprobs", "echo"):
        return value is not None and value is not False
    if name == "top_logprobs":
        return bool(value)
    if name == "n":
        return isinstance(value, int) and value > 1
    if name in ("parallel_tool_calls", "frequency_penalty"):
        return value
    if name == "structured_outputs":
        return tuple(value) if isinstance(value, dict) else None
    return value is not None


def concerns(asked: Event, body: Mapping[str, Any], *, whole: bool) -> int:
    """Return how many features of an entry's request a real one shares; -1 where it is of another kind.

    ``whole`` entries have no stream among their replies, whatever their requests ask for.
    """
    mine = dict(asked.get("body") or {})
    if whole and any(name in mine for name in ("tools",)):
        mine.pop("stream", None)
    names = [name for name in mine if name not in _PLAIN]
    for name in names:
        if name == "tool_choice" and mine[name] == "auto" and body.get(name) != "none":
            continue  # a call that is written wrongly is so however it came about
        if name == "top_logprobs" and "logprobs" in mine and mine.get("logprobs") is False:
            continue
        if _feature(name, mine[name]) != _feature(name, body.get(name)):
            return -1
    absent = [name for name in ("stream", "tools", "response_format") if name not in mine]
    if mine.get("stream") and "tools" not in mine:
        absent = [
            name for name in absent if name != "response_format"
        ]  # what is wrong with a stream is wrong with it whatever it says
    if any(_feature(name, body.get(name)) for name in absent):
        return -1
    if _roles(mine) - _roles(body):
        return -1
    many = re.search(r"(\d+) tools", asked.get("note") or "")
    if many and len(body.get("tools") or ()) < int(many[1]) - 1:
        return -1
    if mine.get("logprobs") is not None and "top_logprobs" not in mine and body.get("top_logprobs"):
        return -1
    if "tools" in mine and "tool_choice" not in mine and body.get("tool_choice") == "none":
        return -1
    return len(names)


def _roles(body: Mapping[str, Any]) -> set[Any]:
    messages = body.get("messages")
    found = {each.get("role") for each in messages if isinstance(each, dict)} if isinstance(messages, list) else set()
    return found & {"tool", "assistant"}


# --------------------------------------------------------------------------- the server


class Replay(ReferenceServer):
    """The reference server with one side of an entry laid over it."""

    def __init__(self, entry: Entry, side: str, **config: Any) -> None:
        super().__init__(**config)
        self.entry, self.side = entry, side
        self.played: set[int] = set()
        self._times: dict[tuple[str, bytes], int] = {}
        self._dead = False

    async def reply(self, request: Request) -> Reply:
        """Answer as the reference server does, in the shape of the entry where it speaks of this request."""
        if self._dead:
            raise Cut
        at = self._which(request)
        mine = self.entry.side(self.side)[at] if at is not None else None
        if at is None or mine is None:
            return await super().reply(request)
        good = self.entry.good[min(at, len(self.entry.good) - 1)]
        refused = 400 <= (good.get("status") or 0) < 500
        body = self._json(request)
        real = await super().reply(request)
        refusable = any(name in body for name in _REFUSABLE & set(self.entry.request[at].get("body") or {}))
        if refused != (real.status >= 400) and not refusable:
            return real
        if real.status in (401, 403, 404, 405):
            return real  # a refusal for another reason
        self.played.add(at)
        following = self.entry.side(self.side)[at + 1 :]
        self._dead = bool(following) and following[0].get("connect") == "refused"
        return await self._play(mine, good, real, body)

    def _json(self, request: Request) -> Event:
        try:
            body = json.loads(request.body or b"{}")
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    def _which(self, request: Request) -> int | None:
        """Return the number of the entry's request that is most like this one."""
        body = self._json(request)
        found: dict[int, int] = {}
        for number, asked in enumerate(self.entry.request[: len(self.entry.side(self.side))]):
            if (asked["method"], asked["path"]) == (request.method, request.path):
                whole = all("sse" not in reply for reply in (*self.entry.bad, *self.entry.good))
                score = concerns(asked, body, whole=whole)
                if score >= 0:
                    found[number] = score
        best = max(found.values(), default=-1)
        alike = tuple(number for number, score in found.items() if score == best)
        if not alike:
            return None
        # An entry whose requests are equal speaks of the same request sent again.
        key = (request.path, request.body)
        turn = self._times.get(key, 0)
        self._times[key] = turn + 1
        return alike[turn % len(alike)]

    async def _play(self, mine: Event, good: Event, real: Reply, body: Event) -> Reply:
        if mine.get("connect") == "refused":
            self._dead = True
            raise Cut
        if mine.get("hang_ms"):
            await asyncio.sleep(_FOR_EVER)
        if mine.get("status") is None or mine.get("close") == "client":
            return real  # it is the client that ends this one
        headers = tuple((mine.get("headers") or {}).items())
        delay = (mine.get("delay_ms") or 0) / 1000
        if "sse" not in mine:
            if mine["status"] != 200 or isinstance(real.body, AsyncIterator):
                return Reply(
                    status=mine["status"], headers=headers, body=(mine.get("body") or "").encode(), delay=delay
                )
            try:
                shape, right, said = (
                    json.loads(mine["body"]),
                    json.loads(good.get("body") or "{}"),
                    json.loads(real.body),
                )
            except ValueError:
                if mine["body"] == good.get("body"):
                    return real
                return Reply(status=200, headers=headers, body=mine["body"].encode(), delay=delay)
            if real.status != 200:
                return Reply(status=mine["status"], headers=headers, body=mine["body"].encode(), delay=delay)
            made = json.dumps(pour(shape, right, said), ensure_ascii=False).encode()
            return Reply(status=200, headers=headers, body=made, delay=delay)
        typed = any(text.startswith("event:") for text in mine["sse"])
        if typed and mine["sse"] == good.get("sse"):
            return real
        if typed or not isinstance(real.body, AsyncIterator):  # events with names are not chunks to be filled
            frames = b"".join(text.encode() + b"\n\n" for text in mine["sse"])
            return Reply(status=mine["status"], headers=headers, body=frames, delay=delay)
        return Reply(
            status=mine["status"], headers=headers, body=self._streamed(mine, good, real.body, body), delay=delay
        )

    async def _streamed(
        self, mine: Event, good: Event, real: AsyncIterator[bytes], body: Event
    ) -> AsyncIterator[bytes]:
        side = read_side(mine)
        other = read_side(good) if "sse" in good else side
        stream = Stream(side, other, self)
        delays = list(side.delays)
        buffered: list[bytes] = []
        holds = bool(delays) and len(delays) > 3 and not any(delays[1:])
        # The entry's time is spread over as many tokens as were asked for, so that a long answer takes no hours.
        tokens = body.get("max_tokens")
        # A minute is told in six seconds: the deadline of these runs is a tenth of the real one.
        pace = min(6.0, sum(delays[1:])) / max(len(delays), tokens if isinstance(tokens, int) else 64)
        sent = 0
        async for event in stream.events(_events(real)):
            piece = event if isinstance(event, bytes) else _DONE if "[DONE]" in event else self.frame(event)
            if holds:
                buffered.append(piece)
                continue
            if len(delays) > 2 and b"[DONE]" not in piece:
                await asyncio.sleep(pace if sent else delays[0])
            sent += 1
            yield piece
        if holds:
            yield b"".join(buffered)
        unasked = stream.unasked()
        if unasked is not None:
            yield self.frame(unasked)
        if side.closed == "abrupt":
            raise Cut
        if side.dones:
            yield _DONE


async def _events(real: AsyncIterator[bytes]) -> AsyncIterator[Event]:
    async for piece in real:
        event = parsed(piece.decode())
        if isinstance(event, dict):
            yield event
