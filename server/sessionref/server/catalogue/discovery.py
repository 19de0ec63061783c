"""Discovery: candidates from memory, kept fresh by looks that cost little, and titles read as they are needed.

Every call looks at the stores' groups, so that a new session is there at once, and at the sessions that it is about
to answer. What changes otherwise is noticed by watching, or by a bounded rescan where watching fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from operator import is_not
from typing import Final

import anyio

from sessionref.protocol.errors import ErrorCode, SessionReferenceError
from sessionref.protocol.methods import Candidate
from sessionref.server.candidates import ListedSession, list_session, row_order
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.index import NOT_UNDERSTOOD, SessionIndex
from sessionref.server.printable import printable
from sessionref.server.store import CataloguedStore, CheckCancelled, SessionStore
from sessionref.server.threads import WorkerThreads, check_cancelled

__all__ = ("Discovery", "Select")

logger = logging.getLogger(__name__)

Select = Callable[[Sequence[ListedSession], CheckCancelled], list[tuple[ListedSession, Candidate]]]
"""Chooses rows, which are in row order, and makes candidates of them."""

CHECKED_ROWS: Final = 100
"""Rows of an answer that are compared with what is stored now: more than anybody sees at once."""

LISTING_SECONDS: Final = 10.0
"""How long a call waits for the list itself: without a session's header there is no row to answer with."""

READ_ON_SECONDS: Final = 1.0
"""How long titles are read in one go while nobody waits for them."""

MAX_REMEMBERED_PROBLEMS: Final = 10_000
"""Sessions whose problem has been logged; beyond it a store is in such a state that repeating it does no harm."""


