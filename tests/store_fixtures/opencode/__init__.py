"""A data folder of OpenCode: the tables of 1.18."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sessionref.server.store import CataloguedStore
from sessionref.server.stores.opencode import open_store
from store_fixtures import CREATED_AT, USUAL_COSTS, Damage, Traits, Turn
from store_fixtures.logs import iso

__all__ = ("TABLES", "Fixture", "connected")

TABLES = """
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
"""


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A database as the agent has it open, in WAL mode; committed and closed at the end."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")


class Fixture:
    """The data folder, with one database."""

    kind = "opencode"
    traits = Traits(costs={**USUAL_COSTS, "torn-tail": "impossible"}, has_own_files=False)

    def __init__(self, home: Path) -> None:
        self.home = home
        self.database = home / "opencode.db"
        self._messages: dict[str, int] = {}

    def open(self) -> CataloguedStore:
        """A store of the folder."""
        store = open_store(self.home)
        assert isinstance(store, CataloguedStore)
        return store

    def session_id(self, name: str) -> str:
        """The kind and the native id."""
        return f"{self.kind}:{name}"

    def name(self, number: int) -> str:
        """Times that count down, and a random end, as letters."""
        return f"ses_{0xFFFF_FFFF - number:012x}ffeLegHxkYfmR0WwT"

    def create(self) -> None:
        """A database without a session."""
        self.home.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.database)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(TABLES)

    def write(
        self,
        name: str,
        talk: Sequence[Turn],
        *,
        title: str | None = None,
        cwd: str | None = "/work/here",
        created_at: int = CREATED_AT,
    ) -> Path:
        """A row, and one for each message and each part."""
        self._put(name, talk, title or f"New session - {iso(created_at)}", cwd or "", created_at, None)
        return self.database

    def append(self, name: str, talk: Sequence[Turn]) -> None:
        """Add messages, and note the time in the session."""
        with connected(self.database) as connection:
            self._add(connection, name, talk)

    def write_subagent(self, name: str, parent: str, talk: Sequence[Turn]) -> str:
        """A session with a parent."""
        self._put(name, talk, "Look into it (@general subagent)", "/work/here", CREATED_AT, parent)
        return name

    def write_newer(self, name: str) -> None:
        """A database of its own, with tables of a later generation."""
        with connected(self.home / "opencode-next.db") as connection:
            connection.execute("CREATE TABLE session_v3 (id TEXT PRIMARY KEY)")
            connection.execute("INSERT INTO session_v3 VALUES (?)", (name,))

    def remove(self, name: str) -> None:
        """Delete a session; its messages and parts go with it."""
        with connected(self.database) as connection:
            connection.execute("DELETE FROM session WHERE id = ?", (name,))

    def damage(self, name: str, damage: Damage) -> None:
        """Damage the JSON of a turn's part."""
        at = {"corrupt-record": 1, "nul-block": 2, "invalid-utf8": 0, "lone-surrogate": 0}[damage]
        with connected(self.database) as connection:
            select = "SELECT id, CAST(data AS BLOB) FROM part WHERE session_id = ? ORDER BY id"
            part_id, data = connection.execute(select, (name,)).fetchall()[at]
            if damage == "corrupt-record":
                data = data[: len(data) // 2]
            elif damage == "nul-block":
                data = b"\0" * 512 + data
            else:
                said = b"\xff" if damage == "invalid-utf8" else b"\\ud800"
                data = data.replace(b'"text": "', b'"text": "' + said)
            connection.execute("UPDATE part SET data = CAST(? AS TEXT) WHERE id = ?", (data, part_id))

    def _put(
        self, name: str, talk: Sequence[Turn], title: str, directory: str, created_at: int, parent: str | None
    ) -> None:
        self._messages[name] = 0
        with connected(self.database) as connection:
            connection.execute("DELETE FROM session WHERE id = ?", (name,))
            connection.execute(
                "INSERT INTO session (id, project_id, parent_id, slug, directory, title, version, time_created,"
                " time_updated) VALUES (?, 'global', ?, 'quiet-river', ?, ?, '1.18.33', ?, ?)",
                (name, parent, directory, title, created_at, created_at),
            )
            self._add(connection, name, talk)

    def _add(self, connection: sqlite3.Connection, name: str, talk: Sequence[Turn]) -> None:
        for role, text in talk:
            self._messages[name] += 1
            now = CREATED_AT + self._messages[name]
            message_id = f"msg_{self._messages[name]:08x}{name}"
            message: dict[str, Any] = {"role": role, "time": {"created": now}, "agent": "build"}
            message |= {"summary": {"diffs": []}} if role == "user" else {"finish": "stop", "cost": 0}
            rows = [
                (f"prt_{self._messages[name]:08x}{name}", {"type": "text", "text": text}),
                (f"prt_{self._messages[name]:08x}{name}z", {"type": "step-finish", "reason": "stop"}),
            ]
            connection.execute(
                "INSERT INTO message VALUES (?, ?, ?, ?, ?)", (message_id, name, now, now, json.dumps(message))
            )
            for part_id, part in rows if role == "assistant" else rows[:1]:
                data = json.dumps(part, ensure_ascii=False)
                connection.execute(
                    "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", (part_id, message_id, name, now, now, data)
                )
        connection.execute(
            "UPDATE session SET time_updated = max(time_updated, ?) WHERE id = ?",
            (CREATED_AT + self._messages[name], name),
        )
