"""What the judges of penalties, biases, lists and lengths make of answers that no mutant gives."""

from __future__ import annotations

from typing import Any

import pytest

from servecheck.model import Exchange, Outcome
from servecheck.probes import sampling_length, sampling_logit_bias, sampling_penalty, sampling_token_lists
from servecheck.probes._token_ids import Piece, listed_ids, told
from servecheck.read import reply
from servecheck.read.logprobs import sure_text, tokens
from tests.made import exchange, not_held, only, refusal, said, transcript, whole

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED


def spelled(*texts: str, rivals: dict[int, tuple[str, float]] | None = None, ids: bool = False) -> dict[str, Any]:
    """Return logprobs of these tokens; ``rivals`` are the second best by place, with how far behind they are."""
    content = []
    for place, text in enumerate(texts):
        other, behind = (rivals or {}).get(place, ("zzz", 5.0))
        top = [{"token": text, "logprob": -0.5}, {"token": other, "logprob": -0.5 - behind}]
        entry: dict[str, Any] = {"token": text, "logprob": -0.5, "top_logprobs": top}
        content.append({**entry, **({"id": 1000 + sum(map(ord, text))} if ids else {})})
    return {"content": content}


def chat(step: str, *pieces: str, finish: str = "length", tokens_said: int | None = None, **more: Any) -> Exchange:
    """Return a chat answer made of these tokens."""
    hidden = {"<|im_end|>"}
    usage = {"prompt_tokens": 9, "completion_tokens": len(pieces) if tokens_said is None else tokens_said}
    text = "".join(piece for piece in pieces if piece not in hidden)
    return exchange(step, whole(text, finish, logprobs=spelled(*pieces, **more), usage=usage), request={})


def mute(step: str, text: str, finish: str = "length", **more: Any) -> Exchange:
    """Return a chat answer without logprobs."""
    return exchange(step, whole(text, finish, **more), request={})


# --------------------------------------------------------------------------- penalties

LOOP = " ".join(["blue"] * 24)
PROSE = "the sea and the ship and the wind and the sail of the day and the night"
OTHER = "the sea and a ship of old wood under grey sail went far that cold day until night"


def penalty(parameter: str) -> sampling_penalty.SamplingPenaltyParams:
    return sampling_penalty.SamplingPenaltyParams.model_validate({"parameter": parameter, "prompts": ("a", "b")})


def penalised(parameter: str, *rows: tuple[str, str, str, str], frequency: str = "") -> dict[str, Outcome]:
    """Judge texts of (control, control, control, penalty) for each prompt, without logprobs."""
    made = []
    for place, row in enumerate(rows):
        made += [mute(f"control-{place}-{number}", text) for number, text in enumerate(row[:3])]
        made.append(mute(f"penalty-{place}", row[3]))
    made += [mute("frequency", frequency)] if frequency else []
    found = sampling_penalty.PROBE.judge(transcript(*made), penalty(parameter))
    return {each.check: each.outcome for each in only(found) if each.mode == "non_stream"}


LESS = "penalty-lessens-repeats"


@pytest.mark.parametrize(
    ("expected", "parameter", "rows"),
    [
        pytest.param(HELD, "frequency_penalty", [(LOOP, LOOP, LOOP, "blue sky"), (PROSE,) * 4], id="halved once"),
        pytest.param(NO_EFFECT, "frequency_penalty", [(LOOP,) * 4, (PROSE,) * 4], id="a loop that goes on"),
        pytest.param(NO_EFFECT, "repetition_penalty", [(PROSE,) * 4, (PROSE,) * 4], id="many repeats left alone"),
        pytest.param(UNDETERMINED, "frequency_penalty", [("one two",) * 4] * 2, id="nothing to lessen"),
        pytest.param(UNDETERMINED, "presence_penalty", [(LOOP,) * 4] * 2, id="presence cannot break a loop"),
        pytest.param(HELD, "presence_penalty", [(PROSE, PROSE, PROSE, OTHER)] * 2, id="prose turned"),
        pytest.param(VIOLATED, "presence_penalty", [("a b c d e f g h",) * 3 + ("a " * 20,)] * 2, id="more repeats"),
    ],
)
def test_texts_show_a_penalty(expected: Outcome, parameter: str, rows: list[tuple[str, str, str, str]]) -> None:
    assert penalised(parameter, *rows) == {LESS: expected}


