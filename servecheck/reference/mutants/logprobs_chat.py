"""Servers that leave logprobs out, make them up or fail over them, and servers whose numbers only look odd."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.engine import Job, Step
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import SPECIAL

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken


class LogprobsNull(ReferenceServer):
    """Takes ``logprobs`` and answers with null."""

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:  # noqa: ARG002
        """Give nothing."""
        return None


class EmptyWithoutTop(ReferenceServer):
    """Gives an empty list where ``logprobs`` is true and ``top_logprobs`` absent."""

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:
        """Empty the list."""
        found = super().chat_logprobs(job, steps)
        return {**found, "content": []} if found and "top_logprobs" not in job.body else found


class ZeroMeansOff(ReferenceServer):
    """Takes zero alternatives for "no logprobs" in one place and not in another: HTTP 500."""

    def chat_job(self, body: Event) -> Job:
        """Fail."""
        if body.get("logprobs") and not body.get("top_logprobs"):
            raise ApiError("list index out of range", status=500, kind="InternalServerError")
        return super().chat_job(body)


class ZeroLeavesThemOut(ReferenceServer):
    """Leaves logprobs out where ``top_logprobs`` is 0."""

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:
        """Leave them out."""
        return None if job.body.get("top_logprobs") == 0 else super().chat_logprobs(job, steps)


class InfinityFails(ReferenceServer):
    """Cannot write the minus infinity of a token that ``top_p`` has cut off: HTTP 500."""

    def chat_job(self, body: Event) -> Job:
        """Fail where something is cut off."""
        if body.get("logprobs") and body.get("top_p", 1) < 1:
            raise ApiError("Out of range float values are not JSON compliant", status=500, kind="InternalServerError")
        return super().chat_job(body)


class LiteralInfinity(ReferenceServer):
    """Writes the minus infinity of a token that ``top_p`` has cut off as it is, which is not JSON."""

    def logprob_entry(self, step: Step) -> Event:
        """Make the last alternative impossible."""
        made = super().logprob_entry(step)
        for each in made["top_logprobs"][4:]:
            each["logprob"] = -math.inf
        return made


class LogprobsRefused(ReferenceServer):
    """Refuses ``logprobs`` by name."""

    def chat_job(self, body: Event) -> Job:
        """Refuse."""
        if body.get("logprobs"):
            raise ApiError("logprobs is not supported on this device", param="logprobs")
        return super().chat_job(body)


class TopIgnored(ReferenceServer):
    """Takes ``top_logprobs`` and gives no alternatives."""

    def logprob_entry(self, step: Step) -> Event:
        """Drop them."""
        return {**super().logprob_entry(step), "top_logprobs": []}


class TopOneShort(ReferenceServer):
    """Gives one alternative fewer than were asked for."""

    def logprob_entry(self, step: Step) -> Event:
        """Drop the last."""
        made = super().logprob_entry(step)
        return {**made, "top_logprobs": made["top_logprobs"][:-1]}


class AlwaysTwenty(ReferenceServer):
    """Gives twenty alternatives, however many were asked for."""

    def chat_job(self, body: Event) -> Job:
        """Ask for twenty."""
        job = super().chat_job(body)
        return job if job.logprobs is None else replace(job, logprobs=20)


class EveryOtherToken(ReferenceServer):
    """Reports only the first of the tokens that were decoded in one step."""

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:
        """Drop every other entry."""
        return super().chat_logprobs(job, steps[::2])


class Probabilities(ReferenceServer):
    """Gives probabilities in place of their logarithms."""

    def logprob_entry(self, step: Step) -> Event:
        """Undo the logarithm."""
        made = super().logprob_entry(step)
        for each in (made, *made["top_logprobs"]):
            each["logprob"] = math.exp(each["logprob"])
        return made


class NotNormalised(ReferenceServer):
    """Gives values that are below 0 and belong to no distribution."""

    def logprob_entry(self, step: Step) -> Event:
        """Divide them by ten."""
        made = super().logprob_entry(step)
        for each in (made, *made["top_logprobs"]):
            each["logprob"] /= 10
        return made


class NullValue(ReferenceServer):
    """Lists the tokens with null for every value."""

    def logprob_entry(self, step: Step) -> Event:
        """Drop the values."""
        return {**super().logprob_entry(step), "logprob": None}


class AlwaysCertain(ReferenceServer):
    """Gives every token the logprob 0, as where the draft's choice is taken for granted."""

    def logprob_entry(self, step: Step) -> Event:
        """Be certain."""
        return super().logprob_entry(replace(step, logprob=0.0))


