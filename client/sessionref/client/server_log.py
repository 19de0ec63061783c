"""The log of a server that is a process of ours: always read, never piled up."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, Callable
from contextlib import suppress

import anyio

from sessionref.client.limits import ClientLimits
from sessionref.client.streams import STREAM_FAULTS

__all__ = ("ServerLog",)

logger = logging.getLogger(__name__)


class ServerLog:
    """Reads a server's standard error, keeps its end, and hands on each line."""

    def __init__(self, on_line: Callable[[str], None] | None, limits: ClientLimits) -> None:
        self._on_line = on_line
        self._limits = limits
        self._tail = bytearray()
        self._line = bytearray()
        self.drained = anyio.Event()

    @property
    def tail(self) -> str:
        """The end of the log, invalid UTF-8 replaced."""
        return self._tail.decode(errors="replace")

    async def drain(self, stream: AsyncIterable[bytes]) -> None:
        """Read until the end; a server whose log nobody reads would stop at a full pipe."""
        with suppress(*STREAM_FAULTS):
            async for chunk in stream:
                self._take(chunk)
        if self._line:
            self._hand_on(self._line)
        self.drained.set()

    def _take(self, chunk: bytes) -> None:
        self._tail += chunk
        del self._tail[: -self._limits.stderr_tail_bytes]
        *lines, self._line = (self._line + chunk).split(b"\n")
        for line in lines:
            self._hand_on(line)
        if len(self._line) > self._limits.log_line_bytes:
            self._hand_on(self._line)
            self._line = bytearray()

    def _hand_on(self, line: bytearray) -> None:
        if self._on_line is None:
            return
        try:
            self._on_line(line.decode(errors="replace").rstrip("\r"))
        except Exception:
            # The host's fault must not stop the draining, without which the server stands still.
            logger.exception("a line of the server's log could not be handed on")
