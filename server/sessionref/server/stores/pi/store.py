"""The store of pi sessions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sessionref.server.stores.file_states import is_settled
from sessionref.server.stores.folders import Folder, folders_below
from sessionref.server.stores.folds import Log
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.pi.conversation import PiConversation
from sessionref.server.stores.pi.labels import PiLabels
from sessionref.server.stores.pi.layout import log_at, sessions_folder
from sessionref.server.stores.pi.records import PiRecord
from sessionref.server.stores.problems import Unreadable
from sessionref.server.stores.told_ids import TellingLogStore

__all__ = ("PiStore",)

_RUN_LEVELS: Final = 2
"""Folders between a parent's and the log of a sub-agent: the run's, and the try's."""


class PiStore(TellingLogStore[PiRecord]):
    """The sessions of an agent folder or in a folder of sessions, there directly or by working directories."""

    kind = "pi"
    watched = (".",)

    def __init__(self, home: Path, *, limits: ReadingLimits | None = None) -> None:
        super().__init__(sessions_folder(home), PiRecord, limits=limits)
        self._given = home
        self._known: dict[str, tuple[int | None, list[str]]] = {}

    def open_home(self) -> Folder:
        """Open the folder of sessions. Raises OSError, Unreadable."""
        if self.home == self._given or not os.path.isdir(self.home):
            # An agent folder has none before its first session.
            self.home = sessions_folder(self._given)
        return super().open_home()

    def group_folders(self, home: Folder) -> Iterator[str]:
        """The folder itself, those of working directories, and those of their sub-agents' runs."""
        yield ""
        projects = home.folders_and_links()
        for gone in set(self._known).difference(projects):
            self._known.pop(gone, None)
        for project in projects:
            yield project
            for parent in self._parents(home, project):
                yield from folders_below(home, f"{project}/{parent}", _RUN_LEVELS)

    def log_at(self, key: str) -> Log | None:
        """The session that a path is."""
        return log_at(key)

    def new_labels(self) -> PiLabels:
        """A fold before the first record."""
        return PiLabels()

    def new_conversation(self, log: Log) -> PiConversation:
        """A fold before the first record."""
        return PiConversation()

    def _parents(self, home: Folder, project: str) -> list[str]:
        """The folders in that of a working directory, looked for again only where that has changed."""
        try:
            changed_ns = home.facts(f"{project}/.").st_mtime_ns
            listed_for, names = self._known.get(project, (None, list[str]()))
            if listed_for != changed_ns:
                # One that changed a moment ago may change again without a trace.
                can_be_kept = is_settled(changed_ns)
                with home.folder(project) as folder:
                    names = folder.folders_and_links()
                self._known[project] = changed_ns if can_be_kept else None, names
        except (OSError, Unreadable):
            # It shows itself when it is opened for its files.
            return []
        return names
