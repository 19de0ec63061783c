"""`python tests/benchmarks/load.py [--seconds N]`: a bounded load over four transports; exits with 1 on any fault.

Fifty connections to one service: mixed calls, random cancels, half-closes and broken connections, a store that is slow
and fails at random. Afterwards every request of a connection that stood must have exactly one answer, nothing may be in
flight, no spill may lie around that nobody was told of, and descriptors and threads must be back at the start.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import logging
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from sessionref.protocol.errors import ReadFailedReason, read_failed
from sessionref.protocol.jsontext import as_array
from sessionref.server.service import Service
from transport_doubles import (
    PATIENCE,
    Closed,
    Kind,
    Peer,
    SteeredSettings,
    SteeredStore,
    World,
    cancel,
    candidates,
    prepare,
)

__all__ = ("CONNECTIONS", "LoadReport", "run_load")

TRANSPORTS: Final[tuple[Kind, ...]] = ("unix", "tcp", "websocket", "http")
CONNECTIONS: Final = 50
WINDOW: Final = 24
"""Requests that one connection has in flight at most: more than run at once, so that some are queued."""

SESSIONS: Final = ("small", "wide", "truncated", "truncated", "corrupt", "crashing", "nowhere")
SETTLING_SECONDS: Final = 10.0
SLOWEST_READ: Final = 0.02


class LoadReport(msgspec.Struct):
    """What happened, and everything that should not have."""

    requests: int = 0
    answers: int = 0
    failed: int = 0
    cancels: int = 0
    stood: int = 0
    broken: int = 0
    handed_over: int = 0
    """Spills of connections that broke off: their answers had been taken by the kernel."""
    descriptors: tuple[int, int] = (0, 0)
    threads: tuple[int, int] = (0, 0)
    problems: list[str] = []

    def lines(self) -> list[str]:
        """The report as text."""
        return [
            f"requests {self.requests}, answers read {self.answers} (errors {self.failed}), cancels {self.cancels}",
            f"connections that stood {self.stood}, that broke off {self.broken}",
            f"spills of connections that broke off, their answers taken by the kernel: {self.handed_over}",
            f"descriptors {self.descriptors[0]} -> {self.descriptors[1]}",
            f"threads {self.threads[0]} -> {self.threads[1]}",
            *(f"PROBLEM: {problem}" for problem in self.problems),
        ]


def run_load(folder: Path, seconds: float, *, connections: int = CONNECTIONS, seed: int = 1) -> LoadReport:
    """Run a load over a service in this process; `folder` takes its socket and its spills."""
    report = LoadReport()
    gc.collect()
    before = _descriptors(), threading.active_count()
    with _watched_logs(report):
        anyio.run(_run, folder, seconds, connections, random.Random(seed), report)
    # Idle worker threads end by themselves, soon after their loop.
    deadline = time.monotonic() + SETTLING_SECONDS
    while (_descriptors(), threading.active_count()) != before and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    report.descriptors = before[0], _descriptors()
    report.threads = before[1], threading.active_count()
    if report.descriptors[0] != report.descriptors[1]:
        report.problems.append("descriptors are not back at the start")
    if report.threads[0] != report.threads[1]:
        report.problems.append("threads are not back at the start")
    return report


@contextmanager
def _watched_logs(report: LoadReport) -> Generator[None]:
    """Keep the injected faults, each an incident of ours, out of sight; what the libraries log is a problem."""
    ours, incidents, faults = logging.getLogger("sessionref"), logging.NullHandler(), _Faults(report)
    libraries = [logging.getLogger(name) for name in ("asyncio", "uvicorn.error", "websockets.server")]
    propagated, ours.propagate = ours.propagate, False
    ours.addHandler(incidents)
    for logger in libraries:
        logger.addHandler(faults)
    try:
        yield
    finally:
        ours.propagate = propagated
        ours.removeHandler(incidents)
        for logger in libraries:
            logger.removeHandler(faults)


class _Faults(logging.Handler):
    """Makes a problem of every logged error."""

    def __init__(self, report: LoadReport) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        """Note it, with its exception's name."""
        kind = record.exc_info[0] if record.exc_info else None
        self._report.problems.append(f"{record.name}: {record.getMessage()[:100]} ({kind and kind.__name__})")


