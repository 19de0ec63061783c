"""The store of Copilot CLI's sessions as a whole: which there are, what they are called, what is noticed of them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from catalogue_doubles import bring_up_to_date
from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.catalogue.index import EMPTY_TOGETHER, SessionIndex
from sessionref.server.store import Lesson, SessionHeader
from sessionref.server.stores.copilot_cli.store import CopilotCliStore
from sessionref.server.stores.copilot_cli.workspace import WORKSPACE_BYTES
from sessionref.server.stores.folders import Folder
from store_contract import EVERYTHING, TALK, refusal_of, rows_of, talk_of, unlisted_of
from store_fixtures import CREATED_AT
from store_fixtures.copilot_cli import Fixture, event, reply, start, typed
from store_fixtures.logs import iso

OLD = (CREATED_AT * 1_000_000, CREATED_AT * 1_000_000)


@pytest.fixture
def agent(tmp_path: Path) -> Fixture:
    made = Fixture(tmp_path / "copilot")
    made.create()
    return made


def store_of(agent: Fixture) -> CopilotCliStore:
    return CopilotCliStore(agent.home, limits=EVERYTHING)


def put(agent: Fixture, place: str, *events: dict[str, Any]) -> Path:
    return agent.put(place, agent.home / place, events)


def note(agent: Fixture, name: str, text: str | bytes, *, old: bool = True) -> Path:
    path = agent.home / "session-state" / name / "workspace.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    if old:
        os.utime(path, ns=OLD)
    return path


def only_row(agent: Fixture) -> SessionHeader:
    (row,) = rows_of(store_of(agent)).values()
    return row


def keys_in(index: SessionIndex) -> list[str]:
    return [row.key for row in index.rows()]


# Where sessions are, and under which id.


def test_sessions_of_all_times_are_listed_beside_each_other(agent: Fixture) -> None:
    put(agent, "session-state/a/events.jsonl", start("a"), typed("one"))
    put(agent, "session-state/b.jsonl", start("b", None), typed("two"))
    put(agent, "history-session-state/c.jsonl", start("c", None), typed("three"))
    store = store_of(agent)

    assert {row.session_id: row.title for row in rows_of(store).values()} == {
        "copilot-cli:a": "one",
        "copilot-cli:b": "two",
        "copilot-cli:c": "three",
    }
    assert talk_of(store, "copilot-cli:c") == [("user", "three")]


def test_a_folder_without_its_log_is_no_session(agent: Fixture) -> None:
    (agent.home / "session-state" / "gone" / "checkpoints").mkdir(parents=True)
    note(agent, "gone", "id: gone\nname: gone\n")
    store = store_of(agent)

    assert (rows_of(store), unlisted_of(store)) == ({}, [])
    assert refusal_of(store, "copilot-cli:gone") is ReadFailedReason.NOT_FOUND


def test_other_files_beside_sessions_are_passed_by(agent: Fixture) -> None:
    agent.write("a", TALK)
    for name in ("notes.txt", "a/events.jsonl.bak", "a/events.jsonl.tmp", "b.json", "a/plan.md"):
        (agent.home / "session-state" / name).write_text("{}")
    (agent.home / "session-store.db").write_bytes(b"SQLite format 3\0")
    store = store_of(agent)

    assert list(rows_of(store)) == ["copilot-cli:a"]
    assert unlisted_of(store) == []


def test_a_session_that_an_update_has_moved_is_where_it_moved_to(agent: Fixture) -> None:
    put(agent, "history-session-state/a.jsonl", start("a"), typed("one"))
    put(agent, "session-state/a.jsonl", start("a"), typed("one"), typed("two"))
    put(agent, "session-state/a/events.jsonl", start("a"), typed("one"), typed("two"), typed("three"))
    store = store_of(agent)

    assert list(rows_of(store)) == ["copilot-cli:a"]
    assert unlisted_of(store) == []
    assert [text for _, text in talk_of(store, "copilot-cli:a")] == ["one", "two", "three"]


def test_a_move_is_noticed_and_so_is_that_the_newer_log_is_gone(agent: Fixture) -> None:
    old = put(agent, "history-session-state/a.jsonl", start("a"), typed("one"))
    os.utime(old, ns=OLD)
    index = SessionIndex(store_of(agent), None)
    bring_up_to_date(index)
    assert keys_in(index) == ["history-session-state/a.jsonl"]

    put(agent, "session-state/a/events.jsonl", start("a"), typed("one"), typed("two"))
    bring_up_to_date(index)
    index.look_again(["history-session-state/a.jsonl"], never_cancelled)
    bring_up_to_date(index)
    assert keys_in(index) == ["session-state/a/events.jsonl"]
    assert index.unlisted() == []

    shutil.rmtree(agent.home / "session-state" / "a")
    bring_up_to_date(index)
    assert keys_in(index) == ["history-session-state/a.jsonl"]


def test_the_id_is_the_one_that_the_log_tells_and_by_default_its_name(agent: Fixture) -> None:
    put(agent, "session-state/renamed/events.jsonl", start("told"), typed("one"))
    put(agent, "session-state/silent/events.jsonl", start(None), typed("two"))
    put(agent, "session-state/headless/events.jsonl", typed("three"))
    store = store_of(agent)

    assert {row.session_id for row in rows_of(store).values()} == {
        "copilot-cli:told",
        "copilot-cli:silent",
        "copilot-cli:headless",
    }
    assert talk_of(store, "copilot-cli:told") == [("user", "one")]
    assert talk_of(store, "copilot-cli:silent") == [("user", "two")]
    assert talk_of(store, "copilot-cli:headless") == [("user", "three")]
    assert refusal_of(store, "copilot-cli:renamed") is ReadFailedReason.NOT_FOUND


def test_two_folders_that_tell_one_id_are_refused(agent: Fixture) -> None:
    put(agent, "session-state/one/events.jsonl", start("told"), typed("one"))
    put(agent, "session-state/two/events.jsonl", start("told"), typed("two"))
    put(agent, "session-state/three/events.jsonl", start("three"), typed("three"))
    store = store_of(agent)

    assert list(rows_of(store)) == ["copilot-cli:three"]
    assert unlisted_of(store) == [ReadFailedReason.DUPLICATE_ID] * 2
    assert refusal_of(store, "copilot-cli:told") is ReadFailedReason.DUPLICATE_ID


def test_ids_of_other_kinds_and_paths_are_not_found(agent: Fixture) -> None:
    agent.write("a", TALK)
    for session_id in ("a", "pi:a", "copilot-cli:", "copilot-cli:../session-state/a", "copilot-cli:a/events"):
        assert refusal_of(store_of(agent), session_id) is ReadFailedReason.NOT_FOUND


# What rows say.


def test_a_name_that_was_noted_is_the_title_and_the_first_prompt_is_it_otherwise(agent: Fixture) -> None:
    agent.write("a", TALK, title="A name: with a colon")
    assert only_row(agent).title == "A name: with a colon"
    note(agent, "a", "summary: An older name\nname:\n")
    assert only_row(agent).title == "An older name"
    note(agent, "a", "user_named: false\n")
    assert only_row(agent).title == "first question"


@pytest.mark.parametrize(
    "text",
    [b"", b"\0" * 100, b"name: [", b"name: \xff\xfe", b"[" * 5000, b"name: a\n" + b"#" * WORKSPACE_BYTES],
    ids=["empty", "NULs", "no YAML", "no UTF-8", "deep", "long"],
)
def test_notes_that_cannot_be_read_leave_the_prompt_as_title(agent: Fixture, text: bytes) -> None:
    agent.write("a", TALK)
    note(agent, "a", text)
    row = only_row(agent)

    assert row.title in ("first question", "\ufffd\ufffd")
    assert unlisted_of(store_of(agent)) == []


def test_notes_of_just_the_length_that_is_read_still_name_the_session(agent: Fixture) -> None:
    agent.write("a", TALK)
    note(agent, "a", b"name: a\n" + b"#" * (WORKSPACE_BYTES - 8))

    assert only_row(agent).title == "a"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are none here")
def test_notes_that_are_a_pipe_a_folder_or_a_link_out_are_not_read(agent: Fixture, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        agent.write(name, [("user", name)])
    outside = tmp_path / "outside.yaml"
    outside.write_text("name: secret\n")
    state = agent.home / "session-state"
    os.mkfifo(state / "a" / "workspace.yaml")
    (state / "b" / "workspace.yaml").mkdir()
    (state / "c" / "workspace.yaml").symlink_to(outside)

    assert sorted(row.title or "" for row in rows_of(store_of(agent)).values()) == ["a", "b", "c"]


def test_a_prompt_that_nobody_typed_is_no_title(agent: Fixture) -> None:
    put(
        agent,
        "session-state/a/events.jsonl",
        start("a"),
        typed("how to read PDFs", source="skill-pdf"),
        typed("<skill-context>how"),
        typed("look around", source="agent-1") | {"agentId": "1"},
        typed(" \n"),
        typed("\n  the first line\nand the second"),
        typed("later"),
    )

    assert only_row(agent).title == "the first line"


@pytest.mark.parametrize(
    ("first", "created_at"),
    [
        (start("a", created_at=CREATED_AT + 7), CREATED_AT + 7),
        (event("session.start", sessionId="a", startTime="soon"), CREATED_AT),
        (event("session.start", sessionId="a"), CREATED_AT),
        (typed("no start") | {"timestamp": iso(CREATED_AT + 9)}, CREATED_AT + 9),
        (event("session.start", sessionId="a") | {"timestamp": 5}, CREATED_AT + 11),
    ],
)
def test_a_session_began_when_its_start_says_else_when_that_was_written_else_at_the_first_event(
    agent: Fixture, first: dict[str, Any], created_at: int
) -> None:
    put(agent, "session-state/a/events.jsonl", first, typed("one") | {"timestamp": iso(CREATED_AT + 11)})

    assert only_row(agent).created_at == created_at


def test_without_any_time_a_session_is_as_old_as_its_log(agent: Fixture) -> None:
    path = put(agent, "session-state/a/events.jsonl", {"type": "session.start", "data": {}}, {"type": "abort"})
    os.utime(path, ns=OLD)
    row = only_row(agent)

    assert (row.created_at, row.updated_at, row.title, row.cwd) == (CREATED_AT, CREATED_AT, None, None)


def test_a_session_of_tools_alone_is_listed_and_has_no_prompt(agent: Fixture) -> None:
    tool = event("tool.execution_start", toolCallId=42, toolName=9, arguments=[])
    put(agent, "session-state/a/events.jsonl", start("a"), tool, tool)
    store = store_of(agent)
    lesson = learn(store, "session-state/a/events.jsonl")

    assert lesson is not None
    assert (lesson.header.title, lesson.has_prompt) == (None, False)
    assert talk_of(store, "copilot-cli:a") == []


def test_a_session_that_another_has_spawned_is_hidden_and_readable(agent: Fixture) -> None:
    agent.write("parent", TALK)
    child = agent.write_subagent("child", "parent", [("user", "remember this")])
    store = store_of(agent)

    assert {row.session_id: row.is_subagent for row in rows_of(store).values()} == {
        "copilot-cli:parent": False,
        "copilot-cli:child": True,
    }
    assert talk_of(store, f"copilot-cli:{child}") == [("user", "remember this")]


def test_a_log_of_something_else_is_corrupt(agent: Fixture) -> None:
    put(agent, "session-state/a/events.jsonl", {"type": "user/message", "data": {}}, {"type": "unheard.of"})
    store = store_of(agent)

    assert unlisted_of(store) == [ReadFailedReason.CORRUPT]
    assert refusal_of(store, "copilot-cli:a") is ReadFailedReason.CORRUPT


def test_what_is_left_out_of_a_capture_is_counted(agent: Fixture) -> None:
    path = put(agent, "session-state/a/events.jsonl", start("a"), typed("one"), event("assistant.sings", content="la"))
    with path.open("ab") as file:
        file.write(b'not JSON\n{"no": "type"}\n' + json.dumps(reply("two")).encode() + b'\n{"type": "user.mess')
    capture = store_of(agent).capture("copilot-cli:a", never_cancelled)

    assert [item.text for item in capture.items] == ["one", "two"]
    assert {diagnostic.kind: diagnostic.detail.split()[0] for diagnostic in capture.diagnostics} == {
        "torn-tail": "1",
        "skipped-lines": "2",
        "unknown-events": "1",
    }
    assert capture.captured_through_seq == 5


# What is noticed.


def learn(store: CopilotCliStore, key: str, known: Lesson | None = None) -> Lesson | None:
    return store.learn(key, known, never_cancelled, with_title=True)


def test_a_log_that_comes_later_than_its_folder_is_noticed(agent: Fixture) -> None:
    agent.write("a", TALK)
    (agent.home / "session-state" / "b").mkdir()
    index = SessionIndex(store_of(agent), None)
    os.utime(agent.home / "session-state", ns=OLD)
    bring_up_to_date(index)
    assert keys_in(index) == ["session-state/a/events.jsonl"]

    path = agent.write("b", TALK)
    assert (agent.home / "session-state").stat().st_mtime_ns == OLD[1], "nothing tells of it there"
    bring_up_to_date(index)
    assert len(keys_in(index)) == 2

    path.unlink()
    assert index.look_again(keys_in(index), never_cancelled)
    bring_up_to_date(index)
    assert keys_in(index) == ["session-state/a/events.jsonl"]


def test_listing_opens_the_folder_of_sessions_alone(agent: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3 * EMPTY_TOGETHER):
        (agent.home / "session-state" / f"empty-{number}").mkdir()
    agent.write("a", TALK)
    store = store_of(agent)
    opened: list[str] = []
    really_open, really_look = Folder.folder, Folder.facts

    def counted(folder: Folder, name: str, *, follow_link: bool = False) -> Folder:
        opened.append(name)
        return really_open(folder, name, follow_link=follow_link)

    def looked_at(folder: Folder, name: str) -> os.stat_result:
        opened.append(name)
        return really_look(folder, name)

    monkeypatch.setattr(Folder, "folder", counted)
    monkeypatch.setattr(Folder, "facts", looked_at)
    keys = store.keys("session-state", never_cancelled)

    assert len(keys) == 3 * EMPTY_TOGETHER + 1
    assert opened == ["session-state"]
    opened.clear()
    assert set(store.groups()) == {"session-state"}
    assert opened == ["session-state/.", "history-session-state/."]


def test_a_changed_name_changes_the_row_and_nothing_is_read_again_for_it(agent: Fixture) -> None:
    path = agent.write("a", TALK, title="Before")
    os.utime(path, ns=OLD)
    note(agent, "a", "name: Before\n")
    store, key = store_of(agent), "session-state/a/events.jsonl"
    lesson = learn(store, key)
    assert lesson is not None
    assert list(store.changed({key: lesson.stamp}, never_cancelled)) == []

    note(agent, "a", "name: Afterwards\n")
    assert list(store.changed({key: lesson.stamp}, never_cancelled)) == [key]
    again = learn(store, key, lesson)
    assert again is not None
    assert (again.header.title, again.resume) == ("Afterwards", lesson.resume)

    note(agent, "a", "name: Afterwards\n").unlink()
    assert list(store.changed({key: again.stamp}, never_cancelled)) == [key]


def test_a_name_that_was_noted_just_now_is_looked_at_again(agent: Fixture) -> None:
    path = agent.write("a", TALK)
    os.utime(path, ns=OLD)
    note(agent, "a", "name: Before\n", old=False)
    store, key = store_of(agent), "session-state/a/events.jsonl"
    lesson = learn(store, key)

    assert lesson is not None
    assert list(store.changed({key: lesson.stamp}, never_cancelled)) == [key]


def test_a_change_of_the_log_or_of_what_is_noted_beside_it_is_one_of_the_session(agent: Fixture) -> None:
    store, state = store_of(agent), agent.home / "session-state"

    assert store.key_of(state / "a" / "events.jsonl") == "session-state/a/events.jsonl"
    assert store.key_of(state / "a" / "workspace.yaml") == "session-state/a/events.jsonl"
    assert store.key_of(state / "a.jsonl") == "session-state/a.jsonl"
    assert store.key_of(agent.home / "history-session-state" / "a.jsonl") == "history-session-state/a.jsonl"
    assert store.key_of(state / "a" / "plan.md") is None
    assert store.key_of(state / "a" / "checkpoints" / "workspace.yaml") is None
    assert store.key_of(agent.home / "config.json") is None
    assert store.watched_folders() == [state]


def test_what_was_kept_of_a_session_goes_on_with_what_was_added(agent: Fixture) -> None:
    agent.write("a", TALK)
    store = store_of(agent)
    first = store.capture_again("copilot-cli:a", lambda key: None, never_cancelled)
    assert first.state is not None
    more = [event("session.compaction_start"), typed("meanwhile"), event("session.compaction_complete", success=True)]
    with agent.logs["a"].open("ab") as file:
        for made in [*more, reply("more")]:
            file.write(json.dumps(made).encode() + b"\n")
    second = store.capture_again("copilot-cli:a", lambda key: first.state, never_cancelled)

    assert second.capture == store.capture("copilot-cli:a", never_cancelled)
    assert [item.text for item in second.capture.items] == [*(text for _, text in TALK), "meanwhile", "more"]


def test_a_log_that_was_cut_back_by_a_rewind_is_read_anew(agent: Fixture) -> None:
    path = agent.write("a", TALK)
    store = store_of(agent)
    first = store.capture_again("copilot-cli:a", lambda key: None, never_cancelled)
    whole = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*whole[:3], b""]))
    second = store.capture_again("copilot-cli:a", lambda key: first.state, never_cancelled)

    assert [(item.role, item.text) for item in second.capture.items] == TALK[:2]


def test_a_folder_of_sessions_that_is_a_link_is_said_and_not_followed(agent: Fixture, tmp_path: Path) -> None:
    agent.write("a", TALK)
    os.rename(agent.home / "session-state", tmp_path / "elsewhere")
    (agent.home / "session-state").symlink_to(tmp_path / "elsewhere")
    store = store_of(agent)

    assert (rows_of(store), unlisted_of(store)) == ({}, [ReadFailedReason.OUTSIDE_ROOT])
    assert failure_of(lambda: store.capture("copilot-cli:a", never_cancelled)).reason is ReadFailedReason.OUTSIDE_ROOT
