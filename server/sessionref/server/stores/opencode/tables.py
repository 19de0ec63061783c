"""The tables of one OpenCode database: those of 1.x, those of 2.x, or both (agent-stores section 6)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import CheckCancelled
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.opencode.conversation import Conversation
from sessionref.server.stores.opencode.records import Message, Part, Revert, is_text
from sessionref.server.stores.opencode.sessions import Session, whole_number
from sessionref.server.stores.problems import Unreadable, corrupt
from sessionref.server.stores.records import RecordDecoder

__all__ = ("Tables",)

_V1: Final = "session"
_V2: Final = "session_v2"
_VERSIONED: Final = re.compile(r"session_v[0-9]+")

_NEEDED: Final[Mapping[str, frozenset[str]]] = {
    _V1: frozenset({"id"}),
    "message": frozenset({"id", "session_id", "time_created", "data"}),
    "part": frozenset({"id", "message_id", "data"}),
    _V2: frozenset({"id"}),
    "session_message": frozenset({"id", "session_id", "type", "seq", "data"}),
}
"""The columns without which a table is none that is known. Builds of 1.x have a `session_message` of another kind."""

_COLUMNS: Final = ("id", "title", "directory", "parent_id", "time_created", "time_updated", "revert")
_REVERT: Final = _COLUMNS.index("revert")
_NEWEST: Final[Mapping[str, tuple[str, str]]] = {_V1: ("message", "time_created"), _V2: ("session_message", "seq")}

# As bytes, which need not be UTF-8.
_MESSAGES_V1: Final = "SELECT id, CAST(data AS BLOB) FROM message WHERE session_id = ? ORDER BY time_created, id"
# What tools were given and returned is most of a session, and passed over unread: a part that begins so is no other.
_PARTS_V1: Final = """SELECT part.message_id, part.id, CAST(part.data AS BLOB)
    FROM message JOIN part ON part.message_id = message.id
    WHERE message.session_id = ?
    AND (part.data GLOB '{"type":"tool",*' OR part.data GLOB '{"type": "tool",*') IS NOT TRUE"""
_PARTS_OF_MESSAGE: Final = "SELECT CAST(data AS BLOB) FROM part WHERE message_id = ? ORDER BY id"
_MESSAGES_V2: Final = "SELECT id, type, CAST(data AS BLOB) FROM session_message WHERE session_id = ? ORDER BY seq"
_PROMPTS_V2: Final = """SELECT id, CAST(data AS BLOB) FROM session_message
    WHERE session_id = ? AND type = 'user' ORDER BY seq"""
_TALK_V2: Final = "SELECT 1 FROM session_message WHERE session_id = ? AND type IN ('user', 'assistant') LIMIT 1"
_HAS_INDEX: Final = """SELECT 1 FROM pragma_index_list(?) AS list, pragma_index_info(list.name) AS one,
    pragma_index_info(list.name) AS two
    WHERE one.seqno = 0 AND one.name = 'session_id' AND two.seqno = 1 AND two.name = ?"""


class Tables:
    """What one connection shows; the methods raise sqlite3.Error and Unreadable, and what `check` raises.

    Raises Unreadable: newer-format for tables of a later generation, or of an unknown layout; corrupt where there are
    tables, but none of sessions.
    """

    def __init__(self, connection: sqlite3.Connection, limits: ReadingLimits, check: CheckCancelled) -> None:
        self._connection = connection
        self._limits = limits
        self._check = check
        names = {name for (name,) in self._rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        columns = {name: self._columns_of(name) for name in _NEEDED.keys() & names}
        self._known = {name: there for name, there in columns.items() if there >= _NEEDED[name]}
        self._has_v1 = self._known.keys() >= {_V1, "message", "part"}
        self._has_v2 = self._known.keys() >= {_V2, "session_message"}
        if any(_VERSIONED.fullmatch(name) for name in names - {_V2}):
            raise Unreadable(ReadFailedReason.NEWER_FORMAT)
        if not (self._has_v2 if _V2 in names else self._has_v1 or _V1 not in names):
            raise Unreadable(ReadFailedReason.NEWER_FORMAT)
        if not names.isdisjoint(_NEEDED) and not (self._has_v1 or self._has_v2):
            raise corrupt()
        if _V1 in names - self._known.keys() and any(self._rows(f"SELECT 1 FROM {_V1} LIMIT 1")):
            raise Unreadable(ReadFailedReason.NEWER_FORMAT)

    def sessions(self) -> dict[str, Session]:
        """All sessions by their ids; the row of 2.x goes before that of 1.x which it was made of."""
        found: dict[str, Session] = {}
        for select in self._selects():
            for row in self._rows(select):
                try:
                    session = self._session(row)
                except Unreadable:
                    # It is said of the one session when that is read.
                    session = self._session((*row[:_REVERT], None, *row[_REVERT + 1 :]))
                if session is not None:
                    found.setdefault(session.id, session)
        return found

    def session(self, native_id: str) -> Session | None:
        """One session; None if there is none of that id."""
        for select in self._selects():
            row = next(self._rows(f"{select} WHERE session.id = ?", native_id), None)
            if row is not None:
                return self._session(row)
        return None

    def conversation(self, native_id: str) -> Conversation:
        """A session's messages: those of 2.x if any of them were typed or said, else those of 1.x."""
        conversation = Conversation(self._limits)
        if self._is_v2(native_id):
            for message_id, kind, data in self._rows(_MESSAGES_V2, native_id):
                conversation.add_message(str(message_id), conversation.message_in(data), kind=str(kind))
        elif self._has_v1:
            for message_id, data in self._rows(_MESSAGES_V1, native_id):
                conversation.add_message(str(message_id), conversation.message_in(data))
            for message_id, part_id, data in self._rows(_PARTS_V1, native_id):
                conversation.add_part(str(message_id), str(part_id), data)
        else:
            self._require_v2(native_id)
        return conversation

    def prompts(self, session: Session) -> Iterator[str]:
        """What was typed in a session, up to where that was taken back."""
        messages = RecordDecoder(Message, self._limits)
        is_v2 = self._is_v2(session.id)
        if not is_v2 and not self._has_v1:
            self._require_v2(session.id)
            return
        for message_id, data in self._rows(_PROMPTS_V2 if is_v2 else _MESSAGES_V1, session.id):
            if session.revert is not None and message_id == session.revert.message_id:
                return
            message = None if data is None else messages.decode(data)
            if message is not None and (is_v2 or message.role == "user"):
                yield from (part.text for part in message.parts if is_text(part))
                yield from self._typed(message_id) if not is_v2 else ()

    def has_messages(self, native_id: str) -> bool:
        """Whether anything was typed or said in a session."""
        select = "SELECT 1 FROM message WHERE session_id = ? LIMIT 1"
        return self._is_v2(native_id) or (self._has_v1 and any(self._rows(select, native_id)))

    def _rows(self, select: str, *values: str) -> Iterator[Any]:
        """The rows one by one: there may be many, and large ones."""
        for row in self._connection.execute(select, values):
            self._check()
            yield row

    def _typed(self, message_id: str) -> Iterator[str]:
        parts = RecordDecoder(Part, self._limits)
        for (data,) in self._rows(_PARTS_OF_MESSAGE, message_id):
            part = None if data is None else parts.decode(data)
            if part is not None and is_text(part):
                yield part.text

    def _is_v2(self, native_id: str) -> bool:
        return "session_message" in self._known and any(self._rows(_TALK_V2, native_id))

    def _require_v2(self, native_id: str) -> None:
        """Refuse a session of 1.x, of which the messages are nowhere that is known."""
        if not any(self._rows(f"SELECT 1 FROM {_V2} WHERE id = ?", native_id)):
            raise Unreadable(ReadFailedReason.NEWER_FORMAT)

    def _columns_of(self, table: str) -> set[str]:
        return {name for (name,) in self._rows("SELECT name FROM pragma_table_info(?)", table)}

    def _selects(self) -> Iterator[str]:
        """The statements that select sessions, those of 2.x first."""
        if not (self._has_v1 or self._has_v2):
            return
        for table in (_V2, _V1):
            if table not in self._known:
                continue
            columns = [f"session.{name}" if name in self._known[table] else "NULL" for name in _COLUMNS]
            messages, order = _NEWEST[table]
            if any(self._rows(_HAS_INDEX, messages, order)):
                columns.append(f"(SELECT max({order}) FROM {messages} WHERE session_id = session.id)")
            else:
                # Without an index this would be a look at every message for every session.
                columns.append("NULL")
            yield f"SELECT {', '.join(columns)} FROM {table} AS session"

    def _session(self, row: tuple[Any, ...]) -> Session | None:
        native_id, title, directory, parent_id, created_at, updated_at, revert, newest = row
        if not isinstance(native_id, str) or not native_id:
            return None
        return Session(
            id=native_id,
            title=title if isinstance(title, str) else None,
            directory=directory if isinstance(directory, str) else None,
            parent_id=parent_id if isinstance(parent_id, str) else None,
            created_at=whole_number(created_at) or 0,
            updated_at=whole_number(updated_at),
            revert=RecordDecoder(Revert, self._limits).decode(revert.encode()) if isinstance(revert, str) else None,
            newest=whole_number(newest),
        )
