"""Servers as processes: how they start, die, refuse and are ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from sessionref.client import ClientLimits, CloseReason, ConnectionClosedError, spawn
from sessionref.protocol.errors import ErrorCode, SessionReferenceError

Command = Callable[[str], list[str]]

STUBBORN = ClientLimits(
    exit_seconds=0.1, terminate_seconds=0.1, goodbye_seconds=0.1, cancel_seconds=0.1, flush_seconds=0.1
)
"""For servers that do not end by themselves, so that nobody waits for them."""
POLITE = """
introduce()
while True:
    message = receive()
    if message["method"] == "exit":
        break
    send({"id": message["id"], "result": message.get("params")})
print("told to exit", file=sys.stderr)
"""


async def failure_of(command: list[str], **options: Any) -> ConnectionClosedError:
    """Why a server could not be used from its start."""
    with anyio.fail_after(10), pytest.raises(ConnectionClosedError) as caught:
        async with spawn(command, **options):
            pass
    return caught.value


def is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_polite_server_is_introduced_called_and_told_to_exit(server_command: Command, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    command = server_command(
        f"""
        introduce()
        methods = []
        while methods[-1:] != ["exit"]:
            message = receive()
            methods.append(message["method"])
            if "id" in message:
                send({{"id": message["id"], "result": message.get("params")}})
        open({str(heard)!r}, "w").write(" ".join(methods))
        """
    )
    with anyio.fail_after(10):
        async with spawn(command) as client:
            assert await client.request("echo", ["\ud800"]) == ["\ud800"]
    assert heard.read_text(encoding="utf-8") == "echo shutdown exit"


async def test_a_server_that_cannot_be_started_is_a_closed_connection(tmp_path: Path) -> None:
    failure = await failure_of([str(tmp_path / "nothing")])
    assert failure.reason is CloseReason.NOT_STARTED
    assert str(tmp_path) not in str(failure)


async def test_a_server_that_dies_at_once_is_known_by_exit_code_and_log(server_command: Command) -> None:
    failure = await failure_of(server_command("sys.exit('its last words')"))
    assert (failure.reason, failure.exit_code) == (CloseReason.ENDED, 1)
    assert failure.stderr_tail == "its last words\n"
    assert "words" not in str(failure)


async def test_a_server_that_refuses_its_settings_raises_what_it_says(server_command: Command) -> None:
    command = server_command(
        """
        print("a warning", file=sys.stderr)
        print("sessionref: SESSION_REFERENCE_INVALID_CONFIG: maxReferences must be from 1 to 3", file=sys.stderr)
        sys.exit(2)
        """
    )
    with anyio.fail_after(10), pytest.raises(SessionReferenceError) as caught:
        async with spawn(command):
            pass
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert str(caught.value) == "maxReferences must be from 1 to 3"


async def test_another_exit_with_2_is_a_closed_connection(server_command: Command) -> None:
    failure = await failure_of(server_command("sys.exit(2)"))
    assert failure.exit_code == 2


async def test_a_server_that_never_answers_is_given_up(server_command: Command) -> None:
    failure = await failure_of(server_command("signal.pause()"), start_seconds=0.2, limits=STUBBORN)
    assert failure.reason is CloseReason.TIMED_OUT


async def test_a_server_that_ignores_exit_and_the_first_signal_is_killed(server_command: Command) -> None:
    command = server_command(
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        introduce()
        send({"id": receive()["id"], "result": os.getpid()})
        while True:
            signal.pause()
        """
    )
    processes: list[int] = []
    with anyio.fail_after(10):
        async with spawn(command, limits=STUBBORN) as client:
            processes.append(await client.request("who"))
            assert is_alive(processes[0])
    assert not is_alive(processes[0])


