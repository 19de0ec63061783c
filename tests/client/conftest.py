"""Both ends of a connection in memory, and servers of one file."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any, Protocol

import anyio
import pytest
from anyio.abc import ObjectStream, SocketListener, SocketStream
from anyio.streams.stapled import StapledObjectStream

HELPERS = """
import json, os, signal, sys

def receive():
    return json.loads(sys.stdin.buffer.readline())

def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

def introduce():
    names = {"name": "fake", "version": "1"}
    send({"id": receive()["id"], "result": {
        "protocolVersion": "1", "serverInfo": names, "capabilities": {}, "limits": {}, "errorCodes": {}}})
"""


@pytest.fixture
def ends() -> Iterator[tuple[ObjectStream[bytes], ObjectStream[bytes]]]:
    """The client's end and the server's; messages wait for a reader, as in a pipe that is full."""
    to_server, from_client = anyio.create_memory_object_stream[bytes](0)
    to_client, from_server = anyio.create_memory_object_stream[bytes](0)
    with to_server, from_client, to_client, from_server:
        yield StapledObjectStream(to_server, from_server), StapledObjectStream(to_client, from_client)


@pytest.fixture
def server_command(tmp_path: Path) -> Callable[[str], list[str]]:
    """Write a server, whose first lines are HELPERS, and return the command that starts it."""

    def command(body: str) -> list[str]:
        script = tmp_path / "server.py"
        script.write_text(HELPERS + dedent(body), encoding="utf-8")
        return [sys.executable, str(script)]

    return command


class Listening(Protocol):
    """Serves connections to a socket of this process with a function."""

    def __call__(
        self, serve: Callable[[SocketStream], Coroutine[Any, Any, None]], path: Path | None = None
    ) -> AbstractAsyncContextManager[int]:
        """Listen on a Unix socket, or else on a TCP port, which it yields."""
        ...


@pytest.fixture
def listening() -> Listening:
    """See Listening."""

    @asynccontextmanager
    async def listen(
        serve: Callable[[SocketStream], Coroutine[Any, Any, None]], path: Path | None = None
    ) -> AsyncGenerator[int, None]:
        async def serve_one(stream: SocketStream) -> None:
            async with stream:
                await serve(stream)

        if path is None:
            listener = socket.create_server(("127.0.0.1", 0))
        else:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            listener.listen()
        listener.setblocking(False)
        port = 0 if path is not None else listener.getsockname()[1]
        async with await SocketListener.from_socket(listener) as accepting, anyio.create_task_group() as tasks:
            tasks.start_soon(accepting.serve, serve_one)
            yield port
            tasks.cancel_scope.cancel()

    return listen


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The addresses of a real server with the sample store, by transport."""
    path = tmp_path_factory.mktemp("server") / "s"
    listeners = ["--unix", str(path), "--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    command = [sys.executable, "-m", "sessionref.server", "serve", "--store", "sample", *listeners]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield {address["transport"]: address for address in json.loads(server.stdout.readline())["listening"]}
        finally:
            server.kill()