async def _run(folder: Path, seconds: float, connections: int, chance: random.Random, report: LoadReport) -> None:
    store = SteeredStore()
    store.faults = _faults(random.Random(chance.random()))
    settings = SteeredSettings(spill_directory=folder / "spills", drain_seconds=SETTLING_SECONDS)
    service = Service([store], settings, max_connections=100_000)
    worlds = [World(kind, service, store, folder / "spills") for kind in TRANSPORTS]
    deadline = anyio.current_time() + seconds
    with ExitStack() as resources:
        async with anyio.create_task_group() as serving:
            for world in worlds:
                await world.run(serving, resources)
            async with anyio.create_task_group() as drivers:
                for number in range(connections):
                    world = worlds[number % len(worlds)]
                    drivers.start_soon(_drive, world, number, deadline, random.Random(chance.random()), report)
            for world in worlds:
                await world.close_peers()
            with anyio.move_on_after(SETTLING_SECONDS):
                await worlds[0].idle()
            service.stop()
            await service.until_drained()
        for gauge in ("requests_in_flight", "busy_threads", "open_connections"):
            if worlds[0].gauge(gauge):
                report.problems.append(f"{gauge} is {worlds[0].gauge(gauge)} at the end")


def _faults(chance: random.Random) -> Callable[[str], None]:
    """Reads that are slow, and fail in every way that a disk or a bug can."""
    lock, never = threading.Lock(), threading.Event()

    def fault(session_id: str) -> None:
        with lock:
            drawn, seconds = chance.random(), chance.uniform(0, SLOWEST_READ)
        if drawn < 0.3:
            never.wait(seconds)
        elif drawn < 0.35:
            raise read_failed(ReadFailedReason.IO, session_id)
        elif drawn < 0.37:
            raise OSError(5, "a broken disk", "/a/private/path")
        elif drawn < 0.39:
            raise MemoryError
        elif drawn < 0.40:
            raise RecursionError

    return fault


class _Session:
    """One connection of a driver: what it has asked and been told."""

    def __init__(self, peer: Peer, agent: str, chance: random.Random) -> None:
        self.peer = peer
        self.agent = agent
        self.asked: list[str] = []
        self.answered: Counter[str | None] = Counter()
        self.locators: set[str] = set()
        self.failed = 0
        self.cancels = 0
        self._chance = chance
        self._changed = anyio.Event()
        self._reading = anyio.CancelScope()
        self._has_read = anyio.Event()

    @property
    def missing(self) -> int:
        return len(self.asked) - self.answered.total()

    async def read(self) -> None:
        """Take answers until the connection ends, or it is to be closed."""
        with self._reading, suppress(Closed):
            while True:
                message: Any = await self.peer.receive()
                for answer in as_array(message) or [message]:
                    self._take(answer)
                self._changed.set()
                self._changed = anyio.Event()
        self._has_read.set()

    async def stop_reading(self) -> None:
        """Let go of the connection, so that it can be closed."""
        self._reading.cancel()
        await self._has_read.wait()

    async def until_missing(self, count: int) -> None:
        """Wait until at most that many answers are missing."""
        while self.missing > count:
            await self._changed.wait()

    async def step(self) -> None:
        """Send something."""
        drawn = self._chance.random()
        if drawn < 0.15 and self.peer.abilities.cancel and self.asked:
            self.cancels += 1
            await self.peer.send(cancel(self._chance.choice(self.asked[-WINDOW:])))
        elif drawn < 0.25:
            await self.peer.send([self._request() for _ in range(self._chance.randint(1, 5))])
        else:
            await self.peer.send(self._request())

    def _request(self) -> dict[str, Any]:
        identity = f"{self.agent}-{len(self.asked)}"
        self.asked.append(identity)
        if self._chance.random() < 0.3:
            return candidates(identity)
        chosen = {self._chance.choice(SESSIONS) for _ in range(self._chance.randint(0, 2))}
        return prepare(identity, *(f"{name}#{identity}" for name in chosen), agentId=self.agent)

    def _take(self, answer: Any) -> None:
        self.answered[answer["id"]] += 1
        self.failed += "error" in answer
        text = json.dumps(answer)
        if '\\"saved\\"' in text:
            context = answer["result"]["additionalContext"]["content"][0]["text"]
            notices = context.rpartition("## Reference omissions")[2]
            for notice in json.loads(notices[notices.index("[{") : notices.rindex("]") + 1]):
                self.locators.add(notice["fullSnapshot"]["locator"])


