"""The bytes of one log as blocks of complete lines, plain or zstd, of a size fixed when reading starts.

A compressed log is a row of independent zstd frames (RFC 8878). In DSH's the first holds the header line alone and
every other one whole lines (dsh-format section 1.2), so that another pass can go on behind any of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Final

from sessionref.server.store import CheckCancelled
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import corrupt, too_large

__all__ = ("CHECKED_BYTES", "LogReader")

CHECKED_BYTES: Final = 4096
"""Stored bytes before a position that must be the same: a page, which no two different logs share by chance."""

_FRAME_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_FIRST_BYTES: Final = 4096
"""The first step of a read: more than most header lines, so that reading a header alone stays cheap."""
_FIRST_STEP: Final = 512
"""The first step into a frame: most frames are small, and what follows one in a step is copied at its end."""


class LogReader:
    """One pass over a log, from its start or from a position at which an earlier pass ended.

    `torn` is true, after the last block, if the log ends in an incomplete line or frame. `position` is then where
    another pass can go on, `tail` the stored bytes before it, and `is_resumable` whether the blocks went no further
    than that; `header` is the header line, or its frame, as it is stored. `block_bytes` counts what the blocks held,
    `open_line` is the line that the log ends in without a line feed, and `frame_is_open` whether a frame is incomplete.
    """

    def __init__(
        self,
        descriptor: int,
        size: int,
        *,
        compressed: bool,
        limits: ReadingLimits,
        check: CheckCancelled,
        start: int = 0,
        tail: bytes = b"",
        frames_hold_lines: bool = True,
    ) -> None:
        self.torn = self.frame_is_open = False
        self._frames_hold_lines = frames_hold_lines
        self.position = start
        self.header = b""
        self.is_resumable = True
        self.block_bytes = 0
        self.tail = tail
        self._recent = tail
        self._first: list[bytes] = []
        self._descriptor = descriptor
        self._offset = start
        self._left = max(0, size - start)
        os.lseek(descriptor, start, os.SEEK_SET)
        self._compressed = compressed
        self._limits = limits
        self._check = check
        self._open_line: list[bytes] = []
        self._open_bytes = 0
        self._header_read = self._first_frame_read = start > 0

    def blocks(self) -> Iterator[bytes]:
        """The header line, then blocks of one or more complete lines, all with their line feeds.

        Raises Unreadable (corrupt, too-large), OSError, and what `check` raises.
        """
        for piece in self._frames() if self._compressed else self._pieces():
            block = self._complete_lines(piece)
            if not block:
                continue
            if not self._compressed:
                self.position = self._offset - self._open_bytes
                self.tail = (self.tail[-CHECKED_BYTES:] + block[-CHECKED_BYTES:])[-CHECKED_BYTES:]
            self.block_bytes += len(block)
            # Lines of a frame that is not over yet are beyond what another pass could go on from.
            self.is_resumable = not self._compressed
            if not self._header_read:
                self._header_read = True
                end = block.index(b"\n") + 1
                if not self._compressed:
                    self.header = block[:end]
                yield block[:end]
                block = block[end:]
            if block:
                if self._compressed and self._frames_hold_lines and not self._first_frame_read:
                    raise corrupt()
                yield block
        self.torn = self.torn or self._open_bytes > 0

    @property
    def open_line(self) -> bytes:
        """What follows the last line feed, after the last block."""
        return b"".join(self._open_line)

    def _complete_lines(self, piece: bytes) -> bytes:
        """The piece up to its last line feed, behind what was left of the pieces before."""
        block = b""
        if end := piece.rfind(b"\n") + 1:
            self._refuse_long(self._open_bytes + piece.index(b"\n"))
            block = b"".join([*self._open_line, memoryview(piece)[:end]]) if self._open_line else piece[:end]
            self._open_line, self._open_bytes = [], 0
        if end < len(piece):
            self._open_line.append(piece[end:])
            self._open_bytes += len(piece) - end
            self._refuse_long(self._open_bytes)
        return block

    def _refuse_long(self, length: int) -> None:
        # Lines inside one piece are left to the decoder: only those that go on in the next can grow.
        if length > self._limits.line_bytes:
            raise too_large(self._limits.line_bytes)

    def _read(self, size: int) -> bytes:
        data = os.read(self._descriptor, min(size, self._left))
        self._left = self._left - len(data) if data else 0
        self._offset += len(data)
        if self._compressed and self._frames_hold_lines:
            # A frame may end anywhere in what is given next, and its tail reach back from there.
            self._recent = (self._recent + data)[-(CHECKED_BYTES + len(data) + len(_FRAME_MAGIC)) :]
            if not self._first_frame_read:
                self._first.append(data)
        return data

    def _pieces(self) -> Iterator[bytes]:
        size = min(_FIRST_BYTES, self._limits.piece_bytes)
        while self._left:
            self._check()
            if data := self._read(size):
                yield data
            size = self._limits.piece_bytes

    def _frames(self) -> Iterator[bytes]:
        # Loaded here, so that homes without compressed logs do without it.
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd

        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: self._limits.window_log}
        data, at = self._read(_FIRST_BYTES), 0
        while True:
            if len(data) - at < len(_FRAME_MAGIC):
                data, at = data[at:] + self._read(self._limits.compressed_bytes), 0
                if not data:
                    return
            if not _FRAME_MAGIC.startswith(data[at : at + len(_FRAME_MAGIC)]):
                raise corrupt()
            frame = zstd.ZstdDecompressor(options=options)
            step = _FIRST_STEP
            while not frame.eof:
                self._check()
                given = b""
                if frame.needs_input:
                    if at == len(data):
                        data, at = self._read(self._limits.compressed_bytes), 0
                        if not data:
                            self.torn = self.frame_is_open = True
                            return
                    given = data[at : at + step]
                    at += len(given)
                    step = min(2 * step, self._limits.compressed_bytes)
                try:
                    piece = frame.decompress(given, self._limits.piece_bytes)
                except zstd.ZstdError as error:
                    # The library tells the two apart by its text alone.
                    if "memory" in str(error):
                        raise too_large(1 << self._limits.window_log) from None
                    raise corrupt() from None
                if piece:
                    yield piece
            at -= len(frame.unused_data)
            if not self._frames_hold_lines:
                continue
            if self._open_bytes or not self._header_read:
                raise corrupt()
            self.position = self._offset - (len(data) - at)
            end = len(self._recent) - (len(data) - at)
            self.tail = self._recent[max(0, end - CHECKED_BYTES) : end]
            if not self._first_frame_read:
                self.header, self._first = b"".join(self._first)[: self.position], []
            self._first_frame_read = True
            self.is_resumable = True
