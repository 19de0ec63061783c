"""The opening handshake of a WebSocket: refusals, what is no handshake, and what it needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import anyio
import pytest
from anyio.abc import SocketStream

from sessionref.client import (
    ClientLimits,
    CloseReason,
    ConnectionClosedError,
    ConnectionRefusedByServerError,
    connect_websocket,
)

Listening = Callable[..., AbstractAsyncContextManager[int]]

QUICK = ClientLimits(connect_seconds=0.2, close_seconds=0.05)
"""For servers that say nothing, so that nobody waits for them."""


async def failure_of_handshake(
    listening: Listening, answer: bytes, limits: ClientLimits | None = None
) -> ConnectionClosedError:
    """How connecting fails for the bytes that answer it; the connection stays open for a server's client to end."""

    async def serve(stream: SocketStream) -> None:
        await stream.receive()
        await stream.send(answer)
        if not answer:
            await stream.send_eof()
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()

    with anyio.fail_after(5):
        async with listening(serve) as port:
            with pytest.raises(ConnectionClosedError) as caught:
                async with connect_websocket(f"ws://127.0.0.1:{port}/", limits=limits or ClientLimits()):
                    pass
    return caught.value


@pytest.mark.parametrize("status", [302, 401, 403, 404, 503])
async def test_a_refused_handshake_is_known_by_its_status(listening: Listening, status: int) -> None:
    answer = f"HTTP/1.1 {status} No\r\nContent-Length: 5\r\n\r\nwords".encode()
    failure = await failure_of_handshake(listening, answer)
    assert isinstance(failure, ConnectionRefusedByServerError)
    assert (failure.status, failure.reason) == (status, CloseReason.REFUSED)
    assert str(failure) == f"the server refused the connection (HTTP status {status})"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", CloseReason.ENDED),
        (b'{"jsonrpc":"2.0","id":0,"result":{}}\n', CloseReason.MALFORMED),
        (b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\n\r\n", CloseReason.MALFORMED),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000, CloseReason.MALFORMED),
        (b"x" * 100_000, CloseReason.MALFORMED),
    ],
)
async def test_what_is_no_handshake_is_no_server(listening: Listening, answer: bytes, reason: CloseReason) -> None:
    failure = await failure_of_handshake(listening, answer)
    assert (type(failure), failure.reason) == (ConnectionClosedError, reason)


async def test_a_handshake_that_never_ends_is_given_up(listening: Listening) -> None:
    failure = await failure_of_handshake(listening, b"HTTP/1.1 101 Switching", QUICK)
    assert failure.reason is CloseReason.TIMED_OUT


async def test_a_port_that_nobody_listens_on_is_unreachable(listening: Listening) -> None:
    async def serve(stream: SocketStream) -> None:
        pass

    async with listening(serve) as port:
        pass
    with anyio.fail_after(5), pytest.raises(ConnectionClosedError) as caught:
        async with connect_websocket(f"http://127.0.0.1:{port}/#token=t"):
            pass
    assert caught.value.reason is CloseReason.UNREACHABLE


async def test_a_handshake_can_be_cancelled(listening: Listening) -> None:
    async def serve(stream: SocketStream) -> None:
        await stream.receive()
        scope.cancel()
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()

    with anyio.fail_after(5):
        async with listening(serve) as port:
            with anyio.CancelScope() as scope:
                async with connect_websocket(f"ws://127.0.0.1:{port}/"):
                    pass
            assert scope.cancelled_caught


def test_without_the_package_connecting_says_what_to_install() -> None:
    program = """
import sys
import anyio, sessionref.client as c
assert not [name for name in sys.modules if name.startswith("websockets")]
sys.modules["websockets"] = None

async def main():
    async with c.connect_websocket("ws://127.0.0.1:1/"):
        pass

try:
    anyio.run(main)
except c.MissingExtraError as error:
    print(error.name, error.extra, error)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "websockets http the package websockets is missing: install sessionref[http]\n"
