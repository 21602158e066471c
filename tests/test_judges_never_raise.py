"""No reply makes a probe raise: every drive and every judge takes whatever a server sends, in bytes of any kind."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Literal

import pytest

from servecheck.features import BY_ID
from servecheck.model import (
    Chunk,
    Ending,
    Endpoint,
    Exchange,
    Finding,
    Fingerprint,
    Json,
    NotApplicable,
    Observed,
    Outcome,
    Transcript,
)
from servecheck.probe import Params, Probe
from servecheck.probes import discover
from servecheck.read.text import dig
from servecheck.scenario import builtin_dir, examples_dir, load_all

PROBES = discover()
SCENARIOS = load_all([builtin_dir(), examples_dir()], probes=PROBES, features=BY_ID)
ROUNDS = 12  # per kind of garbage; the seed is fixed, so a failure repeats

_KEYS = (
    "choices", "index", "message", "delta", "content", "reasoning", "reasoning_content", "tool_calls", "function",
    "name", "arguments", "id", "type", "finish_reason", "usage", "prompt_tokens", "completion_tokens", "total_tokens",
    "prompt_tokens_details", "cached_tokens", "error", "code", "detail", "object", "created", "model", "data", "role",
    "logprobs", "max_model_len", "owned_by", "text", "token", "bytes", "logprob", "top_logprobs", "tokens",
    "token_logprobs", "text_offset", "prompt_logprobs", "decoded_token", "output", "item", "item_id", "output_index",
    "content_index", "sequence_number", "response", "part", "status", "incomplete_details", "reason", "call_id",
    "input_tokens", "output_tokens", "content_block", "input", "partial_json", "stop_reason", "stop_sequence",
)  # fmt: skip
_SCALARS: tuple[Json, ...] = (
    None, True, False, 0, 1, -1, 2**70, 1.5, 1e300, "", " ", "a", "stop", "length", "tool_calls", "assistant", "400",
    "\ud800", "\x00", "{", '{"code": ', '{"code": "x"}', "```json\n{}\n```", "[DONE]", "error", "🦊" * 50,
    "chat.completion", "chat.completion.chunk", "list", "model", "response", "message", "text", "tool_use",
    "completed", "incomplete", "failed", "function_call", "output_text", "response.completed", "message_stop",
    '{"code":' * 900 + "1" + "}" * 900, "[" * 950 + "]" * 950, "[" * 5000, "{" * 5000, '{"a":' * 5000, "1" * 5000,
)  # fmt: skip
_BODIES = (
    b"", b"null", b"[]", b"{}", b'"text"', b"NaN", b"\xff\xfe\x00", b"\xef\xbb\xbf{}", b"<html></html>",
    b"data: {}\n\n", b"data: [DONE]\n\n", b"data:\n\n\n", b"[" * 100_000, b"[" * 900 + b"]" * 900,
    b'{"a":' * 980 + b"1" + b"}" * 980,
    b"1" * 10_000, b'{"choices": [' + b'{"index": 0}' * 3 + b"]}",
)  # fmt: skip
_TYPES = ("application/json", "text/event-stream", "text/html", "")
_STATUS = (200, 200, 200, 200, 204, 302, 400, 404, 422, 429, 500, 501, 503, 999, None)

_USAGE: Json = {
    "prompt_tokens": 9,
    "completion_tokens": 9,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 0},
}
_OTHERS: dict[str, Json] = {"data": [{"id": "m", "object": "model", "created": 1, "owned_by": "x", "max_model_len": 9}]}


def _logprobs(text: str) -> Json:
    """Return logprobs in both shapes: each reader finds its own."""
    token: dict[str, Json] = {"token": text, "logprob": -0.5, "bytes": None}
    return {
        "content": [{**token, "top_logprobs": [token]}],
        "tokens": [text],
        "token_logprobs": [-0.5],
        "top_logprobs": [{text: -0.5}],
        "text_offset": [0],
    }


def params_of(probe: Probe[Any]) -> Params:
    """Return the parameters of the built-in suite's first scenario of a probe; some probes have no defaults."""
    return next(scenario.params for scenario in SCENARIOS if scenario.probe == probe.id)


