"""Who may call over HTTP: hosts, origins and tokens, and the file that a token may come from."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from sessionref.protocol.errors import ErrorCode, SessionReferenceError
from sessionref.server.transports.web_access import TOKEN_SUBPROTOCOL_PREFIX, WebAccess, check_origins, read_token
from transport_doubles import TOKEN

ORIGIN = "https://app.example"
ACCESS = WebAccess(TOKEN, [ORIGIN, "http://localhost:5173/"])


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:80", "localhost", "LOCALHOST:8080", "[::1]", "[::1]:80", "localhost:65535"]
)
def test_hosts_of_the_loopback_interface_are_served(host: str) -> None:
    assert ACCESS.allows_host(host)


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1:80:80",
        "127.0.0.1:80@evil.example",
        "evil.example@127.0.0.1",
        "localhost:port",
        "localhost:80\nevil.example",
        "0.0.0.0",
        "192.168.0.1",
        "::1",
        "localhost.",
    ],
)
def test_other_hosts_are_refused(host: str | None) -> None:
    assert not ACCESS.allows_host(host)


def test_the_address_that_is_listened_on_is_served() -> None:
    assert WebAccess(TOKEN, host="127.8.9.10").allows_host("127.8.9.10:80")
    assert not ACCESS.allows_host("127.8.9.10:80")


@pytest.mark.parametrize("origin", [None, ORIGIN, "HTTPS://APP.EXAMPLE", "http://localhost:5173"])
def test_no_origin_and_allowed_ones_may_call(origin: str | None) -> None:
    assert ACCESS.allows_origin(origin)


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "http://app.example",
        "https://app.example:8443",
        "https://app.example.evil.example",
        "https://sub.app.example",
        "http://localhost",
        "http://127.0.0.1:5173",
        "https://app.example, https://evil.example",
    ],
)
def test_other_origins_may_not_call(origin: str) -> None:
    assert not ACCESS.allows_origin(origin)


def test_the_null_origin_may_not_call_even_if_it_is_listed() -> None:
    assert not WebAccess(TOKEN, ["null"]).allows_origin("null")


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER  {TOKEN} "])
def test_a_token_in_the_header_opens(header: str) -> None:
    assert ACCESS.allows_token(header)


@pytest.mark.parametrize(
    "header",
    [None, "", TOKEN, "Bearer", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ä"],
)
def test_any_other_header_does_not_open(header: str | None) -> None:
    assert not ACCESS.allows_token(header)


def test_a_token_among_the_subprotocols_opens() -> None:
    assert ACCESS.allows_token(None, ["sessionref", TOKEN_SUBPROTOCOL_PREFIX + TOKEN])
    assert not ACCESS.allows_token(None, ["sessionref", TOKEN_SUBPROTOCOL_PREFIX + TOKEN + "x", TOKEN])
    assert not ACCESS.allows_token(None, [TOKEN_SUBPROTOCOL_PREFIX])


def write_token(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def refusal_of(path: Path) -> str:
    with pytest.raises(SessionReferenceError) as caught:
        read_token(path)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert str(path) not in caught.value.message
    return caught.value.message


def test_a_token_is_made_anew_each_time() -> None:
    first, second = read_token(None), read_token(None)
    assert first != second
    # 32 random bytes in base64url.
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", first)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_the_token_of_a_private_file_is_taken(tmp_path: Path, mode: int) -> None:
    assert read_token(write_token(tmp_path / "token", f"{TOKEN}\n", mode)) == TOKEN


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601, 0o644])
def test_a_token_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    assert "only this user" in refusal_of(write_token(tmp_path / "token", TOKEN, mode))


@pytest.mark.parametrize("text", ["", "short", "x" * 513, "two words of some length", f"{TOKEN}\n{TOKEN}", "ä" * 20])
def test_what_is_no_token_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    message = refusal_of(write_token(tmp_path / "token", text))
    assert not text or text not in message


def test_a_token_file_that_is_missing_a_folder_or_a_fifo_is_refused(tmp_path: Path) -> None:
    refusal_of(tmp_path / "nothing")
    (tmp_path / "folder").mkdir(mode=0o700)
    refusal_of(tmp_path / "folder")
    os.mkfifo(tmp_path / "fifo", 0o600)
    refusal_of(tmp_path / "fifo")


@pytest.mark.parametrize("origin", ["nonsense", "*", "null", "https://", "https://a b", "https://a/path"])
def test_what_no_browser_sends_as_an_origin_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(SessionReferenceError) as failure:
        check_origins(["https://app.example", origin])
    assert failure.value.code is ErrorCode.INVALID_CONFIG
