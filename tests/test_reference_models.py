"""The tokenizer loses nothing, and the reference models are what their names say, by distributions that add up."""

from __future__ import annotations

import json
import math
import re

import pytest

from servecheck.errors import UnknownName
from servecheck.reference.models import CANDIDATES, MODELS, model_named
from servecheck.reference.parsing import StopScanner, ThinkSplitter, ToolSplitter
from servecheck.reference.tokens import IM_END, VOCABULARY, decode, encode, piece, render_chat

TEXTS = (
    "",
    "Hello, world!\n\n  two  spaces\tand a tab",
    "naïve café, Ünïcödé, e\u0301 combining",
    "日本語のテキスト 中文 한국어",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇳🇴 👍🏽",
    '{"code": "zqxkvjbw", "n": [1, 2.5, null]}',
    "<|im_start|>user\nnot a special token<|im_end|>",
    "".join(map(chr, range(32, 700))),
)
WEATHER: dict[str, object] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Look up the weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def greedy(model: str, *messages: tuple[str, str], tools: tuple[dict[str, object], ...] = ()) -> str:
    prompt = render_chat([{"role": role, "content": content} for role, content in messages], tools)
    return decode(tokens_of(model, prompt))


def tokens_of(model: str, prompt: tuple[int, ...]) -> list[int]:
    language, generated = model_named(model), list[int]()
    while not generated or generated[-1] != IM_END:
        generated.append(language.candidates(prompt, generated)[0][0])
    return generated


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_tokenizer(text):
    assert decode(encode(text)) == text


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_token_by_token(text):
    assert b"".join(piece(token) for token in encode(text)).decode() == text


def test_words_are_one_token_and_emoji_are_several():
    assert len(encode(" mountain")) == 1
    assert len(encode("🇳🇴")) == 8


def test_text_never_makes_a_special_token():
    assert IM_END not in encode("<|im_end|>")
    assert decode(render_chat([{"role": "user", "content": "hi"}]), special=True) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_conversation_keeps_the_prefix_of_its_earlier_turns():
    first = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tell me a story."}]
    said = {"role": "assistant", "content": "The storm passed."}
    before = render_chat(first, [WEATHER])
    after = render_chat([*first, said, {"role": "user", "content": "Go on."}], [WEATHER])
    assert after[: len(before)] == before


@pytest.mark.parametrize("model", MODELS)
def test_distributions_add_up_and_are_sorted(model):
    language, prompt = model_named(model), render_chat([{"role": "user", "content": "Write about the sea."}])
    generated: list[int] = []
    for _ in range(60):
        candidates = language.candidates(prompt, generated)
        assert len(candidates) == len({token for token, _ in candidates}) == CANDIDATES >= 20
        assert math.fsum(math.exp(logprob) for _, logprob in candidates) == pytest.approx(1)
        assert candidates == sorted(candidates, key=lambda pair: -pair[1])
        assert all(0 <= token < VOCABULARY and logprob < 0 for token, logprob in candidates)
        generated.append(candidates[0][0])


def test_no_sampled_token_breaks_a_character():
    language, prompt = model_named("obedient"), render_chat([{"role": "user", "content": "Say 'héllo 日本🙂 you'"}])
    for count in range(30):
        generated = tokens_of("obedient", prompt)[:count]
        for token, logprob in language.candidates(prompt, generated)[1:]:
            assert logprob < -15 or decode([token]).isprintable()


def test_the_distribution_depends_on_the_prompt_and_on_what_was_said():
    language = model_named("obedient")
    one, other = (render_chat([{"role": "user", "content": f"Write about {topic}."}]) for topic in ("dogs", "ships"))
    assert language.candidates(one, []) != language.candidates(other, [])
    said = [token for token, _ in language.candidates(one, [])]
    assert language.candidates(one, said[:1]) != language.candidates(one, said[1:2])


def test_greedy_tokens_are_clear_of_near_ties():
    language, prompt = model_named("babbling"), render_chat([{"role": "user", "content": "Tell me a long story."}])
    generated: list[int] = []
    for _ in range(200):
        (first, best), (_, second), *_ = language.candidates(prompt, generated)
        assert best - second > 0.25
        generated.append(first)


def test_scoring_a_text_names_every_token_and_nothing_for_the_first():
    ids = encode("The storm passed over the harbour, zqxk.")
    first, *rest = model_named("obedient").score(ids)
    assert first is None
    for token, candidates in zip(ids[1:], rest, strict=True):
        assert candidates is not None
        assert token in dict(candidates)
        assert math.fsum(math.exp(logprob) for _, logprob in candidates) == pytest.approx(1)


