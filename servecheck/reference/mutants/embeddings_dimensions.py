"""Dimensions that are ignored, refused, cut carelessly, or taken without bounds."""

from __future__ import annotations

from collections.abc import Sequence

from servecheck.model import Outcome
from servecheck.reference import fields
from servecheck.reference.asgi import Event
from servecheck.reference.embeddings import Vector
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_SHORT, _BEGINS, _UNIT = "dimensions-set-the-size", "shorter-vector-begins-the-whole", "shorter-vector-keeps-length-one"
_IMPOSSIBLE = "impossible-dimensions-are-refused"
_WHOLE = 64


class DimensionsIgnored(ReferenceServer):
    """Takes the field and answers with the whole vector."""

    def dimensions_of(self, body: Event) -> int:  # noqa: ARG002
        """Return all."""
        return _WHOLE


class DimensionsRefused(ReferenceServer):
    """Refuses the field, as a model does that was not trained for it."""

    def dimensions_of(self, body: Event) -> int:
        """Refuse."""
        if body.get("dimensions") is not None:
            raise ApiError("this model does not support matryoshka representation", param="dimensions")
        return _WHOLE


class NextPowerOfTwo(ReferenceServer):
    """Answers with the next size that it was trained for, without a word."""

    def dimensions_of(self, body: Event) -> int:
        """Take the next of a few sizes."""
        asked = super().dimensions_of(body)
        return next(size for size in (48, _WHOLE) if size >= asked)


class EndOfTheVector(ReferenceServer):
    """Keeps the last numbers of the vector instead of the first."""

    def vector(self, ids: Sequence[int], width: int = _WHOLE) -> Vector:
        """Keep the end."""
        whole = super().vector(ids)
        shorter = whole[-width:]
        length = sum(value * value for value in shorter) ** 0.5
        return tuple(value / length for value in shorter)


class NotBroughtToLength(ReferenceServer):
    """Cuts the vector and leaves what is left shorter than 1."""

    def vector(self, ids: Sequence[int], width: int = _WHOLE) -> Vector:
        """Cut."""
        return super().vector(ids)[:width]


class ShorterFails(ReferenceServer):
    """Fails inside when asked for fewer numbers."""

    def dimensions_of(self, body: Event) -> int:
        """Fail."""
        if super().dimensions_of(body) < _WHOLE:
            raise ApiError("shape mismatch", status=500, kind="InternalServerError")
        return _WHOLE


class AnySize(ReferenceServer):
    """Takes any number and answers with as many as there are."""

    def dimensions_of(self, body: Event) -> int:
        """Take the nearest."""
        return max(1, min(_WHOLE, fields.integer(body, "dimensions", _WHOLE)))


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED

MUTANTS = (
    Mutant(
        id="dimensions-ignored",
        server=DimensionsIgnored,
        trips=((_SHORT, _N), (_IMPOSSIBLE, _V)),
        source="openvinotoolkit/model_server#4542",
    ),
    Mutant(id="dimensions-refused", server=DimensionsRefused, trips=((_SHORT, _R),), source="mem0ai/mem0#3133"),
    Mutant(id="next-power-of-two", server=NextPowerOfTwo, trips=((_SHORT, _V),)),
    Mutant(id="end-of-the-vector", server=EndOfTheVector, trips=((_BEGINS, _V),)),
    Mutant(
        id="not-brought-to-length",
        server=NotBroughtToLength,
        trips=((_UNIT, _V),),
        source="vllm-project/vllm-metal#738",
    ),
    Mutant(id="shorter-fails", server=ShorterFails, trips=((_SHORT, _V),)),
    Mutant(id="any-size", server=AnySize, trips=((_IMPOSSIBLE, _V),)),
)

HARMLESS: tuple[Harmless, ...] = ()
