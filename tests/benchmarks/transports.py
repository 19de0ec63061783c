"""`python tests/benchmarks/transports.py [--quick]`: what the transports cost, against a reference server each.

The reference runs over the same transport with one anyio task and CancelScope a request, jsonrpcserver called
synchronously (`engineering.md` B.1, way B) and an empty handler. Figures are printed, nothing is asserted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
import msgspec
from anyio.abc import ObjectReceiveStream, ObjectSendStream

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.figures import Measure, percentile, print_measure
from benchmarks.homes import tool_output_lines, write_log
from sessionref.protocol.framing import FrameEvent, Message
from sessionref.protocol.methods import PREPARE
from sessionref.server.serve import SWITCH_SECONDS
from sessionref.server.service import Service
from sessionref.server.settings import Settings
from sessionref.server.stores.dsh import DshStore

TRANSPORTS: Final = ("unix", "tcp", "websocket")
IN_FLIGHT: Final = 64
TARGET_RATIO: Final = 1.5
TICK_SECONDS: Final = 0.001
CANCELLED: Final = -32800
SECONDS: Final = 60.0
"""How long a server may take for anything before the benchmark gives up."""


# Channels: the client side, blocking and as cheap as it can be.


class Channel:
    """Whole messages over two descriptors, newline-delimited; or as WebSocket frames over one socket."""

    def __init__(self, reading: Any, send: Callable[[bytes], None], receive: Callable[[], bytes]) -> None:
        self._reading = reading
        self._write = send
        self._read = receive
        self._buffer = bytearray()

    def send(self, *messages: bytes) -> None:
        """Send messages in one piece."""
        self._write(b"".join(map(self._frame, messages)))

    def receive(self) -> bytes:
        """The next message."""
        while (message := self._next()) is None:
            data = self._read()
            if not data:
                raise RuntimeError("the server ended")
            self._buffer += data
        return message

    def silent_for(self, seconds: float) -> bool:
        """Wait that long, or until something can be read; returns whether nothing could."""
        if self._buffer:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._reading, selectors.EVENT_READ)
            return not selector.select(seconds)

    def _frame(self, message: bytes) -> bytes:
        return message + b"\n"

    def _next(self) -> bytes | None:
        end = self._buffer.find(b"\n")
        if end < 0:
            return None
        message = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return message


class WebSocketChannel(Channel):
    """Text frames; masked with zeros, which costs nothing and is as valid as any mask."""

    def handshake(self, port: int, token: str) -> None:
        """Upgrade the connection."""
        head = (
            f"GET /rpc HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"Authorization: Bearer {token}\r\n\r\n"
        )
        self._write(head.encode())
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += self._read()
        answer, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        if b" 101 " not in answer:
            raise RuntimeError(answer.decode("latin-1"))
        self._buffer = bytearray(rest)

    def _frame(self, message: bytes) -> bytes:
        length = len(message)
        size = bytes([0x80 | length]) if length < 126 else b"\xfe" + length.to_bytes(2, "big")
        return b"\x81" + size + b"\0\0\0\0" + message

    def _next(self) -> bytes | None:
        while len(self._buffer) >= 2:
            length, start = self._buffer[1], 2
            if length >= 126:
                start = 4 if length == 126 else 10
                length = int.from_bytes(self._buffer[2:start], "big")
            if len(self._buffer) < start + length or (start > 2 and len(self._buffer) < start):
                return None
            opcode, message = self._buffer[0] & 15, bytes(self._buffer[start : start + length])
            del self._buffer[: start + length]
            if opcode == 1:
                return message
            if opcode == 9:
                # A peer that answers no ping is taken for dead after some seconds.
                self._write(b"\x8a" + bytes([0x80 | length]) + b"\0\0\0\0" + message)
        return None


def _over(connected: socket.socket, kind: type[Channel] = Channel) -> Any:
    connected.settimeout(SECONDS)
    return kind(connected, connected.sendall, lambda: connected.recv(1_048_576))


# Servers.


class Server:
    """A server process over some of the transports, and how to reach it."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.addresses = {row["transport"]: row for row in json.loads(self._process.stdout.readline())["listening"]}

    @property
    def resident_bytes(self) -> int:
        """The memory that the process has now."""
        text = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+([0-9]+) kB", text)
        return 0 if found is None else 1024 * int(found[1])

    @contextmanager
    def channel(self, transport: str) -> Generator[Channel]:
        """A connection over a transport."""
        if transport == "unix":
            with socket.socket(socket.AF_UNIX) as connected:
                connected.connect(self.addresses["unix"]["path"])
                yield _over(connected)
            return
        row = self.addresses["http" if transport == "websocket" else transport]
        with socket.create_connection((row["host"], row["port"])) as connected:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if transport == "tcp":
                yield _over(connected)
                return
            channel = _over(connected, WebSocketChannel)
            channel.handshake(row["port"], row["url"].partition("#token=")[2])
            yield channel

    def end(self) -> None:
        """End the process."""
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=SECONDS)


