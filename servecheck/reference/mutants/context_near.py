"""Long prompts that are refused, cut, answered with garbage or answered wrongly, while short ones are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Tally
from servecheck.reference.engine import Job, Prompt
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.context_limit import FrontCutInSilence
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import encode

__all__ = ["HARMLESS", "MUTANTS"]

_SMALL: dict[str, Any] = {"max_model_len": 1500}
_CHUNK = 1000


# --------------------------------------------------------------------------- broken


class HalfIsTooMuch(ReferenceServer):
    """Lists a limit and refuses prompts far below it, without saying why."""

    def check_length(self, ids: Sequence[int]) -> None:
        """Refuse long prompts."""
        super().check_length(ids)
        if len(ids) > _CHUNK:
            raise ApiError("the prompt does not fit", param="messages")


class LongIs500(ReferenceServer):
    """Fails inside on a prompt of more than one prefill chunk."""

    def check_length(self, ids: Sequence[int]) -> None:
        """Fail."""
        super().check_length(ids)
        if len(ids) > _CHUNK:
            raise ApiError("shape mismatch", status=500, kind="InternalServerError")


class WindowSlides(ReferenceServer):
    """Reads the last part of a long prompt and drops its front, which usage shows."""

    def chat_job(self, body: Event) -> Job:
        """Cut the front."""
        job = super().chat_job(body)
        return replace(job, prompts=(Prompt(ids=job.prompts[0].ids[-_CHUNK:]),))


class WrongBehindChunk(ReferenceServer):
    """Reads a prompt of more than one prefill chunk wrongly: a fluent answer to something else."""

    def context_of(self, job: Job, index: int) -> tuple[int, ...]:
        """Lose the end of the prompt but for the template."""
        ids = super().context_of(job, index)
        return (*ids[:200], *ids[-5:]) if len(ids) > _CHUNK else ids


class GarbageWhenLong(ReferenceServer):
    """Overflows on a long prompt, and every token is “!”."""

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> object:
        """Say one thing."""
        found = super().candidates(job, index, prompt, generated)
        return [(encode("!")[0], 0.0)] if len(prompt) > _CHUNK else found


class _Unlisted(ReferenceServer):
    """Lists no limit, and caps the output instead of naming it."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Cap."""
        wanted = body.get("max_tokens")
        capped = {**body, "max_tokens": min(wanted, 64)} if isinstance(wanted, int) else body
        return super().limit_of(capped, room, default, low)

    def model_entry(self) -> Event:
        """List the model without its length."""
        return {name: value for name, value in super().model_entry().items() if name != "max_model_len"}


class CutUnlisted(_Unlisted, FrontCutInSilence):
    """Drops the front of a long prompt, and does not say anywhere how long one may be."""


class FailsUnlisted(_Unlisted):
    """Says nowhere how long a prompt may be, and fails inside on a longer one."""

    def check_length(self, ids: Sequence[int]) -> None:
        """Fail."""
        if len(ids) >= self.max_model_len:
            raise ApiError("index out of range", status=500, kind="InternalServerError")


# --------------------------------------------------------------------------- odd, but right


class LimitOnlyInRefusal(_Unlisted):
    """Lists no limit, caps the output, and names the limit when a prompt is longer."""


class LimitGivenTooHigh(ReferenceServer):
    """Lists what the model could take; what it takes here is less, and a refusal says how much."""

    def model_entry(self) -> Event:
        """List twice the length."""
        return {**super().model_entry(), "max_model_len": 2 * self.max_model_len}


class CountsRoughly(ReferenceServer):
    """Counts a few tokens more on long prompts, as tokenizers do at joints."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Add a few."""
        made = super().usage(job, tally)
        more = made["prompt_tokens"] // 300
        return {**made, "prompt_tokens": made["prompt_tokens"] + more, "total_tokens": made["total_tokens"] + more}


_V = Outcome.VIOLATED
_ANSWERED, _FITS = "near-limit-prompt-is-answered", "prompt-of-unknown-fit-is-refused-or-read-whole"

MUTANTS = (
    Mutant(id="half-is-too-much", server=HalfIsTooMuch, trips=((_ANSWERED, Outcome.REFUSED),), config=_SMALL),
    Mutant(id="long-is-500", server=LongIs500, trips=((_ANSWERED, _V),), config=_SMALL),
    Mutant(
        id="window-slides",
        server=WindowSlides,
        trips=(("near-limit-prompt-is-counted-whole", _V),),
        source="ollama/ollama#4967",
        config=_SMALL,
    ),
    Mutant(
        id="wrong-behind-chunk",
        server=WrongBehindChunk,
        trips=(("near-limit-answer-is-the-known-one", _V),),
        source="vllm-project/vllm#15643",
        config=_SMALL,
        models=("obedient", "reasoning"),
    ),
    Mutant(
        id="cut-unlisted",
        server=CutUnlisted,
        trips=((_FITS, _V),),
        source="ollama/ollama#4967",
        config=_SMALL,
        models=("declining",),
    ),
    Mutant(
        id="fails-unlisted",
        server=FailsUnlisted,
        trips=((_FITS, _V),),
        source="kserve/kserve#3886",
        config=_SMALL,
        models=("declining",),
    ),
    Mutant(
        id="garbage-when-long",
        server=GarbageWhenLong,
        trips=(("near-limit-text-is-not-garbage", _V),),
        source="vllm-project/vllm#14126",
        config=_SMALL,
    ),
)

HARMLESS = (
    Harmless(id="limit-given-too-high", server=LimitGivenTooHigh, config=_SMALL),
    Harmless(id="limit-only-in-refusal", server=LimitOnlyInRefusal, config=_SMALL, models=("declining",)),
    Harmless(id="counts-roughly", server=CountsRoughly, config=_SMALL),
)
