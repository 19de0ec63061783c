"""The list row of a Qwen Code session."""

from __future__ import annotations

from sessionref.server.store import SessionHeader
from sessionref.server.stores.agent import first_line
from sessionref.server.stores.folds import LabelFold, Log
from sessionref.server.stores.problems import corrupt
from sessionref.server.stores.qwen_code.records import QwenRecord, check_engine, is_known, is_prompt, prompt_text
from sessionref.server.stores.times import milliseconds

__all__ = ("QwenLabels",)


class QwenLabels(LabelFold[QwenRecord]):
    """Folds the latest title, which is written again and again, and what the first records tell."""

    has_known_records: bool = False
    created_at: int | None = None
    cwd: str | None = None
    title: str | None = None
    prompt: str | None = None
    sidechain_prompt: str | None = None
    parent: str | None = None

    def feed(self, record: QwenRecord) -> None:
        """Take the next record. Raises Unreadable (newer-format)."""
        check_engine(record)
        self.has_known_records = self.has_known_records or is_known(record)
        if self.created_at is None:
            self.created_at = milliseconds(record.timestamp)
        self.cwd = self.cwd or record.cwd
        if record.type == "system":
            if record.subtype == "custom_title":
                self.title = record.system_payload.custom_title or self.title
            elif record.subtype == "parent_session":
                self.parent = self.parent or record.system_payload.parent_session_id
        elif is_prompt(record):
            if record.is_sidechain:
                self.sidechain_prompt = self.sidechain_prompt or first_line(prompt_text(record))
            else:
                self.prompt = self.prompt or first_line(prompt_text(record))

    def header(self, log: Log, session_id: str, updated_at: int) -> SessionHeader:
        """The row, under the id of the file. Raises Unreadable (corrupt) where no record is one of Qwen Code's."""
        if not self.has_known_records:
            raise corrupt()
        return SessionHeader(
            session_id=session_id,
            created_at=updated_at if self.created_at is None else self.created_at,
            updated_at=updated_at,
            cwd=self.cwd or None,
            # All of a sub-agent's own log is a sidechain; in others they are not the session's.
            title=self.title or self.prompt or (self.sidechain_prompt if log.is_subagent else None),
            is_subagent=log.is_subagent or self.parent is not None,
        )

    @property
    def has_prompt(self) -> bool:
        """Whether anybody has typed anything."""
        return self.prompt is not None or self.sidechain_prompt is not None
