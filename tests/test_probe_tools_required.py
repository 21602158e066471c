"""What the judge of ``tools_required`` makes of replies that no mutant gives."""

from __future__ import annotations

import json

import pytest

from servecheck.model import Exchange, Finding, Json, Mode, Outcome
from servecheck.probes.tools_required import PROBE, ToolsRequiredParams
from tests.replies import answer, event, outcomes, refusal, streamed, transcript
from tests.replies import reply as exchange
from tests.replies import why as whys

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED

CALLED, OFFERED, ID = "required-tool-is-called", "called-tool-is-the-offered-one", "call-has-an-id-of-its-own"
JSON, LOOSE, STRICT = "arguments-are-json", "arguments-match-the-schema", "strict-arguments-match-the-schema"
FINISH = "finish-fits-a-call"

NAME, WORD = "fn_bcdfghjk", "lmnpqrstvw"
ARGUMENTS = json.dumps({"code": WORD})
SCHEMA: Json = {
    "type": "object",
    "properties": {"code": {"type": "string", "enum": [WORD]}},
    "required": ["code"],
    "additionalProperties": False,
}
REQUEST: Json = {"tools": [{"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}]}
CONTROL = exchange("control", answer("I am well, thank you."))


def call(arguments: Json = ARGUMENTS, *, name: str | None = NAME, id: str | None = "call_1") -> Json:  # noqa: A002
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def forced(
    text: str | None = None,
    *calls: Json,
    finish: str | None = "tool_calls",
    reasoning: str = "",
    step: str = "plain",
) -> Exchange:
    return exchange(step, answer(text, finish=finish, reasoning=reasoning, calls=calls), request=REQUEST)


def judged(check: str, *exchanges: Exchange, mode: Mode = Mode.NON_STREAM) -> set[Outcome]:
    """Return what was said of a check, arms that were not sent left aside."""
    findings = PROBE.judge(transcript(CONTROL, *exchanges), ToolsRequiredParams())
    sent = [each for each in findings if isinstance(each, Finding) and each.mode is mode and "not sent" not in each.why]
    return outcomes(sent, check)


def test_a_right_call_holds_every_check() -> None:
    plain, strict = forced(None, call()), forced(None, call(id="call_2"), step="strict")

    assert {check.id: judged(check.id, plain, strict) for check in PROBE.checks} == {
        check.id: {HELD} for check in PROBE.checks
    }


def test_an_id_that_comes_back_in_another_request_is_a_fault_and_one_call_alone_says_nothing() -> None:
    check = "ids-of-calls-do-not-come-back"

    assert judged(check, forced(None, call()), forced(None, call(), step="strict")) == {VIOLATED}
    assert judged(check, forced(None, call()), forced("I am well.", step="strict")) == set()


@pytest.mark.parametrize(
    ("expected", "reply"),
    [
        pytest.param(VIOLATED, forced(f'<tool_call>{{"name": "{NAME}"}}</tool_call>', finish="stop"), id="markup"),
        pytest.param(VIOLATED, forced(f'[{{"name": "{NAME}", "parameters": {{}}}}]', finish="stop"), id="a JSON list"),
        pytest.param(VIOLATED, forced(f"{NAME}(code)", finish="stop"), id="code"),
        pytest.param(VIOLATED, forced("", reasoning=f"<tool_call>{NAME}", finish="stop"), id="a thought"),
        pytest.param(NO_EFFECT, forced("I am fine.", finish="stop"), id="prose"),
        pytest.param(NO_EFFECT, forced("I am fine.", finish="tool_calls"), id="prose that claims to be a call"),
        pytest.param(NO_EFFECT, forced("", reasoning="They greet me.", finish="stop"), id="a thought without a call"),
        pytest.param(VIOLATED, forced("", finish="stop"), id="nothing"),
        pytest.param(VIOLATED, forced("", finish=None), id="nothing, for no reason"),
        pytest.param(VIOLATED, exchange("plain", {"choices": []}, request=REQUEST), id="no choice"),
    ],
)
def test_instead_of_a_call_there_is(expected: Outcome, reply: Exchange) -> None:
    assert judged(CALLED, reply) == {expected}


WHOLE = f'<tool_call>\n{{"name": "{NAME}", "arguments": {ARGUMENTS}}}'


@pytest.mark.parametrize(
    ("expected", "reply"),
    [
        pytest.param(UNDETERMINED, forced(WHOLE[:20], finish="length"), id="as text, in the name"),
        pytest.param(UNDETERMINED, forced(WHOLE[: WHOLE.index(WORD)], finish="length"), id="as text, before the word"),
        pytest.param(UNDETERMINED, forced(WHOLE[:-2] + "\n\n", finish="length"), id="as text, after the word"),
        pytest.param(VIOLATED, forced(WHOLE + "\n\n", finish="length"), id="as text, behind the whole call"),
        pytest.param(UNDETERMINED, forced("", call('{"code": "lmn'), finish="length"), id="as a call, in the word"),
        pytest.param(
            UNDETERMINED, forced("", call('{"code": "lmn"}'), finish="length"), id="as a call that was closed"
        ),
        pytest.param(UNDETERMINED, forced("", call(""), finish="length"), id="as a call, before its arguments"),
        pytest.param(HELD, forced("", call(), call('{"co', id="call_2"), finish="length"), id="in a second call"),
        pytest.param(UNDETERMINED, forced("", finish="length"), id="before anything was shown"),
        pytest.param(UNDETERMINED, forced("", reasoning="They greet", finish="length"), id="in the thought"),
        pytest.param(NO_EFFECT, forced("I am fine and", finish="length"), id="in prose"),
    ],
)
def test_a_cut_by_length_is_a_fault_only_behind_the_call(expected: Outcome, reply: Exchange) -> None:
    assert judged(CALLED, reply) == {expected}


def test_a_second_call_that_was_cut_spoils_nothing() -> None:
    reply = forced("", call(), call('{"co', id="call_2"), finish="length")

    assert judged(JSON, reply) == judged(LOOSE, reply) == judged(FINISH, reply) == {HELD}


def test_the_second_look_at_a_call_that_was_cut_counts() -> None:
    assert judged(CALLED, forced(WHOLE[:-2], finish="length"), forced(None, call(), step="plain-again")) == {HELD}


def test_room_that_is_refused_says_nothing_of_the_call() -> None:
    again = refusal("plain-again", message="context too short")

    assert judged(CALLED, forced("", reasoning="They greet", finish="length"), again) == {UNDETERMINED}


@pytest.mark.parametrize(
    ("expected", "arguments"),
    [
        pytest.param({JSON: HELD, LOOSE: HELD, STRICT: HELD}, f'\n{{\n"code":"{WORD}"}} ', id="spread out"),
        pytest.param({JSON: HELD, LOOSE: VIOLATED, STRICT: VIOLATED}, '"celsius"', id="a JSON string"),
        pytest.param({JSON: HELD, LOOSE: VIOLATED, STRICT: VIOLATED}, "null", id="null"),
        pytest.param({JSON: HELD, LOOSE: VIOLATED, STRICT: VIOLATED}, "{}", id="an empty object"),
        pytest.param({JSON: HELD, LOOSE: VIOLATED, STRICT: VIOLATED}, json.dumps(ARGUMENTS), id="quoted twice"),
        pytest.param({JSON: VIOLATED}, "", id="nothing"),
        pytest.param({JSON: VIOLATED}, ARGUMENTS * 2, id="the object twice"),
        pytest.param({JSON: VIOLATED}, ARGUMENTS[:-1], id="without the last brace"),
        pytest.param({JSON: VIOLATED}, "NaN", id="NaN"),
        pytest.param({JSON: VIOLATED}, {"code": WORD}, id="an object in place of a string"),
    ],
)
def test_arguments_are(expected: dict[str, Outcome], arguments: Json) -> None:
    replies = (forced(None, call(arguments)), forced(None, call(arguments), step="strict"))
    seen = {check: judged(check, *replies) for check in (JSON, LOOSE, STRICT)}

    assert seen == {check: {expected[check]} if check in expected else set() for check in (JSON, LOOSE, STRICT)}


@pytest.mark.parametrize(
    ("expected", "calls"),
    [
        pytest.param({OFFERED: HELD, ID: HELD}, [call(), call(id="call_2")], id="twice"),
        pytest.param({OFFERED: VIOLATED, ID: HELD}, [call(), call(id="call_2", name="other")], id="another too"),
        pytest.param({OFFERED: VIOLATED, ID: HELD}, [call(name=None)], id="without a name"),
        pytest.param({OFFERED: HELD, ID: VIOLATED}, [call(), call()], id="twice with one id"),
        pytest.param({OFFERED: HELD, ID: VIOLATED}, [call(id=None)], id="without an id"),
        pytest.param({OFFERED: HELD, ID: VIOLATED}, [call(id="")], id="with an empty id"),
        pytest.param({OFFERED: VIOLATED, ID: VIOLATED}, [None, 3], id="things that are no calls"),
    ],
)
def test_the_function_is_called(expected: dict[str, Outcome], calls: list[Json]) -> None:
    reply = forced(None, *calls)

    assert {check: judged(check, reply) for check in (OFFERED, ID)} == {
        check: {outcome} for check, outcome in expected.items()
    }


def delta(arguments: str, **more: Json) -> Json:
    return {"index": 0, "function": {"arguments": arguments}, **more}


def test_a_stream_is_joined_and_its_id_must_not_change() -> None:
    named: Json = {"index": 0, "id": "call_1", "function": {"name": NAME}}
    steady = [event(tool_calls=[named]), event(tool_calls=[delta(ARGUMENTS[:5])])]
    last = event(tool_calls=[delta(ARGUMENTS[5:])])
    changed = event(tool_calls=[delta(ARGUMENTS[5:], id="call_2")])
    right = streamed("stream", *steady, last, event("tool_calls"), request=REQUEST)
    wrong = streamed("stream", *steady, changed, event("tool_calls"), request=REQUEST)

    assert judged(ID, right, mode=Mode.STREAM) == judged(LOOSE, right, mode=Mode.STREAM) == {HELD}
    assert judged(ID, wrong, mode=Mode.STREAM) == {VIOLATED}


@pytest.mark.parametrize(
    ("expected", "code"),
    [(REFUSED, 400), (REFUSED, "400"), (REFUSED, 501), (VIOLATED, 500), (VIOLATED, None), (VIOLATED, "invalid")],
)
def test_an_error_event_in_a_stream_is_what_its_code_says(expected: Outcome, code: Json) -> None:
    reply = streamed("stream", {"error": {"message": "no tools here", "code": code}}, request=REQUEST)

    assert judged(CALLED, reply, mode=Mode.STREAM) == {expected}


def test_a_stream_of_nothing_is_a_fault() -> None:
    assert judged(CALLED, streamed("stream", request=REQUEST), mode=Mode.STREAM) == {VIOLATED}


def test_a_500_on_what_the_model_said_is_the_server_s_fault() -> None:
    reply = refusal("plain", "does not match the expected format", 500, request=REQUEST)

    assert judged(CALLED, reply) == {VIOLATED}


@pytest.mark.parametrize(
    ("expected", "control"),
    [
        pytest.param(REFUSED, CONTROL, id="answered"),
        pytest.param(UNDETERMINED, refusal("control"), id="refused too"),
        pytest.param(UNDETERMINED, exchange("control", b"", status=502), id="failed"),
    ],
)
def test_a_refusal_counts_where_the_control_was(expected: Outcome, control: Exchange) -> None:
    findings = PROBE.judge(transcript(control, refusal("plain", request=REQUEST)), ToolsRequiredParams())

    assert expected in outcomes(findings, CALLED)


@pytest.mark.parametrize(
    ("expected", "finish"),
    [(HELD, "tool_calls"), (HELD, "stop"), (VIOLATED, "function_call"), (VIOLATED, None), (VIOLATED, "eos")],
)
def test_a_call_finishes_with(expected: Outcome, finish: str | None) -> None:
    assert judged(FINISH, forced(None, call(), finish=finish)) == {expected}


def test_empty_everywhere_tells_nothing() -> None:
    empty = exchange("control", answer(""))
    findings = list(PROBE.judge(transcript(empty, forced("", finish="stop")), ToolsRequiredParams()))

    assert outcomes(findings, CALLED) == {UNDETERMINED}
    assert "nothing can be seen" in whys(findings, CALLED)


def test_every_arm_that_was_not_sent_is_undetermined() -> None:
    findings = list(PROBE.judge(transcript(), ToolsRequiredParams()))

    assert [(each.mode, each.outcome) for each in findings if isinstance(each, Finding)] == [
        (Mode.NON_STREAM, UNDETERMINED),
        (Mode.STREAM, UNDETERMINED),
        (Mode.NON_STREAM, UNDETERMINED),
        (Mode.STREAM, UNDETERMINED),
    ]


def test_a_million_braces_are_read_in_no_time() -> None:
    reply = forced('{"a":' * 100_000 + NAME, finish="length")

    assert judged(CALLED, reply) == {UNDETERMINED}
