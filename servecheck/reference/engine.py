"""Scheduling and token generation: slots, prefill, cache, sampling and parsing; no HTTP and no JSON shapes."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from servecheck.reference.asgi import Event
from servecheck.reference.cache import PrefixCache
from servecheck.reference.constraint import Constraint
from servecheck.reference.metrics import Metrics
from servecheck.reference.models import LanguageModel, model_named, spread
from servecheck.reference.parsing import CallDelta, StopScanner, Text, ThinkSplitter, ToolSplitter
from servecheck.reference.sampling import Chooser, Sampling, chance, draw
from servecheck.reference.tokens import CALL_CLOSE, END_OF_TEXT, IM_END, THINK_CLOSE, encode, piece

__all__ = ["Delta", "Engine", "Job", "Prompt", "Slots", "Step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One generated token with the distribution it was drawn from (likeliest first, before any sampling parameter)."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What one choice has to say next. ``steps`` are the tokens since the last delta; ``count`` all tokens so far."""

    index: int
    content: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()
    steps: tuple[Step, ...] = ()
    count: int = 0
    finish: str | None = None
    stop_reason: str | int | None = None


@dataclass(slots=True, kw_only=True)
class Prompt:
    """A prompt in token ids; ``cached`` is filled in when it is prefilled."""

    ids: tuple[int, ...]
    text: str = ""
    cached: int = 0
    filled: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request, read and checked: everything that generation needs."""

    id: str
    created: int
    model: str
    body: Event
    prompts: tuple[Prompt, ...]
    sampling: Sampling
    limit: int
    n: int = 1
    stops: tuple[str, ...] = ()
    include_stop: bool = False
    salt: str = ""
    constraint: Constraint | None = None
    tools: bool = False
    parallel: bool = True
    chat: bool = True
    thinking: bool = False
    echo: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False

    @property
    def choices(self) -> int:
        """How many choices the reply has."""
        return self.n * len(self.prompts)

    def prompt(self, index: int) -> Prompt:
        """Return the prompt of a choice; the index runs over the choices of each prompt in turn."""
        return self.prompts[index // self.n]


class Slots:
    """Places in the batch; who waits longest is next. Independent of any event loop while nobody waits."""

    def __init__(self, count: int, metrics: Metrics) -> None:
        self._free, self._metrics = count, metrics
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Hold a place; it is given back however the holder ends."""
        await self._take()
        self._metrics.running += 1
        try:
            yield
        finally:
            self._metrics.running -= 1
            self._give()

    async def _take(self) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._metrics.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give()
            raise
        finally:
            self._metrics.waiting -= 1

    def _give(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Engine:
    """The part of the server that generates; see :class:`~servecheck.reference.server.ReferenceServer`."""

    def __init__(
        self,
        *,
        model: str = "reference",
        language: str | LanguageModel = "obedient",
        decode_seconds: float = 0.02,
        prefill_seconds: float = 0.0005,
        max_model_len: int = 4096,
        block: int = 16,
        blocks: int = 4096,
        slots: int = 16,
        api_key: str | None = None,
        jitter_seed: int = 0,
        reports_cached: bool = True,
        tool_parser: bool = True,
        reasoning_parser: bool = True,
        adapters: Sequence[str] = (),
        speculative: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.model = model
        self.language = model_named(language) if isinstance(language, str) else language
        self.decode_seconds, self.prefill_seconds = decode_seconds, prefill_seconds
        self.max_model_len = max_model_len
        self.api_key = api_key
        self.jitter_seed = jitter_seed
        self.reports_cached = reports_cached
        self.tool_parser, self.reasoning_parser = tool_parser, reasoning_parser
        self.adapters, self.speculative = tuple(adapters), speculative
        self.clock = clock
        self.metrics = Metrics()
        self.cache = PrefixCache(block=block, capacity=blocks)
        self.slots = Slots(slots, self.metrics)
        self._requests = itertools.count(1)

    # ------------------------------------------------------------------ hooks

    def decode_delay(self, job: Job, index: int, count: int) -> float:
        """Return the seconds that a choice's next token takes; within a tenth of ``decode_seconds``."""
        return self.decode_seconds * (0.95 + 0.1 * chance(self.jitter_seed, job.id, index, count))

    def prefill_delay(self, job: Job, uncached: int) -> float:  # noqa: ARG002
        """Return the seconds that the uncached part of a prompt takes."""
        return self.prefill_seconds * uncached

    def lookup_cached(self, job: Job, prompt: Prompt) -> int:
        """Return how many leading tokens of a prompt need no computing."""
        return self.cache.cached(self.cache_of(job), prompt.ids)

    def store_cached(self, job: Job, ids: Sequence[int]) -> None:
        """Remember computed tokens."""
        self.cache.store(self.cache_of(job), ids)

    def cache_of(self, job: Job) -> str:
        """Return whose cache a request uses: one for each salt and each adapter."""
        return f"{job.salt}\n{job.model}" if job.model in self.adapters else job.salt

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401, ARG002
        """Return the model's next-token distribution: a list of (id, log probability), likeliest first."""
        return self.adapted(job, self.language.candidates(prompt, generated))

    def adapted(self, job: Job, candidates: list[tuple[int, float]]) -> list[tuple[int, float]]:
        """Return the distribution as the adapter that the job names, if any, makes it: the likeliest less likely."""
        if job.model not in self.adapters:
            return candidates
        token, logprob = candidates[0]
        context = hashlib.blake2b(f"{job.model} {token}".encode(), digest_size=16).digest()
        return spread(token, math.exp(logprob) * (0.2 + 0.3 * context[0] / 256), context)

    def context_of(self, job: Job, index: int) -> tuple[int, ...]:
        """Return the token ids that a choice is generated from."""
        return job.prompt(index).ids

    def ends_at(self, job: Job) -> frozenset[int]:  # noqa: ARG002
        """Return the tokens that end an answer by themselves."""
        return frozenset({IM_END, END_OF_TEXT})

    def new_id(self, prefix: str) -> str:
        """Return a fresh id; the same server gives the same ones in the same order."""
        seed = f"{self.jitter_seed} {next(self._requests)}"
        return prefix + hashlib.blake2b(seed.encode(), digest_size=8).hexdigest()

    # ------------------------------------------------------------------ running

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Generate all choices at once and yield what each has to say, as it comes."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.metrics.prompt_tokens += sum(len(prompt.ids) for prompt in job.prompts)
        queue: asyncio.Queue[Delta | BaseException] = asyncio.Queue()

        async def work(index: int) -> None:
            try:
                async for delta in self.choice(job, index):
                    queue.put_nowait(delta)
            except Exception as trouble:  # noqa: BLE001  # carried to whoever reads the deltas, and raised there
                queue.put_nowait(trouble)

        tasks = [asyncio.create_task(work(index)) for index in range(job.choices)]
        unfinished = job.choices
        try:
            while unfinished:
                delta = await queue.get()
                if isinstance(delta, BaseException):
                    raise delta
                if delta.finish is not None:
                    unfinished -= 1
                    self.metrics.finished["stop" if delta.finish == "tool_calls" else delta.finish] += 1
                    self.metrics.whole.observe(loop.time() - began)
                yield delta
        finally:
            self.metrics.finished["abort"] += unfinished
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def prefill(self, job: Job, index: int) -> None:
        """Compute a prompt once for all its choices; only what is not cached takes time."""
        prompt = job.prompt(index)
        if index % job.n:
            await prompt.filled.wait()
            return
        prompt.cached = 0 if job.prompt_logprobs is not None else self.lookup_cached(job, prompt)
        self.metrics.cache_queries += len(prompt.ids)
        self.metrics.cache_hits += prompt.cached
        await asyncio.sleep(self.prefill_delay(job, len(prompt.ids) - prompt.cached))
        self.store_cached(job, prompt.ids)
        prompt.filled.set()

    async def choice(self, job: Job, index: int) -> AsyncIterator[Delta]:
        """Generate one choice."""
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        if index % job.n:
            await self.prefill(job, index)
        async with self.slots.taken():
            if index % job.n == 0:
                await self.prefill(job, index)
            reader = _Reader(self, job, index)
            generated: list[int] = []
            last = arrived
            for step, finish, reason in self.steps(job, index, generated):
                await asyncio.sleep(self.decode_delay(job, index, len(generated)))
                now = loop.time()
                (self.metrics.between_tokens if len(generated) > 1 else self.metrics.first_token).observe(now - last)
                last = now
                self.metrics.generation_tokens += 1
                delta = reader.feed(step, finish, reason, len(generated))
                if delta is not None:
                    yield delta
                    if delta.finish is not None:
                        break
            else:
                yield Delta(index=index, finish="length")
            self.store_cached(job, (*job.prompt(index).ids, *generated[:-1]))

    def steps(self, job: Job, index: int, generated: list[int]) -> Iterator[tuple[Step, str | None, str | int | None]]:
        """Yield (step, finish, stop reason) and append each token to ``generated``; ends with a finish."""
        sampling = job.sampling
        prompt = self.context_of(job, index)
        ends = frozenset() if sampling.ignore_eos else self.ends_at(job)
        known = frozenset(prompt) if sampling.repetition_penalty != 1.0 else frozenset()
        script: Iterator[int] | None = None
        free = not (job.thinking and self.language.thinks and job.chat)
        while len(generated) < job.limit:
            if job.constraint is not None and script is None and (free or THINK_CLOSE in generated):
                script = iter(self.script(job, index, prompt, after_thought=not free))
            if script is not None:
                token = next(script)
                context = chance(prompt[-1], generated[-1:], len(generated)).hex().encode()
                candidates = spread(token, 0.999, context)
            else:
                candidates = self.candidates(job, index, prompt, generated)
                short = len(generated) < sampling.min_tokens
                token = draw(
                    candidates,
                    sampling,
                    chance(sampling.seed, index, len(generated)),
                    prompt=known,
                    generated=generated,
                    banned={*self.ends_at(job), *sampling.stop_ids} if short else (),
                    outside=lambda other: self.language.outside(prompt, other),
                )
            logprob = next((value for other, value in candidates if other == token), None)
            if logprob is None:
                logprob = self.language.outside(prompt, token)
            generated.append(token)
            top = tuple(candidates[: job.logprobs]) if job.logprobs else ()
            step = Step(token=token, logprob=logprob, top=top)
            if token in sampling.stop_ids and len(generated) >= sampling.min_tokens:
                yield step, "stop", token
            elif (
                token in ends or (script is not None and token == IM_END) or (not job.parallel and token == CALL_CLOSE)
            ):
                yield step, "stop", None
            elif len(generated) >= job.limit:
                yield step, "length", None
            else:
                yield step, None, None
                continue
            return

    def script(self, job: Job, index: int, prompt: Sequence[int], *, after_thought: bool) -> list[int]:
        """Return the tokens of one conforming answer, the end token included."""
        assert job.constraint is not None
        key = self.language.read(prompt).key
        text = job.constraint.text(Chooser(key, job.sampling, index), self.language.hints(prompt))
        return [*encode("\n\n" * after_thought), *encode(text), IM_END]


class _Reader:
    """The tokens of one choice to deltas."""

    def __init__(self, engine: Engine, job: Job, index: int) -> None:
        self._job, self._index = job, index
        self._text = Text()
        self._stops = StopScanner(job.stops, include=job.include_stop)
        self._thoughts = ThinkSplitter(on=job.chat and engine.reasoning_parser and engine.language.thinks)
        self._tools = ToolSplitter(on=job.tools and engine.tool_parser)
        self._pending: list[Step] = []

    def feed(self, step: Step, finish: str | None, reason: str | int | None, count: int) -> Delta | None:
        self._pending.append(step)
        data = b"" if finish == "stop" and step.token != CALL_CLOSE else piece(step.token)
        thought, answer = self._thoughts.feed(self._text.feed(data))
        stopped = None
        if count > self._job.sampling.min_tokens or not self._job.sampling.min_tokens:
            answer, stopped = self._stops.feed(answer)
        if stopped is not None:
            finish, reason = "stop", stopped
        elif finish is not None:
            more, rest = self._thoughts.rest()
            thought += more
            held, stopped = self._stops.feed(rest)
            answer += held + self._stops.rest()
            if stopped is not None:
                finish, reason = "stop", stopped
        content, calls = self._tools.feed(answer)
        if finish is not None:
            content += self._tools.rest()
            if finish == "stop" and self._tools.calls:
                finish, reason = "tool_calls", None
        if not (content or thought or calls or finish):
            return None
        delta = Delta(
            index=self._index,
            content=content,
            reasoning=thought,
            calls=tuple(calls),
            steps=tuple(self._pending),
            count=count,
            finish=finish,
            stop_reason=reason,
        )
        self._pending.clear()
        return delta
