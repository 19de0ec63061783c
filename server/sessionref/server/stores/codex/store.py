"""The store of Codex threads: each is one session, however many rollouts it has come to."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import CheckCancelled, Lesson, SavedCapture, SessionHeader
from sessionref.server.stores.codex.conversation import CodexConversation
from sessionref.server.stores.codex.history import History, HistoryIncomplete, Inherited
from sessionref.server.stores.codex.labels import CodexLabels, RolloutRow
from sessionref.server.stores.codex.names import ThreadNames
from sessionref.server.stores.codex.records import CodexRecord, base_of
from sessionref.server.stores.codex.rollouts import ROOTS, Rollout, RolloutFolders, Rollouts, rollout_at
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.folds import Log, capture_of
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.logs import LogStore
from sessionref.server.stores.problems import Unreadable, failures_of, too_large
from sessionref.server.stores.records import ScanCounts
from sessionref.server.stores.times import milliseconds

__all__ = ("CodexStore",)

logger = logging.getLogger(__name__)

GROUP: Final = ""
"""The only group: files of one thread may lie in different folders."""

FIRST_PROMPT_BYTES: Final = 1024 * 1024
"""How far into another rollout a first prompt is looked for: only what was injected can come before it."""


class CodexStore(LogStore[CodexRecord]):
    """The threads of one home. A key is the path of a thread's current rollout, or of a folder that is closed to us."""

    kind = "codex"
    watched = ROOTS

    def __init__(self, home: Path, *, database_home: Path | None = None, limits: ReadingLimits | None = None) -> None:
        super().__init__(home, CodexRecord, limits=limits)
        database_homes = [home, home / "sqlite", *(() if database_home is None else (database_home,))]
        self.names = ThreadNames(home, database_homes, self.limits)
        self.folders = RolloutFolders(self.open_folder)
        self.history = History(self, self._rollouts_of)

    def group_folders(self, home: Folder) -> Iterator[str]:
        """All folders that hold rollouts."""
        yield from self.folders.look(home).paths

    def log_at(self, key: str) -> Log | None:
        """The rollout that a path is."""
        rollout = rollout_at(key)
        return None if rollout is None else rollout.log

    def new_labels(self) -> CodexLabels:
        """A fold before the first record."""
        return CodexLabels()

    def new_conversation(self, log: Log) -> CodexConversation:
        """A fold before the first record."""
        return CodexConversation()

    def groups(self) -> dict[str, int]:
        """The one group, with the time at which a folder in it changed last; none where there is no folder."""
        with failures_of(None):
            try:
                with self.open_home() as home:
                    found = self.folders.look(home)
            except FileNotFoundError:
                return {}
        return {GROUP: found.modified_ns} if found.paths or found.closed else {}

    def keys(self, group: str, check: CheckCancelled) -> list[str]:
        """The current rollout of every thread, and the folders that are closed to us."""
        with failures_of(None), self.open_home() as home:
            check()
            found = self.folders.look(home)
            return [
                *(rollout.key for thread_id in found.threads for rollout in self._current(home, found, thread_id)),
                *found.closed,
            ]

    def find(self, home: Folder, native_id: str, check: CheckCancelled) -> list[Log]:
        """The current rollout of a thread; several if there are copies of it.

        Raises OSError or Unreadable if there is none, but not every folder could be looked into.
        """
        check()
        found = self.folders.look(home)
        logs = [rollout.log for rollout in self._current(home, found, native_id)]
        logs = [log for log in logs if self.has_content(home, log)]
        if not logs and found.closed:
            self._look_into(home, found.closed[0])
        return logs

    def changed(self, stamps: Mapping[str, bytes], check: CheckCancelled) -> Iterator[str]:
        """The keys whose rows no longer have these stamps, be they changed or gone."""
        self.names.look(check)
        yield from super().changed(stamps, check)

    def learn(self, key: str, known: Lesson | None, check: CheckCancelled, *, with_title: bool) -> Lesson | None:
        """Learn a thread's row; None if there is none. Raises SessionReferenceError READ_FAILED."""
        self.names.look(check)
        if self.log_at(key) is None:
            with failures_of(None), self.open_home() as home:
                self._look_into(home, key)
        lesson = super().learn(key, known, check, with_title=with_title)
        if lesson is not None and isinstance(lesson.header, RolloutRow):
            # What comes before it was not to be had, and nothing of its own changes when it is: no stamp holds.
            return msgspec.structs.replace(lesson, header=lesson.header.completed(), stamp=b"")
        return lesson

    def beside(self, home: Folder, log: Log) -> bytes:
        """The thread's own name, so that another's makes no difference."""
        return (self.names.name_of(log.native_id) or "").encode("utf-8", "surrogatepass")

    def with_beside(self, home: Folder, log: Log, header: SessionHeader) -> SessionHeader:
        """The row with the thread's name, else the first prompt of all its rollouts; as it is if one is missing."""
        if not isinstance(header, RolloutRow):
            return header
        title = self.names.name_of(log.native_id) or header.name
        try:
            inherited = self.history.before(home, header.base, _never_cancelled)
        except (OSError, Unreadable):
            # Whoever wants to read it is told; in the list its own prompt has to do.
            return msgspec.structs.replace(header, title=title or header.title)
        own = [part.header for part in inherited if part.rollout.thread_id == log.native_id]
        if not title:
            prompts = (self._first_prompt(home, part) for part in inherited)
            title = next(filter(None, prompts), header.title)
        created_at = milliseconds(own[0].payload.timestamp if own else None) or header.created_at
        return msgspec.structs.replace(header, title=title, created_at=created_at).completed()

    def capture_log(
        self, home: Folder, log: Log, session_id: str, saved_state: bytes | None, check: CheckCancelled
    ) -> SavedCapture:
        """Capture the thread of a rollout, what comes before that included.

        Raises OSError, Unreadable, and what `check` raises.
        """
        header = self.history.header_of(home, log, check)
        base = base_of(header)
        if base is None:
            return super().capture_log(home, log, session_id, saved_state, check)
        fold, counts = self.new_conversation(log), ScanCounts()
        fold.feed(header)
        try:
            for part in self.history.before(home, base, check):
                for _ in self.history.read(home, part, fold.feed, counts, check):
                    if fold.text_bytes > self.limits.conversation_bytes:
                        raise too_large(self.limits.conversation_bytes)
        except Unreadable as problem:
            if problem.reason is ReadFailedReason.CORRUPT:
                why = problem.why if isinstance(problem, HistoryIncomplete) else "a rollout is damaged"
                logger.warning("history incomplete, a session of store codex is refused: %s", why)
            raise
        with self.open_log(home, log, check) as reading:
            is_torn = not self.scan(reading, fold, counts)
        # What comes before has its records counted, as Codex does in their ordinals.
        capture = capture_of(session_id, fold, counts, is_torn=is_torn)
        return SavedCapture(capture=capture, key=log.key, state=None)

    def key_of(self, path: Path) -> str | None:
        """The key of the thread that a changed path belongs to; looks at nothing."""
        key = super().key_of(path)
        rollout = None if key is None else rollout_at(key)
        if rollout is None:
            return None
        current = self.folders.found.current(rollout.thread_id, lambda log: True)
        return current[0].key if len(current) == 1 else key

    def _current(self, home: Folder, found: Rollouts, thread_id: str) -> list[Rollout]:
        return found.current(thread_id, lambda log: self.has_content(home, log))

    def _rollouts_of(self, home: Folder, rollout_id: str) -> Sequence[Rollout]:
        known = self.folders.found.by_id.get(rollout_id, [])
        # A look at all folders for each of many forks would add up.
        if known and all(self.has_content(home, rollout.log) for rollout in known):
            return known
        return self.folders.look(home).by_id.get(rollout_id, [])

    def _look_into(self, home: Folder, path: str) -> None:
        """Raise what a folder is closed for, as OSError or Unreadable; nothing if it is open or gone by now."""
        try:
            with self.open_folder(home, path) as folder:
                folder.names()
        except FileNotFoundError:
            return

    def _first_prompt(self, home: Folder, part: Inherited) -> str | None:
        labels, counts, seen = CodexLabels(), ScanCounts(), 0
        try:
            with closing(self.history.read(home, part, labels.feed, counts, _never_cancelled)) as blocks:
                for read in blocks:
                    seen += read
                    if labels.prompt is not None or seen > FIRST_PROMPT_BYTES:
                        break
        except (OSError, Unreadable):
            return None
        return labels.prompt or labels.guess


def _never_cancelled() -> None:
    """The little that a row needs of other rollouts is read to its end."""
    return
