"""Servers that compile while they serve, by three bucket rules, and servers that only look so."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable, Sequence
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Reply, Request
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.streaming_frames import PingComments
from servecheck.reference.sampling import chance
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS", "Compiling"]


def doubling(tokens: int) -> int:
    """Return the bucket of a number of tokens: 16, 32, 64 … as the TPU back ends pad."""
    return max(16, 1 << (tokens - 1).bit_length())


def stepped(tokens: int) -> int:
    """Return the bucket where lengths double up to 128 and then go in steps of 128."""
    return doubling(tokens) if tokens <= 128 else math.ceil(tokens / 128) * 128


def exact(tokens: int) -> int:
    """Return the length itself: every length is a shape."""
    return tokens


RULES = {"doubling": doubling, "stepped": stepped, "exact": exact}


class Compiling(ReferenceServer):
    """Compiles each range of prompt lengths when it is first met, and everybody waits.

    ``rule`` names how lengths are padded; ``planted`` are the only shapes that are not ready (all where it is
    ``None``); ``replicas`` compile each for themselves and take turns at random; ``cached`` loads what an earlier
    process has compiled from a disk; ``bursts`` are (start, seconds) of other users' requests, which hold up everybody
    and are counted; ``jitter`` is the share by which the time of a prompt varies. ``compiled`` lists what was compiled:
    (replica, shape, seconds).
    """

    def __init__(
        self,
        *,
        rule: str = "doubling",
        compile_seconds: float = 8.0,
        planted: frozenset[Hashable] | None = None,
        replicas: int = 1,
        cached: bool = False,
        bursts: Sequence[tuple[float, float]] = (),
        jitter: float = 0.2,
        **config: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**config)
        self.bucket = RULES[rule]
        self.compile_seconds, self.planted, self.cached = compile_seconds, planted, cached
        self.replicas, self.jitter = replicas, jitter
        self.bursts = sorted(bursts)
        self.compiled: list[tuple[int, Hashable, float]] = []
        self.queued = 0.0
        self._met: set[tuple[int, Hashable]] = set()
        self._busy_until = [0.0] * replicas

    def shape_of(self, tokens: int) -> Hashable:
        """Return the shape that a prompt of so many tokens is padded to."""
        return self.bucket(tokens)

    def replica_of(self, job: Job) -> int:
        """Return which replica serves a request."""
        return int(chance(self.jitter_seed, job.id, 11) * self.replicas)

    def stall(self, job: Job, shape: Hashable) -> float:
        """Return the seconds until a request goes on: what its replica compiles already, and what for it."""
        now, replica = asyncio.get_running_loop().time(), self.replica_of(job)
        if (replica, shape) not in self._met:
            self._met.add((replica, shape))
            if self.planted is None or shape in self.planted:
                seconds = self.compile_seconds * (0.75 + 0.5 * chance(self.jitter_seed, replica, repr(shape)))
                if self.cached:
                    seconds = 0.2
                else:
                    self.compiled.append((replica, shape, seconds))
                until = self._busy_until[replica] = max(now, self._busy_until[replica]) + seconds
                # Whoever comes meanwhile is served behind it.
                self.bursts = sorted((until if now <= start < until else start, long) for start, long in self.bursts)
        return max(0.0, self._busy_until[replica] - now)

    def wait_for_others(self) -> float:
        """Return the seconds until other users' requests are through; they and our wait are counted as engines do."""
        now = asyncio.get_running_loop().time()
        free = now
        for start, seconds in list(self.bursts):
            if start > free:
                break
            self.bursts.remove((start, seconds))
            self.metrics.prompt_tokens += int(seconds / self.prefill_seconds)
            free = max(free, start + seconds) if start + seconds > now else free
        self.queued += free - now
        return free - now

    def metrics_text(self) -> str:
        """Add the time that requests have waited in the queue."""
        name = "vllm:request_queue_time_seconds"
        lines = [f"# TYPE {name} histogram", f'{name}_bucket{{le="+Inf"}} 1.0', f"{name}_count 1.0"]
        return super().metrics_text() + "\n".join([*lines, f"{name}_sum {self.queued}"]) + "\n"

    def prefill_delay(self, job: Job, uncached: int) -> float:
        """Wait for others and for the compiler; vary a little."""
        usual = super().prefill_delay(job, uncached) * (1 + self.jitter * chance(self.jitter_seed, job.id, uncached))
        return self.wait_for_others() + self.stall(job, self.shape_of(uncached)) + usual


class CompilesLengths(Compiling):
    """Compiles a range of prompt lengths when it is first met, where the warm-up was skipped."""


class CompilesBatches(Compiling):
    """Compiles a size of the batch, 8, 16, 32 …, when it is first met: warm-up did not see it."""

    def shape_of(self, tokens: int) -> Hashable:  # noqa: ARG002
        """Return nothing to compile: lengths are ready."""
        return None

    def stall(self, job: Job, shape: Hashable) -> float:
        """Compile only what is a batch."""
        return super().stall(job, shape) if shape is not None else 0.0

    def decode_delay(self, job: Job, index: int, count: int) -> float:
        """Wait for the batch that runs now."""
        size = max(8, 1 << (max(1, self.metrics.running) - 1).bit_length())
        return super().decode_delay(job, index, count) + self.stall(job, ("batch", size) if size > 8 else None)


