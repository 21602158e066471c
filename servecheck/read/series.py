"""The Prometheus series that engines promise, and how many requests run. Names as read in the releases given here.

A name stands for all its spellings: Ray republishes ``vllm:x`` as ``ray_vllm_x``, and some exporters write ``vllm_x``.
Where a series was renamed, the current name comes first and older ones behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from servecheck.model import Exchange, Fingerprint
from servecheck.read.metrics import Metrics, metrics
from servecheck.read.reply import Failure, Refusal, json_body
from servecheck.read.text import dig, number

__all__ = [
    "CONTRACTS",
    "Contract",
    "Series",
    "contract_of",
    "running_in_loads",
    "running_in_metrics",
    "running_in_slots",
    "spellings",
]

Series = tuple[str, ...]
"""The names of one series, the current one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What one engine exposes. ``key`` series steer routers and autoscalers, ``more`` fill dashboards.

    ``prompt`` and ``generated`` count tokens; ``counts_cached`` says whether cached prompt tokens are counted too.
    ``running_is_live`` is false where the gauge keeps its last value while nothing runs.
    """

    engine: str
    read_in: str
    source: str
    running: Series
    prompt: Series
    generated: Series
    key: tuple[Series, ...]
    more: tuple[Series, ...]
    counts_cached: bool = True
    running_is_live: bool = True

    def missing(self, read: Metrics, wanted: Iterable[Series]) -> list[str]:
        """Return the current names of the series that are there under no name."""
        return [series[0] for series in wanted if read.total(*spellings(series)) is None]

    @property
    def steering(self) -> tuple[Series, ...]:
        """The key series and the token counters."""
        return (self.running, *self.key, self.prompt, self.generated)


CONTRACTS = (
    Contract(
        engine="vllm",
        read_in="vLLM 0.32.0",
        source="https://docs.vllm.ai/en/latest/usage/metrics/",
        running=("vllm:num_requests_running",),
        prompt=("vllm:prompt_tokens_total",),
        generated=("vllm:generation_tokens_total",),
        key=(
            ("vllm:num_requests_waiting",),
            ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        ),
        more=(
            ("vllm:cache_config_info",),
            ("vllm:request_success_total",),
            ("vllm:num_preemptions_total",),
            ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
            ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
            ("vllm:time_to_first_token_seconds_count",),
            ("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count"),
            ("vllm:e2e_request_latency_seconds_count",),
        ),
    ),
    Contract(
        engine="sglang",
        read_in="SGLang 0.5.23",
        source="https://docs.sglang.ai/references/production_metrics.html",
        running=("sglang:num_running_reqs",),
        prompt=("sglang:prompt_tokens_total",),
        generated=("sglang:generation_tokens_total",),
        key=(("sglang:num_queue_reqs",), ("sglang:token_usage",)),
        more=(
            ("sglang:num_used_tokens",),
            ("sglang:gen_throughput",),
            ("sglang:cache_hit_rate",),
            ("sglang:num_requests_total",),
            ("sglang:time_to_first_token_seconds_count",),
            ("sglang:e2e_request_latency_seconds_count",),
        ),
        running_is_live=False,
    ),
    Contract(
        engine="llama.cpp",
        read_in="llama.cpp b11549",
        source="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
        running=("llamacpp:requests_processing",),
        prompt=("llamacpp:prompt_tokens_total",),
        generated=("llamacpp:tokens_predicted_total",),
        key=(("llamacpp:requests_deferred",),),
        more=(
            ("llamacpp:prompt_seconds_total",),
            ("llamacpp:tokens_predicted_seconds_total",),
            ("llamacpp:n_decode_total",),
        ),
        counts_cached=False,
    ),
    Contract(
        engine="tgi",
        read_in="TGI 3.3.6, from its documentation",
        source="https://huggingface.co/docs/text-generation-inference/reference/metrics",
        running=("tgi_batch_current_size",),
        prompt=("tgi_request_input_length_sum",),
        generated=("tgi_request_generated_tokens_sum",),
        key=(("tgi_queue_size",),),
        more=(("tgi_request_count",), ("tgi_request_success",), ("tgi_request_duration_count",)),
    ),
)


def spellings(series: Series) -> tuple[str, ...]:
    """Return all names under which a series may be found."""
    found = []
    for name in series:
        flat = name.replace(":", "_")
        found += [name, f"ray_{flat}", flat]
    return tuple(dict.fromkeys(found))


def contract_of(read: Metrics, fingerprint: Fingerprint) -> Contract | None:
    """Return the contract whose series are there, else that of the engine that was identified, else ``None``."""
    for contract in CONTRACTS:
        every = (*contract.steering, *contract.more)
        if len(contract.missing(read, every)) < len(every):
            return contract
    engine = fingerprint.value("engine")
    return next((contract for contract in CONTRACTS if contract.engine == engine), None)


def running_in_metrics(exchange: Exchange, fingerprint: Fingerprint) -> int | None:
    """Return how many requests run by the engine's own gauge, summed over engines."""
    read = metrics(exchange)
    contract = contract_of(read, fingerprint)
    if contract is None or not contract.running_is_live:
        return None
    count = read.total(*spellings(contract.running))
    return None if count is None or not math.isfinite(count) else round(count)


def running_in_loads(exchange: Exchange) -> int | None:
    """Return how many requests run by SGLang's ``/v1/loads``: the sum over ranks where it lists them."""
    body = json_body(exchange)
    if isinstance(body, Refusal | Failure):
        return None
    whole = number(dig(body, "num_running_reqs"))
    if whole is not None:
        return whole
    ranks = dig(body, "loads") if isinstance(body, dict) else body
    counts = [number(dig(rank, "num_running_reqs")) for rank in ranks] if isinstance(ranks, list) else []
    return sum(count or 0 for count in counts) if counts and None not in counts else None


def running_in_slots(exchange: Exchange) -> int | None:
    """Return how many of llama.cpp's ``/slots`` are at work."""
    body = json_body(exchange)
    if not isinstance(body, list) or not body:
        return None
    states = [dig(slot, "is_processing") for slot in body]
    return sum(state is True for state in states) if all(isinstance(state, bool) for state in states) else None
