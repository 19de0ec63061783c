"""Every state of a foreign database is read as it is, and nothing of it is touched."""

from __future__ import annotations

import os
import sqlite3
import threading
from itertools import count
from pathlib import Path

import pytest

from resolver_doubles import never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.problems import Unreadable
from sessionref.server.stores.sqlite import DatabaseCopies, DatabaseLimits, read_untouched
from sqlite_doubles import NO_COPIES, OLD_NS, Writer, count_copies, read, reason_of, said
from store_contract import files_below


def test_nothing_is_touched_in_a_database_that_its_agent_has_closed(path: Path, writer: Writer) -> None:
    writer.close()
    before = files_below(path.parent)

    assert read(path) == ["first"]
    assert files_below(path.parent) == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_nothing_is_touched_in_one_that_its_agent_has_open_and_that_can_be_copied(path: Path, writer: Writer) -> None:
    before = files_below(path.parent)

    assert read(path) == ["first"]
    assert files_below(path.parent) == before
    assert len(before) == 4


def test_nothing_is_touched_in_one_that_its_agent_has_open_and_that_is_too_large_to_be_copied(
    path: Path, writer: Writer
) -> None:
    before = files_below(path.parent)

    assert read(path, limits=NO_COPIES) == ["first"]
    assert files_below(path.parent) == before


@pytest.mark.parametrize("limits", [DatabaseLimits(), NO_COPIES])
def test_nothing_is_touched_in_one_whose_agent_has_crashed(path: Path, writer: Writer, limits: DatabaseLimits) -> None:
    writer.kill()
    before = files_below(path.parent)

    assert read(path, limits=limits) == ["first"]
    assert files_below(path.parent) == before


def test_nothing_is_touched_in_one_whose_agents_shared_memory_is_lost(path: Path, writer: Writer) -> None:
    writer.kill()
    path.with_name(f"{path.name}-shm").unlink()
    before = files_below(path.parent)

    assert read(path) == ["first"]
    assert reason_of(lambda: read(path, limits=NO_COPIES)) is ReadFailedReason.TOO_LARGE
    assert files_below(path.parent) == before


def test_nothing_is_touched_in_one_with_an_empty_log(path: Path, writer: Writer) -> None:
    writer.do("PRAGMA wal_checkpoint(TRUNCATE)")
    before = files_below(path.parent)

    assert read(path, limits=NO_COPIES) == ["first"]
    assert files_below(path.parent) == before


