"""The parity rows say the right words of pairs whose truth is known, and can be judged again from what was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servecheck import features, scenario
from servecheck.compare import compare, contrasted
from servecheck.judging import Canaries, judge
from servecheck.model import Case, Delta, Endpoint, Finding, Outcome, Status, Transcript
from servecheck.parity import STEPS
from servecheck.plan import Settings, make
from servecheck.probe import Probe
from servecheck.probes import discover
from servecheck.probes._parity import END, mode, named
from servecheck.probes._texts import PASSAGES, texts
from servecheck.probes.parity_answers import QUESTIONS
from servecheck.probes.parity_forced import PROBE as FORCED
from servecheck.probes.parity_walk import PROBE as WALK
from servecheck.reference.mutants.parity_forced import (
    GrowsWithContext,
    LogitsOnePercentOff,
    OtherKernels,
    QuantizedCache,
    WrongBeyondTheChunk,
)
from servecheck.reference.mutants.parity_tokens import (
    DateInEveryChat,
    OwnSystemMessage,
)
from servecheck.reference.mutants.parity_walk import AfterTheChoice, ScalesByTemperature
from servecheck.reference.power import filled, self_comparisons, whole_self_comparisons
from servecheck.reference.server import ReferenceServer
from servecheck.scenario import Scenario
from servecheck.verdict import MEASURED
from tests.cells import row
from tests.made import exchange, only, transcript
from tests.trying import trials_of

_ONE = (Endpoint(name="one", base_url="http://one/v1"),)
_TWO = (*_ONE, Endpoint(name="two", base_url="http://two/v1"))
_ALIKE, _LENGTH = "alike-along-the-greedy-text", "alike-at-every-context-length"


def _scenarios() -> tuple[Scenario, ...]:
    return tuple(scenario.load_all([scenario.builtin_dir()], probes=discover(), features=features.BY_ID))


def said(probe: str, server: ReferenceServer) -> dict[str, Finding]:
    return {finding.check: finding for trial in trials_of(probe, server) for finding in trial.findings}


# --------------------------------------------------------------------------- the words


_ALL = "504 positions of 21 texts, along the reference's greedy text: mean KL"
_CERTAIN = "top-1 agrees at 504 of 504 outside near-ties (99.2% to 100.0%), mutual top-5 at 504 of 504"


@pytest.mark.parametrize(
    ("server", "outcome", "words"),
    [
        (ReferenceServer, Outcome.HELD, f"{_ALL} 0 (0 to 0) nat, 0 and 0 in the two directions, {_CERTAIN}"),
        (OtherKernels, Outcome.HELD, f"{_ALL} 0.00047 (0.00044 to 0.00051) nat"),
        (
            LogitsOnePercentOff,
            Outcome.VIOLATED,
            (
                f"KL beyond own noise and margin: {_ALL} 0.0096 (0.0089 to 0.01) nat, 0.0096 and 0.0096 in the two "
                f"directions, {_CERTAIN}, |Δlogprob| p50 0.053, p95 0.16, p99 0.25, most 0.34, below 0.1 at "
                "80.2% (76.5% to 83.4%); each against itself, alone and in a batch: KL at most 0, below 0.1 at 100.0% "
                "or more; margins KL 0.007, below 0.1 70%, top-1 98%, top-5 98%: above every pair of engines with the "
                "same weights and"
            ),
        ),
        (
            QuantizedCache,
            Outcome.VIOLATED,
            (
                f"KL and share of close logprobs beyond own noise and margin: {_ALL} 0.019 (0.017 to 0.02) nat, "
                "0.019 and 0.019 in the two directions, top-1 agrees at 503 of 504 outside near-ties (98.9% to "
                "100.0%), mutual top-5 at 504 of 504, |Δlogprob| p50 0.074, p95 0.23, p99 0.36, most 0.51, below "
                "0.1 at 62.9% (58.4% to 67.2%), a clear choice differs first at token 2 (median of 1 texts)"
            ),
        ),
        (
            WrongBeyondTheChunk,
            Outcome.VIOLATED,
            (
                "KL beyond own noise and margin; most of it at long contexts, see the rule on context length: "
                f"{_ALL} 0.033 (0.011 to 0.055) nat"
            ),
        ),
        (
            GrowsWithContext,
            Outcome.VIOLATED,
            (
                "KL beyond own noise and margin; most of it at long contexts, see the rule on context length: "
                "501 positions of 21 texts, along the reference's greedy text: mean KL 0.045 (0.0094 to 0.081) nat"
            ),
        ),
        (
            AfterTheChoice,
            Outcome.UNDETERMINED,
            (
                "unlike conditions (log probabilities are before the temperature | after the choice was made): "
                f"the values are of different things; {_ALL} 4.9 (4.8 to 5) nat"
            ),
        ),
        (
            ScalesByTemperature,
            Outcome.HELD,
            (
                "unlike conditions (log probabilities are before the temperature | after the temperature): "
                f"{_ALL} 0 (0 to 0) nat"
            ),
        ),
    ],
)
def test_a_walk_says_what_is_so(server: type[ReferenceServer], outcome: Outcome, words: str) -> None:
    found = said("parity_walk", server(language="babbling"))[_ALIKE]

    assert (found.outcome, found.why[: len(words)]) == (outcome, words)


def test_a_walk_counts_how_far_every_position_lies_apart_and_what_is_noise() -> None:
    measured = said("parity_walk", LogitsOnePercentOff(language="babbling"))[_ALIKE].measured

    names = ("delta_from", "own_delta_from")
    between, own = ([int(measured[f"{name}_{edge:g}_nat"] or 0) for edge in STEPS] for name in names)
    assert sum(between) == measured["positions"] == 504
    assert own[0] > 0
    assert not any(own[1:])
    assert any(between[2:])


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (
            WrongBeyondTheChunk,
            (
                "worse with context length: from 512 tokens of context on KL is 0.11 (0.1 to 0.12), before that "
                "0 (0 to 0) (margin 0.007); 0–127 tokens of context: KL 0 (0 to 0); 128–511 tokens of context: KL 0 "
                "(0 to 0); 512–1023 tokens of context: KL 0.11 (0.1 to 0.12); 1024–2047 tokens of context: KL "
                "0.11 (0.11 to 0.12)"
            ),
        ),
        (
            GrowsWithContext,
            (
                "worse with context length: from 1024 tokens of context on KL is 0.088 (0.074 to 0.1), before "
                "that 0.0026 (0.00059 to 0.0046) (margin 0.007)"
            ),
        ),
    ],
)
def test_given_text_tells_where_it_becomes_worse(server: type[ReferenceServer], words: str) -> None:
    found = said("parity_forced", server(language="babbling"))

    assert found["alike-across-given-text-at-every-length"].why[: len(words)] == words
    assert contrasted(found.values()).why[: len(words)] == words


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (
            WrongBeyondTheChunk,
            (
                "worse with context length: from 512 tokens of context on KL is 0.099 (0.087 to 0.11), before that 0 "
                "(0 to 0) (margin 0.007)"
            ),
        ),
        (
            GrowsWithContext,
            (
                "worse with context length: from 1024 tokens of context on KL is 0.15 (0.051 to 0.24), before "
                "that 0.0053 (0.0024 to 0.0082) (margin 0.007)"
            ),
        ),
    ],
)
def test_what_is_worse_at_long_contexts_is_told_by_where_it_begins(server: type[ReferenceServer], words: str) -> None:
    found = said("parity_walk", server(language="babbling"))[_LENGTH]

    assert (found.outcome, found.why[: len(words)]) == (Outcome.VIOLATED, words)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (DateInEveryChat, "the candidate's adds 24 tokens to every chat, as a date or a fixed preamble does"),
        (OwnSystemMessage, "the candidate's adds 19 tokens where no system message is given"),
    ],
)
def test_a_template_is_told_by_where_it_adds_tokens(server: type[ReferenceServer], words: str) -> None:
    # Always 30 November 2026, since another date may have another number of tokens.
    found = said("parity_tokens", server(clock=lambda: 1_796_040_000.0))

    assert words in found["same-chat-same-tokens"].why
    assert found["same-text-same-tokens"].outcome is Outcome.HELD


def test_a_server_beside_itself_is_never_behind_and_never_drifts() -> None:
    assert self_comparisons("parity_walk", with_={"lengths": (), "tokens": 26}) == {"same": 50}


# --------------------------------------------------------------------------- what each side shows


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (" the", " the"),
        ("\u2581the", " the"),
        ("\u0120the", " the"),
        ("<|im_end|>", END),
        ("", ""),
        ("</s>", END),
        ("<p>", "<p>"),
        ("\ufffd", ""),
    ],
)
def test_tokens_are_named_as_all_engines_would(text: str, name: str) -> None:
    assert named(text) == name


def scored(step: str, **top: float) -> Any:
    arrays = {
        "tokens": [max(top, key=lambda name: top[name])],
        "token_logprobs": [max(top.values())],
        "top_logprobs": [top],
    }
    body = {"choices": [{"index": 0, "text": "x", "logprobs": arrays, "finish_reason": "length"}]}
    return exchange(step, body, request={"prompt": "x"}, path="/completions")


@pytest.mark.parametrize(
    ("warm", "words"),
    [
        ({"a": -0.5, "b": -2.5}, "before the temperature"),
        ({"a": -0.8, "b": -1.8}, "after the temperature"),
        ({}, ""),
        ({"c": -0.5, "d": -2.5}, ""),
    ],
)
def test_two_temperatures_tell_what_the_values_are_of(warm: dict[str, float], words: str) -> None:
    steps = [scored("mode-1", a=-0.5, b=-2.5)]
    if warm:
        steps.append(scored("mode-2", **warm))

    assert mode(transcript(*steps)) == words


def test_the_built_in_texts_are_enough() -> None:
    short = texts((), (), 3)
    long = texts((), (250, 600, 1100), 3)

    assert len(short) == 12
    assert len({name for name, _ in long}) == len(long) == 21
    assert len({text[:40] for _, text in long}) == 21
    assert len(QUESTIONS) == len(set(QUESTIONS)) == 36
    assert all(not text[-1:].isspace() for text in PASSAGES)


def test_a_teams_own_texts_replace_the_built_in_ones() -> None:
    assert texts(("One.", "Two."), (250,), 3) == (("own-01", "One."), ("own-02", "Two."))


# --------------------------------------------------------------------------- given text in three shapes


def prompt_logprobs(step: str, delta: float) -> Any:
    """Return vLLM's shape: an object a token, keyed by token id, the token itself first."""
    listed = [
        None,
        *(
            {"5": {"logprob": -0.5 - delta, "decoded_token": "a"}, "6": {"logprob": -1.5, "decoded_token": "b"}}
            for _ in range(40)
        ),
    ]
    return exchange(
        step, {"choices": [{"index": 0, "text": "", "prompt_logprobs": listed}]}, request={}, path="/completions"
    )


