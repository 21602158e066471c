"""Servers that differ in how repeatable their greedy answers are; a property has no right side."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from servecheck.reference.asgi import Event
from servecheck.reference.engine import Job
from servecheck.reference.mutants import Harmless
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS", "BatchFlipsClearChoices", "BatchFlipsTies", "NoLogprobs", "SamplesAnyway"]


class BatchFlipsTies(ReferenceServer):
    """Meets a near-tie at its fifth token, and lets the size of the batch decide it."""

    apart = 0.05

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Bring the two best close together."""
        found = list(super().candidates(job, index, prompt, generated))
        if len(generated) != 4:
            return found
        (best, top), (second, _), *rest = found
        order = (second, best) if self.metrics.running > 1 else (best, second)
        return [(order[0], top), (order[1], top - self.apart), *rest]


class BatchFlipsClearChoices(BatchFlipsTies):
    """Lets the size of the batch decide between tokens that are far apart."""

    apart = 1.5


class NoLogprobs(BatchFlipsTies):
    """Flips ties in batches and gives no logprobs, so that nobody can tell why."""

    def chat_job(self, body: Event) -> Job:
        """Forget the wish."""
        return replace(super().chat_job(body), logprobs=None)


class SamplesAnyway(ReferenceServer):
    """Samples at temperature 0 as at any other."""

    def sampling_of(self, body: Event) -> Sampling:
        """Warm up."""
        return replace(super().sampling_of(body), temperature=1.0, seed=next(self._draws))

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._draws = itertools.count(1)


MUTANTS = ()

HARMLESS = (
    Harmless(id="batch-flips-ties", server=BatchFlipsTies, source="vllm-project/vllm#23138"),
    Harmless(id="batch-flips-clear-choices", server=BatchFlipsClearChoices, source="vllm-project/vllm#23138"),
    Harmless(id="flips-without-logprobs", server=NoLogprobs),
    Harmless(id="samples-anyway", server=SamplesAnyway),
)
