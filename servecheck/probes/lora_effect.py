"""A LoRA adapter changes what the model says, and nothing else does.

What it does: sends the same greedy prompts to the model twice and to each adapter, with log probabilities; then one of
each side by side, the model again, and to an adapter a long prompt that the model has seen before, with the prefix
cache and past it.

Why it matters: an adapter whose weights match no module is listed, selected and answers 200, as the plain model. One
that reads what the cache holds of another is wrong for some users only.

How it could be fooled: a mild adapter may not change a text, so the log probabilities of the first token decide;
without them an equal text says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, NotApplicable, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._adapters import adapters, ask_for_list, base_fields, none_listed
from servecheck.probes._findings import Part
from servecheck.probes._steps import filler, reply_at, sent
from servecheck.probes._vectors import cosine, vector_at
from servecheck.read import reply
from servecheck.read.logprobs import tokens
from servecheck.read.text import quote
from servecheck.stats import NEAR_TIE

__all__ = ["PROBE"]

_PART = Part()
_EFFECT, _BASE = "adapter-changes-the-answer", "base-model-stays-itself"
_BESIDE, _CACHE = "adapter-and-base-keep-apart-in-a-batch", "adapter-reads-no-other-s-cache"
_SOURCE = "https://docs.vllm.ai/en/latest/features/lora/"
_PROMPTS = ("The capital of France is", "Write one sentence about the sea.", "List three animals.")
_MOST = 2
_LONG = 400  # words: more than one block of any cache but a hybrid one
_FLOOR = 0.02  # nat; below it another kernel for the same numbers may be what differs


class LoraEffectParams(Params):
    """What may be chosen in YAML."""

    prompts: tuple[str, ...] = Field(
        default=_PROMPTS, min_length=1, max_length=32, strict=False, description="The users' messages."
    )


async def drive(session: Session, params: LoraEffectParams, _: Transcript | None) -> None:
    """The model twice and each adapter, prompt by prompt; then together, the model again, and the cache."""
    await ask_for_list(session)
    found = adapters(session.transcript)[:_MOST]
    if not found:
        return
    base = base_fields(session.transcript)
    for number, prompt in enumerate(params.prompts):
        await _ask(session, f"base-{number}", prompt, base)
        await _ask(session, f"again-{number}", prompt, base)
        for place, adapter in enumerate(found):
            await _ask(session, f"adapter-{place}-{number}", prompt, adapter.fields)
    await session.concurrently(
        [
            _ask(session, "beside-base", params.prompts[0], base),
            *(
                _ask(session, f"beside-{place}", params.prompts[0], adapter.fields)
                for place, adapter in enumerate(found)
            ),
        ]
    )
    await _ask(session, "after", params.prompts[0], base)
    if session.endpoint.kind == "embedding":
        return
    long = f"{session.nonce()} {filler(_LONG)}. {params.prompts[0]}"
    past: dict[str, Json] = {"cache_salt": session.nonce(), "cache_prompt": False}
    await _ask(session, "long-base", long, base)
    await _ask(session, "long-cached", long, found[0].fields)
    await _ask(session, "long-past", long, {**found[0].fields, **past})


async def _ask(session: Session, step: str, prompt: str, fields: Mapping[str, Json]) -> Exchange:
    if session.endpoint.kind == "embedding":
        return await session.post(step, "/embeddings", {"input": prompt, **fields})
    body: dict[str, Json] = {"max_tokens": 4, "temperature": 0, **fields}
    if session.endpoint.kind == "completion":
        return await session.post(step, "/completions", {"prompt": prompt, "logprobs": 5, **body})
    messages: Json = [{"role": "user", "content": prompt}]
    return await session.chat(step, {"messages": messages, "logprobs": True, "top_logprobs": 5, **body})


def judge(transcript: Transcript, params: LoraEffectParams) -> Iterator[Finding | NotApplicable]:
    """Judge each adapter by how far its first token is from the model's, against the model's own noise."""
    exchange = transcript.get("models")
    if exchange is None:
        yield _PART.undetermined(_EFFECT, "the list of adapters was not asked for")
        return
    missing = reply.not_answered(exchange)
    if missing is not None:
        yield _PART.undetermined(_EFFECT, f"the list of adapters did not come: {missing.what}", exchange)
        return
    absent = none_listed(transcript)
    if absent is not None:
        yield absent
        return
    numbers = range(len(params.prompts))
    noise = [_apart(transcript, f"base-{number}", f"again-{number}") for number in numbers]
    floor = max((value for value in noise if value is not None), default=0.0)
    moved = []
    for place, adapter in enumerate(adapters(transcript)[:_MOST]):
        found = _effect(transcript, place, adapter.name, numbers, floor)
        moved.append(found)
        yield found
    yield _stays(transcript, floor)
    for place in range(len(moved)):
        yield _beside(transcript, place, floor)
    yield from _cache(transcript, floor)


def _answered(transcript: Transcript, step: str) -> bool:
    return isinstance(reply_at(transcript, step), reply.Answer) or vector_at(transcript, step) is not None


def _apart(transcript: Transcript, one: str, other: str) -> float | None:
    """Return how far two answers are apart at their first token, in nat; ``None`` where nothing tells.

    The largest difference among the tokens that both name; infinite where they name none in common. Of vectors, the
    share by which the cosine falls short of 1.
    """
    vectors = [vector_at(transcript, step) for step in (one, other)]
    if vectors[0] is not None and vectors[1] is not None:
        return 0.0 if vectors[0] == vectors[1] else max(0.0, 1 - cosine(vectors[0], vectors[1]))
    first = [_first(transcript, step) for step in (one, other)]
    if not first[0] or not first[1]:
        return None
    common = first[0].keys() & first[1].keys()
    return max((abs(first[0][text] - first[1][text]) for text in common), default=math.inf)


def _first(transcript: Transcript, step: str) -> dict[str, float]:
    answer = reply_at(transcript, step)
    found = tokens(answer) if isinstance(answer, reply.Answer) else ()
    if not found:
        return {}
    own = {found[0].text: found[0].logprob} if found[0].logprob is not None else {}
    return {**dict(found[0].top), **own}


def _text(transcript: Transcript, step: str) -> str | None:
    answer = reply_at(transcript, step)
    return answer.first.reasoning + answer.text if isinstance(answer, reply.Answer) else None


def _effect(transcript: Transcript, place: int, name: str, numbers: range, floor: float) -> Finding:
    shown = quote(name, 40)
    steps = [f"adapter-{place}-{number}" for number in numbers]
    seen = [exchange for step in ("base-0", *steps) if (exchange := transcript.get(step)) is not None]
    for step in steps:
        if not _answered(transcript, step):
            missing = _PART.unless_answered(
                _EFFECT, reply_at(transcript, step), reply_at(transcript, "base-0"), what=name
            )
            return missing or _PART.undetermined(_EFFECT, f"{shown} did not answer", *seen)
    effects = [
        value for number in numbers if (value := _apart(transcript, f"base-{number}", steps[number])) is not None
    ]
    texts = [(_text(transcript, f"base-{number}"), _text(transcript, steps[number])) for number in numbers]
    if not effects:
        again = all(_text(transcript, f"base-{number}") == _text(transcript, f"again-{number}") for number in numbers)
        if again and any(one != other for one, other in texts):
            return _PART.held(_EFFECT, f"{shown} says something else than the model, which repeats itself", *seen)
        why = f"{shown}: no effect seen in {len(texts)} short answers, and there are no log probabilities to look at"
        return _PART.undetermined(_EFFECT, why, *seen)
    best = max(effects)
    far = "names other tokens" if best == math.inf else f"moves log probabilities by up to {best:.3f} nat"
    figures = {"moved_nat": None if best == math.inf else round(best, 4), "noise_nat": round(min(floor, 1e9), 4)}
    if best > max(_FLOOR, 3 * floor):
        return _PART.held(_EFFECT, f"{shown} {far}; the model alone repeats within {floor:.3f}", *seen, **figures)
    if best == 0:
        why = f"{shown} changes nothing, to the last digit of {len(effects)} first tokens"
        return _PART.no_effect(_EFFECT, why, *seen, **figures)
    why = f"{shown} {far}, which is no more than noise (the model alone repeats within {floor:.3f})"
    made = _PART.no_effect if floor <= _FLOOR and all(one == other for one, other in texts) else _PART.undetermined
    return made(_EFFECT, why, *seen, **figures)


def _stays(transcript: Transcript, floor: float) -> Finding:
    apart = _apart(transcript, "base-0", "after")
    seen = sent(reply_at(transcript, "base-0"), reply_at(transcript, "after"))
    if not _answered(transcript, "after"):
        missing = _PART.unless_answered(_BASE, reply_at(transcript, "after"), reply_at(transcript, "base-0"))
        return missing or _PART.undetermined(_BASE, "the model did not answer again", *seen)
    if apart is None:
        return _PART.undetermined(_BASE, "there are no log probabilities to look at", *seen)
    said = f"the model after its adapters: {apart:.3f} nat from what it was before"
    return (_PART.held if apart <= max(NEAR_TIE, 3 * floor) else _PART.violated)(_BASE, said, *seen)


def _beside(transcript: Transcript, place: int, floor: float) -> Finding:
    pairs = (("beside-base", "base-0"), (f"beside-{place}", f"adapter-{place}-0"))
    seen = sent(*(reply_at(transcript, step) for pair in pairs for step in pair))
    between = _apart(transcript, "base-0", f"adapter-{place}-0")
    values = [_apart(transcript, one, other) for one, other in pairs]
    if between is None or values[0] is None or values[1] is None:
        return _PART.undetermined(_BESIDE, "not every answer has log probabilities", *seen)
    limit = max(NEAR_TIE, 3 * floor)
    said = f"side by side the model is {values[0]:.3f} and the adapter {values[1]:.3f} nat from itself alone"
    if max(values[0], values[1]) <= limit:
        return _PART.held(_BESIDE, said, *seen)
    return _PART.violated(_BESIDE, f"{said}; they are {between:.3f} apart", *seen)


def _cache(transcript: Transcript, floor: float) -> Iterator[Finding]:
    """Judge the cache where the adapter's answer past it can be told from the model's."""
    steps = ("long-cached", "long-past", "long-base")
    if any(transcript.get(step) is None for step in steps):
        return
    seen = sent(*(reply_at(transcript, step) for step in steps))
    apart, between = _apart(transcript, steps[0], steps[1]), _apart(transcript, steps[2], steps[1])
    limit = max(NEAR_TIE, 3 * floor)
    if apart is None or between is None:
        yield _PART.undetermined(_CACHE, "the long prompts have no log probabilities to compare", *seen)
        return
    said = f"after the model has seen the prompt the adapter is {apart:.3f} nat from itself past the cache"
    if apart > limit:
        yield _PART.violated(_CACHE, f"{said}; the model is {between:.3f} from it", *seen)
    elif between <= limit:
        yield _PART.undetermined(_CACHE, f"{said}, but so is the model: {between:.3f}", *seen)
    else:
        yield _PART.held(_CACHE, said, *seen)


PROBE = Probe(
    id="lora_effect",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_EFFECT,
            rule="An adapter gives the first token other log probabilities than the model gives.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_BASE,
            rule="The model answers after its adapters were used as it did before.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_BESIDE,
            rule="The model and an adapter give in one batch what each gives alone.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_CACHE,
            rule="An adapter gives the same with the prefix cache, which the model has filled, as past it.",
            level=Level.SHOULD,
            source="https://docs.vllm.ai/en/latest/design/prefix_caching/",
        ),
    ),
    params=LoraEffectParams,
    drive=drive,
    judge=judge,
    requests=16,
    prompt_tokens=2010,
    output_tokens=50,
)
