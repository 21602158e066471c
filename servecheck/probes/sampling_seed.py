"""The same ``seed`` gives the same sampled text, another seed another.

What it does: draws the same prompt twice without a seed (the control: sampling must vary), then twice with one seed
and once with another. A draw that is not looked at comes first, so all others find the prompt cached: a cold and a
cached prompt may differ at a near-tie, with one seed as well as without any. Where the control does not vary at the
given temperature, all is drawn again at temperature 2. Where the seed is honoured, a pair is streamed with the seed 0,
which some take for none, and a pair is drawn on the completions route.

Why it matters: tests, evaluations and audits pin a seed to get the same text back; TPU back ends are known to refuse
it.

How it could be fooled: by a response cache in a gateway (the control would then not vary, and nothing is claimed), or
by other users' traffic changing the batch between two draws.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create#chat-create-seed"
_PART = Part()
_HOT = 2.0
_STEPS = ("free-1", "free-2", "seed-a1", "seed-b", "seed-a2")


class SamplingSeedParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Tell me a short story about a journey.", description="A prompt with many answers.")
    completion_prompt: str = Field(
        default="The harbour was busy that morning, because", description="The prompt on the completions route."
    )
    max_tokens: int = Field(default=24, ge=8, le=512, description="Tokens per draw; 16 told seeds apart in 18 of 18.")
    temperature: float = Field(default=1.0, gt=0, le=2, description="Temperature of the first round of draws.")


async def drive(session: Session, params: SamplingSeedParams, _: Transcript | None) -> None:
    """Draw at the given temperature, and once more at 2 where that did not vary."""
    await _draw(session, params, "warm-up", params.temperature)
    await _round(session, params, "", params.temperature)
    hot = not _varies(session.transcript, "")
    if hot:
        await _round(session, params, "hot-", _HOT)
    prefix, temperature = ("hot-", _HOT) if hot else ("", params.temperature)
    first = _text(session.transcript, f"{prefix}seed-a1")
    if first is None or first != _text(session.transcript, f"{prefix}seed-a2"):
        return
    for step in ("stream-1", "stream-2"):
        await _draw(session, params, step, temperature, seed=0, stream=True)
    text: dict[str, Json] = {"prompt": params.completion_prompt, "max_tokens": params.max_tokens}
    for step, seed in (("warm-up", 13), ("1", 11), ("2", 11), ("other", 12)):
        body: dict[str, Json] = {**text, "temperature": temperature, "seed": seed}
        if step == "warm-up":
            body.pop("seed")
        there = await session.post(f"completions-{step}", "/completions", body)
        if not isinstance(reply.completion(there), reply.Answer):
            return


async def _round(session: Session, params: SamplingSeedParams, prefix: str, temperature: float) -> None:
    for step in _STEPS:
        seed: dict[str, Json] = {"seed": 11 if step.startswith("seed-a") else 12} if step.startswith("seed") else {}
        await _draw(session, params, prefix + step, temperature, **seed)


async def _draw(session: Session, params: SamplingSeedParams, step: str, temperature: float, **more: Json) -> None:
    messages: Json = [{"role": "user", "content": params.prompt}]
    body: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": temperature}
    await session.chat(step, {**body, **more})


def _varies(transcript: Transcript, prefix: str) -> bool:
    """Tell whether the control's draws differ, or could not be read (then there is no point in drawing hotter)."""
    texts = [_text(transcript, prefix + step) for step in ("free-1", "free-2")]
    return None in texts or texts[0] != texts[1]


def _text(transcript: Transcript, step: str) -> str | None:
    exchange = transcript.get(step)
    answer = reply.chat(exchange) if exchange is not None else None
    return answer.text + answer.first.reasoning if isinstance(answer, reply.Answer) else None


