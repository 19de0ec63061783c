"""The list row of a pi session."""

from __future__ import annotations

from sessionref.server.store import SessionHeader
from sessionref.server.stores.agent import first_line
from sessionref.server.stores.folds import Log
from sessionref.server.stores.pi.records import PiRecord, check_first, message_text
from sessionref.server.stores.problems import corrupt
from sessionref.server.stores.times import milliseconds
from sessionref.server.stores.told_ids import TellingLabels

__all__ = ("PiLabels",)


class PiLabels(TellingLabels[PiRecord]):
    """Folds the header, the latest name and the first prompt."""

    created_at: int | None = None
    cwd: str | None = None
    title: str | None = None
    name: str | None = None
    prompt: str | None = None

    def feed(self, record: PiRecord) -> None:
        """Take the next record. Raises Unreadable (corrupt, newer-format) if the first is no header."""
        if self.id is None:
            self.title = record.title or self.title
            if check_first(record):
                self.id, self.cwd = record.id, record.cwd
                self.created_at = milliseconds(record.timestamp)
        elif record.type == "session_info":
            # An empty name takes the name away.
            self.name = record.name if record.name and record.name.strip() else None
        elif record.type != "message" or record.message is None or self.prompt is not None:
            return
        elif record.message.role == "user":
            self.prompt = first_line(message_text(record.message))

    def header(self, log: Log, session_id: str, updated_at: int) -> SessionHeader:
        """The row, under the id of the header. Raises Unreadable (corrupt) where there is none."""
        if self.id is None:
            raise corrupt()
        return SessionHeader(
            session_id=session_id if log.is_subagent else f"pi:{self.id}",
            created_at=updated_at if self.created_at is None else self.created_at,
            updated_at=updated_at,
            cwd=self.cwd or None,
            title=self.name or self.title or self.prompt,
            is_subagent=log.is_subagent,
        )

    @property
    def has_prompt(self) -> bool:
        """Whether a user message has text."""
        return self.prompt is not None
