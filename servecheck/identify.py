"""What is this server? From what it says of itself to a fingerprint, each field observed, declared or unknown.

Only reads what anyone may ask of a server (GET). A gateway in front can hide all of it; then the fields say unknown.
Signs that contradict each other are all shown: the heaviest gives the value, the others stand in its source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from servecheck.fields import FIELDS
from servecheck.model import Endpoint, Exchange, Fingerprint, How, Json, Known
from servecheck.probe import Session
from servecheck.read import reply
from servecheck.read.text import dig, string
from servecheck.signs import ENGINE_SIGNS, GATEWAY_SIGNS, PROXIES, Replies, Sign, told, vllm_fingerprint

__all__ = ["FIELDS", "Identity", "ask", "fits", "identify", "precision_in_name", "served_models"]

_ANY_KIND = frozenset({"identity", "health", "metrics", "tokenize", "auth", "lora", "own"})
_ANY_KIND_ROWS = frozenset({"identity.models", "quantization.identity", "auth.admin_exposed"})
_GROUPS_OF_KIND = {
    "embedding": (_ANY_KIND | {"embeddings", "rerank"}, "embeds and does not generate"),
    "completion": (_ANY_KIND | {"completions", "embeddings"}, "completes text and does not chat"),
    "rerank": (frozenset({"identity", "health", "metrics", "tokenize", "rerank"}), "ranks and does not generate"),
    "transcription": (frozenset({"audio"}), "transcribes and does not generate text"),
    "image": (frozenset({"images"}), "paints and does not generate text"),
}
_ROUTES = (
    ("/v1/chat/completions", "chat"),
    ("/v1/completions", "completion"),
    ("/v1/embeddings", "embedding"),
    ("/v1/rerank", "rerank"),
    ("/rerank", "rerank"),
    ("/v1/audio/transcriptions", "transcription"),
    ("/v1/images/generations", "image"),
)
_LITELLM_MODES = {
    "chat": "chat",
    "completion": "completion",
    "embedding": "embedding",
    "rerank": "rerank",
    "audio_transcription": "transcription",
    "image_generation": "image",
}
_GET_DEADLINE = 15.0
_MOST_MODELS = 64  # of a list that a server may make as long as it likes
_FIRST = (
    ("version", "/version"),
    ("server_info", "/server_info?config_format=json"),  # the query is vLLM's; SGLang ignores it
    ("model_info", "/model_info"),
    ("props", "/props"),
    ("openapi", "/openapi.json"),
)
_SECOND = (
    ("get_server_info", "/get_server_info"),
    ("get_model_info", "/get_model_info"),
    ("info", "/info"),
    ("stats", "/v1/stats"),
    ("litellm", "/v1/model/info"),
)
# Written into names by whoever published the weights: a hint, since engines may re-quantize what they load.
_PRECISION = re.compile(
    r"(?<![a-z0-9])(fp8|nvfp4|mxfp4|fp4|bf16|fp16|int8|int4|w8a8|w8a16|w4a16|w4a8|awq|gptq(?:[-_]int[48])?|bnb|"
    r"bitsandbytes|gguf|q[2-8]_(?:[0-9]|k(?:_[sml])?)|iq[1-4]_[a-z]+)(?![a-z0-9])",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A server's fingerprint, its kind (``None`` where nothing tells) and the models it lists."""

    fingerprint: Fingerprint
    kind: str | None
    models: tuple[str, ...]


async def ask(session: Session) -> dict[str, Exchange]:
    """Ask what the server says of itself. Health comes first, before anything can warm or wake the server.

    The paths of less common servers are asked only where the common ones left the engine open, or the kind: a chat
    to an SGLang server that embeds ends it, so its old path is asked too.
    """
    asked = {"health": await session.get_server("health", "/health", deadline=_GET_DEADLINE)}
    asked["models"] = await session.get("models", "/models", deadline=_GET_DEADLINE)
    if all(exchange.status is None for exchange in asked.values()):
        return asked
    for step, path in _FIRST:
        asked[step] = await session.get_server(step, path, deadline=_GET_DEADLINE)
    asked["metrics"] = await session.metrics("metrics")
    replies = _read(session.endpoint, asked, None)
    engines = {engine for engine, _ in told(ENGINE_SIGNS, replies)}
    open_ = engines <= {"sglang", "sgl-jax"} and _json(asked["model_info"]) is None
    for step, path in _SECOND:
        # dasLLAMA shows its limits there and nowhere else.
        if open_ or (step == "stats" and "dasllama" in engines):
            asked[step] = await session.get_server(step, path, deadline=_GET_DEADLINE)
    return asked


