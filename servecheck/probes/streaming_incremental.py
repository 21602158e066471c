"""Streamed text arrives while it is made.

What it does: streams an answer of 64 tokens and looks when the pieces of text arrive. They must be spread over at least
half of the time that the answer took, in steps that are not much coarser than the events. An answer that was too fast
to see is asked for again, eight times as long. One that comes late or in a burst is looked at a second time, beside a
stream of four tokens: where even those begin late, the start is slow (a queue, a long prefill, a compilation) and only
the time after it counts.

Why it matters: a proxy that gathers the answer and sends it at the end gives the right text, so every test of content
passes, and users stare at an empty page.

How it could be fooled: by a server so fast that the network's own batching looks like a burst (then the row says that
it could not tell); by a client of ours that is kept from reading, since arrival times are taken here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._streams import bodies, says
from servecheck.read import reply

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/guides/streaming-responses"
_PART = Part(mode=Mode.STREAM)
_SPREAD, _STEPS = "text-arrives-while-it-is-made", "text-arrives-in-small-steps"
_LONGER = 8
_MIN_TOKENS = 20
_MIN_SECONDS = 0.3
_SHARE = 0.5  # measured: 0.78 to 0.97 on three engines
_ARRIVALS = 20
_SHORT_TOKENS = 4
_JOINED = 2  # text events
_BURSTS = 3  # arrivals: one read of ours may end within a burst


class StreamingIncrementalParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="Tell me a long story about a lighthouse keeper and the sea.", description="The user's message."
    )
    max_tokens: int = Field(
        default=64, ge=32, le=4096, description="Length of the answer; a fast server is asked for eight times as much."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrivals:
    """When the text of one stream came, in seconds since the request was sent."""

    exchange: Exchange
    tokens: int
    times: tuple[float, ...]
    unseen: bool = False

    @property
    def first(self) -> float:
        return self.times[0] if self.times else 0.0

    @property
    def last(self) -> float:
        return self.times[-1] if self.times else 0.0

    @property
    def distinct(self) -> int:
        return len(set(self.times))

    @property
    def in_small_steps(self) -> bool:
        """Whether the events came one by one; few events that hold many tokens each are no burst."""
        return self.distinct >= min(_ARRIVALS, (len(self.times) + 1) // 2)

    def too_little(self, start: float = 0.0) -> str:
        """Return why nothing can be seen in this stream, an empty string where something can."""
        if self.tokens < _MIN_TOKENS:
            return f"only {self.tokens} tokens; nothing to spread"
        if self.last - start < _MIN_SECONDS:
            return f"{self.tokens} tokens in {self.last - start:.3f} s: too fast to see"
        if self.unseen and not self.is_spread(start):
            return f"{self.tokens} tokens and a short text: what else was made before it is not shown"
        return ""

    def is_spread(self, start: float = 0.0) -> bool:
        """Whether the text came over at least half of the time since ``start``."""
        return self.last - self.first >= _SHARE * (self.last - start)


async def drive(session: Session, params: StreamingIncrementalParams, _: Transcript | None) -> None:
    """Stream once; longer where it was too fast; again, beside a short one, where it did not flow."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    plain: dict[str, Json] = {"messages": messages, "temperature": 0, "stream": True}
    extra: dict[str, Json] = {"ignore_eos": True, "stream_options": {"include_usage": True}}
    tokens = params.max_tokens
    first = await session.chat("stream", {**plain, **extra, "max_tokens": tokens})
    if isinstance(reply.chat(first), reply.Refusal):
        extra = {}
        first = await session.chat("stream", {**plain, "max_tokens": tokens})
    seen = _arrivals(first)
    if seen is not None and seen.too_little():
        tokens *= _LONGER
        seen = _arrivals(await session.chat("longer", {**plain, **extra, "max_tokens": tokens}))
    if seen is not None and not seen.too_little() and not (seen.is_spread() and seen.in_small_steps):
        await session.chat("short", {**plain, **extra, "max_tokens": _SHORT_TOKENS})
        await session.chat("again", {**plain, **extra, "max_tokens": tokens})


