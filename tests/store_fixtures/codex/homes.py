"""A home of Codex that a test writes record by record, and what the store says of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import Capture, Lesson, SessionHeader
from sessionref.server.stores.codex.store import CodexStore
from store_fixtures import CREATED_AT
from store_fixtures.codex.rollouts import meta, rollout_path
from store_fixtures.logs import lines_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ("ROLLOUT", "THREAD", "CodexHome")

THREAD = "01a229e5-0000-7000-8000-000000000001"
ROLLOUT = "01a229e5-9999-7000-8000-000000000002"


class CodexHome:
    """A home below a folder, and a store of it."""

    def __init__(self, path: Path) -> None:
        self.path = path / "home"
        self.path.mkdir()
        self.store = CodexStore(self.path)

    def write(
        self,
        *records: dict[str, Any],
        thread: str = THREAD,
        rollout: str | None = None,
        folder: str = "sessions",
        ending: str = "jsonl",
        header: dict[str, Any] | None = None,
        created_at: int = CREATED_AT,
    ) -> Path:
        """Write a rollout, with a header before its records."""
        lines = lines_of([meta(thread, created_at=created_at) if header is None else header, *records])
        return self.write_bytes(
            zstd.compress(lines) if ending.endswith(".zst") else lines,
            rollout_path(thread, rollout, created_at=created_at, folder=folder, ending=ending),
        )

    def write_bytes(self, content: bytes, place: str) -> Path:
        """Write a file."""
        path = self.path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def append(self, path: Path, records: Iterable[dict[str, Any]]) -> None:
        """Let a rollout go on."""
        with path.open("ab") as file:
            file.write(lines_of(records))

    def capture(self, thread: str = THREAD) -> Capture:
        """Read a thread."""
        return self.store.capture(f"codex:{thread}", never_cancelled)

    def talk(self, thread: str = THREAD) -> list[str]:
        """Who said what: `> ` before a prompt, `< ` before an answer, `= ` before a summary."""
        marks = {"user": ">", "assistant": "<"}
        return [f"{'=' if item.checkpoint else marks[item.role]} {item.text}" for item in self.capture(thread).items]

    def said_of(self, thread: str = THREAD) -> dict[str, str]:
        """What is said of a capture, by kind."""
        return {diagnostic.kind: diagnostic.detail for diagnostic in self.capture(thread).diagnostics}

    def refusal(self, thread: str = THREAD) -> ReadFailedReason | None:
        """Why a thread cannot be read."""
        return failure_of(lambda: self.capture(thread)).reason

    def rows(self) -> dict[str, SessionHeader]:
        """What is listed, by thread."""
        sessions = self.store.list_sessions(never_cancelled).sessions
        return {header.session_id.removeprefix("codex:"): header for header in sessions}

    def row(self, thread: str = THREAD) -> SessionHeader:
        """The row of a thread."""
        return self.rows()[thread]

    def unlisted(self) -> dict[str, str]:
        """What is not listed, and why."""
        return {one.place: one.reason for one in self.store.list_sessions(never_cancelled).unlisted}

    def all_keys(self) -> list[str]:
        """The keys of all groups."""
        return [key for group in self.store.groups() for key in self.store.keys(group, never_cancelled)]

    def lesson(self, key: str, known: Lesson | None = None, *, with_title: bool = True) -> Lesson:
        """What a key's row is learnt from."""
        lesson = self.store.learn(key, known, never_cancelled, with_title=with_title)
        assert lesson is not None
        return lesson

    def changed(self, **stamps: bytes) -> list[str]:
        """Which of some keys have changed."""
        return list(self.store.changed(stamps, never_cancelled))
