"""What the judge of ``own_constraints`` makes of dialects and answers that no mutant gives."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Finding, Mode, Outcome
from servecheck.probes.own_constraints import PROBE, OwnConstraintsParams
from tests import made

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED

WORD = "w7bcdfghjklm"
REGEX, TAG = (OwnConstraintsParams(kind=kind) for kind in ("regex", "structural_tag"))
PROSE = made.exchange("control", made.whole("The sea is wide."), request={})
VLLM, SGLANG = "greedy/structured_outputs.regex", "greedy/regex"
REQUEST = {"structured_outputs": {"regex": f"{WORD}-[0-9]{{3}}"}}


def answered(step: str, text: str | None, finish: str = "stop", **message: object) -> Exchange:
    return made.exchange(step, made.whole(text, finish, **message), request=REQUEST)


def greedy(*exchanges: Exchange, params: OwnConstraintsParams = REGEX, **fingerprint: str) -> Finding:
    return made.only(PROBE.judge(made.transcript(*exchanges, **fingerprint), params))[0]


@pytest.mark.parametrize(
    ("expected", "text", "finish"),
    [
        pytest.param(HELD, f"{WORD}-042", "stop", id="what the expression allows"),
        pytest.param(HELD, f"{WORD}-042\n", "stop", id="with a line break behind it"),
        pytest.param(VIOLATED, f"{WORD}-42", "stop", id="a digit short"),
        pytest.param(VIOLATED, f"Sure: {WORD}-042", "stop", id="behind a sentence"),
        pytest.param(UNDETERMINED, f"{WORD}-0", "length", id="cut in the digits"),
        pytest.param(UNDETERMINED, WORD[:5], "length", id="cut in the word"),
        pytest.param(UNDETERMINED, "", "length", id="cut before anything was shown"),
        pytest.param(NO_EFFECT, "Waves come and", "length", id="prose that was cut"),
        pytest.param(NO_EFFECT, "Waves come.", "stop", id="prose"),
        pytest.param(VIOLATED, "", "stop", id="empty"),
    ],
)
def test_an_answer_under_an_expression_is(expected: Outcome, text: str, finish: str) -> None:
    assert greedy(PROSE, answered(VLLM, text, finish)).outcome is expected


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        pytest.param(HELD, f'<code>{{"value": "{WORD}"}}</code>', id="marked"),
        pytest.param(HELD, f'<code>\n{{ "value":"{WORD}" }}\n</code>', id="with white space"),
        pytest.param(VIOLATED, f'{{"value": "{WORD}"}}', id="without its marks"),
        pytest.param(VIOLATED, f"<code>{WORD}</code>", id="without its JSON"),
        pytest.param(NO_EFFECT, "<code>wide</code>", id="a tag of the model's own"),
    ],
)
def test_an_answer_under_a_tag_is(expected: Outcome, text: str) -> None:
    exchange = answered("greedy/response_format structural_tag", text)

    assert greedy(PROSE, exchange, params=TAG).outcome is expected


def test_one_dialect_that_works_is_enough_and_is_named() -> None:
    seen = greedy(PROSE, answered(VLLM, "Waves."), answered(SGLANG, f"{WORD}-042"))

    assert seen.outcome is HELD
    assert seen.why == f"via regex: “{WORD}-042”; structured_outputs.regex is ignored"
    assert seen.measured == {"dialect": "regex"}


@pytest.mark.parametrize(
    ("expected", "first", "second"),
    [
        pytest.param(REFUSED, made.refusal(VLLM), answered(SGLANG, "Waves."), id="refused and ignored"),
        pytest.param(REFUSED, made.refusal(VLLM), made.refusal(SGLANG), id="refused twice"),
        pytest.param(NO_EFFECT, answered(VLLM, "Waves."), answered(SGLANG, "Waves."), id="ignored twice"),
        pytest.param(VIOLATED, made.failure(VLLM), answered(SGLANG, "Waves."), id="failed and ignored"),
        pytest.param(HELD, made.failure(VLLM), answered(SGLANG, f"{WORD}-000"), id="failed, and works under its name"),
        pytest.param(UNDETERMINED, answered(VLLM, WORD, "length"), answered(SGLANG, "Waves."), id="cut and ignored"),
    ],
)
def test_dialects_together_are(expected: Outcome, first: Exchange, second: Exchange) -> None:
    assert greedy(PROSE, first, second).outcome is expected


def test_a_refusal_tells_nothing_where_the_control_was_refused_too() -> None:
    assert greedy(made.refusal("control"), made.refusal(VLLM)).outcome is UNDETERMINED


def test_an_answer_filed_under_reasoning_is_a_fault() -> None:
    hidden = answered(VLLM, None, reasoning_content=f"{WORD}-042")

    assert greedy(PROSE, hidden).outcome is VIOLATED


def test_a_thought_that_took_all_the_room_tells_nothing_and_the_second_look_counts() -> None:
    thought = answered(VLLM, None, "length", reasoning_content="Let me think.")

    assert greedy(PROSE, thought).outcome is UNDETERMINED
    assert greedy(PROSE, thought, answered(f"{VLLM}/again", f"{WORD}-042")).outcome is HELD


def test_the_dialect_that_works_is_judged_sampled_and_streamed_too() -> None:
    body = made.sse(made.spoken(f"{WORD}-04", "2"))
    streamed = made.exchange("stream/structured_outputs.regex", body, content_type="text/event-stream", request=REQUEST)
    free = answered("sampled/structured_outputs.regex", "Waves.")
    found = made.only(PROBE.judge(made.transcript(PROSE, answered(VLLM, f"{WORD}-042"), streamed, free), REGEX))

    assert [(finding.check, finding.outcome, finding.mode) for finding in found] == [
        ("constraint-shapes-the-answer", HELD, Mode.NON_STREAM),
        ("constraint-shapes-a-sampled-answer", NO_EFFECT, Mode.NON_STREAM),
        ("constraint-shapes-a-streamed-answer", HELD, Mode.STREAM),
    ]
