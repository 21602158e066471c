"""Requests with and without a schema in one batch: each keeps its own constraint, and its neighbours stay sane.

What it does: asks alone for an answer under a schema and for a free one (the controls). Then sends two rounds of eight
requests at once: some under schemas with random words of their own, greedy and sampled, two of them twins to the
letter, and some without a schema. Looks in every answer for its own word, for the words of the others, and in the free
ones for text.

Why it matters: the masks of a batch are one tensor, and a row that is off by one gives a customer another customer's
schema, drops the mask of a twin, or turns a plain answer into exclamation marks. Alone everything is right.

How it could be fooled: by a server or a gateway that takes requests one after another; the recorded times show whether
any two were under way together, and if not nothing is claimed. Other users' traffic makes the batch larger, not wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Outcome, Transcript
from servecheck.probe import Cost, Params, Probe, Session
from servecheck.probes._crowds import at_once
from servecheck.probes._findings import Part
from servecheck.probes._schemas import (
    NONCE_SCHEMA,
    PULL_AWAY,
    cut_short,
    faults,
    judge_schema,
    latest,
    looks_like_json,
    more_room,
    response_format,
    schema_of,
    thought,
    thought_too_long,
    with_nonce,
    words,
)
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.text import garbage, quote

__all__ = ["PROBE"]

_HOLDS, _STAYS, _SANE = "constraint-holds-in-a-batch", "constraint-stays-with-its-request", "free-neighbour-stays-sane"
_PART = Part()
_FREE = (
    "Describe a lighthouse in two sentences of plain prose.",
    "Write two sentences about bread in plain prose.",
    "Tell me in two sentences how a bicycle works.",
)
_TWINS = 2
_SHOWN = 3


class ConstraintsInABatchParams(Params):
    """What may be chosen in YAML."""

    rounds: int = Field(default=2, ge=1, le=8, description="Rounds of eight requests at once.")
    max_tokens: int = Field(default=48, ge=16, le=4096, description="Room for an answer; 17 to 26 tokens were used.")


def _body(prompt: str, room: int, temperature: int, schema: Json = None) -> dict[str, Json]:
    messages: Json = [{"role": "user", "content": prompt}]
    body: dict[str, Json] = {"messages": messages, "max_tokens": room, "temperature": temperature, "top_p": 1}
    return body if schema is None else {**body, "response_format": response_format(schema)}


async def drive(session: Session, params: ConstraintsInABatchParams, _: Transcript | None) -> None:
    """Each kind alone, then the mixed rounds."""
    room = params.max_tokens

    def schema() -> Json:
        return with_nonce(NONCE_SCHEMA, session.nonce())

    await session.chat("alone-free", _body(_FREE[0], room, 0))
    for step in ("alone-shaped", "alone-shaped-again"):
        look = reply.chat(await session.chat(step, _body(PULL_AWAY, room, 0, schema())))
        more = more_room(look, room)
        if more is None:
            break
        room = more
    if _alone(session.transcript).outcome is not Outcome.HELD:
        return
    for number in range(params.rounds):
        twin = schema()
        bodies = {
            f"shaped-{number}-greedy": _body(PULL_AWAY, room, 0, schema()),
            f"free-{number}-0": _body(_FREE[0], room, 0),
            f"twin-{number}-0": _body(PULL_AWAY, room, 0, twin),
            f"free-{number}-1": _body(_FREE[1], room, 0),
            f"shaped-{number}-sampled": _body(PULL_AWAY, room, 1, schema()),
            f"twin-{number}-1": _body(PULL_AWAY, room, 0, twin),
            f"free-{number}-2": _body(_FREE[2], room, 1),
            f"shaped-{number}-other": _body(_FREE[number % len(_FREE)], room, 0, schema()),
        }
        await session.concurrently([session.chat(step, body) for step, body in bodies.items()])


def _alone(transcript: Transcript) -> Finding:
    """Return what a schema does to a request that has no neighbours."""
    shaped = latest(reply_at(transcript, "alone-shaped-again"), reply_at(transcript, "alone-shaped"))
    return judge_schema(_PART, _HOLDS, shaped, reply_at(transcript, "alone-free"), NONCE_SCHEMA)


def judge(transcript: Transcript, _: ConstraintsInABatchParams) -> Iterator[Finding]:
    """Judge the constrained answers together, whose words are where, and the free answers."""
    alone = _alone(transcript)
    if alone.outcome is not Outcome.HELD:
        yield alone
        return
    batch = [exchange for name in ("shaped-", "twin-", "free-") for exchange in transcript.steps(name)]
    if at_once(batch) < 2:
        yield _PART.undetermined(_HOLDS, "no two requests were under way together", *batch[:_SHOWN])
        return
    replies = {exchange.step: reply.chat(exchange) for exchange in batch}
    shaped = {step: look for step, look in replies.items() if not step.startswith("free")}
    free = {step: look for step, look in replies.items() if step.startswith("free")}
    yield _holds(shaped, at_once(batch))
    yield _stays(replies)
    without = reply_at(transcript, "alone-free")
    if isinstance(without, reply.Answer) and not _ailment(without, without):
        yield _sane(free, without)


def _holds(shaped: dict[str, reply.Reply], at_once: int) -> Finding:
    wrong: list[tuple[str, reply.Reply]] = []
    right: list[reply.Answer] = []
    for step, look in shaped.items():
        if not isinstance(look, reply.Answer):
            wrong.append((f"{step}: {look.what}", look))
        elif not faults(look.text, schema_of(look)):
            right.append(look)
        elif not cut_short(look, schema_of(look)) and not thought_too_long(look):
            wrong.append((f"{step}: {quote(look.text, 50)}", look))
    figures = {"constrained": len(shaped), "valid": len(right), "at_once": at_once}
    said = f"{len(right)} of {len(shaped)} answers under a schema are the schema's own, up to {at_once} at once"
    if wrong:
        listed = "; ".join(what for what, _ in wrong[:_SHOWN])
        return _PART.violated(_HOLDS, f"{said}, alone it was right; {listed}", *(look for _, look in wrong), **figures)
    if len(right) < 2:
        return _PART.undetermined(_HOLDS, f"{said}; the others were cut by max_tokens", *shaped.values(), **figures)
    return _PART.held(_HOLDS, said, *right, **figures)


def _stays(replies: dict[str, reply.Reply]) -> Finding:
    """Judge whether a word of one request's schema shows in the answer to another."""
    answers = {step: look for step, look in replies.items() if isinstance(look, reply.Answer)}
    own = {step: set(words(schema_of(look))) for step, look in answers.items()}
    every = set().union(*own.values())
    strayed = [
        (f"{step} says {word!r}, which is another's: {quote(look.text, 50)}", look)
        for step, look in answers.items()
        for word in sorted(every - own[step])
        if word and word in look.text + thought(look)
    ]
    if strayed:
        return _PART.violated(_STAYS, "; ".join(what for what, _ in strayed[:_SHOWN]), *(look for _, look in strayed))
    if not answers:
        return _PART.undetermined(_STAYS, "no request of the batch was answered", *replies.values())
    return _PART.held(_STAYS, f"none of {len(every)} words shows in another's answer", *answers.values())


