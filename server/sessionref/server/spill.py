"""The spill store: full projections of truncated references, private, outliving the process (contract section 4).

A transaction remembers what one request has saved, so that a request which fails, is cancelled or whose answer is
lost leaves nothing behind, even if the storage finishes its work only later.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec

from sessionref.protocol.jsontext import replace_surrogates

__all__ = (
    "LocalSpillStore",
    "SavedSpill",
    "SpillStore",
    "SpillTransaction",
    "remove_spills",
)

RETRIEVAL_HINT: Final = "Read this file with an offset and a limit, or search it; its lines are JSON strings of text."
SECONDS_PER_DAY: Final = 86_400

_OWNER_FOLDER: Final = re.compile(r"session-[0-9a-f]{12}")
_SPILL_NAME: Final = re.compile(r"[0-9a-f]{12}-session-reference-[1-9][0-9]*\.txt")
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | getattr(os, "O_CLOEXEC", 0)


class SavedSpill(msgspec.Struct, frozen=True):
    """A saved snapshot: where it is (an absolute path here), its size in bytes, and how a model may read it."""

    locator: str
    bytes: int
    retrieval_hint: str


class SpillTransaction:
    """What one request has spilled; thread-safe, so that a save that ends late still finds the request's fate."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paths: list[Path] = []
        self._over = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing was saved."""
        return not self._paths

    def register(self, path: Path) -> bool:
        """Announce a file before it is created; False if the request is over and nothing may be saved."""
        with self._lock:
            if not self._over:
                self._paths.append(path)
            return not self._over

    def withdraw(self, path: Path) -> None:
        """Take an announcement back: the file was not created."""
        with self._lock, suppress(ValueError):
            self._paths.remove(path)

    def confirm(self, path: Path) -> bool:
        """Ask, once the file is whole, whether it may stay; if not it has been removed."""
        with self._lock:
            may_stay = not self._over
        if not may_stay:
            _remove(path)
        return may_stay

    def end(self) -> list[Path]:
        """Let nothing more be saved, and return what is to be removed now; the rest removes itself."""
        with self._lock:
            self._over = True
            paths, self._paths = self._paths, []
        return paths

    def discard(self) -> None:
        """Remove all that was saved and all that still will be; may be called more than once."""
        remove_spills(self.end())


class SpillStore(Protocol):
    """Keeps full snapshots where the model can read them later; synchronous, called from worker threads."""

    def save(self, owner_id: str, number: int, content: Iterable[bytes], transaction: SpillTransaction) -> SavedSpill:
        """Save the transcript of the reference with that number, counted from 1, for the target session.

        Raises OSError if that is not possible; nothing is left behind then.
        """
        ...


class LocalSpillStore:
    """Spills below one private directory: 0700, `session-<hash of the target>/<random>-session-reference-<n>.txt`."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def save(self, owner_id: str, number: int, content: Iterable[bytes], transaction: SpillTransaction) -> SavedSpill:
        """Write one snapshot with mode 0600, exclusively, following no link. Raises OSError."""
        digest = hashlib.sha256(replace_surrogates(owner_id).encode()).hexdigest()[:12]
        folder, name = f"session-{digest}", f"{secrets.token_hex(6)}-session-reference-{number}.txt"
        path = self._root / folder / name
        _make_private_root(self._root)
        with _open_directory(self._root) as root, _private_folder(root, folder) as parent:
            if not transaction.register(path):
                raise InterruptedError
            try:
                descriptor = os.open(name, _CREATE, 0o600, dir_fd=parent)
            except BaseException:
                # Whatever stands under that name is not ours to remove.
                transaction.withdraw(path)
                raise
            try:
                with open(descriptor, "wb") as file:
                    size = sum(file.write(piece) for piece in content)
            except BaseException:
                with suppress(OSError):
                    os.unlink(name, dir_fd=parent)
                raise
        if not transaction.confirm(path):
            raise InterruptedError
        return SavedSpill(str(path), size, RETRIEVAL_HINT)

    def sweep(self, older_than_days: int, now: float | None = None) -> int:
        """Delete spills of this user that are older than that, following no link; 0 days is never.

        Returns how many were deleted. What cannot be looked at or deleted is left.
        """
        if older_than_days == 0:
            return 0
        oldest = (time.time() if now is None else now) - older_than_days * SECONDS_PER_DAY
        deleted = 0
        with suppress(OSError), _open_directory(self._root) as root:
            for folder in filter(_OWNER_FOLDER.fullmatch, os.listdir(root)):
                with suppress(OSError), _open_directory(folder, root) as parent:
                    deleted += _sweep_folder(parent, oldest)
        return deleted


def remove_spills(paths: Iterable[Path]) -> None:
    """Remove files that a transaction has given up; what is gone already is no fault."""
    for path in paths:
        _remove(path)


def _sweep_folder(parent: int, oldest: float) -> int:
    deleted = 0
    for name in filter(_SPILL_NAME.fullmatch, os.listdir(parent)):
        with suppress(OSError):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and found.st_mtime < oldest:
                os.unlink(name, dir_fd=parent)
                deleted += 1
    return deleted


def _make_private_root(root: Path) -> None:
    for folder in (*reversed(root.parents), root):
        with suppress(FileExistsError):
            if not folder.is_dir():
                folder.mkdir(mode=0o700)


@contextmanager
def _open_directory(name: str | Path, parent: int | None = None) -> Generator[int]:
    descriptor = os.open(name, _DIRECTORY | _NO_FOLLOW, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _private_folder(root: int, name: str) -> Generator[int]:
    _require_private(root)
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=root)
    with _open_directory(name, root) as folder:
        _require_private(folder)
        yield folder


def _require_private(folder: int) -> None:
    """Make sure that only this user can look into the folder. Raises PermissionError for another user's."""
    found = os.fstat(folder)
    if found.st_uid != os.getuid():
        raise PermissionError("the spill directory belongs to another user")
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.fchmod(folder, 0o700)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
