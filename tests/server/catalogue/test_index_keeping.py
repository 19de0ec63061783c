"""What the index keeps in the catalogue, over restarts and cancels, and what it purges from it (issue 4)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalogue_doubles import (
    LearningStore,
    bring_up_to_date,
    open_database,
)
from dsh_fixtures import DshHome, title
from resolver_doubles import never_cancelled
from sessionref.protocol.errors import ReadFailedReason, read_failed
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.index import SessionIndex, store_name
from sessionref.server.store import CheckCancelled, Lesson
from sessionref.server.stores.dsh import DshStore, ReadingLimits

EVERYTHING = ReadingLimits(whole_bytes=0, saved_from_bytes=0)


class Cancelled(BaseException):
    """What the check of a cancelled request raises."""


def cancelled() -> None:
    raise Cancelled


@pytest.fixture
def home(tmp_path: Path) -> DshHome:
    return DshHome(tmp_path / "home")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[CatalogueDatabase]:
    found = open_database(tmp_path)
    yield found
    found.close()


def titles(index: SessionIndex) -> dict[str, str | None]:
    index.refresh(never_cancelled)
    index.read_titles(never_cancelled, math.inf)
    return {row.key: row.header.title for row in index.rows()}


def memory(**sessions: str) -> LearningStore:
    store = LearningStore()
    for name, text in sessions.items():
        store.put(f"p/{name}", text)
    return store


def test_after_a_restart_nothing_is_read_again(database: CatalogueDatabase) -> None:
    store = memory(a="A", b="B")
    titles(SessionIndex(store, database))
    store.learnt.clear()

    assert titles(SessionIndex(store, database)) == {"p/a": "A", "p/b": "B"}
    assert store.learnt == []


def test_after_a_restart_only_what_has_changed_is_read_again(database: CatalogueDatabase) -> None:
    store = memory(a="A", b="B")
    titles(SessionIndex(store, database))
    store.learnt.clear()
    store.put("p/b", "Newer")
    store.put("p/c", "C")

    assert titles(SessionIndex(store, database)) == {"p/a": "A", "p/b": "Newer", "p/c": "C"}
    assert sorted(store.learnt) == [("p/b", True), ("p/c", False), ("p/c", True)]


def test_a_row_that_is_known_from_before_is_pending_until_its_log_is_read(database: CatalogueDatabase) -> None:
    store = memory(a="A")
    titles(SessionIndex(store, database))
    store.put("p/a", "Newer")
    index = SessionIndex(store, database)
    index.refresh(never_cancelled)

    assert [(row.label, row.title_pending) for row in index.rows()] == [("A", True)]


def test_sessions_that_are_gone_are_purged_from_the_file(database: CatalogueDatabase) -> None:
    store = memory(a="A", b="B")
    store.put("q/c", "C")
    index, name = SessionIndex(store, database), store_name(store)
    titles(index)
    for key in store.headers:
        database.save_capture_state(name, key, b"state")
    store.remove("p/a")
    store.remove_group("q")

    assert titles(index) == {"p/b": "B"}
    assert set(database.lessons(name)) == {"p/b"}
    kept = [key for key in ("p/a", "p/b", "q/c") if database.capture_state(name, key) is not None]
    assert kept == ["p/b"]


def test_sessions_that_went_while_no_server_ran_are_purged_from_the_file(database: CatalogueDatabase) -> None:
    store = memory(a="A", b="B", c="C")
    store.put("q/d", "D")
    name = store_name(store)
    titles(SessionIndex(store, database))
    for key in store.headers:
        database.save_capture_state(name, key, b"state")
    store.remove("p/a")
    store.remove_group("q")
    titles(SessionIndex(store, database))

    assert set(database.lessons(name)) == {"p/b", "p/c"}
    kept = [key for key in ("p/a", "p/b", "p/c", "q/d") if database.capture_state(name, key) is not None]
    assert kept == ["p/b", "p/c"]


def test_a_capture_of_a_session_that_is_gone_is_purged_though_it_was_never_listed(database: CatalogueDatabase) -> None:
    store = memory(a="A")
    database.save_capture_state(store_name(store), "p/gone", b"state")
    titles(SessionIndex(store, database))

    assert database.capture_state(store_name(store), "p/gone") is None


def test_a_session_whose_log_is_gone_is_purged_though_its_folder_stays(
    home: DshHome, database: CatalogueDatabase
) -> None:
    log = home.write("s", [title("A title to forget")])
    store = DshStore(home.path, limits=EVERYTHING)
    index = SessionIndex(store, database)
    assert list(titles(index).values()) == ["A title to forget"]
    log.unlink()
    bring_up_to_date(index)

    assert index.rows() == []
    assert database.lessons(store_name(store)) == {}


def test_a_project_that_cannot_be_listed_for_a_moment_does_not_cost_what_is_known_of_it(
    database: CatalogueDatabase,
) -> None:
    is_failing = False

    def fail(group: str) -> None:
        if is_failing:
            raise read_failed(ReadFailedReason.IO)

    store = LearningStore(before_keys=fail)
    store.put("p/a", "A")
    index = SessionIndex(store, database)
    titles(index)
    is_failing = True
    store.put("p/b", "B")
    index.refresh(never_cancelled)

    assert set(database.lessons(store_name(store))) == {"p/a"}


def test_a_project_that_cannot_be_listed_does_not_cost_what_is_known_of_the_others_after_a_restart(
    database: CatalogueDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_failing = False

    def fail(group: str) -> None:
        if is_failing and group == "q":
            raise read_failed(ReadFailedReason.PERMISSION)

    store = LearningStore(before_keys=fail)
    store.put("p/a", "A")
    store.put("q/b", "B")
    titles(SessionIndex(store, database))
    store.learnt.clear()
    loads, load = 0, database.lessons

    def counted(name: str) -> dict[str, Lesson]:
        nonlocal loads
        loads += 1
        return load(name)

    monkeypatch.setattr(database, "lessons", counted)
    index = SessionIndex(store, database)
    is_failing = True

    assert [titles(index) for _ in range(3)] == [{"p/a": "A"}] * 3
    assert loads == 1, "what is known already is not loaded again by every call"
    is_failing = False
    assert titles(index) == {"p/a": "A", "q/b": "B"}
    assert store.learnt == []


def test_a_cancelled_read_keeps_what_it_learnt_and_is_taken_up_again(database: CatalogueDatabase) -> None:
    def cancel(key: str, with_title: bool, check: CheckCancelled) -> None:
        if with_title and is_cancelled and len(store.learnt) > 3 + 2:
            raise Cancelled

    is_cancelled = True
    store = LearningStore(before_learn=cancel)
    for name in "abc":
        store.put(f"p/{name}", name.upper())
    index = SessionIndex(store, database)
    index.refresh(never_cancelled)
    with pytest.raises(Cancelled):
        index.read_titles(never_cancelled, math.inf)
    assert len(database.lessons(store_name(store))) == 2
    assert index.unread == 1
    is_cancelled = False
    store.learnt.clear()

    assert titles(index) == {"p/a": "A", "p/b": "B", "p/c": "C"}
    assert len(store.learnt) == 1


def test_a_cancel_while_the_catalogue_is_compared_does_not_cost_what_it_knows(database: CatalogueDatabase) -> None:
    titles(SessionIndex(memory(a="A", b="B"), database))
    store = LearningStore(before_changed=lambda check: check())
    for name in "ab":
        store.put(f"p/{name}", name.upper())
    index = SessionIndex(store, database)
    looks = iter([never_cancelled, cancelled])
    with pytest.raises(Cancelled):
        index.refresh(lambda: next(looks, never_cancelled)())

    assert titles(index) == {"p/a": "A", "p/b": "B"}
    assert store.learnt == []


def test_the_name_of_a_store_in_the_catalogue_gives_no_path_away(home: DshHome, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(home.path)
    names = [store_name(DshStore(path)) for path in (home.path, link, tmp_path)]

    assert names[0] == names[1] != names[2]
    assert names[0].startswith("dsh:")
    assert str(tmp_path) not in names[0]
