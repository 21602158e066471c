"""Servers whose answers depend on their company more or less; a property has no right side."""

from __future__ import annotations

from servecheck.reference.mutants import Harmless
from servecheck.reference.mutants.prefix_cache_correct import NoLogprobs
from servecheck.reference.mutants.sampling_greedy import (
    BatchFlipsClearChoices,
    BatchFlipsTies,
    SamplesAnyway,
)

__all__ = ["HARMLESS", "MUTANTS"]

MUTANTS = ()

HARMLESS = (
    Harmless(id="batch-flips-ties", server=BatchFlipsTies, source="vllm-project/vllm#23138"),
    Harmless(id="batch-flips-clear-choices", server=BatchFlipsClearChoices),
    Harmless(id="samples-anyway", server=SamplesAnyway),
    Harmless(id="no-logprobs", server=NoLogprobs),
)
