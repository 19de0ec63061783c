"""What of a foreign database cannot be read, and why; and how its files are told."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from resolver_doubles import never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.problems import Unreadable
from sessionref.server.stores.sqlite import DatabaseLimits, read_untouched
from sessionref.server.stores.sqlite_files import facts_of
from sqlite_doubles import NO_COPIES, OLD_NS, Writer, read, reason_of, said
from store_contract import Cancelled, CheckCounter, files_below, in_time


def test_a_database_that_is_not_there_is_not_found(path: Path) -> None:
    assert reason_of(lambda: read(path)) is ReadFailedReason.NOT_FOUND
    assert reason_of(lambda: read(path / "below")) is ReadFailedReason.NOT_FOUND


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.mkdir()


def make_link(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
@pytest.mark.parametrize("make", [make_fifo, make_folder, make_link])
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are none here")
def test_what_is_no_file_is_outside_of_the_root_and_does_not_block(
    path: Path, writer: Writer, make: Callable[[Path], None], suffix: str
) -> None:
    writer.close()
    path.with_name("elsewhere").write_bytes(path.read_bytes())
    odd = path.with_name(path.name + suffix)
    odd.unlink(missing_ok=True)
    make(odd)

    assert in_time(lambda: reason_of(lambda: read(path))) is ReadFailedReason.OUTSIDE_ROOT


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 4096, b"\0" * 8192])
def test_a_file_that_is_no_database_is_corrupt(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    assert reason_of(lambda: read(path)) is ReadFailedReason.CORRUPT


def test_a_database_that_is_cut_off_is_corrupt(path: Path, writer: Writer) -> None:
    writer.do(*[f"INSERT INTO said VALUES (hex(zeroblob({size})))" for size in range(2000, 3000, 100)])
    writer.close()
    path.write_bytes(path.read_bytes()[:8192])

    assert reason_of(lambda: read(path)) is ReadFailedReason.CORRUPT


def test_an_empty_file_has_no_tables(path: Path) -> None:
    path.touch()

    def tables(connection: sqlite3.Connection) -> list[str]:
        return list(connection.execute("SELECT name FROM sqlite_schema"))

    assert read_untouched(path, tables, never_cancelled) == []


def test_a_value_beyond_the_limit_is_too_large(path: Path, writer: Writer) -> None:
    writer.do("INSERT INTO said VALUES (zeroblob(100000))")
    limits = DatabaseLimits(value_bytes=50_000)

    with pytest.raises(Unreadable) as caught:
        read(path, limits=limits)
    assert (caught.value.reason, caught.value.limit) == (ReadFailedReason.TOO_LARGE, 50_000)


def test_a_database_that_is_being_written_in_place_is_not_read(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE said (text)")
        database.execute("PRAGMA cache_spill = 1")
        database.execute("PRAGMA cache_size = 1")
        database.execute("BEGIN")
        for _ in range(50):
            database.execute("INSERT INTO said VALUES (hex(zeroblob(2000)))")
        before = files_below(path.parent)

        assert len(before) == 3
        assert reason_of(lambda: read(path)) is ReadFailedReason.IO
        assert files_below(path.parent) == before
        database.execute("ROLLBACK")
    assert read(path) == []


def write_hot_journal(path: Path) -> Path:
    """A database, and the journal of somebody who is writing into it."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE said (text)")
    journal = path.with_name(f"{path.name}-journal")
    journal.write_bytes(bytes.fromhex("d9d505f920a163d7") + bytes(504))
    return journal


def test_a_transaction_in_place_that_is_under_way_is_waited_for(path: Path) -> None:
    journal = write_hot_journal(path)
    checks: list[bool] = []

    def check() -> None:
        checks.append(journal.exists())
        if len(checks) == 3:
            journal.unlink()

    assert read_untouched(path, said, check) == []
    assert checks[:3] == [True] * 3


def test_one_that_was_broken_off_long_ago_is_not(path: Path) -> None:
    journal = write_hot_journal(path)
    for file in (path, journal):
        os.utime(file, ns=(OLD_NS, OLD_NS))
    counted = CheckCounter()

    assert reason_of(lambda: read_untouched(path, said, counted)) is ReadFailedReason.IO
    assert counted.calls == 1


