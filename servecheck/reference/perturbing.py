"""Servers whose numbers differ from the model's, as other hardware's do; a base for mutants, of no use by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from servecheck.reference.engine import Job
from servecheck.reference.sampling import chance
from servecheck.reference.server import ReferenceServer

__all__ = ["LOGIT", "Perturbing", "gauss", "perturbed"]

LOGIT = 18.0
"""How large the logits of likely tokens are: bf16 logits of real models were measured between 16 and 32."""


def gauss(*parts: object) -> float:
    """Return a standard normal number that depends on the parts alone."""
    return math.sqrt(-2 * math.log(1 - chance(*parts))) * math.cos(2 * math.pi * chance("angle", *parts))


def perturbed(candidates: Sequence[tuple[int, float]], sigma: float, *parts: object) -> list[tuple[int, float]]:
    """Return a distribution with normal noise of ``sigma`` nats on every logit, likeliest first, summing to 1 again."""
    if not sigma:
        return list(candidates)
    moved = [(token, value + sigma * gauss(token, *parts)) for token, value in candidates]
    total = math.log(math.fsum(math.exp(value) for _, value in moved))
    return sorted(((token, value - total) for token, value in moved), key=lambda pair: -pair[1])


class Perturbing(ReferenceServer):
    """Adds noise to every logit, the same wherever the same tokens come before; subclasses say how much."""

    def sigma(self, context: int) -> float:
        """Return the standard deviation of the noise in nats, after so many tokens."""
        raise NotImplementedError

    def seen_in(self, job: Job | None) -> object:  # noqa: ARG002
        """Return what else the noise depends on; ``job`` is ``None`` where given text is scored."""
        return ""

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Disturb the next token's distribution."""
        found = super().candidates(job, index, prompt, generated)
        context = len(prompt) + len(generated)
        before = (*prompt[-8:], *generated)[-8:]
        return perturbed(found, self.sigma(context), self.jitter_seed, context, before, self.seen_in(job))

    def scores(self, ids: Sequence[int]) -> Sequence[Any]:
        """Disturb the distributions of a given text."""
        noise = (self.jitter_seed, self.seen_in(None))
        return [
            None
            if found is None
            else perturbed(found, self.sigma(place), place, tuple(ids[max(0, place - 8) : place]), noise)
            for place, found in enumerate(super().scores(ids))
        ]
