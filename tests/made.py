"""Exchanges, replies and streams made by hand for tests of judges; no test lives here."""

import json
from collections.abc import Iterable, Sequence

from servecheck.model import Chunk, Ending, Exchange, Finding, Fingerprint, How, Known, Mode, Outcome, Transcript
from servecheck.probe import Judgement

MODEL = "tiny"
DONE = b"data: [DONE]\n\n"


def exchange(
    step: str,
    body: object = b"",
    *,
    status: int | None = 200,
    content_type: str = "application/json",
    request: object = None,
    ending: Ending = Ending.COMPLETE,
    detail: str = "",
    pieces: Sequence[tuple[float, bytes]] = (),
    path: str = "/chat/completions",
) -> Exchange:
    """Return an exchange whose id is its step; ``body`` is bytes or what JSON is made of; ``pieces`` have times."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    chunks = tuple(Chunk(at, piece) for at, piece in pieces) or ((Chunk(0.1, data),) if data else ())
    return Exchange(
        id=step,
        step=step,
        method="POST" if request is not None else "GET",
        url=f"http://server/v1{path}",
        request_body=b"" if request is None else json.dumps(request).encode(),
        status=status,
        response_headers=(("content-type", content_type),),
        chunks=chunks,
        ended_at=chunks[-1].at if chunks else 0.0,
        ending=ending,
        detail=detail,
    )


def refusal(step: str, message: str = "not supported here", status: int = 400) -> Exchange:
    """Return a refused request."""
    return exchange(step, {"error": {"message": message, "type": "BadRequestError"}}, status=status, request={})


def failure(step: str, status: int = 500) -> Exchange:
    """Return a server error."""
    return exchange(step, {"error": {"message": "internal error"}}, status=status, request={})


def cut(step: str, body: bytes = b'{"id": "x", "choi') -> Exchange:
    """Return a reply whose connection broke."""
    return exchange(step, body, ending=Ending.TRUNCATED, detail="the connection was cut", request={})


def whole(
    text: str | None = "Red, green and blue.",
    finish: str | None = "stop",
    *,
    usage: object = None,
    logprobs: object = None,
    **message: object,
) -> dict[str, object]:
    """Return the JSON of a whole chat reply; ``message`` are more fields of its message."""
    said = {"role": "assistant", "content": text, **message}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [{"index": 0, "message": said, "logprobs": logprobs, "finish_reason": finish}],
        "usage": usage or {"prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26},
    }


def event(delta: object = None, finish: str | None = None, *, index: int = 0, **more: object) -> dict[str, object]:
    """Return one event of a chat stream; ``more`` replaces fields of the event."""
    choice = {"index": index, "delta": {} if delta is None else delta, "logprobs": None, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [choice],
        **more,
    }


ROLE = event({"role": "assistant", "content": ""})


def sse(events: Iterable[object], *, done: bytes = DONE) -> bytes:
    """Return events as an event stream; bytes among them stay as they are."""
    framed = (one if isinstance(one, bytes) else b"data: " + json.dumps(one).encode() + b"\n\n" for one in events)
    return b"".join(framed) + done


def stream(step: str, events: Iterable[object] | bytes, *, done: bytes = DONE, **more: object) -> Exchange:
    """Return a streamed reply."""
    body = events if isinstance(events, bytes) else sse(events, done=done)
    return exchange(step, body, content_type="text/event-stream", request={"stream": True}, **more)  # type: ignore[arg-type]


def spoken(*pieces: str, finish: str = "stop") -> list[dict[str, object]]:
    """Return the events of a plain stream that says these pieces."""
    return [ROLE, *(event({"content": piece}) for piece in pieces), event(finish=finish)]


def transcript(*exchanges: Exchange, model: str | None = MODEL, **fingerprint: str) -> Transcript:
    """Return a transcript; keyword arguments are observed fields of the fingerprint."""
    known = {name: Known(value=value, how=How.OBSERVED, source="test") for name, value in fingerprint.items()}
    return Transcript(exchanges=exchanges, model=model, fingerprint=Fingerprint(fields=known))


def only(findings: Judgement) -> list[Finding]:
    """Return the findings, where a judge says nothing else."""
    listed = list(findings)
    assert all(isinstance(one, Finding) for one in listed)
    return [one for one in listed if isinstance(one, Finding)]


def said(findings: Judgement) -> dict[str, Outcome]:
    """Return the outcome of each check; one check twice with different outcomes fails the test."""
    found: dict[str, Outcome] = {}
    for finding in only(findings):
        assert found.setdefault(finding.check, finding.outcome) is finding.outcome, f"{finding.check} says two things"
    return found


def outcomes(findings: Judgement, check: str, *modes: Mode) -> set[Outcome]:
    """Return what was said of one check, in these modes or in all, arms that were not sent left aside."""
    return {
        one.outcome
        for one in only(findings)
        if one.check == check and one.mode in (modes or Mode) and "not sent" not in one.why
    }


def not_held(findings: Judgement) -> dict[str, Outcome]:
    """Return only what did not hold."""
    return {check: outcome for check, outcome in said(findings).items() if outcome is not Outcome.HELD}
