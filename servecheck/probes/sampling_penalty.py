"""A penalty on repetition makes a greedy text repeat itself less.

What it does: for each of several prompts, takes the greedy text three times (the controls, which must agree) and once
with a strong penalty; all run to their limit, so that the length says nothing. Counts words that were said before.
Where a penalty shows, asks the same streamed, and on the completions route with controls of its own.

Why it matters: chat applications break loops with it; TPU back ends are reported to drop all three with a 200.

How it could be fooled: by a near-tie, so a text that only differs counts where the controls agree and the place is no
near-tie; by a text that cannot be moved, so “ignored” is said only where a penalty had to move it: where the text
loops, or where the logprobs show a rival so close that the penalty must have chosen it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Cost, Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import answer_at, reply_at, sent
from servecheck.read import reply
from servecheck.read.logprobs import Token, tokens
from servecheck.read.text import quote
from servecheck.stats import NEAR_TIE

__all__ = ["PROBE"]

_OPENAI = "https://platform.openai.com/docs/api-reference/chat/create"
_LESS = "penalty-lessens-repeats"
_CHAT, _STREAM, _COMPLETIONS = Part(), Part(mode=Mode.STREAM), Part(route=Route.COMPLETIONS)
_STRONG: dict[str, float] = {"frequency_penalty": 2.0, "presence_penalty": 2.0, "repetition_penalty": 1.8}
_CONTROLS = 3
_MIN_REPEATS = 6  # fewer cannot be halved for sure
_SOME = 3  # repeats that a penalty which divides logits nearly in half cannot leave alone
_LOOP = 20  # repeats of one word that no frequency or repetition penalty of this strength lets stand
_LOOPING = "Repeat the word blue again and again, nothing else: blue blue blue blue blue blue"
_NO = "Say no ten times: no no no no no no"
_SEA = "Write a few sentences about the sea and the ships on the sea."


class SamplingPenaltyParams(Params):
    """What may be chosen in YAML."""

    parameter: Literal["frequency_penalty", "presence_penalty", "repetition_penalty"] = Field(
        description="The penalty to exercise."
    )
    prompts: tuple[str, ...] = Field(
        default=(_LOOPING, _NO, _SEA), min_length=2, max_length=8, description="Prompts whose answers repeat words."
    )
    completion_prompt: str = Field(
        default="The sea is wide, and the ships on the sea", description="A text to continue."
    )
    most_prompts: int = Field(default=8, ge=2, le=8, description="The most prompts that are asked.")
    completions: bool = Field(
        default=True, description="Whether the completions route is asked too, where it is served."
    )
    max_tokens: int = Field(default=48, ge=24, le=256, description="Tokens of each answer.")


class Effect(StrEnum):
    """What a penalty did to one prompt's text."""

    LESS = "less"
    MOVED = "moved"
    MORE = "more"
    NONE = "none"
    UNMOVED = "unmoved"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One prompt's experiment: what the penalty did, in words, and the replies."""

    effect: Effect
    why: str
    replies: tuple[reply.Reply, ...]


