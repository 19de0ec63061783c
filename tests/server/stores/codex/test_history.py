"""Threads whose history begins in other rollouts: all of it is read, or the session is refused."""

from __future__ import annotations

import json
import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from resolver_doubles import never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.codex.store import FIRST_PROMPT_BYTES
from sessionref.server.stores.limits import ReadingLimits
from store_fixtures import CREATED_AT
from store_fixtures.codex.homes import ROLLOUT, THREAD, CodexHome
from store_fixtures.codex.rollouts import compacted, event, message, meta, name_line, rollout_path
from store_fixtures.logs import lines_of

FORK = "01a229e5-7777-7000-8000-000000000003"
LATER = CREATED_AT + 60_000


def numbered(*records: dict[str, Any], start: int = 0) -> list[dict[str, Any]]:
    return [{**record, "ordinal": start + at} for at, record in enumerate(records)]


def offset_of(path: Path, text: str) -> int:
    """Where the line that holds a text ends."""
    content = path.read_bytes()
    return content.index(b"\n", content.index(text.encode())) + 1


def base(rollout: str, end: object, ordinal: object = None) -> dict[str, Any]:
    return {"thread_id": rollout, "end_byte_offset": end, "end_ordinal_exclusive": ordinal}


def forked(home: CodexHome, history_base: object, *records: dict[str, Any], ending: str = "jsonl") -> Path:
    """A thread that goes on from somewhere."""
    header = meta(FORK, created_at=LATER, history_base=history_base, forked_from_id=THREAD)
    return home.write(*(records or [message("user", "mine")]), thread=FORK, header=header, ending=ending)


@pytest.fixture
def original(home: CodexHome) -> Path:
    """A rollout of two turns."""
    said = [
        message("user", "one"),
        message("assistant", "first"),
        message("user", "two"),
        message("assistant", "second"),
    ]
    header, *records = numbered(meta(THREAD), *said)
    return home.write(*records, header=header)


def test_a_fork_begins_with_what_it_inherited(home: CodexHome, original: Path) -> None:
    forked(home, base(THREAD, offset_of(original, "first"), 3), *numbered(message("user", "mine"), start=4))

    assert home.talk(FORK) == ["> one", "< first", "> mine"]
    assert home.talk() == ["> one", "< first", "> two", "< second"]
    assert home.capture(FORK).captured_through_seq == 4
    assert home.row(FORK).title == "one"
    assert home.row(FORK).created_at == LATER


def test_a_reverted_thread_is_one_session_that_began_with_its_first_file(home: CodexHome, original: Path) -> None:
    header = meta(THREAD, created_at=LATER, history_base=base(THREAD, offset_of(original, "first")))
    path = home.write(message("user", "instead"), header=header, rollout=ROLLOUT)

    assert home.talk() == ["> one", "< first", "> instead"]
    assert home.all_keys() == [path.relative_to(home.path).as_posix()]
    assert home.row().created_at == CREATED_AT
    assert home.row().title == "one"


def test_a_fork_of_a_fork_inherits_both(home: CodexHome, original: Path) -> None:
    middle = forked(
        home, base(THREAD, offset_of(original, "first")), message("user", "mine"), message("assistant", "x")
    )
    last = "01a229e5-8888-7000-8000-000000000004"
    header = meta(last, history_base=base(FORK, offset_of(middle, "mine")))
    home.write(message("user", "last"), thread=last, header=header)

    assert home.talk(last) == ["> one", "< first", "> mine", "> last"]


def test_a_base_may_be_archived_and_compressed_and_named_in_capitals(home: CodexHome, original: Path) -> None:
    end = offset_of(original, "first")
    content = original.read_bytes()
    original.unlink()
    lines = [json.loads(line) for line in content.splitlines()]
    home.write(*lines[1:], header=lines[0], folder="archived_sessions", ending="jsonl.zst")
    forked(home, base(THREAD.upper(), end), ending="jsonl.zst")

    assert home.talk(FORK) == ["> one", "< first", "> mine"]
    assert home.row(FORK).title == "one"


def test_what_was_inherited_can_be_undone_and_compacted(home: CodexHome, original: Path) -> None:
    end = original.stat().st_size
    forked(home, base(THREAD, end), event("thread_rolled_back", num_turns=1), message("user", "mine"))
    assert home.talk(FORK) == ["> one", "< first", "> mine"]

    forked(home, base(THREAD, end), compacted("short"))
    assert home.talk(FORK) == ["> one", "> two", "= short"]


