"""``GET /v1/models`` lists the model that requests name.

What it does: asks for the list and looks for the configured model in it, for entries of the documented shape (id,
object, created, owned_by), for ids that come twice, and for a ``max_model_len`` that makes sense: a length for every
model, or for none. Then sends a short request that names the model as the list spells it. The other models are not
asked: on some servers that loads them.

Why it matters: clients and gateways choose a model from this list; one that is missing cannot be routed to.

How it could be fooled: by a gateway that lists what it is configured with and not what it can reach.
"""

from __future__ import annotations

from collections.abc import Iterator

from servecheck import canary
from servecheck.model import Check, Ending, Exchange, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.text import dig, number, quote, string

__all__ = ["PROBE"]

_TYPED = "model-list-has-the-documented-types"
_USABLE = "listed-model-can-be-named"
_SOURCE = "https://platform.openai.com/docs/api-reference/models/list"
_PART = Part(route=Route.NONE, mode=Mode.NONE)


async def drive(session: Session, _: Params, __: Transcript | None) -> None:
    """Ask for the list, and for a few tokens of the model in it."""
    listed = await session.get("models", "/models")
    if listed.ending is Ending.DEADLINE:  # the first use of a route may be slow; twice is a hang
        listed = await session.get("models-again", "/models")
    if listed.status is None:
        return
    path, body = canary.request(session.endpoint.kind or "chat")
    await session.post("named", path, dict(body))


def judge(transcript: Transcript, _: Params) -> Iterator[Finding]:
    """Judge the list against the model that this run's requests name."""
    exchange = transcript.get("models-again") or transcript.get("models")
    if exchange is None:
        yield _PART.undetermined("models-are-listed", "the list was not asked for")
        return
    body = reply.json_body(exchange)
    if isinstance(body, reply.Refusal):
        yield _PART.refused("models-are-listed", f"refused: {body.what}", exchange)
    elif isinstance(body, reply.Failure):
        yield _PART.violated("models-are-listed", body.what, exchange)
    else:
        yield from _judge_list(exchange, dig(body, "data"), transcript.model)
        yield from _judge_use(exchange, dig(body, "data"), transcript)


def _judge_list(exchange: Exchange, entries: Json, model: str | None) -> Iterator[Finding]:
    if not isinstance(entries, list):
        why = f"no list under “data” in {quote(exchange.body)}"
        yield _PART.violated("models-are-listed", why, exchange)
        return
    names = [string(dig(entry, "id")) for entry in entries]
    shown = ", ".join(quote(name, 40) for name in names[:5]) or "no model"
    if not any(names):
        yield _PART.violated("models-are-listed", f"the list names {shown}", exchange)
        return
    yield _PART.held("models-are-listed", f"the list names {shown}", exchange, models=len(names))
    if model is None:
        why = "requests of this run name no model"
        yield _PART.undetermined("configured-model-is-listed", why, exchange)
    elif model in names:
        yield _PART.held("configured-model-is-listed", f"{quote(model, 60)} is listed", exchange)
    else:
        why = f"{quote(model, 60)} is not among {shown}"
        yield _PART.violated("configured-model-is-listed", why, exchange)
    yield _shape(exchange, entries, names)
    yield _typed(exchange, entries)
    yield from _lengths(exchange, entries)


def _judge_use(exchange: Exchange, entries: Json, transcript: Transcript) -> Iterator[Finding]:
    """Judge whether the listed model can be named; a server that is sick says nothing about its names."""
    named, model = transcript.get("named"), transcript.model
    listed = [string(dig(entry, "id")) for entry in entries] if isinstance(entries, list) else []
    if named is None or model is None or model not in listed:
        return
    missing = reply.not_answered(named)
    if isinstance(missing, reply.Refusal):
        why = f"{quote(model, 60)} is listed, and a request that names it is refused: {missing.what}"
        yield _PART.violated(_USABLE, why, exchange, named)
    elif missing is not None:
        yield _PART.undetermined(_USABLE, f"a request that names {quote(model, 60)}: {missing.what}", named)
    else:
        yield _PART.held(_USABLE, f"a request that names {quote(model, 60)} is answered", exchange, named)