def served_models(exchange: Exchange) -> tuple[str, ...]:
    """Return the model ids that a ``/v1/models`` reply lists, in its order; one that is listed twice is one model.

    LoRA adapters, which name another listed id as their parent, are no models of their own.
    """
    entries = dig(_json(exchange), "data")
    if not isinstance(entries, list):
        return ()
    parents = {name: string(dig(entry, "parent")) for entry in entries if (name := string(dig(entry, "id")))}
    return tuple(name for name, parent in parents.items() if parent == name or parent not in parents)


def identify(endpoint: Endpoint, asked: Mapping[str, Exchange], canary: Exchange | None = None) -> Identity:
    """Read the replies to :func:`ask` (and a canary's reply, for its ``system_fingerprint``)."""
    replies = _read(endpoint, asked, canary)
    engine = _weighed(ENGINE_SIGNS, replies)
    gateway = _weighed(GATEWAY_SIGNS, replies)
    claims = _Claims()
    for name, value, source in (*_versions(replies, engine.value), *_settings(replies), *_others(replies)):
        claims.add(name, value, source)
    seen = {name: claims.known(name) for name in claims.made}
    seen |= {name: known for name, known in (("engine", engine), ("gateway", gateway)) if known.value is not None}
    declared = {
        name: Known(value=value, how=How.DECLARED, source="declared by the user")
        for name, value in endpoint.declared.items()
    }
    # A gateway is what answers here, which is less than the user may know of the engine behind it.
    behind = {"engine": gateway} if gateway.value is not None and gateway.value not in PROXIES else {}
    named = {"quantization": _named_precision(replies)}
    unknown = Known(value=None, how=How.UNKNOWN)
    fields = {}
    for name in dict.fromkeys((*FIELDS, *seen, *declared)):
        known = seen.get(name) or declared.get(name) or behind.get(name) or named.get(name) or unknown
        fields[name] = _against(known, declared.get(name))
    return Identity(
        fingerprint=Fingerprint(fields=fields),
        kind=endpoint.kind or _kind(replies, endpoint.model),
        models=served_models(asked["models"]) if "models" in asked else (),
    )


def fits(feature: str, kind: str) -> tuple[bool, str]:
    """Tell whether a row applies to a kind of endpoint, and why not."""
    group = feature.partition(".")[0]
    if feature in _ANY_KIND_ROWS:
        return True, ""
    groups, why = _GROUPS_OF_KIND.get(kind, (None, ""))
    return (True, "") if groups is None or group in groups else (False, f"this endpoint is of another kind: it {why}")


def precision_in_name(name: str) -> str:
    """Return the precision that a model's name speaks of, as it is written there; empty where it speaks of none."""
    found = _PRECISION.search(name)
    return found[1] if found else ""


# --------------------------------------------------------------------------- weighing


@dataclass(slots=True)
class _Claims:
    """What was said of each field, by value, with all that say it."""

    made: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def add(self, name: str, value: Json, source: str) -> None:
        if value not in (None, "", [], {}) and not isinstance(value, dict | list):
            sources = self.made.setdefault(name, {}).setdefault(str(value), [])
            if source not in sources:
                sources.append(source)

    def known(self, name: str) -> Known:
        """Return the value that was said first, with whatever contradicts it."""
        (value, sources), *others = self.made[name].items()
        return Known(value=value, how=How.OBSERVED, source=_with_others(", ".join(sources), others))


def _with_others(source: str, others: list[tuple[str, list[str]]]) -> str:
    return source + "".join(f"; but {value} by {', '.join(sources)}" for value, sources in others)


def _weighed(signs: tuple[Sign, ...], replies: Replies) -> Known:
    """Return the name with the heaviest signs, between equals the one with the stronger first sign."""
    found: dict[str, list[Sign]] = {}
    for name, sign in told(signs, replies):
        found.setdefault(name, []).append(sign)
    ordered = sorted(found.items(), key=lambda item: -sum(sign.weight for sign in item[1]))
    if not ordered:
        return Known(value=None, how=How.UNKNOWN)
    (name, mine), *others = ordered
    source = ", ".join(sign.source for sign in mine)
    if len(mine) == 1 and not others:
        source += " and nothing else"
    rest = [(other, [sign.source for sign in theirs]) for other, theirs in others]
    return Known(value=name, how=How.OBSERVED, source=_with_others(source, rest))


