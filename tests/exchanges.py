"""Short ways to write exchanges by hand, so that a judge can be shown replies that no server here gives; no tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from servecheck.model import Chunk, Ending, Exchange, Finding, Json, Outcome, Transcript
from servecheck.probe import Judgement

_JSON = (("content-type", "application/json"),)
_EVENTS = (("content-type", "text/event-stream"),)


def exchange(
    step: str,
    reply: Json | bytes = None,
    *,
    request: Json = None,
    status: int | None = 200,
    headers: tuple[tuple[str, str], ...] = _JSON,
    ending: Ending = Ending.COMPLETE,
) -> Exchange:
    """Return one chat exchange that answers with a JSON value, or with bytes as they are."""
    body = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
    return Exchange(
        id=f"x-{step}",
        step=step,
        method="POST",
        url="http://server.example/v1/chat/completions",
        request_body=json.dumps(request).encode(),
        status=status,
        response_headers=headers,
        chunks=(Chunk(0.1, body),) if body else (),
        ended_at=0.2,
        ending=ending,
    )


def streamed(step: str, events: Iterable[Json], *, request: Json = None, done: bool = True) -> Exchange:
    """Return one streamed chat exchange, one ``data:`` event for each value."""
    lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"] * done
    return exchange(step, "".join(lines).encode(), request=request, headers=_EVENTS)


def answer(
    text: str | None = "", *, finish: str | None = "stop", reasoning: str = "", calls: Sequence[Json] = ()
) -> dict[str, Json]:
    """Return the body of a whole chat reply with one choice."""
    message: dict[str, Json] = {"role": "assistant", "content": text}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = list(calls)
    return {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def event(finish: str | None = None, **delta: Json) -> dict[str, Json]:
    """Return one chunk of a streamed chat reply."""
    choice: Json = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def refusal(step: str, status: int = 400, message: str = "not supported", *, request: Json = None) -> Exchange:
    """Return an exchange that was answered with an error."""
    return exchange(step, {"error": {"message": message, "code": status}}, request=request, status=status)


def transcript(*exchanges: Exchange) -> Transcript:
    """Return a transcript of these exchanges."""
    return Transcript(exchanges=exchanges, model="m")


def outcomes(judgement: Judgement, check: str) -> set[Outcome]:
    """Return what a judge said of one check, over all routes and modes."""
    return {each.outcome for each in judgement if isinstance(each, Finding) and each.check == check}


def whys(judgement: Judgement, check: str) -> str:
    """Return the reasons that a judge gave for one check."""
    return "; ".join(each.why for each in judgement if isinstance(each, Finding) and each.check == check)
