"""Prometheus text becomes numbers; what is not whole Prometheus text becomes a problem in words."""

from __future__ import annotations

import math
import random

import pytest

from servecheck.model import Chunk, Ending, Exchange
from servecheck.read.metrics import Metrics, Sample, metrics, moved

TEXT = b"""# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 10.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 32.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.1"} 1
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 3
vllm:time_to_first_token_seconds_count 3
vllm:time_to_first_token_seconds_sum 0.5
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",odd="a\\"b,c=\\"d"} 1
"""


def page(body: bytes, status: int | None = 200, ending: Ending = Ending.COMPLETE, detail: str = "") -> Exchange:
    return Exchange(
        id="x0001",
        step="metrics",
        method="GET",
        url="http://h/metrics",
        status=status,
        chunks=(Chunk(0.0, body),),
        ending=ending,
        detail=detail,
    )


def test_samples_are_summed_over_labels_and_the_first_known_name_wins():
    found = metrics(page(TEXT))
    assert found.problem == ""
    assert found.total("vllm:prompt_tokens_total") == 42
    assert found.total("sglang:prompt_tokens_total", "vllm:prompt_tokens_total") == 42
    assert found.total("vllm:time_to_first_token_seconds_count") == 3
    assert found.total("nothing") is None
    assert found.label("vllm:cache_config_info", "block_size") == "16"
    assert found.label("vllm:cache_config_info", "odd") == 'a"b,c="d'
    assert found.label("vllm:cache_config_info", "none") is None
    assert "vllm:time_to_first_token_seconds_bucket" in found.names


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        (page(b"", 404), "HTTP 404 without a message"),
        (page(b"oops", 500), "HTTP 500: “oops”"),
        (page(b"", 204), "HTTP 204"),
        (page(b"", None, Ending.UNREACHABLE, "connection refused"), "no reply: connection refused"),
        (page(TEXT[:90], ending=Ending.TRUNCATED, detail="reset"), "reply cut after 90 bytes: reset"),
        (page(b"<html><body>login</body></html>"), "not Prometheus text"),
        (page(b'{"error": "x"}'), "not Prometheus text"),
    ],
)
def test_a_page_that_cannot_be_read_has_a_problem_and_no_samples(seen, problem):
    found = metrics(seen)
    assert found.problem.startswith(problem)
    assert found.samples == ()


def of(value: float) -> Metrics:
    return Metrics(samples=(Sample(name="n", labels={}, value=value),))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (of(1), of(3), 2),
        (of(3), of(3), 0),
        (of(3), of(1), None),
        (Metrics(), of(1), None),
        (of(1), Metrics(), None),
        (of(math.nan), of(1), None),
        (of(1), of(math.nan), None),
        (of(1), of(math.inf), None),
    ],
)
def test_a_series_moved_by_a_number_or_nobody_knows(before, after, expected):
    assert moved(before, after, "n") == expected


@pytest.mark.parametrize("seed", range(4))
def test_no_text_makes_the_reader_raise(seed):
    chance = random.Random(seed)
    for _ in range(400):
        raw = bytearray(TEXT)
        for _ in range(chance.randrange(1, 12)):
            at = chance.randrange(len(raw))
            raw[at : at + chance.randrange(3)] = bytes(chance.choice(b'{}",= \n#\\ax1\xff\x00') for _ in range(2))
        metrics(page(bytes(raw)))
