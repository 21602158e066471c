"""What the judge of ``json_schema`` makes of replies that no mutant gives."""

from __future__ import annotations

import pytest

from servecheck.model import Ending, Exchange, Json, Outcome
from servecheck.probes._schemas import NONCE_SCHEMA, with_nonce
from servecheck.probes.json_schema import PROBE, JsonSchemaParams
from tests.replies import answer, outcomes, refusal, transcript
from tests.replies import reply as exchange
from tests.replies import why as whys

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED

CHECK = "schema-shapes-the-answer"
WORD = "bcdfghjklm"
PARAMS = JsonSchemaParams(answer_schema=NONCE_SCHEMA)
REQUEST: Json = {
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": with_nonce(PARAMS.answer_schema, WORD)},
    }
}
PROSE = exchange("control", answer("The sea is wide and blue."))


def shaped(text: str | None, *, finish: str = "stop", reasoning: str = "", step: str = "greedy") -> Exchange:
    return exchange(step, answer(text, finish=finish, reasoning=reasoning), request=REQUEST)


def judged(*exchanges: Exchange, params: JsonSchemaParams = PARAMS) -> set[Outcome]:
    return outcomes(PROBE.judge(transcript(*exchanges), params), CHECK)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        pytest.param(HELD, '{"code": "bcdfghjklm"}', id="the schema's own"),
        pytest.param(HELD, '\n\n {\n "code" : "bcdfghjklm"\n}\n', id="with white space around and inside"),
        pytest.param(HELD, '{"code": "\\u0062cdfghjklm"}', id="with an escaped letter"),
        pytest.param(VIOLATED, '```json\n{"code": "bcdfghjklm"}\n```', id="in a Markdown fence"),
        pytest.param(VIOLATED, '```\n{"answer": 1}\n```', id="of another shape in a fence"),
        pytest.param(VIOLATED, 'Sure! {"code": "bcdfghjklm"}', id="behind a sentence"),
        pytest.param(VIOLATED, '{"name": "sea", "size": 3}', id="JSON of another schema"),
        pytest.param(VIOLATED, '{"code": "sea"}', id="the key with a value of its own"),
        pytest.param(VIOLATED, '{"code": "bcdfghjklm", "more": 1}', id="with a key that is forbidden"),
        pytest.param(VIOLATED, '["bcdfghjklm"]', id="an array"),
        pytest.param(VIOLATED, '{"code": NaN}', id="NaN, which is not JSON"),
        pytest.param(VIOLATED, "bcdfghjklm", id="the bare word"),
        pytest.param(NO_EFFECT, "Waves come and go.", id="prose"),
        pytest.param(NO_EFFECT, "42", id="a number, which is JSON and no object"),
    ],
)
def test_a_finished_answer_is(expected: Outcome, text: str) -> None:
    assert judged(PROSE, shaped(text)) == {expected}


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        pytest.param(HELD, '{"code": "bcdfghjklm"}', id="after the last brace"),
        pytest.param(UNDETERMINED, "", id="before anything was shown"),
        pytest.param(UNDETERMINED, " \n\n\n ", id="in white space"),
        pytest.param(UNDETERMINED, "{", id="behind the brace"),
        pytest.param(UNDETERMINED, '{\n  "co', id="in the key"),
        pytest.param(UNDETERMINED, '{"code"', id="before the colon"),
        pytest.param(VIOLATED, '{"an', id="in a key that is not the schema's"),
        pytest.param(UNDETERMINED, '{"code": \n\n\n', id="before the word, in white space"),
        pytest.param(UNDETERMINED, '{"code": "bcdf', id="in the word"),
        pytest.param(UNDETERMINED, '{"code": "bcdfghjklm"\n\n\n', id="after the word"),
        pytest.param(UNDETERMINED, '{"code": "\\u0062cd\\u00', id="in an escape"),
        pytest.param(VIOLATED, '{"code": "the wide and b', id="in a word that is not the schema's"),
        pytest.param(VIOLATED, '{"answer": "the wide', id="in an object of another schema"),
        pytest.param(VIOLATED, '```json\n{"code": ', id="in a fence"),
        pytest.param(NO_EFFECT, "Waves come and", id="in prose"),
    ],
)
def test_an_answer_that_was_cut_is_only_a_fault_where_it_could_no_longer_fit(expected: Outcome, text: str) -> None:
    assert judged(PROSE, shaped(text, finish="length")) == {expected}


def test_the_second_look_at_an_answer_that_was_cut_counts() -> None:
    cut, whole = shaped('{"code": ', finish="length"), shaped(f'{{"code": "{WORD}"}}', step="greedy-again")

    assert judged(PROSE, cut, whole) == {HELD}


def test_room_that_is_refused_says_nothing_of_the_schema() -> None:
    thought = shaped(None, finish="length", reasoning="Let me think.")

    assert judged(PROSE, thought, refusal("greedy-again", message="context too short")) == {UNDETERMINED}


@pytest.mark.parametrize(
    ("expected", "control"),
    [
        pytest.param(REFUSED, PROSE, id="answered"),
        pytest.param(UNDETERMINED, refusal("control", status=404), id="refused too"),
        pytest.param(UNDETERMINED, exchange("control", b"oops", status=500), id="failed"),
    ],
)
def test_a_refusal_counts_where_the_control_was(expected: Outcome, control: Exchange) -> None:
    assert judged(control, refusal("greedy", request=REQUEST)) == {expected}


