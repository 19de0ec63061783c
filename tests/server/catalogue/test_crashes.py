"""An indexer that dies at any moment, and a catalogue file that is damaged anywhere (issue 4)."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalogue_doubles import bring_up_to_date, full_view, index_view, open_database
from dsh_fixtures import DshHome, assistant, title, user
from resolver_doubles import never_cancelled
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.index import SessionIndex, store_name
from sessionref.server.sources import SessionSources
from sessionref.server.stores.dsh import DshStore, ReadingLimits

LIMITS = ReadingLimits(whole_bytes=0, saved_from_bytes=0)
SESSIONS = 24
PARTS = ["catalogue.sqlite3", "catalogue.sqlite3-wal", "catalogue.sqlite3-shm"]
CHILD = """
import math, os, sys
from pathlib import Path
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.sources import SessionSources
from sessionref.server.stores.dsh import ReadingLimits, DshStore

store = DshStore(Path(sys.argv[1]), limits=ReadingLimits(whole_bytes=0, saved_from_bytes=0))
database = CatalogueDatabase(Path(sys.argv[2]), max_bytes=60_000)
ids = [header.session_id for header in store.list_sessions(lambda: None).sessions]


def step():
    os.write(1, b".")


while True:
    index = SessionIndex(store, database)
    index.refresh(step)
    index.read_titles(step, math.inf)
    sources = SessionSources([store], database)
    for session_id in ids:
        sources.capture(session_id, step)
    for row in index.rows():
        step()
        database.forget(index._name, [row.key])
"""


def write_sessions(folder: Path) -> DshHome:
    home = DshHome(folder / "home")
    for number in range(SESSIONS):
        events = [user(f"question {number}"), title(f"Title {number}"), assistant("answer " * 50)]
        home.write(f"s{number}", events, cwd=f"/p{number % 3}", compressed=number % 2 == 1)
    return home


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home and a catalogue that knows all of it; the file, and its -wal and -shm as a crash leaves them."""
    folder = tmp_path_factory.mktemp("written")
    store = DshStore(write_sessions(folder).path, limits=LIMITS)
    with closing(open_database(folder)) as database:
        know_everything(store, database)
    with closing(open_database(folder)) as database:
        # What was written before is in the file itself by now, and this is not.
        database.forget(store_name(store), [f"--p0--/s{number}" for number in range(0, SESSIONS, 3)])
        know_everything(store, database)
        for name in PARTS:
            shutil.copyfile(folder / "catalogue" / name, folder / name)
    shutil.rmtree(folder / "catalogue")
    return folder


def know_everything(store: DshStore, database: CatalogueDatabase) -> None:
    index = SessionIndex(store, database)
    bring_up_to_date(index)
    assert index_view(index) == full_view(store)
    sources = SessionSources([store], database)
    for header in full_view(store)[0]:
        captured = sources.capture(header.session_id, never_cancelled)
        assert captured == store.capture(header.session_id, never_cancelled)


def has_healed(store: DshStore, database: CatalogueDatabase) -> bool:
    name = store_name(store)
    keys = [key for group in store.groups() for key in store.keys(group, never_cancelled)]
    known = all(database.capture_state(name, key) is not None for key in keys)
    return known and set(database.lessons(name)) == set(keys) and database.facts().state == "ok"


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_an_indexer_that_is_killed_at_any_moment_leaves_nothing_wrong(tmp_path: Path) -> None:
    home = write_sessions(tmp_path)
    store, moments = DshStore(home.path, limits=LIMITS), random.Random(4)
    path = tmp_path / "catalogue" / "catalogue.sqlite3"
    for round_ in range(20):
        command = [sys.executable, "-c", CHILD, str(home.path), str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as child:
            try:
                assert child.stdout is not None
                steps = moments.randrange(1, 600)
                while steps > 0:
                    steps -= len(child.stdout.read(steps)) or pytest.fail("the indexer ended by itself")
            finally:
                child.kill()
        assert child.returncode == -signal.SIGKILL
        if round_ % 3 == 0:
            home.write(f"s{round_}", [title(f"Newer {round_}")], cwd=f"/p{round_ % 3}", compressed=round_ % 2 == 1)
        with closing(CatalogueDatabase(path, max_bytes=10_000_000)) as database:
            know_everything(store, database)
            assert has_healed(store, database)


damages = st.lists(
    st.tuples(
        st.sampled_from(PARTS),
        st.sampled_from(["flip", "zero", "noise", "cut", "remove", "repeat"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 5000),
    ),
    min_size=1,
    max_size=3,
)


def damage(path: Path, kind: str, at: float, length: int) -> None:
    if kind == "remove" or not path.exists():
        path.unlink(missing_ok=True)
        return
    content = bytearray(path.read_bytes())
    start = int(at * len(content))
    end = min(len(content), start + length)
    if kind == "flip" and content:
        content[start] ^= 1 << length % 8
    elif kind == "zero":
        content[start:end] = bytes(end - start)
    elif kind == "noise":
        content[start:end] = random.Random(length).randbytes(end - start)
    elif kind == "cut":
        del content[start:]
    elif kind == "repeat":
        content[start:end] = content[: end - start]
    path.write_bytes(content)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(damages=damages)
def test_a_catalogue_that_is_damaged_anywhere_gives_no_wrong_answer_and_heals(
    written: Path, damages: list[tuple[str, str, float, int]]
) -> None:
    folder = written / "catalogue"
    folder.mkdir()
    try:
        for name in PARTS:
            shutil.copyfile(written / name, folder / name)
        for name, kind, at, length in damages:
            damage(folder / name, kind, at, length)
        store = DshStore(written / "home", limits=LIMITS)
        for _ in range(2):
            with closing(open_database(written)) as database:
                know_everything(store, database)
        with closing(open_database(written)) as database:
            know_everything(store, database)
            assert has_healed(store, database)
    finally:
        shutil.rmtree(folder)


def test_the_whole_file_is_there_to_be_damaged(written: Path) -> None:
    assert all((written / name).stat().st_size > 4096 for name in PARTS)
    folder = written / "catalogue"
    folder.mkdir()
    try:
        for name in PARTS:
            shutil.copyfile(written / name, folder / name)
        with closing(open_database(written)) as database:
            assert has_healed(DshStore(written / "home", limits=LIMITS), database)
    finally:
        shutil.rmtree(folder)