def test_without_a_place_for_a_copy_the_database_is_not_said_to_be_lost(
    path: Path, writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))

    assert reason_of(lambda: read(path)) is ReadFailedReason.IO


def test_a_journal_that_is_no_longer_needed_does_no_harm(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = PERSIST")
        database.execute("CREATE TABLE said (text)")
    assert path.with_name(f"{path.name}-journal").stat().st_size

    assert read(path) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_a_matter_of_permission(path: Path, writer: Writer) -> None:
    writer.close()
    path.chmod(0)

    assert reason_of(lambda: read(path)) is ReadFailedReason.PERMISSION


def failure_with(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("as SQLite would say it")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "is_readable", "reason"),
    [
        (sqlite3.SQLITE_CANTOPEN, False, ReadFailedReason.PERMISSION),
        (sqlite3.SQLITE_CANTOPEN, True, ReadFailedReason.IO),
        (sqlite3.SQLITE_PERM, True, ReadFailedReason.PERMISSION),
        (sqlite3.SQLITE_IOERR, True, ReadFailedReason.IO),
        (sqlite3.SQLITE_BUSY, True, ReadFailedReason.IO),
        (sqlite3.SQLITE_CORRUPT | 1 << 8, True, ReadFailedReason.CORRUPT),
        (sqlite3.SQLITE_ERROR, True, ReadFailedReason.CORRUPT),
    ],
)
def test_what_sqlite_finds_wrong_has_a_reason(
    path: Path, writer: Writer, code: int, is_readable: bool, reason: ReadFailedReason, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(path: Path, mode: int) -> bool:
        return is_readable

    monkeypatch.setattr("os.access", answer)

    def fail(connection: sqlite3.Connection) -> None:
        raise failure_with(code)

    assert reason_of(lambda: read_untouched(path, fail, never_cancelled)) is reason


def test_one_that_is_busy_for_a_moment_is_tried_again(path: Path, writer: Writer) -> None:
    failures = [failure_with(sqlite3.SQLITE_BUSY)] * 3

    def fail_at_first(connection: sqlite3.Connection) -> list[str]:
        if failures:
            raise failures.pop()
        return said(connection)

    assert read_untouched(path, fail_at_first, never_cancelled, limits=NO_COPIES) == ["first"]


def test_what_the_reader_finds_wrong_is_passed_on(path: Path, writer: Writer) -> None:
    def refuse(connection: sqlite3.Connection) -> None:
        raise Unreadable(ReadFailedReason.NEWER_FORMAT)

    for _ in range(2):
        assert reason_of(lambda: read_untouched(path, refuse, never_cancelled)) is ReadFailedReason.NEWER_FORMAT
        writer.close()


@pytest.mark.parametrize("limits", [DatabaseLimits(), NO_COPIES])
def test_a_statement_that_never_ends_can_be_cancelled(path: Path, writer: Writer, limits: DatabaseLimits) -> None:
    def count_for_ever(connection: sqlite3.Connection) -> None:
        forever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
        connection.execute(forever).fetchone()

    for _ in range(2):
        with pytest.raises(Cancelled):
            read_untouched(path, count_for_ever, CheckCounter(100), limits=limits)
        writer.close()


def test_facts_tell_what_was_written_and_when_that_is_past(path: Path, writer: Writer) -> None:
    before = facts_of(path)
    writer.do("INSERT INTO said VALUES ('second')")
    after = facts_of(path)

    assert before != after
    assert after.size > before.size
    assert after.modified_ns >= before.modified_ns
    assert not after.are_settled(after.modified_ns)
    assert after.are_settled(after.modified_ns + 10**9)
    assert facts_of(path) == after


def test_times_of_whole_seconds_are_settled_later(path: Path) -> None:
    path.touch()
    os.utime(path, ns=(0, 5_000_000_000))
    facts = facts_of(path)

    assert not facts.are_settled(6_000_000_000)
    assert facts.are_settled(7_000_000_001)
