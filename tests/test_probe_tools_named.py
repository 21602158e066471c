"""What the judge of ``tools_named`` makes of replies that no mutant gives."""

from __future__ import annotations

import json

import pytest

from servecheck.model import Exchange, Json, Mode, Outcome
from servecheck.probes.tools_named import PROBE, ToolsNamedParams
from tests.made import exchange, failure, outcomes, refusal, transcript, whole

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED
CALLED, OFFERED, UNKNOWN = (
    "naming-a-tool-makes-a-call",
    "called-tool-is-the-named-one",
    "a-name-that-is-not-offered-is-refused",
)
FIRST, SECOND = "fn_first", "fn_second"


def tool(name: str) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


REQUEST: Json = {"tools": [tool(FIRST), tool(SECOND)], "tool_choice": {"function": {"name": SECOND}}}


def call(name: str | None = SECOND, arguments: str = "{}", *, id: str = "call_1") -> Json:  # noqa: A002
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def called(step: str, *calls: Json, finish: str | None = "stop", text: str | None = None) -> Exchange:
    message: dict[str, Json] = {"tool_calls": list(calls)} if calls else {}
    return exchange(step, whole(text, finish, **message), request=REQUEST)


CONTROL = exchange("control", whole("I am well."), request={})


def judged(check: str, *exchanges: Exchange, control: Exchange = CONTROL) -> set[Outcome]:
    return outcomes(PROBE.judge(transcript(control, *exchanges), ToolsNamedParams()), check, Mode.NON_STREAM)


@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
def test_a_call_of_the_named_tool_holds_whatever_it_is_finished_with(finish: str) -> None:
    reply = called("plain", call(), finish=finish)

    assert judged(OFFERED, reply) == judged("finish-fits-a-named-call", reply) == {HELD}


@pytest.mark.parametrize(
    ("expected", "unforced"),
    [
        pytest.param(NO_EFFECT, called("unforced", call(FIRST)), id="as without the choice"),
        pytest.param(VIOLATED, called("unforced", text="I am well."), id="without the choice there is no call"),
        pytest.param(VIOLATED, called("unforced", call(SECOND)), id="without the choice it is the right one"),
        pytest.param(VIOLATED, failure("unforced"), id="without the choice the server fails"),
    ],
)
def test_a_call_of_the_other_tool_is(expected: Outcome, unforced: Exchange) -> None:
    assert judged(OFFERED, unforced, called("plain", call(FIRST))) == {expected}


def test_a_call_without_a_name_is_violated_whatever_comes_without_the_choice() -> None:
    assert judged(OFFERED, called("unforced", call(None)), called("plain", call(None))) == {VIOLATED}


@pytest.mark.parametrize(
    ("expected", "reply"),
    [
        pytest.param(NO_EFFECT, called("plain", text="Fine."), id="prose"),
        pytest.param(VIOLATED, called("plain", text=json.dumps({"name": SECOND})), id="the call as text"),
        pytest.param(UNDETERMINED, called("plain", call(arguments='{"a'), finish="length"), id="a cut call"),
        pytest.param(REFUSED, refusal("plain"), id="a refusal"),
        pytest.param(VIOLATED, failure("plain"), id="a failure"),
    ],
)
def test_in_place_of_a_call_there_is(expected: Outcome, reply: Exchange) -> None:
    assert judged(CALLED, reply) == {expected}


@pytest.mark.parametrize(
    ("expected", "unknown", "known"),
    [
        pytest.param(HELD, refusal("unknown"), called("plain", call()), id="refused"),
        pytest.param(VIOLATED, called("unknown", call(FIRST)), called("plain", call()), id="another is called"),
        pytest.param(VIOLATED, called("unknown", text="Fine."), called("plain", call()), id="prose"),
        pytest.param(VIOLATED, failure("unknown"), refusal("plain"), id="a failure"),
        pytest.param(UNDETERMINED, refusal("unknown"), refusal("plain"), id="every name is refused"),
    ],
)
def test_a_name_that_is_not_offered(expected: Outcome, unknown: Exchange, known: Exchange) -> None:
    assert judged(UNKNOWN, known, unknown) == {expected}


@pytest.mark.parametrize(
    ("expected", "reply"),
    [
        pytest.param({VIOLATED}, called("plain", call(arguments='"nh_nh_nh'), finish="length"), id="a string"),
        pytest.param(set(), called("plain", call(arguments='{"a'), finish="length"), id="an object"),
        pytest.param(set(), called("plain", call(arguments=""), finish="length"), id="nothing yet"),
        pytest.param(
            {VIOLATED},
            called("plain", text=f'<tool_call>{{"name": "{SECOND}", "arguments": "nh_nh', finish="length"),
            id="a string, shown as text",
        ),
        pytest.param(
            set(),
            called("plain", text=f'<tool_call>{{"name": "{SECOND}", "arguments": {{"a', finish="length"),
            id="an object, shown as text",
        ),
    ],
)
def test_a_cut_call_shows_how_its_arguments_begin(expected: set[Outcome], reply: Exchange) -> None:
    assert judged("named-arguments-match-the-schema", reply) == expected
    assert judged(CALLED, reply) == {UNDETERMINED}
