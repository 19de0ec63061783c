"""A home of Claude Code: logs as 2.1 writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from store_fixtures import CREATED_AT, Traits, Turn
from store_fixtures.logs import LogFixture, iso

__all__ = ("Fixture",)


class Fixture(LogFixture):
    """The configuration folder."""

    kind = "claude-code"
    traits = Traits(marks_formats=False, follows_folder_links=True)

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._leaves: dict[str, str | None] = {}
        self._records = 0

    def name(self, number: int) -> str:
        """A UUID."""
        return f"7d0c5bd4-91a0-4e0e-8a65-{number:012x}"

    def create(self) -> None:
        """A configuration folder without a session."""
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
        self._leaves[name] = None
        records = self.records(name, talk)
        for record in records:
            record["timestamp"] = iso(created_at)
            if cwd is not None:
                record["cwd"] = cwd
        if title is not None:
            records.append({"type": "custom-title", "customTitle": title, "sessionId": name})
        folder = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in cwd or "-")
        return self.put(name, self.home / "projects" / folder / f"{name}.jsonl", records)

    def records(self, name: str, talk: Sequence[Turn]) -> list[dict[str, Any]]:
        """A record a turn, each on the one before."""
        return [self._record(name, role, text) for role, text in talk]

    def write_subagent(self, name: str, parent: str, talk: Sequence[Turn]) -> str:
        """A log in the parent's folder, under the parent's session id."""
        self._leaves[name] = None
        records = [record | {"isSidechain": True, "sessionId": parent} for record in self.records(name, talk)]
        stem = f"agent-a{UUID(name).int & 0xFFFFFF:06x}"
        self.put(stem, self.logs[parent].with_suffix("") / "subagents" / f"{stem}.jsonl", records)
        return stem

    def write_newer(self, name: str) -> None:
        """Nothing: Claude Code marks no formats."""

    def leaf(self, name: str) -> str | None:
        """The uuid of a session's last record."""
        return self._leaves[name]

    def is_turn(self, record: dict[str, Any]) -> bool:
        """Whether a record is a message."""
        return "message" in record

    def text_of(self, record: dict[str, Any]) -> str:
        """The text of a message."""
        content: Any = record["message"]["content"]
        text: str = content if isinstance(content, str) else content[0]["text"]
        return text

    def _record(self, name: str, role: str, text: str) -> dict[str, Any]:
        self._records += 1
        parent, self._leaves[name] = self._leaves[name], str(UUID(int=self._records))
        message: dict[str, Any] = {"role": role, "content": text}
        if role == "assistant":
            message = {
                "id": f"msg_{self._records}",
                "type": "message",
                "role": role,
                "model": "claude-opus-4-6",
                "content": [{"type": "text", "text": text}],
                "stop_reason": "end_turn",
            }
        return {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "sessionId": name,
            "version": "2.1.200",
            "type": role,
            "message": message,
            "uuid": self._leaves[name],
            "timestamp": iso(CREATED_AT),
        }
