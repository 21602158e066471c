"""The strict YAML reader: what each scalar is, what is refused and where, and in which words."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from servecheck import yamlfile
from servecheck.errors import ScenarioError
from servecheck.model import Level


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Inner(Closed):
    level: Level
    because: str = Field(min_length=1)


class Sample(Closed):
    max_tokens: int = Field(default=1, ge=1)
    share: float = 0.5
    stop: tuple[str, ...] = ()
    either: str | list[str] = ""
    anything: dict[str, JsonValue] = {}
    inner: dict[str, Inner] = {}
    pair: tuple[int, str] = (1, "a")
    maybe: int | None = None
    word: Literal["low", "high"] = "low"
    flag: bool = False
    names: dict[Annotated[str, Field(pattern="^[a-z]+$")], str] = {}
    label: str = Field(default="x", alias="the-label")

    @model_validator(mode="after")
    def _consistent(self) -> Sample:
        if self.max_tokens == 13:
            raise ValueError("13 tokens bring bad luck")
        return self


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def written(text: str | bytes, name: str = "x.yaml") -> Path:
    path = Path(name)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def message(text: str | bytes, name: str = "x.yaml") -> str:
    with pytest.raises(ScenarioError) as caught:
        yamlfile.validate(written(text, name), Sample)
    return str(caught.value)


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("Off", "Off"),
        ("y", "y"),
        ("12:30", "12:30"),
        ("190:20:30", "190:20:30"),
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("=", "="),
        ("<<", "<<"),
        ("0777", 777),
        ("0o17", 15),
        ("0x1F", 31),
        ("-0x1F", "-0x1F"),
        ("+12", 12),
        ("-12", -12),
        ("0o8", "0o8"),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.5", -0.5),
        ("1e3", 1000.0),
        ("1.5E-3", 0.0015),
        (".", "."),
        ("1e", "1e"),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("+.Inf", math.inf),
        ("inf", "inf"),
        (".iNf", ".iNf"),
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("tRUE", "tRUE"),
        ("null", None),
        ("Null", None),
        ("NULL", None),
        ("~", None),
        ("", None),
        ("nULL", "nULL"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("! 12", "12"),
        ("!!int '3'", 3),
        ("!!float 3", 3.0),
        ("!!float .5", 0.5),
        ("!!bool 'true'", True),
        ("!!null ''", None),
        ("!!seq [a]", ["a"]),
        ("!!map {a: b}", {"a": "b"}),
        (r'"\ud83d\ude00"', "😀"),
        ('"\\/"', "/"),
    ],
)
def test_a_scalar_is_what_the_yaml_1_2_core_schema_says(scalar, value):
    data = yamlfile.read(written(f"a: {scalar}\n")).data

    assert isinstance(data, dict)
    assert (value, type(value)) == (data["a"], type(data["a"]))


@pytest.mark.parametrize("scalar", [".nan", ".NaN", ".NAN"])
def test_nan_is_a_number(scalar):
    data = yamlfile.read(written(f"a: {scalar}\n")).data

    assert isinstance(data, dict)
    assert isinstance(data["a"], float)
    assert math.isnan(data["a"])


def test_tabs_in_a_block_of_text_are_text():
    assert yamlfile.read(written("a: |\n  x\n  \ty\n")).data == {"a": "x\n\ty\n"}


def test_a_byte_order_mark_is_no_part_of_the_data():
    assert yamlfile.read(written(b"\xef\xbb\xbfa: 1\n")).data == {"a": 1}


def test_an_alias_stands_for_what_it_names():
    assert yamlfile.read(written("a: &x {b: [1]}\nc: *x\n")).data == {"a": {"b": [1]}, "c": {"b": [1]}}


def test_places_are_of_keys_and_values_and_of_the_alias_not_the_anchor():
    places = yamlfile.read(written("# one\na: &x\n  b: 1\nc:   *x\n")).places

    assert {key: (place.value, place.key) for key, place in places.items()} == {
        (): ((2, 1), None),
        ("a",): ((2, 4), (2, 1)),
        ("a", "b"): ((3, 6), (3, 3)),
        ("c",): ((4, 6), (4, 1)),
        ("c", "b"): ((3, 6), (3, 3)),
    }


def test_lists_are_taken_for_tuples_and_texts_for_enums_but_nothing_else_is_converted():
    text = "stop: [a, b]\ninner: {x: {level: should, because: b}}\nshare: 1\nthe-label: hi\n"

    sample = yamlfile.validate(written(text), Sample)

    assert (
        sample.stop,
        sample.inner["x"].level,
        sample.share,
        sample.label,
    ) == (("a", "b"), Level.SHOULD, 1.0, "hi")


_QUOTE = "within {…} and […], put a text that contains any of ? : , [ ] { } in quotes"
SYNTAX = [
    ("tab indents", "a:\n\tb: 1\n", "2:1: not valid YAML: a tab", "  indent and separate with spaces"),
    ("tab separates", "a:\t1\n", "1:3: not valid YAML: a tab", "  indent and separate with spaces"),
    (
        "two colons",
        "a: b: c\n",
        "1:5: not valid YAML: a second ': ' in one place",
        "  put a text that contains ': ' in quotes",
    ),
    (
        "one space too many",
        "a: b\n c: d\n",
        "2:2: not valid YAML: a key indented by 1, where the line above has 0",
        "  indent keys of one mapping alike, here with 0 spaces or as the keys before",
    ),
    (
        "one space too few",
        "w:\n   a: b\n  c: d\n",
        "3:3: not valid YAML: a key indented by 2, where the line above has 3",
        "  indent keys of one mapping alike, here with 3 spaces or as the keys before",
    ),
    ("open quote", "a: 'x\n", "2:1: not valid YAML: the file ends inside a quoted text", ""),
    ("at sign", "a: @x\n", "1:4: not valid YAML: a text cannot begin with '@'", "  put it in quotes"),
    ("escape", 'a: "\\q"\n', "1:6: not valid YAML: unknown escape '\\q'", "  write a backslash as '\\\\'"),
    ("escape beyond", 'a: "\\U00110000"\n', "1:7: an escape beyond U+10FFFF", ""),
    ("no anchor", "a: *x\n", "1:4: not valid YAML: no anchor '&x' before this alias", ""),
    ("two documents", "a: 1\n---\nb: 1\n", "2:1: not valid YAML: a second document", "  a file holds one document"),
    ("same anchor", "a: &x 1\nb: &x 2\n", "2:4: not valid YAML: an anchor of this name exists already", ""),
    (
        "open brace",
        "a: {b: 1\n",
        "2:1: not valid YAML: expected ',' or '}' here, got '<stream end>'",
        f"  close with '}}' or ']' what was opened before; {_QUOTE}",
    ),
    ("question", "a: {b: mean?}\n", "1:12: not valid YAML: expected ',' or '}' here, got '?'", f"  {_QUOTE}"),
    ("brace in a text", "a: [use {x}]\n", "1:9: not valid YAML: expected ',' or ']' here, got '{'", f"  {_QUOTE}"),
    ("leading question", "a: {b: ?x}\n", "1:8: not valid YAML: expected a value here, got '?'", f"  {_QUOTE}"),
    ("control", "a: x\x1b[0m\n", "1:5: the control character U+001B", ""),
]


@pytest.mark.parametrize(("text", "head", "hint"), [row[1:] for row in SYNTAX], ids=[row[0] for row in SYNTAX])
def test_what_is_not_yaml_is_one_problem_with_its_place(text, head, hint):
    with pytest.raises(ScenarioError) as caught:
        yamlfile.read(written(text))

    (problem,) = caught.value.problems
    lines = str(problem).splitlines()
    assert f"x.yaml:{head}" == lines[0]
    assert hint == (lines[-1] if problem.suggestion else "")


def test_a_control_character_is_not_sent_to_the_terminal():
    assert message("a: x\x1b[0m\n") == "x.yaml:1:5: the control character U+001B\n  a: x\ufffd[0m\n      ^"


def test_bytes_that_are_not_utf_8_have_a_place():
    expected = "x.yaml:2:5: not UTF-8: byte 0xe9\n  b: \xfc\ufffd\n      ^"

    assert expected == message(b"a: 1\nb: \xc3\xbc\xe9\n")
    assert expected == message(b"\xef\xbb\xbfa: 1\nb: \xc3\xbc\xe9\n")


@pytest.mark.parametrize("text", ["", "\n\n", "# only words\n"])
def test_an_empty_file_is_said_to_be_empty(text):
    assert message(text) == "x.yaml:1:1: the file is empty"


def test_a_file_that_is_not_there_is_a_problem():
    with pytest.raises(ScenarioError) as caught:
        yamlfile.read(Path("none.yaml"))

    assert str(caught.value) == "none.yaml:1:1: cannot be read: No such file or directory"


def test_size_is_bounded():
    fits = yamlfile.MAX_BYTES - len("a: ")
    assert yamlfile.read(written("a: " + "x" * fits)).problems == ()
    assert message("a: " + "x" * (fits + 1)) == "x.yaml:1:1: larger than 1024 KiB"


def test_depth_is_bounded():
    deepest = "[" * (yamlfile.MAX_DEPTH - 1) + "]" * (yamlfile.MAX_DEPTH - 1)

    assert yamlfile.read(written(f"a: {deepest}")).problems == ()
    assert message(f"a: [{deepest}]").splitlines()[0] == "x.yaml:1:67: more than 64 levels deep"
    assert message("a: " + "[" * 100_000).splitlines()[0] == "x.yaml:1:67: more than 64 levels deep"


def test_a_billion_laughs_is_a_problem_at_the_first_alias_that_is_too_much():
    lines = ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]

    expected = f"x.yaml:5:45: aliases expand to more than 100000 values\n  {lines[4]}\n{' ' * 46}^"
    assert expected == message("\n".join(lines))


def test_a_long_text_cannot_be_multiplied_either():
    text = f"a: &x {'x' * 600_000}\nb: [*x, *x, *x, *x, *x, *x, *x, *x]\n"

    assert message(text).splitlines()[0] == "x.yaml:2:25: aliases expand to more than 4096 KiB of text"


def test_aliases_cannot_nest_deeper_than_text_could():
    lines = ["a0: &a0 [1]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 80)]

    assert message("\n".join(lines)).splitlines()[0] == "x.yaml:64:12: aliases expand to more than 64 levels"


def test_all_problems_of_a_file_are_listed_at_once_in_reading_order():
    text = """\
