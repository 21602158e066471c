"""What the rows about JSON Schema share: the nonce, the validity of an answer, what a cut one may still become."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from servecheck.model import Check, Finding, Json, Level
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.instance import fault
from servecheck.read.partial import json_fault
from servecheck.read.text import dig, parse, quote

__all__ = [
    "NONCE_SCHEMA",
    "PULL_AWAY",
    "ROOM_TO_THINK",
    "blanks_check",
    "cut_short",
    "faults",
    "judge_blanks",
    "judge_schema",
    "latest",
    "looks_like_json",
    "may_become",
    "more_room",
    "response_format",
    "schema_of",
    "text_format",
    "thought",
    "thought_too_long",
    "with_nonce",
    "words",
]

ROOM_TO_THINK = 768
"""Tokens; a thought that ends takes a few hundred, and every served context holds as many."""

PULL_AWAY = "Write two sentences about the sea in plain prose. Do not use JSON."
"""The prompt that no answer to which is JSON, on any model seen."""

NONCE_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"code": {"type": "string", "enum": ["$nonce"]}},
    "required": ["code"],
    "additionalProperties": False,
}
"""The schema that one answer fits, and whose word stands nowhere else; 16 to 26 tokens on three engines."""


_BLANKS = "white-space-comes-to-an-end"
"""How the name of a check begins that :func:`blanks_check` returns and :func:`judge_blanks` judges."""
_WHERE = {
    "in-json-mode": "An answer in JSON mode",
    "under-a-schema": "An answer under a schema",
    "on-other-routes": "A streamed answer, a completion or a response under a schema",
}
_BLANK = re.compile(r"\s{40,}\Z")  # deeper than any indentation of a flat object


def blanks_check(where: str) -> Check:
    """Return the check of a probe: a grammar that allows white space without bound lets a model write nothing else."""
    return Check(
        id=f"{_BLANKS}-{where}",
        rule=f"{_WHERE[where]} is not white space without end up to max_tokens.",
        level=Level.SHOULD,
        source="https://github.com/vllm-project/vllm/pull/44619",
    )


def judge_blanks(where: str, part: Part, looks: Sequence[reply.Reply | None]) -> Iterator[Finding]:
    """Judge by :func:`blanks_check` the answers of which the limit cut every look."""
    answers = [look for look in looks if isinstance(look, reply.Answer)]
    cut = [answer for answer in answers if answer.finish == "length"]
    blank = next((answer for answer in cut if _BLANK.search(answer.text)), None)
    if blank is not None:
        run = len(blank.text) - len(blank.text.rstrip())
        why = f"cut by max_tokens after {run} characters of white space in a row: {quote(blank.text, 40)}"
        yield part.violated(f"{_BLANKS}-{where}", why, blank)
    elif answers:
        yield part.held(f"{_BLANKS}-{where}", f"{len(answers)} answers, none lost in white space", *answers)


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


def response_format(schema: Json) -> dict[str, Json]:
    """Return the ``response_format`` that asks for a schema, as OpenAI's API has it."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def text_format(schema: Json) -> dict[str, Json]:
    """Return the ``text.format`` that asks for a schema on the responses route."""
    return {"type": "json_schema", "name": "answer", "strict": True, "schema": schema}


def schema_of(answer: reply.Answer) -> Json:
    """Return the schema that an answer's own request carries, as its route has it."""
    request = answer.exchange.request
    chat = dig(request, "response_format", "json_schema", "schema")
    return dig(request, "text", "format", "schema") if chat is None else chat


def thought(answer: reply.Answer) -> str:
    """Return the reasoning of an answer."""
    return answer.first.reasoning


def thought_too_long(answer: reply.Reply | None) -> bool:
    """Tell whether ``max_tokens`` went into the reasoning."""
    if not isinstance(answer, reply.Answer):
        return False
    return answer.finish == "length" and not answer.text.strip() and bool(thought(answer))


def more_room(answer: reply.Reply, max_tokens: int) -> int | None:
    """Return the room for a second look at an answer that was cut before it fitted, ``None`` where none is needed."""
    if not isinstance(answer, reply.Answer) or answer.finish != "length" or not faults(answer.text, schema_of(answer)):
        return None
    return max(max_tokens, ROOM_TO_THINK) if thought(answer) else max_tokens


def latest(*looks: reply.Reply | None) -> reply.Reply | None:
    """Return the reply that counts, of the latest look first.

    More room may be refused where the context is short; that says nothing about the feature.
    """
    taken = [look for look in looks if look is not None]
    return next((look for look in taken if not isinstance(look, reply.Refusal)), taken[-1] if taken else None)


def faults(text: str, schema: Json) -> str:
    """Return why ``text`` is not an instance of ``schema``, an empty string where it is one."""
    try:
        instance = parse(text)
    except ValueError as error:
        return f"not JSON: {error}"
    return fault(instance, schema)


