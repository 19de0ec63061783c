"""Unix sockets and TCP: servers that cannot be reached, that are none, and that do not behave."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from sessionref.client import (
    Client,
    ClientLimits,
    CloseReason,
    ConnectionClosedError,
    connect_tcp,
    connect_unix,
)
from sessionref.protocol.errors import ProtocolCode, ProtocolError

Listening = Callable[..., AbstractAsyncContextManager[int]]

QUICK = ClientLimits(cancel_seconds=0.05, flush_seconds=0.05, close_seconds=0.05, goodbye_seconds=0.05)
"""For servers that say nothing, so that nobody waits for them."""
IMPATIENT = ClientLimits(connect_seconds=0.2, close_seconds=0.05)
"""For servers that never answer at all."""

INFORMATION = {
    "protocolVersion": "1",
    "serverInfo": {"name": "fake", "version": "1"},
    "capabilities": {},
    "limits": {},
    "errorCodes": {},
}


class Peer:
    """The server's end of lines."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self._buffered = BufferedByteReceiveStream(stream)

    async def receive(self) -> Any:
        return json.loads(await self._buffered.receive_until(b"\n", 10_000_000))

    async def send(self, message: dict[str, Any]) -> None:
        await self.stream.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def introduce(self) -> None:
        await self.send({"id": (await self.receive())["id"], "result": INFORMATION})


async def failure_of(connection: AbstractAsyncContextManager[Client]) -> ConnectionClosedError:
    """Why a connection could not be made."""
    with anyio.fail_after(5), pytest.raises(ConnectionClosedError) as caught:
        async with connection:
            pass
    return caught.value


async def test_a_socket_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    failure = await failure_of(connect_unix(tmp_path / "nothing"))
    assert failure.reason is CloseReason.UNREACHABLE
    assert str(tmp_path) not in str(failure)
    assert (await failure_of(connect_unix(tmp_path / ("long" * 50)))).reason is CloseReason.UNREACHABLE


