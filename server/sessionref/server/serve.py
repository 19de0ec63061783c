"""Running the service: its listeners and signals, and an end that nothing can hold up."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NoReturn

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from sessionref.protocol.errors import invalid_config
from sessionref.protocol.limits import Limits
from sessionref.server.engine import ConnectionEnd
from sessionref.server.logs import announce, logging_to_standard_error
from sessionref.server.private_folders import remove_private_folders
from sessionref.server.service import Service, logger
from sessionref.server.settings import Settings
from sessionref.server.store import SessionStore
from sessionref.server.transport import StreamTransport
from sessionref.server.transports.stdio import StandardStreams, claimed_standard_streams

__all__ = ("ServeOptions", "serve")

SWITCH_SECONDS: Final = 0.0005
"""How long a reading thread may keep the interpreter from the event loop, which may have a cancel to answer."""


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to listen on, and when to end; nothing to listen on means standard input and output."""

    stdio: bool = False
    unix: Path | None = None
    tcp: str | None = None
    http: str | None = None
    exit_with_stdin: bool = False
    token_file: Path | None = None
    origins: Sequence[str] = ()
    dsh_compat: bool = False
    log_level: str = "warning"
    warnings: Sequence[str] = ()
    """What a person should be told at the start."""

    @property
    def speaks_stdio(self) -> bool:
        """Whether standard input and output carry the protocol."""
        return self.stdio or not (self.unix or self.tcp or self.http)


def serve(stores: Sequence[SessionStore], settings: Settings, options: ServeOptions) -> NoReturn:
    """Serve until the end of standard input, a signal or `exit`, and end the process.

    Raises SessionReferenceError INVALID_CONFIG for what cannot be listened on.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    _open_standard_error()
    with logging_to_standard_error(options.log_level), ExitStack() as resources:
        for warning in options.warnings:
            logger.warning("%s", warning)
        # What was made so far stays: looking through it for garbage, again and again, only delays answers.
        gc.freeze()
        gc.enable()
        server = _Server(stores, settings, options, _Watchdog(settings.limits), resources)
        exit_code = anyio.run(server.run)
    # An ordinary end would wait for every thread, and for every lock that one holds: a read that hangs, a log that
    # nobody takes. Everything else that must be put in order has been.
    _end(exit_code)


def _end(exit_code: int) -> NoReturn:
    remove_private_folders()
    os._exit(exit_code)


class _Server:
    """One run of the service."""

    def __init__(
        self,
        stores: Sequence[SessionStore],
        settings: Settings,
        options: ServeOptions,
        watchdog: _Watchdog,
        resources: ExitStack,
    ) -> None:
        self._stores = stores
        self._settings = settings
        self._options = options
        self._watchdog = watchdog
        self._addresses: list[dict[str, Any]] = []
        self._exit_code = 0
        # Everything that can be refused is bound before the event loop begins.
        self._unix: socket.socket | None = None
        self._tcp: socket.socket | None = None
        self._http: tuple[socket.socket, str] | None = None
        self._standard_streams: tuple[int, int] | None = None
        self._bind(resources)

    async def run(self) -> int:
        service = Service(self._stores, self._settings)
        async with anyio.create_task_group() as tasks:
            await tasks.start(_stop_on_signal, service)
            if service.spills is not None:
                tasks.start_soon(_sweep, service)
            if self._unix is not None:
                tasks.start_soon(_accept, self._unix, service)
            if self._tcp is not None:
                tasks.start_soon(_accept, self._tcp, service)
            if self._http is not None:
                tasks.start_soon(self._serve_web, service, *self._http)
            if self._standard_streams is not None:
                tasks.start_soon(self._serve_standard_streams, service, *self._standard_streams)
            elif self._options.exit_with_stdin:
                tasks.start_soon(_stop_with_standard_input, service)
            tasks.start_soon(service.watch)
            self._announce()
            await service.until_stopping()
            self._watchdog.start(self._exit_code)
            await service.until_drained()
            tasks.cancel_scope.cancel()
        logger.info("%s", service.metrics.summary())
        return self._exit_code

    def _bind(self, resources: ExitStack) -> None:
        options = self._options
        if options.http is None and (options.origins or options.token_file or options.dsh_compat):
            raise invalid_config("an option of the web listener", "given together with --http", "the command line")
        if options.unix is not None or options.tcp is not None or options.http is not None:
            from sessionref.server.transports.sockets import tcp_listener, unix_listener

            if options.unix is not None:
                self._unix = resources.enter_context(unix_listener(options.unix))
                self._addresses.append({"transport": "unix", "path": os.fspath(options.unix)})
            if options.tcp is not None:
                self._tcp = resources.enter_context(tcp_listener(options.tcp, "--tcp"))
                host, port = self._tcp.getsockname()[:2]
                self._addresses.append({"transport": "tcp", "host": host, "port": port})
            if options.http is not None:
                from sessionref.server.transports.web_access import check_origins, read_token

                _require_web_packages()
                check_origins(options.origins)
                listener = resources.enter_context(tcp_listener(options.http, "--http"))
                token = read_token(options.token_file)
                self._http = listener, token
                self._addresses.append(_web_address(listener, None if options.token_file else token))
        if options.speaks_stdio:
            try:
                self._standard_streams = resources.enter_context(claimed_standard_streams())
            except OSError:
                raise invalid_config("standard input and output", "open", "the process") from None
            self._addresses.insert(0, {"transport": "stdio"})

    def _announce(self) -> None:
        """Print the addresses, where they cannot get into the protocol."""
        line = json.dumps({"listening": self._addresses})
        if self._options.speaks_stdio:
            announce(line)
        else:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    async def _serve_standard_streams(self, service: Service, reading: int, writing: int) -> None:
        limits = self._settings.limits
        streams = StandardStreams(reading, writing, chunk_bytes=limits.read_chunk_bytes)

        def stop(end: ConnectionEnd) -> None:
            self._exit_code = _exit_code(end)
            service.stop()

        transport = StreamTransport(streams, limits, lenient=True)
        await service.run(service.connection(transport, on_ending=stop))

    async def _serve_web(self, service: Service, listener: socket.socket, token: str) -> None:
        from sessionref.server.transports.web import serve_web, web_application
        from sessionref.server.transports.web_access import WebAccess

        access = WebAccess(token, self._options.origins, host=listener.getsockname()[0])
        application = web_application(service, access, dsh_compat=self._options.dsh_compat)
        await serve_web(application, listener, service)


def _web_address(listener: socket.socket, token: str | None) -> dict[str, Any]:
    """Where the web listener is; the URL carries a token that was made here in its fragment, which is never sent."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}/" + ("" if token is None else f"#token={token}")
    return {"transport": "http", "host": host, "port": port, "url": url}