def _command(home: Path) -> list[str]:
    """Our server without its catalogue, which would keep what it has read, and without spills."""
    options = ["--store", f"dsh:{home}", "--catalog", "off", "--spill-directory", "off"]
    return [sys.executable, "-m", "sessionref.server", "serve", *options]


@contextmanager
def our_server(folder: Path, home: Path) -> Generator[Server]:
    """This project's server over all transports."""
    arguments = ["--unix", str(folder / "ours"), "--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    server = Server([*_command(home), *arguments])
    try:
        yield server
    finally:
        server.end()


@contextmanager
def reference_server(folder: Path) -> Generator[Server]:
    """The reference over all transports."""
    server = Server([sys.executable, __file__, "--serve-reference", str(folder / "reference")])
    try:
        yield server
    finally:
        server.end()


@contextmanager
def stdio_channel(home: Path) -> Generator[Channel]:
    """A server of ours that is spoken to over pipes."""
    process = subprocess.Popen(
        [*_command(home), "--stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    writing, reading = process.stdin.fileno(), process.stdout.fileno()

    def send(data: bytes) -> None:
        while data:
            data = data[os.write(writing, data) :]

    try:
        yield Channel(reading, send, lambda: os.read(reading, 1_048_576))
    finally:
        process.communicate(timeout=SECONDS)


# The reference server.


def _same(value: Any) -> Any:
    return value


class _Reference:
    """One task and scope a request, answers joined by one writer; nothing else."""

    def __init__(self) -> None:
        from jsonrpcserver import Success, dispatch_to_response

        async def empty() -> dict[str, Any]:
            return {}

        def prepare(agentId: str, content: Any) -> Any:
            return Success(empty)

        self._methods: dict[str, Callable[..., Any]] = {PREPARE: prepare}
        self._dispatch_to_response = dispatch_to_response

    async def serve(
        self, receive: Callable[[], Any], send: Callable[[list[bytes]], Any], tasks: anyio.abc.TaskGroup
    ) -> None:
        waiting: deque[bytes] = deque()
        arrived = anyio.Event()

        async def write() -> None:
            nonlocal arrived
            while True:
                if not waiting:
                    arrived = anyio.Event()
                    await arrived.wait()
                messages = list(waiting)
                waiting.clear()
                await send(messages)

        async def run(identity: Any, thunk: Callable[[], Any]) -> None:
            with anyio.CancelScope():
                result = await thunk()
                waiting.append(msgspec.json.encode({"jsonrpc": "2.0", "id": identity, "result": result}))
                arrived.set()

        tasks.start_soon(write)
        while messages := await receive():
            for message in messages:
                request = msgspec.json.decode(message)
                response: Any = self._dispatch_to_response(request, self._methods, deserializer=_same, validator=_same)
                tasks.start_soon(run, request["id"], response._value.result)
        tasks.cancel_scope.cancel()


async def _serve_reference(path: str) -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import WebSocketRoute
    from starlette.websockets import WebSocket, WebSocketDisconnect

    reference = _Reference()

    async def over_stream(stream: anyio.abc.SocketStream) -> None:
        buffer = bytearray()

        async def receive() -> list[bytes]:
            while True:
                try:
                    buffer.extend(await stream.receive(262_144))
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return []
                *lines, rest = bytes(buffer).split(b"\n")
                if lines:
                    buffer[:] = rest
                    return lines

        async def send(messages: list[bytes]) -> None:
            await stream.send(b"".join(message + b"\n" for message in messages))

        async with stream, anyio.create_task_group() as tasks:
            await reference.serve(receive, send, tasks)

    async def over_websocket(websocket: WebSocket) -> None:
        await websocket.accept()

        async def receive() -> list[bytes]:
            try:
                return [(await websocket.receive_text()).encode()]
            except WebSocketDisconnect:
                return []

        async def send(messages: list[bytes]) -> None:
            for message in messages:
                await websocket.send_text(message.decode())

        async with anyio.create_task_group() as tasks:
            await reference.serve(receive, send, tasks)

    class Quiet(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None]:
            yield

    unix = await anyio.create_unix_listener(path)
    tcp = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = tcp.extra(anyio.abc.SocketAttribute.local_port)
    web = socket.create_server(("127.0.0.1", 0))
    application = Starlette(routes=[WebSocketRoute("/rpc", over_websocket)])
    config = uvicorn.Config(
        application, ws="websockets-sansio", ws_per_message_deflate=False, lifespan="off", log_config=None
    )
    http_port: int = web.getsockname()[1]
    listening = [
        {"transport": "unix", "path": path},
        {"transport": "tcp", "host": "127.0.0.1", "port": port},
        {"transport": "http", "host": "127.0.0.1", "port": http_port, "url": "#token=none"},
    ]
    print(json.dumps({"listening": listening}), flush=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(unix.serve, over_stream)
        tasks.start_soon(tcp.serve, over_stream)
        tasks.start_soon(Quiet(config).serve, [web])


# Round trips.


def _plain(number: int) -> bytes:
    params = {"agentId": "agent", "content": "a text without a mention"}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "method": PREPARE, "params": params})


def _round_trips(channel: Channel, count: int) -> list[float]:
    taken: list[float] = []
    for number in range(count):
        message = _plain(number)
        began = time.perf_counter()
        channel.send(message)
        channel.receive()
        taken.append(time.perf_counter() - began)
    return taken


def _pipelined(channel: Channel, count: int) -> float:
    """Requests a second with 64 in flight."""
    numbers = itertools.count()
    began = time.perf_counter()
    channel.send(*(_plain(next(numbers)) for _ in range(IN_FLIGHT)))
    for _ in range(count):
        channel.receive()
        channel.send(_plain(next(numbers)))
    seconds = time.perf_counter() - began
    for _ in range(IN_FLIGHT):
        channel.receive()
    return count / seconds


def measure_round_trips(folder: Path, quick: bool) -> Measure:
    """Ours and the reference by turns; the best round of each counts, so that other work of the machine does not."""
    rounds, trips, pipelined = (2, 300, 1500) if quick else (5, 1500, 8000)
    rows: list[list[str]] = []
    (folder / "empty").mkdir()
    with our_server(folder, folder / "empty") as ours, reference_server(folder) as reference:
        for transport in TRANSPORTS:
            best: dict[Server, list[float]] = {}
            for _, server in itertools.product(range(rounds), (ours, reference)):
                with server.channel(transport) as channel:
                    _round_trips(channel, 100)
                    taken = _round_trips(channel, trips)
                    figures = [percentile(taken, 50), percentile(taken, 99), 1 / _pipelined(channel, pipelined)]
                before = best.setdefault(server, figures)
                best[server] = [min(pair) for pair in zip(before, figures, strict=True)]
            ratios = [mine / theirs for mine, theirs in zip(best[ours], best[reference], strict=True)]
            for name, server in (("ours", ours), ("reference", reference)):
                p50, p99, each = best[server]
                rows.append([transport, name, f"{p50 * 1e6:.0f}", f"{p99 * 1e6:.0f}", f"{1 / each:.0f}", ""])
            verdict = "met" if max(ratios) <= TARGET_RATIO else "MISSED"
            rows.append([transport, "ratio", *(f"{ratio:.2f}" for ratio in ratios), verdict])
    notes = [f"{rounds} rounds by turns, the best of each figure; the ratio counts costs; target {TARGET_RATIO}"]
    return Measure(
        f"prepare of a plain text, {IN_FLIGHT} in flight",
        ["TRANSPORT", "SERVER", "P50 us", "P99 us", "REQUESTS/S", "TARGET"],
        rows,
        notes,
    )


def measure_memory(folder: Path, quick: bool) -> Measure:
    """Resident memory after many requests against that after a tenth of them."""
    few, many = (1_000, 10_000) if quick else (10_000, 100_000)
    rows: list[list[str]] = []
    (folder / "empty").mkdir()
    for transport in TRANSPORTS:
        with our_server(folder, folder / "empty") as server, server.channel(transport) as channel:
            _pipelined(channel, few)
            early = server.resident_bytes
            _pipelined(channel, many - few)
            late = server.resident_bytes
        grown = (late - early) / 1e6
        verdict = "met" if grown <= 5 else "MISSED"
        rows.append([transport, f"{early / 1e6:.1f}", f"{late / 1e6:.1f}", f"{grown:+.1f}", verdict])
    title = f"resident memory after {few} and {many} requests"
    return Measure(title, ["TRANSPORT", "EARLY MB", "LATE MB", "GROWN MB", "TARGET 5 MB"], rows)


# Cancelling.


def _reading(number: int) -> bytes:
    params = {"agentId": "agent", "content": "go on", "references": [{"sessionId": "large"}], "preview": True}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "method": PREPARE, "params": params})


