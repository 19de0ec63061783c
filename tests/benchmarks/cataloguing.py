"""The measures of the catalogue: candidates at keystroke speed, restarts, titles, and prepares of logs that grow."""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from benchmarks.figures import Measure, megabytes, percentile, seconds_text
from benchmarks.homes import LogLines, output, prose, write_log
from benchmarks.peer import CANDIDATES, PREPARE, ServerProcess, environment
from sessionref.client import spawn
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.sources import SessionSources
from sessionref.server.stores.dsh import DshStore

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ("measure_cataloguing",)

QUERY: Final = "harbour ferr"
"""Twelve keystrokes; half of the words of the titles, so that the answers are neither empty nor all alike."""

PROJECTS: Final = 20
PIECE_BYTES: Final = 64 * 1024
"""A step of the yardsticks: in larger ones fresh memory and a cold cache can take as long as all the rest."""

CATALOGUE_BYTES: Final = 268_435_456
TALK_TURNS: Final = 100

Row = list[str]


class Line(msgspec.Struct):
    """What the bare loop decodes of a line; the rest is skipped."""

    type: str
    seq: int = 0


def measure_cataloguing(folder: Path, quick: bool) -> Measure:
    """Every row of the table of issue 4, each against its yardstick in the same run."""
    rows: list[Row] = []
    rows += _typing(folder / "many", 500 if quick else 10_000, 3 if quick else 20)
    rows += _restarts(folder / "many", folder / "empty", 3 if quick else 7)
    for compressed in (False, True):
        rows += _titles(folder / f"titles-{compressed}", 40 if quick else 1000, compressed, 2 if quick else 3)
    rows += _warm_prepares(folder / "warm", 10_000_000 if quick else 100_000_000, 5 if quick else 15)
    for compressed in (False, True):
        size = 10_000_000 if quick else 100_000_000
        rows += _cold_prepares(folder / f"cold-{compressed}", size, compressed, 2 if quick else 5)
    if not quick:
        rows += _memory(folder / "memory", 1_000_000_000)
    for compressed in (False, True):
        rows += _appends(folder / f"appends-{compressed}", 50 if quick else 1000, compressed)
    notes = [
        "typing: over stdio through the Python client; yardstick: a substring filter over the same rows + initialize",
        "restart: from the start of the process to the first answer; yardstick: the same for an empty home",
        "titles: into a new catalogue; yardstick: read, decompress, count the line feeds",
        "warm prepare: over stdio, a preview, nothing new in the log; yardstick: 1 MB with the same conversation",
        "cold prepare: the first of a new server with a new catalogue; yardsticks: typed decodes (type and seq) of the",
        "same lines, and the loop around them that reads, decompresses and splits",
    ]
    return Measure("catalogue (issue 4)", ["WHAT", "FIGURE", "YARDSTICK", "RATIO", "REACH"], rows, notes)


def _typing(home: Path, sessions: int, times: int) -> list[Row]:
    texts = _write_many(home, sessions)
    taken, yardsticks = anyio.run(_type, home, texts, times)
    rows: list[Row] = []
    for percent, reach in ((50, "-"), (95, "3.0, and 20 ms")):
        figure, yardstick = percentile(taken, percent), percentile(yardsticks, percent)
        what = f"typing, {sessions:,} sessions, p{percent}"
        rows.append([what, seconds_text(figure), seconds_text(yardstick), f"{figure / yardstick:.2f}", reach])
    return rows


def _write_many(home: Path, sessions: int) -> list[tuple[str, str, str, str]]:
    """Short sessions with titles. Returns what a query is looked for in."""
    found: list[tuple[str, str, str, str]] = []
    for number in range(sessions):
        words, log = random.Random(number), LogLines()
        session_id, cwd = f"session-{number:08x}", f"/home/sam/projects/project-{number % PROJECTS}"
        label = f"{'Harbour ferry' if number % 2 else 'Pier'} {prose(words, 40)} {number}"
        lines = [log.turn_start(), log.user(prose(words, 100)), log.title(label), log.turn_end()]
        write_log(home, session_id, lines, cwd=cwd, created_at=1_790_000_000_000 + number)
        found.append((session_id, cwd, label.lower(), label.lower()))
    return found


async def _type(home: Path, texts: list[tuple[str, str, str, str]], times: int) -> tuple[list[float], list[float]]:
    """Seconds of every keystroke, and of its yardstick right behind it."""
    taken: list[float] = []
    yardsticks: list[float] = []
    command = [sys.executable, "-m", "sessionref.server", "serve", "--stdio", "--store", f"dsh:{home}"]
    async with spawn(command, env=environment(home / "catalogue" / "c.sqlite3")) as client:
        while any(row.title_pending for row in await client.candidates("new", limit=10_000)):
            pass
        for _ in range(times):
            for length in range(1, len(QUERY) + 1):
                query = QUERY[:length]
                began = time.perf_counter()
                await client.candidates("new", query, cwd="/home/sam/projects/project-7")
                taken.append(time.perf_counter() - began)
                began = time.perf_counter()
                await client.initialize()
                found = [row for row in texts if any(query in text for text in row)]
                yardsticks.append(time.perf_counter() - began)
                if not found:
                    raise RuntimeError("the query finds nothing")
    return taken, yardsticks


