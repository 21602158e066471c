"""Marks of formats that are written out in a text, and mixed scripts."""

import pytest

from servecheck.read.markup import call_mark, end_mark, special_token
from servecheck.read.text import garbage


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("", 'I will look: if a < b, then {"x": [1]} and <b>bold</b>.'),
        ("", "Use the [ARG] placeholder, or `a | b`."),
        ("<|im_end|>", "Hello!<|im_end|>"),
        ("<｜end▁of▁sentence｜>", "Good morning!<｜end▁of▁sentence｜>"),
        ("</s>", "Hello</s>"),
        ("<end_of_turn>", "Hello<end_of_turn>"),
        ("</tool_call>", "</tool_call>"),
        ("<|tool_call", "Checking.<|tool_call"),
        ("<tool_call|>", "<tool_call|>"),
        ("[TOOL_CALLS]", "[TOOL_CALLS][{"),
        ("<function=look_up>", "<function=look_up>"),
        ("</parameter>", "Oslo</parameter>"),
    ],
)
def test_the_first_mark_is_named(expected, text):
    assert call_mark(text) == expected


def test_marks_of_calls_are_no_marks_of_turns():
    assert (special_token("</s>"), end_mark("</tool_call>"), end_mark("</s>")) == ("", "", "</s>")


@pytest.mark.parametrize(
    ("garbled", "text"),
    [
        (True, " ท glyó #### {{ 的 usher"),
        (True, "Paris เ и the 的"),
        (False, "Paris is the capital of France."),
        (False, "東京はTokyoです。ソウルは서울"),
        (False, "Париж, or Paris, is the capital."),
        (False, "The angle α is 5 µm² wide."),
    ],
)
def test_three_scripts_in_one_answer_are_garbage(garbled, text):
    assert bool(garbage(text)) is garbled
