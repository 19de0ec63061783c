"""The configured stores as one place to capture from: the first store that has an id wins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sessionref.protocol.errors import ReadFailedReason, SessionReferenceError, read_failed
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.index import store_name
from sessionref.server.store import Capture, CataloguedStore, CheckCancelled, SessionStore

__all__ = ("SessionSources",)


class SessionSources:
    """Several stores in the order in which they were named. Thread-safe.

    Ids are always looked for in the stores themselves; the catalogue, if there is one, only saves reading again.
    """

    def __init__(self, stores: Sequence[SessionStore], database: CatalogueDatabase | None = None) -> None:
        self.stores = tuple(stores)
        self._database = database

    def capture(self, session_id: str, check: CheckCancelled) -> Capture:
        """Read one session once. Raises SessionReferenceError READ_FAILED."""
        kind = session_id.partition(":")[0]
        # An id that names its agent is that agent's: a store that cannot tell what it has is not in its way.
        for store in sorted(self.stores, key=lambda store: store.kind != kind):
            try:
                return self._capture_from(store, session_id, check)
            except SessionReferenceError as failure:
                if failure.reason is not ReadFailedReason.NOT_FOUND:
                    raise failure.at(session_id=session_id) from None
        raise read_failed(ReadFailedReason.NOT_FOUND, session_id)

    def _capture_from(self, store: SessionStore, session_id: str, check: CheckCancelled) -> Capture:
        if self._database is None or not isinstance(store, CataloguedStore):
            return store.capture(session_id, check)
        name = store_name(store)
        saved = store.capture_again(session_id, partial(self._database.capture_state, name), check)
        if saved.state is not None:
            self._database.save_capture_state(name, saved.key, saved.state)
        return saved.capture
