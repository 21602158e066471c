"""Completions whose logprobs are missing, of another shape or out of step, and ones that only count otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.engine import Job, Prompt, Step
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import SPECIAL

__all__ = ["HARMLESS", "MUTANTS"]


class _Changing(ReferenceServer):
    """Changes the arrays; subclasses say how."""

    def change(self, made: Event, job: Job, steps: Sequence[Step]) -> Event | None:
        """Return what is sent in place of ``made``."""
        raise NotImplementedError

    def text_logprobs(
        self, job: Job, prompt: Prompt, steps: Sequence[Step], *, echo: bool, start: int = 0
    ) -> Event | None:
        """Change the arrays where there are any."""
        made = super().text_logprobs(job, prompt, steps, echo=echo, start=start)
        return None if made is None else self.change(made, job, steps)


# --------------------------------------------------------------------------- broken


class CompletionNull(_Changing):
    """Takes ``logprobs`` and answers with null."""

    def change(self, made: Event, job: Job, steps: Sequence[Step]) -> Event | None:  # noqa: ARG002
        """Give nothing."""
        return None


class NullInStreams(_Changing):
    """Gives the arrays in whole completions and null in streams."""

    def change(self, made: Event, job: Job, steps: Sequence[Step]) -> Event | None:  # noqa: ARG002
        """Give nothing where a stream was asked for."""
        return None if job.stream else made


class CompletionZeroIsOff(_Changing):
    """Takes ``logprobs`` 0 for "no logprobs"."""

    def change(self, made: Event, job: Job, steps: Sequence[Step]) -> Event | None:  # noqa: ARG002
        """Give nothing for 0."""
        return made if job.logprobs else None


class CompletionZeroFails(ReferenceServer):
    """Takes zero alternatives for "off" in the sampler and not in the formatter: HTTP 500."""

    def completions_job(self, body: Event) -> Job:
        """Fail."""
        if body.get("logprobs") == 0:
            raise ApiError("list index out of range", status=500, kind="InternalServerError")
        return super().completions_job(body)


class CompletionInfinityFails(ReferenceServer):
    """Cannot write the minus infinity of a token that ``top_p`` has cut off: HTTP 500."""

    def completions_job(self, body: Event) -> Job:
        """Fail where something is cut off."""
        if body.get("logprobs") and body.get("top_p", 1) < 1:
            raise ApiError("Out of range float values are not JSON compliant", status=500, kind="InternalServerError")
        return super().completions_job(body)


class CompletionRefused(ReferenceServer):
    """Refuses ``logprobs`` by name."""

    def completions_job(self, body: Event) -> Job:
        """Refuse."""
        if body.get("logprobs") is not None:
            raise ApiError("logprobs is not supported for completions", param="logprobs")
        return super().completions_job(body)


class ChatShape(_Changing):
    """Answers with the chat route's list of objects."""

    def change(self, made: Event, job: Job, steps: Sequence[Step]) -> Event | None:  # noqa: ARG002
        """Make the list."""
        return {"content": [self.logprob_entry(step) for step in steps]}


class OffsetsAreMinusOne(_Changing):
    """Gives -1 for every offset."""

    def change(self, made: Event, job: Job, steps: Sequence[Step]) -> Event | None:  # noqa: ARG002
        """Give no offset."""
        return {**made, "text_offset": [-1 for _ in made["text_offset"]]}


class OffsetsCountTokens(_Changing):
    """Counts tokens in place of characters."""

    def change(self, made: Event, job: Job, steps: Sequence[Step]) -> Event | None:  # noqa: ARG002
        """Count tokens."""
        return {**made, "text_offset": list(range(len(made["text_offset"])))}


class TopOneShortInAll(_Changing):
    """Leaves the last token out of ``top_logprobs`` alone."""

    def change(self, made: Event, job: Job, steps: Sequence[Step]) -> Event | None:  # noqa: ARG002
        """Drop it."""
        return {**made, "top_logprobs": made["top_logprobs"][:-1]}


class OnlyTheFirstTokenOfAStep(ReferenceServer):
    """Reports every other token, as where two are decoded in one step."""

    def text_logprobs(
        self, job: Job, prompt: Prompt, steps: Sequence[Step], *, echo: bool, start: int = 0
    ) -> Event | None:
        """Drop every other entry."""
        return super().text_logprobs(job, prompt, steps[::2], echo=echo, start=start)


class FirstAlternativeForTheToken(_Changing):
    """Reports an alternative in place of the token that was taken."""

    def change(self, made: Event, job: Job, steps: Sequence[Step]) -> Event | None:  # noqa: ARG002
        """Name the last alternative."""
        if job.stream:
            return made
        return {**made, "tokens": [list(top)[-1] if top else "?" for top in made["top_logprobs"]]}


class FirstIsAProbability(_Changing):
    """Gives the first token its probability and the others their logarithms."""

    def change(self, made: Event, job: Job, steps: Sequence[Step]) -> Event | None:  # noqa: ARG002
        """Undo the first logarithm."""
        first, *others = made["token_logprobs"]
        return {**made, "token_logprobs": [math.exp(first), *others]}