max_token: 5
max_tokens: five
share: no
stop: {a: 1}
either: [a, 3]
inner:
  x: {level: mst, bcause: q}
names: {A: b}
maybe: ''
pair: [1]
word: hihg
flag: yes
the-label: 0777
anything: {a: 1, a: 2, b: {c: 1e999}}
"""
    assert (
        message(text)
        == """\
x.yaml:1:1: unknown key 'max_token'
  max_token: 5
  ^
x.yaml:2:13: expected a whole number, got the text 'five'
  max_tokens: five
              ^
x.yaml:3:8: expected a number, got the text 'no'
  share: no
         ^
x.yaml:4:7: expected a list, got a mapping
  stop: {a: 1}
        ^
x.yaml:5:13: expected a text, got 3
  either: [a, 3]
              ^
  to give a text, put it in quotes
x.yaml:7:3: missing key 'because' in 'x'
    x: {level: mst, bcause: q}
    ^
x.yaml:7:14: expected 'must' or 'should', got the text 'mst'
    x: {level: mst, bcause: q}
               ^
  did you mean 'must'?
x.yaml:7:19: unknown key 'bcause'
    x: {level: mst, bcause: q}
                    ^
  did you mean 'because'?
x.yaml:8:9: expected a text like ^[a-z]+$, got the text 'A'
  names: {A: b}
          ^
