"""Ids, cancellation and the end of a connection: every call ends, whatever the server does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import ObjectStream

from sessionref.client import Client, ClientLimits, CloseReason, ConnectionClosedError, PeerEvidence
from sessionref.protocol.envelope import encode_error, encode_result
from sessionref.protocol.errors import ProtocolError, invalid_request
from sessionref.protocol.jsontext import decode_json

Ends = tuple[ObjectStream[bytes], ObjectStream[bytes]]
Server = Callable[[ObjectStream[bytes]], Coroutine[Any, Any, None]]

QUICK = ClientLimits(cancel_seconds=0.05, flush_seconds=0.05, reap_seconds=0.05)
"""For servers that do not read, so that nobody waits for them."""


@asynccontextmanager
async def connected(ends: Ends, server: Server) -> AsyncGenerator[Client, None]:
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks, Client(ends[0], limits=QUICK) as client:
            tasks.start_soon(server, ends[1])
            yield client


async def reason_of(call: Awaitable[Any]) -> CloseReason:
    with pytest.raises(ConnectionClosedError) as caught:
        await call
    return caught.value.reason


async def test_answers_out_of_order_reach_their_own_calls(ends: Ends) -> None:
    async def serve(stream: ObjectStream[bytes]) -> None:
        requests = [decode_json(await stream.receive()) for _ in range(3)]
        for request in reversed(requests):
            await stream.send(encode_result(request["id"], request["params"]))

    results: dict[int, Any] = {}

    async def call(client: Client, number: int) -> None:
        results[number] = await client.request("echo", [number])

    async with connected(ends, serve) as client, anyio.create_task_group() as calls:
        for number in range(3):
            calls.start_soon(call, client, number)
    assert results == {number: [number] for number in range(3)}


async def test_many_concurrent_calls_have_ids_of_their_own_counted_from_0(ends: Ends) -> None:
    count = 300
    identities: list[int] = []

    async def serve(stream: ObjectStream[bytes]) -> None:
        for _ in range(count):
            request = decode_json(await stream.receive())
            identities.append(request["id"])
            await stream.send(encode_result(request["id"], request["params"]))

    async def call(client: Client, number: int) -> None:
        assert await client.request("echo", [number]) == [number]

    async with connected(ends, serve) as client, anyio.create_task_group() as calls:
        for number in range(count):
            calls.start_soon(call, client, number)
    assert sorted(identities) == list(range(count))


async def test_a_cancelled_call_tells_the_server_and_its_late_answer_is_dropped(ends: Ends) -> None:
    received = anyio.Event()
    seen: list[Any] = []

    async def serve(stream: ObjectStream[bytes]) -> None:
        for _ in range(3):
            seen.append(decode_json(await stream.receive()))
            received.set()
        await stream.send(encode_result(0, "late"))
        await stream.send(encode_result(1, "in time"))

    async with connected(ends, serve) as client:
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.request, "slow")
            await received.wait()
            calls.cancel_scope.cancel()
        assert await client.request("next") == "in time"
    assert [message.get("id") for message in seen] == [0, None, 1]
    assert seen[1] == {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 0}}


async def test_a_call_cancelled_before_the_server_reads_is_never_sent(ends: Ends) -> None:
    async with Client(ends[0], limits=QUICK) as client:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as calls:
                # The first one occupies the writer.
                await client.notify("first")
                calls.start_soon(client.request, "second")
                await anyio.wait_all_tasks_blocked()
                calls.cancel_scope.cancel()
            assert decode_json(await ends[1].receive())["method"] == "first"
            await client.notify("third")
            assert decode_json(await ends[1].receive())["method"] == "third"


async def test_cancelling_takes_bounded_time_while_the_server_does_not_read(ends: Ends) -> None:
    with anyio.fail_after(5):
        async with Client(ends[0], limits=QUICK) as client:
            with anyio.move_on_after(0.01) as scope:
                await client.request("never read")
            assert scope.cancelled_caught


async def test_answers_are_read_while_the_server_does_not_read(ends: Ends) -> None:
    results: list[Any] = []

    async def call(client: Client) -> None:
        results.append(await client.request("read"))

    with anyio.fail_after(5):
        async with Client(ends[0], limits=QUICK) as client, anyio.create_task_group() as calls:
            calls.start_soon(call, client)
            identity = decode_json(await ends[1].receive())["id"]
            await client.notify("not read")
            calls.start_soon(client.notify, "not even written")
            await anyio.wait_all_tasks_blocked()
            await ends[1].send(encode_result(identity, "answered"))
            await anyio.wait_all_tasks_blocked()
            assert results == ["answered"]
            calls.cancel_scope.cancel()


async def test_a_server_that_closes_fails_all_waiting_and_all_later_calls(ends: Ends) -> None:
    async def serve(stream: ObjectStream[bytes]) -> None:
        for _ in range(2):
            await stream.receive()
        await stream.aclose()

    reasons: list[CloseReason] = []

    async def call(client: Client) -> None:
        reasons.append(await reason_of(client.request("wait")))

    async with connected(ends, serve) as client:
        async with anyio.create_task_group() as calls:
            calls.start_soon(call, client)
            calls.start_soon(call, client)
        reasons.append(await reason_of(client.request("later")))
        reasons.append(await reason_of(client.notify("later")))
    assert reasons == [CloseReason.ENDED] * 4


async def test_a_server_that_no_longer_reads_nor_answers_ends_the_connection(ends: Ends) -> None:
    class Unwritable:
        async def send(self, item: bytes, /) -> None:
            raise anyio.BrokenResourceError

        async def receive(self) -> bytes:
            return await ends[0].receive()

        async def aclose(self) -> None:
            await ends[0].aclose()

    with anyio.fail_after(5):
        async with Client(Unwritable(), limits=QUICK) as client:
            assert await reason_of(client.request("lost")) is CloseReason.ENDED


@pytest.mark.parametrize(
    "nonsense",
    [
        b"hello",
        b"\xff",
        b"[]",
        b"3",
        b"{}",
        b'{"id":0}',
        b'{"id":"0","result":1}',
        b'{"id":true,"result":1}',
        b'{"id":null,"result":1}',
        b'{"id":7,"result":1}',
        b'{"id":-1,"result":1}',
        b'{"id":0,"error":{"code":"x","message":""}}',
        b'{"id":0,"error":{"message":""}}',
        b'{"id":0,"error":"no"}',
        b"[" * 100_000,
    ],
)
async def test_what_is_no_answer_ends_the_connection(ends: Ends, nonsense: bytes) -> None:
    async def serve(stream: ObjectStream[bytes]) -> None:
        await stream.receive()
        await stream.send(nonsense)
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()

    async with connected(ends, serve) as client:
        assert await reason_of(client.request("ask")) is CloseReason.MALFORMED
        assert await reason_of(client.request("later")) is CloseReason.MALFORMED


async def test_notifications_requests_and_repeated_answers_of_the_server_are_passed_over(ends: Ends) -> None:
    async def serve(stream: ObjectStream[bytes]) -> None:
        await stream.receive()
        await stream.send(b'{"jsonrpc":"2.0","method":"progress"}')
        await stream.send(b'{"jsonrpc":"2.0","id":0,"method":"ask"}')
        await stream.send(encode_result(0, "first"))
        await stream.send(encode_result(0, "again"))
        await stream.receive()
        await stream.send(b'{"jsonrpc":"2.0","id":1,"result":"second","error":null,"new":1}')

    async with connected(ends, serve) as client:
        assert await client.request("one") == "first"
        assert await client.request("two") == "second"


async def test_an_error_without_an_id_fails_every_call_that_it_may_be_meant_for(ends: Ends) -> None:
    async def serve(stream: ObjectStream[bytes]) -> None:
        for _ in range(2):
            await stream.receive()
        await stream.send(encode_error(None, invalid_request("what was that", limit=1)))

    failures: list[ProtocolError] = []

    async def call(client: Client) -> None:
        with pytest.raises(ProtocolError) as caught:
            await client.request("ask")
        failures.append(caught.value)

    async with connected(ends, serve) as client, anyio.create_task_group() as calls:
        calls.start_soon(call, client)
        calls.start_soon(call, client)
    assert [failure.facts.limit for failure in failures] == [1, 1]
    assert failures[0] is not failures[1]


async def test_a_client_that_is_not_entered_or_was_left_has_no_connection(ends: Ends) -> None:
    client = Client(ends[0])
    assert await reason_of(client.request("early")) is CloseReason.NOT_OPEN
    async with client:
        pass
    assert await reason_of(client.request("late")) is CloseReason.NOT_OPEN


async def test_leaving_the_client_fails_the_calls_of_other_tasks(ends: Ends) -> None:
    reasons: list[CloseReason] = []

    async def call(client: Client) -> None:
        reasons.append(await reason_of(client.request("wait")))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as calls, Client(ends[0], limits=QUICK) as client:
            calls.start_soon(call, client)
            calls.start_soon(call, client)
            await anyio.wait_all_tasks_blocked()
    assert reasons == [CloseReason.NOT_OPEN] * 2


@pytest.mark.parametrize("error", [ValueError("of the body"), ExceptionGroup("of the body", [ValueError()])])
async def test_an_exception_of_the_body_comes_out_as_it_is(ends: Ends, error: Exception) -> None:
    cause = KeyError()
    with pytest.raises(type(error)) as caught:
        async with Client(ends[0]):
            raise error from cause
    assert caught.value is error
    assert caught.value.__cause__ is cause


async def test_a_cancelled_body_is_left_by_cancellation(ends: Ends) -> None:
    with anyio.CancelScope() as scope:
        async with Client(ends[0]) as client:
            scope.cancel()
            await client.request("wait")
    assert scope.cancelled_caught


async def test_the_error_names_the_exit_code_and_holds_the_log_back(ends: Ends) -> None:
    await ends[1].aclose()
    async with Client(ends[0], evidence=lambda: PeerEvidence(7, "secret"), limits=QUICK) as client:
        with pytest.raises(ConnectionClosedError) as caught:
            await client.request("ask")
    assert (caught.value.exit_code, caught.value.stderr_tail) == (7, "secret")
    assert "7" in str(caught.value)
    assert "secret" not in repr(caught.value)
