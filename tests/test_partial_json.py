"""A text that was cut is the beginning of JSON exactly where some text behind it makes it JSON."""

from __future__ import annotations

import json

import pytest

from servecheck.read.partial import json_fault

_WHOLE = (
    '{"code": "bcd", "more": [1, -2.5e+3, true, false, null, {"deep": {"er": []}}], "u": "\\u00e9\\n\\\\ é 🦊"}',
    ' \n{ "a" :\t[ [ ] , { } ] }\r\n ',
    '"text"',
    "-0.5E-7",
    "[1,2]",
    "{}",
    "true",
)


@pytest.mark.parametrize("text", _WHOLE)
def test_every_beginning_of_a_value_is_one(text: str) -> None:
    json.loads(text)

    assert [text[:length] for length in range(len(text) + 1) if json_fault(text[:length])] == []


@pytest.mark.parametrize(
    "text",
    [
        "The sea",
        "```json\n{",
        "{code: 1}",
        "{'code': 1}",
        '{"code" "x"}',
        '{"code": bcd',
        '{"code": 01',
        '{"a": 1,}',
        "[1,]",
        '{"a": 1]',
        '{"a": 1}}',
        '{"a": 1} and so on',
        '{{"a"',
        '{"a": tru3',
        '{"a": "line\nbreak"',
        '{"a": "\\x"',
        '{"a": "\\u00zz"',
        '{"a": NaN',
        '{"a": +1',
        '{"a": -x',
        '{"a": 1.e',
        "]",
    ],
)
def test_what_nothing_can_make_json_is_a_fault_with_its_place(text: str) -> None:
    assert "character" in json_fault(text)


def test_nesting_is_never_too_deep_and_long_texts_are_quick() -> None:
    assert json_fault("[" * 200_000) == ""
    assert json_fault('{"a":' * 100_000) == ""
    assert json_fault('"' + "x" * 500_000) == ""
    assert json_fault(" " * 500_000) == ""
