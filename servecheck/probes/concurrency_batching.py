"""Requests are served side by side: a short one passes a long one, and eight together give more than one alone.

What it does: measures a request alone. Starts a long stream, and while it runs sends short requests, which must end
before it does. Then sends eight requests at once, between two of the same kind alone: together they must give at least
one and a half times the tokens per second of one. Both are judged against the requests alone of the same run.

Why it matters: a server with one slot, a gateway with a lock or a batch that nobody may join lets every user wait for
the longest answer before theirs. Nothing else of the API shows it.

How it could be fooled: by other users, who fill the batch before us; by a machine under load, where the two requests
alone differ so much that the gain cannot be told; by a run that is not allowed to send more than one request at a time,
where nothing is claimed. A long prompt may hold up a short request for as long as it is read: that is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._crowds import at_once, completion_tokens, open_ended, tokens_per_second
from servecheck.probes._findings import Part
from servecheck.probes._steps import reply_at
from servecheck.read import reply

__all__ = ["PROBE"]

_PART = Part()
_PASSES, _GAINS = "short-request-passes-a-long-one", "eight-give-more-than-one"
_SHORT_TOKENS, _MIN_LONG, _MAX_LONG = 8, 96, 768
_LONG_SECONDS = 4.0
_SHORTS = 3
_START_AFTER = 0.15  # of the long answer's time
_ROOM = 3.0  # a short request has passed only where this many times its own time was left
_PASSED, _WAITED = 0.5, 0.9  # of the time that the long one had to go: a last event may be read late
_CROWD = 8
_GAIN, _NO_GAIN = 1.5, 1.2  # measured: 5.7, 4.4 and 2.2 times on three engines at eight
_STEADY = 1.5  # two requests alone that differ by more were not alone
_ENOUGH_AT_ONCE = 4
_LONG = "Tell me a very long story about a lighthouse keeper, with many chapters."


class ConcurrencyBatchingParams(Params):
    """What may be chosen in YAML."""

    max_tokens: int = Field(default=48, ge=16, le=1024, description="Length of each of the eight answers.")


async def drive(session: Session, params: ConcurrencyBatchingParams, _: Transcript | None) -> None:
    """Alone; short ones beside a long one; eight at once between two alone."""
    fields = await open_ended(session, "first", _asked(_LONG), params.max_tokens)
    if fields is None:
        return

    def body(text: str, tokens: int) -> dict[str, Json]:
        return {**fields, "messages": _asked(text), "max_tokens": tokens}

    await session.chat("alone", body(f"{session.nonce()} Say yes.", _SHORT_TOKENS))
    solo = await session.chat("solo-1", body(f"{session.nonce()} {_LONG}", params.max_tokens))
    rate = tokens_per_second(solo) or 1.0
    tokens = round(min(max(rate * _LONG_SECONDS, _MIN_LONG), _MAX_LONG))
    over = False

    async def long() -> Exchange:
        nonlocal over
        try:
            asked = body(f"{session.nonce()} {_LONG}", tokens)
            return await session.chat("long", {**asked, "stream": True, "stream_options": {"include_usage": True}})
        finally:
            over = True

    async def short() -> Exchange:
        await session.wait(_START_AFTER * tokens / rate)
        sent = await session.chat("short-1", body(f"{session.nonce()} Say yes.", _SHORT_TOKENS))
        for place in range(2, _SHORTS + 1):
            if over:
                break
            sent = await session.chat(f"short-{place}", body(f"{session.nonce()} Say yes.", _SHORT_TOKENS))
        return sent

    await session.concurrently([long(), short()])
    crowd = [body(f"{session.nonce()} {_LONG}", params.max_tokens) for _ in range(_CROWD)]
    await session.concurrently([session.chat(f"crowd-{place}", each) for place, each in enumerate(crowd, start=1)])
    await session.chat("solo-2", body(f"{session.nonce()} {_LONG}", params.max_tokens))


def _asked(text: str) -> Json:
    return [{"role": "user", "content": text}]


def judge(transcript: Transcript, _: ConcurrencyBatchingParams) -> Iterator[Finding]:
    """Judge who passed whom, and the gain."""
    first = reply_at(transcript, "first")
    for step in ("first", "alone", "solo-1"):
        missing = _PART.unless_answered(_PASSES, reply_at(transcript, step), first, what=step)
        if missing is not None:
            yield missing
            return
    yield _passes(transcript)
    yield _gains(transcript)


def _end(exchange: Exchange) -> float:
    return exchange.sent + exchange.ended_at


def _slots(transcript: Transcript) -> int | None:
    """Return how many requests the server says that it serves at a time."""
    said = transcript.fingerprint.value("slots")
    return int(said) if said and said.isdigit() else None


def _passes(transcript: Transcript) -> Finding:
    long, alone = transcript.get("long"), transcript.get("alone")
    failed = _PART.unless_answered(_PASSES, reply_at(transcript, "long"), reply_at(transcript, "solo-1"), what="long")
    if failed is not None or long is None or alone is None:
        return failed or _PART.undetermined(_PASSES, "no long request was sent")
    shorts = transcript.steps("short-")
    for short in shorts:
        failed = _PART.unless_answered(_PASSES, reply.chat(short), reply.chat(alone), what="a short one beside it")
        if failed is not None:
            return failed
    beside = [one for one in shorts if long.sent < one.sent and _end(long) - one.sent > _ROOM * alone.ended_at]
    if not beside:
        why = f"no short request was sent while the long one ({long.ended_at:.2f} s) had enough time left"
        return _PART.undetermined(_PASSES, why, long, *shorts)
    shares = [one.ended_at / (_end(long) - one.sent) for one in beside]
    passed, waited = sum(share <= _PASSED for share in shares), sum(share >= _WAITED for share in shares)
    took = ", ".join(f"{one.ended_at:.2f} s" for one in beside)
    left = ", ".join(f"{_end(long) - one.sent:.2f} s" for one in beside)
    said = f"{passed} of {len(beside)} short requests passed a long one that had {left} to go; "
    said += f"they took {took}, alone {alone.ended_at:.2f} s"
    figures = {"passed": passed, "beside": len(beside), "alone_s": round(alone.ended_at, 3)}
    if passed == len(beside):
        return _PART.held(_PASSES, said, long, *beside, alone, **figures)
    if waited < len(beside):
        return _PART.undetermined(_PASSES, f"{said}: too close to tell", long, *beside, alone, **figures)
    if _slots(transcript) == 1:
        return _PART.refused(_PASSES, f"{said}; the server says that it has one slot", long, *beside, alone, **figures)
    return _PART.violated(_PASSES, f"{said}: one after the other", long, *beside, alone, **figures)


def _gains(transcript: Transcript) -> Finding:
    crowd = transcript.steps("crowd-")
    solos = [exchange for exchange in transcript.steps("solo-") if tokens_per_second(exchange)]
    for one in crowd:
        failed = _PART.unless_answered(_GAINS, reply.chat(one), reply_at(transcript, "solo-1"), what="one of eight")
        if failed is not None:
            return failed
    if len(crowd) < _CROWD or len(solos) < 2:
        return _PART.undetermined(_GAINS, "not all requests tell how many tokens they made", *crowd, *solos)
    together = at_once(crowd)
    if together < _ENOUGH_AT_ONCE:
        return _PART.undetermined(_GAINS, f"only {together} of eight requests were under way together", *crowd)
    took = max(_end(one) for one in crowd) - min(one.sent for one in crowd)
    rate = sum(map(completion_tokens, crowd)) / took if took > 0 else 0.0
    alone = sorted(tokens_per_second(one) for one in solos)
    said = f"{rate:.0f} tokens/s at {together} together, {alone[0]:.0f} and {alone[1]:.0f} alone"
    figures = {"tokens_per_s_together": round(rate, 1), "tokens_per_s_alone": round(alone[1], 1), "at_once": together}
    if rate >= _GAIN * alone[-1]:
        return _PART.held(_GAINS, f"{said}: {rate / alone[-1]:.1f} times as many", *crowd, *solos, **figures)
    slots = _slots(transcript)
    if slots is not None and slots < _ENOUGH_AT_ONCE:
        why = f"{said}; the server says that it serves {slots} at a time"
        return (_PART.refused if slots == 1 else _PART.undetermined)(_GAINS, why, *crowd, *solos, **figures)
    if rate >= _NO_GAIN * alone[0]:
        return _PART.undetermined(_GAINS, f"{said}: too close to tell", *crowd, *solos, **figures)
    if alone[-1] > _STEADY * alone[0]:
        why = f"{said}: the machine was busy with something else, so the gain cannot be told"
        return _PART.undetermined(_GAINS, why, *crowd, *solos, **figures)
    return _PART.violated(_GAINS, f"{said}: no more than one alone", *crowd, *solos, **figures)


PROBE = Probe(
    id="concurrency_batching",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_PASSES,
            rule="A short request that begins while a long one runs ends in half the time that it had to go.",
            level=Level.MUST,
            source="https://docs.vllm.ai/en/latest/configuration/optimization/",
        ),
        Check(
            id=_GAINS,
            rule="Eight requests at once make at least one and a half times the tokens per second of one.",
            level=Level.SHOULD,
            source="https://docs.vllm.ai/en/latest/configuration/optimization/",
        ),
    ),
    params=ConcurrencyBatchingParams,
    drive=drive,
    judge=judge,
    exclusive=True,
    requests=16,
    prompt_tokens=820,
    output_tokens=750,
)
