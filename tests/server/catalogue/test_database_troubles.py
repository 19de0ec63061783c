"""A catalogue file that others damaged, hold, or that cannot be written: done without, and healed."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from catalogue_doubles import open_database
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.store import Lesson, SessionHeader

needs_modes = pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")
KEY = "project/s"


def lesson(title: str | None = "Title", session_id: str = "s") -> Lesson:
    return Lesson(header=SessionHeader(session_id=session_id, created_at=1, title=title), stamp=b"stamp", resume=b"r")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "catalogue"


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "catalogue.sqlite3"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[CatalogueDatabase]:
    found = open_database(tmp_path)
    yield found
    found.close()


def works(database: CatalogueDatabase) -> bool:
    """Whether what is saved can be had again."""
    database.save_lessons("works", {KEY: lesson()})
    database.save_capture_state("works", KEY, b"state")
    return database.lessons("works") == {KEY: lesson()} and database.capture_state("works", KEY) == b"state"


def altered(path: Path, *statements: str, arguments: tuple[Any, ...] = ()) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement, arguments)


@pytest.mark.parametrize("table", ["lessons", "captures"])
@pytest.mark.parametrize("column", ["content", "checksum", "key", "store"])
def test_a_row_that_was_altered_is_not_believed(path: Path, tmp_path: Path, table: str, column: str) -> None:
    with closing(open_database(tmp_path)) as database:
        database.save_lessons("one", {KEY: lesson()})
        database.save_capture_state("one", KEY, b"state")
    name = {"content": "lesson" if table == "lessons" else "state"}.get(column, column)
    value = {"key": "other/s", "store": "two"}.get(column, b"something else")
    altered(path, f"UPDATE {table} SET {name} = ?", arguments=(value,))

    with closing(open_database(tmp_path)) as database:
        for store, key in ((store, key) for store in ("one", "two") for key in (KEY, "other/s")):
            if table == "lessons":
                assert key not in database.lessons(store)
            else:
                assert database.capture_state(store, key) is None
        assert works(database)


def test_a_lesson_that_is_damaged_does_not_stay_in_the_file(path: Path, database: CatalogueDatabase) -> None:
    database.save_lessons("one", {KEY: lesson(), "project/t": lesson("T", "t")})
    database.save_lessons("two", {KEY: lesson("Other")})
    altered(path, "UPDATE lessons SET lesson = x'00' WHERE store = 'one' AND key = ?", arguments=(KEY,))

    assert database.lessons("one") == {"project/t": lesson("T", "t")}
    assert database.facts().lessons == 2
    assert database.lessons("two") == {KEY: lesson("Other")}


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO lessons VALUES ('works', CAST(x'ff' AS TEXT), x'00', x'00')",
        "DROP TABLE lessons",
        "DROP TABLE captures",
        "ALTER TABLE lessons RENAME COLUMN lesson TO other",
        "DROP INDEX captures_by_use",
        "UPDATE captures SET used = 'yesterday'",
        "UPDATE captures SET size = 'large', used = 0",
        "UPDATE lessons SET lesson = 'text'",
        "UPDATE captures SET state = 5",
    ],
)
def test_a_file_whose_tables_are_not_as_they_should_be_heals(path: Path, tmp_path: Path, statement: str) -> None:
    with closing(open_database(tmp_path)) as database:
        assert works(database)
    altered(path, statement)

    with closing(open_database(tmp_path)) as database:
        database.lessons("works")
        works(database)
        assert works(database)
        database.save_capture_state("works", "other", b"state")
        assert database.facts().captures == 2
    with closing(open_database(tmp_path)) as database:
        assert works(database)
        assert database.facts().state == "ok"


@pytest.mark.parametrize("version", [1, 99, -1])
def test_a_file_of_another_schema_is_made_anew(path: Path, tmp_path: Path, version: int) -> None:
    with closing(open_database(tmp_path)) as database:
        database.save_lessons("one", {KEY: lesson()})
    altered(path, f"PRAGMA user_version = {version}")

    with closing(open_database(tmp_path)) as database:
        assert database.lessons("one") == {}
        assert works(database)


@pytest.mark.parametrize("content", [b"", b"x", b"SQLite format 3\0", bytes(5000), b"no database at all\n" * 1000])
def test_a_file_that_is_no_database_is_made_anew(path: Path, tmp_path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)

    with closing(open_database(tmp_path)) as database:
        assert works(database)


def test_another_process_that_holds_the_file_costs_what_it_would_have_saved(path: Path, tmp_path: Path) -> None:
    with closing(open_database(tmp_path)) as database:
        database.save_lessons("one", {KEY: lesson()})
    with closing(open_database(tmp_path)) as database:
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("PRAGMA locking_mode = EXCLUSIVE")
            holder.execute("BEGIN EXCLUSIVE")
            assert database.lessons("one") == {}
            database.save_lessons("one", {"project/other": lesson()})
            assert database.capture_state("one", KEY) is None
            assert database.facts().state == "unusable"

        assert database.lessons("one") == {KEY: lesson()}
        assert works(database)


def test_a_writer_that_holds_the_file_is_waited_for_but_not_for_long(path: Path, database: CatalogueDatabase) -> None:
    database.save_lessons("one", {KEY: lesson()})
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        database.save_lessons("one", {"project/other": lesson()})
        assert database.lessons("one") == {KEY: lesson()}
        holder.execute("ROLLBACK")

    assert works(database)


def test_a_folder_in_the_place_of_the_file_is_left_alone(path: Path, database: CatalogueDatabase) -> None:
    path.mkdir(parents=True)
    (path / "kept").write_bytes(b"kept")

    assert not works(database)
    assert (path / "kept").read_bytes() == b"kept"
    assert database.facts().state == "unusable"


@needs_modes
def test_a_link_in_the_place_of_the_file_is_not_followed(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"")
    path.parent.mkdir()
    path.symlink_to(target)

    with closing(open_database(tmp_path)) as database:
        works(database)
        assert target.read_bytes() == b""
        assert list(tmp_path.glob("target*")) == [target]


def test_a_file_in_the_place_of_the_folder_is_left_alone(folder: Path, database: CatalogueDatabase) -> None:
    folder.write_bytes(b"kept")

    assert not works(database)
    assert folder.read_bytes() == b"kept"


def test_a_file_that_vanishes_under_an_open_catalogue_is_no_failure(path: Path, database: CatalogueDatabase) -> None:
    assert works(database)
    shutil.rmtree(path.parent)
    works(database)
    database.close()

    assert works(database)


def test_a_process_that_is_out_of_descriptors_does_not_delete_the_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_database(tmp_path)) as database:
        database.save_lessons("one", {KEY: lesson()})

    def refuse(*arguments: Any, **options: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with closing(open_database(tmp_path)) as database:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            assert database.lessons("one") == {}
        assert database.lessons("one") == {KEY: lesson()}


def unprivileged() -> list[str]:
    """What makes a child obey modes, also where the tests run as root."""
    if os.name == "nt":
        pytest.skip("modes are those of POSIX")
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("root obeys no modes here")
    return [setpriv, "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]


CHILD = """
import logging, resource, signal, sys
from pathlib import Path
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.store import Lesson, SessionHeader

