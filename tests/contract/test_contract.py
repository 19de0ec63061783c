"""What every transport must do alike (contract section 1): written once, run over each."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from sessionref.protocol.methods import METHODS, PREPARE
from sessionref.server.spill import LocalSpillStore, SavedSpill, SpillTransaction
from transport_doubles import (
    PATIENCE,
    Closed,
    Kind,
    World,
    cancel,
    candidates,
    code_of,
    eventually,
    prepare,
    serving,
    spilled,
)

INITIALIZE = "initialize"
SESSION = "sessionId"


def call(identity: Any, method: str = INITIALIZE, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "method": method, **members}


def padded(size: int, identity: Any = 1) -> bytes:
    """A request of exactly that many bytes."""
    short = json.dumps(call(identity, params={"padding": ""})).encode()
    return short.replace(b'""}', b'"%b"}' % (b"x" * (size - len(short))))


async def with_hung_reads(world: World, count: int) -> None:
    await eventually(lambda: world.store.hangs == count)


@pytest.fixture
def spilling_hangs(monkeypatch: pytest.MonkeyPatch) -> Iterable[threading.Event]:
    """Every spill stops after its file was written, until the event is set."""
    go_on, save = threading.Event(), LocalSpillStore.save

    def hanging_save(
        store: LocalSpillStore, owner_id: str, number: int, content: Iterable[bytes], transaction: SpillTransaction
    ) -> SavedSpill:
        saved = save(store, owner_id, number, content, transaction)
        assert go_on.wait(2 * PATIENCE)
        return saved

    monkeypatch.setattr(LocalSpillStore, "save", hanging_save)
    yield go_on
    go_on.set()


# Ids, answers, batches.


@pytest.mark.parametrize(
    "written", ["0", "1", '"1"', "1.5", "-7", "9007199254740993", '""', '"é"', '"\\ud83d"', '"a-0b-4c"']
)
async def test_an_id_is_echoed_byte_by_byte(kind: Kind, tmp_path: Path, written: str) -> None:
    async with serving(kind, tmp_path) as world:
        peer = await world.connect()
        await peer.send(b'{"jsonrpc":"2.0","id":%b,"method":"initialize"}' % written.encode())
        assert (await peer.receive_bytes()).startswith(b'{"jsonrpc":"2.0","id":%b,"result":' % written.encode())


async def test_every_request_has_exactly_one_answer_and_every_notification_none(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path) as world:
        peer = await world.connect()
        messages: list[dict[str, Any]] = [
            call("initialize"),
            candidates("candidates"),
            prepare("none"),
            prepare("small", "small"),
            prepare("truncated", "truncated"),
            prepare("corrupt", "corrupt"),
            prepare("crashing", "crashing"),
            call("unknown", "no/such/method"),
            call("params", PREPARE, params={"nonsense": 1}),
            {"jsonrpc": "2.0", "method": "sessionReferenceResolver/assembled", "params": {"agentId": "agent"}},
            {"jsonrpc": "2.0", "method": "no/such/method"},
        ]
        for message in messages:
            await peer.send(message)
        answers = [await peer.receive() for _ in range(9)]
        await peer.nothing_more()
    assert {answer["id"]: code_of(answer) for answer in answers} == {
        "initialize": None,
        "candidates": None,
        "none": None,
        "small": None,
        "truncated": None,
        "corrupt": -32015,
        "crashing": -32603,
        "unknown": -32601,
        "params": -32602,
    }


async def test_a_fault_of_the_store_tells_the_peer_nothing_but_an_incident(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path) as world:
        peer = await world.connect()
        answer = await peer.call(prepare(1, "crashing"))
    assert answer["error"]["code"] == -32603
    assert set(answer["error"]["data"]) == {"incident"}
    assert "secret" not in json.dumps(answer)
    assert "private" not in json.dumps(answer)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b'{"jsonrpc":"2.0",', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"a":NaN}}', -32700),
        (b'{"jsonrpc":"2.0","id":null,"method":"initialize"}', -32600),
        (b"[]", -32600),
        (b"{}", -32600),
    ],
)
async def test_what_is_no_request_is_answered_without_an_id_and_the_connection_goes_on(
    kind: Kind, tmp_path: Path, message: bytes, code: int
) -> None:
    async with serving(kind, tmp_path) as world:
        peer = await world.connect()
        await peer.send(message)
        answer = await peer.receive()
        await peer.nothing_more()
    assert (answer["id"], code_of(answer)) == (None, code)


async def test_a_batch_is_answered_in_one_array_with_a_place_for_every_request(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path) as world:
        peer = await world.connect()
        await peer.send(
            [
                prepare("a", "small"),
                {"jsonrpc": "2.0", "method": "no/such/method"},
                7,
                prepare("b", "corrupt"),
                call("c"),
                {"jsonrpc": "2.0", "id": "d", "method": 1},
            ]
        )
        answers = await peer.receive()
        await peer.nothing_more()
    answered = sorted(((answer["id"] or "", code_of(answer)) for answer in answers), key=lambda pair: pair[0])
    assert answered == [("", -32600), ("a", None), ("b", -32015), ("c", None), ("d", -32600)]


async def test_a_batch_goes_out_when_it_is_full_and_holds_up_nothing_else(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path) as world:
        peer = await world.connect()
        await peer.send([call("quick"), prepare("hung", "hung")])
        await with_hung_reads(world, 1)
        await peer.nothing_more()
        world.store.release()
        assert {answer["id"] for answer in await peer.receive()} == {"quick", "hung"}
        await peer.nothing_more()


async def test_a_batch_of_notifications_only_is_not_answered(kind: Kind, tmp_path: Path) -> None:
    notification = {"jsonrpc": "2.0", "method": "no/such/method"}
    async with serving(kind, tmp_path) as world:
        peer = await world.connect()
        await peer.send([notification, notification])
        await peer.nothing_more()


async def test_a_batch_with_too_many_members_is_refused_as_a_whole(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path, max_batch=2) as world:
        peer = await world.connect()
        await peer.send([prepare(number, "small") for number in range(3)])
        answer = await peer.receive()
        await peer.nothing_more()
    assert (answer["id"], code_of(answer)) == (None, -32600)
    assert answer["error"]["data"] == {"limit": 2, "actual": 3}
    assert world.store.reads == []


async def test_64_pipelined_requests_are_all_answered(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path) as world:
        peer = await world.connect()
        for number in range(64):
            await peer.send(prepare(number, "small") if number % 2 else call(number))
        answers = [await peer.receive() for _ in range(64)]
        await peer.nothing_more()
    assert sorted(answer["id"] for answer in answers) == list(range(64))
    assert all("result" in answer for answer in answers)


async def test_input_that_drips_in_one_byte_at_a_time_is_understood(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path) as world:
        peer = await world.connect()
        await peer.drip(prepare("ä", "small"))
        answer = await peer.receive()
        await peer.nothing_more()
    assert answer["id"] == "ä"
    assert answer["result"]["additionalContext"]["source"]["references"][0][SESSION] == "small"


async def test_the_document_of_the_methods_is_discovered(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path) as world:
        answer = await (await world.connect()).call(call(1, "rpc.discover"))
    assert {method["name"] for method in answer["result"]["methods"]} <= set(METHODS)
    assert PREPARE in {method["name"] for method in answer["result"]["methods"]}


# Ids in flight, and limits.


async def test_an_id_in_flight_is_refused_to_a_second_request(lasting: Kind, tmp_path: Path) -> None:
    async with serving(lasting, tmp_path) as world:
        peer = await world.connect()
        await peer.send(prepare(7, "hung"))
        await with_hung_reads(world, 1)
        await peer.send(prepare(7, "small"))
        refused = await peer.receive()
        world.store.release()
        answer = await peer.receive()
        await peer.nothing_more()
    assert (refused["id"], code_of(refused), refused["error"]["data"]) == (None, -32600, {"id": 7})
    assert (answer["id"], code_of(answer)) == (7, None)
    assert world.store.reads == ["hung"]


async def test_two_connections_may_use_the_same_id_at_once(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path) as world:
        first, second = await world.connect(), await world.connect()
        await first.send(prepare(7, "hung#first"))
        await second.send(prepare(7, "hung#second"))
        await with_hung_reads(world, 2)
        world.store.release()
        for peer, name in ((first, "hung#first"), (second, "hung#second")):
            answer = await peer.receive()
            assert answer["id"] == 7
            assert answer["result"]["additionalContext"]["source"]["references"][0][SESSION] == name
            await peer.nothing_more()


async def test_over_http_even_one_peer_may_use_the_same_id_at_once(tmp_path: Path) -> None:
    async with serving("http", tmp_path) as world:
        peer = await world.connect()
        await peer.send(prepare(7, "hung"))
        await peer.send(prepare(7, "hung"))
        await with_hung_reads(world, 2)
        world.store.release()
        answers = [await peer.receive() for _ in range(2)]
    assert [(answer["id"], code_of(answer)) for answer in answers] == [(7, None), (7, None)]


async def test_requests_beyond_the_queue_are_refused_and_may_come_again(lasting: Kind, tmp_path: Path) -> None:
    async with serving(lasting, tmp_path, max_concurrent_requests=1, max_queued_requests=1) as world:
        peer = await world.connect()
        for identity in ("running", "queued", "refused"):
            await peer.send(prepare(identity, f"hung#{identity}"))
        refused = await peer.receive()
        world.store.release()
        answers = [await peer.receive() for _ in range(2)]
        assert "result" in await peer.call(prepare("again", "small"))
    assert (refused["id"], code_of(refused)) == ("refused", -32000)
    assert refused["error"]["data"]["retryable"] is True
    assert [answer["id"] for answer in answers] == ["running", "queued"]
    assert "hung#refused" not in world.store.reads


async def test_a_request_that_takes_too_long_is_cancelled_by_the_server(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path, request_timeout_seconds=0.05) as world:
        peer = await world.connect()
        await peer.send(prepare(1, "hung"))
        answer = await peer.receive()
        world.store.release()
        await peer.nothing_more()
    assert (answer["id"], code_of(answer)) == (1, -32802)
    assert answer["error"]["data"]["code"] == "SESSION_REFERENCE_CANCELLED"


# Cancels.


async def test_a_cancel_during_a_hung_read_is_answered_at_once_and_nothing_is_published_later(
    lasting: Kind, tmp_path: Path
) -> None:
    async with serving(lasting, tmp_path) as world:
        peer = await world.connect()
        await peer.send(prepare(1, "hung-truncated"))
        await with_hung_reads(world, 1)
        await peer.send(cancel(1))
        answer = await peer.receive()
        assert world.gauge("busy_threads") == 1
        world.store.release()
        await world.idle()
        await peer.nothing_more()
    assert (answer["id"], code_of(answer)) == (1, -32800)
    assert answer["error"]["data"] == {"code": "SESSION_REFERENCE_CANCELLED"}
    assert spilled(tmp_path) == []


async def test_a_cancel_keeps_a_queued_request_from_starting(lasting: Kind, tmp_path: Path) -> None:
    async with serving(lasting, tmp_path, max_concurrent_requests=1) as world:
        peer = await world.connect()
        await peer.send(prepare("running", "hung"))
        await peer.send(prepare("queued", "small"))
        await peer.send(cancel("queued"))
        cancelled = await peer.receive()
        world.store.release()
        answer = await peer.receive()
        await peer.nothing_more()
    assert (cancelled["id"], code_of(cancelled)) == ("queued", -32800)
    assert (answer["id"], code_of(answer)) == ("running", None)
    assert world.store.reads == ["hung"]


async def test_a_cancel_after_the_result_and_one_of_an_unknown_id_change_nothing(lasting: Kind, tmp_path: Path) -> None:
    async with serving(lasting, tmp_path) as world:
        peer = await world.connect()
        answer = await peer.call(prepare(1, "truncated"))
        for identity in (1, "1", 2):
            await peer.send(cancel(identity))
        await peer.nothing_more()
        assert "result" in await peer.call(prepare(1, "small"))
        assert len(spilled(tmp_path)) == 1
    assert "additionalContext" in answer["result"]


async def test_a_cancel_inside_a_batch_acts_and_fills_its_place(lasting: Kind, tmp_path: Path) -> None:
    async with serving(lasting, tmp_path) as world:
        peer = await world.connect()
        await peer.send([prepare("hung", "hung"), cancel("hung"), call("quick")])
        answers = await peer.receive()
        await peer.nothing_more()
    assert sorted((answer["id"], code_of(answer)) for answer in answers) == [("hung", -32800), ("quick", None)]


async def test_a_cancel_while_spilling_removes_what_was_spilled(
    lasting: Kind, tmp_path: Path, spilling_hangs: threading.Event
) -> None:
    async with serving(lasting, tmp_path) as world:
        peer = await world.connect()
        await peer.send(prepare(1, "truncated"))
        await eventually(lambda: len(spilled(tmp_path)) == 1)
        await peer.send(cancel(1))
        answer = await peer.receive()
        await eventually(lambda: spilled(tmp_path) == [])
        spilling_hangs.set()
        await world.idle()
        await peer.nothing_more()
    assert code_of(answer) == -32800
    assert spilled(tmp_path) == []


async def test_a_cancel_of_a_batch_member_whose_result_waits_for_the_others_takes_its_spill_back(
    lasting: Kind, tmp_path: Path
) -> None:
    async with serving(lasting, tmp_path) as world:
        peer = await world.connect()
        await peer.send([prepare("done", "truncated"), prepare("hung", "hung")])
        await with_hung_reads(world, 1)
        await eventually(lambda: len(spilled(tmp_path)) == 1 and world.gauge("busy_threads") == 1)
        await peer.nothing_more()
        await peer.send(cancel("done"))
        await eventually(lambda: spilled(tmp_path) == [])
        world.store.release()
        answers = await peer.receive()
    assert sorted((answer["id"], code_of(answer)) for answer in answers) == [("done", -32800), ("hung", None)]


async def test_connections_do_not_see_each_others_cancels(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path) as world:
        first, second = await world.connect(), await world.connect()
        await first.send(prepare(1, "hung"))
        await with_hung_reads(world, 1)
        await second.send(cancel(1))
        await second.nothing_more()
        world.store.release()
        answer = await first.receive()
    assert (answer["id"], code_of(answer)) == (1, None)


# Oversized messages.


async def test_a_message_of_just_the_limit_is_taken(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path, max_message_bytes=1024) as world:
        peer = await world.connect()
        await peer.send(padded(1024))
        assert "result" in await peer.receive()


@pytest.mark.parametrize("size", [1025, 3000])
async def test_a_message_over_the_limit_is_answered_once_and_the_connection_goes_on(
    lasting: Kind, tmp_path: Path, size: int
) -> None:
    async with serving(lasting, tmp_path, max_message_bytes=1024) as world:
        peer = await world.connect()
        await peer.send(padded(size))
        answer = await peer.receive()
        await peer.nothing_more()
    assert (answer["id"], code_of(answer)) == (None, -32600)
    assert answer["error"]["data"]["limit"] == 1024


async def test_a_message_over_the_limit_that_drips_in_is_answered_once(lasting: Kind, tmp_path: Path) -> None:
    async with serving(lasting, tmp_path, max_message_bytes=1024) as world:
        peer = await world.connect()
        await peer.drip(padded(2500))
        answer = await peer.receive()
        await peer.nothing_more()
    assert (answer["id"], code_of(answer)) == (None, -32600)


async def test_a_message_over_four_times_the_limit_closes_the_connection(lasting: Kind, tmp_path: Path) -> None:
    async with serving(lasting, tmp_path, max_message_bytes=1024) as world:
        peer = await world.connect()
        await peer.send(padded(5000))
        # Would be answered if the connection went on.
        await peer.send(call("next"))
        answers: list[Any] = []
        with suppress(Closed):
            answers += [await peer.receive()]
            answers += [await peer.receive()]
    assert [code_of(answer) for answer in answers] in ([-32600], [])


async def test_a_message_without_an_end_closes_the_connection(lasting: Kind, tmp_path: Path) -> None:
    async with serving(lasting, tmp_path, max_message_bytes=1024) as world:
        peer = await world.connect()
        with suppress(Closed):
            # In pieces, as the connection ends somewhere in the middle.
            await peer.drip(b'{"' + b"x" * 20_000)
        answers = await peer.until_closed()
    assert [code_of(answer) for answer in answers] in ([-32600], [])


async def test_over_http_a_body_over_the_limit_is_a_fault_of_the_transport(tmp_path: Path) -> None:
    async with serving("http", tmp_path, max_message_bytes=1024) as world:
        peer = await world.connect_http()
        for size in (1025, 5000):
            await peer.send(padded(size))
        await eventually(lambda: peer.pending == 0)
    assert peer.statuses == [413, 413]


# Framings of byte streams.


def framed(message: Any) -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_a_peer_that_speaks_headers_is_answered_in_headers(streaming: Kind, tmp_path: Path) -> None:
    async with serving(streaming, tmp_path) as world:
        peer = await world.connect_stream()
        await peer.write(framed(call(0, "shutdown")) + framed({"jsonrpc": "2.0", "method": "exit"}))
        body = b'{"jsonrpc":"2.0","id":0,"result":null}'
        assert await peer.read_all() == b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_headers_may_drip_in_and_carry_others(streaming: Kind, tmp_path: Path) -> None:
    message = b"content-type: application/vscode-jsonrpc; charset=utf-8\r\nX-Other: 1\r\n" + framed(call(0, "shutdown"))
    async with serving(streaming, tmp_path) as world:
        peer = await world.connect_stream()
        for at in range(len(message)):
            await peer.write(message[at : at + 1])
        await peer.write(framed({"jsonrpc": "2.0", "method": "exit"}))
        assert (await peer.read_all()).endswith(b'"id":0,"result":null}')


async def test_a_header_tells_how_long_a_message_over_the_limit_is(streaming: Kind, tmp_path: Path) -> None:
    long = framed(call(1, params=["x" * 1500]))
    async with serving(streaming, tmp_path, max_message_bytes=1024) as world:
        peer = await world.connect_stream()
        for message in (long, framed(call(2, "shutdown")), framed({"jsonrpc": "2.0", "method": "exit"})):
            await peer.write(message)
        frames = (await peer.read_all()).split(b"Content-Length: ")[1:]
    first, second = (json.loads(frame.partition(b"\r\n\r\n")[2]) for frame in frames)
    assert (first["id"], code_of(first)) == (None, -32600)
    assert first["error"]["data"] == {"limit": 1024, "actual": len(long.partition(b"\r\n\r\n")[2])}
    assert second["id"] == 2


@pytest.mark.parametrize(
    "opening",
    [
        b"POST /rpc HTTP/1.1\r\nHost: x\r\n\r\n{}",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"Connection: close\r\n\r\n",
        b"hello\n",
    ],
)
async def test_what_opens_with_neither_a_message_nor_a_header_closes_a_socket_without_an_answer(
    streaming: Kind, tmp_path: Path, opening: bytes
) -> None:
    request = json.dumps(prepare(1, "small")).encode() + b"\n"
    async with serving(streaming, tmp_path) as world:
        peer = await world.connect_stream()
        await peer.write(opening + b"\n" + request)
        if streaming == "stdio":
            # It is skipped and answered there, as a host's child may print into the pipe.
            assert code_of(await peer.receive()) == -32700
        else:
            assert await peer.read_all() == b""
            assert world.store.reads == []


# Ends.


async def test_requests_in_flight_are_answered_after_the_end_of_the_input(streaming: Kind, tmp_path: Path) -> None:
    async with serving(streaming, tmp_path) as world:
        peer = await world.connect()
        await peer.send(prepare(1, "hung-truncated"))
        await peer.close_writing()
        await with_hung_reads(world, 1)
        world.store.release()
        (answer,) = await peer.until_closed()
    assert (answer["id"], code_of(answer)) == (1, None)
    assert len(spilled(tmp_path)) == 1


async def test_answers_reach_a_peer_that_takes_its_time_after_the_end_of_its_input(
    streaming: Kind, tmp_path: Path
) -> None:
    async with serving(streaming, tmp_path, exit_grace_seconds=0.02, spill_directory=None) as world:
        slow, other = await world.connect(), await world.connect()
        for number in range(30):
            await slow.send(prepare(number, f"wide#{number}"))
        await slow.close_writing()
        await eventually(lambda: len(world.store.reads) >= 4)
        # Many times the grace, in which the peer takes nothing.
        for number in range(200):
            await other.call(call(number))
        answers = await slow.until_closed()
    assert sorted(answer["id"] for answer in answers) == list(range(30))


async def test_what_outlasts_the_drain_is_cancelled_and_leaves_no_spill(streaming: Kind, tmp_path: Path) -> None:
    async with serving(streaming, tmp_path, drain_seconds=0.05) as world:
        peer = await world.connect()
        await peer.send(prepare(1, "hung-truncated"))
        await with_hung_reads(world, 1)
        await peer.close_writing()
        (answer,) = await peer.until_closed()
        world.store.release()
        await world.idle()
    assert (answer["id"], code_of(answer)) == (1, -32802)
    assert spilled(tmp_path) == []


async def test_a_last_line_without_a_newline_is_a_message(streaming: Kind, tmp_path: Path) -> None:
    async with serving(streaming, tmp_path) as world:
        peer = await world.connect_stream()
        await peer.write(json.dumps(call(1)).encode())
        await peer.close_writing()
        (answer,) = await peer.until_closed()
    assert answer["id"] == 1


async def test_a_peer_that_breaks_off_cancels_its_requests(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path) as world:
        peer, other = await world.connect(), await world.connect()
        await peer.send(prepare(1, "hung-truncated"))
        await with_hung_reads(world, 1)
        await peer.reset()
        await eventually(lambda: world.gauge("requests_in_flight") == 0)
        await other.nothing_more()
        assert world.gauge("busy_threads") == 1
        world.store.release()
        await world.idle()
    assert spilled(tmp_path) == []


async def test_a_peer_that_breaks_off_while_spilling_leaves_no_spill(
    kind: Kind, tmp_path: Path, spilling_hangs: threading.Event
) -> None:
    async with serving(kind, tmp_path) as world:
        peer = await world.connect()
        await peer.send(prepare(1, "truncated"))
        await eventually(lambda: len(spilled(tmp_path)) == 1)
        await peer.reset()
        await eventually(lambda: spilled(tmp_path) == [])
        spilling_hangs.set()
        await world.idle()
    assert spilled(tmp_path) == []


async def test_a_service_that_stops_lets_requests_finish_and_closes_its_connections(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path) as world:
        peer = await world.connect()
        await peer.send(prepare(1, "hung"))
        await with_hung_reads(world, 1)
        world.service.stop()
        world.store.release()
        answer = await peer.receive()
        await eventually(lambda: world.gauge("open_connections") == 0)
    assert (answer["id"], code_of(answer)) == (1, None)


async def test_a_service_that_stops_cancels_what_outlasts_the_drain(kind: Kind, tmp_path: Path) -> None:
    async with serving(kind, tmp_path, drain_seconds=0.05) as world:
        peer = await world.connect()
        await peer.send(prepare(1, "hung"))
        await with_hung_reads(world, 1)
        world.service.stop()
        answer = await peer.receive()
        await eventually(lambda: world.gauge("open_connections") == 0)
    assert (answer["id"], code_of(answer)) == (1, -32802)


async def test_exit_closes_its_own_connection_only(lasting: Kind, tmp_path: Path) -> None:
    async with serving(lasting, tmp_path) as world:
        peer, other = await world.connect(), await world.connect()
        await other.send(prepare(1, "hung"))
        await with_hung_reads(world, 1)
        assert (await peer.call(call(1, "shutdown")))["result"] is None
        assert code_of(await peer.call(call(2))) == -32600
        await peer.send({"jsonrpc": "2.0", "method": "exit"})
        assert await peer.until_closed() == []
        world.store.release()
        assert "result" in await other.receive()
        await other.nothing_more()


async def test_over_http_shutdown_and_exit_are_no_methods(tmp_path: Path) -> None:
    async with serving("http", tmp_path) as world:
        peer = await world.connect_http()
        assert code_of(await peer.call(call(1, "shutdown"))) == -32601
        assert code_of(await peer.call(call(2, "exit"))) == -32601
        await peer.send({"jsonrpc": "2.0", "method": "exit"})
        await eventually(lambda: peer.pending == 0)
        await peer.nothing_more()
    assert peer.statuses == [200, 200, 204, 200]


# Peers that do not read.

WIDE_ANSWERS = 300


async def test_a_peer_that_never_reads_stops_being_worked_for_and_others_are_served(
    lasting: Kind, tmp_path: Path
) -> None:
    async with serving(lasting, tmp_path, write_high_water_bytes=200_000, spill_directory=None) as world:
        mute, other, read = await world.connect(), await world.connect(), WIDE_ANSWERS
        async with anyio.create_task_group() as tasks:

            async def send_all() -> None:
                for number in range(WIDE_ANSWERS):
                    await mute.send(prepare(number, f"wide#{number}"))

            tasks.start_soon(send_all)
            await eventually(lambda: len(world.store.reads) >= 10)
            for number in range(100):
                assert "result" in await other.call(prepare(number, "small"))
            read = sum(name.startswith("wide") for name in world.store.reads)
            tasks.cancel_scope.cancel()
        await mute.reset()
        await eventually(lambda: world.gauge("open_connections") == 1)
        await other.nothing_more()
    # The mark, what runs at once and what the kernel and the peer's library hold, each of 60 kB.
    assert read < 100


async def test_what_a_peer_never_read_is_read_on_when_it_does(lasting: Kind, tmp_path: Path) -> None:
    async with serving(lasting, tmp_path, write_high_water_bytes=200_000, spill_directory=None) as world:
        slow = await world.connect()
        for number in range(40):
            await slow.send(prepare(number, "wide"))
        await eventually(lambda: len(world.store.reads) >= 4)
        answers = [await slow.receive() for _ in range(40)]
        await slow.nothing_more()
    assert sorted(answer["id"] for answer in answers) == list(range(40))


async def test_answers_that_a_peer_never_took_leave_no_spill(lasting: Kind, tmp_path: Path) -> None:
    async with serving(lasting, tmp_path) as world:
        mute = await world.connect()
        for number in range(20):
            await mute.send(prepare(number, f"truncated#{number}"))
        await eventually(lambda: len(spilled(tmp_path)) == 20)
        await world.idle()
        await mute.reset()
        await eventually(lambda: world.gauge("open_connections") == 0)
        # What the kernel had taken counts as handed over.
        await eventually(lambda: len(spilled(tmp_path)) <= 12)
