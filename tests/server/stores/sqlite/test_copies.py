"""Private copies of live databases are few, and not made without need."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from resolver_doubles import never_cancelled
from sessionref.server.stores.sqlite import DatabaseCopies, read_untouched
from sqlite_doubles import OLD_NS, Writer, age, count_copies, read, said
from store_contract import Cancelled, CheckCounter


def test_nothing_is_copied_twice_that_has_not_changed(
    path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch, private: Path
) -> None:
    age(path)
    made, copies = count_copies(monkeypatch), DatabaseCopies()
    assert [read(path, copies=copies) for _ in range(3)] == [["first"]] * 3
    assert len(made) == 1

    writer.do("INSERT INTO said VALUES ('second')")
    age(path)
    assert read(path, copies=copies) == ["first", "second"]
    assert len(made) == 2
    assert len(list(private.iterdir())) == 1


def test_a_copy_of_what_was_just_written_is_not_kept(
    path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch, private: Path
) -> None:
    writer.do("INSERT INTO said VALUES ('second')")
    wal = path.with_name(f"{path.name}-wal")
    # A clock that is ahead, so that the moment of the write never passes.
    os.utime(wal, ns=(2**62, 2**62))
    made, copies = count_copies(monkeypatch), DatabaseCopies()

    assert [read(path, copies=copies) for _ in range(2)] == [["first", "second"]] * 2
    assert len(made) == 2
    assert list(private.iterdir()) == []


def test_a_copy_that_was_tidied_away_is_made_again(path: Path, writer: Writer, private: Path) -> None:
    age(path)
    copies = DatabaseCopies()
    read(path, copies=copies)
    for file in private.glob("*/*"):
        file.unlink()

    assert read(path, copies=copies) == ["first"]


@pytest.mark.skipif(os.name != "posix", reason="modes are another thing here")
def test_nobody_else_may_look_into_a_copy(path: Path, writer: Writer, private: Path) -> None:
    path.chmod(0o644)
    age(path)
    copies = DatabaseCopies()
    read(path, copies=copies)
    (folder,) = private.iterdir()

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def test_only_a_few_are_kept_those_that_were_used_last(tmp_path: Path, private: Path) -> None:
    copies, writers = DatabaseCopies(), list[Writer]()
    paths = [tmp_path / f"{number}.db" for number in range(DatabaseCopies.MAX_COPIES + 2)]
    for path in paths:
        writers.append(Writer(path))
        writers[-1].do("PRAGMA journal_mode = WAL", "CREATE TABLE said (text)")
    for path in tmp_path.glob("*.db*"):
        os.utime(path, ns=(OLD_NS, OLD_NS))
    try:
        for path in paths:
            assert read(paths[0], copies=copies) == read(path, copies=copies) == []
    finally:
        for writer in writers:
            writer.kill()

    assert len(list(private.iterdir())) == DatabaseCopies.MAX_COPIES


def test_a_superseded_copy_stays_while_somebody_reads_it(path: Path, writer: Writer, private: Path) -> None:
    age(path)
    copies = DatabaseCopies()

    def read_slowly(connection: sqlite3.Connection) -> list[str]:
        writer.do("INSERT INTO said VALUES ('second')")
        age(path)
        assert read(path, copies=copies) == ["first", "second"]
        return said(connection)

    assert read_untouched(path, read_slowly, never_cancelled, copies=copies) == ["first"]
    assert len(list(private.iterdir())) == 1


def test_a_copy_that_is_cancelled_leaves_nothing(path: Path, writer: Writer, private: Path) -> None:
    for at in (2, 3):
        with pytest.raises(Cancelled):
            read_untouched(path, said, CheckCounter(at), copies=DatabaseCopies())
    assert list(private.iterdir()) == []


def test_copies_are_gone_when_the_process_has_ended(path: Path, writer: Writer, private: Path) -> None:
    age(path)
    program = (
        "import sys, pathlib\n"
        "from sessionref.server.stores.sqlite import read_untouched\n"
        "count = lambda connection: connection.execute('SELECT count(*) FROM said').fetchone()[0]\n"
        "found = read_untouched(pathlib.Path(sys.argv[1]), count, lambda: None)\n"
        "print(found, len(list(pathlib.Path(sys.argv[2]).iterdir())))\n"
    )
    command = [sys.executable, "-X", "dev", "-c", program, str(path), str(private)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "TMPDIR": str(private)}, check=True
    )

    assert (ended.stdout, ended.stderr) == ("1 1\n", "")
    assert list(private.iterdir()) == []
