"""Opening a file that somebody named, where only a plain one will do."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

__all__ = ("open_plain_file",)

_FLAGS: Final[int] = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def open_plain_file(path: Path) -> BinaryIO:
    """Open for reading without waiting for a writer, as a pipe would. Raises OSError, ValueError for other kinds."""
    # With an opener, a descriptor that turns out to be a folder's is closed, too.
    file = open(path, "rb", opener=lambda name, _: os.open(name, _FLAGS))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("not a plain file")
    return file
