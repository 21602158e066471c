"""The signs by which an engine, and a gateway before it, give themselves away: one table, one question per sign.

Each sign can be forged or rewritten on the way, so none decides alone; :mod:`servecheck.identify` weighs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from servecheck.model import Exchange, Json
from servecheck.read.text import dig, number, string

__all__ = ["ENGINE_SIGNS", "GATEWAY_SIGNS", "PROXIES", "Replies", "Sign", "told", "vllm_fingerprint"]

_STRONG, _WEAK = 2, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """What a server said of itself: the exchanges by step, their JSON (``None`` where there is none), the canary's."""

    asked: Mapping[str, Exchange]
    said: Mapping[str, Json]
    entry: Json = None
    canary: Exchange | None = None
    system_fingerprint: str = ""

    @property
    def metrics_text(self) -> bytes:
        """The text of the metrics, empty where there are none."""
        found = self.asked.get("metrics")
        return found.body if found is not None and found.status == 200 else b""

    @property
    def paths(self) -> frozenset[str]:
        """The paths that ``/openapi.json`` lists."""
        paths = dig(self.said.get("openapi"), "paths")
        return frozenset(paths) if isinstance(paths, dict) else frozenset()

    @property
    def settings(self) -> Json:
        """The settings that SGLang or SGL-JAX shows, under its new or its old path."""
        return self.said.get("server_info") or self.said.get("get_server_info")

    def header(self, start: str) -> str | None:
        """Return the value of the first response header whose name begins with ``start``, in lower case."""
        every = [*self.asked.values(), *([self.canary] if self.canary is not None else [])]
        return next((v for one in every for name, v in one.response_headers if name.lower().startswith(start)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One place to look: ``tells`` returns the name of the engine or gateway that it points to, or nothing."""

    source: str
    tells: Callable[[Replies], str]
    weight: int = _STRONG


# https://github.com/vllm-project/vllm, vllm/entrypoints/serve/utils/fingerprint.py
_VLLM_FINGERPRINT = re.compile(
    r"^vllm-(?P<version>.+?)(?P<parallel>(?:-(?:tp|pp|dp)\d+)*(?:-ep)?)-(?P<hash>[0-9a-z]{8}|nohash)$"
)
_FINGERPRINTS = (
    (re.compile(r"^b\d+-"), "llama.cpp"),
    (re.compile(r"^\d+\.\d+\.\d+\S*-(?:sha-[0-9a-f]+|native|dev)"), "tgi"),
)
_SERIES = (
    (re.compile(rb"^(?:ray_)?vllm[:_]", re.MULTILINE), "vllm"),
    (re.compile(rb"^sglang[:_]", re.MULTILINE), "sglang"),
    (re.compile(rb"^llamacpp[:_]", re.MULTILINE), "llama.cpp"),
    (re.compile(rb"^tgi_", re.MULTILINE), "tgi"),
)
_OWNERS = MappingProxyType({"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp", "dasllama": "dasllama"})
# Paths that no other engine known to us has; all of a set must be there.
_PATHS = (
    (frozenset({"/kv_event_sources", "/v1/chat/completions/batch"}), "vllm"),
    (frozenset({"/flush_cache", "/parse_function_call"}), "sglang"),
    (frozenset({"/load_model", "/reset"}), "transformers"),
    (frozenset({"/generate_stream", "/info"}), "tgi"),
)
_JAX_SETTINGS = ("precompile_token_paddings", "precompile_bs_paddings", "disable_precompile")
_DASLLAMA_EPOCH = range(1_751_200_000, 1_751_300_000)  # its `created` counts replies from here instead of seconds


def vllm_fingerprint(text: str) -> re.Match[str] | None:
    """Match vLLM's ``system_fingerprint``: groups ``version``, ``parallel`` (``-tp8-pp2`` or empty) and ``hash``."""
    return _VLLM_FINGERPRINT.match(text)


def _sglang(replies: Replies) -> str:
    """Return which of the two SGLangs it is: only the one on JAX has settings for ahead-of-time compilation."""
    settings = replies.settings
    jax = isinstance(settings, dict) and any(name in settings for name in _JAX_SETTINGS)
    return "sgl-jax" if jax else "sglang"


def _settings(replies: Replies) -> str:
    info = replies.said.get("server_info")
    if dig(info, "vllm_config") is not None:
        return "vllm"
    return _sglang(replies) if dig(info, "version") is not None and dig(info, "internal_states") is not None else ""


def _in_process(replies: Replies) -> str:
    return "transformers" if dig(replies.said.get("server_info"), "engine") == "transformers" else ""


def _old_settings(replies: Replies) -> str:
    info = replies.said.get("get_server_info")
    return _sglang(replies) if isinstance(info, dict) and dig(info, "version") is not None else ""


def _fingerprint(replies: Replies) -> str:
    if vllm_fingerprint(replies.system_fingerprint):
        return "vllm"
    return next((engine for pattern, engine in _FINGERPRINTS if pattern.match(replies.system_fingerprint)), "")


def _metrics(replies: Replies) -> str:
    text = replies.metrics_text
    return next((engine for pattern, engine in _SERIES if pattern.search(text)), "")


def _owner(replies: Replies) -> str:
    engine = _OWNERS.get(string(dig(replies.entry, "owned_by")), "")
    return _sglang(replies) if engine == "sglang" else engine


def _listed(replies: Replies) -> str:
    engine = next((engine for needed, engine in _PATHS if needed <= replies.paths), "")
    return _sglang(replies) if engine == "sglang" else engine


def _tgi_info(replies: Replies) -> str:
    info = replies.said.get("info")
    return "tgi" if string(dig(info, "model_id")) and dig(info, "docker_label") is not None else ""


def _props(replies: Replies) -> str:
    return "llama.cpp" if dig(replies.said.get("props"), "build_info") is not None else ""


def _stats(replies: Replies) -> str:
    return "dasllama" if isinstance(replies.said.get("stats"), dict) else ""


def _stats_of_models(replies: Replies) -> str:
    return "dasllama" if dig(replies.said.get("stats"), "models", 0, "backend_effective") is not None else ""


def _counted_time(replies: Replies) -> str:
    bodies = (replies.entry, replies.said.get("canary"))
    return "dasllama" if any(number(dig(body, "created")) in _DASLLAMA_EPOCH for body in bodies) else ""


def _server_header(replies: Replies) -> str:
    return "llama.cpp" if (replies.header("server") or "").lower().startswith("llama.cpp") else ""


def _passed_on_server_header(replies: Replies) -> str:
    # LiteLLM passes the headers of the server behind it on, under this prefix.
    return "llama.cpp" if (replies.header("llm_provider-server") or "").lower().startswith("llama.cpp") else ""


def _timings(replies: Replies) -> str:
    timings = dig(replies.said.get("canary"), "timings")
    return (
        "llama.cpp" if isinstance(timings, dict) and {"predicted_n", "predicted_ms", "cache_n"} <= set(timings) else ""
    )


def _reply_is_named_by_request(replies: Replies) -> str:
    name = string(dig(replies.said.get("canary"), "id"))
    given = replies.canary.header("x-request-id") if replies.canary is not None else None
    return "transformers" if name and name == given else ""


def _undated_model_with_status(replies: Replies) -> str:
    loaded = string(dig(replies.entry, "status", "value")) in ("loaded", "unloaded")
    return "transformers" if loaded and number(dig(replies.entry, "created")) == 0 else ""


def _version(replies: Replies) -> str:
    body = replies.said.get("version")
    return (
        "vllm" if isinstance(body, dict) and list(body) == ["version"] and string(body["version"])[:1].isdigit() else ""
    )


ENGINE_SIGNS = (
    Sign(source="GET /server_info", tells=_settings),
    Sign(source="engine in GET /server_info", tells=_in_process),
    Sign(source="GET /get_server_info", tells=_old_settings),
    Sign(source="build_info in GET /props", tells=_props),
    Sign(source="GET /info", tells=_tgi_info),
    Sign(source="system_fingerprint of a reply", tells=_fingerprint),
    Sign(source="the names of series in the metrics", tells=_metrics),
    Sign(source="the paths in GET /openapi.json", tells=_listed),
    Sign(source="owned_by in GET /v1/models", tells=_owner, weight=_WEAK),
    Sign(source="GET /version", tells=_version, weight=_WEAK),
    Sign(source="the Server header", tells=_server_header, weight=_WEAK),
    Sign(source="the llm_provider-server header", tells=_passed_on_server_header, weight=_WEAK),
    Sign(source="the timings of a reply", tells=_timings, weight=_WEAK),
    Sign(source="models in GET /v1/stats", tells=_stats_of_models),
    Sign(source="GET /v1/stats", tells=_stats, weight=_WEAK),
    Sign(source="“created” 0 and a status in GET /v1/models", tells=_undated_model_with_status, weight=_WEAK),
    Sign(source="a reply whose id is its x-request-id", tells=_reply_is_named_by_request, weight=_WEAK),
    Sign(source="“created”, which counts replies instead of seconds", tells=_counted_time, weight=_WEAK),
)
"""Where engines show, strongest first: what only the engine writes before what a gateway or a proxy rewrites."""


def _litellm_header(replies: Replies) -> str:
    return "litellm" if replies.header("x-litellm-") is not None else ""


def _litellm_title(replies: Replies) -> str:
    return "litellm" if "litellm" in string(dig(replies.said.get("openapi"), "info", "title")).lower() else ""


def _litellm_models(replies: Replies) -> str:
    return "litellm" if dig(replies.said.get("litellm"), "data", 0, "litellm_params") is not None else ""


def _ray_owner(replies: Replies) -> str:
    return "ray-serve" if string(dig(replies.entry, "owned_by")) == "organization-owner" else ""


def _ray_metrics(replies: Replies) -> str:
    return "ray-serve" if re.search(rb"^ray_(?:vllm|serve)_", replies.metrics_text, re.MULTILINE) else ""


def _llm_d(replies: Replies) -> str:
    epp = re.search(rb"^llm_d_epp_", replies.metrics_text, re.MULTILINE)
    return "llm-d" if epp or replies.header("x-llm-d-") is not None else ""


def _picker(replies: Replies) -> str:
    # A debugging mark of the endpoint picker that llm-d and other inference gateways on Kubernetes share.
    marked = any(replies.header(name) for name in ("x-went-into-resp-headers", "x-gateway-destination-endpoint"))
    return "inference-gateway" if marked and not _llm_d(replies) else ""


def _proxy(replies: Replies) -> str:
    server = (replies.header("server") or "").lower()
    return next((name for name in PROXIES if name in server), "")


PROXIES = ("nginx", "envoy", "cloudflare")
"""Gateways that pass on what an engine says of itself, and serve no model by their own name."""

GATEWAY_SIGNS = (
    Sign(source="x-litellm-… headers", tells=_litellm_header),
    Sign(source="GET /v1/model/info", tells=_litellm_models),
    Sign(source="the title of GET /openapi.json", tells=_litellm_title),
    Sign(source="x-llm-d-… headers or series", tells=_llm_d),
    Sign(source="headers of an endpoint picker", tells=_picker),
    Sign(source="ray_… series in the metrics", tells=_ray_metrics),
    Sign(source="owned_by in GET /v1/models", tells=_ray_owner, weight=_WEAK),
    Sign(source="the Server header", tells=_proxy, weight=_WEAK),
)
"""Where gateways show. A gateway may stand before any engine, and there may be one that nothing shows."""


def told(signs: tuple[Sign, ...], replies: Replies) -> Iterator[tuple[str, Sign]]:
    """Yield what every sign that says anything says, in the table's order."""
    for sign in signs:
        name = sign.tells(replies)
        if name:
            yield name, sign
