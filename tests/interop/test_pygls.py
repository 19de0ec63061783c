"""pygls' client over standard streams: a `Content-Type` header, `"params": null`, ids that are strings."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from interop.peers import (
    AGENT,
    CANCELLED,
    PATIENCE_SECONDS,
    SlowSessions,
    assert_cancelled_in_the_end,
    assert_conversation,
    command_of_server,
    environment,
    missing,
)
from sessionref.protocol.jsontext import as_array

CANDIDATES = "sessionReferenceResolver/candidates"
PREPARE = "sessionReferenceResolver/prepare"
ATTEMPTS = 5


class Peer:
    """A client of pygls, untyped as it is, and the bytes that it sends."""

    def __init__(self) -> None:
        if importlib.util.find_spec("pygls") is None:
            missing("pygls is not installed")
        client_module: Any = importlib.import_module("pygls.client")
        self.failure: type[Exception] = importlib.import_module("pygls.exceptions").JsonRpcException
        self.client: Any = client_module.JsonRPCClient()
        self.written: list[bytes] = []
        self.faults: list[str] = []
        self.client.report_server_error = self._report

    def _report(self, error: Exception, source: object) -> None:
        self.faults.append(repr(error))

    async def start(self, command: list[str]) -> None:
        """Start the server."""
        await self.client.start_io(*command, env=environment())
        writer = self.client.protocol.writer
        write = writer.write

        def recorded(data: bytes) -> None:
            self.written.append(bytes(data))
            write(data)

        writer.write = recorded

    async def call(self, method: str, params: Any = None, **more: Any) -> Any:
        """The result of a request. Raises what pygls raises."""
        return await self.client.protocol.send_request_async(method, params, **more)

    async def outcome(self, method: str, params: Any, **more: Any) -> dict[str, Any]:
        """Whether a request had a result, or its error."""
        try:
            await self.call(method, params, **more)
        except self.failure as failure:
            error: Any = failure
            return {"error": {"code": error.code, "message": error.message, "data": as_json(error.data)}}
        return {"result": True}


def as_json(value: Any) -> Any:
    """What pygls made of a JSON value: its objects are named tuples."""
    if hasattr(value, "_asdict"):
        return {name: as_json(member) for name, member in value._asdict().items()}
    elements = as_array(value)
    return value if elements is None else list(map(as_json, elements))


@asynccontextmanager
async def connected(home: Path | None = None) -> AsyncGenerator[Peer]:
    """A client with a server of its own, which must end with 0."""
    peer = Peer()
    with anyio.fail_after(PATIENCE_SECONDS):
        await peer.start(command_of_server("--stdio", home=home))
        yield peer
        assert await peer.call("shutdown") is None
        peer.client.protocol.notify("exit")
        await peer.client.stop()
    assert peer.client._server.returncode == 0
    assert peer.faults == []


async def test_pygls_finds_and_prepares_and_sees_errors_with_their_data() -> None:
    async with connected() as peer:
        initialize = await peer.call("initialize", {"clientInfo": {"name": "interop"}})
        candidates = as_json(await peer.call(CANDIDATES, {"agentId": AGENT}))
        content = f"Look at {candidates[0]['mention']}, please."
        prepare = await peer.call(PREPARE, {"agentId": AGENT, "content": content})
        references = [{"sessionId": "nobody"}]
        unknown = await peer.outcome(PREPARE, {"agentId": AGENT, "content": "x", "references": references})
    conversation = {"initialize": initialize, "candidates": candidates, "prepare": prepare}
    assert_conversation({name: as_json(value) for name, value in conversation.items()} | {"unknown": unknown["error"]})


async def test_the_content_type_and_the_null_params_of_pygls_are_taken() -> None:
    async with connected() as peer:
        await peer.call("rpc.discover")
    sent = b"".join(peer.written)
    assert b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\n" in sent
    assert b'"params": null' in sent or b'"params":null' in sent


async def test_a_cancel_notification_that_pygls_sends_cancels(slow: SlowSessions) -> None:
    references = [{"sessionId": session_id} for session_id in slow.ids]
    request = {"agentId": AGENT, "content": "x", "references": references}
    outcomes: list[dict[str, Any]] = []
    async with connected(slow.home) as peer:
        while len(outcomes) < ATTEMPTS and {"error": CANCELLED} not in outcomes:
            request_id = f"slow {len(outcomes)}"

            async def prepare(msg_id: str = request_id) -> None:
                outcomes.append(await peer.outcome(PREPARE, request, msg_id=msg_id))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(prepare)
                await anyio.lowlevel.checkpoint()
                await peer.call("initialize", {})
                peer.client.protocol.notify("$/cancelRequest", {"id": request_id})
    assert_cancelled_in_the_end(outcomes)
