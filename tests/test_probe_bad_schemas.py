"""What the judge of ``bad_schemas`` makes of refusals, failures and answers that no mutant gives."""

from __future__ import annotations

import pytest

from servecheck.model import Ending, Exchange, Finding, Outcome
from servecheck.probes._schemas import NONCE_SCHEMA, response_format, with_nonce
from servecheck.probes.bad_schemas import PROBE, BadSchemasParams
from tests import made

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED

IS_REFUSED, ANSWERED, NAMED = "bad-schema-is-refused", "bad-schema-gets-a-reply", "schema-refusal-has-a-message"
CARELESS, GRAMMAR = "careless-schema-is-refused", "bad-grammar-is-refused"
SERVED, WORKS = "server-serves-after-a-bad-schema", "good-schema-works-after-bad-ones"
WORD = "bcdfghjklm"
REQUEST = {"response_format": response_format(with_nonce(NONCE_SCHEMA, WORD))}
CONTROL = made.exchange("control", made.whole("The sea is wide."), request={})


def good(step: str, text: str | None = None) -> Exchange:
    return made.exchange(step, made.whole(f'{{"code": "{WORD}"}}' if text is None else text), request=REQUEST)


def event(step: str, error: object) -> Exchange:
    return made.exchange(step, made.sse([{"error": error}]), content_type="text/event-stream", request={})


def after(step: str) -> Exchange:
    return made.exchange(f"after/{step}", made.whole("Yes."), request={})


def said(*exchanges: Exchange, before: Exchange | None = None) -> dict[str, Outcome]:
    found = made.only(
        PROBE.judge(
            made.transcript(CONTROL, before or good("good"), *exchanges, good("good-after")), BadSchemasParams()
        )
    )
    return {finding.check: finding.outcome for finding in found}


@pytest.mark.parametrize(
    ("expected", "reply"),
    [
        pytest.param((HELD, HELD), made.refusal("plain/empty enum", "no value"), id="400"),
        pytest.param((HELD, HELD), made.refusal("plain/empty enum", "no value", 422), id="422"),
        pytest.param((HELD, HELD), made.refusal("plain/empty enum", "not implemented", 501), id="501"),
        pytest.param((VIOLATED, HELD), made.failure("plain/empty enum"), id="500"),
        pytest.param((VIOLATED, HELD), made.exchange("plain/empty enum", made.whole("{}"), request={}), id="an answer"),
        pytest.param((None, VIOLATED), made.cut("plain/empty enum"), id="a cut"),
        pytest.param((None, VIOLATED), made.exchange("plain/empty enum", b"", request={}), id="nothing"),
        pytest.param((HELD, HELD), event("stream/empty enum", {"message": "no", "code": 400}), id="event of code 400"),
        pytest.param((HELD, HELD), event("stream/empty enum", {"message": "no"}), id="event without a code"),
        pytest.param((VIOLATED, HELD), event("stream/empty enum", {"message": "no", "code": 500}), id="event of 500"),
    ],
)
def test_an_impossible_schema_comes_to(expected: tuple[Outcome | None, Outcome], reply: Exchange) -> None:
    seen = said(reply, after(reply.step))

    assert (seen.get(IS_REFUSED), seen[ANSWERED]) == expected
    assert seen[SERVED] is HELD


@pytest.mark.parametrize("name", ["pattern", "no schema"])
def test_what_a_lenient_reader_lets_through_is_the_lesser_fault_and_a_500_is_not(name: str) -> None:
    accepted = made.exchange(f"plain/{name}", made.whole('{"code": "sea"}'), request={})

    assert said(accepted, after(f"plain/{name}")).get(CARELESS) is VIOLATED
    assert IS_REFUSED not in said(accepted)
    assert said(made.failure(f"plain/{name}")).get(IS_REFUSED) is VIOLATED


def test_a_refusal_without_a_word_is_still_one() -> None:
    seen = said(made.refusal("plain/empty enum", ""))

    assert (seen[IS_REFUSED], seen[NAMED]) == (HELD, VIOLATED)


@pytest.mark.parametrize("reply", [made.refusal("after/plain/empty enum"), made.failure("after/plain/empty enum")])
def test_a_plain_request_that_is_not_served_afterwards_is_harm(reply: Exchange) -> None:
    assert said(made.refusal("plain/empty enum"), reply)[SERVED] is VIOLATED


@pytest.mark.parametrize(
    ("expected", "reply"),
    [
        pytest.param(HELD, made.refusal("grammar/ebnf", "unexpected end"), id="refused"),
        pytest.param(VIOLATED, made.failure("grammar/ebnf"), id="500"),
        pytest.param(VIOLATED, made.exchange("grammar/ebnf", made.whole(""), request={}), id="answered with nothing"),
    ],
)
def test_a_bad_grammar_is(expected: Outcome, reply: Exchange) -> None:
    assert said(made.refusal("plain/empty enum"), reply)[GRAMMAR] is expected


@pytest.mark.parametrize(
    ("expected", "before"),
    [
        pytest.param(REFUSED, made.refusal("good"), id="refused"),
        pytest.param(VIOLATED, made.failure("good"), id="failed"),
        pytest.param(NO_EFFECT, good("good", "Waves come."), id="ignored"),
    ],
)
def test_what_becomes_of_a_good_schema_comes_first(expected: Outcome, before: Exchange) -> None:
    answer = made.exchange("plain/empty enum", made.whole("Waves come."), request={})

    assert said(answer, before=before)[IS_REFUSED] is expected


def test_a_good_schema_that_works_no_more_is_harm() -> None:
    def outcome(last: Exchange) -> Outcome:
        bad = made.refusal("plain/empty enum")
        found = PROBE.judge(made.transcript(CONTROL, good("good"), bad, last), BadSchemasParams())
        return next(one.outcome for one in found if isinstance(one, Finding) and one.check == WORKS)

    assert outcome(good("good-after")) is HELD
    assert outcome(made.refusal("good-after")) is VIOLATED
    assert outcome(made.failure("good-after")) is VIOLATED
    assert outcome(good("good-after", "Waves come.")) is NO_EFFECT


def test_a_hang_is_no_refusal() -> None:
    late = made.exchange("plain/empty enum", status=None, ending=Ending.DEADLINE, request={})

    assert said(late)[ANSWERED] is VIOLATED
