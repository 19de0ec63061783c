"""The list row of a Claude Code session."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from sessionref.server.store import SessionHeader
from sessionref.server.stores.agent import first_line
from sessionref.server.stores.claude_code.layout import place_of
from sessionref.server.stores.claude_code.records import ClaudeRecord, is_metadata
from sessionref.server.stores.claude_code.texts import command_name, prompt_in, renamed_to, typed_text
from sessionref.server.stores.folds import LabelFold, Log
from sessionref.server.stores.times import milliseconds

__all__ = ("ClaudeLabels", "Draft")

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
"""What can be the id of a session in a record, which becomes a part of a sub-agent's."""


class Draft(SessionHeader, frozen=True, kw_only=True):
    """A row from one log alone: a summary beside it goes before a title that is only a prompt."""

    is_session: bool
    is_named: bool
    has_summaries: bool

    def row(self, summary: str | None) -> SessionHeader:
        """The row itself, with the summary of the session if there is one."""
        return SessionHeader(
            session_id=self.session_id,
            created_at=self.created_at,
            updated_at=self.updated_at,
            cwd=self.cwd,
            title=self.title if self.is_named else summary or self.title,
            is_subagent=self.is_subagent,
        )


class Voices(msgspec.Struct):
    """What is known of those who spoke: a person with the assistant, or agents with each other."""

    are_heard: bool = False
    cwd: str | None = None
    prompt: str | None = None
    command: str | None = None


class ClaudeLabels(LabelFold[ClaudeRecord]):
    """Folds the latest titles, and the first of everything else."""

    is_session: bool = False
    has_summaries: bool = False
    created_at: int | None = None
    owner: str | None = None
    """The first session id in the records, which in a sub-agent's is its parent's."""
    custom_title: str | None = None
    ai_title: str | None = None
    last_prompt: str | None = None
    person: Voices = msgspec.field(default_factory=Voices)
    agents: Voices = msgspec.field(default_factory=Voices)

    def feed(self, record: ClaudeRecord) -> None:
        """Take the next record."""
        if self.created_at is None:
            self.created_at = milliseconds(record.timestamp)
        if self.owner is None and record.session_id is not None and _ID.fullmatch(record.session_id):
            self.owner = record.session_id
        self.is_session = self.is_session or not is_metadata(record)
        voices = self.agents if record.is_aside else self.person
        voices.cwd = voices.cwd or record.cwd
        if record.is_said or record.type == "attachment":
            if voices.prompt is None and (name := command_name(record)):
                # What a session is called by only where there is no other prompt.
                voices.command = voices.command or name
            elif voices.prompt is None:
                voices.prompt = first_line(typed_text(record, is_delegated=record.is_aside))
            if record.is_said or voices.prompt is not None:
                voices.are_heard = self.is_session = True
        else:
            self._take_title(record)

    def header(self, log: Log, session_id: str, updated_at: int) -> Draft:
        """The row, as far as this log tells it."""
        person, agents = self.person, self.agents
        is_between_agents = agents.are_heard and not person.are_heard
        voices = (agents, person) if is_between_agents else (person, agents)
        spoken = voices if log.is_subagent else voices[:1]
        named = self.custom_title or self.ai_title or self.last_prompt
        place = place_of(log.key)
        if place is not None and place.is_flat and place.stem != log.native_id and self.owner:
            session_id = f"{session_id.removesuffix(log.native_id)}{self.owner}/{place.stem}"
        return Draft(
            session_id=session_id,
            created_at=updated_at if self.created_at is None else self.created_at,
            updated_at=updated_at,
            cwd=next((voice.cwd for voice in spoken if voice.cwd), None),
            title=named
            or next((voice.prompt for voice in spoken if voice.prompt), None)
            or next((voice.command for voice in spoken if voice.command), None),
            is_subagent=log.is_subagent or is_between_agents,
            is_session=self.is_session,
            is_named=bool(named),
            has_summaries=self.has_summaries,
        )

    @property
    def has_prompt(self) -> bool:
        """Whether anything was typed, or delegated where agents are among themselves."""
        voices = self.person if self.person.are_heard else self.agents
        return voices.prompt is not None or voices.command is not None

    def _take_title(self, record: ClaudeRecord) -> None:
        # An empty title takes the one before it away.
        if record.type == "custom-title" and record.custom_title is not None:
            self.custom_title = record.custom_title.strip()
        elif record.type == "ai-title" and record.ai_title is not None:
            self.ai_title = record.ai_title.strip()
        elif record.type == "last-prompt" and record.last_prompt is not None:
            self.last_prompt = first_line(prompt_in(record.last_prompt))
        elif record.type == "system" and record.content is not None:
            self.custom_title = renamed_to(record) or self.custom_title
        elif record.type == "summary" and record.leaf_uuid:
            self.has_summaries = True
