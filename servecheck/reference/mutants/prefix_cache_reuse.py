"""Prefix caches that are not there, not apart or not told truly, and caches that only show themselves differently.

Faults act on prompts of more than 64 tokens, or on a cache hit, so that short plain requests stay well.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, half_of
from servecheck.reference.base import Answer, Tally
from servecheck.reference.cache import PrefixCache
from servecheck.reference.engine import Delta, Job, Prompt
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_JSON = (("content-type", "application/json"),)
_SHORT = 64
"""Prompts up to so many tokens are left alone."""


def _is_long(job: Job) -> bool:
    return any(len(prompt.ids) > _SHORT for prompt in job.prompts)


def _hits(job: Job) -> bool:
    return any(prompt.cached for prompt in job.prompts)


class NoMetrics(ReferenceServer):
    """Base of servers that neither report cached tokens nor have metrics, so that only time can tell."""

    async def reply_metrics(self, request: Request) -> Reply:
        """Know no such route."""
        raise ApiError(f"no route {request.path}", status=404, kind="not_found_error", code="not_found")


# --------------------------------------------------------------------------- broken: no reuse


class NoCache(ReferenceServer):
    """Computes every prompt from its beginning, and reports zero cached tokens."""

    def lookup_cached(self, job: Job, prompt: Prompt) -> int:  # noqa: ARG002
        """Find nothing."""
        return 0


class NoCacheCounted(NoCache):
    """Computes every prompt from its beginning; usage does not say so, but the counter of hits never moves."""


class CacheOff(NoCache):
    """Was started without a prefix cache, and says so in a label of its metrics."""

    def metrics_text(self) -> str:
        """Show the switch."""
        return super().metrics_text().replace('enable_prefix_caching="True"', 'enable_prefix_caching="False"')


class OnlyTheHeader(ReferenceServer):
    """Reuses the first block of a prompt and computes all others again."""

    def lookup_cached(self, job: Job, prompt: Prompt) -> int:
        """Stop after one block."""
        return min(super().lookup_cached(job, prompt), self.cache.block)


class TwoReplicas(ReferenceServer):
    """Is two servers behind one address, taken in turn, each with a prefix cache of its own."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self.caches = [PrefixCache(block=self.cache.block, capacity=self.cache.capacity) for _ in range(2)]
        self.turns: dict[str, int] = {}

    def _mine(self, job: Job) -> PrefixCache:
        return self.caches[self.turns.setdefault(job.id, len(self.turns)) % 2]

    def lookup_cached(self, job: Job, prompt: Prompt) -> int:
        """Look into one of them."""
        return self._mine(job).cached(job.salt, prompt.ids)

    def store_cached(self, job: Job, ids: Sequence[int]) -> None:
        """Remember in that one only."""
        self._mine(job).store(job.salt, ids)


# --------------------------------------------------------------------------- broken: not apart, not true


class ClaimsEveryHit(ReferenceServer):
    """Reports nearly the whole of every prompt as cached, whether it was seen before or not."""

    def cached_tokens(self, job: Job) -> int:
        """Make it up."""
        return sum(len(prompt.ids) - 1 for prompt in job.prompts)


class CountsEveryHit(ReferenceServer):
    """Reports no cached tokens, and counts every prompt as cached in its metrics."""

    async def prefill(self, job: Job, index: int) -> None:
        """Count what was not found."""
        await super().prefill(job, index)
        self.metrics.cache_hits += len(job.prompt(index).ids) - job.prompt(index).cached


class AddsUp(ReferenceServer):
    """Adds the cached tokens of all requests up instead of starting anew with each one."""

    total = 0

    def cached_tokens(self, job: Job) -> int:
        """Report the sum so far."""
        self.total += 2 * super().cached_tokens(job)
        return self.total