async def test_a_stale_socket_is_unreachable(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
    assert (await failure_of(connect_unix(tmp_path / "s"))).reason is CloseReason.UNREACHABLE


async def test_a_port_that_nobody_listens_on_is_unreachable() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        assert (await failure_of(connect_tcp("127.0.0.1", port))).reason is CloseReason.UNREACHABLE


async def test_a_host_name_that_cannot_be_one_is_unreachable() -> None:
    assert (await failure_of(connect_tcp("x" * 70, 1))).reason is CloseReason.UNREACHABLE


@pytest.mark.parametrize("port", [-1, 0, 65_536])
async def test_a_port_that_cannot_be_one_is_the_callers_fault(port: int) -> None:
    with pytest.raises(ValueError, match="port"):
        async with connect_tcp("127.0.0.1", port):
            pass


async def test_a_unix_socket_whose_queue_is_full_is_given_up(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(path)
        listener.listen(0)
        first.setblocking(False)
        first.connect(path)
        assert (await failure_of(connect_unix(path, limits=IMPATIENT))).reason is CloseReason.TIMED_OUT


async def test_a_server_that_never_accepts_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert (await failure_of(connect_tcp("127.0.0.1", port, limits=IMPATIENT))).reason is CloseReason.TIMED_OUT


async def test_connecting_can_be_cancelled(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        for _ in range(2):
            # The first waits for an answer, as does the second where the queue takes one more than it says.
            with anyio.fail_after(5), anyio.move_on_after(0.05) as scope:
                async with connect_unix(path, limits=ClientLimits(close_seconds=0.05)):
                    pass
            assert scope.cancelled_caught


async def test_a_server_of_another_kind_is_no_server(listening: Listening) -> None:
    async def serve(stream: SocketStream) -> None:
        await stream.receive()
        await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with listening(serve) as port:
        assert (await failure_of(connect_tcp("127.0.0.1", port))).reason is CloseReason.MALFORMED


async def test_a_server_that_hangs_up_at_once_has_ended_the_connection(listening: Listening) -> None:
    async def serve(stream: SocketStream) -> None:
        pass

    async with listening(serve) as port:
        assert (await failure_of(connect_tcp("127.0.0.1", port))).reason is CloseReason.ENDED


async def test_a_server_that_refuses_raises_what_it_says(listening: Listening) -> None:
    async def serve(stream: SocketStream) -> None:
        peer = Peer(stream)
        identity = (await peer.receive())["id"]
        await peer.send({"id": identity, "error": {"code": -32601, "message": "no"}})

    async with listening(serve) as port:
        with anyio.fail_after(5), pytest.raises(ProtocolError) as caught:
            async with connect_tcp("127.0.0.1", port, limits=QUICK):
                pass
    assert caught.value.code is ProtocolCode.METHOD_NOT_FOUND


async def test_what_was_sent_arrives_before_the_exit_and_the_end(listening: Listening) -> None:
    heard: list[str] = []

    async def serve(stream: SocketStream) -> None:
        peer = Peer(stream)
        await peer.introduce()
        for _ in range(3):
            heard.append((await peer.receive())["method"])
            # Unread bytes must not make a reset of the client's end.
            await peer.send({"method": "chatter", "params": ["x" * 1000]})
        with pytest.raises(anyio.IncompleteRead):
            await peer.receive()
        heard.append("end")

    with anyio.fail_after(5):
        async with listening(serve) as port, connect_tcp("127.0.0.1", port) as client:
            await client.assembled("one")
            await client.assembled("two")
        assert heard == ["sessionReferenceResolver/assembled"] * 2 + ["exit", "end"]


async def test_a_server_that_closes_in_a_call_fails_it_and_all_later_ones(listening: Listening) -> None:
    async def serve(stream: SocketStream) -> None:
        peer = Peer(stream)
        await peer.introduce()
        await peer.receive()

    with anyio.fail_after(5):
        async with listening(serve) as port, connect_tcp("127.0.0.1", port) as client:
            for _ in range(2):
                with pytest.raises(ConnectionClosedError) as caught:
                    await client.candidates("agent")
                assert caught.value.reason is CloseReason.ENDED


async def test_an_answer_that_is_too_long_ends_the_connection(listening: Listening) -> None:
    async def serve(stream: SocketStream) -> None:
        peer = Peer(stream)
        await peer.introduce()
        await peer.send({"id": (await peer.receive())["id"], "result": "x" * 10_000})

    with anyio.fail_after(5):
        async with (
            listening(serve) as port,
            connect_tcp("127.0.0.1", port, limits=ClientLimits(max_answer_bytes=5000)) as client,
        ):
            for _ in range(2):
                with pytest.raises(ConnectionClosedError) as caught:
                    await client.request("ask")
                assert caught.value.reason is CloseReason.TOO_LONG


async def test_a_server_that_stays_silent_is_left_in_bounded_time(listening: Listening) -> None:
    left = anyio.Event()

    async def serve(stream: SocketStream) -> None:
        await Peer(stream).introduce()
        await left.wait()

    with anyio.fail_after(5):
        async with listening(serve) as port:
            async with connect_tcp("127.0.0.1", port, limits=QUICK):
                pass
            with anyio.CancelScope() as scope:
                async with connect_tcp("127.0.0.1", port, limits=QUICK):
                    scope.cancel()
                    await anyio.sleep_forever()
            assert scope.cancelled_caught
            left.set()


@pytest.mark.parametrize("is_unix", [False, True])
async def test_a_server_that_stops_reading_is_left_in_bounded_time(
    tmp_path: Path, listening: Listening, is_unix: bool
) -> None:
    left = anyio.Event()
    path = tmp_path / "s"

    async def serve(stream: SocketStream) -> None:
        await Peer(stream).introduce()
        await left.wait()

    with anyio.fail_after(10):
        async with (
            listening(serve, path if is_unix else None) as port,
            connect_unix(path, limits=QUICK) if is_unix else connect_tcp("127.0.0.1", port, limits=QUICK) as client,
        ):
            with anyio.move_on_after(0.05) as scope:
                await client.request("big", ["x" * 30_000_000])
            assert scope.cancelled_caught
        left.set()
