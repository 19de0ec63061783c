"""Folders for files that nobody else may see and that must not outlive this process, however that ends.

An ordinary end removes them, and so does `remove_private_folders` before one that is not ordinary. What a process that
was killed has left is removed by the next one that makes such a folder: a lock tells whether anybody is still there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Final

__all__ = ("PrivateFolder", "remove_private_folders")

_PREFIX: Final = "sessionref-"
_NAME: Final = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}")
_LOCK: Final = "lock"
_LOCK_FLAGS: Final[int] = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_swept: Final = threading.Event()
"""Set once this process has looked for what others have left."""


class PrivateFolder:
    """A folder in the system's temporary one, for this user alone. Raises OSError where none can be made."""

    def __init__(self) -> None:
        if not _swept.is_set():
            _swept.set()
            _sweep()
        folder = tempfile.mkdtemp(prefix=_PREFIX)
        self.path = Path(folder)
        self._remove = weakref.finalize(self, _remove, folder, _locked(folder, os.O_CREAT | os.O_EXCL))
        _folders.add(self)

    def remove(self) -> None:
        """Remove the folder with all that is in it; nothing where that has been done."""
        self._remove()


_folders: Final[weakref.WeakSet[PrivateFolder]] = weakref.WeakSet()


def remove_private_folders() -> None:
    """Remove all that there are, also while they are in use: to be called right before the process ends."""
    for folder in list(_folders):
        folder.remove()


def _remove(folder: str, lock: int | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        os.close(lock)


def _locked(folder: str, flags: int) -> int | None:
    """A descriptor that holds the folder's lock; None where somebody else does, or there is none to be had."""
    if sys.platform == "win32":
        return None
    import fcntl

    descriptor = None
    try:
        descriptor = os.open(os.path.join(folder, _LOCK), _LOCK_FLAGS | flags, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if descriptor is not None:
            os.close(descriptor)
        return None
    return descriptor


def _sweep() -> None:
    """Remove what processes that are gone have left. Raises nothing; without locks nothing is known to be left."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if not _NAME.fullmatch(entry.name):
                continue
            with contextlib.suppress(OSError):
                facts = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
                    continue
                lock = _locked(entry.path, 0)
                if lock is not None:
                    _remove(entry.path, lock)
