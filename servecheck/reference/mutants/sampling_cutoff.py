"""Samplers that drop a cut-off, and one that is only written another way."""

from __future__ import annotations

from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class MinPDropped(ReferenceServer):
    """Accepts ``min_p`` and samples as if it were absent."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop ``min_p``."""
        return replace(super().sampling_of(body), min_p=0.0)


class TopKDropped(ReferenceServer):
    """Accepts ``top_k`` and samples as if it were absent."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop ``top_k``."""
        return replace(super().sampling_of(body), top_k=0)


class TopPDropped(ReferenceServer):
    """Accepts ``top_p`` and samples as if it were absent."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop ``top_p``."""
        return replace(super().sampling_of(body), top_p=1.0)


class MinPRefused(ReferenceServer):
    """Refuses ``min_p`` by name."""

    def sampling_of(self, body: Event) -> Sampling:
        """Refuse ``min_p``."""
        if body.get("min_p") is not None:
            raise ApiError("min_p is not supported on this device", param="min_p")
        return super().sampling_of(body)


def _uncut(sampling: Sampling) -> Sampling:
    return replace(sampling, top_p=1.0, top_k=0, min_p=0.0)


class DroppedOnChat(ReferenceServer):
    """Keeps only a few sampling fields on the chat route, no cut-off among them; completions have them all."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop cut-offs of a chat."""
        found = super().sampling_of(body)
        return _uncut(found) if "messages" in body else found


class DroppedOnCompletions(ReferenceServer):
    """Drops cut-offs on the completions route."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop cut-offs of a completion."""
        found = super().sampling_of(body)
        return _uncut(found) if "prompt" in body else found


class DroppedInStreams(ReferenceServer):
    """Drops cut-offs where the request streams."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop cut-offs of a stream."""
        found = super().sampling_of(body)
        return _uncut(found) if body.get("stream") else found


class CutOffNeedsTemperature(ReferenceServer):
    """Applies cut-offs only where the request names a temperature too."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop every cut-off of a request without a temperature."""
        found = super().sampling_of(body)
        return found if "temperature" in body else _uncut(found)


class OwnCutOffs(ReferenceServer):
    """Keeps mild cut-offs of its own where a request names none, as llama.cpp does."""

    def sampling_of(self, body: Event) -> Sampling:
        """Add ``top_k 40`` and ``min_p 0.05`` where they are absent."""
        found = super().sampling_of(body)
        return replace(
            found,
            top_k=found.top_k if "top_k" in body else 40,
            min_p=found.min_p if "min_p" in body else 0.05,
        )


_DROPPED = (("cut-to-one-token-is-greedy", Outcome.NO_EFFECT),)

MUTANTS = (
    Mutant(id="min-p-dropped", server=MinPDropped, trips=_DROPPED, source="vllm-project/tpu-inference#3213"),
    Mutant(id="top-k-dropped", server=TopKDropped, trips=_DROPPED),
    Mutant(id="top-p-dropped", server=TopPDropped, trips=_DROPPED),
    Mutant(id="min-p-refused", server=MinPRefused, trips=(("cut-to-one-token-is-greedy", Outcome.REFUSED),)),
    Mutant(
        id="dropped-on-chat",
        server=DroppedOnChat,
        trips=_DROPPED,
        source="huggingface/text-generation-inference#1794",
    ),
    Mutant(id="dropped-on-completions", server=DroppedOnCompletions, trips=_DROPPED),
    Mutant(id="dropped-in-streams", server=DroppedInStreams, trips=_DROPPED),
    Mutant(
        id="cut-off-needs-temperature",
        server=CutOffNeedsTemperature,
        trips=(("cut-off-works-alone", Outcome.VIOLATED),),
    ),
)

HARMLESS = (Harmless(id="own-mild-cut-offs", server=OwnCutOffs),)
