"""Pours what the reference server says into the shape of a recorded reply: texts, whole replies, streams.

It knows shapes, not what they mean: what two sides of an entry do not agree on is the fault, and is carried over.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from servecheck.reference.asgi import Event
from servecheck.reference.server import ReferenceServer

__all__ = ["Side", "Stream", "changed", "parsed", "pour", "read_side"]

_THOUGHTS = ("reasoning", "reasoning_content")

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


def parsed(text: str) -> Any:
    """Return the JSON of an event, ``None`` where it is none."""
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
        event = parsed(text)
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
