"""What the judge of ``tools_parallel`` makes of replies that no mutant gives."""

from __future__ import annotations

from typing import Literal

import pytest

from servecheck.model import Exchange, Json, Mode, Outcome
from servecheck.probes.tools_parallel import PROBE, ToolsParallelParams
from tests.made import exchange, failure, only, refusal, transcript, whole

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED
SEVERAL, WHOLE, DEFAULT = "one-answer-holds-several-calls", "parallel-calls-are-whole", "parallel-calls-are-the-default"
ONE = "parallel-off-gives-one-call-at-most"
NAMES = ("fn_first", "fn_second")
TOOLS: Json = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in NAMES]
CONTROL = exchange("control", whole("I am well."), request={})


def markup(name: str) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>'


def said(
    step: str,
    calls: int = 0,
    text: str | None = None,
    *,
    wrote: str = "",
    tokens: int = 40,
    arguments: str = "{}",
    finish: str = "tool_calls",
    flag: bool | None = None,
) -> Exchange:
    made: list[Json] = [
        {"id": f"c{place}", "type": "function", "function": {"name": NAMES[place % 2], "arguments": arguments}}
        for place in range(calls)
    ]
    logprobs: Json = {"content": [{"token": letter, "logprob": -0.1} for letter in wrote]} if wrote else None
    usage = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
    message: dict[str, Json] = {"tool_calls": made} if made else {}
    request: dict[str, Json] = {"tools": TOOLS}
    if flag is not None:
        request["parallel_tool_calls"] = flag
    return exchange(step, whole(text, finish, logprobs=logprobs, usage=usage, **message), request=request)


def judged(
    check: str,
    *exchanges: Exchange,
    row: Literal["parallel", "parallel_off"] = "parallel",
    mode: Mode = Mode.NON_STREAM,
    control: Exchange = CONTROL,
) -> set[Outcome]:
    findings = only(PROBE.judge(transcript(control, *exchanges), ToolsParallelParams(row=row)))
    return {each.outcome for each in findings if each.check == check and each.mode is mode}


def test_one_call_each_time_decides_nothing() -> None:
    once = said("plain", 1, wrote=markup(NAMES[0]))

    assert judged(SEVERAL, once, said("flag", 1), said("shown-joined", 1)) == {UNDETERMINED}
    assert judged(ONE, once, said("flag", 1), row="parallel_off") == {UNDETERMINED}


def test_two_calls_that_were_written_and_one_that_came_back_are_a_fault() -> None:
    assert judged(SEVERAL, said("plain", 1, wrote=markup(NAMES[0]) + "\n" + markup(NAMES[0]))) == {VIOLATED}


@pytest.mark.parametrize(
    ("expected", "streamed"),
    [
        pytest.param(HELD, said("several-stream", 2), id="as many"),
        pytest.param(HELD, said("several-stream", 3, tokens=60), id="more"),
        pytest.param(VIOLATED, said("several-stream", 1, tokens=40), id="fewer for as many tokens"),
        pytest.param(UNDETERMINED, said("several-stream", 1, tokens=20), id="fewer for fewer tokens"),
        pytest.param(VIOLATED, failure("several-stream"), id="a failure"),
        pytest.param(REFUSED, refusal("several-stream"), id="a refusal"),
    ],
)
def test_in_the_stream_there_are(expected: Outcome, streamed: Exchange) -> None:
    assert judged(SEVERAL, said("plain", 2), streamed, mode=Mode.STREAM) == {expected}


def test_each_call_has_arguments_that_parse() -> None:
    assert judged(WHOLE, said("plain", 2, arguments="{")) == {VIOLATED}
    assert judged(WHOLE, said("plain", 2), said("several-stream", 2)) == {HELD}


def test_several_calls_that_must_be_asked_for_are_a_shortfall() -> None:
    flag = said("flag", 2, flag=True)

    assert judged(DEFAULT, said("plain", 1), flag, said("default", 1)) == {VIOLATED}
    assert judged(DEFAULT, said("plain", 1), flag, said("default", 2)) == {HELD}
    assert judged(DEFAULT, said("plain", 2)) == {HELD}


@pytest.mark.parametrize(
    ("expected", "off"),
    [
        pytest.param(HELD, said("off", 1, tokens=20), id="one"),
        pytest.param(HELD, said("off", 1, tokens=40), id="one, and the tokens of two"),
        pytest.param(NO_EFFECT, said("off", 2), id="two"),
        pytest.param(VIOLATED, said("off", 0, "Fine.", finish="stop"), id="none"),
        pytest.param(UNDETERMINED, said("off", 0, "<tool_call>", finish="length"), id="a cut one"),
        pytest.param(REFUSED, refusal("off"), id="a refusal"),
    ],
)
def test_with_the_flag_off_there_is(expected: Outcome, off: Exchange) -> None:
    assert judged(ONE, said("plain", 2), off, row="parallel_off") == {expected}


def test_a_server_that_never_calls_ignores_tools_and_not_the_flag() -> None:
    prose = said("plain", 0, "I am well.", finish="stop")

    assert judged(SEVERAL, prose) == {NO_EFFECT}
    assert judged(ONE, prose, row="parallel_off") == {UNDETERMINED}
    assert judged(ONE, said("plain", 0, markup(NAMES[1])), row="parallel_off") == {VIOLATED}
