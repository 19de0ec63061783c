from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

PATIENCE = 20.0
"""Seconds that a process may take for anything; only a fault ever waits so long."""

SOON = 8.0
"""Seconds for an end that has to come within a drain of a moment and a second."""

INITIALIZE = b'{"jsonrpc":"2.0","id":1,"method":"initialize"}'
SHUTDOWN = b'{"jsonrpc":"2.0","id":2,"method":"shutdown"}'
EXIT = b'{"jsonrpc":"2.0","method":"exit"}'
DISCOVER = b'{"jsonrpc":"2.0","id":"%d","method":"rpc.discover"}\n'
PREPARE = {
    "jsonrpc": "2.0",
    "id": "prepare",
    "method": "sessionReferenceResolver/prepare",
    "params": {"agentId": "agent", "content": "text", "references": [{"sessionId": "any"}]},
}
LAUNCHER = """
import logging, os, sys, threading, time
from engine_doubles import MemoryStore
from sessionref.server.serve import ServeOptions, serve
from sessionref.server.settings import Settings

def before_read():
    {before_read}

store = MemoryStore({{"any": ["text"]}}, before_read)
raise SystemExit(serve([store], Settings(drain_seconds={drain_seconds}), ServeOptions()))
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """The command line of a server over an empty store."""
    return [sys.executable, "-m", "sessionref.server", "serve", "--store", f"dsh:{tmp_path / 'home'}"]


def launcher(before_read: str = "pass", *, drain_seconds: float = 0.2) -> list[str]:
    """The command line of a server whose store does something before it reads the session `any`."""
    return [sys.executable, "-c", LAUNCHER.format(before_read=before_read, drain_seconds=drain_seconds)]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing of this user's is touched."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("SESSIONREF_", "XDG_"))}
    return given | {
        "HOME": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "SESSIONREF_SPILL_DIRECTORY": "off",
    }


def header(body: bytes) -> bytes:
    """A message with its header."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def run(
    command: Sequence[str], environment: dict[str, str], given: bytes = b"", **more: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a server over all its input."""
    environment = environment | more
    return subprocess.run(
        command,
        input=given,
        capture_output=True,
        env=environment,
        timeout=PATIENCE,
        check=False,
        start_new_session=True,
    )


def answers_in(output: bytes) -> list[Any]:
    """The answers in newline-delimited output."""
    return [json.loads(line) for line in output.splitlines()]


class Server:
    """A running server and its pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout
        self._received = b""

    def send(self, message: Any) -> None:
        """Send one message as a line; bytes as they are."""
        self.stdin.write(message if isinstance(message, bytes) else json.dumps(message).encode())
        self.stdin.write(b"\n")
        self.stdin.flush()

    def answer(self) -> Any:
        """The next answer line."""
        while b"\n" not in self._received:
            readable, _, _ = select.select([self.stdout], [], [], PATIENCE)
            assert readable, "no answer came"
            data = os.read(self.stdout.fileno(), 1_048_576)
            assert data, "the output ended"
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    def ask(self, message: Any) -> Any:
        """Send a message and take the next answer."""
        self.send(message)
        return self.answer()

    def end(self, seconds: float = SOON) -> int:
        """Close the input and wait for the end. Returns the exit code."""
        self.stdin.close()
        return self.process.wait(seconds)

    def resident_bytes(self) -> int:
        """Memory that the process holds now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024


@contextmanager
def serving(
    command: Sequence[str], environment: dict[str, str], *, stderr: int = subprocess.DEVNULL, **more: str
) -> Generator[Server]:
    """A running server, killed at the end if it has not ended by then."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment | more,
        bufsize=0,
        start_new_session=True,
    )
    with process:
        try:
            yield Server(process)
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def pipe() -> Generator[tuple[int, int]]:
    """A pipe whose ends are closed at the end, if they are still open."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            try:
                os.close(end)
            except OSError:
                continue


def fill(writing: int) -> None:
    """Fill a pipe to the brim, so that the next write of anybody blocks."""
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)


# Framings, and where the input comes from.


def test_lines_are_answered_with_lines(command: list[str], environment: dict[str, str]) -> None:
    done = run(command, environment, INITIALIZE + b"\n[" + INITIALIZE + b"]\n" + SHUTDOWN)
    assert done.returncode == 0
    first, batch, last = answers_in(done.stdout)
    assert first["result"]["serverInfo"]["name"] == "sessionref"
    assert [answer["id"] for answer in batch] == [1]
    assert last == {"jsonrpc": "2.0", "id": 2, "result": None}


def test_headers_are_answered_with_headers(command: list[str], environment: dict[str, str]) -> None:
    done = run(command, environment, header(SHUTDOWN) + b"Content-Type: x; charset=utf-8\r\n" + header(INITIALIZE))
    assert done.returncode == 0
    shut_down = b'{"jsonrpc":"2.0","id":2,"result":null}'
    assert done.stdout.startswith(header(shut_down))
    rest = done.stdout.removeprefix(header(shut_down))
    head, _, body = rest.partition(b"\r\n\r\n")
    assert head == b"Content-Length: %d" % len(body)
    assert json.loads(body)["error"]["code"] == -32600


def test_the_input_may_be_a_regular_file(command: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes((INITIALIZE + b"\n") * 3000)
    with path.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, env=environment, timeout=PATIENCE, check=False)
    assert done.returncode == 0
    assert len(answers_in(done.stdout)) == 3000


def test_input_and_output_may_be_regular_files(command: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes((INITIALIZE + b"\n") * 3)
    with (tmp_path / "input").open("rb") as given, (tmp_path / "output").open("wb") as output:
        done = subprocess.run(
            command,
            stdin=given,
            stdout=output,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0
    assert len(answers_in((tmp_path / "output").read_bytes())) == 3


def test_the_null_device_as_input_is_its_end_at_once(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"")


def test_a_closed_input_ends_the_process(command: list[str], environment: dict[str, str]) -> None:
    with serving(command, environment) as server:
        assert server.ask(INITIALIZE)["id"] == 1
        assert server.end() == 0
        assert server.stdout.read() == b""


def test_the_listening_line_stands_on_standard_error(command: list[str], environment: dict[str, str]) -> None:
    done = run(command, environment)
    assert json.loads(done.stderr.splitlines()[0]) == {"listening": [{"transport": "stdio"}]}
    assert done.stdout == b""


def test_what_a_store_prints_does_not_get_into_the_protocol(environment: dict[str, str]) -> None:
    stray = [
        "print('stray')",
        "sys.__stdout__.write('stray2\\n')",
        "os.write(1, b'stray3\\n')",
        "os.system('echo stray4')",
    ]
    with serving(launcher("; ".join(stray)), environment, stderr=subprocess.PIPE) as server:
        assert server.ask(PREPARE)["result"]["content"] == "text"
        assert server.ask(INITIALIZE)["id"] == 1
        assert server.end() == 0
        assert server.stdout.read() == b""
        assert server.process.stderr is not None
        logged = server.process.stderr.read()
    assert all(word in logged for word in (b"stray\n", b"stray2\n", b"stray3\n", b"stray4\n"))


# The end.


def test_shutdown_then_exit_ends_with_zero_although_the_input_stays_open(
    command: list[str], environment: dict[str, str]
) -> None:
    with serving(command, environment) as server:
        assert server.ask(SHUTDOWN)["result"] is None
        server.send(EXIT)
        assert server.process.wait(SOON) == 0


def test_exit_alone_ends_with_one_although_the_input_stays_open(
    command: list[str], environment: dict[str, str]
) -> None:
    with serving(command, environment) as server:
        assert server.ask(INITIALIZE)["id"] == 1
        server.send(EXIT)
        assert server.process.wait(SOON) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_with_zero(
    command: list[str], environment: dict[str, str], number: signal.Signals
) -> None:
    with serving(command, environment) as server:
        assert server.ask(INITIALIZE)["id"] == 1
        server.process.send_signal(number)
        assert server.process.wait(SOON) == 0


@pytest.mark.parametrize("ending", ["end of input", "signal", "exit"])
def test_a_read_that_hangs_for_ever_does_not_keep_the_process(environment: dict[str, str], ending: str) -> None:
    hang = "os.write(2, b'reading\\n'); threading.Event().wait()"
    with serving(launcher(hang), environment, stderr=subprocess.PIPE) as server:
        server.send(PREPARE)
        assert server.process.stderr is not None
        while server.process.stderr.readline() != b"reading\n":
            assert server.process.poll() is None
        if ending == "exit":
            server.send(EXIT)
        elif ending == "signal":
            server.process.send_signal(signal.SIGTERM)
        else:
            server.stdin.close()
        answer = server.answer()
        assert (answer["id"], answer["error"]["code"]) == ("prepare", -32802)
        assert server.process.wait(SOON) == (1 if ending == "exit" else 0)


def test_what_is_in_flight_at_the_end_of_input_is_finished_and_answered(environment: dict[str, str]) -> None:
    with pipe() as (reading, writing), pipe() as (entered, tell_entered):
        wait = f"os.write({tell_entered}, b'x'); os.read({reading}, 1)"
        process = subprocess.Popen(
            launcher(wait, drain_seconds=60),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            pass_fds=(reading, tell_entered),
            bufsize=0,
        )
        with process:
            server = Server(process)
            server.send(PREPARE)
            os.read(entered, 1)
            server.stdin.close()
            os.write(writing, b"x")
            assert server.answer()["result"]["content"] == "text"
            assert process.wait(SOON) == 0


def test_answers_are_handed_over_to_a_slow_reader_as_long_as_the_drain_lasts(
    command: list[str], environment: dict[str, str]
) -> None:
    with serving(command, environment, SESSIONREF_DRAIN_SECONDS="30") as server:
        for number in range(100):
            server.stdin.write(DISCOVER % number)
        server.stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(2)
        assert sorted(int(server.answer()["id"]) for _ in range(100)) == list(range(100))
        assert server.process.wait(SOON) == 0


def test_an_output_that_nobody_can_read_any_more_ends_the_process(
    command: list[str], environment: dict[str, str]
) -> None:
    with serving(command, environment) as server:
        assert server.ask(INITIALIZE)["id"] == 1
        server.stdout.close()
        server.send(INITIALIZE)
        assert server.process.wait(SOON) == 0


HOST = """
import subprocess, sys
server = subprocess.Popen({command!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[{alive}], bufsize=0)
server.stdin.write({message!r})
sys.stdout.write(server.stdout.readline().decode())
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.mark.parametrize("is_reading", [False, True])
def test_a_host_that_is_killed_leaves_no_process_behind(
    command: list[str], environment: dict[str, str], is_reading: bool
) -> None:
    if is_reading:
        command = launcher("threading.Event().wait()")
    message = (json.dumps(PREPARE).encode() + b"\n" if is_reading else b"") + INITIALIZE + b"\n"
    # The server alone holds the other end once the host is gone: its end is the end of this pipe.
    with pipe() as (reading, alive):
        host = subprocess.Popen(
            [sys.executable, "-c", HOST.format(command=command, message=message, alive=alive)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            pass_fds=(alive,),
            start_new_session=True,
        )
        os.close(alive)
        try:
            with host:
                assert host.stdout is not None
                assert json.loads(host.stdout.readline())["id"] == 1
                host.kill()
            ended, _, _ = select.select([reading], [], [], SOON)
            assert ended
            assert os.read(reading, 1) == b""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(host.pid, signal.SIGKILL)


# What a peer may do wrong.


def test_whatever_is_wrong_with_a_message_is_answered_and_the_next_request_works(
    command: list[str], environment: dict[str, str]
) -> None:
    wrong: list[tuple[bytes, Any, int]] = [
        (b"nonsense", None, -32700),
        (b'{"jsonrpc":"2.0","id":1,', None, -32700),
        (
            b'{"jsonrpc":"2.0","id":7,"method":"initialize","params":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
            None,
            -32600,
        ),
        (b"[" * 10_000, None, -32600),
        (b"[]", None, -32600),
        (b'{"a":"\xff"}', None, -32700),
        (b'{"jsonrpc":"2.0","id":5,"method":"no/such/method"}', 5, -32601),
        (b'{"jsonrpc":"2.0","id":6,"method":"sessionReferenceResolver/candidates","params":{"agentId":7}}', 6, -32602),
        (b'{"jsonrpc":"2.0","id":null,"method":"initialize"}', None, -32600),
        (b'{"jsonrpc":"1.0","id":8,"method":"initialize"}', 8, -32600),
    ]
    with serving(command, environment) as server:
        for message, identity, code in wrong:
            answer = server.ask(message)
            assert (answer["id"], answer["error"]["code"]) == (identity, code), message[:80]
            assert server.ask(INITIALIZE)["id"] == 1
        assert server.end() == 0


def test_a_line_that_is_too_long_is_answered_once_and_the_next_request_works(
    command: list[str], environment: dict[str, str]
) -> None:
    with serving(command, environment, SESSIONREF_MAX_MESSAGE_BYTES="4096") as server:
        answer = server.ask(b"[" + b" " * 10_000 + b"]")
        assert (answer["id"], answer["error"]["code"], answer["error"]["data"]) == (None, -32600, {"limit": 4096})
        assert server.ask(INITIALIZE)["id"] == 1
        assert server.end() == 0


def test_a_body_that_is_too_long_is_answered_once_and_the_next_request_works(
    command: list[str], environment: dict[str, str]
) -> None:
    given = header(b"[" + b" " * 10_000 + b"]") + header(SHUTDOWN)
    done = run(command, environment, given, SESSIONREF_MAX_MESSAGE_BYTES="4096")
    assert done.returncode == 0
    head, body, last = re.split(rb"Content-Length: \d+\r\n\r\n", done.stdout)
    assert (head, json.loads(last)["result"]) == (b"", None)
    assert json.loads(body)["error"]["data"] == {"limit": 4096, "actual": 10_002}


def test_a_line_that_is_far_too_long_ends_the_process_with_one(command: list[str], environment: dict[str, str]) -> None:
    with serving(command, environment, SESSIONREF_MAX_MESSAGE_BYTES="4096") as server:
        assert server.ask(b"[" + b" " * 100_000)["error"]["code"] == -32600
        assert server.process.wait(SOON) == 1


def test_a_peer_that_never_reads_does_not_make_the_server_grow_and_can_still_end_it(
    command: list[str], environment: dict[str, str]
) -> None:
    with serving(command, environment, SESSIONREF_DRAIN_SECONDS="0.2") as server:
        assert server.ask(INITIALIZE)["id"] == 1
        before = server.resident_bytes()
        os.set_blocking(server.stdin.fileno(), False)
        for number in range(50_000):
            _, writable, _ = select.select([], [server.stdin], [], 1)
            if not writable:
                break
            os.write(server.stdin.fileno(), DISCOVER % number)
        else:
            pytest.fail("reading never pauses")
        assert server.resident_bytes() < before + 64 * 1024 * 1024
        assert server.end() == 0


def test_a_signal_ends_a_server_whose_answers_nobody_reads(command: list[str], environment: dict[str, str]) -> None:
    with serving(command, environment, SESSIONREF_DRAIN_SECONDS="0.2") as server:
        assert server.ask(INITIALIZE)["id"] == 1
        for number in range(200):
            server.stdin.write(DISCOVER % number)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(SOON) == 0


# Standard error.


def test_a_log_that_nobody_reads_blocks_no_answer(environment: dict[str, str]) -> None:
    logs = "for number in range(2000): logging.getLogger('sessionref').warning('x' * 200)"
    with serving(launcher(logs), environment, stderr=subprocess.PIPE) as server:
        for _ in range(3):
            assert server.ask(PREPARE)["result"]["content"] == "text"


def test_a_log_that_nobody_reads_does_not_keep_the_process(environment: dict[str, str]) -> None:
    logs = "for number in range(2000): logging.getLogger('sessionref').warning('x' * 200)"
    with serving(launcher(logs), environment, stderr=subprocess.PIPE) as server:
        assert server.ask(PREPARE)["result"]["content"] == "text"
        assert server.end() == 0


def test_a_print_that_nobody_reads_blocks_neither_other_requests_nor_the_end(environment: dict[str, str]) -> None:
    with serving(launcher("print('x' * 200_000, flush=True)"), environment, stderr=subprocess.PIPE) as server:
        server.send(PREPARE)
        assert server.ask(INITIALIZE)["result"]["serverInfo"]["name"] == "sessionref"
        server.stdin.close()
        assert server.answer()["error"]["code"] == -32802
        assert server.process.wait(SOON) == 0


def test_a_standard_error_that_is_full_from_the_start_blocks_nothing(
    command: list[str], environment: dict[str, str]
) -> None:
    with pipe() as (_, writing):
        fill(writing)
        with serving(command, environment, stderr=writing) as server:
            server.send(INITIALIZE)
            readable, _, _ = select.select([server.stdout], [], [], SOON)
            assert readable
            assert server.answer()["id"] == 1
            assert server.end() == 0


# Configuration.


@pytest.mark.parametrize(
    ("variable", "value"),
    [("SESSIONREF_MAX_REFERENCES", "4"), ("SESSIONREF_DRAIN_SECONDS", "-1"), ("SESSIONREF_MAX_BATCH", "true")],
)
def test_a_setting_out_of_range_is_said_on_standard_error_and_ends_with_two(
    command: list[str], environment: dict[str, str], variable: str, value: str
) -> None:
    done = run(command, environment, INITIALIZE, **{variable: value})
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"SESSION_REFERENCE_INVALID_CONFIG" in done.stderr
    assert variable.encode() in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--store", "nothing"], ["--store", "dsh:"], ["--config", "/no/such/file"], ["--max-batch", "0"], ["-x"]],
)
def test_a_command_line_that_cannot_be_meant_ends_with_two(
    command: list[str], environment: dict[str, str], arguments: list[str]
) -> None:
    done = run([*command, *arguments], environment, INITIALIZE)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Traceback" not in done.stderr


def test_an_unknown_variable_is_only_warned_of(command: list[str], environment: dict[str, str]) -> None:
    done = run(command, environment, INITIALIZE, SESSIONREF_NO_SUCH_SETTING="1")
    assert done.returncode == 0
    assert b"SESSIONREF_NO_SUCH_SETTING" in done.stderr
    assert len(answers_in(done.stdout)) == 1
