"""The conversation of a Copilot CLI session: its events in the order of the log, behind its last compaction."""

from __future__ import annotations

from typing import Literal

import msgspec

from sessionref.protocol.jsontext import utf8_length
from sessionref.server.store import ConversationItem
from sessionref.server.stores.copilot_cli.records import (
    CopilotEvent,
    EventData,
    check_version,
    directory_of,
    is_known,
    is_of_subagent,
    is_spoken,
    is_typed,
)
from sessionref.server.stores.folds import ConversationFold
from sessionref.server.stores.problems import corrupt

__all__ = ("CopilotConversation",)

Role = Literal["user", "assistant"]


class Said(msgspec.Struct, array_like=True):
    """What was typed or said; `event` is the id of its event, `stream` that of a reply known from its pieces alone."""

    role: Role
    text: str
    event: str | None = None
    stream: str | None = None
    is_checkpoint: bool = False


class CopilotConversation(ConversationFold[CopilotEvent]):
    """Folds messages. The ids by which events hang together are mostly null, so that the log's order tells all."""

    has_known_events: bool = False
    working_directory: str | None = None
    said: list[Said] = msgspec.field(default_factory=list[Said])
    streams: dict[str, list[str]] = msgspec.field(default_factory=dict[str, list[str]])
    """The pieces of replies that have not come as a whole."""

    places: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """Where in `said` the event of an id stands, the first of them."""

    compacted: int | None = None
    """How much a compaction that is under way looks at: what is said meanwhile is not in its summary."""

    def feed(self, record: CopilotEvent) -> None:
        """Take the next event. Raises Unreadable (newer-format)."""
        check_version(record)
        if not is_known(record):
            self.unknown_records += 1
            return
        self.has_known_events = True
        if is_of_subagent(record):
            return
        if self.working_directory is None:
            self.working_directory = directory_of(record)
        if record.type == "user.message":
            self._take_prompt(record)
        elif record.type == "assistant.message":
            self._take_reply(record)
        elif record.type == "assistant.message_delta":
            self._take_piece(record)
        elif record.type == "session.compaction_start":
            self.compacted = len(self.said)
        elif record.type == "session.compaction_complete":
            self._compact(record.data)
        elif record.type == "session.context_cleared":
            self._replace(len(self.said), record.data.initial_message)
        elif record.type == "session.snapshot_rewind":
            self._rewind(record.data.up_to_event_id)

    @property
    def cwd(self) -> str | None:
        """The working directory at the start."""
        return self.working_directory

    def items(self) -> list[ConversationItem]:
        """The summary of the last compaction first, then what it does not cover. Raises Unreadable (corrupt)."""
        if not self.has_known_events:
            raise corrupt()
        return [
            ConversationItem(said.role, text, checkpoint=said.is_checkpoint)
            for said in self.said
            if (text := self._text(said)).strip()
        ]

    def _take_prompt(self, event: CopilotEvent) -> None:
        if not is_typed(event.data):
            return
        if event.data.content is None:
            self.unknown_records += 1
        else:
            self._say(Said("user", event.data.content, event.id))

    def _take_reply(self, event: CopilotEvent) -> None:
        data = event.data
        if data.content is None:
            self.unknown_records += 1
        elif is_spoken(data):
            if data.message_id is not None:
                self.streams.pop(data.message_id, None)
            self._say(Said("assistant", data.content, event.id))

    def _take_piece(self, event: CopilotEvent) -> None:
        data = event.data
        if data.message_id is None or data.delta_content is None:
            self.unknown_records += 1
            return
        if data.message_id not in self.streams:
            self.streams[data.message_id] = []
            self._say(Said("assistant", "", event.id, data.message_id))
        self.streams[data.message_id].append(data.delta_content)
        self.text_bytes += utf8_length(data.delta_content)

    def _say(self, said: Said) -> None:
        if said.event is not None:
            self.places.setdefault(said.event, len(self.said))
        self.said.append(said)
        self.text_bytes += utf8_length(said.text)

    def _text(self, said: Said) -> str:
        return said.text if said.stream is None else "".join(self.streams.get(said.stream, ()))

    def _compact(self, data: EventData) -> None:
        covered, self.compacted = self.compacted, None
        if data.success and data.summary_content:
            self._replace(len(self.said) if covered is None else covered, data.summary_content)

    def _replace(self, covered: int, summary: str | None) -> None:
        """Let a text stand for the first of what was said; where there is none, nothing does."""
        first = [Said("user", summary, is_checkpoint=True)] if summary else []
        left, self.said, self.places = self.said[covered:], first, {}
        shown = {said.stream for said in left}
        for stream, pieces in self.streams.items():
            if stream not in shown:
                # Nobody counts them any more, so that they must not be kept.
                pieces.clear()
        for said in left:
            self._say(said)
        self.text_bytes = sum(utf8_length(self._text(said)) for said in self.said)

    def _rewind(self, event_id: str | None) -> None:
        """Forget an event and all that followed. The agent cuts its log itself; this is for a copy that was not cut."""
        at = None if event_id is None else self.places.get(event_id)
        if at is None:
            self.unknown_records += 1
            return
        while len(self.said) > at:
            said = self.said.pop()
            if said.event is not None and self.places.get(said.event) == len(self.said):
                del self.places[said.event]
        if self.compacted is not None:
            self.compacted = min(self.compacted, at)
