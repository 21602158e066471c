"""An exchange is an answer, a refusal or a failure, and no server can make the reader raise."""

from __future__ import annotations

import json
import random

import pytest

from servecheck import canary, identify
from servecheck.model import Chunk, Ending, Endpoint, Exchange
from servecheck.read import reply
from servecheck.read.text import garbage, parse, quote

_JSON = (("content-type", "application/json"),)
_SSE = (("content-type", "text/event-stream; charset=utf-8"),)


def exchange(
    body: object = b"",
    status: int | None = 200,
    *,
    headers: tuple[tuple[str, str], ...] = _JSON,
    ending: Ending = Ending.COMPLETE,
    detail: str = "",
    ended_at: float = 1.0,
    path: str = "/chat/completions",
) -> Exchange:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Exchange(
        id="x0001",
        step="s",
        method="POST",
        url="http://h/v1" + path,
        status=status,
        response_headers=headers,
        chunks=(Chunk(0.1, raw),) if raw else (),
        ending=ending,
        detail=detail,
        ended_at=ended_at,
    )


def streamed(*events: object, **kwargs) -> Exchange:
    raw = b"".join(
        b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n" for event in events
    )
    return exchange(raw, headers=_SSE, **kwargs)


def said(text: str, **kwargs) -> dict[str, object]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, **kwargs}]}


# --------------------------------------------------------------------------- the table


@pytest.mark.parametrize(
    ("seen", "code", "message"),
    [
        (exchange({"error": {"message": "no logprobs"}}, 400), 400, "no logprobs"),
        (exchange({"object": "error", "message": "flat"}, 400), 400, "flat"),
        (exchange({"error": "a string"}, 404), 404, "a string"),
        (exchange({"detail": "Not Found"}, 404), 404, "Not Found"),
        (exchange({"detail": [{"msg": "field required", "loc": []}]}, 422), 422, "field required"),
        (exchange("only text", 400), 400, "only text"),
        (exchange(b"plain words\n", 413), 413, "plain words"),
        (exchange(b"<html>\xff", 404), 404, "<html>\ufffd"),
        (exchange(b"", 405), 405, ""),
        (exchange([1, 2], 400), 400, ""),
        (exchange({"error": {"message": {"deep": 1}}}, 400), 400, ""),
        (exchange({"error": {"message": "not yet"}}, 501), 501, "not yet"),
        (exchange({"error": {"code": 400, "message": "in a 200"}}), 400, "in a 200"),
        (exchange({"object": "error", "code": "404", "message": "flat in a 200"}), 404, "flat in a 200"),
        (streamed({"error": {"code": 400, "message": "in a stream"}}), 400, "in a stream"),
        (streamed(said("a"), {"object": "error", "code": 422, "message": "flat, later"}), 422, "flat, later"),
        (exchange({"error": {"message": "x"}}, 400, ending=Ending.TRUNCATED), 400, "x"),
    ],
)
def test_a_refusal_has_a_code_and_the_servers_words(seen, code, message):
    found = reply.chat(seen)
    assert isinstance(found, reply.Refusal)
    assert (found.code, found.message) == (code, message)
    assert found.what.startswith(f"HTTP {code}")


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (exchange(b"", None, ending=Ending.UNREACHABLE, detail="connection refused"), "no reply: connection refused"),
        (exchange(b"", None, ending=Ending.DEADLINE, ended_at=300), "no reply within 300 s"),
        (exchange(b"", None, ending=Ending.TRUNCATED, detail="reset"), "no reply: reset"),
        (exchange(b"{", ending=Ending.DEADLINE, ended_at=9), "reply not finished within 9 s, 1 bytes came"),
        (exchange(b'{"a', ending=Ending.TRUNCATED, detail="reset"), "reply cut after 3 bytes: reset"),
        (exchange({"error": {"message": "boom"}}, 500), "HTTP 500: “boom”"),
        (exchange(b"Bad Gateway", 502), "HTTP 502: “Bad Gateway”"),
        (exchange(b"", 307, headers=(("location", "/elsewhere"),)), "HTTP 307 to “/elsewhere”"),
        (exchange(b"", 304), "HTTP 304 to “”"),
        (exchange(b""), "reply is not JSON"),
        (exchange(b"<html>"), "reply is not JSON"),
        (exchange(b'{"choices": [], "x": NaN}'), "NaN is not JSON"),
        (exchange(b'{"choices": [], "x": -Infinity}'), "-Infinity is not JSON"),
        (exchange(b"\xff{}"), "reply is not JSON"),
        (exchange('{"choices": []}'.encode("utf-16")), "reply is not JSON"),
        (exchange(b"9" * 5000), "reply is not JSON"),
        (exchange(b"[" * 100_000), "nested too deeply to read"),
        (exchange(b'{"a":' * 100_000), "nested too deeply to read"),
        (exchange([]), "no list of choices"),
        (exchange(None), "no list of choices"),
        (exchange({"choices": {}}), "no list of choices"),
        (exchange({"error": {"message": "x", "code": 500}}), "200 with an error body: “x”"),
        (exchange({"error": {"message": "x", "code": "²"}}), "200 with an error body: “x”"),
        (exchange({"error": {"a": 1}}), '200 with an error body: “{"a": 1}”'),
        (streamed(), "stream of 0 events without a choice"),
        (streamed(b"[DONE]"), "stream of 1 events without a choice"),
        (streamed(b"{"), "event 1 is not JSON"),
        (streamed(said("a"), b'{"x": NaN}'), "event 2 is not JSON"),
        (streamed({"error": {"message": "died", "code": 500}}), "error event in a stream: “died”"),
        (streamed(said("a"), ending=Ending.TRUNCATED, detail="cut"), "reply cut after"),
    ],
)
def test_a_failure_says_what_came_instead(seen, words):
    found = reply.chat(seen)
    assert isinstance(found, reply.Failure)
    assert words in found.what
    assert "\n" not in found.what