async def drive(session: Session, params: SamplingPenaltyParams, _: Transcript | None) -> None:
    """Three controls and the penalty for each prompt; then another mode and another route where the penalty shows."""
    penalty: dict[str, Json] = {params.parameter: _STRONG[params.parameter]}
    base: dict[str, Json] = {"max_tokens": params.max_tokens, "temperature": 0, "top_p": 1, "ignore_eos": True}
    extra: dict[str, Json] = {"logprobs": True, "top_logprobs": 5}
    for place, prompt in enumerate(_asked(params)):
        asked: dict[str, Json] = {**base, "messages": [{"role": "user", "content": prompt}]}
        for number in range(_CONTROLS):
            step = f"control-{place}-{number}"
            exchange = await session.chat(step, {**asked, **extra})
            if isinstance(reply.chat(exchange), reply.Refusal) and extra:
                extra = {}
                exchange = await session.chat(step, asked)
            if isinstance(reply.chat(exchange), reply.Refusal) and "ignore_eos" in base:
                base.pop("ignore_eos")
                asked = {**base, "messages": asked["messages"]}
                await session.chat(step, asked)
        await session.chat(f"penalty-{place}", {**asked, **extra, **penalty})
    moved = _shown(session.transcript, params)
    if moved is None:
        if params.parameter == "presence_penalty":
            loop = params.prompts[int(_loopiest(session.transcript, params).split("-")[1])]
            asked = {**base, "messages": [{"role": "user", "content": loop}]}
            await session.chat("frequency", {**asked, **extra, "frequency_penalty": _STRONG["frequency_penalty"]})
        return
    again: dict[str, Json] = {**base, "messages": [{"role": "user", "content": params.prompts[moved]}]}
    await session.chat("penalty-stream", {**again, **extra, **penalty, "stream": True})
    if not params.completions:
        return
    text: dict[str, Json] = {**base, "prompt": params.completion_prompt, **({"logprobs": 5} if extra else {})}
    for number in range(2):
        await session.post(f"completions-control-{number}", "/completions", text)
    await session.post("completions-penalty", "/completions", {**text, **penalty})


def _asked(params: SamplingPenaltyParams) -> tuple[str, ...]:
    return params.prompts[: params.most_prompts]


def _shown(transcript: Transcript, params: SamplingPenaltyParams) -> int | None:
    """Return the first prompt that the penalty moved."""
    for place in range(len(_asked(params))):
        seen = _of_prompt(transcript, params, place)
        if seen is not None and seen.effect in (Effect.LESS, Effect.MOVED):
            return place
    return None


def _of_prompt(transcript: Transcript, params: SamplingPenaltyParams, place: int) -> Seen | None:
    controls = [answer_at(transcript, f"control-{place}-{number}") for number in range(_CONTROLS)]
    penalised = answer_at(transcript, f"penalty-{place}")
    if penalised is None or None in controls:
        return None
    return _seen(penalised, [found for found in controls if found is not None], params.parameter)


def _seen(penalised: reply.Answer, controls: Sequence[reply.Answer], parameter: str) -> Seen:
    """Return what a penalty did to a text, against its controls."""
    texts = [_said(control) for control in controls]
    text = _said(penalised)
    before, after = min(_repeats(each) for each in texts), _repeats(text)
    said = f"{after} of {_words(text)} words are repeats with {parameter} {_STRONG[parameter]:g}, {before} without"

    def seen(effect: Effect, more: str = "") -> Seen:
        return Seen(effect=effect, why=said + more, replies=(penalised, *controls))

    if before >= _MIN_REPEATS and after * 2 <= before:
        return seen(Effect.LESS)
    if text in texts:
        must = _had_to_move(controls[0], parameter)
        return seen(Effect.UNMOVED, f": the same text, although {must}") if must else seen(Effect.NONE)
    if len(set(texts)) > 1:
        return seen(Effect.UNCLEAR, "; the controls differ among themselves")
    if after >= before + _MIN_REPEATS and after >= before * 1.5:
        return seen(Effect.MORE, f": {quote(text, 60)}")
    tie = _parts_at_a_tie(controls[0], text)
    if tie:
        return seen(Effect.UNCLEAR, f"; the text turns at a near-tie, {tie}")
    return seen(Effect.MOVED, f", and the text turns to {quote(text, 60)}")


def judge(transcript: Transcript, params: SamplingPenaltyParams) -> Iterator[Finding]:
    """Judge all prompts together, then the mode and the route that were asked besides."""
    for place in range(len(_asked(params))):
        found = reply_at(transcript, f"penalty-{place}")
        controls = [reply_at(transcript, f"control-{place}-{number}") for number in range(_CONTROLS)]
        missing = _CHAT.unless_answered(_LESS, found, *controls)
        if missing is not None:
            yield missing
            return
        sick = [control for control in controls if not isinstance(control, reply.Answer)]
        if sick:
            what = next((control.what for control in sick if control is not None), "it was not sent")
            yield _CHAT.undetermined(_LESS, f"a control without the penalty was not answered: {what}", *sent(*sick))
            return
    all_seen = [_of_prompt(transcript, params, place) for place in range(len(_asked(params)))]
    prompts = [seen for seen in all_seen if seen is not None]
    yield _together(transcript, params, prompts)
    moved = _shown(transcript, params)
    if moved is not None:
        yield from _elsewhere(transcript, params, moved)