def _restarts(home: Path, empty: Path, times: int) -> list[Row]:
    (empty / "sessions").mkdir(parents=True)
    # Logs that were written just before they were read first are read again: times so fresh prove nothing.
    with ServerProcess(home, catalogue=home / "catalogue" / "c.sqlite3") as server:
        while any(row.get("titlePending") for row in server.call(CANDIDATES, {"agentId": "new", "limit": 10_000})[0]):
            pass
    taken: list[float] = []
    yardsticks: list[float] = []
    for _ in range(times):
        for place, seconds in ((home, taken), (empty, yardsticks)):
            began = time.perf_counter()
            with ServerProcess(place, catalogue=home / "catalogue" / "c.sqlite3") as server:
                server.call("initialize", {})
                server.call(CANDIDATES, {"agentId": "new"})
                seconds.append(time.perf_counter() - began)
    figure, yardstick = statistics.median(taken), statistics.median(yardsticks)
    row = ["first answer after a restart", seconds_text(figure), seconds_text(yardstick)]
    return [[*row, f"{seconds_text(figure - yardstick)} more", "300 ms more"]]


def _titles(home: Path, sessions: int, compressed: bool, times: int) -> list[Row]:
    bodies = [list(_talk_lines(1_000_000, 10, seed)) for seed in range(10)]
    for number in range(sessions):
        write_log(home, f"session-{number}", bodies[number % len(bodies)], compressed=compressed)
    logs = sorted(home.glob("sessions/*/*/*"))
    taken: list[float] = []
    yardsticks: list[float] = []
    for number in range(times):
        yardsticks.append(_seconds(partial(_scan_all, logs)))
        database = CatalogueDatabase(home / f"catalogue-{number}" / "c.sqlite3", max_bytes=CATALOGUE_BYTES)
        index = SessionIndex(DshStore(home), database)
        taken.append(_seconds(partial(_read_titles, index)))
        database.close()
        if [row for row in index.rows() if row.title_pending or row.header.title is None]:
            raise RuntimeError("not all titles were read")
    return [_row(f"all titles, {sessions:,} x 1 MB {_kind(compressed)}", taken, yardsticks, "1.5")]


def _read_titles(index: SessionIndex) -> None:
    index.refresh(_no_check)
    while index.unread:
        index.read_titles(_no_check, time.monotonic() + 1)


def _scan_all(logs: Iterable[Path]) -> None:
    if not sum(piece.count(b"\n") for log in logs for piece in _pieces(log)):
        raise RuntimeError("there is nothing to read")


def _warm_prepares(home: Path, size: int, times: int) -> list[Row]:
    for name, length in (("large", size), ("small", 1_000_000)):
        write_log(home, f"session-{name}", _talk_lines(length, TALK_TURNS, 0))
    taken: dict[str, list[float]] = {"large": [], "small": []}
    with ServerProcess(home, catalogue=home / "catalogue" / "c.sqlite3") as server:
        for name in taken:
            server.call(PREPARE, _params(name))
        for _ in range(times):
            for name, seconds in taken.items():
                seconds.append(server.call(PREPARE, _params(name))[1])
    return [_row(f"warm prepare, {megabytes(size)}", taken["large"], taken["small"], "1.5, and 20 ms")]


def _cold_prepares(home: Path, size: int, compressed: bool, times: int) -> list[Row]:
    write_log(home, "session-large", _talk_lines(size, TALK_TURNS, 0), compressed=compressed)
    (log,) = home.glob("sessions/*/*/*")
    taken: list[float] = []
    decodes: list[float] = []
    loops: list[float] = []
    for number in range(times):
        with ServerProcess(home, catalogue=home / f"catalogue-{number}" / "c.sqlite3") as server:
            server.call("initialize", {})
            taken.append(server.call(PREPARE, _params("large"))[1])
        began = time.perf_counter()
        decodes.append(_decode_seconds(log))
        loops.append(time.perf_counter() - began)
    what = f"cold prepare, {megabytes(size)} {_kind(compressed)}, against "
    return [_row(what + "decodes", taken, decodes, "1.5"), _row(what + "the whole loop", taken, loops, "-")]


def _decode_seconds(log: Path) -> float:
    """The typed decodes alone, of a loop that also reads, decompresses and splits."""
    decode, rest, seconds = msgspec.json.Decoder(Line).decode, b"", 0.0
    for piece in _pieces(log):
        *lines, rest = (rest + piece).split(b"\n")
        began = time.perf_counter()
        for line in lines:
            decode(line)
        seconds += time.perf_counter() - began
    return seconds


