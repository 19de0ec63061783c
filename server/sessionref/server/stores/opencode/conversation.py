"""The conversation of an OpenCode session: its messages as the agent would go on with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from sessionref.protocol.jsontext import utf8_length
from sessionref.server.store import Capture, ConversationItem
from sessionref.server.stores.folds import scan_diagnostics
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.opencode.records import MESSAGE_KINDS, PART_KINDS, Message, Part, Revert, is_text
from sessionref.server.stores.problems import corrupt, too_large
from sessionref.server.stores.records import RecordDecoder, ScanCounts

__all__ = ("Conversation",)


class Turn(msgspec.Struct, kw_only=True):
    """A message: its role, if somebody typed or said it, and its texts by the ids of their parts.

    A summary stands for what was before it, once it is finished. In 1.x it answers a message that marks the
    compaction, and may name the first message that is kept; in 2.x `recent` has what is kept, written as one text.
    """

    id: str
    role: Literal["user", "assistant"] | None = None
    parts: list[tuple[str, str]] = msgspec.field(default_factory=list[tuple[str, str]])
    is_summary: bool = False
    is_finished: bool = False
    answers: str | None = None
    is_marker: bool = False
    first_kept: str | None = None
    recent: str = ""

    @property
    def text(self) -> str:
        """The texts in their order, a line feed between them."""
        return "\n".join(text for _, text in self.parts)


class Conversation:
    """Takes a session's messages in their order, and their parts in any order once all messages are there."""

    def __init__(self, limits: ReadingLimits) -> None:
        self._limits = limits
        self._messages = RecordDecoder(Message, limits)
        self._parts = RecordDecoder(Part, limits)
        self._turns: dict[str, Turn] = {}
        self._counts = ScanCounts()
        self._unknown = 0
        self._text_bytes = 0

    def message_in(self, data: bytes | None) -> Message | None:
        """The message in JSON; None if it is none. Raises Unreadable, too-large."""
        return None if data is None else self._messages.decode(data)

    def add_message(self, message_id: str, message: Message | None, *, kind: str | None = None) -> None:
        """Take the next message, None for one that is damaged; `kind` is its type where that stands beside it.

        Raises Unreadable, too-large.
        """
        turn = self._turns.setdefault(message_id, Turn(id=message_id))
        self._counts.lines += 1
        if message is None:
            self._counts.skipped += 1
            return
        self._counts.last_record = self._counts.lines - 1
        kind = kind or message.role or message.type
        if kind == "compaction":
            # A summary that only its provider can read stands for nothing here.
            turn.is_finished = message.status == "completed" and message.provider_context is None
            turn.is_summary, turn.recent = True, message.recent
            self._add_text(turn, "", message.summary if isinstance(message.summary, str) else "")
        elif kind in ("user", "assistant"):
            turn.role = "user" if kind == "user" else "assistant"
            turn.is_summary = kind == "assistant" and message.summary is True
            turn.is_finished, turn.answers = message.is_finished, message.parent_id
            for part in message.parts:
                self._add(turn, "", part)
        elif kind not in MESSAGE_KINDS:
            self._unknown += 1

    def add_part(self, message_id: str, part_id: str, data: bytes | None) -> None:
        """Take a part of a message that was taken before. Raises Unreadable, too-large."""
        part = None if data is None else self._parts.decode(data)
        if part is None:
            self._counts.skipped += 1
        elif (turn := self._turns.get(message_id)) is not None:
            self._add(turn, part_id, part)

    def capture(self, session_id: str, cwd: str | None, revert: Revert | None) -> Capture:
        """What was taken. Raises Unreadable (corrupt) if there are messages, and all of them are damaged."""
        if self._counts.lines and self._counts.last_record is None:
            raise corrupt()
        return Capture(
            session_id=session_id,
            cwd=cwd,
            format_version=None,
            captured_through_seq=self._counts.last_record,
            items=_items(self._current(revert)),
            diagnostics=scan_diagnostics(self._counts, is_torn=False, unknown_records=self._unknown),
        )

    def _add(self, turn: Turn, part_id: str, part: Part) -> None:
        if is_text(part):
            self._add_text(turn, part_id, part.text)
        elif part.type == "compaction":
            turn.is_marker, turn.first_kept = True, part.tail_start_id
        elif part.type not in PART_KINDS:
            self._unknown += 1

    def _add_text(self, turn: Turn, part_id: str, text: str) -> None:
        if text:
            turn.parts.append((part_id, text))
        self._text_bytes += utf8_length(text)
        if self._text_bytes > self._limits.conversation_bytes:
            raise too_large(self._limits.conversation_bytes)

    def _current(self, revert: Revert | None) -> list[Turn]:
        """The messages that were not taken back, each with its parts in order."""
        turns: list[Turn] = []
        for turn in self._turns.values():
            # Sorting keeps the order of those without ids.
            turn.parts.sort(key=lambda part: part[0])
            if revert is not None and turn.id == revert.message_id:
                if revert.part_id is not None:
                    turn.parts = [part for part in turn.parts if part[0] < revert.part_id]
                    turns.append(turn)
                break
            turns.append(turn)
        return turns


def _items(turns: Sequence[Turn]) -> list[ConversationItem]:
    """The last finished summary, what it kept, and what came after it."""
    at = max((at for at, turn in enumerate(turns) if _stands_for_earlier(turn)), default=None)
    items: list[ConversationItem] = []
    if at is not None:
        summary = turns[at]
        items.append(ConversationItem("user", summary.text, checkpoint=True))
        marker = next((place for place, turn in enumerate(turns[:at]) if _marks(turn, summary)), None)
        kept = _kept(turns[:at], summary) if marker is None else _kept_before(turns[:marker], turns[marker])
        turns = [*kept, *turns[at if marker is None else marker :]]
    items += (
        ConversationItem(turn.role, text)
        for turn in turns
        if turn.role is not None and not turn.is_summary and (text := turn.text).strip()
    )
    return items


def _stands_for_earlier(turn: Turn) -> bool:
    return turn.is_summary and turn.is_finished and bool(turn.text.strip())


def _marks(turn: Turn, summary: Turn) -> bool:
    return turn.is_marker and turn.id == summary.answers


def _kept_before(turns: Sequence[Turn], marker: Turn) -> Sequence[Turn]:
    """What a compaction of 1.x kept of the messages before it."""
    start = next((at for at, turn in enumerate(turns) if turn.id == marker.first_kept), len(turns))
    return turns[start:]


def _kept(turns: Sequence[Turn], summary: Turn) -> Sequence[Turn]:
    """What a compaction of 2.x kept of the messages before it: as far back as its text has the prompts."""
    recent = f"{summary.recent}\n"
    start = len(turns)
    for at in range(len(turns) - 1, -1, -1):
        if turns[at].role == "user":
            if f"[User]: {turns[at].text}\n" not in recent:
                break
            start = at
    return turns[start:]
