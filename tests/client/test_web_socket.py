"""WebSockets: what is offered and sent, and servers that do not behave once connected."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from sessionref.client import (
    Client,
    ClientLimits,
    CloseReason,
    ConnectionClosedError,
    connect_websocket,
)

Listening = Callable[..., AbstractAsyncContextManager[int]]

QUICK = ClientLimits(cancel_seconds=0.05, flush_seconds=0.05, close_seconds=0.05, goodbye_seconds=0.05)
"""For servers that say nothing, so that nobody waits for them."""

INFORMATION = {
    "protocolVersion": "1",
    "serverInfo": {"name": "fake", "version": "1"},
    "capabilities": {},
    "limits": {},
    "errorCodes": {},
}


class Peer:
    """The server's end of a WebSocket."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self.protocol = ServerProtocol(max_size=None)
        self.request: Request
        self._frames: list[Frame] = []

    async def accept(self) -> None:
        while not (events := self.protocol.events_received()):
            self.protocol.receive_data(await self.stream.receive())
        assert isinstance(events[0], Request)
        self.request = events[0]
        self.protocol.send_response(self.protocol.accept(self.request))
        await self.flush()

    async def flush(self) -> None:
        for data in filter(None, self.protocol.data_to_send()):
            await self.stream.send(data)

    async def next_frame(self) -> Frame:
        while not self._frames:
            self.protocol.receive_data(await self.stream.receive())
            self._frames += [event for event in self.protocol.events_received() if isinstance(event, Frame)]
        return self._frames.pop(0)

    async def receive(self) -> Any:
        frame = await self.next_frame()
        assert frame.opcode is Opcode.TEXT
        return json.loads(bytes(frame.data))

    async def send(self, message: dict[str, Any]) -> None:
        self.protocol.send_text(json.dumps({"jsonrpc": "2.0", **message}).encode())
        await self.flush()

    async def introduce(self) -> None:
        await self.accept()
        await self.send({"id": (await self.receive())["id"], "result": INFORMATION})


@asynccontextmanager
async def connected(
    listening: Listening, serve: Callable[[Peer], Coroutine[Any, Any, None]], limits: ClientLimits | None = None
) -> AsyncGenerator[Client, None]:
    """A client of a server that goes on after the introduction with a function."""

    async def serve_stream(stream: SocketStream) -> None:
        peer = Peer(stream)
        await peer.introduce()
        await serve(peer)

    with anyio.fail_after(10):
        async with (
            listening(serve_stream) as port,
            connect_websocket(f"ws://127.0.0.1:{port}/rpc", limits=limits or ClientLimits()) as client,
        ):
            yield client


async def reasons_of_two_calls(client: Client) -> list[CloseReason]:
    reasons: list[CloseReason] = []
    for _ in range(2):
        with pytest.raises(ConnectionClosedError) as caught:
            await client.request("ask")
        reasons.append(caught.value.reason)
    return reasons


