"""Logprobs as the server wrote them, in either API's shape, and the rules that hold for both; says what is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from servecheck.model import Finding, Json
from servecheck.probes._findings import Part
from servecheck.read.reply import Answer, Failure, Reply
from servecheck.read.text import dig, quote, string
from servecheck.stats import NEAR_TIE

__all__ = [
    "Alternative",
    "Arms",
    "Entry",
    "columns",
    "counted",
    "improper",
    "is_chat_shape",
    "misspelt",
    "nat",
    "of_chat",
    "of_legacy",
    "twins",
    "unlikely",
]

_ROUNDING = 1e-3  # nat; a certain token may come out a little above 0
_SUM_ROUNDING = 0.01
_MANY = 6
_MARK = re.compile(r"<[^<>\s]{1,40}>|\ufffd")
_LEGACY = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A token that could have come; ``data`` are its bytes, ``None`` where the server gives none."""

    text: str
    data: bytes | None
    value: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One token as reported and unchecked: a value may be anything. ``top`` is ``None`` where the field is absent."""

    text: str
    data: bytes | None
    value: Json
    top: tuple[Alternative, ...] | None

    @property
    def best(self) -> float | None:
        """The highest value among the alternatives."""
        return max((value for each in self.top or () if (value := nat(each.value)) is not None), default=None)

    @property
    def mass(self) -> float:
        """The probability that the alternatives have together; values that are none count nothing."""
        values = [nat(each.value) for each in self.top or ()]
        return sum(math.exp(min(value, 1.0)) for value in values if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """The requests of a row by step: the words for each in a reason, how its entries are read, and whose part it is."""

    words: Mapping[str, str]
    entries: Callable[[Answer], tuple[Entry, ...]]
    part: Part
    parts: Mapping[str, Part] = field(default_factory=dict)
    """The parts of the steps that are not of ``part``."""

    def judge_failures(self, check: str, replies: Mapping[str, Reply | None]) -> Iterator[Finding]:
        """Judge that no request fails, and say which is answered where one does."""
        failed = {step: found for step, found in replies.items() if isinstance(found, Failure)}
        seen = [found for found in replies.values() if found is not None]
        if failed:
            step, first = next(iter(failed.items()))
            others = [self.words[name] for name, found in replies.items() if isinstance(found, Answer)]
            beside = f", while it is answered {others[0]}" if others else ""
            yield self.part.violated(check, f"{self.words[step]}: {first.what}{beside}", *failed.values())
        elif seen:
            yield self.part.held(check, f"no server error in {len(seen)} requests with logprobs", *seen)

    def judge_rule(
        self,
        check: str,
        answers: Mapping[str, Answer],
        problem: Callable[[tuple[Entry, ...], Answer], str],
        right: str,
    ) -> Iterator[Finding]:
        """Judge one rule over several requests: the first that breaks it speaks."""
        for step, answer in answers.items():
            if why := problem(self.entries(answer), answer):
                yield self.parts.get(step, self.part).violated(check, f"{self.words[step]}: {why}", answer)
                return
        if answers:
            yield self.part.held(check, f"{right}, in {len(answers)} replies", *answers.values())


def of_chat(listed: Iterable[Json]) -> tuple[Entry, ...]:
    """Return the entries of a chat answer's ``logprobs.content``."""
    made = []
    for item in listed:
        top = dig(item, "top_logprobs")
        alternatives = tuple(map(_alternative, top)) if isinstance(top, list) else None
        one = _alternative(item)
        made.append(Entry(text=one.text, data=one.data, value=one.value, top=alternatives))
    return tuple(made)


def of_legacy(logprobs: Json) -> tuple[Entry, ...]:
    """Return the entries of a completion's older arrays, as many as its longest; what is missing is ``None``."""
    tokens, values, tops, _ = (found or [] for found in columns(logprobs).values())
    made = []
    for token, value, top in zip_longest(tokens, values, tops):
        listed = top.items() if isinstance(top, dict) else None
        alternatives = (
            None if listed is None else tuple(Alternative(text=text, data=None, value=nats) for text, nats in listed)
        )
        made.append(Entry(text=string(token), data=None, value=value, top=alternatives))
    return tuple(made)


def columns(logprobs: Json) -> dict[str, list[Json] | None]:
    """Return the older arrays by name; ``None`` where one is no list."""
    found = {name: dig(logprobs, name) for name in _LEGACY}
    return {name: value if isinstance(value, list) else None for name, value in found.items()}


def is_chat_shape(logprobs: Json) -> bool:
    """Tell whether a completion's logprobs come in the chat route's shape."""
    return isinstance(dig(logprobs, "content"), list) and not isinstance(dig(logprobs, "tokens"), list)


