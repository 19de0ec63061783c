"""Ways to a server: a process of one's own over its standard streams."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import anyio
import anyio.abc
from anyio.streams.stapled import StapledByteStream

from sessionref.client.background import background
from sessionref.client.client import Client
from sessionref.client.failures import CloseReason, ConnectionClosedError, PeerEvidence, one_line
from sessionref.client.limits import DEFAULT_LIMITS, ClientLimits
from sessionref.client.server_log import ServerLog
from sessionref.client.streams import STREAM_FAULTS, LineStream
from sessionref.protocol.errors import ErrorCode, RpcError, SessionReferenceError
from sessionref.protocol.methods import EXIT, SHUTDOWN

__all__ = ("spawn",)

logger = logging.getLogger(__name__)

START_SECONDS: Final = 30.0
"""A cold start from a network drive, below a virus scanner; a warm one takes a fraction of a second."""

_CONFIGURATION_EXIT_CODE: Final = 2
_INVALID_CONFIG: Final = re.compile(rf"{ErrorCode.INVALID_CONFIG}: (.*)")


@asynccontextmanager
async def spawn(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    on_log: Callable[[str], None] | None = None,
    start_seconds: float = START_SECONDS,
    limits: ClientLimits = DEFAULT_LIMITS,
) -> AsyncGenerator[Client, None]:
    """Start a server that speaks on its standard streams, and end it with the context.

    `env` is the whole environment, None this process's own. `on_log` gets each line of the server's standard error.
    The server must answer `initialize` within `start_seconds`. Raises SessionReferenceError INVALID_CONFIG if it
    refuses its settings, and ConnectionClosedError if it cannot be started, dies or does not answer; what the body
    raises comes out as it is. Leaving takes bounded time, cancelled or not: `shutdown` and `exit`, the end of its
    input, then signals.
    """
    try:
        # A list, because a string would be given to a shell.
        process = await anyio.open_process(list(command), env=env, cwd=cwd)
    except OSError as error:
        raise ConnectionClosedError(CloseReason.NOT_STARTED) from error
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    log = ServerLog(on_log, limits)
    stream = _ProcessStream(process, StapledByteStream(process.stdin, process.stdout), log, limits)
    async with background(partial(log.drain, process.stderr), stream.watch):
        try:
            async with Client(stream, evidence=stream.evidence, limits=limits) as client:
                await _introduce(client, log, start_seconds)
                try:
                    yield client
                finally:
                    await _say_goodbye(client, limits)
        finally:
            await _stop(process, log, limits)


class _ProcessStream(LineStream):
    """The standard streams of a process, whose end waits for the exit code and the last of the log."""

    def __init__(
        self, process: anyio.abc.Process, stream: anyio.abc.ByteStream, log: ServerLog, limits: ClientLimits
    ) -> None:
        super().__init__(stream, limits)
        self._process = process
        self._log = log
        self._output = stream
        self._ended = anyio.Event()
        self._reap_seconds = limits.reap_seconds

    def evidence(self) -> PeerEvidence:
        """What is known by now."""
        return PeerEvidence(self._process.returncode, self._log.tail)

    async def receive(self) -> bytes:
        """The next line, as in the base."""
        try:
            return await super().receive()
        except anyio.EndOfStream:
            self._ended.set()
            with anyio.move_on_after(self._reap_seconds):
                await self._process.wait()
                await self._log.drained.wait()
            raise

    async def watch(self) -> None:
        """Close the streams soon after the end of the process: a child of its own may hold them open for ever."""
        await self._process.wait()
        with anyio.move_on_after(self._reap_seconds):
            await self._ended.wait()
        with suppress(*STREAM_FAULTS):
            await self._output.aclose()


async def _introduce(client: Client, log: ServerLog, start_seconds: float) -> None:
    try:
        with anyio.fail_after(start_seconds):
            await client.initialize()
    except TimeoutError:
        raise ConnectionClosedError(CloseReason.TIMED_OUT, PeerEvidence(stderr_tail=log.tail)) from None
    except ConnectionClosedError as error:
        refusal = _INVALID_CONFIG.search(error.stderr_tail)
        if error.exit_code == _CONFIGURATION_EXIT_CODE and refusal is not None:
            raise SessionReferenceError(ErrorCode.INVALID_CONFIG, one_line(refusal[1])) from error
        raise


async def _say_goodbye(client: Client, limits: ClientLimits) -> None:
    with anyio.move_on_after(limits.goodbye_seconds, shield=True), suppress(ConnectionClosedError):
        with suppress(RpcError):
            await client.request(SHUTDOWN)
        await client.notify(EXIT)


async def _stop(process: anyio.abc.Process, log: ServerLog, limits: ClientLimits) -> None:
    """See the process end, its input being closed: by itself, else by signals."""
    steps: tuple[tuple[Callable[[], None] | None, float], ...] = (
        (None, limits.exit_seconds),
        (process.terminate, limits.terminate_seconds),
        (process.kill, limits.kill_seconds),
    )
    with anyio.CancelScope(shield=True):
        for signal, seconds in steps:
            if signal is not None:
                with suppress(ProcessLookupError):
                    signal()
            with anyio.move_on_after(seconds):
                await process.wait()
                break
        else:
            # Closing it would wait for its end without a bound.
            logger.error("the server process could not be killed")
            return
        with anyio.move_on_after(limits.reap_seconds):
            await log.drained.wait()
        await process.aclose()
