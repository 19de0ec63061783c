"""DSH homes for tests: event builders, and `DshHome`, which writes them as logs of any format, plain or zstd."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sessionref.protocol.jsontext import stringify
from sessionref.server.stores.dsh import project_key, session_segment

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = (
    "DshHome",
    "Event",
    "assistant",
    "checkpoint",
    "descriptor",
    "event",
    "packed_texts",
    "plugin_message",
    "step_end",
    "step_start",
    "text_blocks",
    "title",
    "tool_call",
    "tool_result",
    "turn_end",
    "turn_start",
    "user",
    "zstd_frame",
)


@dataclass(frozen=True)
class Event:
    """One event before it has a place in a log; `replaces` are the first and last position of a replaced range."""

    type: str
    data: Any
    surface: bool = False
    replaces: tuple[int, int] | None = None
    cites: Sequence[int | list[int]] | None = None
    members: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def length(self) -> int:
        """How many positions the event takes."""
        return len(self.data["dt"]) + 1 if self.type.endswith("-chunks") else 1

    def line(self, seq: int, version: int) -> bytes:
        """The event as a line of a log, with its line feed."""
        packed = self.type.endswith("-chunks")
        fields: dict[str, Any] = {
            "type": self.type,
            **({"seq0": seq, "time0": 7} if packed else {"seq": seq, "time": 7}),
        }
        fields["data"] = self.data
        if self.type == "assistant/message" and version >= 2:
            fields["data"] = {**self.data, "stream": []}
        if self.replaces:
            names = ("startSeq", "endSeq") if version >= 3 else ("start", "end")
            fields["surfaceOp"] = {"op": "replace", **dict(zip(names, self.replaces, strict=True))}
        elif self.surface:
            fields["surfaceOp"] = "append"
        if self.cites is not None:
            fields["sourceEventSeqs"] = self.cites
        return stringify({**fields, **self.members}).encode() + b"\n"

    def replacing(self, first: int, last: int, cites: Sequence[int | list[int]] | None = None) -> Event:
        """The same event in the place of a range; it cites the positions from `first` to `last` if not told."""
        cited = list(range(first, last + 1)) if cites is None else cites
        return replace(self, surface=True, replaces=(first, last), cites=cited)


class DshHome:
    """A DSH home below `path`, made when it is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sessions = path / "sessions"
        self.sessions.mkdir(parents=True, exist_ok=True)

    def write(
        self,
        session_id: str,
        events: Iterable[Event | bytes] = (),
        *,
        version: int = 0,
        cwd: str | None = None,
        created_at: int = 1000,
        compressed: bool = False,
        header: dict[str, Any] | bytes | None = None,
        folder: tuple[str, str] | None = None,
        file_name: str | None = None,
        lines_a_frame: int = 2,
        torn_bytes: int = 0,
        modified_at: int | None = None,
    ) -> Path:
        """Write one log and return its path.

        Bytes among the events are lines as they are; `header` is a whole line or members to add (None takes one out);
        `torn_bytes` are cut off the end; `modified_at` is in Unix milliseconds.
        """
        place = self.sessions.joinpath(*(folder or (project_key(cwd), session_segment(session_id))))
        place.mkdir(parents=True, exist_ok=True)
        first = header if isinstance(header, bytes) else header_line(session_id, version, cwd, created_at, header)
        lines = event_lines(events, version)
        if compressed:
            frames = [lines[at : at + lines_a_frame] for at in range(0, len(lines), lines_a_frame)]
            content = b"".join(map(zstd_frame, [first, *map(b"".join, frames)]))
        else:
            content = b"".join([first, *lines])
        name = file_name or f"session{f'.v{version}' if version else ''}.jsonl{'.zstd' if compressed else ''}"
        path = place / name
        path.write_bytes(content[: len(content) - torn_bytes])
        if modified_at is not None:
            os.utime(path, ns=(modified_at * 1_000_000, modified_at * 1_000_000))
        return path


def header_line(
    session_id: str,
    version: int = 0,
    cwd: str | None = None,
    created_at: int = 1000,
    more: dict[str, Any] | None = None,
) -> bytes:
    """The first line of a log; members of `more` that are None are left out."""
    fields: dict[str, Any] = {"type": "session", "version": version, "id": session_id, "createdAt": created_at}
    fields |= {"cwd": cwd, "isSeeded": False if version >= 2 else None, "delegationDepth": 0, **(more or {})}
    return stringify({key: value for key, value in fields.items() if value is not None}).encode() + b"\n"


