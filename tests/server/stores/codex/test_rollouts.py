"""Which files are rollouts, and which of them is a thread's current one."""

from __future__ import annotations

import os
from typing import Any

import pytest

from resolver_doubles import never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.stores.codex.rollouts import rollout_at
from store_fixtures import CREATED_AT
from store_fixtures.codex.homes import ROLLOUT, THREAD, CodexHome
from store_fixtures.codex.rollouts import message, meta, rollout_path
from store_fixtures.logs import lines_of

OTHER = "01a229e5-0000-7000-8000-00000000000f"
DAY = 86_400_000


@pytest.mark.parametrize(
    ("path", "ids"),
    [
        (f"sessions/2026/11/30/rollout-2026-11-30T00-41-04-{THREAD}.jsonl", (THREAD, THREAD)),
        (f"sessions/2026/11/30/rollout-2026-11-30T00-41-04-{THREAD}_{ROLLOUT}.jsonl", (THREAD, ROLLOUT)),
        (f"archived_sessions/rollout-2026-11-30T00-41-04-{THREAD}.jsonl.zst", (THREAD, THREAD)),
        (f"archived_sessions/2026/07/20/rollout-2026-07-20T16-40-00-{THREAD}.jsonl", (THREAD, THREAD)),
        (f"sessions/rollout-2025-05-07-{THREAD}.json", (THREAD, THREAD)),
        (f"sessions/2026/11/30/31/rollout-2026-11-30T00-41-04-{THREAD}.jsonl", None),
        (f"elsewhere/rollout-2026-11-30T00-41-04-{THREAD}.jsonl", None),
        (f"sessions/2026/11/30/rollout-2026-11-30T00-41-04-{THREAD}.jsonl.tmp", None),
        (f"sessions/2026/11/30/rollout-2026-11-30T00-41-04-{THREAD}_.jsonl", None),
        (f"sessions/2026/11/30/copy-{THREAD}.jsonl", None),
        ("sessions/2026/11/30/rollout-2026-11-30T00-41-04.jsonl", None),
        ("sessions", None),
        ("", None),
    ],
)
def test_a_rollout_is_told_by_its_path(path: str, ids: tuple[str, str] | None) -> None:
    rollout = rollout_at(path)

    assert (None if rollout is None else (rollout.thread_id, rollout.rollout_id)) == ids


@pytest.mark.parametrize("folder", ["sessions", "archived_sessions", "archived_sessions/2026/07/20"])
@pytest.mark.parametrize("ending", ["jsonl", "jsonl.zst"])
def test_sessions_are_listed_archived_and_compressed_or_not(home: CodexHome, folder: str, ending: str) -> None:
    home.write(message("user", "hello"), message("assistant", "hi"), folder=folder, ending=ending)

    assert home.row().title == "hello"
    assert home.talk() == ["> hello", "< hi"]


def test_a_plain_file_is_preferred_to_its_compressed_sibling(home: CodexHome) -> None:
    home.write(message("user", "old"), ending="jsonl.zst")
    plain = home.write(message("user", "new"))

    assert home.all_keys() == [plain.relative_to(home.path).as_posix()]
    assert home.talk() == ["> new"]
    plain.unlink()
    assert home.talk() == ["> old"]
    assert home.row().title == "old"


def test_a_compressed_file_that_breaks_off_is_torn_or_refused_but_never_whole(home: CodexHome) -> None:
    path = home.write(*(message("user", f"{at} " + os.urandom(999).hex()) for at in range(200)), ending="jsonl.zst")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 3 // 4])

    assert "torn-tail" in home.said_of()
    assert 0 < len(home.talk()) < 200

    path.write_bytes(content[:20])
    assert home.refusal() is ReadFailedReason.CORRUPT
    path.write_bytes(b"no frame at all")
    assert home.refusal() is ReadFailedReason.CORRUPT


def test_of_several_files_of_a_thread_the_one_with_the_highest_id_is_current(home: CodexHome) -> None:
    low, high = "01a229e5-1111-7000-8000-000000000000", "01a229e5-2222-7000-8000-000000000000"
    home.write(message("user", "first"))
    home.write(message("user", "highest"), rollout=high, created_at=CREATED_AT)
    home.write(message("user", "between"), rollout=low, created_at=CREATED_AT + DAY)

    assert home.talk() == ["> highest"]
    assert list(home.rows()) == [THREAD]
    assert home.row().title == "highest"


def test_a_first_file_is_never_current_beside_a_later_one(home: CodexHome) -> None:
    random = "f1a229e5-1111-4000-8000-000000000000"
    home.write(message("user", "first"), thread=random)
    home.write(message("user", "later"), thread=random, rollout=ROLLOUT)

    assert home.talk(random) == ["> later"]


