"""Text parts: by how many tokens two prompts of the same text may differ."""

from __future__ import annotations

import pytest

from servecheck.model import Outcome
from servecheck.probes.content_parts import PROBE
from tests.replies import chat, judged, refusal, said, transcript, why

ONE, ALL = "one-text-part-equals-a-string", "every-text-part-is-read"


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [(30, Outcome.HELD), (31, Outcome.VIOLATED), (29, Outcome.VIOLATED), (None, Outcome.UNDETERMINED)],
)
def test_one_part_makes_exactly_the_prompt_of_the_string(parts, outcome):
    found = judged(PROBE, transcript(chat("string", prompt=30), chat("one-part", prompt=parts)))

    assert said(found, ONE) == [outcome]


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [(60, Outcome.HELD), (58, Outcome.HELD), (62, Outcome.HELD), (63, Outcome.VIOLATED), (35, Outcome.VIOLATED)],
)
def test_two_parts_may_be_joined_by_a_line_end_or_by_nothing(parts, outcome):
    found = judged(PROBE, transcript(chat("joined", prompt=60), chat("two-parts", prompt=parts)))

    assert said(found, ALL) == [outcome]


def test_the_reason_says_whether_text_is_missing_or_added():
    assert "missing" in why(judged(PROBE, transcript(chat("string", prompt=30), chat("one-part", prompt=9))), ONE)
    assert "something else" in why(
        judged(PROBE, transcript(chat("string", prompt=30), chat("one-part", prompt=50))), ONE
    )


def test_a_refusal_beside_a_refused_string_says_nothing():
    found = judged(PROBE, transcript(refusal("string"), refusal("one-part")))

    assert said(found, ONE) == [Outcome.UNDETERMINED]
