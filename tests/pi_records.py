"""Sessions of pi, record by record: `PiLog` hangs each entry on the one before, unless it is told to branch off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resolver_doubles import never_cancelled
from sessionref.server.store import Capture, SessionHeader
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.pi.store import PiStore
from store_fixtures.logs import lines_of

__all__ = ("PiLog", "blocks", "capture_of", "diagnosed", "row_of", "said")

NAME = "2026-09-21T14-13-20-000Z_s.jsonl"


class PiLog:
    """A log that is being written; `leaf` is the entry that the next one hangs on."""

    def __init__(self, *, version: Any = 3, has_ids: bool = True, **header: Any) -> None:
        first = {"type": "session", "version": version, "id": "s", "timestamp": "2026-09-21T14:13:20.000Z", "cwd": "/w"}
        members = {key: value for key, value in {**first, **header}.items() if value is not None}
        self.records: list[dict[str, Any]] = [members]
        self.leaf: str | None = None
        self._has_ids = has_ids

    def entry(self, kind: str, **members: Any) -> str:
        """Any entry; members that are None are left out. Returns its id."""
        identity = f"{len(self.records):08x}"
        place: dict[str, Any] = {"id": identity, "parentId": self.leaf} if self._has_ids else {}
        record = {"type": kind, **place, "timestamp": "2026-09-21T14:13:21.000Z", **members}
        self.records.append({key: value for key, value in record.items() if value is not None or key == "parentId"})
        self.leaf = record.get("id")
        return identity

    def message(self, role: str, content: Any, **members: Any) -> str:
        """A message of any role."""
        return self.entry("message", message={"role": role, "content": content, **members})

    def user(self, text: str) -> str:
        """A prompt."""
        return self.message("user", blocks(text))

    def assistant(self, text: str) -> str:
        """An answer."""
        return self.message("assistant", blocks(text), stopReason="stop")

    def talk(self, *texts: str) -> list[str]:
        """Prompts and answers by turns."""
        return [self.assistant(text) if at % 2 else self.user(text) for at, text in enumerate(texts)]

    def compaction(self, summary: Any, first_kept: str | None = None, **members: Any) -> str:
        """A compaction."""
        return self.entry("compaction", summary=summary, firstKeptEntryId=first_kept, tokensBefore=1000, **members)

    @property
    def content(self) -> bytes:
        """The file."""
        return lines_of(self.records)


def blocks(*texts: str) -> list[dict[str, Any]]:
    """One text block for each text."""
    return [{"type": "text", "text": text} for text in texts]


def capture_of(folder: Path, content: bytes | PiLog, *, limits: ReadingLimits | None = None) -> Capture:
    """What a file comes to as the one session, `s`, of a folder."""
    _write(folder, content)
    return PiStore(folder, limits=limits).capture("pi:s", never_cancelled)


def row_of(folder: Path, content: bytes | PiLog) -> SessionHeader:
    """The row of that session."""
    _write(folder, content)
    (row,) = PiStore(folder).list_sessions(never_cancelled).sessions
    return row


def said(capture: Capture) -> list[str]:
    """The conversation, each text behind a letter: a user's, an assistant's, or a checkpoint's."""
    return [f"{'c' if item.checkpoint else item.role[0]}:{item.text}" for item in capture.items]


def diagnosed(capture: Capture) -> list[str]:
    """The kinds of what was left out."""
    return [diagnostic.kind for diagnostic in capture.diagnostics]


def _write(folder: Path, content: bytes | PiLog) -> None:
    folder.mkdir(exist_ok=True)
    (folder / NAME).write_bytes(content if isinstance(content, bytes) else content.content)
