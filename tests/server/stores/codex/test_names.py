"""How threads are called: by a database, an index, or a record; and what a rename costs."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from resolver_doubles import never_cancelled
from sessionref.server.stores.codex import homes, names, open_store
from sessionref.server.stores.codex.store import CodexStore
from store_fixtures.codex.homes import THREAD, CodexHome
from store_fixtures.codex.rollouts import event, message, name_line
from store_fixtures.logs import lines_of

OTHER = "01a229e5-0000-7000-8000-00000000000f"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be good enough for a while."""
    monkeypatch.setattr(names, "REST", 0)
    monkeypatch.setattr(names, "FRESH_REST_SECONDS", 0.0)


def store_names(path: Path, *rows: tuple[object, object], columns: str = "id TEXT, name TEXT") -> Path:
    """Write a database of threads, closed as Codex does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE threads ({columns})")
        database.executemany("INSERT INTO threads VALUES (?, ?)", rows)
    return path


def index_names(home: CodexHome, *lines: tuple[str, str]) -> None:
    with (home.path / "session_index.jsonl").open("ab") as index:
        index.write(lines_of([name_line(*line) for line in lines]))


@pytest.fixture
def path(home: CodexHome) -> Path:
    """A thread that nobody has named."""
    return home.write(message("user", "first prompt"), message("assistant", "hi"))


@pytest.mark.usefixtures("path")
def test_the_database_wins_over_the_index_and_that_over_nothing(home: CodexHome) -> None:
    assert home.row().title == "first prompt"
    index_names(home, (THREAD, "Indexed"), (OTHER, "Other"))
    assert home.row().title == "Indexed"
    store_names(home.path / "state_5.sqlite", (THREAD, "Stored"), (OTHER, None))
    assert home.row().title == "Stored"


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("name", [None, "", "  ", 7, b"bytes"])
def test_a_thread_without_a_name_in_the_database_has_that_of_the_index(home: CodexHome, name: object) -> None:
    index_names(home, (THREAD, "Indexed"))
    store_names(home.path / "state_5.sqlite", (THREAD, name), columns="id TEXT, name")

    assert home.row().title == "Indexed"


@pytest.mark.usefixtures("path")
def test_the_last_line_of_the_index_wins_and_damaged_ones_cost_themselves(home: CodexHome) -> None:
    index_names(home, (THREAD, "Old"), (THREAD, "New"), (THREAD, " "))
    with (home.path / "session_index.jsonl").open("ab") as index:
        index.write(b'{"id": 7, "thread_name": "x"}\n[]\n\xff\xfe\n\n{"id": "' + THREAD.encode())

    assert home.row().title == "New"


@pytest.mark.usefixtures("path")
def test_of_a_long_index_the_end_counts(home: CodexHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "INDEX_BYTES", 300)
    index_names(home, (THREAD, "Too far back"), *((OTHER, "x" * 50) for _ in range(9)))
    assert home.row().title == "first prompt"

    index_names(home, (THREAD, "At the end"))
    assert home.row().title == "At the end"


@pytest.mark.parametrize("folder", [".", "sqlite", "../databases"])
def test_a_database_is_found_wherever_it_may_be(home: CodexHome, path: Path, folder: str) -> None:
    store_names(home.path / folder / "state_5.sqlite", (THREAD, "Stored"))
    store = CodexStore(home.path, database_home=home.path.parent / "databases")

    assert [row.title for row in store.list_sessions(never_cancelled).sessions] == ["Stored"]
    assert path.exists()


@pytest.mark.usefixtures("path")
def test_the_environment_may_say_where_databases_are(
    home: CodexHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_names(tmp_path / "databases/state_5.sqlite", (THREAD, "Stored"))
    monkeypatch.setenv("CODEX_SQLITE_HOME", str(tmp_path / "databases"))

    assert [row.title for row in open_store(home.path).list_sessions(never_cancelled).sessions] == ["Stored"]


@pytest.mark.usefixtures("path")
def test_the_highest_generation_is_the_one_in_use_and_of_one_the_latest(home: CodexHome) -> None:
    store_names(home.path / "state_10.sqlite", (THREAD, "Tenth"))
    store_names(home.path / "sqlite/state_9.sqlite", (THREAD, "Ninth"))
    assert home.row().title == "Tenth"

    old = store_names(home.path / "sqlite/state_10.sqlite", (THREAD, "Tenth, elsewhere"))
    os.utime(old, (1_000_000_000, 1_000_000_000))
    assert home.row().title == "Tenth"
    os.utime(old, (4_000_000_000, 4_000_000_000))
    assert home.row().title == "Tenth, elsewhere"


@pytest.mark.usefixtures("path")
def test_a_database_that_is_in_use_is_read_with_what_was_written_last(home: CodexHome) -> None:
    place = store_names(home.path / "state_5.sqlite", (THREAD, "Before"))
    with closing(sqlite3.connect(place, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("UPDATE threads SET name = 'After'")
        before = sorted(file.name for file in home.path.iterdir())

        assert home.row().title == "After"
        assert sorted(file.name for file in home.path.iterdir()) == before


@pytest.mark.usefixtures("path")
def test_databases_that_cannot_be_read_cost_no_session(home: CodexHome) -> None:
    index_names(home, (THREAD, "Indexed"))
    place = home.path / "state_5.sqlite"
    place.write_bytes(b"no database")
    assert home.row().title == "Indexed"

    place.unlink()
    with closing(sqlite3.connect(place)) as database, database:
        database.execute("CREATE TABLE other (id)")
    assert home.row().title == "Indexed"

    place.unlink()
    with closing(sqlite3.connect(place)) as database, database:
        endless = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, 'x' AS name FROM n"
        database.execute(f"CREATE VIEW threads AS {endless}")
    assert home.row().title == "Indexed"

    store_names(place, columns="id TEXT, title TEXT")
    assert home.row().title == "Indexed"

    place.unlink()
    place.mkdir()
    assert home.row().title == "Indexed"


@pytest.mark.usefixtures("path")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are none here")
def test_an_index_that_is_no_file_costs_no_session(home: CodexHome) -> None:
    os.mkfifo(home.path / "session_index.jsonl")

    assert home.row().title == "first prompt"


def test_names_in_the_records_are_the_last_resort_before_the_prompt(home: CodexHome, path: Path) -> None:
    home.append(path, [event("thread_name_updated", thread_id=THREAD, thread_name="Said")])
    home.append(path, [event("thread_name_updated", thread_id=OTHER, thread_name="Another's")])
    assert home.row().title == "Said"

    index_names(home, (THREAD, "Indexed"))
    assert home.row().title == "Indexed"


def test_a_name_that_was_taken_away_is_none(home: CodexHome, path: Path) -> None:
    home.append(path, [event("thread_name_updated", thread_id=THREAD, thread_name="Said")])
    home.append(path, [event("thread_name_updated", thread_id=THREAD)])

    assert home.row().title == "first prompt"


def test_a_rename_changes_the_stamp_of_one_thread_alone(home: CodexHome, path: Path) -> None:
    other = home.write(message("user", "other"), thread=OTHER)
    index_names(home, (THREAD, "One"), (OTHER, "Two"))
    for file in (path, other):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    stamps = {key: home.lesson(key).stamp for key in home.all_keys()}
    assert home.changed(**stamps) == []

    index_names(home, (OTHER, "Renamed"))
    (key,) = home.changed(**stamps)

    assert home.lesson(key).header.title == "Renamed"
    assert home.changed(**stamps | {key: home.lesson(key).stamp}) == []
    assert home.row().title == "One"


@pytest.mark.usefixtures("path")
def test_names_that_vanish_are_gone(home: CodexHome) -> None:
    index_names(home, (THREAD, "Indexed"))
    store_names(home.path / "state_5.sqlite", (THREAD, "Stored"))
    assert home.row().title == "Stored"
    (home.path / "state_5.sqlite").unlink()
    assert home.row().title == "Indexed"
    (home.path / "session_index.jsonl").unlink()
    assert home.row().title == "first prompt"


def test_an_index_is_read_again_only_if_it_changed(home: CodexHome, monkeypatch: pytest.MonkeyPatch) -> None:
    index_names(home, (THREAD, "Indexed"))
    os.utime(home.path / "session_index.jsonl", (1_000_000_000, 1_000_000_000))
    home.store.names.look(never_cancelled)

    def fail(descriptor: int, size: int) -> bytes:
        raise AssertionError(f"{size} bytes are read of {descriptor}")

    monkeypatch.setattr(os, "read", fail)
    home.store.names.look(never_cancelled)

    assert home.store.names.name_of(THREAD) == "Indexed"


def test_the_home_is_where_the_environment_says_or_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)

    assert homes({}) == homes({"CODEX_HOME": ""}) == [tmp_path / ".codex"]
    assert homes({"CODEX_HOME": str(tmp_path / "other")}) == [tmp_path / "other"]
