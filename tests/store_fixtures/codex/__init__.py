"""A home of Codex 0.171: paginated rollouts, and the index of thread names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from store_fixtures import CREATED_AT, Turn
from store_fixtures.codex.rollouts import event, message, meta, name_line, rollout_path
from store_fixtures.logs import LogFixture, lines_of

__all__ = ("Fixture",)


class Fixture(LogFixture):
    """The folder that Codex keeps everything in."""

    kind = "codex"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._ordinals: dict[str, int] = {}

    def name(self, number: int) -> str:
        """A UUID of version 7."""
        return f"01a229e5-1451-7af3-be4c-{number:012x}"

    def write(
        self,
        name: str,
        talk: Sequence[Turn],
        *,
        title: str | None = None,
        cwd: str | None = "/srv/here",
        created_at: int = CREATED_AT,
    ) -> Path:
        """A rollout in the folder of its day, and a line of the index for its title."""
        if title is not None:
            with (self.home / "session_index.jsonl").open("ab") as index:
                index.write(lines_of([name_line(name, title)]))
        return self._write(name, talk, meta(name, cwd=cwd, created_at=created_at), created_at)

    def records(self, name: str, talk: Sequence[Turn]) -> list[dict[str, Any]]:
        """What the model is given, and nothing beside it: one record a turn."""
        return [self._numbered(name, message(role, text)) for role, text in talk]

    def write_subagent(self, name: str, parent: str, talk: Sequence[Turn]) -> str:
        """A thread like any other, but for its source; it says the parent's id as its session's."""
        source = {"subagent": {"thread_spawn": {"parent_thread_id": parent, "depth": 1, "agent_role": "default"}}}
        header = meta(name, session_id=parent, source=source, thread_source="subagent")
        self._write(name, talk, header, CREATED_AT)
        return name

    def write_newer(self, name: str) -> None:
        """A history that is kept in a way that is not known."""
        self._write(name, [("user", "hello")], meta(name, history_mode="sharded"), CREATED_AT)

    def is_turn(self, record: dict[str, Any]) -> bool:
        """Whether a record is a message."""
        return bool(record["type"] == "response_item")

    def text_of(self, record: dict[str, Any]) -> str:
        """The text of its one part."""
        text: str = record["payload"]["content"][0]["text"]
        return text

    def _write(self, name: str, talk: Sequence[Turn], header: dict[str, Any], created_at: int) -> Path:
        self._ordinals[name] = 0
        records = [
            self._numbered(name, header),
            self._numbered(name, event("task_started", turn_id="turn")),
            *self.records(name, talk),
        ]
        return self.put(name, self.home / rollout_path(name, created_at=created_at), records)

    def _numbered(self, name: str, record: dict[str, Any]) -> dict[str, Any]:
        ordinal = self._ordinals[name]
        self._ordinals[name] = ordinal + 1
        return {"timestamp": record["timestamp"], "ordinal": ordinal, **record}
