"""Counters of speculative decoding as Prometheus text, under the names that vLLM uses; nothing is drafted."""

from __future__ import annotations

__all__ = ["speculation"]


def speculation(model: str, drafts: int, proposed: int, accepted: int) -> str:
    """Return the exposition lines."""
    labels = f'engine="0",model_name="{model}"'
    values = {"num_drafts": drafts, "num_draft_tokens": proposed, "num_accepted_tokens": accepted}
    return "".join(
        f"# HELP vllm:spec_decode_{name} {name}.\n# TYPE vllm:spec_decode_{name} counter\n"
        f"vllm:spec_decode_{name}_total{{{labels}}} {value}.0\n"
        for name, value in values.items()
    )
