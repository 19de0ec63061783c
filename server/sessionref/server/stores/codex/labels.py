"""The list row of a Codex thread, as far as one rollout tells it."""

from __future__ import annotations

from sessionref.server.store import SessionHeader
from sessionref.server.stores.agent import first_line
from sessionref.server.stores.codex.records import (
    CodexRecord,
    HistoryBase,
    base_of,
    begins_turn,
    check_header,
    ends_turn,
    is_of_subagent,
)
from sessionref.server.stores.codex.said import said_in
from sessionref.server.stores.folds import LabelFold, Log
from sessionref.server.stores.problems import corrupt
from sessionref.server.stores.times import milliseconds

__all__ = ("CodexLabels", "RolloutRow")


class RolloutRow(SessionHeader, frozen=True, kw_only=True):
    """A row that is not complete: the thread's names, and what comes before the rollout, are elsewhere."""

    name: str | None
    base: HistoryBase | None

    def completed(self) -> SessionHeader:
        """The row as everybody knows rows, with what it has by now."""
        return SessionHeader(
            session_id=self.session_id,
            created_at=self.created_at,
            updated_at=self.updated_at,
            cwd=self.cwd,
            title=self.title,
            is_subagent=self.is_subagent,
        )


class CodexLabels(LabelFold[CodexRecord]):
    """Folds the header, the latest name and the first prompt."""

    has_header: bool = False
    is_of_subagent: bool = False
    created_at: int | None = None
    cwd: str | None = None
    base: HistoryBase | None = None
    thread_id: str | None = None
    name: str | None = None
    prompt: str | None = None
    guess: str | None = None
    """What would be the first prompt if nothing in its run is one for certain."""

    def feed(self, record: CodexRecord) -> None:
        """Take the next record. Raises Unreadable (corrupt, newer-format) if the first is no header."""
        payload = record.payload
        if not self.has_header:
            check_header(record)
            self.has_header = True
            self.is_of_subagent = is_of_subagent(record)
            self.created_at = milliseconds(payload.timestamp)
            if self.created_at is None:
                self.created_at = milliseconds(record.timestamp)
            self.cwd, self.base, self.thread_id = payload.cwd, base_of(record), payload.id or record.id
        elif record.type == "event_msg" and payload.type == "thread_name_updated":
            # What came with a copied history are others' names; a null takes the name away.
            if payload.thread_id in (None, self.thread_id):
                self.name = payload.thread_name if (payload.thread_name or "").strip() else None
        elif self.prompt is None:
            self._take(record)

    def header(self, log: Log, session_id: str, updated_at: int) -> SessionHeader:
        """The row, without what is elsewhere. Raises Unreadable (corrupt) where there is no header."""
        if not self.has_header:
            raise corrupt()
        return RolloutRow(
            session_id=session_id,
            created_at=updated_at if self.created_at is None else self.created_at,
            updated_at=updated_at,
            cwd=self.cwd or None,
            title=self.prompt or self.guess,
            is_subagent=self.is_of_subagent,
            name=self.name,
            base=self.base,
        )

    @property
    def has_prompt(self) -> bool:
        """Whether a person has typed anything, be it in another rollout that comes before."""
        return self.prompt is not None or self.guess is not None or self.base is not None

    def _take(self, record: CodexRecord) -> None:
        said = said_in(record, is_of_subagent=self.is_of_subagent)
        if said is not None and said.role == "user":
            line = first_line(said.text)
            if said.is_certain:
                self.prompt = line
            elif self.guess is None:
                self.guess = line
        elif said is not None or record.type == "compacted" or begins_turn(record) or ends_turn(record):
            self.prompt = self.guess
