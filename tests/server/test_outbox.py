from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from engine_doubles import Call, MemoryTransport, settled
from sessionref.server.outbox import JOINED_BYTES, Outbox, OutgoingMessage
from sessionref.server.transport import TransportBroken


@asynccontextmanager
async def running(outbox: Outbox) -> AsyncGenerator[None]:
    """Run an outbox's writer for a while."""
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outbox.run)
            yield
            tasks.cancel_scope.cancel()


async def test_messages_go_out_in_the_order_in_which_they_were_put() -> None:
    transport = MemoryTransport()
    outbox = Outbox(transport, 1000)
    async with running(outbox):
        for number in range(10):
            outbox.put(OutgoingMessage(b"%d" % number))
        await outbox.flushed()
    assert transport.sent == [b"%d" % number for number in range(10)]


async def test_messages_that_are_ready_together_are_written_together() -> None:
    transport = MemoryTransport()
    outbox = Outbox(transport, 1000)
    for number in range(3):
        outbox.put(OutgoingMessage(b"%d" % number))
    async with running(outbox):
        await outbox.flushed()
    assert transport.writes == [[b"0", b"1", b"2"]]


async def test_one_write_does_not_grow_beyond_a_size_but_holds_at_least_one_message() -> None:
    transport = MemoryTransport()
    outbox = Outbox(transport, 1000)
    half, large = b"h" * (JOINED_BYTES // 2), b"l" * (3 * JOINED_BYTES)
    for data in (half, half, half, large, half):
        outbox.put(OutgoingMessage(data))
    async with running(outbox):
        await outbox.flushed()
    assert transport.writes == [[half, half], [half], [large], [half]]


async def test_a_message_with_something_to_take_back_is_written_alone() -> None:
    transport, call = MemoryTransport(), Call()
    outbox = Outbox(transport, 1000)
    for message in (b"1", b"2"):
        outbox.put(OutgoingMessage(message))
    outbox.put(OutgoingMessage(b"3", [call.discard]))
    for message in (b"4", b"5"):
        outbox.put(OutgoingMessage(message))
    async with running(outbox):
        await outbox.flushed()
    assert transport.writes == [[b"1", b"2"], [b"3"], [b"4", b"5"]]


async def test_what_was_handed_over_is_not_taken_back() -> None:
    transport, handed, waiting = MemoryTransport(), Call(), Call()
    outbox = Outbox(transport, 1000)
    async with running(outbox):
        outbox.put(OutgoingMessage(b"1", [handed.discard]))
        await outbox.flushed()
        transport.hold()
        outbox.put(OutgoingMessage(b"2", [waiting.discard, waiting.discard]))
        await settled()
    await outbox.lose()
    assert transport.sent == [b"1"]
    assert (handed.discards, waiting.discards) == (0, 2)


async def test_what_is_lost_is_taken_back_once() -> None:
    call = Call()
    outbox = Outbox(MemoryTransport(), 1000)
    outbox.put(OutgoingMessage(b"1", [call.discard]))
    await outbox.lose()
    await outbox.lose()
    assert call.discards == 1


async def test_what_was_lost_is_not_sent_and_takes_no_room() -> None:
    transport = MemoryTransport()
    outbox = Outbox(transport, 3)
    outbox.put(OutgoingMessage(b"lost"))
    await outbox.lose()
    with anyio.fail_after(5):
        await outbox.room()
        await outbox.flushed()
    async with running(outbox):
        outbox.put(OutgoingMessage(b"sent"))
        await outbox.flushed()
    assert transport.sent == [b"sent"]


async def test_a_broken_transport_ends_the_writer_and_what_was_not_handed_over_can_be_taken_back() -> None:
    transport, call = MemoryTransport(), Call()
    outbox = Outbox(transport, 1000)
    transport.break_output()
    outbox.put(OutgoingMessage(b"1", [call.discard]))
    outbox.put(OutgoingMessage(b"2", [call.discard]))
    with anyio.fail_after(5), pytest.raises(TransportBroken):
        await outbox.run()
    await outbox.lose()
    assert call.discards == 2


async def test_a_writer_that_was_cancelled_in_the_middle_of_a_send_has_handed_nothing_over() -> None:
    transport, call = MemoryTransport(), Call()
    transport.hold()
    outbox = Outbox(transport, 1000)
    async with running(outbox):
        outbox.put(OutgoingMessage(b"1", [call.discard]))
        await settled()
    await outbox.lose()
    assert call.discards == 1


async def test_there_is_room_up_to_the_high_water_mark_and_again_when_enough_was_taken() -> None:
    transport = MemoryTransport()
    transport.hold()
    outbox = Outbox(transport, 4)
    passed: list[str] = []

    async def read() -> None:
        await outbox.room()
        passed.append("read")

    async with running(outbox), anyio.create_task_group() as tasks:
        outbox.put(OutgoingMessage(b"1234"))
        with anyio.fail_after(5):
            await outbox.room()
        outbox.put(OutgoingMessage(b"5"))
        tasks.start_soon(read)
        await settled()
        assert passed == []
        transport.resume()
        await settled()
        assert passed == ["read"]


async def test_flushed_waits_until_the_transport_has_taken_everything() -> None:
    transport = MemoryTransport()
    transport.hold()
    outbox = Outbox(transport, 1000)
    done: list[str] = []

    async def flush() -> None:
        await outbox.flushed()
        done.append("flushed")

    async with running(outbox), anyio.create_task_group() as tasks:
        outbox.put(OutgoingMessage(b"1"))
        tasks.start_soon(flush)
        await settled()
        outbox.put(OutgoingMessage(b"2"))
        assert done == []
        transport.resume()
        await settled()
        assert done == ["flushed"]
    assert transport.sent == [b"1", b"2"]


async def test_an_empty_outbox_has_room_and_is_flushed() -> None:
    outbox = Outbox(MemoryTransport(), 0)
    with anyio.fail_after(5):
        await outbox.room()
        await outbox.flushed()


async def test_one_failure_to_take_back_does_not_keep_the_others() -> None:
    async def fail() -> None:
        raise OSError("the disk is gone")

    call = Call()
    outbox = Outbox(MemoryTransport(), 1000)
    outbox.put(OutgoingMessage(b"1", [fail, call.discard]))
    outbox.put(OutgoingMessage(b"2", [call.discard]))
    await outbox.lose()
    assert call.discards == 2
