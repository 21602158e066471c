"""Servers whose answers differ from those of the reference beside them, or end otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.parity_forced import OtherKernels
from servecheck.reference.mutants.sampling_greedy import BatchFlipsTies
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS", "AnotherModel", "LosesTheEnd", "RefusesLogprobs"]


class AnotherModel(ReferenceServer):
    """Serves another model under the same name: its second choice at every fourth place is the first here."""

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Swap."""
        found = list(super().candidates(job, index, prompt, generated))
        if len(generated) % 4 == 3 and not job.thinking:
            (first, high), (second, low), *rest = found
            return [(second, high), (first, low), *rest]
        return found


class LosesTheEnd(ReferenceServer):
    """Has lost its end token: every answer runs to the limit."""

    def sampling_of(self, body: Event) -> Sampling:
        """Go on."""
        return replace(super().sampling_of(body), ignore_eos=True)


class RefusesLogprobs(ReferenceServer):
    """Refuses log probabilities on the chat route, as some hosted models do."""

    async def reply_chat(self, request: Request) -> Reply:
        """Refuse them."""
        if self.body_of(request).get("logprobs"):
            raise ApiError("logprobs are not available for this model", param="logprobs")
        return await super().reply_chat(request)


_AGREE, _END, _LONG = "greedy-answers-agree", "answers-end-for-the-same-reasons", "answers-are-as-long"

MUTANTS = (
    Mutant(
        id="another-model",
        server=AnotherModel,
        trips=((_AGREE, Outcome.VIOLATED),),
        models=("obedient", "babbling", "declining"),
        source="vllm-project/vllm#24025",
    ),
    Mutant(
        id="end-token-lost",
        server=LosesTheEnd,
        trips=((_END, Outcome.VIOLATED), (_LONG, Outcome.VIOLATED)),
        models=("declining",),
        source="vllm-project/vllm#13133",
    ),
)

HARMLESS = (
    Harmless(id="other-kernels", server=OtherKernels, source="sgl-project/sglang-omni#458"),
    Harmless(id="batch-flips-ties", server=BatchFlipsTies, source="vllm-project/vllm#23138"),
    Harmless(id="refuses-logprobs", server=RefusesLogprobs),
)
