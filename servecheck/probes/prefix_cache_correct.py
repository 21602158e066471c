"""What is computed with the help of the cache is what would have been computed without it.

What it does: sends a long prompt that begins with a random word (the miss), and the very same again (the hit), twice
with other words, greedy and with logprobs. Then the same beginning with another end: once as it is (a hit in part) and
once behind a `cache_salt` of its own, which makes it a miss where the server knows that field. The first token's
logprob must agree within 0.25 nat, and the texts must be the same up to a place where the best two tokens were close.
That something came from the cache is read from the replies or the counters.

Why it matters: a corrupt cache answers the first request rightly and every later one wrongly, which no test with fresh
prompts ever sees.

How it could be fooled: a hit takes another path through the arithmetic, so that near-ties flip: that is allowed for. A
server that gives no logprobs is compared by its texts alone, and a difference there may be a near-tie. Other users'
traffic changes the batch, and with it the last bits.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck import stats
from servecheck.model import Check, Exchange, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes import _prefix as prefix
from servecheck.probes._findings import Part
from servecheck.probes._steps import answer_at, filler, reply_at, sent
from servecheck.read import reply
from servecheck.read.logprobs import Token, tokens
from servecheck.read.text import garbage, quote

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/features/automatic_prefix_caching/"
_PART = Part()
_SAME, _SANE = "hit-says-what-a-miss-says", "hit-is-no-garbage"
_PAIRS = (("cold-1", "warm-1"), ("cold-2", "warm-2"), ("salted", "branch"))
"""Each miss with the hit that is compared with it."""
_COUNTED = ("cold-1", "warm-1")
_TOP = 5
_LIKELY, _OTHERS_SLACK = -4.6, 1.0  # nat: alternatives of one in a hundred and more; rounding moves them further
_LOGPROB_SLACK = 0.25  # nat; a hit and a miss of the same prompt were up to 0.14 apart on three engines
# Rounding moves both of the best two tokens, and more of it adds up behind the first: twice a near-tie.
_CLEAR = 2 * stats.NEAR_TIE
_QUESTIONS = ("Describe what these words have in common.", "Tell a story with three of these words.")


class PrefixCacheCorrectParams(Params):
    """What may be chosen in YAML."""

    words: int = Field(
        default=320,
        ge=128,
        le=16384,
        description="Words of the prompt; raised to two blocks of the server's cache where that is known.",
    )
    max_tokens: int = Field(default=16, ge=4, le=128, description="Tokens that are compared.")


async def drive(session: Session, params: PrefixCacheCorrectParams, _: Transcript | None) -> None:
    """Two prompts twice each; the first one's beginning with another end, with a salt and without."""
    known = session.fingerprint
    words = prefix.fitting(known, max(params.words, prefix.two_blocks(known)))
    first, second, salt = session.unseen(), session.unseen(), session.unseen()
    end = f"{filler(48, 9)}. {_QUESTIONS[1]}"
    texts = {
        "cold-1": prefix.prompt(first, words, _QUESTIONS[0]),
        "branch": prefix.prompt(first, words, end),
        "cold-2": prefix.prompt(second, words, _QUESTIONS[1], 7),
    }
    texts |= {"warm-1": texts["cold-1"], "salted": texts["branch"], "warm-2": texts["cold-2"]}
    with_logprobs: dict[str, Json] = {"logprobs": True, "top_logprobs": _TOP}
    await prefix.start_counting(session)
    for side in ("cold-1", "warm-1", "branch", "salted", "cold-2", "warm-2"):
        messages: Json = [{"role": "user", "content": texts[side]}]
        body: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
        body |= prefix.telling(known)
        if side == "salted":
            body["cache_salt"] = salt
        if side in _COUNTED:
            await prefix.send(session, _COUNTED, side, body | with_logprobs)
        else:
            await session.chat(side, body | with_logprobs)
        if side == "cold-1" and isinstance(reply_at(session.transcript, side), reply.Refusal) and with_logprobs:
            with_logprobs = {}
            await prefix.send(session, _COUNTED, side, body)
        if side == "cold-1" and answer_at(session.transcript, side) is None:
            return


def judge(transcript: Transcript, _: PrefixCacheCorrectParams) -> Iterator[Finding]:
    """Judge what the hits say against what the misses say."""
    for side in ("cold-1", "warm-1", "branch", "cold-2", "warm-2"):
        control = reply_at(transcript, "cold-1") if side != "cold-1" else None
        missing = _PART.unless_answered(_SAME, reply_at(transcript, side), control, what=side)
        if missing is not None:
            yield missing
            return
    pairs = [
        (miss, hit)
        for cold, warm in _PAIRS
        if (miss := answer_at(transcript, cold)) is not None and (hit := answer_at(transcript, warm)) is not None
    ]
    seen = sent(*(answer for pair in pairs for answer in pair))
    evidence, reads = _evidence(transcript)
    apart = [(wrong, pair) for pair in pairs if (wrong := _apart(*pair))]
    largest = max((delta for pair in pairs if (delta := _first_delta(*pair)) is not None), default=None)
    figures = {"largest_first_delta_nat": None if largest is None else round(largest, 3), "pairs": len(pairs)}
    if apart:
        wrong, pair = apart[0]
        why = f"{len(apart)} of {len(pairs)} hits say something else than the miss of the same prompt: {wrong}"
        yield _PART.violated(_SAME, f"{why}{evidence and f'; {evidence}'}", *pair, *seen, *reads, **figures)
    elif not evidence:
        why = "all say the same, but nothing tells that anything came from the cache"
        yield _PART.undetermined(_SAME, why, *seen, *reads, **figures)
    elif blind := [pair for pair in pairs if largest is None and pair[0].text != pair[1].text]:
        why = f"the texts differ and no logprobs tell whether that is a near-tie: {_texts(*blind[0])}"
        yield _PART.undetermined(_SAME, f"{why}; {evidence}", *blind[0], *seen, **figures)
    else:
        how = f"first tokens within {largest:.2f} nat" if largest is not None else "the same texts, no logprobs given"
        why = f"{len(pairs)} hits say what the miss of the same prompt says, {how}; {evidence}"
        yield _PART.held(_SAME, why, *seen, *reads, **figures)
    yield _sane(pairs)


