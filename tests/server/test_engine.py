from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine_doubles import (
    QUICK,
    Call,
    Hang,
    MemoryStore,
    MemoryTransport,
    Peer,
    ScriptedResolver,
    Spilling,
    connected,
    hanging,
    idle,
    make_dispatcher,
    request_of,
    settled,
    wait_for,
)
from sessionref.protocol.errors import ReadFailedReason, read_failed
from sessionref.protocol.framing import Broken, Garbage, Message, TooLong
from sessionref.protocol.limits import Limits
from sessionref.server.engine import ACCEPTED_AT_ONCE, Connection, ConnectionEnd
from sessionref.server.resolver import Resolver
from sessionref.server.settings import Settings
from sessionref.server.sources import SessionSources
from sessionref.server.spill import LocalSpillStore, SavedSpill, SpillTransaction
from sessionref.server.threads import WorkerThreads
from sessionref.server.transport import TransportBroken

ONE_AT_A_TIME = replace(QUICK, max_concurrent_requests=1, max_queued_requests=1)
NO_DRAIN = replace(QUICK, drain_seconds=0.0)
LONG_DRAIN = replace(QUICK, drain_seconds=60.0)


def code_of(answer: Any) -> Any:
    """The number of the error that an answer carries, None if it carries none."""
    return answer.get("error", {}).get("code")


def prepare_of(identity: Any, session_id: str) -> dict[str, Any]:
    """A request to prepare a message that refers to one session."""
    params = {"agentId": "agent", "content": "text", "references": [{"sessionId": session_id}]}
    return {"jsonrpc": "2.0", "id": identity, "method": "sessionReferenceResolver/prepare", "params": params}


# Answers and ids.


@pytest.mark.parametrize(
    "written",
    [
        "0",
        "1",
        '"1"',
        "1.5",
        "-7",
        "9007199254740993",
        "123456789012345678901234567890",
        '""',
        '"\\ud83d"',
        '"a\\udc00\\ud83db"',
        '"😀"',
        "1e300",
    ],
)
async def test_an_id_is_echoed_by_value_and_type(written: str) -> None:
    async with connected() as peer:
        peer.send(b'{"jsonrpc":"2.0","id":%b,"method":"initialize"}' % written.encode())
        answer = await peer.answer()
    assert type(answer["id"]) is type(json.loads(written))
    assert answer["id"] == json.loads(written)
    assert "result" in answer


@pytest.mark.parametrize("written", ["1", '"1"', "1.5", "123456789012345678901234567890", '"\\ud83d"'])
async def test_an_id_is_echoed_byte_by_byte(written: str) -> None:
    async with connected() as peer:
        peer.send(b'{"jsonrpc":"2.0","id":%b,"method":"nothing"}' % written.encode())
        await peer.answer()
        assert peer.transport.sent[0].startswith(b'{"jsonrpc":"2.0","id":%b,"error":' % written.encode())


async def test_ids_of_different_type_or_value_are_in_flight_together() -> None:
    call = Call()
    identities: list[Any] = [1, "1", 1.5, 2**70, "\ud83d", "\ude00", ""]
    async with connected(ScriptedResolver(held=call)) as peer:
        for identity in identities:
            peer.ask(identity, "held")
        await peer.no_answer()
        call.release()
        answers = await peer.answers(len(identities))
    assert [(type(answer["id"]), answer["id"]) for answer in answers] == [(type(one), one) for one in identities]
    assert all(answer["result"] == [] for answer in answers)


@pytest.mark.parametrize(("first", "second"), [("1", "1.0"), ("1e2", "100"), ("-0.0", "0")])
async def test_ids_of_equal_value_are_one_id(first: str, second: str) -> None:
    call = Call()
    async with connected(ScriptedResolver(held=call)) as peer:
        for written in (first, second):
            peer.send(json.dumps(request_of("ID", "held")).replace('"ID"', written).encode())
        refused = await peer.answer()
        call.release()
        assert (await peer.answer())["result"] == []
    assert (code_of(refused), refused["id"]) == (-32600, None)


@pytest.mark.parametrize("identity", [None, True, False, [1], {"a": 1}])
async def test_any_other_id_is_an_invalid_request_and_runs_nothing(identity: Any) -> None:
    call = Call()
    async with connected(ScriptedResolver(held=call)) as peer:
        peer.ask(identity, "held")
        answer = await peer.answer()
        await peer.no_answer()
    assert (code_of(answer), answer["id"], call.runs) == (-32600, None, 0)


async def test_a_request_with_an_id_in_flight_is_refused_and_the_first_is_still_answered() -> None:
    first, second = Call(["first"]), Call(["second"])
    async with connected(ScriptedResolver(first=first, second=second)) as peer:
        peer.ask(0, "first")
        peer.ask(0, "second")
        refused = await peer.answer()
        first.release()
        answer = await peer.answer()
        await peer.no_answer()
    assert refused["id"] is None
    assert refused["error"]["code"] == -32600
    assert refused["error"]["data"] == {"id": 0}
    assert answer == {"jsonrpc": "2.0", "id": 0, "result": ["first"]}
    assert second.runs == 0


async def test_a_refused_duplicate_of_a_surrogate_id_names_it() -> None:
    call = Call()
    async with connected(ScriptedResolver(held=call)) as peer:
        peer.ask("\ud83d", "held")
        peer.ask("\ud83d", "held")
        assert (await peer.answer())["error"]["data"] == {"id": "\ud83d"}
        call.release()
        assert (await peer.answer())["id"] == "\ud83d"


async def test_an_id_is_free_again_after_its_answer() -> None:
    async with connected() as peer:
        for _ in range(3):
            peer.ask(1)
            assert (await peer.answer())["result"] == []


async def test_an_id_is_free_again_after_a_cancel() -> None:
    held = Call()
    async with connected(ScriptedResolver(held=held)) as peer:
        peer.ask(1, "held")
        peer.cancel(1)
        peer.ask(1)
        assert [code_of(answer) for answer in await peer.answers(2)] == [-32800, None]
        held.release()
        await peer.no_answer()


