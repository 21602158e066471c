"""Compilations counted from servers' logs; the lines are our own, in the formats of the engines."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator

import pytest

from servecheck.errors import UsageError
from servecheck.serverlog import KINDS, ServerLog, read, read_lines

_VLLM = "INFO 11-30 17:50:{second:02} [{place}:101] {text}"
_CORE = "(EngineCore_DP0 pid=4021) "
_READY = "INFO:     Application startup complete."


def vllm(text: str, second: int = 0, place: str = "compilation_manager.py", *, core: bool = True) -> str:
    return _CORE * core + _VLLM.format(second=second, place=place, text=text)


def sglang(text: str) -> str:
    return f"[2026-11-30 17:50:01 TP0] {text}"


def found(*lines: str) -> ServerLog:
    return read_lines(lines)


def serving(log: ServerLog) -> dict[str, int]:
    return {each.what: each.count for each in log.serving.subjects.values()}


@pytest.mark.parametrize(
    ("stack", "what", "count", "seconds", "line"),
    [
        (
            "vLLM on TPU (tpu-inference)",
            "worker0 backbone",
            1,
            12.34,
            vllm("Compilation of worker0 backbone finished in 12.34 [secs]."),
        ),
        (
            "vLLM on TPU (tpu-inference)",
            "a compilation was needed after warm-up and was forbidden, so the engine failed",
            1,
            None,
            _CORE + "RuntimeError: JAX compilation occurred but was forbidden in this context.",
        ),
        (
            "vLLM on TPU (TorchTPU)",
            "backbone with 96 tokens",
            3,
            None,
            vllm("Total number of cached graphs: 40, new: 3, case: backbone with 96 tokens", place="tpu_runner.py"),
        ),
        (
            "vLLM on TPU (TorchTPU)",
            "execute_model",
            1,
            None,
            _CORE + "AssertionError: Recompilation after warm up is detected during execute_model.",
        ),
        ("vLLM on TPU (TorchTPU)", "STATIC MISS", 1, None, "[TtPerf] Compilation cache STATIC MISS #17 key=0x3f"),
        ("vLLM on TPU (TorchTPU)", "MISS", 1, None, "[TtPerf] Compilation cache MISS #18 key=0x3f"),
        (
            "SGL-JAX",
            "Prefill",
            2,
            None,
            sglang("Prefill batch. #new-seq: 1, #new-token: 96, #cached-token: 0, #queue-req: 0, #cache_miss: 2"),
        ),
        (
            "vLLM",
            "Triton kernel fused_moe_kernel was compiled in inference (2.1 s)",
            1,
            None,
            (
                "WARNING 11-30 17:50:07 [jit_monitor.py:80] Triton kernel fused_moe_kernel was compiled in inference "
                "(2.1 s). This causes a latency spike; consider extending warmup to cover this shape/config."
            ),
        ),
        ("torch.compile", "torch.compile", 1, 31.5, vllm("torch.compile takes 31.50 s in total", place="monitor.py")),
        (
            "torch.compile",
            "Compiling a graph for compile range (1, 8192)",
            1,
            4.0,
            vllm("Compiling a graph for compile range (1, 8192) takes 4.00 s", place="backends.py"),
        ),
        (
            "torch.compile",
            "forward",
            1,
            None,
            (
                "V1130 17:50:01.1 77 torch/_dynamo/guards.py:30] [0/1] [__recompiles] Recompiling function forward in "
                "/srv/model.py:12"
            ),
        ),
        ("JAX", "jit(step)", 1, 1.5, "Finished XLA compilation of jit(step) in 1.500 sec"),
    ],
)
def test_each_kind_of_line_is_counted_with_what_and_how_long(stack, what, count, seconds, line):
    log = found(_READY, line)
    assert serving(log) == {what: count}
    assert log.stacks[stack] >= 1
    assert log.serving.seconds == seconds
    assert log.starting.count == 0


def test_every_kind_is_tried_above():
    lines = [str(mark.args[1]) for mark in test_each_kind_of_line_is_counted_with_what_and_how_long.pytestmark]
    assert [kind.id for kind in KINDS if not any(kind.hint in text for text in lines)] == []


def test_warm_up_and_traffic_are_told_apart_also_after_a_restart():
    compiled = vllm("Compilation of backbone finished in 10.00 [secs].")
    log = found(
        vllm("vLLM API server version 0.32.0", place="api_server.py", core=False),
        compiled,
        compiled,
        _READY,
        compiled,
        vllm("vLLM API server version 0.32.0", place="api_server.py", core=False),
        compiled,
        _READY,
    )
    assert (log.starting.count, log.serving.count, log.ready_lines) == (3, 1, [4, 8])
    assert log.serving.seconds == 10.0
    (only,) = log.serving.subjects.values()
    assert (only.first_line, only.last_line) == (5, 5)


def test_without_a_ready_line_nothing_is_called_traffic():
    log = found(vllm("Compilation of backbone finished in 10.00 [secs]."))
    assert log.serving.count == 0
    assert log.as_json()["serving"] is None
    assert "cannot be told from traffic" in log.told()


def test_batches_of_sgl_jax_without_a_miss_are_the_share_of_those_with_one():
    decode = "Decode batch. #running-req: 1, #token: 33, token usage: 0.0, #queue-req: 0, #cache_miss: {}"
    log = found(sglang("The server is fired up and ready to roll!"), *(sglang(decode.format(n)) for n in (0, 1, 0, 0)))
    assert (log.batches, log.missed, serving(log)) == (4, 1, {"Decode": 1})
    assert "1 of 4 batches while serving (25 %)" in log.told()


def test_colours_do_not_hide_a_line():
    log = found(_READY, "\x1b[36m" + _CORE + "\x1b[0m" + vllm("Compilation of \x1b[1mx\x1b[0m finished in 1.0 [secs]"))
    assert serving(log) == {"x": 1}


def test_times_are_those_of_the_first_and_last_line_that_has_one():
    log = found(vllm("a", 3), "no time here", vllm("b", 59))
    assert (log.first_time, log.last_time) == ("11-30 17:50:03", "11-30 17:50:59")


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        ("VLLM_XLA_CHECK_RECOMPILATION=1", vllm("Starting vLLM", place="api_server.py")),
        ("SGL-JAX writes #cache_miss", sglang("Load weight begin.")),
    ],
)
def test_silence_is_not_called_proof(expected, line):
    said = found(line, _READY).told()
    assert "while serving: 0 compilations" in said
    assert "none written is not none made" in said
    assert expected in said


def test_an_unknown_format_is_said_plainly():
    log = found("2026/11/30 nginx: worker started", "compilation is a word too, and no more than that")
    assert not log.known
    assert "no line is of a format known here (vLLM on TPU (tpu-inference)" in log.told()


def test_a_log_is_read_from_a_file_plain_or_packed(tmp_path):
    text = f"{_READY}\n{vllm('Compilation of x finished in 2.0 [secs].')}\n".encode() + b"\xff\xfe not text\n"
    plain, packed = tmp_path / "log", tmp_path / "log.gz"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    for path in (plain, packed):
        log = read(path)
        assert (log.lines, serving(log), log.name) == (3, {"x": 1}, str(path))
        assert json.loads(json.dumps(log.as_json()))["serving"]["seconds"] == 2.0


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path):
    with pytest.raises(UsageError, match="nowhere: cannot be read: No such file or directory"):
        read(tmp_path / "nowhere")
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b"x" * 100_000)[:60])
    with pytest.raises(UsageError, match=r"cut\.gz: cannot be read: "):
        read(cut)


def test_a_line_without_end_and_ever_new_subjects_fill_no_memory(tmp_path):
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(f"{_READY}\n".encode())
        for _ in range(40):
            file.write(b"#cache_miss " * 100_000)
        file.write(b"\n")
    tracemalloc.start()
    log = read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert log.lines == 2
    assert peak < 2_000_000, "a line of 48 MB was held"

    def lines() -> Iterator[str]:
        yield _READY
        for number in range(3_000):
            yield f"Finished XLA compilation of jit(step_{number}) in 0.5 sec"

    many = read_lines(lines())
    assert many.serving.count == 3_000
    assert len(many.serving.subjects) <= 1_001
    assert serving(many)["others"] == 2_000
