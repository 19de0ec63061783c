"""The client against the server of this project over each of its transports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from sessionref.client import (
    Client,
    CloseReason,
    ConnectionClosedError,
    ConnectionRefusedByServerError,
    connect_tcp,
    connect_unix,
    connect_websocket,
)
from sessionref.protocol.errors import ErrorCode, ProtocolError, SessionReferenceError

Connect = Callable[[], AbstractAsyncContextManager[Client]]

TRANSPORTS = ("unix", "tcp", "http")
DEFAULT_MESSAGE_BYTES = 33_554_432


def way(addresses: dict[str, Any], transport: str) -> Connect:
    address = addresses[transport]
    if transport == "unix":
        return lambda: connect_unix(address["path"])
    if transport == "tcp":
        return lambda: connect_tcp(address["host"], address["port"])
    return lambda: connect_websocket(address["url"])


@asynccontextmanager
async def started(*options: str) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
    """A server of a test's own: its process id and its address."""
    command = [sys.executable, "-m", "sessionref.server", "serve", "--store", "sample", *options]
    async with await anyio.open_process(command, stdin=subprocess.DEVNULL) as server:
        try:
            assert server.stdout is not None
            yield server.pid, json.loads(await server.stdout.receive())["listening"][0]
        finally:
            with suppress(ProcessLookupError):
                server.kill()


@pytest.fixture(params=TRANSPORTS)
def connect(request: pytest.FixtureRequest, addresses: dict[str, Any]) -> Connect:
    """One way to the server."""
    return way(addresses, request.param)


async def test_a_session_is_found_and_prepared(connect: Connect) -> None:
    with anyio.fail_after(10):
        async with connect() as client:
            candidate = (await client.candidates("agent"))[0]
            prepared = await client.prepare("agent", f"see {candidate.mention} \ud83d")
            assert prepared.content == f"see @{candidate.display_title} \ud83d"
            assert prepared.additional_context
            assert (await client.initialize()).server_info.name == "sessionref"


async def test_what_the_server_takes_at_most_is_known_from_the_start(connect: Connect) -> None:
    with anyio.fail_after(10):
        async with connect() as client:
            with pytest.raises(ProtocolError) as caught:
                await client.prepare("agent", "x" * DEFAULT_MESSAGE_BYTES)
            assert caught.value.facts.limit == DEFAULT_MESSAGE_BYTES
            assert await client.candidates("agent")


async def test_a_domain_failure_arrives_and_calls_go_on(connect: Connect) -> None:
    with anyio.fail_after(10):
        async with connect() as client:
            with pytest.raises(SessionReferenceError) as caught:
                await client.prepare("agent", "hi", references=[{"sessionId": "nobody"}])
            assert caught.value.code is ErrorCode.READ_FAILED
            assert await client.candidates("agent")


async def test_many_calls_at_once_are_answered(connect: Connect) -> None:
    contents: list[Any] = []

    async def call(client: Client, number: int) -> None:
        contents.append((await client.prepare("agent", f"{number}")).content)

    with anyio.fail_after(20):
        async with connect() as client, anyio.create_task_group() as calls:
            for number in range(64):
                calls.start_soon(call, client, number)
    assert sorted(contents, key=int) == [str(number) for number in range(64)]


async def test_megabytes_go_both_ways_at_once(connect: Connect) -> None:
    text = "é" * 2_000_000

    async def call(client: Client) -> None:
        assert (await client.prepare("agent", text, references=[])).content == text

    with anyio.fail_after(30):
        async with connect() as client, anyio.create_task_group() as calls:
            for _ in range(3):
                calls.start_soon(call, client)


async def test_a_cancelled_call_leaves_the_connection_usable(connect: Connect) -> None:
    with anyio.fail_after(10):
        async with connect() as client:
            async with anyio.create_task_group() as calls:
                for _ in range(8):
                    calls.start_soon(client.candidates, "agent")
                await anyio.wait_all_tasks_blocked()
                calls.cancel_scope.cancel()
            assert await client.candidates("agent")