@pytest.mark.parametrize("status", [401, 404, 422, 501])
def test_every_clear_no_is_a_refusal(status: int) -> None:
    assert judged(PROSE, refusal("greedy", status=status, request=REQUEST)) == {REFUSED}


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(exchange("greedy", {"error": {"message": "grammar"}}, status=500, request=REQUEST), id="500"),
        pytest.param(exchange("greedy", b"<html>502</html>", status=502, request=REQUEST), id="a gateway's page"),
        pytest.param(exchange("greedy", b"", request=REQUEST), id="200 and no byte"),
        pytest.param(exchange("greedy", {"choices": None}, request=REQUEST), id="no choices"),
        pytest.param(exchange("greedy", {"choic": 1}, ending=Ending.TRUNCATED, request=REQUEST), id="a cut"),
        pytest.param(
            exchange("greedy", {"error": {"message": "x", "code": 500}}, request=REQUEST), id="200 with error"
        ),
    ],
)
def test_a_reply_that_is_none_is_a_fault(reply: Exchange) -> None:
    assert judged(PROSE, reply) == {VIOLATED}


def test_200_with_an_error_body_of_a_client_code_is_a_refusal() -> None:
    reply = exchange("greedy", {"error": {"message": "no grammar backend", "code": 400}}, request=REQUEST)

    assert judged(PROSE, reply) == {REFUSED}


def test_json_under_reasoning_is_a_fault() -> None:
    assert judged(PROSE, shaped(None, reasoning=f'{{"code": "{WORD}"}}')) == {VIOLATED}


def test_a_thought_that_took_all_the_room_tells_nothing() -> None:
    assert judged(PROSE, shaped(None, finish="length", reasoning="Let me think.")) == {UNDETERMINED}


def test_a_parser_that_files_everything_under_reasoning_hides_a_schema_that_was_not_applied() -> None:
    control = exchange("control", answer("", reasoning="The sea is wide."))

    assert judged(control, shaped("", reasoning="Waves come and go.")) == {NO_EFFECT}


def test_an_empty_answer_is_a_fault_beside_a_control_with_text() -> None:
    assert judged(PROSE, shaped("")) == {VIOLATED}
    assert judged(PROSE, exchange("greedy", {"choices": []}, request=REQUEST)) == {VIOLATED}


def test_empty_everywhere_tells_nothing() -> None:
    assert judged(exchange("control", answer("")), shaped("")) == {UNDETERMINED}


def test_nothing_is_claimed_without_a_control() -> None:
    assert judged(shaped("Waves come and go.")) == {UNDETERMINED}


def test_the_schema_s_word_needs_no_control_to_be_seen() -> None:
    assert judged(shaped(f'{{"code": "{WORD}"}}')) == {HELD}
    assert judged(shaped(f'Here: {{"code": "{WORD}"}}')) == {VIOLATED}


def test_a_control_that_fits_the_schema_makes_it_invisible() -> None:
    control = exchange("control", answer(f'{{"code": "{WORD}"}}'))

    assert judged(control, shaped(f'{{"code": "{WORD}"}}')) == {UNDETERMINED}


def test_a_schema_that_is_ignored_is_not_broken_because_its_own_words_are_ordinary_ones() -> None:
    plain: dict[str, object] = {"type": "string", "enum": ["positive", "negative"]}
    request: Json = {"response_format": {"json_schema": {"schema": with_nonce(plain, WORD)}}}
    reply = exchange("greedy", answer("The mood is positive."), request=request)

    assert judged(PROSE, reply, params=JsonSchemaParams(answer_schema=plain)) == {NO_EFFECT}


def test_every_arm_that_was_not_sent_is_undetermined() -> None:
    findings = list(PROBE.judge(transcript(), PARAMS))

    assert {outcome for check in PROBE.checks for outcome in outcomes(findings, check.id)} == {UNDETERMINED}
    assert "not sent" in whys(findings, CHECK)


def test_a_sampled_answer_is_judged_against_the_sampled_control() -> None:
    fits = exchange("control-sampled", answer(f'{{"code": "{WORD}"}}'))
    findings = list(PROBE.judge(transcript(PROSE, fits, shaped("prose"), shaped("prose", step="sampled")), PARAMS))

    assert outcomes(findings, CHECK) == {NO_EFFECT}
    assert outcomes(findings, "schema-shapes-a-sampled-answer") == {UNDETERMINED}


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ({HELD}, '{"result": "bcdfghjklm", "code": "bcdfghjklm"}'),
        ({VIOLATED}, '{"code": "bcdfghjklm", "result": "bcdfghjklm"}'),
        (set(), '{"code": "bcdfghjklm"}'),
        (set(), "Waves come and go."),
    ],
)
def test_keys_have_an_order_where_the_answer_is_an_instance(expected: set[Outcome], text: str) -> None:
    schema = with_nonce(JsonSchemaParams().answer_schema, WORD)
    request: Json = {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}
    seen = PROBE.judge(transcript(PROSE, exchange("greedy", answer(text), request=request)), JsonSchemaParams())

    assert outcomes(seen, "keys-come-in-the-order-of-the-schema") == expected
