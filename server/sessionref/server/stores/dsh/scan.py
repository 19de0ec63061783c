"""The usable part of a log: up to its first bad line, unless a finished turn follows (dsh-format section 2.5)."""

from __future__ import annotations

from io import BytesIO
from typing import Final

from sessionref.server.stores.dsh.fold import Fold
from sessionref.server.stores.dsh.records import EventDecoder, line_type
from sessionref.server.stores.problems import corrupt

__all__ = ("LogScan",)

_TURN_END: Final = "turn/end"


class LogScan:
    """Feeds the lines of a log to a fold; `skipped_lines` counts the first bad line and all behind it."""

    def __init__(self, decoder: EventDecoder, fold: Fold) -> None:
        self.skipped_lines = 0
        self._decoder = decoder
        self._fold = fold

    def feed(self, block: bytes) -> None:
        """Take a block of complete lines. Raises Unreadable: corrupt, too-large."""
        decode, fold = self._decoder.decode, self._fold.feed
        if self.skipped_lines and _TURN_END.encode() not in block:
            self.skipped_lines += block.count(b"\n")
            return
        # Several times as fast as `split`, which looks at every byte by itself.
        for line in BytesIO(block):
            if self.skipped_lines:
                self._skip(line)
                continue
            record = decode(line)
            if record is None or not fold(record):
                self.skipped_lines = 1

    def _skip(self, line: bytes) -> None:
        # A finished turn means that the writer went on behind the bad line: the log is not merely torn.
        if _TURN_END.encode() in line and line_type(line) == _TURN_END:
            raise corrupt()
        self.skipped_lines += 1
