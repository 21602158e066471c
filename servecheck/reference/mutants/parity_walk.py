"""Servers that compute other numbers than the reference beside them, or say them otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.engine import Job, Prompt, Step
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.parity_forced import (
    FP8_LIKE,
    GrowsWithContext,
    LogitsOnePercentOff,
    OtherKernels,
    QuantizedCache,
    WrongBeyondTheChunk,
)
from servecheck.reference.perturbing import Perturbing
from servecheck.reference.server import ReferenceServer

__all__ = [
    "FP8_LIKE",
    "HARMLESS",
    "MUTANTS",
    "AfterTheChoice",
    "BatchJitter",
    "NoLogprobs",
    "ScalesByTemperature",
    "StrictAboutFields",
]


class AfterTheChoice(ReferenceServer):
    """Reports log probabilities as they are once the sampler has chosen: 0 for the greedy token, nothing for others."""

    def text_logprobs(
        self, job: Job, prompt: Prompt, steps: Sequence[Step], *, echo: bool, start: int = 0
    ) -> Event | None:
        """Report what is left after sampling at temperature 0."""
        if job.sampling.temperature == 0:
            steps = [
                Step(
                    token=each.token,
                    logprob=0.0,
                    top=tuple((token, 0.0 if token == each.token else -9999.0) for token, _ in each.top),
                )
                for each in steps
            ]
        return super().text_logprobs(job, prompt, steps, echo=echo, start=start)


class NoLogprobs(ReferenceServer):
    """Takes ``logprobs`` on every route and leaves the field null."""

    def text_logprobs(self, *_: Any, **__: Any) -> Event | None:  # noqa: ANN401
        """Forget them."""
        return None

    def logprob_entry(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401
        """Forget it."""
        return None


class BatchJitter(Perturbing):
    """Computes a little differently in every request, as kernels do whose sums depend on what else is in the batch."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._calls = itertools.count()

    def sigma(self, context: int) -> float:  # noqa: ARG002
        """Two steps of bf16 at most, mostly far less."""
        return 0.04

    def seen_in(self, job: Job | None) -> object:
        """Let the request decide."""
        return job.id if job is not None else next(self._calls)


class ScalesByTemperature(ReferenceServer):
    """Reports log probabilities after the temperature, as SGLang does by default; at 0 they are the model's."""

    def text_logprobs(
        self, job: Job, prompt: Prompt, steps: Sequence[Step], *, echo: bool, start: int = 0
    ) -> Event | None:
        """Scale them."""
        heat = job.sampling.temperature or 1.0
        steps = [
            Step(
                token=each.token,
                logprob=each.logprob / heat,
                top=tuple((token, value / heat) for token, value in each.top),
            )
            for each in steps
        ]
        return super().text_logprobs(job, prompt, steps, echo=echo, start=start)


class StrictAboutFields(ReferenceServer):
    """Refuses fields that OpenAI's API does not have, and more than five alternatives."""

    def completions_job(self, body: Event) -> Job:
        """Refuse."""
        if "ignore_eos" in body:
            raise ApiError("unknown field ignore_eos", param="ignore_eos")
        if isinstance(body.get("logprobs"), int) and body["logprobs"] > 5:
            raise ApiError("logprobs must be at most 5", param="logprobs")
        return super().completions_job(body)


_ALIKE, _LENGTH = "alike-along-the-greedy-text", "alike-at-every-context-length"

MUTANTS = (
    Mutant(
        id="logprobs-left-null",
        server=NoLogprobs,
        trips=((_ALIKE, Outcome.UNDETERMINED),),
        source="ggml-org/llama.cpp#11346",
    ),
    Mutant(
        id="logits-one-percent-off",
        server=LogitsOnePercentOff,
        trips=((_ALIKE, Outcome.VIOLATED),),
        models=("babbling",),  # the others are certain of half of their words, which no such noise moves
    ),
    Mutant(
        id="cache-in-eight-bits",
        server=QuantizedCache,
        trips=((_ALIKE, Outcome.VIOLATED),),
        source="vllm-project/vllm#13133",
    ),
    Mutant(
        id="wrong-beyond-one-chunk",
        server=WrongBeyondTheChunk,
        trips=((_LENGTH, Outcome.VIOLATED),),
        source="vllm-project/vllm#15643",
    ),
    Mutant(id="worse-with-every-token", server=GrowsWithContext, trips=((_LENGTH, Outcome.VIOLATED),)),
    Mutant(
        id="logprobs-after-the-choice",
        server=AfterTheChoice,
        trips=((_ALIKE, Outcome.UNDETERMINED),),
        source="vllm-project/vllm#9453",
    ),
)

HARMLESS = (
    Harmless(id="other-kernels", server=OtherKernels, source="sgl-project/sglang-omni#458"),
    Harmless(id="batch-jitter", server=BatchJitter, source="vllm-project/vllm#23138"),
    Harmless(id="scales-by-temperature", server=ScalesByTemperature),
    Harmless(id="strict-about-fields", server=StrictAboutFields, models=("babbling",)),
)
