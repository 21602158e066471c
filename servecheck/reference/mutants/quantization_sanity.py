"""Servers whose precision breaks what they say, always or in one setting only; and right ones that look odd."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.engine import Job, Step
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.parity_answers import RefusesLogprobs
from servecheck.reference.mutants.parity_forced import OtherKernels
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import VOCABULARY, encode

__all__ = ["HARMLESS", "MUTANTS"]

_LONG = 512
_SALAD = "ท gly ó {{ 的 usher ж ก 語 "


class _Garbage(ReferenceServer):
    """Says something else where :meth:`wrong` says so."""

    said = "!"

    def wrong(self, prompt: Sequence[int], generated: Sequence[int]) -> bool:  # noqa: ARG002
        """Tell where."""
        return True

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Put the garbage first."""
        found = list(super().candidates(job, index, prompt, generated))
        if not self.wrong(prompt, generated):
            return found
        ids = encode(self.said)
        token = ids[len(generated) % len(ids)]
        others = [each for each in found if each[0] != token][:4]
        return [(token, math.log(0.9)), *((other, math.log(0.02)) for other, _ in others)]

    def sampling_of(self, body: Event) -> Sampling:
        """Lose the end too."""
        return replace(super().sampling_of(body), ignore_eos=True)


class ExclamationMarks(_Garbage):
    """Overflows in fp16, so that the first token of the vocabulary wins every step: exclamation marks without end."""


class HalfOfTheDevices(_Garbage):
    """Says exclamation marks after the first few words, as a sharded model did on four devices and not on two."""

    def wrong(self, prompt: Sequence[int], generated: Sequence[int]) -> bool:  # noqa: ARG002
        """After a while."""
        return len(generated) > 6


class LongPromptsAreSalad(_Garbage):
    """Keeps its cache in fp8 without scales: scraps of many scripts once the prompt is long."""

    said = _SALAD

    def wrong(self, prompt: Sequence[int], generated: Sequence[int]) -> bool:  # noqa: ARG002
        """In long prompts."""
        return len(prompt) > _LONG


class CachedPrefixIsRead(_Garbage):
    """Reads a cached prefix in other units than it was written in, so that a second answer is another one."""

    said = " window"

    def wrong(self, prompt: Sequence[int], generated: Sequence[int]) -> bool:
        """At every fourth word, of a prompt that it has seen."""
        return len(prompt) > _LONG and prompt in self._seen and len(generated) % 4 == 3

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._seen: set[Sequence[int]] = set()

    def store_cached(self, job: Job, ids: Sequence[int]) -> None:
        """Remember prompts once they are answered."""
        super().store_cached(job, ids)
        self._seen |= {prompt.ids for prompt in job.prompts if len(ids) > len(prompt.ids)}


class BatchesAreSalad(_Garbage):
    """Is right for one request at a time and writes garbage in a batch."""

    said = _SALAD

    def wrong(self, prompt: Sequence[int], generated: Sequence[int]) -> bool:  # noqa: ARG002
        """In company."""
        return self.metrics.running > 2


class WordsInCircles(_Garbage):
    """Has lost its positions, and says two words over and over."""

    said = " the river"


class _Numbers(ReferenceServer):
    """Writes other log probabilities."""

    def changed(self, step: Step) -> Step:
        """Return what is written of a token."""
        return step

    def logprob_entry(self, step: Step) -> Event:
        """Write it."""
        return super().logprob_entry(self.changed(step))


class MaskedChoice(_Numbers):
    """Computes NaN and writes -9999.0 for the tokens that it chose."""

    def changed(self, step: Step) -> Step:
        """Write the mark of a masked token."""
        return replace(step, logprob=-9999.0)


class FlatDistributions(_Numbers):
    """Divides its logits by a scale that is far too large, so that all tokens are as likely."""

    def changed(self, step: Step) -> Step:
        """Level out."""
        even = -math.log(VOCABULARY)
        return replace(
            step, logprob=even, top=tuple((token, even - place * 1e-4) for place, (token, _) in enumerate(step.top))
        )


class LogitsForLogprobs(_Numbers):
    """Writes logits that nobody has normalized where log probabilities belong."""

    def changed(self, step: Step) -> Step:
        """Shift."""
        return replace(step, top=tuple((token, value + 3.0) for token, value in step.top))


