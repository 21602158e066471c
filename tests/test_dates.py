"""Dates are found as templates write them, and told from dates that no clock can show today."""

from __future__ import annotations

from datetime import date

import pytest

from servecheck.read.dates import asks_for_today, dates, zones

_NOON = 1_796_040_000.0
"""30 November 2026, 12:00 UTC."""
_HOUR = 3600.0


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-30",
        "2026/11/30",
        "30 November 2026",
        "30 Nov 2026",
        "30. November 2026",
        "30-Nov-2026",
        "November 30, 2026",
        "Nov 30 2026",
        "November 30th, 2026",
        "2026年11月30日",
        "30.11.2026",
        "11/30/2026",
    ],
)
def test_a_date_is_found_as_templates_write_it(written: str) -> None:
    found = dates(f"Current date: {written}\nReasoning: medium")

    assert [(each.text, each.days) for each in found] == [(written, frozenset({date(2026, 11, 30)}))]


def test_of_two_orders_both_are_possible() -> None:
    (found,) = dates("Today is 04/05/2026.")

    assert found.days == frozenset({date(2026, 4, 5), date(2026, 5, 4)})


@pytest.mark.parametrize(
    "text",
    [
        "Cutting Knowledge Date: December 2023",
        "version 2026.113.7",
        "call 120-11-20267",
        "the 30 Novels of 2026",
        "2026-13-40",
        "in May 2026 and in 2027",
    ],
)
def test_what_names_no_day_is_no_date(text: str) -> None:
    assert dates(text) == ()


def test_dates_come_in_the_order_of_the_text() -> None:
    found = dates("Knowledge: 2024-06-01. Today Date: 30 Nov 2026.")

    assert [each.text for each in found] == ["2024-06-01", "30 Nov 2026"]


@pytest.mark.parametrize(
    ("written", "possible"),
    [
        ("28 Nov 2026", None),
        ("29 Nov 2026", (-36 * _HOUR, -12 * _HOUR)),
        ("30 Nov 2026", (-12 * _HOUR, 12 * _HOUR)),
        ("1 Dec 2026", (12 * _HOUR, 36 * _HOUR)),
        ("2 Dec 2026", (36 * _HOUR, 38 * _HOUR)),
        ("3 Dec 2026", None),
        ("26 Jul 2024", None),
    ],
)
def test_a_date_is_todays_where_some_clock_shows_it(written: str, possible: tuple[float, float] | None) -> None:
    (found,) = dates(written)

    assert zones(found, _NOON) == possible


def test_a_template_says_that_it_asks_for_the_day() -> None:
    assert asks_for_today("{{- 'Current date: ' + strftime_now('%Y-%m-%d') }}")
    assert not asks_for_today("{%- set date_string = '26 Jul 2024' %}")
