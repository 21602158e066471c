"""A prompt whose beginning was computed before is not computed again.

What it does: sends a long prompt that begins with a random word (cold), the same prompt with another question at its
end (warm), and the same words behind another random word (other: the control that must miss). Reads, in this order,
what usage says of cached tokens, by how many tokens the engine's counters moved, and, only where neither tells, the
time to the first token over several rounds. A hit is at least half of the prompt; a miss is at most 64 tokens or a
tenth of it, since some engines count the few tokens of the chat header on every miss. Counters count only where they
moved by our prompts and nobody else's, and they overrule a usage that says zero: a gateway may write zero for what it
does not know.

Why it matters: agents and retrieval send the same long beginning over and over; without reuse each turn costs its
whole length again.

How it could be fooled: by a server that reports a hit and computes anyway (then the time shows it, which this row
reads only where nothing is reported); by replicas behind one address, each with a cache of its own; by a cache whose
blocks are longer than the prompt, which is undetermined where the server says its block size and looks like no cache
where it does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from statistics import median

from pydantic import Field

from servecheck import stats
from servecheck.model import Check, Exchange, Finding, Fingerprint, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply, sse
from servecheck.read.metrics import Metrics, metrics, moved
from servecheck.read.text import dig, parse

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/features/automatic_prefix_caching/"
_PART = Part()
_REUSED, _CONTROL = "same-prefix-is-reused", "other-prefix-is-not-reused"
_SIDES = ("cold", "warm", "other")
_READS = ("metrics-0", *(f"metrics-{side}" for side in _SIDES))
_WORDS = (
    *("river", "stone", "cloud", "garden", "window", "table", "letter", "silver", "morning", "paper", "market"),
    *("bridge", "winter", "forest", "candle", "music", "harbour", "button", "island", "mirror", "pencil", "summer"),
)
_COUNTERS = (
    ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
    ("vllm:prompt_tokens_cached_total", "vllm:prompt_tokens_total"),
    ("sglang:cached_tokens_total", "sglang:prompt_tokens_total"),
    ("ray_vllm_prefix_cache_hits_total", "ray_vllm_prefix_cache_queries_total"),
)
"""Series of cached tokens, each with the series of all prompt tokens that goes with it."""
_LATE, _LATE_READS = 0.5, 5  # engines add a request to their counters up to a second after its reply
_LONGEST_BLOCK, _FEWEST = 4096, 128
_TAIL = 32  # tokens at the end of the prompt that are not shared
_SLACK = 16  # tokens: engines may count a template's token more or less
_QUESTIONS = {
    "cold": "Which word came first?",
    "warm": "Is there a colour among these words?",
    "other": "Is there a colour among these words?",
}
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


def _prompt(nonce: str, words: int, question: str, shift: int) -> Json:
    text = " ".join(_WORDS[(place + shift) % len(_WORDS)] for place in range(words))
    return [{"role": "user", "content": f"{nonce} {text}\n\n{question}"}]


def _body(nonce: str, words: int, question: str, *, stream: bool, shift: int = 0) -> dict[str, Json]:
    body: dict[str, Json] = {"messages": _prompt(nonce, words, question, shift), "max_tokens": 1, "temperature": 0}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


async def drive(session: Session, params: PrefixCacheReuseParams, _: Transcript | None) -> None:
    """Cold, warm, other, with counters around them; timed rounds only where nothing is reported."""
    words = _fitting(session.fingerprint, max(params.words, _two_blocks(session.fingerprint)))
    mine, others = session.nonce(), session.nonce()
    await session.metrics("metrics-0")
    for side, lead in zip(_SIDES, (mine, mine, others), strict=True):
        await session.chat(side, _body(lead, words, _QUESTIONS[side], stream=False))
        for _again in range(_LATE_READS):
            await session.metrics(f"metrics-{side}")
            if not _is_late(session.transcript, side):
                break
            await session.wait(_LATE)
    if _reported(session.transcript) is None and _counted(session.transcript) is None:
        long = _fitting(session.fingerprint, max(words, _TIMED_WORDS))
        for turn in range(_ROUNDS):
            mine, others = session.nonce(), session.nonce()
            for side, lead in zip(_SIDES, (mine, mine, others), strict=True):
                # Other words each time, else a cache that is shared by all prompts would make the cold one warm too.
                body = _body(lead, long, _QUESTIONS[side], stream=True, shift=5 * turn + 3)
                await session.chat(f"timed-{side}-{turn}", body)


def _block(fingerprint: Fingerprint) -> int:
    """Return the tokens in one block of the server's cache, 0 where that is not known."""
    said = fingerprint.value("block_size")
    return int(said) if said and said.isdigit() else 0


