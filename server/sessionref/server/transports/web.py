"""The HTTP listener: `POST /rpc`, WebSocket `/rpc`, health, metrics and documents, on starlette and uvicorn.

JSON-RPC errors come with status 200; 400 and above are faults of the transport. Imported only with `--http`.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Generator
from functools import partial
from typing import Any

import anyio
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from sessionref.protocol.jsontext import JsonError
from sessionref.protocol.schema import openrpc_document
from sessionref.server.service import MAX_CONNECTIONS, Service
from sessionref.server.transports.dsh_compat import CANDIDATES_PATH, BadEnvelope, read_envelope, write_envelope
from sessionref.server.transports.web_access import SUBPROTOCOL, WebAccess
from sessionref.server.transports.web_deadline import HeadDeadlineProtocol
from sessionref.server.transports.web_messages import (
    BodyTooLong,
    PostTransport,
    WebSocketTransport,
    read_body,
    send_json,
    until_disconnected,
)

__all__ = ("serve_web", "web_application")

_PREFLIGHT_SECONDS = "600"


def web_application(service: Service, access: WebAccess, *, dsh_compat: bool) -> ASGIApp:
    """The ASGI application over a service."""
    endpoints = _Endpoints(service, access)
    routes: list[BaseRoute] = [
        Route("/rpc", _Raw(endpoints.post), methods=["POST"]),
        WebSocketRoute("/rpc", endpoints.websocket),
        Route("/healthz", endpoints.health),
        Route("/openrpc.json", endpoints.openrpc),
        Route("/metrics", endpoints.metrics),
    ]
    if dsh_compat:
        routes.append(Route(CANDIDATES_PATH, _Raw(endpoints.dsh_candidates)))
    application = Starlette(routes=routes)
    application.router.redirect_slashes = False
    return _Gate(application, access)


async def serve_web(application: ASGIApp, listener: socket.socket, service: Service) -> None:
    """Serve an application on a listening socket until the service stops."""
    limits = service.settings.limits
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    config = uvicorn.Config(
        application,
        http=HeadDeadlineProtocol,
        ws="websockets-sansio",
        # A longer frame closes the socket; up to there it is read, refused by us, and the connection goes on.
        ws_max_size=limits.skip_factor * limits.max_message_bytes,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        limit_concurrency=MAX_CONNECTIONS,
    )
    server = _Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_with, service, server)
        await server.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


async def _stop_with(service: Service, server: uvicorn.Server) -> None:
    # Not before the drain: it closes WebSockets without asking.
    await service.until_stopping()
    await service.until_drained()
    server.should_exit = True


def _is_news(record: logging.LogRecord) -> bool:
    """Leave out that uvicorn serves, which we say ourselves, and that a refused handshake was not completed."""
    return record.levelno >= logging.WARNING and "without completing handshake" not in record.getMessage()


class _Server(uvicorn.Server):
    """A server that leaves signals to the process that it is a part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Raw:
    """An endpoint that answers over raw ASGI, so that it knows whether its answer was taken."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._handle(Request(scope, receive, send), send)


class _Gate:
    """Host and origin of every request are checked before anything else looks at it."""

    def __init__(self, application: ASGIApp, access: WebAccess) -> None:
        self._application = application
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", [])}
        origin = headers.get("origin")
        if scope["type"] not in ("http", "websocket"):
            await self._application(scope, receive, send)
        elif not self._access.allows_host(headers.get("host")):
            await _refuse(scope, receive, send, 403, "this host is not served")
        elif not self._access.allows_origin(origin):
            await _refuse(scope, receive, send, 403, "this origin is not allowed")
        elif scope["type"] == "websocket" or origin is None:
            await self._application(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            await _preflight(origin, headers)(scope, receive, send)
        else:
            await self._application(scope, receive, _with_headers(send, _cross_origin(origin)))


class _Endpoints:
    def __init__(self, service: Service, access: WebAccess) -> None:
        self._service = service
        self._access = access

    async def post(self, request: Request, send: Send) -> None:
        """JSON-RPC over one POST; closing the request cancels it."""
        if not self._access.allows_token(request.headers.get("authorization")):
            await _unauthorised()(request.scope, request.receive, send)
            return
        body = await self._json_body(request, send)
        if body is not None:
            await self._exchange(request, send, PostTransport(body, send))

    async def dsh_candidates(self, request: Request, send: Send) -> None:
        """DSH's envelope over one POST; any other method is not found, as DSH has it."""
        if request.method != "POST":
            await PlainTextResponse("Not Found", 404)(request.scope, request.receive, send)
            return
        body = await self._json_body(request, send)
        if body is None:
            return
        try:
            call = read_envelope(body)
        except JsonError:
            await PlainTextResponse("the body is not JSON", 400)(request.scope, request.receive, send)
        except BadEnvelope as error:
            await send_json(send, error.answer)
        else:
            form = partial(write_envelope, call.rpc_id)
            await self._exchange(request, send, PostTransport(call.request, send, form))

    async def websocket(self, socket: WebSocket) -> None:
        """JSON-RPC over text frames."""
        offered: list[str] = list(socket.scope.get("subprotocols", []))
        if not self._access.allows_token(socket.headers.get("authorization"), offered):
            await socket.send_denial_response(_unauthorised())
            return
        if self._refuses():
            await socket.send_denial_response(_unavailable())
            return
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        transport = WebSocketTransport(socket, self._service.settings.limits)
        await self._service.run(self._service.connection(transport))

    async def health(self, request: Request) -> Response:
        """Whether the service answers."""
        return JSONResponse({"status": "stopping" if self._service.is_stopping else "ok"})

    async def openrpc(self, request: Request) -> Response:
        """The OpenRPC document."""
        return JSONResponse(openrpc_document())

    async def metrics(self, request: Request) -> Response:
        """Prometheus text."""
        if not self._access.allows_token(request.headers.get("authorization")):
            return _unauthorised()
        return PlainTextResponse(self._service.prometheus(), media_type="text/plain; version=0.0.4")

    def _refuses(self) -> bool:
        """Whether one more connection is too many, or too late; then it is counted as refused."""
        refuses = self._service.is_full or self._service.is_stopping
        if refuses:
            self._service.refuse()
        return refuses

    async def _json_body(self, request: Request, send: Send) -> bytes | None:
        """The body, or None after its refusal was sent."""
        refusal: Response
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            refusal = PlainTextResponse("the content type must be application/json", 415)
        else:
            try:
                return await read_body(request, self._service.settings.max_message_bytes)
            except ClientDisconnect:
                return None
            except BodyTooLong:
                # The rest of the body is not read, so the connection cannot go on.
                refusal = PlainTextResponse("the body is too long", 413, {"connection": "close"})
        await refusal(request.scope, request.receive, send)
        return None

    async def _exchange(self, request: Request, send: Send, transport: PostTransport) -> None:
        if self._refuses():
            await _unavailable()(request.scope, request.receive, send)
            return
        limits = self._service.settings.limits
        # The one message is the whole input: its requests end by their own time-out, not by a drain after it.
        patient = msgspec.structs.replace(limits, drain_seconds=limits.request_timeout_seconds + 1)
        connection = self._service.connection(transport, limits=patient, can_exit=False)
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await until_disconnected(request)
                transport.is_gone = True
                connection.disconnect()

            tasks.start_soon(watch)
            await self._service.run(connection)
            tasks.cancel_scope.cancel()
        if not transport.has_answered:
            await Response(status_code=204)(request.scope, request.receive, send)


def _unavailable() -> Response:
    return PlainTextResponse("no more requests are taken now", 503)


def _unauthorised() -> Response:
    return PlainTextResponse("a bearer token is needed", 401, {"www-authenticate": "Bearer"})


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, reason: str) -> None:
    response = PlainTextResponse(reason, status)
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)


def _cross_origin(origin: str) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"origin")]


def _preflight(origin: str, headers: dict[str, str]) -> Response:
    response = Response(status_code=204)
    response.headers["access-control-allow-origin"] = origin
    response.headers["vary"] = "origin"
    response.headers["access-control-allow-methods"] = "GET, POST"
    response.headers["access-control-allow-headers"] = "authorization, content-type"
    response.headers["access-control-max-age"] = _PREFLIGHT_SECONDS
    if headers.get("access-control-request-private-network") == "true":
        response.headers["access-control-allow-private-network"] = "true"
    return response


def _with_headers(send: Send, headers: list[tuple[bytes, bytes]]) -> Send:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *headers]}
        await send(message)

    return sending