class FirstBlockIgnored(ReferenceServer):
    """Keys its cache without the first blocks, so that prompts share what they do not have in common."""

    skipped = 2

    def _keyed(self, ids: Sequence[int]) -> Sequence[int]:
        return ids[self.skipped * self.cache.block :]

    def lookup_cached(self, job: Job, prompt: Prompt) -> int:
        """Look up by what is behind the first blocks."""
        found = self.cache.cached(job.salt, self._keyed(prompt.ids))
        return found + self.skipped * self.cache.block if found else 0

    def store_cached(self, job: Job, ids: Sequence[int]) -> None:
        """Store by the same key."""
        self.cache.store(job.salt, self._keyed(ids))


class StaleConversation(FirstBlockIgnored):
    """Restores another conversation's cache into a new request, and reports zero cached tokens."""

    def cached_tokens(self, job: Job) -> int:  # noqa: ARG002
        """Report none."""
        return 0


class SharedInSilence(FirstBlockIgnored, NoMetrics):
    """Shares its cache between prompts that begin differently, and reports nothing: only its speed shows it."""


class FrontDropped(ReferenceServer):
    """Drops the front of a prompt that is longer than 200 words, so that all prompts with one end are the same."""

    def messages_of(self, body: Event) -> list[Event]:
        """Keep the last words."""
        made = super().messages_of(body)
        for message in made:
            words = (message["content"] or "").split(" ")
            message["content"] = " ".join(words[-200:])
        return made


# --------------------------------------------------------------------------- broken: no usable reply


class DiesOnAHit(ReferenceServer):
    """Breaks the connection in the middle of the reply when some of the prompt came from the cache."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Mark what shall break."""
        return {**super().completion(job, answers), **({"cut": True} if _hits(job) and _is_long(job) else {})}

    async def reply_chat(self, request: Request) -> Reply:
        """Send half of a marked body."""
        made = await super().reply_chat(request)
        if not isinstance(made.body, bytes) or "cut" not in json.loads(made.body):
            return made
        return Reply(headers=_JSON, body=half_of(made.body))


class DiesStreamingAHit(NoMetrics):
    """Reports nothing, and ends a stream with an error event when some of its prompt came from the cache."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Fail behind the first event."""
        async for event in super().chunks(job):
            yield event
            if _hits(job) and _is_long(job):
                raise ApiError("counters can only go up", status=500, kind="InternalServerError")


class LongPromptsFail(ReferenceServer):
    """Turns whatever the engine says of a long prompt into a 500 of its own."""

    def check_length(self, ids: Sequence[int]) -> None:
        """Fail above the limit of the wrapper."""
        if len(ids) > _SHORT:
            raise ApiError("error in the wrapped model", status=500, kind="InternalServerError")


class LongPromptsDenied(ReferenceServer):
    """A proxy in front resets slow requests and answers 403 with plain text."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Answer as a proxy."""
        if wrong.code != "too_slow":
            return super().error(wrong, request)
        text = b"upstream connect error or disconnect/reset before headers"
        return Reply(status=403, headers=(("content-type", "text/plain"),), body=text)

    def check_length(self, ids: Sequence[int]) -> None:
        """Give up on long prompts."""
        if len(ids) > _SHORT:
            raise ApiError("too slow", status=403, code="too_slow")


class RatioNotANumber(ReferenceServer):
    """Writes the hit rate of a long prompt as the literal ``NaN``, which is not JSON."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Add a rate that JSON cannot hold."""
        made = super().usage(job, tally)
        return {**made, "hit_rate": float("nan")} if _is_long(job) else made


class PythonRepr(ReferenceServer):
    """Writes the reply to a long prompt as Python shows it."""

    async def reply_chat(self, request: Request) -> Reply:
        """Write the ``repr``."""
        made = await super().reply_chat(request)
        if len(request.body) > 1000 and isinstance(made.body, bytes):
            return replace(made, body=repr(json.loads(made.body)).encode())
        return made


# --------------------------------------------------------------------------- odd, but right


class NullButCounted(ReferenceServer):
    """Reports ``null``, which is not zero: its counters show the hits."""


