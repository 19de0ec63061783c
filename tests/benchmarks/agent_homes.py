"""Homes of other agents to measure with: one long session each, nearly all of it tool output, as real ones are."""

from __future__ import annotations

import json
import random
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.homes import output, prose

__all__ = ("AGENT_HOMES", "SESSION")

SESSION: Final = "019c4b43-1451-7af3-be4c-5576369bf1ba"

TURNS: Final = 200
_TIME: Final = "2026-11-30T08:00:00.000Z"
_MILLISECONDS: Final = 1_790_000_000_000
_OUTPUTS: Final = (1_000, 4_000, 16_000)

Write = Callable[[Path, int], tuple[str, Path]]
"""Writes a home whose session has about so many bytes; returns the session's native id and the file that holds it."""


def _turns(size: int) -> Iterator[tuple[str, list[str], str]]:
    """A prompt, the outputs of tools, and a reply for every turn."""
    words = random.Random(size)
    texts = [output(words, length) for length in _OUTPUTS]
    for _ in range(TURNS):
        left, outputs = size // TURNS - 1_000, list[str]()
        while left > 0:
            outputs.append(words.choice(texts))
            left -= len(outputs[-1]) + 400
        yield prose(words, 150), outputs, prose(words, 400)


def _write_lines(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
    return path


def _claude_code(home: Path, size: int) -> tuple[str, Path]:
    def records() -> Iterator[dict[str, Any]]:
        parent: str | None = None

        def record(kind: str, content: Any, **more: Any) -> dict[str, Any]:
            nonlocal parent
            made: dict[str, Any] = {
                "parentUuid": parent,
                "isSidechain": False,
                "userType": "external",
                "cwd": "/srv/almanac",
                "sessionId": SESSION,
                "version": "2.1.210",
                "type": kind,
                "message": {"role": kind, "content": content},
                "uuid": str(uuid.uuid4()),
                "timestamp": _TIME,
                **more,
            }
            parent = made["uuid"]
            return made

        for prompt, outputs, reply in _turns(size):
            yield record("user", prompt)
            for text in outputs:
                call = f"toolu_{uuid.uuid4().hex[:24]}"
                yield record(
                    "assistant", [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "make"}}]
                )
                result = {"type": "tool_result", "tool_use_id": call, "content": text}
                yield record("user", [result], toolUseResult={"stdout": text[:400]})
            yield record("assistant", [{"type": "text", "text": reply}])

    return SESSION, _write_lines(home / "projects" / "-srv-almanac" / f"{SESSION}.jsonl", records())


def _codex(home: Path, size: int) -> tuple[str, Path]:
    def message(role: str, kind: str, text: str, **more: Any) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}], **more}

    def records() -> Iterator[dict[str, Any]]:
        meta = {"id": SESSION, "timestamp": _TIME, "cwd": "/srv/almanac", "cli_version": "0.171.0", "source": "cli"}
        yield {"timestamp": _TIME, "type": "session_meta", "payload": meta}
        for prompt, outputs, reply in _turns(size):
            kinds = {"content_item_kinds": ["user.text"]}
            payloads = [message("user", "input_text", prompt, internal_chat_message_metadata_passthrough=kinds)]
            for text in outputs:
                call = {"call_id": f"call_{uuid.uuid4().hex}"}
                payloads.append({"type": "function_call", "name": "shell", "arguments": '{"command":"make"}', **call})
                payloads.append({"type": "function_call_output", "output": text, **call})
            payloads.append(message("assistant", "output_text", reply))
            yield from ({"timestamp": _TIME, "type": "response_item", "payload": payload} for payload in payloads)

    folder = home / "sessions" / "2026" / "11" / "30"
    return SESSION, _write_lines(folder / f"rollout-2026-11-30T08-00-00-{SESSION}.jsonl", records())