def _cancel_times(channel: Channel, count: int) -> tuple[list[float], int, float]:
    """Seconds from cancel to answer, how many answers came before their cancel, and how long a whole read takes."""
    moments, taken, too_late, whole = random.Random(1), list[float](), 0, SECONDS
    for number in range(3):
        began = time.perf_counter()
        channel.send(_reading(number))
        answer = json.loads(channel.receive())
        if "result" not in answer:
            raise RuntimeError(f"the log cannot be read: {answer}")
        whole = min(whole, time.perf_counter() - began)
    number = 10
    while len(taken) < count:
        number += 1
        channel.send(_reading(number))
        silent = channel.silent_for(moments.uniform(0.1, 0.8) * whole)
        began = time.perf_counter()
        cancelling = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": number}}
        channel.send(msgspec.json.encode(cancelling))
        answer = json.loads(channel.receive())
        if silent and answer.get("error", {}).get("code") == CANCELLED:
            taken.append(time.perf_counter() - began)
        else:
            too_late += 1
    return taken, too_late, whole


def measure_cancels(folder: Path, quick: bool) -> Measure:
    """Cancels at moments all over the read of one large log, over every transport but HTTP."""
    size, count = (10_000_000, 20) if quick else (100_000_000, 100)
    home = folder / "home"
    write_log(home, "large", tool_output_lines(size))
    rows: list[list[str]] = []

    def add(transport: str, channel: Channel) -> None:
        taken, too_late, whole = _cancel_times(channel, count)
        p95 = percentile(taken, 95)
        figures = [f"{1000 * value:.1f}" for value in (percentile(taken, 50), p95, max(taken))]
        verdict = "met" if p95 <= 0.020 else "MISSED"
        rows.append([transport, str(len(taken)), *figures, f"{1000 * whole:.0f}", str(too_late), verdict])

    with stdio_channel(home) as channel:
        add("stdio", channel)
    with our_server(folder, home) as server:
        for transport in TRANSPORTS:
            with server.channel(transport) as channel:
                add(transport, channel)
    headings = ["TRANSPORT", "SAMPLES", "P50 ms", "P95 ms", "MAX ms", "WHOLE READ ms", "TOO LATE", "TARGET P95 20 ms"]
    return Measure(f"cancel to answer while {size // 10**6} MB are read", headings, rows)