def test_controls_that_differ_prove_nothing_by_a_text_that_only_turned() -> None:
    row = ("one two three", "one two four", "one two three", "one two five")

    assert penalised("frequency_penalty", row, row) == {LESS: UNDETERMINED}


def test_halved_repeats_count_though_the_controls_differ() -> None:
    row = (LOOP, f"{LOOP} sky", LOOP, "blue sky")

    assert penalised("frequency_penalty", row, row) == {LESS: HELD}


def test_presence_is_ignored_only_where_frequency_is_too() -> None:
    rows = [(PROSE,) * 4, ("one two",) * 4]

    assert penalised("presence_penalty", *rows, frequency=PROSE) == {LESS: NO_EFFECT}
    assert penalised("presence_penalty", *rows, frequency=OTHER) == {LESS: UNDETERMINED}


def presence(after: tuple[str, ...], rivals: dict[int, tuple[str, float]]) -> dict[str, Outcome]:
    before = ("the", " sea", " the", " end")
    made = []
    for place in range(2):
        made += [chat(f"control-{place}-{number}", *before, rivals=rivals) for number in range(3)]
        made.append(chat(f"penalty-{place}", *after))
    found = sampling_penalty.PROBE.judge(transcript(*made), penalty("presence_penalty"))
    return {each.check: each.outcome for each in only(found) if each.mode == "non_stream"}


@pytest.mark.parametrize(
    ("expected", "token", "behind"),
    [
        pytest.param(UNDETERMINED, " the", 1.0, id="the token is new there: no penalty is on it"),
        pytest.param(UNDETERMINED, "the", 2.5, id="a rival too far behind"),
        pytest.param(NO_EFFECT, "the", 1.0, id="a rival that a penalty of 2 must lift"),
    ],
)
def test_a_text_that_stays_is_ignored_only_where_a_rival_had_to_win(
    expected: Outcome, token: str, behind: float
) -> None:
    text = ("the", " sea", token, " end")
    made = []
    for place in range(2):
        steps = (*(f"control-{place}-{number}" for number in range(3)), f"penalty-{place}")
        made += [chat(step, *text, rivals={2: (" a", behind)}) for step in steps]
    found = sampling_penalty.PROBE.judge(transcript(*made), penalty("presence_penalty"))

    assert said(found) == {LESS: expected}


def test_a_turn_at_a_near_tie_of_a_new_token_is_chance() -> None:
    assert presence(("the", " bay", " was", " it"), {1: (" bay", 0.1)}) == {LESS: UNDETERMINED}
    assert presence(("the", " bay", " was", " it"), {1: (" bay", 1.0)}) == {LESS: HELD}


def test_a_penalty_refused_beside_controls_that_were_answered_is_not_offered() -> None:
    made = [mute(f"control-{place}-{number}", PROSE) for place in range(2) for number in range(3)]
    made += [refusal(f"penalty-{place}", "frequency_penalty is not supported") for place in range(2)]

    assert said(sampling_penalty.PROBE.judge(transcript(*made), penalty("frequency_penalty"))) == {LESS: REFUSED}


# --------------------------------------------------------------------------- logit_bias

BIAS = sampling_logit_bias.LogitBiasParams()
BAN, FORCE = "banned-token-stays-away", "forced-token-is-all-there-is"


def test_no_id_means_a_blind_force_of_two_tokens_that_give_two_texts() -> None:
    control = [mute("control", "A harbour is"), mute("control-again", "A harbour is")]

    def judged(one: str, other: str) -> dict[str, Outcome]:
        made = transcript(*control, mute("blind-300", one), mute("blind-500", other))
        return said(sampling_logit_bias.PROBE.judge(made, BIAS))

    assert judged("omomomom", " in in in in") == {FORCE: HELD}
    assert judged("A harbour is", "A harbour is") == {FORCE: NO_EFFECT}
    assert judged("omomomom", "omomomom") == {FORCE: UNDETERMINED}, "one text for two ids is no bias"
    assert judged("A harbour was", "omomomom") == {FORCE: UNDETERMINED}


def test_a_ban_is_judged_by_tokens_and_not_by_letters() -> None:
    control = [chat(step, "The", " bay", " is", " old", ids=True) for step in ("control", "control-again")]
    force = [chat(step, *[" bay"] * 4, ids=True) for step in ("force", "force-stream", "force-alone")]

    def judged(*pieces: str) -> dict[str, Outcome]:
        found = sampling_logit_bias.PROBE.judge(transcript(*control, chat("ban", *pieces, ids=True), *force), BIAS)
        return not_held(found)

    assert judged("There", " is", " a", " bay") == {}, "its letters begin with those of the banned token"
    assert judged("The", " old", " bay", " is") == {BAN: NO_EFFECT}
    assert judged("A", " bay", "The", " is") == {BAN: VIOLATED}