class OnlyTheChosen(_Changing):
    """Gives no alternatives, however many are asked for."""

    def change(self, made: Event, job: Job, steps: Sequence[Step]) -> Event | None:  # noqa: ARG002
        """Keep the token alone."""
        pairs = zip(made["tokens"], made["token_logprobs"], strict=True)
        return {**made, "top_logprobs": [{token: value} for token, value in pairs]}


# --------------------------------------------------------------------------- odd, but right


class OffsetsFromThePrompt(ReferenceServer):
    """Counts offsets from the beginning of the prompt, as OpenAI does."""

    def text_logprobs(
        self, job: Job, prompt: Prompt, steps: Sequence[Step], *, echo: bool, start: int = 0
    ) -> Event | None:
        """Add the prompt's length."""
        return super().text_logprobs(job, prompt, steps, echo=echo, start=start + len(prompt.text))


class NoEntryForTheEnd(ReferenceServer):
    """Gives no entry for the end token."""

    def text_logprobs(
        self, job: Job, prompt: Prompt, steps: Sequence[Step], *, echo: bool, start: int = 0
    ) -> Event | None:
        """Leave it out."""
        kept = [step for step in steps if step.token not in SPECIAL]
        return super().text_logprobs(job, prompt, kept, echo=echo, start=start)


class MaskedAlternatives(ReferenceServer):
    """Writes -9999.0 for a token that was cut off."""

    def text_logprobs(
        self, job: Job, prompt: Prompt, steps: Sequence[Step], *, echo: bool, start: int = 0
    ) -> Event | None:
        """Mask all but the first alternative."""
        masked = [
            replace(step, top=(*step.top[:1], *((token, -9999.0) for token, _ in step.top[1:]))) for step in steps
        ]
        return super().text_logprobs(job, prompt, masked, echo=echo, start=start)


class NullTopForZero(_Changing):
    """Gives null for ``top_logprobs`` where none were asked for."""

    def change(self, made: Event, job: Job, steps: Sequence[Step]) -> Event | None:  # noqa: ARG002
        """Leave the alternatives out."""
        return made if job.logprobs else {**made, "top_logprobs": None}


_N, _V = Outcome.NO_EFFECT, Outcome.VIOLATED
_GIVEN, _FAILS = "completion-logprobs-are-given", "no-number-of-completion-logprobs-fails"
_LENGTHS, _OFFSETS = "completion-arrays-are-equally-long", "text-offsets-find-the-tokens"

MUTANTS = (
    Mutant(id="null-though-asked", server=CompletionNull, trips=((_GIVEN, _N),), source="ggml-org/llama.cpp#11346"),
    Mutant(id="null-in-streams", server=NullInStreams, trips=((_GIVEN, _N),), source="kekzl/imp#1589"),
    Mutant(
        id="zero-is-off",
        server=CompletionZeroIsOff,
        trips=(("zero-completion-logprobs-gives-values", _N),),
        source="sgl-project/sglang#2301",
    ),
    Mutant(
        id="zero-fails", server=CompletionZeroFails, trips=((_FAILS, _V),), source="vllm-project/tpu-inference#3572"
    ),
    Mutant(
        id="infinity-fails", server=CompletionInfinityFails, trips=((_FAILS, _V),), source="sgl-project/sglang#5984"
    ),
    Mutant(id="refused", server=CompletionRefused, trips=((_GIVEN, Outcome.REFUSED),)),
    Mutant(
        id="chat-shape",
        server=ChatShape,
        trips=(("completion-logprobs-are-the-four-arrays", _V),),
        source="kekzl/imp#1589",
    ),
    Mutant(id="offsets-are-minus-one", server=OffsetsAreMinusOne, trips=((_OFFSETS, _V),)),
    Mutant(id="offsets-count-tokens", server=OffsetsCountTokens, trips=((_OFFSETS, _V),)),
    Mutant(id="top-one-short", server=TopOneShortInAll, trips=((_LENGTHS, _V),)),
    Mutant(
        id="first-token-of-a-step",
        server=OnlyTheFirstTokenOfAStep,
        trips=((_LENGTHS, _V),),
        source="theroyallab/tabbyAPI#141",
    ),
    Mutant(
        id="alternative-for-the-token",
        server=FirstAlternativeForTheToken,
        trips=(("completion-tokens-are-the-text", _V),),
        source="theroyallab/tabbyAPI#141",
    ),
    Mutant(
        id="first-is-a-probability",
        server=FirstIsAProbability,
        trips=(("completion-logprobs-are-probabilities", _V),),
        source="togethercomputer/openapi#5",
    ),
    Mutant(id="only-the-chosen", server=OnlyTheChosen, trips=(("completion-alternatives-are-given", _N),)),
)

HARMLESS = (
    Harmless(id="offsets-from-the-prompt", server=OffsetsFromThePrompt),
    Harmless(id="no-entry-for-the-end", server=NoEntryForTheEnd),
    Harmless(id="masked-alternatives", server=MaskedAlternatives, source="sgl-project/sglang#5984"),
    Harmless(id="null-top-for-zero", server=NullTopForZero),
)