def test_nothing_is_touched_by_a_reader_that_tries_to_write(path: Path, writer: Writer) -> None:
    writer.close()
    before = files_below(path.parent)

    def write(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO said VALUES ('no')")

    with pytest.raises(Unreadable):
        read_untouched(path, write, never_cancelled)
    assert files_below(path.parent) == before


def test_nothing_is_touched_by_a_reader_that_attaches_another(path: Path, writer: Writer) -> None:
    def attach(connection: sqlite3.Connection) -> None:
        connection.execute("ATTACH ? AS other", (str(path.with_name("other.db")),))

    with pytest.raises(Unreadable):
        read_untouched(path, attach, never_cancelled)
    assert not path.with_name("other.db").exists()


@pytest.mark.parametrize("limits", [DatabaseLimits(), NO_COPIES])
def test_what_the_agent_has_just_written_is_there(path: Path, writer: Writer, limits: DatabaseLimits) -> None:
    copies = DatabaseCopies()
    for number in range(5):
        writer.do(f"INSERT INTO said VALUES ('{number}')")
        expected = ["first", *map(str, range(number + 1))]
        assert read(path, limits=limits, copies=copies) == expected
    writer.do("PRAGMA wal_checkpoint(RESTART)", "INSERT INTO said VALUES ('last')")
    assert read(path, limits=limits, copies=copies)[-1] == "last"


@pytest.mark.parametrize("limits", [DatabaseLimits(), NO_COPIES])
def test_what_is_not_committed_is_not_there(path: Path, writer: Writer, limits: DatabaseLimits) -> None:
    writer.do("BEGIN", "INSERT INTO said VALUES ('not yet')")
    assert read(path, limits=limits) == ["first"]
    writer.do("COMMIT")
    assert read(path, limits=limits) == ["first", "not yet"]


def test_several_statements_see_one_state(path: Path, writer: Writer) -> None:
    def read_twice(connection: sqlite3.Connection) -> list[list[str]]:
        before = said(connection)
        writer.do("INSERT INTO said VALUES ('meanwhile')")
        return [before, said(connection)]

    assert read_untouched(path, read_twice, never_cancelled, limits=NO_COPIES) == [["first"], ["first"]]
    assert read(path) == ["first", "meanwhile"]


def test_a_state_that_changes_while_it_is_read_is_read_again(path: Path, writer: Writer) -> None:
    writer.close()
    seen: list[list[str]] = []

    def read_slowly(connection: sqlite3.Connection) -> list[str]:
        seen.append(said(connection))
        if len(seen) == 1:
            other = Writer(path)
            other.do("INSERT INTO said VALUES ('second')")
            other.close()
        return seen[-1]

    assert read_untouched(path, read_slowly, never_cancelled) == ["first", "second"]
    assert seen == [["first"], ["first", "second"]]


def test_an_error_that_such_a_change_makes_is_none(path: Path, writer: Writer) -> None:
    writer.close()
    attempts = count()

    def fail_once(connection: sqlite3.Connection) -> list[str]:
        if not next(attempts):
            os.utime(path, ns=(OLD_NS, OLD_NS))
            connection.execute("SELECT nothing FROM nowhere")
        return said(connection)

    assert read_untouched(path, fail_once, never_cancelled) == ["first"]


def test_one_that_changes_all_the_time_is_given_up(path: Path, writer: Writer) -> None:
    writer.close()
    times = count(OLD_NS)

    def read_never(connection: sqlite3.Connection) -> None:
        os.utime(path, ns=(0, next(times)))

    limits = DatabaseLimits(attempts=7, seconds=0)
    assert reason_of(lambda: read_untouched(path, read_never, never_cancelled, limits=limits)) == "io"
    assert next(times) == OLD_NS + 7


def test_a_log_that_begins_anew_while_it_is_copied_is_copied_again(
    path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch, private: Path
) -> None:
    made = count_copies(monkeypatch)
    calls = count()

    def check() -> None:
        if made and not next(calls):
            writer.do("PRAGMA wal_checkpoint(RESTART)", "DELETE FROM said", "INSERT INTO said VALUES ('anew')")

    assert read_untouched(path, said, check, copies=DatabaseCopies()) == ["anew"]
    assert len(made) == 2
    assert list(private.iterdir()) == []


def test_every_state_is_whole_however_busy_the_agent_is(path: Path, writer: Writer) -> None:
    writer.do("CREATE TABLE account (amount)", "INSERT INTO account VALUES (50), (50)")
    stop = threading.Event()

    def move_to_and_fro() -> None:
        for number in count():
            if stop.is_set():
                return
            writer.do(
                "BEGIN",
                f"UPDATE account SET amount = amount - {number} WHERE rowid = 1",
                f"UPDATE account SET amount = amount + {number} WHERE rowid = 2",
                f"INSERT INTO said VALUES (hex(zeroblob({(number % 7) * 4096})))",
                "COMMIT",
                f"PRAGMA wal_checkpoint({('PASSIVE', 'RESTART', 'TRUNCATE')[number % 3]})",
            )

    def total(connection: sqlite3.Connection) -> int:
        (found,) = connection.execute("SELECT sum(amount) FROM account").fetchone()
        return int(found)

    thread = threading.Thread(target=move_to_and_fro)
    thread.start()
    try:
        copies = DatabaseCopies()
        totals = {
            read_untouched(path, total, never_cancelled, limits=limits, copies=copies)
            for _ in range(100)
            for limits in (DatabaseLimits(seconds=10), NO_COPIES)
        }
    finally:
        stop.set()
        thread.join()
    assert totals == {100}


def test_text_that_is_no_utf_8_is_replaced(path: Path, writer: Writer) -> None:
    writer.do("INSERT INTO said VALUES (CAST(x'61ff62' AS TEXT))")

    assert read(path) == ["first", "a\ufffdb"]
