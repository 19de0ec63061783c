"""The folders, links and files of the store of Claude Code's sessions."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from resolver_doubles import never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.claude_code import store as store_module
from sessionref.server.stores.claude_code.store import ClaudeCodeStore
from sessionref.server.stores.folders import Folder
from store_contract import refusal_of, talk_of, unlisted_of
from store_fixtures.claude_code import Fixture
from store_fixtures.claude_code.homes import TALK, ids_in, put_subagent, write
from store_fixtures.logs import lines_of

NOTES: list[dict[str, Any]] = [
    {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
    {"type": "summary", "summary": "About another", "leafUuid": "x"},
    {"type": "permission-mode", "permissionMode": "default"},
    {"type": "attachment", "uuid": "u", "attachment": {"type": "hook_success", "content": "x"}},
]

needs_links = pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links are another thing here")


def age(*paths: Path) -> None:
    """Let folders and files have been changed long ago, so that their times are trusted."""
    for path in paths:
        os.utime(path, (0, 0))


def test_a_file_of_nothing_but_notes_is_no_session(home: Fixture) -> None:
    path = write(home, 1)
    path.with_name("notes.jsonl").write_bytes(lines_of(NOTES))
    path.with_name("typed.jsonl").write_bytes(
        lines_of([*NOTES, {"type": "user", "message": {"role": "user", "content": "x"}}])
    )
    store = home.open()

    assert ids_in(store) == {home.name(1), "typed"}
    assert unlisted_of(store) == []
    assert refusal_of(store, "claude-code:notes") is ReadFailedReason.NOT_FOUND


def test_a_file_of_records_that_nobody_knows_is_a_session_so_that_it_is_seen(home: Fixture) -> None:
    path = write(home, 1)
    path.with_name("new.jsonl").write_bytes(lines_of([*NOTES, {"type": "human", "message": {"content": "x"}}]))
    store = home.open()

    assert ids_in(store) == {home.name(1), "new"}
    diagnostics = store.capture("claude-code:new", never_cancelled).diagnostics
    assert [diagnostic.kind for diagnostic in diagnostics] == ["unknown-events"]


def test_an_empty_file_is_not_there_and_hides_no_other_of_its_name(home: Fixture) -> None:
    path = write(home, 1)
    other = path.parent.with_name("-other-") / path.name
    other.parent.mkdir()
    other.touch()
    store = home.open()

    assert ids_in(store) == {home.name(1)}
    assert talk_of(store, home.session_id(home.name(1))) == TALK


@needs_links
def test_two_links_to_one_folder_make_no_doubles(home: Fixture, tmp_path: Path) -> None:
    folder = write(home, 1).parent
    os.rename(folder, tmp_path / "outside")
    for name in ("one", "two"):
        folder.with_name(name).symlink_to(tmp_path / "outside")

    assert ids_in(home.open()) == {home.name(1)}


@needs_links
def test_a_folder_goes_before_a_link_to_it(home: Fixture) -> None:
    folder = write(home, 1).parent
    folder.with_name("!first").symlink_to(folder)
    store = home.open()

    assert ids_in(store) == {home.name(1)}
    assert list(store.groups()) == [f"projects/{folder.name}"]


@needs_links
def test_the_folder_of_all_projects_may_be_a_link(home: Fixture, tmp_path: Path) -> None:
    write(home, 1)
    os.rename(home.home / "projects", tmp_path / "outside")
    (home.home / "projects").symlink_to(tmp_path / "outside")

    assert ids_in(home.open()) == {home.name(1)}


@needs_links
def test_folders_below_a_project_are_not_followed(home: Fixture, tmp_path: Path) -> None:
    path = write(home, 1)
    put_subagent(tmp_path / "outside" / "subagents" / "agent-a1.jsonl", home.name(1), "outside")
    path.with_suffix("").symlink_to(tmp_path / "outside")
    store = home.open()

    assert ids_in(store) == {home.name(1)}
    assert unlisted_of(store) == [ReadFailedReason.OUTSIDE_ROOT]
    assert refusal_of(store, "claude-code:agent-a1") is ReadFailedReason.OUTSIDE_ROOT


@needs_links
def test_a_sub_agents_log_that_is_a_link_is_not_followed(home: Fixture, tmp_path: Path) -> None:
    path = write(home, 1)
    outside = put_subagent(tmp_path / "outside.jsonl", home.name(1), "outside")
    (path.with_suffix("") / "subagents").mkdir(parents=True)
    (path.with_suffix("") / "subagents" / "agent-a1.jsonl").symlink_to(outside)

    assert ids_in(home.open()) == {home.name(1)}
    assert refusal_of(home.open(), "claude-code:agent-a1") is ReadFailedReason.OUTSIDE_ROOT


def test_looking_at_the_groups_lists_no_folder_that_has_not_changed(
    home: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    nested = [write(home, number).with_suffix("") / "subagents" for number in range(3)]
    for number, subagents in enumerate(nested):
        put_subagent(subagents / f"agent-a{number}.jsonl", home.name(number), "x")
    folder = nested[0].parents[1]
    age(*nested, folder)
    store = home.open()
    first = store.groups()
    listed: list[str] = []
    really = Folder.names

    def counted(self: Folder) -> list[str]:
        listed.append("")
        return really(self)

    monkeypatch.setattr(Folder, "names", counted)
    assert store.groups() == first
    assert len(first) == 4
    assert listed == []
    assert len([key for group in first for key in store.keys(group, never_cancelled)]) == 6
    assert talk_of(store, home.session_id(home.name(1))) == TALK
    assert listed == []

    put_subagent(nested[0] / "agent-new.jsonl", home.name(0), "y")
    store.groups()
    assert len(listed) == 1


def test_a_folder_that_changed_a_moment_ago_is_listed_again(home: Fixture) -> None:
    folder = write(home, 1).parent
    store = home.open()
    now = time.time_ns()
    os.utime(folder, ns=(now, now))
    assert ids_in(store) == {home.name(1)}
    write(home, 2)
    os.utime(folder, ns=(now, now))

    assert ids_in(store) == {home.name(1), home.name(2)}
    assert talk_of(store, home.session_id(home.name(2))) == TALK


def test_a_folder_that_is_gone_is_forgotten(home: Fixture) -> None:
    path = write(home, 1)
    put_subagent(path.with_suffix("") / "subagents" / "agent-a1.jsonl", home.name(1), "x")
    other = put_subagent(path.parent.with_name("-b-") / "s" / "subagents" / "agent-a1.jsonl", "s", "y")
    store = home.open()
    assert "agent-a1" not in ids_in(store)
    shutil.rmtree(other.parents[2])

    assert ids_in(store) == {home.name(1), "agent-a1"}


def test_a_changed_path_is_known_by_its_key(home: Fixture) -> None:
    path = write(home, 1)
    store = home.open()
    assert isinstance(store, ClaudeCodeStore)

    assert store.watched_folders() == [home.home / "projects"]
    assert store.key_of(path) == path.relative_to(home.home).as_posix()
    nested = path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    assert store.key_of(nested) == nested.relative_to(home.home).as_posix()
    assert store.key_of(path.with_suffix(".txt")) is None
    assert store.key_of(home.home.parent / "x.jsonl") is None


def test_a_home_without_projects_is_empty(tmp_path: Path) -> None:
    home = Fixture(tmp_path / "home")
    home.home.mkdir()
    store = home.open()

    assert (ids_in(store), store.groups(), store.watched_folders()) == (set(), {}, [])
    assert store.exists()
    assert refusal_of(store, "claude-code:x") is ReadFailedReason.NOT_FOUND


def test_a_file_in_the_place_of_the_projects_is_a_failure(tmp_path: Path) -> None:
    home = Fixture(tmp_path / "home")
    home.home.mkdir()
    (home.home / "projects").touch()

    assert refusal_of(home.open(), "claude-code:x") is not ReadFailedReason.NOT_FOUND


def test_a_folder_that_fails_while_it_is_searched_is_no_session_that_is_not_there(
    home: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, 1)
    store = home.open()
    assert isinstance(store, store_module.ClaudeCodeStore)

    def fail(self: Folder) -> list[str]:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(Folder, "names", fail)

    assert refusal_of(store, "claude-code:nobody") is ReadFailedReason.PERMISSION
    assert unlisted_of(store) == [ReadFailedReason.PERMISSION]