def test_controls_that_begin_differently_say_nothing_of_a_ban() -> None:
    made = [chat("control", "The", " bay", " is", ids=True), chat("control-again", "A", " bay", " is", ids=True)]
    made += [chat("ban", "A", " bay", " is", ids=True)]
    made += [chat(step, *[" bay"] * 3, ids=True) for step in ("force", "force-stream", "force-alone")]

    assert not_held(sampling_logit_bias.PROBE.judge(transcript(*made), BIAS)) == {BAN: UNDETERMINED}


# --------------------------------------------------------------------------- lists


def lists(parameter: str) -> sampling_token_lists.TokenListsParams:
    return sampling_token_lists.TokenListsParams.model_validate({"parameter": parameter})


OWN = ("A", " harbour", " is", " where", " ships", " rest", " at", " night")


def listed(parameter: str, *pieces: str, finish: str = "length") -> dict[str, Outcome]:
    controls = [chat(step, *OWN, ids=True) for step in ("control", "control-again")]
    made = transcript(*controls, chat("listed-0", *pieces, finish=finish, ids=True))
    return said(sampling_token_lists.PROBE.judge(made, lists(parameter)))


@pytest.mark.parametrize(
    ("expected", "pieces"),
    [
        pytest.param(HELD, ("A", " harbour", " was", " where"), id="another word in its place"),
        pytest.param(NO_EFFECT, OWN, id="the same text"),
        pytest.param(UNDETERMINED, ("A", " harbour", " i", "s", *OWN[3:]), id="spelled with other tokens"),
        pytest.param(UNDETERMINED, ("The", " bay", " was"), id="another way before the word"),
    ],
)
def test_a_banned_word(expected: Outcome, pieces: tuple[str, ...]) -> None:
    assert listed("bad_words", *pieces) == {"bad-word-stays-away": expected}


@pytest.mark.parametrize(
    ("expected", "pieces", "finish"),
    [
        pytest.param(HELD, (" harbour", " is", " is"), "length", id="only the two"),
        pytest.param(HELD, (" harbour", " is", "<|im_end|>"), "stop", id="only the two, and an end"),
        pytest.param(NO_EFFECT, OWN, "length", id="the same text"),
        pytest.param(VIOLATED, (" harbour", " where", " ships"), "length", id="heard for one token"),
    ],
)
def test_allowed_tokens(expected: Outcome, pieces: tuple[str, ...], finish: str) -> None:
    assert listed("allowed_token_ids", *pieces, finish=finish) == {"only-allowed-tokens-come": expected}


@pytest.mark.parametrize(
    ("expected", "pieces", "finish"),
    [
        pytest.param(HELD, ("A", " harbour"), "stop", id="ended before it"),
        pytest.param(HELD, ("A", " harbour", " is"), "stop", id="ended with it"),
        pytest.param(VIOLATED, ("A", " harbour", " is", " where"), "stop", id="ended late"),
        pytest.param(VIOLATED, ("A", " harbour"), "length", id="the wrong reason"),
        pytest.param(NO_EFFECT, OWN, "length", id="the same text"),
        pytest.param(UNDETERMINED, ("The", " bay", " was"), "length", id="another way"),
    ],
)
def test_a_stop_token(expected: Outcome, pieces: tuple[str, ...], finish: str) -> None:
    assert listed("stop_token_ids", *pieces, finish=finish) == {"stop-token-ends-the-text": expected}


def test_without_ids_nothing_is_claimed_of_tokens() -> None:
    controls = [chat(step, *OWN) for step in ("control", "control-again")]

    for parameter, check in (
        ("allowed_token_ids", "only-allowed-tokens-come"),
        ("stop_token_ids", "stop-token-ends-the-text"),
    ):
        found = sampling_token_lists.PROBE.judge(transcript(*controls), lists(parameter))
        assert said(found) == {check: UNDETERMINED}


# --------------------------------------------------------------------------- lengths

NATURAL = ("2", "+", "2", "=", "4", "<|im_end|>")


def length(parameter: str, kept: Exchange) -> dict[str, Outcome]:
    params = sampling_length.SamplingLengthParams.model_validate({"parameter": parameter})
    made = transcript(chat("control-0", *NATURAL, finish="stop"), kept)
    return said(sampling_length.PROBE.judge(made, params))


