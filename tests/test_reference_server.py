"""The reference server is honest: what a probe measures on it is true by construction."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any

import jsonschema
import pytest

from servecheck.reference.tokens import encode
from tests.reference_client import SEA, STORY, WEATHER, Client, ask, every_model, serve, talk, user


def texts(language: str, text: str, *requests: dict[str, Any]) -> list[str]:
    async def conversation(client: Client) -> list[str]:
        return [await client.text(text, **extra) for extra in requests]

    return talk(serve(language), conversation)


# ---------------------------------------------------------------------- sampling

GREEDY_TWINS: dict[str, dict[str, Any]] = {
    "top_k 1": {"temperature": 2, "top_k": 1},
    "tiny top_p": {"temperature": 2, "top_p": 1e-6},
    "min_p 1": {"temperature": 2, "min_p": 1},
    "temperature 0 with a seed": {"temperature": 0, "seed": 5},
}


@every_model
@pytest.mark.parametrize("twin", GREEDY_TWINS)
def test_a_cut_to_one_token_is_greedy(language, twin):
    greedy, same = texts(language, SEA, {"temperature": 0}, GREEDY_TWINS[twin])
    assert greedy == same


@every_model
def test_hot_sampling_without_a_cut_differs_from_greedy_and_from_itself(language):
    answers = texts(language, SEA, {"temperature": 0}, *[{"temperature": 2}] * 8)
    assert len(set(answers)) > 4


@every_model
def test_seeds_repeat_and_differ(language):
    one, again, other = texts(language, STORY, {"seed": 1}, {"seed": 1}, {"seed": 2})
    assert one == again != other


def test_an_unseeded_request_differs_each_time_and_repeats_with_the_server():
    first, second = texts("babbling", SEA, {}, {})
    assert first != second
    assert [first, second] == texts("babbling", SEA, {}, {})


@every_model
def test_a_banned_token_is_absent_and_a_forced_one_present(language):
    async def conversation(client: Client) -> None:
        plain = await client.chat(SEA, temperature=0, logprobs=True, max_tokens=40)
        tokens = [entry["token"] for entry in plain["choices"][0]["logprobs"]["content"]]
        victim = next(token for token in tokens if re.fullmatch(r" [a-z]{3,}", token))
        (number,) = encode(victim)
        banned = await client.text(SEA, temperature=0, max_tokens=40, logit_bias={str(number): -100})
        assert victim not in re.findall(r" \w+", banned)
        word = encode(" copper")[0]
        forced = await client.chat(SEA, temperature=0, max_tokens=5, logit_bias={str(word): 100}, logprobs=True)
        assert [entry["token"] for entry in forced["choices"][0]["logprobs"]["content"]] == [" copper"] * 5

    talk(serve(language), conversation)


@pytest.mark.parametrize(
    "penalty",
    [{"frequency_penalty": 2}, {"presence_penalty": 2}, {"repetition_penalty": 1.5}],
    ids=lambda p: next(iter(p)),
)
def test_a_penalty_at_least_halves_repeats(penalty):
    prompt = "Repeat the word 'apple' forty times."
    plain, reined = texts("obedient", prompt, {"temperature": 0}, {"temperature": 0, **penalty})
    assert Counter(plain.split())["apple"] == 40
    assert Counter(reined.split())["apple"] <= 20


def test_bad_words_are_absent_and_allowed_ids_are_all_there_is():
    async def conversation(client: Client) -> None:
        plain = await client.text(STORY, temperature=0, max_tokens=60)
        word = Counter(re.findall(r"[a-z]{4,}", plain)).most_common(1)[0][0]
        assert word not in (await client.text(STORY, temperature=0, max_tokens=60, bad_words=[word])).split()
        allowed = [*encode(" stone"), *encode(" bridge")]
        only = await client.text(STORY, temperature=1, seed=1, max_tokens=30, allowed_token_ids=allowed)
        assert set(only.split()) == {"stone", "bridge"}

    talk(serve("babbling"), conversation)


@every_model
def test_min_tokens_keeps_the_end_away_and_ignore_eos_runs_through(language):
    async def conversation(client: Client) -> None:
        body = {"temperature": 0, "logprobs": True, "max_tokens": 200}
        least = await client.chat("Say OK", min_tokens=70, **body)
        tokens = [entry["token"] for entry in least["choices"][0]["logprobs"]["content"]]
        assert "<|im_end|>" not in tokens[:70]
        assert least["usage"]["completion_tokens"] >= 70
        assert least["choices"][0]["finish_reason"] == "stop"
        through = await client.chat("Say OK", ignore_eos=True, **body)
        assert through["usage"]["completion_tokens"] == 200
        assert through["choices"][0]["finish_reason"] == "length"

    talk(serve(language), conversation)


@every_model
def test_a_stop_token_ends_the_answer_before_it(language):
    async def conversation(client: Client) -> None:
        plain = await client.chat(SEA, temperature=0, logprobs=True)
        tokens = [entry["token"] for entry in plain["choices"][0]["logprobs"]["content"]]
        at = tokens.index("</think>") + 2 if "</think>" in tokens else 0
        last = next(place for place in range(at + 3, len(tokens)) if tokens[place] not in tokens[:place])
        (number,) = encode(tokens[last])
        cut = await client.chat(SEA, temperature=0, stop_token_ids=[number])
        assert cut["choices"][0]["finish_reason"] == "stop"
        assert cut["choices"][0]["stop_reason"] == number
        assert cut["usage"]["completion_tokens"] == last + 1
        assert plain["choices"][0]["message"]["content"].startswith(cut["choices"][0]["message"]["content"])

    talk(serve(language), conversation)


@every_model
@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_out_of_the_answer_ends_it(language, stream):
    async def conversation(client: Client) -> None:
        plain = await client.text(SEA, temperature=0)
        stop = plain[len(plain) // 2 : len(plain) // 2 + 5]
        wanted = plain[: plain.index(stop)]
        if stream:
            events = await client.events(SEA, temperature=0, stop=stop)
            got = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
            finish = events[-1]["choices"][0]["finish_reason"]
        else:
            choice = (await client.chat(SEA, temperature=0, stop=[stop]))["choices"][0]
            got, finish = choice["message"]["content"], choice["finish_reason"]
        assert (got, finish) == (wanted, "stop")

    talk(serve(language), conversation)


def test_n_gives_different_choices_with_one_bill():
    async def conversation(client: Client) -> None:
        reply = await client.chat(SEA, n=3, seed=4, max_tokens=10)
        assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
        assert len({choice["message"]["content"] for choice in reply["choices"]}) == 3
        single = await client.chat(SEA, seed=4, max_tokens=10)
        assert reply["usage"]["prompt_tokens"] == single["usage"]["prompt_tokens"]
        assert reply["usage"]["completion_tokens"] == 30

    talk(serve("babbling"), conversation)


# ---------------------------------------------------------------------- streams and whole replies

REQUESTS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"seed": 3},
    "logprobs": {"seed": 3, "logprobs": True, "top_logprobs": 5},
    "two choices": {"seed": 3, "n": 2},
    "cut short": {"temperature": 0, "max_tokens": 7},
    "required tool": {"seed": 3, "tools": [WEATHER], "tool_choice": "required"},
    "auto tool": {"temperature": 0, "tools": [WEATHER]},
    "cut tool": {"temperature": 0, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 50},
    "json": {"seed": 3, "response_format": {"type": "json_object"}},
    "unicode": {"temperature": 0, "structured_outputs": {"choice": ["naïve 日本 👩‍👩‍👧 e\u0301"]}},
}


@every_model
@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_stream_says_what_the_whole_reply_says(language, request_name):
    prompt = "What is the weather in Oslo?"
    extra = REQUESTS[request_name]

    async def conversation(client: Client) -> None:
        whole = await client.chat(prompt, **extra)
        *events, last = await client.events(prompt, stream_options={"include_usage": True}, **extra)
        assert last["choices"] == []
        assert {key: last["usage"][key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")} == {
            key: whole["usage"][key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")
        }
        assert all(event["usage"] is None for event in events)
        assert len({(event["id"], event["created"], event["model"], event["object"]) for event in (*events, last)}) == 1
        for choice in whole["choices"]:
            mine = [event["choices"][0] for event in events if event["choices"][0]["index"] == choice["index"]]
            assert joined(mine) == {**choice, "message": shown(choice["message"])}
            ids = [call["id"] for call in choice["message"].get("tool_calls", ())]
            assert len(set(ids)) == len(ids)

    def joined(pieces: list[dict[str, Any]]) -> dict[str, Any]:
        first, *rest = [piece["delta"] for piece in pieces]
        assert first == {"role": "assistant", "content": ""}
        assert not any("role" in delta for delta in rest)
        message: dict[str, Any] = {"content": "".join(delta.get("content", "") for delta in rest)}
        message["reasoning_content"] = "".join(delta.get("reasoning_content", "") for delta in rest)
        calls: dict[int, dict[str, Any]] = {}
        for call in (call for delta in rest for call in delta.get("tool_calls", ())):
            if "id" in call:
                assert call["index"] == len(calls)
                calls[call["index"]] = {"type": call["type"], "function": call["function"]}
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        message["tool_calls"] = list(calls.values())
        finishes = [piece["finish_reason"] for piece in pieces]
        assert finishes[-1] is not None
        assert set(finishes[:-1]) == {None}
        entries = [entry for piece in pieces if piece["logprobs"] for entry in piece["logprobs"]["content"]]
        return {
            "index": pieces[0]["index"],
            "message": message,
            "logprobs": {"content": entries, "refusal": None} if entries else None,
            "finish_reason": finishes[-1],
            "stop_reason": pieces[-1].get("stop_reason"),
        }

    def shown(message: dict[str, Any]) -> dict[str, Any]:
        return {
            "content": message["content"] or "",
            "reasoning_content": message.get("reasoning_content", ""),
            "tool_calls": [{"type": c["type"], "function": c["function"]} for c in message.get("tool_calls", [])],
        }

    talk(serve(language), conversation)


@every_model
def test_usage_is_exact(language):
    async def conversation(client: Client) -> None:
        counted = (await client.post("/tokenize", {"messages": user(SEA)})).json()["count"]
        for extra in ({"max_tokens": 5}, {"max_completion_tokens": 3, "max_tokens": 9}, {}):
            reply = await client.chat(SEA, logprobs=True, seed=1, **extra)
            usage = reply["usage"]
            assert usage["prompt_tokens"] == counted
            assert usage["completion_tokens"] == len(reply["choices"][0]["logprobs"]["content"])
            assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
            wanted = extra.get("max_completion_tokens", extra.get("max_tokens"))
            assert wanted in (None, usage["completion_tokens"])
            assert reply["choices"][0]["finish_reason"] == ("length" if wanted else "stop")

    talk(serve(language), conversation)


def test_continuous_usage_grows_on_every_chunk():
    async def conversation(client: Client) -> None:
        options = {"include_usage": True, "continuous_usage_stats": True}
        counts = [event["usage"]["completion_tokens"] for event in await client.events(SEA, stream_options=options)]
        assert counts == sorted(counts)
        assert counts[-1] == len(set(counts))

    talk(serve(), conversation)


def test_chunks_arrive_while_the_answer_is_made():
    async def conversation(client: Client) -> None:
        at: list[float] = []
        async with client.streaming(SEA, max_tokens=30) as reply:
            assert client.seconds() == 0
            at += [client.seconds() async for _ in reply.aiter_raw()]
        assert at[0] < 0.1
        assert at[-1] == pytest.approx(30 * 0.02, rel=0.2)

    talk(serve("babbling"), conversation)


@every_model
def test_logprobs_add_up_and_their_bytes_are_the_text(language):
    async def conversation(client: Client) -> None:
        choice = (await client.chat(SEA, temperature=0, logprobs=True, top_logprobs=5))["choices"][0]
        entries = choice["logprobs"]["content"]
        for entry in entries:
            top = entry["top_logprobs"]
            assert len(top) == 5
            assert math.fsum(math.exp(other["logprob"]) for other in top) <= 1 + 1e-9
            assert {"token": entry["token"], "logprob": entry["logprob"], "bytes": entry["bytes"]} == top[0]
        text = b"".join(bytes(entry["bytes"] or b"") for entry in entries).decode()
        assert text.rpartition("</think>")[2].strip() == choice["message"]["content"]

    talk(serve(language), conversation)


def test_thoughts_are_split_and_can_be_turned_off():
    async def conversation(client: Client) -> None:
        thinking = await client.chat("Say OK", temperature=0)
        assert thinking["choices"][0]["message"]["content"] == "OK"
        assert len(thinking["choices"][0]["message"]["reasoning_content"]) > 20
        assert thinking["usage"]["completion_tokens_details"]["reasoning_tokens"] > 10
        silent = await client.chat("Say OK", temperature=0, chat_template_kwargs={"enable_thinking": False})
        assert silent["choices"][0]["message"] == {"role": "assistant", "content": "OK", "refusal": None}

    talk(serve("reasoning"), conversation)


def test_without_a_reasoning_parser_thoughts_stay_in_the_text():
    reply = ask(
        serve("reasoning", reasoning_parser=False), "POST", "/v1/chat/completions", {"messages": user("Say OK")}
    )
    assert reply.json()["choices"][0]["message"]["content"].startswith("<think>")


# ---------------------------------------------------------------------- structured output

NODE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 2, "maxLength": 9},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 0, "maxItems": 3},
            },
            "required": ["name", "next", "children"],
            "additionalProperties": False,
        }
    },
}
SCHEMAS: dict[str, Any] = {
    "enum": {"type": "object", "properties": {"code": {"enum": ["zqxk", 7, None]}}, "required": ["code"]},
    "const": {"type": "object", "properties": {"code": {"const": "bcdfg"}}, "required": ["code"]},
    "integers": {"type": "integer", "minimum": 3, "maximum": 12},
    "exclusive": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "multiples": {"type": "integer", "multipleOf": 7, "minimum": 20, "maximum": 60},
    "negative": {"type": "number", "maximum": -5},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-\\d{3,5}(a|b+)?$"},
    "pattern and length": {"type": "string", "pattern": "^[a-z]+$", "minLength": 8, "maxLength": 12},
    "lengths": {"type": "string", "minLength": 40, "maxLength": 44},
    "short": {"type": "string", "maxLength": 2},
    "array": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    "tuple": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False, "minItems": 2},
    "anyOf": {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "array", "items": {"type": "integer"}}]},
    "oneOf": {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "string"}]},
    "allOf": {"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"type": "null"}}}]},
    "types": {"type": ["string", "null", "integer"]},
    "closed": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "additionalProperties": False},
    "open": {"type": "object", "additionalProperties": {"type": "integer"}, "required": ["x", "y"]},
    "counted": {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2, "maxProperties": 2},
    "nested": {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"enum": ["é日🙂"]}}, "required": ["b"]}},
        "required": ["a"],
    },
    "formats": {"type": "object", "properties": {"d": {"type": "string", "format": "date"}}, "required": ["d"]},
    "recursive": NODE,
    "anything": {},
}


@every_model
@pytest.mark.parametrize("name", SCHEMAS)
def test_constrained_answers_validate(language, name):
    schema = SCHEMAS[name]
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}

    async def conversation(client: Client) -> list[str]:
        settings: list[dict[str, Any]] = [{"temperature": 0}, *({"seed": seed} for seed in range(4))]
        settings.append({"seed": 9, "temperature": 2})
        return [await client.text(SEA, response_format=wanted, **extra) for extra in settings]

    for text in talk(serve(language, decode_seconds=0.001), conversation):
        jsonschema.validate(json.loads(text), schema, cls=jsonschema.Draft202012Validator)


REFUSED_SCHEMAS: dict[str, tuple[Any, str]] = {
    "unknown type": ({"type": "nonsense"}, "nonsense"),
    "empty bounds": ({"type": "integer", "minimum": 5, "maximum": 4}, "minimum"),
    "empty lengths": ({"type": "string", "minLength": 5, "maxLength": 4}, "minLength"),
    "empty items": ({"type": "array", "minItems": 3, "maxItems": 2}, "minItems"),
    "forbidden required": ({"type": "object", "required": ["a"], "additionalProperties": False}, "required"),
    "false": ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "impossible"),
    "endless": ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "required": ["a"], "properties": {
        "a": {"$ref": "#/$defs/a"}}}}}, "recursion"),
    "itself": ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {}]}}}, "#/$defs/a"),
    "uniqueItems": ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    "not": ({"not": {"type": "string"}}, "not"),
    "if": ({"if": {"type": "string"}}, "if"),
    "bad pattern": ({"type": "string", "pattern": "[a"}, "[a"),
    "lookahead": ({"type": "string", "pattern": "(?=a)a"}, "(?="),
    "no such ref": ({"$ref": "#/$defs/none"}, "#/$defs/none"),
    "enum against type": ({"type": "integer", "enum": ["a"]}, "enum"),
    "not a schema": ([], "object"),
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", REFUSED_SCHEMAS)
def test_a_schema_that_cannot_be_applied_is_refused_by_name(name, stream):
    schema, named = REFUSED_SCHEMAS[name]
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    body = {"messages": user(SEA), "response_format": wanted, "stream": stream}
    reply = ask(serve(), "POST", "/v1/chat/completions", body)
    assert reply.status_code == 400
    assert named in reply.json()["error"]["message"]


@every_model
def test_patterns_and_choices_hold_on_both_routes(language):
    async def conversation(client: Client) -> None:
        pattern = r"(yes|no) [0-9]{3}\.[a-f]+"
        for seed in range(5):
            said = await client.text(SEA, structured_outputs={"regex": pattern}, seed=seed)
            assert re.fullmatch(pattern, said)
            body = {"prompt": SEA, "structured_outputs": {"choice": ["bcdf", "zqxk"]}, "seed": seed}
            assert (await client.post("/v1/completions", body)).json()["choices"][0]["text"] in {"bcdf", "zqxk"}

    talk(serve(language), conversation)


@every_model
def test_a_cut_constrained_answer_is_the_beginning_of_one(language):
    async def conversation(client: Client) -> None:
        extra = {"response_format": {"type": "json_object"}, "temperature": 0}
        extra["chat_template_kwargs"] = {"enable_thinking": False}
        whole = await client.text(SEA, **extra)
        cut = (await client.chat(SEA, max_tokens=4, **extra))["choices"][0]
        assert cut["finish_reason"] == "length"
        assert whole.startswith(cut["message"]["content"])
        assert len(cut["message"]["content"]) < len(whole)

    talk(serve(language), conversation)


# ---------------------------------------------------------------------- tools


@every_model
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_forced_calls_have_valid_arguments(language, choice):
    async def conversation(client: Client) -> None:
        for seed in range(5):
            reply = await client.chat("Hello there.", tools=[WEATHER], tool_choice=choice, seed=seed)
            (answer,) = reply["choices"]
            assert answer["finish_reason"] == "tool_calls"
            assert answer["message"]["content"] is None
            (call,) = answer["message"]["tool_calls"]
            assert call["function"]["name"] == "get_weather"
            jsonschema.validate(json.loads(call["function"]["arguments"]), WEATHER["function"]["parameters"])

    talk(serve(language), conversation)


@every_model
@pytest.mark.parametrize("choice", ["required", "auto"])
def test_one_call_where_parallel_calls_are_off(language, choice):
    async def conversation(client: Client) -> None:
        prompt = "What is the weather in Oslo and in Lima? Ask for both."
        extra = {"tools": [WEATHER], "tool_choice": choice, "temperature": 0}
        both = (await client.chat(prompt, **extra))["choices"][0]["message"].get("tool_calls", [])
        one = (await client.chat(prompt, parallel_tool_calls=False, **extra))["choices"][0]["message"]
        calls = choice == "required" or language in {"obedient", "reasoning"}
        assert (len(both), len(one.get("tool_calls", []))) == ((2, 1) if calls else (0, 0))

    talk(serve(language), conversation)


@every_model
def test_none_means_no_calls(language):
    async def conversation(client: Client) -> None:
        reply = await client.chat("What is the weather in Oslo?", tools=[WEATHER], tool_choice="none")
        assert "tool_calls" not in reply["choices"][0]["message"]
        assert "tool_call" not in (reply["choices"][0]["message"]["content"] or "")

    talk(serve(language), conversation)


@every_model
def test_no_markup_leaks_wherever_a_call_is_cut(language):
    async def conversation(client: Client) -> None:
        for limit in range(1, 60, 3):
            extra = {"tools": [WEATHER], "tool_choice": "required", "max_tokens": limit, "temperature": 0}
            extra["chat_template_kwargs"] = {"enable_thinking": False}
            choice = (await client.chat("Hello", **extra))["choices"][0]
            assert "<" not in (choice["message"]["content"] or "")
            assert choice["finish_reason"] in {"length", "tool_calls"}

    talk(serve(language), conversation)


def test_a_tool_result_reaches_the_prompt_and_the_answer():
    async def conversation(client: Client) -> None:
        call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}
        messages = [
            *user("What is the weather in Oslo?"),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "snow and bcdfghjk"},
        ]
        reply = await client.post("/v1/chat/completions", {"messages": messages, "tools": [WEATHER], "temperature": 0})
        assert "bcdfghjk" in reply.json()["choices"][0]["message"]["content"]

    talk(serve(), conversation)


def test_content_parts_are_the_same_prompt_as_a_string():
    async def conversation(client: Client) -> None:
        parts = [{"role": "user", "content": [{"type": "text", "text": SEA}]}]
        split = (await client.post("/v1/chat/completions", {"messages": parts, "temperature": 0})).json()
        whole = await client.chat(SEA, temperature=0)
        assert split["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
        assert split["choices"] == whole["choices"]

    talk(serve(), conversation)


# ---------------------------------------------------------------------- completions and tokens


def test_echo_logprobs_and_token_prompts_on_completions():
    async def conversation(client: Client) -> None:
        prompt = "The storm passed, and"
        ids = (await client.post("/tokenize", {"prompt": prompt})).json()["tokens"]
        body = {"echo": True, "logprobs": 3, "max_tokens": 4, "temperature": 0}
        by_text = (await client.post("/v1/completions", {"prompt": prompt, **body})).json()["choices"][0]
        by_ids = (await client.post("/v1/completions", {"prompt": ids, **body})).json()["choices"][0]
        assert by_text == by_ids
        logprobs = by_text["logprobs"]
        assert by_text["text"].startswith(prompt)
        assert "".join(logprobs["tokens"]) == by_text["text"]
        assert logprobs["token_logprobs"][0] is None
        assert all(value < 0 for value in logprobs["token_logprobs"][1:])
        assert logprobs["text_offset"] == [len("".join(logprobs["tokens"][:n])) for n in range(len(ids) + 4)]
        assert all(3 <= len(top) <= 4 for top in logprobs["top_logprobs"][1:])
        listed = (await client.post("/v1/completions", {"prompt": [prompt, SEA], "n": 2, **body})).json()["choices"]
        assert [choice["index"] for choice in listed] == [0, 1, 2, 3]
        assert [
            choice["text"].startswith(start) for choice, start in zip(listed, [prompt] * 2 + [SEA] * 2, strict=True)
        ] == [True] * 4

    talk(serve(), conversation)


@every_model
@pytest.mark.parametrize("echo", [False, True])
def test_streamed_completions_equal_whole_ones(language, echo):
    async def conversation(client: Client) -> None:
        body = {"prompt": "Once upon a time", "echo": echo, "logprobs": 2, "max_tokens": 25, "seed": 2}
        whole = (await client.post("/v1/completions", body)).json()["choices"][0]
        reply = await client.post("/v1/completions", {**body, "stream": True})
        pieces = [json.loads(line[6:])["choices"][0] for line in reply.text.split("\n\n")[:-2]]
        assert "".join(piece["text"] for piece in pieces) == whole["text"]
        for key in ("tokens", "token_logprobs", "text_offset"):
            assert [value for piece in pieces for value in piece["logprobs"][key]] == whole["logprobs"][key]
        assert pieces[-1]["finish_reason"] == whole["finish_reason"]

    talk(serve(language), conversation)


def test_a_teacher_forced_walk_sees_the_same_prompt_logprobs_each_time():
    async def conversation(client: Client) -> None:
        body = {"prompt": "The storm passed over the harbour", "max_tokens": 1, "prompt_logprobs": 2}
        first, again = [(await client.post("/v1/completions", body)).json()["choices"][0] for _ in range(2)]
        assert first["prompt_logprobs"] == again["prompt_logprobs"]
        assert first["prompt_logprobs"][0] is None
        assert len(first["prompt_logprobs"]) == len(encode(body["prompt"]))

    talk(serve(), conversation)


def test_tokenize_and_detokenize_are_inverse_and_agree_with_usage():
    async def conversation(client: Client) -> None:
        text = "naïve 日本 👩‍👩‍👧 {x}"
        made = (await client.post("/tokenize", {"prompt": text})).json()
        assert made["count"] == len(made["tokens"])
        assert (await client.post("/detokenize", {"tokens": made["tokens"]})).json() == {"prompt": text}
        used = (await client.post("/v1/completions", {"prompt": text, "max_tokens": 1})).json()["usage"]
        assert used["prompt_tokens"] == made["count"]

    talk(serve(), conversation)