def _copilot_cli(home: Path, size: int) -> tuple[str, Path]:
    def record(kind: str, data: dict[str, Any]) -> dict[str, Any]:
        return {"type": kind, "data": data, "id": str(uuid.uuid4()), "timestamp": _TIME, "parentId": None}

    def records() -> Iterator[dict[str, Any]]:
        start = {"sessionId": SESSION, "version": 1, "startTime": _TIME, "context": {"cwd": "/srv/almanac"}}
        yield record("session.start", start)
        for prompt, outputs, reply in _turns(size):
            yield record("user.message", {"content": prompt, "transformedContent": f"<now>…</now>\n{prompt}"})
            for text in outputs:
                call = {"toolCallId": f"call_{uuid.uuid4().hex}"}
                yield record("tool.execution_start", {**call, "toolName": "bash", "arguments": {"command": "make"}})
                yield record("tool.execution_complete", {**call, "success": True, "result": {"content": text}})
            yield record("assistant.message", {"content": reply, "toolRequests": []})

    return SESSION, _write_lines(home / "session-state" / SESSION / "events.jsonl", records())


def _pi(home: Path, size: int) -> tuple[str, Path]:
    def records() -> Iterator[dict[str, Any]]:
        yield {"type": "session", "version": 3, "id": SESSION, "timestamp": _TIME, "cwd": "/srv/almanac"}
        count = 0

        def record(role: str, content: list[dict[str, Any]]) -> dict[str, Any]:
            nonlocal count
            count += 1
            parent = f"{count - 1:08x}" if count > 1 else None
            message = {"role": role, "content": content, "timestamp": _MILLISECONDS}
            return {"type": "message", "id": f"{count:08x}", "parentId": parent, "timestamp": _TIME, "message": message}

        for prompt, outputs, reply in _turns(size):
            yield record("user", [{"type": "text", "text": prompt}])
            for text in outputs:
                call = f"call_{count}"
                yield record(
                    "assistant", [{"type": "toolCall", "id": call, "name": "bash", "arguments": {"command": "make"}}]
                )
                yield record("toolResult", [{"type": "text", "text": text}])
            yield record("assistant", [{"type": "text", "text": reply}])

    name = f"2026-11-30T08-00-00-000Z_{SESSION}.jsonl"
    return SESSION, _write_lines(home / "sessions" / "--srv-almanac--" / name, records())


def _opencode(home: Path, size: int) -> tuple[str, Path]:
    home.mkdir(parents=True)
    session, count = "ses_long", 0
    with sqlite3.connect(home / "opencode.db") as database:
        database.executescript(
            "CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT, slug TEXT, directory TEXT,"
            " title TEXT, version TEXT, revert TEXT, time_created INTEGER, time_updated INTEGER,"
            " time_archived INTEGER);"
            "CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, time_updated INTEGER,"
            " data TEXT);"
            "CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER,"
            " time_updated INTEGER, data TEXT);"
            "CREATE INDEX message_session_idx ON message (session_id);"
            "CREATE INDEX part_session_idx ON part (session_id);"
            "CREATE INDEX part_message_idx ON part (message_id);"
        )
        database.execute(
            "INSERT INTO session VALUES (?, 'p', NULL, 's', '/srv/almanac', 'Long', '1.18.33', NULL, ?, ?, NULL)",
            (session, _MILLISECONDS, _MILLISECONDS),
        )

        def add(role: str, parts: list[dict[str, Any]]) -> None:
            nonlocal count
            count += 1
            message = f"msg_{count:012d}"
            time = _MILLISECONDS + count
            data = json.dumps({"role": role, "time": {"created": time}})
            database.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", (message, session, time, time, data))
            for at, part in enumerate(parts):
                row = (f"prt_{count:012d}{at:06d}", message, session, time, time, json.dumps(part))
                database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)

        for prompt, outputs, reply in _turns(size):
            add("user", [{"type": "text", "text": prompt}])
            tools = [
                {"type": "tool", "tool": "bash", "callID": "call", "state": {"status": "completed", "output": text}}
                for text in outputs
            ]
            add("assistant", [*tools, {"type": "text", "text": reply}])
    database.close()
    return session, home / "opencode.db"


AGENT_HOMES: Final[dict[str, Write]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "opencode": _opencode,
    "copilot-cli": _copilot_cli,
    "pi": _pi,
}
