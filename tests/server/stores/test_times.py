"""Times as agents write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionref.server.stores.times import milliseconds

NEW_YEAR = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


@pytest.mark.parametrize(
    ("text", "since_new_year"),
    [
        ("2026-01-01T00:00:00.123Z", 123),
        ("2026-01-01T00:00:00Z", 0),
        ("2026-01-01T00:00:00", 0),
        ("2026-01-01 00:00:01", 1000),
        ("2026-01-01T01:00:00+01:00", 0),
        ("2025-12-31T18:30:00.500-05:30", 500),
        ("2026-01-01T00:00:00.123456789Z", 123),
        ("2026-01-01T00:00:00.999999Z", 999),
        ("20260101T000000Z", 0),
        ("2026-01-01", 0),
    ],
)
def test_an_iso_time_is_milliseconds_of_the_epoch(text: str, since_new_year: int) -> None:
    assert milliseconds(text) == NEW_YEAR + since_new_year


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", " ", "yesterday", "1767225600000", "12", "2026-13-01T00:00:00Z", "2026-01-01T25:00:00Z", "Z", "T"),
        *("2026-02-30", "2026-01-01T00:00:00Zx", "half \ud800", "0" * 100_000, "-2026-01-01T00:00:00Z"),
    ],
)
def test_anything_else_is_no_time(text: str | None) -> None:
    assert milliseconds(text) is None


def test_times_before_the_epoch_and_at_the_ends_of_the_calendar_are_times_or_none() -> None:
    assert milliseconds("1969-12-31T23:59:59.999Z") == -1
    for text in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"):
        assert isinstance(milliseconds(text), int)


zones = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=zones))
def test_every_moment_is_what_it_was_rounded_down(moment: datetime) -> None:
    found = milliseconds(moment.isoformat())

    assert found is not None
    assert timedelta(0) <= moment - datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=found)
    assert moment - datetime(1970, 1, 1, tzinfo=UTC) < timedelta(milliseconds=found + 1)


@given(st.text(st.characters(codec=None)))
def test_no_text_makes_it_fail(text: str) -> None:
    assert isinstance(milliseconds(text), int | None)