logging.basicConfig(level="WARNING", stream=sys.stdout, format="LOGGED %(message)s")
if len(sys.argv) > 2:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
database = CatalogueDatabase(Path(sys.argv[1]), max_bytes=10_000_000)
lesson = Lesson(header=SessionHeader(session_id="s", created_at=1, title="Title" * 20), stamp=b"stamp")
for number in range(300):
    database.save_lessons("child", {f"project/{number}": lesson})
    database.save_capture_state("child", f"project/{number}", bytes(2000))
    assert database.capture_state("child", f"project/{number}") in (None, bytes(2000))
    database.forget("child", [f"project/{number - 150}"])
assert set(database.lessons("child").values()) <= {lesson}
print("SURVIVED", database.facts().state)
"""


def child(*arguments: str, before: list[str] | None = None) -> str:
    command = [*(before or []), sys.executable, "-c", CHILD, *arguments]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=100, check=True)
    return ended.stdout


@needs_modes
@pytest.mark.parametrize("size", [0, 4096, 30_000, 100_000, 400_000])
def test_a_full_disk_is_survived_and_what_was_there_stays_readable(path: Path, tmp_path: Path, size: int) -> None:
    with closing(open_database(tmp_path)) as database:
        assert works(database)

    assert "SURVIVED" in child(str(path), str(size))
    with closing(open_database(tmp_path)) as database:
        database.lessons("child")
        assert works(database)


def test_a_database_that_may_not_grow_is_survived(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def small(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.execute("PRAGMA max_page_count = 12")
        return connection

    monkeypatch.setattr(sqlite3, "connect", small)
    with closing(open_database(tmp_path)) as database:
        for number in range(50):
            database.save_capture_state("one", str(number), bytes([number]) * 2000)
            assert database.capture_state("one", str(number)) in (None, bytes([number]) * 2000)
        assert database.capture_state("one", "0") == bytes(2000)


@needs_modes
@pytest.mark.parametrize("has_file", [False, True])
def test_a_folder_that_may_not_be_written_is_done_without(path: Path, tmp_path: Path, has_file: bool) -> None:
    before = unprivileged()
    path.parent.mkdir()
    if has_file:
        with closing(open_database(tmp_path)) as database:
            assert works(database)
    path.parent.chmod(0o500)
    try:
        said = child(str(path), before=before)
    finally:
        path.parent.chmod(0o700)

    assert "SURVIVED" in said
    assert said.count("LOGGED") <= 2
    with closing(open_database(tmp_path)) as database:
        assert works(database)