def judge(transcript: Transcript, _: SamplingSeedParams) -> Iterator[Finding]:
    """Judge the round whose control varied."""
    prefix = "hot-" if transcript.get("hot-free-1") is not None else ""
    drawn = {step: reply.chat(found) for step in _STEPS if (found := transcript.get(prefix + step)) is not None}
    seeded = [drawn.get(step) for step in ("seed-a1", "seed-b", "seed-a2")]
    for answer in seeded:
        missing = _PART.unless_answered("same-seed-same-text", answer, drawn.get("free-1"), drawn.get("free-2"))
        if missing is not None:
            yield missing
            return
    free = [answer for step in ("free-1", "free-2") if isinstance(answer := drawn.get(step), reply.Answer)]
    first, other, again = (answer for answer in seeded if isinstance(answer, reply.Answer))
    texts = {"first": _said(first), "other": _said(other), "again": _said(again)}
    everything = (first, again, other, *free)
    varied = len({_said(answer) for answer in free}) > 1
    if texts["first"] == texts["again"]:
        if not varied and texts["first"] == texts["other"]:
            why = f"without a seed the text does not vary either, so a seed cannot show: {quote(texts['first'], 60)}"
            yield _PART.undetermined("same-seed-same-text", why, *everything)
            return
        yield _PART.held("same-seed-same-text", f"twice {quote(texts['first'], 60)}", first, again)
    else:
        why = f"the same seed gave {quote(texts['first'], 50)} and {quote(texts['again'], 50)}"
        yield _PART.no_effect("same-seed-same-text", why, *everything)
        return
    if texts["other"] != texts["first"]:
        yield _PART.held("other-seed-other-text", f"another seed gave {quote(texts['other'], 60)}", first, other)
    else:
        why = f"seeds 11 and 12 gave the same text, draws without a seed differ: {quote(texts['first'], 60)}"
        yield _PART.violated("other-seed-other-text", why, *everything)
    yield from _elsewhere(transcript)


def _elsewhere(transcript: Transcript) -> Iterator[Finding]:
    """Judge the streamed pair, and the completions route where that is served."""
    check, stream, text = "same-seed-same-text", Part(mode=Mode.STREAM), Part(route=Route.COMPLETIONS)
    warm = reply_at(transcript, "completions-warm-up")
    for part, names in ((stream, ("stream-1", "stream-2")), (text, ("completions-1", "completions-2"))):
        pair = [reply_at(transcript, name) for name in names if transcript.get(name) is not None]
        if not pair or (part is text and not isinstance(warm, reply.Answer)):
            continue
        missing = next((found for each in pair if (found := part.unless_answered(check, each, warm))), None)
        if missing is not None:
            yield missing
            continue
        first, *again = (each for each in pair if isinstance(each, reply.Answer))
        if not again:
            continue
        same = _said(first) == _said(again[0])
        other = reply_at(transcript, "completions-other") if part is text else None
        if same and isinstance(other, reply.Answer) and _said(other) == _said(first):
            why = f"seeds 11 and 12 gave the same text: {quote(_said(first), 60)}"
            yield part.violated("other-seed-other-text", why, first, again[0], other)
        elif same:
            yield part.held(check, f"twice {quote(_said(first), 60)}", first, again[0])
        else:
            seed = "the seed 0 in streams" if part is stream else "the same seed"
            why = f"{seed} gave {quote(_said(first), 50)} and {quote(_said(again[0]), 50)}"
            yield part.no_effect(check, why, first, again[0])


def _said(answer: reply.Answer) -> str:
    return answer.text + answer.first.reasoning


PROBE = Probe(
    id="sampling_seed",
    doc=__doc__ or "",
    checks=(
        Check(
            id="same-seed-same-text",
            rule="Two requests that are equal, seed included, get the same sampled text.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="other-seed-other-text",
            rule="Another seed gives another text where draws without a seed vary.",
            level=Level.MUST,
            source=_SOURCE,
        ),
    ),
    params=SamplingSeedParams,
    drive=drive,
    judge=judge,
    requests=12,
    prompt_tokens=280,
    output_tokens=290,
)
