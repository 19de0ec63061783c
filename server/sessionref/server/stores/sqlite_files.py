"""The files of a foreign SQLite database: what they are at a moment, and a consistent private copy of them.

The database file is opened by SQLite alone, except to copy it: closing it here would give up the locks that another
thread holds on it through SQLite.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import CheckCancelled
from sessionref.server.stores.folders import Folder, OpenFile
from sessionref.server.stores.problems import Unreadable

__all__ = ("BeingWritten", "DatabaseFacts", "FileFacts", "copy_database", "facts_of", "has_shared_memory")

WAL_HEADER_BYTES: Final = 32
"""A log up to this length holds no page (sqlite.org/fileformat2.html section 4.1)."""

_GENERATION: Final = slice(12, 32)
"""Checkpoint number, salts and checksum: another one each time the log begins anew."""

_PIECE_BYTES: Final = 1024 * 1024
_SECOND: Final = 1_000_000_000
_COARSE_NANOSECONDS: Final = 2 * _SECOND
"""The grain of times on file systems that know whole seconds, or every other one, alone."""

_FINE_NANOSECONDS: Final = 20_000_000
"""More than the grain of times on all others, which is that of the system's clock."""

_HOT_JOURNAL: Final = bytes.fromhex("d9d505f920a163d7")
"""What a rollback journal begins with while it is needed (section 3)."""


class BeingWritten(Unreadable):
    """A database is being written in a way that only SQLite could undo, or somebody broke off doing so."""

    def __init__(self, written_ns: int) -> None:
        super().__init__(ReadFailedReason.IO)
        self.written_ns = written_ns
        """When something was last written for it, in Unix ns."""


class FileFacts(NamedTuple):
    """What changes whenever a file does."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class DatabaseFacts(NamedTuple):
    """What changes whenever a database does; `wal` is None where there is no log of writes, or none that matters."""

    database: FileFacts
    wal: FileFacts | None

    @property
    def size(self) -> int:
        """The bytes of both files."""
        return self.database.size + (0 if self.wal is None else self.wal.size)

    @property
    def modified_ns(self) -> int:
        """When the later of both was written."""
        return max(file.modified_ns for file in self if file is not None)

    def are_settled(self, at_ns: int) -> bool:
        """Whether no change from that time on (Unix ns) could leave the facts as they are."""
        is_coarse = all(file.modified_ns % _SECOND == 0 for file in self if file is not None)
        return self.modified_ns < at_ns - (_COARSE_NANOSECONDS if is_coarse else _FINE_NANOSECONDS)


def facts_of(path: Path) -> DatabaseFacts:
    """What a database's files are now; nothing is opened.

    Raises OSError where there is none, Unreadable (outside-root) where a file is none, and BeingWritten.
    """
    with Folder.root(path.parent) as folder:
        database = _plain(folder, path.name)
        wal = _if_there(folder, f"{path.name}-wal")
        journal = _if_there(folder, f"{path.name}-journal")
        if journal is not None and journal.size and _is_hot(folder, f"{path.name}-journal"):
            raise BeingWritten(max(journal.modified_ns, database.modified_ns))
        return DatabaseFacts(database, wal if wal is not None and wal.size > WAL_HEADER_BYTES else None)


def has_shared_memory(path: Path) -> bool:
    """Whether the file that the processes at work in a database share is there. Raises OSError, Unreadable."""
    with Folder.root(path.parent) as folder:
        return _if_there(folder, f"{path.name}-shm") is not None


def copy_database(path: Path, to: Path, check: CheckCancelled) -> bool:
    """Copy a database and its log of writes; false if the log began anew meanwhile, so that they do not fit together.

    Pages come into the database from its log alone, and stay in the log until it begins anew. So a log that is copied
    after the database holds every page that was written into it meanwhile, whoever was writing.

    Raises OSError, Unreadable, and what `check` raises.
    """
    with Folder.root(path.parent) as folder:
        try:
            with folder.file(f"{path.name}-wal") as wal:
                generation = _generation(wal)
            with folder.file(path.name) as database:
                _copy(database, to, check)
            with folder.file(f"{path.name}-wal") as wal:
                _copy(wal, to.with_name(f"{to.name}-wal"), check)
            with folder.file(f"{path.name}-wal") as wal:
                return bool(generation) and _generation(wal) == generation and _same(folder, path.name, database)
        except FileNotFoundError:
            return False


def _plain(folder: Folder, name: str) -> FileFacts:
    facts = folder.facts(name)
    if not stat.S_ISREG(facts.st_mode):
        raise Unreadable(ReadFailedReason.OUTSIDE_ROOT)
    return FileFacts(facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


def _if_there(folder: Folder, name: str) -> FileFacts | None:
    try:
        return _plain(folder, name)
    except FileNotFoundError:
        return None


def _is_hot(folder: Folder, name: str) -> bool:
    try:
        with folder.file(name) as journal:
            return os.read(journal.descriptor, len(_HOT_JOURNAL)) == _HOT_JOURNAL
    except FileNotFoundError:
        return False


def _generation(wal: OpenFile) -> bytes:
    return os.read(wal.descriptor, WAL_HEADER_BYTES)[_GENERATION]


def _same(folder: Folder, name: str, database: OpenFile) -> bool:
    facts = folder.facts(name)
    return (facts.st_dev, facts.st_ino) == (database.facts.st_dev, database.facts.st_ino)


def _copy(file: OpenFile, to: Path, check: CheckCancelled) -> None:
    left = file.facts.st_size
    with open(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600), "wb") as copy:
        while left > 0 and (piece := os.read(file.descriptor, min(left, _PIECE_BYTES))):
            check()
            copy.write(piece)
            left -= len(piece)
