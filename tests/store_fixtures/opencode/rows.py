"""Rows and files of OpenCode's, written one by one: the tables of 1.18 and of 2.0, and the JSON files before them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from store_fixtures import CREATED_AT

__all__ = ("V1", "V2", "connected", "put_file", "put_message", "put_part", "put_row", "put_session", "text_of")

V1 = """
CREATE TABLE IF NOT EXISTS session (
    id TEXT PRIMARY KEY, project_id TEXT NOT NULL, parent_id TEXT, slug TEXT NOT NULL, directory TEXT NOT NULL,
    title TEXT NOT NULL, version TEXT NOT NULL, revert TEXT, time_created INTEGER NOT NULL,
    time_updated INTEGER NOT NULL, time_archived INTEGER
);
CREATE TABLE IF NOT EXISTS message (
    id TEXT PRIMARY KEY, session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, data TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS part (
    id TEXT PRIMARY KEY, message_id TEXT NOT NULL REFERENCES message (id) ON DELETE CASCADE,
    session_id TEXT NOT NULL, time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, data TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS session_message (
    id TEXT PRIMARY KEY, session_id TEXT NOT NULL, type TEXT NOT NULL, seq INTEGER NOT NULL,
    time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, data TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS message_session_time_created_id_idx ON message (session_id, time_created, id);
CREATE INDEX IF NOT EXISTS part_message_id_id_idx ON part (message_id, id);
CREATE INDEX IF NOT EXISTS part_session_idx ON part (session_id);
CREATE UNIQUE INDEX IF NOT EXISTS session_message_session_seq_idx ON session_message (session_id, seq);
"""

V2 = f"""{V1}
CREATE TABLE IF NOT EXISTS session_v2 (
    id TEXT PRIMARY KEY, project_id TEXT NOT NULL, parent_id TEXT, fork_session_id TEXT, fork_boundary TEXT,
    slug TEXT NOT NULL, directory TEXT NOT NULL, title TEXT, version TEXT NOT NULL, revert TEXT,
    time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, time_archived INTEGER
);
"""


@contextmanager
def connected(path: Path, tables: str = "") -> Generator[sqlite3.Connection]:
    """A database as the agent has it open, in WAL mode; committed and closed at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.executescript(tables)
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")


def put_session(connection: sqlite3.Connection, native_id: str, *, table: str = "session", **columns: Any) -> None:
    """A session's row; what is not given is as in any."""
    usual = {"project_id": "global", "slug": "quiet-river", "directory": "/srv/here", "title": "A title"}
    times = {"version": "1.18.33", "time_created": CREATED_AT, "time_updated": CREATED_AT}
    row = {"id": native_id, **usual, **times, **columns}
    places = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values()))


def put_message(
    connection: sqlite3.Connection,
    message_id: str,
    native_id: str,
    role: str,
    *texts: str,
    at: int | None = None,
    **members: Any,
) -> None:
    """A message of 1.x in the order of the calls, and a part for each text."""
    (number,) = connection.execute("SELECT count(*) FROM message").fetchone()
    now = CREATED_AT + number if at is None else at
    data = json.dumps({"role": role, "time": {"created": now}, "agent": "build", **members})
    connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", (message_id, native_id, now, now, data))
    for text in texts:
        put_part(connection, message_id, native_id, text_of(text))


def put_part(
    connection: sqlite3.Connection, message_id: str, native_id: str, part: Any, *, part_id: str | None = None
) -> None:
    """A part of a message, in the order of the calls unless its id says another; text is taken for JSON."""
    (number,) = connection.execute("SELECT count(*) FROM part").fetchone()
    data = part if isinstance(part, str | bytes) else json.dumps(part, ensure_ascii=False)
    row = (part_id or f"prt_{number:08x}", message_id, native_id, CREATED_AT, CREATED_AT, data)
    connection.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT))", row)


def put_row(
    connection: sqlite3.Connection, message_id: str, native_id: str, kind: str, *, seq: int | None = None, **data: Any
) -> None:
    """A message of 2.x, in the order of the calls unless its number says another."""
    (number,) = connection.execute("SELECT count(*) FROM session_message").fetchone()
    members = json.dumps({"time": {"created": CREATED_AT}, **data})
    row = (message_id, native_id, kind, number if seq is None else seq, CREATED_AT, CREATED_AT, members)
    connection.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def put_file(home: Path, place: str, value: Any) -> Path:
    """A file below `storage`; text is taken for its content."""
    path = home / "storage" / f"{place}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=2), encoding="utf-8")
    return path


def text_of(text: str, **members: Any) -> dict[str, Any]:
    """A part that is text."""
    return {"type": "text", "text": text, **members}
