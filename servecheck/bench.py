"""Result files of four benchmark tools, read strictly into the few figures they share; nothing is judged here.

GuideLLM (JSON, from 0.8), AIPerf (``profile_export_aiperf.json``), ``vllm bench serve --save-result`` and
``sglang.bench_serving --output-file`` (JSON Lines). What a file does not say stays unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from servecheck.errors import UsageError
from servecheck.model import Json

__all__ = ["FIGURES", "FILE_LIMIT", "Benchmark", "from_json", "load", "read", "unlike"]

FILE_LIMIT = 64_000_000
"""Bytes of a file; GuideLLM writes every request into it."""

_MOST = 64
"""Benchmarks that are taken from one file."""

_TAIL = 100
"""Requests below which a 99th percentile is the slowest request and nothing else."""

_PROMPTS_ALIKE = 0.02
_ANSWERS_ALIKE = 0.05
_FAILED = 0.01

FIGURES: Mapping[str, tuple[str, str]] = {
    "requests_per_s": ("Requests", "/s"),
    "output_tokens_per_s": ("Output tokens", "/s"),
    "ttft_ms_p50": ("First token, median", "ms"),
    "ttft_ms_p99": ("First token, 99th percentile", "ms"),
    "tpot_ms_p50": ("A token after the first, median of requests", "ms"),
    "tpot_ms_p99": ("A token after the first, 99th percentile of requests", "ms"),
    "itl_ms_p50": ("Between tokens, median of gaps", "ms"),
    "itl_ms_p99": ("Between tokens, 99th percentile of gaps", "ms"),
    "latency_ms_p50": ("Whole answer, median", "ms"),
    "latency_ms_p99": ("Whole answer, 99th percentile", "ms"),
}
"""The figures by name, in display order: words and unit. Tools define them alike only within one tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One measurement of one endpoint under one load.

    ``at_once`` and ``per_s`` are the load as asked for, ``None`` where it was not limited; ``prompt_tokens`` and
    ``output_tokens`` are means of completed requests; ``figures`` has the names of :data:`FIGURES`.
    """

    endpoint: str
    tool: str
    version: str = ""
    model: str = ""
    day: str = ""
    at_once: float | None = None
    per_s: float | None = None
    completed: int = 0
    failed: int | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def load(self) -> str:
        """The load in words."""
        said = []
        if self.per_s is not None:
            said.append(f"{self.per_s:g} requests/s")
        if self.at_once is not None:
            said.append(f"{self.at_once:g} at once")
        return ", at most ".join(said) or "all at once"

    def as_json(self) -> dict[str, Json]:
        """Return it as a run folder keeps it."""
        kept: dict[str, Json] = {
            name: getattr(self, name)
            for name in ("endpoint", "tool", "version", "model", "day", "at_once", "per_s", "completed", "failed")
        }
        return kept | {
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "figures": dict(self.figures),
        }


def from_json(value: Json) -> Benchmark | None:
    """Return what :meth:`Benchmark.as_json` wrote, ``None`` for anything else."""
    if not isinstance(value, dict) or not isinstance(value.get("endpoint"), str) or not value["endpoint"]:
        return None
    held = _Record(value, "run folder")
    figures = {name: number for name in FIGURES if (number := held.number("figures", name)) is not None}
    return Benchmark(
        endpoint=held.text("endpoint"),
        tool=held.text("tool"),
        version=held.text("version"),
        model=held.text("model"),
        day=held.text("day"),
        at_once=held.number("at_once"),
        per_s=held.number("per_s"),
        completed=int(held.number("completed") or 0),
        failed=None if (failed := held.number("failed")) is None else int(failed),
        prompt_tokens=held.number("prompt_tokens"),
        output_tokens=held.number("output_tokens"),
        figures=figures,
    )


def load(path: Path, endpoint: str) -> tuple[Benchmark, ...]:
    """Return the benchmarks in a file. Raises ``UsageError`` where none of the four tools wrote it so."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_LIMIT + 1)
    except OSError as error:
        raise UsageError(f"cannot read the benchmark {path}: {error.strerror or error}") from error
    if len(data) > FILE_LIMIT:
        raise UsageError(f"{path} has more than {FILE_LIMIT:,} bytes; take out the single requests first")
    return read(data, endpoint, str(path))


def read(data: bytes, endpoint: str, name: str) -> tuple[Benchmark, ...]:
    """Return the benchmarks in the bytes of a file; ``name`` is what errors call it."""
    values = list(islice(_values(data, name), _MOST + 1))
    found: list[Benchmark] = []
    for value in values:
        record = _Record(value, name)
        reader = next((reader for marks, reader in _READERS if all(mark in value for mark in marks)), None)
        if reader is None:
            raise UsageError(
                f"{name} is not a result of GuideLLM (JSON), AIPerf (profile_export_aiperf.json), "
                "vllm bench serve (--save-result) or sglang.bench_serving (--output-file)"
            )
        found += reader(record, endpoint)
    if not found:
        raise UsageError(f"{name} holds no finished benchmark")
    if len(found) > _MOST:
        raise UsageError(f"{name} holds more than {_MOST} benchmarks")
    return tuple(found)


