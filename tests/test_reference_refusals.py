"""The reference server refuses what is wrong, by name; its small routes answer; its streaming variants differ."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from servecheck.model import Outcome
from servecheck.reference.mutants import Harmless, Mutant, discover
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import IM_END, THINK_CLOSE, decode
from tests.reference_client import SEA, WEATHER, Client, ask, every_model, serve, talk, user

# ---------------------------------------------------------------------- refusals and small routes

BAD_FIELDS: tuple[dict[str, Any], ...] = (
    {"messages": []},
    {"messages": "hello"},
    {"messages": ["hello"]},
    {"messages": [{"role": "wizard", "content": "x"}]},
    {"messages": [{"role": "user"}]},
    {"messages": [{"role": "user", "content": 7}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
    {"temperature": "hot"},
    {"temperature": -1},
    {"temperature": 99},
    {"temperature": True},
    {"top_p": 0},
    {"top_p": 1.5},
    {"top_k": -2},
    {"min_p": 2},
    {"max_tokens": 0},
    {"max_tokens": -5},
    {"max_tokens": "3"},
    {"max_tokens": 2.5},
    {"max_tokens": 99999},
    {"n": 0},
    {"stop": [""]},
    {"stop": 7},
    {"seed": "x"},
    {"logit_bias": {"word": 1}},
    {"logit_bias": {"999999": 1}},
    {"logit_bias": []},
    {"allowed_token_ids": [-1]},
    {"top_logprobs": 3},
    {"logprobs": True, "top_logprobs": 21},
    {"logprobs": 3},
    {"stream": "yes"},
    {"stream_options": {"include_usage": True}},
    {"response_format": {"type": "grammar"}},
    {"response_format": {"type": "json_schema"}},
    {"structured_outputs": {"grammar": "root ::= x"}},
    {"structured_outputs": {"regex": "[a"}},
    {"structured_outputs": {"choice": []}},
    {"tools": [{"type": "function"}]},
    {"tool_choice": "required"},
    {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "other"}}},
    {"tools": [WEATHER], "tool_choice": "sometimes"},
    {"presence_penalty": 3},
)


@pytest.mark.parametrize("bad", BAD_FIELDS, ids=json.dumps)
def test_a_wrong_field_is_a_400_that_names_it(bad):
    reply = ask(serve(), "POST", "/v1/chat/completions", {"messages": user(SEA), "max_tokens": 3, **bad})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert any(name in error["message"] for name in bad)


def test_a_stream_with_a_wrong_field_is_refused_before_it_begins():
    body = {"messages": user(SEA), "stream": True, "temperature": "hot"}
    assert ask(serve(), "POST", "/v1/chat/completions", body).status_code == 400


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff\xfe", b'{"temperature": NaN}', b""])
def test_a_body_that_is_not_a_json_object_is_a_400(body):
    async def conversation(client: Client) -> int:
        return (await client.http.post("/v1/chat/completions", content=body)).status_code

    assert talk(serve(), conversation) == 400


def test_an_unknown_field_is_ignored():
    body = {"messages": user(SEA), "max_tokens": 2, "zqxk": {"a": 1}}
    assert ask(serve(), "POST", "/v1/chat/completions", body).status_code == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_an_unknown_model_is_a_404_that_names_it(path):
    reply = ask(serve(), "POST", path, {"model": "zqxk", "messages": user(SEA), "prompt": SEA})
    assert reply.status_code == 404
    assert "zqxk" in reply.json()["error"]["message"]


def test_a_prompt_over_the_limit_is_a_400_that_names_it_and_one_below_is_answered():
    async def conversation(client: Client) -> None:
        over = await client.post("/v1/chat/completions", {"messages": user("sea " * 600)})
        assert over.status_code == 400
        assert "300" in over.json()["error"]["message"]
        near = await client.chat(" ".join(["sea"] * 250))
        assert near["usage"]["total_tokens"] <= 300

    talk(serve(max_model_len=300), conversation)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/version", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/v1/models/reference", 200),
        ("GET", "/v1/models/other", 404),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/nothing", 404),
    ],
)
def test_small_routes(method, path, status):
    assert ask(serve(), method, path).status_code == status


def test_a_key_guards_everything_but_health_version_and_metrics():
    server = serve(api_key="right")
    paths = ("/health", "/version", "/metrics", "/v1/models")
    assert [ask(server, "GET", path).status_code for path in paths] == [200, 200, 200, 401]
    assert ask(server, "POST", "/tokenize", {"prompt": "x"}).status_code == 401
    assert ask(server, "GET", "/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert ask(server, "GET", "/v1/models", headers={"Authorization": "Bearer right"}).status_code == 200


def test_metrics_parse_and_say_the_block_size():
    text = ask(serve(block=32), "GET", "/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["vllm:cache_config_info"].samples[0].labels["block_size"] == "32"
    assert families["vllm:time_to_first_token_seconds"].type == "histogram"


# ---------------------------------------------------------------------- the variants


def test_a_test_of_end_tokens_uses_real_ones():
    assert decode([IM_END], special=True) == "<|im_end|>"
    assert decode([THINK_CLOSE]) == "</think>"


def test_every_variant_is_found_and_says_what_it_is():
    mutants, harmless = discover()["streaming_frames"]
    assert len(mutants) >= 15
    assert len(harmless) >= 8
    assert all(mutant.sentence.endswith(".") and mutant.trips for mutant in mutants)
    assert all(
        outcome in {Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED} for m in mutants for _, outcome in m.trips
    )
    assert sum(bool(mutant.source) for mutant in mutants) * 2 >= len(mutants)


def streamed(server: ReferenceServer) -> bytes:
    """Return the whole stream of one request, with a mark where the connection was cut; ids are kept apart."""

    async def conversation(client: Client) -> bytes:
        got = b""
        try:
            async with client.streaming(
                SEA, temperature=0, logprobs=True, stream_options={"include_usage": True}
            ) as reply:
                got += reply.headers["content-type"].encode() + b"\n"
                async for data in reply.aiter_raw():
                    got += data
        except httpx.TransportError as cut:
            got += type(cut).__name__.encode()
        return got

    return talk(server, conversation)


@every_model
def test_every_streaming_variant_differs_from_the_right_stream(language):
    def clock() -> float:
        return 1_750_000_000

    right = streamed(ReferenceServer(language=language, clock=clock))
    mutants, harmless = discover()["streaming_frames"]
    variants: list[Mutant | Harmless] = [*mutants, *harmless]
    same = [variant.id for variant in variants if streamed(variant.make(language, clock=clock)) == right]
    alike = {"slow-start", "small-pieces", "length-finish"}
    # These are the right server but for tools, which this request has none of.
    alike |= {"stream-with-tools-fails", "tools-refused", "whole-text-beside-tools"}
    assert [name for name in same if name not in alike] == []


@every_model
def test_harmless_streams_still_carry_the_whole_answer(language):
    def text(stream: bytes) -> str:
        lines = stream.decode().replace("\r\n", "\n").split("\n")
        data = [line.partition(":")[2].strip() for line in lines if line.startswith("data:")]
        assert data[-1] == "[DONE]"
        events = [json.loads(line) for line in data[:-1]]
        return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])

    right = text(streamed(ReferenceServer(language=language)))
    for variant in discover()["streaming_frames"][1]:
        said = text(streamed(variant.make(language)))
        assert said == right or (variant.id == "length-finish" and right.startswith(said)), variant.id
