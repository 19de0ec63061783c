"""The client for scripts that are not asynchronous: the same calls, each waiting for its answer.

from sessionref.client.blocking import connect_unix

with connect_unix("/run/user/1000/sessionref.sock") as client:
    print(client.candidates("agent"))
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial, wraps
from threading import Lock
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from sessionref import client as asynchronous
from sessionref.client.client import Client
from sessionref.client.failures import CloseReason, ConnectionClosedError

__all__ = ("BlockingClient", "connect_tcp", "connect_unix", "connect_websocket", "spawn")

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_NOTICE_SECONDS: Final = 0.5
"""How long an interrupt may go unnoticed that comes just before a wait begins, or on a system that lets waits go on."""


def _waiting(
    call: Callable[Concatenate[Client, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[BlockingClient, Parameters], Result]:
    """The method of a blocking client for one of the asynchronous client."""

    @wraps(call)
    def method(self: BlockingClient, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return self.run(lambda client: call(client, *args, **kwargs))

    return method


class BlockingClient:
    """A client whose calls wait; a context manager, which runs an event loop in a thread of its own.

    Calls may come from many threads at once, and raise what those of Client raise, as it is. Outside the context they
    raise ConnectionClosedError; leaving it ends the calls of other threads so. KeyboardInterrupt cancels the call
    that it interrupts. Entering it again connects again. Not to be used in a task of an event loop, which it would
    block.
    """

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Client]]) -> None:
        self._connect = connect
        self._lock = Lock()
        self._open: _Open | None = None
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        """Connect, in the time and with the errors of the asynchronous way."""
        if self._open is not None:
            raise RuntimeError("the client has been entered already")
        with ExitStack() as resources:
            portal = resources.enter_context(start_blocking_portal())
            self._open = resources.enter_context(_Open(self._connect, portal))
            resources.callback(self._forget)
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the connection, in the time of the asynchronous way."""
        self._resources.__exit__(kind, error, traceback)

    def run(self, call: Callable[[Client], Coroutine[Any, Any, Result]]) -> Result:
        """Await something with the asynchronous client, in its event loop."""
        cancellable = _Cancellable(call)
        try:
            with self._lock:
                # While it is held, the event loop goes on.
                if self._open is None:
                    raise ConnectionClosedError(CloseReason.NOT_OPEN)
                future = self._open.start(cancellable)
            return _result(future)
        except Exception:
            raise
        except BaseException:
            # An interrupt may come at any point, also when the call runs and `future` is not known yet.
            with self._lock:
                if self._open is not None:
                    self._open.cancel(cancellable)
            raise

    candidates = _waiting(Client.candidates)
    prepare = _waiting(Client.prepare)
    prepare_messages = _waiting(Client.prepare_messages)
    assembled = _waiting(Client.assembled)
    initialize = _waiting(Client.initialize)
    discover = _waiting(Client.discover)
    request = _waiting(Client.request)
    notify = _waiting(Client.notify)

    def _forget(self) -> None:
        with self._lock:
            self._open = None


class _Cancellable(Generic[Result]):
    """A call that can be cancelled, also before it has begun."""

    def __init__(self, call: Callable[[Client], Coroutine[Any, Any, Result]]) -> None:
        self._call = call
        self._scope: anyio.CancelScope | None = None
        self._is_cancelled = False

    async def run(self, client: Client) -> Result:
        """Make the call."""
        with anyio.CancelScope() as self._scope:
            if self._is_cancelled:
                self._scope.cancel()
            return await self._call(client)
        # Nobody waits for it any more.
        raise ConnectionClosedError(CloseReason.NOT_OPEN)

    def cancel(self) -> None:
        """Cancel the call, in the event loop."""
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()


class _Open:
    """A connection that one task of the portal holds, so that no exception of another thread gets into its loop."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Client]], portal: BlockingPortal) -> None:
        self._connect = connect
        self._portal = portal
        self._client: Client
        self._leaving: anyio.Event
        self._held: Future[None]

    def __enter__(self) -> Self:
        is_open: Future[None] = Future()
        self._held = self._portal.start_task_soon(self._hold, is_open)
        _wait(is_open, self._held)
        if not is_open.done():
            _result(self._held)
        return self

    def __exit__(self, *_: object) -> None:
        self._portal.call(self._leave)
        try:
            _result(self._held)
        finally:
            self._held.cancel()

    def start(self, call: _Cancellable[Result]) -> Future[Result]:
        """Begin a call; returns what waits for its end."""
        return self._portal.start_task_soon(call.run, self._client)

    def cancel(self, call: _Cancellable[Any]) -> None:
        """Cancel a call."""
        self._portal.call(call.cancel)

    async def _hold(self, is_open: Future[None]) -> None:
        self._leaving = anyio.Event()
        async with self._connect() as self._client:
            is_open.set_result(None)
            await self._leaving.wait()

    async def _leave(self) -> None:
        self._leaving.set()


def _result(future: Future[Result]) -> Result:
    """Wait for the end of a task and return what it returns."""
    _wait(future)
    try:
        return future.result()
    except CancelledError:
        raise ConnectionClosedError(CloseReason.NOT_OPEN) from None


def _wait(*futures: Future[Any]) -> None:
    """Wait until one of them is done."""
    while not wait(futures, _NOTICE_SECONDS, FIRST_COMPLETED).done:
        pass


def _blocking(
    connect: Callable[Parameters, AbstractAsyncContextManager[Client]],
) -> Callable[Parameters, BlockingClient]:
    """The blocking way for an asynchronous one, with the same parameters."""

    @wraps(connect)
    def function(*args: Parameters.args, **kwargs: Parameters.kwargs) -> BlockingClient:
        return BlockingClient(partial(connect, *args, **kwargs))

    return function


# The lines of a server's log come to `on_log` in the thread of the event loop.
spawn = _blocking(asynchronous.spawn)
connect_unix = _blocking(asynchronous.connect_unix)
connect_tcp = _blocking(asynchronous.connect_tcp)
connect_websocket = _blocking(asynchronous.connect_websocket)
