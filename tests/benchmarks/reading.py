"""Reading one large log, nearly all of it tool output: speed in bytes after decompression, and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import Measure, megabytes
from benchmarks.homes import tool_output_lines, write_log

__all__ = ("measure_reading",)

WAYS: Final = {
    "scan": "bare read and split",
    "decode": "typed decodes alone",
    "loop": "read, split and decode",
    "capture": "capture",
    "titles": "list (title scan)",
}
"""By turns, so that a busy moment of the machine does not hit one of them alone."""


def measure_reading(folder: Path, quick: bool) -> Measure:
    """Every way over every log, each run in a process of its own."""
    rows: list[list[str]] = []
    for compressed in (False, True):
        for size in (10_000_000,) if quick else (10_000_000, 100_000_000):
            home = folder / f"{size}-{compressed}"
            length = write_log(home, "session-large", tool_output_lines(size), compressed=compressed)
            (log,) = home.glob("sessions/*/*/*")
            rows += _rows(home, log, length, compressed, rounds=2 if quick else 4)
    notes = [
        "best of all runs; MB of decompressed bytes; memory: peak of the first run less what the imports had taken",
        "typed decodes: msgspec, a Struct of type and seq, over the same lines; LOOP reads and splits them too",
    ]
    return Measure(
        "one large log", ["LOG", "ON DISK", "WAY", "TIME", "SPEED", "/ DECODES", "/ LOOP", "MEMORY"], rows, notes
    )


def _rows(home: Path, log: Path, length: int, compressed: bool, rounds: int) -> list[list[str]]:
    seconds: dict[str, list[float]] = defaultdict(list)
    grown: dict[str, int] = {}
    for _ in range(rounds):
        for way in WAYS:
            result = _run(way, home, log)
            seconds[way] += result["seconds"]
            grown[way] = max(grown.get(way, 0), result["grown"])
    best = {way: min(values) for way, values in seconds.items()}
    return [
        [
            f"{megabytes(length)} {'zstd' if compressed else 'plain'}",
            megabytes(log.stat().st_size),
            label,
            f"{best[way] * 1000:.0f} ms",
            f"{length / best[way] / 1e6:.0f} MB/s",
            f"{best[way] / best['decode']:.2f}",
            f"{best[way] / best['loop']:.2f}",
            "-" if way == "decode" else megabytes(grown[way]),
        ]
        for way, label in WAYS.items()
    ]


def _run(way: str, home: Path, log: Path) -> dict[str, Any]:
    child = Path(__file__).with_name("reading_child.py")
    ended = subprocess.run(
        [sys.executable, child, way, home, log, "3"], stdout=subprocess.PIPE, check=True, timeout=300
    )
    result: dict[str, Any] = json.loads(ended.stdout)
    return result
