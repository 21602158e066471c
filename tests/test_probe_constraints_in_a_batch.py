"""What the judge of ``constraints_in_a_batch`` makes of batches that no mutant gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servecheck.model import Exchange, Outcome
from servecheck.probes._schemas import NONCE_SCHEMA, response_format, with_nonce
from servecheck.probes.constraints_in_a_batch import PROBE, ConstraintsInABatchParams
from tests import made

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED

HOLDS, STAYS, SANE = "constraint-holds-in-a-batch", "constraint-stays-with-its-request", "free-neighbour-stays-sane"
WORDS = ("bcdfghjklm", "nprstvwxzb", "dfghjklmnp")


def request(word: str) -> dict[str, object]:
    return {"response_format": response_format(with_nonce(NONCE_SCHEMA, word))}


def shaped(step: str, word: str, text: str | None = None, finish: str = "stop", **message: object) -> Exchange:
    said = f'{{"code": "{word}"}}' if text is None else text
    return replace(made.exchange(step, made.whole(said, finish, **message), request=request(word)), ended_at=1.0)


def free(step: str, text: str = "A lighthouse stands by the sea.", finish: str = "stop") -> Exchange:
    return replace(made.exchange(step, made.whole(text, finish), request={}), ended_at=1.0)


ALONE = (free("alone-free"), shaped("alone-shaped", "zzzzzzzzzz"))
RIGHT = {
    "shaped-0-greedy": shaped("shaped-0-greedy", WORDS[0]),
    "twin-0-0": shaped("twin-0-0", WORDS[1]),
    "twin-0-1": shaped("twin-0-1", WORDS[1]),
    "free-0-0": free("free-0-0"),
}


def said(*others: Exchange, alone: tuple[Exchange, ...] = ALONE) -> dict[str, Outcome]:
    batch = {**RIGHT, **{exchange.step: exchange for exchange in others}}
    return made.said(PROBE.judge(made.transcript(*alone, *batch.values()), ConstraintsInABatchParams()))


@pytest.mark.parametrize(
    ("expected", "other"),
    [
        pytest.param((HELD, HELD, HELD), free("free-0-0", "Bread."), id="right"),
        pytest.param((VIOLATED, HELD, HELD), shaped("twin-0-1", WORDS[1], "Waves come."), id="a twin without its mask"),
        pytest.param((VIOLATED, VIOLATED, HELD), shaped("twin-0-1", WORDS[1], f'{{"code": "{WORDS[0]}"}}'), id="swap"),
        pytest.param((HELD, VIOLATED, HELD), free("free-0-0", f"Bread, {WORDS[0]}."), id="a word among prose"),
        pytest.param((HELD, HELD, VIOLATED), free("free-0-0", "!" * 40), id="exclamation marks"),
        pytest.param((HELD, HELD, VIOLATED), free("free-0-0", '{"answer": "bread"}'), id="JSON that nobody asked for"),
        pytest.param((HELD, HELD, VIOLATED), free("free-0-0", ""), id="an empty neighbour"),
        pytest.param((HELD, HELD, VIOLATED), made.failure("free-0-0"), id="a neighbour that failed"),
        pytest.param((VIOLATED, HELD, HELD), made.failure("twin-0-0"), id="a constrained one that failed"),
        pytest.param((VIOLATED, HELD, HELD), made.refusal("twin-0-0"), id="refused in company only"),
        pytest.param((HELD, HELD, HELD), shaped("twin-0-0", WORDS[1], '{"code": "nprs', "length"), id="a cut one"),
    ],
)  # fmt: skip
def test_a_batch_with_one_odd_answer_is(expected: tuple[Outcome, ...], other: Exchange) -> None:
    assert tuple(said(other)[check] for check in (HOLDS, STAYS, SANE)) == expected


def test_requests_one_after_another_are_no_batch() -> None:
    late = [replace(exchange, sent=2.0 * place) for place, exchange in enumerate(RIGHT.values())]

    assert said(*late) == {HOLDS: UNDETERMINED}


@pytest.mark.parametrize(
    ("expected", "alone"),
    [
        pytest.param(NO_EFFECT, shaped("alone-shaped", "zzzzzzzzzz", "Waves come."), id="ignored alone too"),
        pytest.param(VIOLATED, shaped("alone-shaped", "zzzzzzzzzz", '{"sea": 1}'), id="wrong alone too"),
        pytest.param(REFUSED, made.refusal("alone-shaped"), id="refused"),
    ],
)
def test_what_is_wrong_alone_is_not_the_batch_s_fault(expected: Outcome, alone: Exchange) -> None:
    assert said(alone=(free("alone-free"), alone)) == {HOLDS: expected}


def test_free_answers_are_only_judged_beside_one_that_is_text_alone() -> None:
    assert SANE not in said(alone=(free("alone-free", "!" * 40), ALONE[1]))
