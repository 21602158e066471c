"""What the judge of ``json_object`` makes of answers that no mutant gives."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Mode, Outcome
from servecheck.probes.json_object import PROBE, JsonObjectParams
from tests import made

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED

PARAMS = JsonObjectParams()
PROSE = made.exchange("control", made.whole("The sea is wide."), request={})


def answered(text: str | None, finish: str = "stop", *, step: str = "greedy", **message: object) -> Exchange:
    return made.exchange(step, made.whole(text, finish, **message), request={})


def outcome(*exchanges: Exchange, check: str = "json-mode-gives-an-object") -> Outcome:
    found = made.only(PROBE.judge(made.transcript(*exchanges), PARAMS))
    return next(finding.outcome for finding in found if finding.check == check)


@pytest.mark.parametrize(
    ("expected", "text", "finish"),
    [
        pytest.param(HELD, '{"sea": "wide"}', "stop", id="an object"),
        pytest.param(HELD, "\n {}\n", "stop", id="an empty object in white space"),
        pytest.param(HELD, '{"sea": {"deep": ["and wi', "length", id="the beginning of an object"),
        pytest.param(HELD, '{"sea": "wide"}\n\n\n', "length", id="an object and white space until the limit"),
        pytest.param(HELD, "{\n\n\n\n", "length", id="a brace and white space until the limit"),
        pytest.param(UNDETERMINED, "\n\n\n", "length", id="nothing but white space"),
        pytest.param(UNDETERMINED, "", "length", id="nothing"),
        pytest.param(VIOLATED, '{"sea": {"deep": ["and wi', "stop", id="the beginning of an object, said to be whole"),
        pytest.param(VIOLATED, '{"sea": wide, ', "length", id="the beginning of something else"),
        pytest.param(VIOLATED, '{"sea": "wide"} and deep', "length", id="an object with prose behind it"),
        pytest.param(VIOLATED, '[{"sea": "wide"}]', "stop", id="an array"),
        pytest.param(VIOLATED, '```json\n{"sea": 1}\n```', "stop", id="a fence"),
        pytest.param(VIOLATED, 'Here: {"sea": 1}', "stop", id="an object behind prose"),
        pytest.param(VIOLATED, "", "stop", id="empty"),
        pytest.param(NO_EFFECT, "Waves come and go.", "stop", id="prose"),
        pytest.param(NO_EFFECT, "Waves come and", "length", id="prose that was cut"),
        pytest.param(NO_EFFECT, '"wide"', "stop", id="a string, which is JSON and no object"),
    ],
)
def test_an_answer_in_json_mode_is(expected: Outcome, text: str, finish: str) -> None:
    assert outcome(PROSE, answered(text, finish)) is expected


def test_a_control_that_opens_as_json_makes_the_mode_invisible() -> None:
    control = made.exchange("control", made.whole('```json\n{"sea": 1}\n```'), request={})

    assert outcome(control, answered('{"sea": 1}')) is UNDETERMINED


def test_the_prompt_that_gives_the_object_away_needs_an_end_and_no_control() -> None:
    check = "json-mode-answer-parses"
    whole = answered('{"answer": "yes"}', step="simple")
    cut = answered('{"answer": "y', "length", step="simple")

    assert outcome(made.exchange("control", made.whole("{}"), request={}), whole, check=check) is HELD
    assert outcome(PROSE, cut, check=check) is UNDETERMINED
    assert outcome(PROSE, answered("yes", step="simple"), check=check) is NO_EFFECT


def test_a_thought_that_took_all_the_room_tells_nothing_and_the_second_look_counts() -> None:
    thought = answered(None, "length", reasoning_content="Let me think.")

    assert outcome(PROSE, thought) is UNDETERMINED
    assert outcome(PROSE, thought, answered("{}", step="greedy-again")) is HELD


def test_an_object_under_reasoning_is_a_fault() -> None:
    assert outcome(PROSE, answered(None, reasoning_content='{"sea": 1}')) is VIOLATED


def test_a_refusal_counts_where_the_control_was_answered() -> None:
    assert outcome(PROSE, made.refusal("greedy")) is REFUSED
    assert outcome(made.refusal("control"), made.refusal("greedy")) is UNDETERMINED
    assert outcome(PROSE, made.failure("greedy")) is VIOLATED


def test_a_stream_is_judged_joined_and_by_its_mode() -> None:
    body = made.sse(made.spoken('{"sea"', ': "wi', 'de"}'))
    stream = made.exchange("stream", body, content_type="text/event-stream", request={})
    found = made.only(PROBE.judge(made.transcript(PROSE, stream), PARAMS))

    assert [finding.outcome for finding in found if finding.mode is Mode.STREAM] == [HELD]
