"""Counters of the reference server as Prometheus text, under the names that vLLM uses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Histogram", "Metrics"]

_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)


@dataclass(slots=True)
class Histogram:
    """Observed seconds, in cumulative buckets."""

    counts: Counter[float] = field(default_factory=Counter)
    total: float = 0.0
    seen: int = 0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self.total += seconds
        self.seen += 1
        self.counts.update(bound for bound in _BOUNDS if seconds <= bound)

    def lines(self, name: str, labels: str) -> list[str]:
        """Return the exposition lines."""
        buckets = [f'{name}_bucket{{{labels},le="{bound}"}} {self.counts[bound]}.0' for bound in _BOUNDS]
        infinite = f'{name}_bucket{{{labels},le="+Inf"}} {self.seen}.0'
        return [*buckets, infinite, f"{name}_count{{{labels}}} {self.seen}.0", f"{name}_sum{{{labels}}} {self.total!r}"]


@dataclass(slots=True)
class Metrics:
    """What the server counts. ``running`` and ``waiting`` are choices, not requests, as in engines."""

    running: int = 0
    waiting: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    cache_queries: int = 0
    cache_hits: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    first_token: Histogram = field(default_factory=Histogram)
    between_tokens: Histogram = field(default_factory=Histogram)
    whole: Histogram = field(default_factory=Histogram)

    def text(self, *, model: str, block: int, blocks: int, used: int = 0) -> str:
        """Return the Prometheus exposition; ``block`` is the cache block size in tokens, ``used`` blocks are full."""
        labels = f'engine="0",model_name="{model}"'
        lines: list[str] = []

        def family(name: str, kind: str, samples: list[str]) -> None:
            lines.extend((f"# HELP vllm:{name} {name.replace('_', ' ')}.", f"# TYPE vllm:{name} {kind}", *samples))

        for name, value in (("num_requests_running", self.running), ("num_requests_waiting", self.waiting)):
            family(name, "gauge", [f"vllm:{name}{{{labels}}} {value}.0"])
        family("kv_cache_usage_perc", "gauge", [f"vllm:kv_cache_usage_perc{{{labels}}} {used / blocks!r}"])
        for name, value in (
            ("num_preemptions", 0),
            ("prompt_tokens", self.prompt_tokens),
            ("generation_tokens", self.generation_tokens),
            ("prefix_cache_queries", self.cache_queries),
            ("prefix_cache_hits", self.cache_hits),
        ):
            family(name, "counter", [f"vllm:{name}_total{{{labels}}} {value}.0"])
        reasons = ("stop", "length", "abort", "error")
        ended = [
            f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {self.finished[reason]}.0'
            for reason in reasons
        ]
        family("request_success", "counter", ended)
        settings = f'block_size="{block}",enable_prefix_caching="True",num_gpu_blocks="{blocks}"'
        family("cache_config_info", "gauge", [f'vllm:cache_config_info{{{settings},engine="0"}} 1.0'])
        for name, histogram in (
            ("time_to_first_token_seconds", self.first_token),
            ("inter_token_latency_seconds", self.between_tokens),
            ("e2e_request_latency_seconds", self.whole),
        ):
            family(name, "histogram", histogram.lines(f"vllm:{name}", labels))
        return "\n".join(lines) + "\n"
