"""One event line to one event: a typed decoder in front, the standard library behind it.

The typed decoder refuses what JavaScript wrote legally (lone surrogates, `1.0`) and what DSH replaces (bytes that are
no UTF-8). Such a line goes the slow way to the same events (dsh-format sections 2.1, 2.3 and 12).
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from sessionref.protocol.jsontext import MAX_DEPTH, JsonError, NestingError, check_depth, convert, decode_json_slowly
from sessionref.server.stores.dsh.formats import Record, line_format
from sessionref.server.stores.dsh.header import safe_integer
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import too_large

__all__ = ("EventDecoder", "line_type")

_NUMBERS: Final = ("seq", "time", "seq0", "time0")


class EventDecoder:
    """Decodes the event lines of one log, by the rules of its format."""

    def __init__(self, version: int, limits: ReadingLimits) -> None:
        self._format = line_format(version)
        self._decode = self._format.decode
        self._depth = limits.depth
        self._line_bytes = limits.line_bytes
        # Every level of nesting takes two brackets.
        self._harmless_bytes = min(limits.line_bytes, 2 * limits.depth)

    def decode(self, line: bytes) -> Record | None:
        """The event of a line, with its line feed or without; None if it is no event. Raises Unreadable, too-large."""
        if len(line) > self._harmless_bytes:
            self._refuse_huge(line)
        try:
            return self._decode(line)
        except (msgspec.DecodeError, RecursionError):
            return self._decode_slowly(line)

    def _refuse_huge(self, line: bytes) -> None:
        if len(line) - line.endswith(b"\n") > self._line_bytes:
            raise too_large(self._line_bytes)
        try:
            check_depth(line, self._depth)
        except NestingError:
            raise too_large(self._depth) from None

    def _decode_slowly(self, line: bytes) -> Record | None:
        try:
            fields = _members(line)
        except NestingError:
            raise too_large(self._depth) from None
        kind = fields.get("type")
        if not isinstance(kind, str):
            return None
        for name in _NUMBERS:
            if isinstance(fields.get(name), float):
                fields[name] = safe_integer(fields[name])
        if "data" in fields and kind not in self._format.types_with_data:
            fields["data"] = msgspec.Raw()
        if "sourceEventSeqs" in fields:
            fields["sourceEventSeqs"] = msgspec.Raw(json.dumps(fields["sourceEventSeqs"]).encode())
        try:
            if kind in self._format.known_types:
                converted: Record = convert(fields, self._format.union)
                return converted
            return convert({**fields, "type": "unknown"}, self._format.unknown)
        except msgspec.ValidationError:
            return None


def line_type(line: bytes) -> object:
    """The `type` of a line that is a JSON object, else None; for lines behind the end of the usable log.

    Raises Unreadable, too-large.
    """
    try:
        return _members(line).get("type")
    except NestingError:
        raise too_large(MAX_DEPTH) from None


def _members(line: bytes) -> dict[str, Any]:
    """The members of the object that the line is; none if it is no object. Raises NestingError."""
    try:
        value = decode_json_slowly(line.decode("utf-8", "replace").encode(), repair_names=True)
        return convert(value, dict[str, Any])
    except NestingError:
        raise
    except (JsonError, msgspec.ValidationError):
        return {}