class FirstIsPositive(ReferenceServer):
    """Gives the first token its probability and the others their logarithms."""

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:
        """Undo the first logarithm."""
        return super().chat_logprobs(job, [replace(steps[0], logprob=math.exp(steps[0].logprob)), *steps[1:]])


class ShiftedByOne(ReferenceServer):
    """Reports each token's alternatives with the token before it."""

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:
        """Shift the alternatives."""
        following = [*steps[1:], *steps[:1]]
        shifted = [replace(step, top=other.top[1:]) for step, other in zip(steps, following, strict=True)]
        return super().chat_logprobs(job, [replace(step, logprob=step.logprob - 9) for step in shifted])


class OtherTokens(ReferenceServer):
    """Reports the likeliest alternative that was not taken in place of the token that was."""

    def logprob_entry(self, step: Step) -> Event:
        """Report the second."""
        other = next((token for token, _ in step.top if token != step.token), None)
        return super().logprob_entry(step if other is None else replace(step, token=other))


class NamelessAlternatives(ReferenceServer):
    """Gives alternatives that are no whole character as empty texts without bytes."""

    def logprob_entry(self, step: Step) -> Event:
        """Take the names away from all but the first."""
        made = super().logprob_entry(step)
        for each in made["top_logprobs"][1:]:
            each.update({"token": "", "bytes": []})
        return made


class TimesTemperature(ReferenceServer):
    """Multiplies by the temperature where it should divide."""

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:
        """Scale the values."""
        heat = job.sampling.temperature if job.sampling.temperature > 1 else 1.0
        return super().chat_logprobs(job, [_scaled(step, heat) for step in steps])


def _scaled(step: Step, factor: float) -> Step:
    return replace(step, logprob=step.logprob * factor, top=tuple((token, value * factor) for token, value in step.top))


# --------------------------------------------------------------------------- odd, but right


class ChosenOnTop(ReferenceServer):
    """Lists the chosen token besides the alternatives asked for, so there may be one more."""

    def chat_job(self, body: Event) -> Job:
        """Ask for one more."""
        job = super().chat_job(body)
        return job if job.logprobs is None else replace(job, logprobs=job.logprobs + 1)


class MaskedValue(ReferenceServer):
    """Writes -9999.0 for a token that was cut off."""

    def logprob_entry(self, step: Step) -> Event:
        """Mask the fifth alternative."""
        made = super().logprob_entry(step)
        for each in made["top_logprobs"][4:]:
            each["logprob"] = -9999.0
        return made


class NoEndToken(ReferenceServer):
    """Gives no entry for the end token, which is no part of the text."""

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:
        """Leave it out."""
        return super().chat_logprobs(job, [step for step in steps if step.token not in SPECIAL])


class EndTokenHasBytes(ReferenceServer):
    """Gives the end token the bytes of its name."""

    def logprob_entry(self, step: Step) -> Event:
        """Spell the name."""
        made = super().logprob_entry(step)
        for each in (made, *made["top_logprobs"]):
            each["bytes"] = list(each["token"].encode()) if each["bytes"] is None else each["bytes"]
        return made


class AfterTemperature(ReferenceServer):
    """Gives values after temperature, which is the other legal mode."""

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:
        """Take temperature into account."""
        heat = job.sampling.temperature
        return super().chat_logprobs(job, [_cooled(step, heat) for step in steps] if heat > 0 else steps)


def _cooled(step: Step, heat: float) -> Step:
    # All tokens of the model share the sum; those that are not listed are left out of it, so it is a lower bound.
    scaled = [(token, value / heat) for token, value in step.top] or [(step.token, step.logprob / heat)]
    total = max(0.0, math.log(sum(math.exp(value) for _, value in scaled)))
    return replace(
        step, logprob=step.logprob / heat - total, top=tuple((token, value - total) for token, value in scaled)
    )


