"""URLs of WebSocket servers: what is read from them, and what is refused without being quoted."""

from __future__ import annotations

import pytest

from sessionref.client.web_address import WebAddress, parse_web_address


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ws://127.0.0.1:9/rpc", WebAddress("ws://127.0.0.1:9/rpc", "127.0.0.1", 9, None)),
        ("http://127.0.0.1:9/#token=a-b", WebAddress("ws://127.0.0.1:9/rpc", "127.0.0.1", 9, "a-b")),
        ("http://localhost:9", WebAddress("ws://localhost:9/rpc", "localhost", 9, None)),
        ("HTTP://LocalHost:9/rpc#token=a%2Bb+c", WebAddress("ws://localhost:9/rpc", "localhost", 9, "a+b+c")),
        ("http://[::1]:9/#x=1&token=t", WebAddress("ws://[::1]:9/rpc", "::1", 9, "t")),
        ("ws://host/other?x=1#token=t", WebAddress("ws://host:80/other?x=1", "host", 80, "t")),
        ("ws://host/#token=", WebAddress("ws://host:80/rpc", "host", 80, None)),
    ],
)
def test_host_port_path_and_token_are_read(url: str, expected: WebAddress) -> None:
    assert parse_web_address(url, None) == expected


def test_a_given_token_counts_more_than_the_one_in_the_url() -> None:
    assert parse_web_address("ws://host/#token=there", "here").token == "here"


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("wss://host/secret", None),
        ("https://host/secret", None),
        ("host:9/secret", None),
        ("secret", None),
        ("ws:///secret", None),
        ("ws://user:secret@host/rpc", None),
        ("ws://host:99999/secret", None),
        ("ws://host/secret\r\nX: y", None),
        ("ws://host/secret é", None),
        ("ws://host/", "secret\r\nX: y"),
        ("ws://host/", "secret, other"),
        ("ws://host/#token=secret%0d%0aX", None),
        ("", None),
        ("ws://host/", ""),
    ],
)
def test_what_cannot_be_used_is_refused_and_not_quoted(url: str, token: str | None) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        parse_web_address(url, token)
    assert "secret" not in str(caught.value)
