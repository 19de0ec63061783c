"""The names of Codex threads, which are not in their rollouts: in a database, or in an index of lines.

Both belong to all threads, so that what one thread's row depends on is its own name alone.
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from sessionref.server.store import CheckCancelled
from sessionref.server.stores.file_states import is_settled
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import Unreadable
from sessionref.server.stores.records import RecordDecoder, RecordScan
from sessionref.server.stores.sqlite import read_untouched

__all__ = ("ThreadNames",)

INDEX_NAME: Final = "session_index.jsonl"

INDEX_BYTES: Final = 16 * 1024 * 1024
"""The end of the index that is read: a line a name, the latest last; a hundred thousand renames fit."""

FRESH_REST_SECONDS: Final = 0.2
"""How long an index that has just changed is not read again if its size and time stay the same."""

REST: Final = 10
"""How many times as long as reading the database took it is not read again: it changes with every turn."""

_DATABASE: Final = re.compile(r"state_([0-9]{1,9})\.sqlite")


class _IndexLine(msgspec.Struct, frozen=True):
    id: str
    thread_name: str


class _Table(NamedTuple):
    """The names in one file, and what the file was when they were read."""

    facts: object
    """None if it must be read again, whatever it is then: it may have changed without a trace, or was not read."""

    names: Mapping[str, str]
    again_at: float = 0.0
    """Until then, as `time.monotonic` counts, the table is good enough."""


_EMPTY: Final = _Table(None, {})


class ThreadNames:
    """The names given to the threads of one home. Thread-safe: a table is replaced as a whole."""

    def __init__(self, home: Path, database_homes: Sequence[Path], limits: ReadingLimits) -> None:
        self._home = home
        self._database_homes = database_homes
        self._decoder = RecordDecoder(_IndexLine, limits)
        self._index = self._database = _EMPTY

    def name_of(self, thread_id: str) -> str | None:
        """The name of a thread as of the last look; that of the database wins."""
        return self._database.names.get(thread_id) or self._index.names.get(thread_id)

    def look(self, check: CheckCancelled) -> None:
        """Read again what has changed. What cannot be read keeps the names that it had; raises what `check` does."""
        # An index that cannot be read now may be in a moment.
        with suppress(OSError, Unreadable):
            self._index = self._indexed(self._index)
        if time.monotonic() >= self._database.again_at:
            self._database = self._stored(self._database, check)

    def _indexed(self, known: _Table) -> _Table:
        try:
            with Folder.root(self._home) as home, home.file(INDEX_NAME) as file:
                facts = _facts_of(file.facts)
                if facts == known.facts and time.monotonic() < known.again_at:
                    return known
                rest = math.inf if is_settled(file.facts.st_mtime_ns) else FRESH_REST_SECONDS
                start = max(0, file.facts.st_size - INDEX_BYTES)
                data = file.part(start, INDEX_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return _EMPTY
        names: dict[str, str] = {}

        def take(line: _IndexLine) -> None:
            if line.thread_name.strip():
                names[line.id] = line.thread_name

        scan = RecordScan(self._decoder, take)
        scan.feed(data.partition(b"\n")[2] if start else data)
        return _Table(facts, names, time.monotonic() + rest)

    def _stored(self, known: _Table, check: CheckCancelled) -> _Table:
        """The names in the newest database, which alone is in use."""
        newest = max(self._databases(), default=None)
        if newest is None:
            return _EMPTY
        _, path, facts, can_be_kept = newest
        if (path, facts) == known.facts:
            return known
        began = time.monotonic()
        table = _Table(None, known.names)
        with suppress(OSError, Unreadable):
            table = _Table((path, facts) if can_be_kept else None, read_untouched(path, _read_names, check))
        ended = time.monotonic()
        return table._replace(again_at=ended + REST * (ended - began))

    def _databases(self) -> Iterator[tuple[tuple[int, int], Path, list[tuple[int, int, int]], bool]]:
        """Every database by its generation and its last change, with its path, and what it and its log are."""
        for home in self._database_homes:
            try:
                found = [(int(match[1]), name) for name in os.listdir(home) if (match := _DATABASE.fullmatch(name))]
            except OSError:
                continue
            for generation, name in found:
                files = [facts for path in (home / name, home / f"{name}-wal") if (facts := _facts(path)) is not None]
                changed = max((file.st_mtime_ns for file in files), default=0)
                yield (generation, changed), home / name, [*map(_facts_of, files)], is_settled(changed)


def _facts_of(file: os.stat_result) -> tuple[int, int, int]:
    return file.st_ino, file.st_size, file.st_mtime_ns


def _facts(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _read_names(connection: sqlite3.Connection) -> dict[str, str]:
    """The names that are there; none where threads have none yet, or where a view poses as their table."""
    table = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'threads'"
    columns = {row[1] for row in connection.execute("PRAGMA table_info(threads)")}
    if connection.execute(table).fetchone() is None or not {"id", "name"} <= columns:
        return {}
    rows = connection.execute("SELECT id, name FROM threads WHERE name IS NOT NULL")
    return {id: name for id, name in rows if isinstance(id, str) and isinstance(name, str) and name.strip()}
