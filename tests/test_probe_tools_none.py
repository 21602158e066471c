"""What the judge of ``tools_none`` makes of replies that no mutant gives."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Json, Mode, Outcome
from servecheck.probes.tools_none import PROBE, ToolsNoneParams
from tests.made import exchange, failure, only, refusal, transcript, whole

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED
PREVENTED, CLEAN = "none-prevents-calls", "none-leaves-no-call-in-the-text"
KEPT = "none-keeps-what-the-model-wrote"
NAME = "fn_bcdfghjk"
REQUEST: Json = {"tools": [{"type": "function", "function": {"name": NAME, "parameters": {"type": "object"}}}]}
CONTROL = exchange("control", whole("I cannot."), request={})


def markup(name: str = NAME, *, tag: bool = True) -> str:
    inner = f'{{"name": "{name}", "arguments": {{"code": "x"}}}}'
    return f"<tool_call>\n{inner}\n</tool_call>" if tag else inner


def said(
    step: str, text: str | None = None, *, call: bool = False, finish: str = "stop", wrote: str = "", tokens: int = 20
) -> Exchange:
    calls: Json = [{"id": "c", "type": "function", "function": {"name": NAME, "arguments": "{}"}}]
    logprobs: Json = {"content": [{"token": letter, "logprob": -0.1} for letter in wrote]} if wrote else None
    usage = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
    message: dict[str, Json] = {"tool_calls": calls} if call else {}
    return exchange(step, whole(text, finish, logprobs=logprobs, usage=usage, **message), request=REQUEST)


FORCED = said("forced", call=True, finish="tool_calls", wrote=markup())
CALLS = said("auto-natural", call=True, finish="tool_calls")


def judged(check: str, *exchanges: Exchange) -> set[Outcome]:
    findings = only(PROBE.judge(transcript(CONTROL, *exchanges), ToolsNoneParams()))
    return {each.outcome for each in findings if each.check == check and each.mode is Mode.NON_STREAM}


@pytest.mark.parametrize(
    ("expected", "auto", "off"),
    [
        pytest.param(HELD, CALLS, said("none-natural", "I cannot."), id="no call any more"),
        pytest.param(NO_EFFECT, CALLS, said("none-natural", call=True), id="the call as before"),
        pytest.param(VIOLATED, said("auto-natural", "No."), said("none-natural", call=True), id="a call for none"),
        pytest.param(UNDETERMINED, said("auto-natural", "No."), said("none-natural", "No."), id="never a call"),
        pytest.param(UNDETERMINED, failure("auto-natural"), said("none-natural", "No."), id="failing without it"),
        pytest.param(VIOLATED, CALLS, said("none-natural", "No.", finish="tool_calls"), id="only the reason of one"),
        pytest.param(REFUSED, CALLS, refusal("none-natural"), id="a refusal"),
        pytest.param(VIOLATED, CALLS, failure("none-natural"), id="a failure"),
    ],
)
def test_with_none_there_is(expected: Outcome, auto: Exchange, off: Exchange) -> None:
    assert judged(PREVENTED, FORCED, auto, off) == {expected}


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        pytest.param(VIOLATED, markup(), id="the call"),
        pytest.param(VIOLATED, markup("fn_bcdfhjk"), id="the call with its name misspelt"),
        pytest.param(VIOLATED, f"Well. {markup()}", id="the call behind a word"),
        pytest.param(HELD, f"I would call {NAME} now.", id="the name"),
        pytest.param(HELD, markup(tag=False), id="a bare object where calls have a tag"),
        pytest.param(HELD, "", id="nothing"),
    ],
)
def test_a_text_with_none_is(expected: Outcome, text: str) -> None:
    assert judged(CLEAN, FORCED, CALLS, said("none-natural", text)) == {expected}


def test_where_calls_have_no_tag_only_a_text_that_begins_as_one_counts() -> None:
    forced = said("forced", call=True, wrote=markup(tag=False))

    assert judged(CLEAN, forced, CALLS, said("none-natural", markup(tag=False))) == {VIOLATED}
    assert judged(CLEAN, forced, CALLS, said("none-natural", "Tools: " + markup(tag=False))) == {HELD}


@pytest.mark.parametrize(
    ("expected", "off"),
    [
        pytest.param(VIOLATED, said("none-natural", "", tokens=40), id="empty after many tokens"),
        pytest.param(HELD, said("none-natural", "", tokens=2), id="empty after few"),
        pytest.param(HELD, said("none-natural", "", tokens=40, finish="length"), id="cut before its text"),
        pytest.param(HELD, said("none-natural", markup(), tokens=40), id="a call as text"),
    ],
)
def test_what_was_written_is_kept(expected: Outcome, off: Exchange) -> None:
    assert judged(KEPT, FORCED, CALLS, off) == {expected}
