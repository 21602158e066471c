"""A simulated TPU endpoint: it samples as two back ends for TPUs were read to do. A hypothesis to test with, no fact.

Modelled on pre-release source: a seed is refused where it would matter, ``temperature``, ``top_p`` and ``top_k`` work,
the sampler hears of no other parameter, and end tokens are passed over but not masked before ``min_tokens``.
"""

from __future__ import annotations

from dataclasses import replace

from servecheck.reference.asgi import Event
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants.sampling_length import EndNotMasked
from servecheck.reference.sampling import Sampling

__all__ = ["TpuLike"]


class TpuLike(EndNotMasked):
    """Takes every sampling parameter with a 200, a seed apart, and honours three of them."""

    def seed_of(self, body: Event) -> int | None:
        """Refuse a seed for a request that samples."""
        if body.get("seed") is not None and body.get("temperature") != 0:
            raise ApiError("JAX does not support per-request seed.", kind="BadRequestError", code="400")
        return super().seed_of(body)

    def sampling_of(self, body: Event) -> Sampling:
        """Check all fields, and leave those out that the sampler does not know."""
        found = super().sampling_of(body)
        return replace(
            found,
            min_p=0.0,
            frequency_penalty=0.0,
            presence_penalty=0.0,
            repetition_penalty=1.0,
            logit_bias={},
            bad_words=(),
            allowed=None,
        )
