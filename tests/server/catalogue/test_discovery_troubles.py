"""Discovery where reads hang, calls are cancelled, or sessions and stores cannot be read (issue 4)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

import sessionref.server.catalogue.discovery as discovery_module
import sessionref.server.catalogue.index as index_module
from catalogue_doubles import LearningStore, open_database
from resolver_doubles import all_returned, hanging
from sessionref.protocol.errors import ErrorCode, ReadFailedReason, SessionReferenceError, read_failed
from sessionref.protocol.methods import Candidate
from sessionref.server.candidates import ListedSession, select_candidates
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.discovery import Discovery
from sessionref.server.catalogue.index import store_name
from sessionref.server.store import CheckCancelled, SessionStore
from sessionref.server.threads import WorkerThreads

LONG = 30.0
"""Longer than any test takes: a wait of this length never ends by itself."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[CatalogueDatabase]:
    found = open_database(tmp_path)
    yield found
    found.close()


def discovery_over(
    *stores: SessionStore,
    database: CatalogueDatabase | None = None,
    threads: WorkerThreads | None = None,
    wait_seconds: float = LONG,
) -> Discovery:
    return Discovery(stores, database, threads=threads or WorkerThreads(), wait_seconds=wait_seconds)


async def rows(discovery: Discovery, query: str = "", limit: int = 10_000) -> list[Candidate]:
    def select(listed: Sequence[ListedSession], check: CheckCancelled) -> list[tuple[ListedSession, Candidate]]:
        return select_candidates(
            listed, agent_id="agent", cwd=None, query=query, limit=limit, include_subagents=None, check=check
        )

    return await discovery.candidates(select)


async def labels(discovery: Discovery, query: str = "", limit: int = 10_000) -> list[str]:
    return [row.label for row in await rows(discovery, query, limit)]


async def pending(discovery: Discovery) -> dict[str, bool]:
    """Which rows say that their title may not be the last."""
    return {row.session_id: row.title_pending is True for row in await rows(discovery)}


def memory(**sessions: str) -> LearningStore:
    store = LearningStore()
    for name, text in sessions.items():
        store.put(f"p/{name}", text)
    return store


async def test_a_title_that_was_pending_is_there_soon_even_if_no_call_waits() -> None:
    discovery = discovery_over(memory(a="A"), wait_seconds=0)
    assert await pending(discovery) == {"a": True}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(discovery.read_on)
        with anyio.fail_after(5):
            while (await pending(discovery))["a"]:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def test_a_title_that_took_too_long_is_there_in_the_next_call() -> None:
    async with hanging() as (stop, threads):

        def hang(key: str, with_title: bool, check: CheckCancelled) -> None:
            if with_title:
                stop.wait()

        store = LearningStore(before_learn=hang)
        store.put("p/a", "A")
        discovery = discovery_over(store, threads=threads, wait_seconds=0.05)
        assert await pending(discovery) == {"a": True}
        stop.open()
        await all_returned(threads)
        assert await pending(discovery) == {"a": False}
        assert await labels(discovery) == ["A"]


async def test_a_title_whose_read_hangs_costs_its_own_row_only() -> None:
    async with hanging() as (stop, threads):

        def hang(key: str, with_title: bool, check: CheckCancelled) -> None:
            if with_title and key == "p/b":
                stop.wait()

        store = LearningStore(before_learn=hang)
        for at, name in enumerate("abc"):
            store.put(f"p/{name}", name.upper(), updated_at=at + 1)
        discovery = discovery_over(store, threads=threads, wait_seconds=0.1)
        for _ in range(3):
            await rows(discovery)
        assert await pending(discovery) == {"a": False, "b": True, "c": False}
        assert await labels(discovery) == ["A", "b", "C"]


async def test_a_header_whose_read_hangs_costs_its_own_row_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery_module, "LISTING_SECONDS", 0.2)
    monkeypatch.setattr(index_module, "OTHERS_SECONDS", 0.1)
    async with hanging() as (stop, threads):

        def hang(key: str, with_title: bool, check: CheckCancelled) -> None:
            if key == "p/b":
                stop.wait()

        store = LearningStore(before_learn=hang)
        for name in "abc":
            store.put(f"p/{name}", name.upper())
        discovery = discovery_over(store, threads=threads, wait_seconds=0.1)
        with anyio.fail_after(5):
            assert "B" not in await labels(discovery)
            assert await labels(discovery) == ["A", "C"]


async def test_a_grown_log_whose_read_hangs_costs_its_own_row_only() -> None:
    async with hanging() as (stop, threads):
        hangs = False

        def hang(key: str, with_title: bool, check: CheckCancelled) -> None:
            if hangs:
                stop.wait()

        store = LearningStore(before_learn=hang)
        store.put("p/a", "A")
        store.put("p/b", "B")
        discovery = discovery_over(store, threads=threads, wait_seconds=0.1)
        assert await labels(discovery) == ["A", "B"]
        store.put("p/b", "Newer")
        hangs = True
        found: dict[str, bool] = {}
        with anyio.move_on_after(2):
            found = await pending(discovery)
        assert found == {"a": False, "b": True}


