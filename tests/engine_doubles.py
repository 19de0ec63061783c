"""Doubles around the engine: a transport in memory, a peer that speaks through it, a scripted resolver."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread

from sessionref.protocol.errors import ReadFailedReason, read_failed
from sessionref.protocol.framing import FrameEvent, Message
from sessionref.protocol.limits import Limits
from sessionref.protocol.methods import CANDIDATES, CandidatesParams
from sessionref.server.dispatch import Dispatcher
from sessionref.server.engine import Connection, ConnectionEnd
from sessionref.server.resolver import Prepared, Resolver
from sessionref.server.settings import Settings
from sessionref.server.sources import SessionSources
from sessionref.server.store import Capture, CheckCancelled, ConversationItem, Listing
from sessionref.server.threads import WorkerThreads
from sessionref.server.transport import TransportBroken

__all__ = (
    "PATIENCE",
    "QUICK",
    "Call",
    "Hang",
    "MemoryStore",
    "MemoryTransport",
    "Peer",
    "ScriptedResolver",
    "Spilling",
    "connected",
    "hanging",
    "idle",
    "make_dispatcher",
    "request_of",
    "settled",
    "wait_for",
)

QUICK = Limits(drain_seconds=0.02, exit_grace_seconds=0.5)
"""Limits of tests that leave something in flight at their end."""

TURNS = 30
"""Turns of the event loop in which whatever can happen by itself has happened."""

PATIENCE = 5.0
"""Seconds that anything may take; only a fault ever waits so long."""


async def settled() -> None:
    """Wait until every task waits for something that only the test can bring."""
    # A cancellation on its way is no task; the turns also spare `wait_all_tasks_blocked` its long naps.
    for _ in range(TURNS):
        await anyio.lowlevel.checkpoint()
    await anyio.wait_all_tasks_blocked()


async def idle(threads: WorkerThreads) -> None:
    """Wait until every function has returned. A thread that is left behind by its loop may hang the whole test run."""
    with anyio.fail_after(PATIENCE):
        while threads.busy:
            await anyio.to_thread.run_sync(lambda: None)


class Hang:
    """A function that hangs in its thread until it is woken; remembers how often it ran."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.wake = threading.Event()
        self.left = threading.Event()
        self.runs = 0

    def __call__(self) -> str:
        self.runs += 1
        self.entered.set()
        try:
            assert self.wake.wait(2 * PATIENCE)
            return "woken"
        finally:
            self.left.set()


@asynccontextmanager
async def hanging(threads: WorkerThreads) -> AsyncGenerator[Hang]:
    """A function to hang in those threads; woken at the end, when everything must leave them."""
    hang = Hang()
    try:
        yield hang
    finally:
        hang.wake.set()
        await idle(threads)


async def wait_for(event: threading.Event) -> None:
    """Await an event that a thread sets."""
    assert await anyio.to_thread.run_sync(event.wait, PATIENCE)


def request_of(identity: Any, query: str = "", method: str = CANDIDATES, **members: Any) -> dict[str, Any]:
    """A request, by default of the method that the scripted resolver answers."""
    return {
        "jsonrpc": "2.0",
        "id": identity,
        "method": method,
        "params": {"agentId": "agent", "query": query},
        **members,
    }


