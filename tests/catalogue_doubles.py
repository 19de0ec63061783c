"""Doubles for tests of the catalogue: a store in memory that can be learnt from, and views that can be compared."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from resolver_doubles import captured, never_cancelled
from sessionref.protocol.errors import ReadFailedReason, SessionReferenceError, read_failed
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.store import (
    Capture,
    CataloguedStore,
    CheckCancelled,
    Lesson,
    Listing,
    SavedCapture,
    SessionHeader,
    SessionStore,
    Unlisted,
)

__all__ = (
    "MAX_BYTES",
    "LearningStore",
    "Outcome",
    "View",
    "age",
    "bring_up_to_date",
    "full_view",
    "index_view",
    "open_database",
    "outcome_of",
)

MAX_BYTES = 10_000_000
"""The size limit of a catalogue that evicts nothing here."""

View = tuple[list[SessionHeader], list[tuple[str, str]]]
"""Listed sessions in row order, and what is not listed with its reason."""

Outcome = Capture | ReadFailedReason | None
"""What capturing came to."""

OLD = 1_000_000_000


class LearningStore:
    """A CataloguedStore in memory: `project/id` is a key, its project the group. Counts what it is asked.

    The hooks run in the threads of the store. Its groups changed long ago, so that none is looked at for being new.
    """

    def __init__(
        self,
        kind: str = "memory",
        *,
        before_learn: Callable[[str, bool, CheckCancelled], None] | None = None,
        before_keys: Callable[[str], None] | None = None,
        before_changed: Callable[[CheckCancelled], None] | None = None,
    ) -> None:
        self.kind = kind
        self.lists_subagents = True
        self.groups_tell_all = False
        self.has_prompts = True
        self.headers: dict[str, SessionHeader] = {}
        self.problems: dict[str, ReadFailedReason] = {}
        self.learnt: list[tuple[str, bool]] = []
        """Each key that was learnt, and whether with its title, in order."""
        self._before_learn = before_learn
        self._before_keys = before_keys
        self._before_changed = before_changed
        self._times: dict[str, int] = {}
        self._versions: dict[str, int] = {}

    @property
    def location(self) -> str:
        """One place for each kind."""
        return f"/{self.kind}"

    def put(self, key: str, title: str | None = None, *, created_at: int = 1, updated_at: int | None = None) -> None:
        """Add a session or change it."""
        group, _, session_id = key.partition("/")
        if key not in self.headers:
            self._times[group] = self._times.get(group, OLD) + 1
        self.headers[key] = SessionHeader(
            session_id=session_id, created_at=created_at, updated_at=updated_at, cwd=f"/{group}", title=title
        )
        self._versions[key] = self._versions.get(key, 0) + 1

    def remove(self, key: str) -> None:
        """Take a session out."""
        del self.headers[key]
        self._times[key.partition("/")[0]] += 1

    def remove_group(self, group: str) -> None:
        """Take a group out with all its sessions."""
        del self._times[group]
        self.headers = {key: header for key, header in self.headers.items() if key.partition("/")[0] != group}

    def list_sessions(self, check: CheckCancelled) -> Listing:
        """Everything as it is now."""
        listed = [header for key, header in self.headers.items() if key not in self.problems]
        return Listing(listed, [Unlisted(key, str(reason)) for key, reason in self.problems.items()])

    def capture(self, session_id: str, check: CheckCancelled) -> Capture:
        """The title as a conversation."""
        return self.capture_again(session_id, lambda key: None, check).capture

    def exists(self) -> bool:
        """It is here."""
        return True

    def groups(self) -> dict[str, int]:
        """The projects."""
        return dict(self._times)

    def keys(self, group: str, check: CheckCancelled) -> list[str]:
        """The keys of a project."""
        found = [key for key in self.headers if key.partition("/")[0] == group]
        if self._before_keys is not None:
            self._before_keys(group)
        return found

    def identity(self, key: str, header: SessionHeader | None) -> str:
        """The session's id."""
        return key.partition("/")[2]

    def changed(self, stamps: Mapping[str, bytes], check: CheckCancelled) -> Iterator[str]:
        """The keys with another version."""
        if self._before_changed is not None:
            self._before_changed(check)
        for key, stamp in stamps.items():
            if key not in self.headers or stamp != self._stamp(key):
                yield key

    def learn(self, key: str, known: Lesson | None, check: CheckCancelled, *, with_title: bool) -> Lesson | None:
        """The header, without its title unless that is asked for."""
        self.learnt.append((key, with_title))
        if self._before_learn is not None:
            self._before_learn(key, with_title, check)
        if key in self.problems:
            raise read_failed(self.problems[key])
        header = self.headers.get(key)
        if header is None:
            return None
        if not with_title:
            header = SessionHeader(
                session_id=header.session_id,
                created_at=header.created_at,
                updated_at=header.updated_at,
                cwd=header.cwd,
            )
        return Lesson(header=header, stamp=self._stamp(key), has_title=with_title, has_prompt=self.has_prompts)

    def capture_again(
        self, session_id: str, saved_state: Callable[[str], bytes | None], check: CheckCancelled
    ) -> SavedCapture:
        """The title as a conversation, and as what is saved."""
        for key, header in self.headers.items():
            if header.session_id == session_id:
                saved = saved_state(key)
                text = header.title or "nothing"
                state = text.encode()
                return SavedCapture(
                    capture=captured(session_id, text), key=key, state=None if saved == state else state
                )
        raise read_failed(ReadFailedReason.NOT_FOUND, session_id)

    def watched_folders(self) -> list[Path]:
        """None: memory has no folders."""
        return []

    def key_of(self, path: Path) -> str | None:
        """None."""
        return None

    def _stamp(self, key: str) -> bytes:
        return str(self._versions[key]).encode()


def open_database(folder: Path, *, max_bytes: int = MAX_BYTES) -> CatalogueDatabase:
    """The catalogue in a folder of a test."""
    return CatalogueDatabase(folder / "catalogue" / "catalogue.sqlite3", max_bytes=max_bytes)


def bring_up_to_date(index: SessionIndex) -> None:
    """What calls, and rescans with all the time of the world, come to."""
    index.refresh(never_cancelled)
    index.rescan(never_cancelled, math.inf)
    index.refresh(never_cancelled)
    while index.unread:
        index.read_titles(never_cancelled, math.inf)


def index_view(index: SessionIndex) -> View:
    """What an index lists; no title may be due."""
    rows = index.rows()
    assert not [row.key for row in rows if row.title_pending]
    return [row.header for row in rows], sorted((row.place, row.reason) for row in index.unlisted())


def full_view(store: SessionStore) -> View:
    """What a full read lists."""
    listing = store.list_sessions(never_cancelled)
    rows = sorted(listing.sessions, key=lambda header: (-header.created_at, header.session_id))
    return rows, sorted((row.place, row.reason) for row in listing.unlisted)


def outcome_of(capture: Callable[[], Capture]) -> Outcome:
    """The capture, or the reason for which there is none."""
    try:
        return capture()
    except SessionReferenceError as failure:
        return failure.reason


def age(path: Path, seconds: float = 10.0) -> None:
    """Let a file or folder have changed some time ago."""
    then = time.time_ns() - int(seconds * 1e9)
    os.utime(path, ns=(then, then), follow_symlinks=False)


_CHECKED: CataloguedStore = LearningStore()