def generate(step: str, delta: float) -> Any:
    """Return SGLang's shape: value, id and text a token."""
    own = [[None, 1, None], *([-0.5 - delta, 5, "a"] for _ in range(40))]
    top = [None, *([[-0.5 - delta, 5, "a"], [-1.5, 6, "b"]] for _ in range(40))]
    return exchange(
        step,
        {"text": "", "meta_info": {"input_token_logprobs": own, "input_top_logprobs": top}},
        request={},
        path="/generate",
    )


def echoed(step: str, delta: float) -> Any:
    """Return the older arrays, the completion's token last."""
    arrays = {
        "tokens": ["x", *["a"] * 40, "z"],
        "token_logprobs": [None, *[-0.5 - delta] * 40, -0.1],
        "top_logprobs": [None, *[{"a": -0.5 - delta, "b": -1.5}] * 40, {"z": -0.1}],
    }
    body = {
        "choices": [{"index": 0, "text": "x", "logprobs": arrays}],
        "usage": {"prompt_tokens": 41, "completion_tokens": 1},
    }
    return exchange(step, body, request={"echo": True}, path="/completions")


_SHAPES = {"field": prompt_logprobs, "native": generate, "echo": echoed}


def side(way: str, delta: float) -> Transcript:
    names = [name for name, _ in texts((), (800,), 3)]
    shape = _SHAPES[way]
    return transcript(shape(f"way-{way}", delta), *(shape(f"text-{name}", delta) for name in names))


