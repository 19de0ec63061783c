"""Doubles for tests of foreign databases: another process that writes to one, and ways to read it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from resolver_doubles import never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.problems import Unreadable
from sessionref.server.stores.sqlite import DatabaseCopies, DatabaseLimits, read_untouched
from sessionref.server.stores.sqlite_files import copy_database

__all__ = ("NO_COPIES", "OLD_NS", "Writer", "age", "count_copies", "read", "reason_of", "said")

PROGRAM = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
print("ready", flush=True)
for line in sys.stdin:
    database.execute(line).fetchall()
    print("done", flush=True)
database.close()
"""
OLD_NS = 1_000_000_000_000_000_001
NO_COPIES = DatabaseLimits(copy_bytes=0)


class Writer:
    """Another process that has a database open, as an agent has its own."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-c", PROGRAM, str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._wait()

    def do(self, *statements: str) -> None:
        """Let it execute statements, and wait until it has."""
        assert self._process.stdin is not None
        for statement in statements:
            self._process.stdin.write(f"{statement}\n")
            self._process.stdin.flush()
            self._wait()

    def close(self) -> None:
        """Let it close the database and end."""
        self._process.communicate(timeout=20)

    def kill(self) -> None:
        """Let it crash."""
        self._process.kill()
        self._process.communicate(timeout=20)

    def _wait(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline()


def said(connection: sqlite3.Connection) -> list[str]:
    """The rows of a database."""
    return [text for (text,) in connection.execute("SELECT text FROM said ORDER BY rowid")]


def read(path: Path, *, limits: DatabaseLimits | None = None, copies: DatabaseCopies | None = None) -> list[str]:
    """The rows of the database at a path, with copies of its own."""
    return read_untouched(path, said, never_cancelled, limits=limits, copies=copies or DatabaseCopies())


def reason_of(action: Callable[[], object]) -> ReadFailedReason:
    """Why something cannot be read."""
    with pytest.raises(Unreadable) as caught:
        action()
    return caught.value.reason


def age(path: Path) -> None:
    """Let a database have been written long ago."""
    for file in path.parent.iterdir():
        os.utime(file, ns=(OLD_NS, OLD_NS))


def count_copies(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The copies that are made from now on."""
    made: list[Path] = []

    def counted(path: Path, to: Path, check: Callable[[], None]) -> bool:
        made.append(to)
        return copy_database(path, to, check)

    monkeypatch.setattr("sessionref.server.stores.sqlite.copy_database", counted)
    return made
