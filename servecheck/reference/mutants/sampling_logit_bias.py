"""Samplers that drop or misread ``logit_bias``, and servers that tell no ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Answer
from servecheck.reference.engine import Job, Step
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import encode

__all__ = ["HARMLESS", "MUTANTS"]


class BiasDropped(ReferenceServer):
    """Accepts ``logit_bias``, keeps it with the request and never gives it to the sampler."""

    def logit_bias_of(self, body: Event) -> dict[int, float]:
        """Read it, and forget it."""
        super().logit_bias_of(body)
        return {}


class BiasRefused(ReferenceServer):
    """Refuses ``logit_bias`` by name."""

    def logit_bias_of(self, body: Event) -> dict[int, float]:
        """Refuse."""
        if body.get("logit_bias"):
            raise ApiError("logit_bias is not supported", param="logit_bias")
        return {}


class BiasCrashes(ReferenceServer):
    """Answers 500 to any request with ``logit_bias``, as where an object was expected to be a list."""

    def logit_bias_of(self, body: Event) -> dict[int, float]:
        """Fail."""
        if body.get("logit_bias"):
            raise ApiError("'dict' object cannot be converted", status=500, kind="InternalServerError")
        return {}


class BiasTooWeak(ReferenceServer):
    """Divides each bias by a hundred, so that it sways a near-tie and nothing else."""

    def logit_bias_of(self, body: Event) -> dict[int, float]:
        """Weaken."""
        return {token: bias / 100 for token, bias in super().logit_bias_of(body).items()}


class OnlyBans(ReferenceServer):
    """Applies negative biases and drops positive ones."""

    def logit_bias_of(self, body: Event) -> dict[int, float]:
        """Keep bans."""
        return {token: bias for token, bias in super().logit_bias_of(body).items() if bias < 0}


class OnlyForces(ReferenceServer):
    """Applies positive biases and drops negative ones."""

    def logit_bias_of(self, body: Event) -> dict[int, float]:
        """Keep what is forced."""
        return {token: bias for token, bias in super().logit_bias_of(body).items() if bias > 0}


class FirstTokenOnly(ReferenceServer):
    """Applies ``logit_bias`` in the prefill alone: to the first token and to none after it."""

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Undo the bias beyond the first token."""
        found: list[tuple[int, float]] = super().candidates(job, index, prompt, generated)
        if not generated or not job.sampling.logit_bias:
            return found
        known = dict(found)
        outside = {token: self.language.outside(prompt, token) for token in job.sampling.logit_bias}
        undone = {token: known.get(token, outside[token]) - bias for token, bias in job.sampling.logit_bias.items()}
        return sorted({**known, **undone}.items(), key=lambda pair: -pair[1])


class BiasDroppedInStreams(ReferenceServer):
    """Drops ``logit_bias`` where the request streams."""

    def logit_bias_of(self, body: Event) -> dict[int, float]:
        """Forget it in a stream."""
        return {} if body.get("stream") else super().logit_bias_of(body)


class BiasNeedsTemperature(ReferenceServer):
    """Applies ``logit_bias`` on its greedy path only."""

    def logit_bias_of(self, body: Event) -> dict[int, float]:
        """Forget it where the request names no temperature."""
        return super().logit_bias_of(body) if "temperature" in body else {}


class BiasDroppedOnCompletions(ReferenceServer):
    """Drops ``logit_bias`` on the completions route."""

    def logit_bias_of(self, body: Event) -> dict[int, float]:
        """Forget it there."""
        return {} if "prompt" in body else super().logit_bias_of(body)


class _NoIds(ReferenceServer):
    """Gives neither ids nor a tokenizer."""

    def token_ids(self, job: Job, answer: Answer) -> Event:  # noqa: ARG002
        """Tell none."""
        return {}

    async def reply_tokenize(self, request: Request) -> Reply:
        """Offer no route."""
        raise ApiError(f"no route {request.path}", status=404)


class BlindDropped(_NoIds):
    """Tells no ids at all, and drops ``logit_bias`` as well."""

    def logit_bias_of(self, body: Event) -> dict[int, float]:  # noqa: ARG002
        """Forget it."""
        return {}


class TellsNothing(_NoIds):
    """Tells no ids: no ``return_token_ids``, no ``/tokenize``, only logprobs with texts."""


class NoLogprobsNoIds(_NoIds):
    """Refuses logprobs and fields that it does not know, and offers no tokenizer."""

    def chat_job(self, body: Event) -> Job:
        """Refuse."""
        for name in ("return_token_ids", "logprobs"):
            if name in body:
                raise ApiError(f"unknown field {name}", status=422, param=name)
        return super().chat_job(body)


class OnlyTokenizes(ReferenceServer):
    """Tells ids by ``/tokenize`` alone, in llama.cpp's form."""

    def token_ids(self, job: Job, answer: Answer) -> Event:  # noqa: ARG002
        """Tell none."""
        return {}

    async def reply_tokenize(self, request: Request) -> Reply:
        """Read ``content``, and answer any other form with no tokens."""
        return json_reply({"tokens": list(encode(str(self.body_of(request).get("content", ""))))})


class IdsInLogprobs(OnlyTokenizes):
    """Tells each token's id in its logprobs entry, and has no other way."""

    def logprob_entry(self, step: Step) -> Event:
        """Add the id."""
        return {**super().logprob_entry(step), "id": step.token}

    async def reply_tokenize(self, request: Request) -> Reply:
        """Offer no route."""
        raise ApiError(f"no route {request.path}", status=404)


_N, _V, _R = Outcome.NO_EFFECT, Outcome.VIOLATED, Outcome.REFUSED
_BAN, _FORCE = "banned-token-stays-away", "forced-token-is-all-there-is"
_TPU, _RUNNER = "vllm-project/tpu-inference#3213", "tenstorrent/tt-xla#3331"

MUTANTS = (
    Mutant(id="bias-dropped", server=BiasDropped, trips=((_BAN, _N), (_FORCE, _N)), source=_TPU),
    Mutant(id="bias-refused", server=BiasRefused, trips=((_BAN, _R), (_FORCE, _R))),
    Mutant(id="bias-crashes", server=BiasCrashes, trips=((_BAN, _V), (_FORCE, _V))),
    Mutant(id="bias-too-weak", server=BiasTooWeak, trips=((_FORCE, _N),), source=_RUNNER),
    Mutant(id="only-bans", server=OnlyBans, trips=((_FORCE, _N),)),
    Mutant(id="only-forces", server=OnlyForces, trips=((_BAN, _N),)),
    Mutant(id="first-token-only", server=FirstTokenOnly, trips=((_FORCE, _V),)),
    Mutant(id="bias-dropped-in-streams", server=BiasDroppedInStreams, trips=((_FORCE, _N),)),
    Mutant(id="bias-needs-temperature", server=BiasNeedsTemperature, trips=((_FORCE, _N),)),
    Mutant(
        id="bias-dropped-on-completions",
        server=BiasDroppedOnCompletions,
        trips=((_FORCE, _N),),
        source="huggingface/text-generation-inference#1794",
    ),
    Mutant(id="blind-dropped", server=BlindDropped, trips=((_FORCE, _N),), source=_TPU),
)

HARMLESS = (
    Harmless(id="tells-nothing", server=TellsNothing),
    Harmless(id="no-logprobs-no-ids", server=NoLogprobsNoIds),
    Harmless(id="only-tokenizes", server=OnlyTokenizes),
    Harmless(id="ids-in-logprobs", server=IdsInLogprobs),
)
