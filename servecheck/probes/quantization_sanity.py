"""Output is sane: words and not garbage, finite log probabilities with a shape, the same again from the cache.

What it does: asks six plain questions alone, two with 600 tokens of text before them, those again so that the prefix
comes from the cache, and all eight at the same time; greedy, with log probabilities. Looks for what a precision that
the kernel or the hardware does not bear makes of any model: runs of one character, replacement characters, letters of
three scripts, one or two words over and over, log probabilities that are no numbers, distributions that are flat, and
a cached prompt that is answered otherwise at a clear choice.

Why it matters: such a server answers HTTP 200, passes a health check, and often is right alone and at short length.

How it could be fooled: by garbage in words. Fluent nonsense passes here; parity and accuracy rows see that. One odd
answer among many may be the model's own and is told, not blamed. Without log probabilities only the texts are judged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import Field

from servecheck import parity
from servecheck.model import Check, Exchange, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._parity import named
from servecheck.probes._steps import answer_at, reply_at, sent
from servecheck.probes._texts import long_text
from servecheck.read import reply
from servecheck.read.logprobs import MASKED, Token, tokens
from servecheck.read.text import garbage, quote
from servecheck.stats import NEAR_TIE, comparable_prefix

__all__ = ["PROBE", "looped"]

_WORDS, _FINITE, _SHAPE, _CACHED = (
    "text-is-no-garbage",
    "log-probabilities-are-numbers",
    "distributions-have-a-shape",
    "cached-prompt-is-answered-alike",
)
_PART = Part()
_QUESTIONS = (
    "What does a baker do before sunrise?",
    "Describe a small harbour in one sentence.",
    "Why do people plant trees along roads?",
    "Tell me what is in a toolbox.",
    "How does one get from a valley to a mountain top?",
    "What makes a good letter to a friend?",
)
_LONG = 2  # long prompts
_CHARACTERS = 1_800  # about 600 tokens
_RUN = 16  # of one character, as no language has it; lines and dots are drawn so
_DRAWN = frozenset("-=_*#.~+|0123456789 \n")
_LOOPS = 8  # times one or two words in a row
_FLAT = 0.02  # the mean share of the likeliest token; a uniform distribution over any vocabulary lies far below
_LEAST = 16  # tokens that a shape is read from
_OVER = 1.02  # what shares may add up to, with rounding


class QuantizationSanityParams(Params):
    """What may be chosen in YAML."""

    max_tokens: int = Field(default=40, ge=16, le=256, description="The limit of each answer.")


class _Setting(NamedTuple):
    """One way in which questions were asked."""

    name: str
    steps: tuple[str, ...]


_SHORT = tuple(f"short-{number}" for number in range(1, len(_QUESTIONS) + 1))
_LENGTHY = tuple(f"long-{number}" for number in range(1, _LONG + 1))
_SETTINGS = (
    _Setting("short prompts", _SHORT),
    _Setting("long prompts", _LENGTHY),
    _Setting("long prompts from the cache", tuple(f"again-{step}" for step in _LENGTHY)),
    _Setting("eight at the same time", tuple(f"batch-{step}" for step in (*_SHORT, *_LENGTHY))),
)
_LOGPROBS: dict[str, Json] = {"logprobs": True, "top_logprobs": 5}


def _asked() -> dict[str, str]:
    """Return the prompts by step."""
    long = {
        step: f"{long_text(_CHARACTERS, 30 + place)}\n\nWhat is this text about?" for place, step in enumerate(_LENGTHY)
    }
    return {**dict(zip(_SHORT, _QUESTIONS, strict=True)), **long}


async def drive(session: Session, params: QuantizationSanityParams, _: Transcript | None) -> None:
    """Short, long, long again, and all at once; without log probabilities where these are refused."""
    prompts = _asked()
    body: dict[str, Json] = {"max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}

    async def ask(step: str, prompt: str) -> Exchange:
        return await session.chat(step, {**body, "messages": [{"role": "user", "content": prompt}]})

    asked: dict[str, Json] = {**body, **_LOGPROBS, "messages": [{"role": "user", "content": _QUESTIONS[0]}]}
    if (await session.chat("with-logprobs", asked)).status is None:
        return  # no reply at all: there is no text that could be garbage
    if answer_at(session.transcript, "with-logprobs") is not None:
        body |= _LOGPROBS
    for step, prompt in prompts.items():
        await ask(step, prompt)
    for step in _LENGTHY:
        await ask(f"again-{step}", prompts[step])
    await session.concurrently([ask(f"batch-{step}", prompt) for step, prompt in prompts.items()], at_once=8)


# --------------------------------------------------------------------------- texts


def _said(answer: reply.Answer) -> str:
    return answer.first.reasoning + answer.text


def looped(text: str) -> str:
    """Return how a text goes in circles of one character, one word or two, or an empty string."""
    for run in re.finditer(rf"(\S)\1{{{_RUN},}}", text):
        if run[1] not in _DRAWN:
            return f"{len(run[0])} times {run[1]!r} in a row"
    words = text.split()
    for period in (1, 2):
        for start in range(len(words) - period * _LOOPS + 1):
            circle = words[start : start + period]
            if words[start : start + period * _LOOPS] == circle * _LOOPS and any(map(str.isalpha, "".join(circle))):
                return f"{quote(' '.join(circle), 30)} {_LOOPS} times in a row"
    return ""


def _texts(transcript: Transcript) -> Iterator[Finding]:
    for setting in _SETTINGS:
        answers = [each for step in setting.steps if (each := answer_at(transcript, step)) is not None]
        # The last character may be half of one, where the limit fell into it.
        odd = [(each, sign) for each in answers if (sign := _sign(_said(each).rstrip("\ufffd")))]
        if not answers:
            continue
        if not odd:
            held = f"no garbage in {len(answers)} answers to {setting.name}, as {quote(_said(answers[0]), 60)}"
            yield _PART.held(_WORDS, held, answers[0], answers=len(answers))
            continue
        shown = [each for each, _ in odd[:3]]
        first, sign = odd[0]
        why = f"{setting.name}: {len(odd)} of {len(answers)} answers are garbage ({sign}): {quote(_said(first), 80)}"
        figures = {"answers": len(answers), "garbage": len(odd)}
        if 2 * len(odd) >= len(answers):
            yield _PART.violated(_WORDS, why, *shown, **figures)
        else:
            yield _PART.undetermined(_WORDS, f"{why}; so few may be the model's own", *shown, **figures)


def _sign(text: str) -> str:
    return garbage(text) or looped(text)


# --------------------------------------------------------------------------- numbers


def _measured(transcript: Transcript) -> list[tuple[reply.Answer, tuple[Token, ...]]]:
    steps = (step for setting in _SETTINGS for step in setting.steps)
    answers = (each for step in steps if (each := answer_at(transcript, step)) is not None)
    return [(each, found) for each in answers if (found := tokens(each))]


def _numbers(transcript: Transcript, params: QuantizationSanityParams) -> Iterator[Finding]:
    measured = _measured(transcript)
    if not measured:
        return
    count = sum(len(found) for _, found in measured)
    bad = [(answer, each) for answer, found in measured for each in found if not _is_number(each)]
    if bad:
        answer, token = bad[0]
        told = "absent" if token.logprob is None else f"{token.logprob:g}"
        why = f"{len(bad)} of {count} greedy tokens have no usable log probability: {told} for {quote(token.text)}"
        yield _PART.violated(_FINITE, why, answer, tokens=count, bad=len(bad))
        return
    yield _PART.held(_FINITE, f"{count} greedy tokens have finite log probabilities", measured[0][0], tokens=count)
    shaped = [(answer, each) for answer, found in measured for each in found if each.top]
    if len(shaped) < min(_LEAST, params.max_tokens):
        return
    over = [
        (answer, each) for answer, each in shaped if sum(math.exp(min(value, 9.0)) for _, value in each.top) > _OVER
    ]
    mean = sum(math.exp(min(0.0, each.top[0][1])) for _, each in shaped) / len(shaped)
    if over:
        total = sum(math.exp(min(value, 9.0)) for _, value in over[0][1].top)
        why = f"the shares of the likeliest tokens add up to {total:.3g} at {len(over)} of {len(shaped)} places"
        yield _PART.violated(_SHAPE, why, over[0][0], places=len(shaped))
    elif mean < _FLAT:
        why = f"distributions are flat: the likeliest token has {mean:.2%} in the mean of {len(shaped)} places"
        yield _PART.violated(_SHAPE, why, shaped[0][0], top_share=round(mean, 5))
    else:
        why = f"the likeliest token has {mean:.0%} in the mean of {len(shaped)} places"
        yield _PART.held(_SHAPE, why, shaped[0][0], top_share=round(mean, 4))


def _is_number(token: Token) -> bool:
    return token.logprob is not None and math.isfinite(token.logprob) and MASKED < token.logprob <= _ABOVE_ZERO


_ABOVE_ZERO = 0.01  # nat, by rounding


# --------------------------------------------------------------------------- the same again


def _again(transcript: Transcript) -> Iterator[Finding]:
    pairs = [(answer_at(transcript, step), answer_at(transcript, f"again-{step}")) for step in _LENGTHY]
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    if not both:
        return
    unknown: list[tuple[reply.Answer, reply.Answer]] = []
    for one, other in both:
        alike = _alike(one, other)
        if alike is None:
            unknown.append((one, other))
        elif not alike:
            why = f"the same prompt is answered otherwise the second time, at a clear choice: {_apart(one, other)}"
            yield _PART.violated(_CACHED, why, one, other)
            return
    if unknown:
        why = f"the second answer differs, and no log probabilities tell whether by a near-tie: {_apart(*unknown[0])}"
        yield _PART.undetermined(_CACHED, why, *unknown[0])
        return
    why = f"{len(both)} long prompts are answered alike the second time, up to near-ties"
    yield _PART.held(_CACHED, why, *both[0])


def _alike(one: reply.Answer, other: reply.Answer) -> bool | None:
    if _said(one) == _said(other):
        return True
    left, right = tokens(one), tokens(other)
    if not left or not right:
        return None
    mine, theirs = ([named(token.text) for token in each] for each in (left, right))
    return comparable_prefix(mine, theirs, [token.gap for token in left], NEAR_TIE + parity.ROUNDING).agreed


def _apart(one: reply.Answer, other: reply.Answer) -> str:
    return f"{quote(_said(one), 60)}, then {quote(_said(other), 60)}"


# --------------------------------------------------------------------------- all


def judge(transcript: Transcript, params: QuantizationSanityParams) -> Iterator[Finding]:
    """Texts by setting, numbers and shapes over all, and the same again."""
    replies = [reply_at(transcript, step) for setting in _SETTINGS for step in setting.steps]
    first = reply_at(transcript, "with-logprobs")
    if not any(isinstance(each, reply.Answer) for each in (first, *replies)):
        yield _PART.undetermined(_WORDS, _nothing(replies), *sent(*replies[:1]))
        return
    if isinstance(first, reply.Failure) and any(isinstance(each, reply.Answer) for each in replies):
        # What cannot be written as JSON is how numbers that are none show first.
        yield _PART.violated(_FINITE, f"no reply with log probabilities, but without: {first.what}", first)
    failed = [each for each in replies if isinstance(each, reply.Failure)]
    if failed:
        yield _PART.violated(_WORDS, failed[0].what, *failed[:3])
    yield from _texts(transcript)
    yield from _numbers(transcript, params)
    yield from _again(transcript)


def _nothing(replies: Sequence[reply.Reply | None]) -> str:
    said = next((each.what for each in replies if isinstance(each, reply.Refusal | reply.Failure)), "nothing was sent")
    return f"no question was answered: {said}"


PROBE = Probe(
    id="quantization_sanity",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_WORDS,
            rule="Answers are words and not garbage, to short and long prompts, from the cache and in a batch.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/13133",
        ),
        Check(
            id=_FINITE,
            rule="Every generated token has a finite log probability.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object#chat-object-choices-logprobs",
        ),
        Check(
            id=_SHAPE,
            rule="Distributions are neither flat nor do their shares add up to more than 1.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object#chat-object-choices-logprobs",
        ),
        Check(
            id=_CACHED,
            rule="A long prompt gets the same greedy answer when it comes from the cache, up to near-ties.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/12371",
        ),
    ),
    params=QuantizationSanityParams,
    drive=drive,
    judge=judge,
    despite_sickness=True,
    exclusive=True,
    requests=19,
    prompt_tokens=5_000,
    output_tokens=760,
)
