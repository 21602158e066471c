"""Many clients hang up at the same time, and nothing of their work stays behind in the engine.

What it does: measures a short request. Then seven clients at once ask for long answers and leave before the first
token, and seven more leave in the middle of theirs. The engine's own count of running requests must have been seen
above where it was, and be back there within ten seconds. Then a short request must be served as fast as before. What is
still running is waited for, so that it disturbs nobody.

Why it matters: a deploy of a client, a timeout in front of a fleet or a closed browser ends many requests at once. A
router that keeps its connection to the engine, or an engine that frees nothing when a client leaves before the first
token, works on for nobody until it is full.

How it could be fooled: by other users, whose requests count too (then the row says that it could not tell); without a
readable count only a server without a free slot shows anything. Behind a gateway, give the engine's `metrics_url`: the
gateway's own count says that its clients have gone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Ending, Exchange, Finding, Json, Level, Mode, Risk, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._crowds import open_ended, tokens_per_second
from servecheck.probes._findings import Part
from servecheck.probes._running import find_source, read, running
from servecheck.probes._steps import reply_at
from servecheck.read import reply

__all__ = ["PROBE"]

_PART = Part(mode=Mode.STREAM)
_LEAVES, _NEXT = "storm-leaves-nothing-running", "next-request-after-a-storm-is-served-at-once"
_WAVES = ("early", "late")
_SECONDS = 10.0
_SHORT_TOKENS, _MOST_TOKENS = 32, 1024
_STILL_TO_RUN = 20.0
_LEAVE_LATE = 1.5  # seconds in which the count can be seen
_POLL_SECONDS = 0.15
_AFTER = (0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
_SLOWER, _LATER_SECONDS = 3.0, 3.0
_PROMPT = "Tell me a very long story about a lighthouse keeper, with many chapters."


class CancelStormParams(Params):
    """What may be chosen in YAML."""

    clients: int = Field(
        default=7, ge=2, le=64, description="Clients that leave at once; the run's concurrency is above it by one."
    )


async def drive(session: Session, params: CancelStormParams, _: Transcript | None) -> None:
    """Speed, then two waves, each watched while it runs and behind it."""
    messages: Json = [{"role": "user", "content": _PROMPT}]
    fields = await open_ended(session, "before-1", messages, _SHORT_TOKENS)
    if fields is None:
        return
    short: dict[str, Json] = {**fields, "messages": messages, "max_tokens": _SHORT_TOKENS}
    second = await session.chat("before-2", short)
    rate = tokens_per_second(second) or 1.0
    # In company each client's answer is slower than alone, so this is the least that is left to do.
    tokens = min(math.ceil(rate * _STILL_TO_RUN), _MOST_TOKENS)
    source = await find_source(session)
    for wave in _WAVES:
        await _storm(session, wave, {**fields, "max_tokens": max(tokens, 64)}, params.clients, source)
        await session.chat(f"{wave}-next", short)
        if source and _fell(session.transcript, wave) is None:
            await _settle(session, wave, source, seconds=2 * params.clients * tokens / rate)
            return


async def _storm(session: Session, wave: str, long: dict[str, Json], clients: int, source: str) -> None:
    left = 0

    async def client(place: int) -> Exchange:
        nonlocal left
        messages: Json = [{"role": "user", "content": f"{session.nonce()} {_PROMPT}"}]
        body: Json = {**long, "messages": messages, "stream": wave == "late"}
        # A whole reply has no first token that could be seen, so whoever leaves it leaves before one.
        seconds = _LEAVE_LATE if wave == "late" else _LEAVE_LATE * (0.5 + place / clients)
        try:
            return await session.abort_after(f"{wave}-left-{place}", "/chat/completions", body, seconds=seconds)
        finally:
            left += 1

    async def watch() -> Exchange:
        place = 1
        while True:
            exchange = await read(session, source, f"{wave}-seen-{place}")
            if left == clients or _seen(session.transcript, wave) is not None:
                return exchange
            place += 1
            await session.wait(_POLL_SECONDS)

    if not source:
        await session.concurrently([client(place) for place in range(clients)])
        return
    await read(session, source, f"{wave}-base")
    await session.concurrently([watch(), *(client(place) for place in range(clients))])
    waited = 0.0
    for place, at in enumerate(_AFTER, start=1):
        await session.wait(at - waited)
        waited = at
        await read(session, source, f"{wave}-after-{place}")
        if _fell(session.transcript, wave) is not None:
            return


async def _settle(session: Session, wave: str, source: str, *, seconds: float) -> None:
    """Wait until what was left has ended: it would slow down whatever comes next."""
    base = _base(session.transcript, wave) or 0
    for place in range(1, min(math.ceil(seconds / 3), 60) + 1):
        await session.wait(3.0)
        exchange = await read(session, source, f"{wave}-settle-{place}")
        if (running(exchange, session.transcript) or 0) <= base:
            return


def _base(transcript: Transcript, wave: str) -> int | None:
    return running(transcript.get(f"{wave}-base"), transcript)


def _seen(transcript: Transcript, wave: str) -> int | None:
    """Return the highest count above the base while the clients were there, ``None`` where none was seen."""
    base = _base(transcript, wave)
    counts = [running(exchange, transcript) for exchange in transcript.steps(f"{wave}-seen-")]
    most = max((count for count in counts if count is not None), default=None)
    return most if base is not None and most is not None and most > base else None


def _fell(transcript: Transcript, wave: str) -> float | None:
    """Return how many seconds after the last client had gone the count was back, ``None`` where it was not."""
    base, left = _base(transcript, wave), transcript.steps(f"{wave}-left-")
    if base is None or not left:
        return None
    gone = max(exchange.sent + exchange.ended_at for exchange in left)
    for exchange in transcript.steps(f"{wave}-after-"):
        count = running(exchange, transcript)
        if count is not None and count <= base:
            return exchange.sent + exchange.ended_at - gone
    return None


def judge(transcript: Transcript, _: CancelStormParams) -> Iterator[Finding]:
    """Judge each wave that was sent: the count, then the next request."""
    before = transcript.steps("before-")
    look = reply_at(transcript, "before-2") or reply_at(transcript, "before-1")
    missing = _PART.unless_answered(_LEAVES, look)
    if missing is not None:
        yield _PART.undetermined(_LEAVES, f"a request alone is not answered: {missing.why}", *before)
        return
    yield _leaves(transcript)
    for wave in _WAVES:
        following = transcript.get(f"{wave}-next")
        if following is not None:
            yield _next(following, before)


def _leaves(transcript: Transcript) -> Finding:
    said: list[str] = []
    figures: dict[str, float] = {}
    shown: list[Exchange] = []
    for wave, when in zip(_WAVES, ("before a first token", "in the middle"), strict=True):
        left = transcript.steps(f"{wave}-left-")
        if not left:
            continue
        gone = [exchange for exchange in left if exchange.ending is Ending.ABORTED]
        base, seen, fell = _base(transcript, wave), _seen(transcript, wave), _fell(transcript, wave)
        after = transcript.steps(f"{wave}-after-")
        shown += [*left, *transcript.steps(f"{wave}-seen-"), *after]
        if base is None:
            where = ", ".join(exchange.url for exchange in transcript.steps("look-")) or "nowhere"
            why = f"no count of running requests can be read: looked at {where}"
            return _PART.undetermined(_LEAVES, why, *left, *transcript.steps("look-"))
        if len(gone) < 2 or seen is None:
            why = f"{len(gone)} of {len(left)} clients left {when}, and the count was never seen above {base}"
            return _PART.undetermined(_LEAVES, why, *shown)
        figures |= {f"{wave}_running": seen, f"{wave}_base": base}
        if fell is None:
            counts = [running(exchange, transcript) for exchange in after]
            why = f"{len(gone)} clients left {when}: {seen} running ({base} before), and {_SECONDS:g} s later still "
            why += f"{counts[-1] if counts else 'unknown'}"
            return _PART.violated(_LEAVES, why, *shown, **figures)
        figures[f"{wave}_fell_after_s"] = round(fell, 2)
        said.append(f"{len(gone)} left {when}: {seen} running ({base} before), back {fell:.2f} s later")
    if not said:
        return _PART.undetermined(_LEAVES, "nobody was sent who could leave", *transcript.steps("before-"))
    return _PART.held(_LEAVES, "; ".join(said), *shown, **figures)


def _next(following: Exchange, before: tuple[Exchange, ...]) -> Finding:
    missing = _PART.unless_answered(_NEXT, reply.chat(following), what="the request after a storm")
    if missing is not None:
        return missing
    usual = max(exchange.ended_at for exchange in before)
    said = f"{following.ended_at:.1f} s right after a storm, {usual:.1f} s before"
    figures = {"after_s": round(following.ended_at, 2), "before_s": round(usual, 2)}
    if following.ended_at > max(_SLOWER * usual, usual + _LATER_SECONDS):
        return _PART.violated(_NEXT, f"{said}: it waited for work that nobody wants", following, *before, **figures)
    return _PART.held(_NEXT, said, following, *before, **figures)


PROBE = Probe(
    id="cancel_storm",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_LEAVES,
            rule="Within 10 s of many clients' leaving, the count of running requests is back where it was.",
            level=Level.MUST,
            source="https://github.com/vllm-project/production-stack/pull/867",
        ),
        Check(
            id=_NEXT,
            rule="A short request right after many hang-ups is served as fast as before them.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/50425",
        ),
    ),
    params=CancelStormParams,
    drive=drive,
    judge=judge,
    risk=Risk.LOAD,
    exclusive=True,
    requests=27,
    prompt_tokens=1020,
    output_tokens=1110,
)
