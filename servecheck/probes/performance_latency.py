"""How long first and later tokens take with 1, 4 and 16 requests at once.

What it does: after one request to warm up, streams answers of 32 tokens: six one after the other, three rounds of four
at once and two rounds of sixteen. Prompts begin with other words each time, so that no cache helps. It gives the median
time to the first token and between tokens, with an interval, and the tokens of all answers by the time of a round.

Why it matters: it is context for a decision: a candidate may pass every row and still be too slow. There is no verdict,
because capacity is a matter of tuning and of load, and belongs to a benchmark that runs for hours.

How it could be fooled: by other users' requests, by a machine that is shared, and by a server that joins tokens in one
event, which makes single gaps longer; the time between tokens is therefore that of the whole answer by its tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from pydantic import Field

from servecheck import stats
from servecheck.model import Exchange, How, Json, Observed, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._streams import bodies, says
from servecheck.read import reply

__all__ = ["PROBE"]

_ROUNDS = {1: 6, 4: 3, 16: 2}
"""How many rounds there are with so many requests at once."""
_WORDS = ("river", "stone", "cloud", "garden", "window", "table", "letter", "silver", "morning", "paper", "market")
_PROMPT_WORDS = 40


class PerformanceLatencyParams(Params):
    """What may be chosen in YAML."""

    max_tokens: int = Field(default=32, ge=8, le=1024, description="Length of each answer.")


def _body(nonce: str, tokens: int, *, to_the_end: bool) -> dict[str, Json]:
    lead = [_WORDS[(ord(letter) + place) % len(_WORDS)] for place, letter in enumerate(nonce)]
    text = " ".join((*lead, *itertools.islice(itertools.cycle(_WORDS), _PROMPT_WORDS - len(lead))))
    messages: Json = [{"role": "user", "content": f"{text}\n\nTell a long story in which all of these occur."}]
    body: dict[str, Json] = {"messages": messages, "max_tokens": tokens, "temperature": 0}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body | {"ignore_eos": True} if to_the_end else body


async def drive(session: Session, params: PerformanceLatencyParams, _: Transcript | None) -> None:
    """Warm up, then round after round."""
    first = await session.chat("warm-up", _body(session.nonce(), params.max_tokens, to_the_end=True))
    whole = not isinstance(reply.chat(first), reply.Refusal)
    for at_once, rounds in _ROUNDS.items():
        for turn in range(1, rounds + 1):
            steps = [
                session.chat(
                    f"at-{at_once}-{turn}-{number}", _body(session.nonce(), params.max_tokens, to_the_end=whole)
                )
                for number in range(1, at_once + 1)
            ]
            await session.concurrently(steps, at_once=at_once)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """One streamed answer: seconds to its first text, seconds a token after that, its tokens, and when it ran."""

    first: float
    between: float | None
    tokens: int
    began: float
    ended: float


def _timed(exchange: Exchange) -> _Timed | None:
    """Return the times of an answer, ``None`` where nothing was streamed or its tokens are not counted."""
    answer = reply.chat(exchange)
    if not isinstance(answer, reply.Answer) or answer.stream is None or answer.usage is None:
        return None
    spoken = [body.at for body in bodies(exchange) if says(body.json)]
    tokens = answer.usage.completion
    if not spoken or not tokens or tokens < 1:
        return None
    between = (spoken[-1] - spoken[0]) / (tokens - 1) if tokens > 1 else None
    ended = exchange.sent + spoken[-1]
    return _Timed(first=spoken[0], between=between, tokens=tokens, began=exchange.sent, ended=ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """All rounds with so many requests at once."""

    at_once: int
    answers: tuple[_Timed, ...]
    rates: tuple[float, ...]


def _level(transcript: Transcript, at_once: int) -> _Level | None:
    """Return what a level took; ``None`` where an answer is missing: a round with fewer requests is another load."""
    answers: list[_Timed] = []
    rates: list[float] = []
    for turn in range(1, _ROUNDS[at_once] + 1):
        found = [_timed(exchange) for exchange in transcript.steps(f"at-{at_once}-{turn}-")]
        mine = [each for each in found if each is not None]
        if len(mine) < at_once:
            return None
        took = max(each.ended for each in mine) - min(each.began for each in mine)
        answers += mine
        if took > 0:
            rates.append(sum(each.tokens for each in mine) / took)
    return _Level(at_once=at_once, answers=tuple(answers), rates=tuple(rates)) if rates else None


def judge(transcript: Transcript, _: PerformanceLatencyParams) -> Iterator[Observed]:
    """Give medians with intervals."""
    seen = tuple(exchange.id for exchange in transcript.steps("at-"))
    levels = [found for at_once in _ROUNDS if (found := _level(transcript, at_once)) is not None]
    if not levels:
        missing = next(
            (read for exchange in transcript if not isinstance(read := reply.chat(exchange), reply.Answer)), None
        )
        why = f"not every request was answered: {missing.what}" if missing else "no answer was streamed and counted"
        yield Observed(value="unknown", why=why, how=How.UNKNOWN, evidence=seen)
        return
    figures: dict[str, float | int | str | bool | None] = {}
    told: list[str] = []
    for level in levels:
        first = [each.first * 1000 for each in level.answers]
        between = [each.between * 1000 for each in level.answers if each.between is not None]
        end = f"_at_{level.at_once}"
        figures |= _spread(f"ttft{end}", first) | _spread(f"between_tokens{end}", between)
        figures[f"tokens_per_s{end}"] = round(median(level.rates), 1)
        figures |= {f"tokens_per_s{end}_low": round(min(level.rates), 1)}
        figures |= {f"tokens_per_s{end}_high": round(max(level.rates), 1)}
        told.append(
            f"{level.at_once} at once: first token {_said(first)}, {_said(between)} a token, "
            f"{median(level.rates):.3g} tokens/s ({min(level.rates):.3g} to {max(level.rates):.3g} by round)"
        )
    alone, most = levels[0], levels[-1]
    value = f"{median([each.first for each in alone.answers]) * 1000:.0f} ms to the first token, "
    value += f"{median(alone.rates):.3g} tokens/s at {alone.at_once}"
    if most is not alone:
        value += f", {median(most.rates):.3g} at {most.at_once}"
    why = "; ".join(told) + "; medians with 95 % intervals; no verdict"
    left = [str(at_once) for at_once in _ROUNDS if at_once not in {level.at_once for level in levels}]
    if left:
        why += f"; not every request was answered at {', '.join(left)} at once"
    yield Observed(value=value, why=why, evidence=seen, measured=figures)


def _spread(name: str, values: Sequence[float]) -> dict[str, float | int | str | bool | None]:
    if not values:
        return {}
    held = stats.median_interval(values)
    low, high = held if held is not None else (min(values), max(values))
    return {
        f"{name}_ms": round(median(values), 1),
        f"{name}_low_ms": round(low, 1),
        f"{name}_high_ms": round(high, 1),
    }


def _said(values: Sequence[float]) -> str:
    if not values:
        return "unknown"
    held = stats.median_interval(values)
    low, high = held if held is not None else (min(values), max(values))
    return (
        f"{median(values):.0f} ms ({low:.0f} to {high:.0f})"
        if high >= 10
        else f"{median(values):.1f} ms ({low:.1f} to {high:.1f})"
    )


PROBE = Probe(
    id="performance_latency",
    doc=__doc__ or "",
    checks=(),
    params=PerformanceLatencyParams,
    drive=drive,
    judge=judge,
    exclusive=True,
    requests=51,
    prompt_tokens=3880,
    output_tokens=1630,
)
