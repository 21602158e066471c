"""What the judges of ``workload_schema`` and ``workload_tool`` make of replies that no mutant gives."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from servecheck.model import Exchange, Finding, Outcome
from servecheck.probes.workload_schema import PROBE as SCHEMA_PROBE
from servecheck.probes.workload_schema import WorkloadSchemaParams
from servecheck.probes.workload_tool import PROBE as TOOL_PROBE
from servecheck.probes.workload_tool import WorkloadToolParams
from tests import made

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED

LABELS: dict[str, object] = {
    "type": "object",
    "properties": {"labels": {"type": "array", "items": {"enum": ["red", "blue"]}, "uniqueItems": True}},
    "required": ["labels"],
    "additionalProperties": False,
}
PARAMS = WorkloadSchemaParams(item="labels", answer_schema=LABELS)
RIGHT, TWICE = '{"labels": ["red", "blue"]}', '{"labels": ["red", "red"]}'
BEGUN = '{"labels": ["red", '
PROSE = "The sea is wide."


def said(step: str, text: str, finish: str = "stop", **more: object) -> Exchange:
    return made.exchange(step, made.whole(text, finish, **more), request={})


CONTROL = said("control", PROSE)


def judged(*exchanges: Exchange, params: WorkloadSchemaParams = PARAMS) -> Finding:
    (finding,) = made.only(SCHEMA_PROBE.judge(made.transcript(*exchanges), params))
    return finding


@pytest.mark.parametrize(
    ("state", "outcome", "why", "exchanges"),
    [
        ("enforced", HELD, "2 of 2 answers are whole", [CONTROL, said("prose", RIGHT), said("against", RIGHT)]),
        (
            "enforced",
            HELD,
            "1 of 2 answers are whole",
            [CONTROL, said("prose", BEGUN, "length"), said("against", RIGHT)],
        ),
        (
            "enforced",
            HELD,
            "1 of 1",
            [CONTROL, said("prose", "{ \n\n\n", "length"), said("prose-again", RIGHT)],
        ),
        ("not_enforced", VIOLATED, "has non-unique", [CONTROL, said("prose", TWICE), said("against", RIGHT)]),
        ("not_enforced", VIOLATED, "asked for JSON that", [CONTROL, said("prose", RIGHT), said("against", TWICE)]),
        ("not_enforced", VIOLATED, "not JSON", [CONTROL, said("prose", RIGHT), said("against", PROSE)]),
        ("not_enforced", VIOLATED, "as your application", [CONTROL, said("prose", RIGHT), said("own", TWICE)]),
        ("not_enforced", VIOLATED, "not JSON", [CONTROL, said("prose", f"```json\n{RIGHT}\n```")]),
        ("not_enforced", VIOLATED, "the answer is empty", [CONTROL, said("prose", "")]),
        (
            "not_enforced",
            VIOLATED,
            "the answer is in the reasoning",
            [CONTROL, said("prose", "", reasoning_content=RIGHT)],
        ),
        ("no_effect", NO_EFFECT, "no more JSON than without", [CONTROL, said("prose", PROSE)]),
        ("no_effect", NO_EFFECT, "no more JSON than without", [CONTROL, said("prose", PROSE, "length")]),
        ("no_effect", NO_EFFECT, "no more JSON", [said("control", "{}"), said("prose", "{}")]),
        ("refused", REFUSED, "HTTP 400", [CONTROL, made.refusal("prose")]),
        ("not_told", UNDETERMINED, "so was the control", [made.refusal("control"), made.refusal("prose")]),
        ("not_told", UNDETERMINED, "cut by max_tokens", [CONTROL, said("prose", BEGUN, "length")]),
        (
            "not_told",
            UNDETERMINED,
            "went into the reasoning",
            [CONTROL, said("prose", "", "length", reasoning_content="Hm.")],
        ),
        ("not_told", UNDETERMINED, "no control to compare", [made.refusal("control"), said("prose", PROSE)]),
        ("not_told", UNDETERMINED, "fits it too", [said("control", RIGHT), said("prose", RIGHT)]),
        ("not_told", UNDETERMINED, "empty", [said("control", ""), said("prose", "")]),
        ("not_told", UNDETERMINED, "not sent", []),
        ("failed", VIOLATED, "HTTP 500", [CONTROL, made.failure("prose")]),
        ("failed", VIOLATED, "HTTP 500", [CONTROL, said("prose", RIGHT), made.failure("against")]),
        ("enforced", HELD, "1 of 1", [CONTROL, said("prose", RIGHT), made.refusal("own", "context length")]),
    ],
)
def test_a_schema_gets_the_word_that_its_answers_deserve(state, outcome, why, exchanges):
    finding = judged(*exchanges)
    assert (finding.measured["state"], finding.outcome) == (state, outcome)
    assert why in finding.why
    assert finding.why.startswith("labels")
    assert finding.measured["item"] == "labels"


def test_a_control_that_fits_is_no_matter_where_the_opposite_was_asked_for():
    exchanges = [said("control", RIGHT), said("prose", RIGHT), said("against", RIGHT)]
    assert judged(*exchanges).outcome is HELD


def test_what_no_answer_was_asked_to_break_is_said():
    params = WorkloadSchemaParams(item="labels", answer_schema={**LABELS, "maxProperties": 3})
    why = judged(CONTROL, said("prose", RIGHT), said("against", RIGHT), params=params).why
    assert why.endswith(
        "asks for JSON that breaks additionalProperties, uniqueItems; nothing asks for what breaks enum, maxProperties"
    )


def test_the_broken_keyword_is_measured():
    assert judged(CONTROL, said("prose", TWICE)).measured["keyword"] == "uniqueItems"


@pytest.mark.parametrize(
    ("keyword", "words", "exchanges"),
    [
        ("uniqueItems", "Unimplemented keys", [made.refusal("prose", 'Unimplemented keys: ["uniqueItems"]')]),
        (
            "uniqueItems",
            "; without uniqueItems it is answered",
            [made.refusal("prose", "not supported"), said("without/uniqueItems", RIGHT)],
        ),
        (
            "enum",
            "without enum it is answered",
            [
                made.refusal("prose", "not supported"),
                made.refusal("without/uniqueItems", "not supported"),
                said("without/enum", RIGHT),
            ],
        ),
        ("", "not supported", [made.refusal("prose", "not supported"), made.refusal("without/uniqueItems")]),
    ],
)
def test_a_refusal_is_blamed_on_the_keyword_that_is_named_or_without_which_it_is_answered(keyword, words, exchanges):
    finding = judged(CONTROL, *exchanges)
    assert finding.measured["keyword"] == keyword
    assert words in finding.why
    assert finding.evidence == ("prose", "control")


def test_a_schema_nobody_can_be_judged_by_is_no_parameter():
    with pytest.raises(ValidationError, match="leads nowhere"):
        WorkloadSchemaParams(item="x", answer_schema={"$ref": "#/$defs/gone"})


# --------------------------------------------------------------------------- tools


def tool(**function: object) -> dict[str, object]:
    parameters = {
        "type": "object",
        "properties": {"seats": {"type": "integer", "minimum": 2}},
        "required": ["seats"],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": "book", "parameters": parameters, **function}}


def call(step: str, arguments: str, name: str = "book", finish: str = "tool_calls") -> Exchange:
    made_call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return made.exchange(step, made.whole(None, finish, tool_calls=[made_call]), request={})


def tool_said(*exchanges: Exchange, strict: bool = False) -> dict[str, tuple[Outcome, object]]:
    params = WorkloadToolParams(item="book", tool=tool(strict=True) if strict else tool())
    found = made.only(TOOL_PROBE.judge(made.transcript(*exchanges), params))
    assert all(finding.measured["item"] == "book" for finding in found)
    return {finding.check: (finding.outcome, finding.measured["state"]) for finding in found}


CALLED, LOOSE, STRICT = "workload-tool-is-called", "workload-arguments-fit", "workload-strict-arguments-fit"
FOUR, ONE = json.dumps({"seats": 4}), json.dumps({"seats": 1})


@pytest.mark.parametrize(
    ("expected", "strict", "exchanges"),
    [
        ({CALLED: (HELD, "enforced"), LOOSE: (HELD, "enforced")}, False, [CONTROL, call("forced", FOUR)]),
        ({CALLED: (HELD, "enforced"), LOOSE: (VIOLATED, "not_enforced")}, False, [CONTROL, call("forced", ONE)]),
        ({CALLED: (HELD, "enforced"), STRICT: (VIOLATED, "not_enforced")}, True, [CONTROL, call("forced", ONE)]),
        (
            {CALLED: (HELD, "enforced"), STRICT: (VIOLATED, "not_enforced")},
            True,
            [CONTROL, call("forced", FOUR), call("against", ONE)],
        ),
        (
            {CALLED: (HELD, "enforced"), STRICT: (VIOLATED, "failed")},
            True,
            [CONTROL, call("forced", FOUR), made.failure("against")],
        ),
        ({CALLED: (NO_EFFECT, "no_effect")}, False, [CONTROL, said("forced", PROSE)]),
        ({CALLED: (VIOLATED, "not_enforced")}, False, [CONTROL, call("forced", FOUR, "other")]),
        ({CALLED: (UNDETERMINED, "not_told")}, False, [CONTROL, call("forced", '{"seats', finish="length")]),
        (
            {CALLED: (HELD, "enforced"), LOOSE: (HELD, "enforced")},
            False,
            [CONTROL, call("forced", '{"seats', finish="length"), call("forced-again", FOUR)],
        ),
        ({CALLED: (REFUSED, "refused")}, False, [CONTROL, made.refusal("forced")]),
        ({CALLED: (UNDETERMINED, "not_told")}, False, [made.refusal("control"), made.refusal("forced")]),
        ({CALLED: (VIOLATED, "failed")}, False, [CONTROL, made.failure("forced")]),
        ({CALLED: (UNDETERMINED, "not_told")}, False, []),
    ],
)
def test_a_tool_gets_the_words_that_its_calls_deserve(expected, strict, exchanges):
    assert tool_said(*exchanges, strict=strict) == expected


def test_a_refused_tool_is_blamed_on_the_keyword_without_which_it_is_taken():
    params = WorkloadToolParams(item="book", tool=tool())
    replies = [CONTROL, made.refusal("forced", "cannot convert"), call("without/minimum", FOUR)]
    (finding,) = made.only(TOOL_PROBE.judge(made.transcript(*replies), params))
    assert finding.measured["keyword"] == "minimum"


@pytest.mark.parametrize("given", [{}, {"function": {}}, tool(name=""), tool(parameters={"type": "nonsense"})])
def test_what_is_no_tool_is_no_parameter(given):
    with pytest.raises(ValidationError):
        WorkloadToolParams(item="x", tool=given)
