"""The sessions that ship with the package: small, whole, and one of each kind worth showing."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

import sessionref.server.stores.registry
from sessionref.server.store import Capture, SessionHeader, SessionStore
from sessionref.server.stores.registry import open_stores

SAMPLE_FOLDER = Path(sessionref.server.stores.registry.__file__).parent / "sample" / "sessions"
LOGS = sorted(SAMPLE_FOLDER.glob("*/*/*"))
MINTED_ID = re.compile(r"session-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def no_check() -> None:
    """Nobody cancels."""


@pytest.fixture
def store() -> SessionStore:
    (sample,) = open_stores(["sample"], {})
    return sample


@pytest.fixture
def headers(store: SessionStore) -> list[SessionHeader]:
    return store.list_sessions(no_check).sessions


@pytest.fixture
def captures(store: SessionStore, headers: list[SessionHeader]) -> list[Capture]:
    return [store.capture(header.session_id, no_check) for header in headers]


def test_every_sample_is_listed_with_a_title(store: SessionStore, headers: list[SessionHeader]) -> None:
    assert len(headers) == len(LOGS) >= 4
    assert store.list_sessions(no_check).unlisted == []
    assert all(header.title for header in headers)
    assert len({header.title for header in headers}) == len(headers)


def test_every_sample_shows_the_kind_of_its_store(store: SessionStore) -> None:
    assert store.kind == "sample"


def test_every_sample_reads_without_diagnostics(captures: list[Capture]) -> None:
    assert all(not capture.diagnostics for capture in captures)


def test_every_sample_is_a_conversation_that_ends_with_an_answer(captures: list[Capture]) -> None:
    for capture in captures:
        assert len(capture.items) >= 2
        assert capture.items[0].role == "user"
        assert capture.items[-1].role == "assistant"


def test_one_sample_was_compacted_and_keeps_its_checkpoint_first(captures: list[Capture]) -> None:
    (compacted,) = [capture for capture in captures if any(item.checkpoint for item in capture.items)]
    assert [item.checkpoint for item in compacted.items].index(True) == 0
    assert "three formats" not in " ".join(item.text for item in compacted.items)


def test_one_sample_is_the_session_of_a_labelled_sub_agent(headers: list[SessionHeader]) -> None:
    (child,) = [header for header in headers if header.is_subagent]
    assert child.agent_label == "tide format survey"
    parents = [header for header in headers if header.cwd == child.cwd and header.created_at < child.created_at]
    assert parents


def test_the_oldest_and_the_newest_format_are_both_shown(captures: list[Capture]) -> None:
    assert {capture.format_version for capture in captures} == {0, 4}


def test_samples_have_ids_and_times_as_an_agent_makes_them(headers: list[SessionHeader]) -> None:
    for header in headers:
        assert MINTED_ID.fullmatch(header.session_id)
        assert datetime.fromtimestamp(header.created_at / 1000, UTC).year == 2026
        assert header.cwd is not None
        assert header.cwd.startswith("/home/sam/projects/")


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_a_sample_is_small_and_holds_no_reference(path: Path) -> None:
    content = path.read_bytes()
    assert len(content) < 20_000
    assert b"dsh-session:" not in content
    assert content.endswith(b"\n")
