"""HTTP and WebSocket beyond what every transport does: statuses, origins, tokens, frames, and closed requests."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from transport_doubles import (
    PATIENCE,
    TOKEN,
    World,
    code_of,
    dial_tcp,
    eventually,
    exchange,
    prepare,
    serving,
    spilled,
)

ORIGIN = "https://app.example"
BEARER = {"authorization": f"Bearer {TOKEN}"}
JSON = {"content-type": "application/json"}
CALL: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}


@asynccontextmanager
async def web(folder: Path, **options: Any) -> AsyncGenerator[tuple[World, httpx.AsyncClient]]:
    """A service over HTTP for pages of one origin, and a client with neither proxy nor token."""
    async with serving("http", folder, origins=[ORIGIN], **options) as world:
        base = f"http://127.0.0.1:{world.address}"
        async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=PATIENCE) as client:
            yield world, client


async def post(client: httpx.AsyncClient, message: Any = CALL, **headers: str) -> httpx.Response:
    """A POST that would succeed but for the headers given; one that is empty is left out."""
    given = {name: value for name, value in {**BEARER, **JSON, **headers}.items() if value}
    return await client.post("/rpc", content=json.dumps(message), headers=given)


# Statuses.


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON; charset=utf-8", "application/json ;a=b"]
)
async def test_a_post_is_answered_as_json(tmp_path: Path, content_type: str) -> None:
    async with web(tmp_path) as (_, client):
        response = await post(client, **{"content-type": content_type})
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.json()["id"] == 1


@pytest.mark.parametrize(
    ("message", "code"), [({"jsonrpc": "2.0", "id": 1, "method": "nothing"}, -32601), (prepare(1, "corrupt"), -32015)]
)
async def test_an_error_of_a_call_comes_with_status_200(tmp_path: Path, message: Any, code: int) -> None:
    async with web(tmp_path) as (_, client):
        response = await post(client, message)
    assert (response.status_code, code_of(response.json())) == (200, code)


async def test_a_body_that_is_no_json_is_a_parse_error_with_status_200(tmp_path: Path) -> None:
    async with web(tmp_path) as (_, client):
        response = await client.post("/rpc", content=b"{", headers={**BEARER, **JSON})
    assert (response.status_code, code_of(response.json())) == (200, -32700)


async def test_notifications_only_are_answered_without_content(tmp_path: Path) -> None:
    notification = {"jsonrpc": "2.0", "method": "nothing"}
    async with web(tmp_path) as (_, client):
        responses = [await post(client, notification), await post(client, [notification])]
    assert [(response.status_code, response.content) for response in responses] == [(204, b"")] * 2


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": ""}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
        ({"host": "evil.example"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"content-type": ""}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "text/plain; application/json"}, 415),
        ({"content-type": "application/json-seq"}, 415),
    ],
)
async def test_a_post_that_may_not_be_is_refused_and_runs_nothing(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with web(tmp_path) as (world, client):
        response = await post(client, prepare(1, "small"), **headers)
    assert response.status_code == status
    assert "access-control-allow-origin" not in response.headers
    assert world.store.reads == []


async def test_who_has_no_token_is_told_how_to_give_one(tmp_path: Path) -> None:
    async with web(tmp_path) as (_, client):
        response = await post(client, authorization="")
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("POST", "/", 404),
        ("POST", "/rpc/", 404),
        ("GET", "/nothing", 404),
        ("GET", "/rpc", 405),
        ("PUT", "/rpc", 405),
        ("DELETE", "/rpc", 405),
        ("OPTIONS", "/rpc", 405),
        ("POST", "/healthz", 405),
        ("POST", "/metrics", 405),
        ("POST", "/openrpc.json", 405),
        ("POST", "/api/sessionReferenceResolver/candidates", 404),
    ],
)
async def test_other_paths_and_methods_are_refused(tmp_path: Path, method: str, path: str, status: int) -> None:
    async with web(tmp_path) as (_, client):
        response = await client.request(method, path, headers=BEARER | JSON)
    assert response.status_code == status


@pytest.mark.parametrize(
    "head", ["nonsense\r\n\r\n", "GET /healthz HTTP/1.1\r\n: x\r\n\r\n", "GET /healthz HTTP/1.1\r\n\r\n"]
)
async def test_what_is_no_http_is_a_bad_request(tmp_path: Path, head: str) -> None:
    async with web(tmp_path) as (world, _):
        received = await exchange(world.address, head.encode())
    assert re.match(rb"HTTP/1.1 40[03] ", received)


async def test_two_hosts_are_not_served(tmp_path: Path) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    async with web(tmp_path) as (world, _):
        received = await exchange(world.address, request)
    assert re.match(rb"HTTP/1.1 40[03] ", received)


@pytest.mark.parametrize("ask", ["GET http://127.0.0.1/healthz HTTP/1.1", "GET /healthz HTTP/1.0"])
async def test_a_host_header_is_needed_and_checked_in_every_form_of_request(tmp_path: Path, ask: str) -> None:
    async with web(tmp_path) as (world, _):
        received = await exchange(world.address, f"{ask}\r\nHost: evil.example\r\nConnection: close\r\n\r\n".encode())
    assert received.startswith(b"HTTP/1.1 403 ")


async def test_a_body_over_the_limit_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    head = (
        f"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    )
    async with web(tmp_path, max_message_bytes=1024) as (world, _):
        received = await exchange(world.address, f"{head}Content-Length: 1025\r\n\r\n".encode())
    assert received.startswith(b"HTTP/1.1 413 ")


async def test_a_chunked_body_over_the_limit_is_refused_while_it_is_sent(tmp_path: Path) -> None:
    head = (
        f"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    )
    chunk = "200\r\n" + "x" * 512 + "\r\n"
    async with web(tmp_path, max_message_bytes=1024) as (world, _):
        whole = await exchange(world.address, f"{head}Transfer-Encoding: chunked\r\n\r\n{3 * chunk}".encode())
    assert whole.startswith(b"HTTP/1.1 413 ")


async def test_a_chunked_body_within_the_limit_is_taken(tmp_path: Path) -> None:
    async def body() -> AsyncIterator[bytes]:
        for byte in json.dumps(CALL).encode():
            yield bytes([byte])

    async with web(tmp_path) as (_, client):
        response = await client.post("/rpc", content=body(), headers=BEARER | JSON)
    assert response.json()["id"] == 1


async def test_a_request_without_a_token_does_not_get_its_body_read(tmp_path: Path) -> None:
    head = "POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n"
    async with web(tmp_path) as (world, _):
        received = await exchange(world.address, f"{head}Connection: close\r\n\r\n".encode())
    assert received.startswith(b"HTTP/1.1 401 ")


async def test_what_is_too_much_at_once_is_told_to_come_again(tmp_path: Path) -> None:
    async with web(tmp_path, max_connections=1) as (world, client):
        peer = await world.connect_http()
        await peer.send(prepare(1, "hung"))
        await eventually(lambda: world.store.hangs == 1)
        refused = await post(client)
        world.store.release()
        assert "result" in await peer.receive()
        await world.idle()
        served = await post(client)
    assert (refused.status_code, served.status_code) == (503, 200)


# What needs no token, and what does.


async def test_health_and_the_document_need_no_token(tmp_path: Path) -> None:
    async with web(tmp_path) as (_, client):
        health, document = await client.get("/healthz"), await client.get("/openrpc.json")
        await client.head("/healthz")
    assert (health.status_code, health.json()) == (200, {"status": "ok"})
    assert document.status_code == 200
    assert "openrpc" in document.json()


async def test_metrics_need_the_token(tmp_path: Path) -> None:
    async with web(tmp_path) as (_, client):
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers={"authorization": "Bearer x"})).status_code == 401
        response = await client.get("/metrics", headers=BEARER)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "sessionref_open_connections" in response.text


@pytest.mark.parametrize("path", ["/healthz", "/openrpc.json", "/metrics"])
async def test_no_document_is_for_pages_of_other_origins_or_hosts(tmp_path: Path, path: str) -> None:
    async with web(tmp_path) as (_, client):
        for header in ({"origin": "https://evil.example"}, {"origin": "null"}, {"host": "evil.example"}):
            assert (await client.get(path, headers={**BEARER, **header})).status_code == 403


# Pages of allowed origins.


async def test_a_page_of_an_allowed_origin_may_read_the_answer(tmp_path: Path) -> None:
    async with web(tmp_path) as (_, client):
        response = await post(client, origin=ORIGIN)
        unauthorised = await post(client, origin=ORIGIN, authorization="")
    for answer, status in ((response, 200), (unauthorised, 401)):
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "origin" in answer.headers["vary"].lower()
        assert "access-control-allow-credentials" not in answer.headers


async def test_a_preflight_is_answered_for_an_allowed_origin(tmp_path: Path) -> None:
    asked = {
        "origin": ORIGIN,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
        "access-control-request-private-network": "true",
    }
    async with web(tmp_path) as (_, client):
        response = await client.options("/rpc", headers=asked)
    assert response.status_code == 204
    assert response.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in response.headers["access-control-allow-methods"]
    assert "authorization" in response.headers["access-control-allow-headers"]
    assert "content-type" in response.headers["access-control-allow-headers"]
    assert response.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://app.example"])
async def test_a_preflight_of_another_origin_is_refused(tmp_path: Path, origin: str) -> None:
    async with web(tmp_path) as (_, client):
        response = await client.options("/rpc", headers={"origin": origin, "access-control-request-method": "POST"})
    assert response.status_code == 403
    assert not [name for name in response.headers if name.startswith("access-control-")]


async def test_the_token_and_the_server_are_in_no_response_header(tmp_path: Path) -> None:
    async with web(tmp_path) as (world, client):
        responses = [
            await post(client, origin=ORIGIN),
            await post(client, authorization=f"Bearer {TOKEN}x"),
            await client.get("/metrics", headers=BEARER),
        ]
        peer = connecting(world, [f"sessionref.token.{TOKEN}", "sessionref"])
        async with peer as connection:
            assert connection.response is not None
            websocket_headers = str(connection.response.headers)
            assert connection.subprotocol == "sessionref"
    headers = [str(response.headers) for response in responses] + [websocket_headers]
    assert not [text for text in headers if TOKEN in text or "uvicorn" in text.lower()]


# Closed requests.


async def test_closing_a_post_cancels_it_and_removes_its_spill(tmp_path: Path) -> None:
    async with web(tmp_path) as (world, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(post, client, prepare(1, "hung-truncated"))
            await eventually(lambda: world.store.hangs == 1)
            tasks.cancel_scope.cancel()
        await eventually(lambda: world.gauge("requests_in_flight") == 0)
        assert world.gauge("busy_threads") == 1
        world.store.release()
        await world.idle()
        assert world.gauge("open_connections") == 0
    assert spilled(tmp_path) == []


async def test_a_post_that_is_closed_before_its_body_was_sent_runs_nothing(tmp_path: Path) -> None:
    head = (
        f"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    )
    body = json.dumps(prepare(1, "small"))
    async with web(tmp_path) as (world, client):
        with await dial_tcp(world.address) as connected:
            cut = f"{head}Content-Length: {len(body) + 1}\r\n\r\n{body}"
            await asyncio.get_running_loop().sock_sendall(connected, cut.encode())
        assert (await post(client)).status_code == 200
    assert world.store.reads == []


async def test_closing_a_post_whose_queue_is_full_of_a_batch_cancels_all_members(tmp_path: Path) -> None:
    async with web(tmp_path, max_concurrent_requests=2) as (world, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(post, client, [prepare(number, f"hung#{number}") for number in range(10)])
            await eventually(lambda: world.store.hangs == 2)
            tasks.cancel_scope.cancel()
        await eventually(lambda: world.gauge("requests_in_flight") == 0)
        world.store.release()
        await world.idle()
    assert len(world.store.reads) == 2


async def test_a_large_answer_reaches_a_client_that_takes_its_time(tmp_path: Path) -> None:
    batch = json.dumps([prepare(number, f"wide#{number}") for number in range(60)])
    request = (
        f"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(batch)}\r\nConnection: close\r\n\r\n{batch}"
    )
    async with web(tmp_path, exit_grace_seconds=0.02, spill_directory=None) as (world, client):
        loop = asyncio.get_running_loop()
        with await dial_tcp(world.address) as connected:
            await loop.sock_sendall(connected, request.encode())
            await eventually(lambda: len(world.store.reads) == 60 and world.gauge("requests_in_flight") == 0)
            # Others are answered, many times over the grace, before the client takes anything.
            for _ in range(60):
                assert (await post(client)).status_code == 200
            received = b""
            while data := await loop.sock_recv(connected, 1_000_000):
                received += data
    head, _, body = received.partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head.lower()
    assert len(json.loads(body)) == 60


async def test_closing_a_post_whose_answer_was_not_taken_removes_its_spills(tmp_path: Path) -> None:
    async with web(tmp_path) as (world, _):
        peer = await world.connect_http()
        batch = json.dumps([prepare(number, f"truncated#{number}") for number in range(40)])
        request = (
            f"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(batch)}\r\n\r\n{batch}"
        )
        with await dial_tcp(world.address) as connected:
            await asyncio.get_running_loop().sock_sendall(connected, request.encode())
            await eventually(lambda: len(spilled(tmp_path)) == 40)
            await eventually(lambda: world.gauge("requests_in_flight") == 0)
        await eventually(lambda: world.gauge("open_connections") == 0)
        await peer.nothing_more()
        assert spilled(tmp_path) == []


# WebSocket.


def connecting(
    world: World,
    subprotocols: list[str] | None = None,
    headers: dict[str, str] | None = None,
    origin: str | None = None,
    path: str = "/rpc",
) -> connect:
    return connect(
        f"ws://127.0.0.1:{world.address}{path}",
        proxy=None,
        compression=None,
        subprotocols=[Subprotocol(name) for name in subprotocols] if subprotocols else None,
        additional_headers=headers,
        origin=None if origin is None else Origin(origin),
        open_timeout=PATIENCE,
    )


async def status_of(connection: connect) -> int:
    """The status that a handshake was refused with, 101 if it was not."""
    try:
        async with connection:
            return 101
    except InvalidStatus as refusal:
        return refusal.response.status_code


async def test_a_websocket_needs_the_token_in_a_subprotocol_or_header(tmp_path: Path) -> None:
    async with web(tmp_path) as (world, _):
        assert await status_of(connecting(world, [f"sessionref.token.{TOKEN}"])) == 101
        assert await status_of(connecting(world, ["sessionref", f"sessionref.token.{TOKEN}"])) == 101
        assert await status_of(connecting(world, headers=BEARER)) == 101
        assert await status_of(connecting(world)) == 401
        assert await status_of(connecting(world, ["sessionref"])) == 401
        assert await status_of(connecting(world, [f"sessionref.token.{TOKEN}x"])) == 401
        assert await status_of(connecting(world, headers={"authorization": f"Bearer {TOKEN}x"})) == 401
        assert await status_of(connecting(world, headers=BEARER, path="/nothing")) in (403, 404)


async def test_a_websocket_of_another_origin_or_host_is_refused_with_or_without_the_token(tmp_path: Path) -> None:
    async with web(tmp_path) as (world, _):
        for origin in ("https://evil.example", "null"):
            assert await status_of(connecting(world, headers=BEARER, origin=origin)) == 403
            assert await status_of(connecting(world, origin=origin)) == 403
        assert await status_of(connecting(world, headers=BEARER, origin=ORIGIN)) == 101
        upgrade = (
            f"GET /rpc HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer {TOKEN}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert (await exchange(world.address, upgrade.encode())).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(("frame", "code"), [("binary", 1003), ("invalid", 1007), ("far too long", 1009)])
async def test_a_frame_that_cannot_be_a_message_closes_the_socket_with_its_code(
    tmp_path: Path, frame: str, code: int
) -> None:
    async with serving("websocket", tmp_path, max_message_bytes=1024) as world:
        peer, other = await world.connect_websocket(), await world.connect()
        if frame == "binary":
            await peer.connection.send(json.dumps(CALL).encode())
        elif frame == "invalid":
            await peer.connection.send(b'{"\xff":1}', text=True)
        else:
            await peer.connection.send("x" * 5000)
        with anyio.fail_after(PATIENCE):
            await peer.connection.wait_closed()
        assert peer.connection.close_code == code
        await other.nothing_more()


async def test_a_message_in_many_fragments_is_one_message(tmp_path: Path) -> None:
    text = json.dumps(prepare("ä", "small"), ensure_ascii=False)
    async with serving("websocket", tmp_path) as world:
        peer = await world.connect_websocket()
        await peer.connection.send(list(text))
        answer = await peer.receive()
    assert (answer["id"], code_of(answer)) == ("ä", None)


async def test_answers_are_text_frames(tmp_path: Path) -> None:
    async with serving("websocket", tmp_path) as world:
        peer = await world.connect_websocket()
        await peer.send(CALL)
        with anyio.fail_after(PATIENCE):
            assert isinstance(await peer.connection.recv(), str)


async def test_a_websocket_is_closed_in_order_by_either_side(tmp_path: Path) -> None:
    async with serving("websocket", tmp_path) as world:
        peer, other = await world.connect_websocket(), await world.connect_websocket()
        with anyio.fail_after(PATIENCE):
            await peer.connection.close(1001)
            await eventually(lambda: world.gauge("open_connections") == 1)
            await other.send({"jsonrpc": "2.0", "method": "exit"})
            with pytest.raises(ConnectionClosed):
                await other.connection.recv()
    assert other.connection.close_code == 1000


async def test_a_websocket_that_is_too_much_at_once_is_refused(tmp_path: Path) -> None:
    async with serving("websocket", tmp_path, max_connections=1) as world:
        peer = await world.connect()
        await peer.nothing_more()
        refused = connecting(world, headers=BEARER)
        status = await status_of(refused)
        assert world.gauge("refused_connections_total") == 1
        await peer.nothing_more()
    assert status == 503