def _alternative(item: Json) -> Alternative:
    data = dig(item, "bytes")
    whole = isinstance(data, list) and all(isinstance(value, int) and 0 <= value < 256 for value in data)
    return Alternative(
        text=string(dig(item, "token")),
        data=bytes(value for value in data if isinstance(value, int)) if isinstance(data, list) and whole else None,
        value=dig(item, "logprob"),
    )


# --------------------------------------------------------------------------- rules; each returns what is wrong, or ""


def nat(value: Json) -> float | None:
    """Return a value as a number in nat, ``None`` where it is none. A whole number may be too large for one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def improper(entries: Iterable[Entry]) -> str:
    """Say which values are no log probabilities: not a number, above 0, or more than certain together.

    -9999.0 stands for minus infinity and is legal (vLLM). One token may be certain; all tokens of a text are not.
    """
    entries = tuple(entries)
    for place, entry in enumerate(entries, start=1):
        for what, text, value in (
            ("", entry.text, entry.value),
            *(("alternative ", each.text, each.value) for each in entry.top or ()),
        ):
            number = nat(value)
            if number is None:
                return f"token {place}: {what}{quote(text, 20)} has the logprob {_shown(value)}"
            if number > _ROUNDING:
                return f"token {place}: {what}{quote(text, 20)} has the logprob {number:g}, above 0"
        if entry.mass > 1 + _SUM_ROUNDING:
            return f"token {place}: the alternatives have a probability of {entry.mass:.2f} together"
    if len(entries) >= _MANY and all(nat(entry.value) == 0 for entry in entries):
        return f"all {len(entries)} tokens have the logprob 0, which says that each was certain"
    return ""


def counted(entries: Sequence[Entry], answer: Answer) -> str:
    """Say where the number of entries is not that of the generated tokens by ``usage``.

    One more or less is the end token. The tokens of one split character may share an entry, and the tokens of a
    reasoning part may be left out, all of them.
    """
    usage = answer.usage
    told = usage.completion if usage is not None else None
    if usage is None or told is None:
        return ""
    shared = sum(0x80 <= value < 0xC0 for value in answer.text.encode("utf-8", "replace"))
    legal = [told]
    if answer.first.reasoning:
        if usage.reasoning is None:
            return ""
        legal.append(told - usage.reasoning)
    if any(number - 1 - shared <= len(entries) <= number + 1 for number in legal):
        return ""
    return f"{len(entries)} entries for {told} completion tokens"


def misspelt(entries: Sequence[Entry], answer: Answer) -> str:
    """Say where the bytes of the tokens are not the text; marks such as an end token are aside.

    The tokens of reasoning may be left out; where there is no other text, theirs are the tokens.
    """
    said = b"".join(
        entry.text.encode("utf-8", "replace") if entry.data is None else entry.data for entry in entries
    ).decode("utf-8", "replace")
    text = (answer.text if answer.text.strip() else answer.first.reasoning).strip().rstrip("\ufffd").strip()
    at = said.rfind(text)
    why = f"the tokens say {quote(said, 60)}, the text is {quote(text, 60)}"
    if not text:
        return ""
    if at < 0:
        # A token that is a part of a character has no text of its own; without bytes nothing can be put together.
        return "" if "\ufffd" in said and all(entry.data is None for entry in entries) else why
    before, after = said[:at], said[at + len(text) :]
    if answer.first.reasoning and answer.text.strip():
        before = ""
    return why if _MARK.sub("", before + after).strip() else ""


def unlikely(entries: Sequence[Entry]) -> tuple[int, int, str]:
    """Return how many greedy tokens lie more than a near-tie below the best, of how many, and an example."""
    off, seen, example = 0, 0, ""
    for place, entry in enumerate(entries, start=1):
        value, best = nat(entry.value), entry.best
        if value is None or best is None:
            continue
        seen += 1
        if value < best - NEAR_TIE:
            off += 1
            example = (
                example or f"token {place} {quote(entry.text, 20)} has {value:.2f}, the best alternative {best:.2f}"
            )
    return off, seen, example


def twins(entries: Iterable[Entry]) -> str:
    """Say where two alternatives of one token cannot be told apart, by text or bytes."""
    for place, entry in enumerate(entries, start=1):
        names = [(each.text, each.data) for each in entry.top or ()]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            return f"token {place} has {names.count(twice)} alternatives that read {quote(twice[0], 20)} and no more"
    return ""


def _shown(value: Json) -> str:
    if value is None:
        return "null"
    return quote(value, 20) if isinstance(value, str) else type(value).__name__
