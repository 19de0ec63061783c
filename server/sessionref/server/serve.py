"""Running the service: stores, resolver and engine put together, signals, and an end that nothing can hold up."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence

import anyio
import anyio.to_thread

from sessionref.protocol.limits import Limits
from sessionref.server.dispatch import Dispatcher
from sessionref.server.engine import Connection, ConnectionEnd
from sessionref.server.logs import logging_to_standard_error
from sessionref.server.resolver import Resolver
from sessionref.server.settings import Settings
from sessionref.server.sources import SessionSources
from sessionref.server.spill import LocalSpillStore
from sessionref.server.store import SessionStore
from sessionref.server.threads import WorkerThreads
from sessionref.server.transport import StreamTransport
from sessionref.server.transports.stdio import StandardStreams, claimed_standard_streams

__all__ = ("make_dispatcher", "serve_stdio", "version")


def version() -> str:
    """The version of the installed package."""
    return importlib.metadata.version("sessionref")


def make_dispatcher(stores: Sequence[SessionStore], settings: Settings, spills: LocalSpillStore | None) -> Dispatcher:
    """Put resolver and dispatcher over some stores; to be called inside an event loop."""
    resolver = Resolver(SessionSources(stores), settings, threads=WorkerThreads(), spills=spills)
    return Dispatcher(resolver, settings, version=version(), stores=[store.kind for store in stores])


def serve_stdio(stores: Sequence[SessionStore], settings: Settings) -> int:
    """Serve one peer over standard input and output until the end. Returns the exit code."""
    with logging_to_standard_error(), claimed_standard_streams() as (input_descriptor, output_descriptor):
        watchdog = _Watchdog(settings.limits)
        try:
            return anyio.run(_serve, stores, settings, input_descriptor, output_descriptor, watchdog.start)
        finally:
            watchdog.stop()


async def _serve(
    stores: Sequence[SessionStore],
    settings: Settings,
    input_descriptor: int,
    output_descriptor: int,
    on_ending: Callable[[ConnectionEnd], None],
) -> int:
    limits = settings.limits
    spills = None if settings.spill_directory is None else LocalSpillStore(settings.spill_directory)
    streams = StandardStreams(input_descriptor, output_descriptor, chunk_bytes=limits.read_chunk_bytes)
    connection = Connection(
        StreamTransport(streams, limits, lenient=True),
        make_dispatcher(stores, settings, spills),
        limits,
        on_ending=on_ending,
    )
    end = ConnectionEnd.STOPPED
    async with anyio.create_task_group() as tasks:
        await tasks.start(_stop_on_signal, connection)
        if spills is not None:
            tasks.start_soon(_sweep, spills, settings.cleanup_period_days)
        sys.stderr.write(json.dumps({"listening": [{"transport": "stdio"}]}) + "\n")
        end = await connection.run()
        tasks.cancel_scope.cancel()
    return exit_code(end)


def exit_code(end: ConnectionEnd) -> int:
    """The exit code for the end of the stdio connection: as in LSP, and 1 where the input made no sense any more."""
    return 1 if end in (ConnectionEnd.EXIT_ALONE, ConnectionEnd.UNREADABLE) else 0


async def _stop_on_signal(
    connection: Connection, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            connection.stop()


async def _sweep(spills: LocalSpillStore, older_than_days: int) -> None:
    await anyio.to_thread.run_sync(spills.sweep, older_than_days, abandon_on_cancel=True)


class _Watchdog:
    """Ends the process when its drain is over, hung reads or a blocked loop or not."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._timer: threading.Timer | None = None

    def start(self, end: ConnectionEnd) -> None:
        """Begin to count: the drain, and most of the grace after it."""
        seconds = self._limits.drain_seconds + 0.9 * self._limits.exit_grace_seconds
        self._timer = threading.Timer(seconds, os._exit, [exit_code(end)])
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        """The process ends by itself."""
        if self._timer is not None:
            self._timer.cancel()
