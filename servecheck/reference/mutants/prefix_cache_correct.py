"""Servers whose cache gives back something else than was put in, and hits that differ by rounding only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Request
from servecheck.reference.base import Answer
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.models import spread
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.prefix_cache_reuse import DiesOnAHit, OnlyInMetaInfo
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import encode

__all__ = ["HARMLESS", "MUTANTS"]


def _hits(job: Job, index: int) -> bool:
    prompt = job.prompt(index)
    return prompt.cached * 2 > len(prompt.ids)


# --------------------------------------------------------------------------- broken


class GarbageOnAHit(ReferenceServer):
    """Answers a prompt that it finds in its cache with exclamation marks."""

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Be sure of one token."""
        if not _hits(job, index):
            return super().candidates(job, index, prompt, generated)
        return spread(encode("!")[0], 0.99, bytes(16))


class ShiftedOnAHit(ReferenceServer):
    """Reads its cache one block further than it should, so that words of the prompt are missing on a hit."""

    def context_of(self, job: Job, index: int) -> tuple[int, ...]:
        """Lose a block behind the header."""
        ids = super().context_of(job, index)
        return (*ids[:32], *ids[48:]) if _hits(job, index) else ids


class ShiftedOnAPartOfIt(ShiftedOnAHit):
    """Loses a block only where another end follows the known beginning; a whole prompt again is right."""

    seen: frozenset[tuple[int, ...]] = frozenset()

    def context_of(self, job: Job, index: int) -> tuple[int, ...]:
        """Leave whole prompts alone."""
        ids = job.prompt(index).ids
        whole, self.seen = ids in self.seen, self.seen | {ids}
        return ids if whole else super().context_of(job, index)


class OldConversation(ReferenceServer):
    """Restores another conversation of its cache into a request that hits."""

    first: tuple[int, ...] = ()

    def context_of(self, job: Job, index: int) -> tuple[int, ...]:
        """Take the oldest long prompt."""
        ids = super().context_of(job, index)
        if len(ids) > 200 and not self.first:
            self.first = ids
        return self.first if _hits(job, index) else ids


class FlatterOnAHit(ReferenceServer):
    """Says the same on a hit, from a distribution that is clearly another one."""

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Take half a nat off each."""
        found = super().candidates(job, index, prompt, generated)
        return [(token, value - 0.5) for token, value in found] if _hits(job, index) else found


class EmptyOnAHit(ReferenceServer):
    """Ends the answer at once where the prompt is cached."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Leave nothing of it."""
        if not _hits(job, answer.index):
            return super().chat_choice(job, answer)
        return super().chat_choice(job, replace(answer, content="", reasoning="", finish="stop"))


# --------------------------------------------------------------------------- odd, but right


class TiesFlipOnAHit(ReferenceServer):
    """Has a near-tie at its third token, which falls the other way on a hit."""

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Bring the two best close together."""
        (best, top), (second, _), *rest = super().candidates(job, index, prompt, generated)
        if len(generated) != 2:
            return [(best, top), (second, top - 1.0), *rest]
        order = (second, best) if _hits(job, index) else (best, second)
        return [(order[0], top), (order[1], top - 0.1), *rest]


class RoundsOnAHit(ReferenceServer):
    """Is a tenth of a nat off on a hit, as other kernels are."""

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Round."""
        found = super().candidates(job, index, prompt, generated)
        return [(token, value - 0.1) for token, value in found] if _hits(job, index) else found


class NoLogprobs(ReferenceServer):
    """Refuses logprobs; its texts are the same."""

    def body_of(self, request: Request) -> Event:
        """Refuse them."""
        body = super().body_of(request)
        if body.get("logprobs"):
            raise ApiError("logprobs are not supported", param="logprobs")
        return body


class RefusesSalt(ReferenceServer):
    """Knows no cache_salt and refuses it."""

    def salt_of(self, body: Event) -> str:
        """Refuse it."""
        if "cache_salt" in body:
            raise ApiError("unknown field cache_salt", param="cache_salt")
        return ""


class NullButCounted(ReferenceServer):
    """Does not report cached tokens in usage, but its counters show them."""


class SaltIgnored(ReferenceServer):
    """Takes a cache_salt and knows nothing of it, so that what should be a miss is a hit too."""

    def salt_of(self, body: Event) -> str:  # noqa: ARG002
        """Forget it."""
        return ""


_V, _H = Outcome.VIOLATED, Outcome.HELD
_SAME, _SANE = "hit-says-what-a-miss-says", "hit-is-no-garbage"
_SILENT = {"reports_cached": False}

MUTANTS = (
    Mutant(
        id="garbage-on-a-hit",
        server=GarbageOnAHit,
        trips=((_SAME, _V), (_SANE, _V)),
        source="tenstorrent/vllm#415",
    ),
    Mutant(id="shifted-on-a-hit", server=ShiftedOnAHit, trips=((_SAME, _V),), source="vllm-project/vllm#12371"),
    Mutant(id="shifted-on-a-part-of-it", server=ShiftedOnAPartOfIt, trips=((_SAME, _V),)),
    Mutant(id="old-conversation", server=OldConversation, trips=((_SAME, _V),), source="ggml-org/llama.cpp#27148"),
    Mutant(
        id="flatter-on-a-hit",
        server=FlatterOnAHit,
        trips=((_SAME, _V), (_SANE, _H)),
        source="mistralai/mistral-inference#88",
    ),
    Mutant(id="empty-on-a-hit", server=EmptyOnAHit, trips=((_SANE, _V),)),
    Mutant(id="dies-on-a-hit", server=DiesOnAHit, trips=((_SAME, _V),), source="vllm-project/vllm#43031"),
)

HARMLESS = (
    Harmless(id="ties-flip-on-a-hit", server=TiesFlipOnAHit, source="kekzl/imp#1492"),
    Harmless(id="rounds-on-a-hit", server=RoundsOnAHit, source="ml-explore/mlx-lm#259"),
    Harmless(id="no-logprobs", server=NoLogprobs),
    Harmless(id="refuses-salt", server=RefusesSalt),
    Harmless(id="salt-ignored", server=SaltIgnored),
    Harmless(id="null-but-counted", server=NullButCounted, source="noonghunna/club-3090#1297", config=_SILENT),
    Harmless(id="only-in-meta-info", server=OnlyInMetaInfo, config=_SILENT),
)