class NotWritable(ReferenceServer):
    """Has NaN among its log probabilities, and fails to write them as JSON."""

    async def reply_chat(self, request: Request) -> Reply:
        """Fail."""
        if self.body_of(request).get("logprobs"):
            error = {"message": "a number cannot be written as JSON", "type": "InternalServerError", "code": 500}
            return json_reply({"error": error}, 500)
        return await super().reply_chat(request)


class MaskedAlternatives(_Numbers):
    """Writes -9999.0 for alternatives that its own cutters have masked, which is legal."""

    def changed(self, step: Step) -> Step:
        """Mask all but two."""
        masked = tuple((token, value if place < 2 else -9999.0) for place, (token, value) in enumerate(step.top))
        return replace(step, top=masked)


class CertainOfEverything(_Numbers):
    """Writes 0.0 for every token that it chose at temperature 0, and nothing for others."""

    def changed(self, step: Step) -> Step:
        """Be certain."""
        return replace(
            step, logprob=0.0, top=tuple((token, 0.0 if token == step.token else -9999.0) for token, _ in step.top)
        )


class BatchFlipsTies(ReferenceServer):
    """Meets a near-tie at its fifth token, and lets the size of the batch, or a cached prefix, decide it."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._asked = 0

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Bring the two best close together."""
        found = list(super().candidates(job, index, prompt, generated))
        if len(generated) != 4:
            return found
        self._asked += 1
        (best, top), (second, other), *rest = found
        both = math.exp(top) + math.exp(other)
        order = (second, best) if self._asked % 2 else (best, second)
        return [(order[0], math.log(both * 0.51)), (order[1], math.log(both * 0.49)), *rest]


class OneOddAnswer(_Garbage):
    """Writes a long rule of dashes and dots between its words, as lists and tables have it."""

    said = " -------- ........"

    def wrong(self, prompt: Sequence[int], generated: Sequence[int]) -> bool:  # noqa: ARG002
        """In between."""
        return 4 <= len(generated) < 12


_WORDS, _FINITE, _SHAPE, _CACHED = (
    "text-is-no-garbage",
    "log-probabilities-are-numbers",
    "distributions-have-a-shape",
    "cached-prompt-is-answered-alike",
)

MUTANTS = (
    Mutant(
        id="exclamation-marks",
        server=ExclamationMarks,
        trips=((_WORDS, Outcome.VIOLATED),),
        source="vllm-project/vllm#14126",
    ),
    Mutant(
        id="exclamation-marks-after-a-while",
        server=HalfOfTheDevices,
        trips=((_WORDS, Outcome.VIOLATED),),
        source="vllm-project/vllm#24025",
    ),
    Mutant(
        id="long-prompts-are-salad",
        server=LongPromptsAreSalad,
        trips=((_WORDS, Outcome.VIOLATED),),
        source="vllm-project/vllm#13133",
    ),
    Mutant(
        id="cached-prefix-misread",
        server=CachedPrefixIsRead,
        trips=((_CACHED, Outcome.VIOLATED),),
        source="vllm-project/vllm#12371",
    ),
    Mutant(id="batches-are-salad", server=BatchesAreSalad, trips=((_WORDS, Outcome.VIOLATED),)),
    Mutant(id="words-in-circles", server=WordsInCircles, trips=((_WORDS, Outcome.VIOLATED),)),
    Mutant(id="chosen-token-masked", server=MaskedChoice, trips=((_FINITE, Outcome.VIOLATED),)),
    Mutant(
        id="nan-not-writable",
        server=NotWritable,
        trips=((_FINITE, Outcome.VIOLATED),),
        source="sgl-project/sglang#5984",
    ),
    Mutant(id="flat-distributions", server=FlatDistributions, trips=((_SHAPE, Outcome.VIOLATED),)),
    Mutant(id="logits-for-logprobs", server=LogitsForLogprobs, trips=((_SHAPE, Outcome.VIOLATED),)),
)

HARMLESS = (
    Harmless(id="other-kernels", server=OtherKernels, source="sgl-project/sglang-omni#458"),
    Harmless(id="batch-flips-ties", server=BatchFlipsTies, source="vllm-project/vllm#23138"),
    Harmless(id="refuses-logprobs", server=RefusesLogprobs),
    Harmless(id="masked-alternatives", server=MaskedAlternatives),
    Harmless(id="certain-of-everything", server=CertainOfEverything, source="vllm-project/vllm#9453"),
    Harmless(id="rules-between-words", server=OneOddAnswer),
)
