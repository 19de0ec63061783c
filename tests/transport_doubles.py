"""Doubles around real transports: a store that a test steers, services that listen, and peers that speak to them.

Run as a program it is a server over that store: `python transport_doubles.py '{"unix": "/tmp/s", "drain": 0.2}'`. Its
store says `hanging` on standard error when a read hangs, and such a read outlasts every test.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import struct
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
import msgspec
from msgspec.structs import replace
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from sessionref.protocol.errors import ReadFailedReason, read_failed
from sessionref.protocol.limits import Limits
from sessionref.protocol.methods import CANDIDATES, PREPARE
from sessionref.server.serve import (
    ServeOptions,
    _accept,  # pyright: ignore[reportPrivateUsage] - the loop that the process runs, over a listener of the test
    serve,
)
from sessionref.server.service import MAX_CONNECTIONS, Service
from sessionref.server.settings import Settings
from sessionref.server.store import Capture, CheckCancelled, ConversationItem, Listing, SessionHeader
from sessionref.server.transport import StreamTransport
from sessionref.server.transports.sockets import tcp_listener, unix_listener
from sessionref.server.transports.stdio import StandardStreams
from sessionref.server.transports.web import serve_web, web_application
from sessionref.server.transports.web_access import SUBPROTOCOL, TOKEN_SUBPROTOCOL_PREFIX, WebAccess

__all__ = (
    "KINDS",
    "PATIENCE",
    "TOKEN",
    "Abilities",
    "Closed",
    "HttpPeer",
    "HttpResponse",
    "Kind",
    "Peer",
    "SteeredSettings",
    "SteeredStore",
    "StreamPeer",
    "WebSocketPeer",
    "World",
    "cancel",
    "candidates",
    "code_of",
    "dial_tcp",
    "eventually",
    "exchange",
    "listening",
    "prepare",
    "serving",
    "spilled",
)

Kind = Literal["stdio", "unix", "tcp", "http", "websocket"]
KINDS: Final[tuple[Kind, ...]] = ("stdio", "unix", "tcp", "http", "websocket")

TOKEN: Final = "a-token-of-the-tests"

PATIENCE: Final = 20.0
"""Seconds that anything may take; only a fault ever waits so long."""

SMALL_BUFFER: Final = 16_384
"""What the kernel holds for a peer of these tests, roughly, so that one which does not read is soon noticed."""

_TRUNCATED_BYTES: Final = 150_000
_WIDE_BYTES: Final = 60_000


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something outside the event loop has come about."""
    with anyio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - threads, processes and files tell nobody when they change
            await anyio.sleep(0.005)


# The store.


class SteeredStore:
    """Sessions named after what reading them does; what follows a `#` in an id only makes it another session.

    `small` is read at once, `wide` too and fills most of the default budget, `truncated` is twice as long; `hung` and
    `hung-truncated` wait for `release`, whatever becomes of their request; `corrupt` and `crashing` fail.
    """

    kind = "steered"
    lists_subagents = True

    def __init__(self, on_hang: Callable[[], None] = lambda: None) -> None:
        self.reads: list[str] = []
        """The id of every session whose read has begun."""
        self.listing_hangs = False
        self.hangs = 0
        """Reads that have begun to hang."""
        self.faults: Callable[[str], None] = lambda session_id: None
        """Called before every read; may raise."""
        self._on_hang = on_hang
        self._released = threading.Event()

    def release(self) -> None:
        """Let everything that hangs, or will, go on."""
        self._released.set()

    def list_sessions(self, check: CheckCancelled) -> Listing:
        """Two sessions, one of which has neither a title nor a folder."""
        if self.listing_hangs:
            self._hang()
        titled = SessionHeader(
            session_id="small", created_at=1_700_000_000_000, updated_at=1_700_000_001_000, cwd="/srv/a", title="Ferry"
        )
        return Listing([titled, SessionHeader(session_id="wide", created_at=1_600_000_000_000)], [])

    def capture(self, session_id: str, check: CheckCancelled) -> Capture:
        """Do what the id says."""
        self.reads.append(session_id)
        self.faults(session_id)
        name = session_id.partition("#")[0]
        if name.startswith("hung"):
            self._hang()
        if name == "corrupt":
            raise read_failed(ReadFailedReason.CORRUPT, session_id)
        if name == "crashing":
            raise RuntimeError("a secret in /a/private/path")
        if name not in ("small", "wide", "truncated", "hung", "hung-truncated"):
            raise read_failed(ReadFailedReason.NOT_FOUND, session_id)
        size = {"wide": _WIDE_BYTES}.get(name, _TRUNCATED_BYTES if name.endswith("truncated") else 10)
        return Capture(
            session_id=session_id,
            cwd=None,
            format_version=0,
            captured_through_seq=1,
            items=[ConversationItem("user", "a question"), ConversationItem("assistant", "x" * size)],
            diagnostics=[],
        )

    def _hang(self) -> None:
        self.hangs += 1
        self._on_hang()
        # Bounded, so that a test which forgets to release it fails and does not hang itself.
        self._released.wait(4 * PATIENCE)


