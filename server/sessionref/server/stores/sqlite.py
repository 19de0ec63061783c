"""Reading a foreign SQLite database without touching it: nothing appears, vanishes or changes beside it.

SQLite itself would: opening a database that another program closed makes two files and leaves them there, and with
`immutable` it reads a live one wrongly. So a database without a live log of writes is read as immutable, and again if
it changed meanwhile; one with such a log from a private copy of both; and one that is too large for that together
with the program that has it open, through SQLite's own read-only mode (agent-stores section 2, rule 9).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.private_folders import PrivateFolder
from sessionref.server.store import CheckCancelled
from sessionref.server.stores.problems import Unreadable, corrupt, from_os_error, too_large
from sessionref.server.stores.sqlite_files import (
    BeingWritten,
    DatabaseFacts,
    copy_database,
    facts_of,
    has_shared_memory,
)

__all__ = ("DatabaseCopies", "DatabaseLimits", "read_untouched")

Result = TypeVar("Result")

_STEPS: Final = 4096
"""Instructions of SQLite's machine between two looks at the cancellation: well below a millisecond, as a rule."""

_PRIMARY_CODE: Final = 0xFF
_CORRUPT: Final = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR}
)
_PERMISSION: Final = frozenset({sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH})
_SECOND: Final = 1_000_000_000
_WRITING_SECONDS: Final = 0.002
"""Between two looks, in a worker thread, at a database that is being written in place: less than that takes."""

_PASSING: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL})
"""Another process begins or ends its work in the database just now."""

_SETTINGS: Final = (
    "PRAGMA query_only = ON",
    # A function that a view or an index of the file calls has no business here.
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    # A mapped file that shrinks would end this process.
    "PRAGMA mmap_size = 0",
    # What people said is never written to a file by sorting it.
    "PRAGMA temp_store = MEMORY",
)


class DatabaseLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a foreign database is copied, and read at once."""

    copy_bytes: int = 64 * 1024 * 1024
    """Bytes of a database and its log of writes that are copied: more takes longer than a keystroke may."""

    value_bytes: int = 256 * 1024 * 1024
    """The largest value or row that SQLite may put together."""

    attempts: int = 5
    """How often reading begins anew at least where the database changes meanwhile."""

    seconds: float = 2.0
    """How long it does so: somebody who writes without a pause leaves a gap within that, where reading is quick."""


class DatabaseCopies:
    """Private copies of live databases, kept while those do not change. Thread-safe; removed when the process ends."""

    MAX_COPIES: Final = 4
    """Databases of one user that are live at a time, and small enough to be copied."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._copies: OrderedDict[Path, _Copy] = OrderedDict()

    @contextmanager
    def copy_of(self, path: Path, facts: DatabaseFacts, check: CheckCancelled) -> Generator[Path | None]:
        """The copy of a database that has these facts; None if it is no consistent one. Valid within the `with`.

        Raises OSError, Unreadable, and what `check` raises.
        """
        with self._lock:
            copy = self._copies.get(path)
            if copy is not None and (copy.facts != facts or not copy.is_there()):
                del self._copies[path]
                self._remove_unused(path, copy)
                copy = None
            if copy is None:
                copy = _Copy(facts)
                try:
                    is_consistent = copy_database(path, copy.path, check)
                except BaseException:
                    copy.remove()
                    raise
                if not is_consistent:
                    copy.remove()
                    copy = None
                elif facts.are_settled(copy.begun_ns):
                    self._copies[path] = copy
            if copy is not None:
                copy.readers += 1
                if path in self._copies:
                    self._copies.move_to_end(path)
            while len(self._copies) > self.MAX_COPIES:
                self._remove_unused(*self._copies.popitem(last=False))
        try:
            yield None if copy is None else copy.path
        finally:
            with self._lock:
                if copy is not None:
                    copy.readers -= 1
                    self._remove_unused(path, copy)

    def _remove_unused(self, path: Path, copy: _Copy) -> None:
        if not copy.readers and self._copies.get(path) is not copy:
            copy.remove()


