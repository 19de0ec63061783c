"""What can go wrong with a call: a connection that is over, a result of another shape, and the server's own errors."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

import msgspec

from sessionref.protocol.errors import (
    CODE_NUMBERS,
    MAX_MESSAGE_CHARACTERS,
    SERVER_CANCELLED,
    ErrorCode,
    ErrorData,
    ProtocolCode,
    ProtocolError,
    RpcError,
    SessionReferenceError,
    WireError,
)
from sessionref.protocol.jsontext import convert

__all__ = (
    "CloseReason",
    "ConnectionClosedError",
    "ConnectionRefusedByServerError",
    "MissingExtraError",
    "PeerEvidence",
    "UnexpectedResultError",
    "failure_from_wire",
    "one_line",
)


class CloseReason(StrEnum):
    """Why a connection is over."""

    NOT_OPEN = "not-open"
    NOT_STARTED = "not-started"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    TIMED_OUT = "timed-out"
    ENDED = "ended"
    MALFORMED = "malformed"
    TOO_LONG = "too-long"


_CLOSE_MESSAGES: Final[dict[CloseReason, str]] = {
    CloseReason.NOT_OPEN: "the connection is not open",
    CloseReason.NOT_STARTED: "the server could not be started",
    CloseReason.UNREACHABLE: "the server cannot be reached",
    CloseReason.REFUSED: "the server refused the connection",
    CloseReason.TIMED_OUT: "the server did not answer in time at its start or while connecting",
    CloseReason.ENDED: "the server has ended the connection",
    CloseReason.MALFORMED: "the server sent something that is no answer",
    CloseReason.TOO_LONG: "the server sent a message that is too long",
}


class PeerEvidence(msgspec.Struct, frozen=True):
    """What is known of a server besides its answers; nothing, unless it is a process of ours."""

    exit_code: int | None = None
    stderr_tail: str = ""


class ConnectionClosedError(Exception):
    """The connection is over, for this call and all later ones.

    Attributes: `reason`; `exit_code`, if the server was a process that has ended; `stderr_tail`, the end of its log,
    which stays out of the message because it may hold anything.
    """

    def __init__(self, reason: CloseReason, evidence: PeerEvidence | None = None) -> None:
        known = evidence or PeerEvidence()
        ending = "" if known.exit_code is None else f" (exit code {known.exit_code})"
        super().__init__(_CLOSE_MESSAGES[reason] + ending)
        self.reason = reason
        self.exit_code = known.exit_code
        self.stderr_tail = known.stderr_tail


class ConnectionRefusedByServerError(ConnectionClosedError):
    """The server was reached and refused the WebSocket; `status` is that of HTTP.

    401 means no token or a wrong one, 403 a host name or an origin that the server does not serve, 503 too many
    connections.
    """

    def __init__(self, status: int) -> None:
        super().__init__(CloseReason.REFUSED)
        self.args = (f"{self} (HTTP status {status})",)
        self.status = status


class MissingExtraError(ImportError):
    """A package is not installed that only one way to a server needs."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"the package {package} is missing: install sessionref[{extra}]", name=package)
        self.extra = extra


class UnexpectedResultError(Exception):
    """A result came that has not the shape which its method promises; the connection goes on."""

    def __init__(self, method: str) -> None:
        super().__init__(f"the result of {method} has an unexpected shape")
        self.method = method


_CODES: Final = {number: code for code, number in CODE_NUMBERS.items()} | {SERVER_CANCELLED: ErrorCode.CANCELLED}
_PROTOCOL_CODES: Final = frozenset(map(int, ProtocolCode))


def failure_from_wire(error: WireError) -> RpcError:
    """The exception for a server's error: SessionReferenceError, ProtocolError, or RpcError for an unknown integer.

    Never raises: facts that this version does not know, or that have another type, are left out.
    """
    facts = _facts(error.data)
    code = facts.code or _CODES.get(error.code)
    message = one_line(error.message)
    if code is not None:
        return SessionReferenceError(code, message, facts, number=error.code)
    if error.code in _PROTOCOL_CODES:
        return ProtocolError(ProtocolCode(error.code), message, facts)
    return RpcError(error.code, message, facts)


def one_line(text: str) -> str:
    """A server's text as messages are: one line of at most 200 characters."""
    return " ".join(text[: 4 * MAX_MESSAGE_CHARACTERS].split())[:MAX_MESSAGE_CHARACTERS]


def _facts(data: object) -> ErrorData:
    members: dict[str, Any] = {}
    known: dict[str, Any] = {}
    with suppress(msgspec.ValidationError):
        members = convert(data, dict[str, Any])
    for field in msgspec.structs.fields(ErrorData):
        with suppress(msgspec.ValidationError):
            known[field.name] = convert(members.get(field.encode_name), field.type)
    return ErrorData(**known)
