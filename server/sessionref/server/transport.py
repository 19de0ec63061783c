"""The seam between the engine and what carries its messages: receive, send, close."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from sessionref.protocol.framing import FrameDecoder, FrameEvent, encode_frame
from sessionref.protocol.limits import Limits

__all__ = ("ByteStream", "StreamTransport", "Transport", "TransportBroken", "has_hung_up")

_HANG_UP: Final[int] = getattr(select, "POLLHUP", 0) | getattr(select, "POLLRDHUP", 0)


class TransportBroken(Exception):
    """The peer is gone, or takes nothing any more; everything that was not sent is lost."""


class Transport(Protocol):
    """Whole messages in both directions."""

    async def receive(self) -> FrameEvent | None:
        """The next message or fault, None at the end of input. Raises TransportBroken for a reset connection."""
        ...

    async def send(self, messages: Sequence[bytes]) -> None:
        """Hand messages to the peer, in order. Raises TransportBroken if that is not possible."""
        ...

    def has_ended(self) -> bool:
        """Whether the end of input can be seen without reading; false where that is not known."""
        ...

    async def aclose(self) -> None:
        """Give back what the transport holds; may be called more than once."""
        ...


class ByteStream(Protocol):
    """Bytes in both directions, as a pipe or a socket carries them."""

    async def receive_some(self) -> bytes:
        """The next bytes, empty at the end of input. Raises TransportBroken."""
        ...

    async def send_all(self, data: bytes) -> None:
        """Write all bytes. Raises TransportBroken."""
        ...

    def has_ended(self) -> bool:
        """Whether the end of input can be seen without reading; false where that is not known."""
        ...

    async def aclose(self) -> None:
        """Close both directions; may be called more than once."""
        ...


def has_hung_up(descriptor: int) -> bool:
    """Whether the other side of a descriptor has closed it, although there may be more to read."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(descriptor, _HANG_UP)
    return bool(poll.poll(0))


class StreamTransport:
    """Messages over a byte stream, in the framing that the peer speaks."""

    def __init__(self, stream: ByteStream, limits: Limits, *, lenient: bool = False) -> None:
        self._stream = stream
        self._decoder = FrameDecoder(limits, lenient=lenient)
        self._events: deque[FrameEvent] = deque()
        self._ended = False

    async def receive(self) -> FrameEvent | None:
        """The next message or fault, None at the end of input. Raises TransportBroken."""
        while not self._events and not self._ended:
            data = await self._stream.receive_some()
            self._ended = not data
            self._events += self._decoder.feed(data) if data else self._decoder.finish()
        return self._events.popleft() if self._events else None

    async def send(self, messages: Sequence[bytes]) -> None:
        """Write messages in the peer's framing, as one piece. Raises TransportBroken."""
        framing = self._decoder.framing
        await self._stream.send_all(b"".join(encode_frame(framing, message) for message in messages))

    def has_ended(self) -> bool:
        """Whether the stream's input has ended."""
        return self._ended or self._stream.has_ended()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()
