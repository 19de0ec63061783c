"""Candidates over many small sessions, as a host sees them: over stdio, with and without a query."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import Measure, seconds_text
from benchmarks.homes import write_home
from benchmarks.peer import CANDIDATES, ServerProcess

__all__ = ("measure_listing",)

PLUGIN_SECONDS: Final = {(1000, ""): 2.3, (1000, "harbour"): 19.0}
"""The DSH plugin's own figures."""


def measure_listing(folder: Path, quick: bool) -> Measure:
    """The first call to a server, which knows nothing yet, and the median of several after it."""
    rows: list[list[str]] = []
    for compressed in (False, True):
        for sessions in (100,) if quick else (100, 1000):
            home = folder / f"{sessions}-{compressed}"
            write_home(home, sessions, compressed=compressed)
            for catalogue in (None, home / "catalogue.sqlite3"):
                repeats = 3 if quick else 9
                rows += [_row(home, sessions, compressed, catalogue, query, repeats) for query in ("", "harbour")]
    notes = [
        "logs of about 20 kB in 20 projects, ROWS of 50 at most",
        "FIRST: a server's first such call, after initialize; LATER: the median of those after it",
        "with a catalogue: the first of its two servers fills it, the second starts with it",
    ]
    headings = ["SESSIONS", "LOGS", "CATALOGUE", "QUERY", "ROWS", "FIRST", "LATER", "PLUGIN", "/ FIRST", "/ LATER"]
    return Measure("candidates over stdio", headings, rows, notes)


def _row(home: Path, sessions: int, compressed: bool, catalogue: Path | None, query: str, repeats: int) -> list[str]:
    params: dict[str, Any] = {"agentId": "new", "cwd": "/home/sam/projects/project-7", "query": query}
    with ServerProcess(home, catalogue=catalogue) as server:
        server.call("initialize", {})
        found, first = server.call(CANDIDATES, params)
        median = statistics.median(server.call(CANDIDATES, params)[1] for _ in range(repeats))
    plugin = PLUGIN_SECONDS.get((sessions, query))
    return [
        f"{sessions:,}",
        "zstd" if compressed else "plain",
        "off" if catalogue is None else "on",
        query or "none",
        str(len(found)),
        seconds_text(first),
        seconds_text(median),
        seconds_text(plugin) if plugin else "-",
        *(f"{plugin / taken:.0f}" if plugin else "-" for taken in (first, median)),
    ]
