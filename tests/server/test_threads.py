from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from engine_doubles import PATIENCE, Hang, hanging, idle, settled, wait_for
from sessionref.server import threads as threads_module
from sessionref.server.threads import WorkerThreads, check_cancelled


async def abandoned(threads: WorkerThreads, hang: Hang) -> None:
    """Let a function hang and cancel its caller."""
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(threads.run, hang)
            await wait_for(hang.entered)
            tasks.cancel_scope.cancel()


async def test_a_function_runs_in_another_thread_with_its_arguments() -> None:
    def function(first: int, second: str) -> tuple[int, str, int]:
        return first, second, threading.get_ident()

    threads = WorkerThreads(1)
    first, second, thread = await threads.run(function, 1, "two")
    assert (first, second) == (1, "two")
    assert thread != threading.get_ident()
    assert threads.busy == 0


async def test_an_exception_of_the_function_is_the_callers_and_gives_the_place_back() -> None:
    def fail() -> None:
        raise KeyError("x")

    threads = WorkerThreads(1)
    for _ in range(3):
        with pytest.raises(KeyError):
            await threads.run(fail)
        assert threads.busy == 0


async def test_no_more_functions_run_at_once_than_there_are_places() -> None:
    threads = WorkerThreads(2)
    async with hanging(threads) as first, hanging(threads) as second, hanging(threads) as third:
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for hang in (first, second, third):
                    tasks.start_soon(threads.run, hang)
                await wait_for(first.entered)
                await wait_for(second.entered)
                await settled()
                assert (third.runs, threads.busy) == (0, 2)
                first.wake.set()
                await wait_for(third.entered)
                assert threads.busy == 2
                second.wake.set()
                third.wake.set()
        assert threads.busy == 0


async def test_a_cancelled_caller_goes_on_while_its_thread_keeps_its_place() -> None:
    threads = WorkerThreads(1)
    async with hanging(threads) as hang:
        await abandoned(threads, hang)
        assert threads.busy == 1
        assert not hang.left.is_set()


async def test_abandoned_threads_count_until_their_function_has_returned() -> None:
    threads = WorkerThreads(1)
    async with hanging(threads) as hang, hanging(threads) as next_one:
        await abandoned(threads, hang)
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(threads.run, next_one)
                await settled()
                assert next_one.runs == 0
                hang.wake.set()
                await wait_for(next_one.entered)
                assert threads.busy == 1
                next_one.wake.set()
        assert threads.busy == 0


async def test_a_caller_who_waits_for_a_place_can_be_cancelled() -> None:
    threads = WorkerThreads(1)
    async with hanging(threads) as hang, hanging(threads) as waiting:
        await abandoned(threads, hang)
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(threads.run, waiting)
                await settled()
                tasks.cancel_scope.cancel()
        assert threads.busy == 1
        hang.wake.set()
        await idle(threads)
        assert waiting.runs == 0
        waiting.wake.set()
        assert await threads.run(waiting) == "woken"


