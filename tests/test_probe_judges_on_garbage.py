"""A judge says something about every reply, however broken, and raises for none."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from servecheck.model import Chunk, Ending, Exchange
from servecheck.probes import discover
from tests.handmade import exchange, transcript

_STEPS = {
    "streaming_incremental": ("stream", "longer", "short", "again"),
    "streaming_usage": ("whole", "stream", "no stream_options", "whole, completion", "stream, completion"),
    "streaming_continuous_usage": ("control", "continuous"),
    "streaming_utf8": ("whole", "stream"),
    "streaming_cancel": ("before-1", "look-metrics", "stream-base", "stream-seen-1", "stream-left", "stream-after-1"),
    "health_ready": ("health-1", "models-1", "answer-1"),
    "metrics_exposed": ("before", "answer", "after-1"),
    "sampling_greedy": (*(f"alone-{n}" for n in range(1, 6)), *(f"together-{n}" for n in range(1, 7)), "gaps"),
    "errors_unknown_field": ("control", "unknown"),
}
_EVENT_STREAM = (("content-type", "text/event-stream"),)
_NAN = b"vllm:num_requests_running NaN\nvllm:prompt_tokens_total NaN\nvllm:generation_tokens_total +Inf\n"
_BODIES: tuple[bytes, ...] = (
    b"",
    b"\xff\xfe",
    b"null",
    b"[]",
    b'{"choices": null}',
    b'{"choices": [null, 1, {"delta": 3, "message": [], "logprobs": {"content": [1, {"token": 2}]}}], "usage": []}',
    b'{"choices": [{"delta": {"content": "w"}}], "usage": {"completion_tokens": -1, "prompt_tokens": "x"}}',
    b'{"choices": [], "usage": {"completion_tokens": 1e400}}',
    _NAN,
)


def _replies(step: str) -> list[Exchange]:
    request = json.dumps({"max_tokens": "many", "response_format": {"json_schema": []}}).encode()
    found: list[Exchange] = []
    for body, ending in itertools.product(_BODIES, (Ending.COMPLETE, Ending.ABORTED, Ending.TRUNCATED)):
        framed = b"data: " + body + b"\n\n"
        more: dict[str, Any] = {"request_body": request, "ending": ending}
        found.append(exchange(step, body=body, **more))
        chunks = tuple(Chunk(at, framed) for at in (0.5, 0.5, 1.0, 2.5))
        found.append(exchange(step, chunks=chunks, response_headers=_EVENT_STREAM, **more))
    found += [exchange(step, status=None, ending=ending) for ending in (Ending.UNREACHABLE, Ending.DEADLINE)]
    found += [exchange(step, status=status, body=b"<html>") for status in (204, 302, 404, 503)]
    return found


@pytest.mark.parametrize("probe_id", _STEPS)
def test_a_judge_has_a_word_for_every_reply(probe_id: str) -> None:
    probe = discover()[probe_id]
    # Each step is a few replies ahead of the one before it, so that all kinds meet.
    turned = [[*found[place * 5 :], *found[: place * 5]] for place, found in enumerate(map(_replies, _STEPS[probe_id]))]
    for replies in itertools.chain(zip(*map(_replies, _STEPS[probe_id]), strict=True), zip(*turned, strict=True)):
        for count in range(len(replies) + 1):
            said = list(probe.judge(transcript(*replies[:count]), probe.params()))
            assert said
            assert all(each.why for each in said)