def _memory(home: Path, size: int) -> list[Row]:
    """The peak of a server that prepares a log whose lines have up to 1 MB, and 5 MB of it conversation."""
    write_log(home, "session-large", _wide_lines(size, 5_000_000))
    with ServerProcess(home, catalogue=home / "catalogue" / "c.sqlite3") as server:
        server.call("initialize", {})
        before = _peak(server)
        server.call(PREPARE, _params("large"))
        after = _peak(server)
    return [["peak memory, 1 GB log", megabytes(after), f"{megabytes(before)} before", "-", "200 MB"]]


def _peak(server: ServerProcess) -> int:
    process = server._process  # pyright: ignore[reportPrivateUsage]
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def _appends(home: Path, times: int, compressed: bool) -> list[Row]:
    """The most that a prepare, and a look for the title, read of a growing log beyond its new bytes."""
    lines = _talk_lines(8_000_000, TALK_TURNS, 0)
    write_log(home, "session-grows", lines, compressed=compressed)
    (log,) = home.glob("sessions/*/*/*")
    store, count = DshStore(home), _last_seq(log) + 1
    database = CatalogueDatabase(home / "catalogue" / "c.sqlite3", max_bytes=CATALOGUE_BYTES)
    sources, index = SessionSources([store], database), SessionIndex(store, database)
    sources.capture("session-grows", _no_check)
    _read_titles(index)
    keys = [row.key for row in index.rows()]
    beyond: dict[str, list[int]] = {"prepare": [], "title": []}
    for number in range(times):
        line = msgspec.json.encode({"type": "turn/start", "seq": count + number, "time": 1, "data": {"turn": 1}})
        new = zstd.compress(line + b"\n") if compressed else line + b"\n"
        with log.open("ab") as file:
            file.write(new)
        beyond["prepare"].append(_bytes_read(lambda: sources.capture("session-grows", _no_check)) - len(new))
        index.look_again(keys, _no_check)
        beyond["title"].append(_bytes_read(partial(_read_titles, index)) - len(new))
    database.close()
    what = f"{times:,} appends, {_kind(compressed)}, most bytes beyond the new: "
    return [[what + name, f"{max(found):,}", "4,096", "-", "4,096"] for name, found in beyond.items()]


def _last_seq(log: Path) -> int:
    last = b"".join(_pieces(log)).splitlines()[-1]
    return msgspec.json.decode(last, type=Line).seq


def _bytes_read(function: Callable[[], object]) -> int:
    read, total = os.read, 0

    def counting(descriptor: int, length: int, /) -> bytes:
        nonlocal total
        data = read(descriptor, length)
        total += len(data)
        return data

    os.read = counting
    try:
        function()
    finally:
        os.read = read
    return total


def _talk_lines(size: int, turns: int, seed: int) -> Iterator[bytes]:
    """A session of `size` bytes whose conversation depends on the turns and the seed alone."""
    log, words, others = LogLines(), random.Random(seed), random.Random(seed + 1)
    outputs = [output(others, length) for length in (1_000, 4_000, 16_000)]
    for turn in range(turns):
        yield from (log.turn_start(), log.step(), log.user(prose(words, 150)))
        if turn == 0:
            yield log.title(f"Far too many build logs {seed}")
        answer, left = prose(words, 400), size // turns - 1_500
        while left > 0:
            length = min(left, 16_000)
            text = next((text for text in outputs if len(text) >= length), outputs[-1])[:length]
            call = f"call_{log.last_seq}"
            lines = [log.event("tool/call", {"id": call}), log.tool_result(text, call)]
            left -= sum(map(len, lines))
            yield from lines
        yield from (log.assistant(answer), log.step(end=True), log.turn_end())


def _wide_lines(size: int, conversation: int) -> Iterator[bytes]:
    log, words = LogLines(), random.Random(size)
    wide = output(words, 900_000)
    turns = 1_000
    for _ in range(turns):
        yield from (log.turn_start(), log.step(), log.user(prose(words, conversation // turns // 2)))
        left = size // turns - conversation // turns
        while left > 0:
            line = log.tool_result(wide[: words.choice((1_000, 30_000, 900_000))], "call")
            left -= len(line)
            yield line
        yield log.assistant(prose(words, conversation // turns // 2))
        yield from (log.step(end=True), log.turn_end())


def _pieces(log: Path) -> Iterator[bytes]:
    opened = zstd.open(log, "rb") if log.suffix == ".zstd" else open(log, "rb", buffering=0)  # noqa: SIM115
    with opened as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _params(name: str) -> dict[str, Any]:
    references = [{"sessionId": f"session-{name}"}]
    return {"agentId": "new", "content": "go on", "references": references, "preview": True}


def _row(what: str, taken: list[float], yardsticks: list[float], reach: str) -> Row:
    """Medians; the ratio is that of the medians, since both were measured by turns."""
    figure, yardstick = statistics.median(taken), statistics.median(yardsticks)
    return [what, seconds_text(figure), seconds_text(yardstick), f"{figure / yardstick:.2f}", reach]


def _seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def _kind(compressed: bool) -> str:
    return "zstd" if compressed else "plain"


def _no_check() -> None:
    """Nobody cancels."""
