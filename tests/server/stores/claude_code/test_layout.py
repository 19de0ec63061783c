"""Where sessions of Claude Code lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessionref.server.stores.claude_code import homes
from sessionref.server.stores.claude_code.layout import Place, place_of


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("projects/-work-here/7d0c.jsonl", Place("-work-here", "7d0c", is_subagent=False, is_flat=True)),
        ("projects/p/a.b c.jsonl", Place("p", "a.b c", is_subagent=False, is_flat=True)),
        ("projects/p/agent-.jsonl", Place("p", "agent-", is_subagent=False, is_flat=True)),
        ("projects/p/agent-1.jsonl", Place("p", "agent-1", is_subagent=True, is_flat=True)),
        ("projects/p/7d0c/subagents/agent-1.jsonl", Place("7d0c", "agent-1", is_subagent=True, is_flat=False)),
    ],
)
def test_a_log_is_named_after_its_session(key: str, place: Place) -> None:
    assert place_of(key) == place


@pytest.mark.parametrize(
    "key",
    [
        *("", "projects", "projects/p", "projects/p/.jsonl", "projects/a.jsonl", "a.jsonl", "projects/p/a.jsonl.bak"),
        *("projects/p/s/a.jsonl", "projects/p/s/subagents/journal.jsonl", "projects/p/s/subagents/agent-1.meta.json"),
        *("projects/p/s/subagents/x/agent-1.jsonl", "projects/p/s/tool-results/agent-1.jsonl", "history.jsonl"),
        *("projects/p/sessions-index.json", "projects//a.jsonl", "projects/p/a.jsonl\n", "Projects/p/a.jsonl"),
    ],
)
def test_nothing_else_is_a_log(key: str) -> None:
    assert place_of(key) is None


def test_the_home_is_the_one_that_the_environment_names_else_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))

    assert homes({"CLAUDE_CONFIG_DIR": str(tmp_path / "config")}) == [tmp_path / "config"]
    assert homes({"CLAUDE_CONFIG_DIR": "~/config"}) == [tmp_path / "config"]
    assert homes({"CLAUDE_CONFIG_DIR": ""}) == homes({}) == [tmp_path / ".claude"]
