"""Hand-made exchanges whose times, methods and usage matter, for tests of judges."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from servecheck.model import Chunk, Exchange, Finding, Fingerprint, How, Known, Outcome, Transcript
from servecheck.probe import Judgement

__all__ = ["delta", "exchange", "outcomes", "sent_json", "stream", "transcript", "whole"]

_SSE = (("content-type", "text/event-stream"),)
_JSON = (("content-type", "application/json"),)


def exchange(step: str, *, status: int | None = 200, method: str = "POST", body: bytes = b"", **more: Any) -> Exchange:
    """Return an exchange whose reply came whole after a second, unless ``more`` says otherwise."""
    given: dict[str, Any] = {"url": "http://127.0.0.1:1/v1/chat/completions", "response_headers": _JSON}
    given |= {"chunks": (Chunk(1.0, body),) if body else (), "ended_at": 1.0} | more
    return Exchange(id=f"x-{step}", step=step, method=method, status=status, **given)


def sent_json(step: str, value: Any, **more: Any) -> Exchange:
    """Return an exchange that brought this JSON."""
    return exchange(step, body=json.dumps(value).encode(), **more)


def whole(step: str, text: str, *, finish: str = "stop", usage: Any = None, **more: Any) -> Exchange:
    """Return a whole chat reply."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return sent_json(step, {"choices": [choice], "usage": usage}, **more)


def delta(
    content: str | None = None, *, finish: str | None = None, usage: Any = None, index: int = 0
) -> dict[str, Any]:
    """Return one chunk of a stream."""
    said = {} if content is None else {"content": content}
    choice = {"index": index, "delta": said, "finish_reason": finish}
    body: dict[str, Any] = {"object": "chat.completion.chunk", "choices": [choice]}
    return body if usage is None else {**body, "usage": usage}


def stream(
    step: str, events: Iterable[Any], *, times: Sequence[float] = (), done: bool = True, **more: Any
) -> Exchange:
    """Return a streamed reply; ``times`` are the arrivals of the events, a tenth of a second apart by default."""
    given = list(events)
    when = list(times) or [0.1 * place for place in range(1, len(given) + 1)]
    chunks = [
        Chunk(at, b"data: " + json.dumps(event).encode() + b"\n\n") for at, event in zip(when, given, strict=True)
    ]
    last = when[-1] if when else 0.0
    if done:
        chunks.append(Chunk(last, b"data: [DONE]\n\n"))
    held: dict[str, Any] = {"chunks": tuple(chunks), "response_headers": _SSE, "ended_at": last}
    return exchange(step, **{**held, **more})


def transcript(*exchanges: Exchange, known: Mapping[str, str] | None = None) -> Transcript:
    """Return a transcript of these exchanges, from a server of which this much is known."""
    fields = {name: Known(value=value, how=How.OBSERVED, source="made up") for name, value in (known or {}).items()}
    return Transcript(exchanges=exchanges, model="made-up", fingerprint=Fingerprint(fields=fields))


def outcomes(judgement: Judgement) -> dict[str, Outcome]:
    """Return what each check saw; a check that spoke twice must have said the same."""
    said: dict[str, Outcome] = {}
    for finding in judgement:
        assert isinstance(finding, Finding)
        assert said.setdefault(finding.check, finding.outcome) == finding.outcome
    return said
