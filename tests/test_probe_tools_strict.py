"""What the judge of ``tools_strict`` makes of replies that no mutant gives."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Json, Mode, Outcome
from servecheck.probes.tools_strict import PROBE, ToolsStrictParams
from tests.made import exchange, failure, outcomes, refusal, transcript, whole

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED
CALLED, FIT, BOUNDS = "strict-tool-is-called", "strict-arguments-fit-their-schema", "strict-bounds-are-kept"
CONTROL = exchange("control", whole("I am well."), request={})
WORD: Json = {"type": "string", "enum": ["lmnpqr"]}
NUMBER: Json = {"type": "integer", "minimum": 1700, "maximum": 1708}


def called(
    step: str, value: str = '"lmnpqr"', inner: Json = WORD, *, finish: str = "tool_calls", text: str = ""
) -> Exchange:
    schema: Json = {"type": "object", "properties": {"value": inner}, "required": ["value"]}
    request: Json = {"tools": [{"type": "function", "function": {"name": "fn_bcd", "parameters": schema}}]}
    call: Json = {"id": "c", "type": "function", "function": {"name": "fn_bcd", "arguments": f'{{"value": {value}}}'}}
    message: dict[str, Json] = {} if text else {"tool_calls": [call]}
    return exchange(step, whole(text or None, finish, **message), request=request)


LOOSE, RIGHT = called("loose", '"celsius"'), called("word")


def judged(check: str, *exchanges: Exchange) -> set[Outcome]:
    return outcomes(PROBE.judge(transcript(CONTROL, *exchanges), ToolsStrictParams()), check, Mode.NON_STREAM)


@pytest.mark.parametrize(
    ("expected", "loose", "word"),
    [
        pytest.param(HELD, LOOSE, RIGHT, id="right, and wrong without strict"),
        pytest.param(HELD, called("loose"), RIGHT, id="right, also without strict"),
        pytest.param(NO_EFFECT, LOOSE, called("word", '"celsius"'), id="wrong, as without strict"),
        pytest.param(VIOLATED, called("loose"), called("word", '"celsius"'), id="wrong, and right without strict"),
        pytest.param(VIOLATED, failure("loose"), called("word", "3"), id="wrong, and a failure without strict"),
        pytest.param(VIOLATED, called("loose"), called("word", '"lmn'), id="not JSON"),
    ],
)
def test_arguments_are(expected: Outcome, loose: Exchange, word: Exchange) -> None:
    assert judged(FIT, loose, word) == {expected}


def test_bounds_are_a_check_of_their_own() -> None:
    assert judged(BOUNDS, LOOSE, RIGHT, called("bounds", "1704", NUMBER)) == {HELD}
    assert judged(BOUNDS, LOOSE, RIGHT, called("bounds", "7", NUMBER)) == {VIOLATED}
    assert judged(FIT, LOOSE, RIGHT, called("bounds", "7", NUMBER)) == {HELD}


def test_a_refusal_is_about_the_schema_once_the_simplest_was_answered() -> None:
    assert judged(BOUNDS, RIGHT, refusal("bounds")) == {REFUSED}
    assert judged(FIT, RIGHT, refusal("list")) == {HELD, REFUSED}
    assert judged(CALLED, refusal("word"), refusal("bounds")) == {REFUSED}


@pytest.mark.parametrize(
    ("expected", "reply"),
    [
        pytest.param(NO_EFFECT, called("word", text="I am well.", finish="stop"), id="prose"),
        pytest.param(VIOLATED, called("word", text='{"name": "fn_bcd"}', finish="stop"), id="the call as text"),
        pytest.param(UNDETERMINED, called("word", '"lm', finish="length"), id="a cut call"),
        pytest.param(VIOLATED, failure("word"), id="a failure"),
    ],
)
def test_in_place_of_a_call_there_is(expected: Outcome, reply: Exchange) -> None:
    assert judged(CALLED, LOOSE, reply) == {expected}
