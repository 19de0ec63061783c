"""The lines of a Codex rollout, as far as they matter here; what is not named is passed over without a copy."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.problems import Unreadable, corrupt
from sessionref.server.stores.records import forgiving

__all__ = (
    "CodexRecord",
    "HistoryBase",
    "HistoryItem",
    "Part",
    "Payload",
    "base_of",
    "begins_turn",
    "check_header",
    "ends_turn",
    "is_known",
    "is_of_subagent",
)

_HISTORY_MODES: Final = (None, "legacy", "paginated")
"""How a rollout may keep its history, as of Codex 0.171."""

_TYPES: Final = frozenset(
    {
        *("session_meta", "response_item", "event_msg", "compacted"),
        *("turn_context", "world_state", "token_usage_record", "inter_agent_communication"),
    }
)
_UNWRAPPED_TYPES: Final = frozenset(
    {
        *("", "message", "reasoning", "function_call", "function_call_output"),
        *("local_shell_call", "custom_tool_call", "custom_tool_call_output", "web_search_call"),
    }
)
"""Types of records until September 2025, which had no payload; records of state had no type either."""

_TURN_BEGINS: Final = frozenset({"task_started", "turn_started"})
_TURN_ENDS: Final = frozenset({"task_complete", "turn_complete", "turn_aborted"})

_NOBODYS_THREADS: Final = ("subagent", "guardian", "memory")
"""What the sources of threads begin with that no person started."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """One part of a message's content."""

    type: str = ""
    text: str = ""


class Passthrough(msgspec.Struct, frozen=True):
    """What Codex notes beside a message; `content_item_kinds` is parallel to the message's content."""

    content_item_kinds: list[Any] | None = None
    """Of whatever type, so that none is left out and the others keep their places."""


class HistoryItem(msgspec.Struct, frozen=True):
    """What the model was given, or has answered."""

    type: str = ""
    id: str | None = None
    role: str = ""
    content: str | list[Part] | None = None
    internal_chat_message_metadata_passthrough: Passthrough | None = None

    @property
    def parts(self) -> list[Part]:
        """The content, a plain text as its only part."""
        return [Part("text", self.content)] if isinstance(self.content, str) else self.content or []

    @property
    def kinds(self) -> list[Any]:
        """The kinds of the parts; empty where Codex did not note them."""
        passthrough = self.internal_chat_message_metadata_passthrough
        return [] if passthrough is None else passthrough.content_item_kinds or []


class TurnItem(msgspec.Struct, frozen=True):
    """What a turn consists of, as the interface shows it."""

    type: str = ""
    id: str | None = None
    content: str | list[Part] | None = None


class Source(msgspec.Struct, frozen=True):
    """Who started a thread, where that was Codex itself."""

    subagent: Any = None
    internal: Any = None


class HistoryBase(msgspec.Struct, frozen=True):
    """Which part of another rollout comes before this one; `thread_id` names a rollout, not a thread."""

    thread_id: str = ""
    end_byte_offset: int = -1
    end_ordinal_exclusive: int | None = None


class Payload(HistoryItem, frozen=True):
    """What is in a record, whatever its type."""

    message: str | None = None
    kind: str | None = None
    item: TurnItem | None = None
    replacement_history: list[HistoryItem] | None = None
    num_turns: int | None = None
    thread_id: str | None = None
    thread_name: str | None = None
    timestamp: str | None = None
    cwd: str | None = None
    source: str | Source | None = None
    thread_source: str | None = None
    history_mode: Any = None
    history_base: Any = None


class CodexRecord(msgspec.Struct, frozen=True):
    """A line. Until September 2025 what is the payload now was the line itself, and the first line had no type."""

    type: str = ""
    timestamp: str | None = None
    ordinal: int | None = None
    payload: Payload = Payload()
    id: str | None = None
    role: str = ""
    content: str | list[Part] | None = None

    @property
    def message(self) -> HistoryItem | None:
        """The message that the record is, if it is one."""
        if self.type == "message":
            return HistoryItem(self.type, self.id, self.role, self.content)
        return self.payload if self.type == "response_item" and self.payload.type == "message" else None


def check_header(record: CodexRecord) -> None:
    """Raise Unreadable if the first record of a file is no header: corrupt, or newer-format for a way unknown."""
    is_header = record.type == "session_meta" and record.payload.id
    # Before payloads there was one without a type.
    if not is_header and (record.type or not record.id or not record.timestamp):
        raise corrupt()
    if record.payload.history_mode not in _HISTORY_MODES:
        raise Unreadable(ReadFailedReason.NEWER_FORMAT)


def base_of(header: CodexRecord) -> HistoryBase | None:
    """What comes before a rollout, if anything does; empty if the header says it in a way that is not understood."""
    base = header.payload.history_base
    return None if base is None else forgiving(base, HistoryBase) or HistoryBase()


def is_of_subagent(header: CodexRecord) -> bool:
    """Whether Codex started a thread itself, to delegate something."""
    source, thread_source = header.payload.source, header.payload.thread_source or ""
    if isinstance(source, Source) and (source.subagent is not None or source.internal is not None):
        return True
    return thread_source.startswith(_NOBODYS_THREADS) or (isinstance(source, str) and source.startswith("subagent"))


def begins_turn(record: CodexRecord) -> bool:
    """Whether a record marks the beginning of a turn."""
    return record.type == "event_msg" and record.payload.type in _TURN_BEGINS


def ends_turn(record: CodexRecord) -> bool:
    """Whether a record marks the end of a turn, whatever that came to."""
    return record.type == "event_msg" and record.payload.type in _TURN_ENDS


def is_known(record: CodexRecord) -> bool:
    """Whether a record is one that Codex is known to write, with something in it that can be understood."""
    if record.type in ("response_item", "event_msg", ""):
        # A record of old without a type is one of state, and has no payload.
        return bool(record.payload.type) == bool(record.type) and not _is_unreadable(record.message)
    return record.type in _TYPES or record.type in _UNWRAPPED_TYPES


def _is_unreadable(message: HistoryItem | None) -> bool:
    return message is not None and message.content is None and message.role in ("user", "assistant")
