"""What a look at a log that has grown reads of it: the new bytes, and what shows that it is the same log (issue 4)."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from catalogue_doubles import age, open_database
from dsh_fixtures import DshHome, Event, assistant, event, header_line, title, user, zstd_frame
from resolver_doubles import never_cancelled
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.sources import SessionSources
from sessionref.server.stores.dsh import DshStore, ReadingLimits
from sessionref.server.stores.frames import CHECKED_BYTES

APPENDS = 1000
SAVED_FROM_BYTES = 100_000
FIRST = [event("tool/call", {"output": random.Random(number).randbytes(700).hex()}) for number in range(300)]


class CountedReads:
    """Counts the bytes that pass `os.read`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.total = 0
        self._read = os.read
        monkeypatch.setattr(os, "read", self._counted)

    def _counted(self, descriptor: int, length: int, /) -> bytes:
        data = self._read(descriptor, length)
        self.total += len(data)
        return data

    def of(self, function: Callable[[], object]) -> int:
        before = self.total
        function()
        return self.total - before


def grown_by(log: Path, added: Event, seq: int) -> int:
    line = added.line(seq, 0)
    content = zstd_frame(line) if log.suffix == ".zstd" else line
    with log.open("ab") as file:
        file.write(content)
    return len(content)


def added_event(number: int) -> Event:
    kinds = [title(f"T{number}"), user(f"question {number}"), assistant("answer " * (number % 50)), event("tool/call")]
    return kinds[number % len(kinds)]


def header_bytes(compressed: bool) -> int:
    line = header_line("s")
    return len(zstd_frame(line) if compressed else line)


@pytest.fixture(params=[False, True], ids=["plain", "zstd"])
def compressed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def log(tmp_path: Path, compressed: bool) -> Path:
    found = DshHome(tmp_path / "home").write("s", FIRST, compressed=compressed, lines_a_frame=1)
    assert found.stat().st_size > SAVED_FROM_BYTES > ReadingLimits().whole_bytes
    return found


@pytest.fixture
def store(tmp_path: Path) -> DshStore:
    return DshStore(tmp_path / "home", limits=ReadingLimits(saved_from_bytes=SAVED_FROM_BYTES))


def test_a_prepare_reads_what_is_new_and_what_it_checks_alone(
    log: Path, store: DshStore, compressed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beyond: list[int] = []
    with closing(open_database(tmp_path)) as database:
        sources = SessionSources([store], database)
        sources.capture("s", never_cancelled)
        reads = CountedReads(monkeypatch)
        for number in range(APPENDS):
            new = grown_by(log, added_event(number), len(FIRST) + number)
            beyond.append(reads.of(lambda: sources.capture("s", never_cancelled)) - new)
        again = reads.of(lambda: sources.capture("s", never_cancelled))
        captured = sources.capture("s", never_cancelled)

    assert captured == store.capture("s", never_cancelled)
    assert captured.captured_through_seq == len(FIRST) + APPENDS - 1
    assert again == CHECKED_BYTES + header_bytes(compressed)
    assert max(beyond) <= 2 * (CHECKED_BYTES + header_bytes(compressed))
    assert max(beyond) <= CHECKED_BYTES + header_bytes(compressed)


def test_a_title_costs_what_is_new_and_what_is_checked_alone(
    log: Path, store: DshStore, compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = SessionIndex(store, None)
    index.refresh(never_cancelled)
    index.read_titles(never_cancelled, math.inf)
    (key,) = (row.key for row in index.rows())
    reads, beyond = CountedReads(monkeypatch), list[int]()

    def look() -> None:
        index.refresh(never_cancelled)
        assert index.look_again([key], never_cancelled)
        index.read_titles(never_cancelled, math.inf)

    for number in range(APPENDS):
        new = grown_by(log, added_event(number), len(FIRST) + number)
        beyond.append(reads.of(look) - new)

    assert [row.label for row in index.rows()] == [f"T{APPENDS - 4}"]
    assert max(beyond) <= 2 * (CHECKED_BYTES + header_bytes(compressed))
    assert max(beyond) <= CHECKED_BYTES + header_bytes(compressed)


def test_a_look_at_logs_that_did_not_change_reads_nothing(
    log: Path, store: DshStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (log, log.parent):
        age(path)
    index = SessionIndex(store, None)
    index.refresh(never_cancelled)
    index.read_titles(never_cancelled, math.inf)
    reads = CountedReads(monkeypatch)

    def look() -> None:
        index.refresh(never_cancelled)
        index.rescan(never_cancelled, math.inf)
        index.read_titles(never_cancelled, math.inf)

    assert reads.of(look) == 0
    assert index.rows()


def test_a_log_that_grows_while_it_is_read_is_not_read_anew_next_time(
    log: Path, store: DshStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = 0

    def grow() -> None:
        nonlocal grown
        grown_by(log, event("tool/call"), len(FIRST) + grown)
        grown += 1

    with closing(open_database(tmp_path)) as database:
        sources = SessionSources([store], database)
        sources.capture("s", grow)
        before, reads = grown, CountedReads(monkeypatch)
        assert before > 0
        read = reads.of(lambda: sources.capture("s", never_cancelled))

    assert read < log.stat().st_size / 2
