"""The log of a server that is a process of ours."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from sessionref.client import ClientLimits, spawn
from sessionref.client.server_log import ServerLog

Command = Callable[[str], list[str]]


async def test_the_log_is_always_read_and_handed_on_line_by_line(server_command: Command) -> None:
    lines: list[str] = []
    command = server_command(
        """
        for number in range(20_000):
            print("line", number, file=sys.stderr)
        introduce()
        receive()
        sys.stderr.write("the end")
        """
    )
    with anyio.fail_after(10):
        async with spawn(command, on_log=lines.append):
            pass
    assert len(lines) == 20_001
    assert (lines[0], lines[-2], lines[-1]) == ("line 0", "line 19999", "the end")


async def test_a_host_that_fails_over_a_log_line_keeps_its_connection(server_command: Command) -> None:
    def fail(line: str) -> None:
        raise ValueError(line)

    command = server_command(
        """
        print("log", file=sys.stderr)
        introduce()
        send({"id": receive()["id"], "result": 1})
        receive()
        """
    )
    with anyio.fail_after(10):
        async with spawn(command, on_log=fail) as client:
            assert await client.request("ask") == 1


async def test_the_kept_log_and_an_endless_line_are_bounded() -> None:
    pieces: list[str] = []
    send, receive = anyio.create_memory_object_stream[bytes](10)
    log = ServerLog(pieces.append, ClientLimits(stderr_tail_bytes=10, log_line_bytes=50))
    with send, receive:
        for _ in range(10):
            await send.send(b"x" * 30)
        send.close()
        await log.drain(receive)
    assert log.tail == "x" * 10
    assert list(map(len, pieces)) == [60] * 5
