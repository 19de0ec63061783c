"""One database of OpenCode's, read without touching it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from sessionref.server.store import CheckCancelled
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.opencode.sessions import Session
from sessionref.server.stores.opencode.tables import Tables
from sessionref.server.stores.problems import Unreadable, from_os_error
from sessionref.server.stores.sqlite import read_untouched
from sessionref.server.stores.sqlite_files import BeingWritten, DatabaseFacts, facts_of

__all__ = ("Database", "databases_in")

MAIN: Final = "opencode.db"
"""The database of released versions; others have a channel behind a hyphen."""

Result = TypeVar("Result")


class Database:
    """A database file. Thread-safe; the methods raise Unreadable, and what `check` raises."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._facts: DatabaseFacts | None = None
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


def databases_in(names: list[str]) -> list[str]:
    """Those of a folder's files that are databases, that of released versions first."""
    found = [name for name in names if name.startswith("opencode") and name.endswith(".db")]
    return sorted(found, key=lambda name: (name != MAIN, name))
