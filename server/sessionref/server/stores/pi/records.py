"""The lines of a pi session, as far as they matter here."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.problems import Unreadable, corrupt

__all__ = ("KNOWN_VERSIONS", "PiRecord", "check_first", "message_text", "version_of")

KNOWN_VERSIONS: Final = (1, 2, 3)
"""The session formats that are known, as of pi 0.85 and 1.x."""

_BEFORE_THE_HEADER: Final = "title"


class Block(msgspec.Struct, frozen=True, gc=False):
    """One part of a message's content."""

    type: str = ""
    text: str = ""


class Message(msgspec.Struct, frozen=True):
    """The message of a record."""

    role: str = ""
    content: str | list[Block] | None = None


class PiRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A line: the header, or an entry of the session's tree."""

    type: str
    id: str | None = None
    parent_id: Any = None
    """Null for a root; what is neither that nor a text is an id that no entry has."""

    version: Any = None
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
    if version_of(record) not in KNOWN_VERSIONS:
        raise Unreadable(ReadFailedReason.NEWER_FORMAT)
    return True


def version_of(header: PiRecord) -> Any:
    """The version of the format, whatever stands there; the first had none."""
    return 1 if header.version is None else header.version


def message_text(message: Message) -> str:
    """The text blocks of a message, a line feed between them; empty ones count for nothing."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(block.text for block in message.content or () if block.type == "text" and block.text)
