"""Transcriptions of another shape than was asked for, of half a clip, or of what is no sound."""

from __future__ import annotations

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, json_reply
from servecheck.reference.audio import Form
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_JSON, _TEXT = "transcription-is-json-with-a-text", "text-format-gives-plain-text"
_VERBOSE, _LENGTH, _BROKEN = "long-form-has-segments", "reported-length-is-the-clip-s", "broken-audio-is-refused"


def _wants(form: Form, kind: str) -> bool:
    return form.fields.get("response_format") == kind


class AudioNotServed(ReferenceServer):
    """Refuses although the route is there: the model hears nothing."""

    def seconds_of(self, file: bytes) -> float:  # noqa: ARG002
        """Refuse."""
        raise ApiError("The current model does not support audio input.", status=501)


class TextIsMissing(ReferenceServer):
    """Names the text otherwise."""

    def transcription(self, form: Form, seconds: float) -> Reply:
        """Rename."""
        return (
            json_reply({"transcript": self.heard(seconds)})
            if _wants(form, "json")
            else super().transcription(form, seconds)
        )


class PlainAlways(ReferenceServer):
    """Answers with plain text whatever was asked for."""

    def transcription(self, form: Form, seconds: float) -> Reply:
        """Write text."""
        return super().transcription(Form({**form.fields, "response_format": "text"}), seconds)


class JsonAlways(ReferenceServer):
    """Answers with the short JSON form whatever was asked for."""

    def transcription(self, form: Form, seconds: float) -> Reply:
        """Write JSON."""
        return super().transcription(Form({**form.fields, "response_format": "json"}), seconds)


class VerboseRefused(ReferenceServer):
    """Refuses the long form."""

    def verbose(self, text: str, seconds: float) -> Event:  # noqa: ARG002
        """Refuse."""
        raise ApiError("verbose_json is not supported", param="response_format")


class VerboseFails(ReferenceServer):
    """Fails inside on the long form."""

    def verbose(self, text: str, seconds: float) -> Event:  # noqa: ARG002
        """Fail."""
        raise ApiError("validation error for segments", status=500, kind="InternalServerError")


class SegmentsInTheWrongOrder(ReferenceServer):
    """Lists segments of which each begins before the last one ends."""

    def verbose(self, text: str, seconds: float) -> Event:
        """Turn round."""
        made = super().verbose(text, seconds)
        late = {"id": 0, "start": 30.0, "end": 31.0, "text": "later"}
        return {**made, "segments": [late, *made["segments"]]}


class ThirtySeconds(ReferenceServer):
    """Reports the length of the window that clips are filled up to."""

    def seconds_of(self, file: bytes) -> float:
        """Fill up."""
        return max(30.0, super().seconds_of(file))


class FirstSecondOnly(ReferenceServer):
    """Hears the first second of a clip."""

    def seconds_of(self, file: bytes) -> float:
        """Cut."""
        return min(1.0, super().seconds_of(file)) - 0.1


class BrokenFails(ReferenceServer):
    """Fails inside on a file that is no sound."""

    def seconds_of(self, file: bytes) -> float:
        """Fail."""
        try:
            return super().seconds_of(file)
        except ApiError as wrong:
            raise ApiError("Error opening: Format not recognised.", status=500, kind="InternalServerError") from wrong


class BrokenHeard(ReferenceServer):
    """Transcribes what is no sound."""

    def seconds_of(self, file: bytes) -> float:
        """Hear nothing."""
        try:
            return super().seconds_of(file)
        except ApiError:
            return 0.0


# --------------------------------------------------------------------------- odd, but right


class NoUsage(ReferenceServer):
    """Reports the length in the long form alone, as a text."""

    def transcription(self, form: Form, seconds: float) -> Reply:
        """Leave the usage out."""
        return (
            json_reply({"text": self.heard(seconds)}) if _wants(form, "json") else super().transcription(form, seconds)
        )

    def verbose(self, text: str, seconds: float) -> Event:
        """Write the duration as text."""
        return {**super().verbose(text, seconds), "duration": str(seconds)}


class HearsNothing(ReferenceServer):
    """Finds no words in a tone, and no segments, which is true."""

    def heard(self, seconds: float) -> str:  # noqa: ARG002
        """Hear nothing."""
        return ""

    def verbose(self, text: str, seconds: float) -> Event:
        """List nothing."""
        return {**super().verbose(text, seconds), "segments": []}


class NoAudio(ReferenceServer):
    """Has no such route."""

    @classmethod
    def routes(cls) -> dict[tuple[str, str], str]:
        """Leave the route out."""
        return {key: name for key, name in super().routes().items() if name != "reply_transcription"}


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED

MUTANTS = (
    Mutant(id="audio-not-served", server=AudioNotServed, trips=((_JSON, _R),)),
    Mutant(id="text-is-missing", server=TextIsMissing, trips=((_JSON, _V),)),
    Mutant(id="plain-always", server=PlainAlways, trips=((_JSON, _V), (_VERBOSE, _V))),
    Mutant(id="json-always", server=JsonAlways, trips=((_TEXT, _N), (_VERBOSE, _N)), source="BerriAI/litellm#30599"),
    Mutant(id="verbose-refused", server=VerboseRefused, trips=((_VERBOSE, _R),), source="vllm-project/vllm#14818"),
    Mutant(id="verbose-fails", server=VerboseFails, trips=((_VERBOSE, _V),), source="speaches-ai/speaches#58"),
    Mutant(id="segments-in-the-wrong-order", server=SegmentsInTheWrongOrder, trips=((_VERBOSE, _V),)),
    Mutant(id="thirty-seconds", server=ThirtySeconds, trips=((_LENGTH, _V),)),
    Mutant(
        id="first-second-only",
        server=FirstSecondOnly,
        trips=((_LENGTH, _V),),
        source="xorbitsai/inference#2650",
    ),
    Mutant(id="broken-fails", server=BrokenFails, trips=((_BROKEN, _V),)),
    Mutant(id="broken-heard", server=BrokenHeard, trips=((_BROKEN, _V),)),
)

HARMLESS = (
    Harmless(id="no-usage", server=NoUsage),
    Harmless(id="hears-nothing", server=HearsNothing),
    Harmless(id="no-audio", server=NoAudio, models=("obedient",)),
)