def _arrivals(exchange: Exchange | None) -> _Arrivals | None:
    """Return when a stream's text came; ``None`` where there is no streamed answer."""
    answer = reply.chat(exchange) if exchange is not None else None
    if exchange is None or not isinstance(answer, reply.Answer) or answer.stream is None:
        return None
    times = tuple(body.at for body in bodies(exchange) if says(body.json))
    counted = answer.usage.completion if answer.usage else None
    words = len((answer.text + answer.first.reasoning).split())
    tokens = max(len(times), words) if counted is None else counted
    # Thoughts that are kept from the client take their time before the text; usage may tell them, and few letters do.
    told = answer.usage.reasoning if answer.usage else None
    unseen = not answer.first.reasoning and (bool(told) or len(answer.text) < tokens)
    return _Arrivals(exchange=exchange, tokens=tokens, times=times, unseen=unseen)


def judge(transcript: Transcript, _: StreamingIncrementalParams) -> Iterator[Finding]:
    """Judge the last stream that was asked for; an earlier one that flowed is enough."""
    asked = [found for step in ("stream", "longer", "again") if (found := transcript.get(step)) is not None]
    for exchange in asked:
        answer = reply.chat(exchange)
        missing = _PART.unless_answered(_SPREAD, answer)
        if missing is not None:
            yield missing
            return
        assert isinstance(answer, reply.Answer)
        if answer.stream is None:
            yield _PART.no_effect(_SPREAD, "stream was asked for, one whole reply came", exchange)
            return
    seen = [arrivals for exchange in asked if (arrivals := _arrivals(exchange)) is not None]
    if not seen:
        yield _PART.undetermined(_SPREAD, "no stream was asked for")
        return
    flowing = [one for one in seen if not one.too_little() and one.is_spread() and one.in_small_steps]
    yield from _judged((flowing or seen)[-1], _arrivals(transcript.get("short")))


def _judged(stream: _Arrivals, short: _Arrivals | None) -> Iterator[Finding]:
    start = 0.0
    beside: list[Exchange] = []
    said = (
        f"{stream.tokens} tokens in {len(stream.times)} events; text from {stream.first:.2f} s to {stream.last:.2f} s"
    )
    said += f", {stream.distinct} arrivals"
    if not stream.is_spread() and short is not None and short.times:
        # Half as late is late: waiting for four tokens cannot take half as long as waiting for all of them.
        if short.first >= _SHARE * stream.first:
            start = min(short.first, stream.first)
            said += f"; even {_SHORT_TOKENS} tokens begin after {short.first:.2f} s, so the time before does not count"
        else:
            said += f"; {_SHORT_TOKENS} tokens begin after {short.first:.2f} s"
        beside.append(short.exchange)
    figures = {
        "first_text_s": round(stream.first, 3),
        "last_text_s": round(stream.last, 3),
        "arrivals": stream.distinct,
        "text_events": len(stream.times),
        "output_tokens": stream.tokens,
    }
    why = stream.too_little(start)
    if why:
        yield _PART.undetermined(_SPREAD, f"{why} ({said})" if start else why, stream.exchange, *beside, **figures)
        return
    said += _gathered(stream, start)
    verdict = _PART.held if stream.is_spread(start) else _PART.violated
    yield verdict(_SPREAD, said, stream.exchange, *beside, **figures)
    verdict = _PART.held if stream.in_small_steps else _PART.violated
    yield verdict(_STEPS, said, stream.exchange, *beside, **figures)


def _gathered(stream: _Arrivals, start: float) -> str:
    """Say how a stream looks that did not flow: a proxy keeps the events and holds them back, a server joins them."""
    if len(stream.times) <= _JOINED:
        return "; whoever made these events had the whole answer first" if not stream.is_spread(start) else ""
    if not stream.is_spread(start) and stream.distinct <= _BURSTS:
        return "; all events come at once at the end, as behind a proxy that gathers the reply"
    if not stream.in_small_steps:
        return f"; the events come in {stream.distinct} bursts, as behind a proxy that gathers a buffer full"
    return ""


PROBE = Probe(
    id="streaming_incremental",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_SPREAD,
            rule="The text of a stream arrives over at least half of the time that it takes to make it.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_STEPS,
            rule="The events of a stream arrive one by one: 20 arrivals, or half as many as there are events.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
    ),
    params=StreamingIncrementalParams,
    drive=drive,
    judge=judge,
    requests=1,
    prompt_tokens=40,
    output_tokens=60,
)
