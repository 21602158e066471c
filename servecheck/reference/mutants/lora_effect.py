"""Adapters without effect, that leak into the model, or that read what the cache holds of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.engine import Job
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.lora_listed import ADAPTERS, NullParents, WithAdapters
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_EFFECT, _BASE = "adapter-changes-the-answer", "base-model-stays-itself"
_BESIDE, _CACHE = "adapter-and-base-keep-apart-in-a-batch", "adapter-reads-no-other-s-cache"
_LONG = 200  # tokens

Candidates = list[tuple[int, float]]


class NoEffect(ReferenceServer):
    """Lists and selects adapters whose modules match none of the model's."""

    def adapted(self, job: Job, candidates: Candidates) -> Candidates:  # noqa: ARG002
        """Change nothing."""
        return candidates


class SecondHasNoEffect(ReferenceServer):
    """Applies the first adapter that was loaded and no other."""

    def adapted(self, job: Job, candidates: Candidates) -> Candidates:
        """Change by the first."""
        return super().adapted(job, candidates) if job.model == self.adapters[0] else candidates


class Sticks(ReferenceServer):
    """Merges an adapter into the weights and leaves it there for whoever comes next."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._merged: Job | None = None

    def adapted(self, job: Job, candidates: Candidates) -> Candidates:
        """Change by the last adapter."""
        if job.model in self.adapters:
            self._merged = job
        return super().adapted(self._merged or job, candidates)


class FirstOfTheBatch(ReferenceServer):
    """Applies to a whole batch the adapter of whoever came first."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._running: list[Job] = []

    def adapted(self, job: Job, candidates: Candidates) -> Candidates:
        """Change by the first of those that run."""
        return super().adapted(self._running[0] if self._running else job, candidates)

    async def deltas(self, job: Job) -> Any:  # noqa: ANN401
        """Note who runs."""
        self._running.append(job)
        try:
            async for delta in super().deltas(job):
                yield delta
        finally:
            self._running.remove(job)


class OneCacheForAll(ReferenceServer):
    """Keeps one prefix cache for the model and all adapters, so that a hit holds what another computed."""

    def cache_of(self, job: Job) -> str:
        """Tell salts apart and nothing else."""
        return job.salt

    def adapted(self, job: Job, candidates: Candidates) -> Candidates:
        """Forget the adapter where most of the prompt came from the cache."""
        return candidates if job.prompts[0].cached > _LONG else super().adapted(job, candidates)


# --------------------------------------------------------------------------- odd, but right


class Rounding(ReferenceServer):
    """Differs by a hundredth of a nat from one request to the next, as batches do."""

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Shift by the request's number."""
        made = super().candidates(job, index, prompt, generated)
        shift = 0.005 * (sum(job.id.encode()) % 3)
        return [(token, logprob - shift) for token, logprob in made]


_V, _N = Outcome.VIOLATED, Outcome.NO_EFFECT

MUTANTS = (
    Mutant(
        id="no-effect",
        server=NoEffect,
        trips=((_EFFECT, _N),),
        config=ADAPTERS,
        source="vllm-project/vllm#55193",
    ),
    Mutant(
        id="second-has-no-effect",
        server=SecondHasNoEffect,
        trips=((_EFFECT, _N),),
        config=ADAPTERS,
        source="vllm-project/vllm#55193",
    ),
    Mutant(id="sticks", server=Sticks, trips=((_BASE, _V),), config=ADAPTERS),
    Mutant(id="first-of-the-batch", server=FirstOfTheBatch, trips=((_BESIDE, _V),), config=ADAPTERS),
    Mutant(
        id="one-cache-for-all",
        server=OneCacheForAll,
        trips=((_CACHE, _V),),
        config=ADAPTERS,
        source="ggml-org/llama.cpp#26207",
    ),
)

HARMLESS = (
    Harmless(id="with-adapters", server=WithAdapters, config=ADAPTERS),
    Harmless(id="rounding", server=Rounding, config=ADAPTERS),
    Harmless(id="null-parents", server=NullParents, models=("obedient",)),
)
