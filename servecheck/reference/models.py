"""Four small language models with real next-token distributions, decided by hashes: the same on every machine."""

from __future__ import annotations

import hashlib
import json
import math
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from servecheck.errors import UnknownName
from servecheck.reference.answers import Part, Turn, babble, hints, obey, sentence, wants_long
from servecheck.reference.sampling import chance
from servecheck.reference.tokens import (
    IM_END,
    IM_START,
    THINK_CLOSE,
    THINK_OPEN,
    decode,
    encode,
    styled,
)

__all__ = ["MODELS", "Babbling", "Declining", "LanguageModel", "Obedient", "Reading", "Reasoning", "model_named"]

CANDIDATES = 24
"""How many tokens a distribution names; all others share next to nothing."""
_SURE = 1 - 1e-9
_END = 0.94
"""How likely an answer ends where it should: sampled answers seldom ramble on."""
_FALL = 0.65
"""Each alternative is this much as likely as the one before it."""


@dataclass(slots=True)
class Reading:
    """What a model makes of a prompt: the words it leans to, token by token, for as long as anybody asks."""

    key: bytes
    turns: tuple[Turn, ...]
    tools: tuple[dict[str, Any], ...]
    chat: bool
    thinks: bool
    ids: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    sentences: int = 0

    @property
    def asked(self) -> str:
        """The last user message; a plain prompt is one."""
        return next((turn.text for turn in reversed(self.turns) if turn.role == "user"), "")

    def add(self, text: str, *, sure: bool = False) -> None:
        """Lean to this text next, more or less, or for certain."""
        ids = encode(text)
        self.ids += ids
        self.shares += [_SURE if sure else 0.0] * len(ids)

    def add_token(self, token: int, share: float = _SURE) -> None:
        """Lean to this token next, with a probability."""
        self.ids.append(token)
        self.shares.append(share)


