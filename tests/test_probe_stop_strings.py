"""Stop strings: where they are cut from, and what is said of texts that no broken server here makes."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Mode, Outcome, Transcript
from servecheck.probes.stop_strings import PROBE, bare_words, cuts
from tests.replies import chat, chat_stream, judged, refusal, said, transcript, why

ENDS, LEAKS, FINISH = "stop-string-ends-the-text", "stop-string-is-not-streamed", "stop-is-the-finish-reason"
TEXT = "A harbour is a place where boats are kept safe, and where fishermen, pilots and sailors go to work each day."

WORDS = "One, two, three, four, Harbour, lighthouse, one."


def test_the_bare_words_are_short_and_common_and_each_is_sent_in_another_form_without_its_space():
    found = bare_words("First came mist, then one fisherman, and two gulls, and three boats.")

    assert [cut.stop for cut in found] == ["one", "and", "two"], "“mist” is as short, and comes before them"
    assert [cut.sent for cut in found] == [["one"], "and", ["@@never said@@", "two"]]
    assert [cut.modes for cut in found] == [("", "-stream"), ("",), ("",)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No, thank you.", ["thank", "you"]),
        ("I cannot answer that.", ["that", "cannot", "answer"]),
        ("the only word is the", ["only", "word", "is"]),
        ("1, 2, 3, 4.", []),
    ],
)
def test_bare_words_come_from_what_the_server_says_whatever_that_is(text, expected):
    assert [cut.stop for cut in bare_words(text)] == expected


def test_a_bare_word_that_is_missed_beside_rarer_ones_that_are_found_is_broken_and_named():
    found = [each for each in judged(PROBE, answers(words_second=WORDS)) if each.route == "chat"]

    assert [each.outcome for each in found if each.check == ENDS].count(Outcome.VIOLATED) == 1
    assert "stop “three” at character 10" in why(found, ENDS)


def test_the_cuts_are_one_early_one_word_and_one_over_several_tokens_each_sent_in_another_form():
    early, word, across = cuts(TEXT)

    assert (early.name, early.at, early.sent) == ("early", 1, " har")
    assert (word.stop, word.sent) == ("safe", ["safe"])
    assert word.at >= 40
    assert TEXT[word.at - 1] == " ", "a whole word, without the space before it"
    assert " " in across.stop
    assert TEXT[across.at - 1].isalpha(), "it begins inside a word"
    assert isinstance(across.sent, list)
    assert across.sent[1] == across.stop


@pytest.mark.parametrize(
    "text", [TEXT, "No, thank you.", "I cannot answer that, since that is not for me.", "aaaa bbbb"]
)
def test_every_cut_is_found_first_where_it_was_cut(text):
    assert cuts(text)
    assert [text.find(cut.stop) for cut in cuts(text)] == [cut.at for cut in cuts(text)]


@pytest.mark.parametrize("text", ["", "   ", "no"])
def test_nothing_is_cut_from_a_text_that_has_nothing(text):
    assert cuts(text) == ()


def test_no_cut_is_in_the_thought_before_the_answer():
    thought = "boats are kept safe, so where"

    assert [cut.stop for cut in cuts(TEXT, thought) if cut.stop in thought] == []


def answers(**texts: str) -> Transcript:
    """Return a chat transcript: the control, and each arm's reply; arms that are not given are right."""
    made: list[Exchange] = [chat("greedy", TEXT, finish="stop"), chat("words-greedy", WORDS, finish="stop")]
    for prefix, whole, found in (("", TEXT, cuts(TEXT)), ("words-", WORDS, bare_words(WORDS))):
        for cut in found:
            for suffix in cut.modes:
                step = f"{prefix}{cut.name}{suffix}"
                make = chat_stream if suffix else chat
                made.append(make(step, texts.get(step.replace("-", "_"), whole[: cut.at])))
    return transcript(*made)


def test_texts_that_end_before_the_stop_string_hold_in_both_modes():
    found = [each for each in judged(PROBE, answers()) if each.route == "chat"]

    assert {each.outcome for each in found} == {Outcome.HELD}
    assert [each.check for each in found].count(ENDS) == 10
    assert {each.mode for each in found if each.check == LEAKS} == {Mode.STREAM}


def test_half_a_stop_string_in_a_stream_is_a_leak_and_in_a_whole_reply_a_wrong_end():
    early = cuts(TEXT)[0]
    half = TEXT[: early.at + 2]

    assert Outcome.VIOLATED in said(judged(PROBE, answers(early_stream=half)), LEAKS)
    assert Outcome.VIOLATED in said(judged(PROBE, answers(early=half)), ENDS)


def test_a_text_that_leaves_the_control_before_the_place_says_nothing():
    found = judged(PROBE, answers(word="A harbour is a spot on the coast"))

    assert Outcome.UNDETERMINED in said(found, ENDS)
    assert "went another way" in why(found, ENDS)
    assert Outcome.VIOLATED not in said(found, ENDS)


def test_a_text_that_leaves_the_control_and_holds_the_stop_string_is_wrong_all_the_same():
    found = judged(PROBE, answers(word="A harbour is a spot where ships are safe, and more."))

    assert Outcome.VIOLATED in said(found, ENDS)


def test_the_second_try_is_what_counts_where_the_first_went_another_way():
    right = answers()
    wandered = chat("word", "A harbour is a spot on the coast")
    again = chat("word-again", TEXT[: cuts(TEXT)[1].at])
    others = [each for each in right if each.step != "word"]

    assert set(said(judged(PROBE, transcript(*others, wandered, again)), ENDS)[:10]) == {Outcome.HELD}


def test_one_stop_string_missed_beside_one_that_works_is_broken_and_not_ignored():
    found = judged(PROBE, answers(word=TEXT))

    assert Outcome.NO_EFFECT not in said(found, ENDS)
    assert "missed, though another one works" in why(found, ENDS)


def test_all_stop_strings_missed_in_one_mode_are_ignored():
    bare = {f"words_{place}": WORDS for place in ("first", "second", "third")}
    found = judged(PROBE, answers(early=TEXT, word=TEXT, across=TEXT, **bare))

    assert said(found, ENDS).count(Outcome.NO_EFFECT) == 6


def test_a_refusal_counts_only_beside_a_control_that_was_answered():
    refused = [refusal(step) for cut in cuts(TEXT) for step in (cut.name, f"{cut.name}-stream")]

    assert Outcome.REFUSED in said(judged(PROBE, transcript(chat("greedy", TEXT), *refused)), ENDS)
    assert said(judged(PROBE, transcript(refusal("greedy"))), ENDS)[0] is Outcome.REFUSED


def test_an_answer_with_nothing_to_cut_from_is_undetermined():
    found = judged(PROBE, transcript(chat("greedy", "", reasoning="long thoughts", finish="length")))

    assert said(found, ENDS)[0] is Outcome.UNDETERMINED