REACHED, NO_END, RUNS = "min-tokens-are-reached", "no-end-token-inside-min-tokens", "answer-runs-to-its-limit"


@pytest.mark.parametrize(
    ("expected", "kept"),
    [
        pytest.param({REACHED: HELD, NO_END: HELD}, chat("kept", *["x"] * 30), id="long, and no end inside"),
        pytest.param(
            {REACHED: HELD, NO_END: VIOLATED}, chat("kept", *NATURAL, *["x"] * 24), id="an end that was passed over"
        ),
        pytest.param(
            {REACHED: HELD, NO_END: HELD},
            chat("kept", *["x"] * 19, "<|im_end|>", finish="stop"),
            id="the end is the last of these",
        ),
        pytest.param(
            {REACHED: HELD}, mute("kept", "x" * 30, usage={"completion_tokens": 30}), id="nothing to look into"
        ),
        pytest.param({REACHED: NO_EFFECT}, chat("kept", *NATURAL, finish="stop"), id="ends as it would"),
        pytest.param({REACHED: VIOLATED}, chat("kept", *["x"] * 15, finish="stop"), id="ends too early, but later"),
        pytest.param({REACHED: REFUSED}, refusal("kept"), id="refused"),
    ],
)
def test_min_tokens(expected: dict[str, Outcome], kept: Exchange) -> None:
    assert length("min_tokens", kept) == expected


@pytest.mark.parametrize(
    ("expected", "kept"),
    [
        pytest.param(HELD, chat("kept", *["x"] * 20), id="to the limit"),
        pytest.param(NO_EFFECT, chat("kept", *NATURAL, finish="stop"), id="ends as it would"),
        pytest.param(VIOLATED, chat("kept", *["x"] * 17), id="calls 17 of 20 the limit"),
        pytest.param(VIOLATED, chat("kept", *["x"] * 20, finish="stop"), id="calls the limit an end"),
    ],
)
def test_ignore_eos(expected: Outcome, kept: Exchange) -> None:
    assert length("ignore_eos", kept) == {RUNS: expected}


def test_an_answer_that_never_ends_by_itself_cannot_be_kept_from_it() -> None:
    params = sampling_length.SamplingLengthParams.model_validate({"parameter": "ignore_eos"})
    found = sampling_length.PROBE.judge(transcript(chat("control-0", "x", "y")), params)

    assert said(found) == {RUNS: UNDETERMINED}


# --------------------------------------------------------------------------- readers


@pytest.mark.parametrize(
    ("expected", "body"),
    [
        ([1, 2], {"tokens": [1, 2]}),
        ([1, 2], {"tokens": [{"id": 1, "piece": "a"}, {"id": 2, "piece": "b"}]}),
        ([1, 2], [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]),
        (None, [1, 2]),
        (None, {"tokens": ["a"]}),
    ],
)
def test_token_ids_are_read_in_three_dialects(expected: list[int] | None, body: object) -> None:
    assert listed_ids(exchange("tokenize", body, request={})) == expected


def test_the_tokenizer_s_ids_go_to_the_answer_s_tokens_and_none_to_its_end() -> None:
    control = chat("control", "A", " bay", "<|im_end|>", finish="stop")
    ids = exchange("control-ids", {"tokens": [7, 8]}, request={})

    assert told(transcript(control, ids), "control") == (Piece(text="A", id=7), Piece(text=" bay", id=8))
    wrong = exchange("control-ids", {"tokens": [7]}, request={})
    assert told(transcript(control, wrong), "control") == (), "another number of tokens belongs to other tokens"


@pytest.mark.parametrize(
    "logprobs",
    [
        {
            "tokens": ["a", " b"],
            "token_logprobs": [-0.1, -0.7],
            "top_logprobs": [{"a": -0.1}, {" b": -0.7, " c": -0.8}],
        },
        spelled("a", " b", rivals={1: (" c", 0.1)}),
    ],
    ids=["arrays", "the shape of a chat"],
)
def test_logprobs_of_completions_are_read_in_both_shapes(logprobs: object) -> None:
    body = {"choices": [{"index": 0, "text": "a b", "logprobs": logprobs, "finish_reason": "length"}]}
    answer = reply.completion(exchange("step", body, request={}, path="/completions"))
    assert isinstance(answer, reply.Answer)

    assert [token.text for token in tokens(answer)] == ["a", " b"]
    assert sure_text(answer) == "a", "the second token has a rival at 0.1 nat"
