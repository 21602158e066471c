"""A JSON Schema in ``response_format`` shapes the answer.

What it does: sends a prompt that asks for prose, twice without a schema (the control) and then with a schema whose
only property must equal a random word. The word stands nowhere in the prompt, so a reply that is JSON with that word
can only come from the schema. Greedy, sampled, and once with nothing but the schema, as applications send it. An
answer that was cut by ``max_tokens`` is asked for once more, with another word, and with more room where a thought
used it up.

Why it matters: a server that accepts a schema and does not apply it answers 200 with text that looks right in the
smoke test and breaks the parser in production.

How it could be fooled: by a gateway that builds the one valid answer itself; by a model that reads the schema in its
prompt and copies the word of its own will (some templates print it there), which is why one answer alone proves less
than the greedy, the sampled and the bare one together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import jsonschema
from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.text import dig, parse, quote

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/guides/structured-outputs"
_ROOM_TO_THINK = 768  # tokens; a thought that ends takes a few hundred, and every served context holds as many


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
    """Control twice, then the schema greedy, sampled and bare; an answer that was cut is asked for once more."""

    def asked(**more: Json) -> dict[str, Json]:
        messages: Json = [{"role": "user", "content": params.prompt}]
        return {"messages": messages, "max_tokens": params.max_tokens, **more}

    async def shaped(step: str, **more: Json) -> reply.Reply:
        schema = with_nonce(params.answer_schema, session.nonce())
        wanted: Json = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
        return reply.chat(await session.chat(step, asked(response_format=wanted, **more)))

    await session.chat("control", asked(temperature=0, top_p=1))
    await session.chat("control-sampled", asked(temperature=1, top_p=1))
    arms: dict[str, dict[str, Json]] = {
        "greedy": {"temperature": 0, "top_p": 1},
        "sampled": {"temperature": 1, "top_p": 1},
        "bare": {},
    }
    for step, sampling in arms.items():
        first = await shaped(step, **sampling)
        if isinstance(first, reply.Answer) and first.finish == "length" and _faults(first.text, _schema(first)):
            room = max(params.max_tokens, _ROOM_TO_THINK) if _thought_too_long(first) else params.max_tokens
            await shaped(f"{step}-again", **sampling, max_tokens=room)


def judge(transcript: Transcript, params: JsonSchemaParams) -> Iterator[Finding]:
    """Judge each answer under a schema against the controls."""
    controls = {exchange.step: reply.chat(exchange) for exchange in transcript.steps("control")}
    for step, check in (
        ("greedy", "schema-shapes-the-answer"),
        ("sampled", "schema-shapes-a-sampled-answer"),
        ("bare", "schema-alone-is-enough"),
    ):
        looks = [reply.chat(found) for name in (f"{step}-again", step) if (found := transcript.get(name)) is not None]
        # More room may be refused where the context is short; that says nothing about the schema.
        shaped = next((look for look in looks if not isinstance(look, reply.Refusal)), looks[-1] if looks else None)
        control = controls.get("control" if step == "greedy" else "control-sampled")
        yield _judge(Part(), check, shaped, control, params)


_WHAT = {
    "schema-shapes-the-answer": "a schema at temperature 0",
    "schema-shapes-a-sampled-answer": "a schema at temperature 1",
    "schema-alone-is-enough": "a schema without sampling parameters",
}


def _judge(
    part: Part, check: str, shaped: reply.Reply | None, control: reply.Reply | None, params: JsonSchemaParams
) -> Finding:
    """Judge one answer under the schema that its own request carries, against the same request without it."""
    missing = part.unless_answered(check, shaped, control, what=_WHAT[check])
    if missing is not None:
        return missing
    assert isinstance(shaped, reply.Answer)
    schema = _schema(shaped)
    without = control.text if isinstance(control, reply.Answer) else None
    if without is not None and not _faults(without, schema):
        return part.undetermined(check, "the control without a schema fits it too, so nothing can be seen", shaped)
    problem = _faults(shaped.text, schema)
    if not problem:
        return part.held(check, f"the answer is the schema's: {quote(shaped.text)}", shaped, control or shaped)
    if _thought_too_long(shaped):
        return part.undetermined(check, f"max_tokens went into the reasoning: {quote(_thought(shaped))}", shaped)
    if _cut_short(shaped, schema):
        return part.undetermined(check, f"cut by max_tokens while it still fitted: {quote(shaped.text)}", shaped)
    if not shaped.text.strip() and not _faults(_thought(shaped), schema):
        why = f"content is empty and the answer is in the reasoning: {quote(_thought(shaped))}"
        return part.violated(check, why, shaped)
    seen = f"{quote(shaped.text)} ({problem})"
    nonces = set(_words(schema)) - set(_words(with_nonce(params.answer_schema, "$nonce")))
    if word := next((word for word in sorted(nonces) if word in shaped.text), ""):
        why = f"the schema's word {word!r} is there, but the answer is not its JSON: {seen}"
        return part.violated(check, why, shaped, control or shaped)
    if without is None:
        return part.undetermined(check, f"no schema in the answer, and no control to compare it with: {seen}", shaped)
    if _looks_like_json(shaped.text) and not _looks_like_json(without):
        why = f"the schema made the answer JSON, but not its own: {seen}"
        return part.violated(check, why, shaped, control or shaped)
    if not shaped.text.strip() and without.strip():
        why = f"the schema made the answer empty, finish_reason {shaped.finish!r}"
        return part.violated(check, why, shaped, control or shaped)
    if not (shaped.text + _thought(shaped) + without).strip():
        return part.undetermined(check, "empty with the schema and without it, so nothing can be seen", shaped)
    return part.no_effect(check, f"200, and no schema in the answer: {seen}", shaped, control or shaped)


def _schema(answer: reply.Answer) -> Json:
    return dig(answer.exchange.request, "response_format", "json_schema", "schema")


def _thought(answer: reply.Answer) -> str:
    return answer.first.reasoning


def _thought_too_long(answer: reply.Answer) -> bool:
    return answer.finish == "length" and not answer.text.strip() and bool(_thought(answer))


def _faults(text: str, schema: Json) -> str:
    """Return why ``text`` is not an instance of ``schema``, an empty string where it is one."""
    try:
        instance = parse(text)
    except ValueError as error:
        return f"not JSON: {error}"
    errors = jsonschema.Draft202012Validator(schema if isinstance(schema, dict) else {}).iter_errors(instance)
    first = next(iter(errors), None)
    return first.message if first is not None else ""


def _looks_like_json(text: str) -> bool:
    """Tell whether a text sets out to be a JSON object or array, also a broken one or one in a Markdown fence."""
    bare = re.sub(r"^```\w*", "", text.strip()).lstrip()
    return bare.startswith(("{", "["))


def _words(schema: Json) -> Iterator[str]:
    """Yield the strings that the schema lists as values."""
    if isinstance(schema, list):
        for item in schema:
            yield from _words(item)
    if not isinstance(schema, dict):
        return
    enum = schema.get("enum")
    for value in (schema.get("const"), *(enum if isinstance(enum, list) else ())):
        if isinstance(value, str):
            yield value
    for value in schema.values():
        yield from _words(value)


def _cut_short(answer: reply.Answer, schema: Json) -> bool:
    """Tell whether a length stop cut an answer that could still become an instance: it opens as one must.

    White space that a grammar allows without end is the usual reason on small models. A value that has begun and
    that none of the schema's words begins with can become nothing.
    """
    if answer.finish != "length":
        return False
    # Letters written as escapes are the same letters; an escape that was cut in two goes with the cut.
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), answer.text.lstrip())
    text = re.sub(r"\\(?:u[0-9a-fA-F]{0,3})?$", "", text)
    if text and not text.startswith("[" if dig(schema, "type") == "array" else "{"):
        return False
    keys = _required(schema)
    if not keys or len(text.strip("{ \r\n\t")) < 3:  # a brace and a quotation mark
        return True
    for key in keys:
        found = re.search(rf'{re.escape(json.dumps(key))}\s*(?::\s*"([^"]*))?', text)
        words = list(_words(dig(schema, "properties", key)))
        if found and (not words or any(word.startswith(found[1] or "") for word in words)):
            return True
    return False


def _required(schema: Json) -> list[str]:
    required = dig(schema, "required")
    return [key for key in required if isinstance(key, str)] if isinstance(required, list) else []


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
