"""A cut-off that leaves one token (``top_k 1``, ``top_p`` near 0, ``min_p 1``) makes hot sampling greedy.

What it does: for several prompts, takes the greedy answer with logprobs, then draws at temperature 2 with the cut-off
and without it (the control, which must wander off); once streamed, and once with the cut-off alone, as applications
send it; the same with other prompts on the completions route. Compares with the greedy text up to the first near-tie,
where either of two tokens is right.

Why it matters: TPU back ends are reported to drop ``min_p`` with a 200; text then gets worse and nothing says why.

How it could be fooled: by a server that ignores temperature as well (the control then does not wander, and nothing is
claimed).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Outcome, Route, Transcript
from servecheck.probe import Cost, Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.logprobs import sure_text
from servecheck.read.text import quote

__all__ = ["PROBE"]

_PART = Part()
_CUT, _ALONE = "cut-to-one-token-is-greedy", "cut-off-works-alone"
_HOT = 2.0
_LEAVES_ONE: dict[str, float] = {"top_p": 1e-6, "top_k": 1, "min_p": 1.0}
_MIN_CHARACTERS = 8  # about three tokens: shorter texts agree by chance
_PROMPTS = (
    "Tell me about the town where you grew up.",
    "Describe an unusual machine.",
    "What could one do on a rainy afternoon?",
    "Write the first lines of a letter to an old friend.",
)
_TEXTS = ("The harbour was busy that morning, because", "She opened the old letter and", "In the evening the town")


class _Arm(NamedTuple):
    """One route: what its steps are called, where they go, and how they ask for logprobs."""

    route: Route
    prefix: str
    path: str
    logprobs: dict[str, Json]


_ARMS = (
    _Arm(Route.CHAT, "", "/chat/completions", {"logprobs": True, "top_logprobs": 2}),
    _Arm(Route.COMPLETIONS, "completions-", "/completions", {"logprobs": 2}),
)


class SamplingCutoffParams(Params):
    """What may be chosen in YAML."""

    parameter: Literal["top_p", "top_k", "min_p"] = Field(description="The cut-off to exercise.")
    prompts: tuple[str, ...] = Field(default=_PROMPTS, min_length=2, max_length=16, description="Open questions.")
    completion_prompts: tuple[str, ...] = Field(
        default=_TEXTS, min_length=2, max_length=8, description="Texts to continue on the completions route."
    )
    most_prompts: int = Field(default=16, ge=2, le=16, description="The most prompts that are asked on a route.")
    completions: bool = Field(
        default=True, description="Whether the completions route is asked too, where it is served."
    )
    max_tokens: int = Field(default=8, ge=4, le=64, description="Tokens per draw; later ones meet near-ties.")


async def drive(session: Session, params: SamplingCutoffParams, _: Transcript | None) -> None:
    """Greedy, cut and free for each prompt of each route; streamed and alone for the first of the chat route."""
    cut: dict[str, Json] = {params.parameter: _LEAVES_ONE[params.parameter]}
    for arm in _ARMS:
        for place, prompt in enumerate(_prompts(params, arm)):
            asked: dict[str, Json] = {"prompt": prompt}
            if arm.route is Route.CHAT:
                asked = {"messages": [{"role": "user", "content": prompt}]}
            base: dict[str, Json] = {**asked, "max_tokens": params.max_tokens}
            step = f"{arm.prefix}greedy-{place}"
            greedy = await session.post(step, arm.path, {**base, "temperature": 0, **arm.logprobs})
            if not isinstance(reply.completion(greedy), reply.Answer):
                greedy = await session.post(step, arm.path, {**base, "temperature": 0})
            if arm.route is not Route.CHAT and not isinstance(reply.completion(greedy), reply.Answer):
                break
            await session.post(f"{arm.prefix}cut-{place}", arm.path, {**base, "temperature": _HOT, **cut})
            await session.post(f"{arm.prefix}free-{place}", arm.path, {**base, "temperature": _HOT})
            if place == 0 and arm.route is Route.CHAT:
                await session.chat("alone-0", {**base, **cut})
                await session.chat("stream-0", {**base, "temperature": _HOT, **cut, "stream": True})


def _prompts(params: SamplingCutoffParams, arm: _Arm) -> tuple[str, ...]:
    if arm.route is Route.CHAT:
        return params.prompts[: params.most_prompts]
    return params.completion_prompts[: params.most_prompts] if params.completions else ()


def judge(transcript: Transcript, params: SamplingCutoffParams) -> Iterator[Finding]:
    """Judge how often the cut draws agree with greedy where the free ones do not, on each route."""
    replies = {exchange.step: reply_at(transcript, exchange.step) for exchange in transcript}
    for arm in _ARMS:
        if arm.route is Route.CHAT or isinstance(replies.get(f"{arm.prefix}greedy-0"), reply.Answer):
            found = list(_judge_arm(transcript, replies, params, arm))
            yield from found
            if arm.route is Route.CHAT:
                ignored = any(finding.outcome is Outcome.NO_EFFECT for finding in found)
                yield from _alone(replies, params.parameter, ignored=ignored)


def _judge_arm(
    transcript: Transcript, replies: dict[str, reply.Reply | None], params: SamplingCutoffParams, arm: _Arm
) -> Iterator[Finding]:
    part, prompts = Part(route=arm.route), _prompts(params, arm)
    agreed, wandered, compared = [], [], []
    for place in range(len(prompts)):
        greedy, cut, free = (replies.get(f"{arm.prefix}{draw}-{place}") for draw in ("greedy", "cut", "free"))
        missing = part.unless_answered(_CUT, cut, greedy, free, what=params.parameter)
        if missing is not None:
            yield missing
            return
        sure = _sure(greedy)
        if len(sure) < _MIN_CHARACTERS or not isinstance(cut, reply.Answer) or not isinstance(free, reply.Answer):
            continue
        compared.append(place)
        agreed += [place] if _agrees(_said(cut), sure) else []
        wandered += [] if _agrees(_said(free), sure) else [place]
    begins = tuple(f"{arm.prefix}{draw}-" for draw in ("greedy", "cut", "free"))
    seen = [exchange for exchange in transcript if exchange.step.startswith(begins)]
    figures = {"prompts": len(compared), "agreed": len(agreed), "control_wandered": len(wandered)}
    name = params.parameter
    said = f"with {name} {_LEAVES_ONE[name]:g} {len(agreed)} of {len(compared)} draws at temperature 2 are the greedy "
    said += f"text, without it {len(compared) - len(wandered)} are"
    if len(compared) < 2 or not wandered:
        yield part.undetermined(_CUT, f"{said}: nothing to tell apart", *seen, **figures)
    elif len(agreed) == len(compared):
        yield part.held(_CUT, said, *seen, **figures)
        if arm.route is Route.CHAT:
            yield from _streamed(replies, name)
    elif len(agreed) * 2 <= len(compared):
        yield part.no_effect(_CUT, said, *seen, **figures)
    else:
        yield part.undetermined(_CUT, said, *seen, **figures)


def _streamed(replies: dict[str, reply.Reply | None], name: str) -> Iterator[Finding]:
    """Judge the streamed draw, where the cut-off is known to work otherwise."""
    part, streamed, greedy = Part(mode=Mode.STREAM), replies.get("stream-0"), replies.get("greedy-0")
    if streamed is None:
        return
    missing = part.unless_answered(_CUT, streamed, greedy, replies.get("free-0"))
    sure = _sure(greedy)
    if missing is not None:
        yield missing
    elif len(sure) >= _MIN_CHARACTERS and isinstance(streamed, reply.Answer):
        why = f"streamed with {name} the text is {quote(_said(streamed), 50)}, greedy is sure of {quote(sure, 50)}"
        outcome = part.held if _agrees(_said(streamed), sure) else part.no_effect
        yield outcome(_CUT, why, streamed, greedy or streamed)


def _alone(replies: dict[str, reply.Reply | None], name: str, *, ignored: bool) -> Iterator[Finding]:
    check, alone, greedy = _ALONE, replies.get("alone-0"), replies.get("greedy-0")
    if alone is None:
        return
    missing = _PART.unless_answered(check, alone, greedy, what=f"{name} without a temperature")
    sure = _sure(greedy)
    if missing is not None:
        yield missing
    elif len(sure) >= _MIN_CHARACTERS and isinstance(alone, reply.Answer):
        agrees = _agrees(_said(alone), sure)
        why = f"with nothing but {name} the answer is {quote(_said(alone), 50)}, greedy is sure of {quote(sure, 50)}"
        shortfall = _PART.no_effect if ignored else _PART.violated
        yield (_PART.held if agrees else shortfall)(check, why, alone, greedy or alone)


def _sure(greedy: reply.Reply | None) -> str:
    return sure_text(greedy) if isinstance(greedy, reply.Answer) else ""


def _said(answer: reply.Answer) -> str:
    return answer.first.reasoning + answer.text


def _agrees(text: str, sure: str) -> bool:
    return text.strip().startswith(sure.strip())


def cost(params: SamplingCutoffParams) -> Cost:
    """Return what a trial costs with these parameters; tokens as measured on the reference server."""
    chat, texts = (len(_prompts(params, arm)) for arm in _ARMS)
    requests = 3 * chat + 2 + 3 * texts
    prompt_tokens = 30 * (3 * chat + 2) + 8 * 3 * texts
    return Cost(requests=requests, prompt_tokens=prompt_tokens, output_tokens=requests * params.max_tokens)


PROBE = Probe(
    id="sampling_cutoff",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_CUT,
            rule="At temperature 2 a cut-off that leaves the best token gives the greedy text, near-ties aside.",
            level=Level.MUST,
            source="https://docs.vllm.ai/en/latest/api/vllm/sampling_params/",
        ),
        Check(
            id=_ALONE,
            rule="The cut-off also works in a request that names no other sampling parameter.",
            level=Level.MUST,
            source="https://docs.vllm.ai/en/latest/api/vllm/sampling_params/",
        ),
    ),
    params=SamplingCutoffParams,
    drive=drive,
    judge=judge,
    cost=cost,
)
