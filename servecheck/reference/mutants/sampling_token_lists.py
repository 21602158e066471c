"""Servers that drop lists of words or tokens, or hear half of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.base import Answer
from servecheck.reference.dropping import Dropping
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import encode

__all__ = ["HARMLESS", "MUTANTS"]

_NAMES = ("bad_words", "allowed_token_ids", "stop_token_ids")


class ListsDropped(Dropping):
    """Takes the three lists for fields that it does not know, and answers 200."""

    def without(self, sampling: Sampling) -> Sampling:
        """Drop them."""
        return replace(sampling, bad_words=(), allowed=None, stop_ids=frozenset())


class BadWordsDropped(ReferenceServer):
    """Keeps ``bad_words`` with the request and never gives them to the sampler."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop them."""
        return replace(super().sampling_of(body), bad_words=())


class AllowedDropped(ReferenceServer):
    """Keeps ``allowed_token_ids`` with the request and never gives them to the sampler."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop them."""
        return replace(super().sampling_of(body), allowed=None)


class ListsRefused(ReferenceServer):
    """Refuses each list by name."""

    def sampling_of(self, body: Event) -> Sampling:
        """Refuse."""
        for name in _NAMES:
            if name in body:
                raise ApiError(f"extra inputs are not permitted: {name}", status=422, param=name)
        return super().sampling_of(body)


class DroppedInStreams(ListsDropped):
    """Drops the lists where the request streams."""

    def drops(self, body: Event) -> bool:
        """Drop them in a stream."""
        return bool(body.get("stream"))


class DroppedOnCompletions(ListsDropped):
    """Drops the lists on the completions route."""

    def drops(self, body: Event) -> bool:
        """Drop them there."""
        return "prompt" in body


class OnlyWithoutSpace(ReferenceServer):
    """Bans a word as it is at the beginning of a text, and not as it is behind a space."""

    def sampling_of(self, body: Event) -> Sampling:
        """Keep one form of each word."""
        words = body.get("bad_words") or ()
        return replace(super().sampling_of(body), bad_words=tuple(encode(word) for word in words))


class LongWordsMissed(ReferenceServer):
    """Bans a word behind a space only where that form has as many tokens as the plain one; long words here do not."""

    def sampling_of(self, body: Event) -> Sampling:
        """Keep short words."""
        found = super().sampling_of(body)
        longest = max((len(word) for word in body.get("bad_words") or ()), default=0)
        return replace(found, bad_words=()) if longest > 4 else found


class FirstTokenOnly(ReferenceServer):
    """Confines the first token to those allowed, and lets all others come."""

    def steps(self, job: Job, index: int, generated: list[int]) -> Iterator[Any]:
        """Free the rest."""
        if job.sampling.allowed is None:
            yield from super().steps(job, index, generated)
            return
        kept = super().steps(replace(job, limit=1), index, generated)
        yield (next(kept)[0], None, None)
        yield from super().steps(replace(job, sampling=replace(job.sampling, allowed=None)), index, generated)


class AllowedNeedsTemperature(ReferenceServer):
    """Applies ``allowed_token_ids`` on its greedy path only."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop it where the request names no temperature."""
        found = super().sampling_of(body)
        return found if "temperature" in body else replace(found, allowed=None)


class StopsLate(ReferenceServer):
    """Looks for stop tokens only before each next token: one more token comes, and it is in the text."""

    def steps(self, job: Job, index: int, generated: list[int]) -> Iterator[Any]:
        """Stop one token late."""
        stops = job.sampling.stop_ids
        free = replace(job, sampling=replace(job.sampling, stop_ids=frozenset()))
        for step, finish, reason in super().steps(free, index, generated):
            if finish is None and stops.intersection(generated[:-1]):
                yield step, "length", None
                return
            yield step, finish, reason


class StopSaysLength(ReferenceServer):
    """Ends the text at a stop token, and says that it ran to its limit."""

    def steps(self, job: Job, index: int, generated: list[int]) -> Iterator[Any]:
        """Change the reason."""
        for step, finish, reason in super().steps(job, index, generated):
            yield step, "length" if isinstance(reason, int) else finish, reason


