"""Typing over thousands of sessions of every agent: the first answer without a catalogue, with one, and keystrokes."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio

from benchmarks.figures import Measure, percentile, seconds_text
from sessionref.client import spawn
from store_fixtures import KINDS, open_fixture

__all__ = ("measure_many_sessions",)

QUERY: Final = "harbour ferr"
PROJECTS: Final = 20
OLD_SECONDS: Final = 100
"""Older than anything that is looked at again because it may have changed a moment ago."""


def measure_many_sessions(folder: Path, quick: bool) -> Measure:
    """One home of every kind, each served twice: the second server finds the catalogue of the first."""
    sessions = 500 if quick else 10_000
    rows = [row for kind in KINDS for row in _rows(kind, folder / kind, sessions)]
    return Measure(
        f"{sessions:,} sessions of every agent, over stdio",
        ["STORE", "CATALOGUE", "FIRST ANSWER", "ALL TITLES", "KEYSTROKE P50", "P95", "PREPARE"],
        rows,
        ["first answer: without the start of the process; prepare: one small session, a preview"],
    )


def _rows(kind: str, folder: Path, sessions: int) -> list[list[str]]:
    home = open_fixture(kind, folder / "home")
    home.create()
    for number in range(sessions):
        home.write(
            home.name(number),
            [("user", f"the harbour ferry of {number}"), ("assistant", "It is late.")],
            title=f"Harbour ferry {number}",
            cwd=f"/srv/{number % PROJECTS}",
            created_at=1_790_000_000_000 + number,
        )
    old = time.time() - OLD_SECONDS
    for path in folder.rglob("*"):
        os.utime(path, (old, old))
    command = [sys.executable, "-m", "sessionref.server", "serve", "--stdio", "--store", f"{kind}:{home.home}"]
    command += ["--catalog", str(folder / "c.sqlite3"), "--spill-directory", "off"]
    states = ("new", "warm")
    return [[kind, state, *map(seconds_text, anyio.run(_serve, command, sessions))] for state in states]


async def _serve(command: Sequence[str], sessions: int) -> tuple[float, ...]:
    async with spawn(command) as client:
        began = time.perf_counter()
        await client.candidates("me")
        first = time.perf_counter() - began
        rows = await client.candidates("me", limit=sessions)
        while any(row.title_pending is True for row in rows):
            await anyio.sleep(0.2)
            rows = await client.candidates("me", limit=sessions)
        titles = time.perf_counter() - began
        if len(rows) != sessions:
            raise RuntimeError(f"{len(rows)} sessions are listed, not {sessions}")
        # The folders are being watched only now, which is none of the keystrokes' business.
        await anyio.sleep(1)
        taken: list[float] = []
        for _ in range(10):
            for end in range(1, len(QUERY) + 1):
                began = time.perf_counter()
                await client.candidates("me", QUERY[:end])
                taken.append(time.perf_counter() - began)
        began = time.perf_counter()
        references = [{"sessionId": rows[sessions // 2].session_id}]
        await client.prepare("me", "go on", references=references, preview=True)
        prepared = time.perf_counter() - began
        return first, titles, statistics.median(taken), percentile(taken, 95), prepared