async def test_requests_are_answered_in_the_order_in_which_they_end() -> None:
    slow, fast = Call(), Call()
    async with connected(ScriptedResolver(slow=slow, fast=fast)) as peer:
        peer.ask(1, "slow")
        peer.ask(2, "fast")
        fast.release()
        assert (await peer.answer())["id"] == 2
        slow.release()
        assert (await peer.answer())["id"] == 1


# Cancellation.


async def test_a_cancelled_request_is_answered_at_once_and_never_again() -> None:
    call = Call(["late"])
    async with connected(ScriptedResolver(held=call)) as peer:
        peer.ask(1, "held")
        await call.started.wait()
        peer.cancel(1)
        answer = await peer.answer()
        call.release()
        await peer.no_answer()
    assert answer["id"] == 1
    assert code_of(answer) == -32800
    assert answer["error"]["data"] == {"code": "SESSION_REFERENCE_CANCELLED"}


async def test_a_cancel_right_behind_its_request_keeps_it_from_starting() -> None:
    call = Call(released=True)
    async with connected(ScriptedResolver(held=call)) as peer:
        peer.ask(1, "held")
        peer.cancel(1)
        assert code_of(await peer.answer()) == -32800
        await peer.no_answer()
    assert call.runs == 0


async def test_a_queued_request_is_cancelled_before_it_starts() -> None:
    running, queued = Call(), Call(released=True)
    async with connected(ScriptedResolver(running=running, queued=queued), ONE_AT_A_TIME) as peer:
        peer.ask(1, "running")
        await running.started.wait()
        peer.ask(2, "queued")
        await settled()
        peer.cancel(2)
        answer = await peer.answer()
        assert (answer["id"], code_of(answer)) == (2, -32800)
        running.release()
        assert (await peer.answer())["id"] == 1
        await peer.no_answer()
    assert queued.runs == 0


async def test_the_place_of_a_cancelled_request_goes_to_the_next_in_the_queue() -> None:
    running, queued = Call(), Call(["ran"], released=True)
    async with connected(ScriptedResolver(running=running, queued=queued), ONE_AT_A_TIME) as peer:
        peer.ask(1, "running")
        peer.ask(2, "queued")
        await running.started.wait()
        peer.cancel(1)
        assert [(answer["id"], code_of(answer)) for answer in await peer.answers(2)] == [(1, -32800), (2, None)]


async def test_a_cancel_after_the_answer_changes_nothing() -> None:
    call = Spilling(["done"], released=True)
    async with connected(ScriptedResolver(spilling=call)) as peer:
        peer.ask(1, "spilling")
        assert (await peer.answer())["result"] == ["done"]
        peer.cancel(1)
        await peer.no_answer()
    assert call.discards == 0


async def test_a_cancel_after_the_result_was_queued_changes_nothing() -> None:
    call = Spilling(["done"], released=True)
    async with connected(ScriptedResolver(spilling=call)) as peer:
        peer.transport.hold()
        peer.ask(1, "spilling")
        await settled()
        peer.cancel(1)
        await settled()
        peer.transport.resume()
        assert (await peer.answer())["result"] == ["done"]
        await peer.no_answer()
    assert call.discards == 0


@pytest.mark.parametrize("other", ["1", 1.5, 2, "", "\ud800"])
async def test_a_cancel_of_another_id_is_ignored(other: Any) -> None:
    call = Call(["done"])
    async with connected(ScriptedResolver(held=call)) as peer:
        peer.ask(1, "held")
        await call.started.wait()
        peer.cancel(other)
        await peer.no_answer()
        call.release()
        assert (await peer.answer())["result"] == ["done"]


@pytest.mark.parametrize("identity", [0, "", "1", 1.5, 2**70, "\ud800"])
async def test_requests_of_every_kind_of_id_can_be_cancelled(identity: Any) -> None:
    call = Call()
    async with connected(ScriptedResolver(held=call)) as peer:
        peer.ask(identity, "held")
        peer.cancel(identity)
        answer = await peer.answer()
    assert (answer["id"], code_of(answer)) == (identity, -32800)


async def test_two_cancels_give_one_answer() -> None:
    async with connected(ScriptedResolver(held=Call())) as peer:
        peer.ask(1, "held")
        peer.cancel(1)
        peer.cancel(1)
        assert code_of(await peer.answer()) == -32800
        await peer.no_answer()


async def test_a_cancel_can_be_given_by_position() -> None:
    async with connected(ScriptedResolver(held=Call())) as peer:
        peer.ask(1, "held")
        peer.notify("$/cancelRequest", [1])
        assert code_of(await peer.answer()) == -32800


async def test_a_cancel_is_not_a_request_of_another_connection() -> None:
    call = Call(["done"])
    resolver = ScriptedResolver(held=call)
    async with connected(resolver) as first, connected(resolver) as second:
        first.ask(1, "held")
        await call.started.wait()
        second.cancel(1)
        await first.no_answer()
        call.release()
        assert (await first.answer())["result"] == ["done"]


async def test_a_result_that_was_made_in_spite_of_a_cancel_is_taken_back_and_not_published() -> None:
    class Stubborn(Spilling):
        async def run(self) -> Any:
            with anyio.CancelScope(shield=True):
                return await super().run()

    call = Stubborn(["late"])
    async with connected(ScriptedResolver(stubborn=call)) as peer:
        peer.ask(1, "stubborn")
        await call.started.wait()
        peer.cancel(1)
        assert code_of(await peer.answer()) == -32800
        call.release()
        await peer.no_answer()
    assert call.discards == 1


async def test_a_failure_after_a_cancel_is_not_answered() -> None:
    class Stubborn(Call):
        async def run(self) -> Any:
            with anyio.CancelScope(shield=True):
                return await super().run()

    call = Stubborn(error=read_failed(ReadFailedReason.IO))
    async with connected(ScriptedResolver(stubborn=call)) as peer:
        peer.ask(1, "stubborn")
        await call.started.wait()
        peer.cancel(1)
        assert code_of(await peer.answer()) == -32800
        call.release()
        await peer.no_answer()


def hanging_resolver(threads: WorkerThreads, hang: Hang) -> Resolver:
    """A resolver whose session `any` hangs when it is read."""
    return Resolver(SessionSources([MemoryStore({"any": []}, hang)]), Settings(), threads=threads, spills=None)


