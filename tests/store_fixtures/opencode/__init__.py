"""A data folder of OpenCode: the tables of 1.18."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sessionref.server.store import CataloguedStore
from store_fixtures import CREATED_AT, USUAL_COSTS, Damage, Traits, Turn, open_named
from store_fixtures.logs import iso
from store_fixtures.opencode.rows import V1, connected, put_message, put_part, put_session, text_of

__all__ = ("Fixture",)


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
        return open_named(self.kind, self.home)

    def session_id(self, name: str) -> str:
        """The kind and the native id."""
        return f"{self.kind}:{name}"

    def name(self, number: int) -> str:
        """Times that count down, and a random end, as letters."""
        return f"ses_{0xFFFF_FFFF - number:012x}ffeLegHxkYfmR0WwT"

    def create(self) -> None:
        """A database without a session."""
        with connected(self.database, V1):
            pass

    def write(
        self,
        name: str,
        talk: Sequence[Turn],
        *,
        title: str | None = None,
        cwd: str | None = "/srv/here",
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
        self._put(name, talk, "Look into it (@general subagent)", "/srv/here", CREATED_AT, parent)
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
            select = """SELECT id, CAST(data AS BLOB) FROM part
                WHERE session_id = ? AND json_extract(data, '$.type') = 'text' ORDER BY id"""
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
            put_session(
                connection,
                name,
                title=title,
                directory=directory,
                parent_id=parent,
                time_created=created_at,
                time_updated=created_at,
            )
            self._add(connection, name, talk)

    def _add(self, connection: sqlite3.Connection, name: str, talk: Sequence[Turn]) -> None:
        for role, text in talk:
            self._messages[name] += 1
            now = CREATED_AT + self._messages[name]
            message_id = f"msg_{self._messages[name]:08x}{name}"
            members: dict[str, Any] = {"summary": {"diffs": []}} if role == "user" else {"finish": "stop", "cost": 0}
            put_message(connection, message_id, name, role, at=now, **members)
            part_id = message_id.replace("msg_", "prt_")
            put_part(connection, message_id, name, text_of(text), part_id=part_id)
            if role == "assistant":
                put_part(connection, message_id, name, {"type": "step-finish"}, part_id=f"{part_id}z")
            update = "UPDATE session SET time_updated = max(time_updated, ?) WHERE id = ?"
            connection.execute(update, (now, name))
