"""Formats 1 to 3 of pi's sessions, and what is none of them (agent-stores section 8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pi_records import PiLog, capture_of, diagnosed, said
from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.pi.store import PiStore
from store_fixtures.logs import lines_of


def spoken(folder: Path, log: PiLog) -> list[str]:
    return said(capture_of(folder, log))


@pytest.mark.parametrize("version", [1, None])
def test_in_version_one_each_entry_hangs_on_the_one_before(tmp_path: Path, version: int | None) -> None:
    log = PiLog(version=version, has_ids=False)
    log.talk("one", "two", "three")

    assert spoken(tmp_path, log) == ["u:one", "a:two", "u:three"]


@pytest.mark.parametrize(
    ("index", "kept"),
    [(3, ["u:three"]), (1, ["u:one", "a:two", "u:three"]), (0, []), (9, []), (-1, []), (None, [])],
)
def test_a_compaction_of_version_one_names_the_line_from_which_it_kept(
    tmp_path: Path, index: int | None, kept: list[str]
) -> None:
    log = PiLog(version=1, has_ids=False)
    log.talk("one", "two", "three")
    log.compaction("short", firstKeptEntryIndex=index)
    log.assistant("four")

    assert spoken(tmp_path, log) == ["c:short", *kept, "a:four"]


def test_lines_that_are_no_records_have_no_place_in_version_one(tmp_path: Path) -> None:
    log = PiLog(version=1, has_ids=False)
    log.talk("one", "two", "three")
    log.compaction("short", firstKeptEntryIndex=3)
    lines = log.content.split(b"\n")
    content = b"\n".join([lines[0], b"broken", b"", *lines[1:]])

    assert said(capture_of(tmp_path, content)) == ["c:short", "u:three"]


def test_version_two_is_a_tree_as_version_three_is(tmp_path: Path) -> None:
    log = PiLog(version=2)
    first, _ = log.talk("one", "abandoned")
    log.leaf = first
    log.assistant("two")
    log.message("hookMessage", "injected")

    assert spoken(tmp_path, log) == ["u:one", "a:two"]


@pytest.mark.parametrize("version", [4, 5, 10**30, 0, -1, 2.5, "3", "4", [3], {}])
def test_a_version_that_is_not_known_is_refused_as_newer(tmp_path: Path, version: Any) -> None:
    log = PiLog(version=version)
    log.user("one")
    failure = failure_of(lambda: capture_of(tmp_path, log))
    listing = PiStore(tmp_path).list_sessions(never_cancelled)

    assert failure.reason is ReadFailedReason.NEWER_FORMAT
    assert [row.reason for row in listing.unlisted] == ["newer-format"]


@pytest.mark.parametrize(
    "first",
    [
        {"type": "message", "id": "1", "message": {"role": "user", "content": "x"}},
        {"type": "session", "version": 3},
        {"type": "session", "id": ""},
        {"type": "session", "id": 5},
        {"type": "session_meta", "id": "s"},
        {"type": "title", "title": "T"},
    ],
)
def test_a_file_that_begins_with_something_else_is_no_session(tmp_path: Path, first: dict[str, Any]) -> None:
    assert failure_of(lambda: capture_of(tmp_path, lines_of([first]))).reason is ReadFailedReason.CORRUPT
    listing = PiStore(tmp_path).list_sessions(never_cancelled)
    assert [row.reason for row in listing.unlisted] == ["corrupt"]


def test_what_is_no_record_before_the_header_does_not_count(tmp_path: Path) -> None:
    log = PiLog()
    log.user("one")
    capture = capture_of(tmp_path, b"\n  \nbroken\n[]\n" + log.content)

    assert said(capture) == ["u:one"]
    assert (capture.captured_through_seq, diagnosed(capture)) == (3, ["skipped-lines"])


@pytest.mark.parametrize("title", [{"type": "title", "title": "Of oh-my-pi"}, {"type": "title", "id": "x"}])
def test_the_title_line_of_oh_my_pi_may_stand_before_the_header(tmp_path: Path, title: dict[str, Any]) -> None:
    log = PiLog()
    log.talk("one", "two")
    capture = capture_of(tmp_path, lines_of([title]) + log.content)

    assert (said(capture), capture.cwd, capture.captured_through_seq) == (["u:one", "a:two"], "/w", 3)


@pytest.mark.parametrize(("cwd", "found"), [("/w", "/w"), ("", None), (None, None), (5, None)])
def test_the_working_directory_is_the_headers(tmp_path: Path, cwd: Any, found: str | None) -> None:
    log = PiLog(cwd=cwd)
    log.user("one")

    assert capture_of(tmp_path, log).cwd == found