def _values(data: bytes, name: str) -> Iterator[dict[str, Json]]:
    """Yield the objects of a JSON or JSON Lines file."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text: {error}") from error
    try:
        whole = [json.loads(text)]
    except RecursionError as error:
        raise UsageError(f"{name}: nested too deeply") from error
    except ValueError as first:
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            whole = [json.loads(line) for line in lines] if len(lines) > 1 else []
        except (ValueError, RecursionError):
            whole = []
        if not whole:
            raise UsageError(f"{name} is neither JSON nor JSON Lines: {first}") from first
    for value in whole:
        if not isinstance(value, dict):
            raise UsageError(f"{name}: expected an object, found {type(value).__name__}")
        yield value


class _Record:
    """A JSON object whose values are asked for by path; what has the wrong type is an error that names the place."""

    def __init__(self, value: Mapping[str, Json], name: str) -> None:
        self._value, self._name = value, name

    def at(self, *path: str) -> Json:
        found: Json = dict(self._value)
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def number(self, *path: str) -> float | None:
        """Return a finite number; ``None`` where there is none, ``Infinity`` included, which Python's tools write."""
        found = self.at(*path)
        if found is None or found == "inf":
            return None
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise UsageError(f"{self._name}: {'.'.join(path)} is {str(found)[:40]!r}, expected a number")
        try:
            number = float(found)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None

    def text(self, *path: str) -> str:
        found = self.at(*path)
        return found[:200] if isinstance(found, str) else ""

    def within(self, *path: str) -> Iterator[_Record]:
        found = self.at(*path)
        for place, item in enumerate(found if isinstance(found, list) else []):
            if not isinstance(item, dict):
                raise UsageError(f"{self._name}: {'.'.join(path)}[{place}] is not an object")
            yield _Record(item, f"{self._name}: {'.'.join(path)}[{place}]")


def _figures(found: Mapping[str, float | None], completed: int) -> dict[str, float]:
    """Return what is known; a 99th percentile of few requests is left out."""
    return {
        name: number
        for name in FIGURES
        if (number := found.get(name)) is not None and (completed >= _TAIL or not name.endswith("_p99"))
    }


def _count(record: _Record, *path: str) -> int:
    number = record.number(*path)
    return int(number) if number is not None and number >= 0 else 0


def _mean(total: float | None, of: int) -> float | None:
    return total / of if total is not None and of else None


def _flat(record: _Record, endpoint: str, *, tool: str, end_to_end: str) -> Benchmark:
    """Read what vLLM's benchmark and SGLang's, which grew out of it, have in common."""
    completed = _count(record, "completed")
    figures = {
        "requests_per_s": record.number("request_throughput"),
        "output_tokens_per_s": record.number("output_throughput"),
    }
    for ours, theirs in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("latency", end_to_end)):
        figures[f"{ours}_ms_p50"] = record.number(f"median_{theirs}_ms")
        figures[f"{ours}_ms_p99"] = record.number(f"p99_{theirs}_ms")
    failed = record.number("failed")
    asked = record.number("num_prompts")
    if failed is None and asked is not None:
        failed = max(0.0, asked - completed)
    return Benchmark(
        endpoint=endpoint,
        tool=tool,
        model=record.text("model_id"),
        day=_day(record.text("date")),
        at_once=record.number("max_concurrency"),
        per_s=record.number("request_rate"),
        completed=completed,
        failed=None if failed is None else int(failed),
        prompt_tokens=_mean(record.number("total_input_tokens"), completed),
        output_tokens=_mean(record.number("total_output_tokens"), completed),
        figures=_figures(figures, completed),
    )


def _vllm(record: _Record, endpoint: str) -> list[Benchmark]:
    return [_flat(record, endpoint, tool="vllm bench serve", end_to_end="e2el")]


def _sglang(record: _Record, endpoint: str) -> list[Benchmark]:
    return [_flat(record, endpoint, tool="sglang.bench_serving", end_to_end="e2e_latency")]