def _shape(exchange: Exchange, entries: list[Json], names: list[str]) -> Finding:
    check = "model-entries-are-well-formed"
    for place, (entry, name) in enumerate(zip(entries, names, strict=True)):
        if not name:
            return _PART.violated(check, f"entry {place + 1} has no id", exchange)
        if string(dig(entry, "object")) != "model":
            why = f"entry {quote(name, 40)} has object {dig(entry, 'object')!r} instead of 'model'"
            return _PART.violated(check, why, exchange)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return _PART.violated(check, f"{quote(twice[0], 40)} is listed {names.count(twice[0])} times", exchange)
    return _PART.held(check, "every entry is a model with an id of its own", exchange)


def _typed(exchange: Exchange, entries: list[Json]) -> Finding:
    """Judge what typed clients need of an entry: they fail on the whole list where one lacks a field."""
    if dig(reply.json_body(exchange), "object") != "list":  # type: ignore[arg-type]
        return _PART.violated(_TYPED, "the reply has no object “list”", exchange)
    for entry in (entry for entry in entries if isinstance(entry, dict)):
        name, made = quote(string(dig(entry, "id")), 40), dig(entry, "created")
        if number(made) is None:
            return _PART.violated(_TYPED, f"entry {name} has created {made!r} instead of seconds since 1970", exchange)
        if not isinstance(owner := dig(entry, "owned_by"), str):
            return _PART.violated(_TYPED, f"entry {name} has owned_by {owner!r} instead of a text", exchange)
    return _PART.held(_TYPED, "the list has its name, and every entry a time of creation and an owner", exchange)


def _lengths(exchange: Exchange, entries: list[Json]) -> Iterator[Finding]:
    """Judge the extension ``max_model_len``; without one anywhere, or null everywhere, there is nothing to judge."""
    check = "max-model-len-is-a-length"
    given = [dig(entry, "max_model_len") for entry in entries]
    if all(value is None for value in given):
        return
    for entry, value in zip(entries, given, strict=True):
        name = quote(string(dig(entry, "id")), 40)
        if value is None and isinstance(entry, dict) and "max_model_len" in entry:
            yield _PART.violated(check, f"max_model_len of {name} is null where others have a length", exchange)
            return
        if value is not None and (number(value) or 0) <= 0:
            yield _PART.violated(check, f"max_model_len of {name} is {value!r}", exchange)
            return
    shown = next(value for value in given if value is not None)
    yield _PART.held(check, f"max_model_len is {shown}", exchange)


PROBE = Probe(
    id="identity_models",
    doc=__doc__ or "",
    checks=(
        Check(
            id="models-are-listed",
            rule="GET /v1/models answers with a list of models.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="configured-model-is-listed",
            rule="The model that requests name is in the list.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="model-entries-are-well-formed",
            rule="Every entry has object “model” and an id that no other entry has.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/api-reference/models/object",
        ),
        Check(
            id=_TYPED,
            rule="The list has object “list”, and every entry has created as a whole number and owned_by as a text.",
            level=Level.SHOULD,
            source="https://github.com/aallam/openai-kotlin/pull/332",
        ),
        Check(
            id="max-model-len-is-a-length",
            rule="Where max_model_len is given it is a positive whole number, and not null for some models only.",
            level=Level.SHOULD,
            source="https://docs.vllm.ai/en/latest/api/vllm/entrypoints/openai/protocol/",
        ),
        Check(
            id=_USABLE,
            rule="A request that names a model as the list spells it is not refused.",
            level=Level.MUST,
            source="https://github.com/sgl-project/sglang/issues/12745",
        ),
    ),
    params=Params,
    drive=drive,
    judge=judge,
    despite_sickness=True,
    requests=2,
    prompt_tokens=20,
    output_tokens=9,
)