async def test_subprotocols_and_no_compression_are_offered_and_no_log_has_the_token(
    listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    requests: list[Request] = []

    async def serve(stream: SocketStream) -> None:
        peer = Peer(stream)
        await peer.introduce()
        requests.append(peer.request)

    with anyio.fail_after(5):
        async with listening(serve) as port, connect_websocket(f"http://127.0.0.1:{port}/#token=se~cret"):
            pass
    assert requests[0].path == "/rpc"
    assert requests[0].headers["Host"] == f"127.0.0.1:{port}"
    assert requests[0].headers["Sec-WebSocket-Protocol"] == "sessionref, sessionref.token.se~cret"
    assert "Sec-WebSocket-Extensions" not in requests[0].headers
    assert "Origin" not in requests[0].headers
    logged = [record.getMessage() for record in caplog.records if not record.name.startswith("websockets.server")]
    assert not [message for message in logged if "se~cret" in message or "initialize" in message]


async def test_what_was_sent_arrives_before_the_exit_and_the_closing_handshake(listening: Listening) -> None:
    heard: list[Any] = []

    async def serve(peer: Peer) -> None:
        heard.append((await peer.receive())["method"])
        heard.append((await peer.receive())["method"])
        frame = await peer.next_frame()
        heard.append((frame.opcode, bytes(frame.data)))
        await peer.flush()

    async with connected(listening, serve) as client:
        await client.assembled("agent")
    assert heard == ["sessionReferenceResolver/assembled", "exit", (Opcode.CLOSE, b"\x03\xe8")]


async def test_fragments_and_pings_among_them_make_one_answer(listening: Listening) -> None:
    async def serve(peer: Peer) -> None:
        identity = (await peer.receive())["id"]
        answer = json.dumps({"jsonrpc": "2.0", "id": identity, "result": "é" * 10}, ensure_ascii=False).encode()
        for place, byte in enumerate(answer):
            data = bytes([byte])
            if place == 0:
                peer.protocol.send_text(data, fin=False)
            else:
                peer.protocol.send_ping(b"still there")
                peer.protocol.send_continuation(data, fin=False)
        peer.protocol.send_continuation(b"", fin=True)
        await peer.flush()
        for _ in range(len(answer) - 1):
            frame = await peer.next_frame()
            assert (frame.opcode, frame.data) == (Opcode.PONG, b"still there")
        await peer.send({"id": (await peer.receive())["id"], "result": 2})

    async with connected(listening, serve) as client:
        assert await client.request("ask") == "é" * 10
        assert await client.request("ask") == 2


async def test_a_binary_frame_ends_the_connection_and_the_server_is_told_why(listening: Listening) -> None:
    codes: list[bytes] = []

    async def serve(peer: Peer) -> None:
        identity = (await peer.receive())["id"]
        peer.protocol.send_binary(json.dumps({"jsonrpc": "2.0", "id": identity, "result": 1}).encode())
        await peer.flush()
        codes.append(bytes((await peer.next_frame()).data))

    async with connected(listening, serve) as client:
        assert await reasons_of_two_calls(client) == [CloseReason.MALFORMED] * 2
    assert codes == [(1003).to_bytes(2)]


@pytest.mark.parametrize("is_fragmented", [False, True])
async def test_an_answer_that_is_too_long_ends_the_connection(listening: Listening, is_fragmented: bool) -> None:
    codes: list[bytes] = []

    async def serve(peer: Peer) -> None:
        await peer.receive()
        peer.protocol.send_text(b" " * (3000 if is_fragmented else 6000), fin=not is_fragmented)
        if is_fragmented:
            peer.protocol.send_continuation(b" " * 3000, fin=True)
        await peer.flush()
        codes.append(bytes((await peer.next_frame()).data[:2]))

    async with connected(listening, serve, ClientLimits(max_answer_bytes=5000)) as client:
        assert await reasons_of_two_calls(client) == [CloseReason.TOO_LONG] * 2
    assert codes == [(1009).to_bytes(2)]


@pytest.mark.parametrize("data", [b"\x83\x00", b"\x81\x81abcd\x00", b"\x80\x00", b"\xc1\x00", b"\x81\x02\xff\xff"])
async def test_a_frame_that_is_none_ends_the_connection(listening: Listening, data: bytes) -> None:
    async def serve(peer: Peer) -> None:
        await peer.receive()
        await peer.stream.send(data)
        await peer.next_frame()

    async with connected(listening, serve) as client:
        assert await reasons_of_two_calls(client) == [CloseReason.MALFORMED] * 2


@pytest.mark.parametrize("code", [None, 1000, 1001, 1009, 1011, 1013])
async def test_a_server_that_closes_in_a_call_fails_it_and_all_later_ones(
    listening: Listening, code: int | None
) -> None:
    async def serve(peer: Peer) -> None:
        await peer.receive()
        if code is not None:
            peer.protocol.send_close(code, "bye")
            await peer.flush()
            # The byte stream stays open until the client has answered, as the protocol wants it.
            assert (await peer.next_frame()).opcode is Opcode.CLOSE

    async with connected(listening, serve) as client:
        assert await reasons_of_two_calls(client) == [CloseReason.ENDED] * 2


async def test_a_server_that_stays_silent_is_left_in_bounded_time(listening: Listening) -> None:
    left = anyio.Event()

    async def serve(peer: Peer) -> None:
        await left.wait()

    with anyio.CancelScope() as scope:
        async with connected(listening, serve, QUICK):
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    async with connected(listening, serve, QUICK) as client:
        with anyio.move_on_after(0.05) as cancelled:
            await client.request("big", ["x" * 30_000_000])
        assert cancelled.cancelled_caught
    left.set()


async def test_answers_are_read_while_the_server_pings_and_does_not_read(listening: Listening) -> None:
    async def serve(peer: Peer) -> None:
        identity = (await peer.receive())["id"]
        # The big message fills the buffers between the two: the client's writer waits.
        await peer.stream.receive(1)
        for _ in range(100):
            peer.protocol.send_ping(b"there?")
        await peer.send({"id": identity, "result": "answered"})
        await released.wait()

    released = anyio.Event()
    results: list[Any] = []

    async def ask(client: Client) -> None:
        results.append(await client.request("ask"))
        released.set()
        everything.cancel_scope.cancel()

    async with connected(listening, serve, QUICK) as client, anyio.create_task_group() as everything:
        everything.start_soon(ask, client)
        await anyio.wait_all_tasks_blocked()
        everything.start_soon(client.request, "big", ["x" * 30_000_000])
    assert results == ["answered"]


async def test_a_flood_of_pings_ends_the_connection(listening: Listening) -> None:
    async def serve(peer: Peer) -> None:
        await peer.receive()
        with suppress(anyio.BrokenResourceError):
            while True:
                await peer.stream.send((b"\x89\x7d" + b"x" * 125) * 1000)

    async with connected(listening, serve, QUICK) as client:
        assert await reasons_of_two_calls(client) == [CloseReason.MALFORMED] * 2