def looks_like_json(text: str) -> bool:
    """Tell whether a text sets out to be a JSON object or array, also a broken one or one in a Markdown fence."""
    bare = re.sub(r"^```\w*", "", text.strip()).lstrip()
    return bare.startswith(("{", "["))


def words(schema: Json) -> Iterator[str]:
    """Yield the strings that the schema lists as values."""
    if isinstance(schema, list):
        for item in schema:
            yield from words(item)
    if not isinstance(schema, dict):
        return
    enum = schema.get("enum")
    for value in (schema.get("const"), *(enum if isinstance(enum, list) else ())):
        if isinstance(value, str):
            yield value
    for value in schema.values():
        yield from words(value)


def cut_short(answer: reply.Answer, schema: Json) -> bool:
    """Tell whether a length stop cut an answer that could still become an instance: it opens as one must.

    White space that a grammar allows without end is the usual reason on small models. A value that has begun and
    that none of the schema's words begins with can become nothing.
    """
    return answer.finish == "length" and may_become(answer.text, schema)


def may_become(text: str, schema: Json) -> bool:
    """Tell whether a text that was cut opens as an instance of the schema must."""
    if json_fault(text):
        return False
    # Letters written as escapes are the same letters; an escape that was cut in two goes with the cut.
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text.lstrip())
    text = re.sub(r"\\(?:u[0-9a-fA-F]{0,3})?$", "", text)
    if text and not text.startswith("[" if dig(schema, "type") == "array" else "{"):
        return False
    keys = _required(schema)
    begun = text.strip("{ \r\n\t")
    if not keys or any(json.dumps(key).startswith(begun) for key in keys):
        return True
    for key in keys:
        found = re.search(rf'{re.escape(json.dumps(key))}\s*(?::\s*"([^"]*))?', text)
        listed = list(words(dig(schema, "properties", key)))
        if found and (not listed or any(word.startswith(found[1] or "") for word in listed)):
            return True
    return False


def _required(schema: Json) -> list[str]:
    required = dig(schema, "required")
    return [key for key in required if isinstance(key, str)] if isinstance(required, list) else []


def judge_schema(
    part: Part, check: str, shaped: reply.Reply | None, control: reply.Reply | None, template: object, *, what: str = ""
) -> Finding:
    """Judge one answer under the schema that its own request carries, against the same request without it.

    ``template`` is the schema as the scenario has it, with ``$nonce`` in place of the random word; ``what`` names the
    request in the reason of a refusal.
    """
    missing = part.unless_answered(check, shaped, control, what=what)
    if missing is not None:
        return missing
    assert isinstance(shaped, reply.Answer)
    schema = schema_of(shaped)
    without = control.text if isinstance(control, reply.Answer) else None
    if without is not None and not faults(without, schema):
        return part.undetermined(check, "the control without a schema fits it too, so nothing can be seen", shaped)
    problem = faults(shaped.text, schema)
    if not problem:
        return part.held(check, f"the answer is the schema's: {quote(shaped.text)}", shaped, control or shaped)
    if thought_too_long(shaped):
        return part.undetermined(check, f"max_tokens went into the reasoning: {quote(thought(shaped))}", shaped)
    if cut_short(shaped, schema):
        return part.undetermined(check, f"cut by max_tokens while it still fitted: {quote(shaped.text)}", shaped)
    if not shaped.text.strip() and not faults(thought(shaped), schema):
        why = f"content is empty and the answer is in the reasoning: {quote(thought(shaped))}"
        return part.violated(check, why, shaped)
    seen = f"{quote(shaped.text)} ({problem})"
    nonces = set(words(schema)) - set(words(with_nonce(template, "$nonce")))
    if word := next((word for word in sorted(nonces) if word in shaped.text), ""):
        why = f"the schema's word {word!r} is there, but the answer is not its JSON: {seen}"
        return part.violated(check, why, shaped, control or shaped)
    if without is None:
        return part.undetermined(check, f"no schema in the answer, and no control to compare it with: {seen}", shaped)
    if looks_like_json(shaped.text) and not looks_like_json(without):
        why = f"the schema made the answer JSON, but not its own: {seen}"
        return part.violated(check, why, shaped, control or shaped)
    if not shaped.text.strip() and without.strip():
        why = f"the schema made the answer empty, finish_reason {shaped.finish!r}"
        return part.violated(check, why, shaped, control or shaped)
    if not (shaped.text + thought(shaped) + without).strip():
        return part.undetermined(check, "empty with the schema and without it, so nothing can be seen", shaped)
    return part.no_effect(check, f"200, and no schema in the answer: {seen}", shaped, control or shaped)
