from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from engine_doubles import PATIENCE, settled
from sessionref.server.transport import TransportBroken
from sessionref.server.transports.stdio import StandardStreams


class Pipes:
    """Two pipes, as a host makes them: (ours to read, host's to write) and (host's to read, ours to write)."""

    def __init__(self) -> None:
        self.reading, self.host_writing = os.pipe()
        self.host_reading, self.writing = os.pipe()
        os.set_blocking(self.writing, False)
        self.streams = StandardStreams(self.reading, self.writing, chunk_bytes=10)
        self._open = {self.reading, self.host_writing, self.host_reading, self.writing}

    def close(self, *descriptors: int) -> None:
        """Close some ends, by default those that are still open."""
        for descriptor in descriptors or tuple(self._open):
            os.close(descriptor)
            self._open.remove(descriptor)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    """A host and its standard streams."""
    made = Pipes()
    yield made
    made.close()


async def drain(descriptor: int, count: int) -> bytes:
    """Read so many bytes as the host."""
    data = b""
    while len(data) < count:
        data += await anyio.to_thread.run_sync(os.read, descriptor, 65_536)
    return data


async def test_bytes_arrive_in_pieces_of_the_chunk_size_at_most(pipes: Pipes) -> None:
    os.write(pipes.host_writing, b"0123456789abc")
    assert await pipes.streams.receive_some() == b"0123456789"
    assert await pipes.streams.receive_some() == b"abc"


async def test_receiving_waits_for_the_host_without_a_thread(pipes: Pipes) -> None:
    received: list[bytes] = []

    async def receive() -> None:
        received.append(await pipes.streams.receive_some())

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            await settled()
            assert received == []
            os.write(pipes.host_writing, b"now")
    assert received == [b"now"]


async def test_receiving_can_be_cancelled_and_loses_nothing(pipes: Pipes) -> None:
    with anyio.move_on_after(0):
        await pipes.streams.receive_some()
    os.write(pipes.host_writing, b"later")
    assert await pipes.streams.receive_some() == b"later"


async def test_a_closed_pipe_is_the_end_of_input_and_stays_it(pipes: Pipes) -> None:
    os.write(pipes.host_writing, b"last")
    pipes.close(pipes.host_writing)
    assert [await pipes.streams.receive_some() for _ in range(3)] == [b"last", b"", b""]


async def test_a_regular_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"0123456789abc")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        streams = StandardStreams(descriptor, -1, chunk_bytes=10)
        assert [await streams.receive_some() for _ in range(3)] == [b"0123456789", b"abc", b""]
    finally:
        os.close(descriptor)


async def test_the_null_device_is_the_end_of_input_at_once() -> None:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        with anyio.fail_after(PATIENCE):
            assert await StandardStreams(descriptor, -1, chunk_bytes=10).receive_some() == b""
    finally:
        os.close(descriptor)


async def test_a_socket_pair_works_like_a_pipe() -> None:
    ours, host = socket.socketpair()
    with ours, host:
        streams = StandardStreams(ours.fileno(), ours.fileno(), chunk_bytes=10)
        host.sendall(b"asked")
        assert await streams.receive_some() == b"asked"
        os.set_blocking(ours.fileno(), False)
        await streams.send_all(b"answered")
        assert host.recv(100) == b"answered"
        host.shutdown(socket.SHUT_WR)
        assert await streams.receive_some() == b""