OBEYED = (
    ("What is the capital of France?", "The capital of France is Paris."),
    ("Count from 1 to 5.", "1, 2, 3, 4, 5."),
    ("Please count to ten", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10."),
    ("Repeat the word 'apple' four times.", "apple apple apple apple"),
    ("Say OK", "OK"),
    ("Reply with only the word hello.", "hello"),
    ("Repeat exactly: naïve 日本 👍🏽 e\u0301", "naïve 日本 👍🏽 e\u0301"),
    ('Reply with "zqxkvbnmtr" and nothing else.', "zqxkvbnmtr"),
    ("What is 17 + 25?", "42."),
)


@pytest.mark.parametrize(("prompt", "answer"), OBEYED)
def test_obedient_does_what_it_is_told(prompt, answer):
    assert answer == greedy("obedient", ("user", prompt))


@pytest.mark.parametrize(("prompt", "answer"), OBEYED)
@pytest.mark.parametrize("model", ["babbling", "declining"])
def test_babbling_and_declining_do_not(model, prompt, answer):
    assert answer not in greedy(model, ("user", prompt))


@pytest.mark.parametrize(("prompt", "answer"), OBEYED)
def test_reasoning_thinks_first_and_then_obeys(prompt, answer):
    thought, _, said = greedy("reasoning", ("user", prompt)).partition("</think>")
    assert thought.startswith("<think>")
    assert 10 <= len(encode(thought)) <= 40
    assert said.strip() == answer


def test_obedient_remembers_what_it_was_told_two_turns_ago():
    history = (
        ("user", "My secret code is bcdfghjklm."),
        ("assistant", "Thank you."),
        ("user", "Write one sentence about the sea."),
        ("assistant", "The sea was calm."),
    )
    asked = ("user", "What was my secret code?")
    assert "bcdfghjklm" in greedy("obedient", *history, asked)
    assert "bcdfghjklm" not in greedy("obedient", *history[2:], asked)


def test_obedient_keeps_to_its_system_message():
    rule = ("system", "End every answer with the word bcdfghjk.")
    assert greedy("obedient", rule, ("user", "Write about dogs.")).endswith(" bcdfghjk")


def test_obedient_writes_json_when_asked_and_prose_when_not():
    assert isinstance(json.loads(greedy("obedient", ("user", "Describe a cat as JSON."))), dict)
    assert "{" not in greedy("obedient", ("user", "Write two sentences in plain prose. Do not use JSON."))


@pytest.mark.parametrize("model", ["obedient", "reasoning"])
def test_the_tool_is_called_where_it_helps(model):
    said = greedy(model, ("user", "What is the weather in Oslo?"), tools=(WEATHER,))
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>' in said


def test_two_things_asked_make_two_calls():
    said = greedy("obedient", ("user", "What is the weather in Oslo and Lima?"), tools=(WEATHER,))
    assert re.findall(r'"arguments": (\{.*?\})\}', said) == ['{"city": "Oslo"}', '{"city": "Lima"}']


def test_small_talk_calls_nothing():
    assert "tool_call" not in greedy("obedient", ("user", "Hello, how are you today?"), tools=(WEATHER,))


def test_a_tool_result_reaches_the_answer():
    said = greedy("obedient", ("user", "What is the weather in Oslo?"), ("tool", "snow, bcdfgh"), tools=(WEATHER,))
    assert "bcdfgh" in said


@pytest.mark.parametrize("model", MODELS)
def test_ordinary_answers_are_neither_tiny_nor_endless(model):
    for topic in ("the sea", "a dog", "winter mornings", "an old bridge", "coffee"):
        count = len(tokens_of(model, render_chat([{"role": "user", "content": f"Write a poem about {topic}."}])))
        assert (5 <= count <= 12) if model == "declining" else (18 <= count <= 120)


@pytest.mark.parametrize("model", ["obedient", "babbling", "reasoning"])
def test_a_long_story_is_long(model):
    prompt = render_chat([{"role": "user", "content": "Tell me a long story about a sailor."}])
    assert len(tokens_of(model, prompt)) >= 200


def test_a_plain_prompt_is_continued():
    assert decode(tokens_of("obedient", encode("The capital of France is"))) == " Paris."


def test_an_unknown_model_is_told_with_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'obedient'"):
        model_named("obediant")


# ---------------------------------------------------------------------- what the parser makes of the text

SAID = '<think>\nA thought.\n</think>\n\nLook: <tool_call>\n{"name": "f", "arguments": {"a": "}\\"<", "b": [1]}}\n'
SAID += '</tool_call>\n<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 200])
def test_thoughts_and_calls_are_read_alike_whatever_the_pieces(size):
    thoughts, tools = ThinkSplitter(on=True), ToolSplitter(on=True)
    thought, content, calls = "", "", dict[int, list[str]]()
    for start in range(0, len(SAID), size):
        more, answer = thoughts.feed(SAID[start : start + size])
        thought += more
        shown, pieces = tools.feed(answer)
        content += shown
        for call in pieces:
            if call.name is not None:
                calls[call.index] = [call.name, ""]
            calls[call.index][1] += call.arguments
    assert thought == "A thought."
    assert content + tools.rest() == "Look:"
    assert calls == {0: ["f", '{"a": "}\\"<", "b": [1]}'], 1: ["g", "{}"]}


@pytest.mark.parametrize("size", [1, 2, 3, 50])
@pytest.mark.parametrize(
    ("stops", "shown", "stop"),
    [
        (("END",), "one ENtwo ", "END"),
        (("NDx", "zzz"), "one ENtwo ENDEN", None),
        (("two END", "o E"), "one ENtw", "o E"),
    ],
)
def test_a_stop_string_never_leaks(size, stops, shown, stop):
    text, scanner, got, found = "one ENtwo ENDEN", StopScanner(stops), "", None
    for start in range(0, len(text), size):
        more, found = scanner.feed(text[start : start + size])
        got += more
        if found:
            break
    assert (got + scanner.rest(), found) == (shown, stop)
