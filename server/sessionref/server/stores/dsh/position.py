"""Where reading a log goes on, and how to tell that it is still the log that was read up to there.

A log counts as appended to if its name, inode and header are the same, it did not shrink, and the bytes before the
position are the same; anything else is read anew. Edits further back are nobody's practice.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final, TypeVar

import msgspec

from sessionref.server.stores.dsh.folders import OpenFile
from sessionref.server.stores.dsh.frames import LogReader
from sessionref.server.stores.dsh.layout import LogName

__all__ = ("LogPosition", "continues", "decode_state", "encode_state", "position_after")

State = TypeVar("State", bound=msgspec.Struct)

CHECKED_BYTES: Final = 4096
"""Bytes before a position that must be the same: a page, which no two different logs share by chance."""

_DIGEST_BYTES: Final = 16


class LogPosition(msgspec.Struct, frozen=True, array_like=True):
    """The end of what was read of a log; offsets in bytes of the file as it is stored."""

    name: str
    inode: int
    size: int
    header_end: int
    header_digest: bytes
    offset: int
    tail_digest: bytes


def continues(position: LogPosition, name: LogName, file: OpenFile) -> bool:
    """Whether the open file is the log of a position, grown or not. Reads the header and the checked bytes alone."""
    return (
        (position.name, position.inode) == (name.name, file.facts.st_ino)
        and position.offset <= position.size <= file.facts.st_size
        and position.header_digest == _digest(file, 0, position.header_end)
        and position.tail_digest == _digest(file, position.offset - CHECKED_BYTES, position.offset)
    )


def position_after(reader: LogReader, header_end: int, name: LogName, file: OpenFile) -> LogPosition | None:
    """The position at which a finished pass ended; None if none can be told apart from a later change."""
    if not reader.is_resumable or not header_end:
        return None
    position = LogPosition(
        name.name,
        file.facts.st_ino,
        file.facts.st_size,
        header_end,
        _digest(file, 0, header_end),
        reader.position,
        _digest(file, reader.position - CHECKED_BYTES, reader.position),
    )
    now = os.fstat(file.descriptor)
    # What was hashed just now must be what was read before.
    unchanged = (now.st_size, now.st_mtime_ns) == (file.facts.st_size, file.facts.st_mtime_ns)
    return position if unchanged else None


def encode_state(state: msgspec.Struct) -> bytes | None:
    """A state as bytes; None for one that holds lone surrogates, which costs nothing but a full read."""
    try:
        return msgspec.msgpack.encode(state)
    except UnicodeEncodeError:
        return None


def decode_state(data: bytes | None, kind: type[State]) -> State | None:
    """A state from bytes; None where there is none, or none that this version wrote."""
    try:
        return msgspec.msgpack.decode(data, type=kind) if data else None
    except (msgspec.DecodeError, ValueError):
        return None


def _digest(file: OpenFile, start: int, end: int) -> bytes:
    start = max(0, start)
    os.lseek(file.descriptor, start, os.SEEK_SET)
    data = b""
    while len(data) < end - start and (part := os.read(file.descriptor, end - start - len(data))):
        data += part
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