def test_a_base_that_ends_without_a_line_feed_is_whole(home: CodexHome, original: Path) -> None:
    original.write_bytes(original.read_bytes()[:-1])
    forked(home, base(THREAD, original.stat().st_size))

    assert home.talk(FORK) == ["> one", "< first", "> two", "< second", "> mine"]


def test_damage_in_a_base_is_counted(home: CodexHome, original: Path) -> None:
    content = original.read_bytes().replace(b'"ordinal": 1', b'"ordinal" 1')
    original.write_bytes(content)
    forked(home, base(THREAD, len(content)))

    assert home.talk(FORK) == ["< first", "> two", "< second", "> mine"]
    assert "skipped-lines" in home.said_of(FORK)


def test_a_fork_that_is_torn_says_so(home: CodexHome, original: Path) -> None:
    path = forked(home, base(THREAD, offset_of(original, "first")), message("user", "mine"), message("user", "torn"))
    path.write_bytes(path.read_bytes()[:-9])

    assert home.talk(FORK) == ["> one", "< first", "> mine"]
    assert "torn-tail" in home.said_of(FORK)


@pytest.mark.parametrize(
    "history_base",
    [
        base(ROLLOUT, 100),
        base(THREAD, 10**9),
        base(THREAD, 12),
        base(THREAD, -5),
        base(THREAD, "all"),
        base(THREAD, None),
        base("../../outside", 10),
        base(FORK, 100),
        {},
        "elsewhere",
        7,
        [],
    ],
)
def test_a_history_that_cannot_be_had_is_said_and_never_passed_over(
    home: CodexHome, original: Path, history_base: object, caplog: pytest.LogCaptureFixture
) -> None:
    forked(home, history_base)
    with caplog.at_level(logging.WARNING):
        reason = home.refusal(FORK)

    assert reason is ReadFailedReason.CORRUPT
    (said,) = [record.getMessage() for record in caplog.records]
    assert "history incomplete" in said
    assert "/" not in said
    assert FORK not in said
    assert home.row(FORK).title in ("mine", "one")
    assert home.talk() == ["> one", "< first", "> two", "< second"]


def test_a_base_that_is_there_twice_is_none(home: CodexHome, original: Path) -> None:
    forked(home, base(THREAD, offset_of(original, "first")))
    home.write_bytes(original.read_bytes(), f"archived_sessions/{original.name}")

    assert home.refusal(FORK) is ReadFailedReason.CORRUPT
    assert home.refusal() is ReadFailedReason.DUPLICATE_ID


def test_a_base_that_was_written_anew_is_none(home: CodexHome, original: Path) -> None:
    end = offset_of(original, "first")
    original.write_bytes(original.read_bytes().replace(b'"ordinal": 2', b'"ordinal": 9'))
    forked(home, base(THREAD, end, 3))

    assert home.refusal(FORK) is ReadFailedReason.CORRUPT


def test_a_base_that_moves_to_the_archive_is_found_there(home: CodexHome, original: Path) -> None:
    forked(home, base(THREAD, offset_of(original, "first")))
    assert home.talk(FORK) == ["> one", "< first", "> mine"]

    archived = home.path / "archived_sessions" / original.name
    archived.parent.mkdir()
    original.rename(archived)
    assert home.talk(FORK) == ["> one", "< first", "> mine"]


@pytest.mark.parametrize("ending", ["json", "jsonl", "jsonl.zst"])
def test_a_base_that_is_damaged_is_said_too(home: CodexHome, ending: str, caplog: pytest.LogCaptureFixture) -> None:
    home.write_bytes(b"neither lines nor frames\n" * 9, rollout_path(THREAD, ending=ending))
    forked(home, base(THREAD, 50))

    assert home.refusal(FORK) is ReadFailedReason.CORRUPT
    assert ["history incomplete" in record.getMessage() for record in caplog.records] == [True]


