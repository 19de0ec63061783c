"""The earlier events that an event cites: single positions and ranges, never expanded (dsh-format section 2.3)."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import msgspec

from sessionref.server.stores.dsh.header import safe_integer
from sessionref.server.stores.problems import corrupt

__all__ = ("Citations",)

_Number = int | float
_ENTRIES: Final = msgspec.json.Decoder(list[_Number | list[_Number]])


class Citations:
    """A set of positions. Raises Unreadable, corrupt, for anything but a list of positions and ascending pairs."""

    def __init__(self, source_event_seqs: msgspec.Raw) -> None:
        try:
            ranges = sorted(map(_as_range, _ENTRIES.decode(source_event_seqs)))
        except msgspec.DecodeError:
            raise corrupt() from None
        self._starts = [start for start, _ in ranges]
        self._ends: list[int] = []
        furthest = -1
        for _, end in ranges:
            # Ranges may overlap: an earlier one may reach further than its neighbour.
            furthest = max(furthest, end)
            self._ends.append(furthest)

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self._starts, seq) - 1
        return at >= 0 and seq <= self._ends[at]


def _as_range(entry: _Number | list[_Number]) -> tuple[int, int]:
    numbers = entry if isinstance(entry, list) else [entry, entry]
    start, end = map(safe_integer, numbers) if len(numbers) == 2 else (None, None)
    if start is None or end is None or not 0 <= start <= end:
        raise corrupt()
    return start, end
