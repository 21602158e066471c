"""The names of what is known of a server, seen or declared; a list, so names that are not in it are no mistake."""

from __future__ import annotations

__all__ = ["FIELDS", "SETTINGS"]

FIELDS = (
    "engine",
    "engine_version",
    "gateway",
    "model",
    "max_model_len",
    "quantization",
    "dtype",
    "kv_cache_dtype",
    "block_size",
    "prefix_caching",
    "parallelism",
    "device",
    "tpu_stack",
    "system_fingerprint",
)
"""The fields of every fingerprint, in display order. ``device`` and ``tpu_stack`` are seldom visible on the wire.

Behind them stand :data:`SETTINGS` where they are known, and whatever else the user declares.
"""

SETTINGS = (
    "architecture",
    "slots",
    "tool_call_parser",
    "reasoning_parser",
    "template_tools",
    "cache_report",
    "deterministic",
    "gateway_version",
    "session_affinity",
    "accelerator",
    "precision",
)
"""Fields that only some engines show or that users declare; ``session_affinity`` is the header that a client sends back
to stay with one replica.
"""
