"""The lines of a Claude Code session, as far as they matter here (agent-stores section 4, b and c)."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ("TYPED", "Attachment", "Block", "ClaudeRecord", "Content", "KeptSegment", "Message", "is_metadata")

_METADATA: Final = frozenset(
    {
        *("summary", "custom-title", "ai-title", "last-prompt", "agent-name", "agent-setting", "tag", "pr-link"),
        *("file-history-snapshot", "file-history-delta", "queue-operation", "permission-mode", "mode"),
        *("system", "attachment", "progress"),
    }
)
"""Types that a file may hold although nobody has said anything in it yet."""

TYPED: Final = "typed"
"""The source of a prompt that a person typed for certain."""


class Block(msgspec.Struct, frozen=True, gc=False):
    """One part of a message's content."""

    type: str = ""
    text: str = ""


Content = str | list[Block] | None


class Message(msgspec.Struct, frozen=True):
    """The message of a record; records of one reply share its id."""

    id: str | None = None
    model: str | None = None
    content: Content = None


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where a prompt came from."""

    kind: str = ""


class Attachment(msgspec.Struct, frozen=True, rename="camel"):
    """What was given to the model beside a prompt; a queued command is itself one."""

    type: str = ""
    prompt: Content = None
    command_mode: str | None = None
    is_meta: bool | None = None
    origin: Origin | None = None


class KeptSegment(msgspec.Struct, frozen=True, rename="camel"):
    """A row of records, by the uuids of its ends, that a compaction kept behind its anchor."""

    head_uuid: str
    anchor_uuid: str
    tail_uuid: str


class CompactMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """What a compaction says of itself."""

    preserved_segment: KeptSegment | None = None


class ClaudeRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A line: what was said, what happened besides, or a title."""

    type: str
    subtype: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    session_id: str | None = None
    timestamp: str | None = None
    cwd: str | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    is_api_error_message: bool | None = None
    team_name: str | None = None
    prompt_source: str | None = None
    origin: Origin | None = None
    message: Message | None = None
    tool_use_result: msgspec.Raw = msgspec.Raw()
    attachment: Attachment | None = None
    compact_metadata: CompactMetadata | None = None
    content: str | None = None
    custom_title: str | None = None
    ai_title: str | None = None
    last_prompt: str | None = None
    summary: str | None = None
    leaf_uuid: str | None = None

    @property
    def is_aside(self) -> bool:
        """Whether this is no part of the conversation with a person, but of one between agents."""
        return bool(self.is_sidechain) or (bool(self.team_name) and self.prompt_source != TYPED)

    @property
    def is_result(self) -> bool:
        """Whether this is what a tool gave back, and not a prompt."""
        content = None if self.message is None else self.message.content
        if isinstance(content, list):
            for block in content:
                if block.type == "tool_result":
                    return True
        # Its bytes need not be copied to tell one from none, and from null.
        return memoryview(self.tool_use_result).nbytes > len("null")

    @property
    def is_said(self) -> bool:
        """Whether this is a prompt, a reply, or what Claude Code keeps like one, as results of tools are."""
        return self.type in ("user", "assistant")


def is_metadata(record: ClaudeRecord) -> bool:
    """Whether a file of nothing but such records is no session yet; one of an unknown type may be anything."""
    return record.type in _METADATA
