"""Sessions in the JSON files of OpenCode before 1.2, in both of their dialects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from opencode_doubles import capture_of, problems_of, rows_of, said_in, store_of
from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.opencode.store import OpencodeStore
from store_contract import files_below, in_time
from store_fixtures import CREATED_AT
from store_fixtures.opencode.rows import put_file, text_of


def put_session(home: Path, native_id: str = "ses_1", *, project: str = "global", **members: Any) -> Path:
    usual = {"id": native_id, "title": "A title", "directory": "/srv/here", "projectID": project}
    times = {"time": {"created": CREATED_AT, "updated": CREATED_AT + 1}}
    return put_file(home, f"session/{project}/{native_id}", {**usual, **times, **members})


def put_message(home: Path, message_id: str, role: str, *texts: str, native_id: str = "ses_1", **members: Any) -> Path:
    for number, text in enumerate(texts):
        put_file(home, f"part/{message_id}/prt_{number}", text_of(text))
    return put_file(home, f"message/{native_id}/{message_id}", {"id": message_id, "role": role, **members})


def test_messages_and_their_parts_are_in_files_of_their_own(home: Path) -> None:
    put_session(home)
    put_message(home, "msg_1", "user", "the question")
    put_message(home, "msg_2", "assistant", "first", "second")
    put_file(home, "part/msg_2/prt_0a", {"type": "tool", "tool": "bash", "state": {"output": "no"}})
    put_file(home, "part/msg_2/prt_0b", text_of("no", synthetic=True))

    assert said_in(home) == [("user", "the question"), ("assistant", "first\nsecond")]
    capture = capture_of(home)
    assert (capture.cwd, capture.captured_through_seq, capture.diagnostics) == ("/srv/here", 1, [])
    (row,) = rows_of(home).values()
    assert (row.title, row.cwd, row.created_at, row.updated_at) == ("A title", "/srv/here", CREATED_AT, CREATED_AT + 1)


def test_or_the_text_is_in_the_messages_themselves(home: Path) -> None:
    put_session(home, title="New session - 2025-10-01T10:00:00.000Z", directory=None)
    messages: list[dict[str, Any]] = [
        {"type": "system", "text": "no"},
        {"type": "user", "text": "the question", "files": []},
        {"type": "assistant", "content": [{"type": "reasoning", "text": "no"}, text_of("first"), text_of("second")]},
        {"type": "shell", "command": "no", "output": "no"},
        {"type": "user", "content": "in another way"},
        {"type": "model-switched", "model": {}},
    ]
    for number, message in enumerate(messages):
        put_file(home, f"message/ses_1/msg_{number}", {"id": f"msg_{number}", **message})

    assert said_in(home) == [
        ("user", "the question"),
        ("assistant", "first\nsecond"),
        ("user", "in another way"),
    ]
    assert rows_of(home)["ses_1"].title == "the question"
    assert rows_of(home)["ses_1"].cwd is None


def test_messages_are_in_the_order_of_their_times_or_else_of_their_names(home: Path) -> None:
    put_session(home)
    put_message(home, "b", "user", "2", time={"created": 20})
    put_message(home, "c", "user", "3")
    put_message(home, "a", "user", "5", time={"created": 50})
    put_message(home, "d", "user", "4", time={"created": 30})
    put_message(home, "e", "user", "1", time={"created": 10})

    assert [text for _, text in said_in(home)] == ["1", "2", "3", "4", "5"]


def test_ids_are_those_in_the_files_and_parts_lie_where_the_messages_says(home: Path) -> None:
    put_file(home, "session/global/ses_s_1", {"id": "s_1", "title": "Odd", "time": {}})
    put_file(home, "message/s_1/0001", {"id": "m_user", "role": "user"})
    put_file(home, "part/m_user/001", text_of("hello"))
    put_file(home, "message/s_1/0002", {"role": "assistant"})
    put_file(home, "part/0002/001", text_of("by name"))

    assert list(rows_of(home)) == ["s_1"]
    assert said_in(home, "s_1") == [("user", "hello"), ("assistant", "by name")]
    assert failure_of(lambda: capture_of(home, "ses_s_1")).reason is ReadFailedReason.NOT_FOUND


def test_compactions_and_what_was_taken_back_are_as_in_databases(home: Path) -> None:
    put_session(home, revert={"messageID": "msg_5"})
    put_message(home, "msg_1", "user", "1")
    put_message(home, "msg_2", "user")
    put_file(home, "part/msg_2/prt_0", {"type": "compaction", "auto": True})
    put_message(home, "msg_3", "assistant", "what happened", summary=True, finish="stop", parentID="msg_2")
    put_message(home, "msg_4", "user", "2")
    put_message(home, "msg_5", "user", "taken back")

    assert said_in(home) == [("summary", "what happened"), ("user", "2")]


def test_a_child_is_a_sub_agents(home: Path) -> None:
    put_session(home, parentID="ses_0")

    assert rows_of(home)["ses_1"].is_subagent


def test_torn_files_cost_themselves_and_are_counted(home: Path) -> None:
    put_session(home)
    put_message(home, "msg_1", "user", "1")
    put_file(home, "message/ses_1/msg_2", '{"id":"msg_2","role":"assis')
    put_message(home, "msg_3", "assistant", "3", "lost")
    put_file(home, "part/msg_3/prt_1", '{"type":"text","te')
    put_file(home, "part/msg_3/prt_2", {"type": "quantum-part"})
    capture = capture_of(home)

    assert [item.text for item in capture.items] == ["1", "3"]
    assert [(d.kind, d.detail[:9]) for d in capture.diagnostics] == [
        ("skipped-lines", "2 damaged"),
        ("unknown-events", "1 record "),
    ]


def test_a_torn_session_is_said_to_be_corrupt_and_costs_no_other(home: Path) -> None:
    put_session(home)
    put_message(home, "msg_1", "user", "1")
    for content in ('{"id":"ses_2","ti', "[]", "{}", ""):
        put_file(home, "session/global/ses_2", content)

        assert list(rows_of(home)) == ["ses_1"]
        assert problems_of(home) == {"storage/session/global/ses_2.json": "corrupt"}
        assert failure_of(lambda: capture_of(home, "ses_2")).reason is ReadFailedReason.CORRUPT


def test_two_files_of_one_id_are_one_session_as_it_was_updated_last(home: Path) -> None:
    put_session(home, project="a", title="Newer", time={"created": 1, "updated": 9})
    put_session(home, project="b", title="Older", time={"created": 1, "updated": 5})
    put_message(home, "msg_1", "user", "1")

    assert [row.title for row in rows_of(home).values()] == ["Newer"]
    assert problems_of(home) == {}
    assert said_in(home) == [("user", "1")]


@pytest.mark.parametrize("native_id", ["..", ".", "../session/global", "a/b", "a\\b", "a\0b", "\ud800"])
def test_an_id_that_is_no_name_leads_nowhere(home: Path, native_id: str) -> None:
    put_file(home, "session/global/odd", {"id": native_id, "title": "Odd"})
    put_session(home, "ses_2")
    put_file(home, "message/ses_2/msg_1", {"id": native_id, "role": "user"})
    store = store_of(home)
    listing = store.list_sessions(never_cancelled)

    assert len(listing.sessions) + len(listing.unlisted) == 2
    for session_id in (f"opencode:{native_id}", "opencode:ses_2"):
        failure = failure_of(lambda session_id=session_id: store.capture(session_id, never_cancelled))  # type: ignore[misc]
        assert failure.reason in (ReadFailedReason.NOT_FOUND, ReadFailedReason.OUTSIDE_ROOT)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are none here")
@pytest.mark.parametrize("place", ["session/global/ses_1.json", "message/ses_1/msg_1.json", "part/msg_1/prt_0.json"])
def test_files_that_are_none_are_neither_followed_nor_waited_for(home: Path, place: str) -> None:
    put_session(home)
    put_message(home, "msg_1", "user", "secret")
    path = home / "storage" / place
    content = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    assert in_time(lambda: failure_of(lambda: capture_of(home))).reason is ReadFailedReason.OUTSIDE_ROOT

    path.unlink()
    outside = home.parent / "outside.json"
    outside.write_bytes(content)
    path.symlink_to(outside)
    assert failure_of(lambda: capture_of(home)).reason is ReadFailedReason.OUTSIDE_ROOT


@pytest.mark.parametrize("place", ["storage", "storage/session", "storage/session/global"])
def test_a_folder_that_is_a_link_is_said_and_not_followed(home: Path, place: str) -> None:
    put_session(home)
    outside = home.parent / "outside"
    (home / place).rename(outside)
    (home / place).symlink_to(outside)

    assert rows_of(home) == {}
    assert set(problems_of(home).values()) == {"outside-root"}


def test_a_file_beyond_the_limit_is_too_large(home: Path) -> None:
    put_session(home)
    put_message(home, "msg_1", "user", "x" * 2000)
    store = OpencodeStore(home, limits=ReadingLimits(line_bytes=1000))
    failure = failure_of(lambda: store.capture("opencode:ses_1", never_cancelled))

    assert (failure.reason, failure.data["limit"]) == (ReadFailedReason.TOO_LARGE, 1000)


def test_a_session_that_changes_in_place_is_noticed_and_one_that_goes_is_gone(home: Path) -> None:
    path = put_session(home)
    os.utime(path, ns=(1, 1))
    store = store_of(home)
    (key,) = store.keys("sessions", never_cancelled)
    lesson = store.learn(key, None, never_cancelled, with_title=True)
    assert lesson is not None
    assert list(store.changed({key: lesson.stamp}, never_cancelled)) == []

    put_session(home, title="Renamed")
    assert list(store.changed({key: lesson.stamp}, never_cancelled)) == [key]
    path.unlink()
    assert list(store.changed({key: lesson.stamp}, never_cancelled)) == [key]
    assert store.learn(key, None, never_cancelled, with_title=True) is None


def test_files_are_watched_and_told_by_their_paths(home: Path, tmp_path: Path) -> None:
    path = put_session(home)
    store = store_of(home)
    (key,) = store.keys("sessions", never_cancelled)

    assert store.watched_folders() == [home / "storage/session"]
    assert store.key_of(path) == key
    assert store.key_of(home / "opencode.db") is None
    assert store.key_of(tmp_path) is None


def test_nothing_is_written_beside_the_files(home: Path) -> None:
    put_session(home)
    put_message(home, "msg_1", "user", "1")
    before = files_below(home)

    assert len(rows_of(home)) == len(said_in(home)) == 1
    assert files_below(home) == before
