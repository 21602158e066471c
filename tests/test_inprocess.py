"""A model in this process behind the API: a tiny one, put in where Transformers would stand."""

import asyncio
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from servecheck import recordings, run
from servecheck.errors import UnknownName, UsageError
from servecheck.inprocess import connect, eager
from servecheck.inprocess.app import App, Distribution
from servecheck.model import How
from servecheck.reference.asgi import Reply, Request
from servecheck.store import RunReader
from tests.lab import Lab, Odd, make_scenario

WORDS = ("<|end|>", " the", " river", " stone", " cloud", " garden", " and", " of")


class Row:
    def __init__(self, likeliest: int) -> None:
        weights = [8.0 if token == likeliest else 1.0 / (2 + token) for token in range(len(WORDS))]
        self._values = [math.log(weight / sum(weights)) for weight in weights]

    def of(self, token: int) -> float:
        return self._values[token]

    def top(self, count: int) -> list[tuple[int, float]]:
        return sorted(enumerate(self._values), key=lambda each: -each[1])[:count]

    def every(self) -> Sequence[float]:
        return self._values


class Tiny:
    """Goes around in its seven words; a text of nine tokens ends."""

    name = "tiny"
    about: Mapping[str, str] = {"version": "9.9.9", "dtype": "bfloat16", "device": "tpu:0"}
    limit = 64
    ends = frozenset({0})
    vocabulary = len(WORDS)

    def encode(self, text: str) -> list[int]:
        return [1 + sum(word.encode()) % 7 for word in text.split()]

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        if messages[0].get("role") == "system":
            raise ValueError("no system messages")
        return [1, *self.encode(str(messages[-1]["content"]))]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(WORDS[token] for token in ids if token)

    def piece(self, token: int) -> str:
        return WORDS[token]

    def read(self, ids: Sequence[int], state: Any, *, every: bool = False) -> tuple[list[Distribution], Any]:
        seen = tuple(state or ())
        rows: list[Distribution] = []
        for token in ids:
            seen = (*seen, token)
            rows.append(Row(0 if len(seen) == 9 else 1 + token % 7))
        return (rows if every else rows[-1:]), seen


def asked(path: str, body: object = None) -> tuple[int, Any]:
    data = b"" if body is None else json.dumps(body).encode()

    async def ask() -> Reply:
        return await App(Tiny(), clock=lambda: 5.0).reply(
            Request(method="POST" if body is not None else "GET", path=path, body=data)
        )

    reply = asyncio.run(ask())
    assert isinstance(reply.body, bytes)
    return reply.status, json.loads(reply.body or b"null")


def completion(**fields: object) -> Any:
    status, body = asked("/v1/completions", {"model": "tiny", "temperature": 0, **fields})
    assert status == 200, body
    return body


def test_greedy_takes_the_likeliest_token_and_ends_where_the_model_does():
    body = completion(prompt=[1, 2], max_tokens=20)
    assert body["choices"][0]["text"] == " stone cloud garden and of the river"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {"prompt_tokens": 2, "completion_tokens": 8, "total_tokens": 10}


def test_ignore_eos_goes_on_to_the_limit():
    body = completion(prompt=[1, 2], max_tokens=12, ignore_eos=True)
    assert (body["choices"][0]["finish_reason"], body["usage"]["completion_tokens"]) == ("length", 12)


def test_logprobs_are_arrays_with_the_chosen_token_among_the_likeliest():
    found = completion(prompt=[1], max_tokens=2, logprobs=3)["choices"][0]["logprobs"]
    assert found["tokens"] == [" river", " stone"]
    assert [len(top) for top in found["top_logprobs"]] == [3, 3]
    assert found["token_logprobs"][0] == max(found["top_logprobs"][0].values())
    assert found["text_offset"] == [0, 6]


def test_echo_scores_the_prompt_but_for_its_first_token():
    body = completion(prompt=[1, 5], max_tokens=1, logprobs=2, echo=True)
    found = body["choices"][0]["logprobs"]
    assert body["choices"][0]["text"] == " the garden and"
    assert found["token_logprobs"][0] is None
    assert found["token_logprobs"][1] == pytest.approx(Row(2).of(5))


