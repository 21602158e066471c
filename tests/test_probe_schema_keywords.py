"""Which keywords are enforced, refused or ignored, as the judge of ``schema_keywords`` reads answers made by hand."""

from __future__ import annotations

import json

import jsonschema
import pytest

from servecheck.model import Exchange, Finding, Outcome, Risk
from servecheck.probes._keywords import KEYWORDS, Keyword
from servecheck.probes._schemas import response_format
from servecheck.probes.schema_keywords import PROBE, SchemaKeywordsParams
from tests import made

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED

KEPT, ENFORCED = "documented-keywords-are-not-dropped", "documented-keywords-are-enforced"
OTHERS, TOOLS = "other-keywords-are-not-dropped", "tool-calls-work-after-schemas"
WORD = "bcdfghjklm"
PROSE = made.exchange("control", made.whole("The sea is wide."), request={})
BY_NAME = {keyword.name: keyword for keyword in KEYWORDS}
RIGHT: dict[str, object] = {
    "multipleOf": 1067,
    "enum": WORD,
    "const": WORD,
    "pattern": f"{WORD}-07",
    "format": "2024-02-29",
    "minLength": "x" * 40,
    "pattern with lengths": "x" * 40,
    "maxLength": "x",
    "minimum/maximum": 7393,
    "exclusiveMinimum/exclusiveMaximum": 7391,
    "minItems/maxItems": ["a"] * 7,
    "uniqueItems": ["ha", "ho", "he", "hi"],
    "contains": ["sea", WORD],
    "prefixItems": [WORD, f"{WORD}-b"],
    "anyOf": f"{WORD}-b",
    "oneOf": WORD,
    "allOf": WORD,
    "$ref": WORD,
    "recursion": {"word": WORD, "next": {"word": WORD, "next": None}},
    "nesting": {"in": {"in": WORD}},
    "additionalProperties": {"sea": WORD},
    "required beside properties": {WORD: 1},
    "unicode": f"ключ-日本-é-🦊-{WORD}",
}
WRONG: dict[str, object] = {
    **dict.fromkeys(RIGHT, "sea and more"),
    "multipleOf": 1000,
    "minimum/maximum": 4,
    "exclusiveMinimum/exclusiveMaximum": 7390,
    "minItems/maxItems": ["a"],
    "uniqueItems": ["ha"] * 4,
    "contains": ["sea", "sky"],
    "prefixItems": [WORD, WORD],
    "nesting": {"in": WORD},
    "recursion": {"word": WORD},
    "additionalProperties": {"sea": "sky", "code": WORD},
    "required beside properties": {"sea": 1},
}


def answered(name: str, value: object, finish: str = "stop", *, control: bool = False, again: bool = False) -> Exchange:
    keyword = BY_NAME[name]
    schema = keyword.control() if control else keyword.sent(WORD)
    text = value if isinstance(value, str) and value.startswith("{") else json.dumps({"code": value})
    step = f"{'control' if control else 'keyword'}/{keyword.slug}{'-again' if again else ''}"
    return made.exchange(step, made.whole(text, finish), request={"response_format": response_format(schema)})


def judged(*exchanges: Exchange) -> list[Finding]:
    return made.only(PROBE.judge(made.transcript(PROSE, *exchanges), SchemaKeywordsParams()))


def state(name: str, *exchanges: Exchange) -> object:
    return judged(*exchanges)[0].measured[name]


def test_it_is_only_run_when_allowed() -> None:
    assert PROBE.risk is Risk.DANGEROUS


def test_the_first_schema_is_the_one_that_breaks_tool_calls() -> None:
    assert KEYWORDS[0].name == "multipleOf"


@pytest.mark.parametrize("keyword", KEYWORDS, ids=lambda keyword: keyword.slug)
def test_schemas_are_right_and_say_what_they_are_for(keyword: Keyword) -> None:
    sent, wanted, control = keyword.sent(WORD), keyword.wanted(WORD), keyword.control()

    assert isinstance(sent, dict)
    assert isinstance(wanted, dict)
    assert isinstance(control, dict)
    for schema in (sent, wanted, control):
        jsonschema.Draft202012Validator.check_schema(schema)
    assert jsonschema.Draft202012Validator(wanted).is_valid({"code": RIGHT[keyword.name]})
    assert not jsonschema.Draft202012Validator(wanted).is_valid({"code": WRONG[keyword.name]})
    assert not keyword.too_long(json.dumps({"code": RIGHT[keyword.name]}))
    assert "$nonce" not in json.dumps([sent, wanted, control])
    assert WORD not in json.dumps(control)


@pytest.mark.parametrize("name", RIGHT)
def test_each_keyword_is_enforced_or_ignored_by_its_answer(name: str) -> None:
    assert state(name, answered(name, RIGHT[name])) == "enforced"
    assert state(name, answered(name, WRONG[name])) == "ignored"
    assert state(name, made.refusal(f"keyword/{BY_NAME[name].slug}")) == "refused"
    assert state(name, made.failure(f"keyword/{BY_NAME[name].slug}")) == "failed"
    assert state(name) == "not told"


