"""Dates in a text, as templates write them, and whether one can be today's; reads no times of day and no weekdays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import NamedTuple

__all__ = ["Written", "asks_for_today", "dates", "zones"]

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAME = r"(?P<name>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"(?<!\d)(?P<year>(?:19|20)\d\d)[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})(?!\d)",
        rf"(?<!\d)(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)?[ -]{_NAME},?[ -](?P<year>(?:19|20)\d\d)(?!\d)",
        rf"(?<![a-z]){_NAME} (?P<day>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<year>(?:19|20)\d\d)(?!\d)",
        r"(?<!\d)(?P<year>(?:19|20)\d\d)年(?P<month>\d{1,2})月(?P<day>\d{1,2})日",
        r"(?<!\d)(?P<first>\d{1,2})[./-](?P<second>\d{1,2})[./-](?P<year>(?:19|20)\d\d)(?!\d)",
    )
)
_DAY = 86_400.0
_WEST, _EAST = -12 * 3600.0 - _DAY, 14 * 3600.0 + _DAY
"""How far clocks on the wall are from UTC, in seconds, where they are wrong by a day at most."""


class Written(NamedTuple):
    """A date as it stands in a text, with the days that it can mean: ``04/05/2026`` means two."""

    text: str
    days: frozenset[date]


def dates(text: str) -> tuple[Written, ...]:
    """Return the dates of a text in its order; a month with a year and no day is none."""
    found = [(match.start(), match) for form in _FORMS for match in form.finditer(text)]
    written = (Written(match[0], frozenset(_days(match))) for _, match in sorted(found, key=lambda each: each[0]))
    return tuple(each for each in written if each.days)


def _days(match: re.Match[str]) -> Iterator[date]:
    parts = match.groupdict()
    year = int(parts["year"])
    if parts.get("name"):
        orders = [(_MONTHS.index(parts["name"].lower()) + 1, int(parts["day"]))]
    elif parts.get("first"):
        first, second = int(parts["first"]), int(parts["second"])
        orders = [(first, second), (second, first)]
    else:
        orders = [(int(parts["month"]), int(parts["day"]))]
    for month, day in orders:
        try:
            yield date(year, month, day)
        except ValueError:  # the thirteenth month of the other order
            continue


def zones(written: Written, at: float) -> tuple[float, float] | None:
    """Return how far from UTC a clock is that shows this date at a moment, from and below, in seconds.

    ``at`` counts seconds since 1970. ``None`` where no clock has that date then, even one that is a day wrong: it is
    not today's.
    """
    for day in sorted(written.days):
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
        low, high = max(_WEST, midnight - at), min(_EAST, midnight + _DAY - at)
        if low < high:
            return low, high
    return None


def asks_for_today(template: str) -> bool:
    """Tell whether the source of a chat template asks for the date of the day.

    Source: https://huggingface.co/docs/transformers/chat_templating_writing
    """
    return "strftime_now" in template
