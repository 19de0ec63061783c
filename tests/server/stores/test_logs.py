"""Stores of log files, by the example of a tiny agent: what is a session, how a log ends, and when a row is stale."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import Lesson
from sessionref.server.stores.file_states import FRESH_NANOSECONDS
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.limits import ReadingLimits
from tiny_agent import FIRST, HEAD, PADDING, LinkedStore, Tiny, TinyStore, diagnosed, line


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    """A tiny agent."""
    return Tiny(tmp_path)


def test_positions_count_lines_and_not_those_that_are_blank(tiny: Tiny) -> None:
    tiny.write(HEAD, b"\n", line("user", "one"), b"broken\n", b" \r\n", line("assistant", "two"), b"broken\n")
    capture = tiny.full()

    assert capture.captured_through_seq == 3
    assert [item.text for item in capture.items] == ["one", "two"]
    assert diagnosed(capture) == ["skipped-lines"]
    assert capture.format_version is None


def test_unknown_records_are_counted_and_said(tiny: Tiny) -> None:
    tiny.write(*FIRST, line("strange"), line("strange"))

    assert diagnosed(tiny.full()) == ["unknown-events"]
    assert tiny.full().captured_through_seq == 4


def test_a_last_line_without_a_line_feed_is_there_if_it_is_whole(tiny: Tiny) -> None:
    tiny.write(*FIRST, line("user", "three").rstrip(b"\n"))

    assert tiny.texts() == ["one", "two" + PADDING, "three"]
    assert diagnosed(tiny.full()) == []
    assert tiny.full().captured_through_seq == 3


def test_a_row_takes_a_last_line_without_a_line_feed_if_it_is_whole(tiny: Tiny) -> None:
    tiny.write(*FIRST, line("name", "Whole").rstrip(b"\n"))
    assert tiny.learn().header.title == "Whole"
    tiny.write(*FIRST, line("name", "Torn")[:-2])
    assert tiny.learn().header.title is None


@pytest.mark.parametrize("torn", [b"{", b'{"type": "user", "text": "thr', b"\0\0", b"garbage", b'{"type": "user"'])
def test_a_last_line_that_is_not_whole_is_torn_and_has_no_position(tiny: Tiny, torn: bytes) -> None:
    tiny.write(*FIRST, torn)
    capture = tiny.full()

    assert [item.text for item in capture.items] == ["one", "two" + PADDING]
    assert diagnosed(capture) == ["torn-tail"]
    assert capture.captured_through_seq == 2


@pytest.mark.parametrize("blank", [b"\n", b"\n\n", b" ", b"\r\n"])
def test_blanks_at_the_end_are_nothing(tiny: Tiny, blank: bytes) -> None:
    tiny.write(*FIRST, blank)

    assert diagnosed(tiny.full()) == []
    assert tiny.full().captured_through_seq == 2


def test_a_log_without_a_record_is_corrupt_and_an_empty_one_is_no_session(tiny: Tiny) -> None:
    for content in (b"\n", b"\0" * 5000, b"garbage\n" * 10, b"{", b"[]\n"):
        tiny.write(content)
        assert tiny.refusal() is ReadFailedReason.CORRUPT
        assert [row.reason for row in tiny.store().list_sessions(never_cancelled).unlisted] == ["corrupt"]
    tiny.write()
    assert tiny.refusal() is ReadFailedReason.NOT_FOUND
    assert tiny.store().list_sessions(never_cancelled).unlisted == []
    assert tiny.store().learn(tiny.key, None, never_cancelled, with_title=True) is None


def test_a_log_that_vanished_is_no_session_and_no_problem(tiny: Tiny) -> None:
    tiny.write(*FIRST)
    known = tiny.learn()
    tiny.path.unlink()

    assert tiny.store().learn(tiny.key, known, never_cancelled, with_title=True) is None
    assert list(tiny.store().changed({tiny.key: known.stamp}, never_cancelled)) == [tiny.key]
    assert tiny.refusal() is ReadFailedReason.NOT_FOUND
    tiny.project.rmdir()
    assert tiny.store().learn(tiny.key, known, never_cancelled, with_title=True) is None


def test_what_is_no_log_by_its_name_is_none(tiny: Tiny) -> None:
    tiny.write(*FIRST)
    (tiny.project / "notes.txt").write_bytes(b"")
    (tiny.home / "sessions" / "s.jsonl").write_bytes(HEAD)
    store = tiny.store()

    assert store.keys("sessions/project", never_cancelled) == [tiny.key]
    assert store.learn("sessions/s.jsonl", None, never_cancelled, with_title=True) is None
    assert list(store.changed({"sessions/s.jsonl": b"x"}, never_cancelled)) == ["sessions/s.jsonl"]
    assert store.identity("sessions/s.jsonl", None) == "sessions/s.jsonl"
    assert store.identity(tiny.key, None) == "tiny:s"
    assert store.key_of(tiny.home / "sessions" / "s.jsonl") is None


def test_without_its_title_a_long_log_is_read_no_further_than_its_first_records(
    tiny: Tiny, bytes_read_by: Callable[[Callable[[], object]], int]
) -> None:
    tiny.write(*FIRST, *[line("user", PADDING)] * 100, line("name", "Late"))
    limits = ReadingLimits(whole_bytes=2000, piece_bytes=4096)
    lessons: list[Lesson | None] = []
    spent = bytes_read_by(
        lambda: lessons.append(tiny.store(limits).learn(tiny.key, None, never_cancelled, with_title=False))
    )
    (lesson,) = lessons

    assert lesson is not None
    assert (lesson.has_title, lesson.resume, lesson.header.cwd) == (False, b"", "/srv")
    assert spent < 20_000
    assert tiny.learn(lesson).header.title == "Late"


def test_a_log_up_to_the_limit_is_read_whole_though_only_its_head_was_asked_for(tiny: Tiny) -> None:
    tiny.write(*FIRST, line("name", "There"))
    store = tiny.store(ReadingLimits())
    lesson = store.learn(tiny.key, None, never_cancelled, with_title=False)

    assert lesson is not None
    assert (lesson.has_title, lesson.header.title) == (True, "There")


def test_a_file_beside_the_log_completes_its_row_and_its_change_is_seen(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = tiny_clock(monkeypatch)
    tiny.write(*FIRST, line("name", "Of the log"))
    later()
    before = tiny.learn()
    assert list(tiny.store().changed({tiny.key: before.stamp}, never_cancelled)) == []
    (tiny.project / "s.jsonl.note").write_text("Of the note")
    assert list(tiny.store().changed({tiny.key: before.stamp}, never_cancelled)) == [tiny.key]

    assert (before.header.title, tiny.learn(before).header.title) == ("Of the log", "Of the note")


def tiny_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Puts the clock of the store ahead, by more than the grain of times of files."""
    really = time.time_ns
    return lambda: monkeypatch.setattr(time, "time_ns", lambda: really() + 2 * FRESH_NANOSECONDS)


