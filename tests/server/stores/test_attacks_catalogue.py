"""What the catalogue knows of a session comes to the same as a look without it, also where other files matter."""

from __future__ import annotations

import os
from pathlib import Path

from catalogue_doubles import bring_up_to_date, full_view, index_view, open_database
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.stores.codex.store import CodexStore
from sessionref.server.stores.file_states import file_state
from sessionref.server.stores.times import milliseconds_of
from store_fixtures.codex.homes import THREAD, CodexHome
from store_fixtures.codex.rollouts import message, meta

FORK = "01a229e5-7777-7000-8000-000000000003"
OLD_NS = 1_790_000_000_000_000_000


def age(folder: Path) -> None:
    """Let everything in a folder be as it is for long."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, ns=(OLD_NS, OLD_NS))


def test_a_fork_of_codex_is_called_by_what_comes_before_it_once_that_is_there(tmp_path: Path) -> None:
    home = CodexHome(tmp_path)
    original = home.write(message("user", "one"))
    base = {"thread_id": THREAD, "end_byte_offset": original.stat().st_size}
    home.write(message("user", "mine"), thread=FORK, header=meta(FORK, history_base=base))
    hidden = original.rename(tmp_path / "hidden")
    age(home.path)
    database = open_database(tmp_path)
    index = SessionIndex(CodexStore(home.path), database)
    bring_up_to_date(index)
    assert [row.title for row in index_view(index)[0]] == ["mine"]

    hidden.rename(original)
    warm = SessionIndex(CodexStore(home.path), database)
    for known in (index, warm):
        bring_up_to_date(known)
        assert index_view(known) == full_view(CodexStore(home.path))
        assert {row.title for row in index_view(known)[0]} == {"one"}
    database.close()


def test_a_file_may_bear_a_time_that_is_out_of_all_ranges(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x")
    facts = (tmp_path / "log").stat()
    states = {file_state(os.stat_result(tuple(facts), {"st_mtime_ns": time})) for time in (10**30, -(10**30), 2**64)}

    assert len(states) == 3
    assert milliseconds_of(10**30) == -milliseconds_of(-(10**30)) == 8_640_000_000_000_000
    assert milliseconds_of(1_999_999) == 1
