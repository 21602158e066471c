"""Result files of other tools: read as they were written, and set side by side only where they may be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from servecheck import bench
from servecheck.bench import Benchmark, from_json, load, read, unlike
from servecheck.errors import UsageError
from servecheck.report.files import rendered
from servecheck.report.framing import Framing
from servecheck.schema.results_v1 import json_schema
from tests.sample_runs import fake_curl, two_endpoints

FILES = Path(__file__).parent / "data" / "bench"

WRITTEN = {
    "guidellm.json": ("GuideLLM", "0.8.1", 94.0, 32.0, 308.1, 1275.2, 76.0),
    "aiperf-profile-export.json": ("AIPerf", "0.13.0", 64.0, 30.33, 318.2, 1125.5, 99.5),
    "vllm-bench-serve.json": ("vllm bench serve", "", 94.0, 32.0, 360.1, None, 113.1),
    "sglang-bench-serving.jsonl": ("sglang.bench_serving", "", 64.0, 32.0, 356.4, 1070.6, 119.4),
}


def one(name: str, endpoint: str = "gpu") -> Benchmark:
    (found,) = load(FILES / name, endpoint)
    return found


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_that_a_tool_wrote_is_read(name):
    tool, version, prompts, answers, ttft, latency, tokens = WRITTEN[name]
    found = one(name)
    assert (tool, version, 12, "4 at once") == (found.tool, found.version, found.completed, found.load)
    assert found.failed in (0, None)
    assert found.prompt_tokens == prompts
    assert found.output_tokens == pytest.approx(answers, abs=0.01)
    assert found.figures["ttft_ms_p50"] == pytest.approx(ttft, abs=0.1)
    assert found.figures["output_tokens_per_s"] == pytest.approx(tokens, abs=0.1)
    assert found.figures.get("latency_ms_p50") == (None if latency is None else pytest.approx(latency, abs=0.1))


@pytest.mark.parametrize("name", WRITTEN)
def test_a_percentile_of_twelve_requests_is_not_told(name):
    assert [figure for figure in one(name).figures if figure.endswith("p99")] == []


@pytest.mark.parametrize("name", WRITTEN)
def test_a_run_folder_gives_back_what_it_was_given(name):
    found = one(name)
    assert from_json(json.loads(json.dumps(found.as_json()))) == found


def test_a_tail_is_told_where_there_are_requests_enough():
    written = json.loads((FILES / "vllm-bench-serve.json").read_text()) | {"completed": 200, "failed": 1}
    (found,) = read(json.dumps(written).encode(), "gpu", "x")
    assert found.figures["ttft_ms_p99"] == pytest.approx(641.88, abs=0.01)
    assert found.failed == 1


def test_several_lines_are_several_benchmarks():
    line = (FILES / "sglang-bench-serving.jsonl").read_text().strip()
    other = json.loads(line) | {"max_concurrency": 8}
    found = read(f"{line}\n{json.dumps(other)}\n".encode(), "gpu", "x")
    assert [each.load for each in found] == ["4 at once", "8 at once"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "neither JSON nor JSON Lines"),
        (b"\xff", "not UTF-8"),
        (b"[1]", "expected an object, found list"),
        (b"{}", "is not a result of GuideLLM"),
        (b'{"median_ttft_ms": 3}', "is not a result of GuideLLM"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"benchmarks": [], "metadata": {}}', "no finished benchmark"),
        (b'{"benchmarks": [3], "metadata": {}}', "benchmarks[0] is not an object"),
        (b'{"tokenizer_id": "t", "median_ttft_ms": "soon"}', "median_ttft_ms is 'soon', expected a number"),
        (b'{"tokenizer_id": "t", "median_ttft_ms": true}', "expected a number"),
    ],
)
def test_anything_else_is_refused_with_the_place(data, says):
    with pytest.raises(UsageError, match=says.replace("[", r"\[").replace("(", r"\(")):
        read(data, "gpu", "file")


def test_numbers_that_are_none_stay_unknown():
    line = json.loads((FILES / "sglang-bench-serving.jsonl").read_text())
    data = json.dumps(line | {"median_ttft_ms": float("nan"), "request_rate": float("inf"), "completed": -3})
    (found,) = read(data.encode(), "gpu", "x")
    assert ("ttft_ms_p50" in found.figures, found.per_s, found.completed) == (False, None, 0)


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "FILE_LIMIT", 10)
    (tmp_path / "big.json").write_bytes(b"x" * 11)
    with pytest.raises(UsageError, match="more than 10 bytes"):
        load(tmp_path / "big.json", "gpu")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"output_tokens": 31.5}, ""),
        ({"tool": "AIPerf"}, "measured by vllm bench serve and by AIPerf"),
        ({"at_once": 8.0}, "under other loads: 4 at once and 8 at once"),
        ({"per_s": 2.0}, "under other loads: 4 at once and 2 requests/s, at most 4 at once"),
        ({"completed": 0}, "no request was completed on tpu"),
        ({"failed": 2}, "2 of 14 requests failed on tpu"),
        ({"prompt_tokens": 64.0}, "prompts of other lengths: 94 and 64 tokens"),
        ({"prompt_tokens": None}, "the length of the prompts is not known"),
        ({"output_tokens": 20.0}, "answers of other lengths: 32 and 20 tokens"),
    ],
)
def test_only_what_is_alike_is_compared(changed, why):
    found = unlike(one("vllm-bench-serve.json"), replace(one("vllm-bench-serve.json", "tpu"), **changed))
    assert found == why if not why else found.startswith(why)


def report(*given: Benchmark, form: str = "md") -> str:
    return rendered(replace(two_endpoints(), framing=Framing(benchmarks=given)), form, fake_curl)


@pytest.mark.parametrize("form", ["md", "html", "summary"])
def test_both_sides_stand_in_one_table_with_their_ratio(form):
    mine = one("vllm-bench-serve.json")
    faster = replace(one("vllm-bench-serve.json", "tpu"), figures={**mine.figures, "ttft_ms_p50": 180.06})
    told = report(mine, faster, form=form)
    assert "0.50 ×" in told
    assert "not compared" not in told


def test_what_cannot_be_compared_stands_alone_with_the_reason():
    told = report(one("vllm-bench-serve.json"), one("guidellm.json", "tpu"))
    assert "`tpu` not compared with gpu: measured by vllm bench serve and by GuideLLM" in told
    assert "Ratio" not in told


def results(*given: Benchmark) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report(*given, form="json"))
    Draft7Validator(json_schema()).validate(found)
    return found


def test_the_results_hold_both_sides_as_they_were_read():
    mine = one("vllm-bench-serve.json")
    (table,) = results(mine, replace(mine, endpoint="tpu", failed=None))["benchmarks"]
    assert (table["tool"], table["load"], table["unlike"]) == ("vllm bench serve", mine.load, None)
    assert [side["endpoint"] for side in table["sides"]] == ["gpu", "tpu"]
    assert [side["failed"] for side in table["sides"]] == [mine.failed, None]
    assert table["sides"][0]["figures"] == pytest.approx(dict(mine.figures), rel=1e-5)


def test_the_results_say_why_nothing_stands_beside_a_benchmark():
    alone = results(one("vllm-bench-serve.json"), one("guidellm.json", "tpu"))["benchmarks"]
    assert [[side["endpoint"] for side in table["sides"]] for table in alone] == [["tpu"], ["gpu"]]
    assert alone[0]["unlike"].startswith("not compared with gpu: measured by vllm bench serve and by GuideLLM")


def test_benchmarks_change_no_decision():
    run = two_endpoints()
    given = one("guidellm.json", "tpu")
    other = replace(run, framing=Framing(benchmarks=(given,)))
    for form in ("junit", "csv"):
        assert rendered(run, form, fake_curl) == rendered(other, form, fake_curl)
    without = json.loads(rendered(run, "json", fake_curl))
    assert {**results(given), "benchmarks": []} == without
