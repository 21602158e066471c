"""LoRA adapters as a server lists them, and how a request names one: by a model name, or by number (llama.cpp)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from servecheck import canary
from servecheck.model import Exchange, Json, NotApplicable, Transcript
from servecheck.probe import Session
from servecheck.read import reply
from servecheck.read.text import dig, number, string

__all__ = ["Adapter", "adapters", "ask_for_list", "ask_model", "base_fields", "none_listed", "unknown_fields"]

_NOTHING: Mapping[str, Json] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One adapter; ``fields`` are what a request holds to use it, ``entry`` is how it is listed."""

    name: str
    parent: str | None
    fields: Mapping[str, Json] = field(default_factory=lambda: _NOTHING)
    entry: Json = None


async def ask_for_list(session: Session) -> None:
    """Ask for the models, and llama.cpp for its adapters, which it lists elsewhere."""
    await session.get("models", "/models")
    if session.fingerprint.value("engine") == "llama.cpp":
        await session.get_server("lora-adapters", "/lora-adapters")


def adapters(transcript: Transcript) -> tuple[Adapter, ...]:
    """Return the adapters: models that name a parent, then those that llama.cpp counts."""
    made = []
    for entry in _list(transcript, "models", "data"):
        name, parent = string(dig(entry, "id")), string(dig(entry, "parent"))
        if name and parent and parent != name:
            made.append(Adapter(name=name, parent=parent, fields={"model": name}, entry=entry))
    for entry in _list(transcript, "lora-adapters"):
        place = number(dig(entry, "id"))
        if place is not None:
            name = string(dig(entry, "path")).rpartition("/")[2] or f"adapter {place}"
            made.append(Adapter(name=name, parent=None, fields={"lora": [{"id": place, "scale": 1.0}]}, entry=entry))
    return tuple(made)


def base_fields(transcript: Transcript) -> dict[str, Json]:
    """Return what a request holds to use no adapter: nothing, or llama.cpp's adapters at scale 0."""
    off: list[Json] = []
    for entry in _list(transcript, "lora-adapters"):
        place = number(dig(entry, "id"))
        if place is not None:
            off.append({"id": place, "scale": 0.0})
    return {"lora": off} if off else {}


def unknown_fields(adapter: Adapter, nonce: str) -> dict[str, Json]:
    """Return what a request holds that names an adapter which is not there."""
    if "model" in adapter.fields:
        return {"model": f"{adapter.name}-{nonce}"}
    return {"lora": [{"id": 9_999, "scale": 1.0}]}


async def ask_model(session: Session, step: str, fields: Mapping[str, Json]) -> Exchange:
    """Send a plain short request of the endpoint's kind with these fields."""
    path, body = canary.request(session.endpoint.kind or "chat")
    if "max_tokens" in body:
        body["max_tokens"] = 1
    return await session.post(step, path, {**body, **fields})


def none_listed(transcript: Transcript) -> NotApplicable | None:
    """Return that a row makes no sense without adapters, where the list was read and holds none."""
    exchange = transcript.get("models")
    if exchange is None or reply.not_answered(exchange) is not None or adapters(transcript):
        return None
    why = "no entry of GET /v1/models names a parent: this server offers no LoRA adapters"
    return NotApplicable(why=why, lacks=(exchange.id,))


def _list(transcript: Transcript, step: str, *path: str) -> list[Json]:
    exchange = transcript.get(step)
    body = reply.json_body(exchange) if exchange is not None else None
    found = None if isinstance(body, reply.Refusal | reply.Failure) else dig(body, *path)
    return found if isinstance(found, list) else []
