"""DSH's own envelope (`dsh-format.md` section 9), as its web, Kotlin, Swift and VS Code clients send and read it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from sessionref.protocol.errors import ReadFailedReason, read_failed
from sessionref.protocol.jsontext import JsonError
from sessionref.protocol.methods import CANDIDATES
from sessionref.server.transports.dsh_compat import BadEnvelope, read_envelope, write_envelope
from transport_doubles import PATIENCE, World, eventually, serving

PATH = "/api/sessionReferenceResolver/candidates"


def envelope(**members: Any) -> dict[str, Any]:
    """A good call, with other members."""
    arguments = {"agentId": "agent", "query": ""}
    return {
        "type": "client-request",
        "rpcId": "rpc-1",
        "method": CANDIDATES,
        "payload": {"args": arguments},
        **members,
    }


def arguments(**members: Any) -> dict[str, Any]:
    return envelope(payload={"args": members})


@asynccontextmanager
async def dsh(folder: Path, **options: Any) -> AsyncGenerator[tuple[World, httpx.AsyncClient]]:
    async with serving("http", folder, dsh_compat=True, **options) as world:
        base = f"http://127.0.0.1:{world.address}"
        async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=PATIENCE) as client:
            yield world, client


async def ask(client: httpx.AsyncClient, call: Any) -> Any:
    """The envelope that a call is answered with."""
    response = await client.post(PATH, json=call)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    return response.json()


async def test_candidates_come_in_the_envelope_with_exactly_the_members_that_dsh_knows(tmp_path: Path) -> None:
    async with dsh(tmp_path) as (_, client):
        answer = await ask(client, envelope())
    assert list(answer) == ["type", "rpcId", "result"]
    assert (answer["type"], answer["rpcId"], answer["result"]["ok"]) == ("server-response", "rpc-1", True)
    assert list(answer["result"]) == ["ok", "value"]
    titled, untitled = sorted(answer["result"]["value"], key=lambda row: row["sessionId"])
    assert list(titled) == ["sessionId", "label", "displayTitle", "cwd", "sameWorkspace", "createdAt", "mention"]
    assert list(untitled) == ["sessionId", "label", "displayTitle", "sameWorkspace", "createdAt", "mention"]
    assert titled["label"] == "Ferry"
    assert titled["mention"].startswith("@[Ferry](dsh-session:")


async def test_a_query_selects_and_may_be_absent(tmp_path: Path) -> None:
    async with dsh(tmp_path) as (_, client):
        selected = await ask(client, arguments(agentId="agent", query="ferr"))
        everything = await ask(client, arguments(agentId="agent"))
        others = await ask(client, arguments(agentId="small"))
    assert [row["sessionId"] for row in selected["result"]["value"]] == ["small"]
    assert len(everything["result"]["value"]) == 2
    assert [row["sessionId"] for row in others["result"]["value"]] == ["wide"]


@pytest.mark.parametrize("rpc_id", ["", "ä", "\ud83d", "x" * 1000])
async def test_the_id_of_a_call_comes_back_as_it_was(tmp_path: Path, rpc_id: str) -> None:
    async with dsh(tmp_path) as (_, client):
        content = json.dumps(envelope(rpcId=rpc_id))
        response = await client.post(PATH, content=content, headers={"content-type": "application/json"})
    assert json.loads(response.content)["rpcId"] == rpc_id


@pytest.mark.parametrize(
    ("call", "rpc_id", "code"),
    [
        (envelope(rpcId=1), "invalid-request", "gateway/bad-request"),
        ([], "invalid-request", "gateway/bad-request"),
        (7, "invalid-request", "gateway/bad-request"),
        ({"type": "client-request"}, "invalid-request", "gateway/bad-request"),
        (envelope(type="server-response"), "rpc-1", "gateway/bad-request"),
        (envelope(method="sessionReferenceResolver/prepare"), "rpc-1", "gateway/bad-request"),
        (envelope(method=None), "rpc-1", "gateway/bad-request"),
        (envelope(payload={"args": {"agentId": "a"}, "more": 1}), "rpc-1", "gateway/bad-request"),
        (envelope(payload={}), "rpc-1", "gateway/bad-request"),
        (envelope(payload=[]), "rpc-1", "gateway/bad-request"),
        (envelope(payload={"args": ["agent", ""]}), "rpc-1", "gateway/arguments-invalid"),
        (arguments(), "rpc-1", "gateway/arguments-invalid"),
        (arguments(query=""), "rpc-1", "gateway/arguments-invalid"),
        (arguments(agentId="a", query="", limit=1), "rpc-1", "gateway/arguments-invalid"),
        (arguments(agentId=1, query=""), "rpc-1", "gateway/arguments-invalid"),
        (arguments(agentId="a", query=None), "rpc-1", "gateway/arguments-invalid"),
    ],
)
async def test_a_bad_call_is_answered_with_its_code(tmp_path: Path, call: Any, rpc_id: str, code: str) -> None:
    async with dsh(tmp_path) as (_, client):
        answer = await ask(client, call)
    error = answer["result"].pop("error")
    assert answer == {"type": "server-response", "rpcId": rpc_id, "result": {"ok": False}}
    assert list(error) == ["code", "message", "details"]
    assert (error["code"], error["details"]) == (code, {})
    assert error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b'{"a":NaN}', b"\xff", b"plain text"])
async def test_what_is_no_json_is_a_bad_request_in_plain_text(tmp_path: Path, body: bytes) -> None:
    async with dsh(tmp_path) as (_, client):
        response = await client.post(PATH, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.headers["content-type"].startswith("text/plain")


async def test_faults_of_the_carrier_have_dshs_statuses(tmp_path: Path) -> None:
    async with dsh(tmp_path, max_message_bytes=1024) as (_, client):
        assert (await client.post(PATH, content=b"{}", headers={"content-type": "text/plain"})).status_code == 415
        assert (await client.post(PATH, json=envelope(rpcId="x" * 1024))).status_code == 413
        assert (await client.post(PATH, json=envelope(), headers={"origin": "https://evil.example"})).status_code == 403
        assert (await client.post(PATH, json=envelope(), headers={"host": "evil.example"})).status_code == 403
        assert (await client.get(PATH)).status_code in (404, 405)
        assert (await client.post("/api/sessionReferenceResolver/prepare", json=envelope())).status_code == 404


async def test_another_method_than_post_is_not_found(tmp_path: Path) -> None:
    async with dsh(tmp_path) as (_, client):
        assert (await client.get(PATH)).status_code == 404


async def test_a_failed_listing_is_an_internal_error_with_its_message_only(tmp_path: Path) -> None:
    async with dsh(tmp_path) as (world, client):

        def fail(check: object) -> None:
            raise read_failed(ReadFailedReason.IO, None)

        world.store.list_sessions = fail  # type: ignore[method-assign, assignment]
        answer = await ask(client, envelope())
    error = answer["result"]["error"]
    assert (error["code"], error["details"]) == ("gateway/internal", {})
    assert "SESSION_REFERENCE" not in json.dumps(answer)


async def test_a_listing_that_takes_too_long_is_cancelled(tmp_path: Path) -> None:
    async with dsh(tmp_path, request_timeout_seconds=0.05) as (world, client):
        world.store.listing_hangs = True
        answer = await ask(client, envelope())
    assert answer["result"]["error"]["code"] == "gateway/cancelled"


async def test_closing_the_call_cancels_it(tmp_path: Path) -> None:
    async with dsh(tmp_path) as (world, client):
        world.store.listing_hangs = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, client, envelope())
            await eventually(lambda: world.store.hangs == 1)
            tasks.cancel_scope.cancel()
        await eventually(lambda: world.gauge("requests_in_flight") == 0)
        assert world.gauge("busy_threads") == 1


def test_an_envelope_is_taken_off_and_put_on_without_a_transport() -> None:
    call = read_envelope(json.dumps(envelope()).encode())
    assert call.rpc_id == "rpc-1"
    assert json.loads(call.request)["params"] == {"agentId": "agent", "query": ""}
    row = {"sessionId": "a", "updatedAt": 1, "origin": "dsh", "mention": "m"}
    answer = json.loads(write_envelope("rpc-1", json.dumps({"id": 0, "result": [row]}).encode()))
    assert answer["result"] == {"ok": True, "value": [{"sessionId": "a", "mention": "m"}]}
    with pytest.raises(JsonError):
        read_envelope(b"{")
    with pytest.raises(BadEnvelope):
        read_envelope(b"{}")


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (-32800, "gateway/cancelled"),
        (-32802, "gateway/cancelled"),
        (-32602, "gateway/arguments-invalid"),
        (-32603, "gateway/internal"),
        (-32015, "gateway/internal"),
        (-32000, "gateway/internal"),
    ],
)
def test_every_failure_has_a_code_of_dshs(number: int, code: str) -> None:
    response = {"id": 0, "error": {"code": number, "message": "why", "data": {"code": "SESSION_REFERENCE_X"}}}
    error = json.loads(write_envelope("r", json.dumps(response).encode()))["result"]["error"]
    assert error == {"code": code, "message": "why", "details": {}}