class CompilesLogprobs(CompilesBatches):
    """Takes twenty seconds for the first request with logprobs, a variant that is compiled at its first use."""

    def decode_delay(self, job: Job, index: int, count: int) -> float:
        """Wait for the variant."""
        shape = "logprobs" if job.logprobs is not None and count == 1 else None
        return ReferenceServer.decode_delay(self, job, index, count) + self.stall(job, shape)


class ForgetsShapes(CompilesLengths):
    """Keeps three compiled shapes only and compiles what it dropped again and again."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._kept: list[Hashable] = []

    def stall(self, job: Job, shape: Hashable) -> float:
        """Drop the oldest ones."""
        self._kept = [*[met for met in self._kept if met != shape][-2:], shape]
        self._met = {met for met in self._met if met[1] in self._kept}
        return super().stall(job, shape)


class FailsNewShapes(ReferenceServer):
    """Fails inside at the first prompt of a range of lengths, since compiling is forbidden, and serves the next."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._met = {64}

    def check_length(self, ids: Sequence[int]) -> None:
        """Fail once per range."""
        super().check_length(ids)
        bucket = max(64, doubling(len(ids)))
        if bucket not in self._met:
            self._met.add(bucket)
            raise ApiError("compilation occurred but was forbidden", status=500, kind="server_error")


# --------------------------------------------------------------------------- odd, but right


class LoadsFromDisk(Compiling):
    """Loads each shape from a cache on disk in a fifth of a second, since an earlier process has compiled it."""


class HeldUpByOthers(Compiling):
    """Holds up requests for seconds now and then because other users are served, and counts it."""


class GrammarSetUp(ReferenceServer):
    """Takes nine seconds for its first structured request, to load a grammar library."""

    _ready = False

    async def reply_chat(self, request: Request) -> Reply:
        """Wait once."""
        if self.body_of(request).get("response_format") and not self._ready:
            self._ready = True
            await asyncio.sleep(9)
        return await super().reply_chat(request)


class LengthCosts(ReferenceServer):
    """Takes seconds for a long prompt, each time."""


class Uneven(ReferenceServer):
    """Takes up to twice as long now and then, as on a busy machine."""

    def prefill_delay(self, job: Job, uncached: int) -> float:
        """Vary a lot."""
        return super().prefill_delay(job, uncached) * (1 + chance(self.jitter_seed, job.id, "uneven"))


class NoJson(ReferenceServer):
    """Refuses structured output by name."""

    def constraint_of(self, body: dict[str, Any]) -> Any:  # noqa: ANN401
        """Refuse."""
        if body.get("response_format"):
            raise ApiError("response_format is not supported here", param="response_format")
        return super().constraint_of(body)


_V = Outcome.VIOLATED
_QUICK, _STAYS = "first-use-is-as-quick", "used-shape-stays-quick"

MUTANTS = (
    Mutant(id="compiles-lengths", server=CompilesLengths, trips=((_QUICK, _V),), source="vllm-project/vllm#15714"),
    Mutant(
        id="compiles-every-length",
        server=CompilesLengths,
        trips=((_QUICK, _V),),
        config={"rule": "exact"},
    ),
    Mutant(
        id="compiles-steps-of-128",
        server=CompilesLengths,
        trips=((_QUICK, _V),),
        config={"rule": "stepped"},
    ),
    Mutant(id="compiles-batches", server=CompilesBatches, trips=((_QUICK, _V),), source="vllm-project/vllm#14510"),
    Mutant(id="compiles-logprobs", server=CompilesLogprobs, trips=((_QUICK, _V),), config={"compile_seconds": 20.0}),
    Mutant(
        id="two-replicas-compile",
        server=CompilesLengths,
        trips=((_QUICK, _V), (_STAYS, _V)),
        config={"replicas": 2},
        source="vllm-project/vllm#14510",
    ),
    Mutant(id="forgets-shapes", server=ForgetsShapes, trips=((_STAYS, _V),)),
    Mutant(
        id="fails-new-shapes",
        server=FailsNewShapes,
        trips=(("new-shape-is-answered", _V),),
        source="vllm-project/tpu-inference#1850",
    ),
)

HARMLESS = (
    Harmless(id="loads-from-disk", server=LoadsFromDisk, config={"cached": True}),
    Harmless(
        id="held-up-by-others",
        server=HeldUpByOthers,
        config={"planted": frozenset(), "bursts": tuple((1.0 + 5.0 * turn, 2.5) for turn in range(20))},
        source="vllm-project/vllm#14510",
    ),
    Harmless(id="grammar-set-up", server=GrammarSetUp, source="vllm-project/vllm#14151"),
    Harmless(id="length-costs", server=LengthCosts, config={"prefill_seconds": 0.005}),
    Harmless(id="uneven", server=Uneven),
    Harmless(id="no-json", server=NoJson),
    Harmless(id="ping-comments", server=PingComments, source="theopenco/llmgateway#2334"),
)
