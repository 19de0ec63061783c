"""Changes that are noticed while nobody asks: by events of the real file system, and by looks where there are none."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from catalogue_doubles import LearningStore
from dsh_fixtures import DshHome, title
from sessionref.server.catalogue import watching
from sessionref.server.catalogue.discovery import Discovery
from sessionref.server.catalogue.watching import watch_sessions
from sessionref.server.stores.dsh import DshStore, ReadingLimits
from sessionref.server.threads import WorkerThreads

LIMITS = ReadingLimits(whole_bytes=0)
NEVER = 1e6
SECONDS = 20
"""A fail-safe: how long to wait for what takes a fraction of a second."""


@pytest.fixture
def home(tmp_path: Path) -> DshHome:
    return DshHome(tmp_path / "home")


def forbid_rescans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing but events."""
    for name in ("RESCAN_SECONDS", "WATCHED_RESCAN_SECONDS"):
        monkeypatch.setattr(watching, name, NEVER)


def forbid_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let watching fail as on a system without watches left."""
    import watchfiles

    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(watchfiles, "watch", refuse)


def titles(discovery: Discovery) -> list[str]:
    """What the indexes know without a look at anything."""
    return [row.label for index in discovery.indexes.values() for row in index.rows() if not row.title_pending]


def is_due(discovery: Discovery) -> bool:
    return any(index.has_unread for index in discovery.indexes.values())


async def ask(discovery: Discovery) -> None:
    await discovery.candidates(lambda rows, check: [])


async def until(condition: Callable[[], bool], act: Callable[[], object] = lambda: None) -> None:
    """Wait for a condition, acting again and again: nothing tells when a watch has really begun."""
    with anyio.fail_after(SECONDS):
        while not condition():
            act()
            await anyio.sleep(0.02)


@asynccontextmanager
async def watched(*stores: DshStore | LearningStore) -> AsyncGenerator[Discovery]:
    """A discovery whose sessions are watched."""
    threads = WorkerThreads()
    discovery = Discovery(stores, None, threads=threads, wait_seconds=SECONDS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_sessions, discovery, threads)
        try:
            yield discovery
        finally:
            tasks.cancel_scope.cancel()


def grow(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b" ")


async def test_a_log_that_grows_is_marked_by_an_event(home: DshHome, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_rescans(monkeypatch)
    log = home.write("a", [title("Old")])
    async with watched(DshStore(home.path, limits=LIMITS)) as discovery:
        await ask(discovery)
        assert titles(discovery) == ["Old"]
        await until(lambda: is_due(discovery), lambda: grow(log))
        with log.open("ab") as file:
            file.write(b"\n" + title("New").line(1, 0))
        await ask(discovery)


async def test_a_home_that_is_reached_through_a_link_is_watched(
    home: DshHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_rescans(monkeypatch)
    log = home.write("a", [title("Old")])
    (tmp_path / "link").symlink_to(home.path)
    async with watched(DshStore(tmp_path / "link", limits=LIMITS)) as discovery:
        await ask(discovery)
        await until(lambda: is_due(discovery), lambda: grow(log))


async def test_a_session_that_could_not_be_read_is_looked_at_again_after_an_event(
    home: DshHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_rescans(monkeypatch)
    log = home.write("a", header=b"{}\n")
    async with watched(DshStore(home.path, limits=LIMITS)) as discovery:
        await ask(discovery)
        assert titles(discovery) == []

        def mend() -> None:
            home.write("a", [title("Mended")])

        with anyio.fail_after(SECONDS):
            while titles(discovery) != ["Mended"]:
                mend()
                await anyio.sleep(0.02)
                await ask(discovery)
    assert log.exists()


async def test_where_events_fail_a_rescan_notices_and_the_log_says_so(
    home: DshHome, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forbid_events(monkeypatch)
    log = home.write("a", [title("Old")])
    async with watched(DshStore(home.path, limits=LIMITS)) as discovery:
        await ask(discovery)
        grow(log)
        began = time.monotonic()
        await until(lambda: is_due(discovery))
        assert time.monotonic() - began < SECONDS / 2
    assert "not watched" in caplog.text
    assert "OSError" in caplog.text


async def test_where_events_come_the_rescan_is_rare(home: DshHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "RESCAN_SECONDS", 0.01)
    monkeypatch.setattr(watching, "WATCHED_RESCAN_SECONDS", NEVER)
    rescans: list[float] = []

    def count_rescan(discovery: Discovery, seconds: float) -> None:
        rescans.append(seconds)

    monkeypatch.setattr(Discovery, "rescan", count_rescan)
    log = home.write("a", [title("Old")])
    async with watched(DshStore(home.path, limits=LIMITS)) as discovery:
        await ask(discovery)
        await until(lambda: is_due(discovery), lambda: grow(log))
        count = len(rescans)
        await anyio.sleep(0.1)
        assert len(rescans) <= count + 1


async def test_a_rescan_that_fails_does_not_end_the_watch(home: DshHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    monkeypatch.setattr(watching, "RESCAN_SECONDS", 0.01)
    log = home.write("a", [title("Old")])
    async with watched(DshStore(home.path, limits=LIMITS)) as discovery:
        await ask(discovery)
        # A file in the place of the sessions: for a moment, the store cannot be read as a whole.
        aside = home.path / "aside"
        home.sessions.rename(aside)
        home.sessions.write_bytes(b"")
        await anyio.sleep(0.1)
        home.sessions.unlink()
        aside.rename(home.sessions)
        await until(lambda: is_due(discovery), lambda: grow(log))


async def test_a_sessions_folder_that_comes_later_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "WATCHED_RESCAN_SECONDS", 0.02)

    def no_rescan(discovery: Discovery, seconds: float) -> None:
        pass

    monkeypatch.setattr(Discovery, "rescan", no_rescan)
    async with watched(DshStore(tmp_path / "home", limits=LIMITS)) as discovery:
        await ask(discovery)
        log = DshHome(tmp_path / "home").write("a", [title("T")])
        await ask(discovery)
        assert titles(discovery) == ["T"]
        await until(lambda: is_due(discovery), lambda: grow(log))


async def test_a_sessions_folder_that_was_exchanged_is_still_noticed(
    home: DshHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "RESCAN_SECONDS", 0.05)
    log = home.write("a", [title("Old")])
    async with watched(DshStore(home.path, limits=LIMITS)) as discovery:
        await ask(discovery)
        await until(lambda: is_due(discovery), lambda: grow(log))
        home.sessions.rename(tmp_path / "old-sessions")
        home.sessions.mkdir()
        log = home.write("a", [title("New")])
        await ask(discovery)
        await ask(discovery)
        assert not is_due(discovery)
        began = time.monotonic()
        await until(lambda: is_due(discovery), lambda: grow(log))
        assert time.monotonic() - began < 5


async def test_nothing_is_watched_or_looked_at_before_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "RESCAN_SECONDS", 0.001)
    looked: list[str] = []

    class Looking(LearningStore):
        def watched_folders(self) -> list[Path]:
            looked.append("folders")
            return super().watched_folders()

        def groups(self) -> dict[str, int]:
            looked.append("groups")
            return super().groups()

    async with watched(Looking()) as discovery:
        await anyio.sleep(0.05)
        assert looked == []
        await ask(discovery)
        await until(lambda: "folders" in looked)


@pytest.mark.parametrize("asked", [False, True])
async def test_the_end_of_watching_is_prompt(home: DshHome, asked: bool) -> None:
    home.write("a", [title("Old")])
    began = time.monotonic()
    async with watched(DshStore(home.path, limits=LIMITS)) as discovery:
        if asked:
            await ask(discovery)
            await anyio.sleep(0.1)
        began = time.monotonic()
    assert time.monotonic() - began < 3


async def test_without_the_library_sessions_are_looked_at(home: DshHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    log = home.write("a", [title("Old")])
    async with watched(DshStore(home.path, limits=LIMITS)) as discovery:
        await ask(discovery)
        grow(log)
        await until(lambda: is_due(discovery))
