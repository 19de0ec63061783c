"""Answers on their way out: one writer, a high-water mark, and word of what could not be handed over."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from itertools import islice
from typing import Any, Final

import anyio
import msgspec

from sessionref.server.transport import Transport

__all__ = ("Outbox", "OutgoingMessage", "take_back")

logger = logging.getLogger(__name__)

JOINED_BYTES: Final = 262_144
"""Answers that are ready together are written together up to about this size; more would only delay the first."""

OnLost = Callable[[], Coroutine[Any, Any, None]]


class OutgoingMessage(msgspec.Struct, frozen=True):
    """One message, and what to take back for each of its answers if it never reaches the peer."""

    data: bytes
    on_lost: Sequence[OnLost] = ()


async def take_back(on_lost: OnLost) -> None:
    """Take one answer back; what goes wrong with that is logged, and keeps nobody from the next."""
    try:
        await on_lost()
    except Exception:
        logger.exception("an answer that was lost could not be taken back")


class Outbox:
    """Holds messages until the transport has taken them; `put` never waits, readers wait for `room`."""

    def __init__(self, transport: Transport, high_water_bytes: int) -> None:
        self._transport = transport
        self._high_water_bytes = high_water_bytes
        self._waiting: deque[OutgoingMessage] = deque()
        self._bytes = 0
        self._arrived = anyio.Event()
        self._taken = anyio.Event()

    def put(self, message: OutgoingMessage) -> None:
        """Queue a message."""
        self._waiting.append(message)
        self._bytes += len(message.data)
        if not self._arrived.is_set():
            self._arrived.set()

    @property
    def has_room(self) -> bool:
        """Whether no more bytes wait than the high-water mark."""
        return self._bytes <= self._high_water_bytes

    async def room(self) -> None:
        """Wait until fewer bytes wait than the high-water mark."""
        while not self.has_room:
            await self._taken.wait()

    async def flushed(self) -> None:
        """Wait until the transport has taken everything."""
        while self._bytes:
            await self._taken.wait()

    async def run(self) -> None:
        """Hand messages over until cancelled. Raises TransportBroken, with what was not handed over still here."""
        while True:
            if not self._waiting:
                self._arrived = anyio.Event()
                await self._arrived.wait()
            messages = self._next()
            await self._transport.send([message.data for message in messages])
            for message in messages:
                self._waiting.popleft()
                self._bytes -= len(message.data)
            self._taken.set()
            self._taken = anyio.Event()

    async def lose(self) -> None:
        """Take back everything that was not handed over."""
        messages, self._waiting, self._bytes = self._waiting, deque(), 0
        self._taken.set()
        for message in messages:
            for on_lost in message.on_lost:
                await take_back(on_lost)

    def _next(self) -> list[OutgoingMessage]:
        """The messages to send in one piece: whether an answer with something to take back went out must be known."""
        messages = [self._waiting[0]]
        size = len(messages[0].data)
        for message in islice(self._waiting, 1, None) if not messages[0].on_lost else ():
            size += len(message.data)
            if message.on_lost or size > JOINED_BYTES:
                break
            messages.append(message)
        return messages
