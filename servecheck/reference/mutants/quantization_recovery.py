"""Servers that solve fewer tasks than the reference beside them, or other ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Reply, Request
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.parity_answers import RefusesLogprobs
from servecheck.reference.mutants.parity_forced import OtherKernels
from servecheck.reference.mutants.quantization_sanity import ExclamationMarks
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import decode, encode

__all__ = ["HARMLESS", "MUTANTS"]


class LosesItsWords(ReferenceServer):
    """Serves weights in so few bits that it speaks fluently and gets nothing right any more."""

    def wrong(self, job: Job, prompt: Sequence[int]) -> bool:  # noqa: ARG002
        """Tell which requests it gets wrong."""
        return True

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Say other words."""
        found = list(super().candidates(job, index, prompt, generated))
        if not self.wrong(job, prompt):
            return found
        ids = encode(" I would rather talk about the garden and the river.")
        token = ids[len(generated) % len(ids)]
        return [(token, math.log(0.9)), *((other, math.log(0.02)) for other, _ in found[:4] if other != token)]


class GetsOneWrong(LosesItsWords):
    """Gets a single task wrong that the reference solves, as near-ties have it."""

    def wrong(self, job: Job, prompt: Sequence[int]) -> bool:  # noqa: ARG002
        """One of them."""
        return "Repeat this word" in (text := decode(prompt)) and not self._other(text)

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._first = ""

    def _other(self, text: str) -> bool:
        self._first = self._first or text
        return text != self._first


class ExclamationMarksOnSome(ExclamationMarks):
    """Has one replica of two that is sharded wrongly, and says exclamation marks to whatever arrives there."""

    def wrong(self, prompt: Sequence[int], generated: Sequence[int]) -> bool:  # noqa: ARG002
        """Everything but the plainest request, so that a health check is content."""
        return "capital" not in decode(prompt)


class RefusesShortLimits(ReferenceServer):
    """Refuses limits below 32 tokens."""

    async def reply_chat(self, request: Request) -> Reply:
        """Refuse."""
        if self.body_of(request).get("max_tokens", 99) < 32:
            raise ApiError("max_tokens must be at least 32", param="max_tokens")
        return await super().reply_chat(request)


_ANSWERED, _KEPT = "every-task-is-answered", "as-many-tasks-are-solved"

MUTANTS = (
    Mutant(
        id="loses-its-words",
        server=LosesItsWords,
        trips=((_KEPT, Outcome.VIOLATED),),
        models=("obedient",),  # the others solve nothing that could be lost
        source="vllm-project/vllm#31202",
    ),
    Mutant(
        id="exclamation-marks-on-some",
        server=ExclamationMarksOnSome,
        trips=((_KEPT, Outcome.VIOLATED),),
        models=("obedient",),
        source="vllm-project/vllm#24025",
    ),
    Mutant(
        id="short-limits-refused",
        server=RefusesShortLimits,
        trips=((_ANSWERED, Outcome.REFUSED),),
    ),
)

HARMLESS = (
    Harmless(id="other-kernels", server=OtherKernels, source="sgl-project/sglang-omni#458"),
    Harmless(id="refuses-logprobs", server=RefusesLogprobs),
    Harmless(id="gets-one-wrong", server=GetsOneWrong),
)
