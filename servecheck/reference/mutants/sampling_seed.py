"""Servers that take a seed and do something else with it, and servers that honour it in an odd way."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from servecheck.judging import HANGS_NOT, STAYS_HEALTHY
from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.base import Answer
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_FIXED = 42


def _has_seed(body: Event) -> bool:
    return body.get("seed") is not None


# --------------------------------------------------------------------------- broken


class SeedIgnored(ReferenceServer):
    """Accepts a seed for one request and draws from the engine's own stream all the same."""

    def seed_of(self, _: Event) -> int | None:
        """Forget the seed."""
        return None


class SeedDroppedOnChat(ReferenceServer):
    """Copies only some sampling fields from a chat request; the seed is not among them."""

    def chat_job(self, body: Event) -> Job:
        """Leave the seed behind."""
        return super().chat_job({name: value for name, value in body.items() if name != "seed"})


class SeedRefused(ReferenceServer):
    """Refuses a seed for a sampled request, and says that the back end has none."""

    def seed_of(self, body: Event) -> int | None:
        """Refuse."""
        if _has_seed(body) and body.get("temperature") != 0:
            raise ApiError("this back end does not support per-request seed", kind="BadRequestError", code="400")
        return super().seed_of(body)


class SeedUnknownField(ReferenceServer):
    """Does not know the field and refuses it with a 422, as strict servers do with fields they do not know."""

    def seed_of(self, body: Event) -> int | None:
        """Refuse the field."""
        if _has_seed(body):
            raise ApiError("extra inputs are not permitted: seed", status=422, param="seed")
        return super().seed_of(body)


class SeedDroppedOnCompletions(ReferenceServer):
    """Copies the seed from a chat request and not from a completion."""

    def seed_of(self, body: Event) -> int | None:
        """Forget it there."""
        return None if "prompt" in body else super().seed_of(body)


class SeedDroppedInStreams(ReferenceServer):
    """Draws a stream from the engine's own random numbers, whatever seed it names."""

    def seed_of(self, body: Event) -> int | None:
        """Forget it in a stream."""
        return None if body.get("stream") else super().seed_of(body)


class EngineSeed(ReferenceServer):
    """Takes the engine's fixed default seed for every request that names one, whichever it names."""

    def seed_of(self, body: Event) -> int | None:
        """Replace the seed."""
        return _FIXED if _has_seed(body) else None


class HighHalfOnly(ReferenceServer):
    """Keeps the upper 32 bits of a 64-bit seed, so that all small seeds are one."""

    def seed_of(self, body: Event) -> int | None:
        """Shift the seed away."""
        seed = super().seed_of(body)
        return None if seed is None else seed >> 32


class SeedMeansGreedy(ReferenceServer):
    """Switches to greedy where a seed is given: the same text each time, and for every seed."""

    def sampling_of(self, body: Event) -> Sampling:
        """Cool a seeded request down."""
        sampling = super().sampling_of(body)
        return replace(sampling, temperature=0.0) if _has_seed(body) else sampling


