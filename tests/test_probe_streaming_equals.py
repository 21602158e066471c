"""Streamed text against whole text: noise at near-ties, cuts inside characters, and what is left as a fault."""

import math

import pytest

from servecheck.model import Ending, Exchange, Outcome
from servecheck.probe import Judgement
from servecheck.probes.streaming_equals_non_stream import PROBE
from tests import made

V, R, N, U, H = (
    Outcome.VIOLATED,
    Outcome.REFUSED,
    Outcome.NO_EFFECT,
    Outcome.UNDETERMINED,
    Outcome.HELD,
)
TEXT, FINISH = "stream-text-equals-whole-text", "stream-finish-equals-whole-finish"
PARAMS = PROBE.params(prompts=("Say something.",))


def whole(step: str, text: str = "The cat sat.", finish: str | None = "stop", **more: object) -> Exchange:
    return made.exchange(step, made.whole(text, finish, **more), request={})


def streamed(step: str, *pieces: str, finish: str = "stop") -> Exchange:
    return made.stream(step, made.spoken(*(pieces or ("The cat", " sat.")), finish=finish))


def judged(*exchanges: Exchange) -> Judgement:
    return PROBE.judge(made.transcript(*exchanges), PARAMS)


Token = str | bytes


def said(findings: Judgement) -> dict[str, Outcome]:
    """Return what is said beside the model's name, which these replies all give."""
    return {check: outcome for check, outcome in made.said(findings).items() if "names-the-model" not in check}


def entry(
    token: Token, logprob: float = -0.1, *others: tuple[Token, float], with_bytes: bool = True
) -> dict[str, object]:
    """Return one token's logprobs; ``others`` are (token, logprob) beside it."""

    def one(text: Token, value: float) -> dict[str, object]:
        data = text if isinstance(text, bytes) else text.encode()
        shown = data.decode("utf-8", "replace")
        return {"token": shown, "logprob": value, "bytes": list(data) if with_bytes else None}

    return {**one(token, logprob), "top_logprobs": [one(token, logprob), *(one(*other) for other in others)]}


def gaps(*entries: object, text: str = "The cat sat.") -> Exchange:
    return whole("gaps-1", text, logprobs={"content": list(entries)})


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        pytest.param((whole("whole-1"), streamed("stream-1")), {}, id="equal"),
        pytest.param((whole("whole-1"), streamed("stream-1", "The cat sat.")), {}, id="one piece"),
        pytest.param(
            (whole("whole-1", finish="length"), streamed("stream-1")), {FINISH: V}, id="another finish, same text"
        ),
        pytest.param((whole("whole-1"), streamed("stream-1", "The sat.")), {TEXT: V}, id="a word lost"),
        pytest.param(
            (whole("whole-1"), streamed("stream-1", "The cat", " cat", " sat.")), {TEXT: V}, id="a piece doubled"
        ),
        pytest.param((whole("whole-1"), streamed("stream-1", "The cat")), {TEXT: V}, id="the end lost"),
        pytest.param((whole("whole-1"), streamed("stream-1", "The cat sat. ")), {TEXT: V}, id="a space too many"),
        pytest.param((whole("whole-1", ""), made.stream("stream-1", made.spoken())), {TEXT: U}, id="nothing said"),
        pytest.param((whole("whole-1"), made.refusal("stream-1")), {TEXT: R}, id="stream refused"),
        pytest.param((made.refusal("whole-1"), made.refusal("stream-1")), {TEXT: U}, id="both refused"),
        pytest.param((made.refusal("whole-1"), streamed("stream-1")), {TEXT: U}, id="whole refused"),
        pytest.param((whole("whole-1"), made.failure("stream-1")), {TEXT: V}, id="stream fails"),
        pytest.param((whole("whole-1"), whole("stream-1")), {TEXT: N}, id="no stream came"),
        pytest.param(
            (whole("whole-1"), made.stream("stream-1", [made.ROLE, {"error": {"code": 400, "message": "no"}}])),
            {TEXT: R},
            id="refused by an event",
        ),
        pytest.param(
            (whole("whole-1"), made.stream("stream-1", [made.ROLE, {"error": {"message": "no"}}])),
            {TEXT: V},
            id="failed by an event",
        ),
        pytest.param(
            (
                whole("whole-1"),
                made.stream("stream-1", made.spoken("The cat sat."), ending=Ending.TRUNCATED, detail="cut"),
            ),
            {TEXT: V},
            id="cut after all its text",
        ),
    ],
)
def test_what_is_said_of_a_pair(pair, expected):
    assert made.not_held(judged(*pair)) == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        pytest.param(("A 🦊\ufffd", "length"), ("A 🦊", "length"), {}, id="shown whole"),
        pytest.param(("A 🦊", "length"), ("A 🦊\ufffd\ufffd", "length"), {}, id="shown streamed"),
        pytest.param(("A 🦊\ufffd", "stop"), ("A 🦊", "stop"), {TEXT: V}, id="no limit cut this one"),
        pytest.param(("A 🦊é.", "length"), ("A 🦊\ufffd.", "length"), {TEXT: V}, id="inside the text"),
    ],
)
def test_only_a_cut_by_the_limit_may_end_inside_a_character(left, right, expected):
    assert made.not_held(judged(whole("whole-1", *left), streamed("stream-1", right[0], finish=right[1]))) == expected