def _together(transcript: Transcript, params: SamplingPenaltyParams, prompts: Sequence[Seen]) -> Finding:
    by_effect = {effect: [seen for seen in prompts if seen.effect is effect] for effect in Effect}
    replies = [each for seen in prompts for each in seen.replies]
    figures = {str(effect): len(found) for effect, found in by_effect.items()}
    for effect in (Effect.LESS, Effect.MORE, Effect.MOVED):
        if by_effect[effect]:
            best = by_effect[effect][0]
            finding = _CHAT.violated if effect is Effect.MORE else _CHAT.held
            return finding(_LESS, best.why, *best.replies, **figures)
    if by_effect[Effect.UNMOVED]:
        return _CHAT.no_effect(_LESS, by_effect[Effect.UNMOVED][0].why, *replies, **figures)
    if by_effect[Effect.UNCLEAR]:
        return _CHAT.undetermined(_LESS, by_effect[Effect.UNCLEAR][0].why, *replies, **figures)
    why = f"{prompts[0].why}: the same text on every prompt"
    frequency, control = reply_at(transcript, "frequency"), answer_at(transcript, _loopiest(transcript, params))
    if isinstance(frequency, reply.Answer) and control is not None and _said(frequency) == _said(control):
        return _CHAT.no_effect(_LESS, f"{why}, and with frequency_penalty 2 too", *replies, frequency, **figures)
    return _CHAT.undetermined(_LESS, f"{why}, none of which need have moved", *replies, *sent(frequency), **figures)


def _loopiest(transcript: Transcript, params: SamplingPenaltyParams) -> str:
    """Return the control whose text repeats itself most."""
    steps = [f"control-{place}-0" for place in range(len(_asked(params)))]
    answers = [(answer_at(transcript, step), step) for step in steps]
    return max((_repeats(_said(answer)) if answer is not None else 0, step) for answer, step in answers)[1]


def _elsewhere(transcript: Transcript, params: SamplingPenaltyParams, place: int) -> Iterator[Finding]:
    """Judge the stream of a prompt that the penalty moved when it was not streamed, and the completions route."""
    steps = [f"control-{place}-{number}" for number in range(_CONTROLS)]
    controls = [found for step in steps if (found := answer_at(transcript, step)) is not None]
    plain = reply_at(transcript, f"penalty-{place}")
    streamed = reply_at(transcript, "penalty-stream")
    missing = _STREAM.unless_answered(_LESS, streamed, plain, *controls)
    if missing is not None:
        yield missing
    elif isinstance(streamed, reply.Answer):
        yield _alone(_STREAM, _seen(streamed, controls, params.parameter), moves=True)
    before = [reply_at(transcript, f"completions-control-{number}") for number in range(2)]
    answered = [found for found in before if isinstance(found, reply.Answer)]
    if len(answered) < len(before):
        return  # the route is an extension: where it is absent nothing is said of it
    there = reply_at(transcript, "completions-penalty")
    missing = _COMPLETIONS.unless_answered(_LESS, there, *before)
    if missing is not None:
        yield missing
    elif isinstance(there, reply.Answer):
        yield _alone(_COMPLETIONS, _seen(there, answered, params.parameter), moves=False)


