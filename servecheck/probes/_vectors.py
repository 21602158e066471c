"""Reads embeddings, in numbers or in base64, and compares them; and tells a route that is not there from a refusal."""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from servecheck.model import Exchange, Finding, Json, Mode, NotApplicable, Route, Transcript
from servecheck.probes._findings import Part
from servecheck.probes._steps import made_of
from servecheck.read import reply
from servecheck.read.text import dig, number, quote

__all__ = [
    "PART",
    "SOURCE",
    "Item",
    "Listed",
    "Read",
    "Vector",
    "cosine",
    "fault",
    "length",
    "listed_at",
    "no_route",
    "unless_listed",
    "vector_at",
]

SOURCE = "https://platform.openai.com/docs/api-reference/embeddings/create"
PART = Part(route=Route.NONE, mode=Mode.NONE)
_NO_ROUTE = (404, 405)
_NAMES_MODEL = re.compile(r"\bmodel\b", re.IGNORECASE)
_FLOAT = 4  # bytes

Vector: TypeAlias = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of ``data``: its index as given, and what stands under ``embedding``, unchecked."""

    index: int | None
    value: Json

    @property
    def text(self) -> str | None:
        """The base64 text, ``None`` where it is none."""
        return self.value if isinstance(self.value, str) else None

    @property
    def numbers(self) -> Vector | None:
        """The numbers where it is a list of nothing else."""
        if not isinstance(self.value, list):
            return None
        given = [one for one in self.value if isinstance(one, int | float) and not isinstance(one, bool)]
        try:
            return tuple(map(float, given)) if len(given) == len(self.value) else None
        except OverflowError:  # JSON bounds no whole number
            return None

    @property
    def vector(self) -> Vector | None:
        """The numbers, or what base64 of 32-bit numbers (least byte first) decodes to; ``None`` where it is neither."""
        if self.text is None:
            return self.numbers
        try:
            data = base64.b64decode(self.text, validate=True)
        except (binascii.Error, ValueError):
            return None
        return struct.unpack(f"<{len(data) // _FLOAT}f", data) if data and len(data) % _FLOAT == 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A reply with a list of embeddings, in its order."""

    exchange: Exchange
    items: tuple[Item, ...]
    usage: reply.Usage | None
    body: Json


Read: TypeAlias = Listed | reply.Refusal | reply.Failure


def listed_at(transcript: Transcript, step: str) -> Read | None:
    """Return the embeddings of a step; ``None`` where it was never sent."""
    return made_of(transcript, step, _listed)


def _listed(exchange: Exchange, body: Json) -> Listed | reply.Failure:
    error = reply.error_event(body)
    data = dig(body, "data")
    if not isinstance(data, list):
        said = f"200 with an error body: {quote(reply.message_of(error))}" if error is not None else ""
        return reply.Failure(exchange=exchange, what=said or f"no list under “data” in {quote(exchange.body)}")
    items = tuple(Item(index=number(dig(entry, "index")), value=dig(entry, "embedding")) for entry in data)
    return Listed(exchange=exchange, items=items, usage=reply.usage_of(body), body=body)


def vector_at(transcript: Transcript, step: str, place: int = 0) -> Vector | None:
    """Return the vector at a place of a step's list; ``None`` where there is none that can be compared."""
    found = listed_at(transcript, step)
    if not isinstance(found, Listed) or place >= len(found.items):
        return None
    vector = found.items[place].vector
    return None if vector is None or fault(vector) else vector


def fault(vector: Sequence[float]) -> str:
    """Return why a vector has no direction, an empty string where it has one."""
    if not vector:
        return "it has no numbers"
    if not all(map(math.isfinite, vector)):
        return f"{sum(not math.isfinite(value) for value in vector)} of {len(vector)} numbers are not finite"
    if not any(vector):
        return f"all {len(vector)} numbers are 0"
    return ""


def length(vector: Sequence[float]) -> float:
    """Return the Euclidean length."""
    return math.hypot(*vector)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors of one length; 0 where their lengths differ or one is 0."""
    both = length(one) * length(other)
    if len(one) != len(other) or not both or not math.isfinite(both):
        return 0.0
    return math.fsum(left * right for left, right in zip(one, other, strict=True)) / both


def unless_listed(check: str, found: Read | None, *controls: Read | None, what: str = "") -> Finding | None:
    """Return the finding for a reply without embeddings; ``None`` for one that has a list of them."""
    if isinstance(found, Listed):
        return None
    others = [control for control in controls if isinstance(control, reply.Refusal | reply.Failure)]
    return PART.unless_answered(check, found, *others, what=what)


def no_route(found: object, path: str, does: str) -> NotApplicable | None:
    """Return that a row makes no sense where its route is not there; a 404 that speaks of the model is a refusal."""
    if not isinstance(found, reply.Refusal) or found.code not in _NO_ROUTE or _NAMES_MODEL.search(found.message):
        return None
    why = f"POST {path} answers HTTP {found.code}, there is no such route: this server {does}"
    return NotApplicable(why=why, lacks=(found.exchange.id,))
