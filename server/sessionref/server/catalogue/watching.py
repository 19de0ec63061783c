"""Noticing sessions that change while nobody asks: file events where they work, a bounded rescan everywhere."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import anyio
import anyio.to_thread

from sessionref.protocol.errors import SessionReferenceError
from sessionref.server.catalogue.discovery import Discovery
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.threads import WorkerThreads

__all__ = ("watch_sessions",)

logger = logging.getLogger(__name__)

RESCAN_SECONDS: Final = 0.5
"""Between two rescans where no events come: what changes is seen within a second."""

WATCHED_RESCAN_SECONDS: Final = 10.0
"""Between two rescans where events come: some file systems lose them in silence."""

RESCAN_BUDGET_SECONDS: Final = 0.05
"""What one rescan may take: a tenth of the time between two."""

DEBOUNCE_MILLISECONDS: Final = 200
"""Events are gathered for this long: an agent that writes does so many times a second."""


async def watch_sessions(discovery: Discovery, threads: WorkerThreads) -> None:
    """Mark sessions that change, from the first call for candidates on, until cancelled."""
    await discovery.until_asked()
    watched: set[Path] = set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(discovery.read_on)
        for index in discovery.indexes.values():
            tasks.start_soon(_watch, index, watched)
        while True:
            everything = {folder for index in discovery.indexes.values() for folder in index.store.watched_folders()}
            await anyio.sleep(WATCHED_RESCAN_SECONDS if everything <= watched else RESCAN_SECONDS)
            try:
                await threads.run(discovery.rescan, RESCAN_BUDGET_SECONDS)
            except SessionReferenceError as failure:
                # Whoever asks for candidates is told; here it may be better next time.
                logger.debug("a rescan failed: %s", failure.reason)


async def _watch(index: SessionIndex, watched: set[Path]) -> None:
    """Follow the file events of one store; where that is not possible the rescan has to do."""
    folders = index.store.watched_folders()
    while not folders:
        # Nothing tells that a folder has come to be, but a look at it.
        await anyio.sleep(WATCHED_RESCAN_SECONDS)
        folders = index.store.watched_folders()
    stop = threading.Event()
    try:
        watched.update(folders)
        # Its own thread: setting up the watches of thousands of folders takes its time, and each wait for events all
        # of it. It does not notice a cancellation by itself.
        follow = partial(_follow, index, folders, stop)
        await anyio.to_thread.run_sync(follow, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    except (OSError, RuntimeError, ImportError) as error:
        # Too many watches, a folder that is gone, a platform without events.
        logger.warning("sessions are not watched but looked at: %s", type(error).__name__)
    finally:
        stop.set()
        watched.difference_update(folders)


def _follow(index: SessionIndex, folders: Sequence[Path], stop: threading.Event) -> None:
    """Mark the sessions of a store that change, until told to stop."""
    import watchfiles

    # Its declared types name those of a library that is not installed.
    watch = cast("Any", watchfiles).watch
    for changes in watch(
        *folders,
        watch_filter=None,
        debounce=DEBOUNCE_MILLISECONDS,
        stop_event=stop,
        raise_interrupt=False,
        ignore_permission_denied=True,
    ):
        keys = (index.store.key_of(Path(path)) for _, path in changes)
        index.mark_changed({key for key in keys if key is not None})
