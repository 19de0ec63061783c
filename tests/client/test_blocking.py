"""The client for scripts: the same calls and errors, from any thread, and an interrupt that does not hang."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.stapled import StapledObjectStream

from sessionref import client as asynchronous
from sessionref.client import (
    Client,
    ClientLimits,
    CloseReason,
    ConnectionClosedError,
    ConnectionRefusedByServerError,
    blocking,
)
from sessionref.client.blocking import BlockingClient
from sessionref.protocol.envelope import encode_result
from sessionref.protocol.errors import ErrorCode, SessionReferenceError
from sessionref.protocol.jsontext import decode_json

SPAWN = [sys.executable, "-m", "sessionref.server", "serve", "--stdio", "--store", "sample"]


class Scripted:
    """A server in the client's own event loop that answers `echo` and leaves everything else waiting."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.waits = threading.Event()

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Client, None]:
        to_server, from_client = anyio.create_memory_object_stream[bytes](0)
        to_client, from_server = anyio.create_memory_object_stream[bytes](0)

        async def serve() -> None:
            with from_client, to_client:
                async for data in from_client:
                    message = decode_json(data)
                    self.seen.append(message["method"])
                    if message["method"] == "echo":
                        await to_client.send(encode_result(message["id"], message["params"]))
                    else:
                        self.waits.set()

        limits = ClientLimits(cancel_seconds=0.5, flush_seconds=0.5)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            async with Client(StapledObjectStream(to_server, from_server), limits=limits) as client:
                yield client


@pytest.fixture
def server() -> Scripted:
    """A server that answers only echoes."""
    return Scripted()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Leaving a client ends its thread."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        # asyncio's own that waits for a process has told its end before it ends itself.
        assert thread.name.startswith("asyncio-waitpid")
        thread.join(10)
        assert not thread.is_alive()