class GeneratorCarriedOver(ReferenceServer):
    """Keeps one random generator per seed and goes on with it, where each request should begin it anew."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._uses = itertools.count()

    def seed_of(self, body: Event) -> int | None:
        """Move on with every use."""
        seed = super().seed_of(body)
        return None if seed is None else seed * 1000 + next(self._uses)


class FirstTokenOnly(ReferenceServer):
    """Honours the seed for the first token, which comes from the prefill, and forgets it for the others."""

    def steps(self, job: Job, index: int, generated: list[int]) -> Iterator[Any]:
        """Change the seed after the first token."""
        kept = super().steps(replace(job, limit=1), index, generated)
        first = next(kept)
        free = replace(job, sampling=replace(job.sampling, seed=2**64 + next(self._requests) * 7919))
        yield first if job.limit == 1 or first[1] == "stop" else (first[0], None, None)
        yield from super().steps(free, index, generated)


class GatewayGivesUp(ReferenceServer):
    """Leaves its fast path for a seed, and the gateway in front answers with a page of HTML and a 504."""

    async def reply_chat(self, request: Request) -> Reply:
        """Answer as a gateway."""
        if not _has_seed(self.body_of(request)):
            return await super().reply_chat(request)
        page = b"<html><head><title>504 Gateway Time-out</title></head><body></body></html>"
        return Reply(status=504, headers=(("content-type", "text/html"),), body=page, delay=10.0)


class SeedHangs(ReferenceServer):
    """Sends its headers for a request with a seed, and never anything else."""

    async def reply_chat(self, request: Request) -> Reply:
        """Send no body."""
        reply = await super().reply_chat(request)
        return replace(reply, body=_nothing()) if _has_seed(self.body_of(request)) else reply


async def _nothing() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


class SeedFreezes(ReferenceServer):
    """Freezes its engine loop at the first request with a seed: health is 200 ever after, and nothing is answered."""

    frozen = False

    async def reply_chat(self, request: Request) -> Reply:
        """Freeze."""
        self.frozen = self.frozen or _has_seed(self.body_of(request))
        if self.frozen:
            await asyncio.Event().wait()
        return await super().reply_chat(request)


class SeedKills(ReferenceServer):
    """Loses its engine to the first request with a seed: 500 then, and nobody is answered well afterwards."""

    dead = False

    async def reply_chat(self, request: Request) -> Reply:
        """Die of it."""
        self.dead = self.dead or _has_seed(self.body_of(request))
        if self.dead:
            raise ApiError("EngineCore encountered an issue", status=500, kind="InternalServerError")
        return await super().reply_chat(request)


class ZeroIsNoSeed(ReferenceServer):
    """Takes a seed of 0 for none, since it asks whether there is one by its truth."""

    def seed_of(self, body: Event) -> int | None:
        """Lose the zero."""
        return super().seed_of(body) or None


# --------------------------------------------------------------------------- odd, but right


class FixedWithoutSeed(ReferenceServer):
    """Draws with one fixed seed where none is given, so that free draws never vary; given seeds are honoured."""

    def seed_of(self, body: Event) -> int | None:
        """Fill in the default."""
        seed = super().seed_of(body)
        return _FIXED if seed is None else seed


class OnlyWarm(ReferenceServer):
    """Draws otherwise where the prompt was not cached, as numbers do that are summed in another order."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._cold: set[str] = set()

    async def prefill(self, job: Job, index: int) -> None:
        """Note what was not cached."""
        await super().prefill(job, index)
        if not job.prompt(index).cached:
            self._cold.add(job.id)

    def steps(self, job: Job, index: int, generated: list[int]) -> Iterator[Any]:
        """Turn the seed of a cold request."""
        if job.id in self._cold:
            job = replace(job, sampling=replace(job.sampling, seed=job.sampling.seed + 1))
        return super().steps(job, index, generated)


class OtherGenerator(ReferenceServer):
    """Uses the seed in a way of its own: negative, mixed and cut to 31 bits, and the same each time."""

    def seed_of(self, body: Event) -> int | None:
        """Mix the seed."""
        seed = super().seed_of(body)
        return None if seed is None else -((seed * 2_654_435_761) % 2**31)


class Slow(ReferenceServer):
    """Takes twenty seconds for each seeded request, as where a sampler is compiled."""

    async def reply_chat(self, request: Request) -> Reply:
        """Wait."""
        if _has_seed(self.body_of(request)):
            await asyncio.sleep(20)
        return await super().reply_chat(request)


class ExtraFields(ReferenceServer):
    """Tells the seed that was used and a fingerprint that differs from reply to reply."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Add fields."""
        reply = super().completion(job, answers)
        return {**reply, "seed": job.sampling.seed % 2**31, "system_fingerprint": self.new_id("fp_")}


