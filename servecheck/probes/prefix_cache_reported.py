"""The usage says how many tokens came from the cache, and says it truly.

What it does: two short requests (to warm up, and to know what a request costs that has next to no prompt), then three
times a long prompt that begins with a new random word and the same once more: plain, and streamed with usage. Usage
must have a number, the streamed one too, and the number must be true: nothing for a beginning that nobody has sent, no
more than the prompt, as much as the engine's own counter moved in all. Where there is no counter, time is the witness,
and only where the prompt is long enough to be seen in it: a hit that is reported three times and takes as long as none
was computed again, and a zero where the second was always clearly faster is a cache that is not reported.

Why it matters: clients bill, route and tune by this number. Many read "not reported" as "no cache", and switch off
what works.

How it could be fooled: other users' prompts move the counters, which then do not count; a machine under load blurs the
times, which then say nothing. Whether there is a cache at all is `prefix_cache.reuse`.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from pydantic import Field

from servecheck import stats
from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes import _prefix as prefix
from servecheck.probes._findings import Part
from servecheck.probes._steps import answer_at, reply_at
from servecheck.read import reply

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/object"
_PART, _STREAM = Part(), Part(mode=Mode.STREAM)
_SAYS, _TRUE, _STREAMED = "usage-has-cached-tokens", "cached-tokens-are-true", "streamed-usage-has-them-too"
_ROUNDS = (0, 1, 2)  # the first is plain, the others are streamed
_COLD = tuple(f"cold-{turn}" for turn in _ROUNDS)
_WARM = tuple(f"warm-{turn}" for turn in _ROUNDS)
_SHORT = ("short-1", "short-2")
_ENDS = ("metrics-0", "metrics-end")
_LATE, _LATE_READS = 0.5, 5
_MIN_RATIO = 1.5  # of the medians, as measured on three engines
_NO_FASTER = 0.8  # a hit took at most half the time of a miss on three engines
_SEEN = 2.0  # a long prompt takes this many times longer than a short one, or time says nothing of it


class PrefixCacheReportedParams(Params):
    """What may be chosen in YAML."""

    words: int = Field(
        default=640,
        ge=128,
        le=16384,
        description="Words of the prompt; raised to two blocks of the server's cache where that is known.",
    )


def _body(text: str, *, stream: bool) -> dict[str, Json]:
    messages: Json = [{"role": "user", "content": text}]
    body: dict[str, Json] = {"messages": messages, "max_tokens": 1, "temperature": 0}
    return body | ({"stream": True, "stream_options": {"include_usage": True}} if stream else {})


async def drive(session: Session, params: PrefixCacheReportedParams, _: Transcript | None) -> None:
    """Two short prompts, then cold and warm three times, with counters around all of it."""
    known = session.fingerprint
    words = prefix.fitting(known, max(params.words, prefix.two_blocks(known)))
    for side in _SHORT:
        await session.chat(side, _body(f"{session.unseen()} Say yes.", stream=False))
    await session.metrics(_ENDS[0])
    for turn in _ROUNDS:
        word = session.unseen()
        for side, question in ((_COLD[turn], "Which word came first?"), (_WARM[turn], "Which word came last?")):
            text = prefix.prompt(word, words, question, 5 * turn)
            await session.chat(side, _body(text, stream=turn > 0) | prefix.telling(known))
            if answer_at(session.transcript, side) is None:
                return
    for _again in range(_LATE_READS):
        await session.metrics(_ENDS[1])
        if _moved(session.transcript) is not None:
            return
        await session.wait(_LATE)


def _moved(transcript: Transcript) -> int | None:
    total = sum(prefix.prompt_tokens(transcript, side) for side in (*_COLD, *_WARM))
    return prefix.counted_between(transcript, *_ENDS, total) if total else None


def _header(transcript: Transcript) -> int:
    return prefix.header(transcript, _SHORT[0])


def _in_usage(transcript: Transcript, side: str) -> int | None:
    answer = answer_at(transcript, side)
    return answer.usage.cached if answer is not None and answer.usage is not None else None


def _took(transcript: Transcript, side: str) -> float | None:
    """Return how long a request for one token took: to its first token, or to its end where it came whole."""
    exchange = transcript.get(side)
    if exchange is None or answer_at(transcript, side) is None:
        return None
    return prefix.ttft(exchange) if reply.is_stream(exchange) else exchange.ended_at


def _times(transcript: Transcript) -> tuple[list[float], list[float]] | None:
    """Return the seconds of the misses and of the hits; ``None`` where the prompt is not seen in them."""
    cold = [took for side in _COLD if (took := _took(transcript, side)) is not None]
    warm = [took for side in _WARM if (took := _took(transcript, side)) is not None]
    short = [took for side in _SHORT if (took := _took(transcript, side)) is not None]
    if len(cold) < len(_COLD) or len(warm) < len(_WARM) or not short:
        return None
    return (cold, warm) if min(cold) >= _SEEN * min(short) else None


def _is_faster(transcript: Transcript) -> str:
    """Return in words that every hit was clearly faster than every miss, empty where that is not so."""
    times = _times(transcript)
    if times is None:
        return ""
    cold, warm = times
    if not stats.separation(warm, cold).separated or stats.ratio_of_medians(cold, warm) < _MIN_RATIO:
        return ""
    return f"the same prompt again took {median(warm):.3f} s, and {median(cold):.3f} s at first (medians of 3)"


def _is_no_faster(transcript: Transcript) -> str:
    """Return in words that no hit was any faster than a miss, empty where that is not so."""
    times = _times(transcript)
    if times is None or min(times[1]) < _NO_FASTER * median(times[0]):
        return ""
    return f"the same prompt again took {median(times[1]):.3f} s, and {median(times[0]):.3f} s at first (medians of 3)"


def judge(transcript: Transcript, _: PrefixCacheReportedParams) -> Iterator[Finding]:
    """Judge whether there is a number, whether it is true, and whether streams have it."""
    for side in (*_COLD, *_WARM):
        missing = _PART.unless_answered(_SAYS, reply_at(transcript, side), reply_at(transcript, _SHORT[0]), what=side)
        if missing is not None:
            yield missing
            return
    plain = [exchange for side in (_COLD[0], _WARM[0]) if (exchange := transcript.get(side)) is not None]
    streams = [exchange for side in (*_COLD[1:], *_WARM[1:]) if (exchange := transcript.get(side)) is not None]
    warm = _in_usage(transcript, _WARM[0])
    in_streams = [_in_usage(transcript, side) for side in _WARM[1:]]
    if warm is None:
        yield _unreported(transcript, plain)
    else:
        total = prefix.prompt_tokens(transcript, _WARM[0])
        said = f"usage reports {_in_usage(transcript, _COLD[0]) or 0} cached tokens at first and {warm} the second time"
        yield _PART.held(_SAYS, f"{said}, of {total}", *plain, cached_tokens=warm, prompt_tokens=total)
        if None in in_streams:
            yield _STREAM.violated(_STREAMED, "a plain reply's usage has cached tokens, a stream's has none", *streams)
        else:
            yield _STREAM.held(_STREAMED, f"usage in streams reports {in_streams} cached tokens on a hit", *streams)
    if warm is not None or any(count is not None for count in in_streams):
        yield _true(transcript, [*plain, *streams])


def _unreported(transcript: Transcript, seen: list[Exchange]) -> Finding:
    """Say that usage is silent, and whether the cache works all the same."""
    moved = _moved(transcript)
    total = sum(prefix.prompt_tokens(transcript, side) for side in _WARM)
    told = answer_at(transcript, _WARM[0])
    in_details = prefix.cached_in(told) if told is not None else None
    reads = [exchange for step in _ENDS if (exchange := transcript.get(step)) is not None]
    headers = len(_ROUNDS) * _header(transcript)
    if moved is not None and moved - headers >= prefix.hit(total, headers):
        how = f"the server's counter moved by {moved} cached tokens"
    elif in_details:
        how = f"the reply's own details tell of {in_details} cached tokens"
    else:
        how = _is_faster(transcript)
    if how:
        return _PART.refused(_SAYS, f"works but is not reported: usage has no cached tokens, but {how}", *seen, *reads)
    return _PART.refused(_SAYS, "not reported: usage has no cached tokens, and nothing else shows a hit", *seen, *reads)


def _true(transcript: Transcript, seen: list[Exchange]) -> Finding:
    """Judge the numbers against the prompts, the counters, and the time, in this order."""
    cold = [_in_usage(transcript, side) or 0 for side in _COLD]
    warm = [_in_usage(transcript, side) for side in _WARM]
    said = f"usage reports {cold} cached tokens at first and {warm} the second time"
    totals = [prefix.prompt_tokens(transcript, side) for side in _WARM]
    figures = {"prompt_tokens": totals[0]}
    for place, total in enumerate(totals):
        if total and max(cold[place], warm[place] or 0) > total:
            return _PART.violated(_TRUE, f"{said}, of {total}: more than there is", *seen, **figures)
        if total and cold[place] > prefix.miss(total, _header(transcript)):
            why = f"{said}, of {total}: a prompt never seen before cannot be cached"
            return _PART.violated(_TRUE, why, *seen, **figures)
    told = sum(cold) + sum(count or 0 for count in warm)
    moved = _moved(transcript)
    if moved is not None and None not in warm:
        reads = [exchange for step in _ENDS if (exchange := transcript.get(step)) is not None]
        figures |= {"reported_tokens": told, "counted_tokens": moved}
        why = f"{said}; the server's counter moved by {moved} in all, usage adds up to {told}"
        if abs(told - moved) > prefix.miss(sum(totals)):
            return _PART.violated(_TRUE, f"{why}: one of them is wrong", *seen, *reads, **figures)
        return _PART.held(_TRUE, why, *seen, *reads, **figures)
    hits = [
        count is not None and total > 0 and count >= prefix.hit(total, _header(transcript))
        for count, total in zip(warm, totals, strict=True)
    ]
    if all(hits) and (slow := _is_no_faster(transcript)):
        return _PART.violated(_TRUE, f"{said}, but {slow}: computed again", *seen, **figures)
    if not any(hits) and None not in warm and (fast := _is_faster(transcript)):
        return _PART.violated(_TRUE, f"{said}, but {fast}: it was not computed again", *seen, **figures)
    return _PART.held(_TRUE, f"{said}; no counter and no time speaks against it", *seen, **figures)


PROBE = Probe(
    id="prefix_cache_reported",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_SAYS,
            rule="Usage has the number of prompt tokens that came from the cache.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_TRUE,
            rule="That number agrees with the prompts, with the server's own counter, and with the time it took.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/prompt-caching",
        ),
        Check(
            id=_STREAMED,
            rule="A stream's usage has the number where a plain reply's usage has it.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/api-reference/chat-streaming",
        ),
    ),
    params=PrefixCacheReportedParams,
    drive=drive,
    judge=judge,
    exclusive=True,
    requests=10,
    prompt_tokens=5490,
    output_tokens=8,
)
