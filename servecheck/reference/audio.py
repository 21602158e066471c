"""``POST /v1/audio/transcriptions``: a form with a WAV file in, a text about the sound out; it hears no words."""

from __future__ import annotations

import email
import email.policy
import io
import wave
from dataclasses import dataclass, field
from typing import ClassVar

from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Base
from servecheck.reference.fields import ApiError

__all__ = ["AudioRoutes", "Form"]


@dataclass(slots=True)
class Form:
    """A multipart form: fields by name, and the file."""

    fields: dict[str, str] = field(default_factory=dict)
    file: bytes | None = None


class AudioRoutes(Base):
    """Transcription."""

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {("POST", "/v1/audio/transcriptions"): "reply_transcription"}

    async def reply_transcription(self, request: Request) -> Reply:
        """Answer a transcription request."""
        form = self.form_of(request)
        self.check_model(dict(form.fields))
        if form.file is None:
            raise ApiError("file is missing", param="file")
        return self.transcription(form, self.seconds_of(form.file))

    def form_of(self, request: Request) -> Form:
        """Read the form."""
        kind = request.headers.get("content-type", "")
        if not kind.lower().startswith("multipart/form-data"):
            raise ApiError("a transcription request is a multipart form")
        read = email.message_from_bytes(
            b"Content-Type: " + kind.encode("latin-1") + b"\r\n\r\n" + request.body, policy=email.policy.HTTP
        )
        made = Form()
        for part in read.iter_parts():
            data = part.get_payload(decode=True)
            name = part.get_param("name", header="content-disposition")
            if not isinstance(data, bytes) or not isinstance(name, str):
                continue
            if name == "file":
                made.file = data
            else:
                made.fields[name] = data.decode("utf-8", "replace")
        return made

    def seconds_of(self, file: bytes) -> float:
        """Return how long a WAV file sounds."""
        try:
            with wave.open(io.BytesIO(file)) as clip:
                return float(clip.getnframes() / clip.getframerate())
        except (wave.Error, EOFError, ZeroDivisionError) as wrong:
            raise ApiError(f"file: cannot read the audio: {wrong}", param="file") from wrong

    def heard(self, seconds: float) -> str:
        """Return the transcript."""
        return f"A tone of {seconds:.1f} seconds."

    def transcription(self, form: Form, seconds: float) -> Reply:
        """Return the reply in the format asked for."""
        wanted = form.fields.get("response_format", "json")
        text = self.heard(seconds)
        if wanted == "text":
            return Reply(headers=(("content-type", "text/plain; charset=utf-8"),), body=f"{text}\n".encode())
        if wanted == "verbose_json":
            return json_reply(self.verbose(text, seconds))
        if wanted != "json":
            raise ApiError(f"response_format {wanted!r} is not supported", param="response_format")
        return json_reply({"text": text, "usage": {"type": "duration", "seconds": round(seconds)}})

    def verbose(self, text: str, seconds: float) -> Event:
        """Return the long form."""
        segment = {"id": 0, "start": 0.0, "end": seconds, "text": text}
        return {"task": "transcribe", "language": "english", "duration": seconds, "text": text, "segments": [segment]}