class TwentyWhenAbsent(ReferenceServer):
    """Gives alternatives although none were asked for, as llama.cpp does."""

    def chat_job(self, body: Event) -> Job:
        """Ask for twenty."""
        job = super().chat_job(body)
        return replace(job, logprobs=20) if job.logprobs is not None and "top_logprobs" not in body else job


_N, _V = Outcome.NO_EFFECT, Outcome.VIOLATED
_GIVEN, _FAILS = "logprobs-are-given", "no-number-of-alternatives-fails"
_PROPER = "logprobs-are-probabilities"

MUTANTS = (
    Mutant(id="null-though-asked", server=LogprobsNull, trips=((_GIVEN, _N),), source="ggml-org/llama.cpp#11346"),
    Mutant(
        id="empty-without-top",
        server=EmptyWithoutTop,
        trips=((_GIVEN, _N),),
        source="huggingface/text-generation-inference#1682",
    ),
    Mutant(id="zero-means-off", server=ZeroMeansOff, trips=((_FAILS, _V),), source="vllm-project/tpu-inference#3572"),
    Mutant(id="infinity-fails", server=InfinityFails, trips=((_FAILS, _V),), source="sgl-project/sglang#5984"),
    Mutant(id="literal-infinity", server=LiteralInfinity, trips=((_FAILS, _V),), source="sgl-project/sglang#5984"),
    Mutant(
        id="zero-leaves-them-out",
        server=ZeroLeavesThemOut,
        trips=(("zero-alternatives-still-gives-values", _N),),
        source="ggml-org/llama.cpp#11346",
    ),
    Mutant(id="refused", server=LogprobsRefused, trips=((_GIVEN, Outcome.REFUSED),)),
    Mutant(id="top-ignored", server=TopIgnored, trips=(("alternatives-are-given", _N),)),
    Mutant(
        id="top-one-short",
        server=TopOneShort,
        trips=(("alternatives-are-given", _V),),
        source="InternLM/lmdeploy#1548",
    ),
    Mutant(id="always-twenty", server=AlwaysTwenty, trips=(("no-more-alternatives-than-asked", _V),)),
    Mutant(
        id="every-other-token",
        server=EveryOtherToken,
        trips=(("one-entry-per-token", _V),),
        source="sgl-project/sglang#10660",
    ),
    Mutant(id="probabilities", server=Probabilities, trips=((_PROPER, _V),)),
    Mutant(id="not-normalised", server=NotNormalised, trips=((_PROPER, _V),)),
    Mutant(
        id="first-is-positive",
        server=FirstIsPositive,
        trips=((_PROPER, _V),),
        source="togethercomputer/openapi#5",
    ),
    Mutant(id="always-certain", server=AlwaysCertain, trips=((_PROPER, _V),), source="ggml-org/llama.cpp#27972"),
    Mutant(id="null-value", server=NullValue, trips=((_PROPER, _V),)),
    Mutant(id="shifted-by-one", server=ShiftedByOne, trips=(("greedy-token-is-the-likeliest", _V),)),
    Mutant(
        id="other-tokens",
        server=OtherTokens,
        trips=(("token-bytes-are-the-text", _V),),
        source="theroyallab/tabbyAPI#141",
    ),
    Mutant(
        id="nameless-alternatives",
        server=NamelessAlternatives,
        trips=(("alternatives-can-be-told-apart", _V),),
        source="vllm-project/vllm#9463",
    ),
    Mutant(
        id="times-temperature",
        server=TimesTemperature,
        trips=(("values-know-one-temperature", _V),),
        source="vllm-project/vllm#9453",
    ),
)

HARMLESS = (
    Harmless(id="chosen-on-top", server=ChosenOnTop),
    Harmless(id="masked-value", server=MaskedValue, source="sgl-project/sglang#5984"),
    Harmless(id="no-end-token", server=NoEndToken),
    Harmless(id="end-token-has-bytes", server=EndTokenHasBytes),
    Harmless(id="after-temperature", server=AfterTemperature, source="vllm-project/vllm#9453"),
    Harmless(id="twenty-when-absent", server=TwentyWhenAbsent),
)