# Messages.


def prepare(identity: Any, *session_ids: str, **params: Any) -> dict[str, Any]:
    """A request to prepare a message that refers to these sessions."""
    references = [{"sessionId": session_id} for session_id in session_ids]
    given = {"agentId": "agent", "content": "go on", "references": references, **params}
    return {"jsonrpc": "2.0", "id": identity, "method": PREPARE, "params": given}


def candidates(identity: Any, **params: Any) -> dict[str, Any]:
    """A request for candidates."""
    return {"jsonrpc": "2.0", "id": identity, "method": CANDIDATES, "params": {"agentId": "agent", **params}}


def cancel(identity: Any) -> dict[str, Any]:
    """The notification that cancels a request."""
    return {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": identity}}


def code_of(answer: Any) -> int | None:
    """The number of the error that an answer carries, if it does."""
    code: int | None = answer.get("error", {}).get("code")
    return code


def _bytes(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()


# Peers.


class Abilities(msgspec.Struct, frozen=True):
    """What a transport lets a peer do; the contract has a reason for each that is missing."""

    half_close: bool = True
    """End its input and still take answers."""
    cancel: bool = True
    """Cancel a request by a message; over HTTP a request is cancelled by closing it."""
    one_connection: bool = True
    """Send several messages on one connection, which share ids, limits and an order."""
    exit: bool = True
    """Use `shutdown` and `exit`."""


class Closed(Exception):
    """The server has closed the connection, or this peer has."""


class Peer(ABC):
    """The other side of one connection; messages are JSON values, or bytes to be sent as they are."""

    abilities = Abilities()

    async def send(self, message: Any) -> None:
        """Send one message."""
        await self._send(_bytes(message), drip=False)

    async def drip(self, message: Any) -> None:
        """Send one message, one byte at a time."""
        await self._send(_bytes(message), drip=True)

    async def receive(self) -> Any:
        """The next answer. Raises Closed."""
        return json.loads(await self.receive_bytes())

    async def receive_bytes(self) -> bytes:
        """The next answer as it came. Raises Closed."""
        with anyio.fail_after(PATIENCE):
            return await self._receive()

    async def call(self, message: dict[str, Any]) -> Any:
        """Send a request and take its answer, which must be the next."""
        await self.send(message)
        answer = await self.receive()
        assert answer["id"] == message["id"]
        return answer

    async def nothing_more(self) -> None:
        """Make sure that no answer has been left over: what is asked now is what is answered next."""
        marker = secrets.token_hex(4)
        assert "result" in await self.call({"jsonrpc": "2.0", "id": marker, "method": "initialize"})

    async def until_closed(self) -> list[Any]:
        """Wait for the server to close the connection; returns what it still answered."""
        answers: list[Any] = []
        with suppress(Closed):
            while True:
                answers.append(await self.receive())
        return answers

    async def close_writing(self) -> None:
        """End the input, and go on reading."""
        raise NotImplementedError

    @abstractmethod
    async def reset(self) -> None:
        """Break the connection off."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection in order; may be called more than once."""

    @abstractmethod
    async def _send(self, data: bytes, *, drip: bool) -> None: ...

    @abstractmethod
    async def _receive(self) -> bytes: ...


class StreamPeer(Peer):
    """Newline-delimited messages over a byte stream, or whatever bytes a test wants."""

    def __init__(self) -> None:
        self._received = bytearray()

    async def write(self, data: bytes) -> None:
        """Write bytes. Raises Closed."""
        raise NotImplementedError

    async def read(self) -> bytes:
        """The next bytes, none at the end. Raises Closed for a broken connection."""
        raise NotImplementedError

    async def read_all(self) -> bytes:
        """Everything until the end."""
        received = bytes(self._received)
        with anyio.fail_after(PATIENCE):
            with suppress(Closed):
                while data := await self.read():
                    received += data
        return received

    async def _send(self, data: bytes, *, drip: bool) -> None:
        line = data + b"\n"
        for at in range(0, len(line), 1 if drip else len(line)):
            await self.write(line[at : at + 1] if drip else line)

    async def _receive(self) -> bytes:
        while b"\n" not in self._received:
            data = await self.read()
            if not data:
                raise Closed
            self._received += data
        line, _, rest = self._received.partition(b"\n")
        self._received = bytearray(rest)
        return bytes(line)


class SocketPeer(StreamPeer):
    """A peer over a socket that reads only when it is asked to."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__()
        self.socket = connected
        self._loop = asyncio.get_running_loop()

    async def write(self, data: bytes) -> None:
        """As in the base."""
        try:
            await self._loop.sock_sendall(self.socket, data)
        except OSError:
            raise Closed from None

    async def read(self) -> bytes:
        """As in the base."""
        try:
            return await self._loop.sock_recv(self.socket, 65_536)
        except OSError:
            raise Closed from None

    async def close_writing(self) -> None:
        """As in the base."""
        self.socket.shutdown(socket.SHUT_WR)

    async def reset(self) -> None:
        """As in the base; a Unix socket is reset by closing it with something unread."""
        if self.socket.family == socket.AF_UNIX:
            await self.send({"jsonrpc": "2.0", "id": "unread", "method": "initialize"})
            await anyio.wait_readable(self.socket)
        else:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    async def close(self) -> None:
        """As in the base."""
        self.socket.close()


class PipePeer(StreamPeer):
    """A peer over two pipes, as a host has them that spawned the server."""

    def __init__(self, reading: int, writing: int) -> None:
        super().__init__()
        self._reading = reading
        self._writing: int | None = writing
        self._closed = False
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)

    async def write(self, data: bytes) -> None:
        """As in the base."""
        view = memoryview(data)
        while view:
            assert self._writing is not None
            await anyio.wait_writable(self._writing)
            try:
                view = view[os.write(self._writing, view) :]
            except BlockingIOError:
                continue
            except OSError:
                raise Closed from None

    async def read(self) -> bytes:
        """As in the base."""
        await anyio.wait_readable(self._reading)
        return os.read(self._reading, 65_536)

    async def close_writing(self) -> None:
        """As in the base."""
        if self._writing is not None:
            os.close(self._writing)
            self._writing = None

    async def reset(self) -> None:
        """As in the base: nobody takes the output any more. Noticed when something is written."""
        if not self._closed:
            self._closed = True
            os.close(self._reading)
            with suppress(Closed):
                await self.send({"jsonrpc": "2.0", "id": "unread", "method": "initialize"})

    async def close(self) -> None:
        """As in the base."""
        await self.close_writing()
        if not self._closed:
            self._closed = True
            os.close(self._reading)


class WebSocketPeer(Peer):
    """A peer over a WebSocket; it holds few frames that nobody has asked for."""

    abilities = Abilities(half_close=False)

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def reset(self) -> None:
        """As in the base."""
        self.connection.transport.abort()
        await self.connection.wait_closed()

    async def close(self) -> None:
        """As in the base; the handshake is not waited for where unread frames are in its way."""
        with anyio.move_on_after(0.2):
            await self.connection.close()
        await self.reset()

    async def _send(self, data: bytes, *, drip: bool) -> None:
        try:
            if not drip:
                await self.connection.send(data, text=True)
                return
            self.connection.protocol.send_text(data)
            for piece in self.connection.protocol.data_to_send():
                for at in range(len(piece)):
                    self.connection.transport.write(piece[at : at + 1])
                    await anyio.lowlevel.checkpoint()
        except ConnectionClosed:
            raise Closed from None

    async def _receive(self) -> bytes:
        try:
            return await self.connection.recv(decode=False)
        except ConnectionClosed:
            raise Closed from None


class HttpResponse(msgspec.Struct, frozen=True):
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes


class HttpPeer(Peer):
    """Every message is a POST on a connection of its own; answers are taken in the order in which they come."""

    abilities = Abilities(half_close=False, cancel=False, one_connection=False, exit=False)

    def __init__(self, port: int, tasks: anyio.abc.TaskGroup) -> None:
        self.statuses: list[int] = []
        """The status of every response that was complete."""
        self._port = port
        self._tasks = tasks
        self._open: dict[socket.socket, anyio.CancelScope] = {}
        self._arrived, self._answers = anyio.create_memory_object_stream[bytes](10_000)

    @property
    def pending(self) -> int:
        """Requests without a response."""
        return len(self._open)

    async def reset(self) -> None:
        """Close all requests."""
        await self.close()

    async def close(self) -> None:
        """As in the base."""
        for scope in self._open.values():
            scope.cancel()
        self._arrived.close()
        self._answers.close()

    async def _send(self, data: bytes, *, drip: bool) -> None:
        connected = await dial_tcp(self._port)
        head = (
            f"POST /rpc HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        )
        scope = anyio.CancelScope()
        self._open[connected] = scope
        # Refused before all was sent: the response says how.
        with suppress(OSError):
            await _write_pieces(connected, head.encode() + data, drip=drip)
        self._tasks.start_soon(self._collect, connected, scope)

    async def _collect(self, connected: socket.socket, scope: anyio.CancelScope) -> None:
        with connected, scope:
            response = await _read_response(connected)
            self.statuses.append(response.status)
            if response.status == 200:
                await self._arrived.send(response.body)
        del self._open[connected]

    async def _receive(self) -> bytes:
        try:
            return await self._answers.receive()
        except (anyio.ClosedResourceError, anyio.EndOfStream):
            raise Closed from None


async def dial_tcp(port: int) -> socket.socket:
    """A socket connected to a port of this machine, which does not block and for which the kernel holds little."""
    connected = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    return await _dial(connected, ("127.0.0.1", port))


async def _dial(connecting: socket.socket, address: Any) -> socket.socket:
    connecting.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connecting, address)
    except BaseException:
        connecting.close()
        raise
    return connecting


async def exchange(port: int, data: bytes) -> bytes:
    """Send bytes to a port and take everything until the connection ends."""
    with await dial_tcp(port) as connected:
        peer = SocketPeer(connected)
        with suppress(Closed):
            await peer.write(data)
        return await peer.read_all()


async def _write_pieces(connected: socket.socket, data: bytes, *, drip: bool) -> None:
    loop = asyncio.get_running_loop()
    for at in range(0, len(data), 1 if drip else len(data)):
        await loop.sock_sendall(connected, data[at : at + 1] if drip else data)


async def _read_response(connected: socket.socket) -> HttpResponse:
    received, loop = b"", asyncio.get_running_loop()
    with suppress(ConnectionError):
        while data := await loop.sock_recv(connected, 65_536):
            received += data
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status = int(first.split(" ")[1]) if first else 0
    return HttpResponse(status, headers, body)


# Services that listen.


class SteeredSettings(Settings, frozen=True, kw_only=True):
    """Settings with the limits that no setting reaches."""

    exit_grace_seconds: float = 1.0
    write_high_water_bytes: int = 8_388_608

    @property
    def limits(self) -> Limits:
        """The limits of one connection under these settings."""
        return replace(
            super().limits,
            exit_grace_seconds=self.exit_grace_seconds,
            write_high_water_bytes=self.write_high_water_bytes,
        )


class World:
    """A running service over a steered store, and the way to it over one transport."""

    def __init__(self, kind: Kind, service: Service, store: SteeredStore, spills: Path) -> None:
        self.kind = kind
        self.service = service
        self.store = store
        self.spills = spills
        self.address: Any = None
        self._tasks: anyio.abc.TaskGroup
        self._peers: list[Peer] = []

    @property
    def abilities(self) -> Abilities:
        """What peers of this transport can do."""
        if self.kind == "http":
            return HttpPeer.abilities
        return WebSocketPeer.abilities if self.kind == "websocket" else StreamPeer.abilities

    async def connect(self) -> Peer:
        """A new peer, closed in the end."""
        peer = await self._connected()
        self._peers.append(peer)
        return peer

    async def connect_stream(self) -> StreamPeer:
        """A new peer over a byte stream."""
        peer = await self.connect()
        assert isinstance(peer, StreamPeer)
        return peer

    async def connect_websocket(self) -> WebSocketPeer:
        """A new peer over a WebSocket."""
        peer = await self.connect()
        assert isinstance(peer, WebSocketPeer)
        return peer

    async def connect_http(self) -> HttpPeer:
        """A new peer over HTTP."""
        peer = await self.connect()
        assert isinstance(peer, HttpPeer)
        return peer

    def gauge(self, name: str) -> int:
        """A number of the service's metrics, without its labels."""
        for line in self.service.prometheus().splitlines():
            if line.startswith(f"sessionref_{name} "):
                return int(line.rpartition(" ")[2])
        raise KeyError(name)

    async def idle(self) -> None:
        """Wait until no request is in flight and no thread is busy."""
        await eventually(lambda: self.gauge("requests_in_flight") == 0 == self.gauge("busy_threads"))

    async def close_peers(self) -> None:
        """Close every peer."""
        for peer in self._peers:
            await peer.close()

    def forget(self, peer: Peer) -> None:
        """Let go of a peer that was closed."""
        self._peers.remove(peer)

    async def _connected(self) -> Peer:
        if self.kind == "stdio":
            return self._spawned()
        if self.kind == "unix":
            return SocketPeer(await _dial(socket.socket(socket.AF_UNIX), os.fspath(self.address)))
        if self.kind == "tcp":
            return SocketPeer(await dial_tcp(self.address))
        if self.kind == "http":
            return HttpPeer(self.address, self._tasks)
        offered = [Subprotocol(SUBPROTOCOL), Subprotocol(TOKEN_SUBPROTOCOL_PREFIX + TOKEN)]
        connected = await dial_tcp(self.address)
        uri = f"ws://127.0.0.1:{self.address}/rpc"
        return WebSocketPeer(
            await connect(
                uri, sock=connected, proxy=None, compression=None, subprotocols=offered, max_size=None, max_queue=1
            )
        )

    def _spawned(self) -> PipePeer:
        to_server, from_client = os.pipe()
        to_client, from_server = os.pipe()
        os.set_blocking(from_server, False)
        limits = self.service.settings.limits

        async def run() -> None:
            try:
                streams = StandardStreams(to_server, from_server, chunk_bytes=limits.read_chunk_bytes)
                await self.service.run(self.service.connection(StreamTransport(streams, limits, lenient=True)))
            finally:
                # As at the end of a process.
                os.close(to_server)
                os.close(from_server)

        self._tasks.start_soon(run)
        return PipePeer(to_client, from_client)

    async def run(self, tasks: anyio.abc.TaskGroup, resources: ExitStack, **options: Any) -> None:
        """Begin to listen."""
        self._tasks = tasks
        if self.kind == "stdio":
            return
        if self.kind == "unix":
            self.address = self.spills.parent / "socket"
            listener = await anyio.to_thread.run_sync(resources.enter_context, unix_listener(self.address))
        else:
            listener = resources.enter_context(tcp_listener("127.0.0.1:0", "--tcp"))
            self.address = listener.getsockname()[1]
        # Accepted sockets inherit it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        if self.kind in ("unix", "tcp"):
            tasks.start_soon(_accept, listener, self.service)
        else:
            access = WebAccess(TOKEN, options.get("origins", ()))
            application = web_application(self.service, access, dsh_compat=options.get("dsh_compat", False))
            tasks.start_soon(serve_web, application, listener, self.service)


@asynccontextmanager
async def serving(
    kind: Kind,
    folder: Path,
    *,
    store: SteeredStore | None = None,
    max_connections: int = MAX_CONNECTIONS,
    origins: Sequence[str] = (),
    dsh_compat: bool = False,
    **settings: Any,
) -> AsyncGenerator[World]:
    """A service over one transport. In the end everything is released, and nothing may be left in flight."""
    steered = store or SteeredStore()
    spills = folder / "spills"
    chosen: dict[str, Any] = {"drain_seconds": PATIENCE, "spill_directory": spills, **settings}
    service = Service([steered], SteeredSettings(**chosen), max_connections=max_connections)
    world = World(kind, service, steered, spills)
    resources = ExitStack()
    try:
        async with anyio.create_task_group() as tasks:
            await world.run(tasks, resources, origins=origins, dsh_compat=dsh_compat)
            try:
                yield world
            finally:
                steered.release()
                with anyio.fail_after(PATIENCE, shield=True):
                    await world.close_peers()
                    service.stop()
                    await service.until_drained()
        await world.idle()
        assert world.gauge("open_connections") == 0
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(resources.close)


def listening(announced: str) -> list[dict[str, Any]]:
    """The addresses of the line that a server announces itself with."""
    addresses: list[dict[str, Any]] = json.loads(announced)["listening"]
    return addresses


def spilled(folder: Path) -> list[Path]:
    """The spills below a folder."""
    return sorted(folder.rglob("*.txt"))


def _main(options: dict[str, Any]) -> int:
    def tell() -> None:
        sys.stderr.write("hanging\n")
        sys.stderr.flush()

    given = ServeOptions(
        stdio=options.get("stdio", False),
        unix=Path(options["unix"]) if "unix" in options else None,
        tcp=options.get("tcp"),
        http=options.get("http"),
        exit_with_stdin=options.get("exit_with_stdin", False),
        token_file=Path(options["token_file"]) if "token_file" in options else None,
        origins=options.get("origins", ()),
        dsh_compat=options.get("dsh_compat", False),
        log_level=options.get("log_level", "warning"),
    )
    spills = Path(options["spills"]) if "spills" in options else None
    settings = Settings(drain_seconds=options.get("drain", 3.0), spill_directory=spills)
    return serve([SteeredStore(tell)], settings, given)


if __name__ == "__main__":
    raise SystemExit(_main(json.loads(sys.argv[1])))
