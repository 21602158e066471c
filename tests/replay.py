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
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from servecheck.reference.asgi import Cut, Event, Reply, Request
from servecheck.reference.server import ReferenceServer

__all__ = ["ENTRIES", "Entry", "Replay", "Side", "entries"]

HANDED = Path(__file__).parent / "corpus" / "handed.yaml"
_FOR_EVER = 10_000.0  # seconds; no deadline of a probe is longer
_DONE = b"data: [DONE]\n\n"
_PLAIN = {"model", "messages", "prompt", "input", "max_tokens", "max_completion_tokens", "temperature", "ignore_eos"}
"""Fields that say nothing about which request an entry speaks of."""
_REFUSABLE = {"guided_choice", "guided_json", "guided_regex", "seed", "top_k", "min_p", "logit_bias"}
"""Fields that a server may refuse, although the reference server takes them."""
_THOUGHTS = ("reasoning", "reasoning_content")


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


# --------------------------------------------------------------------------- texts


def changed(bad: str | None, good: str | None, real: str | None) -> str | None:
    """Return ``real`` with the change that leads from ``good`` to ``bad``."""
    if bad == good:
        return real
    if not isinstance(bad, str) or not isinstance(good, str) or not isinstance(real, str):
        return bad
    if good and good in bad:
        return bad.replace(good, real)
    if "�" in bad and "�" not in good:
        return re.sub(r"[^\x00-\x7f]", "��", real)
    fenced = re.fullmatch(r"(```\w*\n)(.*)(\n```)", bad, re.DOTALL)
    if fenced and _same_json(fenced[2], good):
        return f"{fenced[1]}{real}{fenced[3]}"
    if bad and good.startswith(bad):
        return real[: max(1, min(len(real) - 1, round(len(real) * len(bad) / len(good))))]
    return bad


