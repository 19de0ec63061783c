"""One database of OpenCode's, read without touching it."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from sessionref.server.store import CheckCancelled, Lesson
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.opencode.sessions import Session, session_stamp
from sessionref.server.stores.opencode.tables import Tables
from sessionref.server.stores.problems import Unreadable, from_os_error
from sessionref.server.stores.sqlite import read_untouched
from sessionref.server.stores.sqlite_files import BeingWritten, DatabaseFacts, facts_of

__all__ = ("Database", "databases_in")

MAIN: Final = "opencode.db"
"""The database of released versions; others have a channel behind a hyphen."""

_AHEAD_SECONDS: Final = 0.05
"""How long more is learnt than was asked for: about as long as it takes to copy a database."""

_MAX_AHEAD: Final = 10_000
"""Rows learnt ahead that are kept for whoever asks: as many as the sessions of a heavy user, a few megabytes."""

Result = TypeVar("Result")


class Database:
    """A database file. Thread-safe; the methods raise Unreadable, and what `check` raises."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._facts: DatabaseFacts | None = None
        self._ahead: dict[str, Lesson] = {}
        self.latest: Mapping[str, Session] = {}
        """The sessions by their ids, as they were seen last."""

    def changed_ns(self) -> int:
        """When the file or its log of writes was last written; 0 if that cannot be told."""
        try:
            return facts_of(self.path).modified_ns
        except (OSError, Unreadable):
            return 0

    def read(self, action: Callable[[Tables], Result], limits: ReadingLimits, check: CheckCancelled) -> Result:
        """What an action makes of one state of the tables; it may be called again, for another state."""
        return read_untouched(self.path, lambda connection: action(Tables(connection, limits, check)), check)

    def learn(
        self,
        native_id: str,
        learn: Callable[[Tables, str], Lesson | None],
        limits: ReadingLimits,
        check: CheckCancelled,
        *,
        ahead: bool,
    ) -> Lesson | None:
        """What `learn` makes of a session; if told to, of others as well, for whoever asks for those next.

        Titles are asked for one by one, and while its agent is at work each look may mean a copy of the database.
        """
        session = self.latest.get(native_id)
        with self._lock:
            known = self._ahead.pop(native_id, None)
        if known is not None and session is not None and known.stamp == session_stamp(session):
            return known
        if not ahead:
            return self.read(lambda tables: learn(tables, native_id), limits, check)

        def learn_more(tables: Tables) -> tuple[Lesson | None, dict[str, Lesson]]:
            return learn(tables, native_id), self._learn_ahead(tables, native_id, learn)

        lesson, others = self.read(learn_more, limits, check)
        with self._lock:
            self._ahead = others if len(self._ahead) > _MAX_AHEAD else self._ahead | others
        return lesson

    def sessions(self, limits: ReadingLimits, check: CheckCancelled) -> Mapping[str, Session]:
        """All sessions by their ids, from memory while the files are as they were."""
        now = time.time_ns()
        try:
            facts = facts_of(self.path)
        except BeingWritten:
            # It may be over in a moment.
            facts = None
        except OSError as error:
            raise from_os_error(error) from error
        with self._lock:
            if facts is not None and self._facts == facts:
                return self.latest
        found = self.read(Tables.sessions, limits, check)
        with self._lock:
            self._facts, self.latest = facts if facts is not None and facts.are_settled(now) else None, found
        return found

    def _learn_ahead(
        self, tables: Tables, native_id: str, learn: Callable[[Tables, str], Lesson | None]
    ) -> dict[str, Lesson]:
        """Those that are older than a session, the newest of them first, as long as that takes next to no time."""
        deadline = time.monotonic() + _AHEAD_SECONDS
        latest = self.latest
        order = sorted(latest, key=lambda other: latest[other].changed_at, reverse=True)
        found: dict[str, Lesson] = {}
        for other in order[order.index(native_id) + 1 :] if native_id in latest else ():
            if time.monotonic() >= deadline:
                break
            if other in self._ahead:
                continue
            try:
                lesson = learn(tables, other)
            except (Unreadable, sqlite3.Error):
                # It is said of that session when it is asked for.
                break
            if lesson is not None:
                found[other] = lesson
        return found


def databases_in(names: list[str]) -> list[str]:
    """Those of a folder's files that are databases, that of released versions first."""
    found = [name for name in names if name.startswith("opencode") and name.endswith(".db")]
    return sorted(found, key=lambda name: (name != MAIN, name))
