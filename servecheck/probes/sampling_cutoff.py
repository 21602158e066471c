"""A cut-off that leaves one token (``top_k 1``, ``top_p`` near 0, ``min_p 1``) makes hot sampling greedy.

What it does: for several prompts, takes the greedy answer with logprobs, then draws at temperature 2 with the cut-off
and without it (the control, which must wander off), and once with the cut-off alone, as applications send it.
Compares with the greedy text up to the first near-tie, where either of two tokens is right.

Why it matters: TPU back ends are reported to drop ``min_p`` with a 200; text then gets worse and nothing says why.

How it could be fooled: by a server that ignores temperature as well (the control then does not wander, and nothing is
claimed).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.logprobs import sure_text
from servecheck.read.text import quote

__all__ = ["PROBE"]

_PART = Part()
_HOT = 2.0
_LEAVES_ONE: dict[str, float] = {"top_p": 1e-6, "top_k": 1, "min_p": 1.0}
_MIN_CHARACTERS = 8  # about three tokens: shorter texts agree by chance
_PROMPTS = (
    "Tell me about the town where you grew up.",
    "Describe an unusual machine.",
    "What could one do on a rainy afternoon?",
    "Write the first lines of a letter to an old friend.",
)


class SamplingCutoffParams(Params):
    """What may be chosen in YAML."""

    parameter: Literal["top_p", "top_k", "min_p"] = Field(description="The cut-off to exercise.")
    prompts: tuple[str, ...] = Field(default=_PROMPTS, min_length=2, max_length=16, description="Open questions.")
    max_tokens: int = Field(default=8, ge=4, le=64, description="Tokens per draw; later ones meet near-ties.")


async def drive(session: Session, params: SamplingCutoffParams, _: Transcript | None) -> None:
    """Greedy, cut and free for each prompt, and the cut-off alone for the first."""
    cut: dict[str, Json] = {params.parameter: _LEAVES_ONE[params.parameter]}
    for place, prompt in enumerate(params.prompts):
        messages: Json = [{"role": "user", "content": prompt}]
        base: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens}
        step = f"greedy-{place}"
        greedy = await session.chat(step, {**base, "temperature": 0, "logprobs": True, "top_logprobs": 2})
        if not isinstance(reply.chat(greedy), reply.Answer):
            await session.chat(step, {**base, "temperature": 0})
        await session.chat(f"cut-{place}", {**base, "temperature": _HOT, **cut})
        await session.chat(f"free-{place}", {**base, "temperature": _HOT})
        if place == 0:
            await session.chat("alone-0", {**base, **cut})


def judge(transcript: Transcript, params: SamplingCutoffParams) -> Iterator[Finding]:
    """Judge how often the cut draws agree with greedy where the free ones do not."""
    check = "cut-to-one-token-is-greedy"
    replies = {exchange.step: reply.chat(exchange) for exchange in transcript}
    agreed, wandered, compared = [], [], []
    for place in range(len(params.prompts)):
        greedy, cut, free = (replies.get(f"{arm}-{place}") for arm in ("greedy", "cut", "free"))
        missing = _PART.unless_answered(check, cut, greedy, free, what=params.parameter)
        if missing is not None:
            yield missing
            return
        sure = _sure(greedy)
        if len(sure) < _MIN_CHARACTERS or not isinstance(cut, reply.Answer) or not isinstance(free, reply.Answer):
            continue
        compared.append(place)
        agreed += [place] if _agrees(_said(cut), sure) else []
        wandered += [] if _agrees(_said(free), sure) else [place]
    seen = [exchange for exchange in transcript if exchange.step.startswith(("greedy", "cut", "free"))]
    figures = {"prompts": len(compared), "agreed": len(agreed), "control_wandered": len(wandered)}
    name = params.parameter
    said = f"with {name} {_LEAVES_ONE[name]:g} {len(agreed)} of {len(compared)} draws at temperature 2 are the greedy "
    said += f"text, without it {len(compared) - len(wandered)} are"
    if len(compared) < 2 or not wandered:
        yield _PART.undetermined(check, f"{said}: nothing to tell apart", *seen, **figures)
    elif len(agreed) == len(compared):
        yield _PART.held(check, said, *seen, **figures)
    elif len(agreed) * 2 <= len(compared):
        yield _PART.no_effect(check, said, *seen, **figures)
    else:
        yield _PART.undetermined(check, said, *seen, **figures)
    yield from _alone(replies, name)


def _alone(replies: dict[str, reply.Reply], name: str) -> Iterator[Finding]:
    check, alone, greedy = "cut-off-works-alone", replies.get("alone-0"), replies.get("greedy-0")
    if alone is None:
        return
    missing = _PART.unless_answered(check, alone, greedy, what=f"{name} without a temperature")
    sure = _sure(greedy)
    if missing is not None:
        yield missing
    elif len(sure) >= _MIN_CHARACTERS and isinstance(alone, reply.Answer):
        agrees = _agrees(_said(alone), sure)
        why = f"with nothing but {name} the answer is {quote(_said(alone), 50)}, greedy is sure of {quote(sure, 50)}"
        yield (_PART.held if agrees else _PART.violated)(check, why, alone, greedy or alone)


def _sure(greedy: reply.Reply | None) -> str:
    return sure_text(greedy) if isinstance(greedy, reply.Answer) else ""


def _said(answer: reply.Answer) -> str:
    return answer.first.reasoning + answer.text


def _agrees(text: str, sure: str) -> bool:
    return text.strip().startswith(sure.strip())


PROBE = Probe(
    id="sampling_cutoff",
    doc=__doc__ or "",
    checks=(
        Check(
            id="cut-to-one-token-is-greedy",
            rule="At temperature 2 a cut-off that leaves the best token gives the greedy text, near-ties aside.",
            level=Level.MUST,
            source="https://docs.vllm.ai/en/latest/api/vllm/sampling_params/",
        ),
        Check(
            id="cut-off-works-alone",
            rule="The cut-off also works in a request that names no other sampling parameter.",
            level=Level.MUST,
            source="https://docs.vllm.ai/en/latest/api/vllm/sampling_params/",
        ),
    ),
    params=SamplingCutoffParams,
    drive=drive,
    judge=judge,
    requests=13,
    prompt_tokens=520,
    output_tokens=104,
)