def _same_json(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


# --------------------------------------------------------------------------- whole replies


def pour(side: Any, good: Any, real: Any, where: str = "") -> Any:
    """Return ``real`` in the shape of ``side``; what ``side`` and ``good`` do not agree on is ``side``'s."""
    if isinstance(side, dict) and isinstance(real, dict) and isinstance(good, dict):
        made = {}
        for name, value in side.items():
            if name in good and (name in real or good[name] != value):
                made[name] = pour(value, good[name], real.get(name), f"{where}.{name}")
            elif name not in good:
                # An answer that turns up in the wrong field is the answer to this request.
                moved = next((real.get(other) for other in good if good[other] == value and value), None)
                made[name] = moved if isinstance(value, str) and moved is not None else value
        thought = next((real[name] for name in _THOUGHTS if real.get(name)), None)
        for name in _THOUGHTS:
            if name in side and name in good:
                made[name] = changed(side[name], good[name], thought) if side[name] != good[name] else thought
        return {**{name: value for name, value in real.items() if _stays(name, value, good, side)}, **made}
    if isinstance(side, list) and isinstance(good, list) and isinstance(real, list):
        if not good or not real:
            return side if side != good else real
        count = len(real) if len(side) == len(good) else min(len(side), len(real))
        made_list = [
            pour(side[min(at, len(side) - 1)], good[min(at, len(good) - 1)], real[at], f"{where}[]")
            for at in range(count)
        ]
        return made_list + list(side[len(good) :])
    if side == good:
        return real
    if isinstance(side, str) or isinstance(good, str):
        return changed(side, good, real)
    return side


def _stays(name: str, value: object, good: Mapping[str, Any], side: Mapping[str, Any]) -> bool:
    """Tell whether a field that the entry leaves out is kept: it is what the request asked for, or belongs to all."""
    if name in good or name in side:
        return False
    return value is not None and name not in {"stop_reason", "refusal", *_THOUGHTS}


# --------------------------------------------------------------------------- streams


def _parsed(text: str) -> Any:
    data = "\n".join(line[5:].lstrip() for line in text.split("\n") if line.startswith("data:"))
    try:
        return json.loads(data)
    except ValueError:
        return None


def _first(event: Any) -> Event:
    choices = event.get("choices") if isinstance(event, dict) else None
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _calls(event: Any) -> list[Event]:
    return list((_first(event).get("delta") or {}).get("tool_calls") or ())


@dataclass(slots=True, kw_only=True)
class Side:
    """How one side of an entry streams."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    arguments: dict[int, str] = field(default_factory=dict)
    names: dict[int, Any] = field(default_factory=dict)
    ids: dict[int, list[Any]] = field(default_factory=dict)
    thought_field: str = ""
    roles: int = 0
    role_alone: bool = False
    finishes: list[str] = field(default_factory=list)
    finish_alone: bool = True
    dones: int = 0
    done_early: bool = False
    usages: list[Event] = field(default_factory=list)
    usage_with_choices: bool = False
    chunk_ids: set[str] = field(default_factory=set)
    strange: list[tuple[int, str]] = field(default_factory=list)
    events: int = 0
    closed: str = ""
    delays: list[float] = field(default_factory=list)
    logprobs: bool = False

    @property
    def text(self) -> str:
        """All text."""
        return "".join(self.texts)


def read_side(reply: Event) -> Side:
    """Return how a reply of an entry streams."""
    side = Side(closed=str(reply.get("close") or ""), delays=[each / 1000 for each in reply.get("delays_ms") or ()])
    last = len(reply["sse"]) - 1
    for at, text in enumerate(reply["sse"]):
        event = _parsed(text)
        if text.strip() == "data: [DONE]":
            side.dones += 1
            side.done_early = side.done_early or at != last
            continue
        if not isinstance(event, dict) or "error" in event:
            side.strange.append((len(side.texts), text))
            continue
        side.events += 1
        side.chunk_ids.add(str(event.get("id")))
        if event.get("usage"):
            side.usages.append(event["usage"])
            side.usage_with_choices = side.usage_with_choices or bool(event.get("choices"))
        choice = _first(event)
        delta = choice.get("delta") or {}
        side.logprobs = side.logprobs or bool(choice.get("logprobs"))
        thought = next((name for name in _THOUGHTS if delta.get(name)), "")
        if "role" in delta:
            side.roles += 1
            side.role_alone = side.role_alone or not (delta.get("content") or thought or delta.get("tool_calls"))
        if thought:
            side.thoughts.append(delta[thought])
            side.thought_field = thought
        if delta.get("content"):
            side.texts.append(delta["content"])
        for call in delta.get("tool_calls") or ():
            index = call.get("index", 0)
            function = call.get("function") or {}
            side.arguments[index] = side.arguments.get(index, "") + (function.get("arguments") or "")
            if "name" in function:
                side.names[index] = function["name"]
            if "id" in call:
                side.ids.setdefault(index, []).append(call["id"])
        if choice.get("finish_reason"):
            side.finishes.append(choice["finish_reason"])
            side.finish_alone = side.finish_alone and not delta.get("content")
    return side


class Stream:
    """Pours one real stream into the shape of a side, event by event as they come."""

    def __init__(self, side: Side, good: Side, server: ReferenceServer) -> None:
        self._side, self._good, self._server = side, good, server
        self._texts = 0
        self._arguments: dict[int, str] = {}
        self._held: Event | None = None
        self._role: Event = {}
        self._roles: set[int] = set()
        self._thinking = False
        self._template: Event = {}

    # -- the shape

    @property
    def _cut_after(self) -> int | None:
        """After how many texts this side ends without an end."""
        side = self._side
        whole = side.finishes or side.dones
        return None if whole or not self._good.finishes else max(1, len(side.texts))

    async def events(self, real: AsyncIterator[Event]) -> AsyncIterator[Event | bytes]:
        """Yield events, and bytes where the side has something strange at this place."""
        side, good = self._side, self._good
        strange = list(side.strange)
        literal = side.text != good.text and not self._carries()
        said = False
        if side.strange and not side.events:
            for _, text in strange:
                yield text.encode() + b"\n\n"
            return
        async for event in real:
            if not event.get("choices"):
                for made in self._usage(event):
                    yield made
                continue
            self._template = self._template or event
            choice = _first(event)
            delta = dict(choice.get("delta") or {})
            finish = choice.get("finish_reason")
            role = delta.pop("role", None)
            if role:
                self._role = {"role": role}
                if side.role_alone and side.roles:
                    yield self._made(event, {"role": role, "content": ""})
                    self._roles.add(choice["index"])
                if not delta.get("content") and not finish and len(delta) <= 1:
                    continue
            thought = next((delta[name] for name in _THOUGHTS if delta.get(name)), "")
            if thought:
                for made in self._thought(event, thought):
                    yield made
            if delta.get("content"):
                while strange and strange[0][0] <= self._texts:
                    yield strange.pop(0)[1].encode() + b"\n\n"
                for made in self._text(event, delta["content"], literal=literal, said=said):
                    yield made
                said = True
                if self._cut_after is not None and self._texts >= self._cut_after:
                    break
            for call in delta.get("tool_calls") or ():
                for made in self._call(event, call):
                    yield made
            if finish:
                for made in self._end(event, finish):
                    yield made
        while strange:
            yield strange.pop(0)[1].encode() + b"\n\n"

    def _carries(self) -> bool:
        """Tell whether the difference of the texts can be carried over piece by piece."""
        bad, good = self._side.text, self._good.text
        if self._good.thoughts and not self._side.thoughts:
            return True
        return "�" in bad or good.startswith(bad) or _subsequence(bad, good)

    def _made(self, event: Event, delta: Event, finish: str | None = None, *, keep: bool = True) -> Event:
        choice = {**_first(event), "delta": delta, "finish_reason": finish}
        if not keep:
            choice["logprobs"] = None
        if not choice.get("logprobs"):
            choice.pop("logprobs", None)
        choice.pop("stop_reason", None)
        index = choice["index"]
        if self._side.roles and (index not in self._roles or self._side.roles > self._good.roles + 1):
            choice["delta"] = {**self._role, **delta}
            self._roles.add(index)
        made = {**event, "choices": [choice]}
        if len(self._side.chunk_ids) > len(self._good.chunk_ids):
            made["id"] = self._server.new_id("chatcmpl-")
        if self._side.usage_with_choices and not made.get("usage"):
            self._counted = getattr(self, "_counted", 0) + 1
            made["usage"] = {
                "prompt_tokens": 10,
                "completion_tokens": self._counted,
                "total_tokens": 10 + self._counted,
            }
        return made

    def _thought(self, event: Event, thought: str) -> Iterator[Event]:
        if self._side.thoughts or not self._good.thoughts:
            name = self._side.thought_field or "reasoning_content"
            yield self._made(event, {name: thought})
            return
        if not self._thinking and self._side.texts:
            self._thinking = True
            yield self._made(event, {"content": self._side.texts[0]}, keep=False)
        yield self._made(event, {"content": thought})

    def _text(self, event: Event, text: str, *, literal: bool, said: bool) -> Iterator[Event]:
        side, good = self._side, self._good
        self._texts += 1
        if self._thinking:
            self._thinking = False
            closing = next((each for each in side.texts if re.match(r"</.*>", each)), "")
            yield self._made(event, {"content": closing}, keep=False)
        if literal:
            if not said:
                for piece in side.texts:
                    yield self._made(event, {"content": piece})
            return
        if "�" in side.text and "�" not in good.text:
            yield self._made(event, {"content": re.sub(r"[^\x00-\x7f]", "��", text)})
            return
        if side.finishes and good.text != side.text and good.text.startswith(side.text):
            if self._held is not None:
                yield self._held
            self._held = self._made(event, {"content": text})
            return
        if side.finishes and good.text != side.text and _subsequence(side.text, good.text):
            yield self._made(event, {"content": re.sub(r"[^\x00-\x7f]", "", text) if self._wide(text) else text})
            return
        if not side.finish_alone:
            if self._held is not None:
                yield self._held
            self._held = self._made(event, {"content": text})
            return
        yield self._made(event, {"content": text})

    @staticmethod
    def _wide(text: str) -> bool:
        return any(ord(letter) > 127 for letter in text)

    def _call(self, event: Event, call: Event) -> Iterator[Event]:
        side, good = self._side, self._good
        index = call["index"]
        shape = min(index, max(good.names, default=0))
        function = dict(call.get("function") or {})
        arguments = function.get("arguments") or ""
        before = self._arguments.get(index, "")
        self._arguments[index] = before + arguments
        bad, right = side.arguments.get(shape, ""), good.arguments.get(shape, "")
        made = {**call, "function": function}
        if good.names and not side.names:
            return
        if side.names.get(shape) != good.names.get(shape) and "name" in function:
            function["name"] = side.names.get(shape)
        ids = side.ids.get(shape, [])
        if not ids and good.ids.get(shape):
            made.pop("id", None)
        elif len(set(ids)) > 1:
            made["id"] = self._server.new_id("call_")
        if right and not _same_json(bad, right) and _bare(right).startswith(_bare(bad)):
            if not bad:
                function["arguments"] = ""
            elif _closes(before + arguments):
                function["arguments"] = arguments.rstrip()[:-1]
        yield self._made(event, {"tool_calls": [made]})
        if right and bad == right + right and _closes(before + arguments):
            again = {"index": index, "function": {"arguments": before + arguments}}
            yield self._made(event, {"tool_calls": [again]}, keep=False)

    def _end(self, event: Event, finish: str) -> Iterator[Event]:
        side, good = self._side, self._good
        said: str | None = finish
        if side.finishes != good.finishes:
            said = None if not side.finishes else side.finishes[0] if finish in good.finishes else finish
        dropped = side.text != good.text and good.text.startswith(side.text) and side.finishes
        if self._held is not None and not dropped:
            held, self._held = self._held, None
            if not side.finish_alone:
                yield {**held, "choices": [{**_first(held), "finish_reason": said}]}
                return
            yield held
        yield self._made(event, {}, said, keep=False)
        if side.done_early and not good.done_early:
            yield {"[DONE]": True}

    def _usage(self, event: Event) -> Iterator[Event]:
        side, good = self._side, self._good
        if not side.usages and good.usages:
            return
        usage = dict(event.get("usage") or {})
        if good.usages and side.usages[-1] != good.usages[-1]:
            usage.update({name: side.usages[-1][name] for name in usage if name in side.usages[-1]})
        yield {**event, "usage": usage}

    def unasked(self) -> Event | None:
        """Return the usage event that this side sends and the other does not."""
        side, good = self._side, self._good
        if not side.usages or good.usages or side.usage_with_choices:
            return None
        return {**self._template, "choices": [], "usage": side.usages[-1]}


def _bare(text: str) -> str:
    return "".join(text.split())


def _closes(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _subsequence(short: str, long: str) -> bool:
    letters = iter(long)
    return bool(short) and all(letter in letters for letter in short)


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
        event = _parsed(piece.decode())
        if isinstance(event, dict):
            yield event
