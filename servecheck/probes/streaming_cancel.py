"""The server stops working when the client hangs up.

What it does: starts an answer that would take twenty seconds more, sees it running in the engine's own count, hangs up
in its middle, and watches the count fall back: once for a stream, once for a whole reply. Then the next short request
must be served as fast as before. It waits for leftovers before it ends, so that they disturb nobody. At last it leaves
three streams after their third event and sends a short request at once after each: the reply must be that request's.

Why it matters: users close tabs and agents time out; an engine that finishes every answer nobody waits for spends its
capacity on them. One that writes the rest of a stream into the next connection shows one user's answer to another.

How it could be fooled: by other users, whose requests count too (then the row says that it could not tell); by a proxy
that keeps the engine's connection open (then the proxy is what fails); without a readable count, only a server with no
free slot shows anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from servecheck.model import Check, Ending, Exchange, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._running import find_source, read, running
from servecheck.read import reply, sse
from servecheck.read.text import dig, number, parse, quote, string

__all__ = ["PROBE"]

_OWN = "next-reply-is-its-own"
_STOPS, _NEXT = "work-stops-when-the-client-leaves", "next-request-is-served-at-once"
_SOURCE = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server/"
_MODES = (Mode.STREAM, Mode.NON_STREAM)
_STREAM_SECONDS = 5.0  # measured: 0.03 to 0.17 s on three engines
_WHOLE_SECONDS = 10.0  # measured: 0.04 s on one engine; another looks for lost clients every 3.4 s
_RUN_BEFORE_HANGING_UP = 1.0
_HANG_UP_WHOLE_AFTER = 2.0
_STILL_TO_RUN = 20.0
_SHORT_TOKENS = 32
_OWN_ROUNDS, _OWN_EVENTS = 3, 3  # the fault was seen after two hang-ups of three
_OWN_SECONDS = 5.0
_POLL_SECONDS = 0.15
_AFTER = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)
_OK = 200
_SLOWER, _LATER_SECONDS = 3.0, 3.0


class StreamingCancelParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="Tell me a very long story about a lighthouse keeper, with many chapters.",
        description="The user's message; its answer must be long where `ignore_eos` is not accepted.",
    )
    max_tokens: int = Field(
        default=2048,
        ge=64,
        le=16384,
        description="The most tokens of the answer that is left, however fast the server.",
    )


async def drive(session: Session, params: StreamingCancelParams, _: Transcript | None) -> None:
    """Speed, then leave a stream and a whole reply; each is watched before, during and after."""
    body: dict[str, Json] = {"temperature": 0, "ignore_eos": True}

    def new(**more: Json) -> dict[str, Json]:
        # No two are the same: a gateway's cache of replies would answer the second at once.
        return {"messages": [{"role": "user", "content": f"{params.prompt} ({session.unseen()})"}], **body, **more}

    first = await session.chat("before-1", new(max_tokens=_SHORT_TOKENS))
    if isinstance(reply.chat(first), reply.Refusal):
        del body["ignore_eos"]
        first = await session.chat("before-1", new(max_tokens=_SHORT_TOKENS))
    if not isinstance(reply.chat(first), reply.Answer):
        return
    await session.chat("before-2", new(max_tokens=_SHORT_TOKENS))
    rate = _rate(session.transcript) or 1.0
    events = min(max(round(rate * _RUN_BEFORE_HANGING_UP), 3), 300)
    room = session.fingerprint.value("max_model_len")
    most = min(params.max_tokens, int(room) // 2) if room and room.isdigit() else params.max_tokens
    tokens = min(max(events + math.ceil(rate * _STILL_TO_RUN), 64), most)
    source = await find_source(session)
    for mode in _MODES:
        long = new(max_tokens=tokens, stream=mode is Mode.STREAM)
        fell = await _leave(session, mode, long, events, source)
        await session.chat(f"{mode}-next", new(max_tokens=_SHORT_TOKENS))
        if source and not fell:
            await _settle(session, mode, source, seconds=2 * tokens / rate)
    room_left = min(tokens, 64 + math.ceil(rate * _OWN_SECONDS))
    for place in range(1, _OWN_ROUNDS + 1):
        if _not_its_own(session.transcript):
            return
        left = new(max_tokens=room_left, stream=True)
        await _abort(session, f"own-left-{place}", left, seconds=60.0, events=_OWN_EVENTS)
        await session.chat(f"own-next-{place}", new(max_tokens=_SHORT_TOKENS))


async def _leave(session: Session, mode: Mode, long: dict[str, Json], events: int, source: str) -> bool:
    """Start the long request, see it running, hang up, and watch; tell whether the count fell back."""
    gone = False

    async def start() -> Exchange:
        nonlocal gone
        # A stream is left by what came, so that it is in its middle; a whole reply can only be left by time.
        after = {"events": events, "seconds": 60.0} if mode is Mode.STREAM else {"seconds": _HANG_UP_WHOLE_AFTER}
        try:
            return await _abort(session, f"{mode}-left", long, **after)
        finally:
            gone = True

    async def watch() -> Exchange:
        place = 1
        while True:
            exchange = await read(session, source, f"{mode}-seen-{place}")
            if gone or _seen_running(session.transcript, mode):
                return exchange
            place += 1
            await session.wait(_POLL_SECONDS)

    if not source:
        await start()
        return False
    await read(session, source, f"{mode}-base")
    await session.concurrently([start(), watch()])
    waited = 0.0
    for place, at in enumerate(_after(mode), start=1):
        await session.wait(at - waited)
        waited = at
        await read(session, source, f"{mode}-after-{place}")
        if _fell(session.transcript, mode) is not None:
            return True
    return False


async def _abort(
    session: Session, step: str, body: dict[str, Json], *, seconds: float, events: float | None = None
) -> Exchange:
    whole = None if events is None else int(events)
    return await session.abort_after(step, "/chat/completions", body, events=whole, seconds=seconds)


async def _settle(session: Session, mode: Mode, source: str, *, seconds: float) -> None:
    """Wait until what was left has ended: it would slow down whatever comes next."""
    for place in range(1, math.ceil(seconds / 2) + 1):
        await session.wait(2.0)
        exchange = await read(session, source, f"{mode}-settle-{place}")
        if (running(exchange, session.transcript) or 0) <= (_base(session.transcript, mode) or 0):
            return


def _after(mode: Mode) -> tuple[float, ...]:
    limit = _limit(mode)
    return tuple(at for at in _AFTER if at <= limit)


def _limit(mode: Mode) -> float:
    return _STREAM_SECONDS if mode is Mode.STREAM else _WHOLE_SECONDS


def _base(transcript: Transcript, mode: Mode) -> int | None:
    return running(transcript.get(f"{mode}-base"), transcript)


def _seen_running(transcript: Transcript, mode: Mode) -> Exchange | None:
    """Return the read in which one request more than before was running."""
    base = _base(transcript, mode)
    if base is None:
        return None
    for exchange in transcript.steps(f"{mode}-seen-"):
        count = running(exchange, transcript)
        if count is not None and count > base:
            return exchange
    return None


def _fell(transcript: Transcript, mode: Mode) -> tuple[float, Exchange] | None:
    """Return after how many seconds the count was back, and the read that shows it."""
    base, left = _base(transcript, mode), transcript.get(f"{mode}-left")
    if base is None or left is None:
        return None
    hung_up = left.sent + left.ended_at
    for exchange in transcript.steps(f"{mode}-after-"):
        count = running(exchange, transcript)
        if count is not None and count <= base:
            return exchange.sent + exchange.ended_at - hung_up, exchange
    return None


def _rate(transcript: Transcript) -> float | None:
    """Return the tokens per second of a short request, which its prompt's time makes a low guess."""
    rates = []
    for exchange in transcript.steps("before-"):
        answer = reply.chat(exchange)
        made = answer.usage.completion if isinstance(answer, reply.Answer) and answer.usage else None
        if made and exchange.ended_at > 0:
            rates.append(made / exchange.ended_at)
    return max(rates, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """One request that we left: what the judge knows of it."""

    mode: Mode
    exchange: Exchange
    base: int
    seen: Exchange | None
    after: tuple[Exchange, ...]
    fell: tuple[float, Exchange] | None
    remaining: float


def judge(transcript: Transcript, _: StreamingCancelParams) -> Iterator[Finding]:
    """Judge both modes: the count, then the next request."""
    before = [reply.chat(each) for each in transcript.steps("before-")]
    for mode in _MODES:
        part = Part(mode=mode)
        left = transcript.get(f"{mode}-left")
        if left is None:
            control = part.unless_answered(_STOPS, before[-1]) if before else None
            yield control or part.undetermined(_STOPS, "nothing was left")
            continue
        yield _judge_count(part, transcript, mode, left, before)
        following = transcript.get(f"{mode}-next")
        if following is not None and left.ending is Ending.ABORTED:
            yield _judge_next(part, following, transcript.steps("before-"))
    if _left_then_next(transcript):
        yield _judge_own(transcript)


def _judge_count(part: Part, transcript: Transcript, mode: Mode, left: Exchange, before: list[reply.Reply]) -> Finding:
    if left.ending is not Ending.ABORTED:
        answer = reply.chat(left)
        if isinstance(answer, reply.Answer):
            made = answer.usage.completion if answer.usage else None
            return part.undetermined(_STOPS, f"it ended by itself before we hung up, after {made} tokens", left)
        if isinstance(answer, reply.Refusal):
            return part.undetermined(_STOPS, f"the long request was refused: {answer.what}", left)
        return part.unless_answered(_STOPS, answer, *before) or part.undetermined(_STOPS, "no answer", left)
    base = _base(transcript, mode)
    if base is None:
        looked = transcript.steps("look-")
        where = ", ".join(f"{each.url} (HTTP {each.status})" for each in looked) or "nowhere"
        return part.undetermined(_STOPS, f"no count of running requests can be read: looked at {where}", left, *looked)
    return _by_count(
        part,
        transcript,
        _Left(
            mode=mode,
            exchange=left,
            base=base,
            seen=_seen_running(transcript, mode),
            after=transcript.steps(f"{mode}-after-"),
            fell=_fell(transcript, mode),
            remaining=_remaining(transcript, left),
        ),
    )


def _remaining(transcript: Transcript, left: Exchange) -> float:
    """Return for how many seconds the request would have gone on at the least."""
    limit = number(dig(left.request, "max_tokens")) or 0
    rate = _rate(transcript) or 1.0
    made = rate * left.ended_at
    if reply.is_stream(left):
        events = sse.events(left.chunks).events
        made = len(events)
        took = events[-1].at - events[0].at if len(events) > 2 else 0.0
        rate = max(rate, len(events) / took) if took > 0 else rate
    return max(0.0, limit - made) / rate


def _by_count(part: Part, transcript: Transcript, left: _Left) -> Finding:
    limit = _limit(left.mode)
    counts = [running(each, transcript) for each in left.after]
    around = [*([left.seen] if left.seen else []), left.exchange, *left.after]
    figures = {"base": left.base, "remaining_s": round(left.remaining, 1)}
    if left.seen is None:
        why = f"it was never seen running (always {left.base}), so nothing can be seen of its end"
        return part.undetermined(_STOPS, why, left.exchange, *transcript.steps(f"{left.mode}-seen-"), **figures)
    ran = running(left.seen, transcript)
    said = f"{ran} running ({left.base} before)"
    if left.fell is not None:
        seconds, shown = left.fell
        said += f", back to {running(shown, transcript)} {seconds:.2f} s after we hung up"
        figures["fell_after_s"] = round(seconds, 3)
        if seconds > left.remaining / 2:
            why = f"{said}; it may have ended by itself in that time"
            return part.undetermined(_STOPS, why, left.exchange, left.seen, shown, **figures)
        why = f"{said}; it had {left.remaining:.0f} s to go"
        return part.held(_STOPS, why, left.seen, left.exchange, shown, **figures)
    said += f", still {counts[-1] if counts else ran} {limit:g} s after we hung up"
    if left.base > 0:
        return part.undetermined(_STOPS, f"{said}, but others' requests run here too", *around, **figures)
    if left.remaining < limit / 2:
        return part.undetermined(_STOPS, f"{said}, but it had only {left.remaining:.1f} s to go", *around, **figures)
    return part.violated(_STOPS, f"{said}: it went on for nobody", *around, **figures)


def _judge_next(part: Part, following: Exchange, before: tuple[Exchange, ...]) -> Finding:
    missing = part.unless_answered(_NEXT, reply.chat(following))
    if missing is not None:
        return missing
    usual = max(each.ended_at for each in before)
    said = f"the next request took {following.ended_at:.2f} s, {usual:.2f} s before"
    figures = {"next_s": round(following.ended_at, 3), "before_s": round(usual, 3)}
    if following.ended_at > _SLOWER * usual and following.ended_at > usual + _LATER_SECONDS:
        return part.violated(_NEXT, f"{said}: it waited for work that nobody wants", following, *before, **figures)
    return part.held(_NEXT, said, following, *before, **figures)


def _left_then_next(transcript: Transcript) -> list[tuple[Exchange, Exchange]]:
    """Return every stream that we left, with the request that followed."""
    names = [(f"{Mode.STREAM}-left", f"{Mode.STREAM}-next")]
    names += [(f"own-left-{place}", f"own-next-{place}") for place in range(1, _OWN_ROUNDS + 1)]
    pairs = ((transcript.get(left), transcript.get(following)) for left, following in names)
    return [
        (left, following)
        for left, following in pairs
        if left is not None and following is not None and left.ending is Ending.ABORTED
    ]


def _not_its_own(transcript: Transcript) -> tuple[str, Exchange, Exchange] | None:
    """Return how the first reply that is not its own request's shows it, with the stream that was left before it."""
    usual = [_id(exchange) for exchange in transcript.steps("before-")]
    unique = len(usual) > 1 and "" not in usual and len(set(usual)) == len(usual)
    for left, following in _left_then_next(transcript):
        old = _id(left)
        same = bool(old) and unique and (_id(following) == old or old in following.detail)
        whose = f"with the id {quote(old, 40)} of the stream that was left" if same else ""
        if reply.is_stream(following) and following.status == _OK:
            return f"a whole reply was asked for, and a stream came {whose}".rstrip(), left, following
        if same:
            return f"the reply came {whose}", left, following
    return None


def _id(exchange: Exchange) -> str:
    """Return the id of a whole reply, or of a stream's first event; an empty string where there is none."""
    data = exchange.body
    if reply.is_stream(exchange):
        data = next((event.data for event in sse.events(exchange.chunks).events if event.data), b"")
    try:
        return string(dig(parse(data), "id"))
    except ValueError:
        return ""


def _judge_own(transcript: Transcript) -> Finding:
    part, pairs = Part(mode=Mode.STREAM), _left_then_next(transcript)
    wrong = _not_its_own(transcript)
    if wrong is not None:
        why, left, following = wrong
        return part.violated(_OWN, why, left, following)
    for left, following in pairs:
        answer = reply.chat(following)
        if isinstance(answer, reply.Refusal):
            return part.undetermined(_OWN, f"the request after a hang-up was refused: {answer.what}", left, answer)
        missing = part.unless_answered(_OWN, answer, what="the request right after a hang-up")
        if missing is not None:
            return missing
    seen = [exchange for pair in pairs for exchange in pair]
    return part.held(_OWN, f"{len(pairs)} times a hang-up was followed by a whole reply with an id of its own", *seen)


PROBE = Probe(
    id="streaming_cancel",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_STOPS,
            rule="Within 5 s (stream) or 10 s (whole reply) of a hang-up the count of running requests is back.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_NEXT,
            rule="A short request after a hang-up is served as fast as before it.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_OWN,
            rule="The reply to a request right after a hang-up is its own: nothing of the stream that was left.",
            level=Level.MUST,
            source="https://www.rfc-editor.org/rfc/rfc9112#section-9.2",
        ),
    ),
    params=StreamingCancelParams,
    drive=drive,
    judge=judge,
    exclusive=True,
    requests=21,
    prompt_tokens=580,
    output_tokens=380,
)