@pytest.mark.parametrize("left", _SHAPES)
@pytest.mark.parametrize("right", _SHAPES)
@pytest.mark.parametrize(("delta", "outcome"), [(0.0, Outcome.HELD), (0.6, Outcome.VIOLATED)])
def test_given_text_is_compared_across_the_shapes_of_engines(
    left: str, right: str, delta: float, outcome: Outcome
) -> None:
    assert FORCED.contrast is not None
    found = {each.check: each for each in only(FORCED.contrast(side(left, 0.0), side(right, delta), FORCED.params()))}

    assert found["alike-across-given-text"].outcome is outcome
    assert found["alike-across-given-text"].measured["positions"] == 600


def test_a_text_that_is_cut_otherwise_is_left_out() -> None:
    assert FORCED.contrast is not None
    other = transcript(echoed("way-echo", 0.0), exchange("text-short-01", {"choices": []}, request={}))
    found = only(FORCED.contrast(side("echo", 0.0), other, FORCED.params()))

    assert [(each.check, each.outcome) for each in found] == [("alike-across-given-text", Outcome.UNDETERMINED)]
    assert "0 positions of 0 texts can be compared, 300 are needed" in found[0].why


@pytest.mark.parametrize("probe", [WALK, FORCED])
def test_nothing_recorded_is_nothing_compared(probe: Any) -> None:
    nothing = Transcript()

    assert {each.outcome for each in only(probe.judge(nothing, probe.params()))} <= {
        Outcome.UNDETERMINED,
        Outcome.REFUSED,
    }
    assert only(probe.contrast(nothing, nothing, probe.params())) == []