def test_a_later_file_that_is_still_empty_makes_nothing_obsolete(home: CodexHome) -> None:
    home.write(message("user", "first"))
    later = home.write_bytes(b"", rollout_path(THREAD, ROLLOUT))
    assert home.talk() == ["> first"]
    assert home.row().title == "first"

    later.write_bytes(lines_of([meta(THREAD), message("user", "later")]))
    assert home.talk() == ["> later"]
    assert home.row().title == "later"


def test_copies_of_one_rollout_are_refused(home: CodexHome) -> None:
    path = home.write(message("user", "hello"))
    home.write_bytes(path.read_bytes(), f"archived_sessions/{path.name}")

    assert home.refusal() is ReadFailedReason.DUPLICATE_ID
    assert home.rows() == {}
    assert set(home.unlisted().values()) == {ReadFailedReason.DUPLICATE_ID}


def test_a_thread_of_before_there_were_lines_is_refused_and_not_passed_over(home: CodexHome) -> None:
    old = {"session": {"id": THREAD, "timestamp": "2025-05-07T10:00:00Z"}, "items": [{"type": "message"}]}
    place = f"sessions/rollout-2025-05-07-{THREAD}.json"
    for indent in (b"", b"\n  "):
        home.write_bytes(lines_of([old]).replace(b"{", b"{" + indent).strip(), place)
        assert home.refusal() is ReadFailedReason.CORRUPT
        assert home.unlisted() == {place: ReadFailedReason.CORRUPT}

    home.write(message("user", "brought over"))
    assert home.talk() == ["> brought over"]
    assert home.unlisted() == {}


def test_a_rollout_whose_records_had_no_payload_yet_is_read(home: CodexHome) -> None:
    part = {"type": "input_text", "text": "hello"}
    records: list[dict[str, Any]] = [
        {"id": THREAD, "timestamp": "2025-06-01T10:00:00.000Z", "instructions": "x", "git": {"branch": "main"}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{**part, "text": "<environment_context>x"}]},
        {"type": "message", "role": "user", "content": [part]},
        {"type": "reasoning", "summary": [], "encrypted_content": None},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
    ]
    home.write_bytes(lines_of(records), f"sessions/2025/06/01/rollout-2025-06-01T10-00-00-{THREAD}.jsonl")

    assert home.talk() == ["> hello", "< hi"]
    assert home.said_of() == {}
    assert (home.row().title, home.row().cwd, home.row().created_at) == ("hello", None, 1_748_772_000_000)


@pytest.mark.parametrize("first", [b"", b"{}\n", b"[]\n", b'{"type": "session_meta", "payload": {}}\n', b"\xff\n"])
def test_a_rollout_without_its_header_is_refused(home: CodexHome, first: bytes) -> None:
    content = first + lines_of([message("user", "hello")])
    home.write_bytes(content, rollout_path(THREAD))

    assert home.refusal() is ReadFailedReason.CORRUPT
    assert list(home.unlisted().values()) == [ReadFailedReason.CORRUPT]


def test_a_header_longer_than_what_is_read_first_is_whole(home: CodexHome) -> None:
    home.write(message("user", "hello"), header=meta(THREAD, base_instructions={"text": "x" * 300_000}))

    assert (home.row().title, home.row().cwd) == ("hello", "/srv/here")
    assert home.talk() == ["> hello"]


def test_a_revert_takes_the_row_of_what_it_goes_on_from(home: CodexHome) -> None:
    index = SessionIndex(home.store, None)
    path = home.write(message("user", "one"))
    index.refresh(never_cancelled)
    header = meta(
        THREAD,
        history_base={"thread_id": THREAD, "end_byte_offset": path.stat().st_size, "end_ordinal_exclusive": 2},
    )
    later = home.write(message("user", "two"), header=header, rollout=ROLLOUT)
    index.refresh(never_cancelled)

    assert [row.key for row in index.rows()] == [later.relative_to(home.path).as_posix()]
    assert index.unlisted() == []


def test_a_change_of_any_file_of_a_thread_is_one_of_its_current(home: CodexHome) -> None:
    first = home.write(message("user", "one"))
    later = home.write(message("user", "two"), rollout=ROLLOUT)
    (key,) = home.all_keys()

    assert key == later.relative_to(home.path).as_posix()
    assert home.store.key_of(first) == home.store.key_of(later) == key
    assert home.store.key_of(home.path / "sessions/2026") is None
    assert home.store.key_of(home.path / "history.jsonl") is None
    assert home.store.key_of(home.path.parent / first.name) is None
    unseen = home.path / rollout_path(OTHER)
    assert home.store.key_of(unseen) == unseen.relative_to(home.path).as_posix()


def test_both_folders_are_watched_where_they_are(home: CodexHome) -> None:
    assert home.store.watched_folders() == []
    home.write(message("user", "x"))
    home.write(message("user", "x"), thread=OTHER, folder="archived_sessions")

    assert home.store.watched_folders() == [home.path / "sessions", home.path / "archived_sessions"]