def test_a_byte_order_mark_is_let_through_as_clients_do():
    assert isinstance(reply.chat(exchange(b"\xef\xbb\xbf" + json.dumps(said("a")).encode())), reply.Answer)


def test_choices_come_in_the_order_of_their_index_and_what_is_of_another_type_is_not_there():
    body = {
        "choices": [
            {"index": 1, "message": {"content": "b"}},
            {"index": 0, "message": {"content": "a", "tool_calls": [7, {"function": 1}], "role": 3}},
            "nonsense",
        ],
        "usage": {"prompt_tokens": True, "completion_tokens": "2", "total_tokens": 3},
    }
    answer = reply.chat(exchange(body))
    assert isinstance(answer, reply.Answer)
    assert [choice.text for choice in answer.choices] == ["a", "b", ""]
    assert answer.first.role is None
    assert [call.name for call in answer.first.tool_calls] == [None, None]
    assert answer.usage == reply.Usage(prompt=None, completion=None, total=3, cached=None)


def test_a_streamed_answer_joins_the_deltas_of_each_choice_and_each_call():
    def delta(index: int, finish: str | None = None, **fields: object) -> dict[str, object]:
        return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}

    def call(index: int, arguments: str, **fields: object) -> dict[str, object]:
        return {"index": index, "function": {"arguments": arguments, **fields}}

    answer = reply.chat(
        streamed(
            delta(0, role="assistant", content=""),
            delta(1, content="x"),
            delta(0, content="a"),
            delta(0, tool_calls=[{"id": "c1", **call(0, "", name="f")}, call(1, "[", name="g")]),
            delta(0, tool_calls=[call(1, "]"), call(0, "{}")]),
            delta(0, content="b", reasoning="r"),
            delta(1, "stop"),
            delta(0, "tool_calls"),
            {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
            b"[DONE]",
        )
    )
    assert isinstance(answer, reply.Answer)
    first, second = answer.choices
    assert (first.text, first.reasoning, first.finish, first.role, first.pieces) == (
        "ab",
        "r",
        "tool_calls",
        "assistant",
        2,
    )
    assert [(c.name, c.arguments, c.id) for c in first.tool_calls] == [("f", "{}", "c1"), ("g", "[]", None)]
    assert (second.text, second.finish) == ("x", "stop")
    assert answer.usage == reply.Usage(prompt=1, completion=2, total=3, cached=None)


# --------------------------------------------------------------------------- overload


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (exchange(b"", 429), True),
        (exchange(b"", 503), True),
        (exchange(b"", 500), False),
        (exchange(b"", None), False),
        (streamed({"error": {"code": 503, "message": "busy"}}), True),
        (streamed({"error": {"code": "429"}}), True),
        (streamed({"object": "error", "code": 503}), True),
        (streamed(said("a"), {"error": {"status_code": 429}}), True),
        (streamed({"error": {"code": 500}}), False),
        (streamed({"error": {"code": "²"}}), False),
        (streamed({"error": {"code": "9" * 6000}}), False),
        (streamed({"error": {"code": True}}), False),
        (streamed(said("503")), False),
        (streamed(b"{", {"error": {"code": 503}}), True),
        (exchange({"error": {"code": 503}}), False),
    ],
)
def test_overload_is_a_status_or_an_event_that_carries_one(seen, expected):
    assert reply.is_overloaded(seen) is expected


