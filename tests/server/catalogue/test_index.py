"""The index of one store: what it asks of the store, what it keeps, and what it lets go (issue 4)."""

from __future__ import annotations

import math
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catalogue_doubles import (
    LearningStore,
    age,
    bring_up_to_date,
    full_view,
    index_view,
    open_database,
)
from dsh_fixtures import DshHome, header_line, title, user
from resolver_doubles import never_cancelled
from sessionref.protocol.errors import ReadFailedReason, read_failed
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.store import CheckCancelled
from sessionref.server.stores.dsh import DshStore, ReadingLimits

EVERYTHING = ReadingLimits(whole_bytes=0, saved_from_bytes=0)
SECONDS = 10


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


def test_a_title_is_read_once_and_then_known(database: CatalogueDatabase) -> None:
    store = memory(a="A", b="B")
    index = SessionIndex(store, database)
    for _ in range(3):
        assert titles(index) == {"p/a": "A", "p/b": "B"}
    assert sorted(store.learnt) == [("p/a", False), ("p/a", True), ("p/b", False), ("p/b", True)]


def test_the_newest_titles_are_read_first() -> None:
    store = LearningStore()
    for name, created_at, updated_at in [("old", 5, 10), ("newest", 1, 90), ("never", 50, None), ("new", 9, 60)]:
        store.put(f"p/{name}", name, created_at=created_at, updated_at=updated_at)
    titles(SessionIndex(store, None))

    assert [key for key, with_title in store.learnt if with_title] == ["p/newest", "p/new", "p/never", "p/old"]


def test_no_title_is_begun_after_the_deadline() -> None:
    store = memory(a="A", b="B")
    index = SessionIndex(store, None)
    index.refresh(never_cancelled)
    index.read_titles(never_cancelled, -math.inf)

    assert index.unread == 2
    assert [row.title_pending for row in index.rows()] == [True, True]


def test_a_folder_without_a_log_is_no_double_of_a_session_of_its_name(home: DshHome) -> None:
    home.write("s", [title("T")], cwd="/a")
    (home.sessions / "--b--" / "s").mkdir(parents=True)
    index = SessionIndex(DshStore(home.path), None)
    bring_up_to_date(index)

    assert index_view(index) == full_view(index.store)
    assert [row.label for row in index.rows()] == ["T"]


def test_a_session_whose_folder_comes_before_its_log_is_listed(home: DshHome) -> None:
    folder = home.sessions / "_no-cwd" / "s"
    folder.mkdir(parents=True)
    (folder / "session.lock").write_bytes(b"")
    index = SessionIndex(DshStore(home.path), None)
    bring_up_to_date(index)
    assert index.rows() == []
    home.write("s", [title("T")])

    assert list(titles(index).values()) == ["T"]


def test_a_folder_without_a_log_is_looked_at_again_after_a_cancelled_call(home: DshHome) -> None:
    for name in ("s", "t"):
        (home.sessions / "_no-cwd" / name).mkdir(parents=True)
    age(home.sessions / "_no-cwd")
    index = SessionIndex(DshStore(home.path), None)
    index.refresh(never_cancelled)
    with pytest.raises(Cancelled):
        index.refresh(cancelled)
    for name in ("s", "t"):
        home.write(name, [title(name)])
    age(home.sessions / "_no-cwd")

    assert sorted(map(str, titles(index).values())) == ["s", "t"]


def test_a_session_whose_double_loses_its_log_is_listed_again(home: DshHome) -> None:
    home.write("s", [title("T")], cwd="/a")
    double = home.write("s", [title("T")], cwd="/b")
    index = SessionIndex(DshStore(home.path), None)
    bring_up_to_date(index)
    assert [row.reason for row in index.unlisted()] == ["duplicate-id", "duplicate-id"]
    double.unlink()
    bring_up_to_date(index)

    assert index_view(index) == full_view(index.store)


def test_a_project_that_could_not_be_listed_once_is_tried_again(database: CatalogueDatabase) -> None:
    failures = iter([read_failed(ReadFailedReason.IO)])

    def fail(group: str) -> None:
        for failure in failures:
            raise failure

    store = LearningStore(before_keys=fail)
    store.put("p/a", "A")
    index = SessionIndex(store, database)
    index.refresh(never_cancelled)
    assert [(row.place, row.reason) for row in index.unlisted()] == [("p", "io")]
    bring_up_to_date(index)

    assert index_view(index) == full_view(store)


def test_a_session_that_becomes_readable_is_listed_after_a_rescan(monkeypatch: pytest.MonkeyPatch) -> None:
    store = memory(a="A", b="B")
    store.problems["p/b"] = ReadFailedReason.PERMISSION
    index = SessionIndex(store, None)
    bring_up_to_date(index)
    assert [(row.place, row.reason) for row in index.unlisted()] == [("p/b", "permission")]
    store.problems.clear()
    monkeypatch.setattr("sessionref.server.catalogue.index.PROBLEMS_AGAIN_SECONDS", 0)
    bring_up_to_date(index)

    assert titles(index) == {"p/a": "A", "p/b": "B"}
    assert index.unlisted() == []


