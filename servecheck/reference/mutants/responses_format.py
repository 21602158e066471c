"""Formats that this route drops, refuses, applies in one mode only, or denies."""

from __future__ import annotations

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.constraint import AnyObject, Constraint
from servecheck.reference.eventfaults import NoResponses, ResponseObjects
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.rewriting import Rewriting, Rewritten
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS", "FormatDropped", "FormatRefused"]


class FormatDropped(ReferenceServer):
    """Accepts ``text.format`` and never reads it."""

    def response_format(self, body: Event) -> Event:  # noqa: ARG002
        """Drop it."""
        return {}


class FormatDroppedInStreams(ReferenceServer):
    """Reads ``text.format`` only where nothing is streamed."""

    def response_format(self, body: Event) -> Event:
        """Drop it in streams."""
        return {} if body.get("stream") else super().response_format(body)


class FormatRefused(ReferenceServer):
    """Refuses ``text.format``, and says so."""

    def response_format(self, body: Event) -> Event:
        """Refuse."""
        if body.get("text"):
            raise ApiError("text.format is not supported", status=501, param="text.format")
        return {}


class SaysText(ResponseObjects):
    """Applies the format and says that it is ``text``."""

    def rewrite(self, response: Event) -> None:
        """Say so."""
        response["text"] = {"format": {"type": "text"}}


class SchemaAsAnyObject(ReferenceServer):
    """Takes a schema for the wish for any JSON."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Let the model write any object."""
        return AnyObject() if super().constraint_of(body) is not None else None


class ObjectDropped(ReferenceServer):
    """Knows schemas and drops ``json_object``."""

    def response_format(self, body: Event) -> Event:
        """Drop it."""
        made = super().response_format(body)
        return {} if made.get("response_format", {}).get("type") == "json_object" else made


class ObjectInAList(ReferenceServer):
    """Takes any JSON for an object."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Put brackets around it."""
        constraint = super().constraint_of(body)
        if isinstance(constraint, AnyObject):
            return Rewritten(constraint, lambda text: f"[{text}]")
        return constraint


class UnknownFormatFails(ReferenceServer):
    """Fails inside on a format that it does not know."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Fail."""
        try:
            return super().constraint_of(body)
        except ApiError as wrong:
            raise ApiError(wrong.message, status=500, kind="InternalServerError") from wrong


# --------------------------------------------------------------------------- odd, but right


class UnknownFormatLeftAlone(ReferenceServer):
    """Answers in prose where it does not know the format."""

    def response_format(self, body: Event) -> Event:
        """Leave it."""
        made = super().response_format(body)
        known = made.get("response_format", {}).get("type") in {"json_schema", "json_object", "text"}
        return made if known else {}


class SpreadOut(Rewriting):
    """Puts white space around the JSON."""

    def change(self, text: str) -> str:
        """Put it there."""
        return f" \n{text}\n"


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_SCHEMA, _OBJECT = "text-format-shapes-the-response", "json-object-format-gives-an-object"
_SAID, _UNKNOWN = "response-says-its-text-format", "unknown-text-format-does-no-harm"

MUTANTS = (
    Mutant(id="no-responses", server=NoResponses, trips=((_SCHEMA, _R),)),
    Mutant(id="format-dropped", server=FormatDropped, trips=((_SCHEMA, _N),), source="unslothai/unsloth#8846"),
    Mutant(id="format-dropped-in-streams", server=FormatDroppedInStreams, trips=((_SCHEMA, _N),)),
    Mutant(id="format-refused", server=FormatRefused, trips=((_SCHEMA, _R),)),
    Mutant(id="schema-as-any-object", server=SchemaAsAnyObject, trips=((_SCHEMA, _V),)),
    Mutant(id="says-text", server=SaysText, trips=((_SAID, _V),), source="BerriAI/litellm#28899"),
    Mutant(id="object-dropped", server=ObjectDropped, trips=((_OBJECT, _N),), source="BerriAI/litellm#40965"),
    Mutant(id="object-in-a-list", server=ObjectInAList, trips=((_OBJECT, _V),)),
    Mutant(id="unknown-format-fails", server=UnknownFormatFails, trips=((_UNKNOWN, _V),)),
)

HARMLESS = (
    Harmless(id="unknown-format-left-alone", server=UnknownFormatLeftAlone),
    Harmless(id="spread-out", server=SpreadOut),
    Harmless(
        id="long-thought",
        server=LongThought,
        source="vllm-project/vllm#48748",
        models=("obedient", "babbling", "declining"),
    ),
)
