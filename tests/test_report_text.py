"""Untrusted text: what is acted upon becomes inert, what is not seen becomes visible, nothing vanishes."""

from __future__ import annotations

import json

import pytest
from markdown_it import MarkdownIt

from servecheck.report import text
from tests.sample_runs import HOSTILE

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain words stay", "plain words stay"),
        ("json_schema and 0.11.2 stay", "json_schema and 0.11.2 stay"),
        ("_it_ **bold** ~~no~~", r"\_it\_ \*\*bold\*\* `~~no~~`"),
        ("a | b", r"a \| b"),
        ("[x](y)", r"\[x\](y)"),
        ("two\nlines\r\nand\tthree", "two ⏎ lines ⏎ and three"),
        ("ask @octocat, or (#12)", "ask `@octocat`, or (`#12`)"),
        ("see https://evil.example/x.", "see `https://evil.example/x`."),
        ("www.evil.example", "`www.evil.example`"),
        ("<img src=x>", r"`<img` src=x\>"),
        ("costs $5", "costs `$5`"),
        (":rocket: up", "`:rocket`: up"),
        ("&lt;", "`&lt`;"),
        ("commit 0fe33f1, not 2026 or defaced", "commit `0fe33f1`, not 2026 or defaced"),
        ("# heading", r"\# heading"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("400: refused", "400: refused"),
        ("back`tick @me`", r"back\`tick `` @me` ``"),
        ("\x1b[31m", r"\\x1b\[31m"),
        ("a\u202eb\u200bc\ufeff", r"a\\u202eb\\u200bc\\ufeff"),
        ("lone \ud800", r"lone \\ud800"),
        ("\U000e0041 tag", r"\\U000e0041 tag"),
        ("::error::x", r"`\x3a:error::x`"),
        ("##[command]x", r"\\x23\#\[command\]x"),
        ("", ""),
    ],
)
def test_prose_prints_what_was_said_and_nothing_of_it_is_markdown(given, shown):
    assert text.prose(given) == shown


@pytest.mark.parametrize(
    ("given", "table", "shown"),
    [
        ("ends with `data: [DONE]`, *once*", False, r"ends with `data: [DONE]`, \*once\*"),
        ("old `guided_*` fields", True, "old `guided_*` fields"),
        ("`a|b` or c|d", True, r"`a\|b` or c\|d"),
        ("`a|b` or c|d", False, r"`a|b` or c\|d"),
        ("- a `b`", False, r"\- a `b`"),
        ("one ` alone", False, r"one \` alone"),
        ("``` `x` and <b>", False, r"\`\`\` \`x\` and `<b>`"),
        ("`<b>`@octocat", False, "`` `<b>`@octocat ``"),
    ],
)
def test_what_our_words_have_between_backticks_is_code(given, table, shown):
    assert text.spans(given, table=table) == shown


@pytest.mark.parametrize("given", [HOSTILE, "a\\", "*", "_", "`", "``", "|", "\\|", "`|`", "@a|b", "x`|@y"])
def test_a_table_keeps_its_two_columns_whatever_a_cell_says(given):
    for shown in (text.cell(given), text.cell_code(given)):
        rendered = MARKDOWN.render(f"| a | b |\n| --- | --- |\n| {shown} | end |\n")
        assert rendered.count("<td>") == 2
        assert "<td>end</td>" in rendered


@pytest.mark.parametrize("given", [HOSTILE, "`", "``", " ` ", "a`b``c", "\\", "```\n```"])
def test_a_code_span_holds_all_of_the_text(given):
    rendered = MARKDOWN.render(f"before {text.code(given, limit=5_000)} after")
    assert rendered.count("<code>") == 1
    assert rendered.startswith("<p>before <code>")
    assert rendered.endswith("</code> after</p>\n")


@pytest.mark.parametrize("given", ["", "```", "x\n`````\ny", "~~~", "    deep", HOSTILE])
def test_a_fence_is_longer_than_any_run_of_backticks_inside(given):
    rendered = MARKDOWN.render(f"{text.block(given)}\n\nafter\n")
    assert rendered.count("<pre>") == 1
    assert rendered.endswith("<p>after</p>\n")


def test_no_line_of_a_fence_drives_a_workflow():
    shown = text.block("::error::x\n  ::warning::y\nfine :: here\n##[debug]z")
    assert [line for line in shown.splitlines() if line.strip().startswith("::") or "##[" in line] == []
    assert "fine :: here" in shown