async def test_cancelling_at_any_moment_leaves_nothing_behind(connect: Connect) -> None:
    async def cancel_after(checkpoints: int, scope: anyio.CancelScope) -> None:
        for _ in range(checkpoints):
            await anyio.lowlevel.checkpoint()
        scope.cancel()

    async def connect_and_call(checkpoints: int) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_after, checkpoints, tasks.cancel_scope)
            async with connect() as client:
                while True:
                    await client.candidates("agent")

    with anyio.fail_after(60):
        await connect_and_call(1500)
        descriptors = len(os.listdir("/proc/self/fd"))
        tasks = len(anyio.get_running_tasks())
        for checkpoints in (*range(40), *range(40, 1500, 25)):
            await connect_and_call(checkpoints)
        await anyio.wait_all_tasks_blocked()
        assert len(anyio.get_running_tasks()) == tasks
        assert len(os.listdir("/proc/self/fd")) == descriptors


async def test_a_cancelled_body_and_its_exceptions_leave_the_connection(connect: Connect) -> None:
    with anyio.fail_after(10):
        with anyio.CancelScope() as scope:
            async with connect() as client:
                scope.cancel()
                await client.candidates("agent")
        assert scope.cancelled_caught
        error = ExceptionGroup("of the body", [ValueError()])
        with pytest.raises(ExceptionGroup) as caught:
            async with connect():
                raise error
        assert caught.value is error


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_server_that_dies_fails_calls_that_wait_and_all_later_ones(tmp_path: Path, transport: str) -> None:
    option = {"unix": str(tmp_path / "s")}.get(transport, "127.0.0.1:0")
    reasons: list[CloseReason] = []

    async def call(client: Client) -> None:
        with pytest.raises(ConnectionClosedError) as caught:
            await client.candidates("agent")
        reasons.append(caught.value.reason)

    with anyio.fail_after(30):
        async with (
            started(f"--{transport}", option) as (process_id, address),
            way({transport: address}, transport)() as client,
        ):
            # It reads nothing more, so the calls wait until it is dead.
            os.kill(process_id, signal.SIGSTOP)
            async with anyio.create_task_group() as calls:
                calls.start_soon(call, client)
                calls.start_soon(call, client)
                await anyio.wait_all_tasks_blocked()
                os.kill(process_id, signal.SIGKILL)
            await call(client)
    assert reasons == [CloseReason.ENDED] * 3


async def test_a_wrong_or_missing_token_is_refused_with_its_status(addresses: dict[str, Any]) -> None:
    url = f"ws://127.0.0.1:{addresses['http']['port']}/rpc"
    for token in (None, "wrong", "wrong/too="):
        with anyio.fail_after(10), pytest.raises(ConnectionRefusedByServerError, match="401") as caught:
            async with connect_websocket(url, token=token):
                pass
        assert (caught.value.status, caught.value.reason) == (401, CloseReason.REFUSED)


@pytest.mark.parametrize("url", ["ws://127.1:{}/rpc", "ws://127.0.0.1:{}/elsewhere"])
async def test_another_host_or_path_is_refused_with_its_status(addresses: dict[str, Any], url: str) -> None:
    with anyio.fail_after(10), pytest.raises(ConnectionRefusedByServerError) as caught:
        async with connect_websocket(url.format(addresses["http"]["port"])):
            pass
    assert caught.value.status == 403


async def test_a_token_may_be_given_beside_the_url(addresses: dict[str, Any]) -> None:
    url, _, token = addresses["http"]["url"].partition("#token=")
    with anyio.fail_after(10):
        async with connect_websocket(f"{url}#token=wrong", token=token) as client:
            assert await client.candidates("agent")


async def test_a_token_that_no_subprotocol_can_carry_is_taken(tmp_path: Path) -> None:
    token = "a/b=c~d.e_f-g+h" * 2
    file = tmp_path / "token"
    file.write_text(token, encoding="ascii")
    file.chmod(0o600)
    with anyio.fail_after(30):
        async with (
            started("--http", "127.0.0.1:0", "--token-file", str(file)) as (_, address),
            connect_websocket(address["url"], token=token) as client,
        ):
            assert await client.candidates("agent")


async def test_the_environments_proxies_are_not_asked(
    addresses: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.upper(), "socks5://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with anyio.fail_after(10):
        async with connect_websocket(addresses["http"]["url"]) as client:
            assert await client.candidates("agent")