def _alone(part: Part, seen: Seen, *, moves: bool) -> Finding:
    """Return the finding of one prompt; ``moves`` says that the penalty is known to move this text."""
    if seen.effect in (Effect.LESS, Effect.MOVED):
        return part.held(_LESS, seen.why, *seen.replies)
    if seen.effect is Effect.MORE:
        return part.violated(_LESS, seen.why, *seen.replies)
    if seen.effect is Effect.UNMOVED or (moves and seen.effect is Effect.NONE):
        return part.no_effect(_LESS, f"{seen.why}: the text is as without it", *seen.replies)
    return part.undetermined(_LESS, seen.why, *seen.replies)


# --------------------------------------------------------------------------- what a text must do


def _had_to_move(control: reply.Answer, parameter: str) -> str:
    """Return why a penalty had to move this greedy text, or nothing where it need not have."""
    counts = Counter(re.findall(r"\w+", _said(control)))
    word, most = counts.most_common(1)[0] if counts else ("", 0)
    if parameter != "presence_penalty" and most >= _LOOP:
        return f"{quote(word, 20)} is in it {most} times"
    if parameter == "repetition_penalty":
        repeats = _repeats(_said(control))
        return f"it repeats {repeats} words" if repeats >= _SOME else ""
    return _rival(tokens(control), _STRONG[parameter], each=parameter == "frequency_penalty")


def _rival(generated: Sequence[Token], penalty: float, *, each: bool) -> str:
    """Return where a rival must overtake a repeated token, by the logprobs; nothing where none does.

    Penalties are subtracted from logits, so differences of logprobs move by just as much. Up to the first such place
    the penalised text is the greedy one or has turned before. A limit for near-ties is left on top.
    """
    said: Counter[str] = Counter()
    for place, token in enumerate(generated):
        cost = penalty * (said[token.text] if each else min(1, said[token.text]))
        for text, logprob in token.top:
            own = penalty * (said[text] if each else min(1, said[text]))
            if text != token.text and token.logprob is not None and text:
                ahead = token.logprob - logprob - cost + own
                if ahead < -NEAR_TIE and cost:
                    return f"{quote(text, 20)} must overtake the repeated {quote(token.text, 20)} at token {place}"
        said[token.text] += 1
    return ""


def _parts_at_a_tie(control: reply.Answer, text: str) -> str:
    """Return the near-tie at which a text left its control by chance, or nothing where it is none.

    A token that was said before is what a penalty is for: there the penalty explains the turn.
    """
    own = _said(control)
    at = next((place for place, pair in enumerate(zip(own, text, strict=False)) if pair[0] != pair[1]), len(own))
    end, before = 0, set[str]()
    for token in tokens(control):
        if not token.text or not own.startswith(token.text, end):
            continue  # a tag around a thought, or an end token: not seen in the text
        end += len(token.text)
        if at < end:
            near = token.gap is not None and token.gap <= NEAR_TIE and token.text not in before
            return f"{quote(token.text, 20)} with a rival at {token.gap:.2f} nat" if near else ""
        before.add(token.text)
    return ""


def _said(answer: reply.Answer) -> str:
    return answer.first.reasoning + answer.text


def _words(text: str) -> int:
    return len(re.findall(r"\w+", text))


def _repeats(text: str) -> int:
    """Return how many words of a text were in it before."""
    words = re.findall(r"\w+", text)
    return len(words) - len(set(words))


def cost(params: SamplingPenaltyParams) -> Cost:
    """Return what a trial costs with these parameters; tokens as measured on the reference server."""
    prompts = len(_asked(params))
    requests = (_CONTROLS + 1) * prompts + 1 + (3 if params.completions else 0)
    tokens = 35 * ((_CONTROLS + 1) * prompts + 1) + (30 if params.completions else 0)
    return Cost(requests=requests, prompt_tokens=tokens, output_tokens=requests * params.max_tokens)


PROBE = Probe(
    id="sampling_penalty",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_LESS,
            rule="With a strong penalty a greedy text repeats itself less, or turns where it repeats.",
            level=Level.MUST,
            source=f"{_OPENAI}#chat-create-frequency_penalty",
        ),
    ),
    params=SamplingPenaltyParams,
    drive=drive,
    judge=judge,
    cost=cost,
)
