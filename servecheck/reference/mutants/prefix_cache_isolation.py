"""Servers that take a cache salt and do not keep caches apart by it, and those that do in their own way."""

from __future__ import annotations

from collections.abc import Sequence

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.engine import Job, Prompt
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.prefix_cache_reuse import (
    DiesOnAHit,
    HeaderAlwaysCached,
    LateCounters,
    OnlyInMetaInfo,
    ZeroButCounted,
)
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class SaltIgnored(ReferenceServer):
    """Takes a cache_salt and builds its keys without it."""

    def salt_of(self, body: Event) -> str:
        """Check the field and forget it."""
        super().salt_of(body)
        return ""


class SaltCut(ReferenceServer):
    """Keys its cache by whether there is a salt, not by which."""

    def salt_of(self, body: Event) -> str:
        """Keep one letter, the same for all."""
        return "s" if super().salt_of(body) else ""


class UnsaltedReadsAll(ReferenceServer):
    """Stores what is salted under the plain key too, so that whoever sends no salt reads everybody's."""

    def store_cached(self, job: Job, ids: Sequence[int]) -> None:
        """Store twice."""
        super().store_cached(job, ids)
        self.cache.store("", ids)


class OthersRead(ReferenceServer):
    """Reads under a salt what the salt before it stored, and never what it stored itself."""

    last = ""

    def lookup_cached(self, job: Job, prompt: Prompt) -> int:
        """Look into the other's blocks."""
        if not job.salt:
            return super().lookup_cached(job, prompt)
        found = self.cache.cached(self.last, prompt.ids) if self.last != job.salt else 0
        self.last = job.salt
        return found


class SaltRefused(ReferenceServer):
    """Knows no cache_salt and says so."""

    def salt_of(self, body: Event) -> str:
        """Refuse it."""
        if "cache_salt" in body:
            raise ApiError("unknown field cache_salt", param="cache_salt")
        return ""


class SaltedNeverCached(ReferenceServer):
    """Keeps salted prompts apart by not caching them at all."""

    def store_cached(self, job: Job, ids: Sequence[int]) -> None:
        """Store what has no salt."""
        if not job.salt:
            super().store_cached(job, ids)


class NullButCounted(ReferenceServer):
    """Does not report cached tokens in usage, but its counters show them."""


class BigBlocks(ReferenceServer):
    """Keeps whole blocks of 128 tokens, so that the end of a known prompt is computed again."""


_V, _N, _R, _H = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.HELD
_APART, _SHARES = "other-salt-does-not-hit", "same-salt-hits"
_SILENT = {"reports_cached": False}

MUTANTS = (
    Mutant(id="salt-ignored", server=SaltIgnored, trips=((_APART, _N),), source="llm-d/llm-d-router#1389"),
    Mutant(
        id="salt-ignored-in-silence",
        server=SaltIgnored,
        trips=((_APART, _N),),
        source="llm-d/llm-d-router#1389",
        config=_SILENT,
    ),
    Mutant(id="salt-cut", server=SaltCut, trips=((_APART, _N),)),
    Mutant(id="unsalted-reads-all", server=UnsaltedReadsAll, trips=((_APART, _V),)),
    Mutant(id="others-read", server=OthersRead, trips=((_APART, _V),), source="ggml-org/llama.cpp#27148"),
    Mutant(id="salt-refused", server=SaltRefused, trips=((_APART, _R),), source="sgl-project/sglang#9163"),
    Mutant(id="salted-never-cached", server=SaltedNeverCached, trips=((_SHARES, _V), (_APART, _H))),
    Mutant(id="dies-on-a-hit", server=DiesOnAHit, trips=((_APART, _V),), source="vllm-project/vllm#43031"),
)

HARMLESS = (
    Harmless(id="null-but-counted", server=NullButCounted, source="noonghunna/club-3090#1297", config=_SILENT),
    Harmless(id="zero-but-counted", server=ZeroButCounted, source="gpustack/gpustack#5189"),
    Harmless(id="only-in-meta-info", server=OnlyInMetaInfo, config=_SILENT),
    Harmless(id="header-always-cached", server=HeaderAlwaysCached),
    Harmless(id="late-counters", server=LateCounters, config=_SILENT),
    Harmless(id="big-blocks", server=BigBlocks, config={"block": 128}),
)