class Discovery:
    """The sessions of all stores, in the order in which the stores were named; the first that has an id wins."""

    def __init__(
        self,
        stores: Sequence[SessionStore],
        database: CatalogueDatabase | None,
        *,
        threads: WorkerThreads,
        wait_seconds: float,
    ) -> None:
        self._stores = stores
        self._threads = threads
        self._wait_seconds = wait_seconds
        self.indexes = {store: SessionIndex(store, database) for store in stores if isinstance(store, CataloguedStore)}
        self._reading_titles = anyio.Lock()
        self._asked = anyio.Event()
        self._left_unread = anyio.Event()
        self._logged: set[tuple[str, ...]] = set()
        self._unreadable: frozenset[SessionStore] = frozenset()
        self._merged: tuple[list[Sequence[ListedSession]], list[ListedSession]] = [], []

    async def candidates(self, select: Select) -> list[Candidate]:
        """Candidates that a function selects from all sessions.

        Waits for titles that are not read yet, but not longer than it was told to. Raises SessionReferenceError
        READ_FAILED if no store can be read.
        """
        with anyio.move_on_after(max(LISTING_SECONDS, self._wait_seconds)):
            await self._threads.run(self._refresh)
        deadline = time.monotonic() + self._wait_seconds
        if self._has_unread():
            await self._wait_for_titles(deadline)
        candidates, has_changed = await self._threads.run(self._answer, select)
        if has_changed:
            await self._wait_for_titles(deadline)
            candidates, _ = await self._threads.run(self._answer, select)
        # Not before the answer: watching thousands of folders takes its time.
        self._asked.set()
        if self._has_unread():
            self._left_unread.set()
        return candidates

    async def read_on(self) -> None:
        """Read the titles that calls had no time for, until cancelled."""
        while True:
            await self._left_unread.wait()
            self._left_unread = anyio.Event()
            while self._has_unread():
                await self._wait_for_titles(time.monotonic() + READ_ON_SECONDS, READ_ON_SECONDS + 1)

    async def _wait_for_titles(self, deadline: float, seconds: float | None = None) -> None:
        with anyio.move_on_after(max(0.0, deadline - time.monotonic()) if seconds is None else seconds):
            async with self._reading_titles:
                await self._threads.run(self._read_titles, deadline)

    def _has_unread(self) -> bool:
        return any(index.has_unread for index in self.indexes.values())

    async def until_asked(self) -> None:
        """Wait for the first call: whoever never asks needs nothing watched."""
        await self._asked.wait()

    def rescan(self, seconds: float) -> None:
        """Look for sessions that have changed, in bounded time; runs in a worker thread."""
        for store, index in self.indexes.items():
            if store not in self._unreadable:
                index.rescan(check_cancelled, seconds)

    def _refresh(self) -> None:
        """Bring the list of every store up to date; one that cannot be read is said and left out of the answer.

        Raises SessionReferenceError READ_FAILED if none can.
        """
        failures: dict[SessionStore, SessionReferenceError] = {}
        for store, index in self.indexes.items():
            try:
                index.refresh(check_cancelled)
            except SessionReferenceError as failure:
                if failure.code is not ErrorCode.READ_FAILED:
                    raise
                failures[store] = failure
                self._say_once(logging.WARNING, "store %s cannot be read: %s", store.kind, str(failure.reason))
        self._unreadable = frozenset(failures)
        if failures and len(failures) == len(self._stores):
            raise next(iter(failures.values()))

    def _read_titles(self, deadline: float) -> None:
        for index in self.indexes.values():
            index.read_titles(check_cancelled, deadline)

    def _answer(self, select: Select) -> tuple[list[Candidate], bool]:
        """The answer from what is known, and whether sessions in it have changed meanwhile."""
        chosen = select(self._rows(), check_cancelled)
        has_changed = self._has_changed([row for row, _ in chosen[:CHECKED_ROWS] if not row.title_pending])
        return [candidate for _, candidate in chosen], has_changed

    def _has_changed(self, rows: Sequence[ListedSession]) -> bool:
        changed = False
        for store, index in self.indexes.items():
            keys = [row.key for row in rows if row.origin == store.kind]
            changed |= index.look_again(keys, check_cancelled)
        return changed

    def _rows(self) -> Sequence[ListedSession]:
        """One row an id over all stores, in row order; what is missing is logged once."""
        if len(self._stores) == 1 and self.indexes:
            (index,) = self.indexes.values()
            self._log_unlisted(index)
            return index.rows()
        lists = [self._rows_of(store) for store in self._stores]
        known, merged = self._merged
        if len(lists) != len(known) or any(map(is_not, lists, known)):
            merged = self._merge(lists)
            # In one assignment: other threads are here, too.
            self._merged = lists, merged
        return merged

    def _merge(self, lists: Sequence[Sequence[ListedSession]]) -> list[ListedSession]:
        listed: dict[str, ListedSession] = {}
        for store, rows in zip(self._stores, lists, strict=True):
            for row in rows:
                session_id = row.header.session_id
                known = listed.setdefault(session_id, row)
                if known is row:
                    continue
                if known.origin != store.kind == session_id.partition(":")[0]:
                    # An id that names its agent is that agent's: it is where the session is read, too.
                    listed[session_id], row = row, known
                self._log_once(row.origin, printable(session_id), "another store has this id")
        return sorted(listed.values(), key=row_order)

    def _rows_of(self, store: SessionStore) -> Sequence[ListedSession]:
        if isinstance(store, CataloguedStore):
            if store in self._unreadable:
                return ()
            self._log_unlisted(self.indexes[store])
            return self.indexes[store].rows()
        listing = store.list_sessions(check_cancelled)
        for problem in listing.unlisted:
            self._log_once(store.kind, problem.place, problem.reason)
        return [
            list_session(header, origin=store.kind, lists_subagents=store.lists_subagents)
            for header in listing.sessions
        ]

    def _log_unlisted(self, index: SessionIndex) -> None:
        unlisted = index.unlisted()
        for problem in unlisted:
            self._log_once(index.store.kind, problem.place, problem.reason)
        if not unlisted and not index.rows():
            state = "it has no sessions yet" if index.store.exists() else "there is none where it should be"
            self._say_once(logging.INFO, "store %s: %s", index.store.kind, state)
        elif index.is_understood is False:
            self._say_once(logging.WARNING, "store %s is not readable: %s", index.store.kind, NOT_UNDERSTOOD)

    def _log_once(self, kind: str, place: str, reason: str) -> None:
        self._say_once(logging.WARNING, "not listed: %s of store %s: %s", place, kind, reason)

    def _say_once(self, level: int, message: str, *facts: str) -> None:
        said = (message, *facts)
        if said not in self._logged and len(self._logged) < MAX_REMEMBERED_PROBLEMS:
            self._logged.add(said)
            logger.log(level, message, *facts)
