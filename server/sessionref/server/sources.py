"""The configured stores as one place: listing over all, and capturing an id from the first store that has it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from sessionref.protocol.errors import ReadFailedReason, SessionReferenceError, read_failed
from sessionref.protocol.mention import directory_segment
from sessionref.server.candidates import ListedSession
from sessionref.server.store import Capture, CheckCancelled, Listing, SessionStore

__all__ = ("SessionSources",)

logger = logging.getLogger(__name__)

MAX_REMEMBERED_PROBLEMS: Final = 10_000
"""Sessions whose problem has been logged; beyond it a store is in such a state that repeating it does no harm."""


class SessionSources:
    """Several stores in the order in which they were named; the first that has an id wins. Thread-safe."""

    def __init__(self, stores: Sequence[SessionStore]) -> None:
        self.stores = tuple(stores)
        self._logged: set[tuple[str, str, str]] = set()

    def merge(self, listings: Sequence[Listing]) -> list[ListedSession]:
        """One row an id over the stores' listings, in their order; what is missing is logged once."""
        rows: dict[str, ListedSession] = {}
        for store, listing in zip(self.stores, listings, strict=True):
            for problem in listing.unlisted:
                self._log_once(store.kind, problem.place, problem.reason)
            for header in listing.sessions:
                row = ListedSession(header, store.kind, store.lists_subagents)
                if rows.setdefault(header.session_id, row) is not row:
                    self._log_once(store.kind, directory_segment(header.session_id), "an earlier store has this id")
        return list(rows.values())

    def capture(self, session_id: str, check: CheckCancelled) -> Capture:
        """Read one session once. Raises SessionReferenceError READ_FAILED."""
        for store in self.stores:
            try:
                return store.capture(session_id, check)
            except SessionReferenceError as failure:
                if failure.reason is not ReadFailedReason.NOT_FOUND:
                    raise
        raise read_failed(ReadFailedReason.NOT_FOUND, session_id)

    def _log_once(self, kind: str, place: str, reason: str) -> None:
        problem = (kind, place, reason)
        if problem not in self._logged and len(self._logged) < MAX_REMEMBERED_PROBLEMS:
            self._logged.add(problem)
            logger.warning("not listed: %s of store %s: %s", place, kind, reason)
