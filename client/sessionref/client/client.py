"""The client: the methods of the service as typed calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import msgspec
from anyio import AsyncContextManagerMixin

from sessionref.client.connection import Connection
from sessionref.client.failures import PeerEvidence, UnexpectedResultError
from sessionref.client.limits import DEFAULT_LIMITS, ClientLimits
from sessionref.client.streams import MessageStream
from sessionref.protocol import methods as m
from sessionref.protocol.jsontext import convert

__all__ = ("Client",)

Result = TypeVar("Result")


class Client(AsyncContextManagerMixin):
    """Calls the service over a message stream, which it owns; an async context manager, to be entered once.

    Calls may be made from many tasks at once. Every call raises SessionReferenceError for a domain failure,
    ProtocolError or another RpcError for one of the protocol, ConnectionClosedError once the connection is over, and
    JsonError for arguments that JSON cannot hold. There is no time limit but the server's own: put a call into a
    cancel scope, whose cancellation the server is told. `evidence` says what else is known of the server at the time
    of an error.
    """

    def __init__(
        self,
        stream: MessageStream,
        *,
        evidence: Callable[[], PeerEvidence] = PeerEvidence,
        limits: ClientLimits = DEFAULT_LIMITS,
    ) -> None:
        self._connection = Connection(stream, evidence, limits)

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self, None]:
        async with self._connection:
            yield self

    async def candidates(
        self,
        agent_id: str,
        query: str = "",
        *,
        cwd: str | None = None,
        limit: int | None = None,
        include_subagents: bool | None = None,
    ) -> list[m.Candidate]:
        """Find sessions that can be mentioned in a prompt of `agent_id`, the best first (contract section 3)."""
        params = m.CandidatesParams(
            agent_id=agent_id, query=query, cwd=cwd, limit=limit, include_subagents=include_subagents
        )
        return await self._call(m.CANDIDATES, params, list[m.Candidate])

    async def prepare(
        self,
        agent_id: str,
        content: str | Sequence[Any],
        *,
        references: Sequence[m.Candidate | Mapping[str, Any]] | None = None,
        cwd: str | None = None,
        route: m.Route | None = None,
        preview: bool = False,
    ) -> m.PrepareResult:
        """Turn one message with mentions into readable content and at most one context (contract section 4).

        With `references`, even empty ones, the content is not parsed; a candidate can be given as it is.
        """
        params = m.PrepareParams(
            agent_id=agent_id,
            content=content if isinstance(content, str) else list(content),
            references=None if references is None else list(references),
            cwd=cwd,
            route=route,
            preview=preview,
        )
        return await self._call(m.PREPARE, params, m.PrepareResult)

    async def prepare_messages(
        self, agent_id: str, messages: Sequence[Any], *, cwd: str | None = None, route: m.Route | None = None
    ) -> m.PrepareMessagesResult:
        """Prepare every message of a user, all or nothing (contract section 4)."""
        params = m.PrepareMessagesParams(agent_id=agent_id, messages=list(messages), cwd=cwd, route=route)
        return await self._call(m.PREPARE_MESSAGES, params, m.PrepareMessagesResult)

    async def assembled(
        self,
        agent_id: str,
        *,
        provider: str | None = None,
        model: str | None = None,
        context_window: int | None = None,
    ) -> None:
        """Tell the server the route of the agent's last assembled prompt; `context_window` in tokens. No answer."""
        params = m.AssembledParams(agent_id=agent_id, provider=provider, model=model, context_window=context_window)
        await self.notify(m.ASSEMBLED, _present(params))

    async def initialize(self) -> m.InitializeResult:
        """Learn the server's version, capabilities and limits; what it takes no more than is then refused here."""
        result = await self._call(m.INITIALIZE, m.NoParams(), m.InitializeResult)
        limit = result.limits.get("maxMessageBytes")
        self._connection.max_message_bytes = limit if isinstance(limit, int) else None
        return result

    async def discover(self) -> dict[str, Any]:
        """The server's OpenRPC document."""
        return await self._call(m.DISCOVER, m.NoParams(), dict[str, Any])

    async def request(self, method: str, params: Any = None) -> Any:
        """Call any method; `params` is an object, an array or None, the result is decoded JSON."""
        return await self._connection.request(method, params)

    async def notify(self, method: str, params: Any = None) -> None:
        """Send any notification; returns once it is being written, which leaving the client waits for."""
        await self._connection.notify(method, params)

    async def _call(self, method: str, params: msgspec.Struct, kind: type[Result]) -> Result:
        result = await self.request(method, _present(params))
        try:
            return convert(result, kind)
        except msgspec.ValidationError:
            raise UnexpectedResultError(method) from None


def _present(params: msgspec.Struct) -> dict[str, Any]:
    """The params that were given: an older server refuses those that it does not know, even null ones."""
    named = zip(params.__struct_encode_fields__, msgspec.structs.astuple(params), strict=True)
    return {name: value for name, value in named if value is not None}
