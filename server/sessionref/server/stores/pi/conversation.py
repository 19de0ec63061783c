"""The conversation of a pi session: the branch that ends in its last entry, behind its last compaction."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from sessionref.protocol.jsontext import utf8_length
from sessionref.server.store import ConversationItem
from sessionref.server.stores.folds import ConversationFold
from sessionref.server.stores.pi.records import PiRecord, check_first, message_text, version_of
from sessionref.server.stores.problems import corrupt

__all__ = ("PiConversation",)

Role = Literal["user", "assistant"]

_NOWHERE: Final = ""
"""The id of a parent that is not there."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry of the tree; `role` and `text` of what was typed or said, `first_kept` of a compaction."""

    id: str
    parent_id: str | None
    role: Role | None = None
    text: str = ""
    first_kept: str | None = None
    is_compaction: bool = False


class PiConversation(ConversationFold[PiRecord]):
    """Folds the tree of entries. Version 1 has no ids: there each entry hangs on the one before."""

    has_header: bool = False
    version: int = 1
    working_directory: str | None = None
    entries: list[Entry] = msgspec.field(default_factory=list[Entry])
    ids_of_lines: list[str | None] = msgspec.field(default_factory=list[str | None])
    """Of version 1 alone, whose compactions name the place of a line."""

    def feed(self, record: PiRecord) -> None:
        """Take the next record. Raises Unreadable (corrupt, newer-format) if the first is no header."""
        if not self.has_header:
            self.has_header = check_first(record)
            if self.has_header:
                self.working_directory, self.version = record.cwd, int(version_of(record))
        entry = self._entry(record) if record.type != "session" and self.has_header else None
        if self.version == 1:
            self.ids_of_lines.append(None if entry is None else entry.id)
        if entry is not None:
            self.entries.append(entry)
            self.text_bytes += utf8_length(entry.text)
        elif record.message is not None and self.has_header:
            # It has no place in the tree.
            self.unknown_records += 1

    @property
    def cwd(self) -> str | None:
        """The header's working directory."""
        return self.working_directory or None

    def items(self) -> list[ConversationItem]:
        """The last branch: the summary of its last compaction first, then what that kept, then the rest.

        Raises Unreadable (corrupt) without a header.
        """
        if not self.has_header:
            raise corrupt()
        branch = self._branch()
        at = max((at for at, entry in enumerate(branch) if entry.is_compaction), default=None)
        if at is not None:
            ids = [entry.id for entry in branch[:at]]
            first_kept = branch[at].first_kept
            kept = branch[ids.index(first_kept) : at] if first_kept in ids else []
            branch = [branch[at], *(entry for entry in kept if not entry.is_compaction), *branch[at + 1 :]]
        return [
            ConversationItem(entry.role, entry.text, checkpoint=entry.is_compaction)
            for entry in branch
            if entry.role is not None and entry.text.strip()
        ]

    def _entry(self, record: PiRecord) -> Entry | None:
        parent_id = record.parent_id if isinstance(record.parent_id, str | None) else _NOWHERE
        if self.version == 1:
            identity = str(len(self.entries))
            parent_id = self.entries[-1].id if self.entries else None
        elif record.id is None:
            return None
        else:
            identity = record.id
        if record.type == "compaction":
            first_kept = record.first_kept_entry_id
            at = record.first_kept_entry_index
            if self.version == 1 and at is not None and 0 <= at < len(self.ids_of_lines):
                first_kept = self.ids_of_lines[at]
            return Entry(identity, parent_id, "user", record.summary or "", first_kept, is_compaction=True)
        message = record.message
        if message is None or message.role not in ("user", "assistant"):
            return Entry(identity, parent_id)
        if record.type != "message" or message.content is None:
            # Somebody says something in a way that is not known.
            self.unknown_records += 1
            return Entry(identity, parent_id)
        return Entry(identity, parent_id, "user" if message.role == "user" else "assistant", message_text(message))

    def _branch(self) -> list[Entry]:
        places = {entry.id: at for at, entry in enumerate(self.entries)}
        branch: list[Entry] = []
        passed: set[str] = set()
        lowest = at = len(self.entries) - 1
        while at >= 0:
            entry, lowest = self.entries[at], min(lowest, at)
            if entry.id in passed:
                at = lowest - 1
                continue
            branch.append(entry)
            passed.add(entry.id)
            if entry.parent_id is None:
                break
            # One whose parent was lost, or hangs on it in turn, hangs on the entry before it, so that a damaged line
            # costs itself alone.
            at = lowest - 1 if entry.parent_id in passed else places.get(entry.parent_id, lowest - 1)
        return branch[::-1]
