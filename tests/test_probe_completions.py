"""Text completions: basic, streamed and echoed; what is said where greedy text does not repeat, or nothing compares."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Finding, Json, Outcome
from servecheck.probes import completions_basic, completions_echo, completions_stream
from tests.replies import completion, judged, refusal, said, streamed, transcript, why

PATH = "/v1/completions"
PROMPT = "The harbour was busy that morning, because"
TEXT, LIST, USAGE = "completion-has-text", "each-listed-prompt-is-completed", "completion-usage-adds-up"
JOINS, SAME_USAGE = "pieces-join-to-the-completion", "usage-equals-the-whole"
FIRST, THEN = "echo-puts-the-prompt-first", "completion-follows-the-echo"


def basic(*exchanges: Exchange) -> list[Finding]:
    return judged(completions_basic.PROBE, transcript(*exchanges))


def test_a_route_that_is_not_there_is_refused_once_for_each_request():
    found = basic(*(refusal(step, "no such route", 404, PATH) for step in ("greedy", "bare", "listed")))

    assert [each.outcome for each in found] == [Outcome.REFUSED, Outcome.REFUSED]


@pytest.mark.parametrize(
    ("text", "finish", "made", "outcome"),
    [
        (" the ships", "length", 3, Outcome.HELD),
        ("", "stop", 1, Outcome.UNDETERMINED),
        ("", "length", 24, Outcome.VIOLATED),
        ("", "stop", 9, Outcome.VIOLATED),
    ],
)
def test_no_text_is_right_only_where_the_model_ended_at_once(text, finish, made, outcome):
    assert said(basic(completion("greedy", text, finish=finish, made=made)), TEXT)[0] is outcome


def test_usage_without_a_total_is_incomplete():
    assert said(basic(completion("greedy", " the ships")), USAGE) == [Outcome.VIOLATED]
    assert "total_tokens None" in why(basic(completion("greedy", " the ships")), USAGE)


@pytest.mark.parametrize(("texts", "outcome"), [(["a", "b"], Outcome.HELD), (["a"], Outcome.VIOLATED)])
def test_two_prompts_get_two_choices(texts, outcome):
    assert said(basic(completion("greedy", " ships"), completion("listed", *texts)), LIST) == [outcome]


def pieces(step: str, *texts: str, usage: Json = None) -> Exchange:
    events: list[Json] = [{"object": "text_completion", "choices": [{"index": 0, "text": text}]} for text in texts]
    events.append({"object": "text_completion", "choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
    if usage:
        events.append({"object": "text_completion", "choices": [], "usage": usage})
    return streamed(step, *events, path=PATH)


def stream(*exchanges: Exchange) -> list[Finding]:
    return judged(completions_stream.PROBE, transcript(*exchanges))


def test_equal_texts_and_usage_hold():
    usage: Json = {"prompt_tokens": 5, "completion_tokens": 4}
    found = stream(completion("whole", " the ships"), pieces("stream", " the", " ships", usage=usage))

    assert {each.outcome for each in found} == {Outcome.HELD}


def test_a_difference_that_both_modes_repeat_is_wrong():
    found = stream(
        completion("whole", " the ships"),
        pieces("stream", " the"),
        completion("whole-again", " the ships"),
        pieces("stream-again", " the"),
    )

    assert said(found, JOINS) == [Outcome.VIOLATED]
    assert "part at character 4" in why(found, JOINS)


@pytest.mark.parametrize(("whole", "streamed_text"), [(" a boat", " the"), (" the ships", " the ships")])
def test_a_difference_that_does_not_repeat_is_noise(whole, streamed_text):
    found = stream(
        completion("whole", " the ships"),
        pieces("stream", " the"),
        completion("whole-again", whole),
        pieces("stream-again", streamed_text),
    )

    assert said(found, JOINS) == [Outcome.UNDETERMINED]


def test_half_a_character_at_a_cut_is_no_difference():
    assert said(stream(completion("whole", " the \ufffd"), pieces("stream", " the ")), JOINS) == [Outcome.HELD]


def test_usage_that_was_asked_for_and_does_not_come_has_no_effect():
    found = stream(completion("whole", " the ships"), pieces("stream", " the ships"))

    assert said(found, SAME_USAGE) == [Outcome.NO_EFFECT]


def echo(text: str, control: str = " the ships came in") -> list[Finding]:
    found = transcript(completion("control", control), completion("echo", text))
    return judged(completions_echo.PROBE, found)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (f"{PROMPT} the ships came in", Outcome.HELD),
        (f" {PROMPT} the ships came in", Outcome.HELD),
        (" the ships came in", Outcome.NO_EFFECT),
        (f" the ships came in {PROMPT}", Outcome.VIOLATED),
        ("something else", Outcome.VIOLATED),
        ("", Outcome.VIOLATED),
    ],
)
def test_the_echo_comes_first(text, outcome):
    assert said(echo(text), FIRST)[0] is outcome


@pytest.mark.parametrize(
    ("rest", "outcome"),
    [
        (" the ships came in", Outcome.HELD),
        (" the ships came again", Outcome.HELD),
        (" a boat was late", Outcome.UNDETERMINED),
        ("", Outcome.VIOLATED),
        (f"{PROMPT} the ships", Outcome.VIOLATED),
    ],
)
def test_behind_the_echo_comes_what_comes_without_it(rest, outcome):
    assert said(echo(PROMPT + rest), THEN)[0] is outcome


def test_a_model_that_repeats_the_prompt_by_itself_hides_the_echo():
    assert said(echo(f"{PROMPT} x", control=f"{PROMPT} x"), FIRST)[0] is Outcome.UNDETERMINED


def test_a_refused_list_is_named_beside_single_prompts_that_are_taken():
    single = completion("greedy", " ships", made=4)
    found = basic(single, completion("bare", " ships"), refusal("listed", "'prompt' must be a string", 400, PATH))

    assert why(found, LIST) == "a list of prompts is refused: HTTP 400: “'prompt' must be a string”"
    assert "refused" not in why(found, TEXT)
