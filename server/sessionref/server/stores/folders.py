"""Opening folders and files below a root without following a link, blocking, or leaving the root.

Every name is opened relative to its folder's descriptor, so that no part of a path can be swapped for a link between
a check and its use.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.problems import Unreadable

__all__ = ("Folder", "OpenFile", "folders_below")

_RELATIVE: Final = os.open in os.supports_dir_fd and os.listdir in os.supports_fd
"""Windows can open by path only: there, a look at the path before opening has to do."""

_CLOSE_ON_EXEC: Final[int] = getattr(os, "O_CLOEXEC", 0)
_FILE_FLAGS: Final[int] = (
    os.O_RDONLY
    | _CLOSE_ON_EXEC
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
_ROOT_FLAGS: Final[int] = os.O_RDONLY | _CLOSE_ON_EXEC | getattr(os, "O_DIRECTORY", 0)
_NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)


class OpenFile:
    """A plain file open for reading; a context manager. `facts` are those of the moment after opening."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.facts = os.fstat(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)

    def part(self, start: int, size: int) -> bytes:
        """So many bytes from an offset on, fewer where the file ends before them. Raises OSError."""
        os.lseek(self.descriptor, start, os.SEEK_SET)
        data = b""
        while len(data) < size and (piece := os.read(self.descriptor, size - len(data))):
            data += piece
        return data


class Folder:
    """An open folder; a context manager. All methods raise OSError, and `file` and `folder` also Unreadable."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def root(cls, path: Path) -> Folder:
        """Open the folder that all others are below; it alone may be reached through links."""
        if _RELATIVE:
            return cls(path, os.open(path, _ROOT_FLAGS))
        path.stat()
        return cls(path, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def names(self) -> list[str]:
        """The names in the folder, in the order of their characters."""
        return sorted(os.listdir(self._path if self._descriptor is None else self._descriptor))

    def folders_and_links(self) -> list[str]:
        """The names of the folders and links in the folder, sorted; most file systems tell without a look at each."""
        with os.scandir(self._path if self._descriptor is None else self._descriptor) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False) or entry.is_symlink())

    def own_facts(self) -> os.stat_result:
        """What the folder itself is."""
        return os.lstat(self._path) if self._descriptor is None else os.fstat(self._descriptor)

    def facts(self, name: str) -> os.stat_result:
        """What stands under a name, links not followed."""
        if self._descriptor is None:
            return os.lstat(self._path / name)
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def folder(self, name: str, *, follow_link: bool = False) -> Folder:
        """Open a folder in this one; Unreadable (outside-root) for a link, unless that may be followed."""
        if self._descriptor is None:
            if not follow_link:
                self._require(name, stat.S_IFDIR)
            return Folder(self._path / name, None)
        flags = _ROOT_FLAGS if follow_link else _ROOT_FLAGS | _NO_LINK
        return Folder(self._path / name, os.open(name, flags, dir_fd=self._descriptor))

    @contextmanager
    def below(self, path: str) -> Generator[Folder]:
        """Open a folder by its path, part by part, so that no link is followed on the way either."""
        with ExitStack() as stack:
            folder = self
            for name in path.split("/"):
                folder = stack.enter_context(folder.folder(name))
            yield folder

    def file(self, name: str) -> OpenFile:
        """Open a plain file in this folder; Unreadable (outside-root) for anything else."""
        if self._descriptor is None:
            self._require(name, stat.S_IFREG)
            opened = OpenFile(os.open(self._path / name, _FILE_FLAGS))
        else:
            opened = OpenFile(os.open(name, _FILE_FLAGS, dir_fd=self._descriptor))
        if not stat.S_ISREG(opened.facts.st_mode):
            os.close(opened.descriptor)
            raise Unreadable(ReadFailedReason.OUTSIDE_ROOT)
        return opened

    def _require(self, name: str, kind: int) -> None:
        if stat.S_IFMT(self.facts(name).st_mode) != kind:
            raise Unreadable(ReadFailedReason.OUTSIDE_ROOT)


def folders_below(root: Folder, path: str, levels: int) -> Iterator[str]:
    """The paths of the folders that lie exactly so many levels below a folder; links above the last are passed by.

    A folder on the way that cannot be listed is named in place of those: whoever opens it for its files is told why.
    """
    try:
        with root.below(path) as folder:
            names = folder.folders_and_links()
    except (FileNotFoundError, NotADirectoryError, Unreadable):
        return
    except OSError as error:
        # On some systems opening a link fails so.
        if error.errno != errno.ELOOP:
            yield path
        return
    for name in names:
        if levels == 1:
            yield f"{path}/{name}"
        else:
            yield from folders_below(root, f"{path}/{name}", levels - 1)
