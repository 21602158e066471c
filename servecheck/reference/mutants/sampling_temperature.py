"""Servers that are always greedy or never, and ones that only look so."""

from __future__ import annotations

from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class AlwaysGreedy(ReferenceServer):
    """Accepts a temperature and always takes the best token."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop the temperature."""
        return replace(super().sampling_of(body), temperature=0.0)


class NeverGreedy(ReferenceServer):
    """Treats temperature 0 as absent and samples at 1."""

    def sampling_of(self, body: Event) -> Sampling:
        """Turn 0 into 2, as a falsy value that falls back to a default."""
        found = super().sampling_of(body)
        return replace(found, temperature=found.temperature or 2.0)


class OneSeedForAll(ReferenceServer):
    """Samples every request without a seed with the same one, so hot answers never vary."""

    def seed_of(self, body: Event) -> int | None:
        """Return a constant where the request names no seed."""
        found = super().seed_of(body)
        return 1 if found is None else found


class GreedyInStreams(ReferenceServer):
    """Drops the temperature where the request streams, and is greedy there."""

    def sampling_of(self, body: Event) -> Sampling:
        """Cool streams down."""
        found = super().sampling_of(body)
        return replace(found, temperature=0.0) if body.get("stream") else found


class GreedyCompletions(ReferenceServer):
    """Drops the temperature on the completions route, and is greedy there."""

    def sampling_of(self, body: Event) -> Sampling:
        """Cool completions down."""
        found = super().sampling_of(body)
        return replace(found, temperature=0.0) if "prompt" in body else found


class HotRefused(ReferenceServer):
    """Refuses temperatures above 1 by name."""

    def sampling_of(self, body: Event) -> Sampling:
        """Refuse what other servers take."""
        found = super().sampling_of(body)
        if found.temperature > 1:
            raise ApiError("temperature must be in [0, 1]", param="temperature")
        return found


class SmallTemperature(ReferenceServer):
    """Turns temperature 0 into a tiny one, as some engines do; greedy all the same."""

    def sampling_of(self, body: Event) -> Sampling:
        """Never let the temperature be 0."""
        found = super().sampling_of(body)
        return replace(found, temperature=max(found.temperature, 0.01))


MUTANTS = (
    Mutant(
        id="always-greedy",
        server=AlwaysGreedy,
        trips=(("hot-answers-vary", Outcome.NO_EFFECT),),
    ),
    Mutant(
        id="never-greedy",
        server=NeverGreedy,
        trips=(("cold-answers-hardly-vary", Outcome.NO_EFFECT),),
        models=("obedient", "babbling", "reasoning"),
    ),
    Mutant(
        id="one-seed-for-all",
        server=OneSeedForAll,
        trips=(("hot-answers-vary", Outcome.VIOLATED),),
        models=("obedient", "babbling", "reasoning"),
    ),
    Mutant(id="greedy-in-streams", server=GreedyInStreams, trips=(("hot-answers-vary", Outcome.NO_EFFECT),)),
    Mutant(id="greedy-completions", server=GreedyCompletions, trips=(("hot-answers-vary", Outcome.NO_EFFECT),)),
    Mutant(id="hot-refused", server=HotRefused, trips=(("hot-answers-vary", Outcome.REFUSED),)),
)

HARMLESS = (Harmless(id="tiny-temperature-for-0", server=SmallTemperature),)
