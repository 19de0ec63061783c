"""The service of one process: every connection over one resolver, and their common end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import anyio

from sessionref.protocol.limits import Limits
from sessionref.protocol.version import VERSION
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.discovery import Discovery
from sessionref.server.catalogue.watching import watch_sessions
from sessionref.server.dispatch import Dispatcher
from sessionref.server.engine import Connection, ConnectionEnd
from sessionref.server.metrics import Metrics
from sessionref.server.resolver import Resolver
from sessionref.server.settings import Settings
from sessionref.server.sources import SessionSources
from sessionref.server.spill import LocalSpillStore
from sessionref.server.store import SessionStore
from sessionref.server.threads import WorkerThreads
from sessionref.server.transport import Transport

__all__ = ("MAX_CONNECTIONS", "Service")

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 256
"""Connections at once: many windows of many editors; each may hold its own queue of requests."""


class Service:
    """Serves connections until it is told to stop; to be made inside an event loop."""

    def __init__(
        self, stores: Sequence[SessionStore], settings: Settings, *, max_connections: int = MAX_CONNECTIONS
    ) -> None:
        self.settings = settings
        self.metrics = Metrics()
        directory = settings.spill_directory
        self.spills = None if directory is None else LocalSpillStore(directory)
        self._threads = WorkerThreads()
        self.database = None
        if settings.catalog is not None:
            self.database = CatalogueDatabase(settings.catalog, max_bytes=settings.catalog_max_bytes)
        self._discovery = Discovery(
            stores, self.database, threads=self._threads, wait_seconds=settings.candidates_wait_ms / 1000
        )
        resolver = Resolver(
            SessionSources(stores, self.database),
            settings,
            discovery=self._discovery,
            threads=self._threads,
            spills=self.spills,
        )
        kinds = [store.kind for store in stores]
        self._dispatcher = Dispatcher(resolver, settings, version=VERSION, stores=kinds)
        self._max_connections = max_connections
        self._connections: set[Connection] = set()
        self._stopping = anyio.Event()
        self._empty = anyio.Event()

    @property
    def is_full(self) -> bool:
        """Whether one more connection would be too many."""
        return len(self._connections) >= self._max_connections

    @property
    def is_stopping(self) -> bool:
        """Whether the service has been told to stop."""
        return self._stopping.is_set()

    def connection(
        self,
        transport: Transport,
        *,
        limits: Limits | None = None,
        on_ending: Callable[[ConnectionEnd], None] | None = None,
        can_exit: bool = True,
    ) -> Connection:
        """A connection over a transport, to be run with `run`."""
        return Connection(
            transport,
            self._dispatcher,
            limits or self.settings.limits,
            on_ending=on_ending,
            observer=self.metrics,
            can_exit=can_exit,
        )

    async def run(self, connection: Connection) -> ConnectionEnd:
        """Serve one connection to its end; one that is too many, or comes too late, is closed at once."""
        if self.is_full:
            self.refuse()
            connection.disconnect()
        elif self.is_stopping:
            connection.stop()
        self._connections.add(connection)
        self.metrics.connections += 1
        self.metrics.open_connections += 1
        try:
            return await connection.run()
        finally:
            self.metrics.open_connections -= 1
            self._connections.discard(connection)
            if not self._connections:
                self._empty.set()
                self._empty = anyio.Event()

    def refuse(self) -> None:
        """Take note of a connection that is too many, or too late."""
        self.metrics.refused_connections += 1
        logger.warning("a connection is refused: %d are open", len(self._connections))

    async def watch(self) -> None:
        """Notice sessions that change, until cancelled; without it they are noticed when they are answered."""
        await watch_sessions(self._discovery, self._threads)

    def stop(self) -> None:
        """Let every connection drain and end."""
        self._stopping.set()
        for connection in self._connections:
            connection.stop()

    async def until_stopping(self) -> None:
        """Wait until the service is told to stop."""
        await self._stopping.wait()

    async def until_drained(self) -> None:
        """Wait for every connection to end after `stop`; what takes longer than `drainSeconds` is cancelled."""
        with anyio.move_on_after(self.settings.drain_seconds):
            await self._until_empty()
        for connection in self._connections:
            connection.abort()
        with anyio.move_on_after(self.settings.limits.exit_grace_seconds / 2):
            await self._until_empty()

    def prometheus(self) -> str:
        """The metrics of the process as Prometheus text."""
        in_flight = sum(connection.requests_in_flight for connection in self._connections)
        return self.metrics.prometheus(in_flight=in_flight, busy_threads=self._threads.busy)

    async def _until_empty(self) -> None:
        # Several wait at once, so that the event is made anew only by what ends their waiting.
        while self._connections:
            await self._empty.wait()
