"""What the judges of the logprobs rows make of replies that no mutant gives, real engines' own shapes among them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from servecheck.model import Exchange, Json, Outcome
from servecheck.probes import logprobs_chat, logprobs_completions, logprobs_prompt, logprobs_stream
from servecheck.probes._logprobs import improper, misspelt, of_chat, of_legacy, twins, unlikely
from servecheck.probes.logprobs_chat import LogprobsChatParams
from servecheck.probes.logprobs_completions import LogprobsCompletionsParams
from servecheck.probes.logprobs_prompt import LogprobsPromptParams
from servecheck.probes.logprobs_stream import LogprobsStreamParams
from servecheck.read import reply
from tests import made
from tests.made import exchange, failure, refusal, said, stream, transcript, whole

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED


def token(text: str, value: Json = -0.5, *, data: Json = "own", top: Json = None) -> dict[str, Json]:
    return {
        "token": text,
        "logprob": value,
        "bytes": list(text.encode()) if data == "own" else data,
        "top_logprobs": [] if top is None else top,
    }


def five(text: str, value: float = -0.5, step: float = 1.5) -> dict[str, Json]:
    """Return a token with itself and four others, ``step`` apart."""
    others: list[Json] = [token(f"{text}{number}", value - step * number) for number in range(1, 5)]
    return token(text, value, top=[token(text, value), *others])


def answered(entries: Sequence[Json] | None, text: str, tokens: int | None = None, *, reasoning: str = "") -> Json:
    count = len(entries or ()) if tokens is None else tokens
    usage = {"prompt_tokens": 9, "completion_tokens": count, "total_tokens": 9 + count}
    logprobs = None if entries is None else {"content": entries}
    return whole(text, usage=usage, logprobs=logprobs, reasoning=reasoning)  # type: ignore[return-value]


def chat(step: str, entries: Sequence[Json] | None, text: str = "ab", tokens: int | None = None) -> Exchange:
    return exchange(step, answered(entries, text, tokens), request={})


def answer(entries: Sequence[Json], text: str, reasoning: str = "") -> reply.Answer:
    found = reply.chat(exchange("x", answered(entries, text, reasoning=reasoning), request={}))
    assert isinstance(found, reply.Answer)
    return found


# --------------------------------------------------------------------------- single rules


@pytest.mark.parametrize(
    ("wrong", "value"),
    [
        (False, -0.5), (False, 0), (False, 0.0), (False, -9999.0), (False, 1e-4), (False, -1e308),
        (True, None), (True, "−0.5"), (True, True), (True, 0.5), (True, 10**400), (True, math.inf), (True, []),
    ],
)  # fmt: skip
def test_a_value_is_a_log_probability(wrong, value):
    assert bool(improper(of_chat([token("a", value)]))) is wrong


def test_alternatives_that_are_more_than_certain_together_are_none():
    likely: list[Json] = [token("a", -0.3), token("b", -0.3)]

    assert "1.48" in improper(of_chat([token("a", -0.3, top=likely)]))
    assert not improper(of_chat([token("a", -0.7, top=[token("a", -0.7), token("b", -0.7)])]))


def test_one_certain_token_is_right_and_a_text_of_them_is_not():
    assert not improper(of_chat([token("a", 0), token("b", -1), *[token("c", 0)] * 9]))
    assert "each was certain" in improper(of_chat([token("a", 0.0)] * 6))


@pytest.mark.parametrize(
    ("right", "text", "entries"),
    [
        pytest.param(True, "ab", [token("a"), token("b")], id="plainly"),
        pytest.param(True, "ab", [token("a"), token("b"), token("<|im_end|>")], id="with vLLM's end token"),
        pytest.param(True, "ab", [token("a"), token("b"), token("", data=[])], id="with llama.cpp's end token"),
        pytest.param(True, "🎉", [token("", data=[]), token("", data=[]), token("🎉")], id="vLLM's split character"),
        pytest.param(
            True, "é", [token("\ufffd", data=[0xC3]), token("\ufffd", data=[0xA9])], id="bytes of a character"
        ),
        pytest.param(True, "a", [token("a"), token("\ufffd", data=[0xF0])], id="a character that was cut"),
        pytest.param(True, "é", [token("\ufffd", data=None), token("\ufffd", data=None)], id="no bytes, so unknown"),
        pytest.param(True, "ab", [token(" a"), token("b")], id="a space that the text lost"),
        pytest.param(False, "ab", [token("a"), token("c")], id="another token"),
        pytest.param(False, "ab", [token("x"), token("a"), token("b")], id="one that is not in the text"),
        pytest.param(False, "a b", [token("Ġa"), token("Ġb")], id="the tokenizer's own letters"),
    ],
)
def test_tokens_spell_the_text(right, text, entries):
    assert bool(misspelt(of_chat(entries), answer(entries, text))) is not right


def test_the_tokens_of_reasoning_may_come_first_or_be_left_out():
    entries = [token("<think>"), token("hm"), token("</think>"), token("a"), token("b")]

    assert not misspelt(of_chat(entries), answer(entries, "ab", reasoning="hm"))
    assert not misspelt(of_chat(entries[3:]), answer(entries[3:], "ab", reasoning="hm"))
    assert misspelt(of_chat(entries), answer(entries, "ab"))


def test_a_near_tie_is_as_likely_as_the_best():
    near = token("a", -1.2, top=[token("b", -1.0), token("a", -1.2)])
    far = token("a", -2.0, top=[token("b", -1.0), token("a", -2.0)])

    assert unlikely(of_chat([near]))[:2] == (0, 1)
    assert unlikely(of_chat([far]))[:2] == (1, 1)


def test_partial_characters_differ_by_their_bytes():
    assert not twins(of_chat([token("x", top=[token("\ufffd", data=[137]), token("\ufffd", data=[136])])]))
    assert twins(of_chat([token("x", top=[token("", data=[]), token("", data=[])])]))


def test_the_older_arrays_may_be_of_any_length_and_kind():
    assert [entry.text for entry in of_legacy({"tokens": ["a"], "token_logprobs": [-1, -2], "top_logprobs": None})] == [
        "a",
        "",
    ]
    assert of_legacy({"tokens": 3}) == of_legacy(None) == of_legacy([]) == ()


# --------------------------------------------------------------------------- logprobs.chat

PARAMS = LogprobsChatParams()
RIGHT = {
    "control": chat("control", None),
    "absent": chat("absent", [token("a"), token("b")]),
    "zero": chat("zero", [token("a"), token("b")]),
    "one": chat("one", [token(text, top=[token(text)]) for text in "ab"]),
    "five": chat("five", [five("a"), five("b")]),
    "cut": chat("cut", [five("a"), five("b")]),
    "hot": chat("hot", [five("a")], "a"),
}


def test_right_replies_hold_every_rule():
    held = said(logprobs_chat.PROBE.judge(transcript(*RIGHT.values()), PARAMS))

    assert set(held) == {check.id for check in logprobs_chat.PROBE.checks}
    assert set(held.values()) == {HELD}


def test_values_after_temperature_are_right_and_are_called_so():
    replies = {**RIGHT, "hot": chat("hot", [five("a", -1.2, 0.75)], "a")}
    modes = [
        finding.measured["logprobs_mode"]
        for finding in made.only(logprobs_chat.PROBE.judge(transcript(*replies.values()), PARAMS))
        if "logprobs_mode" in finding.measured
    ]

    assert modes == ["processed"]


@pytest.mark.parametrize(
    ("expected", "others"),
    [
        pytest.param(
            {"zero-alternatives-still-gives-values": NO_EFFECT},
            {"zero": chat("zero", None)},
            id="llama.cpp leaves them out for 0",
        ),
        pytest.param({}, {"absent": chat("absent", [five("a"), five("b")])}, id="alternatives that nobody asked for"),
        pytest.param({}, {"five": chat("five", [five("a"), five("b"), token("")])}, id="an end token without any"),
        pytest.param(
            {"greedy-token-is-the-likeliest": UNDETERMINED},
            {
                "five": chat(
                    "five",
                    [*[five(letter) for letter in "abcde"], {**five("f"), "logprob": -4.0}],
                    "abcdef",
                )
            },
            id="one token in six moved by a penalty",
        ),
        pytest.param(
            {"values-know-one-temperature": UNDETERMINED},
            {"hot": chat("hot", [five("z")], "z")},
            id="other tokens at temperature 2",
        ),
        pytest.param(
            {"one-entry-per-token": VIOLATED},
            {"one": chat("one", [token(text, top=[token(text)]) for text in "ab"], tokens=5)},
            id="entries that are missing",
        ),
        pytest.param(
            {},
            {"one": chat("one", [token("🎉", top=[token("🎉")])], "🎉", tokens=4)},
            id="a split character's one entry",
        ),
        pytest.param(
            {"no-number-of-alternatives-fails": VIOLATED},
            {"cut": exchange("cut", b'{"choices": [{"logprobs": {"content": [{"logprob": NaN}]}}]}', request={})},
            id="NaN is not JSON",
        ),
        pytest.param(
            {"logprobs-are-given": REFUSED}, {"absent": refusal("absent")}, id="refused where alternatives are absent"
        ),
    ],
)
def test_one_other_reply_changes(expected, others):
    found = logprobs_chat.PROBE.judge(transcript(*{**RIGHT, **others}.values()), PARAMS)
    changed = {(finding.check, finding.outcome) for finding in made.only(found) if finding.outcome is not HELD}

    assert changed == set(expected.items())


def test_a_refusal_counts_only_beside_an_answered_control():
    refused = [refusal(step) for step in RIGHT]

    assert said(logprobs_chat.PROBE.judge(transcript(*refused), PARAMS))["logprobs-are-given"] is UNDETERMINED


# --------------------------------------------------------------------------- logprobs.stream

STREAM_PARAMS = LogprobsStreamParams(prompts=("x",))


def streamed(*entries: dict[str, Json], finish: str | None = "stop") -> Exchange:
    events = []
    for entry in entries:
        event = made.event({"content": entry["token"]})
        event["choices"][0]["logprobs"] = {"content": [entry]}  # type: ignore[index]
        events.append(event)
    return stream("stream-1", [made.ROLE, *events, made.event(finish=finish)])


def stream_judged(one: Exchange, *others: Exchange) -> dict[str, Outcome]:
    control = stream("control", made.spoken("ab"))
    return said(logprobs_stream.PROBE.judge(transcript(one, control, *others), STREAM_PARAMS))


SAME = "stream-logprobs-equal-whole-logprobs"
WHOLE = chat("whole-1", [five("a"), five("b")])
TIED = five("b", -0.6, 0.1)


@pytest.mark.parametrize(
    ("expected", "entries"),
    [
        pytest.param(HELD, [five("a"), five("b")], id="the same"),
        pytest.param(HELD, [five("a"), five("b"), token("<|im_end|>")], id="and the end token"),
        pytest.param(VIOLATED, [five("a"), five("c")], id="another token, far from a tie"),
        pytest.param(VIOLATED, [five("a", -2.0), five("b", -2.0)], id="other values"),
        pytest.param(VIOLATED, [five("a"), five("b"), five("c"), five("d")], id="two entries more"),
    ],
)
def test_a_stream_is_compared_token_by_token(expected, entries):
    assert stream_judged(streamed(*entries), WHOLE)[SAME] is expected


def test_a_stream_may_take_the_other_side_of_a_near_tie():
    tie = chat("whole-1", [five("a"), TIED])
    first = chat("whole-1", [TIED])

    assert stream_judged(streamed(five("a"), five("b1")), tie)[SAME] is HELD
    assert stream_judged(streamed(five("b1")), first)[SAME] is UNDETERMINED


def test_without_a_whole_reply_nothing_is_compared():
    assert stream_judged(streamed(five("a")))[SAME] is UNDETERMINED


def test_a_finish_reason_that_never_comes_is_not_blamed_on_logprobs():
    silent = stream("control", [made.ROLE, made.event({"content": "ab"})])
    found = said(logprobs_stream.PROBE.judge(transcript(streamed(five("a"), finish=None), silent), STREAM_PARAMS))

    assert found["finish-reason-comes-with-logprobs"] is UNDETERMINED


def test_a_whole_reply_where_a_stream_was_asked_for_is_for_another_row():
    found = said(logprobs_stream.PROBE.judge(transcript(chat("stream-1", [five("a")], "a")), STREAM_PARAMS))

    assert found == {"stream-carries-logprobs": UNDETERMINED}


# --------------------------------------------------------------------------- logprobs.completions

ARRAYS: dict[str, object] = {
    "tokens": ["a", "b"],
    "token_logprobs": [-0.5, -0.5],
    "top_logprobs": [{"a": -0.5, "x": -2.0}, {"b": -0.5, "y": -2.0}],
    "text_offset": [0, 1],
}


def text(step: str, logprobs: object, said: str = "ab") -> Exchange:
    body = {
        "choices": [{"index": 0, "text": said, "logprobs": logprobs, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
    return exchange(step, body, request={}, path="/completions")


def completions_judged(**others: object) -> set[tuple[str, Outcome]]:
    arms = {"control": None, **dict.fromkeys(("zero", "one", "five", "cut", "stream"), ARRAYS), **others}
    exchanges = [text(step, logprobs) for step, logprobs in arms.items()]
    found = logprobs_completions.PROBE.judge(transcript(*exchanges), LogprobsCompletionsParams())
    return {(finding.check, finding.outcome) for finding in made.only(found) if finding.outcome is not HELD}


@pytest.mark.parametrize(
    ("expected", "logprobs"),
    [
        pytest.param(set(), ARRAYS, id="the arrays"),
        pytest.param(set(), {**ARRAYS, "text_offset": [41, 42]}, id="OpenAI's offsets, from the prompt"),
        pytest.param({("text-offsets-find-the-tokens", VIOLATED)}, {**ARRAYS, "text_offset": [-1, -1]}, id="SGLang's"),
        pytest.param({("text-offsets-find-the-tokens", VIOLATED)}, {**ARRAYS, "text_offset": [0, None]}, id="a hole"),
        pytest.param(
            {("completion-logprobs-are-the-four-arrays", VIOLATED)},
            {name: value for name, value in ARRAYS.items() if name != "text_offset"},
            id="no offsets",
        ),
        pytest.param(
            {("completion-arrays-are-equally-long", VIOLATED)},
            {**ARRAYS, "token_logprobs": [-0.5, -0.5, -0.5]},
            id="a value too many",
        ),
    ],
)
def test_the_arrays_are(expected, logprobs):
    assert {pair for pair in completions_judged(five=logprobs) if "probabilities" not in pair[0]} == expected


def test_llama_cpp_answers_in_the_chat_route_s_shape_and_not_at_all_for_0():
    shaped = {"content": [five("a"), five("b")]}

    assert completions_judged(zero=None, one=shaped, five=shaped, cut=shaped, stream=shaped) == {
        ("completion-logprobs-are-the-four-arrays", VIOLATED),
        ("zero-completion-logprobs-gives-values", NO_EFFECT),
    }


# --------------------------------------------------------------------------- logprobs.prompt

PROMPT = LogprobsPromptParams(prompt="a b")
FIELD = [None, {"7": {"logprob": -1.0, "rank": 3, "decoded_token": " b"}, "8": {"logprob": -0.9, "decoded_token": "x"}}]


def scored(step: str, prompt_logprobs: object, prompt_tokens: int = 2) -> Exchange:
    body = {
        "choices": [{"index": 0, "text": ".", "prompt_logprobs": prompt_logprobs, "finish_reason": "length"}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 1, "total_tokens": prompt_tokens + 1},
    }
    return exchange(step, body, request={}, path="/completions")


PLAIN = (text("control", None), text("after", None))


def prompt_judged(*exchanges: Exchange) -> dict[str, Outcome]:
    return said(logprobs_prompt.PROBE.judge(transcript(*PLAIN, *exchanges), PROMPT))


def test_vllm_gives_them_by_its_field():
    found = prompt_judged(scored("field", FIELD))

    assert set(found) == {check.id for check in logprobs_prompt.PROBE.checks}
    assert set(found.values()) == {HELD}


def test_sglang_gives_them_by_its_own_route():
    body = {"text": "", "meta_info": {"prompt_tokens": 2, "input_token_logprobs": [[None, 1, "a"], [-1.5, 7, " b"]]}}
    found = prompt_judged(scored("field", None), exchange("native", body, request={}))

    assert set(found.values()) == {HELD}


def test_without_names_the_tokens_are_not_judged():
    body = {"meta_info": {"prompt_tokens": 2, "input_token_logprobs": [[None, 1, None], [-1.5, 7, None]]}}
    found = prompt_judged(exchange("native", body, request={}))

    assert set(found.values()) == {HELD}
    assert "prompt-logprobs-are-of-the-prompt" not in found


@pytest.mark.parametrize("listed", [None, [], [None], [None, None], [None, {}], {"a": 1}])
def test_a_list_without_a_value_is_none(listed):
    assert prompt_judged(scored("field", listed))["prompt-tokens-have-logprobs"] is NO_EFFECT


def test_a_list_that_is_too_short_is_a_fault():
    assert prompt_judged(scored("field", FIELD, prompt_tokens=9))["one-entry-per-prompt-token"] is VIOLATED


def test_an_echo_of_the_completion_alone_gives_none():
    only = text("echo", {"tokens": [",", "."], "token_logprobs": [-1, -1], "top_logprobs": None, "text_offset": [0, 1]})

    assert prompt_judged(only)["prompt-tokens-have-logprobs"] is NO_EFFECT


def test_a_plain_completion_that_fails_afterwards_is_a_fault():
    dead = exchange("after", {"error": {"message": "dead"}}, status=500, request={}, path="/completions")
    found = said(logprobs_prompt.PROBE.judge(transcript(PLAIN[0], scored("field", FIELD), dead), PROMPT))

    assert found["asking-for-prompt-logprobs-harms-nothing"] is VIOLATED


def test_refused_every_way_is_refused_only_beside_an_answered_control():
    refusals = [refusal("field"), refusal("chat"), refusal("echo")]
    alone = said(logprobs_prompt.PROBE.judge(transcript(refusal("control"), *refusals), PROMPT))

    assert prompt_judged(*refusals)["prompt-tokens-have-logprobs"] is REFUSED
    assert alone["prompt-tokens-have-logprobs"] is UNDETERMINED


def test_a_failure_of_one_way_does_not_hide_that_another_works():
    broken = failure("echo")
    found = prompt_judged(scored("field", FIELD), broken)

    assert found["prompt-tokens-have-logprobs"] is HELD
    assert found["asking-for-prompt-logprobs-harms-nothing"] is VIOLATED