def test_threads_that_go_on_from_each_other_are_refused(home: CodexHome) -> None:
    header = meta(THREAD, history_base=base(FORK, 100))
    home.write(message("user", "hen"), header=header)
    forked(home, base(THREAD, 100), message("user", "egg"))

    assert home.refusal() is ReadFailedReason.CORRUPT
    assert home.refusal(FORK) is ReadFailedReason.CORRUPT
    assert {row.title for row in home.rows().values()} == {"hen", "egg"}


def test_a_chain_without_an_end_is_refused(home: CodexHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessionref.server.stores.codex.history.MAX_BASES", 4)
    ids = [f"01a229e5-0000-7000-8000-{number:012x}" for number in range(8)]
    path = home.write(message("user", "x"), thread=ids[0])
    for before, thread in pairwise(ids):
        header = meta(thread, history_base=base(before, path.stat().st_size))
        path = home.write(message("user", "x"), thread=thread, header=header)

    assert home.talk(ids[4]) == ["> x"] * 5
    assert home.refusal(ids[5]) is ReadFailedReason.CORRUPT


def test_a_base_of_a_newer_format_is_refused_as_that(home: CodexHome) -> None:
    path = home.write(message("user", "new"), header=meta(THREAD, history_mode="sharded"))
    forked(home, base(THREAD, path.stat().st_size))

    assert home.refusal(FORK) is ReadFailedReason.NEWER_FORMAT


def test_a_base_that_is_a_link_is_not_followed(home: CodexHome, original: Path, tmp_path: Path) -> None:
    forked(home, base(THREAD, offset_of(original, "first")))
    outside = tmp_path / "outside"
    original.rename(outside)
    original.symlink_to(outside)

    assert home.refusal(FORK) is ReadFailedReason.OUTSIDE_ROOT
    assert home.row(FORK).title == "mine"


def test_the_limit_of_a_conversation_holds_over_all_rollouts(home: CodexHome, original: Path) -> None:
    home.store.limits = ReadingLimits(conversation_bytes=8)
    forked(home, base(THREAD, original.stat().st_size))

    assert home.refusal(FORK) is ReadFailedReason.TOO_LARGE


def test_nothing_is_kept_of_a_capture_that_reads_several_rollouts(home: CodexHome, original: Path) -> None:
    home.store.limits = ReadingLimits(saved_from_bytes=0)
    forked(home, base(THREAD, offset_of(original, "first")))
    plain = home.store.capture_again(f"codex:{THREAD}", lambda key: None, never_cancelled)
    fork = home.store.capture_again(f"codex:{FORK}", lambda key: plain.state, never_cancelled)

    assert plain.state is not None
    assert fork.state is None
    assert [item.text for item in fork.capture.items] == ["one", "first", "mine"]


def test_the_name_of_a_fork_is_its_own(home: CodexHome, original: Path) -> None:
    forked(home, base(THREAD, offset_of(original, "first")))
    home.write_bytes(lines_of([name_line(THREAD, "Original")]), "session_index.jsonl")
    assert (home.row().title, home.row(FORK).title) == ("Original", "one")

    home.write_bytes(lines_of([name_line(FORK, "Fork")]), "session_index.jsonl")
    assert (home.row().title, home.row(FORK).title) == ("one", "Fork")


def test_a_first_prompt_is_not_looked_for_without_an_end(home: CodexHome) -> None:
    noise = [message("developer", "x" * 65_536) for _ in range(2 * FIRST_PROMPT_BYTES // 65_536)]
    path = home.write(*noise, message("user", "far away"))
    forked(home, base(THREAD, path.stat().st_size))

    assert home.row(FORK).title == "mine"
    assert home.talk(FORK) == ["> far away", "> mine"]


def test_a_fork_of_old_is_a_session_of_its_own_with_all_that_it_copied(home: CodexHome) -> None:
    home.write(
        meta(THREAD, cwd="/srv/there"),
        message("user", "one"),
        message("assistant", "first"),
        event("thread_name_updated", thread_id=THREAD, thread_name="Original"),
        message("user", "mine"),
        thread=FORK,
        header=meta(FORK, forked_from_id=THREAD, history_mode="legacy", created_at=LATER),
    )

    assert home.talk(FORK) == ["> one", "< first", "> mine"]
    assert home.capture(FORK).cwd == "/srv/here"
    assert home.row(FORK).cwd == "/srv/here"
    assert (home.row(FORK).title, home.row(FORK).created_at) == ("one", LATER)
