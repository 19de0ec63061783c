from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from engine_doubles import settled, wait_for
from sessionref.server.threads import WorkerThreads, check_cancelled

PATIENCE = 5.0


class Hang:
    """A function that hangs in its thread until it is woken; remembers how often it ran."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.wake = threading.Event()
        self.left = threading.Event()
        self.runs = 0

    def __call__(self) -> str:
        self.runs += 1
        self.entered.set()
        try:
            assert self.wake.wait(2 * PATIENCE)
            return "woken"
        finally:
            self.left.set()


async def idle(threads: WorkerThreads) -> None:
    """Wait until no place is taken any more."""
    with anyio.fail_after(PATIENCE):
        while threads.busy:
            await anyio.to_thread.run_sync(lambda: None)


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
    hangs = [Hang() for _ in range(5)]
    try:
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for hang in hangs:
                    tasks.start_soon(threads.run, hang)
                await wait_for(hangs[0].entered)
                await wait_for(hangs[1].entered)
                await settled()
                assert [hang.runs for hang in hangs] == [1, 1, 0, 0, 0]
                assert threads.busy == 2
                for hang in hangs:
                    hang.wake.set()
        assert [hang.runs for hang in hangs] == [1] * 5
        assert threads.busy == 0
    finally:
        for hang in hangs:
            hang.wake.set()


async def test_a_cancelled_caller_goes_on_while_its_thread_keeps_its_place() -> None:
    threads, hang = WorkerThreads(1), Hang()
    try:
        await abandoned(threads, hang)
        assert threads.busy == 1
        assert not hang.left.is_set()
    finally:
        hang.wake.set()
    await idle(threads)


async def test_abandoned_threads_count_until_their_function_has_returned() -> None:
    threads, hang, next_one = WorkerThreads(1), Hang(), Hang()
    try:
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
    finally:
        hang.wake.set()
        next_one.wake.set()


async def test_a_caller_who_waits_for_a_place_can_be_cancelled() -> None:
    threads, hang, waiting = WorkerThreads(1), Hang(), Hang()
    try:
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
    finally:
        hang.wake.set()
        waiting.wake.set()


async def test_many_cancelled_callers_leave_no_more_threads_than_there_are_places() -> None:
    threads, hang = WorkerThreads(2), Hang()
    before = threading.active_count()
    try:
        for _ in range(20):
            with anyio.move_on_after(0.001):
                await threads.run(hang)
        assert threads.busy <= 2
        # The one beside them is `wait_for`'s, if it has been needed in this loop before.
        assert threading.active_count() <= before + 3
    finally:
        hang.wake.set()
    await idle(threads)
    assert hang.runs <= 2


async def test_places_are_given_back_once_when_threads_end_after_the_cancel() -> None:
    threads = WorkerThreads(1)
    for _ in range(5):
        hang = Hang()
        try:
            await abandoned(threads, hang)
        finally:
            hang.wake.set()
        await idle(threads)
    assert await threads.run(lambda: "works") == "works"
    assert threads.busy == 0


async def test_the_place_is_given_back_once_when_the_thread_ends_before_the_cancel() -> None:
    threads, hang = WorkerThreads(1), Hang()
    results: list[str] = []

    async def run() -> None:
        results.append(await threads.run(hang))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await wait_for(hang.entered)
            hang.wake.set()
            # The loop does not turn between here and the cancel: the thread has returned, its caller does not know yet.
            assert hang.left.wait(PATIENCE)
            tasks.cancel_scope.cancel()
    await idle(threads)
    assert results == []
    assert await threads.run(lambda: "works") == "works"


async def test_the_place_is_given_back_once_when_the_caller_is_cancelled_before_the_thread_is_asked() -> None:
    threads, hang = WorkerThreads(1), Hang()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(threads.run, hang)
        while threads.busy == 0:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    hang.wake.set()
    await idle(threads)
    assert hang.runs == 0
    assert await threads.run(lambda: "works") == "works"


async def test_a_function_whose_caller_was_cancelled_before_its_thread_began_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Callable[[], Any]] = []

    async def never_begins(work: Callable[[], Any], **_: Any) -> None:
        given.append(work)
        await anyio.sleep_forever()

    threads, hang = WorkerThreads(1), Hang()
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
    assert await WorkerThreads(1).run(check_cancelled) is None


def test_a_thread_that_ends_after_its_loop_ends_in_silence() -> None:
    hang, threads = Hang(), []

    async def main() -> None:
        await abandoned(WorkerThreads(1), hang)
        threads.extend(thread for thread in threading.enumerate() if "AnyIO" in thread.name)

    try:
        anyio.run(main)
    finally:
        hang.wake.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert hang.left.is_set()
    assert threads != []
    assert not any(thread.is_alive() for thread in threads)


async def test_a_hanging_function_does_not_keep_the_process_alive() -> None:
    # FAULT: anyio's worker threads are no daemons: the interpreter joins them at its end, so that a hung read keeps the
    # process although `serve_stdio` has returned (and its watchdog was stopped by then).
    threads, hang = WorkerThreads(1), Hang()
    running: list[threading.Thread] = []

    def work() -> str:
        running.append(threading.current_thread())
        return hang()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(threads.run, work)
            await wait_for(hang.entered)
            assert running[0].daemon
            hang.wake.set()
    finally:
        hang.wake.set()
