"""Where a WebSocket server is and what opens it, read from a URL."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec

__all__ = ("WebAddress", "parse_web_address")

_DEFAULT_PATH: Final = "/rpc"
_DEFAULT_PORT: Final = 80
_URL: Final = re.compile(r"[!-~]+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")


class WebAddress(msgspec.Struct, frozen=True):
    """An address to connect to; `url` has neither a fragment nor the token, which no log may hold."""

    url: str
    host: str
    port: int
    token: str | None


def parse_web_address(url: str, token: str | None) -> WebAddress:
    """Read `ws://HOST:PORT/rpc` or `http://HOST:PORT/#token=TOKEN`, as the server prints it.

    A token that is given counts more than the one in the URL. Raises ValueError, which never quotes the URL.
    """
    if not _URL.fullmatch(url):
        raise ValueError("the URL must be ASCII without blanks")
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "http"):
        raise ValueError("the URL must begin with ws:// or http://; TLS is not spoken")
    if not parts.hostname or "@" in parts.netloc:
        raise ValueError("the URL must name a host, and no user")
    port = _DEFAULT_PORT if parts.port is None else parts.port
    if token is None:
        token = parse_qs(_plus_kept(parts.fragment)).get("token", [None])[0]
    if token is not None and not _TOKEN.fullmatch(token):
        raise ValueError("the token must be of A-Z a-z 0-9 . _ ~ + / = -")
    path = parts.path if parts.path not in ("", "/") else _DEFAULT_PATH
    query = f"?{parts.query}" if parts.query else ""
    host = parts.hostname
    shown = f"[{host}]" if ":" in host else host
    return WebAddress(f"ws://{shown}:{port}{path}{query}", host, port, token)


def _plus_kept(fragment: str) -> str:
    """A fragment is no form: its plus signs are no blanks."""
    return fragment.replace("+", "%2B")
