"""One connection: ids, calls that wait for their answers, cancellation, and a certain end for every call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import anyio
from anyio import AsyncContextManagerMixin
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from sessionref.client.answers import Answer, Failed, decode_answer
from sessionref.client.background import background
from sessionref.client.failures import CloseReason, ConnectionClosedError, PeerEvidence, failure_from_wire
from sessionref.client.limits import ClientLimits
from sessionref.client.streams import STREAM_FAULTS, MessageStream
from sessionref.protocol.envelope import encode_notification, encode_request
from sessionref.protocol.errors import invalid_request, message_too_long
from sessionref.protocol.jsontext import MAX_DEPTH, NestingError, check_depth
from sessionref.protocol.methods import CANCEL_REQUEST

__all__ = ("Connection",)


class _Outgoing:
    """A message on its way to the writer; while it is not taken, it can be taken back."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.is_taken = False


class _Call:
    """A request that waits; done without an answer means that the connection has ended."""

    def __init__(self, outgoing: _Outgoing) -> None:
        self.outgoing = outgoing
        self.done = anyio.Event()
        self.answer: Answer | None = None


class Connection(AsyncContextManagerMixin):
    """Calls one server over one message stream; enter it once, call it from as many tasks as you like.

    One task writes, so that a cancelled caller leaves no half message behind; callers hand their messages over to it
    one by one and wait while the server does not read. Another task reads, whatever the writer is doing.
    """

    def __init__(self, stream: MessageStream, evidence: Callable[[], PeerEvidence], limits: ClientLimits) -> None:
        self._stream = stream
        self._evidence = evidence
        self._limits = limits
        self._calls: dict[int, _Call] = {}
        self._next_identity = 0
        self._close_reason: CloseReason | None = CloseReason.NOT_OPEN
        self._ended = anyio.Event()
        self._flushed = anyio.Event()
        self._outgoing: MemoryObjectSendStream[_Outgoing]
        self._taken: MemoryObjectReceiveStream[_Outgoing]
        self.max_message_bytes: int | None = None
        """The longest message that the server takes, once it is known: it could not say what it refuses."""

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self, None]:
        self._outgoing, self._taken = anyio.create_memory_object_stream[_Outgoing](0)
        self._close_reason = None
        async with background(self._write, self._read):
            try:
                yield self
            finally:
                await self._close()

    async def request(self, method: str, params: Any = None) -> Any:
        """Call a method and return its result as decoded JSON.

        Raises RpcError (what the server refuses), ConnectionClosedError, and JsonError for params that JSON cannot
        hold. A cancelled call tells the server so, in bounded time, and its late answer is dropped.
        """
        identity = self._next_identity
        outgoing = self._checked(encode_request(identity, method, params))
        self._next_identity += 1
        call = self._calls[identity] = _Call(outgoing)
        try:
            await self._send(outgoing)
            await call.done.wait()
        except anyio.get_cancelled_exc_class():
            if outgoing.is_taken and not call.done.is_set():
                await self._cancel(identity)
            raise
        finally:
            del self._calls[identity]
        if call.answer is None:
            raise self._closed()
        if isinstance(call.answer, Failed):
            raise failure_from_wire(call.answer.error)
        return call.answer.result

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a notification; returns once it is being written. Raises ConnectionClosedError and JsonError."""
        await self._send(self._checked(encode_notification(method, params)))

    def _checked(self, data: bytes) -> _Outgoing:
        """Refuse what the server would answer without an id, which could not be told from other calls' answers."""
        if self.max_message_bytes is not None and len(data) > self.max_message_bytes:
            raise message_too_long(self.max_message_bytes, len(data))
        try:
            check_depth(data)
        except NestingError:
            raise invalid_request("the message is nested too deep", limit=MAX_DEPTH) from None
        return _Outgoing(data)

    async def _send(self, outgoing: _Outgoing) -> None:
        if self._close_reason is not None:
            raise self._closed()
        try:
            await self._outgoing.send(outgoing)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # The writer has failed, or the connection is being left; either says very soon why it is over.
            await self._ended.wait()
            raise self._closed() from None

    async def _cancel(self, identity: int) -> None:
        with anyio.move_on_after(self._limits.cancel_seconds, shield=True), suppress(ConnectionClosedError):
            await self._send(_Outgoing(encode_notification(CANCEL_REQUEST, {"id": identity})))

    async def _write(self) -> None:
        try:
            async for outgoing in self._taken:
                outgoing.is_taken = True
                await self._stream.send(outgoing.data)
        except STREAM_FAULTS:
            self._taken.close()
            # The end of the input says more than this: it comes with the exit code of a server that has died.
            with anyio.move_on_after(self._limits.reap_seconds):
                await self._ended.wait()
            self._end(CloseReason.ENDED)
        finally:
            self._flushed.set()

    async def _read(self) -> None:
        try:
            while True:
                self._accept(decode_answer(await self._stream.receive()))
        except ConnectionClosedError as error:
            self._end(error.reason)
        except STREAM_FAULTS:
            self._end(CloseReason.ENDED)
        with suppress(*STREAM_FAULTS):
            await self._stream.aclose()

    def _accept(self, answer: Answer | None) -> None:
        if answer is None:
            return
        if answer.id is None:
            # One of the waiting calls is never going to be answered, and nobody can tell which.
            for call in self._calls.values():
                if call.outgoing.is_taken:
                    self._finish(call, answer)
        elif not 0 <= answer.id < self._next_identity:
            raise ConnectionClosedError(CloseReason.MALFORMED)
        elif answer.id in self._calls:
            self._finish(self._calls[answer.id], answer)

    def _finish(self, call: _Call, answer: Answer | None) -> None:
        if not call.done.is_set():
            call.answer = answer
            call.done.set()

    def _end(self, reason: CloseReason) -> None:
        if self._close_reason is not None:
            return
        self._close_reason = reason
        for call in self._calls.values():
            self._finish(call, None)
        self._taken.close()
        self._ended.set()

    def _closed(self) -> ConnectionClosedError:
        """A new error for each call: tracebacks must not mix."""
        return ConnectionClosedError(self._close_reason or CloseReason.NOT_OPEN, self._evidence())

    async def _close(self) -> None:
        """Let the writer finish what it was given, then end; in bounded time, cancelled or not."""
        self._outgoing.close()
        if self._close_reason is None:
            with anyio.move_on_after(self._limits.flush_seconds, shield=True):
                await self._flushed.wait()
        self._end(CloseReason.NOT_OPEN)
        with anyio.move_on_after(self._limits.close_seconds, shield=True), suppress(*STREAM_FAULTS):
            await self._stream.aclose()
