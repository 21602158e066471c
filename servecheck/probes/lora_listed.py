"""LoRA adapters are listed with their parent, and each name that is listed can be asked.

What it does: reads the list of models (and llama.cpp's own list of adapters), sends a plain request of one token to the
model and to each adapter, and one to an adapter that does not exist.

Why it matters: routers and clients choose an adapter from this list. A name that is refused, or a misspelt one that is
answered by the base model without a word, is noticed late.

How it could be fooled: a server that lists no adapters may still load them on request; then there is nothing to judge.
"""

from __future__ import annotations

from collections.abc import Iterator

from servecheck.model import Check, Exchange, Finding, Level, Mode, NotApplicable, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._adapters import (
    Adapter,
    adapters,
    ask_for_list,
    ask_model,
    base_fields,
    none_listed,
    unknown_fields,
)
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE"]

_PART = Part(route=Route.NONE, mode=Mode.NONE)
_PARENT, _ANSWERS = "adapters-name-a-listed-parent", "every-listed-adapter-answers"
_LENGTH, _UNKNOWN = "adapter-length-is-given-as-its-parent-s", "unknown-adapter-is-refused"
_NAME = "adapter-answers-under-its-own-name"
_SOURCE = "https://docs.vllm.ai/en/latest/features/lora/"
_MOST = 6  # adapters that are asked; a server may list hundreds


async def drive(session: Session, _: Params, __: Transcript | None) -> None:
    """List, ask each, ask one that is not there."""
    await ask_for_list(session)
    await ask_model(session, "base", base_fields(session.transcript))
    found = adapters(session.transcript)
    for place, adapter in enumerate(found[:_MOST]):
        await ask_model(session, f"adapter-{place}", adapter.fields)
    if found:
        await ask_model(session, "unknown", unknown_fields(found[0], session.nonce()))


def judge(transcript: Transcript, _: Params) -> Iterator[Finding | NotApplicable]:
    """Judge the list, then who answers."""
    exchange = transcript.get("models")
    if exchange is None:
        yield _PART.undetermined(_PARENT, "the list was not asked for")
        return
    listed = reply.json_body(exchange)
    if isinstance(listed, reply.Refusal):
        yield _PART.refused(_PARENT, f"not offered: the list of models says {listed.what}", exchange)
        return
    if isinstance(listed, reply.Failure):
        yield _PART.violated(_PARENT, listed.what, exchange)
        return
    found = adapters(transcript)
    base = transcript.get("base")
    # A listed name that the server then takes apart is refused before any adapter is in question.
    refused = _refusal(base) if base is not None and not found else ""
    if refused and base is not None and _is_listed(exchange, transcript.model):
        yield _PART.violated(_ANSWERS, f"{quote(str(transcript.model), 60)} is listed, and {refused}", exchange, base)
        return
    absent = none_listed(transcript)
    if absent is not None:
        yield absent
        return
    yield _parents(exchange, found)
    yield from _lengths(exchange, found)
    yield _answers(transcript, exchange, found)
    yield from _named(transcript, found)
    yield _unknown(transcript)


def _names(exchange: Exchange) -> list[str]:
    body = reply.json_body(exchange)
    entries = None if isinstance(body, reply.Refusal | reply.Failure) else dig(body, "data")
    return [string(dig(entry, "id")) for entry in entries] if isinstance(entries, list) else []


def _is_listed(exchange: Exchange, model: str | None) -> bool:
    return model is not None and model in _names(exchange)


def _refusal(exchange: Exchange) -> str:
    """Return how a request was not answered, an empty string where it was."""
    missing = reply.not_answered(exchange)
    return missing.what if missing is not None else ""


def _parents(exchange: Exchange, found: tuple[Adapter, ...]) -> Finding:
    names = _names(exchange)
    for adapter in found:
        if adapter.parent is not None and adapter.parent not in names:
            shown = ", ".join(quote(name, 30) for name in names[:5])
            why = f"{quote(adapter.name, 40)} names the parent {quote(adapter.parent, 40)}, listed are {shown}"
            return _PART.violated(_PARENT, why, exchange)
    shown = ", ".join(quote(adapter.name, 40) for adapter in found[:_MOST])
    return _PART.held(_PARENT, f"{len(found)} adapters: {shown}", exchange, adapters=len(found))