class NullAndFast(NoMetrics):
    """Reports ``null`` and has no metrics; the second prompt is fast."""


class EarlyRole(NoMetrics):
    """Sends the chunk with the role before it has read the prompt, so that the first event says nothing of time."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Send the role at once."""
        yield self.chunk(job, 0, {"role": "assistant", "content": ""}, Tally())
        first = True
        async for event in super().chunks(job):
            if not first:
                yield event
            first = False


class ManyTokensAChunk(NoMetrics):
    """Reports nothing, and sends all it has in one chunk with the finish."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Join all deltas."""
        made = [delta async for delta in super().deltas(job)]
        yield replace(
            made[-1],
            content="".join(delta.content for delta in made),
            reasoning="".join(delta.reasoning for delta in made),
            steps=tuple(step for delta in made for step in delta.steps),
        )


class HeaderAlwaysCached(ReferenceServer):
    """Counts the 24 tokens of the chat header as cached on every miss, as engines that cache token by token do."""

    def cached_tokens(self, job: Job) -> int:
        """Count the header."""
        return max(24, super().cached_tokens(job))


class AbsentOnAMiss(ReferenceServer):
    """Leaves the details of usage out where nothing was cached."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Drop empty details."""
        made = super().usage(job, tally)
        if not self.cached_tokens(job):
            del made["prompt_tokens_details"]
        return made


class OnlyInMetaInfo(NoMetrics):
    """Says nothing in usage and has no metrics, but tells whoever asks for its details."""

    def models_list(self) -> Event:
        """Be an engine that has such details."""
        return {**super().models_list(), "data": [{**self.model_entry(), "owned_by": "sglang"}]}

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Add them."""
        made = super().chat_choice(job, answer)
        if job.body.get("return_meta_info"):
            made["meta_info"] = {"cached_tokens": self.cached_tokens(job)}
        return made


class BigBlocks(ReferenceServer):
    """Keeps whole blocks of 128 tokens, so that a hit is less than the shared beginning."""


class SingleTokens(ReferenceServer):
    """Keeps single tokens, so that even the words before the first question are shared."""


class ZeroButCounted(ReferenceServer):
    """Stands behind a gateway that writes zero for a number it was not given; the counters show the hits."""

    def cached_tokens(self, job: Job) -> int:  # noqa: ARG002
        """Report none."""
        return 0


class LateCounters(ReferenceServer):
    """Takes up to a second to count a request, as engines that collect their statistics do."""

    read_at, read = -1.0, ""

    def metrics_text(self) -> str:
        """Refresh the text once a second."""
        now = asyncio.get_running_loop().time()
        if now - self.read_at > 1:
            self.read_at, self.read = now, super().metrics_text()
        return self.read


class OthersTraffic(ReferenceServer):
    """Serves others at the same time, whose hits move the same counters; its own are seen by time."""

    def metrics_text(self) -> str:
        """Count somebody else's prompts with every read."""
        self.metrics.cache_queries += 1000
        self.metrics.cache_hits += 800
        return super().metrics_text()


class RayNames(ReferenceServer):
    """Names its series as Ray Serve does."""

    def metrics_text(self) -> str:
        """Rename the series."""
        return super().metrics_text().replace("vllm:", "ray_vllm_")


class SGLangNames(ReferenceServer):
    """Names its series as SGLang does, split by where the tokens were kept."""

    def metrics_text(self) -> str:
        """Write three series."""
        return (
            "# TYPE sglang:cached_tokens_total counter\n"
            f'sglang:cached_tokens_total{{cache_source="device"}} {self.metrics.cache_hits}\n'
            'sglang:cached_tokens_total{cache_source="host"} 0\n'
            "# TYPE sglang:prompt_tokens_total counter\n"
            f"sglang:prompt_tokens_total {self.metrics.cache_queries}\n"
        )


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_REUSED, _CONTROL = "same-prefix-is-reused", "other-prefix-is-not-reused"
_EVERY = "every-try-is-reused"
_SILENT = {"reports_cached": False}

