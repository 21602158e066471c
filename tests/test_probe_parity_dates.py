"""A chat template that puts today's date in the prompt is noticed before anything else is said of two endpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from servecheck.compare import contrasted
from servecheck.join import join
from servecheck.model import Delta, Finding, Outcome
from servecheck.probes import discover
from servecheck.reference.asgi import Request
from servecheck.reference.fields import ApiError
from servecheck.reference.killmatrix import trials_on
from servecheck.reference.mutants.parity_tokens import (
    AsksForToday,
    DateAhead,
    DateBehind,
    DateInEveryChat,
    DateOfTheTemplate,
    RendersTemplates,
    ShowsNoPrompt,
)
from servecheck.reference.server import ReferenceServer
from servecheck.run import read_back
from tests.lab import Lab
from tests.trying import builtin

_NOON = 1_796_040_000.0
"""30 November 2026, 12:00 UTC."""
_A_DAY = 86_400.0
_WORDS = "the chat template puts today's date in the prompt"


def beside(
    probe: str, left: type[ReferenceServer], right: type[ReferenceServer], *, later: float = 0.0, **config: Any
) -> dict[str, Finding]:
    sides = [kind(clock=lambda at=at: at, **config) for kind, at in ((left, _NOON), (right, _NOON + later))]
    mine = [each for each in builtin() if each.probe == probe]
    trials = trials_on(sides[1], discover(), mine, left=sides[0])
    return {finding.check: finding for trial in trials for finding in trial.findings}


@pytest.mark.parametrize(
    ("left", "right", "later", "outcome", "words"),
    [
        (
            ReferenceServer,
            DateInEveryChat,
            0.0,
            Outcome.VIOLATED,
            f"on the candidate {_WORDS} (30 November 2026), on the reference it does not",
        ),
        (
            DateInEveryChat,
            DateInEveryChat,
            0.0,
            Outcome.HELD,
            f"{_WORDS}: 30 November 2026 on both, so answers may change from day to day",
        ),
        (
            DateInEveryChat,
            RendersTemplates,
            0.0,
            Outcome.HELD,
            f"{_WORDS}: 30 November 2026 on both, so answers may change from day to day",
        ),
        (
            DateInEveryChat,
            DateInEveryChat,
            _A_DAY,
            Outcome.UNDETERMINED,
            (
                f"{_WORDS}: 30 November 2026 | 01 December 2026, since the two were asked on different days; "
                "ask both on one day to compare them"
            ),
        ),
        (
            DateBehind,
            DateAhead,
            0.0,
            Outcome.VIOLATED,
            (
                f"{_WORDS}: 29 November 2026 | 01 December 2026, which is no matter of when they were asked: their "
                "clocks or time zones differ"
            ),
        ),
    ],
)
def test_the_date_of_the_day_in_a_template_is_noticed(
    left: type[ReferenceServer], right: type[ReferenceServer], later: float, outcome: Outcome, words: str
) -> None:
    found = beside("parity_tokens", left, right, later=later)["same-chat-same-date"]

    assert (found.outcome, found.why) == (outcome, words)
    assert found.evidence


def test_it_is_what_the_row_says_first() -> None:
    for right in (ReferenceServer, DateInEveryChat):
        said = contrasted(beside("parity_tokens", DateInEveryChat, right).values()).why

        assert _WORDS in said


def test_a_date_that_makes_prompts_longer_on_another_day_is_no_drift() -> None:
    found = beside("parity_tokens", DateInEveryChat, DateInEveryChat, later=_A_DAY)

    assert contrasted(found.values()).delta is Delta.UNCLEAR
    assert found["same-chat-same-tokens"].why.endswith("of different days, which alone may be the reason")


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        (ReferenceServer, ReferenceServer, "10 of 10 chats have as many prompt tokens on both"),
        (DateOfTheTemplate, DateOfTheTemplate, "10 of 10 chats have as many prompt tokens on both"),
        (
            ReferenceServer,
            AsksForToday,
            (
                "10 of 10 chats have as many prompt tokens on both; the chat template of the candidate can put today's "
                "date in a prompt"
            ),
        ),
        (
            DateInEveryChat,
            ShowsNoPrompt,
            (
                "10 of 10 chats have as many prompt tokens on both; on the reference the chat template puts today's "
                "date in the prompt (30 November 2026), the candidate does not show its prompts"
            ),
        ),
        (
            ShowsNoPrompt,
            ShowsNoPrompt,
            (
                "10 of 10 chats have as many prompt tokens on both; neither shows its prompts, so a date in both chat "
                "templates would go unnoticed"
            ),
        ),
    ],
)
def test_what_does_not_change_from_day_to_day_and_what_cannot_be_seen(
    left: type[ReferenceServer], right: type[ReferenceServer], words: str
) -> None:
    found = beside("parity_tokens", left, right)

    assert "same-chat-same-date" not in found
    assert found["same-chat-same-tokens"].why == words


@pytest.mark.parametrize("check", ["greedy-answers-agree", "answers-end-for-the-same-reasons", "answers-are-as-long"])
def test_the_date_is_the_first_condition_of_what_is_compared_on_chats(check: str) -> None:
    today = beside("parity_answers", DateInEveryChat, DateInEveryChat, language="babbling")[check]
    later = beside("parity_answers", DateInEveryChat, DateInEveryChat, later=_A_DAY, language="babbling")[check]

    assert today.outcome is Outcome.HELD
    assert today.why.startswith(f"true of one day only ({_WORDS}: 30 November 2026 on both): ")
    assert later.outcome is Outcome.UNDETERMINED
    assert later.why.startswith(
        f"unlike conditions ({_WORDS}: 30 November 2026 | 01 December 2026, since the two were asked on different days;"
    )


def test_runs_of_two_days_are_unclear_and_say_why(tmp_path: Path) -> None:
    mine = [each for each in builtin() if each.probe in ("parity_tokens", "parity_answers")]
    for name, at in (("a", _NOON), ("b", _NOON + _A_DAY)):
        server = DateInEveryChat(clock=lambda at=at: at, language="babbling")
        Lab(tmp_path / name, {name: server}, mine, [*discover().values()], trials=1).run()
    join(str(tmp_path / "a"), str(tmp_path / "b"), tmp_path / "both")
    found = {each.feature: each for each in read_back(tmp_path / "both", discover()).comparisons}

    assert {each.delta for each in found.values()} == {Delta.UNCLEAR}
    assert found["parity.tokens"].why.startswith(f"{_WORDS}: 30 November 2026 | 01 December 2026, since the two were")
    assert all(_WORDS in each.why[:100] for each in found.values())


class ChatOnly(DateInEveryChat):
    """Has no completions route."""

    async def reply_completions(self, request: Request) -> Any:
        raise ApiError("no route", status=404)


def test_a_walk_on_chats_says_it_too() -> None:
    found = beside("parity_walk", ChatOnly, ChatOnly, language="babbling")["alike-along-the-greedy-text"]

    assert found.why.startswith(f"true of one day only ({_WORDS}: 30 November 2026 on both): ")
