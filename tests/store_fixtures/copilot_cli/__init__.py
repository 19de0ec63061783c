"""A home of Copilot CLI: event format version 1, a folder for each session."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from store_fixtures import CREATED_AT, Traits, Turn
from store_fixtures.logs import LogFixture, iso

__all__ = ("Fixture", "event", "reply", "start", "typed")


class Fixture(LogFixture):
    """The folder that `$COPILOT_HOME` names."""

    kind = "copilot-cli"
    # Nothing is looked for beside the folder of sessions; there, a log that an update has moved stays behind.
    traits = Traits(has_projects=False)

    def name(self, number: int) -> str:
        """A UUID."""
        return f"4f1c9a52-7d1e-4c1b-9a37-{number:012x}"

    def create(self) -> None:
        """A home without a session."""
        (self.home / "session-state").mkdir(parents=True, exist_ok=True)

    def write(
        self,
        name: str,
        talk: Sequence[Turn],
        *,
        title: str | None = None,
        cwd: str | None = "/srv/here",
        created_at: int = CREATED_AT,
    ) -> Path:
        """A folder with the log, and with what the agent notes if the session has a name."""
        return self._write(name, talk, {}, title=title, cwd=cwd, created_at=created_at)

    def records(self, name: str, talk: Sequence[Turn]) -> list[dict[str, Any]]:
        """A message event a turn."""
        return [typed(text) if role == "user" else reply(text) for role, text in talk]

    def remove(self, name: str) -> None:
        """Take the folder away."""
        shutil.rmtree(self.logs.pop(name).parent)

    def write_subagent(self, name: str, parent: str, talk: Sequence[Turn]) -> str:
        """A session that another has spawned: what sub-agents do inside of one has no session of its own."""
        self._write(name, talk, {"detachedFromSpawningParentSessionId": parent})
        return name

    def write_newer(self, name: str) -> None:
        """A start in event format version 2."""
        self._write(name, [("user", "hello")], {"version": 2})

    def is_turn(self, record: dict[str, Any]) -> bool:
        """Whether an event is a message."""
        return record["type"] in ("user.message", "assistant.message")

    def text_of(self, record: dict[str, Any]) -> str:
        """The content of a message."""
        text: str = record["data"]["content"]
        return text

    def _write(
        self,
        name: str,
        talk: Sequence[Turn],
        more: dict[str, Any],
        *,
        title: str | None = None,
        cwd: str | None = "/srv/here",
        created_at: int = CREATED_AT,
    ) -> Path:
        folder = self.home / "session-state" / name
        folder.mkdir(parents=True, exist_ok=True)
        if title is not None:
            noted = f"id: {name}\nname: {json.dumps(title, ensure_ascii=False)}\nuser_named: true\n"
            (folder / "workspace.yaml").write_text(noted, encoding="utf-8")
        return self.put(
            name, folder / "events.jsonl", [start(name, cwd, created_at, **more), *self.records(name, talk)]
        )


def start(name: str | None, cwd: str | None = "/srv/here", created_at: int = CREATED_AT, **more: Any) -> dict[str, Any]:
    """The event that a session starts with."""
    data: dict[str, Any] = {"version": 1, "producer": "copilot-agent", "startTime": iso(created_at)}
    if name is not None:
        data["sessionId"] = name
    if cwd is not None:
        data["context"] = {"cwd": cwd, "branch": "main"}
    return event("session.start", **(data | more))


def typed(text: str, **more: Any) -> dict[str, Any]:
    """A prompt, and what the agent makes of it for the model."""
    wrapped = f"<current_datetime>now</current_datetime>\n\n{text}"
    return event("user.message", content=text, transformedContent=wrapped, attachments=[], **more)


def reply(text: str, **more: Any) -> dict[str, Any]:
    """A message of the assistant."""
    return event("assistant.message", content=text, toolRequests=[], reasoningText="thinking", **more)


def event(kind: str, /, **data: Any) -> dict[str, Any]:
    """An event; most have no parent."""
    return {"type": kind, "data": data, "id": "e", "timestamp": iso(CREATED_AT), "parentId": None}