def test_a_stamp_proves_nothing_while_a_change_might_bear_the_same_time(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = tiny_clock(monkeypatch)
    tiny.write(*FIRST)
    fresh = tiny.learn().stamp
    assert list(tiny.store().changed({tiny.key: fresh}, never_cancelled)) == [tiny.key]
    later()
    assert list(tiny.store().changed({tiny.key: fresh}, never_cancelled)) == [tiny.key]
    settled = tiny.learn().stamp
    assert list(tiny.store().changed({tiny.key: settled}, never_cancelled)) == []
    for change in (
        lambda: tiny.append(line("user", "more")),
        lambda: os.utime(tiny.path, ns=(0, 12345)),
        lambda: tiny.path.rename(tiny.path.with_suffix(".old")),
    ):
        change()
        assert list(tiny.store().changed({tiny.key: settled}, never_cancelled)) == [tiny.key]


def test_a_linked_project_is_followed_only_where_the_agent_does_and_a_linked_log_never(
    tiny: Tiny, tmp_path: Path
) -> None:
    tiny.write(*FIRST)
    os.rename(tiny.project, tmp_path / "elsewhere")
    tiny.project.symlink_to(tmp_path / "elsewhere")

    strict, linked = TinyStore(tiny.home), LinkedStore(tiny.home)
    assert failure_of(lambda: strict.capture("tiny:s", never_cancelled)).reason is ReadFailedReason.OUTSIDE_ROOT
    assert [(row.place, row.reason) for row in strict.list_sessions(never_cancelled).unlisted] == [
        ("sessions/project", "outside-root")
    ]
    assert len(linked.capture("tiny:s", never_cancelled).items) == 2
    assert len(linked.list_sessions(never_cancelled).sessions) == 1
    os.rename(tmp_path / "elsewhere" / "s.jsonl", tmp_path / "log")
    (tmp_path / "elsewhere" / "s.jsonl").symlink_to(tmp_path / "log")
    assert failure_of(lambda: linked.capture("tiny:s", never_cancelled)).reason is ReadFailedReason.OUTSIDE_ROOT
    assert [row.reason for row in linked.list_sessions(never_cancelled).unlisted] == ["outside-root"]


def test_two_logs_of_one_name_are_a_double_and_an_empty_one_is_none(tiny: Tiny) -> None:
    tiny.write(*FIRST)
    other = tiny.home / "sessions" / "other"
    other.mkdir()
    (other / "s.jsonl").write_bytes(b"")
    assert len(tiny.full().items) == 2
    (other / "s.jsonl").write_bytes(HEAD)

    assert tiny.refusal() is ReadFailedReason.DUPLICATE_ID
    assert [row.reason for row in tiny.store().list_sessions(never_cancelled).unlisted] == ["duplicate-id"] * 2


def test_a_conversation_over_the_limit_is_refused(tiny: Tiny) -> None:
    tiny.write(HEAD, *[line("user", "x" * 1000)] * 10)
    exactly, less = ReadingLimits(conversation_bytes=10_000), ReadingLimits(conversation_bytes=9_999)

    assert len(tiny.store(exactly).capture("tiny:s", never_cancelled).items) == 10
    failure = failure_of(lambda: tiny.store(less).capture("tiny:s", never_cancelled))
    assert (failure.reason, failure.data["limit"]) == (ReadFailedReason.TOO_LARGE, 9_999)


def test_a_line_over_the_limit_is_refused_wherever_it_is(tiny: Tiny) -> None:
    limits = ReadingLimits(line_bytes=5000, piece_bytes=1000)
    for content in (
        [HEAD, line("user", "x" * 6000)],
        [HEAD, line("user", "x" * 6000)[:-1]],
        [HEAD, b"x" * 6000],
        [line("head", "x" * 6000), line("user", "one")],
    ):
        tiny.write(*content)
        failure = failure_of(lambda: tiny.store(limits).capture("tiny:s", never_cancelled))
        assert failure.reason is ReadFailedReason.TOO_LARGE


def test_watched_folders_are_those_that_are_there_and_tell_the_keys_of_logs(tiny: Tiny, tmp_path: Path) -> None:
    tiny.write(*FIRST)
    (tmp_path / "link").symlink_to(tiny.home)
    linked = TinyStore(tmp_path / "link")

    assert tiny.store().watched_folders() == [tiny.home / "sessions"]
    assert TinyStore(tmp_path / "missing").watched_folders() == []
    assert linked.key_of(tmp_path / "link" / tiny.key) == linked.key_of(tiny.path.resolve()) == tiny.key
    assert linked.key_of(tmp_path / tiny.key) is None


@pytest.mark.parametrize("number", [errno.EACCES, errno.ELOOP, errno.EIO])
def test_a_project_that_cannot_be_looked_at_costs_its_own_sessions_and_is_said(
    tiny: Tiny, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write(*FIRST)
    (tiny.home / "sessions" / "closed").mkdir()
    really_look, really_open = Folder.facts, Folder.folder

    def look(self: Folder, name: str) -> os.stat_result:
        if "closed" in name:
            raise OSError(number, os.strerror(number))
        return really_look(self, name)

    def enter(self: Folder, name: str, *, follow_link: bool = False) -> Folder:
        if name == "closed":
            raise OSError(number, os.strerror(number))
        return really_open(self, name, follow_link=follow_link)

    monkeypatch.setattr(Folder, "facts", look)
    monkeypatch.setattr(Folder, "folder", enter)
    listing = tiny.store().list_sessions(never_cancelled)

    assert [header.session_id for header in listing.sessions] == ["tiny:s"]
    assert [row.place for row in listing.unlisted] == ["sessions/closed"]
    assert len(tiny.full().items) == 2
    missing = failure_of(lambda: tiny.store().capture("tiny:missing", never_cancelled))
    assert missing.reason is not ReadFailedReason.NOT_FOUND
