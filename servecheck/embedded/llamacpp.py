"""A llama.cpp server in a process of its own, that never outlives its caller; it holds one model on the CPU."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal
from urllib.parse import urlsplit

from servecheck.embedded.llamacpp_server import NO_ENGINE
from servecheck.errors import EngineError

__all__ = ["ALIAS", "Config", "Engine", "start"]

ALIAS = "smollm2-135m"
"""The name under which every embedded engine serves its model."""

_TAIL_BYTES = 16_384
_GRACE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How one engine is set up. ``ctx`` is in tokens per slot; a slot serves one request at a time.

    ``chat_template`` is the text of a Jinja template, ``None`` for the one inside the model file. ``api_key`` is handed
    over on a pipe and never appears in the process list.
    """

    name: str
    model: Path
    chat_template: str | None = None
    kv_cache: Literal["f16", "q8_0", "q4_0"] = "f16"
    slots: int = 1
    ctx: int = 4096
    embeddings: bool = False
    api_key: str | None = field(default=None, repr=False)
    metrics: bool = True
    props: bool = True
    slots_route: bool = True


class Engine:
    """A running engine; made by :func:`start`."""

    def __init__(self, config: Config, process: subprocess.Popen[bytes], stderr: IO[bytes]) -> None:
        self.config = config
        self.base_url = ""
        self._process = process
        self._stderr = stderr

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there; an engine that died on its own is not."""
        return self._process.poll() is None

    @property
    def log(self) -> str:
        """The last 16 kB of what the engine wrote to standard error."""
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - _TAIL_BYTES))
        return self._stderr.read().decode(errors="replace")

    def stop(self) -> None:
        """End the process and wait until it is gone; may be called again. The log can still be read."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process.wait(_GRACE_S)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            pass
        finally:  # also when a second interrupt arrives while we wait
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()


@contextmanager
def start(config: Config, *, deadline: float = 60.0) -> Iterator[Engine]:
    """Start an engine, wait up to ``deadline`` seconds until it is ready, and stop it whatever happens.

    The process ends with the ``with`` block, with any exception including ``KeyboardInterrupt``, and with this process
    even when that is killed. Raises :class:`~servecheck.errors.EngineError` with the end of the engine's log when it
    does not come up.
    """
    with tempfile.TemporaryFile(mode="a+b") as stderr:  # a pipe that nobody reads would fill up and block the engine
        engine = Engine(config, _spawn(stderr), stderr)
        try:
            _bring_up(engine, deadline)
            yield engine
        finally:
            engine.stop()


def _spawn(stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    # -P: the directory of the script is no place to import from.
    command = [sys.executable, "-P", str(Path(__file__).with_name("llamacpp_server.py"))]
    # Spinning threads are what makes this engine collapse beside other work; the policy is read when a process starts.
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    return subprocess.Popen(  # noqa: S603 (the words of the command are ours)
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,  # out of reach of an interrupt typed at the terminal: we decide when it stops
    )


def _bring_up(engine: Engine, deadline: float) -> None:
    process = engine._process  # noqa: SLF001 (one module, two halves of one thing)
    assert process.stdin is not None
    assert process.stdout is not None
    until = time.monotonic() + deadline
    expired = threading.Event()

    def give_up() -> None:
        expired.set()
        process.kill()  # makes the blocking read below end

    watchdog = threading.Timer(deadline, give_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        process.stdin.write(json.dumps(_settings(engine.config)).encode() + b"\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    except BrokenPipeError:
        answer = b""
    finally:
        watchdog.cancel()
    if not answer:
        # Not by the clock: an engine that ended by itself has a reason, however late we are scheduled to see it.
        raise _not_up(engine, deadline if expired.is_set() else None)
    engine.base_url = f"{json.loads(answer)['address']}/v1"
    while not _is_ready(engine.base_url):
        if process.poll() is not None:
            raise _not_up(engine, None)
        if time.monotonic() >= until:
            raise _not_up(engine, deadline)
        time.sleep(0.05)


def _settings(config: Config) -> dict[str, object]:
    # The kernel's "parent died" means the parent's *thread*: a worker thread that ends would take the engine with it.
    in_main_thread = threading.current_thread() is threading.main_thread()
    return {
        "parent": os.getpid() if in_main_thread else None,
        "model": str(config.model),
        "alias": ALIAS,
        "chat_template": config.chat_template,
        "kv_cache": config.kv_cache,
        "slots": config.slots,
        "ctx": config.ctx,
        "embeddings": config.embeddings,
        "api_key": config.api_key,
        "metrics": config.metrics,
        "props": config.props,
        "slots_route": config.slots_route,
        "batch_threads": min(2, _cores()),
    }


def _cores() -> int:
    # A container is often given fewer cores than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_ready(base_url: str) -> bool:
    # http.client, because it knows no proxies: the loopback is not for them.
    connection = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=5.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _not_up(engine: Engine, waited: float | None) -> EngineError:
    """Say why the engine is not there; ``waited`` is the deadline in seconds where that was the reason."""
    process, config = engine._process, engine.config  # noqa: SLF001 (one module, two halves of one thing)
    if waited is None:
        code = process.wait()
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    else:
        code, how = 0, f"was not ready after {waited:g} s"
    if code == NO_ENGINE:
        hint = "Its package is missing or does not fit this machine: pip install 'servecheck[demo]'"
    elif not config.model.is_file():
        hint = f"There is no model file {config.model}: name one with --model-file PATH"
    else:
        hint = f"Is {config.model} a whole GGUF file? Name another one with --model-file PATH"
    tail = "\n".join(f"  {line}" for line in engine.log.strip().splitlines()[-12:]) or "  (it wrote nothing)"
    return EngineError(f"the embedded engine {config.name!r} {how}; the end of its log:\n{tail}\n{hint}.")