class LanguageModel:
    """A language model: prompt and generated ids in, distribution out. Subclasses say what it leans to.

    It reads token ids and nothing else, so what the server leaves out of a prompt is unknown to it.
    """

    name = ""
    thinks = False

    def __init__(self) -> None:
        self._readings: dict[tuple[int, ...], Reading] = {}
        self._begun: dict[tuple[int, ...], tuple[tuple[int, ...], int]] = {}

    def parts(self, reading: Reading) -> list[Part]:
        """Return the answer that the model leans to."""
        raise NotImplementedError

    def thought(self, key: bytes) -> str:
        """Return what a model that thinks has in mind before it answers."""
        return sentence("think", key) + " " + sentence("think more", key)

    def hints(self, prompt: Sequence[int]) -> list[str]:
        """Return the words that this model would put into a form that it has to fill."""
        reading = self.read(prompt)
        return hints("", reading.key)

    def read(self, prompt: Sequence[int]) -> Reading:
        """Return what the model makes of a prompt."""
        ids = tuple(prompt)
        known = self._readings.get(ids)
        if known is not None:
            return known
        if len(self._readings) > 256:
            self._readings.clear()
        turns, tools = _turns(ids)
        opened = THINK_CLOSE not in ids[-8:]
        key = hashlib.blake2b(array("I", ids).tobytes() + self.name.encode(), digest_size=16).digest()
        reading = Reading(key, turns, tools, IM_START in ids, self.thinks and IM_START in ids and opened)
        if reading.thinks:
            reading.add_token(THINK_OPEN)
            reading.add("\n", sure=True)
            reading.add(self.thought(key))
            reading.add("\n", sure=True)
            reading.add_token(THINK_CLOSE)
            reading.add("\n\n", sure=True)
        for part in self.parts(reading):
            reading.add(part.text, sure=part.sure)
        reading.add_token(IM_END, max(reading.shares[-1] if reading.shares else 0.0, _END))
        self._readings[ids] = reading
        return reading

    def candidates(self, prompt: Sequence[int], generated: Sequence[int]) -> list[tuple[int, float]]:
        """Return the next token's distribution: (id, log probability), likeliest first; the probabilities sum to 1."""
        prompt, said = self._beginning(tuple(prompt))
        reading = self.read(prompt)
        generated = [*reading.ids[:said], *generated]
        at = len(generated)
        while at >= len(reading.ids):
            reading.sentences += 1
            reading.add(" " + sentence("more", reading.sentences, reading.key))
            reading.add_token(IM_END)
        context = hashlib.blake2b(reading.key + array("I", [at, *generated[-4:]]).tobytes(), digest_size=16).digest()
        top = reading.ids[at]
        return spread(top, reading.shares[at] or 0.45 + 0.25 * context[0] / 256, context)

    def _beginning(self, ids: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        """Return the prompt that this one goes on with, and by how many tokens of what the model leant to there.

        A text that is given back to the model is the same text as the one that it was writing.
        """
        if ids not in self._begun:
            if len(self._begun) > 256:
                self._begun.clear()
            self._begun[ids] = next(
                (
                    (known, len(ids) - len(known))
                    for known, reading in self._readings.items()
                    if not reading.chat
                    and 0 < len(ids) - len(known) <= len(reading.ids)
                    and ids[: len(known)] == known
                    and ids[len(known) :] == tuple(reading.ids[: len(ids) - len(known)])
                ),
                (ids, 0),
            )
        return self._begun[ids]

    def outside(self, prompt: Sequence[int], token: int) -> float:
        """Return the log probability of a token that the distribution does not name; at most -14."""
        return -14 - 6 * chance(self.read(prompt).key, token)

    def score(self, ids: Sequence[int]) -> list[list[tuple[int, float]] | None]:
        """Return, for each position of a text, the distribution that predicted it; ``None`` for the first.

        The token that is there is always among the candidates, at a rank that depends on everything before it.
        """
        return _score(self.name, tuple(ids))


@lru_cache(maxsize=64)
def _score(name: str, ids: tuple[int, ...]) -> list[list[tuple[int, float]] | None]:
    """Score a text; kept, because texts are scored again and again to see whether the values stay."""
    key = hashlib.blake2b(name.encode(), digest_size=16).digest()
    scored: list[list[tuple[int, float]] | None] = []
    for position, token in enumerate(ids):
        if position == 0:
            scored.append(None)
        else:
            rank = min(CANDIDATES - 1, int(-math.log(1 - key[1] / 256) * 1.6))
            scored.append(spread(token, 0.3 + 0.4 * key[0] / 256, key, rank=rank))
        key = hashlib.blake2b(key + token.to_bytes(4, "big"), digest_size=16).digest()
    return scored


def spread(token: int, share: float, context: bytes, *, rank: int = 0) -> list[tuple[int, float]]:
    """Return a distribution whose likeliest has ``share``, with ``token`` at ``rank`` among words of its style."""
    words = styled(token)
    start = int.from_bytes(context[2:4], "big") % len(words)
    stride = 1 + int.from_bytes(context[4:6], "big") % 97
    chosen: dict[int, None] = {}
    while len(chosen) < CANDIDATES - 1:
        word = words[start % len(words)]
        start += stride
        if word != token and word not in chosen:
            chosen[word] = None
        else:
            start += 1
    ordered = list(chosen)
    ordered.insert(rank, token)
    scale = (1 - share) * (1 - _FALL) / (1 - _FALL ** (CANDIDATES - 1))
    return [
        (word, math.log(share if place == 0 else scale * _FALL ** (place - 1))) for place, word in enumerate(ordered)
    ]


def _turns(ids: tuple[int, ...]) -> tuple[tuple[Turn, ...], tuple[dict[str, Any], ...]]:
    if IM_START not in ids:
        return (Turn("user", decode(ids)),), ()
    turns: list[Turn] = []
    tools: list[dict[str, Any]] = []
    at = 0
    while IM_START in ids[at:]:
        start = ids.index(IM_START, at) + 1
        end = ids.index(IM_END, start) if IM_END in ids[start:] else len(ids)
        role, _, text = decode(ids[start:end]).partition("\n")
        at = end
        found = re.fullmatch(r"<tools>\n(.*)\n</tools>", text, re.DOTALL) if role == "system" else None
        if found:
            tools += [_function(json.loads(line)) for line in found.group(1).split("\n")]
        elif end < len(ids):
            turns.append(Turn(role, text))
    return tuple(turns), tuple(tools)


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    inner = tool.get("function", tool)
    return inner if isinstance(inner, dict) else {}


class Obedient(LanguageModel):
    """Does what simple prompts ask."""

    name = "obedient"

    def parts(self, reading: Reading) -> list[Part]:
        """Return what was asked for; a plain prompt is continued on the same line."""
        parts = obey(reading.turns, reading.tools, reading.key)
        if reading.chat or not parts or reading.asked[-1:].isspace():
            return parts
        return [Part(" " + parts[0].text, sure=parts[0].sure), *parts[1:]]

    def hints(self, prompt: Sequence[int]) -> list[str]:
        """Return the words of the prompt that matter, then nouns."""
        reading = self.read(prompt)
        return hints(reading.asked, reading.key)


class Reasoning(Obedient):
    """Thinks aloud between ``<think>`` tags, then does as it is told."""

    name = "reasoning"
    thinks = True


class Babbling(LanguageModel):
    """Talks fluently about nothing, whatever is asked; never obeys."""

    name = "babbling"

    def parts(self, reading: Reading) -> list[Part]:
        """Return nonsense, more of it where much was asked for."""
        length = 230 if wants_long(reading.asked) else 18
        return [Part(babble(length + int(chance("length", reading.key) * 50), reading.key))]


class Declining(LanguageModel):
    """Refuses politely in one short sentence."""

    name = "declining"

    def parts(self, reading: Reading) -> list[Part]:
        """Return a refusal."""
        refusals = ("Sorry, I cannot help with that.", "I cannot answer that.", "No, thank you.")
        return [Part(refusals[int(chance("refusal", reading.key) * len(refusals))])]


MODELS = {kind.name: kind for kind in (Obedient, Babbling, Declining, Reasoning)}
"""The reference models by name."""


def model_named(name: str) -> LanguageModel:
    """Return a fresh reference model; raises :class:`~servecheck.errors.UnknownName`."""
    if name not in MODELS:
        raise UnknownName("reference model", name, MODELS)
    return MODELS[name]()
