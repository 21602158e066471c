"""Under load every request gets its own answer: its own words, its own length, its own id, and text.

What it does: asks alone for a free answer and for one under a schema (the controls). Then sends two rounds of eight
requests at once, all of them different: free answers with prompts and limits of different lengths, with a random word
each, greedy and sampled, with seeds and without, and answers under schemas with random words of their own; half of them
streamed. No answer may hold another's word; an answer under a schema must hold its own; prompt and completion tokens
must be those of the request that was sent, and no two replies may have one id. Every free answer is looked at for
signs of a broken decoder, its end by itself, since some servers fail late; what shows any is asked again alone.

Why it matters: with one request at a time all is right, and under load one customer reads another's answer. Nobody
sees it in a test that runs alone, and nobody reads a thousand answers.

How it could be fooled: by a fault that is rarer than one in sixteen; by a gateway that takes requests one after another
(then nothing is claimed). Two free answers that were exchanged within one length would be found by their words only
where the model repeats the word of its prompt; the lengths are all different for that reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Transcript
from servecheck.probe import Cost, Params, Probe, Session
from servecheck.probes._crowds import at_once, open_ended
from servecheck.probes._findings import Part
from servecheck.probes._schemas import (
    NONCE_SCHEMA,
    PULL_AWAY,
    cut_short,
    faults,
    more_room,
    response_format,
    schema_of,
    thought,
    thought_too_long,
    with_nonce,
    words,
)
from servecheck.probes._steps import filler, reply_at
from servecheck.read import reply
from servecheck.read.text import dig, garbage, number, parse, quote, string

__all__ = ["PROBE"]

_ANSWERED, _OWN, _SANE, _IDS = (
    "answered-under-load",
    "answer-is-its-own",
    "answer-stays-text-under-load",
    "ids-differ-under-load",
)
_PART = Part()
_FREE, _SHAPED = 5, 3
_STEP_WORDS, _STEP_TOKENS = 24, 3  # so much longer is each free prompt, and each free answer, than the one before
_ROOM = 48
_SHOWN = 3


class ConcurrencyIsolationParams(Params):
    """What may be chosen in YAML."""

    rounds: int = Field(default=2, ge=1, le=16, description="Rounds of eight requests at once.")
    max_tokens: int = Field(default=24, ge=16, le=1024, description="Length of the shortest free answer.")


def _free(nonce: str, place: int) -> Json:
    text = (
        f"{nonce} is the word of the day. {filler(8 + _STEP_WORDS * place, 3 * place)}. Tell a story about that word."
    )
    return [{"role": "user", "content": text}]


def _nonce_of(exchange: Exchange) -> str:
    """Return the random word of a request: the first of its prompt, or the one of its schema."""
    listed = list(words(dig(exchange.request, "response_format", "json_schema", "schema")))
    if listed:
        return listed[0]
    return string(dig(exchange.request, "messages", 0, "content")).partition(" ")[0]


async def drive(session: Session, params: ConcurrencyIsolationParams, _: Transcript | None) -> None:
    """Each kind alone, then the mixed rounds."""
    fields = await open_ended(session, "alone-free", _free(session.nonce(), 0), params.max_tokens)
    if fields is None:
        return
    room = _ROOM

    def shaped(temperature: int) -> dict[str, Json]:
        schema = with_nonce(NONCE_SCHEMA, session.nonce())
        messages: Json = [{"role": "user", "content": PULL_AWAY}]
        asked: dict[str, Json] = {"messages": messages, "max_tokens": room, "temperature": temperature, "top_p": 1}
        return {**asked, "response_format": response_format(schema)}

    for _look in range(2):
        look = reply.chat(await session.chat("alone-shaped", shaped(0)))
        more = more_room(look, room)
        if more is None:
            break
        room = more
    with_schemas = _shaped_alone(session.transcript)
    seeded: dict[str, Json] = {**fields, "temperature": 1, "top_p": 1, "seed": 3, "max_tokens": params.max_tokens}
    # A seed is another row's matter: a server that refuses it is loaded without.
    seeds = isinstance(
        reply.chat(await session.chat("alone-seeded", {**seeded, "messages": _free(session.nonce(), 0)})), reply.Answer
    )
    for turn in range(params.rounds):
        bodies: dict[str, dict[str, Json]] = {}
        for place in range(_FREE if with_schemas else _FREE + _SHAPED):
            tokens = params.max_tokens + _STEP_TOKENS * place
            body: dict[str, Json] = {**fields, "messages": _free(session.nonce(), place), "max_tokens": tokens}
            if place % 2:
                body |= {"temperature": 1, "top_p": 1} | ({"seed": 100 * turn + place} if seeds else {})
            bodies[f"free-{turn}-{place}"] = body
        for place in range(_SHAPED if with_schemas else 0):
            bodies[f"shaped-{turn}-{place}"] = shaped(place % 2) | ({"seed": 7 + turn} if seeds and place else {})
        for place, body in enumerate(bodies.values()):
            if (place + turn) % 2:
                body |= {"stream": True, "stream_options": {"include_usage": True}}
        await session.concurrently([session.chat(step, body) for step, body in bodies.items()])
        # What is no text may be the model's doing: small ones loop. The same request alone tells.
        ailing = [step for step in bodies if step.startswith("free-") and _is_ailing(session.transcript, step)]
        for step in ailing[:_SHOWN]:
            await session.chat(f"alone-{step}", bodies[step])


def _is_ailing(transcript: Transcript, step: str) -> bool:
    look = reply_at(transcript, step)
    return isinstance(look, reply.Answer) and bool(_ailment(look))


def _shaped_alone(transcript: Transcript) -> bool:
    """Tell whether a schema holds alone; where it does not, schemas say nothing about load."""
    look = reply_at(transcript, "alone-shaped")
    return isinstance(look, reply.Answer) and not faults(look.text, schema_of(look))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alone:
    """What the control showed, and so what may be asked of answers under load."""

    answer: reply.Answer
    counts: bool
    prompts: bool
    ids: bool


def _alone(transcript: Transcript) -> _Alone | None:
    free = reply_at(transcript, "alone-free")
    if not isinstance(free, reply.Answer):
        return None
    usage, asked = free.usage, number(dig(free.exchange.request, "max_tokens"))
    seen = [
        _id(look)
        for step in ("alone-free", "alone-shaped", "alone-seeded")
        if (look := reply_at(transcript, step)) is not None
    ]
    return _Alone(
        answer=free,
        counts=bool(dig(free.exchange.request, "ignore_eos"))
        and usage is not None
        and usage.completion == asked
        and free.finish == "length",
        prompts=usage is not None and usage.prompt is not None,
        ids=len(seen) > 1 and "" not in seen and len(set(seen)) == len(seen),
    )


def _id(look: reply.Reply) -> str:
    if isinstance(look, reply.Answer):
        if look.stream is None:
            return string(dig(look.body, "id"))
        return _first_id(look)
    return ""


def _first_id(look: reply.Answer) -> str:
    assert look.stream is not None
    for event in look.stream.events:
        try:
            found = string(dig(parse(event.data), "id"))
        except ValueError:
            continue
        if found:
            return found
    return ""


def judge(transcript: Transcript, _: ConcurrencyIsolationParams) -> Iterator[Finding]:
    """Judge the answers under load by what the controls showed alone."""
    alone = _alone(transcript)
    if alone is None:
        look = reply_at(transcript, "alone-free")
        yield _PART.unless_answered(_ANSWERED, look) or _PART.undetermined(_ANSWERED, "nothing was sent")
        return
    batch = [*transcript.steps("free-"), *transcript.steps("shaped-")]
    together = at_once(batch)
    if together < 2:
        yield _PART.undetermined(_ANSWERED, "no two requests were under way together", *batch[:_SHOWN])
        return
    looks = {exchange.step: reply.chat(exchange) for exchange in batch}
    failed = [(f"{step}: {look.what}", look) for step, look in looks.items() if not isinstance(look, reply.Answer)]
    said = f"{len(batch) - len(failed)} of {len(batch)} requests answered, up to {together} at once"
    if failed:
        listed = "; ".join(what for what, _ in failed[:_SHOWN])
        yield _PART.violated(_ANSWERED, f"{said}, alone all were; {listed}", alone.answer, *(f[1] for f in failed))
    else:
        yield _PART.held(_ANSWERED, said, *looks.values(), answered=len(batch), at_once=together)
    answers = {step: look for step, look in looks.items() if isinstance(look, reply.Answer)}
    if not answers:
        return
    yield _own(answers, alone)
    yield _sane(transcript, answers)
    if alone.ids:
        yield _ids(answers)


def _own(answers: dict[str, reply.Answer], alone: _Alone) -> Finding:
    nonces = {step: _nonce_of(look.exchange) for step, look in answers.items()}
    wrong: list[tuple[str, reply.Answer]] = []
    for step, look in answers.items():
        said = look.text + thought(look)
        wrong += [
            (f"{step} says {other!r}, which is {owner}'s: {quote(look.text or said, 50)}", look)
            for owner, other in nonces.items()
            if owner != step and other and other != nonces[step] and other in said
        ]
        if step.startswith("shaped"):
            cut = cut_short(look, schema_of(look)) or thought_too_long(look)
            if (fault := faults(look.text, schema_of(look))) and not cut:
                wrong.append((f"{step} is not its schema's ({fault}): {quote(look.text, 50)}", look))
        elif (count := _wrong_count(look)) and alone.counts:
            wrong.append((f"{step} {count}", look))
    wrong += _wrong_prompts(answers) if alone.prompts else []
    figures = {"answers": len(answers), "wrong": len({look.exchange.id for _, look in wrong})}
    if wrong:
        listed = "; ".join(what for what, _ in wrong[:_SHOWN])
        return _PART.violated(_OWN, listed, *(look for _, look in wrong), **figures)
    looked = ["words"] + ["lengths"] * alone.counts + ["prompt tokens"] * alone.prompts
    why = f"{len(answers)} answers are their own by {', '.join(looked)}"
    return _PART.held(_OWN, why, *answers.values(), **figures)


def _wrong_count(look: reply.Answer) -> str:
    asked = number(dig(look.exchange.request, "max_tokens"))
    made = look.usage.completion if look.usage is not None else None
    if made is None or made == asked:
        return ""
    return f"has {made} tokens, and {asked} were asked for, to the end"


def _wrong_prompts(answers: dict[str, reply.Answer]) -> list[tuple[str, reply.Answer]]:
    """Return the free answers whose prompt tokens are not in the order of the lengths of their prompts."""
    sized = []
    for step, look in answers.items():
        tokens = look.usage.prompt if look.usage is not None else None
        if step.startswith("free") and tokens is not None:
            length = len(string(dig(look.exchange.request, "messages", 0, "content")).split())
            sized.append((length, tokens, step, look))
    sized.sort(key=lambda one: one[0])
    wrong = []
    for (length, tokens, step, _), (longer, more, other, look) in itertools.pairwise(sized):
        if longer > length and more <= tokens:
            what = f"{other} reports {more} prompt tokens for {longer} words, {step} {tokens} for {length}"
            wrong.append((what, look))
    return wrong


def _sane(transcript: Transcript, answers: dict[str, reply.Answer]) -> Finding:
    free = {step: look for step, look in answers.items() if step.startswith("free")}
    ailing: list[tuple[str, reply.Answer, reply.Answer]] = []
    alike = 0
    for step, look in free.items():
        sign, alone = _ailment(look), reply_at(transcript, f"alone-{step}")
        if not sign or not isinstance(alone, reply.Answer):
            continue
        if _ailment(alone):
            alike += 1
        else:
            ailing.append((f"{step}: {sign}", look, alone))
    if ailing:
        listed = "; ".join(what for what, _, _ in ailing[:_SHOWN])
        why = f"{len(ailing)} of {len(free)} answers are no text, and alone the same requests are answered with text; "
        seen = [look for _, *pair in ailing for look in pair]
        return _PART.violated(_SANE, why + listed, *seen, garbage=len(ailing))
    why = f"0 of {len(free)} answers are garbage"
    if alike:
        why = f"{alike} of {len(free)} answers are no text, and the same requests alone are none either"
    return _PART.held(_SANE, why, *free.values(), garbage=alike)


def _ailment(look: reply.Answer) -> str:
    said = look.text + thought(look)
    if not said.strip():
        return f"empty, finish_reason {look.finish!r}"
    for part in (said, said[len(said) // 2 :], said[len(said) * 3 // 4 :]):
        if sign := garbage(part):
            return f"{sign}: {quote(part, 50)}"
    return ""


def _ids(answers: dict[str, reply.Answer]) -> Finding:
    seen: dict[str, str] = {}
    for step, look in answers.items():
        found = _id(look)
        if found and found in seen:
            first = answers[seen[found]]
            return _PART.violated(_IDS, f"{seen[found]} and {step} have one id, {quote(found, 40)}", first, look)
        seen[found] = step
    return _PART.held(_IDS, f"{len(seen)} replies, {len(seen)} ids", *answers.values())


def cost(params: ConcurrencyIsolationParams) -> Cost:
    """Return what a trial costs with these parameters; tokens as measured on the reference server."""
    return Cost(
        requests=3 + 8 * params.rounds, prompt_tokens=150 + 735 * params.rounds, output_tokens=68 + 210 * params.rounds
    )


PROBE = Probe(
    id="concurrency_isolation",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_OWN,
            rule="Under load an answer has its own request's word and lengths, and no word of another request.",
            level=Level.MUST,
            source="https://github.com/ml-explore/mlx-lm/issues/965",
        ),
        Check(
            id=_SANE,
            rule="Under load every free answer is text where it is text alone, its end too.",
            level=Level.MUST,
            source="https://github.com/tenstorrent/tt-xla/issues/5718",
        ),
        Check(
            id=_ANSWERED,
            rule="What is answered alone is answered beside others.",
            level=Level.MUST,
            source="https://docs.vllm.ai/en/latest/serving/openai_compatible_server/",
        ),
        Check(
            id=_IDS,
            rule="No two replies have the same id.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object",
        ),
    ),
    params=ConcurrencyIsolationParams,
    drive=drive,
    judge=judge,
    cost=cost,
)
