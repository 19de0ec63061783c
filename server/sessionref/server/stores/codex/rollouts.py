"""The rollout files of a Codex home: what their names say, and which of them is a thread's current one.

All folders are looked at on every keystroke, ten thousand rollouts in a thousand of them. So a folder is listed again
only if it has changed.
"""

from __future__ import annotations

import re
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from sessionref.server.stores.file_states import is_settled
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.folds import Log
from sessionref.server.stores.problems import Unreadable

__all__ = ("ROOTS", "Rollout", "RolloutFolders", "Rollouts", "rollout_at")

ROOTS: Final = ("sessions", "archived_sessions")

LEVELS: Final = 3
"""Folders below a root: those of years, months and days; archives and old homes have none."""

_UUID: Final = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_PATH: Final = re.compile(
    rf"(?:sessions|archived_sessions)/(?:[^/]+/){{0,{LEVELS}}}"
    rf"(rollout-[^/]*?({_UUID})(?:_({_UUID}))?)\.(jsonl|jsonl\.zst|json)"
)
_ENDINGS: Final = ("json", "jsonl.zst", "jsonl")
"""From the least wanted: what was before lines, what was compressed later, and what is written to."""


class Rollout(NamedTuple):
    """A rollout file by its path below the home; the first file of a thread has the thread's id as its own."""

    key: str
    stem: str
    thread_id: str
    rollout_id: str
    ending: int

    @property
    def log(self) -> Log:
        """The file as the log of its thread."""
        return Log(self.key, self.thread_id)

    @property
    def is_read(self) -> bool:
        """Whether it is in a format that is read here."""
        return _ENDINGS[self.ending] != "json"

    @property
    def rank(self) -> tuple[bool, bool, str]:
        """The higher, the more current: later files have later ids, and a first file has no id of its own."""
        return self.is_read, self.rollout_id != self.thread_id, self.rollout_id.lower()


def rollout_at(path: str) -> Rollout | None:
    """The rollout that a path below the home is by its names alone."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    stem, thread_id, rollout_id, ending = match.groups()
    return Rollout(path, f"{path[: match.start(1)]}{stem}", thread_id, rollout_id or thread_id, _ENDINGS.index(ending))


class _Folder(NamedTuple):
    """A folder as it was listed; `is_settled` if it had not changed so lately that it might again within its time."""

    inode: int
    modified_ns: int
    is_settled: bool
    names: tuple[str, ...]
    rollouts: tuple[Rollout, ...]


class Rollouts:
    """All rollouts at a moment, and what could not be looked into."""

    def __init__(self, folders: Mapping[str, _Folder], closed: tuple[str, ...], noticed_ns: int = 0) -> None:
        self.paths = tuple(folders)
        self.closed = closed
        # That a folder is open again shows in nobody's time.
        self.noticed_ns = noticed_ns
        self.modified_ns = max(noticed_ns, *(folder.modified_ns for folder in folders.values()), 0)
        by_stem: dict[str, Rollout] = {}
        for folder in folders.values():
            for rollout in folder.rollouts:
                other = by_stem.setdefault(rollout.stem, rollout)
                if other.ending < rollout.ending:
                    by_stem[rollout.stem] = rollout
        self.threads: dict[str, list[Rollout]] = defaultdict(list)
        self.by_id: dict[str, list[Rollout]] = defaultdict(list)
        for rollout in by_stem.values():
            self.threads[rollout.thread_id].append(rollout)
            self.by_id[rollout.rollout_id.lower()].append(rollout)

    def current(self, thread_id: str, has_content: Callable[[Log], bool]) -> list[Rollout]:
        """The current file of a thread; several if there are copies of it, of which none can be told to be it."""
        files = self.threads.get(thread_id, [])
        if len(files) > 1:
            # A file that is empty yet makes none of its thread's obsolete.
            files = [rollout for rollout in files if has_content(rollout.log)] or files
        highest = max((rollout.rank for rollout in files), default=None)
        return [rollout for rollout in files if rollout.rank == highest]


class RolloutFolders:
    """Finds the rollouts of one home. Thread-safe: what was found is replaced as a whole."""

    def __init__(self, open_folder: Callable[[Folder, str], AbstractContextManager[Folder]]) -> None:
        self._open_folder = open_folder
        # One member, so that no other thread sees half of what was found.
        self._known: tuple[Mapping[str, _Folder], Rollouts] = {}, Rollouts({}, ())

    @property
    def found(self) -> Rollouts:
        """What the last look found."""
        return self._known[1]

    def look(self, home: Folder) -> Rollouts:
        """All rollouts there are now; one look at every folder, and a listing of those that changed.

        Raises nothing: a folder that cannot be looked into is named in `closed`.
        """
        known, rollouts = self._known
        found, closed = dict[str, _Folder](), list[str]()
        for root in ROOTS:
            self._walk(home, root, LEVELS, known, found, closed)
        if tuple(closed) != rollouts.closed:
            rollouts = Rollouts(found, tuple(closed), time.time_ns())
        elif not _are_same(known, found):
            rollouts = Rollouts(found, rollouts.closed, rollouts.noticed_ns)
        self._known = found, rollouts
        return rollouts

    def _walk(
        self,
        home: Folder,
        path: str,
        levels: int,
        known: Mapping[str, _Folder],
        found: dict[str, _Folder],
        closed: list[str],
    ) -> None:
        try:
            facts = home.facts(path)
            if stat.S_ISLNK(facts.st_mode) and stat.S_ISDIR(home.facts(f"{path}/.").st_mode):
                closed.append(path)
            if not stat.S_ISDIR(facts.st_mode):
                return
            listed = known.get(path)
            if listed is None or not listed.is_settled or listed[:2] != (facts.st_ino, facts.st_mtime_ns):
                can_be_kept = is_settled(facts.st_mtime_ns)
                with self._open_folder(home, path) as folder:
                    names = folder.folders_and_links() if levels else []
                    paths = (f"{path}/{name}" for name in folder.names())
                    rollouts = tuple(rollout for at in paths if (rollout := rollout_at(at)) is not None)
                listed = _Folder(facts.st_ino, facts.st_mtime_ns, can_be_kept, tuple(names), rollouts)
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, Unreadable):
            closed.append(path)
            return
        found[path] = listed
        for name in listed.names:
            if rollout_at(f"{path}/{name}") is None:
                self._walk(home, f"{path}/{name}", levels - 1, known, found, closed)


def _are_same(one: Mapping[str, _Folder], other: Mapping[str, _Folder]) -> bool:
    return one.keys() == other.keys() and all(one[path] is folder for path, folder in other.items())
