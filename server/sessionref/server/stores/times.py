"""Points in time as agents write them, as Unix milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ("milliseconds",)

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