async def test_a_session_that_another_call_is_listing_is_waited_for() -> None:
    async with hanging() as (stop, threads):

        def hang(key: str, with_title: bool, check: CheckCancelled) -> None:
            if not with_title and key == "p/b":
                stop.wait()

        store = LearningStore(before_learn=hang)
        for name in "abc":
            store.put(f"p/{name}", name.upper())
        discovery = discovery_over(store, threads=threads)
        found: list[list[str]] = []
        answered = anyio.Event()

        async def call() -> None:
            found.append(await labels(discovery))
            answered.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await stop.reached()
            tasks.start_soon(call)
            with anyio.move_on_after(0.3):
                await answered.wait()
            stop.open()
        assert found == [["A", "B", "C"]] * 2


async def test_a_cancelled_call_leaves_nothing_locked_and_keeps_what_it_learnt(database: CatalogueDatabase) -> None:
    async with hanging() as (stop, threads):
        checks: list[str] = []

        def hang(key: str, with_title: bool, check: CheckCancelled) -> None:
            if with_title and key == "p/b" and not checks:
                stop.wait()
                checks.append(key)
                check()

        store = LearningStore(before_learn=hang)
        for at, name in enumerate("abc"):
            store.put(f"p/{name}", name.upper(), updated_at=at + 1)
        discovery = discovery_over(store, database=database, threads=threads)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(labels, discovery)
            await stop.reached()
            tasks.cancel_scope.cancel()
        stop.open()
        await all_returned(threads)
        assert set(database.lessons(store_name(store))) == {"p/c"}
        store.learnt.clear()

        assert await labels(discovery) == ["A", "B", "C"]
        assert sorted(key for key, _ in store.learnt) == ["p/a", "p/b"]


async def test_calls_that_are_cancelled_at_once_cost_no_thread_for_long() -> None:
    threads = WorkerThreads()
    store = memory(**{f"s{number}": "T" for number in range(300)})
    discovery = discovery_over(store, threads=threads)
    for _ in range(20):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await rows(discovery)
    await all_returned(threads)

    assert len(await labels(discovery)) == 300


async def test_what_cannot_be_listed_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store = memory(a="A", b="B", c="C")
    store.problems = {"p/b": ReadFailedReason.PERMISSION, "p/c": ReadFailedReason.CORRUPT}
    discovery = discovery_over(store)
    for _ in range(3):
        assert await labels(discovery) == ["A"]
    logged = sorted(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)

    assert logged == [
        "not listed: p/b of store memory: permission",
        "not listed: p/c of store memory: corrupt",
    ]


class Broken(LearningStore):
    """A store that cannot be read as a whole until it is mended."""

    is_broken = True

    def groups(self) -> dict[str, int]:
        """Nothing, for now."""
        if self.is_broken:
            raise read_failed(ReadFailedReason.PERMISSION)
        return super().groups()


async def test_a_store_that_cannot_be_read_as_a_whole_is_said_and_costs_no_other_store_its_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, sound = Broken("broken"), LearningStore("sound")
    broken.put("p/a", "A")
    broken.is_broken = False
    sound.put("p/b", "B", created_at=2)
    discovery = discovery_over(broken, sound)
    assert await labels(discovery) == ["B", "A"]
    broken.is_broken = True

    for _ in range(3):
        assert await labels(discovery) == ["B"]
    (record,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert record.getMessage() == "store broken cannot be read: permission"
    broken.is_broken = False
    assert await labels(discovery) == ["B", "A"]


async def test_of_a_store_without_sessions_it_is_said_whether_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    class Absent(LearningStore):
        def exists(self) -> bool:
            return False

    caplog.set_level(logging.INFO, "sessionref")
    discovery = discovery_over(LearningStore("empty"), Absent("absent"))

    for _ in range(3):
        assert await labels(discovery) == []
    assert [record.getMessage() for record in caplog.records if record.getMessage().startswith("store ")] == [
        "store empty: it has no sessions yet",
        "store absent: there is none where it should be",
    ]


async def test_a_store_in_which_no_session_has_a_prompt_is_said_to_be_unreadable_and_listed_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = LearningStore()
    store.has_prompts = False
    store.put("p/a", "A")
    store.put("p/b", "B")
    discovery = discovery_over(store)

    for _ in range(3):
        assert await labels(discovery) == ["A", "B"]
    (record,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert record.getMessage() == (
        "store memory is not readable: there are sessions, but no prompt that this service can find in any of them"
    )


async def test_a_store_that_cannot_be_read_as_a_whole_fails_the_call_until_it_can() -> None:
    store = Broken()
    store.put("p/a", "A")
    discovery = discovery_over(store)
    with pytest.raises(SessionReferenceError) as caught:
        await rows(discovery)
    assert (caught.value.code, caught.value.reason) == (ErrorCode.READ_FAILED, ReadFailedReason.PERMISSION)
    store.is_broken = False

    assert await labels(discovery) == ["A"]