def test_crlf_is_a_line_end_and_a_lone_cr_is_shown():
    assert text.visible("a\r\nb\rc\td\n") == "a\nb\\x0dc\td\n"


@pytest.mark.parametrize(
    ("data", "limit", "shown"),
    [
        (b"short", 10, "short"),
        (b"0123456789", 6, "0123\n\n… 4 bytes left out …\n\n89"),
        (b"a" * 5_000, 1_500, "a" * 1_000 + "\n\n… 3,500 bytes left out …\n\n" + "a" * 500),
        ("ééééé".encode(), 6, "éé\n\n… 4 bytes left out …\n\né"),
        (b"\xff\xfe ok", 10, "\\xff\\xfe ok"),
    ],
)
def test_a_long_body_is_cut_in_the_middle_between_characters_and_says_how_much(data, limit, shown):
    assert text.cut_middle(data, limit) == shown


def test_what_is_shown_and_what_is_left_out_add_up():
    data = "añ€😀".encode() * 700
    shown = text.cut_middle(data, 1_000)
    head, gap, tail = shown.split("\n\n")
    left_out = int(gap.removeprefix("… ").removesuffix(" bytes left out …").replace(",", ""))
    assert len(head.encode()) + left_out + len(tail.encode()) == len(data)


def test_json_is_laid_out_only_where_the_bytes_can_be_read_back_from_it():
    value = {"messages": [{"role": "user", "content": "x" * 90}], "é": 1}
    for sent in (
        json.dumps(value),
        json.dumps(value, separators=(",", ":")),
        json.dumps(value, ensure_ascii=False),
    ):
        shown = text.lay_out(sent.encode(), 1_000)
        assert shown.count("\n") > 2
        assert json.loads(shown) == value
    odd = b'{"a":1.50,"a":' + b"1" * 100 + b"}"
    assert text.lay_out(odd, 1_000) == odd.decode()
    deep = b"[" * 50_000
    assert "left out" in text.lay_out(deep, 1_000)
    assert text.lay_out(b"[" * 900 + b"]" * 900, 2_000).startswith("[")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host:8000/v1", "http://host:8000/v1"),
        ("https://user:secret@host/v1", "https://host/v1"),
        ("http://host/v1?key=secret&x", "http://host/v1?key=…&x=…"),
        ("http://[::1]:80/v1#part", "http://[::1]:80/v1"),
        ("http://host:port/v1", "(not a URL)"),
    ],
)
def test_a_url_is_shown_without_what_may_be_a_secret(url, shown):
    assert text.public_url(url) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://docs.example/a_b#c", "[source](<https://docs.example/a_b#c>)"),
        ("javascript:alert(1)", "`javascript:alert(1)`"),
        ("https://x>)<b>", "`https://x>)<b>`"),
        ("https://x.example\n", "`https://x.example`"),
    ],
)
def test_only_a_plain_http_url_becomes_a_link(url, shown):
    assert text.link(url, "source") == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "—"), (0.0161, "16.1 ms"), (5.42, "5.42 s"), (21.3, "21.3 s"), (110.0, "110 s"), (1460.0, "24 min")],
)
def test_seconds_are_said_to_about_three_figures(value, shown):
    assert text.seconds(value) == shown


def test_a_long_text_is_shortened_at_a_word_and_marked():
    assert text.shorten("one two three four", 10) == "one two…"
    assert text.shorten("x" * 20, 10) == "x" * 9 + "…"
    assert text.shorten("fits", 4) == "fits"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("https://github.com/vllm-project/vllm/issues/12", "vllm 12"),
        ("https://github.com/vllm-project/tpu-inference/blob/main/a/b/c.py", "tpu-inference: c.py"),
        ("https://github.com/vllm-project/vllm", "https://github.com/vllm-project/vllm"),
    ],
)
def test_a_reference_is_said_as_people_say_it(reference, said):
    assert said == text.issue_words(reference)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ('saw “<a>{"n": 1}</a> @b” here', 'saw “`<a>{"n": 1}</a> @b`” here'),
        ("saw “<a> ` tick” here", "saw “``<a> ` tick``” here"),
        ("saw “<a> cut…", "saw “`<a> cut…`"),
        ("saw “plain words” here", "saw “plain words” here"),
    ],
)
def test_a_quotation_is_marked_as_a_whole_or_not_at_all(said, shown):
    assert text.prose(said) == shown


def test_a_pipe_in_a_quotation_ends_no_cell():
    assert text.cell("saw “<a>|b”") == "saw “`<a>\\|b`”"