class OtherReasoningField(ReferenceServer):
    """Calls the field of the thought ``reasoning``, and its content is null while it thinks."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Rename the field."""
        choice = super().chat_choice(job, answer)
        choice["message"]["reasoning"] = choice["message"].pop("reasoning_content", None)
        return choice


class LateWords(ReferenceServer):
    """Takes a different time for every token and sends its reply in pieces; the words are the same."""

    def decode_delay(self, job: Job, index: int, count: int) -> float:
        """Vary the time."""
        return super().decode_delay(job, index, count) * (1 + count % 5)

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Wait before the first words."""
        await asyncio.sleep(0.5 + len(job.id) % 3)
        async for delta in super().deltas(job):
            yield delta

    async def reply_chat(self, request: Request) -> Reply:
        """Cut the bytes."""
        reply = await super().reply_chat(request)
        if not isinstance(reply.body, bytes):
            return reply
        return replace(reply, body=_pieces(json.dumps(json.loads(reply.body), indent=1).encode()))


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 11):
        yield body[start : start + 11]


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_SAME, _OTHER = "same-seed-same-text", "other-seed-other-text"

MUTANTS = (
    Mutant(id="seed-ignored", server=SeedIgnored, trips=((_SAME, _N),), source="vllm-project/vllm#16172"),
    Mutant(
        id="seed-dropped-on-chat",
        server=SeedDroppedOnChat,
        trips=((_SAME, _N),),
        source="huggingface/text-generation-inference#1794",
    ),
    Mutant(id="seed-dropped-on-completions", server=SeedDroppedOnCompletions, trips=((_SAME, _N),)),
    Mutant(id="seed-dropped-in-streams", server=SeedDroppedInStreams, trips=((_SAME, _N),)),
    Mutant(id="seed-refused", server=SeedRefused, trips=((_SAME, _R),), source="vllm-project/vllm#16172"),
    Mutant(id="seed-unknown-field", server=SeedUnknownField, trips=((_SAME, _R),)),
    Mutant(id="engine-seed", server=EngineSeed, trips=((_OTHER, _V),), source="vllm-project/vllm#11953"),
    Mutant(id="high-half-only", server=HighHalfOnly, trips=((_OTHER, _V),)),
    Mutant(id="seed-means-greedy", server=SeedMeansGreedy, trips=((_OTHER, _V),)),
    Mutant(id="generator-carried-over", server=GeneratorCarriedOver, trips=((_SAME, _N),)),
    Mutant(id="first-token-only", server=FirstTokenOnly, trips=((_SAME, _N),)),
    Mutant(id="gateway-gives-up", server=GatewayGivesUp, trips=((_SAME, _V),), source="BerriAI/litellm#9551"),
    Mutant(id="seed-hangs", server=SeedHangs, trips=((HANGS_NOT.id, _V),)),
    Mutant(id="seed-freezes", server=SeedFreezes, trips=((STAYS_HEALTHY.id, _V),), source="vllm-project/vllm#36451"),
    Mutant(
        id="seed-kills", server=SeedKills, trips=((STAYS_HEALTHY.id, _V),), source="vllm-project/tpu-inference#1850"
    ),
    Mutant(
        id="zero-is-no-seed",
        server=ZeroIsNoSeed,
        trips=(("same-seed-same-text", Outcome.NO_EFFECT),),
        source="InternLM/lmdeploy#4525",
    ),
)

HARMLESS = (
    Harmless(id="fixed-without-seed", server=FixedWithoutSeed, source="vllm-project/vllm#11953"),
    Harmless(id="only-warm", server=OnlyWarm),
    Harmless(id="other-generator", server=OtherGenerator),
    Harmless(id="slow", server=Slow),
    Harmless(id="extra-fields", server=ExtraFields),
    Harmless(id="other-reasoning-field", server=OtherReasoningField, source="vllm-project/vllm#50624"),
    Harmless(id="late-words", server=LateWords),
)
