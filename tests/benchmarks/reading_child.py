"""One way of reading one log, in a process of its own: prints its seconds and memory as JSON.

Run by `reading.py` as a script: what it imports before it starts to measure is part of what memory is compared with.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from sessionref.server.stores.dsh import DshStore

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ()

PIECE_BYTES = 1024 * 1024


class Line(msgspec.Struct):
    """What the bare loop decodes of a line; the rest is skipped."""

    type: str
    seq: int = 0


def peak_bytes() -> int:
    """The most memory that this process has had.

    Not from `getrusage` where there is better: after a spawn its figure begins with the memory of the parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def blocks(path: Path) -> Iterator[list[bytes]]:
    """The lines of a log, block by block, with nothing checked."""
    opened = zstd.open(path, "rb") if path.suffix == ".zstd" else open(path, "rb", buffering=0)  # noqa: SIM115
    with opened as file:
        rest = b""
        while piece := file.read(PIECE_BYTES):
            *lines, rest = (rest + piece).split(b"\n")
            yield lines


def scan(home: Path, log: Path) -> float:
    """Read, decompress, split; the same as the whole."""
    began = time.perf_counter()
    for _ in blocks(log):
        pass
    return time.perf_counter() - began


def decode(home: Path, log: Path) -> float:
    """Seconds of the typed decodes alone, over lines that are in memory already."""
    decode_line = msgspec.json.Decoder(Line).decode
    taken = 0.0
    for lines in blocks(log):
        began = time.perf_counter()
        for line in lines:
            decode_line(line)
        taken += time.perf_counter() - began
    return taken


def loop(home: Path, log: Path) -> float:
    """Read, decompress, split, and the typed decodes; the same as the whole."""
    decode_line = msgspec.json.Decoder(Line).decode
    began = time.perf_counter()
    for lines in blocks(log):
        for line in lines:
            decode_line(line)
    return time.perf_counter() - began


def capture(home: Path, log: Path) -> float:
    """The store's capture of the session."""
    began = time.perf_counter()
    found = DshStore(home).capture(log.parent.name, _no_check)
    taken = time.perf_counter() - began
    if found.diagnostics or not found.items:
        raise RuntimeError("the log was not read as a whole")
    return taken


def titles(home: Path, log: Path) -> float:
    """The store's list, whose only session this is."""
    began = time.perf_counter()
    (row,) = DshStore(home).list_sessions(_no_check).sessions
    taken = time.perf_counter() - began
    if row.title is None:
        raise RuntimeError("the title was not found")
    return taken


WAYS: dict[str, Callable[[Path, Path], float]] = {
    "scan": scan,
    "decode": decode,
    "loop": loop,
    "capture": capture,
    "titles": titles,
}


def _no_check() -> None:
    """Nobody cancels."""


if __name__ == "__main__":
    way, home, log, repeats = WAYS[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    before = peak_bytes()
    seconds = [way(home, log)]
    grown = peak_bytes() - before
    seconds += [way(home, log) for _ in range(repeats - 1)]
    print(json.dumps({"seconds": seconds, "grown": grown}))
