"""Samplers that drop or distort penalties on repetition, and one that counts the prompt too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.dropping import Dropping
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_NAMES = ("frequency_penalty", "presence_penalty", "repetition_penalty")


class PenaltiesDropped(Dropping):
    """Accepts all three penalties and samples as if they were absent."""

    def without(self, sampling: Sampling) -> Sampling:
        """Drop them."""
        return replace(sampling, frequency_penalty=0.0, presence_penalty=0.0, repetition_penalty=1.0)


class PresenceDropped(ReferenceServer):
    """Applies the other penalties and drops ``presence_penalty``."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop one."""
        return replace(super().sampling_of(body), presence_penalty=0.0)


class OtherName(ReferenceServer):
    """Calls the field ``repeat_penalty``, and takes ``repetition_penalty`` for a field that it does not know."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop it."""
        return replace(super().sampling_of(body), repetition_penalty=1.0)


class PenaltiesRefused(ReferenceServer):
    """Refuses each penalty by name."""

    def sampling_of(self, body: Event) -> Sampling:
        """Refuse."""
        for name in _NAMES:
            if body.get(name):
                raise ApiError(f"{name} is not supported on this device", param=name)
        return super().sampling_of(body)


class PenaltiesCrash(ReferenceServer):
    """Answers 500 to a request with a penalty."""

    def sampling_of(self, body: Event) -> Sampling:
        """Fail."""
        if any(body.get(name) for name in _NAMES):
            raise ApiError("shape mismatch in apply_penalties", status=500, kind="InternalServerError")
        return super().sampling_of(body)


class WrongSign(ReferenceServer):
    """Adds penalties where it should subtract them, so that texts repeat themselves more."""

    def sampling_of(self, body: Event) -> Sampling:
        """Turn the signs."""
        found = super().sampling_of(body)
        return replace(
            found,
            frequency_penalty=-3 * found.frequency_penalty,
            presence_penalty=-3 * found.presence_penalty,
            repetition_penalty=1 / found.repetition_penalty,
        )


class DroppedInStreams(PenaltiesDropped):
    """Drops penalties where the request streams."""

    def drops(self, body: Event) -> bool:
        """Drop them in a stream."""
        return bool(body.get("stream"))


class DroppedOnCompletions(PenaltiesDropped):
    """Drops penalties on the completions route."""

    def drops(self, body: Event) -> bool:
        """Drop them there."""
        return "prompt" in body


class TooWeak(ReferenceServer):
    """Reads each penalty as a hundredth of what it is."""

    def sampling_of(self, body: Event) -> Sampling:
        """Weaken."""
        found = super().sampling_of(body)
        return replace(
            found,
            frequency_penalty=found.frequency_penalty / 100,
            presence_penalty=found.presence_penalty / 100,
            repetition_penalty=1 + (found.repetition_penalty - 1) / 100,
        )


class CountsThePrompt(ReferenceServer):
    """Counts the prompt's own tokens too, as llama.cpp does with those in its window."""

    def steps(self, job: Job, index: int, generated: list[int]) -> Iterator[Any]:
        """Bias what the prompt holds."""
        cost = job.sampling.frequency_penalty + job.sampling.presence_penalty
        window = job.prompt(index).ids[-16:]
        bias = {**dict.fromkeys(window, -cost), **job.sampling.logit_bias} if cost else job.sampling.logit_bias
        return super().steps(replace(job, sampling=replace(job.sampling, logit_bias=bias)), index, generated)


class NoIgnoreEos(ReferenceServer):
    """Refuses ``ignore_eos`` and logprobs; penalties work."""

    def sampling_of(self, body: Event) -> Sampling:
        """Refuse."""
        for name in ("ignore_eos", "logprobs"):
            if name in body:
                raise ApiError(f"unknown field {name}", status=422, param=name)
        return super().sampling_of(body)


_N, _V, _R = Outcome.NO_EFFECT, Outcome.VIOLATED, Outcome.REFUSED
_LESS = "penalty-lessens-repeats"

MUTANTS = (
    Mutant(id="penalties-dropped", server=PenaltiesDropped, trips=((_LESS, _N),), source="tenstorrent/tt-xla#3331"),
    Mutant(id="presence-dropped", server=PresenceDropped, trips=((_LESS, _N),), source="tenstorrent/tt-xla#3331"),
    Mutant(id="other-name", server=OtherName, trips=((_LESS, _N),)),
    Mutant(id="penalties-refused", server=PenaltiesRefused, trips=((_LESS, _R),)),
    Mutant(id="penalties-crash", server=PenaltiesCrash, trips=((_LESS, _V),)),
    Mutant(id="wrong-sign", server=WrongSign, trips=((_LESS, _V),)),
    Mutant(
        id="dropped-in-streams",
        server=DroppedInStreams,
        trips=((_LESS, _N),),
        source="huggingface/text-generation-inference#1794",
    ),
    Mutant(
        id="dropped-on-completions",
        server=DroppedOnCompletions,
        trips=((_LESS, _N),),
        source="huggingface/text-generation-inference#1794",
    ),
    Mutant(id="too-weak", server=TooWeak, trips=((_LESS, _N),)),
)

HARMLESS = (
    Harmless(id="counts-the-prompt", server=CountsThePrompt),
    Harmless(id="no-ignore-eos", server=NoIgnoreEos, models=("obedient", "babbling", "reasoning")),
)
