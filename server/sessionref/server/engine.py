"""One connection: reading, requests in flight, cancellation, answers, and an orderly end (contract section 1).

A request is registered before its task starts, its id stays taken until its answer is queued, and a cancel answers
it at once, whatever its storage is doing. Batches keep their places until the array goes out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Protocol

import anyio
import anyio.abc
import anyio.lowlevel

from sessionref.protocol.envelope import (
    Batch,
    Invalid,
    MessageMember,
    Notification,
    Request,
    RequestId,
    decode_message,
    encode_batch,
    encode_error,
    encode_result,
)
from sessionref.protocol.errors import (
    RpcError,
    busy,
    cancelled,
    duplicate_request_id,
    message_too_long,
    parse_error,
)
from sessionref.protocol.framing import Broken, FrameEvent, Garbage, Message, TooLong
from sessionref.protocol.limits import Limits
from sessionref.server.dispatch import CallOutcome, Deferred, Dispatcher, failure_of, unwrap
from sessionref.server.outbox import OnLost, Outbox, OutgoingMessage, take_back
from sessionref.server.transport import Transport, TransportBroken

__all__ = ("Connection", "ConnectionEnd", "RequestObserver")

logger = logging.getLogger(__name__)


LOOK_SECONDS: Final = 0.25
"""How often to look whether a peer that takes no answers is still there: nothing is read from it meanwhile."""

ACCEPTED_AT_ONCE: Final = 16
"""Messages taken from one read before others get their turn on the event loop."""


class ConnectionEnd(Enum):
    """Why a connection ended."""

    END_OF_INPUT = auto()
    STOPPED = auto()
    EXIT_AFTER_SHUTDOWN = auto()
    EXIT_ALONE = auto()
    UNREADABLE = auto()
    BROKEN = auto()


class RequestObserver(Protocol):
    """Told of every request that is answered; for logs and metrics."""

    def answered(self, method: str, failure: RpcError | None, seconds: float, answer_bytes: int) -> None:
        """A request was answered with a result or a failure, so long after it was received."""
        ...


class _Answers:
    """The places of one message's answers: one, or as many as a batch has; sent when all are filled."""

    def __init__(self, outbox: Outbox, count: int, *, is_batch: bool) -> None:
        self._outbox = outbox
        self._is_batch = is_batch
        self._data: list[bytes | None] = [None] * count
        self._on_lost: list[OnLost | None] = [None] * count
        self._missing = count
        self.on_sent: list[Callable[[], None]] = []

    def fill(self, place: int, data: bytes, on_lost: OnLost | None = None) -> OnLost | None:
        """Fill a place, or fill it anew while the others are missing; returns what the old answer must take back."""
        if self._missing == 0:
            # It is on its way, and nothing can change it any more.
            return None
        before, self._on_lost[place] = self._on_lost[place], on_lost
        self._missing -= self._data[place] is None
        self._data[place] = data
        if self._missing == 0:
            filled = [answer for answer in self._data if answer is not None]
            message = encode_batch(filled) if self._is_batch else filled[0]
            self._outbox.put(OutgoingMessage(message, [lost for lost in self._on_lost if lost is not None]))
            for sent in self.on_sent:
                sent()
        return before

    def has(self, place: int) -> bool:
        """Whether a place is filled."""
        return self._data[place] is not None


class _InFlight:
    """A request from its registration until its answer is queued."""

    def __init__(self, request: Request, answers: _Answers, place: int, received: float) -> None:
        self.identity = request.id
        self.method = request.method
        self.answers = answers
        self.place = place
        self.received = received
        self.scope = anyio.CancelScope()
        self.is_cancelled = False


