"""Discovery: candidates from memory, fresh at once, with titles as soon as they can be had (issue 4)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import pytest

from catalogue_doubles import LearningStore, age, open_database
from dsh_fixtures import DshHome, assistant, title, user
from resolver_doubles import MemoryStore
from sessionref.protocol.methods import Candidate
from sessionref.server.candidates import ListedSession, select_candidates
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.discovery import Discovery
from sessionref.server.store import CheckCancelled, SessionHeader, SessionStore
from sessionref.server.stores.dsh import DshStore, ReadingLimits
from sessionref.server.threads import WorkerThreads

EVERYTHING = ReadingLimits(whole_bytes=0)
LONG = 30.0
"""Longer than any test takes: a wait of this length never ends by itself."""


@pytest.fixture
def home(tmp_path: Path) -> DshHome:
    return DshHome(tmp_path / "home")


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


def extend(log: Path, text: str, seq: int) -> None:
    with log.open("ab") as file:
        file.write(title(text).line(seq, 0))


@pytest.mark.parametrize("limits", [ReadingLimits(), EVERYTHING])
@pytest.mark.parametrize("has_catalogue", [False, True])
async def test_a_new_session_is_there_at_once_with_its_title(
    home: DshHome, database: CatalogueDatabase, limits: ReadingLimits, has_catalogue: bool
) -> None:
    home.write("a", [title("A")], cwd="/w")
    age(home.sessions / "--w--")
    discovery = discovery_over(DshStore(home.path, limits=limits), database=database if has_catalogue else None)
    assert await labels(discovery) == ["A"]
    home.write("b", [title("B")], cwd="/w")
    home.write("c", [title("C")], cwd="/new")

    assert await labels(discovery) == ["A", "B", "C"]


async def test_a_session_that_is_gone_is_no_row_any_more(home: DshHome) -> None:
    for name in ("a", "b"):
        home.write(name, [title(name)])
    discovery = discovery_over(DshStore(home.path))
    assert await labels(discovery) == ["a", "b"]
    (log,) = home.sessions.glob("*/a/*")
    log.unlink()
    log.parent.rmdir()

    assert await labels(discovery) == ["b"]


async def test_a_grown_log_of_an_answered_row_has_its_new_title_at_once(home: DshHome) -> None:
    log = home.write("a", [title("Old")])
    discovery = discovery_over(DshStore(home.path, limits=EVERYTHING))
    assert await labels(discovery) == ["Old"]
    extend(log, "New", 1)

    assert await labels(discovery) == ["New"]


async def test_a_home_that_comes_to_be_later_is_found(tmp_path: Path) -> None:
    discovery = discovery_over(DshStore(tmp_path / "later"))
    assert await labels(discovery) == []
    DshHome(tmp_path / "later").write("a", [title("A")])

    assert await labels(discovery) == ["A"]


async def test_a_title_that_is_not_read_in_time_is_pending() -> None:
    discovery = discovery_over(memory(a="A"), wait_seconds=0)

    (row,) = await rows(discovery)
    assert (row.label, row.title_pending) == ("a", True)


async def test_the_newest_titles_are_read_first() -> None:
    store = LearningStore()
    for number in (3, 1, 5, 2, 4):
        store.put(f"p/{number}", "T", updated_at=number)
    await rows(discovery_over(store))

    assert [key for key, with_title in store.learnt if with_title] == ["p/5", "p/4", "p/3", "p/2", "p/1"]


async def test_many_calls_at_once_give_the_same_answer(home: DshHome, database: CatalogueDatabase) -> None:
    for number in range(30):
        home.write(f"s{number}", [title(f"T{number}")], cwd=f"/p{number % 3}")
    discovery = discovery_over(DshStore(home.path, limits=EVERYTHING), database=database)
    await rows(discovery)
    answers: list[list[str]] = []

    async def call() -> None:
        answers.append(await labels(discovery))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(call)
    assert all(sorted(answer) == sorted(f"T{number}" for number in range(30)) for answer in answers)


@pytest.mark.parametrize("has_catalogue", [False, True])
async def test_the_first_of_two_stores_has_the_row_of_an_id_in_both(
    tmp_path: Path, database: CatalogueDatabase, has_catalogue: bool, caplog: pytest.LogCaptureFixture
) -> None:
    homes = [DshHome(tmp_path / name) for name in ("one", "two")]
    for home in homes:
        home.write("both", [title(f"both in {home.path.name}")])
        home.write(home.path.name, [title(home.path.name)])
    stores = [DshStore(home.path, limits=EVERYTHING) for home in homes]
    headers = [SessionHeader(session_id=name, created_at=1000, title="memory") for name in ("both", "zz")]
    discovery = discovery_over(*stores, MemoryStore(headers=headers), database=database if has_catalogue else None)
    for _ in range(2):
        assert await labels(discovery) == ["both in one", "one", "two", "memory"]
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 2
    extend(homes[1].sessions / "_no-cwd" / "two" / "session.jsonl", "grown", 1)
    homes[0].write("new", [title("new")])

    assert await labels(discovery) == ["both in one", "new", "one", "grown", "memory"]


async def test_without_a_catalogue_with_one_and_after_a_restart_the_answers_are_the_same(
    home: DshHome, tmp_path: Path
) -> None:
    for number in range(12):
        events = [user("hidden question"), title(f"Title {number}"), assistant("answer")]
        home.write(f"s{number}", events, cwd=f"/p{number % 3}", created_at=number, compressed=number % 2 == 1)
    home.write("broken", header=b"{}\n")
    store = DshStore(home.path, limits=EVERYTHING)
    answers = [await rows(discovery_over(store))]
    for _ in range(2):
        database = open_database(tmp_path)
        answers.append(await rows(discovery_over(store, database=database)))
        database.close()

    assert len(answers[0]) == 12
    assert answers[1] == answers[2] == answers[0]


async def test_a_query_is_answered_from_titles_that_were_read_for_it() -> None:
    discovery = discovery_over(memory(a="harbour", b="ferry"))

    assert await labels(discovery, "FERR") == ["ferry"]


async def test_nothing_of_a_store_is_touched_before_the_first_call() -> None:
    touched: list[str] = []

    class Touchy(LearningStore):
        def groups(self) -> dict[str, int]:
            touched.append("groups")
            return super().groups()

    discovery = discovery_over(Touchy())
    assert touched == []
    with anyio.move_on_after(0):
        await discovery.until_asked()
    await rows(discovery)
    assert touched == ["groups"]
    with anyio.fail_after(5):
        await discovery.until_asked()


async def test_a_rescan_marks_what_has_grown_so_that_a_query_finds_it(home: DshHome) -> None:
    threads = WorkerThreads()
    log = home.write("a", [title("Old")])
    discovery = discovery_over(DshStore(home.path, limits=EVERYTHING), threads=threads)
    assert await labels(discovery, "new") == []
    extend(log, "New", 1)
    await threads.run(discovery.rescan, 1.0)

    assert await labels(discovery, "new") == ["New"]


def test_a_select_gets_rows_in_order_whatever_comes_later() -> None:
    async def run() -> None:
        store, seen = memory(b="B", a="A"), list[list[str]]()
        discovery = discovery_over(store)

        def select(listed: Sequence[ListedSession], check: CheckCancelled) -> list[tuple[ListedSession, Candidate]]:
            seen.append([row.header.session_id for row in listed])
            return []

        await discovery.candidates(select)
        store.put("p/0", "zero", created_at=9)
        await discovery.candidates(select)
        assert seen[-1] == ["0", "a", "b"]

    anyio.run(run)