def test_a_character_split_between_reads_is_equal():
    body = made.sse([made.ROLE, b'data: {"choices":[{"delta":{"content":"\xf0\x9f\xa6\x8a"}}]}\n\n'])
    pieces = [(0.01 * place, bytes([value])) for place, value in enumerate(body)]
    findings = judged(whole("whole-1", "🦊", None), made.stream("stream-1", b"", pieces=pieces))
    assert said(findings) == {TEXT: H, FINISH: H}


def test_both_names_of_the_reasoning_are_one_field():
    thought = made.exchange("whole-1", made.whole("Yes.", reasoning_content="hm"), request={})
    events = [made.ROLE, made.event({"reasoning": "hm"}), made.event({"content": "Yes."}), made.event(finish="stop")]
    assert made.not_held(judged(thought, made.stream("stream-1", events))) == {}
    leaked = [made.ROLE, made.event({"content": "<think>hm</think>Yes."}), made.event(finish="stop")]
    assert made.not_held(judged(thought, made.stream("stream-1", leaked))) == {TEXT: V}


CAT_OR_CAR = (entry("The"), entry(" cat", -0.7, (" car", -0.8)), entry(" sat"), entry("."))
SURE = (entry("The"), entry(" cat", -0.1, (" car", -3.0)), entry(" sat"), entry("."))
CAR = "The car sat."


@pytest.mark.parametrize(
    ("tokens", "text", "again", "expected"),
    [
        pytest.param(CAT_OR_CAR, CAR, (CAR, None), H, id="near-tie, and both went on with one of the two"),
        pytest.param(CAT_OR_CAR, CAR, ("The cat sat.", None), H, id="near-tie that flips"),
        pytest.param(CAT_OR_CAR, "The sat.", ("The sat.", None), V, id="near-tie that does not explain a lost word"),
        pytest.param(CAT_OR_CAR, "The sat.", ("The cat sat.", None), U, id="neither explained nor repeated"),
        pytest.param(SURE, CAR, (CAR, None), V, id="no near-tie"),
        pytest.param(SURE, "The sat.", ("The cat sat.", None), V, id="one stream of two lost a word"),
        pytest.param((), CAR, (CAR, None), V, id="no logprobs, and each mode repeats itself"),
        pytest.param((), CAR, ("The cat sat.", None), U, id="no logprobs, streams differ"),
        pytest.param((), CAR, (CAR, "The dog sat."), U, id="no logprobs, whole replies differ"),
    ],
)
def test_a_difference_is_noise_only_at_a_near_tie_that_explains_it(tokens, text, again, expected):
    stream_again, whole_again = again
    findings = judged(
        whole("whole-1"),
        streamed("stream-1", text),
        gaps(*tokens),
        streamed("stream-again-1", stream_again),
        whole("whole-again-1", whole_again or "The cat sat."),
    )
    assert said(findings) == {TEXT: expected}


