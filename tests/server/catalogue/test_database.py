"""The catalogue file: private, shared, and never in the way, whatever becomes of it."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from catalogue_doubles import MAX_BYTES, open_database
from sessionref.server.catalogue import database as database_module
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


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_name_that_is_no_text_costs_no_other_session_its_row(tmp_path: Path, database: CatalogueDatabase) -> None:
    database.save_lessons("one", {"project/\udcff": lesson(), KEY: lesson(), "project/gone": lesson()})
    database.save_capture_state("one", "project/\udcff", b"state")
    database.forget("one", ["project/\udcff", "project/gone"])

    assert database.lessons("one") == {KEY: lesson()}
    assert database.capture_state("one", "project/\udcff") is None


def test_what_was_learnt_is_there_for_the_next_server(tmp_path: Path, database: CatalogueDatabase) -> None:
    database.save_lessons("one", {KEY: lesson(), "project/t": lesson("T", "t")})
    database.save_lessons("two", {KEY: lesson("Other")})
    database.save_capture_state("one", KEY, b"state")

    with closing(open_database(tmp_path)) as other:
        assert other.lessons("one") == {KEY: lesson(), "project/t": lesson("T", "t")}
        assert other.lessons("two") == {KEY: lesson("Other")}
        assert (other.capture_state("one", KEY), other.capture_state("two", KEY)) == (b"state", None)


def test_what_is_saved_again_takes_the_place_of_what_was(database: CatalogueDatabase) -> None:
    for number in range(3):
        database.save_lessons("one", {KEY: lesson(str(number))})
        database.save_capture_state("one", KEY, bytes([number]))

    assert database.lessons("one") == {KEY: lesson("2")}
    assert database.capture_state("one", KEY) == b"\2"
    assert (database.facts().lessons, database.facts().captures, database.facts().capture_bytes) == (1, 1, 1)


def test_what_is_forgotten_is_gone_from_one_store_alone(database: CatalogueDatabase) -> None:
    for store in ("one", "two"):
        database.save_lessons(store, {KEY: lesson()})
        database.save_capture_state(store, KEY, b"state")
    database.forget("one", [KEY, "project/never-there"])

    assert (database.lessons("one"), database.capture_state("one", KEY)) == ({}, None)
    assert (database.lessons("two"), database.capture_state("two", KEY)) == ({KEY: lesson()}, b"state")


@needs_modes
def test_the_file_and_its_companions_are_private_even_with_an_open_umask(
    folder: Path, path: Path, database: CatalogueDatabase
) -> None:
    before = os.umask(0)
    try:
        assert works(database)
        assert mode(folder) == 0o700
        assert {name.name: mode(name) for name in folder.glob("catalogue*")} == {
            "catalogue.sqlite3": 0o600,
            "catalogue.sqlite3-wal": 0o600,
            "catalogue.sqlite3-shm": 0o600,
        }
    finally:
        os.umask(before)


@needs_modes
def test_a_file_that_others_could_read_is_made_private(folder: Path, path: Path, tmp_path: Path) -> None:
    with closing(open_database(tmp_path)) as first:
        assert works(first)
    path.chmod(0o644)

    with closing(open_database(tmp_path)) as second:
        assert works(second)
        assert mode(path) == 0o600


def test_the_folder_is_tagged_as_a_cache(folder: Path, database: CatalogueDatabase) -> None:
    assert works(database)
    assert (folder / "CACHEDIR.TAG").read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55\n")


def test_a_folder_that_holds_other_things_is_not_tagged_as_a_cache(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_bytes(b"dear reader")
    with closing(CatalogueDatabase(tmp_path / "catalogue.sqlite3", max_bytes=MAX_BYTES)) as database:
        assert works(database)

    assert not (tmp_path / "CACHEDIR.TAG").exists()


def test_what_was_deleted_does_not_stay_in_the_file(path: Path, tmp_path: Path) -> None:
    secret = b"a title that nobody should find again"
    database = open_database(tmp_path)
    database.save_lessons("one", {KEY: lesson(secret.decode())})
    database.save_capture_state("one", KEY, secret * 1000)
    database.close()
    assert secret in path.read_bytes()

    with closing(open_database(tmp_path)) as again:
        again.forget("one", [KEY])
    assert not [name.name for name in path.parent.iterdir() if secret in name.read_bytes()]


def test_the_least_recently_used_captures_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    with closing(open_database(tmp_path, max_bytes=1000)) as database:
        for number in range(4):
            now += 1
            database.save_capture_state("one", str(number), bytes(250))
        now += database_module.TOUCH_SECONDS + 1
        assert database.capture_state("one", "0") is not None
        for number in range(4, 6):
            now += 1
            database.save_capture_state("one", str(number), bytes(250))

        kept = [number for number in range(6) if database.capture_state("one", str(number)) is not None]
        assert kept == [0, 3, 4, 5]
        assert database.facts().capture_bytes <= 1000


def test_a_capture_that_would_evict_most_others_is_not_kept(tmp_path: Path) -> None:
    with closing(open_database(tmp_path, max_bytes=1000)) as database:
        database.save_capture_state("one", "large", bytes(251))
        assert database.capture_state("one", "large") is None


def test_with_no_room_at_all_lessons_are_still_kept(tmp_path: Path) -> None:
    with closing(open_database(tmp_path, max_bytes=0)) as database:
        database.save_lessons("one", {KEY: lesson()})
        database.save_capture_state("one", KEY, b"state")
        assert (database.lessons("one"), database.capture_state("one", KEY)) == ({KEY: lesson()}, None)


def test_a_title_with_half_a_character_costs_its_own_row_only(database: CatalogueDatabase) -> None:
    database.save_lessons("one", {"project/half": lesson("\ud800"), KEY: lesson()})

    assert database.lessons("one") == {KEY: lesson()}


@pytest.mark.parametrize("action", ["lessons", "forget", "state", "save"])
def test_a_key_that_is_no_unicode_is_done_without(database: CatalogueDatabase, action: str) -> None:
    key = "project-\udcff/s"
    actions: dict[str, Callable[[], object]] = {
        "lessons": lambda: database.save_lessons("one", {key: lesson()}),
        "forget": lambda: database.forget("one", [key]),
        "state": lambda: database.capture_state("one", key),
        "save": lambda: database.save_capture_state("one", key, b"state"),
    }

    assert actions[action]() is None
    assert works(database)
    assert database.lessons("one") == {}