# --------------------------------------------------------------------------- in a run


def test_an_interval_over_the_margin_is_unclear_and_keeps_its_figures() -> None:
    finding = Finding(check="x", outcome=Outcome.UNDETERMINED, why="the interval straddles", measured={"kl": 0.007})
    feature = features.get("parity.logprobs")
    left, right = row(feature.id, "left", Status.SUPPORTED), row(feature.id, "right", Status.INCONCLUSIVE)
    cells = [left, replace(right, findings=(finding,))]
    found = compare(cells, [feature], left="left", right="right", fingerprints={})

    assert [(each.delta, each.why, dict(each.measured)) for each in found] == [
        (Delta.UNCLEAR, "the interval straddles", {"kl": 0.007})
    ]


def test_a_comparison_is_left_out_where_there_is_nothing_to_compare_with() -> None:
    probes = discover()
    every = _scenarios()
    alone = make(_ONE, every, probes, settings=Settings(suite="full"))
    named_by_hand = make(_ONE, every, probes, settings=Settings(), globs=["parity.*"])
    both = make(_TWO, every, probes, settings=Settings(suite="full"))

    reasons = {skip.feature: skip.reason for skip in alone.skips}
    assert reasons["parity.tokens"] == "compares two endpoints, and there is one"
    assert {each.feature for each in named_by_hand.scenarios} == {
        "parity.tokens",
        "parity.logprobs",
        "parity.greedy",
        "parity.finish",
    }
    assert "parity.logprobs" in {each.feature for each in both.scenarios}


def test_the_whole_speaks_before_the_parts() -> None:
    findings = [
        Finding(check=_LENGTH, outcome=Outcome.HELD, why="no length is worse"),
        Finding(check=_ALIKE, outcome=Outcome.HELD, why="the whole"),
    ]

    assert contrasted(findings).why == "the whole"


def test_the_reference_is_asked_once_and_counts_as_measured() -> None:
    probes: list[Probe[Any]] = [WALK, FORCED]
    for probe in probes:
        found = judge(
            Case(id="c", scenario="s", feature="parity.logprobs", endpoint="left", trial=1),
            next(each for each in _scenarios() if each.probe == probe.id),
            probe,
            side("echo", 0.0) if probe.id == FORCED.id else transcript(scored("form-0", a=-0.5, b=-2.5)),
            Canaries(),
        )

        assert (found.status, found.reason) == (Status.SUPPORTED, MEASURED)


def test_a_whole_comparison_of_a_right_server_with_itself_is_the_same() -> None:
    (rows,) = whole_self_comparisons(pairs=1)

    assert len(rows) > 50
    assert {each.feature for each in rows} >= {"chat.basic", "parity.tokens", "parity.greedy", "parity.finish"}
    assert {each.delta for each in rows} <= {Delta.SAME, Delta.UNCLEAR}


def test_figures_go_between_their_markers_and_the_prose_stays() -> None:
    page = "before\n<!-- walk -->\nold\n<!-- /walk -->\nafter\n"

    assert filled(page, {"walk": "new"}) == "before\n<!-- walk -->\nnew\n<!-- /walk -->\nafter\n"


def test_the_page_says_what_the_margins_are() -> None:
    page = (Path(__file__).parent.parent / "docs" / "parity.md").read_text("utf-8")
    margin = WALK.params().margin

    assert f"| *margin* | *{margin.kl:g}* | *{margin.clear:g}* | *{margin.close:.2f}* |" in page
    assert all(f"<!-- {name} -->\n" in page for name in ("alarms", "whole", "walk", "forced"))