def event_lines(events: Iterable[Event | bytes], version: int = 0) -> list[bytes]:
    """The events as numbered lines; bytes pass as they are and take no position."""
    lines: list[bytes] = []
    seq = 0
    for entry in events:
        if isinstance(entry, bytes):
            lines.append(entry)
        else:
            lines.append(entry.line(seq, version))
            seq += entry.length
    return lines


def zstd_frame(content: bytes) -> bytes:
    """One frame with a checksum, as DSH writes them."""
    return zstd.compress(content, options={zstd.CompressionParameter.checksum_flag: 1})


def event(kind: str, data: Any = None, **members: Any) -> Event:
    """Any event that is not on the surface; `members` are added to its line."""
    return Event(kind, {} if data is None else data, members=members)


def text_blocks(*texts: str) -> list[dict[str, Any]]:
    """One text block for each text."""
    return [{"type": "text", "text": text} for text in texts]


def user(*texts: str, kind: str = "user", **source: Any) -> Event:
    """A user message of one or more text blocks."""
    data = {"content": text_blocks(*texts), "source": {"kind": kind, **source}, "role": "user", "id": "m"}
    return Event("user/message", data, surface=True)


def plugin_message(text: str, version: int) -> Event:
    """What a plugin added to the conversation; never projected."""
    if version >= 4:
        return user(text, kind="runtime-context")
    return user(text, kind="plugin", plugin="system-prompt")


def checkpoint(*texts: str, version: int) -> Event:
    """A compaction checkpoint as that format marks it."""
    if version >= 4:
        return user(*texts, kind="compact-checkpoint", compactionId="c")
    return user(*texts, kind="plugin", plugin="compact", compactionId="c")


def tool_call(call_id: str = "call") -> dict[str, Any]:
    """The block that announces a tool call."""
    return {"type": "tool-call", "id": call_id, "name": "bash", "arguments": "{}"}


def assistant(*content: str | dict[str, Any], **data: Any) -> Event:
    """An answer of texts and other blocks."""
    blocks = [block if isinstance(block, dict) else text_blocks(block)[0] for block in content]
    message = {"content": blocks, "source": {"kind": "model"}, "role": "assistant", "id": "m"}
    return Event("assistant/message", {"turn": 1, "step": 1, "message": message, **data}, surface=True)


def tool_result(text: str = "output", *, call_id: str = "call", version: int = 0) -> Event:
    """The result of a tool call as that format has it."""
    message: dict[str, Any] = {"id": "t", "source": {"kind": "tool", "callId": call_id}}
    if version >= 4:
        message |= {"role": "tool", "toolCallId": call_id, "content": text_blocks(text)}
    else:
        block = {"type": "tool-result", "toolCallId": call_id, "content": text_blocks(text), "isError": False}
        message |= {"role": "user", "content": [block]}
    return Event("tool/result", {"turn": 1, "step": 1, "message": message}, surface=True)


def title(text: Any) -> Event:
    """A title given to the session."""
    return event("session/title", {"title": text, "messageSeqs": [], "source": {"kind": "user"}})


def descriptor(label: str = "researcher", *, version: int = 2, **more: Any) -> Event:
    """How a sub-agent's session was made."""
    mode = {} if version == 1 else {"mode": "continuable"}
    return event("subagent/descriptor", {"version": version, **mode, "provider": "spawn", "label": label, **more})


def packed_texts(*texts: str) -> Event:
    """A packed row of text chunks; it takes a position for each."""
    return event("text-chunks", {"turn": 1, "step": 1, "index": 0, "dt": [1] * (len(texts) - 1), "texts": list(texts)})


def turn_start() -> Event:
    """A turn begins."""
    return event("turn/start", {"turn": 1})


def turn_end(reason: str = "completed") -> Event:
    """A turn ends."""
    return event("turn/end", {"turn": 1, "reason": {"kind": reason}})


def step_start() -> Event:
    """A step begins."""
    return event("step/start", {"turn": 1, "step": 1})


def step_end() -> Event:
    """A step ends."""
    return event("step/end", {"turn": 1, "step": 1})
