"""Log lines of other agents to typed records: a typed decoder in front, a forgiving one behind it.

Agents change their formats without telling, and crash while they write. So a member of an unexpected type is taken
for absent, and a line that is no record at all costs itself alone and is counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import UnionType
from typing import Any, Final, Generic, TypeGuard, TypeVar, Union, get_args, get_origin

import msgspec

from sessionref.protocol.jsontext import (
    JsonError,
    NestingError,
    as_array,
    as_object,
    check_depth,
    convert,
    decode_json_slowly,
)
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import too_large

__all__ = ("Record", "RecordDecoder", "RecordScan", "ScanCounts", "forgiving")

Record = TypeVar("Record", bound=msgspec.Struct)
Kind = TypeVar("Kind", bound=msgspec.Struct)

_NULS: Final = b"\0"


class RecordDecoder(Generic[Record]):
    """Decodes the lines of one kind of log to a Struct whose required members make a record."""

    def __init__(self, kind: type[Record], limits: ReadingLimits) -> None:
        self._kind = kind
        self._decode = msgspec.json.Decoder(kind).decode
        self._limits = limits

    def decode(self, line: bytes) -> Record | None:
        """The record of a line without its line feed; None if it is none. Raises Unreadable, too-large."""
        if len(line) > self._limits.line_bytes:
            raise too_large(self._limits.line_bytes)
        try:
            check_depth(line, self._limits.depth)
            try:
                return self._decode(line)
            except (msgspec.DecodeError, RecursionError):
                # A crash of the machine may leave a block of NULs in front of what was written after it.
                text = line.strip(_NULS).decode("utf-8", "replace")
                return forgiving(decode_json_slowly(text.encode(), repair_names=True), self._kind)
        except NestingError:
            raise too_large(self._limits.depth) from None
        except JsonError:
            return None


class ScanCounts(msgspec.Struct):
    """How far a log was read: its lines so far, those of them that are no records, and the last that is one."""

    lines: int = 0
    skipped: int = 0
    last_record: int | None = None


class RecordScan(Generic[Record]):
    """Feeds the records of a log to a fold, in the order of its lines; blank lines do not count."""

    def __init__(
        self, decoder: RecordDecoder[Record], feed: Callable[[Record], None], counts: ScanCounts | None = None
    ) -> None:
        self.counts = counts or ScanCounts()
        self._decode = decoder.decode
        self._feed = feed

    def feed(self, block: bytes) -> None:
        """Take a block of complete lines. Raises Unreadable, too-large, and what the fold raises."""
        # Bytes are split at line feeds alone: other line ends of Unicode may stand in a JSON string.
        for line in block.split(b"\n"):
            if line and not line.isspace() and not self._take(line):
                self.counts.skipped += 1

    def feed_open(self, line: bytes) -> bool:
        """Take what stands behind the last line feed; false if that is no whole record. Raises as `feed` does."""
        if not line or line.isspace() or self._take(line):
            return True
        # The rest of it may come yet.
        self.counts.lines -= 1
        return False

    def _take(self, line: bytes) -> bool:
        record = self._decode(line)
        self.counts.lines += 1
        if record is None:
            return False
        self.counts.last_record = self.counts.lines - 1
        self._feed(record)
        return True


def forgiving(value: Any, kind: type[Kind]) -> Kind | None:
    """A decoded JSON object as a Struct, members of other types than declared left out; None if one is required."""
    members = as_object(value)
    if members is None:
        return None
    taken = {
        field.name: found
        for field in msgspec.structs.fields(kind)
        if field.encode_name in members and (found := _fitting(members[field.encode_name], field.type)) is not _ABSENT
    }
    try:
        return kind(**taken)
    except TypeError:
        return None


_ABSENT: Final[Any] = object()


def _is_struct(kind: Any) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _fitting(value: Any, kind: Any) -> Any:
    """The value as one of the kinds that a member is declared to have, in its order; `_ABSENT` if it is none."""
    for choice in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        if choice is msgspec.Raw:
            return msgspec.Raw(json.dumps(value).encode())
        if _is_struct(choice):
            made = forgiving(value, choice)
            if made is not None:
                return made
            continue
        if get_origin(choice) is list and (values := as_array(value)) is not None:
            return [found for item in values if (found := _fitting(item, get_args(choice)[0])) is not _ABSENT]
        try:
            return convert(value, choice)
        except msgspec.ValidationError:
            continue
    return _ABSENT
