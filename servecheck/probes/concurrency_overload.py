"""An overloaded server queues or refuses cleanly, cuts nothing short, and recovers.

What it does: two short requests alone (the controls), then a burst of requests at once, a third of the crowd and then
all of it, half of them streamed, each sent one time and without waiting for a better moment. Every one of them must end
in a whole answer or in a refusal that says 429 or 503 in JSON; no answer may be shorter than was asked for. When all
have ended, a request alone must be served as fast as before, within half a minute.

Why it matters: clients wait and try again on 429 and 503, and only there. A reset connection, a 500 or half an answer
with a 200 in front is an incident; a server that queues is only slow.

How it could be fooled: a crowd below the server's capacity shows only that this many are served, which the reason says;
a rate limit of a gateway refuses long before the engine is busy. It slows other users, so it runs only where that was
allowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, Risk, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._crowds import at_once, completion_tokens, open_ended
from servecheck.probes._findings import Part
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.text import dig, number, parse

__all__ = ["PROBE"]

_PART, _MIXED = Part(), Part(mode=Mode.NONE)
_CLEAN, _WHOLE, _SAYS, _RECOVERS = (
    "overload-is-queued-or-refused",
    "overload-cuts-nothing-short",
    "refusal-says-too-many-in-json",
    "serves-as-before-after-overload",
)
_TOO_MANY = (429, 503)
_LOOKS, _LOOK_SECONDS = 6, 5.0
_SLOWER, _LATER_SECONDS = 3.0, 3.0
_SHOWN = 3
_PROMPT = "Tell me a long story about a lighthouse keeper."


class ConcurrencyOverloadParams(Params):
    """What may be chosen in YAML."""

    users: int = Field(default=48, ge=3, le=1024, description="Requests of the second burst; a third in the first.")
    max_tokens: int = Field(default=24, ge=8, le=1024, description="Length of each answer.")
    deadline: float = Field(default=180.0, gt=0, le=3600, description="Seconds that a request of the burst may take.")


async def drive(session: Session, params: ConcurrencyOverloadParams, _: Transcript | None) -> None:
    """Alone, two bursts, and alone again until it is as fast as before."""
    messages: Json = [{"role": "user", "content": _PROMPT}]
    fields = await open_ended(session, "before-1", messages, params.max_tokens)
    if fields is None:
        return
    body: dict[str, Json] = {**fields, "messages": messages, "max_tokens": params.max_tokens}
    await session.chat("before-2", body)
    streamed: dict[str, Json] = {**body, "stream": True, "stream_options": {"include_usage": True}}
    for turn, users in enumerate((params.users // 3, params.users), start=1):
        crowd: dict[str, Json] = {}
        for place in range(users):
            asked: Json = [{"role": "user", "content": f"{session.nonce()} {_PROMPT}"}]
            crowd[f"burst-{turn}-{place}"] = {**(streamed if place % 2 else body), "messages": asked}
        await session.burst(crowd, "/chat/completions", deadline=params.deadline)
        if any(_fault(exchange) for exchange in session.transcript.steps(f"burst-{turn}-")):
            break
    for look in range(1, _LOOKS + 1):
        after = await session.chat(f"after-{look}", body)
        if _as_before(session.transcript, after):
            return
        await session.wait(_LOOK_SECONDS)


def _usual(transcript: Transcript) -> float:
    times = [exchange.ended_at for exchange in transcript.steps("before-")]
    return max(times, default=0.0)


def _as_before(transcript: Transcript, after: Exchange) -> bool:
    if not isinstance(reply.chat(after), reply.Answer):
        return False
    usual = _usual(transcript)
    return after.ended_at <= max(_SLOWER * usual, usual + _LATER_SECONDS)


def _fault(exchange: Exchange) -> str:
    """Return how a reply is neither an answer nor a refusal, empty where it is one of them."""
    if reply.is_overloaded(exchange):
        return ""
    look = reply.chat(exchange)
    if isinstance(look, reply.Failure):
        return look.what
    return look.what if isinstance(look, reply.Refusal) else ""


def judge(transcript: Transcript, _: ConcurrencyOverloadParams) -> Iterator[Finding]:
    """Judge how the crowd was served, and what came after it."""
    for step in ("before-1", "before-2"):
        missing = _PART.unless_answered(_CLEAN, reply_at(transcript, step), what="a request alone")
        if missing is not None:
            undecided = _PART.undetermined(_CLEAN, f"a request alone is not answered: {missing.why}")
            yield undecided
            return
    burst = transcript.steps("burst-")
    if not burst:
        yield _MIXED.undetermined(_CLEAN, "no burst was sent", *transcript.steps("before-"))
        return
    together = at_once(burst)
    turned_away = [exchange for exchange in burst if reply.is_overloaded(exchange)]
    faults = [(fault, exchange) for exchange in burst if (fault := _fault(exchange))]
    answered = len(burst) - len(turned_away) - len(faults)
    slowest = max(exchange.ended_at for exchange in burst)
    usual = _usual(transcript)
    said = f"of {len(burst)} requests, up to {together} at once, {answered} were answered and {len(turned_away)} "
    said += f"turned away with 429 or 503; the slowest took {slowest:.1f} s, alone {usual:.1f} s"
    figures = {"at_once": together, "answered": answered, "turned_away": len(turned_away), "failed": len(faults)}
    if faults:
        kinds = Counter(fault for fault, _ in faults).most_common(_SHOWN)
        listed = "; ".join(f"{count} × {fault}" for fault, count in kinds)
        why = f"{said}; {len(faults)} ended otherwise: {listed}"
        yield _MIXED.violated(_CLEAN, why, *(exchange for _, exchange in faults), **figures)
    else:
        yield _MIXED.held(_CLEAN, said, *burst, **figures)
    yield _whole(transcript, burst)
    if turned_away:
        yield _says(turned_away)
    yield _recovers(transcript)


def _whole(transcript: Transcript, burst: tuple[Exchange, ...]) -> Finding:
    """Judge whether an answer under load has all the tokens that it has alone."""
    alone = transcript.get("before-1")
    assert alone is not None
    exact = completion_tokens(alone) == number(dig(alone.request, "max_tokens"))
    answers = [(one, look) for one in burst if isinstance(look := reply.chat(one), reply.Answer)]
    short = []
    for exchange, look in answers:
        if look.finish is None:
            short.append((f"no finish_reason behind {look.first.pieces} pieces", exchange))
        elif exact and look.usage is not None and look.usage.completion is not None:
            asked = number(dig(exchange.request, "max_tokens"))
            if look.usage.completion != asked:
                short.append((f"{look.usage.completion} of {asked} tokens, {look.finish}", exchange))
    if short:
        listed = "; ".join(what for what, _ in short[:_SHOWN])
        why = f"{len(short)} of {len(answers)} answers end early under load: {listed}"
        return _MIXED.violated(_WHOLE, why, alone, *(exchange for _, exchange in short))
    if not answers:
        return _MIXED.undetermined(_WHOLE, "no request of the burst was answered", *burst)
    return _MIXED.held(_WHOLE, f"{len(answers)} of {len(answers)} answers are whole", *(one for one, _ in answers))


def _says(turned_away: list[Exchange]) -> Finding:
    mute = [exchange for exchange in turned_away if not _explains(exchange)]
    told = sum(exchange.header("retry-after") is not None for exchange in turned_away)
    said = f"{len(turned_away) - len(mute)} of {len(turned_away)} refusals say why in JSON, {told} when to come back"
    if mute:
        codes = ", ".join(sorted({f"HTTP {exchange.status}" for exchange in mute}))
        why = f"{said}; the others ({codes}) have {mute[0].header('content-type') or 'no content type'}"
        return _MIXED.violated(_SAYS, why, *mute)
    return _MIXED.held(_SAYS, said, *turned_away)


def _explains(exchange: Exchange) -> bool:
    if reply.is_stream(exchange):
        return True  # it was read from an error event in JSON
    try:
        parse(exchange.body)
    except ValueError:
        return False
    return bool(reply.error_message(exchange.body))


def _recovers(transcript: Transcript) -> Finding:
    looks = transcript.steps("after-")
    if not looks:
        return _PART.undetermined(_RECOVERS, "no request was sent after the burst", *transcript.steps("before-"))
    last, usual = looks[-1], _usual(transcript)
    seen = (*transcript.steps("before-"), *looks)
    if _as_before(transcript, last):
        burst = transcript.steps("burst-")
        ended = max(exchange.sent + exchange.ended_at for exchange in burst)
        seconds = last.sent + last.ended_at - ended
        why = f"{last.ended_at:.1f} s alone again ({usual:.1f} s before), {max(seconds, 0):.1f} s after the burst"
        return _PART.held(_RECOVERS, why, *seen, recovered_after_s=round(seconds, 2))
    look = reply.chat(last)
    how = f"takes {last.ended_at:.1f} s" if isinstance(look, reply.Answer) else f"is not answered: {look.what}"
    waited = last.sent + last.ended_at - looks[0].sent
    why = f"{waited:.0f} s after the burst a request alone {how}; before it took {usual:.1f} s"
    return _PART.violated(_RECOVERS, why, *seen)


PROBE = Probe(
    id="concurrency_overload",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_CLEAN,
            rule="Under overload every request ends in an answer, or in a refusal with 429 or 503.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/error-codes",
        ),
        Check(
            id=_WHOLE,
            rule="An answer under overload is as long as it is alone.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object",
        ),
        Check(
            id=_SAYS,
            rule="A refusal for overload says why, in JSON.",
            level=Level.SHOULD,
            source="https://www.rfc-editor.org/rfc/rfc6585#section-4",
        ),
        Check(
            id=_RECOVERS,
            rule="Within half a minute of an overload a request alone is served as fast as before it.",
            level=Level.MUST,
            source="https://www.rfc-editor.org/rfc/rfc9110#section-15.6.4",
        ),
    ),
    params=ConcurrencyOverloadParams,
    drive=drive,
    judge=judge,
    risk=Risk.LOAD,
    exclusive=True,
    despite_sickness=True,
    overloads=True,
    requests=67,
    prompt_tokens=3050,
    output_tokens=1610,
)
