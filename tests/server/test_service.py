"""The service as a whole: its common limits in process, and its life as a process with signals and hosts that die."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from websockets.exceptions import InvalidStatus

import transport_doubles
from sessionref.protocol.errors import SessionReferenceError
from sessionref.server.serve import ServeOptions, serve
from sessionref.server.settings import Settings
from sessionref.server.threads import DEFAULT_THREADS
from transport_doubles import (
    PATIENCE,
    TOKEN,
    Kind,
    candidates,
    eventually,
    listening,
    prepare,
    serving,
)

LINE_BYTES = 1_000_000


# In process.


@pytest.mark.parametrize("kind", ["unix", "tcp", "stdio", "websocket"])
async def test_a_connection_over_the_limit_is_closed_and_the_others_stay(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path, max_connections=1) as world:
        peer = await world.connect()
        await peer.nothing_more()
        if kind == "websocket":
            with pytest.raises(InvalidStatus, match="503"):
                await world.connect()
        else:
            refused = await world.connect()
            assert await refused.until_closed() == []
        await eventually(lambda: world.gauge("refused_connections_total") == 1)
        await peer.nothing_more()
        await peer.close()
        await eventually(lambda: world.gauge("open_connections") == 0)
        await (await world.connect()).nothing_more()


async def test_reads_at_once_are_limited_over_all_connections(tmp_path: Path) -> None:
    async with serving("unix", tmp_path, request_timeout_seconds=2 * PATIENCE) as world:
        peers = [await world.connect() for _ in range(3)]
        for peer in peers:
            for number in range(DEFAULT_THREADS):
                await peer.send(prepare(number, f"hung#{number}"))
        await eventually(lambda: world.store.hangs == DEFAULT_THREADS)
        for peer in peers:
            await peer.nothing_more()
        assert world.store.hangs == world.gauge("busy_threads") == DEFAULT_THREADS
        world.store.release()
        for peer in peers:
            answers = [await peer.receive() for _ in range(DEFAULT_THREADS)]
            assert all("result" in answer for answer in answers)


async def test_a_cancelled_read_keeps_its_thread_until_it_ends(tmp_path: Path) -> None:
    async with serving("unix", tmp_path) as world:
        peer = await world.connect()
        for number in range(DEFAULT_THREADS):
            await peer.send(prepare(number, f"hung#{number}"))
        await eventually(lambda: world.store.hangs == DEFAULT_THREADS)
        await peer.close()
        await eventually(lambda: world.gauge("busy_threads") == DEFAULT_THREADS)
        other = await world.connect()
        await other.send(prepare(1, "small"))
        await other.nothing_more()
        assert "small" not in world.store.reads
        world.store.release()
        assert "result" in await other.receive()


async def test_all_who_wait_for_the_drain_are_told_when_it_is_over(tmp_path: Path) -> None:
    async with serving("stdio", tmp_path, drain_seconds=10 * PATIENCE) as world:
        peer = await world.connect()
        await peer.send(prepare(1, "hung"))
        await eventually(lambda: world.store.hangs == 1)
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                world.service.stop()
                for _ in range(3):
                    tasks.start_soon(world.service.until_drained)
                await anyio.wait_all_tasks_blocked()
                world.store.release()


async def test_a_connection_that_comes_after_the_stop_is_ended(tmp_path: Path) -> None:
    async with serving("stdio", tmp_path) as world:
        world.service.stop()
        assert await (await world.connect()).until_closed() == []


async def test_a_stopping_service_accepts_no_new_connections_and_serves_the_old(tmp_path: Path) -> None:
    async with serving("unix", tmp_path) as world:
        peer = await world.connect()
        await peer.send(prepare(1, "hung"))
        await eventually(lambda: world.store.hangs == 1)
        world.service.stop()
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        world.store.release()
        assert "result" in await peer.receive()


async def test_what_a_client_sends_never_ends_the_service(tmp_path: Path) -> None:
    nasty = [
        b"\x00" * 100,
        b"[" * 100_000,
        b'{"a":' * 10_000,
        b"\xff\xfe",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Type:\r\n\r\n",
    ]
    async with serving("tcp", tmp_path) as world:
        for data in nasty:
            peer = await world.connect_stream()
            await peer.write(data + b"\n")
            await peer.close_writing()
            await peer.read_all()
        await (await world.connect()).nothing_more()


# The process.


class Running:
    """A server process: what it announced, and its streams."""

    def __init__(self, process: anyio.abc.Process, addresses: list[dict[str, Any]]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.addresses = addresses
        self.stdin = process.stdin
        self.stdout = BufferedByteReceiveStream(process.stdout)
        self.stderr = BufferedByteReceiveStream(process.stderr)

    async def line(self, stream: BufferedByteReceiveStream) -> str:
        """The next line of a stream."""
        with anyio.fail_after(PATIENCE):
            return (await stream.receive_until(b"\n", LINE_BYTES)).decode()

    async def rest(self, stream: BufferedByteReceiveStream) -> str:
        """What a stream holds until its end."""
        received = b""
        with anyio.fail_after(PATIENCE):
            try:
                while True:
                    received += await stream.receive()
            except anyio.EndOfStream:
                return received.decode()

    async def exit_code(self) -> int:
        """How it ended."""
        with anyio.fail_after(PATIENCE):
            return await self.process.wait()

    async def hanging(self) -> None:
        """Wait until a read hangs."""
        assert await self.line(self.stderr) == "hanging"


def command(**options: Any) -> list[str]:
    """The program that serves a steered store, warnings being errors there too."""
    ignored = ["-W", "ignore:open_text:DeprecationWarning", "-W", "ignore:read_text:DeprecationWarning"]
    return [sys.executable, "-W", "error", *ignored, str(transport_doubles.__file__), json.dumps(options)]


@asynccontextmanager
async def running(**options: Any) -> AsyncGenerator[Running]:
    """A server process that has announced itself."""
    async with await anyio.open_process(command(**options)) as process:
        server = Running(process, [])
        try:
            speaks_stdio = options.get("stdio") or not {"unix", "tcp", "http"} & set(options)
            server.addresses = listening(await server.line(server.stderr if speaks_stdio else server.stdout))
            yield server
        finally:
            if process.returncode is None:
                process.kill()


async def send(server: Running, message: Any) -> None:
    """Send a message on standard input."""
    await server.stdin.send(json.dumps(message).encode() + b"\n")


@asynccontextmanager
async def dialled(path: Path, *messages: Any) -> AsyncGenerator[anyio.abc.SocketStream]:
    async with await anyio.connect_unix(path) as stream:
        for message in messages:
            await stream.send(json.dumps(message).encode() + b"\n")
        yield stream


async def test_a_server_announces_its_addresses_on_one_line_of_its_output(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with running(unix=str(path), tcp="127.0.0.1:0", http="127.0.0.1:0") as server:
        unix, tcp, http = server.addresses
        assert unix == {"transport": "unix", "path": str(path)}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (tcp["transport"], tcp["host"], http["transport"]) == ("tcp", "127.0.0.1", "http")
        assert tcp["port"] != http["port"] != 0
        base, _, fragment = http["url"].partition("#token=")
        assert base == f"http://127.0.0.1:{http['port']}/"
        async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=PATIENCE) as client:
            bearer = {"authorization": f"Bearer {fragment}"}
            response = await client.post("rpc", json=candidates(1), headers=bearer)
            assert len(response.json()["result"]) == 2
            assert (await client.get("metrics", headers=bearer)).status_code == 200
        async with dialled(path, candidates(1)) as stream:
            assert b'"id":1' in await stream.receive()
        async with await anyio.connect_tcp("127.0.0.1", tcp["port"]) as stream:
            await stream.send(json.dumps(candidates(2)).encode() + b"\n")
            assert b'"id":2' in await stream.receive()
        server.process.terminate()
        assert await server.exit_code() == 0
        assert await server.rest(server.stdout) == ""
        assert await server.rest(server.stderr) == ""
    assert not path.exists()


async def test_with_stdio_the_addresses_are_on_standard_error_and_the_output_is_protocol_only(tmp_path: Path) -> None:
    async with running(stdio=True, unix=str(tmp_path / "socket")) as server:
        assert [address["transport"] for address in server.addresses] == ["stdio", "unix"]
        await send(server, candidates(1))
        assert json.loads(await server.line(server.stdout))["id"] == 1
        await server.stdin.aclose()
        assert await server.exit_code() == 0
        assert await server.rest(server.stdout) == ""
    assert not (tmp_path / "socket").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("transport", ["stdio", "unix", "http"])
async def test_a_signal_ends_the_server_with_0_after_the_drain_although_a_read_hangs(
    tmp_path: Path, transport: str, number: signal.Signals
) -> None:
    path = tmp_path / "socket"
    address = {"unix": str(path), "http": "127.0.0.1:0", "stdio": True}[transport]
    answers: list[Any] = []
    async with running(drain=0.2, **{transport: address}) as server, anyio.create_task_group() as tasks:
        if transport == "stdio":
            await send(server, prepare(1, "hung"))

            async def ask() -> None:
                answers.append(json.loads(await server.line(server.stdout)))
        elif transport == "unix":

            async def ask() -> None:
                async with dialled(path, prepare(1, "hung")) as stream:
                    answers.append(json.loads(await stream.receive()))
        else:
            base, _, token = server.addresses[0]["url"].partition("#token=")

            async def ask() -> None:
                async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
                    bearer = {"authorization": f"Bearer {token}"}
                    answers.append((await client.post(f"{base}rpc", json=prepare(1, "hung"), headers=bearer)).json())

        tasks.start_soon(ask)
        await server.hanging()
        os.kill(server.process.pid, number)
        assert await server.exit_code() == 0
    assert [answer["error"]["code"] for answer in answers] == [-32802]
    assert not path.exists()


async def test_the_end_of_standard_input_ends_the_server_although_a_read_hangs() -> None:
    async with running(stdio=True, drain=0.2) as server:
        await send(server, prepare(1, "hung"))
        await server.hanging()
        await server.stdin.aclose()
        assert json.loads(await server.line(server.stdout))["error"]["code"] == -32802
        assert await server.exit_code() == 0


async def test_shutdown_and_exit_end_the_server_with_0_although_a_read_hangs() -> None:
    async with running(stdio=True, drain=0.2) as server:
        await send(server, prepare(1, "hung"))
        await server.hanging()
        await send(server, {"jsonrpc": "2.0", "id": 2, "method": "shutdown"})
        await send(server, {"jsonrpc": "2.0", "method": "exit"})
        assert await server.exit_code() == 0


async def test_exit_alone_ends_the_server_with_1() -> None:
    async with running(stdio=True) as server:
        await send(server, {"jsonrpc": "2.0", "method": "exit"})
        assert await server.exit_code() == 1


async def test_a_broken_output_ends_a_server_on_stdio_at_once() -> None:
    reading, writing = os.pipe()
    # A drain that would outlast the test.
    async with await anyio.open_process(command(stdio=True, drain=10 * PATIENCE), stdout=writing) as process:
        os.close(writing)
        assert process.stdin is not None
        assert process.stderr is not None
        log = BufferedByteReceiveStream(process.stderr)
        try:
            with anyio.fail_after(PATIENCE):
                assert listening((await log.receive_until(b"\n", LINE_BYTES)).decode())
                await process.stdin.send(json.dumps(prepare(1, "small")).encode() + b"\n")
                await anyio.wait_readable(reading)
                os.close(reading)
                await process.stdin.send(json.dumps(candidates(2)).encode() + b"\n")
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()


MIDDLE = """
import subprocess, sys, time
server = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE)
server.stdin.write(sys.argv[1].encode())
server.stdin.flush()
sys.stdin.read()
"""


@pytest.mark.parametrize(
    "options", [{"stdio": True}, {"exit_with_stdin": True, "tcp": "127.0.0.1:0"}], ids=["stdio", "exit-with-stdin"]
)
async def test_a_host_that_is_killed_leaves_no_server_behind(options: dict[str, Any]) -> None:
    first = json.dumps(prepare(1, "hung")) + "\n" if "stdio" in options else "anything\n"
    middle = [sys.executable, "-c", MIDDLE, first, *command(drain=0.2, **options)]
    async with await anyio.open_process(middle) as process:
        server = Running(process, [])
        try:
            assert listening(await server.line(server.stderr if "stdio" in options else server.stdout))
            if "stdio" in options:
                await server.hanging()
        finally:
            process.kill()
        assert await server.exit_code() == -signal.SIGKILL
        # The server has inherited these: they end with the last process that holds them.
        await server.rest(server.stdout)
        await server.rest(server.stderr)


async def test_without_exit_with_stdin_a_server_outlives_its_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with running(unix=str(path)) as server:
        await server.stdin.aclose()
        async with dialled(path, candidates(1)) as stream:
            assert b'"id":1' in await stream.receive()
        server.process.terminate()
        assert await server.exit_code() == 0


async def test_a_second_server_does_not_take_a_live_servers_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with running(unix=str(path)) as server:
        arguments = [sys.executable, "-m", "sessionref.server", "serve", "--unix", str(path)]
        second = await anyio.run_process(arguments, check=False)
        assert second.returncode == 2
        assert b"SESSION_REFERENCE_INVALID_CONFIG" in second.stderr
        async with dialled(path, candidates(1)) as stream:
            assert b'"id":1' in await stream.receive()
        server.process.terminate()
        assert await server.exit_code() == 0


async def test_a_killed_servers_socket_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with running(unix=str(path)) as server:
        server.process.kill()
        await server.exit_code()
    assert path.exists()
    async with running(unix=str(path)) as server:
        async with dialled(path, candidates(1)) as stream:
            assert b'"id":1' in await stream.receive()
        server.process.terminate()
        assert await server.exit_code() == 0
    assert not path.exists()


REQUEST_LINE = re.compile(r"sessionref: INFO: request method=(\S+) outcome=(\S+) ms=[0-9]+\.[0-9] bytes=([0-9]+)")


async def test_the_log_has_one_line_a_request_and_a_summary_without_query_text_or_path(tmp_path: Path) -> None:
    async with running(stdio=True, log_level="info", spills=str(tmp_path / "spills")) as server:
        messages = [
            candidates(1, query="secret-query", cwd="/secret/folder"),
            prepare(2, "truncated", content="secret-text"),
            prepare(3, "corrupt"),
            prepare(4, "secret-session"),
            {"jsonrpc": "2.0", "id": 5, "method": "secret/method", "params": {"secret": 1}},
        ]
        answers: list[bytes] = []
        for message in messages:
            await send(server, message)
            answers.append((await server.line(server.stdout)).encode())
        await server.stdin.aclose()
        assert await server.exit_code() == 0
        log = await server.rest(server.stderr)
    requests = [(match[1], match[2], int(match[3])) for match in map(REQUEST_LINE.fullmatch, log.splitlines()) if match]
    assert requests == [
        ("sessionReferenceResolver/candidates", "ok", len(answers[0])),
        ("sessionReferenceResolver/prepare", "ok", len(answers[1])),
        ("sessionReferenceResolver/prepare", "SESSION_REFERENCE_READ_FAILED", len(answers[2])),
        ("sessionReferenceResolver/prepare", "SESSION_REFERENCE_READ_FAILED", len(answers[3])),
        ("other", "METHOD_NOT_FOUND", len(answers[4])),
    ]
    size = sum(map(len, answers))
    assert f"summary requests=5 failed=3 connections=1 refused_connections=0 bytes={size}\n" in log
    assert "secret" not in log
    assert str(tmp_path) not in log


async def test_without_a_log_level_no_request_is_logged() -> None:
    async with running(stdio=True) as server:
        await send(server, candidates(1))
        await server.line(server.stdout)
        await server.stdin.aclose()
        assert await server.exit_code() == 0
        assert await server.rest(server.stderr) == ""


async def test_a_crash_in_a_store_is_explained_in_the_log_under_its_incident() -> None:
    async with running(stdio=True) as server:
        await send(server, prepare(1, "crashing"))
        incident = json.loads(await server.line(server.stdout))["error"]["data"]["incident"]
        await server.stdin.aclose()
        assert await server.exit_code() == 0
        log = await server.rest(server.stderr)
    assert f"incident {incident}" in log
    assert "RuntimeError" in log


async def test_a_token_of_a_file_is_not_printed_and_opens(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n", encoding="utf-8")
    file.chmod(0o600)
    async with running(http="127.0.0.1:0", token_file=str(file)) as server:
        (address,) = server.addresses
        assert address["url"] == f"http://127.0.0.1:{address['port']}/"
        async with httpx.AsyncClient(base_url=address["url"], trust_env=False, timeout=PATIENCE) as client:
            right = await client.post("rpc", json=candidates(1), headers={"authorization": f"Bearer {TOKEN}"})
            wrong = await client.post("rpc", json=candidates(1), headers={"authorization": f"Bearer {TOKEN}x"})
        server.process.terminate()
        assert await server.exit_code() == 0
        assert TOKEN not in await server.rest(server.stdout) + await server.rest(server.stderr)
    assert (right.status_code, wrong.status_code) == (200, 401)


def test_a_refused_address_leaves_nothing_behind(tmp_path: Path) -> None:
    options = ServeOptions(unix=tmp_path / "socket", tcp="0.0.0.0:1")
    with pytest.raises(SessionReferenceError):
        serve([], Settings(), options)
    assert list(tmp_path.iterdir()) == []


def test_a_public_token_file_is_refused_at_the_start(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x" * 20, encoding="utf-8")
    token.chmod(0o644)
    with pytest.raises(SessionReferenceError, match="token file"):
        serve([], Settings(), ServeOptions(http="127.0.0.1:0", token_file=token))