def _sane(free: dict[str, reply.Reply], alone: reply.Answer) -> Finding:
    ailing = [(f"{step}: {sign}", look) for step, look in free.items() if (sign := _ailment(look, alone))]
    if ailing:
        why = f"{len(ailing)} of {len(free)} answers without a schema are not what they are alone; "
        listed = "; ".join(what for what, _ in ailing[:_SHOWN])
        return _PART.violated(_SANE, why + listed, alone, *(look for _, look in ailing))
    if not free:
        return _PART.undetermined(_SANE, "no free request was sent", alone)
    first = next(look for look in free.values() if isinstance(look, reply.Answer))
    shown = quote(first.text or thought(first), 50)
    return _PART.held(_SANE, f"{len(free)} of {len(free)} answers without a schema are text: {shown}", *free.values())


def _ailment(look: reply.Reply, alone: reply.Answer) -> str:
    """Return what is wrong with a free answer, empty where it is text."""
    if not isinstance(look, reply.Answer):
        return look.what
    said = look.text if look.text.strip() else thought(look)
    if sign := garbage(said):
        return f"{sign}: {quote(said, 50)}"
    if not said.strip() or (not look.text.strip() and look.finish != "length" and alone.text.strip()):
        return f"empty, finish_reason {look.finish!r}"
    if looks_like_json(said) and (look is alone or not looks_like_json(alone.text)):
        return f"JSON, which nobody asked for: {quote(said, 50)}"
    return ""


def cost(params: ConstraintsInABatchParams) -> Cost:
    """Return what a trial costs with these parameters; tokens as measured on the reference server."""
    return Cost(
        requests=2 + 8 * params.rounds, prompt_tokens=90 + 328 * params.rounds, output_tokens=66 + 240 * params.rounds
    )


PROBE = Probe(
    id="constraints_in_a_batch",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_HOLDS,
            rule="Every answer under a schema is the schema's own, also with other requests in the same batch.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/19493",
        ),
        Check(
            id=_STAYS,
            rule="Nothing of one request's schema shows in the answer to another request.",
            level=Level.MUST,
            source="https://github.com/ml-explore/mlx-lm/issues/965",
        ),
        Check(
            id=_SANE,
            rule="A request without a schema gets text, also beside requests with one.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm-gaudi/issues/1199",
        ),
    ),
    params=ConstraintsInABatchParams,
    drive=drive,
    judge=judge,
    cost=cost,
)