@contextmanager
def interrupted_after(event: threading.Event) -> Generator[None]:
    """Interrupt the main thread as Ctrl-C does, once an event has happened."""

    def interrupt() -> None:
        event.wait(10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        event.set()
        thread.join()


WAYS: dict[str, Callable[[dict[str, Any]], BlockingClient]] = {
    "spawn": lambda addresses: blocking.spawn(SPAWN),
    "unix": lambda addresses: blocking.connect_unix(addresses["unix"]["path"]),
    "tcp": lambda addresses: blocking.connect_tcp(addresses["tcp"]["host"], addresses["tcp"]["port"]),
    "http": lambda addresses: blocking.connect_websocket(addresses["http"]["url"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_method_works_over_every_way(addresses: dict[str, Any], way: str) -> None:
    with WAYS[way](addresses) as client:
        candidate = client.candidates("agent", limit=1)[0]
        prepared = client.prepare("agent", f"see {candidate.mention}", preview=True)
        assert prepared.content == f"see @{candidate.display_title}"
        message = {"id": "1", "role": "user", "content": "hi", "source": {"kind": "user"}}
        assert client.prepare_messages("agent", [message]).messages == [message]
        client.assembled("agent", context_window=100_000)
        client.notify("unknown")
        assert client.initialize().server_info.name == "sessionref"
        assert "openrpc" in client.discover()
        assert client.request("initialize")["serverInfo"]["name"] == "sessionref"
        with pytest.raises(SessionReferenceError) as caught:
            client.prepare("agent", "hi", references=[{"sessionId": "nobody"}])
        assert caught.value.code is ErrorCode.READ_FAILED


def test_errors_of_connecting_come_out_as_they_are(addresses: dict[str, Any], tmp_path: Path) -> None:
    failures: list[ConnectionClosedError] = []
    ways: list[tuple[BlockingClient, CloseReason]] = [
        (blocking.spawn([str(tmp_path / "nothing")]), CloseReason.NOT_STARTED),
        (blocking.connect_unix(tmp_path / "nothing"), CloseReason.UNREACHABLE),
        (blocking.connect_websocket(addresses["http"]["url"], token="wrong"), CloseReason.REFUSED),
    ]
    for client, reason in ways:
        with pytest.raises(ConnectionClosedError) as caught, client:
            pass
        assert caught.value.reason is reason
        failures.append(caught.value)
    assert isinstance(failures[-1], ConnectionRefusedByServerError)
    with pytest.raises(ValueError, match="port"), blocking.connect_tcp("127.0.0.1", 0):
        pass


def test_a_refused_configuration_comes_out_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(SessionReferenceError) as caught, blocking.spawn([*SPAWN, "--config", str(tmp_path / "none")]):
        pass
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3), StopIteration()])
def test_what_the_body_raises_comes_out_as_it_is(server: Scripted, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, BlockingClient(server.connect):
        raise error
    assert caught.value is error


def test_outside_the_context_there_is_no_connection_and_entering_again_connects_again(server: Scripted) -> None:
    client = BlockingClient(server.connect)
    for _ in range(2):
        with pytest.raises(ConnectionClosedError) as caught:
            client.request("echo", [1])
        assert caught.value.reason is CloseReason.NOT_OPEN
        with client:
            assert client.request("echo", [1]) == [1]
            with pytest.raises(RuntimeError), client:
                pass
            assert client.request("echo", [2]) == [2]


def test_many_threads_may_call_at_once(server: Scripted) -> None:
    with BlockingClient(server.connect) as client, ThreadPoolExecutor(16) as threads:

        def call(number: int) -> Any:
            return client.request("echo", [number])

        assert list(threads.map(call, range(500), timeout=30)) == [[number] for number in range(500)]


def test_leaving_ends_the_calls_of_other_threads(server: Scripted) -> None:
    def call(client: BlockingClient) -> CloseReason:
        with pytest.raises(ConnectionClosedError) as caught:
            client.request("wait")
        return caught.value.reason

    with ThreadPoolExecutor(4) as threads:
        with BlockingClient(server.connect) as client:
            calls = [threads.submit(call, client) for _ in range(4)]
            assert server.waits.wait(10)
        assert [call.result(10) for call in calls] == [CloseReason.NOT_OPEN] * 4


def test_an_interrupt_cancels_the_call_and_the_client_goes_on(server: Scripted) -> None:
    with BlockingClient(server.connect) as client:
        with pytest.raises(KeyboardInterrupt), interrupted_after(server.waits):
            client.request("wait")
        assert client.request("echo", [1]) == [1]
    assert server.seen == ["wait", "$/cancelRequest", "echo"]


def test_an_interrupt_while_connecting_ends_it() -> None:
    connecting = threading.Event()
    ended = threading.Event()

    @asynccontextmanager
    async def connect() -> AsyncGenerator[Client, None]:
        connecting.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError
        yield

    client = BlockingClient(connect)
    with pytest.raises(KeyboardInterrupt), interrupted_after(connecting), client:
        pass
    assert ended.is_set()
    with pytest.raises(ConnectionClosedError):
        client.discover()


def test_an_interrupt_while_leaving_ends_it(server: Scripted) -> None:
    leaving = threading.Event()

    @asynccontextmanager
    async def connect() -> AsyncGenerator[Client, None]:
        async with server.connect() as client:
            yield client
            leaving.set()
            await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt), interrupted_after(leaving), BlockingClient(connect):
        pass


def test_an_interrupted_script_ends_and_its_server_too() -> None:
    program = f"""
import os, signal
from sessionref.client import blocking
with blocking.spawn({SPAWN!r}) as client:
    print(len(client.candidates("agent")), flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        client.candidates("agent")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")
    assert ended.stdout.strip().isdigit()


@pytest.mark.parametrize("name", ["spawn", "connect_unix", "connect_tcp", "connect_websocket"])
def test_every_way_has_the_parameters_of_the_asynchronous_one(name: str) -> None:
    theirs = inspect.signature(getattr(asynchronous, name)).parameters
    assert inspect.signature(getattr(blocking, name)).parameters == theirs


def test_every_method_of_the_client_is_there_with_its_description() -> None:
    methods = [name for name in vars(Client) if not name.startswith("_")]
    assert len(methods) == 8
    for name in methods:
        assert getattr(BlockingClient, name).__doc__ == getattr(Client, name).__doc__
