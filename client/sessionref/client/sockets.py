"""Ways to a server that runs already: a Unix socket, TCP, and a WebSocket."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, Final

import anyio
import anyio.abc

from sessionref.client.background import background
from sessionref.client.client import Client
from sessionref.client.failures import CloseReason, ConnectionClosedError, MissingExtraError
from sessionref.client.limits import DEFAULT_LIMITS, ClientLimits
from sessionref.client.streams import STREAM_FAULTS, LineStream, MessageStream
from sessionref.client.web_address import parse_web_address
from sessionref.protocol.methods import EXIT

__all__ = ("connect_tcp", "connect_unix", "connect_websocket")

Dial = Callable[[], Coroutine[Any, Any, anyio.abc.ByteStream]]

_MAX_PORT: Final = 65_535
_ASK_AGAIN_SECONDS: Final = 0.02
"""How long to leave a Unix socket alone whose queue is full: nothing tells when it has room again."""


@asynccontextmanager
async def connect_unix(
    path: str | os.PathLike[str], *, limits: ClientLimits = DEFAULT_LIMITS
) -> AsyncGenerator[Client, None]:
    """Connect to the server that listens on a Unix socket.

    The server must answer `initialize` within `limits.connect_seconds`. Raises ConnectionClosedError if it cannot be
    reached, is no such server or does not answer, and RpcError if it refuses; what the body raises comes out as it is.
    Leaving sends `exit`, which cancels what is still in flight, and takes bounded time, cancelled or not. A lost
    connection stays lost: every later call raises ConnectionClosedError, and connecting again is up to the caller.
    """
    deadline = _deadline(limits)
    async with (
        _connected(partial(_dial_unix, os.fspath(path)), deadline) as carrier,
        _introduced(_SocketLines(carrier, limits), deadline, limits) as client,
    ):
        yield client


@asynccontextmanager
async def connect_tcp(host: str, port: int, *, limits: ClientLimits = DEFAULT_LIMITS) -> AsyncGenerator[Client, None]:
    """Connect to the server that listens on a TCP port, as `connect_unix` does. Raises also ValueError for the port."""
    if not 0 < port <= _MAX_PORT:
        raise ValueError(f"the port must be from 1 to {_MAX_PORT}")
    deadline = _deadline(limits)
    async with (
        _connected(partial(anyio.connect_tcp, host, port), deadline) as carrier,
        _introduced(_SocketLines(carrier, limits), deadline, limits) as client,
    ):
        yield client


@asynccontextmanager
async def connect_websocket(
    url: str, *, token: str | None = None, limits: ClientLimits = DEFAULT_LIMITS
) -> AsyncGenerator[Client, None]:
    """Connect to the server's WebSocket, as `connect_unix` does; needs the extra `http`.

    `url` is `ws://HOST:PORT/rpc`, or `http://HOST:PORT/#token=TOKEN` as the server prints it; `token` counts more
    than the fragment. Connects directly: the environment's proxies are never asked, for no host, and TLS is not
    spoken. Raises also MissingExtraError, ConnectionRefusedByServerError with the HTTP status of a refused handshake,
    and ValueError for a URL or a token that cannot be used.
    """
    address = parse_web_address(url, token)
    try:
        # Only here, because the package is optional.
        from sessionref.client.web_socket import WebSocketStream
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "websockets":
            raise
        raise MissingExtraError("websockets", "http") from error

    deadline = _deadline(limits)
    async with _connected(partial(anyio.connect_tcp, address.host, address.port), deadline) as carrier:
        stream = WebSocketStream(carrier, address, limits)
        with _until(deadline):
            await stream.shake_hands()
        async with background(stream.answer), _introduced(stream, deadline, limits) as client:
            yield client


class _SocketLines(LineStream):
    """Lines on a socket, which is closed only when the server has seen the end, so that it gets what was sent."""

    def __init__(self, carrier: anyio.abc.ByteStream, limits: ClientLimits) -> None:
        super().__init__(carrier, limits)
        self._carrier = carrier
        self._close_seconds = limits.close_seconds
        self._is_reading = False
        self._over = anyio.Event()

    async def receive(self) -> bytes:
        """The next line, as in the base."""
        self._is_reading = True
        try:
            return await super().receive()
        except BaseException:
            self._over.set()
            raise
        finally:
            self._is_reading = False

    async def aclose(self) -> None:
        """Send the end, wait in bounded time for the server's, which only a reader sees, and close."""
        try:
            if self._is_reading:
                # Busy, on Trio, is a writer that the server keeps waiting: then neither is waited for.
                with anyio.move_on_after(self._close_seconds), suppress(*STREAM_FAULTS, anyio.BusyResourceError):
                    await self._carrier.send_eof()
                    await self._over.wait()
        finally:
            await anyio.aclose_forcefully(self._carrier)


@asynccontextmanager
async def _connected(dial: Dial, deadline: float) -> AsyncGenerator[anyio.abc.ByteStream, None]:
    """Dial a byte stream; it is closed in the end, whatever happens."""
    try:
        with _until(deadline):
            carrier = await dial()
    except (OSError, UnicodeError) as error:
        # A host name that cannot be encoded is one that cannot be found.
        raise ConnectionClosedError(CloseReason.UNREACHABLE) from error
    try:
        yield carrier
    finally:
        await anyio.aclose_forcefully(carrier)


@asynccontextmanager
async def _introduced(stream: MessageStream, deadline: float, limits: ClientLimits) -> AsyncGenerator[Client, None]:
    async with Client(stream, limits=limits) as client:
        with _until(deadline):
            await client.initialize()
        try:
            yield client
        finally:
            with anyio.move_on_after(limits.goodbye_seconds, shield=True), suppress(ConnectionClosedError):
                await client.notify(EXIT)


async def _dial_unix(path: str) -> anyio.abc.ByteStream:
    # anyio's own way turns without rest while the queue of the socket is full, and leaks the socket when cancelled;
    # its UNIXSocketStream cannot be closed while one task reads and another writes.
    carrier = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        carrier.setblocking(False)
        while True:
            try:
                carrier.connect(path)
                break
            except BlockingIOError:
                await anyio.sleep(_ASK_AGAIN_SECONDS)
        return await anyio.abc.SocketStream.from_socket(carrier)
    except BaseException:
        carrier.close()
        raise


def _deadline(limits: ClientLimits) -> float:
    return anyio.current_time() + limits.connect_seconds


@contextmanager
def _until(deadline: float) -> Generator[None]:
    """Raise ConnectionClosedError TIMED_OUT where the body takes longer."""
    with anyio.CancelScope(deadline=deadline) as scope:
        yield
    if scope.cancelled_caught:
        raise ConnectionClosedError(CloseReason.TIMED_OUT)
