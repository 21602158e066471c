"""What the judges of the reasoning rows make of replies that no mutant gives, and when the rows make no sense."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, NotApplicable, Outcome
from servecheck.probe import Judgement, Params, Probe
from servecheck.probes import reasoning_split, reasoning_structured, reasoning_toggle
from servecheck.probes._reasoning import marks, tokens_in
from servecheck.probes.reasoning_split import ReasoningSplitParams
from servecheck.probes.reasoning_structured import ReasoningStructuredParams
from servecheck.probes.reasoning_toggle import ReasoningToggleParams
from tests import made
from tests.made import event, exchange, failure, refusal, said, stream, transcript, whole

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED

WHOLE, STREAM = ReasoningSplitParams(mode="whole"), ReasoningSplitParams(mode="stream")


def look(step: str, text: str | None = "17", finish: str = "stop", **message: object) -> Exchange:
    return exchange(step, whole(text, finish, **message), request={})


THOUGHT = look("plain", reasoning_content="12 and 5 make 17.")
SILENT = look("plain", "17")
ROWS: list[tuple[Probe[Params], Params]] = [
    (reasoning_split.PROBE, WHOLE),  # type: ignore[list-item]
    (reasoning_split.PROBE, STREAM),  # type: ignore[list-item]
    (reasoning_toggle.PROBE, ReasoningToggleParams()),  # type: ignore[list-item]
    (reasoning_structured.PROBE, ReasoningStructuredParams()),  # type: ignore[list-item]
]


# --------------------------------------------------------------------------- does it reason at all?


@pytest.mark.parametrize(("probe", "params"), ROWS)
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(look("asked"), id="nor does it when asked"),
        pytest.param(refusal("asked"), id="and asking is refused"),
        pytest.param(failure("asked"), id="and asking fails, which is no row of a model that does not reason"),
    ],
)
def test_a_model_that_shows_no_thinking_makes_the_row_not_applicable(probe, params, asked):
    (only,) = probe.judge(transcript(SILENT, asked), params)

    assert isinstance(only, NotApplicable)
    assert "does not reason" in only.why


@pytest.mark.parametrize(("probe", "params"), ROWS)
@pytest.mark.parametrize(
    ("expected", "plain"),
    [
        (UNDETERMINED, ()),
        (VIOLATED, (failure("plain"), failure("asked"))),
        (REFUSED, (refusal("plain"), refusal("asked"))),
    ],
)
def test_no_answer_is_not_a_model_that_does_not_reason(probe, params, expected, plain):
    assert set(said(probe.judge(transcript(*plain), params)).values()) == {expected}


@pytest.mark.parametrize(
    "text",
    [
        "<think>hm</think>17", "hm</think>17", "<mm:think>hm", "[THINK]hm[/THINK]17", "◁think▷hm", "<thinking>hm",
        "<|channel|>analysis", "<|channel>thought", "<reasoning>hm</reasoning>", "<|begin_of_thought|>",
    ],
)  # fmt: skip
def test_every_family_has_its_marks(text):
    assert marks(text)


@pytest.mark.parametrize("text", ["", "I think so.", "a < b > c", "<b>bold</b>", "[thinking aloud]", "x</thin>"])
def test_ordinary_text_has_none(text):
    assert not tokens_in(text)


@pytest.mark.parametrize("text", ["17<|im_end|>", "<｜end▁of▁sentence｜>", "<|eot_id|>"])
def test_a_special_token_that_is_written_out_is_seen(text):
    assert tokens_in(text)


# --------------------------------------------------------------------------- reasoning.split and .stream

APART, ANSWER, CLEAN = "thinking-is-in-its-own-field", "answer-is-in-the-content", "reasoning-and-answer-hold-no-marks"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_either_name_of_the_field_is_right_and_is_told(name):
    findings = made.only(reasoning_split.PROBE.judge(transcript(look("plain", **{name: "hm"})), WHOLE))

    assert {finding.outcome for finding in findings} == {HELD}
    assert [finding.measured["field"] for finding in findings if finding.check == APART] == [name]


def split(*looks: Exchange) -> dict[str, Outcome]:
    return said(reasoning_split.PROBE.judge(transcript(THOUGHT, *looks), WHOLE))


@pytest.mark.parametrize(
    ("check", "expected", "one"),
    [
        pytest.param(ANSWER, HELD, look("look-1", None, "length", reasoning="hm"), id="cut in the thought"),
        pytest.param(ANSWER, VIOLATED, look("look-1", "", reasoning="17"), id="empty content, ended"),
        pytest.param(ANSWER, VIOLATED, look("look-1", None, reasoning="17"), id="null content, ended"),
        pytest.param(ANSWER, VIOLATED, look("look-1", "\n\n", reasoning="17"), id="white space, ended"),
        pytest.param(APART, HELD, look("look-1", "Good morning!"), id="an answer without a thought"),
        pytest.param(APART, VIOLATED, look("look-1", "hm</think>17"), id="a closing tag"),
        pytest.param(CLEAN, VIOLATED, look("look-1", "17<|im_end|>"), id="an end token in the content"),
        pytest.param(CLEAN, VIOLATED, look("look-1", reasoning="<think>hm"), id="an opening tag in the reasoning"),
        pytest.param(APART, VIOLATED, failure("look-1"), id="a failure"),
    ],
)
def test_one_more_reply_is_judged(check, expected, one):
    assert split(one)[check] is expected


def test_replies_that_were_all_cut_tell_nothing_of_the_answer():
    cut = look("plain", None, "length", reasoning="hm")

    assert said(reasoning_split.PROBE.judge(transcript(cut), WHOLE))[ANSWER] is UNDETERMINED


def streamed(*deltas: dict[str, object], finish: str = "stop") -> Exchange:
    return stream("look-greedy", [made.ROLE, *map(event, deltas), event(finish=finish)])


@pytest.mark.parametrize(
    ("expected", "deltas"),
    [
        pytest.param({}, [{"reasoning": "hm"}, {"content": "17"}], id="the thought, then the answer"),
        pytest.param({}, [{"content": "\n"}, {"reasoning": "hm"}, {"content": "17"}], id="white space first"),
        pytest.param(
            {"thinking-streams-before-the-answer": VIOLATED},
            [{"reasoning": "hm"}, {"content": "17"}, {"reasoning": "so"}],
            id="a thought behind the answer",
        ),
        pytest.param(
            {APART: VIOLATED, CLEAN: VIOLATED},
            [{"content": "<mm:think>"}, {"content": "hm"}, {"content": "</mm:think>"}, {"content": "17"}],
            id="all of it in the content",
        ),
        pytest.param({APART: VIOLATED}, [{"content": "hm"}, {"content": "17"}], id="the thought in the content, bare"),
        pytest.param({ANSWER: VIOLATED}, [{"reasoning": "hm"}, {"reasoning": "17"}], id="the answer in the reasoning"),
    ],
)
def test_a_stream_is_judged_against_the_whole_reply(expected, deltas):
    found = made.not_held(reasoning_split.PROBE.judge(transcript(THOUGHT, streamed(*deltas)), STREAM))

    assert found == expected


# --------------------------------------------------------------------------- reasoning.toggle

OFF, CONTENT = "thinking-can-be-switched-off", "answer-without-thinking-is-in-the-content"


def toggled(template: Exchange, effort: Exchange, plain: Exchange = THOUGHT) -> dict[str, Outcome]:
    return said(reasoning_toggle.PROBE.judge(transcript(plain, template, effort), ReasoningToggleParams()))


STILL = {"reasoning": "12 and 5 make 17."}


@pytest.mark.parametrize(
    ("expected", "template", "effort"),
    [
        pytest.param({OFF: HELD, CONTENT: HELD}, look("template"), look("effort"), id="both work"),
        pytest.param({OFF: HELD, CONTENT: HELD}, look("template"), refusal("effort"), id="one works, one is refused"),
        pytest.param({OFF: HELD, CONTENT: HELD}, look("template", **STILL), look("effort"), id="the other works"),
        pytest.param({OFF: NO_EFFECT}, look("template", **STILL), look("effort", **STILL), id="none works"),
        pytest.param({OFF: NO_EFFECT}, look("template", **STILL), refusal("effort"), id="one ignored, one refused"),
        pytest.param({OFF: REFUSED}, refusal("template"), refusal("effort"), id="both refused"),
        pytest.param(
            {OFF: VIOLATED, CONTENT: HELD}, failure("template"), look("effort"), id="a failure, beside one that works"
        ),
        pytest.param(
            {OFF: UNDETERMINED, CONTENT: VIOLATED},
            look("template", "", reasoning="17"),
            look("effort", "", reasoning="17"),
            id="the answer is filed under reasoning",
        ),
        pytest.param(
            {OFF: HELD, CONTENT: VIOLATED},
            look("template", "<think>\n\n</think>\n\n17"),
            look("effort"),
            id="empty marks are no thought, but they are in the content",
        ),
        pytest.param(
            {OFF: NO_EFFECT},
            look("template", "<think>hm</think>17"),
            look("effort", "hm</think>17"),
            id="thoughts between marks",
        ),
    ],
)
def test_a_switch(expected, template, effort):
    assert toggled(template, effort) == expected


def test_a_model_that_thinks_only_when_asked_is_off_by_itself():
    asked = look("asked", reasoning="hm")
    found = reasoning_toggle.PROBE.judge(
        transcript(SILENT, asked, look("template"), look("effort")), ReasoningToggleParams()
    )

    assert said(found) == {OFF: HELD, CONTENT: HELD}


# --------------------------------------------------------------------------- reasoning.structured

SCHEMA, FREE = "schema-shapes-the-answer-after-thinking", "schema-leaves-the-thinking"
REQUEST = {"response_format": {"json_schema": {"schema": {"properties": {"code": {"enum": ["bcdf"]}}}}}}
RIGHT = '{"code": "bcdf"}'


def shaped(text: str | None, finish: str = "stop", **message: object) -> Judgement:
    schema = exchange("schema", whole(text, finish, **message), request=REQUEST)
    mode = look("object", "{}", reasoning="hm")
    return reasoning_structured.PROBE.judge(transcript(THOUGHT, schema, mode), ReasoningStructuredParams())


@pytest.mark.parametrize(
    ("expected", "text", "finish"),
    [
        (HELD, RIGHT, "stop"),
        (HELD, f"\n\n{RIGHT}\n", "stop"),
        (NO_EFFECT, "It is 17.", "stop"),
        (VIOLATED, f"</think>{RIGHT}", "stop"),
        (VIOLATED, '{"code": "other"}', "stop"),
        (VIOLATED, f"```json\n{RIGHT}\n```", "stop"),
        (VIOLATED, None, "stop"),
        (UNDETERMINED, None, "length"),
        (UNDETERMINED, '{"code": "bc', "length"),
    ],
)
def test_the_content_is_what_the_schema_says(expected, text, finish):
    assert said(shaped(text, finish, reasoning="hm"))[SCHEMA] is expected


def test_json_under_reasoning_is_a_fault_even_where_it_was_cut():
    assert said(shaped("", "length", reasoning=RIGHT))[SCHEMA] is VIOLATED


def test_a_thought_that_is_gone_takes_the_green_away_and_no_more():
    found = said(shaped(RIGHT))

    assert (found[SCHEMA], found[FREE]) == (HELD, VIOLATED)
    assert said(shaped(RIGHT, reasoning="hm"))[FREE] is HELD
    assert next(check for check in reasoning_structured.PROBE.checks if check.id == FREE).level == "should"
