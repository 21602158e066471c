"""Short ways to write the exchanges of one step by hand, for judges of probes that compare several; no tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from servecheck.model import Chunk, Ending, Exchange, Finding, Fingerprint, How, Json, Known, Outcome, Transcript
from servecheck.probe import Judgement

_ROOT = "http://server.example"


def reply(
    step: str,
    body: Json | bytes,
    *,
    path: str = "/v1/chat/completions",
    request: Json = None,
    status: int | None = 200,
    kind: str = "application/json",
    ending: Ending = Ending.COMPLETE,
    took: float = 0.2,
) -> Exchange:
    """Return one exchange that answers with a JSON value, or with bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Exchange(
        id=f"x-{step}",
        step=step,
        method="POST",
        url=_ROOT + path,
        request_body=json.dumps(request).encode(),
        status=status,
        response_headers=(("content-type", kind),),
        chunks=(Chunk(took / 2, data),) if data else (),
        ended_at=took,
        ending=ending,
    )


def usage(prompt: int | None, completion: int | None = 1) -> dict[str, Json]:
    """Return a usage object; empty where there is no prompt count."""
    return {} if prompt is None else {"usage": {"prompt_tokens": prompt, "completion_tokens": completion}}


def chat(
    step: str,
    text: str = "",
    *,
    finish: str | None = "stop",
    prompt: int | None = None,
    completion: int | None = 1,
    request: Json = None,
    logprobs: Iterable[float] = (),
    reasoning: str = "",
    model: str | None = None,
) -> Exchange:
    """Return a whole chat reply of one choice."""
    message: dict[str, Json] = {"role": "assistant", "content": text, "reasoning_content": reasoning or None}
    content: list[Json] = [{"token": "a", "logprob": value} for value in logprobs]
    choice: Json = {"index": 0, "message": message, "finish_reason": finish, "logprobs": {"content": content}}
    named: dict[str, Json] = {} if model is None else {"model": model}
    return reply(step, {**named, "choices": [choice], **usage(prompt, completion)}, request=request)


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


def completion(
    step: str, *texts: str, finish: str | None = "length", prompt: int | None = 5, made: int | None = 4
) -> Exchange:
    """Return a whole text completion, one choice for each text."""
    choices: list[Json] = [{"index": n, "text": text, "finish_reason": finish} for n, text in enumerate(texts)]
    body: Json = {"object": "text_completion", "choices": choices, **usage(prompt, made)}
    return reply(step, body, path="/v1/completions")


def streamed(step: str, *events: Json, path: str = "/v1/chat/completions", request: Json = None) -> Exchange:
    """Return a stream of these events with its end marker."""
    lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]
    return reply(step, "".join(lines).encode(), path=path, request=request, kind="text/event-stream")


def chat_stream(step: str, *pieces: str, finish: str = "stop", request: Json = None) -> Exchange:
    """Return a chat stream of these pieces, without usage."""
    events: list[Json] = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    return streamed(step, *events, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}, request=request)


def refusal(
    step: str,
    message: str = "not supported",
    status: int = 400,
    path: str = "/v1/chat/completions",
    request: Json = None,
) -> Exchange:
    """Return a reply that refuses."""
    return reply(step, {"error": {"message": message}}, path=path, status=status, request=request)


def transcript(*exchanges: Exchange, **fingerprint: str) -> Transcript:
    """Return a transcript of these exchanges with a server that says so much of itself."""
    known: Mapping[str, Known] = {name: Known(value=value, how=How.OBSERVED) for name, value in fingerprint.items()}
    return Transcript(exchanges=exchanges, model="m", fingerprint=Fingerprint(fields=known))


def said(judgement: Judgement, check: str) -> list[Outcome]:
    """Return what a judge said of one check, in its order."""
    return [each.outcome for each in judgement if isinstance(each, Finding) and each.check == check]


def outcomes(judgement: Judgement, check: str) -> set[Outcome]:
    """Return what a judge said of one check, over all routes and modes."""
    return {each.outcome for each in judgement if isinstance(each, Finding) and each.check == check}


def why(judgement: Judgement, check: str) -> str:
    """Return the reasons that a judge gave for one check."""
    return "; ".join(each.why for each in judgement if isinstance(each, Finding) and each.check == check)


def judged(probe: Any, found: Transcript, **params: Any) -> list[Any]:
    """Return what a probe says of a transcript."""
    return list(probe.judge(found, probe.params(**params)))
