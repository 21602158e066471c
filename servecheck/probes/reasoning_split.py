"""Thinking is kept apart from the answer.

What it does: asks a model that thinks a few short questions, greedily and sampled, whole or streamed. The thinking must
come in a field of its own (``reasoning`` or ``reasoning_content``), the answer in ``content``. A word of the thought is
given as a stop string, which is for the answer. A model that shows no thinking, as it is or when asked to, makes the
row not applicable.

Why it matters: thinking in the content reaches users and breaks parsers; an answer in the reasoning field leaves
applications with nothing. Streams are split by other code than whole replies, and are reported to differ.

How it could be fooled: by a model that thinks without marks on a server without a parser, which reads like a long
answer; by a model that thinks for longer than ``max_tokens``, of which only the thought is seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, NotApplicable, Transcript
from servecheck.probe import Cost, Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._reasoning import ROOM, ask, field_of, marks, no_thinking, tokens_in, told_to
from servecheck.probes._steps import answer_at, reply_at
from servecheck.read import reply
from servecheck.read.text import dig, parse, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/features/reasoning_outputs/"
_APART, _ANSWER = "thinking-is-in-its-own-field", "answer-is-in-the-content"
_CLEAN, _ORDER = "reasoning-and-answer-hold-no-marks", "thinking-streams-before-the-answer"
_BILLED, _STOP = "reasoning-tokens-count-the-thinking", "stop-string-spares-the-thinking"


class ReasoningSplitParams(Params):
    """What may be chosen in YAML."""

    mode: Literal["whole", "stream"] = Field(description="Whether the replies are streamed.")
    prompts: tuple[str, ...] = Field(
        default=("What is 12 + 5? Answer with the number only.", "Good morning! Greet me in one short sentence."),
        min_length=1,
        max_length=16,
        strict=False,
        description="Questions with short answers.",
    )
    draws: int = Field(default=2, ge=1, le=16, description="Sampled answers to each prompt; some parsers fail on some.")
    max_tokens: int = Field(default=ROOM, ge=64, le=16384, description="Room for the thought and the answer.")


async def drive(session: Session, params: ReasoningSplitParams, _: Transcript | None) -> None:
    """Find out whether it thinks; then greedy once and sampled several times, in the mode that is asked for."""
    base: dict[str, Json] = {"max_tokens": params.max_tokens, "top_p": 1}
    first: Json = [{"role": "user", "content": params.prompts[0]}]
    more = await ask(session, {**base, "messages": first, "temperature": 0})
    if more is None:
        return
    streamed: dict[str, Json] = {"stream": True} if params.mode == "stream" else {}
    if streamed:
        await session.chat("look-greedy", {**base, **more, **streamed, "messages": first, "temperature": 0})
    for place, prompt in enumerate(params.prompts, start=1):
        messages: Json = [{"role": "user", "content": prompt}]
        for draw in range(params.draws):
            body: dict[str, Json] = {**base, **more, **streamed, "messages": messages, "temperature": 0.7}
            await session.chat(f"look-{place}-{draw}", body)
    word = _word_of_thought(told_to(session.transcript))
    if word and not streamed:
        await session.chat("stopped", {**base, **more, "messages": first, "temperature": 0, "stop": [word]})


def _word_of_thought(whole: reply.Answer | None) -> str:
    """Return a word that a greedy reply thought of and did not say, an empty string where there is none."""
    if whole is None or whole.finish != "stop" or not whole.text.strip():
        return ""
    words = re.findall(r"[A-Za-z]{4,}", whole.first.reasoning)
    return next((word for word in words[len(words) // 2 :] if word.lower() not in whole.text.lower()), "")


def judge(transcript: Transcript, params: ReasoningSplitParams) -> Iterator[Finding | NotApplicable]:
    """Judge every reply of the mode; a greedy stream also against the whole reply."""
    part = Part(mode=Mode.STREAM if params.mode == "stream" else Mode.NON_STREAM)
    plain, whole = reply_at(transcript, "plain"), told_to(transcript)
    looks = [reply.chat(exchange) for exchange in transcript.steps("look-")]
    if whole is None:
        nothing = no_thinking([plain, reply_at(transcript, "asked"), *looks])
        yield nothing or part.unless_answered(_APART, plain) or part.undetermined(_APART, "the model did not think")
        return
    if params.mode == "whole":
        looks = [whole, *looks]
    missing = next((found for look in looks if (found := part.unless_answered(_APART, look, whole))), None)
    if missing is not None:
        yield missing
        return
    answers = [look for look in looks if isinstance(look, reply.Answer)]
    yield _apart(part, answers, whole)
    yield _answer(part, answers)
    yield from _clean(part, answers)
    yield from _billed(part, answers)
    yield from _stopped(part, transcript, whole)
    if params.mode == "stream":
        yield from _order(part, answers)


def _apart(part: Part, answers: Sequence[reply.Answer], whole: reply.Answer) -> Finding:
    for answer in answers:
        if mark := marks(answer.text):
            why = f"the content holds marks of thinking ({mark}): {quote(answer.text)}"
            return part.violated(_APART, why, answer)
    thinking = [answer for answer in answers if answer.first.reasoning.strip()]
    if thinking:
        name = field_of(thinking[0])
        why = f"{len(thinking)} of {len(answers)} replies have their thinking in {name}, none in the content"
        return part.held(_APART, why, *answers, field=name)
    if not answers:
        return part.undetermined(_APART, "nothing was answered", whole)
    if whole.first.reasoning.strip():
        why = f"the whole reply has reasoning ({quote(whole.first.reasoning, 40)}), no stream has: "
        return part.violated(_APART, why + quote(answers[0].text, 60), *answers, whole)
    return part.undetermined(_APART, "the model did not think in any of these replies", *answers)


def _answer(part: Part, answers: Sequence[reply.Answer]) -> Finding:
    ended = [answer for answer in answers if answer.finish != "length" and not answer.first.tool_calls]
    empty = [answer for answer in ended if not answer.text.strip()]
    figures = {"ended": len(ended), "empty": len(empty)}
    if not ended:
        return part.undetermined(_ANSWER, "every reply was cut by max_tokens before it ended", *answers, **figures)
    if empty:
        shown = quote(empty[0].first.reasoning[-60:], 64) if empty[0].first.reasoning else "there is no reasoning"
        why = f"content is empty and the answer is in the reasoning, in {len(empty)} of {len(ended)} replies that "
        why += f"ended with {empty[0].finish}: {shown}"
        return part.violated(_ANSWER, why, *empty, **figures)
    why = f"{len(ended)} replies that ended have an answer in the content: {quote(ended[0].text.strip(), 40)}"
    return part.held(_ANSWER, why, *ended, **figures)


def _clean(part: Part, answers: Sequence[reply.Answer]) -> Iterator[Finding]:
    for answer in answers:
        for name, text in (("reasoning", answer.first.reasoning), ("content", answer.text)):
            if token := tokens_in(text):
                yield part.violated(_CLEAN, f"the {name} holds {token}: {quote(text[-80:], 84)}", answer)
                return
    if answers:
        yield part.held(_CLEAN, f"no special token is written out in {len(answers)} replies", *answers)


def _billed(part: Part, answers: Sequence[reply.Answer]) -> Iterator[Finding]:
    """Judge the count of reasoning tokens where there is one; a server need not tell it."""
    told = [answer for answer in answers if answer.usage is not None and answer.usage.reasoning is not None]
    for answer in told:
        count, made = (answer.usage.reasoning, answer.usage.completion) if answer.usage else (None, None)
        said = f"reasoning_tokens {count} of {made} completion tokens"
        if not count and len(answer.first.reasoning.split()) > 1:
            yield part.violated(_BILLED, f"{said}, and there is thinking: {quote(answer.first.reasoning, 60)}", answer)
            return
        if count and made is not None and count > made:
            yield part.violated(_BILLED, f"{said}: more than all", answer)
            return
    if told:
        counts = ", ".join(str(answer.usage.reasoning) for answer in told if answer.usage)
        yield part.held(_BILLED, f"reasoning_tokens {counts}", *told)


def _stopped(part: Part, transcript: Transcript, whole: reply.Answer) -> Iterator[Finding]:
    """Judge the answer behind a thought that says the stop string; who takes no stop string has no such trouble."""
    found = answer_at(transcript, "stopped")
    if found is None:
        return
    word = quote(str(dig(found.exchange.request, "stop", 0)))
    if found.text.strip():
        yield part.held(_STOP, f"with the stop string {word}, a word of the thought, the answer comes", found, whole)
    elif found.finish == "stop":
        thought = quote(found.first.reasoning[-60:], 64)
        why = f"the stop string {word}, a word of the thought, ends the reply before its answer: {thought}"
        yield part.violated(_STOP, why, found, whole)


def _order(part: Part, answers: Sequence[reply.Answer]) -> Iterator[Finding]:
    seen = [answer for answer in answers if answer.first.reasoning.strip() and answer.text.strip()]
    for answer in seen:
        if late := _thought_after_answer(answer):
            yield part.violated(_ORDER, f"reasoning comes after the answer has begun: {quote(late, 40)}", answer)
            return
    if seen:
        yield part.held(_ORDER, f"in {len(seen)} streams the answer begins when the thinking is over", *seen)


def _thought_after_answer(answer: reply.Answer) -> str:
    begun = False
    for event in answer.stream.events if answer.stream is not None else ():
        try:
            delta = dig(parse(event.data), "choices", 0, "delta")
        except ValueError:
            continue
        thought = string(dig(delta, "reasoning_content")) or string(dig(delta, "reasoning"))
        if begun and thought.strip():
            return thought
        begun = begun or bool(string(dig(delta, "content")).strip())
    return ""


def cost(params: ReasoningSplitParams) -> Cost:
    """Return what a trial costs with these parameters; tokens as measured on the reference server."""
    requests = 2 + len(params.prompts) * params.draws
    return Cost(requests=requests, prompt_tokens=34 * requests, output_tokens=56 * requests)


PROBE = Probe(
    id="reasoning_split",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_APART,
            rule="Thinking comes in reasoning or reasoning_content, and never in the content.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_ANSWER,
            rule="A reply that ended by itself has its answer in the content.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/48748",
        ),
        Check(
            id=_CLEAN,
            rule="Neither reasoning nor content has special tokens written out.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/48748",
        ),
        Check(
            id=_BILLED,
            rule="Where usage tells reasoning tokens, thinking has some, and no more than the completion has.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm-ascend/issues/13070",
        ),
        Check(
            id=_STOP,
            rule="A stop string ends the answer, and not the thinking before it.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/52393",
        ),
        Check(
            id=_ORDER,
            rule="In a stream no reasoning comes after the answer has begun.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
    ),
    params=ReasoningSplitParams,
    drive=drive,
    judge=judge,
    cost=cost,
)