def _lengths(exchange: Exchange, found: tuple[Adapter, ...]) -> Iterator[Finding]:
    """Judge the extension ``max_model_len``: whoever sizes prompts by it reads the adapter's entry."""
    body = reply.json_body(exchange)
    entries = None if isinstance(body, reply.Refusal | reply.Failure) else dig(body, "data")
    listed = entries if isinstance(entries, list) else []
    lengths = {string(dig(entry, "id")): dig(entry, "max_model_len") for entry in listed}
    for adapter in found:
        wanted = lengths.get(adapter.parent or "")
        if wanted is None or not isinstance(adapter.entry, dict) or "max_model_len" not in adapter.entry:
            continue
        given = adapter.entry["max_model_len"]
        said = f"max_model_len of {quote(adapter.name, 40)} is {given!r}, of its parent {wanted!r}"
        yield (_PART.held if given == wanted else _PART.violated)(_LENGTH, said, exchange)


def _answers(transcript: Transcript, listed: Exchange, found: tuple[Adapter, ...]) -> Finding:
    base = transcript.get("base")
    seen = [listed]
    for place, adapter in enumerate(found[:_MOST]):
        exchange = transcript.get(f"adapter-{place}")
        if exchange is None:
            return _PART.undetermined(_ANSWERS, "not every adapter was asked", *seen)
        seen.append(exchange)
        said = _refusal(exchange)
        if said and base is not None and _refusal(base):
            return _PART.undetermined(
                _ANSWERS, f"the base model does not answer either: {_refusal(base)}", exchange, base
            )
        if said:
            return _PART.violated(_ANSWERS, f"{quote(adapter.name, 60)} is listed, and {said}", listed, exchange)
    left = f", the first {_MOST} of {len(found)}" if len(found) > _MOST else ""
    return _PART.held(_ANSWERS, f"{min(len(found), _MOST)} adapters answer{left}", *seen)


def _named(transcript: Transcript, found: tuple[Adapter, ...]) -> Iterator[Finding]:
    """Judge the name under which an adapter answers: the base model's says that the base model answered."""
    for place, adapter in enumerate(found[:_MOST]):
        exchange = transcript.get(f"adapter-{place}")
        body = None if exchange is None else reply.json_body(exchange)
        if exchange is None or isinstance(body, reply.Refusal | reply.Failure):
            continue
        name = string(dig(body, "model"))
        said = f"{quote(adapter.name, 40)} answers as {quote(name, 40)}"
        if name and name == adapter.parent:
            yield _PART.violated(_NAME, said, exchange)
            return
        if name == adapter.name:
            yield _PART.held(_NAME, said, exchange)
            return


def _unknown(transcript: Transcript) -> Finding:
    exchange = transcript.get("unknown")
    if exchange is None:
        return _PART.undetermined(_UNKNOWN, "not sent")
    found = reply.not_answered(exchange)
    if isinstance(found, reply.Refusal):
        return _PART.held(_UNKNOWN, found.what, exchange)
    if isinstance(found, reply.Failure):
        return _PART.violated(_UNKNOWN, found.what, exchange)
    why = "an adapter that does not exist is answered, by whatever model that may be"
    return _PART.violated(_UNKNOWN, why, exchange)


PROBE = Probe(
    id="lora_listed",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_PARENT,
            rule="Adapters are listed, each with a parent that is listed too.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(id=_ANSWERS, rule="Every name that is listed answers a request.", level=Level.MUST, source=_SOURCE),
        Check(
            id=_NAME,
            rule="A reply of an adapter does not carry its parent's name.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/11090",
        ),
        Check(
            id=_LENGTH,
            rule="An adapter's max_model_len is its parent's, or is left out.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/production-stack/issues/331",
        ),
        Check(
            id=_UNKNOWN,
            rule="A request for an adapter that does not exist is refused.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
    ),
    params=Params,
    drive=drive,
    judge=judge,
    requests=4,
    prompt_tokens=40,
    output_tokens=2,
)