def _aiperf(record: _Record, endpoint: str) -> list[Benchmark]:
    completed = _count(record, "request_count", "avg")
    failed = record.number("error_request_count", "avg")
    share = record.number("request_error_rate", "avg")
    if failed is None and share is not None and share < 100:
        failed = round(completed * share / (100 - share))
    figures = {
        "requests_per_s": record.number("request_throughput", "avg"),
        "output_tokens_per_s": record.number("output_token_throughput", "avg"),
    }
    for ours, theirs in (
        *(("ttft", "time_to_first_token"), ("tpot", "inter_token_latency"), ("latency", "request_latency")),
    ):
        unit = record.text(theirs, "unit")
        if unit not in ("", "ms"):
            raise UsageError(f"{theirs} is given in {unit!r}, expected ms")
        figures[f"{ours}_ms_p50"] = record.number(theirs, "p50")
        figures[f"{ours}_ms_p99"] = record.number(theirs, "p99")
    phases = [phase for phase in record.within("input_config", "phases") if phase.text("kind") != "warmup"]
    phase = phases[-1] if phases else _Record({}, "")
    models = [model.text("name") for model in record.within("input_config", "models", "items")]
    return [
        Benchmark(
            endpoint=endpoint,
            tool="AIPerf",
            version=record.text("aiperf_version"),
            model=", ".join(models),
            day=_day(record.text("start_time")),
            at_once=phase.number("concurrency"),
            per_s=phase.number("rate"),
            completed=completed,
            failed=None if failed is None else int(failed),
            prompt_tokens=record.number("input_sequence_length", "avg"),
            output_tokens=record.number("output_sequence_length", "avg"),
            figures=_figures(figures, completed),
        )
    ]


def _guidellm(record: _Record, endpoint: str) -> list[Benchmark]:
    return [_guidellm_one(record, one, endpoint) for one in record.within("benchmarks")]


def _guidellm_one(record: _Record, one: _Record, endpoint: str) -> Benchmark:
    completed = _count(one, "metrics", "request_totals", "successful")
    figures: dict[str, float | None] = {
        "requests_per_s": one.number("metrics", "requests_per_second", "successful", "mean"),
        "output_tokens_per_s": one.number("metrics", "output_tokens_per_second", "successful", "mean"),
    }
    for ours, theirs, factor in (
        ("ttft", "time_to_first_token_ms", 1.0),
        ("tpot", "time_per_output_token_ms", 1.0),
        ("itl", "inter_token_latency_ms", 1.0),
        ("latency", "request_latency", 1000.0),
    ):
        for end, path in (("p50", ("median",)), ("p99", ("percentiles", "p99"))):
            number = one.number("metrics", theirs, "successful", *path)
            figures[f"{ours}_ms_{end}"] = None if number is None else number * factor
    strategy = one.text("config", "strategy", "type_")
    at_once = one.number("config", "strategy", "streams")
    if strategy == "synchronous":
        at_once = 1.0
    return Benchmark(
        endpoint=endpoint,
        tool="GuideLLM",
        version=record.text("metadata", "guidellm_version"),
        model=one.text("config", "backend", "model"),
        day=_day_of(one.number("start_time")),
        at_once=at_once,
        per_s=one.number("config", "strategy", "rate"),
        completed=completed,
        failed=_count(one, "metrics", "request_totals", "errored"),
        prompt_tokens=one.number("metrics", "prompt_token_count", "successful", "mean"),
        output_tokens=one.number("metrics", "output_token_count", "successful", "mean"),
        figures=_figures(figures, completed),
    )


_READERS: tuple[tuple[tuple[str, ...], Callable[[_Record, str], list[Benchmark]]], ...] = (
    (("aiperf_version", "input_config"), _aiperf),
    (("benchmarks", "metadata"), _guidellm),
    (("total_output_tokens_retokenized", "median_ttft_ms"), _sglang),
    (("tokenizer_id", "median_ttft_ms"), _vllm),
)
"""What a tool's file cannot lack, and who reads it."""


def _day(text: str) -> str:
    digits = text[:10].replace("-", "")[:8]
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:]}" if len(digits) == 8 and digits.isdigit() else ""


def _day_of(moment: float | None) -> str:
    try:
        return "" if moment is None else datetime.fromtimestamp(moment, UTC).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return ""


def unlike(left: Benchmark, right: Benchmark) -> str:
    """Return why two measurements cannot stand side by side, ``""`` where they can."""
    if left.tool != right.tool:
        return f"measured by {left.tool} and by {right.tool}, which do not define their figures alike"
    if (left.at_once, left.per_s) != (right.at_once, right.per_s):
        return f"under other loads: {left.load} and {right.load}"
    for one in (left, right):
        if not one.completed:
            return f"no request was completed on {one.endpoint}"
        if one.failed and one.failed > _FAILED * (one.failed + one.completed):
            return f"{one.failed:,} of {one.failed + one.completed:,} requests failed on {one.endpoint}"
    for words, mine, theirs, margin in (
        ("prompts", left.prompt_tokens, right.prompt_tokens, _PROMPTS_ALIKE),
        ("answers", left.output_tokens, right.output_tokens, _ANSWERS_ALIKE),
    ):
        if mine is None or theirs is None:
            return f"the length of the {words} is not known on both sides"
        if abs(mine - theirs) > margin * max(mine, theirs):
            return f"{words} of other lengths: {mine:.4g} and {theirs:.4g} tokens on average"
    return ""
