"""DSH homes to measure with: logs of format 4 as DSH writes them, plain or zstd, made as a stream.

A compressed log is one frame for the header and one for every batch of lines.
"""

from __future__ import annotations

import random
import sys
import uuid
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from sessionref.server.stores.dsh import project_key, session_segment

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = (
    "LogLines",
    "chat_lines",
    "small_lines",
    "tool_output_lines",
    "write_home",
    "write_log",
)

LINES_A_FRAME: Final = 20
"""Lines that one durable write of DSH holds, roughly: events of 200 ms."""

PROJECTS: Final = 20
START: Final = 1_790_000_000_000

_VOCABULARY: Final = (
    "harbour ferry tide pier lamp schedule timetable parser module table zone offset error warning passed failed "
    "import return self value index result assert expected actual src/almanac/dates.py line"
)
_WORDS: Final = _VOCABULARY.split()


class LogLines:
    """Numbers the events of one log and makes lines of them."""

    def __init__(self) -> None:
        self._seq = 0

    @property
    def last_seq(self) -> int:
        """The position of the event made last."""
        return self._seq - 1

    def event(self, kind: str, data: Any, **members: Any) -> bytes:
        """Any event."""
        fields = {"type": kind, "seq": self._seq, "time": START + 7 * self._seq, "data": data, **members}
        self._seq += 1
        return msgspec.json.encode(fields) + b"\n"

    def title(self, text: str) -> bytes:
        """The session gets a title."""
        return self.event("session/title", {"title": text, "messageSeqs": [], "source": {"kind": "user"}})

    def turn_start(self) -> bytes:
        """A turn begins."""
        return self.event("turn/start", {"turn": 1})

    def turn_end(self) -> bytes:
        """A turn ends."""
        return self.event("turn/end", {"turn": 1, "reason": {"kind": "completed"}})

    def step(self, *, end: bool = False) -> bytes:
        """A step begins or ends."""
        return self.event("step/end" if end else "step/start", {"turn": 1, "step": 1})

    def user(self, text: str, *, kind: str = "user", surface: Any = "append", **members: Any) -> bytes:
        """A prompt, or a checkpoint with its own kind of source."""
        content = [{"type": "text", "text": text}]
        data = {"content": content, "source": {"kind": kind}, "role": "user", "id": self._id()}
        return self.event("user/message", data, **members, surfaceOp=surface)

    def assistant(self, text: str, call: str | None = None) -> bytes:
        """An answer, perhaps with a tool call."""
        content: list[dict[str, Any]] = [{"type": "text", "text": text}]
        if call is not None:
            content.append({"type": "tool-call", "id": call, "name": "bash", "arguments": '{"command":"make test"}'})
        source = {"kind": "model", "provider": "deepseek-official", "model": "deepseek-v4-flash"}
        message = {"role": "assistant", "content": content, "source": source, "id": self._id()}
        usage = {"inputTokens": 2877, "outputTokens": 90}
        data: dict[str, Any] = {"turn": 1, "step": 1, "message": message, "usage": usage, "stream": []}
        return self.event("assistant/message", data, surfaceOp="append")

    def tool_result(self, text: str, call: str, *, surface: Any = "append", **members: Any) -> bytes:
        """The output of a tool."""
        message = {
            "source": {"kind": "tool", "callId": call},
            "content": [{"type": "text", "text": text}],
            "role": "tool",
            "toolCallId": call,
            "id": self._id(),
        }
        return self.event("tool/result", {"turn": 1, "step": 1, "message": message}, **members, surfaceOp=surface)

    def _id(self) -> str:
        return f"00000000-0000-4000-8000-{self._seq:012d}"


def write_log(
    home: Path,
    session_id: str,
    lines: Iterable[bytes],
    *,
    cwd: str = "/home/sam/projects/almanac",
    created_at: int = START,
    compressed: bool = False,
) -> int:
    """Write one log of format 4. Returns its size without compression."""
    folder = home / "sessions" / project_key(cwd) / session_segment(session_id)
    folder.mkdir(parents=True)
    header = {"type": "session", "version": 4, "id": session_id, "createdAt": created_at, "cwd": cwd}
    first = msgspec.json.encode({**header, "isSeeded": False, "delegationDepth": 0}) + b"\n"
    size = 0
    with open(folder / f"session.v4.jsonl{'.zstd' if compressed else ''}", "wb") as file:
        for batch in _batches(first, lines):
            size += len(batch)
            file.write(_frame(batch) if compressed else batch)
    return size


def write_home(home: Path, sessions: int, *, compressed: bool) -> None:
    """A home of many small sessions in twenty projects."""
    for number in range(sessions):
        write_log(
            home,
            f"session-{uuid.UUID(int=random.Random(number).getrandbits(128), version=4)}",
            small_lines(number),
            cwd=f"/home/sam/projects/project-{number % PROJECTS}",
            created_at=START + number * 60_000,
            compressed=compressed,
        )


def small_lines(number: int) -> Iterator[bytes]:
    """A session of about 20 kB with a title: three turns, each with a tool's output."""
    log, texts = LogLines(), random.Random(number)
    for turn in range(3):
        yield from (log.turn_start(), log.step(), log.user(prose(texts, 150)))
        if turn == 0:
            yield log.title(f"{prose(texts, 24)} {number}")
        yield log.assistant(prose(texts, 200), "call")
        yield log.tool_result(output(texts, 4600), "call")
        yield from (log.assistant(prose(texts, 500)), log.step(end=True), log.turn_end())


def chat_lines(messages: int) -> Iterator[bytes]:
    """A session of prompts and answers only, each of about 180 bytes of text."""
    log, texts = LogLines(), random.Random(messages)
    for _ in range(messages // 2):
        yield from (log.turn_start(), log.step(), log.user(prose(texts, 180)))
        yield from (log.assistant(prose(texts, 180)), log.step(end=True), log.turn_end())


def tool_output_lines(size: int) -> Iterator[bytes]:
    """A session of `size` bytes, nearly all of it outputs of tools from 1 to 16 kB."""
    log, texts = LogLines(), random.Random(size)
    outputs = [output(texts, texts.randint(1_000, 16_000)) for _ in range(200)]
    left = size
    while left > 0:
        lines = [log.turn_start(), log.step(), log.user(prose(texts, 150))]
        lines += [log.title("Far too many build logs")] if left == size else []
        for _ in range(20):
            call = f"call_{log.last_seq}"
            lines += [log.assistant("", call), log.tool_result(texts.choice(outputs), call)]
        lines += [log.assistant(prose(texts, 400)), log.step(end=True), log.turn_end()]
        left -= sum(map(len, lines))
        yield from lines


def prose(texts: random.Random, length: int) -> str:
    """Words, about `length` bytes of them."""
    return " ".join(texts.choices(_WORDS, k=length // 7 + 1))[:length]


def output(texts: random.Random, length: int) -> str:
    """Lines with numbers, paths and quotes, as tools print them."""
    lines: list[str] = []
    while length > 0:
        words = prose(texts, texts.randint(20, 70))
        lines.append(f'{texts.randint(0, 10**6):>7}  "{words}" 0x{texts.getrandbits(32):08x}')
        length -= len(lines[-1])
    return "\n".join(lines)


def _batches(first: bytes, lines: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    rest = iter(lines)
    while batch := b"".join(islice(rest, LINES_A_FRAME)):
        yield batch


def _frame(content: bytes) -> bytes:
    return zstd.compress(content, options={zstd.CompressionParameter.checksum_flag: 1})
