"""A JSON Schema shapes a streamed answer, a text completion and a response as it shapes a plain chat answer.

What it does: the experiment of `json_schema` where schemas are forgotten most often: on the chat route with `stream`,
or on the completions route or the responses route, plain and streamed. A prompt that asks for prose is sent without a
schema (the control), then with one whose only property must equal a random word: greedy, sampled, and with nothing but
the schema. The pieces of a stream are joined before they are judged. An answer that was cut by the limit is asked for
once more.

Why it matters: applications stream, and batch jobs use completions; a server that applies a schema in one place and
not in the other passes the smoke test and breaks the parser in production.

How it could be fooled: by a gateway that streams nothing and sends the one valid answer in a single piece; that the
pieces come as they are made is the row `streaming.incremental`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._schemas import (
    NONCE_SCHEMA,
    PULL_AWAY,
    blanks_check,
    judge_blanks,
    judge_schema,
    latest,
    more_room,
    response_format,
    text_format,
    with_nonce,
)
from servecheck.probes._steps import reply_at
from servecheck.read import reply

__all__ = ["PROBE"]

_STREAMED, _COMPLETED = "schema-shapes-a-streamed-answer", "schema-shapes-a-completion"
_RESPONDED = "schema-shapes-a-response"
_CHECKS = {"stream": _STREAMED, "completions": _COMPLETED, "responses": _RESPONDED}
_ROUTES = {"stream": Route.CHAT, "completions": Route.COMPLETIONS, "responses": Route.RESPONSES}
_GREEDY: dict[str, Json] = {"temperature": 0, "top_p": 1}
_SAMPLED: dict[str, Json] = {"temperature": 1, "top_p": 1}
_STREAM: dict[str, Json] = {"stream": True}
_ARMS: dict[str, dict[str, dict[str, Json]]] = {
    "stream": {"greedy": {**_GREEDY, **_STREAM}, "sampled": {**_SAMPLED, **_STREAM}, "bare": _STREAM},
    "completions": {"greedy": _GREEDY, "sampled": _SAMPLED, "bare": {}, "streamed": {**_GREEDY, **_STREAM}},
}
_ARMS["responses"] = _ARMS["completions"]


class JsonSchemaRoutesParams(Params):
    """What may be chosen in YAML."""

    where: Literal["stream", "completions", "responses"] = Field(
        description="Streamed on the chat route, the completions route, or the responses route."
    )
    prompt: str = Field(
        default=PULL_AWAY,
        description="A prompt that pulls away from JSON; for completions a text that goes on, since a model may end a "
        "finished one at once, and an empty answer looks like a fault of the schema.",
    )
    max_tokens: int = Field(default=96, ge=16, le=4096, description="Room for the answer; 17 to 26 tokens were used.")


async def drive(session: Session, params: JsonSchemaRoutesParams, _: Transcript | None) -> None:
    """Control greedy and sampled, then the schema in every arm; an answer that was cut is asked for once more."""
    path, limit, asked = _asked(params)
    asked |= {limit: params.max_tokens}
    await session.post("control", path, {**asked, **_GREEDY})
    await session.post("control-sampled", path, {**asked, **_SAMPLED})
    for arm, more in _ARMS[params.where].items():
        room: int | None = params.max_tokens
        for step in (arm, f"{arm}-again"):
            if room is not None:
                wanted = _wanted(params.where, with_nonce(NONCE_SCHEMA, session.nonce()))
                await session.post(step, path, {**asked, **more, **wanted, limit: room})
                answer = reply_at(session.transcript, step)
                room = more_room(answer, params.max_tokens) if answer is not None else None


def _asked(params: JsonSchemaRoutesParams) -> tuple[str, str, dict[str, Json]]:
    """Return the path, the name of the limit, and the request without a schema."""
    if params.where == "responses":
        return "/responses", "max_output_tokens", {"input": params.prompt}
    if params.where == "completions":
        return "/completions", "max_tokens", {"prompt": params.prompt}
    return "/chat/completions", "max_tokens", {"messages": [{"role": "user", "content": params.prompt}], **_STREAM}


def _wanted(where: str, schema: Json) -> dict[str, Json]:
    if where == "responses":
        return {"text": {"format": text_format(schema)}}
    return {"response_format": response_format(schema)}


def judge(transcript: Transcript, params: JsonSchemaRoutesParams) -> Iterator[Finding]:
    """Judge every arm's last look; a whole route that is not there is refused once."""
    route = _ROUTES[params.where]
    plain = reply_at(transcript, "control")
    if params.where == "responses" and isinstance(plain, reply.Refusal):
        why = f"the route refuses a plain request too: {plain.what}"
        yield Part(route=route).refused(_RESPONDED, why, plain)
        return
    looks = []
    for arm, more in _ARMS[params.where].items():
        part = Part(route=route, mode=Mode.STREAM if "stream" in more else Mode.NON_STREAM)
        shaped = latest(reply_at(transcript, f"{arm}-again"), reply_at(transcript, arm))
        control = reply_at(transcript, "control" if more.get("temperature") == 0 else "control-sampled")
        looks.append(shaped)
        yield judge_schema(part, _CHECKS[params.where], shaped, control, NONCE_SCHEMA)
    yield from judge_blanks("on-other-routes", Part(route=route), looks)


PROBE = Probe(
    id="json_schema_routes",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_STREAMED,
            rule="The pieces of a streamed answer join to an instance of the schema that its request carries.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/structured-outputs#streaming",
        ),
        Check(
            id=_COMPLETED,
            rule="A text completion is an instance of the schema that its request carries, plain and streamed.",
            level=Level.MUST,
            source="https://docs.vllm.ai/en/latest/features/structured_outputs/",
        ),
        Check(
            id=_RESPONDED,
            rule="A response is an instance of the schema in its request's text.format, plain and streamed.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/structured-outputs?api-mode=responses",
        ),
        blanks_check("on-other-routes"),
    ),
    params=JsonSchemaRoutesParams,
    drive=drive,
    judge=judge,
    requests=5,
    prompt_tokens=220,
    output_tokens=80,
)