class Garbage:
    """A session whose every reply is made up; the requests are the probe's own."""

    endpoint = Endpoint(name="garbage", base_url="http://garbage.example/v1", model="m")
    fingerprint = Fingerprint(fields={})

    def __init__(self, luck: random.Random, *, kind: str) -> None:
        self._luck, self._kind = luck, kind
        self._sent: list[Exchange] = []
        self._now = 0.0

    @property
    def transcript(self) -> Transcript:
        return Transcript(exchanges=tuple(self._sent), model="m", fingerprint=self.fingerprint)

    def nonce(self, letters: int = 10) -> str:
        return "".join(self._luck.choice("bcdfghjklm") for _ in range(letters))

    def unseen(self, letters: int = 10) -> str:
        return self.nonce(letters)

    def seconds(self) -> float:
        return self._now

    async def wait(self, seconds: float) -> None:
        self._now += seconds

    async def chat(self, step: str, body: dict[str, Json], *, deadline: float | None = None) -> Exchange:
        return self._send(step, "/v1/chat/completions", body, deadline)

    async def post(self, step: str, path: str, body: Json, *, deadline: float | None = None) -> Exchange:
        return self._send(step, f"/v1{path}", body, deadline)

    async def post_raw(
        self,
        step: str,
        path: str,
        body: bytes,
        *,
        content_type: str = "application/json",
        deadline: float | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Exchange:
        return self._send(step, f"/v1{path}", body.decode("latin-1") + content_type, deadline)

    async def get(self, step: str, path: str, *, deadline: float | None = None) -> Exchange:
        return self._send(step, f"/v1{path}", None, deadline)

    async def get_server(self, step: str, path: str, *, deadline: float | None = None) -> Exchange:
        return self._send(step, path, None, deadline)

    async def post_server(self, step: str, path: str, body: Json, *, deadline: float | None = None) -> Exchange:
        return self._send(step, path, body, deadline)

    async def metrics(self, step: str) -> Exchange:
        return self._send(step, "/metrics", None, None)

    async def abort_after(
        self, step: str, path: str, body: Json, *, events: int | None = None, seconds: float | None = None
    ) -> Exchange:
        return self._send(step, f"/v1{path}", body, seconds or float(events or 0))

    async def without_key(
        self, step: str, method: str, path: str, body: Json = None, *, wrong: str = "", server: bool = False
    ) -> Exchange:
        return self._send(step, path if server else f"/v1{path}", body if body is not None else method + wrong, None)

    async def request(
        self,
        step: str,
        method: Literal["GET", "POST"],
        path: str,
        body: Json = None,
        *,
        headers: Sequence[tuple[str, str]] = (),
        server: bool = False,
    ) -> Exchange:
        return self._send(step, path if server else f"/v1{path}", body if body is not None else method, None)

    async def concurrently(self, steps: Sequence[Awaitable[Exchange]], *, at_once: int = 0) -> list[Exchange]:
        return [await step for step in steps]

    async def burst(self, steps: Mapping[str, Json], path: str, *, deadline: float | None = None) -> list[Exchange]:
        return [self._send(step, path, body, deadline) for step, body in steps.items()]

    def _send(self, step: str, path: str, body: Json, _: float | None) -> Exchange:
        assert len(self._sent) < 500, "a probe that garbage keeps busy for ever"
        self._now += 0.5
        sent = Exchange(
            id=f"x{len(self._sent):04d}",
            step=step,
            method="POST",
            url=f"http://garbage.example{path}",
            request_body=json.dumps(body).encode(),
            sent=self._now,
            status=self._status(),
            response_headers=(
                ("Content-Type", self._luck.choice(_TYPES) if self._kind != "near-stream" else _TYPES[1]),
            ),
            headers_at=0.1,
            chunks=tuple(self._chunks(path, body)),
            ended_at=0.4,
            ending=self._luck.choice([Ending.COMPLETE] * 6 + list(Ending)),
        )
        self._sent.append(sent)
        return sent

    def _status(self) -> int | None:
        return 200 if self._kind.startswith("near") else self._luck.choice(_STATUS)

    def _chunks(self, path: str, request: Json) -> list[Chunk]:
        data = self._body(path, request)
        cuts = sorted(self._luck.randrange(len(data) + 1) for _ in range(self._luck.randrange(4)))
        edges = [0, *cuts, len(data)]
        return [Chunk(0.1 + 0.01 * at, data[a:b]) for at, (a, b) in enumerate(itertools.pairwise(edges))]

    def _body(self, path: str, request: Json) -> bytes:
        if path.endswith("/responses") and self._kind.startswith("near"):
            return self._typed(*_response(request, self._instance(request)))
        if path.endswith("/messages") and self._kind.startswith("near"):
            return self._typed(*_message(request, self._instance(request)))
        if self._kind == "near":
            return json.dumps(self._spoilt({**_OTHERS, **self._answer(request, "message")})).encode()
        if self._kind == "near-stream":
            events = [self._spoilt(self._answer(request, "delta")) for _ in range(4)]
            return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events)
        if self._kind == "bytes":
            return self._luck.choice([*_BODIES, self._luck.randbytes(self._luck.randrange(200))])
        return json.dumps(self._value(5)).encode()

    def _typed(self, whole: Json, events: Sequence[dict[str, Json]]) -> bytes:
        """Return a right reply of a route whose events have types, a little spoilt; some events are lost or moved."""
        if self._kind == "near":
            return json.dumps(self._spoilt(whole)).encode()
        kept = [self._spoilt(each) for each in events if self._luck.random() > 0.05]
        if self._luck.random() < 0.2:
            self._luck.shuffle(kept)
        names = [str(dig(each, "type")).encode("ascii", "replace") for each in kept]
        return b"".join(
            b"event: " + name + b"\ndata: " + json.dumps(each).encode() + b"\n\n"
            for name, each in zip(names, kept, strict=True)
        )

    def _instance(self, request: Json) -> str:
        """Return what a schema of the request wants, or now and then something else."""
        tool = dig(request, "tools", 0)
        found = (
            dig(request, "response_format", "json_schema", "schema"),
            dig(request, "text", "format", "schema"),
            dig(tool, "function", "parameters"),
            dig(tool, "parameters"),
            dig(tool, "input_schema"),
        )
        schema = next((each for each in found if each is not None), None)
        if self._luck.random() < 0.3:
            return self._luck.choice([text for text in _SCALARS if isinstance(text, str)])
        return json.dumps({"code": dig(schema, "properties", "code", "enum", 0)})

    def _answer(self, request: Json, name: str) -> dict[str, Json]:
        """Return a right answer, as far as that can be had without knowing what is asked for."""
        function = dig(request, "tools", 0, "function")
        instance = self._instance(request)
        call: Json = {"index": 0, "id": "c", "function": {"name": dig(function, "name"), "arguments": instance}}
        message: Json = {"role": "assistant", "content": instance, "tool_calls": [call] if function else None}
        choice: Json = {
            "index": 0,
            name: message,
            "finish_reason": self._luck.choice(["stop", "length", None]),
            "logprobs": _logprobs(instance) if dig(request, "logprobs") else None,
        }
        return {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": _USAGE,
        }

    def _spoilt(self, value: Json) -> Json:
        """Return a value of which now and then a part is something else."""
        if self._luck.random() < 0.06:
            return self._value(2)
        if isinstance(value, dict):
            return {key: self._spoilt(item) for key, item in value.items() if self._luck.random() > 0.03}
        return [self._spoilt(item) for item in value] if isinstance(value, list) else value

    def _value(self, depth: int) -> Json:
        roll = self._luck.random()
        if depth == 0 or roll < 0.3:
            return self._luck.choice(_SCALARS)
        if roll < 0.55:
            return [self._value(depth - 1) for _ in range(self._luck.randrange(4))]
        return self._object(depth - 1)

    def _object(self, depth: int) -> dict[str, Json]:
        return {key: self._value(depth) for key in self._luck.sample(_KEYS, self._luck.randrange(9))}


