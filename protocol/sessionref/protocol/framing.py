"""Messages on byte streams: newline-delimited JSON and `Content-Length` headers, detected by the first byte.

Sans-IO: bytes in, events out; no buffer outgrows its limit (contract section 1, framing table).
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, Literal

import msgspec

from sessionref.protocol.limits import Limits

__all__ = ("Broken", "FrameDecoder", "FrameEvent", "Framing", "Garbage", "Message", "TooLong", "encode_frame")

Framing = Literal["line", "header"]

_BLANKS: Final = b" \t\r\n"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_BLOCK_END: Final = re.compile(rb"\r?\n\r?\n")
_LINE_ENDS: Final = re.compile(rb"[\r\n]*")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_OPENING_NAMES: Final = (b"content-length:", b"content-type:")


class Message(msgspec.Struct, frozen=True):
    """The bytes of one message, its framing taken off."""

    data: bytes


class TooLong(msgspec.Struct, frozen=True):
    """A message beyond the limit; its bytes are being skipped. `actual` in bytes, where a header told it."""

    limit: int
    actual: int | None


class Garbage(msgspec.Struct, frozen=True):
    """A line that cannot begin a message, skipped (only where the stream's opener is lenient, as on stdio)."""


class Broken(msgspec.Struct, frozen=True):
    """The stream cannot be read on; `reason` is a constant phrase. The last event of a stream."""

    reason: str


FrameEvent = Message | TooLong | Garbage | Broken


class _State(Enum):
    DETECT = auto()
    GARBAGE = auto()
    LINE = auto()
    LONG_LINE = auto()
    HEADER = auto()
    BODY = auto()
    LONG_BODY = auto()
    BROKEN = auto()


class FrameDecoder:
    """Turns received bytes into messages; one instance a connection.

    `lenient` streams (stdio) skip and report lines that begin like neither framing, as long as no framing is
    established; other streams are broken by them, so that a browser's POST cannot drive the server.
    """

    def __init__(self, limits: Limits, *, lenient: bool = False) -> None:
        self._limits = limits
        self._lenient = lenient
        self._state = _State.DETECT
        self._buffer = bytearray()
        self._searched = 0
        self._length = 0
        self._skipped = 0
        self._established = False
        self._framing: Framing = "line"
        self._steps = {
            _State.DETECT: self._detect,
            _State.GARBAGE: self._skip_garbage,
            _State.LINE: self._read_line,
            _State.LONG_LINE: self._skip_line,
            _State.HEADER: self._read_header,
            _State.BODY: self._read_body,
            _State.LONG_BODY: self._skip_body,
            _State.BROKEN: self._discard,
        }

    @property
    def framing(self) -> Framing:
        """The framing to answer in; newline-delimited until the peer has shown its own."""
        return self._framing

    def feed(self, data: bytes) -> list[FrameEvent]:
        """Take received bytes; return what they complete, in order."""
        self._buffer += data
        events: list[FrameEvent] = []
        while self._steps[self._state](events):
            pass
        return events

    def finish(self) -> list[FrameEvent]:
        """Take the end of input: a last line needs no newline, anything else unfinished is dropped."""
        if self._state is _State.LINE and self._buffer.strip(_BLANKS):
            return self.feed(b"\n")
        return []

    def _detect(self, events: list[FrameEvent]) -> bool:
        kept = self._buffer.lstrip(_BLANKS)
        while kept.startswith(_BYTE_ORDER_MARK):
            kept = kept.removeprefix(_BYTE_ORDER_MARK).lstrip(_BLANKS)
        self._buffer = kept
        if _BYTE_ORDER_MARK.startswith(kept[: len(_BYTE_ORDER_MARK)]):
            # Nothing yet, or what may become a byte order mark.
            return False
        if self._buffer.startswith((b"{", b"[")):
            self._enter(_State.LINE)
        elif self._buffer.startswith((b"C", b"c")):
            self._enter(_State.HEADER)
        else:
            self._reject_opening(events)
        return True

    def _reject_opening(self, events: list[FrameEvent]) -> None:
        if self._lenient and not self._established:
            events.append(Garbage())
            self._enter(_State.GARBAGE)
        else:
            self._break(events, "the first bytes begin neither a message nor a header")

    def _skip_garbage(self, events: list[FrameEvent]) -> bool:
        return self._skip_to_newline(_State.DETECT)

    def _read_line(self, events: list[FrameEvent]) -> bool:
        self._established = True
        limit = self._limits.max_message_bytes
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._buffer)
            if self._searched > limit:
                events.append(TooLong(limit, None))
                self._enter(_State.LONG_LINE)
                return True
            return False
        line = bytes(memoryview(self._buffer)[:end])
        self._drop(end + 1)
        if len(line) > limit:
            events.append(TooLong(limit, None))
            self._check_skipped(len(line), events)
        elif line.strip(_BLANKS):
            events.append(Message(line))
        return True

    def _skip_line(self, events: list[FrameEvent]) -> bool:
        end = self._buffer.find(b"\n")
        self._skipped += len(self._buffer) if end < 0 else end
        return not self._check_skipped(self._skipped, events) and self._skip_to_newline(_State.LINE)

    def _check_skipped(self, length: int, events: list[FrameEvent]) -> bool:
        """Give the stream up if so many bytes of one line are too many to skip; whether they are."""
        too_many = length > self._limits.skip_factor * self._limits.max_message_bytes
        if too_many:
            self._break(events, "a message is far too long")
        return too_many

    def _skip_to_newline(self, following: _State) -> bool:
        end = self._buffer.find(b"\n")
        self._drop(len(self._buffer) if end < 0 else end + 1)
        if end >= 0:
            self._enter(following)
        return end >= 0

    def _read_header(self, events: list[FrameEvent]) -> bool:
        blanks = _LINE_ENDS.match(self._buffer)
        count = blanks.end() if blanks else 0
        # A match holds the buffer, which then cannot be shortened.
        del blanks
        if count:
            self._drop(count)
        opening = bytes(self._buffer[: len(_OPENING_NAMES[0])]).lower()
        if not any(opening.startswith(name[: len(opening)]) for name in _OPENING_NAMES):
            self._reject_opening(events)
            return True
        end = _BLOCK_END.search(self._buffer, max(0, self._searched - 3))
        header_bytes, block_bytes = (0, len(self._buffer)) if end is None else (end.start(), end.end())
        is_complete = end is not None
        del end
        if block_bytes > self._limits.max_header_bytes:
            self._break(events, "the header block is too long")
            return True
        if not is_complete:
            self._searched = block_bytes
            return False
        length = _content_length(bytes(self._buffer[:header_bytes]))
        self._drop(block_bytes)
        if length is None:
            self._break(events, "the header block has no valid Content-Length")
            return True
        self._established = True
        self._framing = "header"
        self._length = length
        limit = self._limits.max_message_bytes
        if length <= limit:
            self._enter(_State.BODY)
            return True
        events.append(TooLong(limit, length))
        if length > self._limits.skip_factor * limit:
            self._break(events, "a message is far too long")
        else:
            self._enter(_State.LONG_BODY)
        return True

    def _read_body(self, events: list[FrameEvent]) -> bool:
        if len(self._buffer) < self._length:
            return False
        events.append(Message(bytes(memoryview(self._buffer)[: self._length])))
        self._drop(self._length)
        self._enter(_State.HEADER)
        return True

    def _skip_body(self, events: list[FrameEvent]) -> bool:
        skipped = min(self._length, len(self._buffer))
        self._drop(skipped)
        self._length -= skipped
        if self._length == 0:
            self._enter(_State.HEADER)
        return self._length == 0

    def _discard(self, events: list[FrameEvent]) -> bool:
        self._buffer.clear()
        return False

    def _enter(self, state: _State) -> None:
        self._state = state
        self._searched = 0
        self._skipped = 0

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self._searched = 0

    def _break(self, events: list[FrameEvent], reason: str) -> None:
        events.append(Broken(reason))
        self._state = _State.BROKEN


def encode_frame(framing: Framing, body: bytes) -> bytes:
    """One message as it stands on the stream, header and body in one piece."""
    if framing == "line":
        return body + b"\n"
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _content_length(block: bytes) -> int | None:
    """The one length that a header block gives, or None if it is malformed, missing or contradictory."""
    lengths: set[bytes] = set()
    for line in block.split(b"\n"):
        name, colon, value = line.partition(b":")
        if not colon:
            return None
        if name.strip().lower() == b"content-length":
            lengths.add(value.strip())
    if len(lengths) != 1:
        return None
    (digits,) = lengths
    return int(digits) if _LENGTH.fullmatch(digits) else None
