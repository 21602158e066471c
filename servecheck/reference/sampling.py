"""A real sampler over candidate tokens: every parameter acts here and nowhere else."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Chooser", "Sampling", "chance", "draw"]

_OFFSET = 18.0
"""Added to log probabilities before penalties: real logits of likely tokens are positive, and divide downwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is picked. ``top_k`` 0 means no limit; ``seed`` is always set by the time it gets here."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed: frozenset[int] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_ids: frozenset[int] = frozenset()


def chance(*parts: object) -> float:
    """Return a number in [0, 1) that depends on the parts alone, the same on every machine."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def draw(
    candidates: Sequence[tuple[int, float]],
    sampling: Sampling,
    luck: float,
    *,
    prompt: Collection[int] = (),
    generated: Sequence[int] = (),
    banned: Collection[int] = (),
    outside: Callable[[int], float] = lambda _: -20.0,
) -> int:
    """Return the next token. ``luck`` in [0, 1) decides; ``outside`` gives log probabilities beyond the candidates.

    ``banned`` tokens (an end token before ``min_tokens``) are never drawn.
    """
    pool = dict(candidates)
    for token in (*sampling.logit_bias, *(sampling.allowed or ())):
        if token not in pool:
            pool[token] = outside(token)
    forbidden = {*banned, *_ends_of_bad_words(sampling, generated)}
    counts = Counter(generated)
    logits: dict[int, float] = {}
    for token, logprob in pool.items():
        if token in forbidden or (sampling.allowed is not None and token not in sampling.allowed):
            continue
        logit = logprob + _OFFSET
        if sampling.repetition_penalty != 1.0 and (token in counts or token in prompt):
            logit = logit / sampling.repetition_penalty if logit > 0 else logit * sampling.repetition_penalty
        logit -= sampling.frequency_penalty * counts[token]
        logit -= sampling.presence_penalty * (token in counts)
        logits[token] = logit + sampling.logit_bias.get(token, 0.0)
    if not logits:
        raise ValueError("no token is left to draw")
    ranked = sorted(logits.items(), key=lambda pair: (-pair[1], pair[0]))
    if sampling.temperature == 0 or sampling.top_k == 1:
        return ranked[0][0]
    return _pick(ranked, sampling, luck)


def _ends_of_bad_words(sampling: Sampling, generated: Sequence[int]) -> list[int]:
    tail = tuple(generated)
    return [word[-1] for word in sampling.bad_words if len(word) == 1 or tail[-len(word) + 1 :] == word[:-1]]


def _pick(ranked: Sequence[tuple[int, float]], sampling: Sampling, luck: float) -> int:
    top = ranked[0][1]
    weights = [(token, math.exp((logit - top) / sampling.temperature)) for token, logit in ranked]
    weights = [pair for pair in weights if pair[1] >= sampling.min_p]
    if sampling.top_k > 0:
        weights = weights[: sampling.top_k]
    if sampling.top_p < 1:
        mass = sampling.top_p * sum(weight for _, weight in weights)
        kept, running = [], 0.0
        for pair in weights:
            kept.append(pair)
            running += pair[1]
            if running >= mass:
                break
        weights = kept
    point = luck * sum(weight for _, weight in weights)
    for token, weight in weights:
        point -= weight
        if point < 0:
            return token
    return weights[-1][0]


class Chooser:
    """Picks one of several lawful continuations with the same sampler: greedy where tokens would be greedy."""

    def __init__(self, key: bytes, sampling: Sampling | None = None, index: int = 0) -> None:
        self._key, self._index = key, index
        source = sampling or Sampling(temperature=0)
        self._sampling = Sampling(
            temperature=source.temperature,
            top_p=source.top_p,
            top_k=source.top_k,
            min_p=source.min_p,
            seed=source.seed,
        )
        self._made = 0

    def __call__(self, options: int) -> int:
        """Return a number from 0 to ``options - 1``."""
        self._made += 1
        if options == 1:
            return 0
        order = sorted(range(options), key=lambda number: chance(self._key, self._made, number))
        weights = [0.6**rank for rank in range(options)]
        total = sum(weights)
        candidates = [(number, math.log(weight / total)) for number, weight in zip(order, weights, strict=True)]
        return draw(candidates, self._sampling, chance(self._sampling.seed, self._index, "choice", self._made))
