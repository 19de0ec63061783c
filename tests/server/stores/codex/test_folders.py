"""How often the folders of rollouts are listed, and what becomes of those that cannot be looked into."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from catalogue_doubles import bring_up_to_date
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.stores.folders import Folder
from store_fixtures import CREATED_AT
from store_fixtures.codex.homes import THREAD, CodexHome
from store_fixtures.codex.rollouts import message

OTHER = "01a229e5-0000-7000-8000-00000000000f"
DAY = 86_400_000
LONG_AGO = 1_000_000_000

needs_links = pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links are another thing here")


def age(home: CodexHome) -> None:
    """Let everything be so old that another change would show."""
    for path in [home.path, *home.path.rglob("*")]:
        os.utime(path, (LONG_AGO, LONG_AGO))


def test_folders_are_listed_again_only_if_they_changed(home: CodexHome, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        home.write(message("user", "x"), thread=f"{THREAD[:-1]}{number}", created_at=CREATED_AT + number * DAY)
    age(home)
    listed = Counter[str]()
    really_open = type(home.store).open_folder

    def counted(folder: Folder, path: str) -> object:
        listed[path] += 1
        return really_open(home.store, folder, path)

    monkeypatch.setattr(home.store.folders, "_open_folder", counted)
    before = home.store.groups()
    assert max(listed.values()) == 1
    listed.clear()
    assert home.store.groups() == before
    assert len(home.all_keys()) == 5
    assert not listed

    path = home.write(message("user", "new"), thread=OTHER, created_at=CREATED_AT)
    os.utime(path.parent, (LONG_AGO + 1, LONG_AGO + 1))
    assert home.store.groups() != before
    assert dict(listed) == {path.parent.relative_to(home.path).as_posix(): 1}
    assert len(home.all_keys()) == 6


def test_a_folder_that_changed_just_now_is_not_trusted(home: CodexHome) -> None:
    path = home.write(message("user", "x"))
    now = time.time_ns()
    os.utime(path.parent, ns=(now, now))
    assert len(home.all_keys()) == 1
    home.write(message("user", "y"), thread=OTHER)
    os.utime(path.parent, ns=(now, now))

    assert len(home.all_keys()) == 2


def test_the_group_is_as_old_as_its_latest_change(home: CodexHome) -> None:
    assert home.store.groups() == {}
    path = home.write(message("user", "x"))
    age(home)
    for folder in (path.parent, path.parent.parent.parent, home.path / "sessions"):
        later = max(home.store.groups().values()) + 1_000_000_000
        os.utime(folder, ns=(later, later))
        assert set(home.store.groups().values()) == {later}


@needs_links
def test_a_folder_that_is_a_link_is_said_and_costs_no_other(home: CodexHome, tmp_path: Path) -> None:
    home.write(message("user", "hello"))
    home.write(message("user", "away"), thread=OTHER, folder="archived_sessions")
    (home.path / "archived_sessions").rename(tmp_path / "outside")
    (home.path / "archived_sessions").symlink_to(tmp_path / "outside")

    assert list(home.rows()) == [THREAD]
    assert home.unlisted() == {"archived_sessions": ReadFailedReason.OUTSIDE_ROOT}
    assert home.refusal(OTHER) is ReadFailedReason.OUTSIDE_ROOT
    assert home.talk() == ["> hello"]


def test_a_folder_that_is_closed_to_us_is_said(home: CodexHome, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home.write(message("user", "hello"))
    home.write(message("user", "away"), thread=OTHER, folder="archived_sessions")
    inode, really_open = path.parent.stat().st_ino, os.open

    def fail_for_it(name: str, flags: int, *arguments: int, dir_fd: int | None = None) -> int:
        descriptor = really_open(name, flags, *arguments, dir_fd=dir_fd)
        if os.fstat(descriptor).st_ino == inode:
            os.close(descriptor)
            raise PermissionError(13, "closed", name)
        return descriptor

    monkeypatch.setattr(os, "open", fail_for_it)
    closed = path.parent.relative_to(home.path).as_posix()

    age(home)
    index = SessionIndex(home.store, None)
    bring_up_to_date(index)

    assert list(home.rows()) == [OTHER]
    assert home.unlisted() == {closed: ReadFailedReason.PERMISSION}
    assert home.refusal() is ReadFailedReason.PERMISSION
    assert [(one.place, one.reason) for one in index.unlisted()] == [(closed, ReadFailedReason.PERMISSION)]

    monkeypatch.undo()
    bring_up_to_date(index)
    assert set(home.rows()) == {THREAD, OTHER}
    assert len(index.rows()) == 2
