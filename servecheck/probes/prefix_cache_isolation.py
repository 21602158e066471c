"""Requests with different cache salts do not share a cache.

What it does: sends a long prompt that begins with a random word under one `cache_salt`, the same under the same salt
(which must hit: without that a miss would prove nothing), under another salt, and under none. Neither of the last two
may hit. Where the same salt misses, the prompt without a salt is sent once more, which tells whether the salt is in the
way or nothing is cached at all. Cached tokens are read from the replies, else from the engine's counters.

Why it matters: a hit is fast, and how fast an answer comes tells a neighbour what others have asked. A salt per tenant
is what vLLM and SGLang offer against that; a server that takes the field and ignores it gives false safety.

How it could be fooled: by replicas, of which the second may never have seen the prompt (then the same salt misses too);
by a server that reports no hit and makes one: where neither the replies nor counters tell, nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes import _prefix as prefix
from servecheck.probes._findings import Part
from servecheck.probes._steps import answer_at, reply_at

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/design/prefix_caching/"
_PART = Part()
_APART, _SHARES = "other-salt-does-not-hit", "same-salt-hits"
_FIRST, _SAME, _OTHER, _NONE, _, _AGAIN = _SIDES = (
    *("first", "same-salt", "other-salt", "no-salt"),
    *(prefix.HEADER, "no-salt-again"),
)
_NEEDED = _SIDES[:4]


class PrefixCacheIsolationParams(Params):
    """What may be chosen in YAML."""

    words: int = Field(
        default=320,
        ge=128,
        le=16384,
        description="Words of the prompt; raised to two blocks of the server's cache where that is known.",
    )


async def drive(session: Session, params: PrefixCacheIsolationParams, _: Transcript | None) -> None:
    """One salt twice, another, none; none again where the first did not hit."""
    known = session.fingerprint
    words = prefix.fitting(known, max(params.words, prefix.two_blocks(known)))
    text = prefix.prompt(session.unseen(), words, "Which word came first?")
    mine, others = session.unseen(24), session.unseen(24)
    salts = {_FIRST: mine, _SAME: mine, _OTHER: others}
    await prefix.start_counting(session)
    for side in _SIDES:
        if side == prefix.HEADER and not _needs_header(session.transcript):
            continue
        if side == _AGAIN and not _misses(session.transcript):
            return
        said = prefix.prompt(session.unseen(), 0, "Say yes.") if side == prefix.HEADER else text
        messages: Json = [{"role": "user", "content": said}]
        body: dict[str, Json] = {"messages": messages, "max_tokens": 1, "temperature": 0}
        body |= prefix.telling(known)
        if side in salts:
            body["cache_salt"] = salts[side]
        await prefix.send(session, _SIDES, side, body)
        if side == _FIRST and answer_at(session.transcript, side) is None:
            del body["cache_salt"]
            await session.chat("control", body)
            return


def _best(transcript: Transcript) -> tuple[dict[str, int], str] | None:
    sides = prefix.answered_sides(transcript, _SIDES)
    return prefix.best(transcript, sides, _SAME, header=prefix.header(transcript))


def _needs_header(transcript: Transcript) -> bool:
    best = _best(transcript)
    return best is not None and any(
        prefix.asks_header(transcript, side, best[0].get(side, 0)) for side in (_FIRST, _OTHER, _NONE)
    )


def _misses(transcript: Transcript) -> bool:
    """Tell whether the same salt did not hit."""
    best, total = _best(transcript), prefix.prompt_tokens(transcript, _SAME)
    return best is not None and best[0].get(_SAME, 0) < prefix.hit(total, prefix.header(transcript))


def judge(transcript: Transcript, _: PrefixCacheIsolationParams) -> Iterator[Finding]:
    """Judge who hits."""
    sides = prefix.answered_sides(transcript, _SIDES)
    for side in dict.fromkeys((*_NEEDED, *sides)):
        missing = _PART.unless_answered(_APART, reply_at(transcript, side), reply_at(transcript, "control"))
        if missing is not None:
            yield missing
            return
    seen = [exchange for side in sides if (exchange := transcript.get(side)) is not None]
    best = _best(transcript)
    if best is None:
        why = "neither the replies nor the counters tell of cached tokens, so nobody can see who hits"
        yield _PART.undetermined(_APART, why, *seen)
        return
    cached, says = best
    if "counter" in says:
        seen += prefix.reads_of(transcript, sides)
    total = prefix.prompt_tokens(transcript, _SAME)
    said = f"{says} {cached[_FIRST]} cached tokens under a new salt, {cached[_SAME]} under the same, "
    said += f"{cached[_OTHER]} under another and {cached[_NONE]} under none, of {total}"
    figures = {f"cached_{side.replace('-', '_')}_tokens": count for side, count in cached.items()}
    header = prefix.header(transcript)
    hit, miss = prefix.hit(total, header), prefix.miss(total, header)
    if not total:
        yield _PART.undetermined(_APART, f"{said}, but not how long the prompt is", *seen, **figures)
    elif cached[_FIRST] > miss:
        why = f"{said}: a prompt never seen before cannot be cached, so the numbers say nothing"
        yield _PART.undetermined(_APART, why, *seen, **figures)
    elif cached[_OTHER] > miss:
        if cached[_SAME] >= hit:
            yield _PART.no_effect(_APART, f"{said}: the salt changes nothing", *seen, **figures)
        else:
            yield _PART.violated(_APART, f"{said}: another salt hits", *seen, **figures)
    elif cached[_NONE] > miss:
        yield _PART.violated(_APART, f"{said}: who sends no salt hits what was salted", *seen, **figures)
    elif cached[_SAME] >= hit:
        yield _PART.held(_APART, said, *seen, **figures)
        yield _PART.held(_SHARES, said, *seen, **figures)
    elif cached.get(_AGAIN, 0) >= hit:
        why = f"{said}; without a salt the second request hits ({cached[_AGAIN]})"
        yield _PART.held(_APART, f"{why}: what is salted is not shared", *seen, **figures)
        yield _PART.violated(_SHARES, f"{why}: a salt switches the cache off", *seen, **figures)
    elif prefix.is_off(transcript.fingerprint):
        yield _PART.refused(_APART, f"{said}; the server says that its prefix cache is off", *seen, **figures)
    else:
        yield _PART.undetermined(_APART, f"{said}: nothing is cached here, so nothing can be shared", *seen, **figures)


PROBE = Probe(
    id="prefix_cache_isolation",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_APART,
            rule="A prompt that was cached under one salt is not cached for another, nor for none.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_SHARES,
            rule="A prompt that was cached under a salt is cached for the same salt.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
    ),
    params=PrefixCacheIsolationParams,
    drive=drive,
    judge=judge,
    exclusive=True,
    requests=9,
    prompt_tokens=1860,
    output_tokens=4,
)
