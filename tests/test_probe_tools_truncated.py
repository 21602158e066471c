"""What the judge of ``tools_truncated`` makes of replies that no mutant gives."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Json, Mode, Outcome
from servecheck.probes.tools_truncated import PROBE, ToolsTruncatedParams
from tests.made import exchange, failure, outcomes, refusal, transcript, whole

HELD, VIOLATED, UNDETERMINED, REFUSED = Outcome.HELD, Outcome.VIOLATED, Outcome.UNDETERMINED, Outcome.REFUSED
LENGTH, CLEAN = "cut-call-ends-with-length", "cut-call-is-not-shown-as-text"
HALF, SAME = "cut-call-does-not-look-whole", "cut-call-is-the-same-in-both-modes"
NAME, CODE = "fn_bcdfghjk", "l" * 48
MARKUP = f'<tool_call>\n{{"name": "{NAME}", "arguments": {{"code": "{CODE}"}}}}\n</tool_call>'
CONTROL = exchange("control", whole("I am well."), request={})
SCHEMA: Json = {"type": "object", "properties": {"code": {"enum": [CODE]}}, "required": ["code"]}


def said(
    step: str,
    arguments: str | None = None,
    text: str | None = None,
    *,
    finish: str = "length",
    spent: int | None = 64,
    wrote: str = "",
) -> Exchange:
    request: Json = {
        "tools": [{"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}],
        "max_tokens": 64,
    }
    call: Json = {"id": "c", "type": "function", "function": {"name": NAME, "arguments": arguments}}
    logprobs: Json = {"content": [{"token": letter, "logprob": -0.1} for letter in wrote]} if wrote else None
    usage: Json = {"prompt_tokens": 9, "completion_tokens": spent, "total_tokens": 9}
    message: dict[str, Json] = {} if arguments is None else {"tool_calls": [call]}
    return exchange(step, whole(text, finish, usage=usage, logprobs=logprobs, **message), request=request)


FULL = said("whole", f'{{"code": "{CODE}"}}', finish="tool_calls", spent=80, wrote=MARKUP)
PART = '{"code": "lll'


def judged(check: str, *exchanges: Exchange, mode: Mode = Mode.NON_STREAM, full: Exchange = FULL) -> set[Outcome]:
    return outcomes(PROBE.judge(transcript(CONTROL, full, *exchanges), ToolsTruncatedParams()), check, mode)


@pytest.mark.parametrize(
    ("expected", "reply"),
    [
        pytest.param(HELD, said("arguments", PART), id="length"),
        pytest.param(VIOLATED, said("arguments", PART, finish="tool_calls"), id="tool_calls"),
        pytest.param(VIOLATED, said("arguments", PART, finish="stop", spent=None), id="stop, without a count"),
        pytest.param(UNDETERMINED, said("arguments", PART, finish="stop", spent=50), id="an end before the limit"),
        pytest.param(VIOLATED, refusal("arguments", "invalid JSON"), id="a refusal"),
        pytest.param(VIOLATED, failure("arguments"), id="a failure"),
    ],
)
def test_a_cut_call_ends_with(expected: Outcome, reply: Exchange) -> None:
    assert judged(LENGTH, reply) == {expected}


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        pytest.param(VIOLATED, MARKUP[:40], id="the begun call"),
        pytest.param(VIOLATED, "<tool_", id="the first letters of it"),
        pytest.param(HELD, "", id="nothing"),
        pytest.param(HELD, "Let me write that down.", id="a sentence"),
    ],
)
def test_the_text_of_a_cut_call_is(expected: Outcome, text: str) -> None:
    assert judged(CLEAN, said("arguments", None, text)) == {expected}


@pytest.mark.parametrize(
    ("expected", "arguments"), [(HELD, PART), (HELD, ""), (VIOLATED, '{"code": "lll"}'), (VIOLATED, "{}")]
)
def test_cut_arguments_are(expected: Outcome, arguments: str) -> None:
    assert judged(HALF, said("arguments", arguments)) == {expected}


@pytest.mark.parametrize(
    ("expected", "plain", "stream"),
    [
        pytest.param(HELD, (PART, None), ('{"code": "ll', None), id="a part each"),
        pytest.param(HELD, (None, ""), (None, ""), id="nothing each"),
        pytest.param(VIOLATED, (None, MARKUP[:40]), (PART, None), id="text and a part"),
        pytest.param(VIOLATED, (None, MARKUP[:40]), (None, ""), id="text and nothing"),
    ],
)
def test_both_modes_show(
    expected: Outcome, plain: tuple[str | None, str | None], stream: tuple[str | None, str | None]
) -> None:
    replies = said("arguments", *plain), said("arguments-stream", *stream)

    assert judged(SAME, *replies, mode=Mode.STREAM) == {expected}


@pytest.mark.parametrize(
    ("expected", "full"),
    [
        pytest.param(UNDETERMINED, said("whole", None, "I am well.", finish="stop"), id="prose"),
        pytest.param(VIOLATED, said("whole", None, MARKUP, finish="stop"), id="the call as text"),
        pytest.param(UNDETERMINED, said("whole", PART), id="a call that was cut"),
        pytest.param(UNDETERMINED, said("whole", f'{{"code": "{CODE}"}}', finish="stop", spent=None), id="no count"),
        pytest.param(REFUSED, refusal("whole"), id="a refusal"),
        pytest.param(VIOLATED, failure("whole"), id="a failure"),
    ],
)
def test_without_a_whole_call_nothing_is_cut(expected: Outcome, full: Exchange) -> None:
    assert judged(LENGTH, full=full) == {expected}


def test_without_logprobs_only_the_arguments_are_cut() -> None:
    full = said("whole", f'{{"code": "{CODE}"}}', finish="tool_calls", spent=80)

    assert judged(LENGTH, said("arguments", PART), full=full) == {HELD}
    assert judged(CLEAN, said("arguments", None, "<tool_call>"), full=full) == {VIOLATED}