async def test_many_cancelled_callers_leave_no_more_functions_running_than_there_are_places() -> None:
    threads = WorkerThreads(2)
    async with hanging(threads) as hang:
        for _ in range(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(threads.run, hang)
                await settled()
                tasks.cancel_scope.cancel()
        assert (hang.runs, threads.busy) == (2, 2)


async def test_places_are_given_back_once_when_threads_end_after_the_cancel() -> None:
    threads = WorkerThreads(1)
    for _ in range(5):
        async with hanging(threads) as hang:
            await abandoned(threads, hang)
    assert await threads.run(lambda: "works") == "works"
    assert threads.busy == 0


async def test_the_place_is_given_back_once_when_the_thread_ends_before_the_cancel() -> None:
    threads = WorkerThreads(1)
    results: list[str] = []
    async with hanging(threads) as hang:

        async def run() -> None:
            results.append(await threads.run(hang))

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await wait_for(hang.entered)
                hang.wake.set()
                # The loop does not turn before the cancel: the thread has returned, its caller does not know yet.
                assert hang.left.wait(PATIENCE)
                tasks.cancel_scope.cancel()
    assert results == []
    assert await threads.run(lambda: "works") == "works"
    assert threads.busy == 0


async def test_the_place_is_given_back_once_when_the_caller_is_cancelled_before_the_thread_is_asked() -> None:
    threads = WorkerThreads(1)
    async with hanging(threads) as hang:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(threads.run, hang)
            while threads.busy == 0:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await idle(threads)
        assert hang.runs == 0
        hang.wake.set()
        assert await threads.run(hang) == "woken"


async def test_a_function_whose_caller_was_cancelled_before_its_thread_began_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Callable[[], Any]] = []

    async def never_begins(work: Callable[[], Any], **_: Any) -> None:
        given.append(work)
        await anyio.sleep_forever()

    threads, hang = WorkerThreads(1), Hang()
    hang.wake.set()
    with monkeypatch.context() as patch:
        patch.setattr(anyio.to_thread, "run_sync", never_begins)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(threads.run, hang)
            await settled()
            tasks.cancel_scope.cancel()
    assert threads.busy == 0
    with pytest.raises(RuntimeError, match="cancelled"):
        await anyio.to_thread.run_sync(given[0])
    assert (hang.runs, threads.busy) == (0, 0)


async def test_check_cancelled_stops_the_loop_of_a_cancelled_thread() -> None:
    threads = WorkerThreads(1)
    entered, left, give_up = threading.Event(), threading.Event(), threading.Event()
    stopped_by: list[BaseException] = []

    def scan() -> None:
        try:
            while not give_up.is_set():
                check_cancelled()
                entered.set()
        except BaseException as error:
            stopped_by.append(error)
            raise
        finally:
            left.set()

    try:
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(threads.run, scan)
                await wait_for(entered)
                tasks.cancel_scope.cancel()
        await wait_for(left)
        assert [isinstance(error, anyio.get_cancelled_exc_class()) for error in stopped_by] == [True]
        await idle(threads)
    finally:
        give_up.set()


async def test_check_cancelled_lets_a_thread_go_on_whose_request_stands() -> None:
    def work() -> str:
        check_cancelled()
        return "done"

    assert await WorkerThreads(1).run(work) == "done"


def test_a_thread_that_ends_after_its_loop_ends_in_silence() -> None:
    hang = Hang()
    left_behind: list[threading.Thread] = []

    async def main() -> None:
        await abandoned(WorkerThreads(1), hang)
        left_behind.extend(thread for thread in threading.enumerate() if "AnyIO" in thread.name)

    try:
        anyio.run(main)
    finally:
        hang.wake.set()
    for thread in left_behind:
        thread.join(PATIENCE)
    assert hang.left.is_set()
    assert left_behind != []
    assert not any(thread.is_alive() for thread in left_behind)


def test_a_thread_that_ends_while_its_loop_pauses_ends_all_the_same() -> None:
    hang = Hang()
    workers: list[threading.Thread] = []

    def work() -> str:
        workers.append(threading.current_thread())
        return hang()

    async def main() -> None:
        threads = WorkerThreads(1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(threads.run, work)
            while not hang.entered.is_set():
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
        hang.wake.set()
        workers[0].join(1)
        is_alive = workers[0].is_alive()
    finally:
        hang.wake.set()
        loop.run_until_complete(asyncio.sleep(0))
        workers[0].join(PATIENCE)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    assert not is_alive


async def test_a_thread_that_goes_on_for_long_gives_way_once_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pauses = [1000.0], list[float]()
    monkeypatch.setattr(threads_module, "time", FakeTime(clock, pauses))
    monkeypatch.setattr(threads_module, "TURN_SECONDS", 4)

    def read() -> None:
        for _ in range(20):
            check_cancelled()
            clock[0] += 1

    await WorkerThreads().run(read)

    assert len(pauses) == 5
    assert all(pause > 0 for pause in pauses)


class FakeTime:
    """A clock that stands still unless it is moved, and sleep that takes none of it."""

    def __init__(self, clock: list[float], pauses: list[float]) -> None:
        self.sleep = pauses.append
        self._clock = clock

    def monotonic(self) -> float:
        """The time as it was set."""
        return self._clock[0]
