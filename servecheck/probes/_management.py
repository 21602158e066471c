"""Knows by its name whether a path manages a server, so that none is ever called; what a path does is not known."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

__all__ = ["is_dangerous", "must_not_be_sent"]

_DANGEROUS = re.compile(
    r"(?:^|/)(?:"
    r"flush_cache|reset_(?:prefix|mm|encoder)_cache|release_\w+|resume_\w+|"
    r"sleep|wake_?up|pause\w*|resume|continue_generation|abort_requests?|"
    r"(?:init_|destroy_)?weights?_\w+|update_weights\w*|update_weight_\w+|reload\w*|load_model|reset|"
    r"(?:un)?load_lora_adapter\w*|collective_rpc|scale_elastic_ep|fault_tolerance|"
    r"(?:start|stop)_profile|slow_down|set_internal_state|configure_logging|pd_role_switch|hicache|"
    r"shutdown|restart|stop|kill"
    r")(?:$|/)"
)
# What is in nobody's list of routes to warn of, and still no business of a check: sessions, recorders, key stores and
# model lists of gateways, and what the embedded engines keep behind plain words.
_CHANGING = re.compile(
    r"(?:^|/)(?:"
    r"(?:clear|flush|reset|set|dump|start|stop|open|close|init|destroy|update|load|unload|attach|detach)_\w+|"
    r"flushall|cache|slots|props|lora_adapters|models/(?:load|unload)|"
    r"(?:key|user|team|model|config|credentials|budget|organization)/\w+|"
    r"admin|internal|debug"
    r")(?:$|/)"
)


def is_dangerous(path: str) -> bool:
    """Tell whether a path manages the server: by its name, since it is never called."""
    return _DANGEROUS.search(path) is not None


def must_not_be_sent(method: str, path: str) -> bool:
    """Tell whether a request may change a server for others, however its path is spelled; reading is let through."""
    plain = unquote(urlsplit("http://server" + path).path).lower().replace("-", "_")
    return is_dangerous(plain) or (method != "GET" and _CHANGING.search(plain) is not None)
