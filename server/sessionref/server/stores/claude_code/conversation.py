"""The conversation of a Claude Code session: the branch that it goes on with, behind its last compaction."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from sessionref.protocol.errors import ReadFailedReason
from sessionref.protocol.jsontext import utf8_length
from sessionref.server.store import ConversationItem
from sessionref.server.stores.claude_code.records import ClaudeRecord, KeptSegment, is_metadata
from sessionref.server.stores.claude_code.texts import is_continued, spoken_text, typed_text, whole_text
from sessionref.server.stores.claude_code.tree import Entry, EntryKind, branch_of
from sessionref.server.stores.folds import ConversationFold
from sessionref.server.stores.problems import Unreadable

__all__ = ("ClaudeConversation",)

_ROLES: Final[dict[EntryKind, Literal["user", "assistant"]]] = {
    "user": "user",
    "assistant": "assistant",
    "summary": "user",
    "continued": "user",
}
_CHECKPOINTS: Final = ("summary", "continued")
_BOUNDARY: Final = "compact_boundary"


class ClaudeConversation(ConversationFold[ClaudeRecord]):
    """Folds the tree of records: all that have a uuid, since any may become the parent of what comes.

    What agents said to each other counts where a session holds nothing else, and always in a sub-agent's file.
    """

    is_subagent: bool = False
    is_session: bool = False
    has_person: bool = False
    directory: str | None = None
    directory_aside: str | None = None
    entries: list[Entry] = msgspec.field(default_factory=list[Entry])
    kept: list[KeptSegment] = msgspec.field(default_factory=list[KeptSegment])

    def feed(self, record: ClaudeRecord) -> None:
        """Take the next record."""
        is_aside = not self.is_subagent and record.is_aside
        is_said = record.is_said
        if is_aside:
            self.directory_aside = self.directory_aside or record.cwd
        else:
            self.directory = self.directory or record.cwd
        kind, text = self._read(record, is_aside=is_aside)
        self.has_person = self.has_person or (not is_aside and (is_said or bool(text)))
        if is_said or text:
            self.is_session = True
        elif not is_metadata(record):
            self.is_session = True
            self.unknown_records += record.message is not None
        if record.uuid is not None or text:
            reply = record.message.id if kind == "assistant" and record.message is not None else None
            self.entries.append(Entry(record.uuid, record.parent_uuid, kind, text, reply, is_aside))
            self.text_bytes += utf8_length(text) if text else 0
        if record.compact_metadata is not None and record.compact_metadata.preserved_segment is not None:
            self.kept.append(record.compact_metadata.preserved_segment)

    @property
    def cwd(self) -> str | None:
        """The first working directory."""
        return self.directory or (None if self.has_person else self.directory_aside) or None

    def items(self) -> list[ConversationItem]:
        """The summary of the last compaction first, then what was kept and what came since.

        Raises Unreadable (not-found) for a file of nothing but metadata, which is not listed either.
        """
        if not self.is_session:
            raise Unreadable(ReadFailedReason.NOT_FOUND)
        heard = [entry for entry in self.entries if not entry.is_aside] if self.has_person else self.entries
        return [
            ConversationItem(role, entry.text, checkpoint=entry.kind in _CHECKPOINTS)
            for entry in branch_of(heard, self.kept)
            if (role := _ROLES.get(entry.kind)) is not None and entry.text.strip()
        ]

    def _read(self, record: ClaudeRecord, *, is_aside: bool) -> tuple[EntryKind, str]:
        """What a record is to the conversation, and its text; that of what agents said only as long as it may count."""
        if record.type == "system":
            return ("boundary" if record.subtype == _BOUNDARY else "other"), ""
        if record.type == "user" and record.is_compact_summary:
            return "summary", _whole_text(record)
        is_read = not (is_aside and self.has_person)
        if not record.is_said or record.is_meta:
            text = typed_text(record, is_delegated=False) if record.attachment is not None and is_read else ""
            return ("user" if text else "other"), text
        if record.type == "assistant":
            return "assistant", spoken_text(record) if is_read else ""
        text = typed_text(record, is_delegated=self.is_subagent or is_aside) if is_read else ""
        return ("continued", _whole_text(record)) if not text and is_continued(record) else ("user", text)


def _whole_text(record: ClaudeRecord) -> str:
    return "" if record.message is None else whole_text(record.message.content)
