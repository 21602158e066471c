"""Base64 that is ignored, refused, or holds other numbers."""

from __future__ import annotations

import base64
import struct
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.embeddings import Vector
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.embeddings_basic import TinyNoise
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_TEXT, _NUMBERS, _PLAIN = "base64-is-text", "base64-holds-the-same-numbers", "numbers-come-by-default"
_BATCH = "base64-works-in-a-batch"


class Base64Ignored(ReferenceServer):
    """Returns numbers whatever the format says."""

    def encoded(self, vector: Vector, encoding: str) -> Any:  # noqa: ANN401, ARG002
        """Return numbers."""
        return list(vector)


class Base64Refused(ReferenceServer):
    """Refuses the format that SDKs ask for by themselves."""

    def encoded(self, vector: Vector, encoding: str) -> Any:  # noqa: ANN401
        """Refuse."""
        if encoding != "float":
            raise ApiError(f"encoding_format {encoding!r} is not supported", param="encoding_format")
        return super().encoded(vector, encoding)


class Packed(ReferenceServer):
    """Packs numbers into base64 its own way; subclasses say how."""

    order, kind = "<", "f"

    def encoded(self, vector: Vector, encoding: str) -> Any:  # noqa: ANN401
        """Pack."""
        if encoding != "base64":
            return super().encoded(vector, encoding)
        return base64.b64encode(struct.pack(f"{self.order}{len(vector)}{self.kind}", *vector)).decode()


class HalfPrecision(Packed):
    """Packs 16-bit numbers, of which an SDK reads half as many of noise."""

    kind = "e"


class DoublePrecision(Packed):
    """Packs 64-bit numbers, of which an SDK reads twice as many."""

    kind = "d"


class BigEndian(Packed):
    """Packs the numbers with the highest byte first."""

    order = ">"


class RoundedInBase64(ReferenceServer):
    """Packs numbers that went through 16 bits before."""

    def encoded(self, vector: Vector, encoding: str) -> Any:  # noqa: ANN401
        """Round and pack."""
        if encoding == "base64":
            halves = struct.unpack(f"<{len(vector)}e", struct.pack(f"<{len(vector)}e", *vector))
            return super().encoded(halves, encoding)
        return super().encoded(vector, encoding)


class JsonInBase64(ReferenceServer):
    """Packs the text of the list, as a proxy does that encodes what it was given."""

    def encoded(self, vector: Vector, encoding: str) -> Any:  # noqa: ANN401
        """Pack the text."""
        return base64.b64encode(str(list(vector)).encode()).decode() if encoding == "base64" else list(vector)


class NotBase64(ReferenceServer):
    """Writes the bytes as hexadecimal digits in a string with a prefix."""

    def encoded(self, vector: Vector, encoding: str) -> Any:  # noqa: ANN401
        """Write digits."""
        return "hex:" + struct.pack(f"<{len(vector)}f", *vector).hex() if encoding == "base64" else list(vector)


class Base64Always(ReferenceServer):
    """Returns base64 to clients that asked for nothing."""

    def encoded(self, vector: Vector, encoding: str) -> Any:  # noqa: ANN401, ARG002
        """Pack."""
        return super().encoded(vector, "base64")


class Base64FirstOnly(ReferenceServer):
    """Packs the first vector of a batch and leaves the others as numbers."""

    def embedding_entry(self, place: int, vector: Vector, encoding: str) -> Event:
        """Pack the first."""
        return super().embedding_entry(place, vector, "float" if place else encoding)


# --------------------------------------------------------------------------- odd, but right


class SevenDigits(ReferenceServer):
    """Writes plain numbers with seven digits after the point; base64 holds all of them."""

    def encoded(self, vector: Vector, encoding: str) -> Any:  # noqa: ANN401
        """Round the plain ones."""
        return super().encoded(vector, encoding) if encoding == "base64" else [round(value, 8) for value in vector]


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED

MUTANTS = (
    Mutant(
        id="base64-ignored",
        server=Base64Ignored,
        trips=((_TEXT, _N),),
        source="runpod-workers/worker-infinity-embedding#30",
    ),
    Mutant(id="base64-refused", server=Base64Refused, trips=((_TEXT, _R),), source="BerriAI/litellm#42421"),
    Mutant(id="half-precision", server=HalfPrecision, trips=((_NUMBERS, _V),)),
    Mutant(id="double-precision", server=DoublePrecision, trips=((_NUMBERS, _V),)),
    Mutant(id="big-endian", server=BigEndian, trips=((_NUMBERS, _V),)),
    Mutant(id="rounded-in-base64", server=RoundedInBase64, trips=((_NUMBERS, _V),)),
    Mutant(id="json-in-base64", server=JsonInBase64, trips=((_NUMBERS, _V),)),
    Mutant(id="not-base64", server=NotBase64, trips=((_NUMBERS, _V),)),
    Mutant(id="base64-always", server=Base64Always, trips=((_PLAIN, _V),)),
    Mutant(id="base64-first-only", server=Base64FirstOnly, trips=((_BATCH, _V),)),
)

HARMLESS = (
    Harmless(id="seven-digits", server=SevenDigits),
    Harmless(id="tiny-noise", server=TinyNoise),
)
