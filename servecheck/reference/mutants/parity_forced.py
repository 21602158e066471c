"""Servers that score given text otherwise than the reference beside them."""

from __future__ import annotations

from typing import Any

from servecheck.model import Outcome
from servecheck.reference.engine import Prompt
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.perturbing import LOGIT, Perturbing
from servecheck.reference.server import ReferenceServer

__all__ = [
    "FP8_LIKE",
    "HARMLESS",
    "MUTANTS",
    "GrowsWithContext",
    "LogitsOnePercentOff",
    "NoPromptLogprobs",
    "OtherKernels",
    "QuantizedCache",
    "WrongBeyondTheChunk",
]

FP8_LIKE = 0.25
"""Noise in nats that moves log probabilities as far as a KV cache in fp8 did: half of them by more than 0.07."""


class LogitsOnePercentOff(Perturbing):
    """Computes logits that are one percent off, each in its own direction."""

    def sigma(self, context: int) -> float:  # noqa: ARG002
        """A percent of a likely token's logit."""
        return 0.01 * LOGIT


class QuantizedCache(Perturbing):
    """Keeps its cache in so few bits that every attention over it is a little off."""

    def sigma(self, context: int) -> float:  # noqa: ARG002
        """As much as was measured."""
        return FP8_LIKE


class WrongBeyondTheChunk(Perturbing):
    """Computes right up to one prefill chunk of 512 tokens, and attends to the wrong places behind it."""

    def sigma(self, context: int) -> float:
        """Nothing, or much."""
        return 0.6 if context > 512 else 0.0


class GrowsWithContext(Perturbing):
    """Loses a little with every token of context, as positions do in too few bits."""

    def sigma(self, context: int) -> float:
        """In proportion."""
        return 0.4 * context / 1024


class OtherKernels(Perturbing):
    """Sums in another order than the reference, always the same way: right, and not equal."""

    def sigma(self, context: int) -> float:  # noqa: ARG002
        """What two engines with the same weights showed: half of all log probabilities move by 0.02 or more."""
        return 0.04


class NoPromptLogprobs(ReferenceServer):
    """Takes ``prompt_logprobs`` and ``echo`` and gives no prompt token a value."""

    def prompt_logprobs(self, prompt: Prompt, top: int) -> list[Any]:  # noqa: ARG002
        """Give nothing."""
        return [None] * len(prompt.ids)

    def text_logprobs(self, *args: Any, **config: Any) -> Any:  # noqa: ANN401
        """Leave the prompt out."""
        return super().text_logprobs(*args, **{**config, "echo": False})


_ALIKE, _LENGTH = "alike-across-given-text", "alike-across-given-text-at-every-length"
_SHORT = {"max_model_len": 1024}  # the longest texts are then refused, which spares the self-test most of its time

MUTANTS = (
    Mutant(
        id="given-text-not-scored",
        server=NoPromptLogprobs,
        trips=((_ALIKE, Outcome.REFUSED),),
        source="ggml-org/llama.cpp#27174",
    ),
    Mutant(id="logits-one-percent-off", server=LogitsOnePercentOff, trips=((_ALIKE, Outcome.VIOLATED),), config=_SHORT),
    Mutant(
        id="cache-in-eight-bits",
        server=QuantizedCache,
        trips=((_ALIKE, Outcome.VIOLATED),),
        config=_SHORT,
        source="vllm-project/vllm#13133",
    ),
    Mutant(
        id="wrong-beyond-one-chunk",
        server=WrongBeyondTheChunk,
        trips=((_LENGTH, Outcome.VIOLATED),),
        models=("babbling",),
        source="vllm-project/vllm#15643",
    ),
)

HARMLESS = (Harmless(id="other-kernels", server=OtherKernels, config=_SHORT, source="sgl-project/sglang-omni#458"),)