async def test_an_input_that_fails_is_broken(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(TransportBroken):
            await StandardStreams(descriptor, -1, chunk_bytes=10).receive_some()
    finally:
        os.close(descriptor)


async def test_an_input_that_somebody_made_non_blocking_and_emptied_is_waited_for(
    pipes: Pipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.set_blocking(pipes.reading, False)
    waits: list[object] = []

    async def ready_too_early(descriptor: object) -> None:
        await anyio.lowlevel.checkpoint()
        waits.append(descriptor)
        if len(waits) == 3:
            os.write(pipes.host_writing, b"now")

    monkeypatch.setattr(anyio, "wait_readable", ready_too_early)
    with anyio.fail_after(PATIENCE):
        assert await pipes.streams.receive_some() == b"now"
    assert len(waits) == 3


async def test_more_bytes_than_a_pipe_holds_all_arrive_in_order(pipes: Pipes) -> None:
    data = os.urandom(3_000_000)
    received: list[bytes] = []

    async def read() -> None:
        received.append(await drain(pipes.host_reading, len(data)))

    with anyio.fail_after(2 * PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await pipes.streams.send_all(data)
    assert received == [data]


async def test_sending_waits_while_the_host_reads_nothing_and_can_be_cancelled(pipes: Pipes) -> None:
    with anyio.move_on_after(0.02) as scope:
        await pipes.streams.send_all(b"x" * 1_000_000)
    assert scope.cancelled_caught


async def test_sending_nothing_writes_nothing(pipes: Pipes) -> None:
    await pipes.streams.send_all(b"")
    os.set_blocking(pipes.host_reading, False)
    with pytest.raises(BlockingIOError):
        os.read(pipes.host_reading, 1)


async def test_an_output_that_nobody_can_read_any_more_is_broken(pipes: Pipes) -> None:
    pipes.close(pipes.host_reading)
    with pytest.raises(TransportBroken):
        await pipes.streams.send_all(b"x")


async def test_an_output_that_the_host_closes_while_it_is_full_is_broken(pipes: Pipes) -> None:
    failures: list[Exception] = []

    async def send() -> None:
        try:
            await pipes.streams.send_all(b"x" * 1_000_000)
        except TransportBroken as error:
            failures.append(error)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await settled()
            pipes.close(pipes.host_reading)
    assert len(failures) == 1


async def test_answers_can_be_written_to_a_regular_file(tmp_path: Path) -> None:
    path = tmp_path / "output"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.set_blocking(descriptor, False)
        await StandardStreams(-1, descriptor, chunk_bytes=10).send_all(b"x" * 3_000_000)
    finally:
        os.close(descriptor)
    assert path.read_bytes() == b"x" * 3_000_000


async def test_closing_leaves_the_descriptors_to_whoever_claimed_them(pipes: Pipes) -> None:
    await pipes.streams.aclose()
    await pipes.streams.aclose()
    os.write(pipes.host_writing, b"x")
    assert await pipes.streams.receive_some() == b"x"


def claimed(body: str) -> subprocess.CompletedProcess[bytes]:
    """Run statements in a process of their own, with `reading` and `writing` claimed."""
    program = "\n".join(
        [
            "import os, subprocess, sys",
            "from sessionref.server.transports.stdio import claimed_standard_streams",
            "with claimed_standard_streams() as (reading, writing):",
            textwrap.indent(textwrap.dedent(body), "    "),
            "print('after')",
        ]
    )
    return subprocess.run([sys.executable, "-c", program], input=b"given", capture_output=True, timeout=20, check=False)


def test_what_anybody_prints_while_the_streams_are_claimed_goes_to_standard_error() -> None:
    done = claimed(
        """
        print("a stray print")
        os.write(1, b"a stray write")
        subprocess.run([sys.executable, "-c", "print('a child')"], check=True)
        os.write(writing, b"the protocol\\n")
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"the protocol\nafter\n"
    for stray in (b"a stray print", b"a stray write", b"a child"):
        assert stray in done.stderr


def test_what_was_printed_before_comes_before_the_protocol() -> None:
    program = (
        "import os\n"
        "from sessionref.server.transports.stdio import claimed_standard_streams\n"
        "print('before')\n"
        "with claimed_standard_streams() as (_, writing): os.write(writing, b'inside\\n')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=20, check=True)
    assert done.stdout == b"before\ninside\n"


def test_nobody_else_can_take_the_input_while_it_is_claimed() -> None:
    done = claimed(
        """
        taken = sys.stdin.read() + subprocess.run(["cat"], capture_output=True, check=True).stdout.decode()
        os.write(writing, repr((taken, os.read(reading, 100))).encode())
        """
    )
    assert done.stdout == b"('', b'given')after\n", done.stderr


def test_children_inherit_neither_of_the_claimed_descriptors() -> None:
    done = claimed(
        """
        assert reading > 2 and writing > 2
        for descriptor in (reading, writing):
            child = f"import os; os.fstat({descriptor})"
            run = subprocess.run([sys.executable, "-c", child], capture_output=True, close_fds=False)
            os.write(writing, b"closed\\n" if b"Bad file descriptor" in run.stderr else run.stderr + b"open")
        """
    )
    assert done.stdout == b"closed\nclosed\nafter\n", done.stderr


def test_the_output_is_non_blocking_while_it_is_claimed() -> None:
    done = claimed("os.write(writing, str(os.get_blocking(writing)).encode())")
    assert done.stdout == b"Falseafter\n", done.stderr


def test_a_blocking_output_is_blocking_again_in_the_end() -> None:
    reading, writing = os.pipe()
    program = "\n".join(
        [
            "from sessionref.server.transports.stdio import claimed_standard_streams",
            "with claimed_standard_streams(): pass",
        ]
    )
    try:
        subprocess.run(
            [sys.executable, "-c", program], stdin=subprocess.DEVNULL, stdout=writing, timeout=20, check=True
        )
        assert os.get_blocking(writing)
    finally:
        os.close(reading)
        os.close(writing)


def test_the_streams_are_given_back_after_a_failure() -> None:
    program = "\n".join(
        [
            "from sessionref.server.transports.stdio import claimed_standard_streams",
            "try:",
            "    with claimed_standard_streams(): raise ValueError",
            "except ValueError:",
            "    print(input())",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=b"given\n", capture_output=True, timeout=20, check=True
    )
    assert done.stdout == b"given\n"
