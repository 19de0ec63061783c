"""Bytes of one message from a server to the answer that it is."""

from __future__ import annotations

from typing import Any

import msgspec

from sessionref.client.failures import CloseReason, ConnectionClosedError
from sessionref.protocol.errors import WireError
from sessionref.protocol.jsontext import JsonError, convert, decode_json

__all__ = ("Answer", "Failed", "Succeeded", "decode_answer")


class Succeeded(msgspec.Struct, frozen=True):
    """A response with a result."""

    id: int
    result: Any


class Failed(msgspec.Struct, frozen=True):
    """A response with an error; `id` is None where the server could not tell what it answers."""

    id: int | None
    error: WireError


Answer = Succeeded | Failed


def decode_answer(data: bytes) -> Answer | None:
    """Decode one message; None for a notification or request of the server's own, which this version knows none of.

    Raises ConnectionClosedError MALFORMED for anything else: after it nothing can be trusted to be answered.
    """
    try:
        message = convert(decode_json(data), dict[str, Any])
        if "method" in message:
            return None
        kind: type[Answer] = Succeeded if message.get("error") is None else Failed
        return convert(message, kind)
    except (JsonError, msgspec.ValidationError):
        raise ConnectionClosedError(CloseReason.MALFORMED) from None
