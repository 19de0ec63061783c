"""Where sessions of Copilot CLI lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessionref.server.stores.copilot_cli import homes
from sessionref.server.stores.copilot_cli.layout import log_at, newer_places, workspace_of
from sessionref.server.stores.folds import Log


@pytest.mark.parametrize(
    ("key", "native_id"),
    [
        ("session-state/a/events.jsonl", "a"),
        ("session-state/a.jsonl", "a"),
        ("history-session-state/a.jsonl", "a"),
        ("session-state/my work.v2/events.jsonl", "my work.v2"),
        ("session-state/a.b.jsonl", "a.b"),
    ],
)
def test_a_log_is_named_after_its_session(key: str, native_id: str) -> None:
    assert log_at(key) == Log(key, native_id)


@pytest.mark.parametrize(
    "key",
    [
        *("session-state/a", "session-state/a/workspace.yaml", "session-state/a/checkpoints/events.jsonl"),
        *("session-state/a/events.jsonl.bak", "session-state/a.json", "session-state/.jsonl/x", "logs/a/events.jsonl"),
        *("events.jsonl", "session-store.db", "session-state/a/b.jsonl", "", "session-state//events.jsonl"),
        "history-session-state/session_a_1.json",
    ],
)
def test_nothing_else_is_a_log(key: str) -> None:
    assert log_at(key) is None


def test_an_update_moves_a_session_from_a_file_to_a_folder() -> None:
    def newer(key: str) -> list[str]:
        return [log.key for log in newer_places(Log(key, "a"))]

    assert newer("session-state/a/events.jsonl") == []
    assert newer("session-state/a.jsonl") == ["session-state/a/events.jsonl"]
    assert newer("history-session-state/a.jsonl")[:2] == ["session-state/a/events.jsonl", "session-state/a.jsonl"]


def test_only_a_log_in_a_folder_has_notes_beside_it() -> None:
    assert workspace_of(Log("session-state/a/events.jsonl", "a")) == "session-state/a/workspace.yaml"
    assert workspace_of(Log("session-state/a.jsonl", "a")) is None
    assert workspace_of(Log("session-state/events.jsonl", "events")) is None


def test_the_home_is_the_one_that_the_environment_names_else_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert homes({}) == [tmp_path / ".copilot"]
    assert homes({"COPILOT_HOME": ""}) == [tmp_path / ".copilot"]
    assert homes({"COPILOT_HOME": "~/elsewhere"}) == [tmp_path / "elsewhere"]


def test_editors_may_keep_a_second_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}

    assert homes(state) == [tmp_path / ".copilot", tmp_path / "state" / ".copilot"]
    assert homes(state | {"COPILOT_HOME": str(tmp_path / "given")}) == [
        tmp_path / "given",
        tmp_path / "state" / ".copilot",
    ]
    assert homes({"XDG_STATE_HOME": str(tmp_path)}) == [tmp_path / ".copilot"]
