"""A prompt whose beginning was computed before is not computed again.

What it does: sends a long prompt that begins with a random word (cold), the same prompt with another question at its
end (warm), and the same words behind another random word (other: the control that must miss). Reads, in this order,
what usage says of cached tokens, by how many tokens the engine's counters moved, and, only where neither tells, the
time to the first token over several rounds. A hit is at least half of the prompt; a miss is at most 64 tokens or a
tenth of it, since some engines count the few tokens of the chat header on every miss.

Why it matters: agents and retrieval send the same long beginning over and over; without reuse each turn costs its
whole length again.

How it could be fooled: by a server that reports a hit and computes anyway (then the time shows it, which this row
reads only where nothing is reported); by replicas behind one address, each with a cache of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from statistics import median

from pydantic import Field

from servecheck import stats
from servecheck.model import Check, Exchange, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply, sse
from servecheck.read.metrics import metrics, moved

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/features/automatic_prefix_caching/"
_PART = Part()
_REUSED, _CONTROL = "same-prefix-is-reused", "other-prefix-is-not-reused"
_SIDES = ("cold", "warm", "other")
_WORDS = (
    *("river", "stone", "cloud", "garden", "window", "table", "letter", "silver", "morning", "paper", "market"),
    *("bridge", "winter", "forest", "candle", "music", "harbour", "button", "island", "mirror", "pencil", "summer"),
)
_COUNTERS = (
    "vllm:prefix_cache_hits_total",
    "vllm:prompt_tokens_cached_total",
    "sglang:cached_tokens_total",
    "ray_vllm_prefix_cache_hits_total",
)
_ROUNDS = 3
_TIMED_WORDS = 1024  # at 512 tokens and more, three cold and three warm never overlapped on three engines
_MIN_RATIO = 1.5


class PrefixCacheReuseParams(Params):
    """What may be chosen in YAML."""

    words: int = Field(
        default=320,
        ge=128,
        le=16384,
        description="Words of the shared beginning; raised to two blocks of the server's cache where that is known.",
    )


def _prompt(nonce: str, words: int, question: str) -> Json:
    text = " ".join(_WORDS[place % len(_WORDS)] for place in range(words))
    return [{"role": "user", "content": f"{nonce} {text}\n\n{question}"}]


def _body(nonce: str, words: int, question: str, *, stream: bool) -> dict[str, Json]:
    body: dict[str, Json] = {"messages": _prompt(nonce, words, question), "max_tokens": 1, "temperature": 0}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


async def drive(session: Session, params: PrefixCacheReuseParams, _: Transcript | None) -> None:
    """Cold, warm, other, with counters around them; timed rounds only where nothing is reported."""
    block = session.fingerprint.value("block_size")
    words = max(params.words, 2 * int(block) + 64 if block and block.isdigit() and int(block) <= 4096 else 0)
    mine, others = session.nonce(), session.nonce()
    await session.metrics("metrics-0")
    await session.chat("cold", _body(mine, words, "Which word came first?", stream=False))
    await session.metrics("metrics-cold")
    await session.chat("warm", _body(mine, words, "Is there a colour among these words?", stream=False))
    await session.metrics("metrics-warm")
    await session.chat("other", _body(others, words, "Is there a colour among these words?", stream=False))
    await session.metrics("metrics-other")
    if _reported(session.transcript) is None and _counted(session.transcript) is None:
        for turn in range(_ROUNDS):
            nonce, foreign = session.nonce(), session.nonce()
            long = max(words, _TIMED_WORDS)
            for side, lead, question in (
                ("cold", nonce, "Which word came first?"),
                ("warm", nonce, "Is there a colour among these words?"),
                ("other", foreign, "Is there a colour among these words?"),
            ):
                await session.chat(f"timed-{side}-{turn}", _body(lead, long, question, stream=True))


def _answer(transcript: Transcript, step: str) -> reply.Answer | None:
    exchange = transcript.get(step)
    read = reply.chat(exchange) if exchange is not None else None
    return read if isinstance(read, reply.Answer) else None


def _prompt_tokens(transcript: Transcript) -> int:
    answer = _answer(transcript, "warm")
    return (answer.usage.prompt if answer and answer.usage else None) or 0


def _reported(transcript: Transcript) -> dict[str, int] | None:
    """Return the cached tokens that usage reports for each side; ``None`` where it reports none: that is not zero.

    Some servers leave the field out where nothing was cached, so a number on the warm side makes the others zero.
    """
    answers = {side: _answer(transcript, side) for side in _SIDES}
    cached = {side: answer.usage.cached if answer and answer.usage else None for side, answer in answers.items()}
    if None in answers.values() or all(value is None for value in cached.values()):
        return None
    return {side: value or 0 for side, value in cached.items()}


def _counted(transcript: Transcript) -> dict[str, int] | None:
    """Return by how many cached tokens the engine's counter moved at each side, ``None`` where there is no counter."""
    reads = ["metrics-0", *(f"metrics-{side}" for side in _SIDES)]
    found = [exchange for step in reads if (exchange := transcript.get(step)) is not None]
    if len(found) < len(reads):
        return None
    parsed = [metrics(exchange) for exchange in found]
    for name in _COUNTERS:
        steps = [moved(before, after, name) for before, after in itertools.pairwise(parsed)]
        if None not in steps:
            return {side: int(step or 0) for side, step in zip(_SIDES, steps, strict=True)}
    return None


