"""Doubles for tests of the resolver: a store and a spill store in memory, and a place where threads stop."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Literal, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from sessionref.protocol.errors import ReadFailedReason, SessionReferenceError, read_failed
from sessionref.server.resolver import Resolver
from sessionref.server.settings import Settings
from sessionref.server.sources import SessionSources
from sessionref.server.spill import SavedSpill, SpillStore, SpillTransaction
from sessionref.server.store import (
    Capture,
    CheckCancelled,
    ConversationItem,
    Diagnostic,
    Listing,
    SessionHeader,
    Unlisted,
)
from sessionref.server.threads import WorkerThreads

__all__ = (
    "MemorySpills",
    "MemoryStore",
    "Stop",
    "all_returned",
    "captured",
    "checkpoint",
    "failure_of",
    "hanging",
    "make_resolver",
    "never_cancelled",
    "said",
)

Result = TypeVar("Result")


def never_cancelled() -> None:
    """A check of a request that nobody cancels."""


def said(text: str, role: Literal["user", "assistant"] = "user") -> ConversationItem:
    """A message of a conversation."""
    return ConversationItem(role, text)


def checkpoint(text: str) -> ConversationItem:
    """A compaction checkpoint."""
    return ConversationItem("user", text, checkpoint=True)


def captured(
    session_id: str,
    *items: ConversationItem | str,
    cwd: str | None = None,
    version: int = 0,
    seq: int | None = 0,
    diagnostics: Sequence[Diagnostic] = (),
) -> Capture:
    """A capture; a plain string is a message of the user."""
    return Capture(
        session_id=session_id,
        cwd=cwd,
        format_version=version,
        captured_through_seq=seq,
        items=[said(item) if isinstance(item, str) else item for item in items],
        diagnostics=list(diagnostics),
    )


class MemoryStore:
    """A SessionStore in memory that counts its reads; `before_capture` and `before_listing` run in its threads."""

    def __init__(
        self,
        captures: Iterable[Capture] = (),
        *,
        headers: Iterable[SessionHeader] = (),
        unlisted: Iterable[Unlisted] = (),
        kind: str = "memory",
        lists_subagents: bool = True,
        before_capture: Callable[[str, CheckCancelled], None] | None = None,
        before_listing: Callable[[CheckCancelled], None] | None = None,
    ) -> None:
        self.kind = kind
        self.lists_subagents = lists_subagents
        self.captures = {capture.session_id: capture for capture in captures}
        self.headers = list(headers)
        self.unlisted = list(unlisted)
        self.captured: list[str] = []
        """The id of every capture asked for, in order."""
        self.listings = 0
        self._before_capture = before_capture
        self._before_listing = before_listing

    def list_sessions(self, check: CheckCancelled) -> Listing:
        """The headers given."""
        self.listings += 1
        if self._before_listing is not None:
            self._before_listing(check)
        return Listing(self.headers, self.unlisted)

    def capture(self, session_id: str, check: CheckCancelled) -> Capture:
        """The capture given with that id."""
        self.captured.append(session_id)
        if self._before_capture is not None:
            self._before_capture(session_id, check)
        if session_id not in self.captures:
            raise read_failed(ReadFailedReason.NOT_FOUND, session_id)
        return self.captures[session_id]


class MemorySpills:
    """A SpillStore in memory; `before_save` runs in its threads with the number of the reference."""

    def __init__(self, before_save: Callable[[int], None] | None = None) -> None:
        self.saved: list[tuple[str, int, bytes]] = []
        """Owner, number and content of each save, in the order in which they ended."""
        self._before_save = before_save

    def save(self, owner_id: str, number: int, content: Iterable[bytes], transaction: SpillTransaction) -> SavedSpill:
        """Keep the content."""
        if self._before_save is not None:
            self._before_save(number)
        whole = b"".join(content)
        self.saved.append((owner_id, number, whole))
        return SavedSpill(f"memory:{number}", len(whole), "ask for it")


class Stop:
    """A place where threads stop until the test, or the end of its `with`, lets them go on."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()
        self._lock = threading.Lock()
        self.arrived = 0
        self.left = threading.Event()
        """Set once a thread has been let go on."""

    def __enter__(self) -> Stop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open()

    def wait(self) -> None:
        """Called by a thread: stop here."""
        with self._lock:
            self.arrived += 1
        self._reached.set()
        self._opened.wait()
        self.left.set()

    def open(self) -> None:
        """Let every thread go on, also those that come later."""
        self._opened.set()

    async def reached(self) -> None:
        """Wait until the first thread stands here."""
        assert await anyio.to_thread.run_sync(self._reached.wait, 5)


async def all_returned(threads: WorkerThreads) -> None:
    """Wait until no thread is busy any more, the abandoned ones included."""
    with anyio.fail_after(5):
        while threads.busy:
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def hanging() -> AsyncGenerator[tuple[Stop, WorkerThreads]]:
    """A stop, and threads to hang there; at the end they go on, and all have returned."""
    threads = WorkerThreads()
    with Stop() as stop:
        yield stop, threads
    await all_returned(threads)


def make_resolver(
    *stores: MemoryStore,
    settings: Settings | None = None,
    spills: SpillStore | None = None,
    threads: WorkerThreads | None = None,
) -> Resolver:
    """A resolver over stores in memory; to be called with the event loop running."""
    return Resolver(SessionSources(stores), settings or Settings(), threads=threads or WorkerThreads(), spills=spills)


def failure_of(function: Callable[[], object]) -> SessionReferenceError:
    """The domain failure that a call raises."""
    try:
        result = function()
    except SessionReferenceError as failure:
        return failure
    raise AssertionError(f"nothing was raised, the result was {result!r}")
