"""A schema of your own workload shapes the answer.

What it does: sends a prompt that asks for prose, without your schema (the control) and with it; then, still with it, a
prompt that asks for exactly the JSON your schema forbids, made from the schema itself: a wrong value for each `enum`
and `pattern`, a list that is too long, the same item twice. Where the workload holds a prompt that your application
sends with this schema, that is sent too. Every whole answer is validated. One that was cut is asked for once more,
drawn at temperature 1. A refusal that names no keyword is looked into: the schema is sent without one suspect after
another.

Why it matters: that a server enforces somebody's schema says little about yours. Grammar compilers drop or refuse
single keywords, and it is your parser that meets the result.

How it could be fooled: by a model that obeys a schema which its template prints, as far as it obeys even against a
prompt that asks for the opposite; and by keywords that no short JSON can break, which only the valid answers speak for.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, field_validator

from servecheck.model import Check, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._own import about, against, blame, blamed, listed, shown, state, was_cut, why_refused
from servecheck.probes._schemas import PULL_AWAY, ROOM_TO_THINK, latest, looks_like_json, thought, thought_too_long
from servecheck.probes._steps import reply_at, sent
from servecheck.read import reply
from servecheck.read.schemas import breach, broken_keyword, fault_in_schema, unreadable_patterns, untried
from servecheck.read.slips import slips
from servecheck.read.text import quote

__all__ = ["PROBE", "WorkloadSchemaParams"]

_CHECK = "workload-schema-is-enforced"
_PART = Part()
_ARMS = {
    "prose": "asked for prose",
    "against": "asked for JSON that breaks it",
    "own": "asked as your application asks",
}


class WorkloadSchemaParams(Params):
    """What may be chosen in YAML."""

    item: str = Field(min_length=1, max_length=120, description="The schema's name in the workload.")
    answer_schema: dict[str, object] = Field(description="The schema, as the application sends it.")
    strict: bool | None = Field(default=True, description="The `strict` that goes with it; null sends none.")
    prompt: str = Field(default=PULL_AWAY, description="A prompt that pulls away from JSON.")
    messages: list[dict[str, object]] = Field(
        default=[], description="The application's own messages for this schema; empty where none are known."
    )
    max_tokens: int = Field(default=384, ge=16, le=8192, description="Room for an answer.")

    @field_validator("answer_schema")
    @classmethod
    def _usable(cls, value: dict[str, object]) -> dict[str, object]:
        if (fault := fault_in_schema(value)) is not None:  # type: ignore[arg-type]
            raise ValueError(fault.message)
        return value


def _schema(params: WorkloadSchemaParams) -> dict[str, Json]:
    return params.answer_schema  # type: ignore[return-value]


async def drive(session: Session, params: WorkloadSchemaParams, _: Transcript | None) -> None:
    """Control, then the schema with each prompt; a cut answer is asked for once more, a refusal looked into."""
    schema = _schema(params)
    room = params.max_tokens

    def asked(messages: Json, schema: dict[str, Json] | None, **more: Json) -> dict[str, Json]:
        body: dict[str, Json] = {"messages": messages, "max_tokens": room, "temperature": 0, "top_p": 1, **more}
        if schema is not None:
            named: dict[str, Json] = {"name": "answer", "schema": schema}
            if params.strict is not None:
                named["strict"] = params.strict
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return body

    prose: Json = [{"role": "user", "content": params.prompt}]
    await session.chat("control", asked(prose, None))
    prompts: dict[str, Json] = {"prose": prose}
    wrong, _broken = about(schema)
    if wrong is not None:
        prompts["against"] = [{"role": "user", "content": against(wrong)}]
    if params.messages:
        prompts["own"] = params.messages  # type: ignore[assignment]
    for arm, messages in prompts.items():
        look = reply.chat(await session.chat(arm, asked(messages, schema)))
        if arm == "prose" and not isinstance(look, reply.Answer):

            async def without(step: str, fewer: dict[str, Json]) -> reply.Reply:
                return reply.chat(await session.chat(step, asked(prose, fewer, max_tokens=16)))

            await blame(look, schema, without)
            return
        if isinstance(look, reply.Answer) and was_cut(look) and breach(look.text, schema):
            if thought_too_long(look):
                room = max(room, ROOM_TO_THINK)
            await session.chat(f"{arm}-again", asked(messages, schema, temperature=1))


def judge(transcript: Transcript, params: WorkloadSchemaParams) -> Iterator[Finding]:
    """Judge all answers under the schema together: one that is whole and breaks it decides."""
    control = reply_at(transcript, "control")
    looks = {arm: latest(reply_at(transcript, f"{arm}-again"), reply_at(transcript, arm)) for arm in _ARMS}
    yield _judge(params, transcript, control, {arm: look for arm, look in looks.items() if look is not None})


def _judge(
    params: WorkloadSchemaParams, transcript: Transcript, control: reply.Reply | None, looks: dict[str, reply.Reply]
) -> Finding:
    item, schema = params.item, _schema(params)
    first = looks.get("prose")
    if isinstance(first, reply.Refusal):
        keyword = blamed(first, schema, transcript)
        if isinstance(control, reply.Answer):
            made = _PART.refused(_CHECK, why_refused(item, first, keyword), first, control)
            return state(made, item, "refused", keyword=keyword)
    missing = _PART.unless_answered(_CHECK, first, control, what=item)
    if missing is not None:
        return state(missing, item, "failed" if isinstance(first, reply.Failure) else "not_told")
    failed = next((look for look in looks.values() if isinstance(look, reply.Failure)), None)
    if failed is not None:
        return state(_PART.violated(_CHECK, f"{item}: {failed.what}", failed, *sent(control)), item, "failed")
    answers = {arm: look for arm, look in looks.items() if isinstance(look, reply.Answer)}
    faults = {arm: breach(answer.text, schema) for arm, answer in answers.items()}
    whole = {arm for arm, answer in answers.items() if not faults[arm] or not was_cut(answer)}
    fitting = any(not fault for fault in faults.values())
    for arm, answer in answers.items():
        if arm in whole and faults[arm]:
            return _broken(params, arm, answer, faults[arm], control, in_force=fitting)
    if not whole:
        return state(_PART.undetermined(_CHECK, _why_not_told(item, answers), *answers.values()), item, "not_told")
    if isinstance(control, reply.Answer) and not breach(control.text, schema) and "against" not in whole:
        why = f"{item}: the answer without the schema fits it too, so nothing can be seen"
        return state(_PART.undetermined(_CHECK, why, *answers.values(), control), item, "not_told")
    made = _PART.held(_CHECK, _why_held(params, answers, whole), *answers.values(), *sent(control))
    return state(made, item, "enforced")


def _broken(
    params: WorkloadSchemaParams,
    arm: str,
    answer: reply.Answer,
    fault: str,
    control: reply.Reply | None,
    *,
    in_force: bool,
) -> Finding:
    """Judge a whole answer that is no instance, by what the control tells beside it; ``in_force``: another one is."""
    item, schema = params.item, _schema(params)
    without = control.text if isinstance(control, reply.Answer) else None
    seen = f"{_ARMS[arm]}, it answers {shown(answer)}"
    if not answer.text.strip():
        if thought(answer) and not breach(thought(answer), schema):
            why = f"{item}: content is empty and the answer is in the reasoning: {quote(thought(answer))}"
        else:
            why = f"{item}: {_ARMS[arm]}, the answer is empty, finish_reason {answer.finish!r}"
        if not (without or "").strip() and not thought(answer):
            return state(_PART.undetermined(_CHECK, f"{why}, as it is without the schema", answer), item, "not_told")
        return state(_PART.violated(_CHECK, why, answer, *sent(control)), item, "not_enforced")
    shaped = looks_like_json(answer.text) and (arm != "prose" or without is None or not looks_like_json(without))
    if shaped or in_force:
        made = _PART.violated(_CHECK, f"{item} is not enforced: {fault}; {seen}", answer, *sent(control))
        return state(made, item, "not_enforced", keyword=broken_keyword(answer.text, schema))
    if without is None:
        why = f"{item}: {fault}; {seen}, and there is no control to compare it with"
        return state(_PART.undetermined(_CHECK, why, answer), item, "not_told")
    why = f"{item} has no effect: 200, and {seen}, no more JSON than without it"
    return state(_PART.no_effect(_CHECK, why, answer, *sent(control)), item, "no_effect")


def _why_not_told(item: str, answers: dict[str, reply.Answer]) -> str:
    first = next(iter(answers.values()))
    if all(thought_too_long(answer) for answer in answers.values()):
        return f"{item}: max_tokens went into the reasoning: {quote(thought(first))}"
    return f"{item}: every answer was cut by max_tokens while it was still JSON: {shown(first)}"


def _why_held(params: WorkloadSchemaParams, answers: dict[str, reply.Answer], whole: set[str]) -> str:
    schema = _schema(params)
    said = f"{params.item} is enforced: {len(whole)} of {len(answers)} answers are whole, and all of them fit"
    _, broken = about(schema)
    if "against" in whole and broken:
        said += f", also where the prompt asks for JSON that breaks {listed(broken)}"
    else:
        broken = []
    left = untried(schema, broken)
    if left:
        said += f"; nothing asks for what breaks {listed(left)}"
    unread = unreadable_patterns(schema)
    if unread:
        said += f"; not held against {quote(unread[0], 40)}, which Python does not read"
    return said


PROBE = Probe(
    id="workload_schema",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_CHECK,
            rule="A schema of the workload is taken, and every whole answer under it is an instance of it.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/structured-outputs",
        ),
    ),
    params=WorkloadSchemaParams,
    drive=drive,
    object_to=lambda params: slips(_schema(params), ("answer_schema",)),
    judge=judge,
    per_item=True,
    requests=4,
    prompt_tokens=450,
    output_tokens=500,
)