def measure_lags(folder: Path, quick: bool) -> Measure:
    """How late the event loop is while a large log is read, plain and such that every line must be repaired."""
    size, repeats = (10_000_000, 3) if quick else (100_000_000, 5)
    rows: list[list[str]] = []
    for name, lines, target in (
        ("plain", tool_output_lines(size), 0.010),
        ("lone surrogates in every line", _with_surrogates(tool_output_lines(size)), 0.050),
    ):
        home = folder / name.partition(" ")[0]
        write_log(home, "large", lines)
        lags, taken = anyio.run(_lags, home, repeats)
        p99 = percentile(lags, 99)
        figures = [f"{1000 * value:.1f}" for value in (percentile(lags, 50), p99, max(lags))]
        verdict = "met" if p99 <= target else "MISSED"
        rows.append([name, str(len(lags)), *figures, f"{1000 * taken:.0f}", f"{1000 * target:.0f}", verdict])
    headings = ["LOG", "SAMPLES", "P50 ms", "P99 ms", "MAX ms", "READ ms", "TARGET P99 ms", ""]
    notes = [f"lag: how much later than asked a sleep of {TICK_SECONDS * 1000:.0f} ms ends, in the server's process"]
    return Measure(f"event loop lag while {size // 10**6} MB are read", headings, rows, notes)