def test_a_control_that_fits_too_tells_nothing() -> None:
    control = answered("multipleOf", 1067, control=True)

    assert state("multipleOf", answered("multipleOf", 1067), control) == "not told"
    assert state("multipleOf", answered("multipleOf", 1000), control) == "ignored"


def test_keywords_with_the_same_control_share_it() -> None:
    assert BY_NAME["enum"].control() == BY_NAME["const"].control()
    shared = answered("enum", "sea", control=True)

    assert state("maxLength", answered("maxLength", "sea"), shared) == "not told"


@pytest.mark.parametrize(
    ("expected", "name", "text"),
    [
        pytest.param("not told", "minimum/maximum", '{"code":\n\n\n', id="white space to the end"),
        pytest.param("ignored", "minimum/maximum", '{"code": ' + "1" * 60, id="digits to the end"),
        pytest.param("ignored", "maxLength", '{"code": "The sea is a vast and mysterious realm, where', id="too long"),
        pytest.param("enforced", "recursion", f'{{"code": {{"word": "{WORD}", "next": {{', id="a nest without an end"),
        pytest.param("not told", "recursion", '{"code": {"wo', id="a nest that has hardly begun"),
        pytest.param("ignored", "enum", "{'code", id="what can become nothing"),
    ],
)
def test_an_answer_that_was_cut_is(expected: str, name: str, text: str) -> None:
    assert state(name, answered(name, text, "length")) == expected


def test_an_empty_object_that_keeps_every_promise_tells_nothing() -> None:
    assert state("additionalProperties", answered("additionalProperties", {})) == "not told"


def test_the_second_look_counts() -> None:
    cut = answered("minimum/maximum", '{"code":\n\n\n', "length")

    assert state("minimum/maximum", cut, answered("minimum/maximum", 7393, again=True)) == "enforced"


def test_the_reason_counts_and_names() -> None:
    replies = [answered(name, RIGHT[name]) for name in RIGHT if name not in ("uniqueItems", "contains", "allOf")]
    refused = [made.refusal(f"keyword/{name}") for name in ("uniqueItems", "contains")]
    found = judged(*replies, *refused, answered("allOf", "sea and more"))

    assert {finding.check: finding.outcome for finding in found} == {KEPT: HELD, ENFORCED: HELD, OTHERS: NO_EFFECT}
    assert found[0].why == "23 keywords: 20 enforced, 2 refused (uniqueItems, contains), 1 ignored (allOf)"
    assert found[0].measured["uniqueItems"] == "refused"


@pytest.mark.parametrize(
    ("expected", "first", "others"),
    [
        pytest.param({KEPT: HELD, ENFORCED: HELD, OTHERS: HELD}, 1067, RIGHT, id="all enforced"),
        pytest.param({KEPT: NO_EFFECT, ENFORCED: HELD, OTHERS: HELD}, 1000, RIGHT, id="one ignored"),
        pytest.param({KEPT: NO_EFFECT, OTHERS: NO_EFFECT}, 1000, WRONG, id="all ignored"),
        pytest.param({KEPT: HELD, ENFORCED: REFUSED, OTHERS: HELD}, None, RIGHT, id="one refused"),
    ],
)
def test_the_row_is(expected: dict[str, Outcome], first: int | None, others: dict[str, object]) -> None:
    rest = [answered(name, value) for name, value in others.items() if name != "multipleOf"]
    one = made.refusal("keyword/multipleOf") if first is None else answered("multipleOf", first)

    assert {finding.check: finding.outcome for finding in judged(one, *rest)} == expected


def test_nothing_is_said_without_a_control_or_where_all_is_refused() -> None:
    refused = [made.refusal(f"keyword/{keyword.slug}") for keyword in KEYWORDS]
    sick = made.only(PROBE.judge(made.transcript(made.failure("control")), SchemaKeywordsParams()))

    assert [finding.outcome for finding in judged(*refused)] == [REFUSED]
    assert [finding.outcome for finding in sick] == [UNDETERMINED]


@pytest.mark.parametrize(
    ("expected", "reply"),
    [
        pytest.param(VIOLATED, made.failure("tool-after"), id="a 500"),
        pytest.param(None, made.refusal("tool-after", "no tool parser"), id="a refusal"),
        pytest.param(None, made.exchange("tool-after", made.whole("Hello."), request={}), id="prose"),
        pytest.param(
            HELD,
            made.exchange(
                "tool-after",
                made.whole(None, "tool_calls", tool_calls=[{"id": "a", "function": {"name": "f", "arguments": "{}"}}]),
                request={},
            ),
            id="a call",
        ),
    ],
)
def test_the_tool_call_afterwards_is(expected: Outcome | None, reply: Exchange) -> None:
    found = {finding.check: finding.outcome for finding in judged(answered("enum", WORD), reply)}

    assert found.get(TOOLS) is expected
