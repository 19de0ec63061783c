"""The list row of a Copilot CLI session."""

from __future__ import annotations

from sessionref.server.store import SessionHeader
from sessionref.server.stores.agent import first_line
from sessionref.server.stores.copilot_cli.records import (
    CopilotEvent,
    check_version,
    directory_of,
    is_known,
    is_of_subagent,
    is_typed,
)
from sessionref.server.stores.folds import Log
from sessionref.server.stores.problems import corrupt
from sessionref.server.stores.times import milliseconds
from sessionref.server.stores.told_ids import TellingLabels

__all__ = ("CopilotLabels",)


class CopilotLabels(TellingLabels[CopilotEvent]):
    """Folds the start of the session and the first prompt; the title proper stands beside the log."""

    has_started: bool = False
    has_known_events: bool = False
    created_at: int | None = None
    first_at: int | None = None
    cwd: str | None = None
    prompt: str | None = None
    is_subagent: bool = False

    def feed(self, record: CopilotEvent) -> None:
        """Take the next event. Raises Unreadable (newer-format)."""
        check_version(record)
        data = record.data
        self.has_known_events = self.has_known_events or is_known(record)
        if self.first_at is None:
            self.first_at = milliseconds(record.timestamp)
        if is_of_subagent(record):
            return
        if record.type == "session.start" and not self.has_started:
            self.has_started = True
            self.id = data.session_id or None
            started_at = milliseconds(data.start_time)
            self.created_at = milliseconds(record.timestamp) if started_at is None else started_at
            self.is_subagent = bool(data.detached_from_spawning_parent_session_id)
        if self.cwd is None:
            self.cwd = directory_of(record)
        if record.type == "user.message" and self.prompt is None and is_typed(data):
            self.prompt = first_line(data.content or "")

    def header(self, log: Log, session_id: str, updated_at: int) -> SessionHeader:
        """The row, under the id that the start tells, else the name of its folder. Raises Unreadable (corrupt)."""
        if not self.has_known_events:
            raise corrupt()
        times = (self.created_at, self.first_at, updated_at)
        return SessionHeader(
            session_id=session_id if self.id is None else f"copilot-cli:{self.id}",
            created_at=next(time for time in times if time is not None),
            updated_at=updated_at,
            cwd=self.cwd,
            title=self.prompt,
            is_subagent=self.is_subagent,
        )

    @property
    def has_told(self) -> bool:
        """Whether the start has come, which may tell no id."""
        return self.has_started

    @property
    def has_prompt(self) -> bool:
        """Whether a person has typed anything."""
        return self.prompt is not None
