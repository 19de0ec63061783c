"""The index of one store in memory: what a list row needs, kept in step with the store at the cost of what changed."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

import msgspec

from sessionref.protocol.errors import ReadFailedReason, SessionReferenceError
from sessionref.server.candidates import ListedSession, list_session, row_order
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.printable import printable
from sessionref.server.store import CataloguedStore, CheckCancelled, Lesson, Unlisted

__all__ = ("NOT_UNDERSTOOD", "SessionIndex", "store_name")

logger = logging.getLogger(__name__)

NOT_UNDERSTOOD: Final = "there are sessions, but no prompt that this service can find in any of them"
"""What is wrong with a store in which no session has a prompt: most likely its agent writes another format now."""

RACY_NANOSECONDS: Final = 2_000_000_000
"""A group that changed so recently is listed again: its next change might bear the same time."""

SAVED_TOGETHER: Final = 128
"""Lessons that are written in one transaction."""

EMPTY_TOGETHER: Final = 32
"""Folders without a log that every call looks at again, in turn."""

RESCANNED_NEWEST: Final = 64
"""Sessions that every rescan looks at: those that somebody may be working in."""

RESCANNED_TOGETHER: Final = 256

OTHERS_SECONDS: Final = 1.0
"""How long a session may take another call to list before calls pass it by."""

PROBLEMS_AGAIN_SECONDS: Final = 5.0
"""How often what cannot be read is tried again: finding that out may take a whole read."""


class _Entry(msgspec.Struct, gc=False):
    """What is known of one key."""

    lesson: Lesson | None = None
    problem: str | None = None
    row: ListedSession | None = None


class SessionIndex:
    """The sessions of one store. Thread-safe: reading happens outside of its lock, one key in one thread at a time.

    A read that hangs so costs its own row, not the list.
    """

    def __init__(self, store: CataloguedStore, database: CatalogueDatabase | None) -> None:
        self.store = store
        self._database = database
        self._name = store_name(store)
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._groups: dict[str, int] = {}
        self._members: dict[str, set[str]] = {}
        self._group_problems: dict[str, str] = {}
        self._loaded: dict[str, Lesson] | None = None
        self._to_list: set[str] = set()
        self._to_read: set[str] = set()
        self._being_read: dict[str, float] = {}
        self._empty: dict[str, None] = {}
        self._listed: tuple[list[ListedSession], list[Unlisted]] | None = None
        self._rescan_from = 0
        self._problems_tried = 0.0
        self._is_purged = False

    @property
    def has_unread(self) -> bool:
        """Whether there are titles that are not read yet, or not in their latest form."""
        return self.unread > 0

    @property
    def unread(self) -> int:
        """How many titles are due, those that another call is reading included unless that seems to hang."""
        with self._lock:
            oldest = time.monotonic() - OTHERS_SECONDS
            others = sum(began >= oldest for began in self._being_read.values())
            return len(self._to_read - self._being_read.keys()) + others

    def rows(self) -> list[ListedSession]:
        """The rows of all listed sessions, in row order; not to be changed."""
        return self._listing()[0]

    def unlisted(self) -> list[Unlisted]:
        """What cannot be listed, and why; not to be changed."""
        return self._listing()[1]

    @property
    def is_understood(self) -> bool | None:
        """Whether any session has a prompt, where there are sessions; None while that is not known yet."""
        with self._lock:
            has_sessions, is_known = False, True
            for entry in self._entries.values():
                if entry.lesson is not None:
                    # Nearly always the first is enough.
                    if entry.lesson.has_prompt:
                        return True
                    has_sessions = True
                    is_known = is_known and entry.lesson.has_title
            return not has_sessions if is_known else None

    def _listing(self) -> tuple[list[ListedSession], list[Unlisted]]:
        with self._lock:
            if self._listed is None:
                identities = {
                    key: self.store.identity(key, None if entry.lesson is None else entry.lesson.header)
                    for key, entry in self._entries.items()
                    if entry.lesson is not None or entry.problem is not None
                }
                counts = Counter(identities.values())
                problems = dict(self._group_problems)
                rows: list[ListedSession] = []
                for key, identity in identities.items():
                    entry = self._entries[key]
                    if counts[identity] > 1:
                        problems[key] = str(ReadFailedReason.DUPLICATE_ID)
                    elif entry.problem is not None:
                        problems[key] = entry.problem
                    elif entry.row is not None:
                        rows.append(entry.row)
                rows.sort(key=row_order)
                self._listed = rows, [Unlisted(printable(key), reason) for key, reason in problems.items()]
            return self._listed

    def refresh(self, check: CheckCancelled) -> None:
        """Take up sessions that came or went, and list the new ones; costs a look at every group.

        Raises SessionReferenceError READ_FAILED if the store as a whole cannot be read.
        """
        now = time.time_ns()
        groups = self.store.groups()
        for group in self._groups.keys() - groups.keys():
            self._forget(self._replace_group(group, ()))
            self._members.pop(group, None)
            self._group_problems.pop(group, None)
        listed: dict[str, int] = {}
        for group, changed in groups.items():
            if self._groups.get(group) != changed or now - changed < RACY_NANOSECONDS:
                check()
                if not self._list_group(group, check):
                    continue
                if self.store.groups_tell_all:
                    self.look_again(self._members[group], check)
            listed[group] = changed
        # A group that failed has no time noted, and so is tried again.
        self._groups = listed
        self._list_new(check)

    def read_titles(self, check: CheckCancelled, deadline: float) -> None:
        """Read titles that are due, the newest sessions' first, until `time.monotonic()` reaches the deadline."""
        with self._lock:
            due = sorted(self._to_read, key=self._last_change, reverse=True)
        self._learn_all((key for key in due if time.monotonic() < deadline), check, with_title=True)

    def look_again(self, keys: Collection[str], check: CheckCancelled) -> bool:
        """Compare sessions with what is stored now and mark those that changed; whether any did."""
        with self._lock:
            stamps = {
                key: entry.lesson.stamp
                for key in keys
                if (entry := self._entries.get(key)) is not None and entry.lesson is not None
            }
        changed = list(self.store.changed(stamps, check))
        self.mark_changed(changed)
        return bool(changed)

    def mark_changed(self, keys: Iterable[str]) -> None:
        """Take note that sessions have changed, or may have become readable."""
        with self._lock:
            for key in keys:
                if (entry := self._entries.get(key)) is None:
                    continue
                (self._to_list if entry.lesson is None else self._to_read).add(key)
                if entry.row is not None and not entry.row.title_pending:
                    self._set_row(entry, key, title_pending=True)

    def rescan(self, check: CheckCancelled, seconds: float) -> None:
        """Look at the newest sessions, and at as many others in turn as the time allows."""
        now = time.monotonic()
        deadline = now + seconds
        if now - self._problems_tried >= PROBLEMS_AGAIN_SECONDS:
            self._problems_tried = now
            with self._lock:
                problems = [key for key, entry in self._entries.items() if entry.problem is not None]
            self.mark_changed(problems)
        keys = [row.key for row in self.rows()]
        self.look_again(keys[:RESCANNED_NEWEST], check)
        # Those that are hidden, as doubles are, may be so no more.
        keys += self._entries.keys() - set(keys)
        for _ in range(0, len(keys), RESCANNED_TOGETHER):
            if time.monotonic() >= deadline:
                break
            if self._rescan_from >= len(keys):
                self._rescan_from = 0
            self.look_again(keys[self._rescan_from : self._rescan_from + RESCANNED_TOGETHER], check)
            self._rescan_from += RESCANNED_TOGETHER

    def _load(self) -> dict[str, Lesson]:
        """What the catalogue knows; read from it once."""
        loaded = self._loaded
        if loaded is None:
            loaded = self._loaded = {} if self._database is None else self._database.lessons(self._name)
        return loaded

    def _list_group(self, group: str, check: CheckCancelled) -> bool:
        """Take up what a group holds; whether it could be listed."""
        try:
            keys = self.store.keys(group, check)
        except SessionReferenceError as failure:
            self._group_problems[group] = str(failure.reason)
            # It may be back in a moment, so that what is known of its sessions stays in the file.
            self._replace_group(group, ())
            self._loaded = None
            self._listed = None
            return False
        self._group_problems.pop(group, None)
        self._forget(self._replace_group(group, keys))
        return True

    def _replace_group(self, group: str, keys: Collection[str]) -> set[str]:
        """Let a group have these keys; returns those that it has no more."""
        with self._lock:
            gone = self._members.get(group, set()).difference(keys)
            self._members[group] = set(keys)
            for key in gone:
                del self._entries[key]
                self._listed = None
                self._empty.pop(key, None)
            for work in (self._to_list, self._to_read):
                work -= gone
            for key in keys:
                if key not in self._entries:
                    self._entries[key] = _Entry()
                    self._to_list.add(key)
        return gone

    def _forget(self, keys: Iterable[str]) -> None:
        if self._database is not None:
            self._database.forget(self._name, keys)

    def _list_new(self, check: CheckCancelled) -> None:
        """List what is new: from the catalogue where that still holds, else from the store."""
        must_purge = not self._is_purged and not self._group_problems
        loaded = self._load() if self._to_list or must_purge else {}
        with self._lock:
            # In the order of the keys, so that sessions of one folder are looked at one after the other.
            known = {key: lesson for key, lesson in loaded.items() if key in self._to_list}
        if known:
            changed = set(self.store.changed({key: lesson.stamp for key, lesson in known.items()}, check))
            with self._lock:
                for key, lesson in known.items():
                    self._take(key, lesson, is_current=key not in changed)
        with self._lock:
            new = [*self._to_list, *islice(self._empty, EMPTY_TOGETHER)]
        self._learn_all(new, check, with_title=False)
        if must_purge and not self._group_problems:
            # What the catalogue has beyond what there is, is gone.
            self._is_purged = True
            self._loaded = {}
            if self._database is not None:
                known_keys = loaded.keys() | self._database.captured_keys(self._name)
                self._forget(known_keys - self._entries.keys())

    def _learn_all(self, keys: Iterable[str], check: CheckCancelled, *, with_title: bool) -> None:
        """Read sessions one by one; what was learnt is kept, also if the request is cancelled on the way."""
        learnt: dict[str, Lesson] = {}
        try:
            for key in keys:
                check()
                lesson = self._learn(key, check, with_title=with_title)
                if lesson is not None and lesson.has_title:
                    learnt[key] = lesson
                if len(learnt) >= SAVED_TOGETHER:
                    self._save(learnt)
                    learnt = {}
        finally:
            self._save(learnt)

    def _save(self, learnt: dict[str, Lesson]) -> None:
        if self._database is not None and learnt:
            self._database.save_lessons(self._name, learnt)

    def _learn(self, key: str, check: CheckCancelled, *, with_title: bool) -> Lesson | None:
        self._wait_for(key, check)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or key in self._being_read:
                return None
            if not with_title and key not in self._to_list and key not in self._empty:
                # Another call has listed it meanwhile, and may have read its title, too.
                return None
            self._being_read[key] = time.monotonic()
            known = entry.lesson
            self._to_read.discard(key)
        lesson: Lesson | None = None
        problem: str | None = None
        try:
            lesson = self.store.learn(key, known, check, with_title=with_title)
        except SessionReferenceError as failure:
            problem = str(failure.reason)
        except Exception:
            # A fault of ours, found by what is stored there: it costs that row, and is said.
            logger.exception("a session could not be listed")
            problem = "internal-error"
        except BaseException:
            with self._lock:
                if key in self._entries and known is not None:
                    self._to_read.add(key)
                self._being_read.pop(key, None)
            raise
        with self._lock:
            self._being_read.pop(key, None)
            self._to_list.discard(key)
            self._empty.pop(key, None)
            if lesson is not None:
                self._take(key, lesson, is_current=True)
            elif (entry := self._entries.get(key)) is not None:
                entry.lesson, entry.row, entry.problem = None, None, problem
                if problem is None:
                    # A folder without a log, which may get one at any time and tell nobody.
                    self._empty[key] = None
                self._listed = None
        if lesson is None and problem is None and known is not None:
            self._forget([key])
        return lesson

    def _wait_for(self, key: str, check: CheckCancelled) -> None:
        """Let another thread finish reading a session that is new to both; one that hangs is not waited for."""
        while key in self._to_list:
            began = self._being_read.get(key)
            if began is None or time.monotonic() >= began + OTHERS_SECONDS:
                return
            check()
            time.sleep(OTHERS_SECONDS / 100)

    def _take(self, key: str, lesson: Lesson, *, is_current: bool) -> None:
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.lesson, entry.problem = lesson, None
        self._to_list.discard(key)
        pending = not is_current or not lesson.has_title
        if pending:
            self._to_read.add(key)
        self._set_row(entry, key, title_pending=pending)

    def _set_row(self, entry: _Entry, key: str, *, title_pending: bool) -> None:
        if entry.lesson is not None:
            entry.row = list_session(
                entry.lesson.header,
                origin=self.store.kind,
                lists_subagents=self.store.lists_subagents,
                title_pending=title_pending,
                key=key,
            )
            self._listed = None

    def _last_change(self, key: str) -> int:
        entry = self._entries.get(key)
        if entry is None or entry.lesson is None:
            return 0
        header = entry.lesson.header
        return header.updated_at or header.created_at


def store_name(store: CataloguedStore) -> str:
    """What a store is called in the catalogue: its kind, and a digest that does not give its place away."""
    digest = hashlib.blake2b(store.location.encode("utf-8", "surrogatepass"), digest_size=12)
    return f"{store.kind}:{digest.hexdigest()}"
