"""What is this server? From what it says of itself to a fingerprint, each field observed, declared or unknown.

Only reads what anyone may ask of a server (GET). A gateway in front can hide all of it; then the fields say unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from servecheck.model import Endpoint, Exchange, Fingerprint, How, Json, Known
from servecheck.probe import Session
from servecheck.read import reply
from servecheck.read.text import dig, string

__all__ = ["FIELDS", "Identity", "ask", "fits", "identify", "served_models"]

FIELDS = (
    "engine",
    "engine_version",
    "model",
    "max_model_len",
    "quantization",
    "dtype",
    "kv_cache_dtype",
    "block_size",
    "prefix_caching",
    "parallelism",
    "device",
    "tpu_stack",
    "system_fingerprint",
)
"""The fields of a fingerprint, in display order. ``device`` and ``tpu_stack`` are seldom visible on the wire."""

_ANY_KIND = frozenset({"identity", "health", "metrics", "tokenize", "auth", "lora"})
_GET_DEADLINE = 15.0
# https://github.com/vllm-project/vllm, entrypoints/serve/utils/fingerprint.py
_VLLM_FINGERPRINT = re.compile(
    r"^vllm-(?P<version>.+?)(?P<parallel>(?:-(?:tp|pp|dp)\d+)*(?:-ep)?)-(?P<hash>[0-9a-z]{8}|nohash)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A server's fingerprint, its kind (``None`` where nothing tells) and the models it lists."""

    fingerprint: Fingerprint
    kind: str | None
    models: tuple[str, ...]


async def ask(session: Session) -> dict[str, Exchange]:
    """Ask what the server says of itself. Health comes first, before anything can warm or wake the server."""
    asked = {"health": await session.get_server("health", "/health", deadline=_GET_DEADLINE)}
    asked["models"] = await session.get("models", "/models", deadline=_GET_DEADLINE)
    if all(exchange.status is None for exchange in asked.values()):
        return asked
    for step, path in (("version", "/version"), ("server_info", "/server_info"), ("props", "/props")):
        asked[step] = await session.get_server(step, path, deadline=_GET_DEADLINE)
    asked["metrics"] = await session.metrics("metrics")
    if _json(asked["server_info"]) is not None:
        asked["model_info"] = await session.get_server("model_info", "/model_info", deadline=_GET_DEADLINE)
    return asked


def served_models(exchange: Exchange) -> tuple[str, ...]:
    """Return the model ids that a ``/v1/models`` reply lists, in its order; one that is listed twice is one model."""
    entries = dig(_json(exchange), "data")
    if not isinstance(entries, list):
        return ()
    return tuple(dict.fromkeys(name for entry in entries if (name := string(dig(entry, "id")))))


def identify(endpoint: Endpoint, asked: Mapping[str, Exchange], canary: Exchange | None = None) -> Identity:
    """Read the replies to :func:`ask` (and a canary's reply, for its ``system_fingerprint``)."""
    said = {step: _json(exchange) for step, exchange in asked.items()}
    entry = _entry(said.get("models"), endpoint.model)
    print_ = string(dig(_json(canary) if canary else None, "system_fingerprint"))
    seen: dict[str, Known] = {}

    def note(name: str, value: Json, source: str) -> None:
        if name not in seen and value not in (None, "", [], {}) and not isinstance(value, dict | list):
            seen[name] = Known(value=str(value), how=How.OBSERVED, source=source)

    note("system_fingerprint", print_, "system_fingerprint of a reply")
    _engine(note, said, entry, print_, asked)
    note("model", dig(entry, "id"), "GET /v1/models")
    note("max_model_len", dig(entry, "max_model_len"), "max_model_len in GET /v1/models")
    note("max_model_len", dig(entry, "meta", "n_ctx"), "meta.n_ctx in GET /v1/models")
    info = said.get("server_info")
    for name, key in (
        ("quantization", "quantization"),
        ("dtype", "dtype"),
        ("kv_cache_dtype", "kv_cache_dtype"),
        ("device", "device"),
        ("block_size", "page_size"),
    ):
        note(name, dig(info, key), f"{key} in GET /server_info")
    if dig(info, "disable_radix_cache") is not None:
        note("prefix_caching", str(not dig(info, "disable_radix_cache")), "disable_radix_cache in GET /server_info")
    note("quantization", dig(said.get("models"), "models", 0, "details", "quantization_level"), "GET /v1/models")
    for label, name in (
        ("block_size", "block_size"),
        ("cache_dtype", "kv_cache_dtype"),
        ("enable_prefix_caching", "prefix_caching"),
    ):
        note(name, _label(asked.get("metrics"), label), f"{label} label of vllm:cache_config_info")
    declared = {
        name: Known(value=value, how=How.DECLARED, source="declared by the user")
        for name, value in endpoint.declared.items()
    }
    names = [*FIELDS, *(name for name in declared if name not in FIELDS)]
    unknown = Known(value=None, how=How.UNKNOWN)
    fields = {name: seen.get(name) or declared.get(name) or unknown for name in names}
    return Identity(
        fingerprint=Fingerprint(fields=fields),
        kind=endpoint.kind or _kind(said, asked),
        models=served_models(asked["models"]) if "models" in asked else (),
    )


