"""Points in time as agents write them, as Unix milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ("milliseconds", "milliseconds_of")

_FURTHEST: Final = 8_640_000_000_000_000
"""Milliseconds from 1970 to the last moment that JavaScript knows; it knows as many before."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def milliseconds(text: str | None) -> int | None:
    """Unix milliseconds of an ISO 8601 time, taken as UTC where it names no zone; None for anything else."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        return None


def milliseconds_of(nanoseconds: int) -> int:
    """Unix milliseconds of a file's time in ns, which somebody may have set to whatever they wanted."""
    return max(-_FURTHEST, min(nanoseconds // 1_000_000, _FURTHEST))