def _response(request: Json, text: str) -> tuple[Json, list[dict[str, Json]]]:
    """Return a right response and the events that it would be streamed in."""
    name = dig(request, "tools", 0, "name")
    part: dict[str, Json] = {"type": "output_text", "text": text, "annotations": []}
    item: dict[str, Json] = {"id": "i", "type": "message", "role": "assistant", "status": "completed"}
    kind, field, value = "output_text", "text", "content"
    content: Json = [part]
    if name is not None:
        item = {"id": "i", "type": "function_call", "call_id": "c", "name": name, "status": "completed"}
        kind, field, value, content = "function_call_arguments", "arguments", "arguments", text
    usage: Json = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}
    whole: dict[str, Json] = {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    whole |= {"output": [{**item, value: content}], "usage": usage, "text": dig(request, "text")}
    at: dict[str, Json] = {"output_index": 0, "item_id": "i", "content_index": 0}
    events: list[dict[str, Json]] = [
        {"type": "response.created", "response": {**whole, "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, value: "" if name else []}},
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        {"type": f"response.{kind}.delta", **at, "delta": text[:3]},
        {"type": f"response.{kind}.delta", **at, "delta": text[3:]},
        {"type": f"response.{kind}.done", **at, field: text},
        {"type": "response.content_part.done", **at, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, value: content}},
        {"type": "response.completed", "response": whole},
    ]
    return whole, [{**event, "sequence_number": place} for place, event in enumerate(events)]


def _message(request: Json, text: str) -> tuple[Json, list[dict[str, Json]]]:
    """Return a right message and the events that it would be streamed in."""
    name = dig(request, "tools", 0, "name")
    block: dict[str, Json] = {"type": "text", "text": text}
    start: dict[str, Json] = {"type": "text", "text": ""}
    delta: dict[str, Json] = {"type": "text_delta", "text": text}
    if name is not None:
        start = {"type": "tool_use", "id": "t", "name": name, "input": {}}
        block, delta = {**start, "input": {"code": text}}, {"type": "input_json_delta", "partial_json": text}
    reason: dict[str, Json] = {"stop_reason": "tool_use" if name is not None else "end_turn", "stop_sequence": None}
    usage: Json = {"input_tokens": 9, "output_tokens": 9}
    whole: dict[str, Json] = {"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": usage}
    events: list[dict[str, Json]] = [
        {"type": "message_start", "message": {**whole, "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": reason, "usage": usage},
        {"type": "message_stop"},
    ]
    return {**whole, "content": [block], **reason}, events


def _driven(probe: Probe[Any], seed: int, kind: str) -> Transcript:
    session = Garbage(random.Random(f"{probe.id} {seed} {kind}"), kind=kind)

    async def drive() -> None:
        await probe.drive(session, params_of(probe), None)

    asyncio.run(drive())
    return session.transcript


def _parts(transcript: Transcript) -> list[Transcript]:
    """Return the transcript whole, empty, and without some of its steps, as an interrupted run leaves it."""
    exchanges = transcript.exchanges
    kept = [exchanges, (), exchanges[:1], exchanges[1:], exchanges[::2], exchanges[::-1]]
    return [Transcript(exchanges=some, model="m", fingerprint=transcript.fingerprint) for some in kept]


@pytest.mark.parametrize("kind", ["json", "near", "near-stream", "bytes"])
@pytest.mark.parametrize("probe_id", sorted(PROBES))
def test_no_reply_makes_a_probe_raise(probe_id: str, kind: str) -> None:
    probe = PROBES[probe_id]
    names = {check.id for check in probe.of(params_of(probe)).checks}
    for seed in range(ROUNDS):
        for transcript in _parts(_driven(probe, seed, kind)):
            known = {exchange.id for exchange in transcript}
            said = list(probe.judge(transcript, params_of(probe)))
            if probe.contrast is not None:
                said += list(probe.contrast(transcript, transcript, params_of(probe)))

            assert all(isinstance(each, Finding | Observed | NotApplicable) for each in said)
            assert {each.check for each in said if isinstance(each, Finding)} <= names, "a check that is not its own"
            assert {each for one in said if not isinstance(one, NotApplicable) for each in one.evidence} <= known, (
                "evidence that does not exist"
            )


@pytest.mark.parametrize("probe_id", sorted(PROBES))
def test_bytes_that_are_no_reply_are_never_held_against_nothing(probe_id: str) -> None:
    """Garbage in every reply must not come out as all green."""
    probe = PROBES[probe_id]
    for seed in range(5):
        said = probe.judge(_driven(probe, seed, "bytes"), params_of(probe))
        findings = [each for each in said if isinstance(each, Finding)]

        assert not findings or any(each.outcome is not Outcome.HELD for each in findings)
