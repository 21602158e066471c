"""What the metrics probe says of other engines' texts, of other addresses, and of what is no metrics at all."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from servecheck.model import Exchange, Outcome
from servecheck.probes.metrics_exposed import PROBE, MetricsExposedParams
from servecheck.read.series import CONTRACTS, Contract, running_in_loads, running_in_slots, spellings
from tests.timed import exchange, outcomes, sent_json, transcript, whole

_READ, _KEY, _MORE = "metrics-can-be-read", "steering-series-are-there", "promised-series-are-there"
_MOVE, _TYPED = "token-counters-move-with-requests", "metrics-come-in-a-type-that-is-scraped"
_HELD, _VIOLATED, _UNDETERMINED = Outcome.HELD, Outcome.VIOLATED, Outcome.UNDETERMINED
_ALL_WELL = {_READ: _HELD, _KEY: _HELD, _MORE: _HELD, _TYPED: _HELD, _MOVE: _HELD}
_SGLANG = next(contract for contract in CONTRACTS if contract.engine == "sglang")


def _text(contract: Contract, prompt: int, generated: int) -> str:
    values = {contract.prompt: prompt, contract.generated: generated}
    every = (*contract.steering, *contract.more)
    return "".join(f'{series[0]}{{model_name="m"}} {values.get(series, 1)}\n' for series in every)


def _read(step: str, text: str, host: str = "127.0.0.1:1", status: int = 200) -> Exchange:
    made = exchange(step, method="GET", url=f"http://{host}/metrics", status=status, body=text.encode())
    return replace(made, response_headers=(("content-type", "text/plain; version=0.0.4"),))


def _answer(prompt: int = 9, completion: int = 5) -> Exchange:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return whole("answer", "Paris.", usage=usage)


def _says(*exchanges: Exchange, engine: str = "") -> dict[str, Outcome]:
    known = {"engine": engine} if engine else {}
    return outcomes(PROBE.judge(transcript(*exchanges, known=known), MetricsExposedParams()))


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.engine)
def test_every_engine_that_keeps_its_contract_is_supported(contract: Contract) -> None:
    reads = _read("before", _text(contract, 100, 50)), _read("after-1", _text(contract, 109, 55))
    assert _says(reads[0], _answer(), reads[1]) == _ALL_WELL


def test_counters_that_are_no_numbers_do_not_count() -> None:
    text = _text(_SGLANG, 109, 55).replace("109", "NaN").replace("55", "+Inf")
    assert _says(_read("before", _text(_SGLANG, 100, 50)), _answer(), _read("after-1", text))[_MOVE] == _VIOLATED


def test_a_prompt_that_was_cached_moves_a_counter_of_computed_tokens_by_one() -> None:
    llama = next(contract for contract in CONTRACTS if not contract.counts_cached)
    reads = _read("before", _text(llama, 100, 50)), _read("after-1", _text(llama, 101, 55))
    assert _says(reads[0], _answer(), reads[1]) == _ALL_WELL


def test_counters_that_appear_with_the_first_request_were_zero_before() -> None:
    text = _text(_SGLANG, 9, 5)
    without = "".join(line for line in text.splitlines(keepends=True) if "tokens_total" not in line)
    assert _says(_read("before", without), _answer(), _read("after-1", text)) == _ALL_WELL


@pytest.mark.parametrize(("expected", "host"), [(_VIOLATED, "127.0.0.1:1"), (_UNDETERMINED, "10.0.0.7:9090")])
def test_counters_of_another_address_may_be_those_of_another_replica(expected: Outcome, host: str) -> None:
    still = [_read(step, _text(_SGLANG, 100, 50), host) for step in ("before", "after-1")]
    assert _says(still[0], _answer(), still[1])[_MOVE] == expected


def test_an_engine_whose_series_are_hidden_does_not_offer_them() -> None:
    hidden = [_read(step, "process_open_fds 12\n") for step in ("before", "after-1")]
    said = _says(hidden[0], _answer(), hidden[1], engine="vllm")
    assert said == {_READ: _HELD, _KEY: Outcome.REFUSED, _TYPED: _HELD, _MOVE: _UNDETERMINED}


@pytest.mark.parametrize(
    ("expected", "status", "text"),
    [
        (Outcome.REFUSED, 404, '{"detail": "Not Found"}'),
        (_VIOLATED, 500, "oh"),
        (_VIOLATED, 200, ""),
        (_VIOLATED, 200, "<html lang='en'>"),
        (_VIOLATED, 200, "\x00\xff{{{"),
    ],
)
def test_what_is_no_metrics_is_said_to_be_none(expected: Outcome, status: int, text: str) -> None:
    assert _says(_read("before", text, status=status), _answer()) == {_READ: expected}


def test_an_answer_without_usage_leaves_nothing_to_compare() -> None:
    reads = _read("before", _text(_SGLANG, 100, 50)), _read("after-1", _text(_SGLANG, 109, 55))
    assert _says(reads[0], whole("answer", "Paris."), reads[1])[_MOVE] == _UNDETERMINED
    assert _says() == {_READ: _UNDETERMINED}


def test_a_name_stands_for_its_spellings() -> None:
    assert spellings(("vllm:x", "vllm:y")) == ("vllm:x", "ray_vllm_x", "vllm_x", "vllm:y", "ray_vllm_y", "vllm_y")
    assert spellings(("tgi_x",)) == ("tgi_x", "ray_tgi_x")


@pytest.mark.parametrize(
    ("expected", "body"),
    [
        (3, {"num_running_reqs": 3}),
        (5, {"loads": [{"num_running_reqs": 3}, {"num_running_reqs": 2}]}),
        (2, [{"num_running_reqs": 2}]),
        (None, {"num_running_reqs": "3"}),
        (None, {"loads": [{"num_running_reqs": 3}, {}]}),
        (None, []),
    ],
)
def test_running_requests_in_loads(expected: int | None, body: object) -> None:
    assert running_in_loads(sent_json("loads", body)) == expected


@pytest.mark.parametrize(
    ("expected", "body"),
    [
        (1, [{"is_processing": True}, {"is_processing": False}]),
        (0, [{"is_processing": False}]),
        (None, [{"id": 0}]),
        (None, []),
        (None, {"error": {"message": "not enabled"}}),
    ],
)
def test_running_requests_in_slots(expected: int | None, body: object) -> None:
    assert running_in_slots(exchange("slots", method="GET", body=json.dumps(body).encode())) == expected
