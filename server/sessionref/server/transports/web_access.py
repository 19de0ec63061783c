"""Who may call over HTTP: the host check, the origin allow-list, and the bearer token.

Loopback does not separate users, and every web page can send requests to it: so each request must name a loopback
host (DNS rebinding), come from an allowed origin if it names one, and carry the token where it can do something.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from sessionref.protocol.errors import invalid_config
from sessionref.server.files import open_plain_file

__all__ = ("SUBPROTOCOL", "TOKEN_SUBPROTOCOL_PREFIX", "WebAccess", "check_origins", "read_token")

SUBPROTOCOL: Final = "sessionref"
"""The WebSocket subprotocol that is spoken; a browser offers it beside the one that carries its token."""

TOKEN_SUBPROTOCOL_PREFIX: Final = "sessionref.token."
MAX_TOKEN_BYTES: Final = 4096
"""A token is a line; what is longer is some other file."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")
_ORIGIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9.:\[\]_-]+/?")
_LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


class WebAccess:
    """The checks of one HTTP listener; `origins` as browsers send them, as `https://app.example`."""

    def __init__(self, token: str, origins: Iterable[str] = (), *, host: str = "127.0.0.1") -> None:
        self.token = token
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._hosts = _LOOPBACK_NAMES | {f"[{host}]" if ":" in host else host}

    def allows_host(self, header: str | None) -> bool:
        """Whether a `Host` header names this machine's loopback interface."""
        if header is None:
            return False
        name = re.sub(r":[0-9]{1,5}\Z", "", header.strip().lower())
        return name in self._hosts

    def allows_origin(self, header: str | None) -> bool:
        """Whether a request may come from that `Origin`; none is no browser, `null` is refused."""
        return header is None or (header != "null" and header.lower() in self._origins)

    def allows_token(self, authorization: str | None, subprotocols: Sequence[str] = ()) -> bool:
        """Whether the `Authorization` header, or one of the offered WebSocket subprotocols, carries the token."""
        scheme, _, given = (authorization or "").partition(" ")
        candidates = [given.strip()] if scheme.lower() == "bearer" else []
        candidates += [
            name.removeprefix(TOKEN_SUBPROTOCOL_PREFIX)
            for name in subprotocols
            if name.startswith(TOKEN_SUBPROTOCOL_PREFIX)
        ]
        return any(hmac.compare_digest(candidate.encode(), self.token.encode()) for candidate in candidates)


def check_origins(origins: Iterable[str]) -> None:
    """Make sure that each is an origin as browsers send them. Raises SessionReferenceError INVALID_CONFIG."""
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise invalid_config("an origin", "a scheme and a host, as https://app.example", "--origin")


def read_token(path: Path | None) -> str:
    """The token of a private file, or a new random one. Raises SessionReferenceError INVALID_CONFIG."""
    if path is None:
        return secrets.token_urlsafe(32)
    option = "--token-file"
    try:
        with open_plain_file(path) as file:
            found = os.fstat(file.fileno())
            if found.st_mode & 0o077 or found.st_uid not in (0, os.getuid()):
                raise invalid_config("the token file", "a plain file that only this user can read", option)
            token = file.read(MAX_TOKEN_BYTES).decode("ascii").strip()
    except (OSError, ValueError):
        raise invalid_config("the token file", "a readable file of ASCII text", option) from None
    if not _TOKEN.fullmatch(token):
        raise invalid_config("the token", "16 to 512 characters of A-Z a-z 0-9 . _ ~ + / = -", option)
    return token
