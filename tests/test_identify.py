"""What a server is, from hand-made replies of each engine: every field with what says so, contradictions shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from servecheck import identify
from servecheck.model import Chunk, Endpoint, Exchange, Fingerprint, How
from servecheck.reference.asgi import Receive, Reply, Request, Scope, Send, asgi, json_reply
from servecheck.wire.memory import MemoryTransport
from servecheck.wire.transport import Transport
from tests.sessions import session_of

ENDPOINT = Endpoint(name="it", base_url="http://127.0.0.1:1/v1", api_key_env="")

CHAT_PATHS: dict[str, object] = {"/v1/chat/completions": {}, "/v1/completions": {}}
VLLM_PATHS = {**CHAT_PATHS, "/kv_event_sources": {}, "/v1/chat/completions/batch": {}}
SGLANG_PATHS = {**CHAT_PATHS, "/v1/embeddings": {}, "/flush_cache": {}, "/parse_function_call": {}}


def models(owner: str, name: str = "m", **more: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": owner, **more}]}


def reply(step: str, body: object, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Exchange:
    """Return an exchange; text is sent as it is, ``None`` is a 404 as FastAPI writes it."""
    if body is None:
        status, body = 404, {"detail": "Not Found"}
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    url = ENDPOINT.base_url + ("/chat/completions" if step == "canary" else f"/{step}")
    return Exchange(
        id=step, step=step, method="GET", url=url, status=status, response_headers=headers, chunks=(Chunk(0.1, data),)
    )


def look(
    replies: Mapping[str, object],
    *,
    canary: object = None,
    headers: tuple[tuple[str, str], ...] = (),
    endpoint: Endpoint = ENDPOINT,
) -> identify.Identity:
    asked = {step: reply(step, body, headers=headers) for step, body in {"models": None, **replies}.items()}
    body = {"choices": [{"message": {"content": "Paris."}}], **canary} if isinstance(canary, dict) else None
    return identify.identify(endpoint, asked, reply("canary", body, headers=headers) if body else None)


VLLM = {
    "models": models("vllm", max_model_len=2048, root="/models/m"),
    "version": {"version": "0.32.0"},
    "metrics": '# TYPE vllm:x gauge\nvllm:cache_config_info{block_size="128",cache_dtype="auto",'
    'enable_prefix_caching="True",engine="0"} 1.0\n',
    "openapi": {"info": {"title": "FastAPI"}, "paths": VLLM_PATHS},
}
SGLANG_SETTINGS = {
    "version": "0.5.23",
    "internal_states": [{}],
    "tp_size": 2,
    "pp_size": 1,
    "dp_size": 1,
    "ep_size": 1,
    "quantization": None,
    "dtype": "auto",
    "kv_cache_dtype": "auto",
    "page_size": 1,
    "device": "cpu",
    "disable_radix_cache": False,
    "tool_call_parser": None,
    "reasoning_parser": "qwen3",
    "enable_cache_report": False,
    "enable_deterministic_inference": False,
}
SGLANG = {
    "models": models("sglang", max_model_len=8192),
    "version": None,
    "server_info": SGLANG_SETTINGS,
    "model_info": {"is_generation": True},
    "openapi": {"paths": SGLANG_PATHS},
}
SGL_JAX = {
    "models": models("sglang"),
    "server_info": None,
    "get_server_info": {"version": "0.0.4", "device": "tpu", "precompile_bs_paddings": None, "page_size": 128},
    "get_model_info": {"is_generation": True},
}
LLAMA_CPP = {
    "models": models("llamacpp", meta={"n_ctx": 4096, "ftype": "Q4_1"}),
    "props": {
        "build_info": "b11549-abc",
        "total_slots": 1,
        "model_ftype": "Q4_1",
        "chat_template_caps": {"supports_tools": False},
    },
}
DASLLAMA_OLD = {"models": models("local", created=1_751_200_007), "stats": {"streams": 0}}
# As 0.6.6 replied, cut to what matters.
DASLLAMA = {
    "models": models("dasllama", name="tiny.Q8_0.gguf", created=1_751_200_000),
    "stats": {
        "model": "tiny.Q8_0.gguf",
        "active_model": "tiny.Q8_0.gguf",
        "models": [{"name": "tiny.Q8_0.gguf", "is_active": True, "backend_effective": "cpu", "ctx": 4096}],
    },
}
TGI = {
    "models": models("meta-llama"),
    "info": {"model_id": "m", "version": "3.3.6", "docker_label": "sha-1234567"},
    "metrics": "# TYPE tgi_request_count counter\ntgi_request_count 1\n",
}
TRANSFORMERS = {
    "models": models("HuggingFaceTB"),
    "openapi": {"paths": {**CHAT_PATHS, "/load_model": {}, "/reset": {}}},
}
# As `transformers serve` 5.24 replied for a model from a folder.
TRANSFORMERS_LOCAL = {
    "models": models("local", created=0, status={"value": "loaded"}),
    "openapi": {"info": {"title": "FastAPI"}, "paths": {**CHAT_PATHS, "/load_model": {}, "/reset": {}}},
}
RAY = {
    "models": models("organization-owner"),
    "metrics": 'ray_vllm_num_requests_running{ReplicaId="a"} 0\nray_vllm_cache_config_info{block_size="16"} 1\n',
}
LITELLM = {
    "models": models("openai", name="proxy-model"),
    "openapi": {"info": {"title": "LiteLLM API"}, "paths": {**CHAT_PATHS, "/v1/embeddings": {}}},
    "litellm": {"data": [{"model_name": "proxy-model", "litellm_params": {}, "model_info": {"mode": "chat"}}]},
}
LLM_D = {"models": models("vllm")}

ENGINES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # name: (replies, what else is given, the fields expected)
    "vllm": (
        VLLM,
        {"canary": {"system_fingerprint": "vllm-0.32.0-tp2-3689bfa3"}},
        {
            "engine": "vllm",
            "engine_version": "0.32.0",
            "gateway": None,
            "max_model_len": "2048",
            "block_size": "128",
            "prefix_caching": "True",
            "kv_cache_dtype": "auto",
            "parallelism": "tp2",
            "quantization": None,
            "device": None,
        },
    ),
    "sglang": (
        SGLANG,
        {},
        {
            "engine": "sglang",
            "engine_version": "0.5.23",
            "parallelism": "tp2",
            "device": "cpu",
            "quantization": None,
            "tool_call_parser": "none",
            "reasoning_parser": "qwen3",
            "cache_report": "False",
            "deterministic": "False",
            "prefix_caching": "True",
        },
    ),
    "sgl-jax": (SGL_JAX, {}, {"engine": "sgl-jax", "engine_version": "0.0.4", "device": "tpu", "block_size": "128"}),
    "llama.cpp": (
        LLAMA_CPP,
        {"canary": {"system_fingerprint": "b11549-abc"}, "headers": (("Server", "llama.cpp"),)},
        {
            "engine": "llama.cpp",
            "engine_version": "b11549-abc",
            "max_model_len": "4096",
            "quantization": "Q4_1",
            "template_tools": "no",
            "slots": "1",
        },
    ),
    "dasllama": (DASLLAMA, {}, {"engine": "dasllama", "engine_version": None, "max_model_len": "4096"}),
    "dasllama by what it counts": (DASLLAMA_OLD, {}, {"engine": "dasllama", "max_model_len": None}),
    "dasllama by its list alone": ({"models": DASLLAMA["models"]}, {}, {"engine": "dasllama", "max_model_len": None}),
    "tgi": (
        TGI,
        {"canary": {"system_fingerprint": "3.3.6-sha-1234567"}},
        {"engine": "tgi", "engine_version": "3.3.6"},
    ),
    "transformers": (TRANSFORMERS, {}, {"engine": "transformers", "engine_version": None}),
    "transformers with a model from a folder": (TRANSFORMERS_LOCAL, {}, {"engine": "transformers"}),
    "transformers without its schema": (
        {"models": TRANSFORMERS_LOCAL["models"]},
        {"canary": {"id": "a008b6d2"}, "headers": (("x-request-id", "a008b6d2"),)},
        {"engine": "transformers"},
    ),
    "vllm behind ray": (RAY, {}, {"engine": "vllm", "gateway": "ray-serve", "block_size": "16"}),
    "litellm": (
        LITELLM,
        {"headers": (("x-litellm-version", "1.108.7"),)},
        {"engine": "litellm", "gateway": "litellm", "engine_version": None},
    ),
    "llama.cpp behind litellm, as its replies say": (
        LITELLM,
        {
            "canary": {
                "system_fingerprint": "b0-unknown",
                "timings": {"cache_n": 24, "prompt_n": 9, "predicted_n": 3, "predicted_ms": 32.9},
            },
            "headers": (("x-litellm-version", "1.108.7"), ("llm_provider-server", "llama.cpp")),
        },
        {"engine": "llama.cpp", "gateway": "litellm", "gateway_version": "1.108.7"},
    ),
    "llama.cpp behind litellm, without a fingerprint": (
        LITELLM,
        {"headers": (("x-litellm-version", "1.108.7"), ("llm_provider-server", "llama.cpp"))},
        {"engine": "llama.cpp", "gateway": "litellm"},
    ),
    "llama.cpp behind litellm": (
        LITELLM,
        {"canary": {"system_fingerprint": "b11549-abc"}},
        {"engine": "llama.cpp", "gateway": "litellm"},
    ),
    "vllm behind llm-d": (
        LLM_D,
        {
            "canary": {"system_fingerprint": "vllm-0.21.0-tp2-5054d0df"},
            "headers": (("x-llm-d-request-dropped-reason", ""),),
        },
        {"engine": "vllm", "gateway": "llm-d", "engine_version": "0.21.0"},
    ),
    "behind an endpoint picker": (
        LLM_D,
        {"headers": (("x-went-into-resp-headers", "true"),)},
        {"gateway": "inference-gateway"},
    ),
    "vllm with developer routes": (
        {
            **VLLM,
            "server_info": {
                "vllm_config": {
                    "model_config": {"quantization": "fp8", "dtype": "bfloat16"},
                    "device_config": {"device": "tpu"},
                }
            },
        },
        {},
        {"engine": "vllm", "quantization": "fp8", "dtype": "bfloat16", "device": "tpu"},
    ),
    "vllm on tpu-inference": (
        {**VLLM, "metrics": "vllm:x 1\ntpu_inference:prefix_cache_lookup_hits_total 1\n"},
        {},
        {"tpu_stack": "tpu-inference", "device": "tpu"},
    ),
    "nobody we know": (
        {"models": models("somebody"), "version": None},
        {},
        {"engine": None, "engine_version": None, "gateway": None, "device": None},
    ),
}


@pytest.mark.parametrize("name", ENGINES)
def test_each_server_is_recognised_by_what_it_says(name):
    replies, given, expected = ENGINES[name]
    known = look(replies, **given).fingerprint
    assert {field: known.value(field) for field in expected} == expected
    for field in known.fields.values():
        assert (field.value is None) is (field.how is How.UNKNOWN)
        assert field.how is How.UNKNOWN or field.source


def source(known: Fingerprint, name: str) -> str:
    return known.fields[name].source


@pytest.mark.parametrize(
    ("name", "signs"),
    [
        ("dasllama", ("owned_by in GET /v1/models", "models in GET /v1/stats", "“created”, which counts replies")),
        (
            "llama.cpp behind litellm, as its replies say",
            ("system_fingerprint of a reply", "the llm_provider-server header", "the timings of a reply"),
        ),
        ("llama.cpp behind litellm, without a fingerprint", ("the llm_provider-server header and nothing else",)),
        (
            "transformers with a model from a folder",
            ("the paths in GET /openapi.json", "“created” 0 and a status in GET /v1/models"),
        ),
        (
            "transformers without its schema",
            ("“created” 0 and a status in GET /v1/models", "a reply whose id is its x-request-id"),
        ),
    ],
)
def test_every_sign_of_a_real_reply_is_named_as_what_says_so(name, signs):
    replies, given, _ = ENGINES[name]
    said = source(look(replies, **given).fingerprint, "engine")

    places = [said.find(sign) for sign in signs]
    assert -1 not in places, said
    assert "but" not in said


def test_all_signs_that_agree_are_named():
    said = source(look(VLLM, canary={"system_fingerprint": "vllm-0.32.0-3689bfa3"}).fingerprint, "engine")
    for sign in ("system_fingerprint", "series", "/openapi.json", "owned_by", "/version"):
        assert sign in said


def test_a_lone_sign_is_called_one():
    assert source(look({"models": models("vllm")}).fingerprint, "engine") == (
        "owned_by in GET /v1/models and nothing else"
    )


def test_a_gateway_that_rewrites_the_owner_is_outweighed_and_its_contradiction_shown():
    known = look({**SGLANG, "models": models("vllm")}).fingerprint
    assert known.value("engine") == "sglang"
    assert "but vllm by owned_by in GET /v1/models" in source(known, "engine")


def test_versions_that_differ_are_both_shown():
    known = look({**VLLM, "version": {"version": "0.31.1"}}, canary={"system_fingerprint": "vllm-0.32.0-3689bfa3"})
    assert known.fingerprint.value("engine_version") == "0.32.0"
    assert source(known.fingerprint, "engine_version").endswith("but 0.31.1 by GET /version")


def test_what_the_user_declares_fills_what_cannot_be_seen_and_shows_against_what_can():
    told = replace(ENDPOINT, declared={"device": "tpu v6e", "engine": "sglang", "zone": "eu"})
    known = look(VLLM, endpoint=told).fingerprint
    assert (known.value("device"), known.fields["device"].how) == ("tpu v6e", How.DECLARED)
    assert known.value("zone") == "eu"
    assert known.value("engine") == "vllm"
    assert source(known, "engine").endswith("but declared as sglang")


def test_the_engine_that_the_user_declares_stands_before_the_gateway_that_answers():
    told = replace(ENDPOINT, declared={"engine": "vllm"})
    known = look(LITELLM, endpoint=told).fingerprint
    assert (known.value("engine"), known.fields["engine"].how, known.value("gateway")) == (
        "vllm",
        How.DECLARED,
        "litellm",
    )


PRECISIONS = {
    "Qwen3-8B-FP8": "fp8",
    "llama-3.1-8b-instruct-awq": "awq",
    "Qwen2.5-7B-GPTQ-Int4": "gptq-int4",
    "Llama-3.3-70B.w8a8": "w8a8",
    "DeepSeek-NVFP4": "nvfp4",
    "SmolLM2-135M.Q4_K_M": "q4_k_m",
    "smollm2": None,
    "raw8a8b": None,
    "hawqs": None,
}


@pytest.mark.parametrize("name", PRECISIONS)
def test_a_precision_in_a_name_is_declared_and_never_observed(name):
    found = look({"models": models("vllm", name=name)}).fingerprint.fields["quantization"]
    assert found.value == PRECISIONS[name]
    assert found.how is (How.UNKNOWN if PRECISIONS[name] is None else How.DECLARED)


def test_the_path_of_the_weights_is_read_for_its_last_name_only():
    found = look({"models": models("vllm", root="/secret/fp8/models/m-int8")}).fingerprint.fields["quantization"]
    assert found.value == "int8"
    assert "/secret" not in found.source


KINDS: dict[str, tuple[dict[str, Any], str | None]] = {
    "sglang that generates": (SGLANG, "chat"),
    "sglang that embeds": ({**SGLANG, "model_info": {"is_generation": False}}, "embedding"),
    "sglang that embeds, by its settings": (
        {**SGLANG, "model_info": None, "server_info": {**SGLANG_SETTINGS, "is_embedding": True}},
        "embedding",
    ),
    "old sglang that embeds": ({**SGL_JAX, "get_model_info": {"is_generation": False}}, "embedding"),
    "sglang whose paths prove nothing": ({**SGLANG, "model_info": None}, None),
    "vllm that chats": (VLLM, "chat"),
    "vllm that embeds": ({**VLLM, "openapi": {"paths": {"/v1/embeddings": {}, "/pooling": {}}}}, "embedding"),
    "vllm that ranks": ({**VLLM, "openapi": {"paths": {"/rerank": {}, "/v1/rerank": {}, "/score": {}}}}, "rerank"),
    "vllm that transcribes": ({**VLLM, "openapi": {"paths": {"/v1/audio/transcriptions": {}}}}, "transcription"),
    "a server that paints": ({"openapi": {"paths": {"/v1/images/generations": {}}}}, "image"),
    "a chat that paints too": (
        {"openapi": {"paths": {"/v1/images/generations": {}, "/v1/chat/completions": {}}}},
        "chat",
    ),
    "a server that only completes": ({"openapi": {"paths": {"/v1/completions": {}}}}, "completion"),
    "litellm before a chat": (LITELLM, "chat"),
    "litellm before an embedder": (
        {
            **LITELLM,
            "litellm": {"data": [{"model_name": "proxy-model", "model_info": {"mode": "embedding"}}]},
        },
        "embedding",
    ),
    "a name that says so": ({"models": models("sglang", name="Qwen3-Embedding-8B")}, "embedding"),
    "nothing tells": ({"models": models("somebody")}, None),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_kind_is_known_before_anything_is_generated(name):
    replies, kind = KINDS[name]
    endpoint = replace(ENDPOINT, model="proxy-model") if replies.get("models") is LITELLM["models"] else ENDPOINT
    assert look(replies, endpoint=endpoint).kind == kind


def test_a_declared_kind_wins():
    assert look(SGLANG, endpoint=replace(ENDPOINT, kind="completion")).kind == "completion"


@pytest.mark.parametrize("body", ["", "<html>", "[1]", "NaN", '"text"', '{"data": 5}', '{"data": [null, 7]}'])
def test_no_reply_is_strange_enough_to_raise(body):
    steps = (
        "models",
        "version",
        "server_info",
        "props",
        "metrics",
        "openapi",
        "info",
        "stats",
        "litellm",
        "model_info",
    )
    asked = {step: reply(step, body) for step in steps}
    assert identify.identify(ENDPOINT, asked, reply("canary", body)).fingerprint.value("model") is None


# --------------------------------------------------------------------------- asking


def asked_of(routes: Mapping[str, object]) -> tuple[list[str], dict[str, Exchange]]:
    """Ask a server that answers these paths and 404 to the others; return what it was asked for, and the replies."""
    paths: list[str] = []

    class Server:
        async def reply(self, request: Request) -> Reply:
            assert request.method == "GET"
            paths.append(request.path)
            body = routes.get(request.path)
            if isinstance(body, str):
                return Reply(body=body.encode())
            return json_reply({"detail": "Not Found"}, 404) if body is None else json_reply(body)

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await asgi(self, scope, receive, send)

    async def go() -> dict[str, Exchange]:
        async with Transport(ENDPOINT, app=MemoryTransport(Server())) as transport:
            return await identify.ask(session_of(ENDPOINT, transport))

    asked = asyncio.run(go())
    return paths, asked


def test_health_is_asked_first_and_a_known_engine_is_asked_little():
    paths, asked = asked_of({"/v1/models": VLLM["models"], "/version": VLLM["version"]})
    assert paths[:2] == ["/health", "/v1/models"]
    assert not {"/get_server_info", "/info", "/v1/stats"} & set(paths)
    assert identify.identify(ENDPOINT, asked).fingerprint.value("engine") == "vllm"


def test_dasllama_names_itself_in_the_list_and_its_limit_in_its_statistics_which_are_asked_for():
    paths, asked = asked_of({"/v1/models": DASLLAMA["models"], "/v1/stats": DASLLAMA["stats"]})
    known = identify.identify(ENDPOINT, asked).fingerprint
    assert "/get_server_info" not in paths
    assert (known.value("engine"), known.value("max_model_len")) == ("dasllama", "4096")


def test_an_old_sglang_is_asked_for_its_kind_under_the_old_path():
    paths, asked = asked_of({"/v1/models": models("sglang"), "/get_model_info": {"is_generation": False}})
    assert "/get_model_info" in paths
    assert identify.identify(ENDPOINT, asked).kind == "embedding"


def test_secrets_that_a_server_shows_among_its_settings_are_gone_before_anyone_reads_them():
    raw = json.dumps(
        {
            **SGLANG_SETTINGS,
            "api_key": "sekret-key",
            "admin_api_key": "adminkey",
            "launch_command": "serve --api-key sekret-key --admin-api-key adminkey --port 1",
            "internal_states": [{"api_key": "sekret-key", "admin_api_key": None}],
        }
    )
    _, asked = asked_of({"/v1/models": models("sglang"), "/server_info": raw})
    body = asked["server_info"].body
    assert b"sekret-key" not in body
    assert b"adminkey" not in body
    assert len(body) == len(raw)
    known = identify.identify(ENDPOINT, asked).fingerprint
    assert (known.value("engine"), known.value("parallelism")) == ("sglang", "tp2")


@pytest.mark.parametrize(
    ("feature", "kind", "expected"),
    [
        ("chat.basic", "chat", True),
        ("chat.basic", "embedding", False),
        ("chat.basic", "completion", False),
        ("embeddings.basic", "embedding", True),
        ("completions.basic", "completion", True),
        ("identity.models", "embedding", True),
        ("quantization.identity", "embedding", True),
        ("quantization.sanity", "embedding", False),
        ("errors.malformed", "embedding", False),
        ("auth.required", "embedding", True),
        ("rerank.basic", "rerank", True),
        ("embeddings.basic", "rerank", False),
        ("chat.basic", "rerank", False),
        ("audio.transcribe", "transcription", True),
        ("identity.models", "transcription", True),
        ("metrics.exposed", "transcription", False),
        ("images.generate", "image", True),
        ("vision.image", "image", False),
    ],
)
def test_rows_fit_the_kinds_that_can_answer_them(feature, kind, expected):
    fits, why = identify.fits(feature, kind)
    assert fits is expected
    assert bool(why) is not expected