class ListCrashes(ReferenceServer):
    """Answers 500 where a list is given."""

    def sampling_of(self, body: Event) -> Sampling:
        """Fail."""
        if any(name in body for name in _NAMES):
            raise ApiError("index out of range in the logits processor", status=500, kind="InternalServerError")
        return super().sampling_of(body)


class NoIdsInAnswers(ReferenceServer):
    """Tells ids by ``/tokenize`` alone."""

    def token_ids(self, job: Job, answer: Answer) -> Event:  # noqa: ARG002
        """Tell none."""
        return {}


class StopTokenShown(ReferenceServer):
    """Shows the stop token in the text, as its documentation says it may."""

    def steps(self, job: Job, index: int, generated: list[int]) -> Iterator[Any]:
        """Let the token be seen, and end behind it."""
        stops = job.sampling.stop_ids
        free = replace(job, sampling=replace(job.sampling, stop_ids=frozenset()))
        for step, finish, reason in super().steps(free, index, generated):
            if finish is None and step.token in stops:
                yield step, "shown", step.token
                return
            yield step, finish, reason

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Name the reason."""
        return _stopped(super().chat_choice(job, answer))

    def text_choice(self, job: Job, answer: Answer) -> Event:
        """Name the reason."""
        return _stopped(super().text_choice(job, answer))

    def chunk(self, *given: Any, **more: Any) -> Event:  # noqa: ANN401
        """Name the reason."""
        event = super().chunk(*given, **more)
        return {**event, "choices": [_stopped(choice) for choice in event["choices"]]}


def _stopped(choice: Event) -> Event:
    return {**choice, "finish_reason": "stop"} if choice["finish_reason"] == "shown" else choice


class NoCompletions(ReferenceServer):
    """Serves chat only."""

    async def reply_completions(self, request: Request) -> Reply:
        """Offer no route."""
        raise ApiError(f"no route {request.path}", status=404)


_N, _V, _R = Outcome.NO_EFFECT, Outcome.VIOLATED, Outcome.REFUSED
_AWAY, _ONLY, _ENDS = "bad-word-stays-away", "only-allowed-tokens-come", "stop-token-ends-the-text"
_ALL_N = ((_AWAY, _N), (_ONLY, _N), (_ENDS, _N))
_TGI = "huggingface/text-generation-inference#1794"

MUTANTS = (
    Mutant(id="lists-dropped", server=ListsDropped, trips=_ALL_N, source=_TGI),
    Mutant(id="bad-words-dropped", server=BadWordsDropped, trips=((_AWAY, _N),), source="vllm-project/vllm#13376"),
    Mutant(id="allowed-dropped", server=AllowedDropped, trips=((_ONLY, _N),), source="vllm-project/vllm#32163"),
    Mutant(id="lists-refused", server=ListsRefused, trips=((_AWAY, _R), (_ONLY, _R), (_ENDS, _R))),
    Mutant(id="lists-crash", server=ListCrashes, trips=((_AWAY, _V), (_ONLY, _V), (_ENDS, _V))),
    Mutant(id="dropped-in-streams", server=DroppedInStreams, trips=_ALL_N),
    Mutant(id="dropped-on-completions", server=DroppedOnCompletions, trips=_ALL_N, source=_TGI),
    Mutant(id="only-without-space", server=OnlyWithoutSpace, trips=((_AWAY, _N),), source="NVIDIA/TensorRT-LLM#15706"),
    Mutant(
        id="long-words-missed",
        server=LongWordsMissed,
        trips=(("every-bad-word-stays-away", _V),),
        source="vllm-project/vllm#32557",
    ),
    Mutant(id="first-token-only", server=FirstTokenOnly, trips=((_ONLY, _V),), source="vllm-project/vllm#57986"),
    Mutant(id="allowed-needs-temperature", server=AllowedNeedsTemperature, trips=((_ONLY, _N),)),
    Mutant(id="stops-late", server=StopsLate, trips=((_ENDS, _V),)),
    Mutant(id="stop-says-length", server=StopSaysLength, trips=((_ENDS, _V),)),
)

HARMLESS = (
    Harmless(id="no-ids-in-answers", server=NoIdsInAnswers),
    Harmless(id="stop-token-shown", server=StopTokenShown),
    Harmless(id="no-completions", server=NoCompletions),
)
