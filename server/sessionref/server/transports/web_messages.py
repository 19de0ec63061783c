"""Messages over HTTP and WebSocket, behind the engine's seam: one POST is one short connection, a socket a long one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio.lowlevel
from starlette.requests import Request
from starlette.types import Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from sessionref.protocol.framing import Broken, FrameEvent, Message, TooLong
from sessionref.protocol.limits import Limits
from sessionref.server.transport import TransportBroken

__all__ = ("BodyTooLong", "PostTransport", "WebSocketTransport", "read_body", "send_json")

Answer = Callable[[bytes], Awaitable[None]]

_UNSUPPORTED_DATA = 1003
_TOO_BIG = 1009
_NORMAL = 1000


class BodyTooLong(Exception):
    """The body of a request is longer than the limit."""


class PostTransport:
    """One request body in, its answer out through a function."""

    def __init__(self, body: bytes, answer: Answer) -> None:
        self._body: bytes | None = body
        self._answer = answer
        self.has_answered = False

    async def receive(self) -> FrameEvent | None:
        """The body, then the end of input."""
        body, self._body = self._body, None
        return None if body is None else Message(body)

    async def send(self, messages: Sequence[bytes]) -> None:
        """Send the one answer."""
        for message in messages:
            self.has_answered = True
            await self._answer(message)

    def has_ended(self) -> bool:
        """A closed request is noticed by whoever waits for it."""
        return False

    async def aclose(self) -> None:
        """Nothing is held."""


class WebSocketTransport:
    """Text frames, each a message; what the server below lets through may be longer than a message's limit."""

    def __init__(self, socket: WebSocket, limits: Limits) -> None:
        self._socket = socket
        self._limits = limits
        self._is_open = True
        self._close_code = _NORMAL

    async def receive(self) -> FrameEvent | None:
        """The next message or fault. Raises TransportBroken once the socket is closed."""
        event = await self._socket.receive()
        if event["type"] == "websocket.disconnect":
            self._is_open = False
            raise TransportBroken
        text: str | None = event.get("text")
        if text is None:
            self._close_code = _UNSUPPORTED_DATA
            return Broken("a binary frame")
        data = text.encode("utf-8", "surrogatepass")
        if len(data) <= self._limits.max_message_bytes:
            return Message(data)
        return TooLong(self._limits.max_message_bytes, len(data))

    async def send(self, messages: Sequence[bytes]) -> None:
        """Send each message as a text frame. Raises TransportBroken."""
        for message in messages:
            try:
                await self._socket.send_text(message.decode())
            except (WebSocketDisconnect, RuntimeError, OSError):
                self._is_open = False
                raise TransportBroken from None

    def has_ended(self) -> bool:
        """The server below notices, and fails what is sent."""
        return False

    async def aclose(self) -> None:
        """Close the socket unless its peer has."""
        if self._is_open:
            self._is_open = False
            try:
                await self._socket.close(self._close_code)
            except (WebSocketDisconnect, RuntimeError, OSError):
                return


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body of a request, at most `limit` bytes. Raises BodyTooLong as soon as that is known."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise BodyTooLong
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise BodyTooLong
        parts.append(part)
    return b"".join(parts)


async def send_json(send: Send, body: bytes, *, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """Send one JSON response over raw ASGI."""
    given: list[tuple[bytes, bytes]] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *headers,
    ]
    start: dict[str, Any] = {"type": "http.response.start", "status": status, "headers": given}
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def until_disconnected(request: Request) -> None:
    """Wait until the peer of a request whose body was read is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        await anyio.lowlevel.checkpoint()
