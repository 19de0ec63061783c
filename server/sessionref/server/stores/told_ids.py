"""Log stores whose logs tell their session's id: they are named after it, unless somebody has renamed or copied them.

Of several logs that tell one id, that which is named after it is the session; a copy beside it is said, and left out.
"""

from __future__ import annotations

from abc import abstractmethod

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import CheckCancelled, Lesson
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.folds import LabelFold, Log
from sessionref.server.stores.logs import LogStore
from sessionref.server.stores.problems import Unreadable, failures_of
from sessionref.server.stores.records import Record

__all__ = ("TellingLabels", "TellingLogStore")


class TellingLabels(LabelFold[Record]):
    """A list row whose log tells its id; None where it tells none, or has not told it yet."""

    id: str | None = None

    @property
    def has_told(self) -> bool:
        """Whether no record that follows can tell an id."""
        return self.id is not None


class TellingLogStore(LogStore[Record]):
    """Finds logs by their names, and by what they tell where no log of that name tells the same."""

    @abstractmethod
    def new_labels(self) -> TellingLabels[Record]:
        """The fold of a log's list row, before the first record."""

    def learn(self, key: str, known: Lesson | None, check: CheckCancelled, *, with_title: bool) -> Lesson | None:
        """Learn a session's row, from where the known lesson ended if it still holds; None if there is no session.

        Raises SessionReferenceError READ_FAILED with the reason for which it cannot be listed: duplicate-id for a copy.
        """
        lesson = super().learn(key, known, check, with_title=with_title)
        log = self.log_at(key)
        if lesson is None or log is None or lesson.header.session_id == self.session_id(log.native_id):
            return lesson
        session_id = lesson.header.session_id
        with failures_of(session_id), self.open_home() as home:
            if self._named(home, self.native_id(session_id), check):
                raise Unreadable(ReadFailedReason.DUPLICATE_ID)
        return lesson

    def find(self, home: Folder, native_id: str, check: CheckCancelled) -> list[Log]:
        """The logs that are named after an id and do not tell another; else those that tell it.

        Raises OSError or Unreadable if there is none, but not every folder could be looked into.
        """
        named = self._named(home, native_id, check)
        return named or self.logs_where(home, lambda log: self._id_in(home, log, check) == native_id, check)

    def _named(self, home: Folder, native_id: str, check: CheckCancelled) -> list[Log]:
        named = self.logs_where(home, lambda log: log.native_id == native_id, check)
        return [log for log in named if self._id_in(home, log, check) in (native_id, None)]

    def _id_in(self, home: Folder, log: Log, check: CheckCancelled) -> str | None:
        """The id that a log tells; None if it tells none, or cannot be read. A sub-agent's is what its name says."""
        if log.is_subagent:
            return log.native_id
        labels = self.new_labels()
        try:
            with self.open_log(home, log, check) as reading:
                for record in self.records_in(reading):
                    labels.feed(record)
                    if labels.has_told:
                        return labels.id
        except (OSError, Unreadable):
            return None
        return None