def _two_blocks(fingerprint: Fingerprint) -> int:
    block = _block(fingerprint)
    return 2 * block + 64 if block <= _LONGEST_BLOCK else 0


def _fitting(fingerprint: Fingerprint, words: int) -> int:
    """Return so many words, or as many as fit the context; a word is at most about one and a half tokens."""
    said = fingerprint.value("max_model_len")
    return min(words, max(_FEWEST, int(said) * 2 // 3 - 64)) if said and said.isdigit() else words


def _answer(transcript: Transcript, step: str) -> reply.Answer | None:
    exchange = transcript.get(step)
    read = reply.chat(exchange) if exchange is not None else None
    return read if isinstance(read, reply.Answer) else None


def _prompt_tokens(transcript: Transcript, side: str = "warm") -> int:
    answer = _answer(transcript, side)
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


def _reads(transcript: Transcript) -> list[Metrics]:
    """Return the reads of the counters so far, in order."""
    found = (transcript.get(step) for step in _READS)
    return [metrics(exchange) for exchange in found if exchange is not None]


def _is_late(transcript: Transcript, side: str) -> bool:
    """Tell whether the counters have not yet heard of all the tokens of the prompt that was just answered."""
    before, after = _reads(transcript)[-2:]
    for _, asked in _COUNTERS:
        step = moved(before, after, asked)
        if step is not None:
            return step < _prompt_tokens(transcript, side)
    return False


def _counted(transcript: Transcript) -> dict[str, int] | None:
    """Return by how many cached tokens the engine's counter moved at each side.

    ``None`` where there is no counter, where it was reset, and where others' prompts moved it too.
    """
    reads = _reads(transcript)
    if len(reads) < len(_READS):
        return None
    ours = [_prompt_tokens(transcript, side) for side in _SIDES]
    for hits, asked in _COUNTERS:
        steps = [moved(before, after, hits) for before, after in itertools.pairwise(reads)]
        if None in steps:
            continue
        prompts = [moved(before, after, asked) for before, after in itertools.pairwise(reads)]
        if any(
            all_ is not None and abs(all_ - mine) > max(_SLACK, mine / 20)
            for all_, mine in zip(prompts, ours, strict=True)
            if mine
        ):
            return None
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
    reads = [exchange for step in _READS if (exchange := transcript.get(step)) is not None]
    hit = _hit(_prompt_tokens(transcript))
    if counted is not None and (reported is None or reported["warm"] < hit <= counted["warm"]):
        lie = "" if reported is None else f"usage reports {reported['warm']} cached tokens, but "
        yield from _by_tokens(transcript, counted, f"{lie}the server's counter moved by", [*seen, *reads])
    elif reported is not None:
        yield from _by_tokens(transcript, reported, "usage reports", seen)
    else:
        yield from _by_time(transcript)


def _hit(prompt_tokens: int) -> float:
    return max(prompt_tokens / 2, 1)


def _by_tokens(transcript: Transcript, cached: dict[str, int], says: str, seen: list[Exchange]) -> Iterator[Finding]:
    total = _prompt_tokens(transcript)
    hit, miss = _hit(total), max(64, total / 10)
    figures = {f"cached_{side}_tokens": count for side, count in cached.items()} | {"prompt_tokens": total}
    said = f"{says} {cached['cold']} cached tokens cold, {cached['warm']} warm, {cached['other']} behind another word"
    said += f", of {total}"
    if not total:
        yield _PART.undetermined(_REUSED, f"{said}, but not how long the prompt is", *seen, **figures)
    elif cached["warm"] > total:
        yield _PART.violated(_REUSED, f"{said}: more than there is", *seen, **figures)
    elif cached["warm"] >= hit:
        yield _PART.held(_REUSED, said, *seen, **figures)
    else:
        yield _not_reused(transcript, said, seen, total, figures)
    wrong = [side for side in ("cold", "other") if cached[side] > miss]
    if wrong:
        yield _PART.violated(_CONTROL, f"{said}: a prompt never seen before cannot be cached", *seen, **figures)
    else:
        yield _PART.held(_CONTROL, said, *seen, **figures)


def _not_reused(
    transcript: Transcript, said: str, seen: list[Exchange], total: int, figures: dict[str, int]
) -> Finding:
    """Judge a prompt that was computed again: switched off, too short to tell, or not reused."""
    block = _block(transcript.fingerprint)
    if transcript.fingerprint.value("prefix_caching") == "False":
        return _PART.refused(_REUSED, f"{said}; the server says that its prefix cache is off", *seen, **figures)
    if block and (total - _TAIL) // block * block < _hit(total):
        why = f"{said}; its cache keeps whole blocks of {block} tokens, and the prompt is too short for that"
        return _PART.undetermined(_REUSED, why, *seen, **figures)
    return _PART.no_effect(_REUSED, f"{said}: computed again", *seen, **figures)


def _ttft(exchange: Exchange) -> float | None:
    """Return the seconds to the first event that says something or ends the answer, ``None`` where there is none.

    A role alone is no token: some servers send it before they have read the prompt.
    """
    if not isinstance(reply.chat(exchange), reply.Answer):
        return None
    for event in sse.events(exchange.chunks).events:
        if event.data.strip() in (sse.DONE, b""):
            continue
        choice = dig(parse(event.data), "choices", 0)
        delta = dig(choice, "delta")
        said = any(dig(delta, key) for key in ("content", "reasoning", "reasoning_content", "tool_calls"))
        if said or dig(choice, "finish_reason") is not None:
            return event.at
    return None


def _by_time(transcript: Transcript) -> Iterator[Finding]:
    seen = transcript.steps("timed-")
    for exchange in seen:
        failed = _PART.unless_answered(_REUSED, reply.chat(exchange), *map(reply.chat, transcript.steps("cold")))
        if failed is not None:
            yield failed
            return
    times = {side: [t for found in transcript.steps(f"timed-{side}-") if (t := _ttft(found))] for side in _SIDES}
    if any(len(values) < _ROUNDS for values in times.values()):
        why = "neither usage nor counters report cached tokens, and not every timed request was answered"
        yield _PART.undetermined(_REUSED, why, *seen)
        return
    cold, warm, other = (times[side] for side in _SIDES)
    ratio = stats.ratio_of_medians(cold, warm)
    figures = {f"ttft_{side}_s": round(median(times[side]), 4) for side in _SIDES} | {"ratio": round(ratio, 2)}
    said = f"first token after {median(cold):.3f} s cold, {median(warm):.3f} s warm, {median(other):.3f} s behind "
    said += f"another word (median of {_ROUNDS}); cached tokens are not reported"
    # The control is compared with the middle between cold and warm: on a busy machine it was 0.7 of the cold time.
    middle = (median(cold) * median(warm)) ** 0.5
    faster = stats.separation(warm, cold).separated and ratio >= _MIN_RATIO
    if faster and min(other) > middle and stats.separation(warm, other).separated:
        yield _PART.held(_REUSED, said, *seen, **figures)
        yield _PART.held(_CONTROL, said, *seen, **figures)
    elif faster and max(other) < middle:
        yield _PART.held(_REUSED, said, *seen, **figures)
        yield _PART.violated(_CONTROL, f"{said}: a prompt never seen before is as fast", *seen, **figures)
    elif not faster and transcript.fingerprint.value("prefix_caching") == "False":
        yield _PART.refused(_REUSED, f"{said}; the server says that its prefix cache is off", *seen, **figures)
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
    prompt_tokens=1410,
    output_tokens=3,
)
