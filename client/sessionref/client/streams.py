"""The seam between a client and what carries its messages, and messages as lines on any byte stream."""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

import anyio
import anyio.abc

from sessionref.client.failures import CloseReason, ConnectionClosedError
from sessionref.client.limits import ClientLimits
from sessionref.protocol.framing import FrameDecoder, FrameEvent, Message, TooLong, encode_frame
from sessionref.protocol.limits import Limits

__all__ = ("STREAM_FAULTS", "LineStream", "MessageStream")

STREAM_FAULTS: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)
"""What a stream that is over raises, whichever its kind."""


class MessageStream(Protocol):
    """Whole messages in both directions; sends come one at a time, beside one receive.

    All three may raise what anyio's own object streams raise, so that any of those is one.
    """

    async def send(self, item: bytes, /) -> None:
        """Hand one message over."""
        ...

    async def receive(self) -> bytes:
        """The next message. Raises anyio.EndOfStream, and ConnectionClosedError for what is no message."""
        ...

    async def aclose(self) -> None:
        """Give back what the stream holds; may be called more than once."""
        ...


class LineStream:
    """Newline-delimited messages on a byte stream."""

    def __init__(self, stream: anyio.abc.ByteStream, limits: ClientLimits) -> None:
        self._stream = stream
        self._read_chunk_bytes = limits.read_chunk_bytes
        self._decoder = FrameDecoder(Limits(max_message_bytes=limits.max_answer_bytes))
        self._events: deque[FrameEvent] = deque()

    async def send(self, item: bytes, /) -> None:
        """Write one message as a line."""
        await self._stream.send(encode_frame("line", item))

    async def receive(self) -> bytes:
        """The next line. Raises anyio.EndOfStream, dropping a line without its end, and ConnectionClosedError."""
        while not self._events:
            self._events += self._decoder.feed(await self._stream.receive(self._read_chunk_bytes))
        event = self._events.popleft()
        if isinstance(event, Message):
            return event.data
        raise ConnectionClosedError(CloseReason.TOO_LONG if isinstance(event, TooLong) else CloseReason.MALFORMED)

    async def aclose(self) -> None:
        """Close the byte stream."""
        await self._stream.aclose()
