"""The store of Copilot CLI's sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from sessionref.server.store import CheckCancelled, Lesson, SessionHeader
from sessionref.server.stores.copilot_cli.conversation import CopilotConversation
from sessionref.server.stores.copilot_cli.labels import CopilotLabels
from sessionref.server.stores.copilot_cli.layout import (
    EVENTS,
    FOLDERS,
    SUFFIX,
    WORKSPACE,
    log_at,
    newer_places,
    workspace_of,
)
from sessionref.server.stores.copilot_cli.records import CopilotEvent
from sessionref.server.stores.copilot_cli.workspace import workspace_title
from sessionref.server.stores.file_states import file_state
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.folds import Log
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import Unreadable, failures_of
from sessionref.server.stores.told_ids import TellingLogStore

__all__ = ("CopilotCliStore",)

_MOVED = b"moved"


class CopilotCliStore(TellingLogStore[CopilotEvent]):
    """The sessions of one home: a folder each, whose log may come later or be gone, or a file each as of old."""

    kind = "copilot-cli"
    watched = FOLDERS

    def __init__(self, home: Path, *, limits: ReadingLimits | None = None) -> None:
        super().__init__(home, CopilotEvent, limits=limits)

    def group_folders(self, home: Folder) -> Iterator[str]:
        """The folders of sessions."""
        yield from FOLDERS

    def logs_in(self, home: Folder, group: str) -> list[Log]:
        """The logs of a folder of sessions, each where its name says, be it there or not. Raises OSError, Unreadable.

        So sessions are listed with a look at that folder alone, however many there are.
        """
        with self.open_folder(home, group) as folder:
            folders = [f"{name}/{EVENTS}" for name in folder.folders_and_links() if not name.endswith(SUFFIX)]
            files = [name for name in folder.names() if name.endswith(SUFFIX)]
        return [log for name in (*folders, *files) if (log := self.log_at(f"{group}/{name}")) is not None]

    def log_at(self, key: str) -> Log | None:
        """The session that a path is."""
        return log_at(key)

    def new_labels(self) -> CopilotLabels:
        """A fold before the first event."""
        return CopilotLabels()

    def new_conversation(self, log: Log) -> CopilotConversation:
        """A fold before the first event."""
        return CopilotConversation()

    def beside(self, home: Folder, log: Log) -> bytes:
        """The state of what the agent notes beside the log, or that the session has moved."""
        if self._has_moved(home, log):
            return _MOVED
        path = workspace_of(log)
        try:
            return b"" if path is None else file_state(home.facts(path))
        except OSError:
            return b""

    def with_beside(self, home: Folder, log: Log, header: SessionHeader) -> SessionHeader:
        """The row under the name that the agent has noted, if it has."""
        path = workspace_of(log)
        if path is None:
            return header
        group, _, name = path.rpartition("/")
        try:
            with self.open_folder(home, group) as folder, folder.file(name) as file:
                title = workspace_title(file)
        except (OSError, Unreadable):
            return header
        return header if title is None else msgspec.structs.replace(header, title=title)

    def has_content(self, home: Folder, log: Log) -> bool:
        """Whether there is anything in a log, and no newer one of the session."""
        return super().has_content(home, log) and not self._has_moved(home, log)

    def learn(self, key: str, known: Lesson | None, check: CheckCancelled, *, with_title: bool) -> Lesson | None:
        """Learn a session's row; None if there is no session, or if it has moved.

        Raises SessionReferenceError READ_FAILED with the reason for which it cannot be listed.
        """
        log = self.log_at(key)
        if log is not None and newer_places(log):
            with failures_of(self.session_id(log.native_id)), self.open_home() as home:
                if self._has_moved(home, log):
                    return None
        return super().learn(key, known, check, with_title=with_title)

    def key_of(self, path: Path) -> str | None:
        """The key of the log that a changed path is, or stands beside."""
        return super().key_of(path.with_name(EVENTS) if path.name == WORKSPACE else path)

    def _has_moved(self, home: Folder, log: Log) -> bool:
        return any(super(CopilotCliStore, self).has_content(home, place) for place in newer_places(log))