async def test_a_cancel_is_answered_while_the_storage_hangs() -> None:
    threads = WorkerThreads(1)
    async with hanging(threads) as hang, connected(hanging_resolver(threads, hang)) as peer:
        peer.send(prepare_of(1, "any"))
        await wait_for(hang.entered)
        peer.cancel(1)
        answer = await peer.answer()
        assert (answer["id"], code_of(answer)) == (1, -32800)
        assert threads.busy == 1
        hang.wake.set()
        await idle(threads)
        await peer.no_answer()


class HeldSpillStore(LocalSpillStore):
    """A spill store whose save waits, its file written but for the last piece, until the test lets it go on."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.root = root
        self.entered = threading.Event()
        self.wake = threading.Event()
        self.left = threading.Event()

    @property
    def files(self) -> list[Path]:
        """What is on disk now."""
        return [path for path in self.root.rglob("*") if path.is_file()]

    def save(self, owner_id: str, number: int, content: Iterable[bytes], transaction: SpillTransaction) -> SavedSpill:
        """Save as the real one, but slowly."""
        try:
            return super().save(owner_id, number, self._held(content), transaction)
        finally:
            self.left.set()

    def _held(self, content: Iterable[bytes]) -> Iterable[bytes]:
        yield from content
        self.entered.set()
        self.wake.wait()


def spilling_resolver(spills: HeldSpillStore, threads: WorkerThreads | None = None) -> Resolver:
    """A resolver whose session `long` does not fit and is spilled."""
    sources = SessionSources([MemoryStore({"long": ["x" * 5000, "y" * 5000]})])
    return Resolver(sources, Settings(max_reference_bytes=2000), threads=threads or WorkerThreads(2), spills=spills)


async def test_a_save_that_ends_after_the_cancel_is_removed_and_not_published(tmp_path: Path) -> None:
    spills, threads = HeldSpillStore(tmp_path / "spills"), WorkerThreads(2)
    try:
        async with connected(spilling_resolver(spills, threads)) as peer:
            peer.send(prepare_of(1, "long"))
            await wait_for(spills.entered)
            assert len(spills.files) == 1
            peer.cancel(1)
            assert code_of(await peer.answer()) == -32800
            spills.wake.set()
            await wait_for(spills.left)
            await peer.no_answer()
            assert spills.files == []
    finally:
        spills.wake.set()
        await idle(threads)


async def test_a_spill_stays_when_its_answer_was_handed_over(tmp_path: Path) -> None:
    spills = HeldSpillStore(tmp_path / "spills")
    spills.wake.set()
    async with connected(spilling_resolver(spills)) as peer:
        peer.send(prepare_of(1, "long"))
        answer = await peer.answer()
    text = answer["result"]["additionalContext"]["content"][0]["text"]
    assert [str(path) in text for path in spills.files] == [True]


async def test_a_spill_is_removed_when_its_answer_cannot_be_handed_over(tmp_path: Path) -> None:
    spills = HeldSpillStore(tmp_path / "spills")
    spills.wake.set()
    async with connected(spilling_resolver(spills)) as peer:
        peer.transport.hold()
        peer.send(prepare_of(1, "long"))
        await wait_for(spills.left)
        await settled()
        assert len(spills.files) == 1
        peer.transport.break_output()
        assert await peer.finished() is ConnectionEnd.BROKEN
    assert spills.files == []


# Batches.


async def test_the_array_of_a_batch_goes_out_when_it_is_full_in_the_order_of_its_members() -> None:
    slow, fast = Call(["slow"]), Call(["fast"], released=True)
    async with connected(ScriptedResolver(slow=slow, fast=fast)) as peer:
        peer.send([request_of(1, "slow"), request_of(2, "fast"), request_of("3", method="initialize", params=None)])
        await fast.started.wait()
        await peer.no_answer()
        slow.release()
        answers = await peer.answer()
        await peer.no_answer()
    assert [answer["id"] for answer in answers] == [1, 2, "3"]
    assert [answer["result"] for answer in answers[:2]] == [["slow"], ["fast"]]


async def test_notifications_take_no_place_in_a_batch() -> None:
    notification = {"jsonrpc": "2.0", "method": "sessionReferenceResolver/assembled", "params": {"agentId": "a"}}
    async with connected() as peer:
        peer.send([notification, request_of(1), notification, request_of(2), notification])
        answers = await peer.answer()
        await peer.no_answer()
    assert [answer["id"] for answer in answers] == [1, 2]


async def test_a_batch_of_notifications_is_not_answered() -> None:
    async with connected() as peer:
        peer.send([{"jsonrpc": "2.0", "method": "sessionReferenceResolver/assembled", "params": {"agentId": "a"}}] * 3)
        await peer.no_answer()
        peer.ask(1)
        assert (await peer.answer())["id"] == 1


async def test_each_invalid_member_of_a_batch_is_answered_in_its_place() -> None:
    async with connected() as peer:
        peer.send([1, request_of(1), {"jsonrpc": "2.0", "id": 2, "method": 7}, {}, [], request_of(3, method="nothing")])
        answers = await peer.answer()
        await peer.no_answer()
    assert [(answer["id"], code_of(answer)) for answer in answers] == [
        (None, -32600),
        (1, None),
        (2, -32600),
        (None, -32600),
        (None, -32600),
        (3, -32601),
    ]


async def test_an_array_of_one_member_is_answered_with_an_array_of_one() -> None:
    async with connected() as peer:
        peer.send([request_of(1)])
        assert [answer["id"] for answer in await peer.answer()] == [1]


async def test_a_batch_that_is_empty_or_too_large_is_answered_once_and_runs_nothing() -> None:
    call = Call(released=True)
    async with connected(ScriptedResolver(held=call), replace(QUICK, max_batch=2)) as peer:
        peer.send([])
        peer.send([request_of(identity, "held") for identity in range(3)])
        empty, too_large = await peer.answers(2)
        await peer.no_answer()
    assert (empty["id"], code_of(empty)) == (None, -32600)
    assert (too_large["id"], code_of(too_large), too_large["error"]["data"]) == (
        None,
        -32600,
        {"limit": 2, "actual": 3},
    )
    assert call.runs == 0


async def test_a_duplicate_inside_a_batch_is_refused_in_its_place() -> None:
    call = Call(["done"])
    async with connected(ScriptedResolver(held=call)) as peer:
        peer.send([request_of(1, "held"), request_of(1, "held"), request_of(2)])
        await peer.no_answer()
        call.release()
        answers = await peer.answer()
    assert [(answer["id"], code_of(answer)) for answer in answers] == [(1, None), (None, -32600), (2, None)]
    assert answers[1]["error"]["data"] == {"id": 1}
    assert call.runs == 1


async def test_the_id_of_a_member_stays_taken_until_the_array_goes_out() -> None:
    slow = Call()
    async with connected(ScriptedResolver(slow=slow)) as peer:
        peer.send([request_of(1), request_of(2, "slow")])
        await slow.started.wait()
        peer.ask(1)
        refused = await peer.answer()
        slow.release()
        assert [answer["id"] for answer in await peer.answer()] == [1, 2]
        peer.ask(1)
        assert (await peer.answer())["id"] == 1
    assert (code_of(refused), refused["error"]["data"]) == (-32600, {"id": 1})


async def test_a_cancel_in_the_same_batch_acts_on_the_members_before_it() -> None:
    async with connected(ScriptedResolver(held=Call())) as peer:
        cancel = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}}
        peer.send([request_of(1, "held"), cancel, request_of(2)])
        assert [(answer["id"], code_of(answer)) for answer in await peer.answer()] == [(1, -32800), (2, None)]


async def test_a_cancelled_member_that_has_its_result_loses_it_and_its_spill() -> None:
    spilling, slow = Spilling(["done"], released=True), Call()
    async with connected(ScriptedResolver(spilling=spilling, slow=slow)) as peer:
        peer.send([request_of(1, "spilling"), request_of(2, "slow")])
        await slow.started.wait()
        await settled()
        peer.cancel(1)
        await peer.no_answer()
        assert spilling.discards == 1
        slow.release()
        answers = await peer.answer()
        await peer.no_answer()
    assert [(answer["id"], code_of(answer)) for answer in answers] == [(1, -32800), (2, None)]
    assert spilling.discards == 1


async def test_cancelling_all_members_sends_the_array_at_once() -> None:
    async with connected(ScriptedResolver(held=Call())) as peer:
        peer.send([request_of(1, "held"), request_of(2, "held")])
        peer.cancel(1)
        await peer.no_answer()
        peer.cancel(2)
        assert [code_of(answer) for answer in await peer.answer()] == [-32800, -32800]
        await peer.no_answer()


async def test_a_batch_whose_array_is_lost_takes_back_every_member() -> None:
    calls = {name: Spilling(released=True) for name in ("one", "two")}
    async with connected(ScriptedResolver(**calls)) as peer:
        peer.transport.hold()
        peer.send([request_of(1, "one"), request_of(2, "two")])
        await settled()
        peer.transport.break_output()
        await peer.finished()
    assert [call.discards for call in calls.values()] == [1, 1]


# Limits.


async def test_a_request_beyond_the_queue_is_refused_and_may_come_again() -> None:
    call = Call()
    async with connected(ScriptedResolver(held=call), ONE_AT_A_TIME) as peer:
        for identity in (1, 2, 3):
            peer.ask(identity, "held")
        refused = await peer.answer()
        await peer.no_answer()
        assert call.runs == 1
        call.release()
        assert [answer["id"] for answer in await peer.answers(2)] == [1, 2]
        peer.ask(3, "held")
        assert (await peer.answer())["result"] == []
    assert refused["id"] == 3
    assert refused["error"]["code"] == -32000
    assert refused["error"]["data"] == {"limit": 1, "retryable": True}


async def test_a_cancel_makes_room_in_a_full_queue() -> None:
    call = Call()
    async with connected(ScriptedResolver(held=call), ONE_AT_A_TIME) as peer:
        peer.ask(1, "held")
        peer.ask(2, "held")
        peer.cancel(2)
        peer.ask(3, "held")
        assert [(answer["id"], code_of(answer)) for answer in [await peer.answer()]] == [(2, -32800)]
        call.release()
        assert [answer["id"] for answer in await peer.answers(2)] == [1, 3]


async def test_no_more_requests_run_at_once_than_may() -> None:
    call = Call()
    async with connected(ScriptedResolver(held=call), replace(QUICK, max_concurrent_requests=2)) as peer:
        for identity in range(5):
            peer.ask(identity, "held")
        await settled()
        assert call.runs == 2
        call.release()
        await peer.answers(5)
        assert call.runs == 5


async def test_calls_that_need_no_waiting_are_answered_while_the_queue_is_full() -> None:
    async with connected(ScriptedResolver(held=Call()), ONE_AT_A_TIME) as peer:
        peer.ask(1, "held")
        peer.ask(2, "held")
        peer.send({"jsonrpc": "2.0", "id": 3, "method": "initialize"})
        assert (await peer.answer())["id"] == 3


async def test_a_request_that_takes_too_long_is_cancelled_by_the_server() -> None:
    call = Call(["late"])
    async with connected(ScriptedResolver(held=call), replace(QUICK, request_timeout_seconds=0.05)) as peer:
        peer.ask(1, "held")
        answer = await peer.answer()
        call.release()
        await peer.no_answer()
        peer.ask(1)
        assert (await peer.answer())["result"] == []
    assert answer["error"]["code"] == -32802
    assert answer["error"]["data"] == {"code": "SESSION_REFERENCE_CANCELLED", "retryable": True}


async def test_a_request_that_waits_too_long_in_the_queue_is_cancelled_by_the_server() -> None:
    limits = replace(ONE_AT_A_TIME, request_timeout_seconds=0.05)
    async with connected(ScriptedResolver(held=Call()), limits) as peer:
        peer.ask(1, "held")
        peer.ask(2, "held")
        answers = await peer.answers(2)
        await peer.no_answer()
    assert sorted((answer["id"], code_of(answer)) for answer in answers) == [(1, -32802), (2, -32802)]


async def test_a_member_of_a_batch_that_takes_too_long_does_not_take_the_others_along() -> None:
    limits = replace(QUICK, request_timeout_seconds=0.05)
    async with connected(ScriptedResolver(held=Call()), limits) as peer:
        peer.send([request_of(1), request_of(2, "held")])
        assert [(answer["id"], code_of(answer)) for answer in await peer.answer()] == [(1, None), (2, -32802)]


async def test_a_request_that_timed_out_while_its_storage_hangs_is_answered_once() -> None:
    threads, limits = WorkerThreads(1), replace(QUICK, request_timeout_seconds=0.05)
    async with hanging(threads) as hang, connected(hanging_resolver(threads, hang), limits) as peer:
        peer.send(prepare_of(1, "any"))
        assert code_of(await peer.answer()) == -32802
        hang.wake.set()
        await idle(threads)
        await peer.no_answer()


async def test_reading_pauses_while_more_waits_than_the_high_water_mark_and_goes_on_after() -> None:
    async with connected(limits=replace(QUICK, write_high_water_bytes=100)) as peer:
        peer.transport.hold()
        for identity in range(20):
            peer.send({"jsonrpc": "2.0", "id": identity, "method": "initialize"})
        await settled()
        assert peer.transport.received == 1
        peer.transport.resume()
        assert [answer["id"] for answer in await peer.answers(20)] == list(range(20))


async def test_reading_goes_on_while_less_waits_than_the_high_water_mark() -> None:
    async with connected() as peer:
        peer.transport.hold()
        for identity in range(20):
            peer.send({"jsonrpc": "2.0", "id": identity, "method": "initialize"})
        await settled()
        assert peer.transport.received == 20
        peer.transport.resume()
        assert len(await peer.answers(20)) == 20


async def test_others_get_their_turn_while_many_messages_wait_to_be_read() -> None:
    count = 10 * ACCEPTED_AT_ONCE
    received_at_first_answer: list[int] = []
    async with connected() as peer:
        for identity in range(count):
            peer.ask(identity)

        async def watch() -> None:
            await peer.answer()
            received_at_first_answer.append(peer.transport.received)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
        await peer.answers(count - 1)
    assert received_at_first_answer[0] < count


# What the transport reports.


async def test_a_message_that_is_too_long_is_answered_once_and_the_next_request_works() -> None:
    async with connected() as peer:
        peer.transport.feed(TooLong(4096, 5000))
        peer.transport.feed(TooLong(4096, None))
        peer.ask(1)
        told, untold, answer = await peer.answers(3)
    assert [told["id"], told["error"]["code"], told["error"]["data"]] == [None, -32600, {"limit": 4096, "actual": 5000}]
    assert [untold["id"], untold["error"]["code"], untold["error"]["data"]] == [None, -32600, {"limit": 4096}]
    assert answer["id"] == 1


async def test_garbage_is_answered_with_a_parse_error_and_the_next_request_works() -> None:
    async with connected() as peer:
        peer.transport.feed(Garbage())
        peer.ask(1)
        refused, answer = await peer.answers(2)
    assert (refused["id"], code_of(refused), answer["id"]) == (None, -32700, 1)


@pytest.mark.parametrize("data", [b"{", b'{"a":NaN}', b"\xff", b"[1,", b'{"id":1e999}', b"nonsense"])
async def test_what_is_no_json_is_answered_with_a_parse_error_and_the_next_request_works(data: bytes) -> None:
    async with connected() as peer:
        peer.send(data)
        peer.ask(1)
        refused, answer = await peer.answers(2)
    assert (refused["id"], code_of(refused), answer["id"]) == (None, -32700, 1)


async def test_a_message_nested_ten_thousand_deep_is_refused_and_the_next_request_works() -> None:
    async with connected() as peer:
        peer.send(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":' + b"[" * 10_000 + b"]" * 10_000 + b"}")
        peer.ask(1)
        refused, answer = await peer.answers(2)
    assert (refused["id"], code_of(refused), answer["id"]) == (None, -32600, 1)


async def test_a_stream_that_cannot_be_read_on_ends_the_connection_after_what_is_in_flight() -> None:
    call = Call(["done"])
    async with connected(ScriptedResolver(held=call), LONG_DRAIN) as peer:
        peer.ask(1, "held")
        peer.transport.feed(Broken("the header block is too long"))
        peer.ask(2)
        await call.started.wait()
        await peer.no_answer()
        call.release()
        assert (await peer.answer())["result"] == ["done"]
        assert await peer.finished() is ConnectionEnd.UNREADABLE
        await peer.no_answer()


# Failures.


async def test_a_domain_failure_is_answered_with_its_facts() -> None:
    call = Call(error=read_failed(ReadFailedReason.NOT_FOUND, "gone"), released=True)
    async with connected(ScriptedResolver(failing=call)) as peer:
        peer.ask(1, "failing")
        answer = await peer.answer()
    assert answer["error"]["code"] == -32015
    assert answer["error"]["data"] == {
        "code": "SESSION_REFERENCE_READ_FAILED",
        "reason": "not-found",
        "sessionId": "gone",
    }


async def test_an_unexpected_exception_is_an_incident_that_only_the_log_explains(
    caplog: pytest.LogCaptureFixture,
) -> None:
    call = Call(error=ValueError("a secret at /home/somebody/.dsh"), released=True)
    async with connected(ScriptedResolver(failing=call)) as peer:
        peer.ask(1, "failing")
        answer = await peer.answer()
        sent = peer.transport.sent[0]
        peer.ask(1)
        assert (await peer.answer())["result"] == []
    assert (answer["id"], code_of(answer)) == (1, -32603)
    assert list(answer["error"]["data"]) == ["incident"]
    assert answer["error"]["data"]["incident"] in caplog.text
    assert "a secret at /home/somebody/.dsh" in caplog.text
    assert not any(word in sent for word in (b"secret", b"ValueError", b"Traceback", b"/home"))


async def test_each_incident_has_an_id_of_its_own() -> None:
    call = Call(error=ValueError("x"), released=True)
    async with connected(ScriptedResolver(failing=call)) as peer:
        peer.ask(1, "failing")
        peer.ask(2, "failing")
        first, second = await peer.answers(2)
    assert first["error"]["data"]["incident"] != second["error"]["data"]["incident"]


async def test_an_exception_group_of_a_worker_is_an_incident_too() -> None:
    call = Call(error=ExceptionGroup("several", [ValueError("x")]), released=True)
    async with connected(ScriptedResolver(failing=call)) as peer:
        peer.ask(1, "failing")
        assert code_of(await peer.answer()) == -32603


async def test_a_result_that_json_cannot_hold_is_an_incident(caplog: pytest.LogCaptureFixture) -> None:
    call = Call([object()], released=True)
    async with connected(ScriptedResolver(odd=call)) as peer:
        peer.ask(1, "odd")
        answer = await peer.answer()
        await peer.no_answer()
    assert (answer["id"], code_of(answer)) == (1, -32603)
    assert answer["error"]["data"]["incident"] in caplog.text


async def test_a_result_that_json_cannot_hold_takes_back_what_it_had_spilled() -> None:
    call = Spilling([object()], released=True)
    async with connected(ScriptedResolver(odd=call)) as peer:
        peer.ask(1, "odd")
        assert code_of(await peer.answer()) == -32603
        await settled()
        assert call.discards == 1


async def test_a_failed_request_gives_its_place_back() -> None:
    call = Call(error=ValueError("x"), released=True)
    async with connected(ScriptedResolver(failing=call), ONE_AT_A_TIME) as peer:
        for _ in range(5):
            peer.ask(1, "failing")
            assert code_of(await peer.answer()) == -32603


# Notifications.


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("no/such/method", {}),
        ("sessionReferenceResolver/assembled", {}),
        ("sessionReferenceResolver/assembled", {"agentId": 7}),
        ("sessionReferenceResolver/assembled", {"agentId": "a", "unknown": 1}),
        ("$/cancelRequest", {}),
        ("$/cancelRequest", {"id": None}),
        ("$/cancelRequest", {"id": [1]}),
        ("$/cancelRequest", {"id": True}),
        ("$/cancelRequest", [1, 2, 3]),
        ("exit", {"unknown": 1}),
        ("\ud800", {}),
    ],
)
async def test_a_notification_is_never_answered_even_when_it_is_wrong(method: str, params: Any) -> None:
    async with connected() as peer:
        peer.notify(method, params)
        await peer.no_answer()
        peer.ask(1)
        assert (await peer.answer())["id"] == 1


async def test_a_request_sent_as_a_notification_does_not_run() -> None:
    call = Call(released=True)
    async with connected(ScriptedResolver(held=call)) as peer:
        peer.notify("sessionReferenceResolver/candidates", {"agentId": "a", "query": "held"})
        await peer.no_answer()
    assert call.runs == 0


async def test_a_shutdown_sent_as_a_notification_does_not_run() -> None:
    async with connected() as peer:
        peer.notify("shutdown")
        peer.ask(1)
        assert (await peer.answer())["result"] == []


async def test_a_notification_sent_as_a_request_is_answered_with_null() -> None:
    async with connected(ScriptedResolver(held=Call())) as peer:
        peer.ask(1, "held")
        peer.send({"jsonrpc": "2.0", "id": 2, "method": "$/cancelRequest", "params": {"id": 1}})
        answers = await peer.answers(2)
    assert [(answer["id"], code_of(answer)) for answer in answers] == [(1, -32800), (2, None)]
    assert answers[1]["result"] is None


# The end.


async def test_requests_in_flight_finish_after_the_end_of_input() -> None:
    running, queued = Call(["first"]), Call(["second"], released=True)
    async with connected(
        ScriptedResolver(running=running, queued=queued), replace(ONE_AT_A_TIME, drain_seconds=60)
    ) as peer:
        peer.ask(1, "running")
        peer.ask(2, "queued")
        peer.close_input()
        await running.started.wait()
        await peer.no_answer()
        assert not peer.ended.is_set()
        running.release()
        assert [answer["result"] for answer in await peer.answers(2)] == [["first"], ["second"]]
        assert await peer.finished() is ConnectionEnd.END_OF_INPUT


async def test_what_does_not_finish_after_the_end_of_input_is_cancelled_by_the_server() -> None:
    quick, held, queued = Call(["done"], released=True), Call(), Call()
    resolver = ScriptedResolver(quick=quick, held=held, queued=queued)
    async with connected(resolver, replace(ONE_AT_A_TIME, drain_seconds=0.05, max_queued_requests=2)) as peer:
        peer.ask(1, "quick")
        peer.ask(2, "held")
        peer.ask(3, "queued")
        peer.close_input()
        answers = await peer.answers(3)
        assert await peer.finished() is ConnectionEnd.END_OF_INPUT
        await peer.no_answer()
    assert [(answer["id"], code_of(answer)) for answer in answers] == [(1, None), (2, -32802), (3, -32802)]
    assert queued.runs == 0


async def test_a_hung_read_does_not_hold_up_the_end() -> None:
    threads = WorkerThreads(1)
    async with hanging(threads) as hang, connected(hanging_resolver(threads, hang), NO_DRAIN) as peer:
        peer.send(prepare_of(1, "any"))
        await wait_for(hang.entered)
        peer.close_input()
        assert code_of(await peer.answer()) == -32802
        assert await peer.finished() is ConnectionEnd.END_OF_INPUT
        assert threads.busy == 1


async def test_a_batch_that_is_not_full_after_the_drain_is_answered_once() -> None:
    held, spilling = Call(), Spilling(["done"], released=True)
    async with connected(ScriptedResolver(held=held, spilling=spilling), NO_DRAIN) as peer:
        peer.send([request_of(1, "held"), request_of(2, "spilling")])
        await held.started.wait()
        await spilling.started.wait()
        await settled()
        peer.close_input()
        answers = await peer.answer()
        await peer.finished()
        await peer.no_answer()
    assert [(answer["id"], code_of(answer)) for answer in answers] == [(1, -32802), (2, None)]
    assert spilling.discards == 0


async def test_a_member_that_has_its_result_keeps_it_when_the_drain_is_over() -> None:
    held, quick = Call(), Call(["done"], released=True)
    async with connected(ScriptedResolver(held=held, quick=quick), NO_DRAIN) as peer:
        peer.send([request_of(1, "quick"), request_of(2, "held")])
        await held.started.wait()
        await settled()
        peer.close_input()
        answers = await peer.answer()
        await peer.finished()
    assert [(answer["id"], code_of(answer)) for answer in answers] == [(1, None), (2, -32802)]


async def test_answers_are_handed_over_as_long_as_the_drain_lasts() -> None:
    limits = Limits(drain_seconds=60, exit_grace_seconds=0)
    async with connected(limits=limits) as peer:
        peer.transport.hold()
        peer.ask(1)
        await settled()
        peer.close_input()
        await settled()
        peer.transport.resume()
        assert (await peer.answer())["result"] == []


async def test_a_peer_that_takes_no_answers_does_not_hold_up_the_end() -> None:
    call = Spilling(["done"], released=True)
    limits = Limits(drain_seconds=0.02, exit_grace_seconds=0.05)
    async with connected(ScriptedResolver(spilling=call), limits) as peer:
        peer.transport.hold()
        peer.ask(1, "spilling")
        await settled()
        peer.close_input()
        assert await peer.finished() is ConnectionEnd.END_OF_INPUT
        assert peer.transport.sent == []
    assert call.discards == 1


async def test_exit_alone_ends_the_connection_without_a_drain() -> None:
    async with connected(ScriptedResolver(held=Call()), LONG_DRAIN) as peer:
        peer.ask(1, "held")
        peer.notify("exit")
        peer.ask(2)
        assert code_of(await peer.answer()) == -32802
        assert await peer.finished() is ConnectionEnd.EXIT_ALONE
        await peer.no_answer()


async def test_shutdown_then_exit_ends_the_connection_without_a_drain() -> None:
    async with connected(ScriptedResolver(held=Call()), LONG_DRAIN) as peer:
        peer.ask(1, "held")
        peer.send({"jsonrpc": "2.0", "id": 2, "method": "shutdown", "params": None})
        assert await peer.answer() == {"jsonrpc": "2.0", "id": 2, "result": None}
        peer.notify("exit")
        assert code_of(await peer.answer()) == -32802
        assert await peer.finished() is ConnectionEnd.EXIT_AFTER_SHUTDOWN


async def test_after_shutdown_requests_are_refused_and_those_in_flight_finish() -> None:
    call = Call(["done"])
    async with connected(ScriptedResolver(held=call)) as peer:
        peer.ask(1, "held")
        peer.send({"jsonrpc": "2.0", "id": 2, "method": "shutdown"})
        await peer.answer()
        for method in ("sessionReferenceResolver/candidates", "initialize", "shutdown", "no/such/method"):
            peer.send({"jsonrpc": "2.0", "id": 3, "method": method})
            refused = await peer.answer()
            assert (refused["id"], code_of(refused)) == (3, -32600)
        call.release()
        assert (await peer.answer())["result"] == ["done"]


async def test_a_cancel_still_acts_after_shutdown() -> None:
    async with connected(ScriptedResolver(held=Call())) as peer:
        peer.ask(1, "held")
        peer.send({"jsonrpc": "2.0", "id": 2, "method": "shutdown"})
        await peer.answer()
        peer.cancel(1)
        assert code_of(await peer.answer()) == -32800


async def test_stop_drains_like_the_end_of_input() -> None:
    call = Call(["done"])
    async with connected(ScriptedResolver(held=call), LONG_DRAIN) as peer:
        peer.ask(1, "held")
        await call.started.wait()
        peer.connection.stop()
        peer.ask(2)
        await peer.no_answer()
        call.release()
        assert (await peer.answer())["result"] == ["done"]
        assert await peer.finished() is ConnectionEnd.STOPPED
        await peer.no_answer()


async def test_stop_acts_while_reading_pauses() -> None:
    limits = Limits(drain_seconds=0.02, exit_grace_seconds=0.05, write_high_water_bytes=100)
    async with connected(limits=limits) as peer:
        peer.transport.hold()
        for identity in range(3):
            peer.send({"jsonrpc": "2.0", "id": identity, "method": "initialize"})
        await settled()
        peer.connection.stop()
        assert await peer.finished() is ConnectionEnd.STOPPED


async def test_the_first_reason_to_end_is_the_one_that_counts() -> None:
    async with connected(ScriptedResolver(held=Call()), LONG_DRAIN) as peer:
        peer.notify("exit")
        await settled()
        peer.connection.stop()
        assert await peer.finished() is ConnectionEnd.EXIT_ALONE


async def test_the_ending_is_announced_before_the_drain() -> None:
    announced: list[ConnectionEnd] = []
    call = Call()
    async with connected(ScriptedResolver(held=call), LONG_DRAIN, on_ending=announced.append) as peer:
        peer.ask(1, "held")
        await call.started.wait()
        assert announced == []
        peer.close_input()
        await settled()
        assert announced == [ConnectionEnd.END_OF_INPUT]
        assert not peer.ended.is_set()
        call.release()
    assert announced == [ConnectionEnd.END_OF_INPUT]


async def test_the_transport_is_closed_at_the_end() -> None:
    async with connected() as peer:
        assert peer.transport.closed == 0
    assert peer.transport.closed == 1


async def test_the_transport_is_closed_when_the_connection_is_cancelled_from_outside() -> None:
    transport = MemoryTransport()
    call = Spilling(["done"], released=True)
    dispatcher = make_dispatcher(ScriptedResolver(spilling=call))
    transport.hold()
    transport.feed(Message(json.dumps(request_of(1, "spilling")).encode()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Connection(transport, dispatcher, LONG_DRAIN).run)
        await settled()
        tasks.cancel_scope.cancel()
    assert transport.closed == 1
    assert call.discards == 1


async def test_the_transport_is_closed_even_if_taking_back_hangs() -> None:
    class Hanging(Spilling):
        async def discard(self) -> None:
            await anyio.sleep_forever()

    limits = replace(QUICK, exit_grace_seconds=0.05)
    async with connected(ScriptedResolver(hanging=Hanging(released=True)), limits) as peer:
        peer.transport.hold()
        peer.ask(1, "hanging")
        await settled()
        peer.transport.break_output()
        await peer.finished()
    assert peer.transport.closed == 1


async def test_a_broken_output_cancels_at_once_what_is_in_flight() -> None:
    handed_over, waiting, held = Spilling(released=True), Spilling(released=True), Spilling()
    resolver = ScriptedResolver(handed=handed_over, waiting=waiting, held=held)
    async with connected(resolver, LONG_DRAIN) as peer:
        peer.ask(1, "handed")
        await peer.answer()
        peer.transport.hold()
        peer.ask(2, "waiting")
        peer.ask(3, "held")
        await held.started.wait()
        await settled()
        peer.transport.break_output()
        assert await peer.finished() is ConnectionEnd.BROKEN
        held.release()
        await settled()
    assert [call.discards for call in (handed_over, waiting, held)] == [0, 1, 0]
    assert peer.transport.closed == 1


async def test_a_reset_input_cancels_at_once_what_is_in_flight() -> None:
    held = Call()
    async with connected(ScriptedResolver(held=held), LONG_DRAIN) as peer:
        peer.ask(1, "held")
        await held.started.wait()
        peer.transport.feed(TransportBroken())
        assert await peer.finished() is ConnectionEnd.BROKEN


async def test_an_output_that_breaks_during_the_drain_ends_it() -> None:
    held, waiting = Call(), Spilling(released=True)
    async with connected(ScriptedResolver(held=held, waiting=waiting), LONG_DRAIN) as peer:
        peer.transport.hold()
        peer.ask(1, "held")
        peer.ask(2, "waiting")
        await settled()
        peer.close_input()
        await settled()
        assert not peer.ended.is_set()
        peer.transport.break_output()
        assert await peer.finished() is ConnectionEnd.BROKEN
    assert waiting.discards == 1


# Any interleaving.

IDENTITIES: tuple[Any, ...] = (0, 1, "1", 1.5, "\ud83d")
QUERIES = ("", "held", "spilling", "failing")

Member = tuple[str, Any, str]
Step = tuple[str, list[Member]]


def step_of(action: str) -> Step:
    """A step that sends nothing."""
    return action, []


def sending(member: Member) -> Step:
    """Send one message."""
    return "send", [member]


def sending_batch(members: list[Member]) -> Step:
    """Send an array of messages."""
    return "batch", members


requests: st.SearchStrategy[Member] = st.tuples(
    st.just("request"), st.sampled_from(IDENTITIES), st.sampled_from(QUERIES)
)
cancels: st.SearchStrategy[Member] = st.tuples(st.just("cancel"), st.sampled_from(IDENTITIES), st.just(""))
steps: st.SearchStrategy[Step] = st.one_of(
    st.one_of(requests, cancels).map(sending),
    st.lists(st.one_of(requests, cancels), min_size=1, max_size=5).map(sending_batch),
    st.sampled_from(("settle", "release", "hold", "resume")).map(step_of),
)
scripts = st.lists(steps, max_size=25)


def typed(identity: Any) -> tuple[str, Any]:
    """An identity that is equal to no other but itself."""
    return type(identity).__name__, identity


def asked(answer: Any) -> tuple[str, Any]:
    """The id of the request that an answer is for, refused duplicates included."""
    if answer["id"] is not None:
        return typed(answer["id"])
    assert code_of(answer) == -32600
    return typed(answer["error"]["data"]["id"])


def answered(sent: Sequence[bytes]) -> list[list[tuple[str, Any]]]:
    """For each answer the ids of the requests that it is for, in a comparable order."""
    decoded: list[Any] = [json.loads(data) for data in sent]
    arrays: list[list[Any]] = [answer if isinstance(answer, list) else [answer] for answer in decoded]
    return sorted([asked(answer) for answer in array] for array in arrays)


def wanted(script: Sequence[Step]) -> list[list[tuple[str, Any]]]:
    """The same as it has to be."""
    sent = [[typed(identity) for kind, identity, _ in members if kind == "request"] for _, members in script]
    return sorted(identities for identities in sent if identities)


async def play(peer: Peer, script: Sequence[Step], resolver: ScriptedResolver) -> None:
    """Let a peer do what a script says."""
    for action, members in script:
        if action in ("send", "batch"):
            messages = [
                request_of(identity, query)
                if kind == "request"
                else {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": identity}}
                for kind, identity, query in members
            ]
            peer.send(messages if action == "batch" else messages[0])
        elif action == "settle":
            await settled()
        elif action == "hold":
            peer.transport.hold()
        elif action == "resume":
            peer.transport.resume()
        else:
            resolver.calls["held"].release()
            resolver.calls["held"] = Call()


def scripted_resolver() -> ScriptedResolver:
    """A resolver with every kind of call."""
    return ScriptedResolver(
        held=Call(),
        spilling=Spilling(released=True),
        failing=Call(error=read_failed(ReadFailedReason.IO), released=True),
    )


@pytest.mark.parametrize(
    "limits", [QUICK, replace(QUICK, max_concurrent_requests=1), replace(QUICK, write_high_water_bytes=50)]
)
@given(script=scripts)
@settings(max_examples=150, deadline=None)
async def test_every_request_of_any_interleaving_is_answered_exactly_once(limits: Limits, script: list[Step]) -> None:
    resolver = scripted_resolver()
    async with connected(resolver, limits) as peer:
        await play(peer, script, resolver)
        peer.transport.resume()
        resolver.calls["held"].release()
        await settled()
        answers = list(peer.transport.sent)
        assert answered(answers) == wanted(script)

        # Nothing is in flight any more: each id can be used again.
        for identity in IDENTITIES:
            peer.ask(identity)
        await settled()
        again = [json.loads(data) for data in peer.transport.sent[len(answers) :]]
        assert [typed(answer["id"]) for answer in again] == [typed(identity) for identity in IDENTITIES]
        assert all(answer["result"] == [] for answer in again)


@given(script=scripts, is_settled=st.booleans())
@settings(max_examples=300, deadline=None)
async def test_every_request_is_answered_exactly_once_when_the_input_ends_in_between(
    script: list[Step], is_settled: bool
) -> None:
    resolver = scripted_resolver()
    async with connected(resolver, NO_DRAIN) as peer:
        await play(peer, script, resolver)
        peer.transport.resume()
        if is_settled:
            await settled()
        peer.close_input()
        await peer.finished()
        assert answered(peer.transport.sent) == wanted(script)