def judge(transcript: Transcript, _: PrefixCacheReuseParams) -> Iterator[Finding]:
    """Judge by the best evidence there is."""
    for side in _SIDES:
        exchange = transcript.get(side)
        missing = _PART.unless_answered(_REUSED, reply.chat(exchange) if exchange is not None else None)
        if missing is not None:
            yield missing
            return
    seen = [exchange for step in _SIDES if (exchange := transcript.get(step)) is not None]
    reported, counted = _reported(transcript), _counted(transcript)
    if reported is not None:
        yield from _by_tokens(transcript, reported, "usage reports", seen)
    elif counted is not None:
        yield from _by_tokens(transcript, counted, "the server's counter moved by", seen)
    else:
        yield from _by_time(transcript)


def _by_tokens(transcript: Transcript, cached: dict[str, int], says: str, seen: list[Exchange]) -> Iterator[Finding]:
    total = _prompt_tokens(transcript)
    hit, miss = max(total / 2, 1), max(64, total / 10)
    figures = {f"cached_{side}_tokens": count for side, count in cached.items()} | {"prompt_tokens": total}
    said = f"{says} {cached['cold']} cached tokens cold, {cached['warm']} warm, {cached['other']} behind another word"
    said += f", of {total}"
    if not total:
        yield _PART.undetermined(_REUSED, f"{said}, but not how long the prompt is", *seen, **figures)
    elif cached["warm"] > total:
        yield _PART.violated(_REUSED, f"{said}: more than there is", *seen, **figures)
    elif cached["warm"] >= hit:
        yield _PART.held(_REUSED, said, *seen, **figures)
    elif transcript.fingerprint.value("prefix_caching") == "False":
        yield _PART.refused(_REUSED, f"{said}; the server says that its prefix cache is off", *seen, **figures)
    else:
        yield _PART.no_effect(_REUSED, f"{said}: computed again", *seen, **figures)
    wrong = [side for side in ("cold", "other") if cached[side] > miss]
    if wrong:
        yield _PART.violated(_CONTROL, f"{said}: a prompt never seen before cannot be cached", *seen, **figures)
    else:
        yield _PART.held(_CONTROL, said, *seen, **figures)


def _ttft(exchange: Exchange) -> float | None:
    """Return the seconds to the first event with a choice, ``None`` where there is none."""
    if not isinstance(reply.chat(exchange), reply.Answer):
        return None
    return next((event.at for event in sse.events(exchange.chunks).events if b'"choices"' in event.data), None)


def _by_time(transcript: Transcript) -> Iterator[Finding]:
    seen = transcript.steps("timed-")
    times = {side: [t for found in transcript.steps(f"timed-{side}-") if (t := _ttft(found))] for side in _SIDES}
    if any(len(values) < _ROUNDS for values in times.values()):
        why = "neither usage nor counters report cached tokens, and not every timed request was answered"
        yield _PART.undetermined(_REUSED, why, *seen)
        return
    cold, warm, other = (times[side] for side in _SIDES)
    ratio = stats.ratio_of_medians(cold, warm)
    apart = stats.separation(warm, [*cold, *other])
    figures = {f"ttft_{side}_s": round(median(times[side]), 4) for side in _SIDES} | {"ratio": round(ratio, 2)}
    said = f"first token after {median(cold):.3f} s cold, {median(warm):.3f} s warm, {median(other):.3f} s behind "
    said += f"another word (median of {_ROUNDS}); cached tokens are not reported"
    if apart.separated and ratio >= _MIN_RATIO:
        yield _PART.held(_REUSED, said, *seen, **figures)
        yield _PART.held(_CONTROL, said, *seen, **figures)
    else:
        yield _PART.undetermined(_REUSED, f"{said}: too close to tell", *seen, **figures)


PROBE = Probe(
    id="prefix_cache_reuse",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_REUSED,
            rule="At least half of a prompt whose beginning was computed before comes from the cache.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_CONTROL,
            rule="A prompt that begins with a new word is not reported, counted or timed as cached.",
            level=Level.MUST,
            source=_SOURCE,
        ),
    ),
    params=PrefixCacheReuseParams,
    drive=drive,
    judge=judge,
    exclusive=True,
    requests=7,
    prompt_tokens=1200,
    output_tokens=3,
)
