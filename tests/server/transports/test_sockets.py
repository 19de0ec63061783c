"""Listeners: private Unix sockets that replace nothing alive, TCP on the loopback interface only."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sessionref.protocol.errors import ErrorCode, SessionReferenceError
from sessionref.server.transports.sockets import loopback_address, tcp_listener, unix_listener


@contextmanager
def umask(mask: int) -> Generator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def refusal_of(path: Path) -> str:
    """Why nothing can be bound there; no message names the path."""
    with pytest.raises(SessionReferenceError) as caught, unix_listener(path):
        pass
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert str(path.parent) not in caught.value.message
    return caught.value.message


def leave_stale(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(os.fspath(path))


def reach(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as peer:
        peer.connect(os.fspath(path))


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_unix_socket_is_private_whatever_the_umask_and_the_umask_is_as_before(tmp_path: Path, mask: int) -> None:
    path = tmp_path / "socket"
    with umask(mask), unix_listener(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert current_umask() == mask
        reach(path)
    assert not path.exists()


def test_a_unix_socket_is_private_from_the_moment_of_its_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    bind, path = socket.socket.bind, tmp_path / "socket"

    def looking_bind(self: socket.socket, address: str) -> None:
        bind(self, address)
        modes.append(stat.S_IMODE(path.stat().st_mode))

    def no_chmod(*_: object, **__: object) -> None:
        raise AssertionError("the mode is changed after the socket could be connected to")

    monkeypatch.setattr(socket.socket, "bind", looking_bind)
    monkeypatch.setattr(os, "chmod", no_chmod)
    with umask(0), unix_listener(path):
        assert modes == [0o600]


def test_the_umask_is_as_before_when_binding_failed(tmp_path: Path) -> None:
    with umask(0o022):
        refusal_of(tmp_path / ("x" * 200))
        assert current_umask() == 0o022


def test_a_live_servers_socket_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with unix_listener(path) as listener:
        assert "a live server has it" in refusal_of(path)
        reach(path)
        listener.setblocking(True)
        for _ in range(2):
            listener.accept()[0].close()
    assert not path.exists()


def test_a_live_server_that_accepts_nothing_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with closing(socket.socket(socket.AF_UNIX)) as busy, closing(socket.socket(socket.AF_UNIX)) as waiting:
        busy.bind(os.fspath(path))
        busy.listen(0)
        waiting.connect(os.fspath(path))
        assert "a live server has it" in refusal_of(path)
        assert path.is_socket()


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    leave_stale(path)
    with unix_listener(path):
        reach(path)
    assert not path.exists()


def test_of_two_servers_that_find_a_stale_socket_one_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    leave_stale(path)
    outcomes: list[str] = []
    ready, decided = threading.Barrier(2), threading.Barrier(2)

    def start() -> None:
        ready.wait(10)
        try:
            with unix_listener(path):
                outcomes.append("listening")
                decided.wait(10)
        except SessionReferenceError:
            outcomes.append("refused")
            decided.wait(10)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(outcomes) == ["listening", "refused"]


@pytest.mark.parametrize("what", ["file", "folder", "link to a file", "link to a socket", "dangling link", "fifo"])
def test_what_is_no_socket_is_refused_and_stays(tmp_path: Path, what: str) -> None:
    path, other = tmp_path / "socket", tmp_path / "other"
    if what == "file":
        path.write_text("precious", encoding="utf-8")
    elif what == "folder":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    else:
        if what == "link to a file":
            other.write_text("precious", encoding="utf-8")
        elif what == "link to a socket":
            leave_stale(other)
        path.symlink_to(other)
    before = path.lstat()
    assert "something else than a socket is there" in refusal_of(path)
    assert path.lstat().st_ino == before.st_ino
    if what == "link to a file":
        assert other.read_text(encoding="utf-8") == "precious"


def test_a_socket_that_has_taken_the_place_of_ours_is_left(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with unix_listener(path):
        path.unlink()
        # Of a name of its own first, so that it cannot get the number of the one that was removed.
        leave_stale(tmp_path / "other")
        (tmp_path / "other").rename(path)
    assert path.is_socket()


def test_a_socket_that_somebody_removed_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with unix_listener(path):
        path.unlink()
    assert not path.exists()


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert refusal_of(tmp_path / "nowhere" / "socket")


def test_nothing_but_the_socket_is_left_in_its_folder(tmp_path: Path) -> None:
    with unix_listener(tmp_path / "socket"):
        assert [path.name for path in tmp_path.iterdir()] == ["socket"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("localhost:8080", ("127.0.0.1", 8080)),
        ("LOCALHOST:1", ("127.0.0.1", 1)),
        ("127.8.9.10:65535", ("127.8.9.10", 65_535)),
        ("[::1]:80", ("::1", 80)),
        ("::1:80", ("::1", 80)),
    ],
)
def test_loopback_addresses_are_taken(address: str, expected: tuple[str, int]) -> None:
    assert loopback_address(address, "--tcp") == expected


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":80",
        "0.0.0.0:80",
        "[::]:80",
        "192.168.0.1:80",
        "example.org:80",
        "localhost.example.org:80",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:-1",
        "127.0.0.1:65536",
        "127.0.0.1:8_0",
        "127.0.0.1:８０",
        "127.1:80",
        "2130706433:80",
        "127.0.0.1 :80",
        "::ffff:192.168.0.1:80",
    ],
)
def test_any_other_address_is_refused(address: str) -> None:
    with pytest.raises(SessionReferenceError) as caught:
        loopback_address(address, "--tcp")
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert "--tcp" in caught.value.message


def test_a_tcp_listener_has_the_port_that_it_got() -> None:
    with tcp_listener("127.0.0.1:0", "--tcp") as listener:
        host, port = listener.getsockname()
        assert host == "127.0.0.1"
        with closing(socket.create_connection((host, port), 10)):
            pass


def test_a_port_that_is_taken_is_refused() -> None:
    with tcp_listener("127.0.0.1:0", "--tcp") as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(SessionReferenceError) as caught, tcp_listener(address, "--http"):
            pass
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert "--http" in caught.value.message