def _with_surrogates(lines: Iterable[bytes]) -> Iterable[bytes]:
    return (line.replace(b'"text":"', b'"text":"\\ud83d ', 1) for line in lines)


class _InProcess:
    """A transport in memory, so that no peer's work is measured."""

    def __init__(self, questions: ObjectReceiveStream[bytes], answers: ObjectSendStream[bytes]) -> None:
        self._questions = questions
        self._answers = answers

    async def receive(self) -> FrameEvent | None:
        """The next question."""
        return Message(await self._questions.receive())

    async def send(self, messages: Sequence[bytes]) -> None:
        """Hand answers over."""
        for message in messages:
            await self._answers.send(message)

    def has_ended(self) -> bool:
        """Not known."""
        return False

    async def aclose(self) -> None:
        """Nothing is held."""


async def _lags(home: Path, repeats: int) -> tuple[list[float], float]:
    # As `serve` does it.
    sys.setswitchinterval(SWITCH_SECONDS)
    service = Service([DshStore(home)], Settings())
    asking, questions = anyio.create_memory_object_stream[bytes]()
    answers, answered = anyio.create_memory_object_stream[bytes]()
    lags: list[float] = []
    fastest = SECONDS

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await anyio.sleep(TICK_SECONDS)
            lags.append(time.perf_counter() - began - TICK_SECONDS)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.run, service.connection(_InProcess(questions, answers)))
        tasks.start_soon(tick)
        for number in range(repeats):
            began = time.perf_counter()
            await asking.send(_reading(number))
            if b'"result"' not in await answered.receive():
                raise RuntimeError("the log cannot be read")
            fastest = min(fastest, time.perf_counter() - began)
        tasks.cancel_scope.cancel()
    return lags, fastest


MEASURES: Final[dict[str, Callable[[Path, bool], Measure]]] = {
    "round-trips": measure_round_trips,
    "memory": measure_memory,
    "cancel": measure_cancels,
    "lag": measure_lags,
}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure the transports against a reference server.")
    parser.add_argument("--quick", action="store_true", help="smaller logs and fewer requests: shows that all runs")
    parser.add_argument("--only", action="append", choices=MEASURES, metavar="NAME", help=", ".join(MEASURES))
    parser.add_argument("--serve-reference", metavar="PATH", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_reference is not None:
        # Ended by a signal, which needs no word about it.
        anyio.run(_serve_reference, options.serve_reference)
        return
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for name in options.only or MEASURES:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="sessionref-benchmark-") as folder:
            measure = MEASURES[name](Path(folder), options.quick)
        print_measure(measure._replace(title=f"{name}: {measure.title}"))
        print(f"   (measured in {time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
