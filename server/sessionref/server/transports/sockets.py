"""Unix sockets and TCP on the loopback interface: private listeners, and byte streams over what they accept."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import socket
import stat
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel

from sessionref.protocol.errors import invalid_config
from sessionref.server.transport import TransportBroken, has_hung_up

__all__ = ("SocketStream", "accept_connections", "loopback_address", "tcp_listener", "unix_listener")

logger = logging.getLogger(__name__)

BACKLOG: Final = 128
"""Connections that wait to be accepted; a host that opens more at once waits for a moment."""

ACCEPT_AGAIN_SECONDS: Final = 0.1
"""How long to leave a listener alone after it failed: descriptors that are short do not come back at once."""

LINGER_SECONDS: Final = 0.5
"""How long a closing socket reads on, so that the peer gets the last answer and not a reset."""

_PROBE_SECONDS: Final = 0.5
_LARGEST_SEND: Final = 1_048_576


class SocketStream:
    """A byte stream over one connected socket, which it owns."""

    def __init__(self, connected: socket.socket, *, chunk_bytes: int) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._chunk_bytes = chunk_bytes
        self._ended = False
        self._was_full = False

    async def receive_some(self) -> bytes:
        """The next bytes, empty at the end of input. Raises TransportBroken."""
        if self._was_full:
            # There is more, and others want their turn, too.
            await anyio.lowlevel.checkpoint()
        while True:
            try:
                data = self._socket.recv(self._chunk_bytes)
            except BlockingIOError:
                await self._until(anyio.wait_readable)
            except OSError:
                self._ended = True
                raise TransportBroken from None
            else:
                self._ended = not data
                self._was_full = len(data) == self._chunk_bytes
                return data

    async def send_all(self, data: bytes) -> None:
        """Write all bytes, waiting while the peer takes none. Raises TransportBroken."""
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view[:_LARGEST_SEND]) :]
            except BlockingIOError:
                await self._until(anyio.wait_writable)
            except OSError:
                raise TransportBroken from None

    def has_ended(self) -> bool:
        """Whether the peer has closed its side."""
        return self._ended or has_hung_up(self._socket.fileno())

    async def aclose(self) -> None:
        """Send the end, read what still comes for a moment, and close."""
        if self._socket.fileno() < 0:
            return
        try:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            with anyio.move_on_after(LINGER_SECONDS), suppress(TransportBroken):
                while not self._ended:
                    await self.receive_some()
        finally:
            self._socket.close()

    async def _until(self, is_ready: Callable[[socket.socket], Awaitable[None]]) -> None:
        try:
            await is_ready(self._socket)
        except (anyio.ClosedResourceError, OSError):
            raise TransportBroken from None


async def accept_connections(
    listener: socket.socket,
    serve_one: Callable[[socket.socket], Coroutine[Any, Any, None]],
    until: Callable[[], Awaitable[None]],
) -> None:
    """Serve every connection of a listener in a task of its own; after `until`, close it and wait for the others."""
    async with anyio.create_task_group() as tasks:
        with closing(listener), anyio.CancelScope() as accepting:

            async def stop_accepting() -> None:
                await until()
                accepting.cancel()

            tasks.start_soon(stop_accepting)
            while True:
                try:
                    connected, _ = listener.accept()
                except BlockingIOError:
                    await anyio.wait_readable(listener)
                except OSError as error:
                    # Out of descriptors, or a peer that was gone before it was accepted: others may do better.
                    logger.warning("a connection was not accepted: %s", error.strerror)
                    await anyio.sleep(ACCEPT_AGAIN_SECONDS)
                else:
                    tasks.start_soon(serve_one, connected)


@contextmanager
def unix_listener(path: Path) -> Generator[socket.socket]:
    """Listen on a Unix socket that only this user can reach; it is removed in the end.

    A stale socket is replaced, a live server's is not, nor is anything that is no socket. Raises
    SessionReferenceError INVALID_CONFIG.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            with _locked_folder(path.parent):
                _remove_stale(path)
                _bind_privately(listener, path)
                listener.listen(BACKLOG)
                identity = _identity(path)
        except OSError as error:
            raise invalid_config("the Unix socket", f"bindable: {error.strerror or error}", "--unix") from None
        listener.setblocking(False)
        try:
            yield listener
        finally:
            with suppress(OSError):
                if _identity(path) == identity:
                    path.unlink()
    finally:
        listener.close()


def _bind_privately(listener: socket.socket, path: Path) -> None:
    # The mode must be right from the first moment on: between bind and chmod anybody could connect.
    before = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    finally:
        os.umask(before)


@contextmanager
def _locked_folder(folder: Path) -> Generator[None]:
    """Let one server at a time look at a socket's path and replace it; the lock leaves nothing behind."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_stale(path: Path) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(errno.EEXIST, "something else than a socket is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:
            # Busy, or not ours to ask: it may well be alive.
            pass
    raise OSError(errno.EADDRINUSE, "a live server has it")


def _identity(path: Path) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


@contextmanager
def tcp_listener(address: str, option: str) -> Generator[socket.socket]:
    """Listen on `HOST:PORT` of the loopback interface; port 0 takes a free one.

    Raises SessionReferenceError INVALID_CONFIG for any other interface, and for an address that is taken.
    """
    host, port = loopback_address(address, option)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        try:
            if sys.platform != "win32":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(BACKLOG)
        except OSError as error:
            raise invalid_config("the address", f"bindable: {error.strerror or 'it is not'}", option) from None
        listener.setblocking(False)
        yield listener
    finally:
        listener.close()


def loopback_address(address: str, option: str) -> tuple[str, int]:
    """The numeric host and the port of a loopback `HOST:PORT`. Raises SessionReferenceError INVALID_CONFIG."""
    host, colon, digits = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    numeric = "127.0.0.1" if host.lower() == "localhost" else host
    try:
        is_loopback = ipaddress.ip_address(numeric).is_loopback
    except ValueError:
        is_loopback = False
    if not colon or not is_loopback or not digits.isascii() or not digits.isdigit() or int(digits) > 65_535:
        raise invalid_config("the address", "HOST:PORT on the loopback interface, as 127.0.0.1:0", option)
    return numeric, int(digits)
