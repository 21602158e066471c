"""A JSON Schema in ``response_format`` shapes the answer.

What it does: sends a prompt that asks for prose, twice without a schema (the control) and then with a schema whose
only property must equal a random word. The word stands nowhere in the prompt, so a reply that is JSON with that word
can only come from the schema. Greedy, sampled, and once with nothing but the schema, as applications send it.

Why it matters: a server that accepts a schema and does not apply it answers 200 with text that looks right in the
smoke test and breaks the parser in production.

How it could be fooled: by a gateway that builds the one valid answer itself; by a model that reads the schema in its
prompt and copies the word of its own will (some templates print it there), which is why one answer alone proves less
than the greedy, the sampled and the bare one together.
"""

from __future__ import annotations

from collections.abc import Iterator

import jsonschema
from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.text import dig, parse, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/guides/structured-outputs"


class JsonSchemaParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="Write two sentences about the sea in plain prose. Do not use JSON.",
        description="A prompt that pulls away from JSON; the schema must win against it.",
    )
    answer_schema: dict[str, object] = Field(
        default={
            "type": "object",
            "properties": {"code": {"type": "string", "enum": ["$nonce"]}},
            "required": ["code"],
            "additionalProperties": False,
        },
        description="The schema. The text `$nonce` stands for a random word that is new in every request.",
    )
    max_tokens: int = Field(default=96, ge=16, le=4096, description="Room for the answer; 17 to 26 tokens were used.")


def with_nonce(value: object, nonce: str) -> Json:
    """Return ``value`` with every ``$nonce`` replaced: the one interpolation that scenarios have."""
    if isinstance(value, str):
        return value.replace("$nonce", nonce)
    if isinstance(value, dict):
        return {str(key): with_nonce(item, nonce) for key, item in value.items()}
    if isinstance(value, list):
        return [with_nonce(item, nonce) for item in value]
    if value is None or isinstance(value, int | float):
        return value
    raise TypeError(f"{type(value).__name__} is not JSON")


async def drive(session: Session, params: JsonSchemaParams, _: Transcript | None) -> None:
    """Control twice, then the schema greedy, sampled and bare."""

    def asked(**more: Json) -> dict[str, Json]:
        messages: Json = [{"role": "user", "content": params.prompt}]
        return {"messages": messages, "max_tokens": params.max_tokens, **more}

    def shaped() -> Json:
        schema = with_nonce(params.answer_schema, session.nonce())
        return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}

    await session.chat("control", asked(temperature=0, top_p=1))
    await session.chat("control-sampled", asked(temperature=1, top_p=1))
    await session.chat("greedy", asked(temperature=0, top_p=1, response_format=shaped()))
    await session.chat("sampled", asked(temperature=1, top_p=1, response_format=shaped()))
    await session.chat("bare", asked(response_format=shaped()))


def judge(transcript: Transcript, _: JsonSchemaParams) -> Iterator[Finding]:
    """Judge each answer under a schema against the controls."""
    controls = {exchange.step: reply.chat(exchange) for exchange in transcript.steps("control")}
    for step, check in (
        ("greedy", "schema-shapes-the-answer"),
        ("sampled", "schema-shapes-a-sampled-answer"),
        ("bare", "schema-alone-is-enough"),
    ):
        exchange = transcript.get(step)
        if exchange is not None:
            control = controls.get("control" if step == "greedy" else "control-sampled")
            yield judge_schema(Part(), check, reply.chat(exchange), control)


def judge_schema(part: Part, check: str, shaped: reply.Reply, control: reply.Reply | None) -> Finding:
    """Judge one answer under the schema that its own request carries, against the same request without it."""
    missing = part.unless_answered(check, shaped, control)
    if missing is not None:
        return missing
    assert isinstance(shaped, reply.Answer)
    schema = dig(shaped.exchange.request, "response_format", "json_schema", "schema")
    without = control.text if isinstance(control, reply.Answer) else None
    if without is not None and not _faults(without, schema):
        return part.undetermined(check, "the control without a schema fits it too, so nothing can be seen", shaped)
    problem = _faults(shaped.text, schema)
    if not problem:
        return part.held(check, f"the answer is the schema's: {quote(shaped.text)}", shaped, control or shaped)
    if not shaped.text and shaped.first.reasoning and shaped.finish == "stop":
        why = f"content is empty and the answer is in the reasoning: {quote(shaped.first.reasoning)}"
        return part.violated(check, why, shaped)
    if _cut_short(shaped, schema):
        return part.undetermined(check, f"cut by max_tokens while it still fitted: {quote(shaped.text)}", shaped)
    seen = f"{quote(shaped.text)} ({problem})"
    if without is not None and _is_json(shaped.text) and not _is_json(without):
        why = f"the schema made the answer JSON, but not its own: {seen}"
        return part.violated(check, why, shaped, control or shaped)
    if control is None or isinstance(control, reply.Answer):
        return part.no_effect(check, f"200, and no schema in the answer: {seen}", shaped, control or shaped)
    return part.undetermined(check, f"no schema in the answer, and no control to compare it with: {seen}", shaped)


def _faults(text: str, schema: Json) -> str:
    """Return why ``text`` is not an instance of ``schema``, an empty string where it is one."""
    try:
        instance = parse(text)
    except ValueError as error:
        return f"not JSON: {error}"
    errors = jsonschema.Draft202012Validator(schema if isinstance(schema, dict) else {}).iter_errors(instance)
    first = next(iter(errors), None)
    return first.message if first is not None else ""


def _is_json(text: str) -> bool:
    try:
        return isinstance(parse(text), dict | list)
    except ValueError:
        return False


def _cut_short(answer: reply.Answer, schema: Json) -> bool:
    """Tell whether a length stop cut an answer that could still become an instance: it opens as one must.

    White space that a grammar allows without end is the usual reason on small models.
    """
    if answer.finish != "length":
        return False
    text = answer.text.lstrip()
    begun = text.startswith("{") and len(text.strip("{ \n\t")) < 3  # a brace and a quotation mark
    keys = [string(key) for key in _required(schema)]
    return not text or begun or (text.startswith("{") and any(f'"{key}"' in text for key in keys))


def _required(schema: Json) -> list[Json]:
    required = dig(schema, "required")
    return required if isinstance(required, list) else []


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
    ),
    params=JsonSchemaParams,
    drive=drive,
    judge=judge,
    requests=5,
    prompt_tokens=250,
    output_tokens=260,
)