async def _drive(world: World, number: int, deadline: float, chance: random.Random, report: LoadReport) -> None:
    """One connection after the other, until time is up."""
    life = 0
    while anyio.current_time() < deadline:
        session = _Session(await world.connect(), f"agent-{number}-{life}", chance)
        life += 1
        stood = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.read)
            try:
                stood = await _live(session, chance, deadline)
            except TimeoutError:
                report.problems.append(f"{world.kind}: {session.missing} answers of {session.agent} never came")
            except Closed:
                report.problems.append(f"{world.kind}: the server closed a connection that it should serve")
            await session.stop_reading()
        await session.peer.close()
        world.forget(session.peer)
        _check(session, stood, world, report)


async def _live(session: _Session, chance: random.Random, deadline: float) -> bool:
    """Use a connection for a while and end it in one of several ways; returns whether all must be answered."""
    for _ in range(chance.randint(1, 80)):
        if anyio.current_time() > deadline:
            break
        await session.step()
        with anyio.fail_after(PATIENCE):
            await session.until_missing(WINDOW)
        await anyio.lowlevel.checkpoint()
    ending = chance.random()
    if ending < 0.4:
        await session.stop_reading()
        await session.peer.reset()
        return False
    if ending < 0.6 and session.peer.abilities.half_close:
        await session.peer.close_writing()
    with anyio.fail_after(PATIENCE):
        await session.until_missing(0)
    return True


def _check(session: _Session, stood: bool, world: World, report: LoadReport) -> None:
    report.requests += len(session.asked)
    report.answers += session.answered.total()
    report.failed += session.failed
    report.cancels += session.cancels
    report.stood += stood
    report.broken += not stood
    if stood and session.answered != Counter(session.asked):
        report.problems.append(f"{world.kind}: not exactly one answer a request of {session.agent}")
    elif set(session.answered) - set(session.asked) or max(session.answered.values(), default=1) > 1:
        report.problems.append(f"{world.kind}: answers that nobody asked for to {session.agent}")
    owner = hashlib.sha256(session.agent.encode()).hexdigest()[:12]
    on_disk = {str(path) for path in (world.spills / f"session-{owner}").glob("*")}
    if session.locators - on_disk:
        report.problems.append(f"{world.kind}: spills that {session.agent} was told of are gone")
    if stood and on_disk - session.locators:
        report.problems.append(f"{world.kind}: spills that {session.agent} was not told of are left")
    report.handed_over += 0 if stood else len(on_disk - session.locators)


def _descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(os.listdir(folder)) if folder.exists() else 0


def main() -> int:
    """Run what the command line asks for. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Put a bounded load on the service and check what is left of it.")
    parser.add_argument("--seconds", type=float, default=60.0, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sessionref-load-") as folder:
        report = run_load(Path(folder), options.seconds, seed=options.seed)
    print("\n".join(report.lines()))
    print("failed" if report.problems else "all as it should be")
    return 1 if report.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