def _against(known: Known, declared: Known | None) -> Known:
    """Show what the user declared where something else was observed."""
    if declared is None or known.how is not How.OBSERVED or known.value == declared.value:
        return known
    return Known(value=known.value, how=known.how, source=f"{known.source}; but declared as {declared.value}")


# --------------------------------------------------------------------------- reading

_Claim = tuple[str, Json, str]


def _read(endpoint: Endpoint, asked: Mapping[str, Exchange], canary: Exchange | None) -> Replies:
    said = {step: _json(exchange) for step, exchange in asked.items()}
    if canary is not None:
        said["canary"] = _json(canary)
    return Replies(
        asked=asked,
        said=said,
        entry=_entry(said.get("models"), endpoint.model),
        canary=canary,
        system_fingerprint=string(dig(said.get("canary"), "system_fingerprint")),
    )


def _json(exchange: Exchange) -> Json:
    body = reply.json_body(exchange)
    return None if isinstance(body, reply.Refusal | reply.Failure) else body


def _entry(models: Json, wanted: str | None) -> Json:
    entries = dig(models, "data")
    if not isinstance(entries, list):
        return None
    named = [entry for entry in entries if wanted is not None and dig(entry, "id") == wanted]
    return named[0] if named else next(iter(entries), None)


def _versions(replies: Replies, engine: str | None) -> Iterator[_Claim]:
    """Yield the versions that belong to the engine; a gateway's own stands beside its name."""
    match = vllm_fingerprint(replies.system_fingerprint)
    if match and engine in ("vllm", None):
        yield "engine_version", match["version"], "system_fingerprint of a reply"
        yield "parallelism", match["parallel"].strip("-") or "none", "system_fingerprint of a reply"
    if engine in ("sglang", "sgl-jax"):
        path = "GET /server_info" if dig(replies.said.get("server_info"), "version") else "GET /get_server_info"
        yield "engine_version", dig(replies.settings, "version"), path
    if engine == "transformers":  # as servecheck holds it in its own process; its server tells no version
        yield "engine_version", dig(replies.said.get("server_info"), "version"), "version in GET /server_info"
    if engine == "llama.cpp":
        yield "engine_version", dig(replies.said.get("props"), "build_info"), "build_info in GET /props"
    if engine == "tgi":
        yield "engine_version", dig(replies.said.get("info"), "version"), "GET /info"
    if engine in ("vllm", None):
        yield "engine_version", dig(replies.said.get("version"), "version"), "GET /version"


def _settings(replies: Replies) -> Iterator[_Claim]:
    """Yield what engines show of their settings: SGLang always, vLLM in its developer mode, llama.cpp in part."""
    info, where = replies.settings, "GET /server_info"
    if dig(info, "version") is not None:
        sizes = [(key, dig(info, f"{key}_size")) for key in ("tp", "pp", "dp", "ep")]
        if any(size is not None for _, size in sizes):
            shown = "-".join(f"{key}{size}" for key, size in sizes if isinstance(size, int) and size > 1)
            yield "parallelism", shown or "none", where
        for name, key in (
            # A null is no answer here: a checkpoint may bring its own quantization.
            ("quantization", "quantization"),
            ("dtype", "dtype"),
            ("kv_cache_dtype", "kv_cache_dtype"),
            ("device", "device"),
            ("block_size", "page_size"),
            ("cache_report", "enable_cache_report"),
            ("deterministic", "enable_deterministic_inference"),
        ):
            yield name, dig(info, key), f"{key} in {where}"
        for name in ("tool_call_parser", "reasoning_parser"):
            if isinstance(info, dict) and name in info:
                yield name, string(info[name]) or "none", f"{name} in {where}"
        if dig(info, "disable_radix_cache") is not None:
            yield "prefix_caching", not dig(info, "disable_radix_cache"), f"disable_radix_cache in {where}"
    config = dig(replies.said.get("server_info"), "vllm_config")
    for name, path in (
        ("quantization", ("model_config", "quantization")),
        ("dtype", ("model_config", "dtype")),
        ("kv_cache_dtype", ("cache_config", "cache_dtype")),
        ("block_size", ("cache_config", "block_size")),
        ("prefix_caching", ("cache_config", "enable_prefix_caching")),
        ("device", ("device_config", "device")),
    ):
        yield name, dig(config, *path), f"{'.'.join(path)} in {where}"
    props = replies.said.get("props")
    yield "slots", dig(props, "total_slots"), "total_slots in GET /props"
    tools = dig(props, "chat_template_caps", "supports_tools")
    if isinstance(tools, bool):
        yield "template_tools", "yes" if tools else "no", "chat_template_caps in GET /props"
    yield "quantization", dig(props, "model_ftype"), "model_ftype in GET /props"