class _Copy:
    """A copy in a folder of its own, which nobody else may look into."""

    def __init__(self, facts: DatabaseFacts) -> None:
        self.facts = facts
        self.begun_ns = time.time_ns()
        self.readers = 0
        try:
            folder = PrivateFolder()
        except OSError:
            # Whatever is wrong there says nothing about the database.
            raise Unreadable(ReadFailedReason.IO) from None
        self.remove = folder.remove
        """Removes it from the disk, which is done when the process ends at the latest."""
        self.path = folder.path / "copy.db"

    def is_there(self) -> bool:
        """Whether nobody has tidied it away."""
        return self.path.exists() and self.path.with_name(f"{self.path.name}-wal").exists()


_COPIES: Final = DatabaseCopies()


def read_untouched(
    path: Path,
    read: Callable[[sqlite3.Connection], Result],
    check: CheckCancelled,
    *,
    limits: DatabaseLimits | None = None,
    copies: DatabaseCopies = _COPIES,
) -> Result:
    """What `read` makes of one consistent state of a database; it is called again if that state did not hold.

    `read` gets a connection that can only read, in a transaction, and must leave nothing half done when it raises.
    Text that is no UTF-8 comes with replacement characters. `check` is called while SQLite works.

    Raises Unreadable: not-found, permission, outside-root where the file is none, corrupt, too-large, io for a
    database that is written all the time; and what `read` and `check` raise.
    """
    limits = limits or DatabaseLimits()
    path = path.absolute()
    try:
        deadline = time.monotonic() + limits.seconds
        for attempt in count(1):
            if attempt > limits.attempts and time.monotonic() >= deadline:
                break
            check()
            try:
                facts = facts_of(path)
            except BeingWritten as writing:
                if time.time_ns() - writing.written_ns > limits.seconds * _SECOND:
                    raise
                time.sleep(_WRITING_SECONDS)
                continue
            if facts.wal is None:
                try:
                    result = _read(path, "immutable=1", read, check, limits)
                except (Unreadable, sqlite3.Error):
                    if _is_as_it_was(path, facts):
                        raise
                else:
                    if _is_as_it_was(path, facts):
                        return result
                continue
            if facts.size <= limits.copy_bytes:
                with copies.copy_of(path, facts, check) as copy:
                    if copy is not None:
                        return _read(copy, "mode=ro", read, check, limits)
            elif has_shared_memory(path):
                try:
                    # The shared memory holds what all processes at work know: it is read, and not written either.
                    return _read(path, "mode=ro&readonly_shm=1", read, check, limits)
                except sqlite3.Error as error:
                    if _code(error) not in _PASSING:
                        raise
            else:
                raise too_large(limits.copy_bytes)
    except sqlite3.Error as error:
        raise _unreadable(error, path, limits) from error
    except OSError as error:
        raise from_os_error(error) from error
    raise Unreadable(ReadFailedReason.IO)


def _is_as_it_was(path: Path, facts: DatabaseFacts) -> bool:
    try:
        return facts_of(path).database == facts.database
    except BeingWritten:
        return False


def _read(
    path: Path,
    mode: str,
    read: Callable[[sqlite3.Connection], Result],
    check: CheckCancelled,
    limits: DatabaseLimits,
) -> Result:
    raised: list[BaseException] = []

    def must_stop() -> int:
        # What a callback raises never gets past SQLite.
        try:
            check()
        except BaseException as error:
            raised.append(error)
            return 1
        return 0

    with closing(sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True, timeout=0, isolation_level=None)) as connection:
        try:
            connection.set_progress_handler(must_stop, _STEPS)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.value_bytes)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.text_factory = _text
            for setting in _SETTINGS:
                connection.execute(setting)
            connection.execute("BEGIN")
            return read(connection)
        except sqlite3.Error:
            if raised:
                raise raised[0] from None
            raise


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY_CODE


def _unreadable(error: sqlite3.Error, path: Path, limits: DatabaseLimits) -> Unreadable:
    code = _code(error)
    if code == sqlite3.SQLITE_TOOBIG:
        return too_large(limits.value_bytes)
    if code in _CORRUPT:
        return corrupt()
    if code in _PERMISSION or (code == sqlite3.SQLITE_CANTOPEN and not os.access(path, os.R_OK)):
        return Unreadable(ReadFailedReason.PERMISSION)
    return Unreadable(ReadFailedReason.IO)
