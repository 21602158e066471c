"""``temperature`` moves the answer from one text to many.

What it does: draws the same open question eight times at temperature 2 and four times at temperature 0 (the control).
Hot draws must differ; cold draws must hardly differ. A few hot draws are streamed, and a few are made on the
completions route.

Why it matters: a server that is always greedy, or never is, breaks every application that chooses.

How it could be fooled: by a gateway that caches whole replies, which looks like a server that is always greedy; by a
busy server, where cold draws may part at near-ties, so two cold texts are allowed.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Cost, Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create#chat-create-temperature"
_PART = Part()
_FEW = 3  # hot draws in another mode or on another route
_HOT, _COLD = "hot-answers-vary", "cold-answers-hardly-vary"


class SamplingTemperatureParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Tell me something about a place you like.", description="An open question.")
    completion_prompt: str = Field(
        default="The harbour was busy that morning, because", description="The prompt on the completions route."
    )
    max_tokens: int = Field(default=12, ge=4, le=64, description="Tokens per draw.")
    hot: int = Field(default=8, ge=4, le=64, description="Draws at temperature 2.")
    cold: int = Field(default=4, ge=3, le=64, description="Draws at temperature 0.")
    completions: bool = Field(
        default=True, description="Whether the completions route is asked too, where it is served."
    )


async def drive(session: Session, params: SamplingTemperatureParams, _: Transcript | None) -> None:
    """Cold draws first, so that all find the prompt cached, then hot ones."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    base: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "top_p": 1}
    for draw in range(params.cold):
        await session.chat(f"cold-{draw}", {**base, "temperature": 0})
    for draw in range(params.hot):
        await session.chat(f"hot-{draw}", {**base, "temperature": 2})
    for draw in range(_FEW):
        await session.chat(f"stream-hot-{draw}", {**base, "temperature": 2, "stream": True})
    if not params.completions:
        return
    text: dict[str, Json] = {"prompt": params.completion_prompt, "max_tokens": params.max_tokens, "top_p": 1}
    for draw in range(2):
        await session.post(f"completions-cold-{draw}", "/completions", {**text, "temperature": 0})
        if not isinstance(reply_at(session.transcript, "completions-cold-0"), reply.Answer):
            return
    for draw in range(_FEW):
        await session.post(f"completions-hot-{draw}", "/completions", {**text, "temperature": 2})


def judge(transcript: Transcript, _: SamplingTemperatureParams) -> Iterator[Finding]:
    """Judge how many texts the draws are."""
    hot = [reply.chat(exchange) for exchange in transcript.steps("hot-")]
    cold = [reply.chat(exchange) for exchange in transcript.steps("cold-")]
    for check, draws, controls in ((_COLD, cold, hot), (_HOT, hot, cold)):
        missing = next((found for draw in draws if (found := _PART.unless_answered(check, draw, *controls))), None)
        if missing is not None:
            yield missing
            return
    yield from _elsewhere(transcript)
    hot_texts, cold_texts = _texts(hot), _texts(cold)
    if not hot_texts or not cold_texts:
        yield _PART.undetermined(_HOT, "nothing was drawn")
        return
    if not any(text.strip() for text in (*hot_texts, *cold_texts)):
        yield _PART.undetermined(_HOT, "no draw shows a text: the room went where the client cannot see", *hot, *cold)
        return
    figures = {
        "hot_texts": len(hot_texts),
        "hot_draws": len(hot),
        "cold_texts": len(cold_texts),
        "cold_draws": len(cold),
    }
    said = f"{len(hot_texts)} texts in {len(hot)} draws at temperature 2, {len(cold_texts)} in {len(cold)} at 0"
    one = quote(next(iter(cold_texts)), 50)
    if len(hot_texts) > 1:
        yield _PART.held(_HOT, said, *hot, **figures)
    elif hot_texts == cold_texts:
        yield _PART.no_effect(_HOT, f"{said}: always {one}", *hot, *cold, **figures)
    else:
        yield _PART.violated(_HOT, f"{said}: hot draws never vary", *hot, *cold, **figures)
    # Two cold texts are a near-tie that fell both ways; three in four draws are sampling.
    if len(cold_texts) <= max(2, len(cold) // 2):
        yield _PART.held(_COLD, said, *cold, **figures)
    elif len(hot_texts) >= len(hot) - 1:
        yield _PART.no_effect(_COLD, f"{said}: temperature 0 samples like temperature 2", *cold, *hot, **figures)
    else:
        yield _PART.violated(_COLD, f"{said}: temperature 0 does not repeat", *cold, **figures)


def _elsewhere(transcript: Transcript) -> Iterator[Finding]:
    """Judge the streamed draws, and those on the completions route where that is served."""
    for part, prefix, controls in (
        (Part(mode=Mode.STREAM), "stream-hot-", "cold-"),
        (Part(route=Route.COMPLETIONS), "completions-hot-", "completions-cold-"),
    ):
        hot = [reply_at(transcript, exchange.step) for exchange in transcript.steps(prefix)]
        cold = [reply_at(transcript, exchange.step) for exchange in transcript.steps(controls)]
        missing = next((found for draw in hot if (found := part.unless_answered(_HOT, draw, *cold))), None)
        if missing is not None:
            yield missing
        elif hot:
            answers = [draw for draw in (*hot, *cold) if isinstance(draw, reply.Answer)]
            texts = _texts([draw for draw in hot if draw is not None])
            said = f"{len(texts)} texts in {len(hot)} draws at temperature 2"
            same = texts.keys() == _texts([draw for draw in cold if draw is not None]).keys()
            if len(texts) > 1:
                yield part.held(_HOT, said, *answers)
            elif not any(text.strip() for text in texts):
                yield part.undetermined(_HOT, "no draw shows a text", *answers)
            else:
                shortfall = part.no_effect if same else part.violated
                yield shortfall(_HOT, f"{said}: always {quote(next(iter(texts)), 50)}", *answers)


def _texts(draws: list[reply.Reply]) -> dict[str, None]:
    answers = [draw for draw in draws if isinstance(draw, reply.Answer)]
    return dict.fromkeys(answer.first.reasoning + answer.text for answer in answers)


def cost(params: SamplingTemperatureParams) -> Cost:
    """Return what a trial costs with these parameters; tokens as measured on the reference server."""
    chat, texts = params.cold + params.hot + _FEW, 2 + _FEW if params.completions else 0
    tokens = (chat + texts) * params.max_tokens
    return Cost(requests=chat + texts, prompt_tokens=28 * chat + 9 * texts, output_tokens=tokens)


PROBE = Probe(
    id="sampling_temperature",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_HOT,
            rule="Draws of an open question at temperature 2 are not all the same.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_COLD,
            rule="Draws at temperature 0 are one text, or two that part at a near-tie.",
            level=Level.MUST,
            source=_SOURCE,
        ),
    ),
    params=SamplingTemperatureParams,
    drive=drive,
    judge=judge,
    cost=cost,
)