async def test_a_server_that_dies_in_a_call_fails_it_and_all_later_ones(server_command: Command) -> None:
    command = server_command(
        """
        introduce()
        receive()
        print("oh", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    with anyio.fail_after(10):
        async with spawn(command) as client:
            for _ in range(2):
                with pytest.raises(ConnectionClosedError) as caught:
                    await client.candidates("agent")
                assert (caught.value.exit_code, caught.value.stderr_tail) == (-9, "oh\n")


async def test_a_server_whose_child_holds_its_output_open_is_dead_all_the_same(server_command: Command) -> None:
    command = server_command(
        """
        introduce()
        child = os.fork()
        if child == 0:
            signal.pause()
        send({"id": receive()["id"], "result": child})
        receive()
        os._exit(3)
        """
    )
    with anyio.fail_after(10):
        async with spawn(command, limits=ClientLimits(reap_seconds=0.1)) as client:
            child = await client.request("child")
            with pytest.raises(ConnectionClosedError) as caught:
                await client.request("die")
    os.kill(child, signal.SIGKILL)
    assert (caught.value.reason, caught.value.exit_code) == (CloseReason.ENDED, 3)


@pytest.mark.parametrize("text", ["hello\\n", "Content-Length: nothing\\r\\n\\r\\n", "{not json}\\n"])
async def test_a_server_that_prints_to_its_output_ends_the_connection(server_command: Command, text: str) -> None:
    failure = await failure_of(server_command(f"receive(); sys.stdout.write('{text}'); sys.stdout.flush(); receive()"))
    assert failure.reason is CloseReason.MALFORMED


async def test_half_an_answer_before_the_end_is_the_end(server_command: Command) -> None:
    failure = await failure_of(server_command("""receive(); sys.stdout.write('{"id":0,"res'); sys.exit(3)"""))
    assert (failure.reason, failure.exit_code) == (CloseReason.ENDED, 3)


async def test_an_answer_that_is_too_long_ends_the_connection(server_command: Command) -> None:
    command = server_command(
        """
        introduce()
        send({"id": receive()["id"], "result": "x" * 10000})
        receive()
        """
    )
    with anyio.fail_after(10):
        async with spawn(command, limits=ClientLimits(max_answer_bytes=5000)) as client:
            for _ in range(2):
                with pytest.raises(ConnectionClosedError) as caught:
                    await client.request("ask")
                assert caught.value.reason is CloseReason.TOO_LONG


async def test_megabytes_go_both_ways_at_once(server_command: Command) -> None:
    text = "é" * 3_000_000
    with anyio.fail_after(20):
        async with spawn(server_command(POLITE)) as client:

            async def call() -> None:
                assert await client.request("echo", [text]) == [text]

            async with anyio.create_task_group() as calls:
                for _ in range(3):
                    calls.start_soon(call)


async def test_a_server_that_stops_reading_is_left_in_bounded_time(server_command: Command) -> None:
    command = server_command(
        """
        introduce()
        signal.pause()
        """
    )
    with anyio.fail_after(10):
        async with spawn(command, limits=STUBBORN) as client:
            with anyio.move_on_after(0.1) as scope:
                await client.request("big", ["x" * 5_000_000])
            assert scope.cancelled_caught


async def test_an_exception_of_the_body_comes_out_as_it_is_and_the_server_ends(server_command: Command) -> None:
    error = ValueError("of the body")
    log: list[str] = []
    with anyio.fail_after(10), pytest.raises(ValueError, match="of the body") as caught:
        async with spawn(server_command(POLITE), on_log=log.append):
            raise error
    assert caught.value is error
    assert log == ["told to exit"]


async def test_a_cancelled_body_still_tells_the_server_to_exit(server_command: Command) -> None:
    log: list[str] = []
    with anyio.fail_after(10), anyio.CancelScope() as scope:
        async with spawn(server_command(POLITE), on_log=log.append):
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert log == ["told to exit"]


async def test_environment_and_folder_are_the_servers(server_command: Command, tmp_path: Path) -> None:
    command = server_command(
        """
        introduce()
        given = [os.environ.get("GIVEN"), os.environ.get("HOME"), os.path.samefile(".", sys.path[0])]
        send({"id": receive()["id"], "result": given})
        receive()
        """
    )
    with anyio.fail_after(10):
        async with spawn(command, env={"GIVEN": "yes"}, cwd=tmp_path) as client:
            assert await client.request("ask") == ["yes", None, True]


async def test_a_string_is_never_given_to_a_shell(tmp_path: Path) -> None:
    failure = await failure_of(f"touch {tmp_path}/made")  # type: ignore[arg-type]
    assert failure.reason is CloseReason.NOT_STARTED
    assert not (tmp_path / "made").exists()
