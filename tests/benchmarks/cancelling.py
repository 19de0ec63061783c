"""Cancelling while a large log is read, over stdio; and how late the event loop is meanwhile, in this process."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any, Final

import anyio

from benchmarks.figures import Measure, percentile
from benchmarks.homes import tool_output_lines, write_log
from benchmarks.peer import PREPARE, ServerProcess
from sessionref.protocol.methods import PrepareParams
from sessionref.server.catalogue.discovery import Discovery
from sessionref.server.resolver import Resolver
from sessionref.server.settings import Settings
from sessionref.server.sources import SessionSources
from sessionref.server.stores.dsh import DshStore
from sessionref.server.threads import WorkerThreads

__all__ = ("measure_cancelling",)

CANCELLED: Final = -32800
TICK_SECONDS: Final = 0.001
IDS: Final = ("session-1", "session-2", "session-3")


def measure_cancelling(folder: Path, quick: bool) -> Measure:
    """Cancels at moments all over the read, then ticks during reads of one log and of three at once."""
    rows: list[list[str]] = []
    size = 10_000_000 if quick else 100_000_000
    for compressed in (False, True):
        home = folder / str(compressed)
        for session_id in IDS:
            write_log(home, session_id, tool_output_lines(size), compressed=compressed)
        kind = "zstd" if compressed else "plain"
        for count in (1, len(IDS)):
            logs = f"{count} x {size // 10**6} MB {kind}"
            answers, done = _cancel_answers(home, IDS[:count], 10 if quick else 50)
            late = f"{done} came too late"
            rows.append([f"cancel to answer, {logs}", str(len(answers)), *_milliseconds(answers), late])
            lags = anyio.run(_lags, home, IDS[:count], 2 if quick else 5)
            rows.append([f"event loop lag, {logs}", str(len(lags)), *_milliseconds(lags), ""])
    lags = anyio.run(_idle_lags, 0.5)
    rows.append(["event loop lag, nothing else to do", str(len(lags)), *_milliseconds(lags), ""])
    notes = [f"lag: how much later than asked a sleep of {TICK_SECONDS * 1000:.0f} ms ends"]
    headings = ["MOMENT", "SAMPLES", "P50 ms", "P95 ms", "P99 ms", "MAX ms", ""]
    return Measure("cancel and event loop", headings, rows, notes)


def _params(session_ids: tuple[str, ...]) -> dict[str, Any]:
    references = [{"sessionId": session_id} for session_id in session_ids]
    return {"agentId": "new", "content": "go on", "references": references, "preview": True}


def _cancel_answers(home: Path, session_ids: tuple[str, ...], count: int) -> tuple[list[float], int]:
    """Seconds from cancel to answer, and how many answers had come before their cancel."""
    moments, taken, too_late = random.Random(1), list[float](), 0
    with ServerProcess(home) as server:
        whole = min(server.call(PREPARE, _params(session_ids))[1] for _ in range(3))
        while len(taken) < count:
            request = server.send(PREPARE, _params(session_ids))
            time.sleep(moments.uniform(0.1, 0.8) * whole)
            began = time.perf_counter()
            server.cancel(request)
            answer = server.receive()
            if answer.get("error", {}).get("code") == CANCELLED:
                taken.append(time.perf_counter() - began)
            else:
                too_late += 1
    return taken, too_late


async def _lags(home: Path, session_ids: tuple[str, ...], repeats: int) -> list[float]:
    stores, threads = [DshStore(home)], WorkerThreads()
    discovery = Discovery(stores, None, threads=threads, wait_seconds=0)
    sources = SessionSources(stores, None)
    resolver = Resolver(sources, Settings(), discovery=discovery, threads=threads, spills=None)
    params = PrepareParams("new", "go on", references=_params(session_ids)["references"])
    lags: list[float] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tick, lags)
        for _ in range(repeats):
            await resolver.prepare(params)
        tasks.cancel_scope.cancel()
    return lags


async def _idle_lags(seconds: float) -> list[float]:
    lags: list[float] = []
    with anyio.move_on_after(seconds):
        await _tick(lags)
    return lags


async def _tick(lags: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await anyio.sleep(TICK_SECONDS)
        lags.append(time.perf_counter() - began - TICK_SECONDS)


def _milliseconds(values: list[float]) -> list[str]:
    return [f"{1000 * value:.1f}" for value in (*(percentile(values, share) for share in (50, 95, 99)), max(values))]
