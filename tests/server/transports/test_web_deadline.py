"""Connections over HTTP that hold a place and ask nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from sessionref.server.transports import web_deadline
from transport_doubles import PATIENCE, TOKEN, serving

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_deadline, "HEAD_SECONDS", 0.05)


@asynccontextmanager
async def connected(folder: Path) -> AsyncGenerator[anyio.abc.ByteStream]:
    async with serving("http", folder) as world, await anyio.connect_tcp("127.0.0.1", world.address) as stream:
        yield stream


async def until_closed(stream: anyio.abc.ByteStream) -> bytes:
    received = b""
    with anyio.fail_after(PATIENCE):
        while True:
            try:
                received += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return received


@pytest.mark.parametrize("said", [b"", HEAD[:7], HEAD])
async def test_a_connection_whose_request_has_no_end_of_its_head_is_closed(tmp_path: Path, said: bytes) -> None:
    async with connected(tmp_path) as stream:
        if said:
            await stream.send(said)

        assert await until_closed(stream) == b""


async def test_a_second_request_has_no_more_time_than_the_first(tmp_path: Path) -> None:
    async with connected(tmp_path) as stream:
        await stream.send(HEAD + b"\r\n" + HEAD)
        received = await until_closed(stream)

    assert received.startswith(b"HTTP/1.1 200 ")
    assert received.count(b"HTTP/1.1") == 1


async def test_a_web_socket_may_be_silent_for_as_long_as_it_likes(tmp_path: Path) -> None:
    async with serving("http", tmp_path) as world:
        url = f"ws://127.0.0.1:{world.address}/rpc"
        protocols = [Subprotocol("sessionref"), Subprotocol(f"sessionref.token.{TOKEN}")]
        async with connect(url, subprotocols=protocols, proxy=None) as socket:
            with pytest.raises(TimeoutError), anyio.fail_after(0.3):
                await socket.recv()
            await socket.send('{"jsonrpc":"2.0","id":1,"method":"initialize"}')
            with anyio.fail_after(PATIENCE):
                assert '"result"' in str(await socket.recv())
