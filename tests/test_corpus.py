"""Public faults are caught by the row that is about them, and their right sides are left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from servecheck import features
from tests.corpus_rows import MEANING, MISSED, ROWS, active, caught, flagged, harmless, page, results, tried
from tests.replay import ENTRIES

PAGE = Path(__file__).parent.parent / "docs" / "corpus.md"
WHOLE = os.environ.get("CORPUS") == "whole"


def test_every_entry_belongs_to_rows_that_exist():
    assert {row for rows in ROWS.values() for row in rows} - set(features.BY_ID) == set()
    assert set(MEANING) <= set(ROWS)


def test_no_public_fault_is_missed():
    bad_sides = [(entry, bad, good) for entry, bad, good in results() if not harmless(entry)]

    assert len(bad_sides) >= 80
    missed = [entry.id for entry, bad, good in bad_sides if not caught(bad, good)]
    assert missed == list(MISSED)
    assert len(missed) <= 0.05 * len(bad_sides)


def test_nothing_is_said_of_what_must_not_be_flagged():
    assert [entry.id for entry, bad, _ in results() if harmless(entry) and bad.decided] == []


def test_no_right_side_is_flagged_by_its_own_rows():
    assert {entry.id: said for entry, _, good in results() if (said := flagged(good))} == {}


@pytest.mark.skipif(not WHOLE, reason="five minutes; CORPUS=whole runs it")
@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if active(entry)])
def test_no_right_side_is_flagged_by_any_row(name):
    assert flagged(tried(ENTRIES[name], "good", everything=True)) == []


def test_the_page_says_what_ran():
    made = page()
    if os.environ.get("UPDATE_GOLDENS") == "1":
        PAGE.write_text(made, "utf-8", newline="\n")

    assert made == PAGE.read_text("utf-8"), "stale: UPDATE_GOLDENS=1 rewrites it; review the difference like code"
