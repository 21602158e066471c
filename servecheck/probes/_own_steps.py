"""The steps of a user's own check as YAML gives them, and the two things that YAML may leave open in them.

``$nonce`` inside a text is a random word, the same in all steps of a trial. ``{$from: step#/pointer}`` in the place of
a value is the value at a JSON pointer (RFC 6901) of an earlier step's reply. There is nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from servecheck.model import Exchange, Json, Level, Transcript
from servecheck.plainwords import Key
from servecheck.probe import Params
from servecheck.read import reply, sse
from servecheck.read.text import parse

__all__ = [
    "CODE_CLASSES",
    "KEBAB",
    "NONCE",
    "Expect",
    "Missing",
    "OwnCheck",
    "Step",
    "filled",
    "nonce_sent",
    "references",
    "said",
    "texts",
]

KEBAB = "^[a-z0-9]+(-[a-z0-9]+)*$"
NONCE = "$nonce"
_FROM = "$from"

Sentence = Annotated[str, Field(min_length=1)]
Code = Annotated[int, Field(ge=100, le=599)]
Object = dict[str, JsonValue]

CODE_CLASSES = {f"{first}xx": range(first * 100, first * 100 + 100) for first in range(2, 6)}


class Expect(Params):
    """What a reply must be, in JSON Schema."""

    status: Code | Annotated[list[Code], Field(min_length=1)] | Literal["2xx", "3xx", "4xx", "5xx"] | None = Field(
        default=None, description="A status, a list of them, or a class such as 4xx; left out, it is 2xx."
    )
    headers: Object | None = Field(
        default=None, description="A schema of the headers, as an object of texts under lower-case names."
    )
    body: Object | None = Field(
        default=None,
        description="A schema of the JSON body; the body of a stream is the list of its events, without `[DONE]`.",
    )
    each_event: Object | None = Field(default=None, description="A schema of every event of a stream but `[DONE]`.")


class OwnCheck(Params):
    """A rule of yours, as the report shows it."""

    rule: Sentence = Field(description="What must hold, as a sentence.")
    level: Level = Field(default=Level.MUST, description="must breaks your clients, should disappoints them.")
    source: str = Field(default="", pattern="^(https?://.*)?$", description="A page that the rule rests on.")
    expect: Expect = Field(description="What the reply to this step must be.")


class Step(Params):
    """One request, and what is checked of its reply."""

    step: Annotated[str, Field(pattern=KEBAB)] = Field(description="The name of the step.")
    control: bool = Field(
        default=False,
        description="A plain request: where it is not answered, a refusal elsewhere says nothing of your feature.",
    )
    method: Literal["GET", "POST"] = Field(default="POST", description="GET or POST.")
    path: Annotated[str, Field(min_length=1)] = Field(description="The path below the root, such as /chat/completions.")
    root: Literal["api", "server"] = Field(
        default="api", description="api is the base URL (it ends in /v1), server is the host itself."
    )
    headers: dict[str, str] = Field(default={}, description="Headers to send; $nonce is a random word.")
    body: Object | None = Field(
        default=None, description="The JSON body; the model is filled in where it names none. $nonce is a random word."
    )
    checks: dict[Annotated[str, Field(pattern=KEBAB)], OwnCheck] = Field(
        default={}, description="Your checks of this reply, by name."
    )


class Missing(Exception):
    """A value of an earlier reply is needed and not there; the message says which."""


def filled(template: object, nonce: str, transcript: Transcript) -> Json:
    """Return what YAML gave with the random word and the values of earlier replies put in.

    Raises :class:`Missing` where an earlier reply has no such value.
    """
    if isinstance(template, str):
        return template.replace(NONCE, nonce)
    if isinstance(template, list):
        return [filled(item, nonce, transcript) for item in template]
    if isinstance(template, dict):
        reference = _reference(template)
        if reference is not None:
            return _value(reference, transcript)
        return {str(key): filled(item, nonce, transcript) for key, item in template.items()}
    if template is None or isinstance(template, int | float):
        return template
    raise TypeError(f"{type(template).__name__} is not JSON")


def said(exchange: Exchange) -> Json:
    """Return the body as JSON; of a stream the list of its events, less ``[DONE]``. Raises ``ValueError``."""
    if not reply.is_stream(exchange):
        try:
            return parse(exchange.body)
        except ValueError as wrong:
            raise ValueError(f"the body is not JSON: {wrong}") from None
    events: list[Json] = []
    for place, event in enumerate(sse.events(exchange.chunks).events, 1):
        if not event.data or event.data.strip() == sse.DONE:
            continue
        try:
            events.append(parse(event.data))
        except ValueError as wrong:
            raise ValueError(f"event {place} is not JSON: {wrong}") from None
    return events


def _reference(template: dict[object, object]) -> str | None:
    value = template.get(_FROM)
    return value if len(template) == 1 and isinstance(value, str) else None


def _value(reference: str, transcript: Transcript) -> Json:
    step, _, pointer = reference.partition("#")
    exchange = transcript.get(step)
    if exchange is None:
        raise Missing(f"the step {step!r} was not sent")
    problem = reply.not_answered(exchange)
    if problem is not None:
        raise Missing(f"the step {step!r} gave no value: {problem.what}")
    try:
        value = said(exchange)
    except ValueError as wrong:
        raise Missing(f"the step {step!r} gave no value: {wrong}") from None
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and re.fullmatch("0|[1-9][0-9]{0,8}", name) and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            raise Missing(f"the reply to {step!r} has nothing at {pointer}")
    return value


# --------------------------------------------------------------------------- what a template holds


def references(template: object, at: Key = ()) -> Iterator[tuple[Key, object]]:
    """Yield what every ``$from`` of a template says, with its place; it may be no text."""
    if isinstance(template, dict):
        if _FROM in template:
            yield (*at, _FROM), template[_FROM] if len(template) == 1 else None
            return
        for key, value in template.items():
            yield from references(value, (*at, str(key)))
    elif isinstance(template, list):
        for place, value in enumerate(template):
            yield from references(value, (*at, place))


def texts(template: object, at: Key = ()) -> Iterator[tuple[Key, str]]:
    """Yield every text of a template, with its place; keys and ``$from`` are none."""
    if isinstance(template, str):
        yield at, template
    elif isinstance(template, dict) and _FROM not in template:
        for key, value in template.items():
            yield from texts(value, (*at, str(key)))
    elif isinstance(template, list):
        for place, value in enumerate(template):
            yield from texts(value, (*at, place))


def nonce_sent(template: object, sent: object) -> str | None:
    """Return the random word that stands in a request where its template has ``$nonce``, ``None`` where none does."""
    if isinstance(template, str):
        if NONCE not in template or not isinstance(sent, str):
            return None
        first, *others = map(re.escape, template.split(NONCE))
        match = re.fullmatch(first + "([a-z]+)" + r"\1".join(others), sent)
        return match[1] if match else None
    if isinstance(template, dict) and isinstance(sent, dict):
        found = (nonce_sent(value, sent.get(key)) for key, value in template.items())
        return next((word for word in found if word), None)
    if isinstance(template, list) and isinstance(sent, list):
        found = (nonce_sent(value, other) for value, other in zip(template, sent, strict=False))
        return next((word for word in found if word), None)
    return None