# --------------------------------------------------------------------------- nothing raises


def _bombs() -> list[bytes]:
    around = [b'{"error":' + b"[" * depth + b"]" * depth + b"}" for depth in range(100, 1400, 25)]
    return [*around, *(b'{"choices":' + b"[" * depth + b"]" * depth + b"}" for depth in range(100, 1400, 100))]


def test_nesting_of_any_depth_is_read_or_refused_and_never_raises():
    for bomb in _bombs():
        for seen in (exchange(bomb), exchange(b"data: " + bomb + b"\n\n", headers=_SSE), exchange(bomb, 400)):
            assert isinstance(reply.chat(seen), reply.Answer | reply.Failure | reply.Refusal)
            assert isinstance(canary.ailment(seen), str)
            reply.is_overloaded(seen)


_LEAVES: list[object] = [None, True, 0, -1, 1.5, "", "x", "\ud800", [], {}, [[]], {"id": 1}, "²", 10**30]
_KEYS = ["choices", "error", "message", "delta", "content", "tool_calls", "function", "index", "code", "usage", "data"]
_KEYS += ["id", "object", "finish_reason", "logprobs", "prompt_tokens_details", "owned_by", "meta", "version", "models"]


def _anything(chance: random.Random, depth: int = 4) -> object:
    if depth == 0 or chance.random() < 0.25:
        return chance.choice(_LEAVES)
    if chance.random() < 0.4:
        return [_anything(chance, depth - 1) for _ in range(chance.randrange(4))]
    return {chance.choice(_KEYS): _anything(chance, depth - 1) for _ in range(chance.randrange(6))}


@pytest.mark.parametrize("seed", range(8))
def test_no_json_makes_a_reader_raise(seed):
    chance = random.Random(seed)
    for _ in range(150):
        body = _anything(chance)
        for status in (200, 400, 500):
            for path in ("/chat/completions", "/completions", "/embeddings"):
                seen = exchange(body, status, path=path)
                reply.chat(seen), reply.completion(seen), reply.json_body(seen), canary.ailment(seen)
        seen = streamed(body, _anything(chance))
        reply.chat(seen), reply.completion(seen), reply.is_overloaded(seen), canary.ailment(seen)
        steps = ("health", "models", "version", "server_info", "props", "metrics", "model_info")
        asked = {step: exchange(_anything(chance)) for step in steps}
        identity = identify.identify(Endpoint(name="e", base_url="http://h/v1"), asked, exchange(body))
        assert tuple(identity.fingerprint.fields) == identify.FIELDS


# --------------------------------------------------------------------------- small readers


@pytest.mark.parametrize("text", ["NaN", "[1, Infinity]", "{'a': 1}", "{} {}", "", "\x00", b"\xff", "[" * 50_000])
def test_what_is_not_json_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the message is the parser's
        parse(text)


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("!" * 40, "40 of 40 characters are '!'"),
        ("\ufffd" * 4 + "abcdefgh", "4 of 12 characters are U+FFFD"),
        ("?! .,;:-–—…()", "none of 12 characters is a letter or a digit"),
        ("00000000000000", ""),
        ("a b a b c c", ""),
        ("!!!!", ""),
        ("法国的首都是巴黎，很美。", ""),
        ("", ""),
    ],
)
def test_garbage_is_signs_of_a_broken_decoder_and_not_nonsense(text, sign):
    assert garbage(text) == sign


def test_a_quotation_is_one_line_and_cut():
    assert quote(b"a\nb\xff\x1b[0m") == r"“a\nb\xff\x1b[0m”"
    assert quote("x" * 100, 10) == "“xxxxxxxxx…”"
    quote("\ud800").encode()


@pytest.mark.parametrize("digits", ["1" * 301, "-" + "1" * 301, "9" * 5000])
def test_a_number_that_no_arithmetic_can_hold_is_refused_in_words(digits):
    with pytest.raises(ValueError, match=f"a number of {len(digits)} digits"):
        parse(f'{{"usage": {digits}}}')


def test_a_long_number_is_read():
    assert float(parse("9" * 300)) > 1e299  # type: ignore[arg-type]
