"""What the judge of ``tools_round_trip`` makes of replies that no mutant gives."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Json, Outcome
from servecheck.probes.tools_round_trip import PROBE, ToolsRoundTripParams
from tests.made import exchange, failure, outcomes, refusal, transcript, whole

HELD, VIOLATED, REFUSED, UNDETERMINED = Outcome.HELD, Outcome.VIOLATED, Outcome.REFUSED, Outcome.UNDETERMINED
ACCEPTED, OTHERS = "tool-result-is-accepted", "call-without-text-is-accepted-in-any-form"
COUNTED, READ, UNKNOWN = (
    "tool-result-is-counted",
    "tool-result-reaches-the-model",
    "result-for-an-unknown-call-does-no-harm",
)
CONTROL = exchange("control", whole("I do not know."), request={})


def said(step: str, text: str = "The code is x.", *, prompt: int | None = 40, chance: float | None = -0.5) -> Exchange:
    logprobs: Json = {"content": [{"token": "x", "logprob": chance}]} if chance is not None else None
    usage = {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": 45}
    return exchange(step, whole(text, usage=usage, logprobs=logprobs), request={})


def called(step: str, arguments: str) -> Exchange:
    call: Json = {"id": "c", "type": "function", "function": {"name": "fn", "arguments": arguments}}
    return exchange(step, whole(None, "tool_calls", tool_calls=[call]), request={})


ONE = said("pair-one")


def judged(check: str, *exchanges: Exchange, control: Exchange = CONTROL) -> set[Outcome]:
    return outcomes(PROBE.judge(transcript(control, *exchanges), ToolsRoundTripParams()), check)


@pytest.mark.parametrize(
    ("expected", "replies"),
    [
        pytest.param(HELD, [ONE], id="answered"),
        pytest.param(HELD, [refusal("pair-one"), said("pair-one-plain")], id="answered without logprobs"),
        pytest.param(REFUSED, [refusal("pair-one"), refusal("pair-one-plain")], id="refused"),
        pytest.param(VIOLATED, [failure("pair-one"), failure("pair-one-plain")], id="failed"),
    ],
)
def test_a_round_trip_is(expected: Outcome, replies: list[Exchange]) -> None:
    assert judged(ACCEPTED, *replies) == {expected}


def test_a_refusal_counts_where_the_question_alone_was_answered() -> None:
    assert judged(ACCEPTED, refusal("pair-one"), control=refusal("control")) == {UNDETERMINED}


@pytest.mark.parametrize(
    ("expected", "other"),
    [
        pytest.param(HELD, said("pair-other", "The code is y."), id="another text"),
        pytest.param(HELD, said("pair-other", chance=-0.4), id="another chance"),
        pytest.param(VIOLATED, said("pair-other"), id="the same to the last digit"),
        pytest.param(UNDETERMINED, said("pair-other", chance=None), id="the same text, and no logprobs"),
    ],
)
def test_another_word_in_the_result_gives(expected: Outcome, other: Exchange) -> None:
    assert judged(READ, ONE, other) == {expected}


def test_a_call_in_place_of_a_text_is_compared_by_its_arguments() -> None:
    assert judged(READ, called("pair-one", '{"code": "x"}'), called("pair-other", '{"code": "y"}')) == {HELD}


@pytest.mark.parametrize(
    ("expected", "prompt"), [(HELD, 64), (HELD, 52), (VIOLATED, 51), (VIOLATED, 40), (UNDETERMINED, None)]
)
def test_a_longer_result_is_counted(expected: Outcome, prompt: int | None) -> None:
    assert judged(COUNTED, ONE, said("longer", prompt=prompt)) == {expected}


@pytest.mark.parametrize("form", ["empty", "absent"])
@pytest.mark.parametrize(
    ("expected", "first", "reply"),
    [
        pytest.param(HELD, ONE, said, id="answered"),
        pytest.param(REFUSED, ONE, refusal, id="refused"),
        pytest.param(VIOLATED, ONE, failure, id="failed"),
        pytest.param(UNDETERMINED, refusal("pair-one"), refusal, id="refused as every form is"),
    ],
)
def test_another_form_of_no_text_is(expected: Outcome, first: Exchange, reply: object, form: str) -> None:
    assert callable(reply)
    assert judged(OTHERS, first, reply(form)) == {expected}


@pytest.mark.parametrize(
    ("expected", "reply"),
    [(HELD, said("unknown")), (HELD, refusal("unknown")), (VIOLATED, failure("unknown"))],
    ids=["answered", "refused", "failed"],
)
def test_a_result_for_an_unknown_call_is(expected: Outcome, reply: Exchange) -> None:
    assert judged(UNKNOWN, ONE, reply) == {expected}


@pytest.mark.parametrize(
    ("expected", "replies"),
    [
        pytest.param(HELD, [said("empty-system", prompt=64)], id="counted"),
        pytest.param(HELD, [said("empty-system", prompt=30)], id="in place of the template's own, which is longer"),
        pytest.param(
            HELD, [said("empty-system"), said("longer-system", prompt=64)], id="in place of one that is as long"
        ),
        pytest.param(VIOLATED, [said("empty-system"), said("longer-system")], id="dropped, however long"),
        pytest.param(UNDETERMINED, [refusal("empty-system"), said("empty")], id="no system messages at all"),
        pytest.param(VIOLATED, [failure("empty-system"), said("empty")], id="failed"),
        pytest.param(UNDETERMINED, [said("empty-system", prompt=None)], id="no usage"),
    ],
)
def test_a_system_message_beside_tools_is(expected: Outcome, replies: list[Exchange]) -> None:
    assert judged("system-message-is-counted-beside-tools", ONE, *replies) == {expected}


@pytest.mark.parametrize(
    ("parts", "counted", "replies"),
    [
        pytest.param(HELD, HELD, [said("longer-parts", prompt=64)], id="read"),
        pytest.param(REFUSED, HELD, [refusal("longer-parts"), said("longer", prompt=64)], id="refused"),
        pytest.param(VIOLATED, HELD, [said("longer-parts"), said("longer", prompt=64)], id="dropped"),
        pytest.param(VIOLATED, VIOLATED, [said("longer-parts"), said("longer")], id="dropped in both forms"),
    ],
)
def test_a_result_in_parts_is(parts: Outcome, counted: Outcome, replies: list[Exchange]) -> None:
    assert judged("tool-result-in-text-parts-is-read", ONE, *replies) == {parts}
    assert judged(COUNTED, ONE, *replies) == {counted}


@pytest.mark.parametrize(
    ("every", "form", "replies"),
    [
        pytest.param(HELD, HELD, [said("absent-two", prompt=160)], id="taken back"),
        pytest.param(REFUSED, HELD, [refusal("absent-two"), said("absent")], id="refused"),
        pytest.param(VIOLATED, HELD, [said("absent-two", prompt=70), said("absent")], id="half of them"),
    ],
)
def test_two_calls_and_their_results_are(every: Outcome, form: Outcome, replies: list[Exchange]) -> None:
    assert judged("every-tool-result-is-counted", ONE, *replies) == {every}
    assert form in judged(OTHERS, ONE, *replies)