@pytest.mark.parametrize(("gap", "expected"), [(0.0, H), (0.125, H), (0.25, H), (0.26, V), (1.0, V), (math.inf, V)])
def test_a_near_tie_is_a_quarter_of_a_nat(gap, expected):
    other = [] if gap == math.inf else [(" car", -0.5 - gap)]
    tokens = (entry("The"), entry(" cat", -0.5, *other, (" dog", -9.0)), entry(" sat"), entry("."))
    findings = judged(whole("whole-1"), streamed("stream-1", CAR), gaps(*tokens), streamed("stream-again-1", CAR))
    assert said(findings) == {TEXT: expected}


FOX = "🦊".encode()
AFTER_FOX = (
    *(entry(bytes([value])) for value in FOX),
    entry(" cat", -0.7, (" car", -0.7)),
    entry("."),
)


@pytest.mark.parametrize(
    ("tokens", "left", "right", "expected"),
    [
        pytest.param(AFTER_FOX, "🦊 cat.", "🦊 car.", H, id="behind a character of four tokens"),
        pytest.param(
            (entry("<think>\n"), entry("hm"), *CAT_OR_CAR), "The cat sat.", CAR, H, id="behind tokens that are not text"
        ),
        pytest.param(
            (entry(" The", -0.7, (" A", -0.7)), entry(" cat"), entry(" sat"), entry(".")),
            "The cat sat.",
            "A cat sat.",
            H,
            id="at the first word, whose space is dropped",
        ),
        pytest.param(
            (entry("The"), entry(" cat", -0.7, ("<|im_end|>", -0.7)), entry(" sat.")),
            "The cat sat.",
            "The",
            H,
            id="between a word and the end",
        ),
        pytest.param(
            (entry("no"), entry(" no", -3.0), entry(" no", -0.7, (" yes", -0.7)), entry(".")),
            "no no no.",
            "no no yes.",
            H,
            id="in a text that repeats itself",
        ),
        pytest.param(
            (entry("Another"), entry(" text", -0.7, (" one", -0.7))), "The cat sat.", CAR, V, id="of some other text"
        ),
    ],
)
def test_the_place_of_a_difference_is_found_among_the_tokens(tokens, left, right, expected):
    findings = judged(
        whole("whole-1", left), streamed("stream-1", right), gaps(*tokens, text=left), streamed("stream-again-1", right)
    )
    assert said(findings) == {TEXT: expected}


def test_tokens_without_bytes_are_read_by_their_text():
    tokens = (entry("The"), entry(" cat", -0.7, (" car", -0.7), with_bytes=False), entry(" sat"), entry("."))
    findings = judged(whole("whole-1"), streamed("stream-1", CAR), gaps(*tokens), streamed("stream-again-1", CAR))
    assert said(findings) == {TEXT: H}


def test_a_near_tie_right_behind_the_thoughts_is_not_looked_for_among_their_tags():
    tokens = (entry("<think>", -0.01), entry("hm", -0.5, ("ha", -0.5)), entry("</think>", -0.01), *CAT_OR_CAR)
    thought = made.exchange("whole-1", made.whole("Yes.", reasoning="hm"), request={})
    events = [made.ROLE, made.event({"reasoning": "hm"}), made.event({"content": "No."}), made.event(finish="stop")]
    again = [made.ROLE, made.event({"reasoning": "hm"}), made.event({"content": "Yes."}), made.event(finish="stop")]
    findings = judged(thought, made.stream("stream-1", events), gaps(*tokens), made.stream("stream-again-1", again))
    assert said(findings) == {TEXT: U}


def test_every_prompt_is_judged_and_the_evidence_is_its_own():
    params = PROBE.params(prompts=("One.", "Two."))
    transcript = made.transcript(
        whole("whole-1"), streamed("stream-1"), whole("whole-2"), streamed("stream-2", "The sat.")
    )
    findings = [(f.outcome, f.evidence) for f in made.only(PROBE.judge(transcript, params)) if f.check == TEXT]
    assert findings == [(H, ("whole-1", "stream-1")), (V, ("whole-2", "stream-2"))]
