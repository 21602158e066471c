"""A JSON Schema shapes the answer and leaves the thinking free.

What it does: asks a model that thinks for prose, as it is (the control), with a schema whose only property must equal a
random word, and in JSON mode. The content must be the JSON, alone; the thinking must still be there. With the thinking
switched off, the schema must shape the content as well. A model that shows no thinking makes the row not applicable.

Why it matters: a grammar must wait for the end of the thought and then begin. Servers are known to begin at once (the
thought is gone, and with it the quality), never to begin (prose), or to file the JSON under reasoning.

How it could be fooled: by a model that does not think about an easy question under a schema of its own accord, which
only takes the green away; by one that writes JSON in spite of the prompt, which the random word excludes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, NotApplicable, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._reasoning import ROOM, ask, marks, no_thinking, told_to
from servecheck.probes._steps import reply_at, sent
from servecheck.read import reply
from servecheck.read.text import dig, parse, quote

__all__ = ["PROBE"]

_PART = Part()
_SCHEMA, _OBJECT = "schema-shapes-the-answer-after-thinking", "json-mode-shapes-the-answer-after-thinking"
_FREE = "schema-leaves-the-thinking"
_OFF = "schema-shapes-the-answer-without-thinking"
_SOURCE = "https://docs.vllm.ai/en/latest/features/reasoning_outputs/"


class ReasoningStructuredParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="How much is 12 + 5? Answer in one short sentence of plain prose. Do not use JSON.",
        description="A question that is worth a thought and pulls away from JSON.",
    )
    max_tokens: int = Field(default=ROOM, ge=64, le=16384, description="Room for the thought and the answer.")


async def drive(session: Session, params: ReasoningStructuredParams, _: Transcript | None) -> None:
    """Find out whether it thinks, then a schema and JSON mode."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    body: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
    more = await ask(session, body)
    if more is None:
        return
    schema: Json = {
        "type": "object",
        "properties": {"code": {"type": "string", "enum": [session.nonce()]}},
        "required": ["code"],
        "additionalProperties": False,
    }
    wanted: Json = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    await session.chat("schema", {**body, **more, "response_format": wanted})
    off: dict[str, Json] = {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}
    await session.chat("schema-off", {**body, **off, "response_format": wanted})
    await session.chat("object", {**body, **more, "response_format": {"type": "json_object"}})


def judge(transcript: Transcript, _: ReasoningStructuredParams) -> Iterator[Finding | NotApplicable]:
    """Judge both shaped answers, then whether the thought is still there."""
    plain, thought = reply_at(transcript, "plain"), told_to(transcript)
    if thought is None:
        nothing = no_thinking([plain, reply_at(transcript, "asked")])
        yield nothing or _PART.unless_answered(_SCHEMA, plain) or _PART.undetermined(_SCHEMA, "it did not think")
        return
    shaped = reply_at(transcript, "schema")
    yield _shaped(_SCHEMA, shaped, thought, lambda value: value == _wanted(shaped))
    yield _shaped(_OBJECT, reply_at(transcript, "object"), thought, lambda value: isinstance(value, dict))
    yield from _free(shaped, thought)
    off = reply_at(transcript, "schema-off")
    # A server that does not know the switch refuses it; the row on the switch says so.
    if isinstance(shaped, reply.Answer) and off is not None and not isinstance(off, reply.Refusal):
        yield _shaped(_OFF, off, thought, lambda value: value == _wanted(off))


def _wanted(shaped: reply.Reply | None) -> Json:
    schema = dig(shaped.exchange.request, "response_format", "json_schema", "schema") if shaped is not None else None
    return {"code": dig(schema, "properties", "code", "enum", 0)}


def _shaped(check: str, shaped: reply.Reply | None, control: reply.Answer, right: Callable[[Json], bool]) -> Finding:
    missing = _PART.unless_answered(check, shaped, control)
    if missing is not None:
        return missing
    assert isinstance(shaped, reply.Answer)
    text, thought, seen = shaped.text, shaped.first.reasoning, (shaped, control)
    if _is(text, right):
        return _PART.held(check, f"the content is the JSON that was asked for: {quote(text.strip())}", *seen)
    if mark := marks(text):
        return _PART.violated(check, f"the content holds marks of thinking ({mark}): {quote(text)}", *seen)
    if not text.strip():
        if _is(thought, right) or shaped.finish != "length":
            why = f"content is empty and the answer is in the reasoning: {quote(thought)}"
            return _PART.violated(check, why, *seen)
        return _PART.undetermined(check, f"max_tokens went into the reasoning: {quote(thought)}", *seen)
    if text.lstrip().startswith("{") and shaped.finish == "length":
        return _PART.undetermined(check, f"cut by max_tokens: {quote(text)}", *seen)
    if _looks_like_json(text):
        return _PART.violated(check, f"the content is JSON, but not what was asked for: {quote(text)}", *seen)
    return _PART.no_effect(check, f"200, and the content is prose: {quote(text)}", *seen)


def _is(text: str, right: Callable[[Json], bool]) -> bool:
    try:
        return right(parse(text))
    except ValueError:
        return False


def _looks_like_json(text: str) -> bool:
    return re.sub(r"^```\w*", "", text.strip()).lstrip().startswith(("{", "["))


def _free(shaped: reply.Reply | None, control: reply.Answer) -> Iterator[Finding]:
    if not isinstance(shaped, reply.Answer) or not _is(shaped.text, lambda value: value == _wanted(shaped)):
        return
    before, after = control.first.reasoning or control.text, shaped.first.reasoning
    if after.strip():
        yield _PART.held(_FREE, f"it thinks under the schema too: {quote(after, 40)}", shaped, *sent(control))
    else:
        why = f"under the schema there is no thinking, without it there is: {quote(before, 60)}"
        yield _PART.violated(_FREE, why, shaped, *sent(control))


PROBE = Probe(
    id="reasoning_structured",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_SCHEMA,
            rule="With a schema the content of a model that thinks is an instance of it, and nothing else.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_OBJECT,
            rule="In JSON mode the content of a model that thinks is a JSON object, and nothing else.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_OFF,
            rule="With thinking switched off a schema shapes the content too.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/19222",
        ),
        Check(
            id=_FREE,
            rule="A model that thinks does so under a schema too.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/47027",
        ),
    ),
    params=ReasoningStructuredParams,
    drive=drive,
    judge=judge,
    requests=4,
    prompt_tokens=215,
    output_tokens=175,
)
