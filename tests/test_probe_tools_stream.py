"""What the judge of ``tools_stream`` makes of replies that no mutant gives."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Json, Outcome
from servecheck.probes.tools_stream import PROBE, ToolsStreamParams
from tests.made import ROLE, event, exchange, failure, outcomes, refusal, sse, transcript, whole

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED
COMES, EQUAL = "streamed-call-comes-as-deltas", "streamed-call-equals-the-plain-one"
ONCE, INDEX = "streamed-call-is-introduced-once", "every-call-delta-has-its-index"
FINISH, CLEAN = "streamed-call-finishes-as-the-plain-one", "streamed-call-is-not-shown-as-text-too"
NAME, ARGUMENTS = "fn_bcdfghjk", '{"code": "lmnpqr"}'
REQUEST: Json = {"tools": [{"type": "function", "function": {"name": NAME, "parameters": {"type": "object"}}}]}
CONTROL = exchange("control", whole("I am well."), request={})


def plain(arguments: str = ARGUMENTS, *, finish: str = "tool_calls") -> Exchange:
    call: Json = {"id": "c", "type": "function", "function": {"name": NAME, "arguments": arguments}}
    return exchange("plain-6", whole(None, finish, tool_calls=[call]), request=REQUEST)


def head(**more: Json) -> Json:
    return {"index": 0, "id": "c", "type": "function", "function": {"name": NAME, "arguments": ""}, **more}


def rest(arguments: str, **more: Json) -> Json:
    return {"index": 0, "function": {"arguments": arguments}, **more}


def stream(*deltas: Json, finish: str = "tool_calls", text: str = "", step: str = "stream-6") -> Exchange:
    events = [ROLE, *(event({"tool_calls": [delta]}) for delta in deltas), event({"content": text}), event({}, finish)]
    return exchange(step, sse(events), content_type="text/event-stream", request=REQUEST)


RIGHT = (head(), rest(ARGUMENTS[:7]), rest(ARGUMENTS[7:]))


def judged(check: str, *exchanges: Exchange) -> set[Outcome]:
    return outcomes(PROBE.judge(transcript(CONTROL, *exchanges), ToolsStreamParams()), check)


def test_a_right_stream_holds_every_check() -> None:
    right = plain(), stream(*RIGHT), stream(head(), rest("{}"), step="stream-empty")

    assert {check.id: judged(check.id, *right) for check in PROBE.checks} == {
        check.id: {HELD} for check in PROBE.checks
    }


@pytest.mark.parametrize(
    ("expected", "deltas"),
    [
        pytest.param(HELD, [head(), rest('{\n"code" :"lmnpqr"}')], id="with other white space"),
        pytest.param(HELD, [head(function={"name": NAME, "arguments": ARGUMENTS})], id="in one delta"),
        pytest.param(HELD, [head(function={"name": NAME}), rest(ARGUMENTS)], id="without arguments at first"),
        pytest.param(HELD, [head(), rest(ARGUMENTS, id=None, type=None)], id="with nulls later"),
        pytest.param(VIOLATED, [head(), rest(ARGUMENTS), rest(ARGUMENTS)], id="twice"),
        pytest.param(VIOLATED, [head(), rest(ARGUMENTS[:-1])], id="without the last brace"),
        pytest.param(VIOLATED, [head(), rest("{" + ARGUMENTS)], id="with a brace too many"),
        pytest.param(VIOLATED, [head(), rest('{"code": "lmnpq"}')], id="with a letter lost"),
        pytest.param(VIOLATED, [head(), rest("")], id="without arguments"),
        pytest.param(VIOLATED, [head(), rest(ARGUMENTS, function={"name": NAME, "arguments": ARGUMENTS})], id="names"),
    ],
)
def test_joined_arguments_are_compared(expected: Outcome, deltas: list[Json]) -> None:
    assert judged(EQUAL, plain(), stream(*deltas)) == {expected}


def test_nothing_is_said_where_the_plain_reply_has_no_call() -> None:
    assert judged(EQUAL, failure("plain-6"), stream(*RIGHT)) == {UNDETERMINED}
    assert judged(EQUAL, plain("{"), stream(*RIGHT)) == {UNDETERMINED}


@pytest.mark.parametrize(
    ("expected", "deltas"),
    [
        pytest.param({HELD}, [head(), rest(ARGUMENTS, id="c", type="function")], id="id and type repeated"),
        pytest.param({VIOLATED}, [head(id=None), rest(ARGUMENTS, id="c")], id="the id late"),
        pytest.param({VIOLATED}, [head(), rest(ARGUMENTS, id="d")], id="another id"),
        pytest.param({VIOLATED}, [head(type="tool"), rest(ARGUMENTS)], id="another type"),
        pytest.param({VIOLATED}, [head(function={"arguments": ""}), rest(ARGUMENTS)], id="no name"),
    ],
)
def test_a_call_is_introduced(expected: set[Outcome], deltas: list[Json]) -> None:
    assert judged(ONCE, plain(), stream(*deltas)) == expected


@pytest.mark.parametrize(
    ("expected", "index"), [(HELD, 0), (VIOLATED, None), (VIOLATED, 1), (VIOLATED, "0"), (VIOLATED, True)]
)
def test_the_index_is_a_number_from_zero(expected: Outcome, index: Json) -> None:
    assert judged(INDEX, plain(), stream(head(index=index), rest(ARGUMENTS, index=index))) == {expected}


def test_text_behind_a_call_is_legal_and_the_call_as_text_is_not() -> None:
    assert judged(CLEAN, plain(), stream(*RIGHT, text="I am glad to help!")) == {HELD}
    assert judged(CLEAN, plain(), stream(*RIGHT, text=f'{{"name": "{NAME}", "arguments": {{}}}}')) == {VIOLATED}


def test_the_finish_reason_is_compared_and_not_prescribed() -> None:
    assert judged(FINISH, plain(finish="stop"), stream(*RIGHT, finish="stop")) == {HELD}
    assert judged(FINISH, plain(), stream(*RIGHT, finish="stop")) == {VIOLATED}


@pytest.mark.parametrize(
    ("expected", "reply"),
    [
        pytest.param(NO_EFFECT, stream(text="I am well.", finish="stop"), id="prose"),
        pytest.param(VIOLATED, stream(text=f"<tool_call>{NAME}", finish="stop"), id="the call as text"),
        pytest.param(REFUSED, refusal("stream-6"), id="a refusal"),
        pytest.param(VIOLATED, failure("stream-6"), id="a failure"),
        pytest.param(UNDETERMINED, stream(head(), rest("{"), finish="length"), id="a cut call"),
    ],
)
def test_in_place_of_deltas_there_is(expected: Outcome, reply: Exchange) -> None:
    assert judged(COMES, plain(), reply) == {expected}
