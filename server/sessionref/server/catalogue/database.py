"""The catalogue on disk: a private SQLite file of lessons and saved captures that several servers may share.

Every row carries a checksum, and every failure (a damaged file, a lock, a full disk, another schema) is answered by
doing without: nothing here raises.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sessionref.server.store import Lesson

__all__ = ("CatalogueDatabase", "CatalogueFacts")

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

SCHEMA_VERSION: Final = 3
"""Of the tables and of what their values hold; another one is thrown away and made anew."""

LOCK_SECONDS: Final = 0.2
"""How long to wait for another process; a keystroke should not wait longer for a row that can be read again."""

TOUCH_SECONDS: Final = 3600
"""How exactly the last use of a saved capture is known; writing it down each time would make every read a write."""

MAX_STATE_SHARE: Final = 4
"""One saved capture may take this part of the size limit at most, so that it does not evict all others."""

_CACHE_TAG: Final = b"Signature: 8a477f597d28d172789f06886806bc55\n# This folder holds a cache; it may be deleted.\n"
_CHECKSUM_BYTES: Final = 16
_PRIMARY_CODE: Final = 0xFF
_PASSING_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_TOOBIG,
    }
)
"""What says nothing about the file itself: the next attempt may do better."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS lessons (
    store TEXT NOT NULL, key TEXT NOT NULL, lesson BLOB NOT NULL, checksum BLOB NOT NULL,
    PRIMARY KEY (store, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS captures (
    store TEXT NOT NULL, key TEXT NOT NULL, used INTEGER NOT NULL, size INTEGER NOT NULL,
    state BLOB NOT NULL, checksum BLOB NOT NULL,
    PRIMARY KEY (store, key)
);
CREATE INDEX IF NOT EXISTS captures_by_use ON captures (used);
"""


class CatalogueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the catalogue holds; sizes in bytes."""

    state: str
    file_bytes: int
    lessons: int
    captures: int
    capture_bytes: int
    max_bytes: int


class CatalogueDatabase:
    """Lessons and saved captures by store and key. Thread-safe; opened when first needed."""

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_broken = False

    def lessons(self, store: str) -> dict[str, Lesson]:
        """Everything that is known of a store's sessions, by key; what is damaged is removed."""
        damaged: list[tuple[str, str]] = []

        def read(connection: sqlite3.Connection) -> dict[str, Lesson]:
            found: dict[str, Lesson] = {}
            decoder = msgspec.msgpack.Decoder(Lesson)
            for key, data, checksum in connection.execute(
                "SELECT key, lesson, checksum FROM lessons WHERE store = ?", (store,)
            ):
                if checksum == _checksum(store, key, data):
                    try:
                        found[key] = decoder.decode(data)
                    except msgspec.DecodeError:
                        damaged.append((store, key))
                else:
                    damaged.append((store, key))
            return found

        found: dict[str, Lesson] = self._attempt(read, {})
        if damaged:
            self._attempt(lambda connection: connection.executemany(_DROP_LESSON, damaged), None)
        return found

    def save_lessons(self, store: str, lessons: Mapping[str, Lesson]) -> None:
        """Keep what was learnt; a key or a title with lone surrogates is not kept, and learnt again next time."""
        rows: list[tuple[str, str, bytes, bytes]] = []
        for key, lesson in filter(lambda learnt: _can_be_kept(learnt[0]), lessons.items()):
            with suppress(UnicodeEncodeError):
                data = msgspec.msgpack.encode(lesson)
                rows.append((store, key, data, _checksum(store, key, data)))
        if rows:
            self._attempt(lambda connection: connection.executemany(_PUT_LESSON, rows), None)

    def captured_keys(self, store: str) -> set[str]:
        """The keys of the sessions of a store for which a state is saved."""

        def read(connection: sqlite3.Connection) -> set[str]:
            return {key for (key,) in connection.execute("SELECT key FROM captures WHERE store = ?", (store,))}

        return self._attempt(read, set())

    def forget(self, store: str, keys: Iterable[str]) -> None:
        """Remove everything about sessions that are gone."""
        rows = [(store, key) for key in keys if _can_be_kept(key)]

        def remove(connection: sqlite3.Connection) -> None:
            connection.executemany(_DROP_LESSON, rows)
            connection.executemany("DELETE FROM captures WHERE store = ? AND key = ?", rows)

        if rows:
            self._attempt(remove, None)

    def capture_state(self, store: str, key: str) -> bytes | None:
        """The state that was saved for a session, if it is whole."""

        def read(connection: sqlite3.Connection) -> bytes | None:
            row = connection.execute(
                "SELECT state, checksum, used FROM captures WHERE store = ? AND key = ?", (store, key)
            ).fetchone()
            if row is None or row[1] != _checksum(store, key, row[0]):
                return None
            state: bytes = row[0]
            now = int(time.time())
            if now - row[2] > TOUCH_SECONDS:
                connection.execute("UPDATE captures SET used = ? WHERE store = ? AND key = ?", (now, store, key))
            return state

        return self._attempt(read, None)

    def save_capture_state(self, store: str, key: str, state: bytes) -> None:
        """Keep a session's state; the least recently used ones make room for it."""
        if len(state) * MAX_STATE_SHARE > self._max_bytes:
            return

        def write(connection: sqlite3.Connection) -> None:
            row = (store, key, int(time.time()), len(state), state, _checksum(store, key, state))
            connection.execute(_PUT_CAPTURE, row)
            self._evict(connection)

        self._attempt(write, None)

    def facts(self) -> CatalogueFacts:
        """What there is, for people."""

        def read(connection: sqlite3.Connection) -> tuple[int, int, int]:
            (lessons,) = connection.execute("SELECT count(*) FROM lessons").fetchone()
            captures, size = connection.execute("SELECT count(*), coalesce(sum(size), 0) FROM captures").fetchone()
            return lessons, captures, size

        exists = self._path.exists()
        found = self._attempt(read, None) if exists else None
        lessons, captures, capture_bytes = found or (0, 0, 0)
        size = 0
        for name in _file_names(self._path):
            with suppress(OSError):
                size += name.stat().st_size
        return CatalogueFacts(
            state="ok" if found is not None else "unusable" if exists else "absent",
            file_bytes=size,
            lessons=lessons,
            captures=captures,
            capture_bytes=capture_bytes,
            max_bytes=self._max_bytes,
        )

    def close(self) -> None:
        """Close the file; it may be used again."""
        with self._lock:
            self._close()

    def _attempt(self, action: Callable[[sqlite3.Connection], Result], otherwise: Result) -> Result:
        """Do something in one transaction, or do without; a damaged file is replaced once, and then given up."""
        with self._lock:
            for _ in range(2):
                if self._is_broken:
                    break
                try:
                    connection = self._connection or self._open()
                    with connection:
                        return action(connection)
                except (OSError, UnicodeEncodeError, OverflowError) as error:
                    logger.debug("the catalogue is not available: %s", type(error).__name__)
                    return otherwise
                except (sqlite3.Error, TypeError) as error:
                    if getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE in _PASSING_CODES:
                        logger.debug("the catalogue is not available: %s", type(error).__name__)
                        return otherwise
                    logger.warning("the catalogue is made anew: %s", type(error).__name__)
                    self._replace()
            return otherwise

    def _open(self) -> sqlite3.Connection:
        folder = self._path.parent
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Only a folder of our own is known to hold nothing but a cache.
            with suppress(FileExistsError), open(folder / "CACHEDIR.TAG", "xb") as tag:
                tag.write(_CACHE_TAG)
        # SQLite gives -wal and -shm the mode of the file itself, so it must be private before SQLite sees it.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(self._path, flags, 0o600)
        try:
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
        connection = sqlite3.connect(self._path, timeout=LOCK_SECONDS, check_same_thread=False)
        try:
            connection.execute("PRAGMA secure_delete = ON")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, SCHEMA_VERSION):
                raise sqlite3.DatabaseError("another schema")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            if version == 0:
                connection.executescript(_SCHEMA)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _replace(self) -> None:
        self._close()
        for name in _file_names(self._path):
            try:
                name.unlink(missing_ok=True)
            except OSError:
                self._is_broken = True

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _evict(self, connection: sqlite3.Connection) -> None:
        (size,) = connection.execute("SELECT coalesce(sum(size), 0) FROM captures").fetchone()
        oldest = connection.execute("SELECT store, key, size FROM captures ORDER BY used, rowid")
        while size > self._max_bytes and (row := oldest.fetchone()) is not None:
            connection.execute("DELETE FROM captures WHERE store = ? AND key = ?", row[:2])
            size -= row[2]


_PUT_LESSON: Final = "INSERT OR REPLACE INTO lessons (store, key, lesson, checksum) VALUES (?, ?, ?, ?)"
_DROP_LESSON: Final = "DELETE FROM lessons WHERE store = ? AND key = ?"
_PUT_CAPTURE: Final = (
    "INSERT OR REPLACE INTO captures (store, key, used, size, state, checksum) VALUES (?, ?, ?, ?, ?, ?)"
)


def _file_names(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]


def _can_be_kept(key: str) -> bool:
    """Whether a key is text: file names that are none are given with lone surrogates, which SQLite does not take."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checksum(store: str, key: str, data: bytes) -> bytes:
    digest = hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES)
    digest.update(f"\0{store}\0{key}".encode("utf-8", "surrogatepass"))
    return digest.digest()