x.yaml:9:8: expected a whole number, got the text ''
  maybe: ''
         ^
x.yaml:10:1: missing item 2 in 'pair'
  pair: [1]
  ^
x.yaml:11:7: expected 'low' or 'high', got the text 'hihg'
  word: hihg
        ^
  did you mean 'high'?
x.yaml:12:7: expected true or false, got the text 'yes'
  flag: yes
        ^
  'yes' is a text in YAML 1.2; write true or false
x.yaml:13:12: expected a text, got 777
  the-label: 0777
             ^
  to give a text, put it in quotes
x.yaml:14:18: duplicate key 'a'; the first is in line 14
  anything: {a: 1, a: 2, b: {c: 1e999}}
                   ^
x.yaml:14:31: 1e999 is beyond what a number can hold
  anything: {a: 1, a: 2, b: {c: 1e999}}
                                ^"""
    )


ONE_LINE = [
    ("max_tokns: 5", "1:1: unknown key 'max_tokns'\n  max_tokns: 5\n  ^\n  did you mean 'max_tokens'?"),
    ("the-lable: x", "1:1: unknown key 'the-lable'\n  the-lable: x\n  ^\n  did you mean 'the-label'?"),
    ("label: x", "1:1: unknown key 'label'\n  label: x\n  ^\n  did you mean 'the-label'?"),
    ("zzz: 1", "1:1: unknown key 'zzz'\n  zzz: 1\n  ^"),
    (
        "inner: {x: {zzz: 1, because: b, level: must}}",
        "1:13: unknown key 'zzz'\n  inner: {x: {zzz: 1, because: b, level: must}}\n              ^",
    ),
    (
        "inner: {x: {zzz: 1, level: must}}",
        (
            "1:9: missing key 'because' in 'x'\n  inner: {x: {zzz: 1, level: must}}\n          ^\n"
            "x.yaml:1:13: unknown key 'zzz'\n  inner: {x: {zzz: 1, level: must}}\n              ^\n  known: because"
        ),
    ),
    ("max_tokens: 0", "1:13: expected at least 1, got 0\n  max_tokens: 0\n              ^"),
    ("max_tokens: 3.0", "1:13: expected a whole number, got 3.0\n  max_tokens: 3.0\n              ^"),
    ("max_tokens: true", "1:13: expected a whole number, got true\n  max_tokens: true\n              ^"),
    ("max_tokens:", "1:12: expected a whole number, got nothing\n  max_tokens:\n             ^"),
    ("max_tokens: .inf", "1:13: expected a whole number, got .inf\n  max_tokens: .inf\n              ^"),
    ("max_tokens: 13", "1:1: 13 tokens bring bad luck\n  max_tokens: 13\n  ^"),
    ("either: 3", "1:9: expected a text or a list, got 3\n  either: 3\n          ^"),
    ("stop: a", "1:7: expected a list, got the text 'a'\n  stop: a\n        ^"),
    ("pair: [1, a, 2]", "1:7: expected at most 2 items, got 3\n  pair: [1, a, 2]\n        ^"),
    (
        "inner: {x: {level: must, because: ''}}",
        (
            "1:35: expected at least 1 character, got the text ''\n"
            "  inner: {x: {level: must, because: ''}}\n                                    ^"
        ),
    ),
    ("[a]", "1:1: expected a mapping, got a list\n  [a]\n  ^"),
    ("just words", "1:1: expected a mapping, got the text 'just words'\n  just words\n  ^"),
    ("? [a]\n: 1", "1:3: a key must be a text, not a list or a mapping\n  ? [a]\n    ^"),
    ("1: 2", "1:1: a key must be a text, not 1\n  1: 2\n  ^\n  put it in quotes: '1'"),
    ("true: 2", "1:1: a key must be a text, not true\n  true: 2\n  ^\n  put it in quotes: 'true'"),
    ("<<: {}", "1:1: merge keys ('<<') are not YAML 1.2\n  <<: {}\n  ^\n  write the keys out"),
    ("share: !half 1", "1:8: the tag '!half' is not allowed here\n  share: !half 1\n         ^"),
    (
        "share: !!python/object/apply:os.getcwd []",
        (
            "1:8: the tag '!!python/object/apply:os.getcwd' is not allowed here\n"
            "  share: !!python/object/apply:os.getcwd []\n         ^"
        ),
    ),
    ("share: !!binary aGk=", "1:8: the tag '!!binary' is not allowed here\n  share: !!binary aGk=\n         ^"),
    ("share: !!int x", "1:8: 'x' is not a value of the tag '!!int'\n  share: !!int x\n         ^"),
    ("anything: !!set {a}", "1:11: the tag '!!set' is not allowed here\n  anything: !!set {a}\n            ^"),
    ("anything: !!seq {a: b}", "1:11: the tag '!!seq' is not allowed here\n  anything: !!seq {a: b}\n            ^"),
    (
        "anything: &x {a: *x}",
        "1:18: this alias is inside what it refers to\n  anything: &x {a: *x}\n                   ^",
    ),
    (
        r'stop: ["\ud83d"]',
        "1:8: an escape that is half of a character (a lone surrogate)\n" + r'  stop: ["\ud83d"]' + "\n         ^",
    ),
    (
        "max_tokens: " + "9" * 301,
        "1:13: a number of more than 300 digits\n  max_tokens: " + "9" * 147 + "…\n              ^",
    ),
]


@pytest.mark.parametrize(("text", "expected"), ONE_LINE)
def test_a_problem_is_told_whole(text, expected):
    assert f"x.yaml:{expected}" == message(text)


def test_a_wrong_value_behind_an_alias_is_shown_where_the_alias_is():
    assert message("either: &x words\nmax_tokens: *x\n") == (
        "x.yaml:2:13: expected a whole number, got the text 'words'\n  max_tokens: *x\n              ^"
    )


@pytest.mark.parametrize(
    "line",
    [
        "base: http://user:hunter2x@host/v1",
        "api_key: hunter2x",
        "x: {Authorization: 'Basic hunter2x'}",
        "x: Bearer hunter2x",
        "x: sk-hunter2x",
        "password: hunter2x",
    ],
)
def test_a_line_that_is_shown_hides_what_may_be_a_secret(line):
    shown = message(f"zzz: 1\n{line}\n")

    assert "hunter2x" not in shown
    assert "•" in shown


def test_an_innocent_line_is_shown_as_it_is():
    assert "\n  max_token: five\n" in message("max_token: five\n")


def test_json_may_be_indented_with_tabs_and_must_be_json(tmp_path):
    data = {"stop": ["a", "b\t"], "anything": {"é": "\U0001f600", "n": [1, 2.5e3, None, True]}}
    text = json.dumps(data, indent="\t")

    assert data == yamlfile.read(written(text, "x.json")).data
    assert message("{stop: [a]}", "x.json") == (
        "x.json:1:2: not JSON: expecting property name enclosed in double quotes\n  {stop: [a]}\n   ^"
    )


def test_a_place_in_tab_indented_json_is_the_columns_of_the_file():
    assert message('{\n\t"max_tokens": "five"\n}', "x.json") == (
        'x.json:2:16: expected a whole number, got the text \'five\'\n   "max_tokens": "five"\n                 ^'
    )