def fits(feature: str, kind: str) -> tuple[bool, str]:
    """Tell whether a row applies to a kind of endpoint, and why not."""
    group = feature.partition(".")[0]
    if kind == "embedding" and group not in _ANY_KIND | {"embeddings", "rerank"}:
        return False, "this endpoint embeds and does not generate"
    if kind == "completion" and group not in _ANY_KIND | {"completions", "embeddings"}:
        return False, "this endpoint completes text and does not chat"
    return True, ""


def _json(exchange: Exchange) -> Json:
    body = reply.json_body(exchange)
    return None if isinstance(body, reply.Refusal | reply.Failure) else body


def _entry(models: Json, wanted: str | None) -> Json:
    entries = dig(models, "data")
    if not isinstance(entries, list):
        return None
    named = [entry for entry in entries if wanted is not None and dig(entry, "id") == wanted]
    return named[0] if named else next(iter(entries), None)


def _engine(note: object, said: Mapping[str, Json], entry: Json, print_: str, asked: Mapping[str, Exchange]) -> None:
    assert callable(note)
    owner = string(dig(entry, "owned_by"))
    match = _VLLM_FINGERPRINT.match(print_)
    if match:
        note("engine", "vllm", "system_fingerprint of a reply")
        note("engine_version", match["version"], "system_fingerprint of a reply")
        note("parallelism", match["parallel"].strip("-") or "none", "system_fingerprint of a reply")
    if owner in ("vllm", "sglang", "llamacpp"):
        note("engine", {"llamacpp": "llama.cpp"}.get(owner, owner), "owned_by in GET /v1/models")
    if owner == "organization-owner":
        note("engine", "ray-serve", "owned_by in GET /v1/models")
    info = said.get("server_info")
    if dig(info, "version") is not None and dig(info, "internal_states") is not None:
        note("engine", "sglang", "GET /server_info")
        note("engine_version", dig(info, "version"), "version in GET /server_info")
        sizes = [(key, dig(info, f"{key}_size")) for key in ("tp", "pp", "dp", "ep")]
        shown = "-".join(f"{key}{size}" for key, size in sizes if isinstance(size, int) and size > 1)
        note("parallelism", shown or "none", "GET /server_info")
    if dig(said.get("props"), "build_info") is not None:
        note("engine", "llama.cpp", "GET /props")
        note("engine_version", dig(said.get("props"), "build_info"), "build_info in GET /props")
    metrics = asked.get("metrics")
    text = metrics.body if metrics is not None and metrics.status == 200 else b""
    for prefix, engine in ((b"vllm:", "vllm"), (b"sglang:", "sglang"), (b"llamacpp:", "llama.cpp"), (b"tgi_", "tgi")):
        if b"\n" + prefix in text:
            note("engine", engine, f"{prefix.decode()} series in /metrics")
    note("engine_version", dig(said.get("version"), "version"), "GET /version")


def _label(metrics: Exchange | None, label: str) -> str | None:
    if metrics is None:
        return None
    line = re.search(rb"^vllm:cache_config_info\{(?P<labels>[^}]*)\}", metrics.body, re.MULTILINE)
    if line is None:
        return None
    value = re.search(rb'(?:^|,)%s="([^"]*)"' % label.encode(), line["labels"])
    return value[1].decode("utf-8", "replace") if value else None


def _kind(said: Mapping[str, Json], asked: Mapping[str, Exchange]) -> str | None:
    """Tell the kind from what the server says; SGLang says it in ``/model_info`` and dies of a chat if it embeds."""
    generates = dig(said.get("model_info"), "is_generation")
    if generates is False:
        return "embedding"
    if generates is True:
        return "chat"
    return None if not asked else "chat"
