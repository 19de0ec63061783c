"""A deadline for the head of an HTTP request, which uvicorn has none for: silence holds no place for long."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

__all__ = ("HeadDeadlineProtocol",)

HEAD_SECONDS: Final = 10.0
"""From the first byte of a request, or from connecting, to the end of its head: on the loopback that takes no time."""


class HeadDeadlineProtocol(H11Protocol):
    """uvicorn's protocol, which closes a connection whose next request does not come to the end of its head."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take what has come; begin to wait if that is the beginning of a head alone."""
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def _await_head(self) -> None:
        if self._deadline is None and self._has_no_request():
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._deadline = None
        if self._has_no_request():
            self.transport.close()

    def _has_no_request(self) -> bool:
        # uvicorn declares that there always is one.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        # A WebSocket has taken the transport over.
        is_ours = self.transport.get_protocol() is self
        return is_ours and (cycle is None or cycle.response_complete)
