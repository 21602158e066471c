"""What the rows about the prefix cache share: long prompts, and how many of their tokens came from the cache.

Cached tokens are read from usage, from fields that need no flag, and from the engine's counters; never guessed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from servecheck.model import Exchange, Fingerprint, Json, Transcript
from servecheck.probe import Session
from servecheck.probes._steps import answer_at, filler
from servecheck.read import reply, sse
from servecheck.read.metrics import Metrics, metrics, moved
from servecheck.read.text import dig, number, parse

__all__ = [
    "HEADER",
    "LONGEST_BLOCK",
    "answered_sides",
    "asks_header",
    "best",
    "block_of",
    "cached_in",
    "counted",
    "counted_between",
    "fitting",
    "header",
    "hit",
    "is_off",
    "miss",
    "prompt",
    "prompt_tokens",
    "reads_of",
    "reported",
    "send",
    "source_of",
    "start_counting",
    "telling",
    "too_short",
    "ttft",
    "two_blocks",
]

LONGEST_BLOCK = 4096
_COUNTERS = (
    ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
    ("vllm:prompt_tokens_cached_total", "vllm:prompt_tokens_total"),
    ("sglang:cached_tokens_total", "sglang:prompt_tokens_total"),
    ("ray_vllm_prefix_cache_hits_total", "ray_vllm_prefix_cache_queries_total"),
)
"""Series of cached tokens, each with the series of all prompt tokens that goes with it."""
_FIRST = "0"
HEADER = "header"
"""The side that shows how long a chat template's own beginning can be at the most, where a miss was none.

A template's beginning (a date, a system message of its own, how tools are to be called) was computed for whoever asked
before. It cannot be longer than the whole prompt of a short request whose words are new.
"""
_LATE, _LATE_READS = 0.5, 5  # engines add a request to their counters up to a second after its reply
_FEWEST = 128
_TAIL = 32  # tokens at the end of the prompt that are not shared
_SLACK = 16  # tokens: engines may count a template's token more or less


# --------------------------------------------------------------------------- what is sent


def prompt(nonce: str, words: int, question: str, shift: int = 0) -> str:
    """Return a random word, so many common ones and a question; ``shift`` begins the common ones elsewhere."""
    return f"{nonce} {filler(words, shift)}\n\n{question}"


def block_of(fingerprint: Fingerprint) -> int:
    """Return the tokens in one block of the server's cache, 0 where that is not known."""
    said = fingerprint.value("block_size")
    return int(said) if said and said.isdigit() else 0


def two_blocks(fingerprint: Fingerprint) -> int:
    """Return how many words fill two blocks for certain; 0 where the blocks are too long to ask for."""
    block = block_of(fingerprint)
    return 2 * block + 64 if block <= LONGEST_BLOCK else 0


