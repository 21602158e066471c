"""Serves the embedded llama.cpp until it is told to stop, and writes a LiteLLM configuration that points to it.

    python embedded.py CONFIG.yaml [TEMPLATE.jinja]

The configuration is what the proxy script waits for: it appears, whole, when the engine is ready.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

from servecheck.embedded.llamacpp import ALIAS, start
from servecheck.embedded.pair import demo_pair
from servecheck.embedded.weights import fetch

_STOP = (signal.SIGTERM, signal.SIGINT)
target = Path(sys.argv[1])
config, _ = demo_pair(fetch())
if len(sys.argv) > 2:
    config = replace(config, chat_template=Path(sys.argv[2]).read_text(encoding="utf-8"))
with start(config) as engine:
    # Blocked from here on, so that the order to stop is waited for; before, it simply ends this process and its engine.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    parameters = {"model": f"openai/{ALIAS}", "api_base": engine.base_url, "api_key": "none"}
    beside = target.with_name(target.name + ".part")
    beside.write_text(json.dumps({"model_list": [{"model_name": ALIAS, "litellm_params": parameters}]}))  # JSON is YAML
    beside.replace(target)
    signal.sigwait(_STOP)
target.unlink(missing_ok=True)
