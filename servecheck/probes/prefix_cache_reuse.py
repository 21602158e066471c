"""A prompt whose beginning was computed before is not computed again.

What it does: sends a long prompt that begins with a random word (cold), the same prompt with another question at its
end (warm), and the same words behind another random word (other: the control that must miss). Reads, in this order,
what the replies say of cached tokens (usage, or fields that an engine gives without a flag), by how many tokens the
engine's counters moved, and, only where neither tells, the time to the first token over several rounds. A hit is at
least half of the prompt; a miss is at most 64 tokens or a tenth of it, since some engines count the few tokens of the
chat header on every miss. Counters count only where they moved by our prompts and nobody else's, and they overrule a
usage that says zero: a gateway may write zero for what it does not know. Where the warm prompt misses it is sent three
times more: a cache that hits at some of them is a cache that each of several replicas has for itself.

Why it matters: agents and retrieval send the same long beginning over and over; without reuse each turn costs its
whole length again.

How it could be fooled: by a server that reports a hit and computes anyway (that is `prefix_cache.reported`); by
replicas so many that four tries never meet the same one; by a cache whose blocks are longer than the prompt, which is
undetermined where the server says its block size and looks like no cache where it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from pydantic import Field

from servecheck import stats
from servecheck.model import Check, Exchange, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes import _prefix as prefix
from servecheck.probes._findings import Part
from servecheck.read import reply

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/features/automatic_prefix_caching/"
_PART = Part()
_REUSED, _CONTROL, _EVERY = "same-prefix-is-reused", "other-prefix-is-not-reused", "every-try-is-reused"
_SIDES = ("cold", "warm", "other")
_AGAIN = ("again-1", "again-2", "again-3")
_ALL = ("cold", prefix.HEADER, "warm", "other", *_AGAIN)
_QUESTIONS = {
    "cold": "Which word came first?",
    prefix.HEADER: "Say yes.",
    "warm": "Is there a colour among these words?",
    "other": "Is there a colour among these words?",
    "again-1": "Is there a season among these words?",
    "again-2": "Is there a building among these words?",
    "again-3": "Is there a sound among these words?",
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


def _body(nonce: str, words: int, question: str, *, stream: bool, shift: int = 0) -> dict[str, Json]:
    messages: Json = [{"role": "user", "content": prefix.prompt(nonce, words, question, shift)}]
    body: dict[str, Json] = {"messages": messages, "max_tokens": 1, "temperature": 0}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


async def drive(session: Session, params: PrefixCacheReuseParams, _: Transcript | None) -> None:
    """Cold, warm, other, with counters around them; again where warm missed; timed rounds where nothing is told."""
    known = session.fingerprint
    words = prefix.fitting(known, max(params.words, prefix.two_blocks(known)))
    mine, others = session.unseen(), session.unseen()
    await prefix.start_counting(session)
    leads = {side: others if side == "other" else mine for side in _ALL} | {prefix.HEADER: session.unseen()}
    for side in _ALL:
        if side == prefix.HEADER and not _needs_header(session.transcript):
            continue
        if side in _AGAIN and not _missed(session.transcript):
            break
        long = 0 if side == prefix.HEADER else words
        body = _body(leads[side], long, _QUESTIONS[side], stream=False) | prefix.telling(known)
        await prefix.send(session, _ALL, side, body)
    if _best(session.transcript) is None:
        long = prefix.fitting(known, max(words, _TIMED_WORDS))
        for turn in range(_ROUNDS):
            mine, others = session.unseen(), session.unseen()
            for side, lead in zip(_SIDES, (mine, mine, others), strict=True):
                # Other words each time, else a cache that is shared by all prompts would make the cold one warm too.
                body = _body(lead, long, _QUESTIONS[side], stream=True, shift=5 * turn + 3)
                await session.chat(f"timed-{side}-{turn}", body)


def _best(transcript: Transcript) -> tuple[dict[str, int], str] | None:
    """Return the cached tokens of each side by the best evidence, and what says so; ``None`` where nothing does."""
    sides = prefix.answered_sides(transcript, _ALL)
    return prefix.best(transcript, sides, "warm", header=prefix.header(transcript))


def _needs_header(transcript: Transcript) -> bool:
    best = _best(transcript)
    return best is not None and prefix.asks_header(transcript, "cold", best[0]["cold"])


def _missed(transcript: Transcript) -> bool:
    """Tell whether the warm prompt was computed again although the control was not cached either."""
    best = _best(transcript)
    total = prefix.prompt_tokens(transcript, "warm")
    header = prefix.header(transcript)
    if best is None or not total or prefix.too_short(transcript.fingerprint, total, header):
        return False
    cached = best[0]
    return cached["warm"] < prefix.hit(total, header) and not prefix.is_off(transcript.fingerprint)


def judge(transcript: Transcript, _: PrefixCacheReuseParams) -> Iterator[Finding]:
    """Judge by the best evidence there is."""
    sides = prefix.answered_sides(transcript, _ALL)
    for side in dict.fromkeys((*_SIDES, *sides)):
        exchange = transcript.get(side)
        missing = _PART.unless_answered(_REUSED, reply.chat(exchange) if exchange is not None else None)
        if missing is not None:
            yield missing
            return
    seen = [exchange for step in sides if (exchange := transcript.get(step)) is not None]
    best = _best(transcript)
    if best is None:
        yield from _by_time(transcript)
        return
    cached, says = best
    if "counter" in says:
        seen += prefix.reads_of(transcript, sides)
    yield from _by_tokens(transcript, cached, says, seen)


def _by_tokens(transcript: Transcript, cached: dict[str, int], says: str, seen: list[Exchange]) -> Iterator[Finding]:
    total = prefix.prompt_tokens(transcript, "warm")
    header = prefix.header(transcript)
    hit, miss = prefix.hit(total, header), prefix.miss(total, header)
    figures = {f"cached_{side}_tokens": count for side, count in cached.items()} | {"prompt_tokens": total}
    said = f"{says} {cached['cold']} cached tokens cold, {cached['warm']} warm, {cached['other']} behind another word"
    said += f", of {total}"
    tries = [cached[side] for side in ("warm", *_AGAIN) if side in cached]
    hits = sum(hit <= count for count in tries)
    if not total:
        yield _PART.undetermined(_REUSED, f"{said}, but not how long the prompt is", *seen, **figures)
    elif cached["warm"] > total:
        yield _PART.violated(_REUSED, f"{said}: more than there is", *seen, **figures)
    elif cached["warm"] >= hit:
        yield _PART.held(_REUSED, said, *seen, **figures)
    elif hits:
        share = f"reused at {hits} of {len(tries)} tries with the same beginning"
        why = f"{share}: as where replicas have a cache each and nothing routes by prefix"
        yield _PART.held(_REUSED, share, *seen, **figures)
        yield _PART.violated(_EVERY, f"{why}; {said}", *seen, **figures, hits=hits, tries=len(tries))
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
    if prefix.is_off(transcript.fingerprint):
        return _PART.refused(_REUSED, f"{said}; the server says that its prefix cache is off", *seen, **figures)
    if block := prefix.too_short(transcript.fingerprint, total, prefix.header(transcript)):
        why = f"{said}; its cache keeps whole blocks of {block} tokens, and the prompt is too short for that"
        return _PART.undetermined(_REUSED, why, *seen, **figures)
    return _PART.no_effect(_REUSED, f"{said}: computed again", *seen, **figures)


def _by_time(transcript: Transcript) -> Iterator[Finding]:
    seen = transcript.steps("timed-")
    for exchange in seen:
        failed = _PART.unless_answered(_REUSED, reply.chat(exchange), *map(reply.chat, transcript.steps("cold")))
        if failed is not None:
            yield failed
            return
    times = {side: [t for found in transcript.steps(f"timed-{side}-") if (t := prefix.ttft(found))] for side in _SIDES}
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
    elif not faster and prefix.is_off(transcript.fingerprint):
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
        Check(
            id=_EVERY,
            rule="A known beginning is reused at the first try, whichever replica answers.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/production-stack",
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
