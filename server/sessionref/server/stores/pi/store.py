"""The store of pi sessions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sessionref.server.store import CheckCancelled
from sessionref.server.stores.folders import Folder, folders_below
from sessionref.server.stores.folds import Log
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.logs import LogStore
from sessionref.server.stores.pi.conversation import PiConversation
from sessionref.server.stores.pi.labels import PiLabels
from sessionref.server.stores.pi.layout import log_at, sessions_folder
from sessionref.server.stores.pi.records import PiRecord
from sessionref.server.stores.problems import Unreadable

__all__ = ("PiStore",)

_RUN_LEVELS = 3
"""Folders between a working directory's and the log of a sub-agent: the parent's, the run's, and the try's."""


class PiStore(LogStore[PiRecord]):
    """The sessions of an agent folder or in a folder of sessions, there directly or by working directories."""

    kind = "pi"
    watched = (".",)

    def __init__(self, home: Path, *, limits: ReadingLimits | None = None) -> None:
        super().__init__(sessions_folder(home), PiRecord, limits=limits)
        self._given = home

    def open_home(self) -> Folder:
        """Open the folder of sessions. Raises OSError, Unreadable."""
        if self.home == self._given or not os.path.isdir(self.home):
            # An agent folder has none before its first session.
            self.home = sessions_folder(self._given)
        return super().open_home()

    def group_folders(self, home: Folder) -> Iterator[str]:
        """The folder itself, those of working directories, and those of their sub-agents' runs."""
        yield ""
        for project in home.folders_and_links():
            yield project
            yield from folders_below(home, project, _RUN_LEVELS)

    def log_at(self, key: str) -> Log | None:
        """The session that a path is."""
        return log_at(key)

    def new_labels(self) -> PiLabels:
        """A fold before the first record."""
        return PiLabels()

    def new_conversation(self, log: Log) -> PiConversation:
        """A fold before the first record."""
        return PiConversation()

    def find(self, home: Folder, native_id: str, check: CheckCancelled) -> list[Log]:
        """The logs of a session: by their names, or, where somebody renamed a file, by their headers."""
        named = self.logs_where(home, lambda log: log.native_id == native_id, check)
        named = [log for log in named if log.is_subagent or self._id_in(home, log, check) in (native_id, None)]
        if named:
            return named
        return self.logs_where(
            home, lambda log: not log.is_subagent and self._id_in(home, log, check) == native_id, check
        )

    def _id_in(self, home: Folder, log: Log, check: CheckCancelled) -> str | None:
        """The id in a log's header; None if that cannot be read."""
        labels = PiLabels()
        try:
            with self.open_log(home, log, check) as reading:
                for block in reading.reader.blocks():
                    for line in block.split(b"\n"):
                        record = self.decoder.decode(line)
                        if record is not None:
                            labels.feed(record)
                        if labels.id is not None:
                            return labels.id
        except (OSError, Unreadable):
            return None
        return None
