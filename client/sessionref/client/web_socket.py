"""Messages as WebSocket text frames, on the sans-IO core of the `websockets` package, which only this file imports.

The package's own asyncio client runs tasks that no cancel scope reaches, and asks the environment for a proxy. Its
core does neither: the bytes go over an anyio stream, so cancelling is as on every other transport.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from contextlib import suppress
from typing import Final

import anyio
import anyio.abc
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus, PayloadTooBig
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from sessionref.client.failures import CloseReason, ConnectionClosedError, ConnectionRefusedByServerError
from sessionref.client.limits import ClientLimits
from sessionref.client.streams import STREAM_FAULTS
from sessionref.client.web_address import WebAddress

__all__ = ("WebSocketStream",)

_SUBPROTOCOL: Final = "sessionref"
_TOKEN_SUBPROTOCOL_PREFIX: Final = "sessionref.token."
_SUBPROTOCOL_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+-]+")
"""What may stand in a subprotocol's name; a token with more than that goes into the `Authorization` header."""

# At debug level the package logs every header and frame, the token and conversations among them.
_wire_log = logging.getLogger(f"{__name__}.wire")
_wire_log.setLevel(logging.WARNING)


class WebSocketStream:
    """A message stream over one byte stream, which it owns; to be opened with `shake_hands`, with `answer` beside it.

    Frames are handed to the core in one step and written by one task at a time, so that a cancelled sender leaves no
    half frame behind for others. The reader never writes: a server that is not reading cannot stop it.
    """

    def __init__(self, stream: anyio.abc.ByteStream, address: WebAddress, limits: ClientLimits) -> None:
        self._stream = stream
        self._address = address
        self._limits = limits
        self._protocol = ClientProtocol(
            parse_uri(address.url),
            subprotocols=[Subprotocol(name) for name in _subprotocols(address.token)],
            max_size=limits.max_answer_bytes,
            logger=_wire_log,
        )
        self._frames: deque[Frame] = deque()
        self._message = bytearray()
        self._outgoing: deque[bytes] = deque()
        self._owing = anyio.Event()
        self._writing = anyio.Lock()
        self._is_reading = False
        self._over = anyio.Event()
        self._has_ended = False
        self._close_code = CloseCode.NORMAL_CLOSURE

    async def shake_hands(self) -> None:
        """Open the WebSocket. Raises ConnectionRefusedByServerError, and ConnectionClosedError for any other end."""
        request = self._protocol.connect()
        token = self._address.token
        if token is not None and not _SUBPROTOCOL_TOKEN.fullmatch(token):
            request.headers["Authorization"] = f"Bearer {token}"
        self._protocol.send_request(request)
        try:
            await self._flush()
            while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
                await self._read_on()
        except STREAM_FAULTS:
            raise ConnectionClosedError(CloseReason.ENDED) from None
        failure = self._protocol.handshake_exc
        if isinstance(failure, InvalidStatus):
            raise ConnectionRefusedByServerError(failure.response.status_code)
        if failure is not None:
            raise ConnectionClosedError(CloseReason.ENDED if self._has_ended else CloseReason.MALFORMED)

    async def answer(self) -> None:
        """Write what the reader owes to the server, pings' answers, until cancelled or the stream is over."""
        with suppress(*STREAM_FAULTS):
            while True:
                await self._owing.wait()
                self._owing = anyio.Event()
                await self._flush()

    async def send(self, item: bytes, /) -> None:
        """Write one message as a text frame. Raises anyio's errors of a stream that is over."""
        if self._protocol.state is not State.OPEN:
            raise anyio.ClosedResourceError
        self._protocol.send_text(item)
        await self._flush()

    async def receive(self) -> bytes:
        """The next message. Raises anyio's errors of a stream that is over, and ConnectionClosedError."""
        self._is_reading = True
        try:
            while True:
                while self._frames:
                    message = self._take(self._frames.popleft())
                    if message is not None:
                        return message
                self._raise_failure()
                await self._read_on()
        except BaseException:
            self._over.set()
            raise
        finally:
            self._is_reading = False

    async def aclose(self) -> None:
        """Shake hands for closing, in bounded time, of which only a reader sees the end, and close the byte stream."""
        try:
            with anyio.move_on_after(self._limits.close_seconds), suppress(*STREAM_FAULTS):
                if self._protocol.state is State.OPEN:
                    self._protocol.send_close(self._close_code)
                await self._flush()
                if self._is_reading:
                    await self._over.wait()
        finally:
            await anyio.aclose_forcefully(self._stream)

    def _take(self, frame: Frame) -> bytes | None:
        """The message that a frame completes."""
        if frame.opcode is Opcode.CLOSE:
            # Nothing comes after it, also where the server leaves the byte stream open.
            raise anyio.EndOfStream
        if frame.opcode is Opcode.BINARY:
            self._close_code = CloseCode.UNSUPPORTED_DATA
            raise ConnectionClosedError(CloseReason.MALFORMED)
        if frame.opcode is Opcode.TEXT and frame.fin:
            return bytes(frame.data)
        if frame.opcode is Opcode.TEXT or frame.opcode is Opcode.CONT:
            self._message += frame.data
            if frame.fin:
                message, self._message = bytes(self._message), bytearray()
                return message
        return None

    def _raise_failure(self) -> None:
        failure = self._protocol.parser_exc
        if isinstance(failure, PayloadTooBig):
            raise ConnectionClosedError(CloseReason.TOO_LONG)
        if isinstance(failure, EOFError):
            raise anyio.EndOfStream
        if failure is not None:
            raise ConnectionClosedError(CloseReason.MALFORMED)
        if self._protocol.state is State.CLOSED:
            raise anyio.EndOfStream

    async def _read_on(self) -> None:
        try:
            data = await self._stream.receive(self._limits.read_chunk_bytes)
        except anyio.EndOfStream:
            self._has_ended = True
            self._protocol.receive_eof()
        else:
            self._protocol.receive_data(data)
        self._frames += [event for event in self._protocol.events_received() if isinstance(event, Frame)]
        self._collect()
        if len(self._outgoing) > self._limits.max_unsent_frames:
            raise ConnectionClosedError(CloseReason.MALFORMED)
        if self._outgoing:
            self._owing.set()

    def _collect(self) -> None:
        # An empty one asks for a half-close, which is up to `aclose`.
        self._outgoing += filter(None, self._protocol.data_to_send())

    async def _flush(self) -> None:
        self._collect()
        async with self._writing:
            while self._outgoing:
                await self._stream.send(self._outgoing.popleft())


def _subprotocols(token: str | None) -> list[str]:
    """What a browser would offer as well."""
    if token is None or not _SUBPROTOCOL_TOKEN.fullmatch(token):
        return [_SUBPROTOCOL]
    return [_SUBPROTOCOL, _TOKEN_SUBPROTOCOL_PREFIX + token]
