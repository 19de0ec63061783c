"""What tests of Claude Code's homes put into them, and what they see of them."""

from __future__ import annotations

from pathlib import Path

from sessionref.server.store import CataloguedStore
from store_contract import rows_of, talk_of
from store_fixtures import Turn
from store_fixtures.claude_code import Fixture
from store_fixtures.logs import lines_of

__all__ = ("TALK", "ids_in", "put_subagent", "said_by", "write")

TALK: list[Turn] = [("user", "the prompt"), ("assistant", "the answer")]


def write(home: Fixture, number: int, *, cwd: str = "/srv/here", talk: list[Turn] | None = None) -> Path:
    """Write a session; returns its file."""
    return home.write(home.name(number), TALK if talk is None else talk, cwd=cwd)


def put_subagent(path: Path, parent: str, said: str) -> Path:
    """Write a sub-agent's log at a path, under its parent's session id."""
    record = {"type": "user", "uuid": "u", "isSidechain": True, "message": {"role": "user", "content": said}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines_of([record | {"sessionId": parent}]))
    return path


def ids_in(store: CataloguedStore) -> set[str]:
    """The native ids of all sessions that are listed."""
    return {session_id.partition(":")[2] for session_id in rows_of(store)}


def said_by(store: CataloguedStore, native_id: str) -> str:
    """The only message of a session."""
    ((_, text),) = talk_of(store, f"claude-code:{native_id}")
    return text
