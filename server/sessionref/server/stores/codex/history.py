"""What comes before a Codex rollout: the parts of other rollouts that it goes on from.

A fork and a revert write only what is new, and name the rest by the id of a rollout and an offset into it. All of it is
read, or the session is refused: a fragment must not look like the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import CheckCancelled
from sessionref.server.stores.codex.records import CodexRecord, HistoryBase, base_of, check_header
from sessionref.server.stores.codex.rollouts import Rollout
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.folds import Log
from sessionref.server.stores.logs import LogStore
from sessionref.server.stores.problems import Unreadable, corrupt
from sessionref.server.stores.records import RecordScan, ScanCounts

__all__ = ("History", "HistoryIncomplete", "Inherited")

MAX_BASES: Final = 256
"""Rollouts that may come before one: somebody would have to revert a thread of reverts that often."""


class HistoryIncomplete(Unreadable):
    """What comes before a rollout cannot be had; `why` is for the log, and names nothing."""

    def __init__(self, why: str) -> None:
        super().__init__(ReadFailedReason.CORRUPT)
        self.why = why


class Inherited(NamedTuple):
    """The part of another rollout that comes before one, with the header of that rollout."""

    rollout: Rollout
    end: HistoryBase
    header: CodexRecord


class History:
    """Reads the rollouts of one store in their order."""

    def __init__(self, store: LogStore[CodexRecord], rollouts_of: Callable[[Folder, str], Sequence[Rollout]]) -> None:
        self._store = store
        self._rollouts_of = rollouts_of

    def header_of(self, home: Folder, log: Log, check: CheckCancelled) -> CodexRecord:
        """The first record of a log. Raises OSError, and Unreadable (corrupt, newer-format) if it is no header."""
        with self._store.open_log(home, log, check) as reading:
            line = next(reading.reader.blocks(), None)
            header = self._store.decoder.decode(reading.reader.open_line if line is None else line.rstrip(b"\n"))
        if header is None:
            raise corrupt()
        check_header(header)
        return header

    def before(self, home: Folder, base: HistoryBase | None, check: CheckCancelled) -> list[Inherited]:
        """What comes before a rollout with that base, from the oldest on.

        Raises HistoryIncomplete, and OSError or Unreadable where a rollout is there and may not be read.
        """
        found: list[Inherited] = []
        seen: set[str] = set()
        while base is not None:
            check()
            rollout_id = base.thread_id.lower()
            if rollout_id in seen:
                raise HistoryIncomplete("it goes on from itself")
            if len(seen) == MAX_BASES:
                raise HistoryIncomplete("too many rollouts come before it")
            seen.add(rollout_id)
            rollouts = self._rollouts_of(home, rollout_id)
            if len(rollouts) != 1:
                raise HistoryIncomplete("a rollout is there twice" if rollouts else "a rollout is missing")
            (rollout,) = rollouts
            try:
                header = self.header_of(home, rollout.log, check)
            except FileNotFoundError:
                raise HistoryIncomplete("a rollout is missing") from None
            found.append(Inherited(rollout, base, header))
            base = base_of(header)
        return found[::-1]

    def read(
        self,
        home: Folder,
        part: Inherited,
        feed: Callable[[CodexRecord], None],
        counts: ScanCounts,
        check: CheckCancelled,
    ) -> Generator[int]:
        """Feed the records of a part; yields the bytes of every block.

        Raises HistoryIncomplete, OSError, Unreadable.
        """
        ordinals_end, left = part.end.end_ordinal_exclusive, part.end.end_byte_offset
        if left < 0:
            raise HistoryIncomplete("it does not say how much of another rollout comes before it")

        next_ordinal, skipped = ordinals_end, counts.skipped

        def take(record: CodexRecord) -> None:
            nonlocal next_ordinal
            if ordinals_end is not None and record.ordinal is not None:
                if record.ordinal >= ordinals_end:
                    raise HistoryIncomplete("another rollout is not what it was")
                next_ordinal = record.ordinal + 1
            feed(record)

        scan = RecordScan(self._store.decoder, take, counts)
        with self._store.open_log(home, part.rollout.log, check) as reading:
            for block in reading.reader.blocks():
                if left == 0:
                    break
                # The offset is one of the lines, also where they are stored compressed.
                if len(block) > left and block[left - 1 : left] != b"\n":
                    raise HistoryIncomplete("another rollout is cut inside of a line")
                scan.feed(block[:left])
                left = max(0, left - len(block))
                yield len(block)
            if left and (len(reading.reader.open_line) != left or not scan.feed_open(reading.reader.open_line)):
                raise HistoryIncomplete("another rollout is shorter than it was")
        if next_ordinal != ordinals_end and counts.skipped == skipped:
            # The offset and the ordinal are two marks of one place.
            raise HistoryIncomplete("another rollout is not what it was")
