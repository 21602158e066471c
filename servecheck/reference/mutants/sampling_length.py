"""Servers that end when they like, or pass over an end token that they should have made impossible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer
from servecheck.reference.engine import Job, Step
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import SPECIAL

__all__ = ["HARMLESS", "MUTANTS", "EndNotMasked"]


class LengthsDropped(ReferenceServer):
    """Takes ``min_tokens`` and ``ignore_eos`` for fields that it does not know."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop them."""
        return replace(super().sampling_of(body), min_tokens=0, ignore_eos=False)


class EndNotMasked(ReferenceServer):
    """Does not stop before ``min_tokens``, and lets the sampler draw end tokens all the same."""

    def steps(self, job: Job, index: int, generated: list[int]) -> Iterator[Any]:
        """Pass over end tokens that come too early."""
        least = job.sampling.min_tokens
        if not least:
            yield from super().steps(job, index, generated)
            return
        free = replace(job, sampling=replace(job.sampling, min_tokens=0, ignore_eos=True))
        for step, finish, reason in super().steps(free, index, generated):
            if finish is None and len(generated) >= least and step.token in self.ends_at(job):
                yield step, "stop", None
                return
            yield step, finish, reason


class EndsShort(ReferenceServer):
    """Keeps an answer from ending, but counts from the wrong token, and ends three tokens before ``min_tokens``."""

    def steps(self, job: Job, index: int, generated: list[int]) -> Iterator[Any]:
        """End there."""
        least = job.sampling.min_tokens
        for step, finish, reason in super().steps(job, index, generated):
            if finish is None and least and len(generated) == least - 3:
                yield step, "stop", None
                return
            yield step, finish, reason


class LengthsRefused(ReferenceServer):
    """Refuses both by name."""

    def sampling_of(self, body: Event) -> Sampling:
        """Refuse."""
        for name in ("min_tokens", "ignore_eos"):
            if name in body:
                raise ApiError(f"unknown field {name}", status=422, param=name)
        return super().sampling_of(body)


class DroppedInStreams(ReferenceServer):
    """Drops both where the request streams."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop them in a stream."""
        found = super().sampling_of(body)
        return replace(found, min_tokens=0, ignore_eos=False) if body.get("stream") else found


class StopsStill(ReferenceServer):
    """Ignores the end token as asked, but ends at the stop tokens of the model's configuration, which it is one of."""

    def sampling_of(self, body: Event) -> Sampling:
        """Keep ending."""
        return replace(super().sampling_of(body), ignore_eos=False)


class MovesTheLimit(ReferenceServer):
    """Runs on past an end token, and stops a few tokens before its limit, calling that ``length``."""

    def steps(self, job: Job, index: int, generated: list[int]) -> Iterator[Any]:
        """End early."""
        short = replace(job, limit=max(1, job.limit - 3)) if job.sampling.ignore_eos else job
        return super().steps(short, index, generated)


class EndHidden(ReferenceServer):
    """Leaves the end token out of logprobs and ids, as some engines do."""

    def chat_logprobs(self, job: Job, steps: Any) -> Event | None:  # noqa: ANN401
        """Leave special tokens out."""
        return super().chat_logprobs(job, [step for step in steps if step.token not in SPECIAL])

    def token_ids(self, job: Job, answer: Answer) -> Event:
        """Leave special tokens out."""
        found = super().token_ids(job, answer)
        return {name: [token for token in ids if token not in SPECIAL] for name, ids in found.items()}


class EndWithoutText(ReferenceServer):
    """Shows an end token's logprob without a text, as llama.cpp does, and gives ids there."""

    def logprob_entry(self, step: Step) -> Event:
        """Empty the text."""
        entry = super().logprob_entry(step)
        return {**entry, "id": step.token, "token": "" if step.token in SPECIAL else entry["token"]}


_N, _V, _R = Outcome.NO_EFFECT, Outcome.VIOLATED, Outcome.REFUSED
_REACHED, _NO_END = "min-tokens-are-reached", "no-end-token-inside-min-tokens"
_RUNS = "answer-runs-to-its-limit"

MUTANTS = (
    Mutant(
        id="lengths-dropped",
        server=LengthsDropped,
        trips=((_REACHED, _N), (_RUNS, _N)),
        source="ai-dynamo/dynamo#2023",
    ),
    Mutant(id="end-not-masked", server=EndNotMasked, trips=((_NO_END, _V),), source="vllm-project/tpu-inference#1524"),
    Mutant(id="ends-short", server=EndsShort, trips=((_REACHED, _V),), source="vllm-project/vllm#15967"),
    Mutant(id="lengths-refused", server=LengthsRefused, trips=((_REACHED, _R), (_RUNS, _R))),
    Mutant(id="dropped-in-streams", server=DroppedInStreams, trips=((_REACHED, _N), (_RUNS, _N))),
    Mutant(id="stops-still", server=StopsStill, trips=((_RUNS, _N),), source="vllm-project/vllm#4589"),
    Mutant(id="moves-the-limit", server=MovesTheLimit, trips=((_RUNS, _V),)),
)

HARMLESS = (
    Harmless(id="end-hidden", server=EndHidden),
    Harmless(id="end-without-text", server=EndWithoutText),
)
