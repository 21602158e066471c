"""A JSON Schema in ``response_format`` shapes the answer.

What it does: sends a prompt that asks for prose, twice without a schema (the control) and then with a schema whose
properties must equal a random word. The word stands nowhere in the prompt, so a reply that is JSON with that word can
only come from the schema. The properties do not stand in the order of the alphabet, and the answer's keys must come in
theirs: models are made to think in a field before the one that they conclude in. Greedy, sampled, and once with
nothing but the schema, as applications send it. An answer that was cut by ``max_tokens`` is asked for once more, with
another word, and with more room where a thought used it up.

Why it matters: a server that accepts a schema and does not apply it answers 200 with text that looks right in the
smoke test and breaks the parser in production.

How it could be fooled: by a gateway that builds the one valid answer itself; by a model that reads the schema in its
prompt and copies the word of its own will (some templates print it there), which is why one answer alone proves less
than the greedy, the sampled and the bare one together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Transcript
from servecheck.plainwords import Complaint
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._schemas import (
    PULL_AWAY,
    blanks_check,
    faults,
    judge_blanks,
    judge_schema,
    latest,
    more_room,
    response_format,
    schema_of,
    with_nonce,
)
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.slips import wrong_with
from servecheck.read.text import dig, parse, quote

__all__ = ["PROBE"]

_ORDER = "keys-come-in-the-order-of-the-schema"
_IN_ORDER: dict[str, object] = {
    "type": "object",
    "properties": {name: {"type": "string", "enum": ["$nonce"]} for name in ("result", "code")},
    "required": ["result", "code"],
    "additionalProperties": False,
}
"""One answer fits it; its properties are in no alphabet's order."""
_SOURCE = "https://platform.openai.com/docs/guides/structured-outputs"


class JsonSchemaParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default=PULL_AWAY,
        description="A prompt that pulls away from JSON; the schema must win against it.",
    )
    answer_schema: dict[str, object] = Field(
        default=_IN_ORDER,
        description="The schema. The text `$nonce` stands for a random word that is new in every request.",
    )
    max_tokens: int = Field(default=96, ge=16, le=4096, description="Room for the answer; 25 to 40 tokens are used.")


def object_to(params: JsonSchemaParams) -> Iterable[Complaint]:
    """Return what makes the schema one that says nothing about a server, or most likely not what was meant."""
    return wrong_with(params.answer_schema, ("answer_schema",))  # type: ignore[arg-type]


async def drive(session: Session, params: JsonSchemaParams, _: Transcript | None) -> None:
    """Control twice, then the schema greedy, sampled and bare; an answer that was cut is asked for once more."""

    def asked(**more: Json) -> dict[str, Json]:
        messages: Json = [{"role": "user", "content": params.prompt}]
        return {"messages": messages, "max_tokens": params.max_tokens, **more}

    async def shaped(step: str, **more: Json) -> reply.Reply:
        wanted = response_format(with_nonce(params.answer_schema, session.nonce()))
        return reply.chat(await session.chat(step, asked(response_format=wanted, **more)))

    await session.chat("control", asked(temperature=0, top_p=1))
    await session.chat("control-sampled", asked(temperature=1, top_p=1))
    arms: dict[str, dict[str, Json]] = {
        "greedy": {"temperature": 0, "top_p": 1},
        "sampled": {"temperature": 1, "top_p": 1},
        "bare": {},
    }
    for step, sampling in arms.items():
        room = more_room(await shaped(step, **sampling), params.max_tokens)
        if room is not None:
            await shaped(f"{step}-again", **sampling, max_tokens=room)


def judge(transcript: Transcript, params: JsonSchemaParams) -> Iterator[Finding]:
    """Judge each answer under a schema against the controls, then whether one was lost in white space."""
    looks = []
    for step, check in (
        ("greedy", "schema-shapes-the-answer"),
        ("sampled", "schema-shapes-a-sampled-answer"),
        ("bare", "schema-alone-is-enough"),
    ):
        shaped = latest(reply_at(transcript, f"{step}-again"), reply_at(transcript, step))
        control = reply_at(transcript, "control" if step == "greedy" else "control-sampled")
        looks.append(shaped)
        yield judge_schema(Part(), check, shaped, control, params.answer_schema, what=_WHAT[check])
    yield from judge_blanks("under-a-schema", Part(), looks)
    yield from _judge_order(looks)


def _judge_order(looks: Sequence[reply.Reply | None]) -> Iterator[Finding]:
    """Judge by the answers that are instances whether their keys come as the properties do."""
    right = []
    for look in looks:
        if not isinstance(look, reply.Answer) or faults(look.text, schema_of(look)):
            continue
        instance, properties = parse(look.text), dig(schema_of(look), "properties")
        if not isinstance(instance, dict) or not isinstance(properties, dict):
            continue
        keys, wanted = [key for key in instance if key in properties], [key for key in properties if key in instance]
        if len(wanted) < 2:
            continue
        if keys != wanted:
            why = f"the schema has {', '.join(wanted)} in this order, the answer {', '.join(keys)}: {quote(look.text)}"
            yield Part().violated(_ORDER, why, look)
            return
        right.append(look)
    if right:
        yield Part().held(_ORDER, f"{len(right)} answers have their keys as the schema has them", *right)


_WHAT = {
    "schema-shapes-the-answer": "a schema at temperature 0",
    "schema-shapes-a-sampled-answer": "a schema at temperature 1",
    "schema-alone-is-enough": "a schema without sampling parameters",
}

PROBE = Probe(
    id="json_schema",
    doc=__doc__ or "",
    checks=(
        Check(
            id="schema-shapes-the-answer",
            rule="A greedy answer is an instance of the schema that its request carries.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="schema-shapes-a-sampled-answer",
            rule="An answer at temperature 1 is an instance of the schema that its request carries.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="schema-alone-is-enough",
            rule="A request with a schema and no sampling parameters gets an instance of the schema.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        blanks_check("under-a-schema"),
        Check(
            id=_ORDER,
            rule="The keys of an answer come in the order in which the schema has its properties.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/structured-outputs#key-ordering",
        ),
    ),
    params=JsonSchemaParams,
    drive=drive,
    object_to=object_to,
    judge=judge,
    requests=5,
    prompt_tokens=220,
    output_tokens=120,
)
