"""A home of Qwen Code: logs of version 0.21."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from store_fixtures import CREATED_AT, Turn
from store_fixtures.logs import LogFixture, iso

__all__ = ("Fixture",)


class Fixture(LogFixture):
    """The folder that `$QWEN_HOME` names."""

    kind = "qwen-code"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._leaves: dict[str, str | None] = {}

    def name(self, number: int) -> str:
        """A UUID."""
        return f"27d495d1-de2d-449d-af11-{number:012x}"

    def create(self) -> None:
        """A home without a session."""
        (self.home / "projects").mkdir(parents=True, exist_ok=True)

    def write(
        self,
        name: str,
        talk: Sequence[Turn],
        *,
        title: str | None = None,
        cwd: str | None = "/srv/here",
        created_at: int = CREATED_AT,
    ) -> Path:
        """A file in the folder of its working directory."""
        told: dict[str, Any] = {"timestamp": iso(created_at)} | ({"cwd": cwd} if cwd else {})
        self._leaves[name] = None
        records = [self.record(name, "system", subtype="attribution_snapshot"), *self.records(name, talk)]
        if title is not None:
            records.append(self.record(name, "system", subtype="custom_title", systemPayload={"customTitle": title}))
        project = "".join(letter if letter.isalnum() else "-" for letter in cwd or "none")
        path = self.home / "projects" / project / "chats" / f"{name}.jsonl"
        return self.put(name, path, [record | told for record in records])

    def records(self, name: str, talk: Sequence[Turn]) -> list[dict[str, Any]]:
        """A record a turn."""
        return [
            self.record(
                name,
                role,
                provenance="real_user" if role == "user" else "assistant_output",
                message={"role": "user" if role == "user" else "model", "parts": [{"text": text}]},
            )
            for role, text in talk
        ]

    def record(self, name: str, kind: str, **more: Any) -> dict[str, Any]:
        """The next record of a session."""
        parent = self._leaves.setdefault(name, None)
        self._leaves[name] = f"{int(parent or '0', 16) + 1:08x}"
        placed = {"uuid": self._leaves[name], "parentUuid": parent, "sessionId": name, "timestamp": iso(CREATED_AT)}
        return placed | {"type": kind, "version": "0.21.6"} | more

    def write_subagent(self, name: str, parent: str, talk: Sequence[Turn]) -> str:
        """A log in the folder of its parent's sub-agents."""
        folder = self.logs[parent].parent.with_name("subagents") / parent
        told = {"isSidechain": True, "agentId": name, "sessionId": parent, "cwd": "/srv/here"}
        records = [record | told for record in self.records(name, talk)]
        self.put(name, folder / f"agent-{name}.jsonl", records)
        return f"{parent}/agent-{name}"

    def write_newer(self, name: str) -> None:
        """A log of the managed engine."""
        path = self.write(name, [("user", "hello")])
        path.write_bytes(path.read_bytes().replace(b"attribution_snapshot", b"managed_session_header_v1"))

    def is_turn(self, record: dict[str, Any]) -> bool:
        """Whether a record is a message."""
        return record["type"] in ("user", "assistant")

    def text_of(self, record: dict[str, Any]) -> str:
        """The text of its one part."""
        text: str = record["message"]["parts"][0]["text"]
        return text
