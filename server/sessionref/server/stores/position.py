"""Where reading a log goes on, and how to tell that it is still the log that was read up to there.

A log counts as appended to if its name, inode and header are the same, it did not shrink, and the bytes before the
position are the same; anything else is read anew. Edits further back are nobody's practice.
"""

from __future__ import annotations

import hashlib
from typing import Final, TypeVar

import msgspec

from sessionref.server.stores.folders import OpenFile
from sessionref.server.stores.frames import CHECKED_BYTES, LogReader

__all__ = ("LogPosition", "continues", "decode_state", "encode_state", "position_after")

State = TypeVar("State", bound=msgspec.Struct)

_DIGEST_BYTES: Final = 16
"""Two logs do not share so many bytes of a digest by chance."""


class LogPosition(msgspec.Struct, frozen=True, array_like=True):
    """The end of what was read of a log; offsets in bytes of the file as it is stored."""

    name: str
    inode: int
    size: int
    modified_ns: int
    header_end: int
    header_digest: bytes
    offset: int
    tail_digest: bytes


def continues(position: LogPosition, name: str, file: OpenFile) -> bytes | None:
    """The bytes before a position if the open file is its log, grown or not; reads those and the header alone."""
    if (position.name, position.inode) != (name, file.facts.st_ino):
        return None
    if not position.offset <= position.size <= file.facts.st_size:
        return None
    if position.size == file.facts.st_size and position.modified_ns != file.facts.st_mtime_ns:
        # Nothing was appended, and yet it was written to.
        return None
    if position.header_digest != _digest(file.part(0, position.header_end)):
        return None
    start = max(0, position.offset - CHECKED_BYTES)
    tail = file.part(start, position.offset - start)
    return tail if position.tail_digest == _digest(tail) else None


def position_after(reader: LogReader, known: LogPosition | None, name: str, file: OpenFile) -> LogPosition | None:
    """The position at which a finished pass ended; None if another pass cannot go on from there.

    `known` is where the pass began, if that was not the start. Nothing is read again: a log that is written meanwhile
    is known by what was read of it.
    """
    if not reader.is_resumable or not (known or reader.header):
        return None
    return LogPosition(
        name,
        file.facts.st_ino,
        file.facts.st_size,
        file.facts.st_mtime_ns,
        known.header_end if known else len(reader.header),
        known.header_digest if known else _digest(reader.header),
        reader.position,
        _digest(reader.tail),
    )


def encode_state(state: msgspec.Struct) -> bytes | None:
    """A state as bytes; None for one with lone surrogates or huge numbers, which costs nothing but a full read."""
    try:
        return msgspec.msgpack.encode(state)
    except (UnicodeEncodeError, OverflowError):
        return None


def decode_state(data: bytes | None, kind: type[State]) -> State | None:
    """A state from bytes; None where there is none, or none that this version wrote."""
    try:
        return msgspec.msgpack.decode(data, type=kind) if data else None
    except (msgspec.DecodeError, ValueError):
        return None


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