MUTANTS = (
    Mutant(id="no-cache", server=NoCache, trips=((_REUSED, _N),)),
    Mutant(id="no-cache-counted", server=NoCacheCounted, trips=((_REUSED, _N),), config=_SILENT),
    Mutant(id="cache-off", server=CacheOff, trips=((_REUSED, _R),)),
    Mutant(id="only-the-header", server=OnlyTheHeader, trips=((_REUSED, _N),)),
    Mutant(
        id="two-replicas",
        server=TwoReplicas,
        trips=((_EVERY, _V), (_REUSED, Outcome.HELD)),
    ),
    Mutant(id="claims-every-hit", server=ClaimsEveryHit, trips=((_CONTROL, _V),)),
    Mutant(id="counts-every-hit", server=CountsEveryHit, trips=((_CONTROL, _V),), config=_SILENT),
    Mutant(id="adds-up", server=AddsUp, trips=((_REUSED, _V),), source="vllm-project/vllm-omni#2313"),
    Mutant(id="first-block-ignored", server=FirstBlockIgnored, trips=((_CONTROL, _V),)),
    Mutant(
        id="stale-conversation",
        server=StaleConversation,
        trips=((_CONTROL, _V),),
        source="ggml-org/llama.cpp#27148",
    ),
    Mutant(id="shared-in-silence", server=SharedInSilence, trips=((_CONTROL, _V),), config=_SILENT),
    Mutant(id="front-dropped", server=FrontDropped, trips=((_CONTROL, _V),), source="ollama/ollama#4967"),
    Mutant(id="dies-on-a-hit", server=DiesOnAHit, trips=((_REUSED, _V),), source="vllm-project/vllm#43031"),
    Mutant(
        id="dies-streaming-a-hit",
        server=DiesStreamingAHit,
        trips=((_REUSED, _V),),
        source="vllm-project/vllm#43031",
        config=_SILENT,
    ),
    Mutant(id="long-prompts-fail", server=LongPromptsFail, trips=((_REUSED, _V),), source="kserve/kserve#3886"),
    Mutant(
        id="long-prompts-denied",
        server=LongPromptsDenied,
        trips=((_REUSED, _R),),
        source="gpustack/gpustack#4725",
    ),
    Mutant(
        id="ratio-not-a-number",
        server=RatioNotANumber,
        trips=((_REUSED, _V),),
        source="sgl-project/sglang#5984",
    ),
    Mutant(id="python-repr", server=PythonRepr, trips=((_REUSED, _V),), source="vllm-project/vllm#57997"),
)

HARMLESS = (
    Harmless(id="null-but-counted", server=NullButCounted, source="noonghunna/club-3090#1297", config=_SILENT),
    Harmless(id="null-and-fast", server=NullAndFast, source="noonghunna/club-3090#1297", config=_SILENT),
    Harmless(id="early-role", server=EarlyRole, config=_SILENT),
    Harmless(id="many-tokens-a-chunk", server=ManyTokensAChunk, config=_SILENT),
    Harmless(id="header-always-cached", server=HeaderAlwaysCached),
    Harmless(id="absent-on-a-miss", server=AbsentOnAMiss),
    Harmless(id="only-in-meta-info", server=OnlyInMetaInfo, config=_SILENT),
    Harmless(id="big-blocks", server=BigBlocks, config={"block": 128}),
    Harmless(id="single-tokens", server=SingleTokens, config={"block": 1}),
    Harmless(id="zero-but-counted", server=ZeroButCounted, source="gpustack/gpustack#5189"),
    Harmless(id="late-counters", server=LateCounters, config=_SILENT),
    Harmless(id="others-traffic", server=OthersTraffic, config=_SILENT),
    Harmless(id="ray-names", server=RayNames, config=_SILENT),
    Harmless(id="sglang-names", server=SGLangNames, config=_SILENT),
)
