"""Cold reads of long sessions of other agents, against the least that any reader of the same bytes has to do."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.agent_homes import AGENT_HOMES, TURNS
from benchmarks.figures import Measure
from sessionref.server.stores.registry import open_stores

__all__ = ("measure_agents",)

SIZE: Final = 50_000_000


class Line(msgspec.Struct):
    """What the bare loop decodes of a line; the rest is skipped."""

    type: str


def measure_agents(folder: Path, quick: bool) -> Measure:
    """Capture one session of every kind by turns with its yardsticks; medians."""
    rows: list[list[str]] = []
    for kind, write in AGENT_HOMES.items():
        home = folder / kind
        native_id, path = write(home, SIZE // 10 if quick else SIZE)
        rows.append(_row(kind, f"{kind}:{native_id}", home, path, 3 if quick else 7))
    notes = [
        "decodes: typed msgspec decodes of the same lines in memory; loop: the same with reading and splitting",
        "for a database both are a plain SELECT of every part of the session",
    ]
    return Measure(
        "cold reads of long sessions of other agents",
        ["STORE", "SIZE", "READ", "MB/S", "TIMES DECODES", "TIMES LOOP"],
        rows,
        notes,
    )


def _row(kind: str, session_id: str, home: Path, path: Path, times: int) -> list[str]:
    taken: list[float] = []
    decodes: list[float] = []
    loops: list[float] = []
    for _ in range(times):
        (store,) = open_stores([f"{kind}:{home}"], {})
        began = time.perf_counter()
        capture = store.capture(session_id, _no_check)
        taken.append(time.perf_counter() - began)
        if len(capture.items) != 2 * TURNS:
            raise RuntimeError(f"{len(capture.items)} messages of {kind}, not {2 * TURNS}")
        if path.suffix == ".db":
            loops.append(_seconds(lambda: _select(path)))
            decodes.append(loops[-1])
        else:
            began = time.perf_counter()
            decodes.append(_decode_seconds(path))
            loops.append(time.perf_counter() - began)
    read, decode, loop = map(statistics.median, (taken, decodes, loops))
    size = path.stat().st_size / 1e6
    return [
        kind,
        f"{size:.0f} MB",
        f"{read * 1e3:.0f} ms",
        f"{size / read:.0f}",
        f"{read / decode:.2f}",
        f"{read / loop:.2f}",
    ]


def _decode_seconds(path: Path) -> float:
    lines = path.read_bytes().split(b"\n")[:-1]
    decode = msgspec.json.Decoder(Line).decode
    began = time.perf_counter()
    for line in lines:
        decode(line)
    return time.perf_counter() - began


def _select(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        if not sum(len(data) for (data,) in database.execute("SELECT data FROM part WHERE session_id = 'ses_long'")):
            raise RuntimeError("there is nothing to read")


def _seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def _no_check() -> None:
    """Nobody cancels."""
