"""Messages over HTTP and WebSocket, behind the engine's seam: one POST is one short connection, a socket a long one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio.lowlevel
from starlette.requests import Request
from starlette.types import Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from sessionref.protocol.framing import Broken, FrameEvent, Message, TooLong
from sessionref.protocol.limits import Limits
from sessionref.server.transport import TransportBroken

__all__ = ("BodyTooLong", "PostTransport", "WebSocketTransport", "read_body", "send_json")

_TURNS_TO_NOTICE: Final = 3
"""Turns of the event loop after which a peer that is gone has been noticed by whoever waits for that."""

_UNSUPPORTED_DATA = 1003
_TOO_BIG = 1009
_NORMAL = 1000


class BodyTooLong(Exception):
    """The body of a request is longer than the limit."""


class PostTransport:
    """One request body in, its answer out as the response, after a function has put it into its form."""

    def __init__(self, body: bytes, send: Send, form: Callable[[bytes], bytes] | None = None) -> None:
        self._body: bytes | None = body
        self._send = send
        self._form = form
        self.has_answered = False
        self.is_gone = False
        """Whether the peer has closed the request; set by whoever waits for that."""

    async def receive(self) -> FrameEvent | None:
        """The body, then the end of input."""
        body, self._body = self._body, None
        return None if body is None else Message(body)

    async def send(self, messages: Sequence[bytes]) -> None:
        """Send the one answer. Raises TransportBroken if the peer goes before it has taken most of it."""
        for message in messages:
            self.has_answered = True
            await self._respond(self._form(message) if self._form is not None else message)

    def has_ended(self) -> bool:
        """A closed request is noticed by whoever waits for it."""
        return False

    async def aclose(self) -> None:
        """Nothing is held."""

    async def _respond(self, body: bytes) -> None:
        await self._send(_start(200, len(body)))
        # The server below buffers what it is given, and waits for room only before it is given more.
        for part in (body, b""):
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
        for _ in range(_TURNS_TO_NOTICE):
            await anyio.lowlevel.checkpoint()
        if self.is_gone:
            raise TransportBroken
        await self._send({"type": "http.response.body", "body": b""})


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


async def send_json(send: Send, body: bytes) -> None:
    """Send one JSON response over raw ASGI."""
    await send(_start(200, len(body)))
    await send({"type": "http.response.body", "body": body})


def _start(status: int, length: int) -> dict[str, Any]:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(length).encode())]
    return {"type": "http.response.start", "status": status, "headers": headers}


async def until_disconnected(request: Request) -> None:
    """Wait until the peer of a request whose body was read is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        await anyio.lowlevel.checkpoint()
