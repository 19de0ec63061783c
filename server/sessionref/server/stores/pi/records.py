"""The lines of a pi session, as far as they matter here."""

from __future__ import annotations

from typing import Final

import msgspec

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.problems import Unreadable, corrupt

__all__ = ("NEWEST_VERSION", "PiRecord", "check_first", "message_text")

NEWEST_VERSION: Final = 3
"""The newest session format that is known, as of pi 0.85 and 1.x."""

_BEFORE_THE_HEADER: Final = "title"


class Block(msgspec.Struct, frozen=True, gc=False):
    """One part of a message's content."""

    type: str = ""
    text: str = ""


class Message(msgspec.Struct, frozen=True):
    """The message of a record."""

    role: str = ""
    content: str | list[Block] = ""


class PiRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A line: the header, or an entry of the session's tree."""

    type: str
    id: str | None = None
    parent_id: str | None = None
    version: int | None = None
    timestamp: str | None = None
    cwd: str | None = None
    title: str | None = None
    name: str | None = None
    summary: str | None = None
    first_kept_entry_id: str | None = None
    first_kept_entry_index: int | None = None
    message: Message | None = None


def check_first(record: PiRecord) -> bool:
    """Whether the first record of a file is its header, and not what oh-my-pi puts before it.

    Raises Unreadable: corrupt for another file, newer-format for an unknown version.
    """
    if record.type == _BEFORE_THE_HEADER:
        return False
    if record.type != "session" or not record.id:
        raise corrupt()
    if record.version is not None and record.version > NEWEST_VERSION:
        raise Unreadable(ReadFailedReason.NEWER_FORMAT)
    return True


def message_text(message: Message) -> str:
    """The text blocks of a message, a line feed between them; blank ones count for nothing."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(block.text for block in message.content if block.type == "text" and block.text)
