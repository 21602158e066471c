"""Hand-made exchanges for tests of judges: short to read, and nothing filled in that a test does not say."""

from __future__ import annotations

import json

from servecheck.model import Chunk, Ending, Exchange, Fingerprint, How, Known, Transcript

__all__ = ["answer", "events", "fingerprint", "made", "transcript"]


def made(
    step: str,
    body: object = b"",
    *,
    status: int | None = 200,
    request: object = None,
    headers: tuple[tuple[str, str], ...] = (),
    ending: Ending = Ending.COMPLETE,
    url: str = "http://x/v1/chat/completions",
) -> Exchange:
    """Return an exchange; bytes and text are sent as they are, everything else as JSON."""
    data = body if isinstance(body, bytes) else (body.encode() if isinstance(body, str) else json.dumps(body).encode())
    return Exchange(
        id=f"id-{step}",
        step=step,
        method="POST",
        url=url,
        request_body=b"" if request is None else json.dumps(request).encode(),
        status=status,
        response_headers=headers,
        chunks=(Chunk(0.1, data),) if data else (),
        ended_at=0.2,
        ending=ending,
    )


def answer(text: str = "Yes.", **more: object) -> dict[str, object]:
    """Return the body of a chat answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"object": "chat.completion", "model": "m", "choices": [choice], **more}


def events(step: str, *bodies: object, request: object = None) -> Exchange:
    """Return a stream of events that ends as it should."""
    data = b"".join(b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies) + b"data: [DONE]\n\n"
    return made(step, data, request=request, headers=(("content-type", "text/event-stream"),))


def fingerprint(how: How = How.OBSERVED, /, **fields: str) -> Fingerprint:
    """Return a fingerprint with these fields."""
    return Fingerprint(
        fields={name: Known(value=value, how=how, source=f"said {name}") for name, value in fields.items()}
    )


def transcript(*exchanges: Exchange, known: Fingerprint | None = None) -> Transcript:
    """Return the exchanges as a case's transcript."""
    return Transcript(exchanges=exchanges, model="m", fingerprint=known or Fingerprint(fields={}))
