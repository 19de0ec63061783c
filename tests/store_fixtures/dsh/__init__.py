"""A home of DSH: log format version 4, plain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsh_fixtures import DshHome, Event, assistant, step_end, step_start, title, turn_end, turn_start, user
from sessionref.server.store import CataloguedStore
from sessionref.server.stores.dsh import open_store
from store_fixtures import CREATED_AT, USUAL_COSTS, Traits, Turn
from store_fixtures.logs import LogFixture, lines_of

__all__ = ("Fixture",)

VERSION = 4


class Fixture(LogFixture):
    """The folder that `$DSH_HOME` names."""

    kind = "dsh"
    traits = Traits(
        # Behind a line that is no event, a finished turn means that the log is not merely torn.
        costs={**USUAL_COSTS, "corrupt-record": "the-session", "nul-block": "the-session"},
        format_version=VERSION,
        hides_subagents=False,
        titles_by_prompt=False,
        tells_prompts=False,
    )

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._next: dict[str, int] = {}

    def open(self) -> CataloguedStore:
        """A store of the folder."""
        return open_store(self.home)

    def session_id(self, name: str) -> str:
        """The name: ids of DSH have no kind in front."""
        return name

    def name(self, number: int) -> str:
        """A session's id."""
        return f"session-{number:06x}"

    def create(self) -> None:
        """A home without a session."""
        DshHome(self.home)

    def write(
        self,
        name: str,
        talk: Sequence[Turn],
        *,
        title: str | None = None,
        cwd: str | None = "/srv/here",
        created_at: int = CREATED_AT,
    ) -> Path:
        """A log in the folder of its working directory."""
        return self._write(name, talk, title, cwd=cwd, created_at=created_at)

    def records(self, name: str, talk: Sequence[Turn]) -> list[dict[str, Any]]:
        """Several events a turn."""
        return self._numbered(name, [event for role, text in talk for event in events_of(role, text)])

    def write_subagent(self, name: str, parent: str, talk: Sequence[Turn]) -> str:
        """A log beside its parent's, whose header says what it is."""
        more = {"parentSession": parent, "origin": "subagent", "delegationDepth": 1}
        self._write(name, talk, None, header=more, cwd="/srv/here", created_at=CREATED_AT)
        return name

    def write_newer(self, name: str) -> None:
        """A log of the next generation."""
        self.logs[name] = DshHome(self.home).write(name, version=VERSION + 1, cwd="/srv/here")

    def is_turn(self, record: dict[str, Any]) -> bool:
        """Whether a record is a message of the user or an answer."""
        return record["type"] in ("user/message", "assistant/message")

    def text_of(self, record: dict[str, Any]) -> str:
        """The text of its one block."""
        data = record["data"]
        text: str = data.get("message", data)["content"][0]["text"]
        return text

    def _write(self, name: str, talk: Sequence[Turn], said: str | None, **members: Any) -> Path:
        self._next[name] = 0
        path = DshHome(self.home).write(name, version=VERSION, **members)
        self.logs[name] = path
        self.append(name, talk)
        if said is not None:
            with path.open("ab") as file:
                file.write(lines_of(self._numbered(name, [title(said)])))
        return path

    def _numbered(self, name: str, events: Sequence[Event]) -> list[dict[str, Any]]:
        first = self._next[name]
        self._next[name] += len(events)
        return [json.loads(event.line(first + at, VERSION)) for at, event in enumerate(events)]


def events_of(role: str, text: str) -> list[Event]:
    """A prompt begins a turn, an answer ends it."""
    if role == "user":
        return [turn_start(), user(text)]
    return [step_start(), assistant(text), step_end(), turn_end()]