def fitting(fingerprint: Fingerprint, words: int) -> int:
    """Return so many words, or as many as fit the context; a word is at most about one and a half tokens."""
    said = fingerprint.value("max_model_len")
    return min(words, max(_FEWEST, int(said) * 2 // 3 - 64)) if said and said.isdigit() else words


def telling(fingerprint: Fingerprint) -> dict[str, Json]:
    """Return the field with which an engine tells of cached tokens although its usage was not switched on to."""
    silent = fingerprint.value("engine") == "sglang" and fingerprint.value("cache_report") != "True"
    return {"return_meta_info": True} if silent else {}


async def start_counting(session: Session, first: str = _FIRST) -> None:
    """Read the counters before anything is sent; ``first`` tells several counts of one case apart."""
    await session.metrics(f"metrics-{first}")


async def send(session: Session, sides: Sequence[str], side: str, body: dict[str, Json], first: str = _FIRST) -> None:
    """Send one side, then read the counters until they have heard of it."""
    await session.chat(side, body)
    for _ in range(_LATE_READS):
        await session.metrics(f"metrics-{side}")
        if not _is_late(session.transcript, sides, side, first):
            return
        await session.wait(_LATE)


# --------------------------------------------------------------------------- what is read


def header(transcript: Transcript, step: str = HEADER) -> int:
    """Return the tokens of the short request, 0 where none was needed."""
    return prompt_tokens(transcript, step)


def asks_header(transcript: Transcript, side: str, cached: int) -> bool:
    """Tell whether more came from the cache than a side whose words were new can have got without a long template."""
    total = prompt_tokens(transcript, side)
    return bool(total) and cached > miss(total)


def hit(tokens: int, header: int = 0) -> float:
    """Return how many cached tokens of a prompt are a hit: what a template adds to all, and half of the rest."""
    return max((tokens + min(header, tokens)) / 2, 1)


def miss(tokens: int, header: int = 0) -> float:
    """Return up to how many cached tokens a prompt is a miss: what a template adds to all was computed for others."""
    return max(64, tokens / 10, header)


def is_off(fingerprint: Fingerprint) -> bool:
    """Tell whether the server says that its prefix cache is switched off."""
    return fingerprint.value("prefix_caching") == "False"


def too_short(fingerprint: Fingerprint, tokens: int, header: int = 0) -> int:
    """Return the block size that makes a hit impossible for a prompt of so many tokens, 0 where one is possible."""
    block = block_of(fingerprint)
    return block if block and (tokens - _TAIL) // block * block < hit(tokens, header) else 0


def prompt_tokens(transcript: Transcript, side: str) -> int:
    """Return the tokens of a side's prompt, 0 where they are not reported."""
    answer = answer_at(transcript, side)
    return (answer.usage.prompt if answer and answer.usage else None) or 0


def answered_sides(transcript: Transcript, sides: Sequence[str]) -> tuple[str, ...]:
    """Return the sides that were sent, in order."""
    return tuple(side for side in sides if transcript.get(side) is not None)


def cached_in(answer: reply.Answer) -> int | None:
    """Return the cached tokens that a reply itself tells of, ``None`` where it tells nothing: that is not zero."""
    if answer.usage is not None and answer.usage.cached is not None:
        return answer.usage.cached
    details = dig(answer.body, "sglext", "cached_tokens_details")
    if isinstance(details, dict):
        counts = [count for value in details.values() if (count := number(value)) is not None]
        return sum(counts) if counts else None
    return number(dig(answer.body, "choices", 0, "meta_info", "cached_tokens"))


def source_of(transcript: Transcript, sides: Sequence[str]) -> str:
    """Return what tells of cached tokens, as the beginning of a sentence."""
    answers = [answer for side in sides if (answer := answer_at(transcript, side)) is not None]
    in_usage = any(answer.usage is not None and answer.usage.cached is not None for answer in answers)
    return "usage reports" if in_usage else "usage is silent, the reply's own details report"


def reported(transcript: Transcript, sides: Sequence[str]) -> dict[str, int] | None:
    """Return the cached tokens that replies tell of for each side; ``None`` where none does: that is not zero.

    Some servers leave the field out where nothing was cached, so a number on one side makes the others zero.
    """
    answers = {side: answer_at(transcript, side) for side in sides}
    if None in answers.values():
        return None
    cached = {side: cached_in(answer) if answer is not None else None for side, answer in answers.items()}
    if all(value is None for value in cached.values()):
        return None
    return {side: value or 0 for side, value in cached.items()}


def counted(transcript: Transcript, sides: Sequence[str], first: str = _FIRST) -> dict[str, int] | None:
    """Return by how many cached tokens the engine's counter moved at each side.

    ``None`` where there is no counter, where it was reset, and where others' prompts moved it too.
    """
    reads = _reads(transcript, sides, first)
    if len(reads) < len(sides) + 1:
        return None
    ours = [prompt_tokens(transcript, side) for side in sides]
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
        return {side: int(step or 0) for side, step in zip(sides, steps, strict=True)}
    return None


def counted_between(transcript: Transcript, first: str, last: str, tokens: int) -> int | None:
    """Return by how many cached tokens the counter moved between two reads around prompts of so many tokens in all.

    ``None`` as for :func:`counted`.
    """
    before, after = transcript.get(first), transcript.get(last)
    if before is None or after is None:
        return None
    left, right = metrics(before), metrics(after)
    for hits, asked in _COUNTERS:
        step, prompts = moved(left, right, hits), moved(left, right, asked)
        if step is None:
            continue
        foreign = prompts is not None and abs(prompts - tokens) > max(_SLACK, tokens / 20)
        return None if foreign else int(step)
    return None


def reads_of(transcript: Transcript, sides: Sequence[str], first: str = _FIRST) -> list[Exchange]:
    """Return the reads of the counters around these sides, as evidence."""
    found = (transcript.get(step) for step in (f"metrics-{first}", *(f"metrics-{side}" for side in sides)))
    return [exchange for exchange in found if exchange is not None]


def best(
    transcript: Transcript, sides: Sequence[str], warm: str, first: str = _FIRST, header: int = 0
) -> tuple[dict[str, int], str] | None:
    """Return the cached tokens of each side by the best evidence, and what says so; ``None`` where nothing does.

    What the replies tell comes first; counters overrule it where it says that ``warm`` missed: a gateway may write zero
    for what it does not know.
    """
    told, moves = reported(transcript, sides), counted(transcript, sides, first)
    wanted = hit(prompt_tokens(transcript, warm), header)
    if moves is not None and (told is None or told.get(warm, 0) < wanted <= moves.get(warm, 0)):
        lie = "" if told is None else f"usage reports {told.get(warm, 0)} cached tokens, but "
        return moves, f"{lie}the server's counter moved by"
    return (told, source_of(transcript, sides)) if told is not None else None


def _reads(transcript: Transcript, sides: Sequence[str], first: str) -> list[Metrics]:
    return [metrics(exchange) for exchange in reads_of(transcript, sides, first)]


def _is_late(transcript: Transcript, sides: Sequence[str], side: str, first: str) -> bool:
    """Tell whether the counters have not yet heard of all the tokens of the prompt that was just answered."""
    reads = _reads(transcript, sides, first)
    if len(reads) < 2:
        return False
    for _, asked in _COUNTERS:
        step = moved(reads[-2], reads[-1], asked)
        if step is not None:
            return step < prompt_tokens(transcript, side)
    return False


def ttft(exchange: Exchange) -> float | None:
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
