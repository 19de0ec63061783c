"""Telling a file's state from any other by a look at it."""

from __future__ import annotations

import os
import time
from typing import Final

import msgspec

__all__ = ("FRESH_NANOSECONDS", "file_state", "is_settled")

FRESH_NANOSECONDS: Final = 2_000_000_000
"""The coarsest grain of time that a file system in use has: a change within it leaves no trace in a file's time."""


def file_state(facts: os.stat_result) -> bytes:
    """What tells a file's state from any other; none is equal to one that was looked at too soon after a change."""
    looked_at = 0 if is_settled(facts.st_mtime_ns) else time.time_ns()
    # Some file systems take times that are no 64 bits of nanoseconds.
    return msgspec.msgpack.encode((facts.st_ino, facts.st_size, str(facts.st_mtime_ns), looked_at))


def is_settled(modified_ns: int) -> bool:
    """Whether a change from now on would show in a time of change in ns; ask before reading what shall be kept."""
    return modified_ns <= time.time_ns() - FRESH_NANOSECONDS