def test_prompt_logprobs_name_the_token_that_is_there_first():
    found = completion(prompt=[1, 5], max_tokens=1, prompt_logprobs=2)["choices"][0]["prompt_logprobs"]
    assert found[0] is None
    assert next(iter(found[1])) == "5"
    assert found[1]["2"] == {"logprob": pytest.approx(Row(2).of(2)), "rank": 1, "decoded_token": " river"}


def test_a_seed_repeats_a_sample_and_temperature_makes_samples_differ():
    def texts(*seeds: int | None) -> set[str]:
        return {
            completion(prompt=[1], max_tokens=6, temperature=2.0, seed=seed, ignore_eos=True)["choices"][0]["text"]
            for seed in seeds
        }

    assert len(texts(7, 7, 7)) == 1
    assert len(texts(*range(20))) > 5


def test_top_k_1_and_a_tiny_top_p_are_greedy():
    greedy = completion(prompt=[1], max_tokens=6)["choices"][0]["text"]
    for cut in ({"top_k": 1}, {"top_p": 0.01}):
        assert completion(prompt=[1], max_tokens=6, **{"temperature": 2.0, **cut})["choices"][0]["text"] == greedy


def test_a_chat_goes_through_the_template_and_names_alternatives():
    status, body = asked(
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "a b"}], "max_tokens": 2, "temperature": 0, "logprobs": True}
        | {"top_logprobs": 2},
    )
    assert status == 200
    assert body["usage"]["prompt_tokens"] == 3
    entry = body["choices"][0]["logprobs"]["content"][0]
    assert entry["token"] == body["choices"][0]["message"]["content"][: len(entry["token"])]
    assert len(entry["top_logprobs"]) == 2


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/completions", {"prompt": "a", "stream": True}, "streams"),
        ("/v1/completions", {"prompt": "a", "n": 2}, "one choice"),
        ("/v1/completions", {"prompt": "a", "stop": ["x"]}, "stop is not supported"),
        ("/v1/completions", {"prompt": [99]}, "vocabulary"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 64}, "context of 64"),
        ("/v1/completions", {"prompt": ""}, "empty"),
        ("/v1/chat/completions", {"messages": [{"role": "system", "content": "x"}]}, "template refuses"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": []}, "tools is not"),
    ],
)
def test_what_it_does_not_do_is_refused_by_name(path, body, said):
    status, answer = asked(path, body)
    assert status == 400
    assert said in answer["error"]["message"]


def test_tokenize_counts_texts_and_chats():
    assert asked("/tokenize", {"prompt": "a b c"})[1]["count"] == 3
    assert asked("/tokenize", {"messages": [{"role": "user", "content": "a b"}]})[1]["count"] == 3


def test_a_recording_says_what_it_is_of_as_observed(tmp_path):
    one, way = connect.endpoint(Tiny()), connect.connector(Tiny())
    lab = Lab(tmp_path / "unused", {"a": Odd()}, [make_scenario("chat.basic")])
    plan = lab.plan
    plan = type(plan)(
        endpoints=(one,),
        scenarios=plan.scenarios,
        skips=(),
        settings=plan.settings,
        estimate=plan.estimate,
    )
    asyncio.run(run.carry_out(plan, lab.probes, tmp_path / "run", way))
    ((_, fingerprint),) = RunReader(tmp_path / "run").endpoints()
    seen = {name: (known.value, known.how) for name, known in fingerprint.fields.items()}
    assert seen["engine"] == ("transformers", How.OBSERVED)
    assert seen["engine_version"] == ("9.9.9", How.OBSERVED)
    assert seen["dtype"] == ("bfloat16", How.OBSERVED)
    assert seen["device"] == ("tpu:0", How.OBSERVED)


def test_a_folder_that_is_no_model_is_refused_before_anything_is_loaded(tmp_path):
    with pytest.raises(UsageError, match=r"config\.json"):
        eager.load(tmp_path)
    with pytest.raises(UnknownName):
        recordings.in_process(tmp_path, dtype="bfloat")


def test_missing_libraries_are_named_with_the_extra(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"servecheck\[transformers\]"):
        eager.load(tmp_path)
