"""The store of Qwen Code's sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sessionref.server.stores.folders import Folder
from sessionref.server.stores.folds import Log
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.logs import LogStore
from sessionref.server.stores.qwen_code.conversation import QwenConversation
from sessionref.server.stores.qwen_code.labels import QwenLabels
from sessionref.server.stores.qwen_code.layout import PROJECTS, log_at, log_folders
from sessionref.server.stores.qwen_code.records import QwenRecord

__all__ = ("QwenCodeStore",)


class QwenCodeStore(LogStore[QwenRecord]):
    """The sessions of all projects in one home, archived ones and those of sub-agents included."""

    kind = "qwen-code"
    watched = (PROJECTS,)

    def __init__(self, home: Path, *, limits: ReadingLimits | None = None) -> None:
        super().__init__(home, QwenRecord, limits=limits)

    def group_folders(self, home: Folder) -> Iterator[str]:
        """The folders of logs."""
        return log_folders(home)

    def log_at(self, key: str) -> Log | None:
        """The session that a path is."""
        return log_at(key)

    def new_labels(self) -> QwenLabels:
        """A fold before the first record."""
        return QwenLabels()

    def new_conversation(self, log: Log) -> QwenConversation:
        """A fold before the first record."""
        return QwenConversation(is_subagent=log.is_subagent)
