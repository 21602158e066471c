"""What the judge of ``json_truncated`` makes of cuts that no mutant gives."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Outcome
from servecheck.probes._schemas import NONCE_SCHEMA, response_format, with_nonce
from servecheck.probes.json_truncated import PROBE, JsonTruncatedParams
from tests import made

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED

LENGTH, BEGINNING, LIMIT = "cut-json-says-length", "cut-json-is-a-beginning", "limit-holds-under-a-schema"
WORD = "bcdfghjklm" * 4
JSON = f'{{"code": "{WORD}"}}'
REQUEST = {"response_format": response_format(with_nonce(NONCE_SCHEMA, WORD))}
PROSE = made.exchange("control", made.whole("The sea is wide."), request={})


def answered(
    step: str, text: str | None, finish: str = "stop", *, tokens: int | None = 40, **message: object
) -> Exchange:
    usage = {"prompt_tokens": 20, "completion_tokens": tokens, "total_tokens": 60}
    return made.exchange(step, made.whole(text, finish, usage=usage, **message), request=REQUEST)


WHOLE = answered("whole", JSON)


def said(*exchanges: Exchange) -> dict[str, Outcome]:
    found = made.only(PROBE.judge(made.transcript(*exchanges), JsonTruncatedParams()))
    return {finding.check: finding.outcome for finding in found if finding.why != "the request was not sent"}


@pytest.mark.parametrize(
    ("expected", "text", "finish"),
    [
        pytest.param({LIMIT: HELD, LENGTH: HELD, BEGINNING: HELD}, '{"code": "bcdf', "length", id="cut in the word"),
        pytest.param({LIMIT: HELD, LENGTH: HELD, BEGINNING: HELD}, '{\n  "co', "length", id="cut in the key"),
        pytest.param({LIMIT: HELD, LENGTH: HELD, BEGINNING: HELD}, "{", "length", id="cut behind the brace"),
        pytest.param({LIMIT: HELD, LENGTH: VIOLATED, BEGINNING: HELD}, '{"code": "bcdf', "stop", id="and says stop"),
        pytest.param({LIMIT: HELD, LENGTH: HELD, BEGINNING: VIOLATED}, '{"code": "bcdf"}', "length", id="mended"),
        pytest.param({LIMIT: HELD, LENGTH: HELD, BEGINNING: VIOLATED}, '{"code": "sea', "length", id="another word"),
        pytest.param({LIMIT: HELD, LENGTH: HELD, BEGINNING: VIOLATED}, "The sea is", "length", id="prose"),
        pytest.param({LIMIT: HELD, BEGINNING: VIOLATED}, "", "length", id="nothing, and says length"),
        pytest.param({LIMIT: HELD, LENGTH: VIOLATED}, "", "stop", id="nothing, and says stop"),
        pytest.param({LIMIT: VIOLATED}, JSON, "stop", id="not cut at all"),
        pytest.param({LIMIT: VIOLATED}, JSON, "length", id="not cut, and says length"),
    ],
)  # fmt: skip
def test_what_the_limit_left_is(expected: dict[str, Outcome], text: str, finish: str) -> None:
    assert said(PROSE, WHOLE, answered("plain", text, finish)) == expected


def test_a_cut_in_the_thought_tells_nothing() -> None:
    thinking = answered("whole", JSON, reasoning_content="Let me think.")
    cut = answered("plain", None, "length", reasoning_content="Let me")

    assert said(PROSE, thinking, cut) == {LIMIT: HELD, LENGTH: UNDETERMINED}


def test_a_refused_or_failed_cut_is_one() -> None:
    assert said(PROSE, WHOLE, made.refusal("plain", "max_tokens too small")) == {LENGTH: REFUSED}
    assert said(PROSE, WHOLE, made.failure("plain")) == {LENGTH: VIOLATED}


@pytest.mark.parametrize(
    ("expected", "control", "whole"),
    [
        pytest.param(NO_EFFECT, PROSE, answered("whole", "Waves come."), id="ignored"),
        pytest.param(REFUSED, PROSE, made.refusal("whole"), id="refused"),
        pytest.param(UNDETERMINED, made.refusal("control"), made.refusal("whole"), id="refused like everything"),
        pytest.param(UNDETERMINED, PROSE, answered("whole", JSON, tokens=None), id="applied, and not counted"),
    ],
)
def test_without_a_whole_answer_to_cut_the_row_says_why(expected: Outcome, control: Exchange, whole: Exchange) -> None:
    assert said(control, whole) == {LENGTH: expected}
