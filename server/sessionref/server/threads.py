"""Worker threads for storage that may hang: bounded in number, left behind when their request is cancelled.

anyio forgets an abandoned thread, so that a hanging disk would cost one more thread a request. Here a thread keeps
its place until its function has really returned (`engineering.md` B.4).
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar, TypeVarTuple

import anyio
import anyio.from_thread
import anyio.to_thread

__all__ = ("WorkerThreads", "check_cancelled")

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

DEFAULT_THREADS: Final = 8
"""Reads at once over all connections: enough to keep a disk busy, and more only compete for the interpreter."""

TURN_SECONDS: Final = 0.004
"""How long a thread computes before it gives way: less than the 5 ms after which the interpreter would make it."""

_PAUSE_SECONDS: Final = 1e-6
"""Any time at all: the system makes some 50 us of it, which is enough to wake up the event loop."""

_turn = threading.local()


def check_cancelled() -> None:
    """Raise in a worker thread once the request that it works for was cancelled, and let others have their turn.

    A thread that reads gives the interpreter away at every read, too briefly for the event loop to wake up and take
    it; yet each time the loop begins anew to wait those 5 ms. So it would wait until the reading is over.
    """
    anyio.from_thread.check_cancelled()
    if time.monotonic() - getattr(_turn, "began", 0.0) >= TURN_SECONDS:
        time.sleep(_PAUSE_SECONDS)
        _turn.began = time.monotonic()


class WorkerThreads:
    """Runs blocking functions in at most `limit` threads, the abandoned ones included."""

    def __init__(self, limit: int = DEFAULT_THREADS) -> None:
        self._limiter = anyio.CapacityLimiter(limit)
        self._unlimited = anyio.CapacityLimiter(math.inf)

    @property
    def busy(self) -> int:
        """Threads whose function has not returned yet."""
        return self._limiter.borrowed_tokens

    async def run(self, function: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        """Run a function in a thread and await it; a cancelled caller goes on at once, the thread when it notices."""
        place = _Place(self._limiter)
        await self._limiter.acquire_on_behalf_of(place)

        def work() -> T:
            place.enter_from_thread()
            try:
                return function(*arguments)
            finally:
                place.leave_from_thread()

        try:
            result = await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._unlimited)
        except BaseException:
            place.leave_from_loop()
            raise
        place.leave_from_loop()
        return result


class _Place:
    """One thread's place in the limit; given back once, by the loop or, if the loop has gone on, by the thread."""

    def __init__(self, limiter: anyio.CapacityLimiter) -> None:
        self._limiter = limiter
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._started = False
        self._returned = False
        self._left = False

    def enter_from_thread(self) -> None:
        with self._lock:
            if self._left:
                raise RuntimeError("the caller was cancelled before the thread began")
            self._started = True

    def leave_from_thread(self) -> None:
        with self._lock:
            self._returned = True
            must_release = self._left
        if must_release:
            # The loop may have ended long ago; then there is no limit left to keep. Waiting for it could be for ever.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._release)

    def leave_from_loop(self) -> None:
        with self._lock:
            self._left = True
            must_release = self._returned or not self._started
        if must_release:
            self._release()

    def _release(self) -> None:
        self._limiter.release_on_behalf_of(self)
