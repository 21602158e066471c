"""Servers whose cached_tokens are missing or lie, either way, and those that only look so."""

from __future__ import annotations

from collections.abc import Sequence

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Tally
from servecheck.reference.engine import Job, Prompt
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.prefix_cache_reuse import (
    AbsentOnAMiss,
    AddsUp,
    ClaimsEveryHit,
    HeaderAlwaysCached,
    LateCounters,
    LongPromptsFail,
    NoMetrics,
    OnlyInMetaInfo,
    OthersTraffic,
    ZeroButCounted,
)
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken


class NotReported(ReferenceServer):
    """Has a cache that works and says null in usage; its counters show the hits."""


class NotReportedNorCounted(NoMetrics):
    """Has a cache that works and says null in usage, and nothing to read but the time."""


class ReportedInDetailsOnly(OnlyInMetaInfo):
    """Says nothing in usage, and tells in a field of its own whoever asks."""


class NeitherCacheNorReport(NoMetrics):
    """Has no cache and says null in usage."""

    def lookup_cached(self, job: Job, prompt: Prompt) -> int:  # noqa: ARG002
        """Find nothing."""
        return 0


class ZeroButFast(NoMetrics):
    """Always reports zero cached tokens, and answers from its cache."""

    def cached_tokens(self, job: Job) -> int:  # noqa: ARG002
        """Report none."""
        return 0


class ClaimsAndComputes(NoMetrics):
    """Reports the hits of a cache that it does not use: the prompt is computed again each time."""

    def prefill_delay(self, job: Job, uncached: int) -> float:  # noqa: ARG002
        """Compute all of it."""
        return self.prefill_seconds * sum(len(prompt.ids) for prompt in job.prompts)


class ReportsTwice(ReferenceServer):
    """Reports twice the tokens that its own counter saw."""

    def cached_tokens(self, job: Job) -> int:
        """Double them, within the prompt."""
        return min(2 * super().cached_tokens(job), sum(len(prompt.ids) for prompt in job.prompts) - 1)


class ReportsHalf(ReferenceServer):
    """Reports half of the tokens that its own counter saw, those of the last process of a pipeline."""

    def cached_tokens(self, job: Job) -> int:
        """Halve them."""
        return super().cached_tokens(job) // 2


class SilentStreams(ReferenceServer):
    """Reports cached tokens in plain replies; the usage of streams has none."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Drop the details."""
        made = super().usage(job, tally)
        return {**made, "prompt_tokens_details": None} if job.stream else made


class WrittenCountsAsRead(ReferenceServer):
    """Counts what a request puts into the cache as taken from it."""

    def cached_tokens(self, job: Job) -> int:
        """Report all full blocks."""
        return sum((len(prompt.ids) - 1) // self.cache.block * self.cache.block for prompt in job.prompts)


# --------------------------------------------------------------------------- odd, but right


class TrueZero(NoMetrics):
    """Has no cache and reports zero cached tokens, which is true."""

    def lookup_cached(self, job: Job, prompt: Prompt) -> int:  # noqa: ARG002
        """Find nothing."""
        return 0


class FastAnyway(NoMetrics):
    """Computes prompts so fast that time says nothing of its cache."""

    def prefill_delay(self, job: Job, uncached: int) -> float:  # noqa: ARG002
        """Take no time."""
        return 0.0


class BigBlocks(ReferenceServer):
    """Keeps whole blocks of 128 tokens, so that the end of a known prompt is computed again."""

    def store_cached(self, job: Job, ids: Sequence[int]) -> None:
        """Keep them."""
        super().store_cached(job, ids)


_V, _R, _H = Outcome.VIOLATED, Outcome.REFUSED, Outcome.HELD
_SAYS, _TRUE, _STREAMED = "usage-has-cached-tokens", "cached-tokens-are-true", "streamed-usage-has-them-too"
_SILENT = {"reports_cached": False}

MUTANTS = (
    Mutant(
        id="not-reported",
        server=NotReported,
        trips=((_SAYS, _R),),
        source="noonghunna/club-3090#1297",
        config=_SILENT,
    ),
    Mutant(
        id="not-reported-nor-counted",
        server=NotReportedNorCounted,
        trips=((_SAYS, _R),),
        source="noonghunna/club-3090#1297",
        config=_SILENT,
    ),
    Mutant(id="reported-in-details-only", server=ReportedInDetailsOnly, trips=((_SAYS, _R),), config=_SILENT),
    Mutant(id="neither-cache-nor-report", server=NeitherCacheNorReport, trips=((_SAYS, _R),), config=_SILENT),
    Mutant(id="zero-but-counted", server=ZeroButCounted, trips=((_TRUE, _V),), source="ModelTC/LightLLM#1423"),
    Mutant(id="zero-but-fast", server=ZeroButFast, trips=((_TRUE, _V),), source="gpustack/gpustack#5189"),
    Mutant(id="claims-and-computes", server=ClaimsAndComputes, trips=((_TRUE, _V),)),
    Mutant(id="claims-every-hit", server=ClaimsEveryHit, trips=((_TRUE, _V),)),
    Mutant(id="written-counts-as-read", server=WrittenCountsAsRead, trips=((_TRUE, _V),), source="antirez/ds4#29"),
    Mutant(id="reports-twice", server=ReportsTwice, trips=((_TRUE, _V),), config={"block": 256}),
    Mutant(id="reports-half", server=ReportsHalf, trips=((_TRUE, _V),)),
    Mutant(id="adds-up", server=AddsUp, trips=((_TRUE, _V),), source="vllm-project/vllm-omni#2313"),
    Mutant(id="silent-streams", server=SilentStreams, trips=((_STREAMED, _V),), source="BerriAI/litellm#25410"),
    Mutant(id="long-prompts-fail", server=LongPromptsFail, trips=((_SAYS, _V),), source="kserve/kserve#3886"),
)

HARMLESS = (
    Harmless(id="true-zero", server=TrueZero),
    Harmless(id="fast-anyway", server=FastAnyway),
    Harmless(id="absent-on-a-miss", server=AbsentOnAMiss),
    Harmless(id="header-always-cached", server=HeaderAlwaysCached),
    Harmless(id="late-counters", server=LateCounters),
    Harmless(id="others-traffic", server=OthersTraffic),
    Harmless(id="big-blocks", server=BigBlocks, config={"block": 128}),
)
