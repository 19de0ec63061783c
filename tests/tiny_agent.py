"""A tiny agent with a store of log files, for tests of what such stores share."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.protocol.jsontext import utf8_length
from sessionref.server.store import Capture, CataloguedStore, ConversationItem, Lesson, SavedCapture, SessionHeader
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.folds import ConversationFold, LabelFold, Log
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.logs import LogStore
from sessionref.server.stores.problems import corrupt
from store_contract import EVERYTHING

__all__ = ("FIRST", "HEAD", "PADDING", "LinkedStore", "Tiny", "TinyStore", "diagnosed", "line")

PADDING = "padding " * 1000
"""More than the bytes that are checked before a position."""


class Line(msgspec.Struct, frozen=True):
    """A record: the head of a session, its name, or what somebody says."""

    type: Literal["head", "name", "user", "assistant", "strange"]
    text: str = ""


class Labels(LabelFold[Line]):
    """The head, the latest name, and whether there is a prompt."""

    head: str | None = None
    title: str | None = None
    prompts: int = 0

    def feed(self, record: Line) -> None:
        """Count it in."""
        if record.type == "head":
            self.head = record.text
        elif record.type == "name":
            self.title = record.text
        elif record.type == "user":
            self.prompts += 1

    def header(self, log: Log, session_id: str, updated_at: int) -> SessionHeader:
        """The row."""
        if self.head is None:
            raise corrupt()
        return SessionHeader(
            session_id=session_id, created_at=1, updated_at=updated_at, cwd=self.head, title=self.title
        )

    @property
    def has_prompt(self) -> bool:
        """Whether somebody asked."""
        return self.prompts > 0


class Conversation(ConversationFold[Line]):
    """All that was said."""

    said: list[tuple[str, str]] = msgspec.field(default_factory=list[tuple[str, str]])
    head: str | None = None

    def feed(self, record: Line) -> None:
        """Count it in."""
        if record.type == "head":
            self.head = record.text
        elif record.type == "strange":
            self.unknown_records += 1
        elif record.type != "name":
            self.said.append((record.type, record.text))
            self.text_bytes += utf8_length(record.text)

    @property
    def cwd(self) -> str | None:
        """What the head says."""
        return self.head

    def items(self) -> list[ConversationItem]:
        """In order."""
        return [ConversationItem("user" if role == "user" else "assistant", text) for role, text in self.said]


class TinyStore(LogStore[Line]):
    """Logs in `sessions/<project>/<id>.jsonl`, plain or compressed, a note beside one for its title."""

    kind = "tiny"

    def __init__(self, home: Path, *, limits: ReadingLimits = EVERYTHING) -> None:
        super().__init__(home, Line, limits=limits)

    def group_folders(self, home: Folder) -> Iterator[str]:
        """The projects."""
        yield "sessions/missing"
        try:
            with home.folder("sessions") as sessions:
                names = sessions.folders_and_links()
        except FileNotFoundError:
            return
        yield from (f"sessions/{name}" for name in names)

    def log_at(self, key: str) -> Log | None:
        """By the number of its parts and its ending."""
        name = key.rpartition("/")[2].removesuffix(".zst")
        if key.count("/") != 2 or not name.endswith(".jsonl"):
            return None
        return Log(key, name.removesuffix(".jsonl"))

    def new_labels(self) -> Labels:
        """Empty."""
        return Labels()

    def new_conversation(self, log: Log) -> Conversation:
        """Empty."""
        return Conversation()

    def beside(self, home: Folder, log: Log) -> bytes:
        """The size of the note."""
        try:
            return b"%d" % home.facts(f"{log.key}.note").st_size
        except OSError:
            return b""

    def with_beside(self, home: Folder, log: Log, header: SessionHeader) -> SessionHeader:
        """The note as a title."""
        try:
            group, _, name = log.key.rpartition("/")
            with self.open_folder(home, group) as project, project.file(f"{name}.note") as note:
                return msgspec.structs.replace(header, title=os.read(note.descriptor, 100).decode())
        except OSError:
            return header


class LinkedStore(TinyStore):
    """The same, where projects may be links."""

    follows_links = True


def line(kind: str, text: str = "", **more: Any) -> bytes:
    return json.dumps({"type": kind, "text": text, **more}).encode() + b"\n"


HEAD = line("head", "/srv")
FIRST = [HEAD, line("user", "one"), line("assistant", "two" + PADDING)]


class Tiny:
    """A home of the tiny agent with one log, `s`."""

    def __init__(self, folder: Path, *, compressed: bool = False) -> None:
        self.home = folder / "home"
        self.project = self.home / "sessions" / "project"
        self.project.mkdir(parents=True)
        self.path = self.project / ("s.jsonl.zst" if compressed else "s.jsonl")
        self.key = f"sessions/project/{self.path.name}"
        self.states: dict[str, bytes] = {}

    def store(self, limits: ReadingLimits = EVERYTHING) -> CataloguedStore:
        return TinyStore(self.home, limits=limits)

    def write(self, *lines: bytes) -> None:
        self.path.write_bytes(b"".join(lines))

    def append(self, *lines: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(lines))

    def full(self) -> Capture:
        return self.store().capture("tiny:s", never_cancelled)

    def again(self) -> SavedCapture:
        """A capture that goes on where the last one ended, which must be as good as a full one."""
        saved = self.store().capture_again("tiny:s", self.states.get, never_cancelled)
        if saved.state is not None:
            self.states[saved.key] = saved.state
        assert saved.capture == self.full()
        return saved

    def texts(self) -> list[str]:
        return [item.text for item in self.again().capture.items]

    def learn(self, known: Lesson | None = None, *, with_title: bool = True) -> Lesson:
        lesson = self.store().learn(self.key, known, never_cancelled, with_title=with_title)
        assert lesson is not None
        if with_title:
            fresh = self.store().learn(self.key, None, never_cancelled, with_title=True)
            assert fresh is not None
            assert (fresh.header, fresh.has_prompt) == (lesson.header, lesson.has_prompt)
        return lesson

    def refusal(self) -> ReadFailedReason | None:
        return failure_of(self.full).reason


def diagnosed(capture: Capture) -> list[str]:
    """The kinds of what was left out."""
    return [diagnostic.kind for diagnostic in capture.diagnostics]
