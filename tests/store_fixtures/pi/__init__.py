"""A home of pi: session format version 3."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from store_fixtures import CREATED_AT, Turn
from store_fixtures.logs import LogFixture, iso

__all__ = ("Fixture",)


class Fixture(LogFixture):
    """The agent folder."""

    kind = "pi"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._leaves: dict[str, str | None] = {}

    def name(self, number: int) -> str:
        """A UUID."""
        return f"019c4b43-1451-7af3-be4c-{number:012x}"

    def create(self) -> None:
        """An agent folder without a session."""
        (self.home / "sessions").mkdir(parents=True, exist_ok=True)

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
        records: list[dict[str, Any]] = [
            {"type": "session", "version": 3, "id": name, "timestamp": iso(created_at)} | ({"cwd": cwd} if cwd else {}),
            *self.records(name, talk),
        ]
        if title is not None:
            records.append({"type": "session_info", "name": title, **self._place(name)})
        slug = (cwd or "none").strip("/").replace("/", "-")
        return self.put(name, self.home / "sessions" / f"--{slug}--" / f"{_stamp(created_at)}_{name}.jsonl", records)

    def records(self, name: str, talk: Sequence[Turn]) -> list[dict[str, Any]]:
        """A message entry a turn."""
        return [
            {
                "type": "message",
                **self._place(name),
                "timestamp": iso(CREATED_AT),
                "message": {"role": role, "content": [{"type": "text", "text": text}], "timestamp": CREATED_AT},
            }
            for role, text in talk
        ]

    def write_subagent(self, name: str, parent: str, talk: Sequence[Turn]) -> str:
        """A log three folders below the parent's, as the extension pi-subagents keeps it."""
        self._leaves[name] = None
        native_id = f"{parent}/{name}/run-0"
        log = self.logs[parent]
        header = {"type": "session", "version": 3, "id": name, "timestamp": iso(CREATED_AT), "cwd": "/srv/here"}
        records = [header, *self.records(name, talk)]
        self.put(native_id, log.with_suffix("") / name / "run-0" / "session.jsonl", records)
        return native_id

    def write_newer(self, name: str) -> None:
        """A header of version 4."""
        path = self.write(name, [("user", "hello")])
        path.write_bytes(path.read_bytes().replace(b'"version": 3', b'"version": 4'))

    def is_turn(self, record: dict[str, Any]) -> bool:
        """Whether a record is a message."""
        return bool(record["type"] == "message")

    def text_of(self, record: dict[str, Any]) -> str:
        """The text of its one block."""
        text: str = record["message"]["content"][0]["text"]
        return text

    def _place(self, name: str) -> dict[str, Any]:
        parent = self._leaves[name]
        self._leaves[name] = f"{int(parent or '0', 16) + 1:08x}"
        return {"id": self._leaves[name], "parentId": parent}


def _stamp(created_at: int) -> str:
    return iso(created_at).replace(":", "-").replace(".", "-")