def _others(replies: Replies) -> Iterator[_Claim]:
    yield "system_fingerprint", replies.system_fingerprint, "system_fingerprint of a reply"
    yield "model", dig(replies.entry, "id"), "GET /v1/models"
    yield "architecture", dig(replies.said.get("model_info"), "architectures", 0), "architectures in GET /model_info"
    yield "max_model_len", dig(replies.entry, "max_model_len"), "max_model_len in GET /v1/models"
    yield "max_model_len", dig(replies.entry, "meta", "n_ctx"), "meta.n_ctx in GET /v1/models"
    yield "quantization", dig(replies.entry, "meta", "ftype"), "meta.ftype in GET /v1/models"
    level = dig(replies.said.get("models"), "models", 0, "details", "quantization_level")
    yield "quantization", level, "quantization_level in GET /v1/models"
    for place in range(_MOST_MODELS):
        model = dig(replies.said.get("stats"), "models", place)
        if dig(model, "name") == dig(replies.entry, "id"):
            yield "max_model_len", dig(model, "ctx"), "ctx in GET /v1/stats"
    yield "gateway_version", replies.header("x-litellm-version"), "the x-litellm-version header"
    if replies.header("x-session-token") is not None:
        yield "session_affinity", "x-session-token", "the x-session-token header"
    if re.search(rb"^tpu_inference:", replies.metrics_text, re.MULTILINE):
        yield "tpu_stack", "tpu-inference", "tpu_inference: series in the metrics"
        yield "device", "tpu", "tpu_inference: series in the metrics"
    for label, name in (
        ("block_size", "block_size"),
        ("cache_dtype", "kv_cache_dtype"),
        ("enable_prefix_caching", "prefix_caching"),
    ):
        yield name, _label(replies.metrics_text, label), f"{label} label of vllm:cache_config_info"


def _label(metrics: bytes, label: str) -> str | None:
    line = re.search(rb"^(?:ray_)?vllm[:_]cache_config_info\{(?P<labels>[^}]*)\}", metrics, re.MULTILINE)
    if line is None:
        return None
    value = re.search(rb'(?:^|,)%s="([^"]*)"' % label.encode(), line["labels"])
    return value[1].decode("utf-8", "replace") if value else None


def _named_precision(replies: Replies) -> Known | None:
    root = string(dig(replies.entry, "root")).rstrip("/").rpartition("/")[2]  # a path of the server stays its own
    for name in (string(dig(replies.entry, "id")), root):
        if found := precision_in_name(name):
            return Known(value=found.lower(), how=How.DECLARED, source="the model's name, which proves nothing")
    return None


def _kind(replies: Replies, model: str | None) -> str | None:
    """Tell the kind from what the server says; SGLang says it in ``/model_info`` and dies of a chat if it embeds."""
    generates = [dig(replies.said.get(step), "is_generation") for step in ("model_info", "get_model_info")]
    if False in generates or dig(replies.settings, "is_embedding") is True:
        return "embedding"
    if True in generates:
        return "chat"
    listed = dig(replies.said.get("litellm"), "data")
    for entry in listed if isinstance(listed, list) else []:
        mode = string(dig(entry, "model_info", "mode"))
        if dig(entry, "model_name") in (model, None) and mode in _LITELLM_MODES:
            return _LITELLM_MODES[mode]
    if _weighed(ENGINE_SIGNS, replies).value not in ("sglang", "sgl-jax"):
        # vLLM has the routes of the tasks its model can do, and no others; SGLang has all of them always.
        kind = next((kind for path, kind in _ROUTES if path in replies.paths), None)
        if kind is not None:
            return kind
    # Where nothing else tells, a name that says so is heeded: a wrong chat can cost the server, a wrong embedding not.
    name = string(dig(replies.entry, "id")) or model or ""
    return "embedding" if "embed" in name.lower() else None
