"""The one exception of the inner parts of stores: why a session, or the whole store, cannot be read."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from sessionref.protocol.errors import ReadFailedReason, SessionReferenceError, read_failed

__all__ = ("Unreadable", "corrupt", "failures_of", "from_os_error", "too_large")

_REASONS: Final[dict[int | None, ReadFailedReason]] = {
    errno.ENOENT: ReadFailedReason.NOT_FOUND,
    # Some file systems take shorter names than others.
    errno.ENAMETOOLONG: ReadFailedReason.NOT_FOUND,
    errno.EACCES: ReadFailedReason.PERMISSION,
    errno.EPERM: ReadFailedReason.PERMISSION,
    # Opening without following answers these for a link, a file in a folder's place, and a socket or idle fifo.
    errno.ELOOP: ReadFailedReason.OUTSIDE_ROOT,
    errno.ENOTDIR: ReadFailedReason.OUTSIDE_ROOT,
    errno.ENXIO: ReadFailedReason.OUTSIDE_ROOT,
}


class Unreadable(Exception):
    """Reading was given up for `reason`; `limit` is the limit that was crossed, if one was."""

    def __init__(self, reason: ReadFailedReason, limit: int | None = None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.limit = limit

    def about(self, session_id: str | None) -> SessionReferenceError:
        """The failure as the store's callers get it."""
        return read_failed(self.reason, session_id, limit=self.limit)


def corrupt() -> Unreadable:
    """The log breaks a rule of its format."""
    return Unreadable(ReadFailedReason.CORRUPT)


def too_large(limit: int) -> Unreadable:
    """The log crosses `limit`."""
    return Unreadable(ReadFailedReason.TOO_LARGE, limit)


def from_os_error(error: OSError) -> Unreadable:
    """What a failed system call below the store's root means."""
    return Unreadable(_REASONS.get(error.errno, ReadFailedReason.IO))


@contextmanager
def failures_of(session_id: str | None) -> Generator[None]:
    """Turn every failure of reading into the one that a store's callers know."""
    try:
        yield
    except Unreadable as problem:
        raise problem.about(session_id) from problem
    except OSError as error:
        raise from_os_error(error).about(session_id) from error