class MemoryTransport:
    """A transport whose other side is the test. It takes answers until told to `hold` them or to break."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.writes: list[list[bytes]] = []
        self.received = 0
        self.closed = 0
        self._incoming: deque[FrameEvent | TransportBroken | None] = deque()
        self._changed = anyio.Event()
        self._holding = False
        self._broken = False

    def feed(self, event: FrameEvent | TransportBroken | None) -> None:
        """Let the engine receive this: an event, None for the end of input, or a reset connection."""
        self._incoming.append(event)
        self._change()

    def hold(self) -> None:
        """Take no more answers for now."""
        self._holding = True

    def resume(self) -> None:
        """Take answers again."""
        self._holding = False
        self._change()

    def break_output(self) -> None:
        """Let every send fail from now on, one that is being held too."""
        self._broken = True
        self._change()

    async def changed(self) -> None:
        """Wait until anything happens."""
        await self._changed.wait()

    async def receive(self) -> FrameEvent | None:
        """As the engine calls it; the end of input stays the end."""
        while not self._incoming:
            await self._changed.wait()
        event = self._incoming[0]
        if event is None:
            return None
        self._incoming.popleft()
        if isinstance(event, TransportBroken):
            raise event
        self.received += 1
        return event

    async def send(self, messages: Sequence[bytes]) -> None:
        """As the engine calls it."""
        while self._holding and not self._broken:
            await self._changed.wait()
        if self._broken:
            raise TransportBroken
        self.writes.append(list(messages))
        self.sent += messages
        self._change()

    def has_ended(self) -> bool:
        return False

    async def aclose(self) -> None:
        """As the engine calls it."""
        self.closed += 1

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Peer:
    """The other side of a connection: sends messages, and takes the answers in order."""

    def __init__(self, connection: Connection, transport: MemoryTransport) -> None:
        self.connection = connection
        self.transport = transport
        self.ended = anyio.Event()
        self.end: ConnectionEnd | None = None
        self._taken = 0

    def send(self, message: Any) -> None:
        """Send one message or batch; bytes as they are."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.transport.feed(Message(data))

    def ask(self, identity: Any, query: str = "", **members: Any) -> None:
        """Send a request."""
        self.send(request_of(identity, query, **members))

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    def cancel(self, identity: Any) -> None:
        """Cancel a request."""
        self.notify("$/cancelRequest", {"id": identity})

    def close_input(self) -> None:
        """End the engine's input."""
        self.transport.feed(None)

    async def answer(self) -> Any:
        """The next answer."""
        with anyio.fail_after(PATIENCE):
            while len(self.transport.sent) == self._taken:
                await self.transport.changed()
        self._taken += 1
        return json.loads(self.transport.sent[self._taken - 1])

    async def answers(self, count: int) -> list[Any]:
        """That many answers."""
        return [await self.answer() for _ in range(count)]

    async def no_answer(self) -> None:
        """Make sure that nothing more is answered by itself."""
        await settled()
        assert self.transport.sent[self._taken :] == []

    async def finished(self) -> ConnectionEnd:
        """Wait for the connection's end."""
        with anyio.fail_after(PATIENCE):
            await self.ended.wait()
        assert self.end is not None
        return self.end


@asynccontextmanager
async def connected(
    resolver: Resolver | None = None,
    limits: Limits = QUICK,
    *,
    on_ending: Callable[[ConnectionEnd], None] | None = None,
) -> AsyncGenerator[Peer]:
    """A running connection; at the end its input is closed, and it must end."""
    transport = MemoryTransport()
    dispatcher = make_dispatcher(resolver or ScriptedResolver())
    peer = Peer(Connection(transport, dispatcher, limits, on_ending=on_ending), transport)

    async def run() -> None:
        peer.end = await peer.connection.run()
        peer.ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        yield peer
        peer.close_input()
        await peer.finished()


def make_dispatcher(resolver: Resolver) -> Dispatcher:
    """The real dispatcher over some resolver."""
    return Dispatcher(resolver, Settings(), version="1.2.3", stores=["memory"])


class Call:
    """What one scripted call does: it waits until it is released, then fails or gives its result."""

    def __init__(self, result: Any = (), error: Exception | None = None, *, released: bool = False) -> None:
        self.runs = 0
        self.discards = 0
        self.started = anyio.Event()
        self._result = result
        self._error = error
        self._released = anyio.Event()
        if released:
            self.release()

    def release(self) -> None:
        """Let it go on."""
        self._released.set()

    async def run(self) -> Any:
        """As the resolver runs it."""
        self.runs += 1
        self.started.set()
        await self._released.wait()
        if self._error is not None:
            raise self._error
        return self._result

    async def discard(self) -> None:
        """What a lost answer takes back."""
        self.discards += 1


class Spilling(Call):
    """A call with something to take back if its answer does not reach the peer."""

    async def run(self) -> Any:
        """As the resolver runs it."""
        return Prepared(await super().run(), self.discard)


class ScriptedResolver(Resolver):
    """Answers `candidates` with the call that its query names, an empty list where none is so named."""

    def __init__(self, **calls: Call) -> None:
        super().__init__(SessionSources([]), Settings(), threads=WorkerThreads(), spills=None)
        self.calls = calls

    async def candidates(self, params: CandidatesParams) -> Any:
        """Run the scripted call."""
        await anyio.lowlevel.checkpoint()
        call = self.calls.get(params.query or "")
        return [] if call is None else await call.run()


class MemoryStore:
    """Sessions of texts. `before_read` runs in the worker thread that reads, so that a test can hang it."""

    kind = "memory"
    lists_subagents = True

    def __init__(self, sessions: dict[str, list[str]], before_read: Callable[[], object] = lambda: None) -> None:
        self._sessions = sessions
        self._before_read = before_read

    def list_sessions(self, check: CheckCancelled) -> Listing:
        """No session is listed."""
        self._before_read()
        return Listing([], [])

    def capture(self, session_id: str, check: CheckCancelled) -> Capture:
        """The texts of a session, all by its user."""
        self._before_read()
        if session_id not in self._sessions:
            raise read_failed(ReadFailedReason.NOT_FOUND, session_id)
        items = [ConversationItem("user", text) for text in self._sessions[session_id]]
        return Capture(
            session_id=session_id,
            cwd=None,
            format_version=0,
            captured_through_seq=len(items),
            items=items,
            diagnostics=[],
        )