def test_a_session_that_changes_while_it_is_read_is_read_again() -> None:
    def change(key: str, with_title: bool, check: CheckCancelled) -> None:
        if with_title and store.headers[key].title == "A":
            index.mark_changed([key])

    store = LearningStore(before_learn=change)
    store.put("p/a", "A")
    index = SessionIndex(store, None)
    titles(index)
    store.put("p/a", "Newer")

    assert titles(index) == {"p/a": "Newer"}


@pytest.mark.parametrize("with_title", [False, True])
def test_a_read_that_hangs_costs_other_callers_its_own_row_alone(with_title: bool) -> None:
    reached, opened = threading.Event(), threading.Event()

    def hang(key: str, titled: bool, check: CheckCancelled) -> None:
        if key == "p/b" and titled == with_title and not opened.is_set():
            reached.set()
            assert opened.wait(SECONDS)

    store = LearningStore(before_learn=hang)
    for name in "abc":
        store.put(f"p/{name}", name.upper())
    index = SessionIndex(store, None)
    with ThreadPoolExecutor(1) as pool:
        hung = pool.submit(titles, index)
        try:
            assert reached.wait(SECONDS)
            others = titles(index)
        finally:
            opened.set()
        hung.result(SECONDS)
    assert {key: others[key] for key in ("p/a", "p/c")} == {"p/a": "A", "p/c": "C"}
    assert others.get("p/b") is None
    assert titles(index) == {"p/a": "A", "p/b": "B", "p/c": "C"}


def test_two_calls_that_find_a_project_gone_at_once_both_succeed(
    database: CatalogueDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = memory(a="A")
    store.put("q/b", "B")
    index = SessionIndex(store, database)
    titles(index)
    store.remove_group("q")
    both = threading.Barrier(2)
    forget = CatalogueDatabase.forget

    def forget_together(self: CatalogueDatabase, name: str, keys: Iterable[str]) -> None:
        forget(self, name, keys)
        both.wait(SECONDS)

    monkeypatch.setattr(CatalogueDatabase, "forget", forget_together)
    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(index.refresh, never_cancelled) for _ in range(2)]
        assert [result.exception(SECONDS) for result in results] == [None, None]
    assert [row.key for row in index.rows()] == ["p/a"]


def test_a_session_is_noticed_by_its_stamp_when_it_is_looked_at_again() -> None:
    store = memory(a="A", b="B")
    index = SessionIndex(store, None)
    titles(index)
    assert not index.look_again(["p/a", "p/b", "p/never-there"], never_cancelled)
    store.put("p/b", "Newer")

    assert index.look_again(["p/a", "p/b"], never_cancelled)
    assert {row.key: row.title_pending for row in index.rows()} == {"p/a": False, "p/b": True}


def test_rescans_without_time_come_to_every_session_in_turn_and_always_to_the_newest() -> None:
    looked: list[set[str]] = []

    class Looking(LearningStore):
        def changed(self, stamps: Mapping[str, bytes], check: CheckCancelled) -> Iterator[str]:
            looked[-1].update(stamps)
            return iter(())

    store = Looking()
    for number in range(1000):
        store.put(f"p/{number}", "T", created_at=number)
    index = SessionIndex(store, None)
    titles(index)
    for _ in range(4):
        looked.append(set())
        index.rescan(never_cancelled, 1e-9)
    newest = {f"p/{number}" for number in range(1000 - 64, 1000)}
    assert all(newest <= keys for keys in looked)

    for _ in range(40):
        looked.append(set())
        index.rescan(never_cancelled, math.inf)
        if set().union(*looked) == set(store.headers):
            break
    assert set().union(*looked) == set(store.headers)


def test_a_group_that_changed_within_the_grain_of_its_time_is_listed_again(home: DshHome) -> None:
    home.write("a", [title("A")])
    project = home.sessions / "_no-cwd"
    facts = project.stat()
    index = SessionIndex(DshStore(home.path), None)
    titles(index)
    home.write("b", [title("B")])
    os.utime(project, ns=(facts.st_atime_ns, facts.st_mtime_ns))

    assert set(titles(index).values()) == {"A", "B"}


def test_a_group_that_did_not_change_is_not_listed_again(home: DshHome, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write("a", [title("A")])
    age(home.sessions / "_no-cwd")
    store = DshStore(home.path)
    index = SessionIndex(store, None)
    titles(index)
    listed: list[str] = []
    keys = store.keys

    def listing(group: str, check: CheckCancelled) -> list[str]:
        listed.append(group)
        return keys(group, check)

    monkeypatch.setattr(store, "keys", listing)
    titles(index)
    assert listed == []
    home.write("b", [title("B")])

    assert set(titles(index).values()) == {"A", "B"}
    assert listed == ["_no-cwd"]


@pytest.mark.parametrize("what", ["generation", "same length"])
def test_a_log_that_changed_within_the_grain_of_its_time_is_read_again(home: DshHome, what: str) -> None:
    log = home.write("s", [user("x"), title("Old")], version=3)
    index = SessionIndex(DshStore(home.path), None)
    before = {path: path.stat() for path in (log, log.parent)}
    assert list(titles(index).values()) == ["Old"]
    if what == "generation":
        home.write("s", [title("New")], version=4)
    else:
        shutil.copyfile(home.write("t", [user("x"), title("New")], version=3, header=header_line("s", 3)), log)
        shutil.rmtree(home.sessions / "_no-cwd" / "t")
    for path, facts in before.items():
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    bring_up_to_date(index)

    assert list(titles(index).values()) == ["New"]
