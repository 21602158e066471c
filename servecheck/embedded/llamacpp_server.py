"""The child process that is the embedded engine: llama.cpp's own HTTP server, as long as standard input stays open.

It is run as a file, not as a module, and imports nothing of servecheck, so what it serves cannot depend on the caller.
The protocol: one line of JSON (the settings) on standard input, one line of JSON (the address) on standard output, logs
on standard error. The end of standard input is the order to stop, and that is also what a dead parent looks like.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from typing import Any

NO_ENGINE = 3
"""Exit code when the engine's package cannot be imported."""

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def main() -> int:
    """Serve until standard input ends; return an exit code only when the engine did not come up."""
    # The parent decides when to stop; an interrupt typed at the terminal is its business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = json.loads(sys.stdin.buffer.readline() or b"null")
    if settings is None:
        return 0
    if settings["parent"] is not None:
        _die_with(settings["parent"])
    watcher = threading.Thread(target=_leave_at_end_of_input, daemon=True)
    watcher.start()
    # Native code may print to file descriptor 1, and only the address may appear there.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        import xllamacpp  # noqa: PLC0415 (the parent must be told when it is missing)
    except ImportError as trouble:
        sys.stderr.write(f"{type(trouble).__name__}: {trouble}\n")
        return NO_ENGINE
    try:
        server = xllamacpp.Server(_params(xllamacpp, settings))
    except RuntimeError as trouble:  # the engine has logged why
        sys.stderr.write(f"{trouble}\n")
        return 1
    answer.write(json.dumps({"address": server.listening_address}) + "\n")
    answer.flush()
    watcher.join()
    return 0


def _die_with(parent: int) -> None:
    """Ask the kernel for a kill when the parent goes; the end of standard input says the same where it cannot."""
    if not sys.platform.startswith("linux"):
        return
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.stderr.write(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}\n")
    if os.getppid() != parent:  # it went before we asked
        os._exit(0)


def _leave_at_end_of_input() -> None:
    # Not through sys.stdin: a thread that holds its lock makes the interpreter abort when it ends by itself.
    while os.read(0, 4096):
        pass
    # Nothing here is worth saving, and the engine's own orderly end takes over a second.
    os._exit(0)


def _params(xllamacpp: Any, settings: dict[str, Any]) -> Any:  # noqa: ANN401 (a native module without types)
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = settings["slots"]
    params.n_ctx = settings["slots"] * settings["ctx"]
    params.kv_unified = False
    # Measured on two cores: one decode thread keeps 30-85 tokens/s beside two busy processes, two keep 15-75 and
    # OpenMP's spinning default 4-15.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = settings["batch_threads"]
    params.cache_ram_mib = 64  # the default is 8192 MiB, and it fills
    params.cache_type_k = params.cache_type_v = getattr(
        xllamacpp.ggml_type, f"GGML_TYPE_{settings['kv_cache'].upper()}"
    )
    params.endpoint_metrics = settings["metrics"]
    params.endpoint_props = settings["props"]
    params.endpoint_slots = settings["slots_route"]
    params.use_jinja = True
    params.ui = False
    params.offline = True
    if settings["chat_template"] is not None:
        params.chat_template = settings["chat_template"]
    if settings["api_key"] is not None:
        params.api_keys = [settings["api_key"]]
    if settings["embeddings"]:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return params


if __name__ == "__main__":
    sys.exit(main())
