"""What the old guided fields come to, as ``legacy_guided`` reads it."""

from __future__ import annotations

import asyncio

import pytest

from servecheck.model import Exchange, How, Observed
from servecheck.probes.legacy_guided import PROBE, LegacyGuidedParams
from tests import made

WORD = "w7bcdfghjklm"
FIELDS = ("guided_json", "guided_choice", "guided_regex")
CONTROL = made.exchange("control", made.whole("The sea is wide."), request={})


def answered(field: str, text: str | None, finish: str = "stop", **message: object) -> Exchange:
    return made.exchange(field, made.whole(text, finish, **message), request={field.removesuffix("-again"): WORD})


def seen(*exchanges: Exchange) -> Observed:
    (only,) = PROBE.judge(made.transcript(*exchanges), LegacyGuidedParams())
    assert isinstance(only, Observed)
    return only


@pytest.mark.parametrize(
    ("expected", "replies"),
    [
        pytest.param("ignored", [answered(field, "Waves.") for field in FIELDS], id="all dropped"),
        pytest.param("honoured", [answered(field, f"{WORD}-042") for field in FIELDS], id="all applied"),
        pytest.param("refused", [made.refusal(field) for field in FIELDS], id="all refused"),
        pytest.param("failed", [made.failure(field) for field in FIELDS], id="all failed"),
        pytest.param(
            "guided_json honoured, guided_choice ignored, guided_regex refused",
            [
                answered("guided_json", f'{{"code": "{WORD}"}}'),
                answered("guided_choice", "Waves."),
                made.refusal("guided_regex"),
            ],
            id="each in its own way",
        ),
        pytest.param("guided_json ignored", [answered("guided_json", "Waves.")], id="the others never sent"),
    ],
)
def test_the_value_says_what_came_of_the_fields(expected: str, replies: list[Exchange]) -> None:
    value = seen(CONTROL, *replies)

    assert (value.value, value.how) == (expected, How.OBSERVED)


def test_nothing_is_known_without_a_control_or_behind_thoughts() -> None:
    thoughts = [answered(field, None, "length", reasoning_content="Let me think.") for field in FIELDS]

    assert seen(made.refusal("control"), made.refusal("guided_json")).how is How.UNKNOWN
    assert seen(CONTROL, *thoughts).how is How.UNKNOWN
    assert seen(CONTROL, thoughts[0], answered("guided_json-again", "Waves.")).value == "guided_json ignored"


def test_every_field_carries_a_word_of_its_own() -> None:
    words = [f"{letter}" * 10 for letter in "bcd"]
    sent: list[dict[str, object]] = []

    class Session:
        def nonce(self, letters: int) -> str:
            assert letters == 10
            return words[len(sent) - 1]

        async def chat(self, step: str, body: dict[str, object]) -> Exchange:
            sent.append(body)
            return made.exchange(step, made.whole("Waves."), request={})

    asyncio.run(PROBE.drive(Session(), LegacyGuidedParams(), None))  # type: ignore[arg-type]

    assert [next(iter(set(body) & set(FIELDS)), "") for body in sent] == ["", *FIELDS]
    assert all(f"w7{word}" in str(body) for word, body in zip(words, sent[1:], strict=True))
