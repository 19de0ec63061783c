"""Several servers over one catalogue, while sessions change: each answers as a full read would (issue 4)."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

from catalogue_doubles import bring_up_to_date, full_view, index_view, open_database, outcome_of
from dsh_fixtures import DshHome, assistant, event, title, user, zstd_frame
from resolver_doubles import never_cancelled
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.sources import SessionSources
from sessionref.server.stores.dsh import DshStore, ReadingLimits

LIMITS = ReadingLimits(whole_bytes=0, saved_from_bytes=0)
SESSIONS = 12
ROUNDS = 25
SECONDS = 120
CHILD = """
import sys
from contextlib import closing
from pathlib import Path

sys.path[:0] = sys.argv[3:4]
from test_sharing import LIMITS, serve_once
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.stores.dsh import DshStore

store = DshStore(Path(sys.argv[1]), limits=LIMITS)
with closing(CatalogueDatabase(Path(sys.argv[2]), max_bytes=10_000_000)) as database:
    index = SessionIndex(store, database)
    for line in sys.stdin:
        index = serve_once(store, database, index, anew=line == "anew\\n")
        print("same", flush=True)
"""


class Writer:
    """A home whose sessions go on changing."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.home = DshHome(folder / "home")
        self._chance = random.Random(seed)
        self._lengths: dict[Path, int] = {}
        for number in range(SESSIONS):
            self._write(number)

    def change(self) -> None:
        """A few logs grow, one is exchanged for another, one may go or come back."""
        for log in self._chance.sample(sorted(self._lengths), 5):
            seq = self._lengths[log]
            added = [title(f"T{seq}"), user("question"), assistant("answer " * 20), event("tool/call")][seq % 4]
            line = added.line(seq, 0)
            with log.open("ab") as file:
                file.write(zstd_frame(line) if log.suffix == ".zstd" else line)
            self._lengths[log] = seq + 1
        number = self._chance.randrange(SESSIONS)
        log = self._log(number)
        if self._chance.random() < 0.5 and log in self._lengths:
            log.unlink()
            log.parent.rmdir()
            del self._lengths[log]
        else:
            log.unlink(missing_ok=True)
            self._write(number)

    def _write(self, number: int) -> None:
        events = [title(f"First {self._chance.random()}"), user("question " * self._chance.randrange(900))]
        log = self.home.write(f"s{number}", events, cwd=f"/p{number % 2}", compressed=number % 3 == 0)
        self._lengths[log] = len(events)

    def _log(self, number: int) -> Path:
        suffix = ".zstd" if number % 3 == 0 else ""
        return self.home.sessions / f"--p{number % 2}--" / f"s{number}" / f"session.jsonl{suffix}"


def serve_once(store: DshStore, database: object, index: SessionIndex, *, anew: bool) -> SessionIndex:
    """Answer everything once, as a server that has just started or goes on; the sessions must not change meanwhile."""
    from sessionref.server.catalogue.database import CatalogueDatabase

    assert isinstance(database, CatalogueDatabase)
    if anew:
        index = SessionIndex(store, database)
    bring_up_to_date(index)
    assert index_view(index) == full_view(store)
    sources = SessionSources([store], database)
    for number in range(SESSIONS):
        session_id = f"s{number}"
        full = outcome_of(partial(store.capture, session_id, never_cancelled))
        assert outcome_of(partial(sources.capture, session_id, never_cancelled)) == full
    return index


def test_servers_in_threads_share_one_catalogue_and_answer_as_full_reads_do(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 1)
    store = DshStore(writer.home.path, limits=LIMITS)
    turns = threading.Barrier(4, action=writer.change, timeout=SECONDS)

    def serve(number: int) -> None:
        try:
            with closing(open_database(tmp_path)) as database:
                index = SessionIndex(store, database)
                for round_ in range(ROUNDS):
                    turns.wait()
                    index = serve_once(store, database, index, anew=(round_ + number) % 3 == 0)
        except BaseException:
            turns.abort()
            raise

    with ThreadPoolExecutor(4) as pool:
        failures = [served.exception(SECONDS) for served in [pool.submit(serve, number) for number in range(4)]]
    assert failures == [None] * 4


def test_servers_in_processes_share_one_catalogue_and_answer_as_full_reads_do(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 2)
    path = tmp_path / "catalogue" / "catalogue.sqlite3"
    here = Path(__file__).parent
    script = f"import sys; sys.path.insert(0, {str(here.parents[1])!r})\n{CHILD}"
    command = [sys.executable, "-c", script, str(writer.home.path), str(path), str(here)]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for round_ in range(ROUNDS):
            writer.change()
            tell(children, "anew\n" if round_ % 3 == 0 else "on\n")
            for child in children:
                assert child.stdout is not None
                assert child.stdout.readline() == "same\n"
    finally:
        for child in children:
            child.communicate(timeout=SECONDS)
    assert [child.returncode for child in children] == [0, 0]


def tell(children: Sequence[subprocess.Popen[str]], what: str) -> None:
    for child in children:
        assert child.stdin is not None
        child.stdin.write(what)
        child.stdin.flush()


def test_a_catalogue_that_one_server_deletes_is_no_trouble_for_the_other(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 3)
    store = DshStore(writer.home.path, limits=LIMITS)
    names = ["catalogue.sqlite3", "catalogue.sqlite3-wal"]
    with closing(open_database(tmp_path)) as first, closing(open_database(tmp_path)) as second:
        one, two = SessionIndex(store, first), SessionIndex(store, second)
        for round_ in range(6):
            writer.change()
            one = serve_once(store, first, one, anew=round_ % 2 == 0)
            (tmp_path / "catalogue" / names[round_ % 2]).unlink(missing_ok=True)
            two = serve_once(store, second, two, anew=round_ % 2 == 1)
        first.close()
        serve_once(store, first, one, anew=True)
