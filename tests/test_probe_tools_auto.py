"""What the judge of ``tools_auto`` makes of replies that no mutant gives."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Json, Mode, Outcome
from servecheck.probes.tools_auto import PROBE, ToolsAutoParams
from tests.made import exchange, failure, only, refusal, transcript, whole

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED
CALLED, FORM, MANY = "call-comes-back-as-a-call", "call-made-freely-is-well-formed", "many-tools-are-accepted"
NAME = "fn_bcdfghjk"
MARKUP = f'<tool_call>\n{{"name": "{NAME}", "arguments": {{"code": "x"}}}}\n</tool_call>'
REQUEST: Json = {"tools": [{"type": "function", "function": {"name": NAME, "parameters": {"type": "object"}}}]}
CONTROL = exchange("control", whole("I cannot."), request={})


def call(arguments: str = '{"code": "x"}', name: str = NAME) -> Json:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def tokens(text: str) -> Json:
    return {"content": [{"token": letter, "logprob": -0.1} for letter in text]}


def said(
    step: str, text: str | None = None, *calls: Json, finish: str = "stop", wrote: str = "", prompt: int = 40
) -> Exchange:
    message: dict[str, Json] = {"tool_calls": list(calls)} if calls else {}
    usage = {"prompt_tokens": prompt, "completion_tokens": 9, "total_tokens": prompt + 9}
    body = whole(text, finish, usage=usage, logprobs=tokens(wrote) if wrote else None, **message)
    return exchange(step, body, request=REQUEST)


FORCED = said("forced", None, call(), finish="tool_calls", wrote=MARKUP + "<|im_end|>")


def judged(check: str, *exchanges: Exchange, control: Exchange = CONTROL) -> set[Outcome]:
    findings = only(PROBE.judge(transcript(control, *exchanges), ToolsAutoParams()))
    return {each.outcome for each in findings if each.check == check and each.mode is Mode.NON_STREAM}


def whys(*exchanges: Exchange) -> str:
    return "; ".join(each.why for each in only(PROBE.judge(transcript(CONTROL, *exchanges), ToolsAutoParams())))


def test_a_model_that_declines_is_not_the_server_s_fault() -> None:
    declined = said("natural", "No, thank you.")

    assert judged(CALLED, FORCED, declined) == {UNDETERMINED}
    assert "parser proven, model declined" in whys(FORCED, declined)


@pytest.mark.parametrize(
    ("expected", "natural"),
    [
        pytest.param(VIOLATED, said("natural", f"Well. {MARKUP}"), id="the call in the server's own format"),
        pytest.param(VIOLATED, said("natural", MARKUP.replace("\n", "")), id="with other white space"),
        pytest.param(UNDETERMINED, said("natural", f'{{"name": "{NAME}"}}'), id="a bare object"),
        pytest.param(UNDETERMINED, said("natural", f"```\n{NAME}(code)\n```"), id="code"),
        pytest.param(UNDETERMINED, said("natural", MARKUP[:30]), id="the beginning of a call"),
    ],
)
def test_a_text_that_resembles_a_call_is(expected: Outcome, natural: Exchange) -> None:
    assert judged(CALLED, FORCED, natural) == {expected}


def test_a_bare_json_format_of_forced_calls_proves_nothing_against_the_parser() -> None:
    bare = f'[{{"name": "{NAME}", "parameters": {{"code": "x"}}}}]'
    forced = said("forced", None, call(), finish="tool_calls", wrote=bare)

    assert judged(CALLED, forced, said("natural", "No."), said("imitated", bare)) == {UNDETERMINED}


def test_a_text_that_was_forced_and_not_parsed_proves_nothing_either() -> None:
    assert judged(CALLED, FORCED, said("natural", "No."), said("written", MARKUP)) == {UNDETERMINED}


def test_a_text_that_was_forced_and_parsed_proves_the_parser() -> None:
    found = judged(CALLED, FORCED, said("natural", "No."), said("written", None, call(), finish="tool_calls"))

    assert found == {HELD}


def test_malformed_arguments_are_a_fault_only_where_it_is_known_what_was_written() -> None:
    natural = said("natural", None, call('{"code": x'))

    assert judged(CALLED, FORCED, natural) == {UNDETERMINED}
    assert judged(FORM, FORCED, natural, said("written", None, call('{"code": x'))) == {VIOLATED}


def test_a_forced_call_that_comes_back_as_text_decides() -> None:
    assert judged(CALLED, said("forced", MARKUP), said("natural", "No.")) == {VIOLATED}


@pytest.mark.parametrize(("expected", "prompt"), [(NO_EFFECT, 40), (UNDETERMINED, 90)])
def test_tools_that_never_reach_the_prompt_and_force_nothing_are_ignored(expected: Outcome, prompt: int) -> None:
    control = said("control", "No.", prompt=40)
    found = judged(CALLED, said("forced", "Fine."), said("natural", "No.", prompt=prompt), control=control)

    assert found == {expected}


@pytest.mark.parametrize("way", ["natural", "imitated", "written"])
def test_a_500_on_what_the_model_said_is_the_server_s_fault(way: str) -> None:
    replies = [said("natural", "No."), failure(way)] if way != "natural" else [failure(way)]

    assert judged(CALLED, FORCED, *replies) == {VIOLATED}


def test_a_refusal_counts_where_the_control_was_answered() -> None:
    assert judged(CALLED, refusal("natural")) == {REFUSED}
    assert judged(CALLED, refusal("natural"), control=refusal("control")) == {UNDETERMINED}


@pytest.mark.parametrize(
    ("expected", "many", "one"),
    [
        pytest.param(HELD, said("many", "No."), said("natural", "No."), id="answered"),
        pytest.param(REFUSED, refusal("many", "invalid JSON"), said("natural", "No."), id="refused for its form"),
        pytest.param(UNDETERMINED, refusal("many", "maximum context length"), said("natural", "No."), id="too long"),
        pytest.param(UNDETERMINED, refusal("many", "invalid JSON"), refusal("natural"), id="one is refused too"),
        pytest.param(VIOLATED, failure("many"), said("natural", "No."), id="a failure"),
    ],
)
def test_many_tools_are(expected: Outcome, many: Exchange, one: Exchange) -> None:
    assert judged(MANY, FORCED, one, many) == {expected}