def _evidence(transcript: Transcript) -> tuple[str, list[Exchange]]:
    """Return what shows that the second request hit, empty where nothing does."""
    best = prefix.best(transcript, _COUNTED, "warm-1")
    total = prefix.prompt_tokens(transcript, "warm-1")
    if best is None or best[0]["warm-1"] < prefix.hit(total):
        return "", prefix.reads_of(transcript, _COUNTED)
    return f"{best[1]} {best[0]['warm-1']} of {total} tokens cached", prefix.reads_of(transcript, _COUNTED)


def _first_delta(miss: reply.Answer, hit: reply.Answer) -> float | None:
    """Return by how many nat the first token of a miss is less or more likely on a hit, ``None`` where not given."""
    left, right = tokens(miss), tokens(hit)
    if not left or not right or left[0].logprob is None:
        return None
    there = _logprob(right[0], left[0].text)
    return abs(left[0].logprob - there) if there is not None else None


def _logprob(token: Token, text: str) -> float | None:
    """Return how likely a text was at a place, ``None`` where it is not among those that are listed."""
    if token.text == text:
        return token.logprob
    return next((value for other, value in token.top if other == text), None)


def _apart(miss: reply.Answer, hit: reply.Answer) -> str:
    """Return how a hit differs from the miss beyond rounding, empty where it does not."""
    left, right = tokens(miss), tokens(hit)
    if not left or not right:
        return ""
    delta = _first_delta(miss, hit)
    if delta is None:
        return f"{_texts(miss, hit)}; the first token is not among the {_TOP} likeliest any more"
    if delta > _LOGPROB_SLACK:
        return f"{_texts(miss, hit)}; the first token's logprob is {delta:.2f} nat apart"
    if moved := _moved(left[0], right[0]):
        return f"{_texts(miss, hit)}; for the first token, {moved}"
    gaps = [token.gap for token in left]
    walk = stats.comparable_prefix([token.text for token in left], [token.text for token in right], gaps, _CLEAR)
    if walk.agreed is False:
        gap = gaps[walk.compared - 1]
        return f"{_texts(miss, hit)}; token {walk.compared} differs, where the best two were {gap:.2f} nat apart"
    return ""


def _moved(left: Token, right: Token) -> str:
    """Return which alternative to a first token is far less likely on a hit, empty where none is."""
    if len(right.top) < len(left.top):
        return ""
    for text, value in left.top:
        there = _logprob(right, text)
        # What is not listed is at most as likely as the last that is.
        least = there if there is not None else right.top[-1][1]
        if value > _LIKELY and value - least > _OTHERS_SLACK:
            return f"{quote(text, 20)} fell from {value:.1f} to {'' if there is not None else 'below '}{least:.1f} nat"
    return ""


def _texts(miss: reply.Answer, hit: reply.Answer) -> str:
    left, right = miss.text or miss.first.reasoning, hit.text or hit.first.reasoning
    return f"{quote(left, 50)} without the cache, {quote(right, 50)} with it"


def _sane(pairs: list[tuple[reply.Answer, reply.Answer]]) -> Finding:
    seen = [answer for pair in pairs for answer in pair]
    for miss, hit in pairs:
        sign = garbage(hit.text + hit.first.reasoning)
        if sign and not garbage(miss.text + miss.first.reasoning):
            return _PART.violated(_SANE, f"{_texts(miss, hit)}: {sign}", miss, hit)
        if not (hit.text + hit.first.reasoning).strip() and (miss.text + miss.first.reasoning).strip():
            return _PART.violated(_SANE, f"{_texts(miss, hit)}: empty", miss, hit)
    return _PART.held(_SANE, f"{len(pairs)} answers on a hit are text where those on a miss are", *seen)


PROBE = Probe(
    id="prefix_cache_correct",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_SAME,
            rule="A hit and a miss of one prompt agree: the first token within 0.25 nat, and the texts but for ties.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_SANE,
            rule="An answer on a hit is text where the answer on a miss is.",
            level=Level.MUST,
            source="https://github.com/tenstorrent/vllm/issues/415",
        ),
    ),
    params=PrefixCacheCorrectParams,
    drive=drive,
    judge=judge,
    exclusive=True,
    requests=9,
    prompt_tokens=2990,
    output_tokens=100,
)