class Connection:
    """Serves one peer over one transport until its end; run it once."""

    def __init__(
        self,
        transport: Transport,
        dispatcher: Dispatcher,
        limits: Limits,
        *,
        on_ending: Callable[[ConnectionEnd], None] | None = None,
        observer: RequestObserver | None = None,
        can_exit: bool = True,
    ) -> None:
        self._transport = transport
        self._dispatcher = dispatcher
        self._limits = limits
        self._on_ending = on_ending
        self._observer = observer
        self._outbox = Outbox(transport, limits.write_high_water_bytes)
        self._in_flight: dict[RequestId, _InFlight] = {}
        self._running = anyio.Semaphore(limits.max_concurrent_requests, fast_acquire=True)
        self._reading = anyio.CancelScope()
        self._draining = anyio.CancelScope()
        self._idle = anyio.Event()
        self._end = ConnectionEnd.END_OF_INPUT
        self._tasks: anyio.abc.TaskGroup
        self._is_broken = False
        self.is_shutting_down = False
        self.can_exit = can_exit
        """Whether `shutdown` and `exit` mean something here; over HTTP they do not."""

    @property
    def requests_in_flight(self) -> int:
        """Requests that are registered and not yet answered."""
        return len(self._in_flight)

    async def run(self) -> ConnectionEnd:
        """Serve until the input ends, `exit`, `stop` or a fault, then drain; returns why it ended."""
        try:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._write)
                self._tasks.start_soon(self._time_out)
                with self._reading:
                    await self._read()
                if self._on_ending is not None:
                    self._on_ending(self._end)
                await self._drain()
                self._tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(self._limits.exit_grace_seconds, shield=True):
                await self._outbox.lose()
            with anyio.move_on_after(self._limits.exit_grace_seconds, shield=True):
                await self._transport.aclose()
        return self._end

    def stop(self) -> None:
        """End the connection as if its input had ended."""
        self._finish_reading(ConnectionEnd.STOPPED)

    def disconnect(self) -> None:
        """End the connection at once, its peer being gone: everything is cancelled, nothing more is sent."""
        self._finish_reading(ConnectionEnd.BROKEN)
        self._is_broken = True
        self._draining.cancel()

    def abort(self) -> None:
        """End a drain early: what is still in flight is answered as cancelled by the server."""
        self.stop()
        self._draining.cancel()

    def cancel(self, identity: RequestId) -> None:
        """Cancel a request in flight for its client; an unknown id is ignored."""
        entry = self._in_flight.get(identity)
        if entry is not None:
            self._cancel(entry, cancelled())

    def shut_down(self) -> None:
        """Refuse further requests from now on."""
        self.is_shutting_down = True

    def exit(self) -> None:
        """End the connection without a drain."""
        self._finish_reading(ConnectionEnd.EXIT_AFTER_SHUTDOWN if self.is_shutting_down else ConnectionEnd.EXIT_ALONE)

    def _finish_reading(self, end: ConnectionEnd) -> None:
        if not self._reading.cancel_called:
            self._end = end
            self._reading.cancel()

    async def _read(self) -> None:
        accepted = 0
        try:
            while not self._reading.cancel_called:
                if not (self._outbox.has_room or await self._has_room()):
                    return
                event = await self._transport.receive()
                if event is None:
                    return
                self._accept(event)
                accepted += 1
                if accepted % ACCEPTED_AT_ONCE == 0:
                    await anyio.lowlevel.checkpoint()
        except TransportBroken:
            self.disconnect()

    async def _has_room(self) -> bool:
        """Wait while the peer does not take its answers; false if its input has ended meanwhile."""
        while not self._outbox.has_room:
            with anyio.move_on_after(LOOK_SECONDS):
                await self._outbox.room()
            if not self._outbox.has_room and self._transport.has_ended():
                return False
        return True

    def _accept(self, event: FrameEvent) -> None:
        match event:
            case Message(data):
                self._accept_message(data)
            case TooLong(limit, actual):
                self._refuse(message_too_long(limit, actual))
            case Garbage():
                self._refuse(parse_error("the line begins neither a message nor a header"))
            case Broken(reason):
                logger.warning("the connection is closed: %s", reason)
                self._finish_reading(ConnectionEnd.UNREADABLE)

    def _accept_message(self, data: bytes) -> None:
        decoded = decode_message(data, max_batch=self._limits.max_batch)
        if not isinstance(decoded, Batch):
            self._accept_member(decoded, _Answers(self._outbox, 1, is_batch=False), 0)
            return
        count = sum(not isinstance(member, Notification) for member in decoded.members)
        answers = _Answers(self._outbox, count, is_batch=True)
        place = 0
        for member in decoded.members:
            self._accept_member(member, answers, place)
            place += not isinstance(member, Notification)

    def _accept_member(self, member: MessageMember, answers: _Answers, place: int) -> None:
        if isinstance(member, Notification):
            self._dispatcher.notify(self, member)
        elif isinstance(member, Invalid):
            answers.fill(place, encode_error(member.id, member.error))
        elif member.id in self._in_flight:
            answers.fill(place, encode_error(None, duplicate_request_id(member.id)))
        else:
            self._accept_request(member, answers, place)

    def _accept_request(self, request: Request, answers: _Answers, place: int) -> None:
        received = time.monotonic()
        try:
            outcome = self._dispatcher.request(self, request)
            if isinstance(outcome, CallOutcome):
                data = encode_result(request.id, outcome.result)
                answers.fill(place, data)
                self._observe(request.method, None, received, data)
                return
            room = self._limits.max_concurrent_requests + self._limits.max_queued_requests
            if len(self._in_flight) >= room:
                raise busy(self._limits.max_queued_requests)
        except Exception as error:
            failure = failure_of(error)
            data = encode_error(request.id, failure)
            answers.fill(place, data)
            self._observe(request.method, failure, received, data)
            return
        entry = _InFlight(request, answers, place, received)
        self._in_flight[request.id] = entry
        answers.on_sent.append(lambda: self._forget(entry))
        self._tasks.start_soon(self._run, entry, outcome)

    def _forget(self, entry: _InFlight) -> None:
        if self._in_flight.get(entry.identity) is entry:
            del self._in_flight[entry.identity]
        if not self._in_flight:
            self._idle.set()

    async def _run(self, entry: _InFlight, call: Deferred) -> None:
        with entry.scope:
            async with self._running:
                # Work for a peer that takes no answers would only pile them up.
                if not self._outbox.has_room:
                    await self._outbox.room()
                discard: OnLost | None = None
                try:
                    result, discard = unwrap(await call.run())
                    data = encode_result(entry.identity, result)
                except Exception as error:
                    if discard is not None:
                        await take_back(discard)
                    failure = failure_of(error)
                    self._answer(entry, encode_error(entry.identity, failure), failure)
                    return
            if not self._answer(entry, data, on_lost=discard) and discard is not None:
                await take_back(discard)

    async def _time_out(self) -> None:
        """Cancel what takes too long. Requests stand in the table in the order in which their time runs out."""
        seconds = self._limits.request_timeout_seconds
        while True:
            waiting = (entry for entry in self._in_flight.values() if not entry.answers.has(entry.place))
            oldest = next(waiting, None)
            # Whatever comes while this sleeps has more time than it sleeps.
            left = seconds if oldest is None else oldest.received + seconds - time.monotonic()
            if oldest is not None and left <= 0:
                self._cancel(oldest, cancelled(by_server=True))
            else:
                await anyio.sleep(left)

    def _answer(
        self, entry: _InFlight, data: bytes, failure: RpcError | None = None, on_lost: OnLost | None = None
    ) -> bool:
        """Give the answer, unless a cancel has given it already."""
        if not entry.is_cancelled:
            entry.answers.fill(entry.place, data, on_lost)
            self._observe(entry.method, failure, entry.received, data)
        return not entry.is_cancelled

    def _cancel(self, entry: _InFlight, failure: RpcError) -> None:
        """Answer a request as cancelled, also one of a batch whose result waits for the others; stop its task."""
        if entry.is_cancelled:
            return
        entry.is_cancelled = True
        data = encode_error(entry.identity, failure)
        replaced = entry.answers.fill(entry.place, data)
        self._observe(entry.method, failure, entry.received, data)
        entry.scope.cancel()
        if replaced is not None:
            self._tasks.start_soon(take_back, replaced)

    def _observe(self, method: str, failure: RpcError | None, received: float, data: bytes) -> None:
        if self._observer is not None:
            self._observer.answered(method, failure, time.monotonic() - received, len(data))

    def _refuse(self, error: RpcError) -> None:
        self._outbox.put(OutgoingMessage(encode_error(None, error)))

    async def _write(self) -> None:
        try:
            await self._outbox.run()
        except TransportBroken:
            self.disconnect()

    async def _drain(self) -> None:
        """Let requests in flight finish, cancel the rest, and hand over what is answered; all in bounded time."""
        if self._end in (ConnectionEnd.END_OF_INPUT, ConnectionEnd.STOPPED, ConnectionEnd.UNREADABLE):
            with self._draining, anyio.move_on_after(self._limits.drain_seconds):
                await self._until_idle()
                await self._outbox.flushed()
        for entry in list(self._in_flight.values()):
            # A member of a batch that has its result keeps it: only the others are late.
            if not entry.answers.has(entry.place):
                self._cancel(entry, cancelled(by_server=True))
        if not self._is_broken:
            with anyio.move_on_after(self._limits.exit_grace_seconds / 2):
                await self._outbox.flushed()

    async def _until_idle(self) -> None:
        while self._in_flight:
            self._idle = anyio.Event()
            await self._idle.wait()