def _require_web_packages() -> None:
    try:
        from sessionref.server.transports import web

        del web
    except ModuleNotFoundError as error:
        rule = f"served by installed packages, and {error.name} is missing: install sessionref[http]"
        raise invalid_config("HTTP", rule, "--http") from None


def _open_standard_error() -> None:
    """Give a process that was started without standard error an empty one, so that nothing else gets its number."""
    try:
        os.fstat(2)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        if null != 2:
            os.dup2(null, 2)
            os.close(null)
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _exit_code(end: ConnectionEnd) -> int:
    """The exit code for the end of standard input: as in LSP, and 1 where the input made no sense any more."""
    return 1 if end in (ConnectionEnd.EXIT_ALONE, ConnectionEnd.UNREADABLE) else 0


async def _accept(listener: socket.socket, service: Service) -> None:
    """Serve every connection of a listening socket until the service stops."""
    from sessionref.server.transports.sockets import SocketStream, accept_connections

    limits = service.settings.limits

    async def serve_one(connected: socket.socket) -> None:
        transport = StreamTransport(SocketStream(connected, chunk_bytes=limits.read_chunk_bytes), limits)
        await service.run(service.connection(transport))

    await accept_connections(listener, serve_one, service.until_stopping)


async def _stop_on_signal(
    service: Service, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    with anyio.open_signal_receiver(*(getattr(signal, name) for name in names if hasattr(signal, name))) as signals:
        task_status.started()
        async for _ in signals:
            service.stop()


async def _stop_with_standard_input(service: Service) -> None:
    """Stop when nobody holds the other end of standard input any more."""
    streams = StandardStreams(0, 1, chunk_bytes=service.settings.limits.read_chunk_bytes)
    while await streams.receive_some():
        pass
    service.stop()


async def _sweep(service: Service) -> None:
    if service.spills is not None:
        days = service.settings.cleanup_period_days
        await anyio.to_thread.run_sync(service.spills.sweep, days, abandon_on_cancel=True)


class _Watchdog:
    """Ends the process when its drain is over, hung reads or a blocked loop or not."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def start(self, exit_code: int) -> None:
        """Begin to count: the drain, and most of the grace after it."""
        seconds = self._limits.drain_seconds + 0.9 * self._limits.exit_grace_seconds
        timer = threading.Timer(seconds, _end, [exit_code])
        timer.daemon = True
        timer.start()
